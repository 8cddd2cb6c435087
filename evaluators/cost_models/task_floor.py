"""Tasks, packets, engines and channels of a program for compiled loops.

Programs whose messages lock their routes are simulated here.

Cores that are ahead ask for channels of their next round while others wait with those of this one, and have them where all of
theirs are free, though one that asked before waits for one of them: so nobody holds what another waits for, and neighbours get
out of step. Round by round, as other programs are simulated, none of this would be seen. No repetition is jumped.
"""

from itertools import pairwise

import numpy as np

from dse.evaluators.cost_models.simulation_timing import SimulatedMachine, SimulationResult, engine_busy_seconds
from dse.evaluators.cost_models.task_graph import NONE, TaskGraph, unroll_program
from dse.evaluators.machine.noc_simulator import EAST, NORTH, SOUTH, WEST
from dse.evaluators.machine.router_state import CORE
from dse.evaluators.machine.task_events import STACK, Floor, Packets, Tasks, perform_messages
from dse.evaluators.program.activity_counts import count_activity, iterate_instructions
from dse.evaluators.program.kernel_ir import MultiplyInstruction, Program, SendInstruction, VectorInstruction
from dse.evaluators.program.routes import route_cores
from dse.space.array_math import Array


def floor_of(graph: TaskGraph) -> tuple[Tasks, Packets, Floor]:
    """Tasks and packets of a graph, and the resources that run them, before the simulation."""
    tasks, packets = _tasks(graph), _packets(graph)
    return tasks, packets, _floor(graph, tasks)


def takes_circuits(program: Program, on: SimulatedMachine) -> bool:
    """Whether all traffic of a program is messages between cores that lock their routes on a mesh."""
    if not on.fabric.locked or program.topology != "mesh":
        return False
    return all(
        isinstance(step, MultiplyInstruction | VectorInstruction | SendInstruction) for step, _ in iterate_instructions(program)
    )


def play_circuits(program: Program, on: SimulatedMachine) -> SimulationResult:
    """Simulate a program whose messages lock their routes; returns its time and activity."""
    cycle = on.fabric.cycle or on.fabric.word or 1.0
    graph, ends = unroll_program(program, on, cycle)
    tasks, packets, floor = floor_of(graph)
    if not perform_messages(floor, tasks, packets):
        raise ValueError("the program is in a deadlock: its strands wait for one another")
    done = np.append(tasks.done, 0.0)  # of what nobody writes
    ready = {name: done[made].reshape(program.rows, program.cols) * cycle for name, made in ends.items()}
    busy = float(max(done.max(), floor.free.max(initial=0.0))) * cycle
    return SimulationResult(busy, count_activity(program), *engine_busy_seconds(program, on), len(tasks.kind), ready)


def _tasks(graph: TaskGraph) -> Tasks:
    count = graph.count
    before, after = graph.before.whole(), graph.after.whole()
    needs = np.bincount(after, minlength=count).astype(np.int32)
    needs[graph.awaited.whole()] += 1
    order = np.argsort(before, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=count))])
    columns = {name: column.whole() for name, column in graph.task.items()}
    return Tasks(
        columns["kind"], columns["on"], columns["busy"], columns["after"], needs, np.zeros(count), first, after[order],
        np.full(count, NONE), np.zeros(count),
    )  # fmt: skip


def _packets(graph: TaskGraph) -> Packets:
    of = {name: column.whole() for name, column in graph.packet.items()}
    empty = np.zeros(graph.packets, np.int64)
    return Packets(
        of["router"], of["port"], of["number"], of["flits"], of["pace"], empty, empty.copy(), np.zeros(graph.packets),
        of["feeder"], of["left"], of["head"], of["tail"], empty - 1, of["far"], of["owed"], empty.copy(), *_circuits(graph, of),
    )  # fmt: skip


def _circuits(graph: TaskGraph, of: dict[str, Array]) -> tuple[Array, Array]:
    """Where the channels of each packet's circuit begin in a list of them, and the list; packets to and from memory have none.

    They are its core's way out, the target's way in, and the links between: both ways where there are several, as the grant
    comes back by routers, and that way alone between neighbours.
    """
    to = graph.target.whole()[of["number"]]
    some = np.flatnonzero((of["port"] == CORE) & (to >= 0) & (to & 7 == CORE)) if graph.on.fabric.locked > 0 else np.arange(0)
    ends = np.stack([of["router"][some], to[some] >> 3, of["far"][some] > 1], axis=1)
    kinds, which = np.unique(ends, axis=0, return_inverse=True)
    lists = [_channels(graph, source, target, bool(both)) for source, target, both in kinds.tolist()]
    ways = np.zeros(graph.packets + 1, np.int64)
    ways[some + 1] = np.array([len(channels) for channels in lists], np.int64)[which.ravel()]
    found = [lists[kind] for kind in which.ravel().tolist()]
    return np.cumsum(ways), np.concatenate(found) if found else np.zeros(0, np.int64)


def _channels(graph: TaskGraph, source: int, target: int, both: bool) -> Array:
    """Channels of a circuit: four of links that leave each router, then each core's way out, then each one's way in."""
    nodes, cols = graph.cores, graph.shape[1]
    if graph.detours is not None:
        route = graph.detours.way(source, target)
    else:
        ends = ((at // cols, at % cols) for at in (source, target))
        route = [row * cols + col for row, col in route_cores(*ends)]
    found = [4 * nodes + source, 5 * nodes + target]
    for here, there in pairwise(route):
        found.append(4 * here + _port(there - here, cols))
        found += [4 * there + _port(here - there, cols)] if both else []
    return np.array(found, np.int64)


def _port(ahead: int, cols: int) -> int:
    """The port by which a message leaves for a neighbouring router, so many places ahead."""
    if abs(ahead) == cols:
        return SOUTH if ahead > 0 else NORTH
    return EAST if ahead > 0 else WEST


def _floor(graph: TaskGraph, tasks: Tasks) -> Floor:
    fabric, memory, cores = graph.on.fabric, graph.on.memory, graph.cores
    resources = cores * graph.engines + (0 if memory is None else len(memory.row))
    ports = 1 if memory is None else 2
    places, events = cores * ports, graph.count + resources + graph.packets + 1
    rates = (0.0, 0.0, 0.0) if memory is None else (memory.latency, memory.byte, memory.crowded)
    latency, byte, crowded = (float(rate) / graph.cycle for rate in rates)
    asking = graph.packets if fabric.locked > 0 else 0
    stack, counts = np.zeros(graph.count + 1, np.int64), np.zeros(8, np.int64)
    begin = np.flatnonzero(tasks.needs == 0)
    stack[: len(begin)], counts[STACK] = begin[::-1], len(begin)

    locks = np.stack([np.zeros(6 * cores, np.int64), np.full(6 * cores, NONE)], axis=1)

    def nobody(*shape: int) -> Array:
        return np.full(shape, NONE, np.int64)

    return Floor(
        np.zeros(resources), nobody(resources, 2), nobody(places, 2), np.zeros(places, np.int64), nobody(places),
        np.zeros(places, np.uint8), np.zeros(places, np.int64), latency, byte, crowded, graph.of.whole(),
        np.stack(graph.place) if graph.place else np.zeros((0, cores), np.int32), np.zeros(events), np.zeros(events, np.int64),
        stack, locks, nobody(asking), float(2 * fabric.ramp / graph.cycle), float(fabric.hop / graph.cycle), ports, counts,
    )  # fmt: skip
