"""The events reader: plays a program on links, ramps and engines that can be busy, and says when everything is done.

Every core is played; there are no representatives. A step starts when the versions that it reads are there, its engine or
ramp is free, the links of its route are free when its first word comes to them, and the version that it overwrites has been
read (`depth` versions back).

Repetition is jumped: when two consecutive bodies of a loop move every time that they touch by the same amount, the remaining
ones do as well, since times are only ever added and compared; then the rest is a multiplication, exactly.
"""

from dataclasses import dataclass, field
from itertools import zip_longest
from math import prod

import numpy as np

from evaluators.machine import noc
from evaluators.machine.fabric import Fabric
from evaluators.rounds import (
    FUNCTIONS,
    VIA,
    Activity,
    Cores,
    Loop,
    Multicast,
    Multiply,
    Program,
    Reduce,
    Round,
    Send,
    Slot,
    Vector,
    activity,
    calls,
    elements,
    in_place,
    products,
    reads,
    writes,
)
from space.elementwise import Array

SLACK = 1e-9
"""By which share of it a movement may differ and be called the same: rounding of sums."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What came out.

    Attributes:
        seconds: until the last core is done.
        activity: as counted from the steps.
        engine_seconds: that an engine worked, each as long as the others. [s]
        played: rounds that were played; the others were jumped.
        ready: when each core's slots are as the program leaves them, by slot, shape (rows, cols). [s]
    """

    seconds: float
    activity: Activity
    engine_seconds: float
    played: int
    ready: dict[str, Array]

    @property
    def utilisation(self) -> float:
        """Share of the time that engines worked."""
        return self.engine_seconds / self.seconds if self.seconds else 0.0


def play(program: Program, fabric: Fabric, *, jump: bool = True) -> Timing:
    """The time of a program on a fabric.

    Args:
        program: what every core does.
        fabric: what it costs.
        jump: whether repetition may be jumped; the answer is the same, later.
    """
    state = _State.of(program, fabric)
    slots = {slot.name: slot for slot in program.slots}
    for parts in zip_longest(*program.strands):
        for part in parts:
            if isinstance(part, Loop):
                _play_loop(part, state, slots, fabric, jump)
            elif part is not None:
                _play_round(part, state, slots, fabric)
    done = max(float(times.max()) for times in (*state.ready.values(), state.engine))
    return Timing(done, activity(program), _worked(program, slots, fabric), state.played, dict(state.ready))


@dataclass
class _State:
    """Times of every core and link: when a slot is ready, when its versions were last read, when things are free."""

    ready: dict[str, Array]
    read: dict[str, Array]
    engine: Array
    ramps: Array
    links: Array
    topology: str = "mesh"
    known: dict[int, tuple[Send, tuple[Array, ...]]] = field(default_factory=dict)
    played: int = 0

    @classmethod
    def of(cls, program: Program, fabric: Fabric) -> "_State":
        shape, cores = (program.rows, program.cols), program.rows * program.cols
        free = -max(shape) * fabric.hop  # at time 0 at any place of a line
        return cls(
            {slot.name: np.zeros(shape) for slot in program.slots},
            {slot.name: np.zeros((slot.depth, *shape)) for slot in program.slots},
            np.zeros(shape),
            np.zeros((2, *shape)),
            np.full((cores if program.topology == "full" else 4, cores), free),
            program.topology,
        )

    def pairs(self, step: Send, slots: dict[str, Slot], fabric: Fabric) -> tuple[Array, ...]:
        """Sources, targets, words and values of a step, pair by pair; kept, since loops come back to the same step."""
        if id(step) not in self.known:
            shape = np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape)
            ends = (step.source.row, step.source.col, step.target.row, step.target.col)
            values = np.broadcast_to((step.stop - step.start) * prod(slots[step.slot].shape[1:]), shape).ravel()
            flat = (*(_flat(axis, shape) for axis in ends), _words(step, slots, fabric, shape), values)
            self.known = {**(self.known if len(self.known) < 16 else {}), id(step): (step, flat)}
        return self.known[id(step)][1]

    def arrays(self) -> list[Array]:
        """Everything that a round may move."""
        return [*self.ready.values(), *self.read.values(), self.engine, self.ramps, self.links]


def _play_loop(loop: Loop, state: _State, slots: dict[str, Slot], fabric: Fabric, jump: bool) -> None:
    """Plays bodies one by one until two consecutive ones move everything uniformly.

    To look at everything costs as much as to play, so it is looked at when engines move alike, and ever more seldom.
    """
    look, gap = 1, 1
    alike = True
    moved: list[Array] = []
    for turn in range(loop.times):
        before = [times.copy() for times in state.arrays()] if jump and alike and turn >= look else []
        engine = state.engine.copy()
        for part in loop.body:
            _play_round(part, state, slots, fabric)
        if not jump:
            continue
        moves = state.engine - engine
        alike = _alike(moves, float(moves.max()))
        now = [after - times for after, times in zip(state.arrays(), before, strict=True)] if before else []
        if not (now and moved):
            moved = now
            continue
        if _uniform(now, moved):
            for times, step in zip(state.arrays(), now, strict=True):
                times += step * (loop.times - 1 - turn)
            return
        moved, look, gap = [], turn + gap, 2 * gap


def _uniform(now: list[Array], before: list[Array]) -> bool:
    """Whether two consecutive bodies moved every time by the same amount, or not at all."""
    largest = max(float(times.max()) for times in now)
    return all(float(np.abs(a - b).max()) <= SLACK * largest and _alike(a, largest) for a, b in zip(now, before, strict=True))


def _alike(moves: Array, largest: float) -> bool:
    """Whether times moved by the largest amount or not at all."""
    return bool(((np.abs(moves - largest) <= SLACK * largest) | (moves == 0)).all())


def _play_round(turn: Round, state: _State, slots: dict[str, Slot], fabric: Fabric) -> None:
    state.played += 1
    read = {name for step in turn.steps for name in reads(step)}
    written = {name for step in turn.steps for name in writes(step)}
    # every step of a round reads, and overwrites, what was there before it
    ready = {name: state.ready[name].copy() if name in written else state.ready[name] for name in read}
    free = {name: state.read[name][-1].copy() for name in written}
    for step in turn.steps:
        if isinstance(step, Multiply):
            seconds = _engine_seconds(step, slots, fabric)
            _work((step.a, step.b), step.out, state.ready[step.out], seconds, state, ready)
        elif isinstance(step, Vector):
            _work(step.inputs, step.out, state.read[step.out][-1], _engine_seconds(step, slots, fabric), state, ready)
        elif isinstance(step, Send):
            _send(step, state, ready, free, slots, fabric)
        elif isinstance(step, Multicast):
            _multicast(step, state, ready, free, slots, fabric)
        else:
            _reduce(step, state, ready, free, slots, fabric)
    if turn.wait != "slots":
        _synchronise(turn.wait, state)


def _engine_seconds(step: Multiply | Vector, slots: dict[str, Slot], fabric: Fabric) -> float:
    if isinstance(step, Multiply):
        return float(fabric.launch + calls(step, slots) * fabric.call + products(step, slots) * fabric.mac)
    function = FUNCTIONS[step.function]
    each = function.operations * fabric.operation + function.specials * fabric.special
    return float(fabric.call + elements(step, slots) * each)


def _worked(program: Program, slots: dict[str, Slot], fabric: Fabric) -> float:
    """Time that every engine works on all steps."""
    return sum(
        (part.times if isinstance(part, Loop) else 1) * _engine_seconds(step, slots, fabric)
        for strand in program.strands
        for part in strand
        for turn in (part.body if isinstance(part, Loop) else (part,))
        for step in turn.steps
        if isinstance(step, Multiply | Vector)
    )


def _work(inputs: tuple[str, ...], out: str, free: Array, seconds: float, state: _State, ready: dict[str, Array]) -> None:
    """Engines work on what they hold, from when `out` may be written."""
    end = np.maximum(state.engine, free)
    for name in inputs:
        np.maximum(end, ready[name], out=end)
    end += seconds
    state.engine[:] = end
    state.ready[out][:] = end
    for name in inputs:
        np.maximum(state.read[name][0], end, out=state.read[name][0])


def _send(
    step: Send, state: _State, ready: dict[str, Array], free: dict[str, Array], slots: dict[str, Slot], fabric: Fabric
) -> None:
    into = step.into or step.slot
    sr, sc, tr, tc, words, values = state.pairs(step, slots, fabric)
    end = np.empty(len(sr))
    parts = in_place(step, slots[step.slot])
    over = np.zeros_like(free[into]) if parts else free[into]
    if state.topology == "full":
        if step.via not in ("router", "core"):
            raise ValueError(f"a message via {step.via} has no core on its way where every pair is linked; use router or core")
        stage = fabric.stage if step.via == "core" else 0.0
        noc.linked(
            sr, sc, tr, tc, words, stage, ready[step.slot], over, state.engine, state.links, fabric, end,
            state.read[step.slot][0],
        )  # fmt: skip
    else:
        noc.messages(
            sr, sc, tr, tc, words, values, VIA.index(step.via), step.combine == "set", state.topology == "torus",
            ready[step.slot], over, state.engine, state.ramps, state.links, fabric, end, state.read[step.slot][0],
        )  # fmt: skip
    if step.combine != "set" and fabric.combine:
        noc.combined(tr, tc, values, fabric, state.engine, end)
    noc.has_written(tr, tc, end, state.ready[into], state.read[into][:1] if parts else state.read[into])


def _multicast(
    step: Multicast, state: _State, ready: dict[str, Array], free: dict[str, Array], slots: dict[str, Slot], fabric: Fabric
) -> None:
    row, col = _groups(step.path, state)
    end, left = np.empty(row.shape), np.empty(len(row))
    noc.multicasts(
        row, col, _words(step, slots, fabric, step.path.shape[:-1]), step.via == "core", state.topology == "torus",
        ready[step.slot], free[step.into], state.engine, state.ramps, state.links, fabric, end, left,
    )  # fmt: skip
    noc.has_read(row[:, 0], col[:, 0], left, state.read[step.slot])
    noc.has_written(row.ravel(), col.ravel(), end.ravel(), state.ready[step.into], state.read[step.into])


def _reduce(
    step: Reduce, state: _State, ready: dict[str, Array], free: dict[str, Array], slots: dict[str, Slot], fabric: Fabric
) -> None:
    row, col = _groups(step.path, state)
    left, end = np.empty(row.shape), np.empty(len(row))
    words = _words(step, slots, fabric, step.path.shape[:-1])
    if step.via == "router":
        noc.sums(
            row, col, words, state.topology == "torus", ready[step.slot], free[step.into], state.engine, state.ramps,
            state.links, fabric, left, end,
        )  # fmt: skip
    else:
        order = np.argsort(row + col, axis=1, kind="stable")
        noc.reductions(row, col, order, words, ready[step.slot], free[step.into], state.ramps, state.links, fabric, left, end)
    noc.has_read(row.ravel(), col.ravel(), left.ravel(), state.read[step.slot])
    noc.has_written(row[:, 0], col[:, 0], end, state.ready[step.into], state.read[step.into])


def _synchronise(wait: str, state: _State) -> None:
    done = state.engine.copy()
    for times in state.ready.values():
        np.maximum(done, times, out=done)
    line = np.maximum(done.max(axis=1, keepdims=True), done.max(axis=0, keepdims=True)) if wait == "line" else done.max()
    for times in (*state.ready.values(), state.engine):
        np.maximum(times, line, out=times)


def _groups(path: Cores, state: _State) -> tuple[Array, Array]:
    """Rows and columns of the members, shape (groups, members)."""
    if state.topology == "full":
        raise ValueError("groups of cores have no tree where every pair is linked; send to each")
    members = path.shape[-1]
    return _flat(path.row, path.shape).reshape(-1, members), _flat(path.col, path.shape).reshape(-1, members)


def _flat(axis: Array, shape: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(np.broadcast_to(axis, shape).ravel(), dtype=np.int32)


def _words(step: Send | Multicast | Reduce, slots: dict[str, Slot], fabric: Fabric, shape: tuple[int, ...]) -> Array:
    nbytes = np.broadcast_to((step.stop - step.start) * slots[step.slot].row_bytes, shape).ravel()
    return np.asarray(np.ceil(nbytes / fabric.word_bytes))
