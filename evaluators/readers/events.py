"""The events reader: plays a program on links, ramps and engines that can be busy, and says when everything is done.

A step starts when the versions that it reads are there, its engine or ramp is free, the links of its route are free when its
first word comes to them, and the version that it overwrites has been read (`depth` versions back).

Strands share engines and links: the round that is played next is that of the strand which can start first. Where blocks come
from memory, bands of rows are strands (`readers.bands`).

Repetition is jumped: when two consecutive bodies of a loop, or two stretches of a few (`readers.turns`), move every time
that they touch by the same amount, the remaining ones do as well, since times are only ever added and compared; then the rest
is a multiplication, exactly. With several strands a body is what all of them play until the first one is where it was.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

import numpy as np

from dse.evaluators.machine import meeting, noc
from dse.evaluators.machine.channels import Behind, Channels
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.counts import activity, tile_bytes
from dse.evaluators.program.rounds import (
    Cores,
    Load,
    Loop,
    Multicast,
    Multiply,
    Program,
    Reduce,
    Round,
    Send,
    Step,
    Store,
    Vector,
    in_place,
    reads,
    writes,
)
from dse.evaluators.readers.again import Again, keys_of
from dse.evaluators.readers.bands import banded
from dse.evaluators.readers.timing import Machine, Timing, channels_of, crossed, engine_seconds, flat, words_of, worked
from dse.evaluators.readers.turns import Watch
from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.network import NO_FAULTS, Faults

T = TypeVar("T")

MOST_KNOWN = 512
"""Steps of which something is kept."""


def play(
    program: Program,
    fabric: Fabric,
    *,
    engines: Engines | None = None,
    memory: Channels | None = None,
    banks: Behind | None = None,
    jump: bool = True,
    faults: Faults = NO_FAULTS,
) -> Timing:
    """The time of a program on a fabric.

    Args:
        program: what every core does.
        fabric: what it costs.
        engines: of each core, side by side; without them one engine does everything by vector instructions.
        memory: the channels that it loads from and stores to.
        banks: what is behind each of these, for who plays bursts; here blocks have the channels' pace.
        jump: whether repetition may be jumped; the answer is the same, later.
        faults: none; it is for readers that play routers.

    Raises:
        DesignError: there are faults.
    """
    if faults:
        raise DesignError("chip.faults: fidelity=events cannot route around faults; use fidelity=cycles or chip.faults=none")
    on = Machine(fabric, engines, memory, {slot.name: slot for slot in program.slots})
    strands = [_Strand(parts, rows) for rows, parts in banded(program)]
    state = _State.of(program, on, in_bands=len(strands) > len(program.strands))
    watch, again = Watch(), Again()
    while alive := [strand for strand in strands if not strand.done]:
        if jump and alive[0].begins:
            waves, moved, parts = again.seen(alive, state.arrays, state.asked)
            if waves:
                _leap(waves, moved, parts, alive, state)
        strand = alive[0] if len(alive) == 1 else min(alive, key=lambda strand: strand.start(state))
        _play_round(strand.round, state, on, strand.rows)
        strand.advance()
        state.forget(strands, strand.rows)
        if jump and strand is alive[0] and all(strand.loop for strand in alive):
            turns, moved = watch.seen(alive, state)
            if turns:
                _jump(turns, moved, alive, state)
    _deliver(state, on)
    done = max(float(times.max()) for times in (*state.ready.values(), state.engine, state.vector, state.memory))
    return Timing(done, activity(program) + crossed(program, on), *worked(program, on), state.played, dict(state.ready))


class _Strand:
    """Where a strand is on some rows: its part, the turn of the loop, the round of the body."""

    def __init__(self, parts: tuple[Round | Loop, ...], rows: slice) -> None:
        self._parts, self.rows = parts, rows
        self.part = self.turn = self.place = 0
        self.keys = keys_of(parts)
        self.soonest: tuple[float, float] | None = None
        self._skip_empty()

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.part == len(self._parts)

    @property
    def loop(self) -> Loop | None:
        """The loop that it is in."""
        part = None if self.done else self._parts[self.part]
        return part if isinstance(part, Loop) else None

    @property
    def round(self) -> Round:
        """The next one."""
        part = self._parts[self.part]
        return part.body[self.place] if isinstance(part, Loop) else part

    @property
    def begins(self) -> bool:
        """Whether a loop is what comes next."""
        return not (self.turn or self.place) and self.loop is not None

    @property
    def where(self) -> tuple[int, int]:
        """What two moments of a repetition have in common."""
        return self.part, self.place

    def start(self, state: "_State") -> tuple[float, float]:
        """When its next round can start; kept until something moves on its rows."""
        if self.soonest is None:
            self.soonest = _start(self.round, state, self.rows)
        return self.soonest

    def advance(self, turns: int | None = None) -> None:
        """To the next round, or over some turns of the loop."""
        loop = self.loop
        if turns is not None:
            self.turn += turns
        elif loop is None:
            self.part += 1
        else:
            self.place += 1
            if self.place == len(loop.body):
                self.place, self.turn = 0, self.turn + 1
        if loop is not None and self.turn == loop.times:
            self.part, self.turn, self.place = self.part + 1, 0, 0
        self._skip_empty()

    def _skip_empty(self) -> None:
        while self.loop is not None and (self.loop.times == 0 or not self.loop.body):
            self.part += 1


def _jump(turns: int, moved: list[Array], alive: list[_Strand], state: "_State") -> None:
    """Over all turns that every strand has left, as many at a time."""
    left = min(strand.loop.times - strand.turn - (strand.place > 0) for strand in alive if strand.loop is not None) // turns
    for times, step in zip(state.arrays(), moved, strict=True):
        times += step * left
    for strand in alive:
        strand.advance(left * turns)
        strand.soonest = None


def _leap(waves: int, moved: list[Array], parts: list[int], alive: list[_Strand], state: "_State") -> None:
    """Over some waves, of so many parts of each strand."""
    for times, step in zip(state.arrays(), moved, strict=True):
        times += step * waves
    for strand, count in zip(alive, parts, strict=True):
        strand.part += waves * count
        strand.soonest = None


@dataclass
class _Coming:
    """Blocks that channels have been asked for and that take no links yet: cores, channels, words, when each may leave."""

    row: Array
    col: Array
    channel: Array
    words: Array
    first: Array

    def parted(self, now: Array) -> tuple["_Coming", "_Coming"]:
        """Those that are meant, and the others."""
        columns = (self.row, self.col, self.channel, self.words, self.first)
        return _Coming(*(column[now] for column in columns)), _Coming(*(column[~now] for column in columns))


@dataclass
class _State:
    """Times of every core and link: when a slot is ready, when its versions were last read, when things are free.

    `engine`, `vector` and `dma` are the engines of a core for products, for all other work and for messages; where one does
    all of it they are the same array. `lanes` are the links as blocks from and to memory have them: the same, but for bands,
    which would find them held by what comes later. `coming` has blocks on order by slot and first row of a band; they take
    links once they leave their channels, so that messages which are through before do not wait for them. `touched` are first
    and last rows that blocks have come to since strands were asked when they can start.
    """

    ready: dict[str, Array]
    read: dict[str, Array]
    engine: Array
    vector: Array
    dma: Array
    ramps: Array
    links: Array
    lanes: Array
    memory: Array
    topology: str = "mesh"
    known: dict[int, tuple[Step, Any]] = field(default_factory=dict)
    coming: dict[tuple[str, int], _Coming] = field(default_factory=dict)
    touched: list[tuple[int, int]] = field(default_factory=list)
    played: int = 0

    @classmethod
    def of(cls, program: Program, on: Machine, *, in_bands: bool) -> "_State":
        shape, cores = (program.rows, program.cols), program.rows * program.cols
        free = -max(shape) * on.fabric.hop  # at time 0 at any place of a line
        engine = np.zeros(shape)
        apart = on.engines is not None
        links = np.full((cores if program.topology == "full" else 4, cores), free)
        return cls(
            {slot.name: np.zeros(shape) for slot in program.slots},
            {slot.name: np.zeros((slot.depth, *shape)) for slot in program.slots},
            engine,
            np.zeros(shape) if apart else engine,
            np.zeros(shape) if apart else engine,
            np.zeros((2, *shape)),
            links,
            links.copy() if in_bands else links,
            np.zeros(1 if on.memory is None else len(on.memory.row)),
            program.topology,
        )

    def pairs(self, step: Send, on: Machine) -> tuple[Any, ...]:
        """Sources, targets, words and values of a step, pair by pair, and whether messages meet that the network carries."""

        def ways() -> tuple[Any, ...]:
            shape = np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape)
            ends = (step.source.row, step.source.col, step.target.row, step.target.col)
            values = np.broadcast_to((step.stop - step.start) * prod(on.slots[step.slot].shape[1:]), shape).ravel()
            places = tuple(flat(axis, shape) for axis in ends)
            carried = self.topology != "full" and step.via in ("router", "core") and not on.fabric.locked
            meet = carried and meeting.meet(*places, self.topology == "torus", self.engine.shape)
            return (*places, words_of(step, on, shape), values, meet)

        return self.of_step(step, ways)

    def of_step(self, step: Step, work: Callable[[], T]) -> T:
        """What is worked out of a step, once: loops and waves come back to it."""
        if id(step) not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[id(step)] = (step, work())
        value: T = self.known[id(step)][1]
        return value

    def seconds(self, step: Multiply | Vector, on: Machine) -> float:
        """That a step takes a core's engine."""
        return self.of_step(step, lambda: engine_seconds(step, on))

    def transfers(self, step: Load | Store) -> tuple[Array, Array, Array]:
        """Cores and channels of its blocks."""
        at, shape = step.cores, step.cores.shape
        return self.of_step(step, lambda: (flat(at.row, shape), flat(at.col, shape), flat(step.channel, shape)))

    def forget(self, strands: list[_Strand], rows: slice) -> None:
        """Has strands on some rows, or on those that blocks have come to, work out again when they can start."""
        moved = [(rows.start, rows.stop - 1), *self.touched]
        self.touched = []
        for strand in strands:
            if any(first < strand.rows.stop and last >= strand.rows.start for first, last in moved):
                strand.soonest = None

    def asked(self) -> tuple[Any, ...]:
        """Whose blocks are on order."""
        return tuple((name, of.row.tobytes(), of.col.tobytes()) for name, of in self.coming.items())

    def arrays(self) -> list[Array]:
        """Everything that a round may move."""
        engines = [self.engine] if self.vector is self.engine else [self.engine, self.vector, self.dma]
        coming = (of.first for of in self.coming.values())
        apart = [] if self.lanes is self.links else [self.lanes]
        return [*self.ready.values(), *self.read.values(), *engines, self.ramps, self.links, *apart, self.memory, *coming]


def _start(turn: Round, state: _State, rows: slice) -> tuple[float, float]:
    """When the first step of a round can start everywhere on some rows, and when all that it needs but engines is there."""
    return min(_step_start(step, state, rows) for step in turn.steps)


def _step_start(step: Step, state: _State, rows: slice) -> tuple[float, float]:
    there = max([0.0, *(float(state.ready[name][rows].max()) for name in reads(step))])
    there = max([there, *(float(state.read[name][-1, rows].max()) for name in writes(step))])
    engine = state.engine if isinstance(step, Multiply) else state.vector if isinstance(step, Vector) else state.dma
    return max(there, float(engine[rows].max())), there


def _play_round(turn: Round, state: _State, on: Machine, rows: slice) -> None:
    state.played += 1
    read = {name for step in turn.steps for name in reads(step)}
    written = {name for step in turn.steps for name in writes(step)}
    if state.coming:
        _deliver(state, on, _start(turn, state, rows)[0], {(name, rows.start) for name in read | written})
    # every step of a round reads, and overwrites, what was there before it
    ready = {name: state.ready[name].copy() if name in written else state.ready[name] for name in read}
    free = {name: state.read[name][-1].copy() for name in written}
    for step in turn.steps:
        if isinstance(step, Multiply):
            before = state.ready if step.combine == "sum" else {}
            into = np.maximum(before.get(step.out, 0.0), state.read[step.out][-1])
            _work((step.a, step.b), step.out, into, state.engine, state.seconds(step, on), state, ready, rows)
        elif isinstance(step, Vector):
            _work(step.inputs, step.out, state.read[step.out][-1], state.vector, state.seconds(step, on), state, ready, rows)
        elif isinstance(step, Send):
            _send(step, state, ready, free, on)
        elif isinstance(step, Multicast):
            _multicast(step, state, ready, free, on)
        elif isinstance(step, Reduce):
            _reduce(step, state, ready, free, on)
        elif isinstance(step, Store):
            _store(step, state, ready, on)
    loads = [step for step in turn.steps if isinstance(step, Load)]
    if loads:
        _load(loads, state, ready, free, on, rows)
    if turn.wait != "slots":
        _deliver(state, on, 0.0, [key for key in state.coming if key[1] == rows.start])
        _synchronise(turn.wait, state, rows)


def _work(
    inputs: tuple[str, ...],
    out: str,
    free: Array,
    engine: Array,
    seconds: float,
    state: _State,
    ready: dict[str, Array],
    rows: slice,
) -> None:
    """Engines of some rows work on what they hold, from when `out` may be written."""
    end = np.maximum(engine[rows], free[rows])
    for name in inputs:
        np.maximum(end, ready[name][rows], out=end)
    end += seconds
    engine[rows] = end
    state.ready[out][rows] = end
    for name in inputs:
        np.maximum(state.read[name][0, rows], end, out=state.read[name][0, rows])


def _load(steps: list[Load], state: _State, ready: dict[str, Array], free: dict[str, Array], on: Machine, rows: slice) -> None:
    """Whose request is there first is served first, whichever step it is of."""
    memory, parts = channels_of(on), []
    for step in steps:
        row, col, channel = state.transfers(step)
        nbytes = np.full(len(row), float(tile_bytes(on.slots[step.slot])))
        asked = np.maximum(free[step.slot][row, col], state.dma[row, col])
        if step.rows:
            asked = np.maximum(asked, ready[step.rows][row, col])
            noc.has_read(row, col, asked, state.read[step.rows])
        parts.append((row, col, channel, np.ceil(nbytes / on.fabric.word_bytes), nbytes * step.pace, asked))
    row, col, channel, words, nbytes, asked = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    away = np.abs(memory.row[channel] - row) + np.abs(memory.col[channel] - col)
    order = np.argsort(asked + away * on.fabric.hop, kind="stable")
    ordered, first = np.empty(len(row)), np.empty(len(row))
    noc.requests(
        row[order], col[order], channel[order], words[order], nbytes[order], asked[order], state.dma, state.memory, memory,
        on.fabric, ordered,
    )  # fmt: skip
    first[order] = ordered
    soonest = first + away * on.fabric.hop + on.fabric.ramp + words * on.fabric.word
    start = 0
    for step, (row, *_) in zip(steps, parts, strict=True):
        mine = slice(start, start := start + len(row))
        state.coming[step.slot, rows.start] = _Coming(row, col[mine], channel[mine], words[mine], first[mine].copy())
        noc.has_written(row, col[mine], soonest[mine], state.ready[step.slot], state.read[step.slot])


def _store(step: Store, state: _State, ready: dict[str, Array], on: Machine) -> None:
    row, col, channel = state.transfers(step)
    memory, nbytes, end = channels_of(on), tile_bytes(on.slots[step.slot]), np.empty(len(row))
    words = float(-(-nbytes // on.fabric.word_bytes))
    asked = np.maximum(ready[step.slot][row, col], state.dma[row, col])
    away = np.abs(memory.row[channel] - row) + np.abs(memory.col[channel] - col)
    order = np.argsort(asked + away * on.fabric.hop, kind="stable")
    noc.stores(
        row[order], col[order], channel[order], words, nbytes, asked[order], state.dma, state.ramps, state.lanes, state.memory,
        memory, on.fabric, end,
    )  # fmt: skip
    noc.has_read(row[order], col[order], end, state.read[step.slot])


def _deliver(state: _State, on: Machine, until: float = np.inf, slots: Iterable[tuple[str, int]] = ()) -> None:
    """Blocks that leave their channels until some time, or are for some slots of bands, come to their cores."""
    due = list[tuple[str, _Coming]]()
    for key, of in list(state.coming.items()):
        if key not in slots and of.first.min() > until:
            continue
        now, later = of.parted((of.first <= until) | (key in slots))
        if len(now.row):
            due.append((key[0], now))
            state.touched.append((int(now.row.min()), int(now.row.max())))
        if len(later.row):
            state.coming[key] = later
        else:
            del state.coming[key]
    if not due:
        return  # else whichever leaves first goes first
    order = np.argsort(np.concatenate([of.first for _, of in due]), kind="stable")
    row, col, channel, words, first = (
        np.concatenate([getattr(of, column) for _, of in due])[order] for column in ("row", "col", "channel", "words", "first")
    )
    end, arrived = np.empty(len(row)), np.empty(len(row))
    noc.deliveries(row, col, channel, words, first, state.ramps, state.lanes, channels_of(on), on.fabric, end)
    arrived[order] = end
    for name, of in due:
        here, arrived = arrived[: len(of.row)], arrived[len(of.row) :]
        np.maximum.at(state.ready[name], (of.row, of.col), here)


def _send(step: Send, state: _State, ready: dict[str, Array], free: dict[str, Array], on: Machine) -> None:
    into = step.into or step.slot
    sr, sc, tr, tc, words, values, meet = state.pairs(step, on)
    end = np.empty(len(sr))
    parts = in_place(step, on.slots[step.slot])
    over = np.zeros_like(free[into]) if parts else free[into]
    if state.topology == "full":
        if step.via not in ("router", "core"):
            raise ValueError(f"a message via {step.via} has no core on its way where every pair is linked; use router or core")
        noc.linked(
            sr, sc, tr, tc, words, on.fabric.stage if step.via == "core" else 0.0, ready[step.slot], over, state.dma,
            state.links, on.fabric, end, state.read[step.slot][0],
        )  # fmt: skip
    else:
        ends, read = (sr, sc, tr, tc, words), state.read[step.slot][0]
        torus, starts = state.topology == "torus", (ready[step.slot], over, state.dma, state.ramps)
        if step.via == "relay":
            noc.relayed(*ends, torus, *starts, on.fabric, end, read)
        elif step.via in ("shared", "answer"):
            noc.shared(*ends, values, step.combine == "set", on.fabric.served(step.via), torus, *starts, on.fabric, end, read)
        else:
            send = noc.circuits if on.fabric.locked > 0 else meeting.met if meet else noc.carried
            send(*ends, on.fabric.stage if step.via == "core" else 0.0, torus, *starts, state.links, on.fabric, end, read)
    if step.combine != "set" and on.fabric.combine:
        noc.combined(tr, tc, values, state.ready[into], state.vector, on.fabric, end)
    noc.has_written(tr, tc, end, state.ready[into], state.read[into][:1] if parts else state.read[into])


def _multicast(step: Multicast, state: _State, ready: dict[str, Array], free: dict[str, Array], on: Machine) -> None:
    row, col = _groups(step.path, state)
    end, left = np.empty(row.shape), np.empty(len(row))
    noc.multicasts(
        row, col, words_of(step, on, step.path.shape[:-1]), step.via == "core", state.topology == "torus", ready[step.slot],
        free[step.into], state.dma, state.ramps, state.links, on.fabric, end, left,
    )  # fmt: skip
    noc.has_read(row[:, 0], col[:, 0], left, state.read[step.slot])
    noc.has_written(row.ravel(), col.ravel(), end.ravel(), state.ready[step.into], state.read[step.into])


def _reduce(step: Reduce, state: _State, ready: dict[str, Array], free: dict[str, Array], on: Machine) -> None:
    row, col = _groups(step.path, state)
    left, end = np.empty(row.shape), np.empty(len(row))
    words = words_of(step, on, step.path.shape[:-1])
    if step.via == "router":
        noc.sums(
            row, col, words, state.topology == "torus", ready[step.slot], free[step.into], state.dma, state.ramps, state.links,
            on.fabric, left, end,
        )  # fmt: skip
    else:
        order = np.argsort(row + col, axis=1, kind="stable")
        noc.reductions(
            row, col, order, words, ready[step.slot], free[step.into], state.ramps, state.links, on.fabric, left, end
        )
    noc.has_read(row.ravel(), col.ravel(), left.ravel(), state.read[step.slot])
    noc.has_written(row[:, 0], col[:, 0], end, state.ready[step.into], state.read[step.into])


def _synchronise(wait: str, state: _State, rows: slice) -> None:
    done = np.maximum(state.engine, state.vector)[rows]
    for times in state.ready.values():
        np.maximum(done, times[rows], out=done)
    line: Any = done if wait == "core" else done.max()
    if wait == "line":
        line = np.maximum(done.max(axis=1, keepdims=True), done.max(axis=0, keepdims=True))
    for times in (*state.ready.values(), state.engine, state.vector, state.dma):
        np.maximum(times[rows], line, out=times[rows])


def _groups(path: Cores, state: _State) -> tuple[Array, Array]:
    """Rows and columns of the members, shape (groups, members)."""
    if state.topology == "full":
        raise ValueError("groups of cores have no tree where every pair is linked; send to each")
    members = path.shape[-1]
    return flat(path.row, path.shape).reshape(-1, members), flat(path.col, path.shape).reshape(-1, members)
