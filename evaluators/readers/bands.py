"""Bands of rows whose cores never wait for another band's, so that a reader plays whichever comes first.

A round is played everywhere at a time, and has channels and links before the next one. Where blocks come from memory, some
cores are rounds ahead of others, and ask for more while those still wait. In bands each is played when its time comes.

Within a round the order still is that of the steps, so that links would be held by what comes later: of a program in several
bands, blocks from and to memory wait on links for other blocks, and messages for other messages (`events._State.lanes`). Links
that both fill together are then too fast, which routers (`fidelity=cycles`) say.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.program.rounds import Cores, Load, Loop, Multicast, Program, Reduce, Round, Send, Step, Store
from dse.evaluators.readers.timing import flat
from dse.space.elementwise import Array

MOST = 4
"""Bands; with eight, times of attention on 8 x 8 and 32 x 32 tiles are the same to 1 %."""

Parts = tuple[Round | Loop, ...]


def banded(program: Program) -> list[tuple[slice, Parts]]:
    """Strands of a program by bands of rows; one band where nothing comes from memory."""
    whole = slice(0, program.rows)
    found: list[tuple[slice, Parts]] = []
    for parts in program.strands:
        rounds = list(_rounds(parts))
        loads = any(isinstance(step, Load) for turn in rounds for step in turn.steps)
        bands = _bands(rounds, program.rows) if loads else [whole]
        found += [(rows, parts if rows == whole else _of(parts, rows)) for rows in bands]
    return found


def _rounds(parts: Parts) -> Iterator[Round]:
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
    wanted = np.linspace(0, rows, min(MOST, len(ends) - 1) + 1)
    ends = np.unique(ends[np.abs(ends[:, None] - wanted).argmin(axis=0)])
    return [slice(int(first), int(last)) for first, last in pairwise(ends)]


def _crossed(step: Step) -> tuple[Array, Array]:
    """First and last row of each message."""
    if isinstance(step, Multicast | Reduce):
        row = flat(step.path.row, step.path.shape).reshape(-1, step.path.shape[-1])
        return row.min(axis=1), row.max(axis=1)
    if isinstance(step, Send):
        ends = np.broadcast_arrays(step.source.row, step.target.row)
        return np.minimum(*ends).ravel(), np.maximum(*ends).ravel()
    return np.empty(0, int), np.empty(0, int)


def _of(parts: Parts, rows: slice) -> Parts:
    """What a band does; a round that comes again stays one."""
    known: dict[int, Round] = {}

    def of_round(turn: Round) -> Round:
        if id(turn) not in known:
            known[id(turn)] = replace(turn, steps=tuple(one for step in turn.steps for one in _of_step(step, rows)))
        return known[id(turn)]

    found: list[Round | Loop] = []
    for part in parts:
        body = tuple(turn for turn in map(of_round, part.body if isinstance(part, Loop) else (part,)) if turn.steps)
        found += [replace(part, body=body)] if isinstance(part, Loop) else body
    return tuple(found)


def _of_step(step: Step, rows: slice) -> tuple[Step, ...]:
    """The step on cores in some rows; none where it is on others alone."""
    if isinstance(step, Load | Store):
        return _kept(step, step.cores.shape, step.cores.row, rows, ("cores", "channel"))
    if isinstance(step, Send):
        shape = np.broadcast_shapes(step.source.shape, step.target.shape, step.start.shape)
        return _kept(step, shape, step.source.row, rows, ("source", "target", "start", "stop", "at"))
    if isinstance(step, Multicast | Reduce):
        shape = step.path.shape[:-1]
        roots = np.broadcast_to(step.path.row, step.path.shape)[..., 0]
        return _kept(step, shape, roots, rows, ("path", "start", "stop", "at"))
    return (step,)


def _kept(step: Step, shape: tuple[int, ...], row: Array, rows: slice, names: tuple[str, ...]) -> tuple[Step, ...]:
    """A step of the messages that begin in some rows; fields have their shape, or a further axis of members."""
    begin = flat(row, shape)
    here = (begin >= rows.start) & (begin < rows.stop)

    def of(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Cores):
            return Cores(*(of(np.broadcast_to(axis, value.shape)) for axis in (value.row, value.col)))
        more = np.shape(value)[len(shape) :]
        return np.broadcast_to(value, (*shape, *more)).reshape(-1, *more)[here]

    return (replace(step, **{name: of(getattr(step, name)) for name in names}),) if here.any() else ()
