"""Tasks, packets, engines and channels of a program for compiled loops.

Programs whose messages lock their routes are simulated here.

Cores that are ahead ask for channels of their next round while others wait with those of this one, and have them where all of
theirs are free, though one that asked before waits for one of them: so nobody holds what another waits for, and neighbours get
out of step. Round by round, as other programs are simulated, none of this would be seen. No repetition is jumped.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dse.evaluators.cost_models.simulation_timing import SimulatedMachine, SimulationResult, engine_busy_seconds
from dse.evaluators.cost_models.task_graph import NONE, TaskGraph, unroll_program
from dse.evaluators.machine.mesh_lines import EAST, NORTH, SOUTH, WEST
from dse.evaluators.machine.router_state import CORE
from dse.evaluators.machine.task_events import STACK, Circuits, Floor, Packets, Tasks, perform_messages
from dse.evaluators.program.activity_counts import count_activity, iterate_instructions
from dse.evaluators.program.kernel_ir import (
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    SendInstruction,
    VectorInstruction,
)
from dse.evaluators.program.routes import route_cores
from dse.space.array_math import Array


def floor_of(graph: TaskGraph) -> tuple[Tasks, Packets, Circuits, Floor]:
    """Tasks, packets and circuits of a graph, and its resources, before the simulation."""
    tasks, (circuit, circuits) = _tasks(graph), _circuits(graph)
    return tasks, _packets(graph, circuit), circuits, _floor(graph, tasks)


def is_circuit_switched(program: Program, machine: SimulatedMachine) -> bool:
    """Whether all traffic of a program goes between cores and locks its route, or its tree, on a mesh."""
    if not machine.fabric.locked or program.topology != "mesh":
        return False
    return all(
        isinstance(step, MultiplyInstruction | VectorInstruction | SendInstruction | MulticastInstruction | ReduceInstruction)
        for step, _ in iterate_instructions(program)
    )


def play_circuits(program: Program, machine: SimulatedMachine) -> SimulationResult:
    """Simulate a program whose messages lock their routes; returns its time and activity."""
    cycle = machine.fabric.cycle or machine.fabric.word or 1.0
    graph, ends = unroll_program(program, machine, cycle)
    tasks, packets, circuits, floor = floor_of(graph)
    if not perform_messages(floor, tasks, packets, circuits):
        raise ValueError("the program is in a deadlock: its strands wait for one another")
    done = np.append(tasks.done, 0.0)  # of what nobody writes
    ready = {name: done[made].reshape(program.rows, program.cols) * cycle for name, made in ends.items()}
    busy = float(max(done.max(), floor.free.max(initial=0.0))) * cycle
    return SimulationResult(busy, count_activity(program), *engine_busy_seconds(program, machine), len(tasks.kind), ready)


def _tasks(graph: TaskGraph) -> Tasks:
    count = graph.count
    before, after = graph.before.to_array(), graph.after.to_array()
    needs = np.bincount(after, minlength=count).astype(np.int32)
    needs[graph.awaited.to_array()] += 1
    order = np.argsort(before, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=count))])
    columns = {name: column.to_array() for name, column in graph.task.items()}
    return Tasks(
        columns["kind"], columns["on"], columns["busy"], columns["after"], needs, np.zeros(count), first, after[order],
        np.full(count, NONE), np.zeros(count),
    )  # fmt: skip


def _packets(graph: TaskGraph, circuit: Array) -> Packets:
    packets = {name: column.to_array() for name, column in graph.packet.items()}
    empty = np.zeros(graph.packets, np.int64)
    return Packets(
        packets["router"], packets["port"], packets["number"], packets["flits"], packets["pace"], empty, empty.copy(),
        np.zeros(graph.packets),
        packets["feeder"], packets["left"], packets["head"], packets["tail"], empty - 1, packets["far"], packets["owed"],
        empty.copy(), circuit,
    )  # fmt: skip


class _Channel(NamedTuple):
    """A channel of a circuit; fields as of `Circuits`."""

    channel: int
    begins: float
    ends: float
    task: int = NONE


def _circuits(graph: TaskGraph) -> tuple[Array, Circuits]:
    """The number of each packet's circuit, -1 of packets that take none, and the circuits.

    Where routes are locked, messages, multicasts and sums take one; blocks to and from memory do not.
    """
    number, circuits = np.full(graph.packets, NONE, np.int64), list[list[_Channel]]()
    if graph.on.fabric.locked > 0:
        packets = {name: graph.packet[name].to_array() for name in ("router", "port", "number", "far")}
        to = graph.target.to_array()[packets["number"]]
        indices = np.flatnonzero((packets["port"] == CORE) & ((to < 0) | (to & 7 == CORE)))
        kinds, which = np.unique(
            np.stack([packets["router"], to, packets["far"]], axis=1)[indices], axis=0, return_inverse=True
        )
        number[indices] = which.ravel()
        circuits = [
            _tree_channels(graph, -1 - target) if target < 0 else _message_channels(graph, source, target >> 3, far)
            for source, target, far in kinds.tolist()
        ]
    every = [channel for channels in circuits for channel in channels]
    columns = (
        np.array([getattr(circuit_channels, name) for circuit_channels in every], kind) for name, kind in CIRCUIT_COLUMNS
    )
    return number, Circuits(np.cumsum([0, *map(len, circuits)], dtype=np.int64), *columns)


CIRCUIT_COLUMNS = (("channel", np.int64), ("begins", np.float64), ("ends", np.float64), ("task", np.int64))


def _message_channels(graph: TaskGraph, source: int, target: int, far: int) -> list[_Channel]:
    """Channels of a message: its core's way out, the target's way in, and the links between.

    Both ways where there are several links, as routers pass the grant on, and that way alone between neighbours. All are
    locked until the last word is there, after a request, a grant and the words' own way.
    """
    (ramp, hop), (nodes, cols) = _ways(graph), (graph.cores, graph.shape[1])
    ends = 3 * (2 * ramp + far * hop)
    if graph.detours is not None:
        route = graph.detours.find_route(source, target)
    else:
        places = ((at // cols, at % cols) for at in (source, target))
        route = [row * cols + col for row, col in route_cores(*places)]
    channels = [_Channel(4 * nodes + source, 0.0, ends, 0), _Channel(5 * nodes + target, 0.0, ends, 1)]
    for core, next_core in pairwise(route):
        channels.append(_Channel(4 * core + _port(next_core - core, cols), 0.0, ends))
        channels += [_Channel(4 * next_core + _port(core - next_core, cols), 0.0, ends)] if far > 1 else []
    return channels


def _tree_channels(graph: TaskGraph, tree: int) -> list[_Channel]:
    """Channels of a multicast or a sum: ways out, links of the tree that way, and ways in, each while words are on it.

    A root's copies come to a router as late as it is far away. Members of a sum begin as much earlier: their words meet.
    """
    (ramp, hop), (nodes, cols) = _ways(graph), (graph.cores, graph.shape[1])
    into, out, place = graph.tree_in[tree], graph.tree_out[tree], graph.place[tree]
    adds = bool(into.any())
    root = int(np.flatnonzero(out & 1 << CORE)[0]) if adds else int(graph.tree_root[tree])
    channels = [_Channel(4 * nodes + root, 0.0, 0.0, 0)] if not adds or into[root] & 1 << CORE else []
    if adds:
        channels.append(_Channel(5 * nodes + root, 2 * ramp, 2 * ramp, 1))
    ahead = [(root, 0)]
    while ahead:
        core, depth = ahead.pop()
        member = core != root and (into if adds else out)[core] & 1 << CORE
        if member and adds:
            channels.append(_Channel(4 * nodes + core, -depth * hop, -depth * hop, 1 + int(place[core])))
        elif member:
            late = 2 * ramp + depth * hop
            channels.append(_Channel(5 * nodes + core, late, late, 1 + int(place[core])))
        for way in (EAST, WEST, SOUTH, NORTH):
            if not (into if adds else out)[core] & 1 << way:
                continue
            next_core = core + (1, -1, cols, -cols)[way]
            late = ramp + (-(depth + 1) if adds else depth) * hop
            channels.append(_Channel(4 * next_core + (way ^ 1) if adds else 4 * core + way, late, late))
            ahead.append((next_core, depth + 1))
    return channels


def _ways(graph: TaskGraph) -> tuple[float, float]:
    """Between a core and its router, and from router to router. [cycle]"""
    return float(graph.on.fabric.ramp / graph.cycle), float(graph.on.fabric.hop / graph.cycle)


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

    locks = np.full(6 * cores, -np.inf)

    def make_unset(*shape: int) -> Array:
        return np.full(shape, NONE, np.int64)

    return Floor(
        np.zeros(resources), make_unset(resources, 2), make_unset(places, 2), np.zeros(places, np.int64), make_unset(places),
        np.zeros(places, np.uint8), np.zeros(places, np.int64), latency, byte, crowded, graph.of.to_array(),
        np.stack(graph.place) if graph.place else np.zeros((0, cores), np.int32), np.zeros(events),
        np.zeros(events, np.int64), stack, locks, make_unset(asking), float(2 * fabric.ramp / graph.cycle),
        float(fabric.hop / graph.cycle), ports, counts,
    )  # fmt: skip
