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
from dse.space.main_memory import main_memory

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

DIFFER = ("mesh.cols", "noc.hop_cycles")
"""Leaves of their chips that may, beside those of main memory behind a cache."""

DIE_COLUMNS = "die_link.die_cols"
"""What else differs on a mesh that is divided into dies."""


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


def choose_row_pieces(whole: Job | CachedJob, rows: int, given_pieces: Pieces) -> Job | JobSequence | CachedJob:
    """The fastest of the whole job and its two pieces; leaves broadcast over designs.

    Args:
        whole: all rows at once.
        rows: how many.
        given_pieces: pieces of it.
    """
    chip = uncached_job(whole).chip
    side = chip.mesh.rows
    cuts = {side: first_pieces(rows, side, given_pieces.many) for side in np.unique(side).astype(int).tolist()}
    best: tuple[Any, Any, Any] | None = None
    worth = 1.0 if chip.tile.is_range else WORTH  # a bound is that of the fastest one
    least = job_seconds(whole) * worth if any(cuts.values()) else 0.0
    for first in sorted({first for cut in cuts.values() for first in cut}):
        tried = given_pieces.left & np.isin(side, [cut_side for cut_side, cut in cuts.items() if first in cut])
        if not np.any(tried & (given_pieces.least(0, first) + given_pieces.least(first, rows) < least)):
            continue
        pieces = given_pieces.propose(0, first), given_pieces.propose(first, rows)
        seconds = job_seconds(pieces[0]) + job_seconds(pieces[1])
        quicker = tried & (seconds < least)
        if not np.any(quicker):
            continue
        least = where(quicker, seconds, least)
        if best is None:
            best = quicker, select_job_by_design(quicker, pieces[0], whole), pieces[1]
        else:
            other, *others = best
            best = (
                quicker | other,
                *(select_job_by_design(quicker, mine, theirs) for mine, theirs in zip(pieces, others, strict=True)),
            )
    return whole if best is None else _joined(*best)


def _joined(cut: Any, job: Any, rest: Any) -> JobSequence | CachedJob:
    """Two pieces where designs are cut, else the first one alone, which is all; of a cache, as one job.

    What is read ahead is so for the first piece.
    """
    times = () if np.all(cut) else (1.0, where(cut, 1.0, 0.0))
    if not isinstance(job, CachedJob):
        return JobSequence((job, rest), times)
    moved, more = (job_cost("analytical", piece.job).activity.memory_bytes for piece in (job, rest))
    more = more * where(cut, 1.0, 0.0)
    share = (job.share * moved + rest.share * more) / (moved + more)
    return CachedJob(
        JobSequence((job.job, rest.job), times), share, job.cache, JobSequence((job.there, rest.job), times), job.nbytes
    )


def job_seconds(job: Any) -> Any:
    """Time of a job by the analytical model. [s]"""
    given_job = uncached_job(job)
    return SECONDS[type(given_job)](given_job) if given_job.taken is None else given_job.taken


def select_job_by_design(condition: Any, job: Any, other: Any) -> Any:
    """Job chosen design by design; jobs may differ in sizes, tiling and memory behind the cache."""
    if not np.ndim(condition):
        return job if condition else other
    if isinstance(job, CachedJob):
        return CachedJob(
            *(
                select_job_by_design(condition, mine, theirs) if isinstance(mine, Job) else where(condition, mine, theirs)
                for mine, theirs in zip(job, other, strict=True)
            )
        )
    changes = {name: _leaves(condition, getattr(job, name), getattr(other, name)) for name in CUT[type(job)]}
    if isinstance(job, closed_streamed.RowJob):
        changes["rows"] = where(condition, job.rows, other.rows)
    if job.chip is not other.chip:
        differing = (*map(main_memory(job.chip).leaf, THROUGH), *DIFFER, *([] if job.chip.die_link is None else [DIE_COLUMNS]))
        leaves_ = {address: where(condition, leaf_at(job.chip, address), leaf_at(other.chip, address)) for address in differing}
        changes["chip"] = replace_leaves(job.chip, leaves_)
    known = None if job.taken is None or other.taken is None else where(condition, job.taken, other.taken)
    return job._replace(**changes, taken=known)


def _leaves(condition: Any, value: Any, other: Any) -> Any:
    """Leaf by leaf; those that are one number in both stay as they are."""
    names = value._fields if hasattr(value, "_fields") else [spec.name for spec in fields(value)]
    pairs = {name: (getattr(value, name), getattr(other, name)) for name in names}
    leaves = {
        name: mine if np.ndim(mine) == np.ndim(theirs) == 0 and mine == theirs else where(condition, mine, theirs)
        for name, (mine, theirs) in pairs.items()
    }
    return type(value)(**leaves)


def describe_row_pieces(job: Any) -> str:
    """Text of the pieces in which the rows of one design run; empty string if they are not cut.

    >>> describe_row_pieces(None)
    ''
    """
    kinds = closed_summa.SummaJob | closed_attention.AttentionJob
    several = [job for job in job.jobs if isinstance(job, kinds)] if isinstance(job, JobSequence) else []
    if len(several) < 2:
        return ""
    counts = [job.shape.m if isinstance(job, closed_summa.SummaJob) else job.shape.queries for job in several]
    return f", rows in {' + '.join(f'{float(count):.0f}' for count in counts)}"
