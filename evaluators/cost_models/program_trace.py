"""Trace of a program on routers: tasks, packets and memory blocks, with their times and dependencies.

The trace has what the cycle-level simulator runs, so that other simulators can be given the same work.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models.cycle_simulator import play_graph, run_task_graph, simulated_machine
from dse.evaluators.cost_models.simulation_timing import SimulatedMachine, SimulationResult, memory_link_activity
from dse.evaluators.cost_models.task_graph import NONE, TaskGraph
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ChannelBanks, MeshChannels
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.machine.router_state import CORE
from dse.evaluators.machine.task_kinds import NOTE, PACKET
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.activity_counts import count_activity, iterate_instructions
from dse.evaluators.program.kernel_ir import (
    LoadInstruction,
    MulticastInstruction,
    Program,
    ReduceInstruction,
    SendInstruction,
    StoreInstruction,
)
from dse.space.array_math import Array
from dse.space.noc_router import NO_FAULTS, MeshFaults


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A program with the machine on which simulators run it.

    Attributes:
        name: short text, for file names.
        program, fabric, engines, memory, banks, faults: arguments of `cycle_simulator.simulate_cycles`.
    """

    name: str
    program: Program
    fabric: MeshFabric
    engines: TileEngines | None = None
    memory: MeshChannels | None = None
    banks: ChannelBanks | None = None
    faults: MeshFaults = NO_FAULTS

    @property
    def machine(self) -> SimulatedMachine:
        """Machine of the cycle-level simulator."""
        return simulated_machine(self.program, self.fabric, self.engines, self.memory, self.banks, self.faults)

    @property
    def activity(self) -> Activity:
        """Activity of the program, with links between memory channels and cores."""
        return count_activity(self.program) + memory_link_activity(self.program, self.machine)


class NetworkPackets(NamedTuple):
    """Packets that cross links, one row each; a tree has one packet of one hop for each of its links.

    Attributes:
        start: time at which the source offers the packet. [cycle]
        source, target: routers, row by row.
        flits: of the packet.
        task: number of the task that offers it.
        parent: place of the packet whose flits it passes on, -1 of those that a core or a memory channel sends.
    """

    start: Array
    source: Array
    target: Array
    flits: Array
    task: Array
    parent: Array


class MemoryBlocks(NamedTuple):
    """Blocks that memory channels serve, one row each.

    Attributes:
        start: time at which the block is asked for. [cycle]
        channel: memory channel.
        address: of its first byte behind the channel; 0 where addresses are not known. [B]
        nbytes: of it. [B]
        piece: contiguous bytes, 0 for all. [B]
        write: whether it is stored.
    """

    start: Array
    channel: Array
    address: Array
    nbytes: Array
    piece: Array
    write: Array


class ProgramTrace(NamedTuple):
    """Tasks of one run of a program with their times, and what they wait for.

    Attributes:
        kind: an option of `machine.task_kinds`.
        place: engine, memory channel or packet of a task, as of `task_graph.TaskGraph`.
        ready, done: time at which a task may start, and at which those behind it may. [cycle]
        before, after: pairs of tasks of which the second waits for the first.
        packets: what crosses links.
        blocks: what memory channels serve.
        cycles: time of the program. [cycle]
    """

    kind: Array
    place: Array
    ready: Array
    done: Array
    before: Array
    after: Array
    packets: NetworkPackets
    blocks: MemoryBlocks
    cycles: float


def trace_program(run: ProgramRun) -> ProgramTrace:
    """Run a program cycle by cycle; returns its tasks, packets and blocks with their times.

    Raises:
        DesignError: as of `cycle_simulator.simulate_cycles`.
    """
    graph, _, tasks, floor = run_task_graph(run.program, run.machine)
    before, after = graph.before.to_array(), graph.after.to_array()
    arrivals = _packet_arrivals(graph)
    return ProgramTrace(
        tasks.kind,
        tasks.on,
        tasks.ready,
        np.maximum(tasks.done, tasks.ready),
        np.concatenate([before, arrivals[0]]),
        np.concatenate([after, arrivals[1]]),
        _packets(graph, tasks.ready),
        _blocks(graph, tasks.ready),
        float(max(tasks.done.max(initial=0.0), floor.free.max(initial=0.0))),
    )


def _packet_tasks(graph: TaskGraph) -> Array:
    """Task that starts each packet, shape (packets,)."""
    kind, place = graph.task["kind"].to_array(), graph.task["on"].to_array()
    tasks = np.flatnonzero(kind == PACKET)
    starts = np.full(graph.packets, NONE)
    starts[place[tasks].astype(int)] = tasks
    return starts


def _packet_arrivals(graph: TaskGraph) -> tuple[Array, Array]:
    """Pairs of the task that starts a packet, and a moment at which words of it have left or arrived."""
    starts = _packet_tasks(graph)
    number, target = graph.packet["number"].to_array(), graph.target.to_array()
    pairs = [(starts, graph.packet[name].to_array()) for name in ("left", "head", "tail")]
    trees = np.flatnonzero(target[number] < 0)
    tails = graph.packet["tail"].to_array()
    for packet in trees.tolist():
        tree = -1 - int(target[number[packet]])
        if not graph.tree_in[tree].any():  # copies: a moment for each member but the root
            count = int(np.count_nonzero(graph.tree_out[tree] >> CORE & 1))
            pairs.append((np.full(count, starts[packet]), tails[packet] + np.arange(count)))
    first, then = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    return first[then >= 0], then[then >= 0]


def _packets(graph: TaskGraph, ready: Array) -> NetworkPackets:
    """Packets by themselves, and those of the links of trees."""
    starts = _packet_tasks(graph)
    columns = {name: graph.packet[name].to_array() for name in ("router", "number", "flits")}
    target = graph.target.to_array()[columns["number"]]
    single = np.flatnonzero(target >= 0)
    rows = [
        (
            ready[starts[single]], columns["router"][single], target[single] >> 3, columns["flits"][single], starts[single],
            np.full(len(single), NONE),
        )
    ]  # fmt: skip
    hop, count = graph.on.fabric.hop / graph.cycle, len(single)
    known: dict[int, tuple[Array, Array, Array, Array]] = {}
    _, first = np.unique(columns["number"], return_index=True)
    for packet in first[target[first] < 0].tolist():
        tree = -1 - int(target[packet])
        if tree not in known:
            known[tree] = tree_links(
                graph.tree_out[tree], graph.tree_root[tree], graph.shape[1], bool(graph.tree_in[tree].any())
            )
        source, to, depth, parent = known[tree]
        rows.append(
            (
                ready[starts[packet]] + depth * hop, source, to, np.full(len(source), columns["flits"][packet]),
                np.full(len(source), starts[packet]), np.where(parent < 0, NONE, parent + count),
            )
        )  # fmt: skip
        count += len(source)
    return NetworkPackets(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def tree_links(out: Array, root: int, cols: int, adds: bool) -> tuple[Array, Array, Array, Array]:
    """Links of a tree: source and target routers, hops passed before, and the link that feeds each.

    Args:
        out: ports that words take from each router, as bits.
        root: its router.
        cols: routers of a row.
        adds: whether words go towards the root, and are added where they meet.

    A link of a sum is fed by the longest branch behind it.

    >>> out = np.array([0b0001, 0b0001, 0b10000], np.uint8)  # routers 0, 1, 2 of a row, from 0 on
    >>> [column.tolist() for column in tree_links(out, 0, 3, False)]
    [[0, 1], [1, 2], [0, 1], [-1, 0]]
    """
    ways = (1, -1, cols, -cols)
    links = [(r, r + ways[way]) for r in np.flatnonzero(out & 15).tolist() for way in range(4) if out[r] >> way & 1]
    place = {link: number for number, link in enumerate(links)}
    feeders: dict[int, list[int]] = {}
    for number, (_, to) in enumerate(links):
        feeders.setdefault(to, []).append(number)
    depth, parent, open_links = [0] * len(links), [NONE] * len(links), list(range(len(links)))
    # links from the outside in: a link is settled when all that feed it are
    settled: set[int] = set()
    while open_links:
        waiting = []
        for number in open_links:
            source, to = links[number]
            fed = [other for other in feeders.get(source, ()) if links[other] != (to, source)]
            if any(other not in settled for other in fed):
                waiting.append(number)
                continue
            if fed and (adds or source != root):
                parent[number] = max(fed, key=lambda other: depth[other])
                depth[number] = depth[parent[number]] + 1
            settled.add(number)
        if len(waiting) == len(open_links):
            raise ValueError(f"the links of a tree form a circle: {[links[number] for number in waiting]}")
        open_links = waiting
    assert len(place) == len(links)
    columns = np.array([(source, to) for source, to in links], int).reshape(-1, 2)
    return columns[:, 0], columns[:, 1], np.array(depth, int), np.array(parent, int)


def _blocks(graph: TaskGraph, ready: Array) -> MemoryBlocks:
    """Blocks of memory channels, in the order in which they are asked for."""
    channel = graph.task["on"].to_array().astype(int) - graph.cores * graph.engines
    columns: list[tuple[Any, ...]] = [
        (
            ready[tasks], channel[tasks], burst.address, np.full(len(tasks), burst.nbytes), np.full(len(tasks), burst.piece),
            np.full(len(tasks), stored),
        )
        for tasks, burst, stored in graph.blocks
    ]  # fmt: skip
    if not columns:
        return MemoryBlocks(*(np.zeros(0) for _ in MemoryBlocks._fields))
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return MemoryBlocks(*(column[order] for column in joined))


def count_messages(program: Program) -> int:
    """Messages, loads and stores of a program, by pair or core; trees count once a member. [-]

    The count takes no simulation.
    """
    count = 0
    for step, times in iterate_instructions(program):
        if isinstance(step, SendInstruction):
            count += times * int(np.prod(np.broadcast_shapes(step.source.shape, step.target.shape, np.shape(step.start))))
        elif isinstance(step, MulticastInstruction | ReduceInstruction):
            count += times * int(np.prod(step.path.shape))
        elif isinstance(step, LoadInstruction | StoreInstruction):
            count += times * int(np.prod(step.cores.shape))
    return count


NO_RESULT = SimulationResult(0.0, Activity(), 0.0, 0.0, 0, {})
"""Result of a program that is collected, and not simulated."""


def replay_packets(run: ProgramRun, packets: NetworkPackets) -> Array:
    """Arrivals of packets that sources offer at given times, without dependencies. [cycle]

    Routers are those of the run, and packets of one hop of a tree are packets by themselves.

    Args:
        run: mesh and its network.
        packets: what to send; `task` and `parent` are not read.

    Raises:
        DesignError: as of `cycle_simulator.simulate_cycles`.
    """
    graph, count = TaskGraph(run.program, run.machine, float(run.fabric.cycle)), len(packets.start)
    offers = graph.add_tasks(count, NOTE, after=np.asarray(packets.start, float))
    arrivals = graph.add_arrivals(count)
    starts, _ = graph.send(
        np.asarray(packets.source, int),
        np.asarray(packets.flits, int),
        run.fabric.word,
        target=np.asarray(packets.target, int) << 3 | CORE,
        tails=arrivals,
        far=graph.count_links(np.asarray(packets.source, int), np.asarray(packets.target, int)),
    )
    graph.add_waits(starts, offers)
    return np.asarray(play_graph(graph)[0].ready[arrivals])
