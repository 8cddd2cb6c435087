"""Graph of tasks of a program, with their dependencies, for the cycle-level simulator.

A task is work of an engine, a block of a memory channel, a packet, or a moment. What a step waits for is what
`evaluators.cost_models.event_simulator` says: the versions that it reads, the version that it overwrites (read, `depth`
versions back), and its engine, whose steps of a strand are done in order; whoever is ready first goes first between strands.
Times are in cycles of the routers' clock.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models.block_addresses import BlockAddresses, BlockBurst
from dse.evaluators.cost_models.growing_columns import GrowingColumn
from dse.evaluators.cost_models.simulation_timing import (
    SimulatedMachine,
    engine_seconds,
    flat_positions,
    message_words,
    required_channels,
)
from dse.evaluators.cost_models.task_places import crossing_seconds, links_between, split_by_core
from dse.evaluators.machine.fault_routing import NoRouteError, fault_routes
from dse.evaluators.machine.router_state import CORE, MEMORY
from dse.evaluators.machine.task_kinds import BLOCK, NOTE, PACKET, WORK
from dse.evaluators.program.kernel_ir import (
    LoadInstruction,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
    buffers_read,
    buffers_written,
    is_in_place,
    iterate_rounds,
)
from dse.space.array_math import Array
from dse.space.errors import DesignError

NONE = -1
MAX_TASKS = 30_000_000
"""Largest number of tasks of a simulated program."""

PACKETS = ("router", "port", "number", "flits", "feeder", "left", "head", "tail", "far", "owed")
"""Whole numbers of a packet, as `evaluators.machine.task_events.Packets` has them."""

MATRIX, OTHER, MESSAGES = range(3)
"""Engines of a core: for products, for vectors, and for messages; one of them where a core's engine does everything."""


class TaskGraph:
    """Graph of tasks, packets and multicast trees, as it grows."""

    def __init__(self, program: Program, machine: SimulatedMachine, cycle: float, plain: bool = False) -> None:
        self.blocks: list[tuple[Array, BlockBurst, bool]] = []
        self.shape, self.on, self.cycle, faults = (program.rows, program.cols), machine, cycle, machine.faults
        self.cores = program.rows * program.cols
        self.engines = 3 if machine.engines is not None else 1
        self.count = self.packets = self.numbers = 0
        self.task = {
            name: GrowingColumn(kind) for name, kind in (("kind", np.uint8), ("on", int), ("busy", float), ("after", float))
        }
        self.before, self.after, self.awaited = GrowingColumn(int), GrowingColumn(int), GrowingColumn(int)
        self.packet = {name: GrowingColumn(int) for name in PACKETS} | {"pace": GrowingColumn(float)}
        self.target, self.of = GrowingColumn(int), GrowingColumn(int)
        self.trees: dict[tuple[Any, ...], int] = {}
        self.tree_out: list[Array] = []
        self.tree_in: list[Array] = []
        self.tree_around: list[bool] = []
        self.tree_root: list[int] = []
        self.place: list[Array] = []
        self.detours = (
            fault_routes(*self.shape, faults, vcs=int(machine.fabric.vcs), trees=True, plain=plain) if faults else None
        )

    def count_links(self, source: Array, target: Array) -> Array:
        """Number of links from cores to others. [-]"""
        if self.detours is not None:
            return np.asarray(self.detours.far[source, target])
        (row, col), (to_row, to_col) = np.divmod(source, self.shape[1]), np.divmod(target, self.shape[1])
        return np.asarray(np.abs(row - to_row) + np.abs(col - to_col))

    def count_crossings(self) -> float:
        """Flits times the links that they cross; copies on a tree and sums count once per link. [-]"""
        numbers, first = np.unique(self.packet["number"].to_array(), return_index=True)
        flits, router = (self.packet[name].to_array()[first] for name in ("flits", "router"))
        target, unicast = (to := self.target.to_array()[numbers]) >> 3, to >= 0
        links = np.zeros(len(numbers))
        links[unicast] = self.count_links(router[unicast], target[unicast])
        tree = np.array([int(np.unpackbits(np.asarray(out & 15, np.uint8)).sum()) for out in self.tree_out])
        links[~unicast] = tree[-1 - to[~unicast]] if len(tree) else 0
        return float(links @ flits)

    def add_tasks(self, count: int, kind: int, *, key: Any = 0, busy: Any = 0.0, after: Any = 0.0) -> Array:
        """Add tasks; returns their numbers."""
        for name, value in (("kind", kind), ("on", key), ("busy", busy), ("after", after)):
            self.task[name].add(value, count)
        self.count += count
        if self.count > MAX_TASKS:
            raise DesignError(
                f"fidelity: cycles can simulate {MAX_TASKS:,} tasks, got more; use a smaller mesh or fidelity=events"
            )
        return np.arange(self.count - count, self.count)

    def add_waits(self, tasks: Array, *before: Array) -> None:
        """Make each task wait for one earlier task of each list; `NONE` for no wait."""
        for earlier in before:
            real = earlier != NONE
            count = int(np.count_nonzero(real))
            if count:
                self.before.add(earlier[real], count)
                self.after.add(tasks[real], count)

    def add_arrivals(self, count: int, after: Any = 0.0) -> Array:
        """Add moments at which packets arrive, or a delay `after` that."""
        arrivals = self.add_tasks(count, NOTE, after=after)
        self.awaited.add(arrivals, count)
        return arrivals

    def join_tasks(self, a: Array, b: Array) -> Array:
        """Add moments at which both of two tasks have finished."""
        both = (a != NONE) & (b != NONE) & (a != b)
        joins = np.where(a == NONE, b, a)
        if both.any():
            joins[both] = self.add_tasks(int(both.sum()), NOTE)
            self.add_waits(joins[both], a[both], b[both])
        return joins

    def add_moments(self, count: int, *before: Array, after: Any = 0.0) -> Array:
        """Add moments at which tasks of several lists have finished, or a delay `after` that."""
        moments = self.add_tasks(count, NOTE, after=after)
        self.add_waits(moments, *before)
        return moments

    def add_work(self, cores: Array, engine: int, seconds: Any, after: Any = None) -> Array:
        """Add work of engines; dependents start when it ends, or a delay after it began. [s]"""
        ids = cores * self.engines + (engine if self.engines > 1 else 0)
        ends = seconds if after is None else after
        return self.add_tasks(
            len(cores), WORK, key=ids, busy=np.asarray(seconds) / self.cycle, after=np.asarray(ends) / self.cycle
        )

    def send(
        self,
        router: Array,
        flits: Array,
        pace: float,
        *,
        port: int = CORE,
        target: Any = None,
        number: Array | None = None,
        tails: Array,
        feeder: Any = NONE,
        heads: Any = NONE,
        far: Any = 0,
        arrivals: int = 1,
    ) -> tuple[Array, Array]:
        """Add packets; returns the tasks that start them, and the moments at which they have left.

        Args:
            router, flits: where each is from, and how long it is.
            pace: from flit to flit. [s]
            port: `CORE` or `MEMORY`.
            target: of a packet by itself, router << 3 plus port, or its tree.
            number: of a packet, where it is an addend of one that there is.
            tails: tasks that are done when they arrive, the first of several where there is a tree.
            feeder: packets that these continue.
            heads: tasks that are done when first flits arrive.
            far: links from end to end.
            arrivals: how often each flit is to arrive.
        """
        count = len(router)
        first = self.packets
        self.packets += count
        if number is None:
            number = self.packet_numbers(target, np.arange(first, self.packets))
        left = self.add_arrivals(count)
        flits = np.maximum(flits, 1).astype(int)
        values = (router, port, number, flits, feeder, left, heads, tails, far, flits * arrivals)
        for name, value in zip(PACKETS, values, strict=True):
            self.packet[name].add(value, count)
        self.packet["pace"].add(pace / self.cycle, count)
        return self.add_tasks(count, PACKET, key=np.arange(first, self.packets)), left

    def packet_numbers(self, target: Any, numbers: Array) -> Array:
        """Numbers of packets in the network, from the packets `numbers` that stand for them."""
        self.target.add(target, len(numbers))
        self.of.add(numbers, len(numbers))
        self.numbers += len(numbers)
        return np.arange(self.numbers - len(numbers), self.numbers)

    def number_tree(self, row: Array, col: Array, adds: bool) -> int:
        """Number of a multicast tree over some cores, root first, as a target."""
        key = (adds, *row.tolist(), *col.tolist())
        if key not in self.trees:
            out, into, place = np.zeros(self.cores, np.uint8), np.zeros(self.cores, np.uint8), np.zeros(self.cores, np.int32)
            at = row * self.shape[1] + col
            for router, way in self._links(row, col, adds):
                if adds:
                    out[router + (1, -1, self.shape[1], -self.shape[1])[way]] |= 1 << (way ^ 1)
                    into[router] |= 1 << way
                else:
                    out[router] |= 1 << way
            if adds:
                into[at] |= 1 << CORE
                out[at[0]] = 1 << CORE
                place[at] = np.arange(len(at))
            else:
                out[at[1:]] |= 1 << CORE
                place[at[1:]] = np.arange(len(at) - 1)
            self.trees[key] = len(self.trees)
            self.tree_root.append(int(at[0]))
            self.tree_out.append(out)
            self.tree_in.append(into)
            self.tree_around.append(self.detours is not None and self.detours.goes_round(int(at[0]), at[1:].tolist(), adds))
            self.place.append(place)
        return -1 - self.trees[key]

    def _links(self, row: Array, col: Array, adds: bool) -> Iterator[tuple[int, int]]:
        """Routers and ports of a tree from its root on: copies go along the root's row first, addends along their own."""
        if self.detours is not None:
            at = (row * self.shape[1] + col).tolist()
            yield from self.detours.find_tree(at[0], at[1:], adds)
            return
        for member in range(1, len(row)):
            for r, c, way in links_between(row[0], col[0], row[member], col[member], across_first=not adds):
                yield r * self.shape[1] + c, way


class _Sent(NamedTuple):
    """Messages: cores, links between them, words and values."""

    source: Array
    target: Array
    far: Array
    words: Array
    values: Array


class ProgramUnroller:
    """Unroller of a program into tasks, round by round, with the writers and readers of buffers."""

    def __init__(self, program: Program, graph: TaskGraph) -> None:
        self.graph, self.on, self.cores = graph, graph.on, graph.cores
        self.ready = {slot.name: np.full(self.cores, NONE) for slot in program.slots}
        self.read = {slot.name: np.full((slot.depth, self.cores), NONE) for slot in program.slots}
        self.tails = {strand: np.full((3, self.cores), NONE) for strand in range(len(program.strands))}
        self.addresses = BlockAddresses(program, graph.on)

    def play(self, turn: Round, strand: int) -> None:
        """Add the tasks of one round of a strand."""
        tail = self.tails[strand]
        written = {name for step in turn.steps for name in buffers_written(step)}
        ready = {name: self.ready[name].copy() for step in turn.steps for name in buffers_read(step)}
        free = {name: self.read[name][-1].copy() for name in written}
        for step in turn.steps:
            if isinstance(step, MultiplyInstruction | VectorInstruction):
                self._compute(step, tail, ready)
            elif isinstance(step, LoadInstruction | StoreInstruction):
                self._transfer(step, tail, ready, free)
            elif isinstance(step, SendInstruction):
                self._send(step, tail, ready, free)
            elif step.path.shape[-1] == 1:
                self._kept(step, tail, ready, free)
            elif isinstance(step, MulticastInstruction):
                self._multicast(step, tail, ready, free)
            elif step.via == "router":
                self._sum(step, tail, ready, free)
            else:
                self._chain(step, ready, free)
        if turn.wait != "slots":
            self._synchronise(turn.wait)

    def _in_order(self, tail: Array, engine: int, cores: Array, tasks: Array) -> None:
        """Tasks of an engine follow the one before them in its strand; cores are all different."""
        engine = engine if self.graph.engines > 1 else 0
        self.graph.add_waits(tasks, tail[engine, cores])
        tail[engine, cores] = tasks

    def _was_read(self, name: str, cores: Array, tasks: Array) -> None:
        for wave in split_by_core(cores):
            at = cores[wave]
            self.read[name][0, at] = self.graph.join_tasks(self.read[name][0, at], tasks[wave])

    def _was_written(self, name: str, cores: Array, tasks: Array, *, parts: bool = False) -> None:
        for wave in split_by_core(cores):
            at = cores[wave]
            self.ready[name][at] = self.graph.join_tasks(self.ready[name][at], tasks[wave])
            read = self.read[name][:1] if parts else self.read[name]
            for age in range(len(read) - 1, 0, -1):
                read[age, at] = read[age - 1, at]
            read[0, at] = self.graph.join_tasks(read[0, at], self.ready[name][at])

    def _compute(self, step: MultiplyInstruction | VectorInstruction, tail: Array, ready: dict[str, Array]) -> None:
        cores = np.arange(self.cores)
        engine = MATRIX if isinstance(step, MultiplyInstruction) else OTHER
        tasks = self.graph.add_work(cores, engine, engine_seconds(step, self.on))
        self._in_order(tail, engine, cores, tasks)
        inputs = (step.a, step.b) if isinstance(step, MultiplyInstruction) else step.inputs
        self.graph.add_waits(tasks, *(ready[name] for name in inputs), self.read[step.out][-1])
        if isinstance(step, MultiplyInstruction) and step.combine == "sum":
            self.graph.add_waits(tasks, self.ready[step.out])
        self.ready[step.out] = tasks.copy()
        for name in inputs:
            self.read[name][0] = self.graph.join_tasks(self.read[name][0], tasks)

    def _posted(self, cores: Array, words: Array, ready: Array, tail: Array, more: float = 0.0) -> Array:
        """Engines start messages, and move their words where they have to."""
        fabric, tasks = self.on.fabric, np.empty(len(cores), int)
        for wave in split_by_core(cores):
            start = fabric.post + more
            at = cores[wave]
            tasks[wave] = self.graph.add_work(at, MESSAGES, start + words[wave] * fabric.copy, start)
            self._in_order(tail, MESSAGES, at, tasks[wave])
        self.graph.add_waits(tasks, ready[cores])
        return tasks

    def _send(self, step: SendInstruction, tail: Array, ready: dict[str, Array], free: dict[str, Array]) -> None:
        graph, fabric, into = self.graph, self.on.fabric, step.into or step.slot
        shape = np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape)
        ends = (
            flat_positions(axis, shape).astype(int)
            for axis in (step.source.row, step.source.col, step.target.row, step.target.col)
        )
        sr, sc, tr, tc = ends
        cols = graph.shape[1]
        source, target = sr * cols + sc, tr * cols + tc
        far = graph.count_links(source, target)
        words = message_words(step, self.on, shape)
        values = np.broadcast_to((step.stop - step.start) * prod(self.on.slots[step.slot].shape[1:]), shape).ravel()
        parts = is_in_place(step, self.on.slots[step.slot])
        over = np.full(self.cores, NONE) if parts else free[into]
        ends_ = np.empty(len(source), int)
        is_local, is_remote = far == 0, far > 0
        ends_[is_local] = graph.add_moments(int(is_local.sum()), ready[step.slot][source[is_local]], over[target[is_local]])
        self._was_read(step.slot, source[is_local], ends_[is_local])
        if is_remote.any():
            carry = {"relay": self._relayed, "shared": self._shared, "answer": self._shared}.get(step.via, self._carried)
            sent = _Sent(*(value[is_remote] for value in (source, target, far, words, values)))
            ends_[is_remote] = carry(step, sent, ready[step.slot], over, tail)
        if step.combine != "set" and fabric.combine:
            for wave in split_by_core(target):
                at = target[wave]
                tasks = graph.add_work(at, OTHER, fabric.call + values[wave] * fabric.combine)
                self._in_order(tail, OTHER, at, tasks)
                graph.add_waits(tasks, ends_[wave], self.ready[into][at])
                ends_[wave] = tasks
        self._was_written(into, target, ends_, parts=parts)

    def _carried(self, step: SendInstruction, sent: "_Sent", ready: Array, free: Array, tail: Array) -> Array:
        """The network carries messages, and a stage of software may take them."""
        source, target, far, words, _values = sent
        fabric, graph = self.on.fabric, self.graph
        posts = self._posted(source, words, ready, tail)
        ends = graph.add_arrivals(len(source), (fabric.stage if step.via == "core" else 0.0) / graph.cycle)
        starts, left = graph.send(source, words, fabric.pace, target=target << 3 | CORE, tails=ends, far=far)
        graph.add_waits(starts, posts, free[target])
        self._was_read(step.slot, source, left)
        return ends

    def _relayed(self, step: SendInstruction, sent: "_Sent", ready: Array, free: Array, tail: Array) -> Array:
        """Every core on the way stores the whole message, starts a task and sends it on."""
        source, target, _far, words, _values = sent
        fabric, graph, cols = self.on.fabric, self.graph, self.graph.shape[1]
        posts = np.empty(len(source), int)
        for wave in split_by_core(source):
            at = source[wave]
            posts[wave] = graph.add_work(at, MESSAGES, fabric.launch + words[wave] * fabric.copy, fabric.launch)
            self._in_order(tail, MESSAGES, at, posts[wave])
        graph.add_waits(posts, ready[source])
        before, at = posts, source.copy()
        links = np.abs(source // cols - target // cols) + np.abs(source % cols - target % cols)
        for hop in range(int(links.max())):
            indices = np.flatnonzero(links > hop)
            across = target[indices] % cols - at[indices] % cols
            down = target[indices] // cols - at[indices] // cols
            after = at[indices] + np.where(across != 0, np.sign(across), cols * np.sign(down))
            tails = graph.add_arrivals(len(indices), fabric.stage / graph.cycle)
            away = graph.count_links(at[indices], after)
            starts, left = graph.send(at[indices], words[indices], fabric.pace, target=after << 3 | CORE, tails=tails, far=away)
            graph.add_waits(starts, before[indices])
            if hop == 0:
                graph.add_waits(starts, free[target[indices]])
                self._was_read(step.slot, source[indices], left)
            going = links[indices] > hop + 1
            ends = tails.copy()
            ends[going] = graph.add_moments(int(going.sum()), tails[going], after=fabric.launch / graph.cycle)
            before = before.copy()
            before[indices], at[indices] = ends, after
        return before

    def _shared(self, step: SendInstruction, sent: "_Sent", ready: Array, free: Array, tail: Array) -> Array:
        """Memory of another core: work of its owner, and one value after the other, there and back; sums are posted."""
        source, target, far, _words, values = sent
        fabric, graph = self.on.fabric, self.graph
        if step.combine != "set":
            return self._added(sent, self._carried(replace(step, via="router"), sent, ready, free, tail), tail)
        tasks, waits = np.empty(len(source), int), values * 2 * (2 * fabric.ramp + far * fabric.hop) / graph.cycle
        owners = graph.add_work(source, MESSAGES, np.full(len(source), fabric.load_cost(step.via)))
        last = tail[MESSAGES if graph.engines > 1 else 0]
        graph.add_waits(owners, ready[source], free[target])
        for wave in split_by_core(
            target
        ):  # a core asks when what it asked for before is there, and serves others while it waits
            graph.add_waits(owners[wave], last[target[wave]])
            tasks[wave] = graph.add_moments(len(wave), owners[wave], after=waits[wave])
            last[target[wave]] = tasks[wave]
        self._was_read(step.slot, source, tasks)
        return tasks

    def _added(self, sent: "_Sent", arrived: Array, tail: Array) -> Array:
        """Tasks of the owner add what has come to its memory, one message after the other."""
        ends = np.empty(len(sent.target), int)
        for wave in split_by_core(sent.target):
            at = sent.target[wave]
            ends[wave] = self.graph.add_work(at, MESSAGES, np.full(len(wave), self.on.fabric.stage))
            self._in_order(tail, MESSAGES, at, ends[wave])
        self.graph.add_waits(ends, arrived)
        return ends

    def _groups(self, step: MulticastInstruction | ReduceInstruction) -> tuple[Array, Array, Array, Array]:
        """Row, column and number of members, shape (groups, members), and words of each group."""
        members = step.path.shape[-1]
        row, col = (
            flat_positions(axis, step.path.shape).reshape(-1, members).astype(int) for axis in (step.path.row, step.path.col)
        )
        return row, col, row * self.graph.shape[1] + col, message_words(step, self.on, step.path.shape[:-1])

    def _multicast(self, step: MulticastInstruction, tail: Array, ready: dict[str, Array], free: dict[str, Array]) -> None:
        graph, fabric = self.graph, self.on.fabric
        row, col, at, words = self._groups(step)
        groups, members = at.shape
        root, over = at[:, 0], free[step.into]
        posts = self._posted(root, words, ready[step.slot], tail, fabric.launch if step.via == "core" else 0.0)
        tails = graph.add_arrivals(groups * (members - 1)).reshape(groups, -1)
        trees = np.array([graph.number_tree(row[g], col[g], False) for g in range(groups)])
        starts, left = graph.send(root, words, fabric.pace, target=trees, tails=tails[:, 0], arrivals=members - 1)
        own = graph.add_moments(groups, posts)
        graph.add_waits(starts, posts)
        for member in range(members):
            for tasks in (starts, own):
                graph.add_waits(tasks, over[at[:, member]])
        self._was_read(step.slot, root, left)
        self._was_written(step.into, at.ravel(), np.concatenate([own[:, None], tails], axis=1).ravel())

    def _kept(
        self, step: MulticastInstruction | ReduceInstruction, tail: Array, ready: dict[str, Array], free: dict[str, Array]
    ) -> None:
        """Groups of one core: what it keeps of a multicast is in the order of its messages as well."""
        root = self._groups(step)[2][:, 0]
        ends = self.graph.add_moments(len(root), ready[step.slot][root], free[step.into][root])
        if isinstance(step, MulticastInstruction) and self.on.fabric.apart > 0:
            self._in_order(tail, MESSAGES, root, ends)
        self._was_read(step.slot, root, ends)
        self._was_written(step.into, root, ends)

    def _sum(self, step: ReduceInstruction, tail: Array, ready: dict[str, Array], free: dict[str, Array]) -> None:
        """Routers add what meets at them.

        Members begin together, when the last is ready: what waited in routers for it might hold up what it is waiting for.
        """
        graph, fabric = self.graph, self.on.fabric
        row, col, at, words = self._groups(step)
        (groups, members), root = at.shape, at[:, 0]
        if fabric.locked > 0:
            self._lock_sum(step, tail, ready, free)
            return
        ends = graph.add_arrivals(groups)
        trees = np.array([graph.number_tree(row[g], col[g], True) for g in range(groups)])
        number = graph.packet_numbers(trees, np.arange(graph.packets, graph.packets + groups))
        posts = [self._posted(at[:, member], words, ready[step.slot], tail) for member in range(members)]
        all_ = graph.add_moments(groups, *posts, free[step.into][root])
        for member in range(members):
            cores = at[:, member]
            starts, left = graph.send(cores, words, fabric.pace, number=number, tails=ends, arrivals=int(member == 0))
            graph.add_waits(starts, all_)
            self._was_read(step.slot, cores, left)
        self._was_written(step.into, root, ends)

    def _lock_sum(self, step: ReduceInstruction, tail: Array, ready: dict[str, Array], free: dict[str, Array]) -> None:
        """A sum that locks its tree: one packet for all members, whose first words meet at the root's router."""
        graph, fabric, (row, col, at, words) = self.graph, self.on.fabric, self._groups(step)
        (groups, members), root = at.shape, at[:, 0]
        trees = np.array([graph.number_tree(row[g], col[g], True) for g in range(groups)])
        ends = graph.add_arrivals(groups * members).reshape(
            groups, members
        )  # the sum, then when each other member has sent its words
        met = [free[step.into][root]]
        for member in range(members):
            posts, away = self._posted(at[:, member], words, ready[step.slot], tail), graph.count_links(at[:, member], root)
            met.append(graph.add_moments(groups, posts, after=away * fabric.hop / graph.cycle))
        starts, left = graph.send(root, words, fabric.pace, target=trees, tails=ends[:, 0])
        graph.add_waits(starts, *met)
        for member in range(members):
            self._was_read(step.slot, at[:, member], ends[:, member] if member else left)
        self._was_written(step.into, root, ends[:, 0])

    def _chain(self, step: ReduceInstruction, ready: dict[str, Array], free: dict[str, Array]) -> None:
        """Each member's software adds its words as others come by, from both ends of a line to the root."""
        graph, fabric = self.graph, self.on.fabric
        row, col, at, words = self._groups(step)
        root, stage = at[:, 0], fabric.stage / graph.cycle
        ends = graph.add_moments(len(at), ready[step.slot][root], free[step.into][root])
        self._was_read(step.slot, root, ends)
        order = np.argsort(row + col, axis=1, kind="stable")
        for g in range(len(at)):
            line = at[g, order[g]]
            middle = int(np.flatnonzero(order[g] == 0)[0])
            for side in (line[:middle:-1], line[:middle]):
                feeder, head = NONE, np.array([NONE])
                for place, core in enumerate(side):
                    to = side[place + 1] if place + 1 < len(side) else root[g]
                    last = place + 1 == len(side)
                    after = graph.add_arrivals(1, stage)
                    tails = after if last else graph.add_arrivals(1)
                    heads = NONE if last else after
                    start, left = graph.send(
                        np.array([core]), words[g : g + 1], fabric.pace, target=int(to) << 3 | CORE, tails=tails,
                        feeder=feeder, heads=heads,
                    )  # fmt: skip
                    graph.add_waits(start, ready[step.slot][core : core + 1], head)
                    self._was_read(step.slot, np.array([core]), left)
                    feeder, head = graph.packets - 1, after
                if len(side):
                    ends[g : g + 1] = graph.join_tasks(ends[g : g + 1], head)
        self._was_written(step.into, root, ends)

    def _transfer(
        self, step: LoadInstruction | StoreInstruction, tail: Array, ready: dict[str, Array], free: dict[str, Array]
    ) -> None:
        graph, fabric, memory, shape = self.graph, self.on.fabric, required_channels(self.on), step.cores.shape
        row, col, channel = (flat_positions(axis, shape).astype(int) for axis in (step.cores.row, step.cores.col, step.channel))
        cores, count = row * graph.shape[1] + col, len(row)
        home = np.asarray(memory.row)[channel] * graph.shape[1] + np.asarray(memory.col)[channel]
        route = (*np.divmod(home, graph.shape[1]), row, col)
        way = graph.count_links(home, cores) * fabric.hop + crossing_seconds(route, fabric)
        away = fabric.post + fabric.ramp + way if (loading := isinstance(step, LoadInstruction)) else fabric.post
        posts = graph.add_work(cores, MESSAGES, fabric.post, away)
        for wave in split_by_core(cores):
            self._in_order(tail, MESSAGES, cores[wave], posts[wave])
        graph.add_waits(posts, (free if loading else ready)[step.slot][cores])
        if isinstance(step, LoadInstruction) and step.rows:
            graph.add_waits(posts, ready[step.rows][cores])
            self._was_read(step.rows, cores, posts)
        done = []  # of bursts, which the engine asks for one after the other, a cycle each
        for number, burst in enumerate(self.addresses.list_bursts(step)):
            moments = graph.add_moments(count, posts, after=float(number)) if number else posts
            words = np.full(count, float(-(-burst.nbytes // fabric.word_bytes)))
            # what a channel holds back so that the last word leaves with it
            stream = words * fabric.word / graph.cycle if loading else NONE
            busy = burst.nbytes * (step.pace if isinstance(step, LoadInstruction) and self.on.banks is None else 1.0)
            blocks = graph.add_tasks(count, BLOCK, key=self.cores * graph.engines + channel, busy=busy, after=stream)
            graph.blocks.append((blocks, burst, not loading))
            ends = graph.add_arrivals(count)
            if loading:
                graph.add_waits(blocks, moments)
                starts, _ = graph.send(home, words, fabric.word, port=MEMORY, target=cores << 3 | CORE, tails=ends)
                graph.add_waits(starts, blocks)
                done.append(ends)
                continue
            heads = graph.add_arrivals(count) if self.on.banks is None else np.full(count, NONE)
            starts, left = graph.send(cores, words, fabric.word, target=home << 3 | MEMORY, tails=ends, heads=heads)
            graph.add_waits(starts, moments)
            if self.on.banks is None:
                graph.add_waits(blocks, heads)
                done.append(left)
            else:  # a burst is written when all of it is there, and its engine is answered
                graph.add_waits(blocks, ends)
                done.append(graph.add_moments(count, blocks, after=(fabric.ramp + way) / graph.cycle))
        last = done[0] if len(done) == 1 else graph.add_moments(count, *done)
        (self._was_written if loading else self._was_read)(step.slot, cores, last)

    def _synchronise(self, wait: str) -> None:
        """Everything so far is done on a core, on its row and column, or everywhere, before anything else begins there."""
        graph, cores = self.graph, np.arange(self.cores)
        everything = [*self.ready.values(), *(tail[engine] for tail in self.tails.values() for engine in range(graph.engines))]
        done = graph.add_moments(self.cores, *everything)
        if wait == "line":
            (row, col), (rows, cols) = np.divmod(cores, graph.shape[1]), graph.shape
            lines = graph.add_tasks(rows + cols, NOTE)
            graph.add_waits(lines[row], done)
            graph.add_waits(lines[rows + col], done)
            done = graph.add_moments(self.cores, lines[row], lines[rows + col])
        elif wait == "mesh":
            all_ = np.repeat(graph.add_tasks(1, NOTE), self.cores)
            graph.add_waits(all_, done)
            done = all_
        for times in (*self.ready.values(), *(tail[engine] for tail in self.tails.values() for engine in range(graph.engines))):
            times[:] = done


def unroll_program(program: Program, machine: SimulatedMachine, cycle: float) -> tuple[TaskGraph, dict[str, Array]]:
    """Graph of a program's tasks, and for each buffer the last tasks that write it, shape (cores,).

    Strands take turns, a round each, in what they share: slots of their own, engines by who is ready first.
    """
    if program.topology != "mesh":
        raise DesignError(f"chip.noc.topology: fidelity=cycles supports mesh only, got {program.topology}; use fidelity=events")
    if machine.faults.routers:
        row, col = divmod(machine.faults.routers[0], program.cols)
        work = f"the program needs all of {program.rows} x {program.cols} cores"
        raise DesignError(f"chip.faults: core ({row}, {col}) is broken, but {work}; use other cores, or remove the fault")
    try:
        return _unrolled(program, TaskGraph(program, machine, cycle))
    except NoRouteError:  # a tree has no place beside the ways round what is broken: up*/down* ways have one for each
        return _unrolled(program, TaskGraph(program, machine, cycle, plain=True))


def _unrolled(program: Program, graph: TaskGraph) -> tuple[TaskGraph, dict[str, Array]]:
    state = ProgramUnroller(program, graph)
    for strand, parts in enumerate(program.strands):
        for turn in iterate_rounds(parts):
            state.play(turn, strand)
    return graph, state.ready
