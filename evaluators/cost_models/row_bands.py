"""Bands of rows of cores that never wait for one another.

The simulator runs whichever band comes first.

A round is simulated everywhere at a time, and has channels and links before the next one. Where blocks come from memory, some
cores are rounds ahead of others, and ask for more while those still wait. In bands each is simulated when its time comes.

Within a round the order still is that of the steps, so that links would be held by what comes later: of a program in several
bands, blocks from and to memory wait on links for other blocks, and messages for other messages
(`event_state.SimulatorState.lanes`). Links that both fill together are then too fast, which routers (`fidelity=cycles`) say.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models.simulation_timing import flat_positions
from dse.evaluators.program.kernel_ir import (
    CoreIndex,
    Instruction,
    LoadInstruction,
    Loop,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
)
from dse.space.array_math import Array

MAX_BANDS = 4
"""Bands; with eight, times of attention on 8 x 8 and 32 x 32 tiles are the same to 1 %."""

ProgramParts = tuple[Round | Loop, ...]


def share_equal_rounds(program: Program) -> Program:
    """The program with one round for all that take the same time on the same cores.

    Values of a round are then computed once, and repetition is found.
    """
    known: dict[Any, Round] = {}

    def find_equal_round(turn: Round) -> Round:
        return known.setdefault((turn.wait, *map(_timed, turn.steps)), turn)

    def share_part(part: Round | Loop) -> Round | Loop:
        return replace(part, body=tuple(map(find_equal_round, part.body))) if isinstance(part, Loop) else find_equal_round(part)

    return replace(program, strands=tuple(tuple(map(share_part, parts)) for parts in program.strands))


def split_into_bands(program: Program) -> list[tuple[slice, ProgramParts]]:
    """Strands of a program by bands of rows; one band if nothing comes from memory."""
    whole = slice(0, program.rows)
    band_parts: list[tuple[slice, ProgramParts]] = []
    known: dict[Any, _Messages] = {}
    for parts in program.strands:
        rounds = list(_rounds(parts))
        loads = any(isinstance(step, LoadInstruction) for turn in rounds for step in turn.steps)
        bands = _bands(rounds, program.rows) if loads else [whole]
        band_parts += [(rows, parts if rows == whole else _of(parts, rows, known)) for rows in bands]
    return band_parts


def _timed(step: Instruction) -> Any:
    """What the time of a step depends on: neither on where a mask ends nor on the tensor that a block is of.

    Arrays are told apart by being others, which those of a program are that outlives this.
    """
    if isinstance(step, VectorInstruction):
        return step.function, step.inputs, step.out, step.joined
    if isinstance(step, LoadInstruction | StoreInstruction):
        rows = (step.rows, step.pace) if isinstance(step, LoadInstruction) else ()
        return type(step), step.slot, id(step.cores), id(step.channel), *rows
    return step if isinstance(step, MultiplyInstruction) else id(step)


def _rounds(parts: ProgramParts) -> Iterator[Round]:
    for part in parts:
        yield from part.body if isinstance(part, Loop) else (part,)


def _bands(rounds: list[Round], rows: int) -> list[slice]:
    """Between rows that no message crosses, about as many rows each."""
    apart = np.ones(rows + 1, bool)
    for turn in {id(turn): turn for turn in rounds}.values():
        if turn.wait in ("line", "mesh"):
            return [slice(0, rows)]
        for step in turn.steps:
            first, last = _crossed(step)
            for message in np.unique(first * rows + last):
                apart[message // rows + 1 : message % rows + 1] = False
    ends = np.flatnonzero(apart)
    wanted = np.linspace(0, rows, min(MAX_BANDS, len(ends) - 1) + 1)
    ends = np.unique(ends[np.abs(ends[:, None] - wanted).argmin(axis=0)])
    return [slice(int(first), int(last)) for first, last in pairwise(ends)]


def _crossed(step: Instruction) -> tuple[Array, Array]:
    """First and last row of each message."""
    if isinstance(step, MulticastInstruction | ReduceInstruction):
        row = flat_positions(step.path.row, step.path.shape).reshape(-1, step.path.shape[-1])
        return row.min(axis=1), row.max(axis=1)
    if isinstance(step, SendInstruction):
        ends = np.broadcast_arrays(step.source.row, step.target.row)
        return np.minimum(*ends).ravel(), np.maximum(*ends).ravel()
    return np.empty(0, int), np.empty(0, int)


class _Messages(NamedTuple):
    """Messages of the instructions that share it, one after the other, and the row at which each begins.

    Attributes:
        begin: rows, shape (messages,).
        rising: whether no row is before the one in front of it, so that those of a band are a slice.
        given: fields of a step, shape (messages,) or with a further axis of members.
    """

    begin: Array
    rising: bool
    given: dict[str, Any]

    def select_rows(self, rows: slice) -> dict[str, Any] | None:
        """Of messages that begin in some rows; nothing where there are none."""
        mask: Any = (self.begin >= rows.start) & (self.begin < rows.stop)
        if self.rising:
            mask = slice(*np.searchsorted(self.begin, (rows.start, rows.stop)))
        if not len(self.begin[mask]):
            return None
        return {
            name: CoreIndex(value.row[mask], value.col[mask])
            if isinstance(value, CoreIndex)
            else None
            if value is None
            else value[mask]
            for name, value in self.given.items()
        }


def _of(parts: ProgramParts, rows: slice, known: dict[Any, _Messages]) -> ProgramParts:
    """What a band does; a round that comes again stays one, and so do the messages of steps that share them."""
    rounds: dict[int, Round] = {}
    kept: dict[Any, dict[str, Any] | None] = {}

    def of_step(step: Instruction) -> tuple[Instruction, ...]:
        """The step on cores in some rows; none where it is on others alone."""
        if isinstance(step, MultiplyInstruction | VectorInstruction):
            return (step,)
        given = {name: getattr(step, name) for name in FIELDS[type(step)]}
        key = tuple(map(id, given.values()))
        if key not in kept:
            known[key] = known.get(key) or _messages(given, *_begun(step))
            kept[key] = known[key].select_rows(rows)
        changes = kept[key]
        return () if changes is None else (replace(step, **changes),)

    def of_round(turn: Round) -> Round:
        if id(turn) not in rounds:
            rounds[id(turn)] = replace(turn, steps=tuple(single_step for step in turn.steps for single_step in of_step(step)))
        return rounds[id(turn)]

    found_rounds: list[Round | Loop] = []
    for part in parts:
        body = tuple(turn for turn in map(of_round, part.body if isinstance(part, Loop) else (part,)) if turn.steps)
        found_rounds += [replace(part, body=body)] if isinstance(part, Loop) else body
    return tuple(found_rounds)


FIELDS: dict[type, tuple[str, ...]] = {
    LoadInstruction: ("cores", "channel"),
    StoreInstruction: ("cores", "channel"),
    SendInstruction: ("source", "target", "start", "stop", "at"),
    MulticastInstruction: ("path", "start", "stop", "at"),
    ReduceInstruction: ("path", "start", "stop", "at"),
}
"""Fields of an instruction that have one value per message."""


def _begun(
    step: LoadInstruction | StoreInstruction | SendInstruction | MulticastInstruction | ReduceInstruction,
) -> tuple[tuple[int, ...], Array]:
    """The shape of a step's messages, and the row in which each begins."""
    if isinstance(step, LoadInstruction | StoreInstruction):
        return step.cores.shape, step.cores.row
    if isinstance(step, SendInstruction):
        return np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape), step.source.row
    return step.path.shape[:-1], np.broadcast_to(step.path.row, step.path.shape)[..., 0]


def _messages(given: dict[str, Any], shape: tuple[int, ...], row: Array) -> _Messages:
    """All of them, one after the other."""

    def convert_value(value: Any, whole: tuple[int, ...] | None = None) -> Any:
        if isinstance(value, CoreIndex):
            return CoreIndex(convert_value(value.row, value.shape), convert_value(value.col, value.shape))
        if value is None:
            return None
        more = (whole or np.shape(value))[len(shape) :]
        return np.broadcast_to(value, (*shape, *more)).reshape(-1, *more)

    begin = flat_positions(row, shape)
    return _Messages(
        begin, bool((begin[1:] >= begin[:-1]).all()), {name: convert_value(value) for name, value in given.items()}
    )
