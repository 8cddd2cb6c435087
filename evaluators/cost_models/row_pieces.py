"""Operators of a chip of tiles whose rows run in two pieces, where that is faster.

The pieces run one after the other.

A program takes whole blocks of rows, the last of which are padded: one row more than fills them costs a block of every group.
In two pieces the first fills its blocks, and the second is cut as suits few rows; both read what all rows share. Where both are
whole multiples of the block that has more rows a second in its piece, all rows at once by that block take no longer: turns grow
with rows, and begin once. So only sizes that some block does not divide are cut, where it ends last.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models.cached_job import THROUGH, CachedJob, uncached_job
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.cost_models.jobs import job_cost
from dse.space.array_math import where
from dse.space.fields import leaf_at, replace_leaves

WORTH = 0.995
"""What two pieces take at most of the time of all rows at once."""

BLOCKS = (16, 128)
"""Rows of a tile, on all rows of the mesh, of which the first piece is a whole multiple: lines of an array, or several."""

MANY = 2048
"""Rows of a tile from which on nothing is cut: a block more is a sixteenth of what there is, or less."""

MANY_QUERIES = 128
"""Queries of a prompt for each row of tiles from which on attention is not: many tilings are looked at for each piece."""

Job = closed_summa.SummaJob | closed_attention.AttentionJob | closed_streamed.RowJob

CUT = {
    closed_summa.SummaJob: ("shape", "part"),
    closed_attention.AttentionJob: ("shape", "tiling"),
    closed_streamed.RowJob: ("block",),
}
"""What jobs of a kind may differ in."""

DIFFER = (*THROUGH, "mesh.cols", "noc.hop_cycles")
"""Leaves of their chips that may."""


SECONDS: dict[type, Callable[[Any], Any]] = {
    closed_summa.SummaJob: closed_summa.job_seconds,
    closed_attention.AttentionJob: lambda job: closed_attention.job_cost(job).seconds,
    closed_streamed.RowJob: lambda job: closed_streamed.job_cost(job).seconds,
}
"""Time of a job by the analytical model. [s]"""


class Pieces(NamedTuple):
    """Functions and sizes with which an operator can be cut into pieces of rows.

    Attributes:
        propose: the job of the rows from one on to another one, which is not counted.
        least: time that the same rows take at least. [s]
        many: rows for each row of tiles from which on nothing is cut.
        left: whether sizes are left open: where they are said, nothing is cut; broadcasts over designs.
    """

    propose: Callable[[int, int], Job | CachedJob]
    least: Callable[[int, int], Any]
    many: int = MANY
    left: Any = True


def first_pieces(rows: int, side: int, many: int = MANY) -> list[int]:
    """Candidate sizes of the first of two pieces. [-]

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


def fastest_row_pieces(whole: Job | CachedJob, rows: int, of: Pieces) -> Job | JobSequence | CachedJob:
    """The fastest of the whole job and its two pieces; leaves broadcast over designs.

    Args:
        whole: all rows at once.
        rows: how many.
        of: pieces of it.
    """
    side = uncached_job(whole).chip.mesh.rows
    cuts = {one: first_pieces(rows, one, of.many) for one in np.unique(side).astype(int).tolist()}
    best: tuple[Any, Any, Any] | None = None
    least = job_seconds(whole) * WORTH if any(cuts.values()) else 0.0
    for first in sorted({first for some in cuts.values() for first in some}):
        tried = of.left & np.isin(side, [one for one, some in cuts.items() if first in some])
        if not np.any(tried & (of.least(0, first) + of.least(first, rows) < least)):
            continue
        pieces = of.propose(0, first), of.propose(first, rows)
        seconds = job_seconds(pieces[0]) + job_seconds(pieces[1])
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


def _joined(cut: Any, one: Any, rest: Any) -> JobSequence | CachedJob:
    """Two pieces where designs are cut, else the first one alone, which is all; of a cache, as one job.

    What is read ahead is so for the first piece.
    """
    times = () if np.all(cut) else (1.0, where(cut, 1.0, 0.0))
    if not isinstance(one, CachedJob):
        return JobSequence((one, rest), times)
    moved, more = (job_cost("analytical", of.job).activity.memory_bytes for of in (one, rest))
    more = more * where(cut, 1.0, 0.0)
    share = (one.share * moved + rest.share * more) / (moved + more)
    return CachedJob(
        JobSequence((one.job, rest.job), times), share, one.cache, JobSequence((one.there, rest.job), times), one.nbytes
    )


def job_seconds(job: Any) -> Any:
    """Time of a job by the analytical model. [s]"""
    of = uncached_job(job)
    return SECONDS[type(of)](of) if of.taken is None else of.taken


def chosen_of(condition: Any, one: Any, other: Any) -> Any:
    """Job chosen design by design; jobs may differ in sizes, tiling and memory behind the cache."""
    if not np.ndim(condition):
        return one if condition else other
    if isinstance(one, CachedJob):
        return CachedJob(
            *(
                chosen_of(condition, mine, theirs) if isinstance(mine, Job) else where(condition, mine, theirs)
                for mine, theirs in zip(one, other, strict=True)
            )
        )
    changes = {name: _leaves(condition, getattr(one, name), getattr(other, name)) for name in CUT[type(one)]}
    if isinstance(one, closed_streamed.RowJob):
        changes["rows"] = where(condition, one.rows, other.rows)
    if one.chip is not other.chip:
        leaves_ = {address: where(condition, leaf_at(one.chip, address), leaf_at(other.chip, address)) for address in DIFFER}
        changes["chip"] = replace_leaves(one.chip, leaves_)
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


def row_pieces_text(job: Any) -> str:
    """Text of the pieces in which the rows of one design run; empty string if they are not cut.

    >>> row_pieces_text(None)
    ''
    """
    kinds = closed_summa.SummaJob | closed_attention.AttentionJob
    several = [one for one in job.jobs if isinstance(one, kinds)] if isinstance(job, JobSequence) else []
    if len(several) < 2:
        return ""
    counts = [one.shape.m if isinstance(one, closed_summa.SummaJob) else one.shape.queries for one in several]
    return f", rows in {' + '.join(f'{float(count):.0f}' for count in counts)}"
