"""Cycle-level simulator: runs a program flit by flit through routers.

Engines and memory channels work as in the event-driven simulator.

No repetition is jumped, and nothing runs in the order in which it is written: whatever is ready first goes first, on an
engine, at a memory channel and in the network. A message is a packet of as many flits as it has words. Routers have as many
stages as their chip's hop has cycles: of one, a head gets its channel and its turn of the switch in the cycle in which it
comes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dse.evaluators.cost_models.simulation_timing import (
    SimulatedMachine,
    SimulationResult,
    engine_busy_seconds,
    memory_link_activity,
)
from dse.evaluators.cost_models.task_floor import floor_of
from dse.evaluators.cost_models.task_graph import TaskGraph, unroll_program
from dse.evaluators.machine.bank_simulator import BankSimulatorState
from dse.evaluators.machine.bank_simulator_state import closed_banks
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.fault_routing import add_fault_routes
from dse.evaluators.machine.memory_channels import ChannelBanks, MeshChannels, check_within, is_on_last_row
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.machine.router_state import BITS, CORE, HAS, MASK, WAITS, DieLinkPorts, RouterTables, make_router_tables
from dse.evaluators.machine.task_events import Floor, Tasks
from dse.evaluators.machine.task_simulator import run_tasks
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Program
from dse.space.array_math import Array
from dse.space.chip import Router
from dse.space.errors import DesignError
from dse.space.noc_router import NO_FAULTS, MeshFaults, check_router_buffers, router_cycles

INTEGER_TOLERANCE = 1e-6
"""By which share of a cycle a time may differ from a whole number of them: rounding."""


def simulate_cycles(
    program: Program,
    fabric: MeshFabric,
    *,
    engines: TileEngines | None = None,
    memory: MeshChannels | None = None,
    banks: ChannelBanks | None = None,
    faults: MeshFaults = NO_FAULTS,
) -> SimulationResult:
    """Simulate a program on routers cycle by cycle; returns its time and activity.

    Args:
        program: what every core does, on a mesh.
        fabric: times of the network; a hop and a word are whole numbers of its cycles.
        engines: of each core, side by side; without them one engine does everything by vector instructions.
        memory: channels from which the program loads and to which it stores.
        banks: what is behind each of these; with banks, blocks are simulated burst by burst; without, they have the channels'
            pace.
        faults: broken cores and links of the mesh. Messages go around broken links.

    Raises:
        DesignError: a core that is broken, or that no way leads to; a hop or a word that is no whole number of cycles; a way
            between core and router that is shorter than its router; more or deeper virtual channels than routers support;
            more tasks than can be simulated; or a deadlock, with the channels that wait for one another.
    """
    machine = simulated_machine(program, fabric, engines, memory, banks, faults)
    graph, ends, tasks, floor = run_task_graph(program, machine)
    busy = float(max(tasks.done.max(initial=0.0), floor.free.max(initial=0.0)))
    done = np.append(tasks.done, 0.0)  # of what nobody writes
    ready = {name: done[made].reshape(program.rows, program.cols) * graph.cycle for name, made in ends.items()}
    activity = count_activity(program) + memory_link_activity(program, machine)
    if faults:  # ways round are longer
        whole, _ = unroll_program(program, replace(machine, faults=NO_FAULTS), graph.cycle)
        longer = graph.count_crossings() / max(whole.count_crossings(), 1.0)
        activity += Activity(hop_bytes=activity.hop_bytes * (longer - 1))
    return SimulationResult(busy * graph.cycle, activity, *engine_busy_seconds(program, machine), len(tasks.kind), ready)


def simulated_machine(
    program: Program,
    fabric: MeshFabric,
    engines: TileEngines | None,
    memory: MeshChannels | None,
    banks: ChannelBanks | None,
    faults: MeshFaults,
) -> SimulatedMachine:
    """Machine on which the cycle-level simulator runs a program; arguments as of `simulate_cycles`."""
    check_within(memory, program.rows, program.cols)
    fabric = fabric.on_last_rows(program.rows) if is_on_last_row(memory, program.rows) else fabric
    return SimulatedMachine(fabric, engines, memory, {slot.name: slot for slot in program.slots}, faults, banks)


def run_task_graph(program: Program, machine: SimulatedMachine) -> tuple[TaskGraph, dict[str, Array], Tasks, Floor]:
    """Run the tasks of a program on routers; returns their graph, last writers, times and engines.

    Raises:
        DesignError: as of `simulate_cycles`.
    """
    graph, ends = unroll_program(program, machine, float(machine.fabric.cycle))
    return graph, ends, *play_graph(graph)


def play_graph(graph: TaskGraph) -> tuple[Tasks, Floor]:
    """Run a task graph on routers; returns times of tasks, and engines.

    Raises:
        DesignError: as of `simulate_cycles`.
    """
    net = _network(graph)
    tasks, packets, circuits, floor = floor_of(graph)
    if not run_tasks(net, floor, tasks, packets, circuits, _banks(graph)):
        raise DesignError(
            f"chip.noc.vcs: the routers are in a deadlock: {describe_deadlock(net, graph.shape[1])}; increase the channels"
        )
    return tasks, floor


def router_of_hop(hop: int, vcs: int, depth: int) -> Router:
    """Router whose pipeline has as many stages as a hop has cycles.

    >>> [float(router_cycles(router_of_hop(hop, 4, 8)).hop) for hop in (1, 2, 3, 4, 5, 7)]
    [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]
    """
    return Router(
        vcs=vcs,
        vc_depth=depth,
        route_cycles=max(hop - 4, 0),
        vc_alloc=1,
        switch_alloc=1,
        switch_traversal=int(hop > 2),
        link=int(hop > 1),
        credit=int(hop > 2),
        speculative=hop < 4,
        flit_x=1,
        flit_y=1,
        flit_bytes=None,
    )


def _network(graph: TaskGraph) -> RouterTables:
    """State of the routers for a task graph."""
    fabric = graph.on.fabric
    check_router_buffers(fabric.vcs, fabric.depth, "chip.noc")
    hop, word = (_cycles(getattr(fabric, name), graph.cycle, f"chip.noc.{name}_cycles") for name in ("hop", "word"))
    ramps = _cycles(2 * fabric.ramp, graph.cycle, "chip.noc.ramp_cycles")
    t = router_cycles(router_of_hop(hop, int(fabric.vcs), int(fabric.depth)))
    eject = max(1, ramps - ramps // 2 - int(t.before))
    inject = ramps - int(t.before) - eject
    if inject < 0:
        need = f"needs at least {int(t.before) + 1} cycles in and out, the stages of a router before its link"
        raise DesignError(f"chip.noc.ramp_cycles: {need}; got {ramps}; increase the ramp, or reduce chip.noc.hop_cycles")
    speculative = hop < 4
    net = make_router_tables(
        *graph.shape, int(fabric.vcs), int(fabric.depth), route=int(t.before - (not speculative)), forward=int(t.after),
        credit=int(t.back), eject=eject, inject=inject, local=1, speculative=speculative,
        memory=graph.on.memory is not None, roomy=True,
        width=np.full((1, CORE + 1 + (graph.on.memory is not None)), word), packets=max(graph.numbers, 1),
        trees=len(graph.tree_out), sums=any(tree.any() for tree in graph.tree_in), die_links=_die_links(graph),
    )  # fmt: skip
    if graph.detours is not None:
        net = add_fault_routes(net, graph.detours)
    net.target[: graph.numbers] = graph.target.to_array()
    for number, (out, into) in enumerate(zip(graph.tree_out, graph.tree_in, strict=True)):
        net.tree_out[number], net.tree_in[number] = out, into
    net.tree_around[:] = graph.tree_around
    return net


def _die_links(graph: TaskGraph) -> DieLinkPorts | None:
    """Ports of the routers that lead to other dies; None on a mesh of one die."""
    fabric, (rows, cols) = graph.on.fabric, graph.shape
    if not fabric.is_divided:
        return None
    row, col = np.divmod(np.arange(rows * cols), cols)
    down, across = (row + fabric.missing_rows) // fabric.die_rows, col // fabric.die_cols
    ports = np.zeros((rows * cols, CORE + 1 + (graph.on.memory is not None)), np.bool_)
    for way, (south, east) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
        inside = (row + south >= 0) & (row + south < rows) & (col + east >= 0) & (col + east < cols)
        to = (row + south + fabric.missing_rows) // fabric.die_rows, (col + east) // fabric.die_cols
        ports[:, way] = inside & ((to[0] != down) | (to[1] != across))
    far = round(float(fabric.crossing / graph.cycle))
    frame = max(float(fabric.crossing_word), float(fabric.word)) / graph.cycle
    return DieLinkPorts(ports, far, round(frame) if abs(frame - round(frame)) < INTEGER_TOLERANCE else frame)


def _cycles(seconds: float, cycle: float, address: str) -> int:
    count = round(seconds / cycle)
    if count < 1 or abs(seconds / cycle - count) > INTEGER_TOLERANCE:
        raise DesignError(
            f"{address}: routers need a whole number of cycles above 0, got {seconds / cycle:g}; change it, or chip.clock"
        )
    return count


def _banks(graph: TaskGraph) -> BankSimulatorState | None:
    """Banks behind memory channels, and where blocks lie in them; none where channels have a pace."""
    memory, first = graph.on.memory, graph.cores * graph.engines
    if memory is None or graph.on.banks is None:
        return None
    address, piece, write = np.zeros(graph.count, np.int64), np.zeros(graph.count, np.int64), np.zeros(graph.count, np.bool_)
    for tasks, burst, stored in graph.blocks:
        address[tasks], piece[tasks], write[tasks] = burst.address, burst.piece, stored
    blocks = (address, piece, write)
    return closed_banks(graph.on.banks, len(memory.row), graph.count, first, graph.cycle, memory.latency, blocks)


def describe_deadlock(net: RouterTables, cols: int) -> str:
    """Text that lists input channels which wait for one another in a cycle, or one that waits."""
    busy = np.flatnonzero(net.channel["busy"]).tolist()
    waits = {channel: sorted(set(_waits_for(net, channel))) for channel in busy}
    if cycle := find_cycle(waits):
        return " waits for ".join(_name(net, channel, cols) for channel in cycle)
    return f"{_name(net, busy[0], cols)} waits for flits that never come" if busy else "no event is left"


def find_cycle(waits: Mapping[int, Sequence[int]]) -> list[int]:
    """First cycle in a graph of waits, from one member back to itself; empty without a cycle.

    >>> find_cycle({1: [2], 2: [3, 4], 4: [2]})
    [2, 4, 2]
    """
    ended: set[int] = set()
    for start in waits:
        trail, ahead = {start: 0}, [iter(waits[start])]
        while ahead and start not in ended:
            following = next(ahead[-1], None)
            if following is None:
                ended.add(trail.popitem()[0])
                ahead.pop()
            elif following in trail:
                return [*list(trail)[trail[following] :], following]
            elif following not in ended:
                trail[following] = len(trail)
                ahead.append(iter(waits.get(following, ())))
    return []


def _waits_for(net: RouterTables, channel: int) -> Iterator[int]:
    """Input channels that have to move before one can move."""
    into = channel >> net.shift
    r, state = int(net.router_of[into]), net.channel[channel]
    if not state["count"]:
        yield from _holders(net, int(net.port[into]["back"]) + (channel & net.within))
        return
    ports = range(r * net.ports, (r + 1) * net.ports)
    for number, at in enumerate(ports):
        branch = _branch(net, channel, number)
        if branch >= HAS and net.out[(at << net.shift) + branch - HAS]["credits"] <= 0:
            onward = int(net.port[at]["onward"]) + branch - HAS
            yield from (onward,) if onward < net.channels else ()
        elif branch == WAITS:
            for vc in range(net.vcs):
                yield from _holders(net, (at << net.shift) + vc)
    packet = int(state["flit"]) >> 2
    for number, came, _ in net.adding[r] if len(net.adding) else ():
        if number == packet and not state["mask"]:
            missing = int(net.tree_in[-1 - int(net.target[packet]), r]) & ~int(came)
            for port, at in enumerate(ports):
                if missing >> port & 1:
                    yield from ((at << net.shift) + vc for vc in range(net.vcs))


def _branch(net: RouterTables, channel: int, port: int) -> int:
    return int(net.channel[channel]["branches"]) >> port * BITS & MASK


def _holders(net: RouterTables, out: int) -> Iterator[int]:
    """Input channel whose packet holds an output channel; none if a core sends it."""
    at, vc = out >> net.shift, out & net.within
    if out < net.channels and not int(net.port[at]["unused"]) >> vc & 1:
        yield (at - int(net.number[at]) << net.shift) + int(net.out[out]["holder"])


def _name(net: RouterTables, channel: int, cols: int) -> str:
    r, port = divmod(channel >> net.shift, net.ports)
    side = ("east", "west", "south", "north", "core", "memory")[port]
    return f"channel {channel & net.within} from the {side} of router ({r // cols}, {r % cols})"
