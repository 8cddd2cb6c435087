"""Functional simulator: runs a program on one NumPy block per core, without time.

It knows nothing of time. That what was timed is what was computed is proved here, kernel by kernel.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from dse.evaluators.program.kernel_ir import (
    FUNCTIONS,
    Buffer,
    LoadInstruction,
    Loop,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    Tiles,
    VectorInstruction,
    buffers_read,
    buffers_written,
    iterate_rounds,
)
from dse.space.array_math import Array


def run_program(program: Program, tiles: Tiles, streams: dict[str, Array] | None = None) -> Tiles:
    """Run a program on blocks of numbers; returns the blocks after it, and the stored streams.

    Strands take turns, one round each; a correct program does not depend on how they interleave.

    Args:
        program: instructions of every core.
        tiles: the tiles before it, by slot; slots that are not given start at zero. Not changed.
        streams: what is loaded, by name: shape (blocks, *cores, *slot.shape).

    Returns:
        Tiles by slot, and by stream what was stored, shape (blocks, *cores, *slot.shape).

    Raises:
        ValueError: a tile has another shape than its slot, a slot is sent and received at once without a second version, a
            stream has no block left, or exponentials, roots or quotients are of whole numbers.
    """
    _fractional(program)
    memory, known = _Memory(streams or {}), _Known()
    held: Tiles = {}
    for slot in program.slots:
        wanted = (program.rows, program.cols, *slot.shape)
        start = tiles.get(slot.name)
        held[slot.name] = np.zeros(wanted, _held_as(slot)) if start is None else _rounded(start, slot)
        if held[slot.name].shape != wanted:
            raise ValueError(f"slot {slot.name!r}: tiles of shape {held[slot.name].shape}, expected {wanted}")
    slots = {slot.name: slot for slot in program.slots}
    with np.errstate(divide="ignore", invalid="ignore"):  # padding is zero, and so has no root and no quotient
        for turns in zip_longest(*(iterate_rounds(strand) for strand in program.strands)):
            for turn in turns:
                if turn is not None:
                    _play_round(turn, held, slots, memory, known)
    return held | {name: np.stack(blocks) for name, blocks in memory.stored.items()}


def in_double_precision(program: Program) -> Program:
    """The program with buffers in double precision, except row numbers."""
    slots = (slot if slot.dtype.startswith("int32") else slot._replace(dtype="float64") for slot in program.slots)
    return replace(program, slots=tuple(slots))


def _fractional(program: Program) -> None:
    """Refuses special functions of whole numbers, which are what NumPy has of one byte: FP8 has no simulator."""
    slots = {slot.name: slot for slot in program.slots}
    bodies = (part.body if isinstance(part, Loop) else (part,) for strand in program.strands for part in strand)
    for step in (step for body in bodies for turn in body for step in turn.steps):
        if isinstance(step, VectorInstruction) and FUNCTIONS[step.function].specials and slots[step.out].itemsize == 1:
            raise ValueError(f"slot {step.out!r}: NumPy has no {slots[step.out].dtype} {step.function}; use float16 or float32")


class _Memory:
    """Streams that are loaded, block by block, and what has been stored."""

    def __init__(self, streams: dict[str, Array]) -> None:
        self._streams = {name: iter(blocks) for name, blocks in streams.items()}
        self.stored: dict[str, list[Array]] = {}

    def load(self, step: LoadInstruction, slot: Buffer, rows: Array | None = None) -> Array:
        """The next block; of one whose rows are chosen, those of each core's numbers."""
        block = next(self._streams.get(step.stream, iter(())), None)
        if block is None:
            raise ValueError(f"stream {step.stream!r}: no block left")
        wanted = (*step.cores.shape, *slot.shape)
        if rows is not None:
            numbers = rows.reshape(*step.cores.shape, -1).astype(int)
            block = np.take_along_axis(
                block, numbers.reshape(*numbers.shape, *[1] * (len(slot.shape) - 1)), axis=numbers.ndim - 1
            )
        if block.shape != wanted:
            raise ValueError(f"stream {step.stream!r}: blocks of shape {block.shape}, expected {wanted}")
        return _rounded(block, slot)


BufferSlices = list[tuple[tuple[int, int, int], Any]]
"""First and last row and where they go, with the pairs or groups of which that is so."""


class _Known:
    """What follows from a step or a round alone, worked out once for all turns of a loop; a program holds both throughout."""

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}

    def look_up(self, what: Any, work: Callable[[Any], Any]) -> Any:
        """What `work` makes of a step or a round."""
        known_work = self._found.get(id(what))
        if known_work is None:
            known_work = self._found[id(what)] = work(what)
        return known_work


def _touched(turn: Round) -> tuple[set[str], set[str], set[str]]:
    """Slots that a round looks at, changes, and gets from elsewhere."""
    read, written, got = set(), set(), set()
    for step in turn.steps:
        read |= set(buffers_read(step))
        written |= set(buffers_written(step))
        got |= set() if isinstance(step, MultiplyInstruction | VectorInstruction) else set(buffers_written(step))
    return read, written, got


def _play_round(turn: Round, held: Tiles, slots: dict[str, Buffer], memory: _Memory, known: _Known) -> None:
    read, written, got = known.look_up(turn, _touched)
    before = dict(held)
    for name in read & got:
        if slots[name].depth < 2 and _overwritten(turn, name, held[name].shape[:2]):
            raise ValueError(f"slot {name!r} is sent and received in one round: needs depth 2, has {slots[name].depth}")
    for name in read & written:
        held[name] = held[name].copy()
    for step in turn.steps:
        if isinstance(step, MultiplyInstruction):
            product = _product(step.subscripts, before[step.a], before[step.b])
            held[step.out][...] = product if step.combine == "set" else held[step.out] + product
        elif isinstance(step, VectorInstruction):
            given = () if step.given is None else (step.given,)
            held[step.out][...] = FUNCTIONS[step.function].apply(*(before[name] for name in step.inputs), *given)
        elif isinstance(step, SendInstruction):
            _send(step, before[step.slot], held[step.into or step.slot], known)
        elif isinstance(step, MulticastInstruction):
            _multicast(before[step.slot], held[step.into], *known.look_up(step, _groups))
        elif isinstance(step, LoadInstruction):
            numbers = before[step.rows][step.cores.row, step.cores.col] if step.rows else None
            held[step.slot][step.cores.row, step.cores.col] = memory.load(step, slots[step.slot], numbers)
        elif isinstance(step, StoreInstruction):
            memory.stored.setdefault(step.stream, []).append(before[step.slot][step.cores.row, step.cores.col])
        else:
            _reduce(step, before[step.slot], held[step.into], *known.look_up(step, _groups))


def _overwritten(turn: Round, name: str, mesh: tuple[int, ...]) -> bool:
    """Whether a core that looks at a slot in a round gets another version of it from elsewhere."""
    looked, got = np.zeros(mesh, bool), np.zeros(mesh, bool)
    for step in turn.steps:
        if isinstance(step, MultiplyInstruction | VectorInstruction):
            looked |= name in buffers_read(step)
        elif isinstance(step, SendInstruction):
            away = (step.source.row != step.target.row) | (step.source.col != step.target.col)
            for cores, marks, mark in (
                (step.source, looked, name == step.slot),
                (step.target, got, name == (step.into or step.slot)),
            ):
                row, col, sent = np.broadcast_arrays(cores.row, cores.col, away)
                marks[row[sent], col[sent]] |= mark
        elif isinstance(step, LoadInstruction | StoreInstruction):
            marks = got if isinstance(step, LoadInstruction) else looked
            row, col = np.broadcast_arrays(step.cores.row, step.cores.col)
            marks[row, col] |= name == step.slot
            looked[row, col] |= isinstance(step, LoadInstruction) and name == step.rows
        else:
            row, col = (np.broadcast_to(axis, step.path.shape) for axis in (step.path.row, step.path.col))
            root, others = (row[..., :1], col[..., :1]), (row[..., 1:], col[..., 1:])
            looked[root] |= name == step.slot and isinstance(step, MulticastInstruction)
            looked[others] |= name == step.slot and isinstance(step, ReduceInstruction)
            got[others] |= name == step.into and isinstance(step, MulticastInstruction)
            got[root] |= name == step.into and isinstance(step, ReduceInstruction)
    return bool((looked & got).any())


LONG_PROGRAM = 30_000
"""Products of two tiles of all cores from which on it pays to look how NumPy does them quickest."""


def _product(subscripts: str, a: Array, b: Array) -> Array:
    """The same product of tiles on every core."""
    inputs, _, out = subscripts.partition("->")
    left, right = inputs.split(",")
    return np.asarray(np.einsum(f"...{left},...{right}->...{out}", a, b, optimize=a.size * b.shape[-1] > LONG_PROGRAM))


def _pairs(step: SendInstruction) -> tuple[list[Array], BufferSlices]:
    """Rows and columns of sources and targets, and what they send."""
    shape = np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape)
    arrays = (step.source.row, step.source.col, step.target.row, step.target.col)
    return [_all(axis, shape) for axis in arrays], _slices(
        shape, step.start, step.stop, step.start if step.at is None else step.at
    )


def _groups(step: MulticastInstruction | ReduceInstruction) -> tuple[Array, Array, BufferSlices]:
    """Rows and columns of the members of each group, and what they exchange."""
    row, col = (_all(axis, step.path.shape).reshape(-1, step.path.shape[-1]) for axis in (step.path.row, step.path.col))
    return row, col, _slices(step.path.shape[:-1], step.start, step.stop, np.zeros(1, int) if step.at is None else step.at)


def _send(step: SendInstruction, source: Array, target: Array, known: _Known) -> None:
    (sr, sc, tr, tc), slices = known.look_up(step, _pairs)
    for (start, stop, at), pairs in slices:
        arriving = source[sr[pairs], sc[pairs], start:stop]
        rows, cols, place = tr[pairs], tc[pairs], slice(at, at + stop - start)
        if step.combine == "set":
            target[rows, cols, place] = arriving
            continue
        add: Any = np.add if step.combine == "sum" else np.maximum
        add.at(target, (rows, cols, place), arriving)  # unbuffered: a core may hear from many


def _multicast(source: Array, target: Array, row: Array, col: Array, slices: BufferSlices) -> None:
    for (start, stop, at), which in slices:
        sent = source[row[which, 0], col[which, 0], start:stop]
        target[row[which], col[which], at : at + stop - start] = sent[:, None]


def _reduce(step: ReduceInstruction, source: Array, target: Array, row: Array, col: Array, slices: BufferSlices) -> None:
    for (start, stop, at), which in slices:
        members = source[row[which], col[which], start:stop]
        combined = members.sum(axis=1) if step.combine == "sum" else members.max(axis=1)
        target[row[which, 0], col[which, 0], at : at + stop - start] = combined


def _slices(shape: tuple[int, ...], start: Array, stop: Array, at: Array) -> BufferSlices:
    """Pairs or groups by equal slices, so that each slice is moved for all of them at once."""
    if start.size == stop.size == at.size == 1 and 0 not in shape:
        return [((start.item(), stop.item(), at.item()), slice(None))]
    cuts = np.stack([_all(cut, shape) for cut in (start, stop, at)], axis=1)
    kinds, which = np.unique(cuts, axis=0, return_inverse=True)
    which = which.ravel()
    return [((int(a), int(b), int(c)), np.flatnonzero(which == kind)) for kind, (a, b, c) in enumerate(kinds)]


def _all(axis: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(axis, shape).ravel()


def _held_as(slot: Buffer) -> str:
    # NumPy multiplies float16 thirty times slower than float32, and accumulates in it; operands are rounded, sums are not
    return "float32" if slot.dtype == "float16" else slot.dtype


def _rounded(tiles: Array, slot: Buffer) -> Array:
    return tiles.astype(slot.dtype).astype(_held_as(slot), copy=True)
