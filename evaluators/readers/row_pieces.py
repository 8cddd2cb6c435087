"""Operators of a chip of tiles whose rows come in two pieces, one after the other, where that is quicker than all at once.

A program takes whole blocks of rows, the last of which are padded: one row more than fills them costs a block of every group.
In two pieces the first fills its blocks, and the second is cut as suits few rows; both read what all rows share. Where both are
whole multiples of the block that has more rows a second in its piece, all rows at once by that block take no longer: turns grow
with rows, and begin once. So only sizes that some block does not divide are cut, where it ends last.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.readers import closed_attention, closed_streamed, closed_summa
from dse.evaluators.readers.cached import THROUGH, Cached, asked
from dse.evaluators.readers.in_turn import InTurn
from dse.evaluators.readers.jobs import price
from dse.space.elementwise import where
from dse.space.fields import at, replaced

WORTH = 0.995
"""What two pieces take at most of the time of all rows at once."""

BLOCKS = (16, 128)
"""Rows of a tile, on all rows of the mesh, of which the first piece is a whole multiple: lines of an array, or several."""

MANY = 2048
"""Rows of a tile from which on nothing is cut: a block more is a sixteenth of what there is, or less."""

MANY_QUERIES = 128
"""Queries of a prompt for each row of tiles from which on attention is not: many tilings are looked at for each piece."""

Job = closed_summa.Job | closed_attention.Job | closed_streamed.Job

CUT = {closed_summa.Job: ("shape", "part"), closed_attention.Job: ("shape", "tiling"), closed_streamed.Job: ("block",)}
"""What jobs of a kind may differ in."""

DIFFER = (*THROUGH, "mesh.cols", "noc.hop")
"""Leaves of their chips that may."""


SECONDS: dict[type, Callable[[Any], Any]] = {
    closed_summa.Job: closed_summa.seconds,
    closed_attention.Job: lambda job: closed_attention.price(job).seconds,
    closed_streamed.Job: lambda job: closed_streamed.price(job).seconds,
}
"""Time of a job by the closed form."""


class Pieces(NamedTuple):
    """How an operator is asked for in pieces.

    Attributes:
        propose: the job of the rows from one on to another one, which is not counted.
        least: time that the same rows take at least. [s]
        many: rows for each row of tiles from which on nothing is cut.
        left: whether sizes are left open: where they are said, nothing is cut; broadcasts over designs.
    """

    propose: Callable[[int, int], Job | Cached]
    least: Callable[[int, int], Any]
    many: int = MANY
    left: Any = True


def first_pieces(rows: int, side: int, many: int = MANY) -> list[int]:
    """Sizes of the first of two pieces that are tried.

    Args:
        rows: of both.
        side: rows of the mesh.
        many: as of `Pieces`.

    >>> first_pieces(1024, 32), first_pieces(1025, 32), first_pieces(5000, 32), first_pieces(100, 32), first_pieces(70000, 32)
    ([], [1024], [4096, 4608], [64], [])
    >>> first_pieces(1024, 48)
    [768]
    """
    if rows >= many * side:
        return []
    whole = 2 ** (side.bit_length() - 1)
    blocks = {block * high for block in BLOCKS for high in (whole, side)}
    if rows < min(blocks):
        blocks = {2 ** (rows.bit_length() - 1)}
    return sorted({rows // block * block for block in blocks if rows % block} - {0} if rows > BLOCKS[0] else ())


def quickest(whole: Job | Cached, rows: int, of: Pieces) -> Job | InTurn | Cached:
    """The job at once, or in the two pieces that take the least time; leaves broadcast over designs.

    Args:
        whole: all rows at once.
        rows: how many.
        of: pieces of it.
    """
    side = asked(whole).chip.mesh.rows
    cuts = {one: first_pieces(rows, one, of.many) for one in np.unique(side).astype(int).tolist()}
    best: tuple[Any, Any, Any] | None = None
    least = taken(whole) * WORTH if any(cuts.values()) else 0.0
    for first in sorted({first for some in cuts.values() for first in some}):
        tried = of.left & np.isin(side, [one for one, some in cuts.items() if first in some])
        if not np.any(tried & (of.least(0, first) + of.least(first, rows) < least)):
            continue
        pieces = of.propose(0, first), of.propose(first, rows)
        seconds = taken(pieces[0]) + taken(pieces[1])
        quicker = tried & (seconds < least)
        if not np.any(quicker):
            continue
        least = where(quicker, seconds, least)
        if best is None:
            best = quicker, chosen_of(quicker, pieces[0], whole), pieces[1]
        else:
            other, *others = best
            best = quicker | other, *(chosen_of(quicker, mine, theirs) for mine, theirs in zip(pieces, others, strict=True))
    return whole if best is None else _joined(*best)


def _joined(cut: Any, one: Any, rest: Any) -> InTurn | Cached:
    """Two pieces where designs are cut, else the first one alone, which is all; of a cache, as one job.

    What is read ahead is so for the first piece.
    """
    times = () if np.all(cut) else (1.0, where(cut, 1.0, 0.0))
    if not isinstance(one, Cached):
        return InTurn((one, rest), times)
    moved, more = (price("closed", of.job).activity.memory_bytes for of in (one, rest))
    more = more * where(cut, 1.0, 0.0)
    share = (one.share * moved + rest.share * more) / (moved + more)
    return Cached(InTurn((one.job, rest.job), times), share, one.cache, InTurn((one.there, rest.job), times), one.nbytes)


def taken(job: Any) -> Any:
    """Time of a job by the closed form. [s]"""
    of = asked(job)
    return SECONDS[type(of)](of) if of.taken is None else of.taken


def chosen_of(condition: Any, one: Any, other: Any) -> Any:
    """Design by design; jobs differ in sizes, in how these are cut, and in what a cache makes of memory."""
    if not np.ndim(condition):
        return one if condition else other
    if isinstance(one, Cached):
        return Cached(
            *(
                chosen_of(condition, mine, theirs) if isinstance(mine, Job) else where(condition, mine, theirs)
                for mine, theirs in zip(one, other, strict=True)
            )
        )
    changes = {name: _leaves(condition, getattr(one, name), getattr(other, name)) for name in CUT[type(one)]}
    if isinstance(one, closed_streamed.Job):
        changes["rows"] = where(condition, one.rows, other.rows)
    if one.chip is not other.chip:
        leaves_ = {address: where(condition, at(one.chip, address), at(other.chip, address)) for address in DIFFER}
        changes["chip"] = replaced(one.chip, leaves_)
    known = None if one.taken is None or other.taken is None else where(condition, one.taken, other.taken)
    return one._replace(**changes, taken=known)


def _leaves(condition: Any, one: Any, other: Any) -> Any:
    """Leaf by leaf; those that are one number in both stay as they are."""
    names = one._fields if hasattr(one, "_fields") else [spec.name for spec in fields(one)]
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in names}
    found = {
        name: mine if np.ndim(mine) == np.ndim(theirs) == 0 and mine == theirs else where(condition, mine, theirs)
        for name, (mine, theirs) in pairs.items()
    }
    return type(one)(**found)


def shown(job: Any) -> str:
    """The pieces in which rows come, of one design, for people; nothing where they come at once.

    >>> shown(None)
    ''
    """
    kinds = closed_summa.Job | closed_attention.Job
    several = [one for one in job.jobs if isinstance(one, kinds)] if isinstance(job, InTurn) else []
    if len(several) < 2:
        return ""
    counts = [one.shape.m if isinstance(one, closed_summa.Job) else one.shape.queries for one in several]
    return f", rows in {' + '.join(f'{float(count):.0f}' for count in counts)}"
