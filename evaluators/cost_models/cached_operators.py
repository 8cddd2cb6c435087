"""Operators of a chip of tiles whose blocks come through a memory-side cache.

Leaves broadcast over designs.

The cache is between the channels of the mesh and main memory, and all blocks go through it, at its bandwidth evenly over the
channels. Main memory moves what is not there: of an operand, what does not stay from the last time it was read or written, and
of blocks that several groups of tiles read in one turn one. Groups side by side are taken to be in step, and what is not there
to be spread evenly over an operator's blocks, so that each of them takes the longer of its way through the cache and of its
share of the memory's time. A cache through which that takes longer than without it is left alone.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models.cached_job import THROUGH, CachedJob
from dse.evaluators.cost_models.row_pieces import SECONDS
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import SummaBlocks
from dse.evaluators.machine.memory_channels import channels_used
from dse.space.array_math import maximum, minimum, where
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.main_memory import main_memory

ACTIVATION_SHARE = 0.5
"""Of the cache that what operators leave for one another may take at most: the rest is for weights and the KV cache."""

MEMORY_SPEEDUPS = (1.0, 2.0, 4.0, 8.0, 64.0)
"""Memories, over the chip's own, for which groups and slices are looked for: what takes the least time is chosen of these."""


class CachedShares(NamedTuple):
    """Shares of weights, KV cache and activations of a phase that stay in the memory-side cache. [-]"""

    weights: Any
    kv: Any
    activations: Any


NOTHING = CachedShares(0.0, 0.0, 0.0)
"""Where there is no cache."""


def cached_shares(chip: Chip, stored: tuple[tuple[str, Any], ...], buffer: Any = 0.0) -> CachedShares | None:
    """Shares of a phase's data that stay in the memory-side cache. [-]

    Half of the cache is for activations, if they need as much; the rest goes to weights first, then to the KV cache. Recurrent
    states come from main memory, since a step reads and writes each of them once.

    Args:
        chip: chip that runs it.
        stored: bytes of the phase by use: weights, KV cache, activations, and states where a model has them. [B]
        buffer: of the cache, set aside for what is read ahead. [B]

    Returns:
        Shares; None where there is no cache.
    """
    if chip.l2 is None:
        return None
    nbytes = dict(stored)
    weights, kv, activations = nbytes["weights"], nbytes["KV cache"], nbytes["activations"]
    moving = minimum(activations, minimum(ACTIVATION_SHARE * chip.l2.size, chip.l2.size - buffer))
    room = chip.l2.size - buffer - moving
    stays = minimum(weights, room)
    return CachedShares(
        stays / maximum(weights, 1.0), minimum(kv, room - stays) / maximum(kv, 1.0), moving / maximum(activations, 1.0)
    )


def cached_product(
    propose: Callable[[Chip], closed_summa.SummaJob], chip: Chip, shares: CachedShares, *, cached: bool
) -> CachedJob:
    """Products from memory through the cache; those that make keys and values leave them for later steps."""
    beyond = maximum(1 - shares.activations, 1 - shares.kv) if cached else 1 - shares.activations

    def count_product_bytes(job: closed_summa.SummaJob) -> tuple[Any, Any, Any]:
        part, mesh = job.part, summa_diagonal.busy_mesh(job.shape, job.part, job.mesh, job.copies)
        blocks = summa_diagonal.block_counts(job.shape, part, mesh, job.copies)
        m, k, n = part.m * part.rows, part.k * part.split * blocks.chunks, part.n * mesh.cols
        rows, columns, outputs = distinct_rows_and_columns(blocks, mesh.rows // (part.rows * part.split), job.copies)
        stored = job.weights.nbytes if job.weights else job.itemsize
        main = job.itemsize * (rows * m * k * (1 - shares.activations)) + stored * (columns * k * n * (1 - shares.weights))
        main = main + job.itemsize * (outputs * m * n * beyond)
        ahead = stored * (job.copies * job.shape.k * job.shape.n * (1 - shares.weights))
        total = summa_diagonal.memory_bytes(job.shape, part, mesh, job.itemsize, job.copies, job.weights)
        return total, main, ahead

    return _best(
        propose, chip, count_product_bytes, lambda job: job.part, lambda job, part: job._replace(part=part, taken=None)
    )


def cached_attention(
    propose: Callable[[Chip], closed_attention.AttentionJob], chip: Chip, shares: CachedShares, known: float
) -> CachedJob:
    """Attention through the cache to keys and values of which `known` were there before the step."""

    def count_attention_bytes(job: closed_attention.AttentionJob) -> tuple[Any, Any, Any]:
        counts, own = closed_attention.job_counts(job), closed_attention.own_bytes(job)
        total = closed_attention.job_cost(job).activity.memory_bytes
        apart = minimum(counts.waves * minimum(counts.groups, job.shape.problems * counts.parts), counts.items) / counts.items
        beyond = known * (1 - shares.kv) + (1 - known) * (1 - shares.activations)
        shape = job.shape
        ahead = (
            shape.problems * shape.keys * (shape.key_dim + shape.v) * job.kv.value_bytes(job.itemsize) * known * (1 - shares.kv)
        )
        return total, own * (1 - shares.activations) + (total - own) * apart * beyond, ahead

    return _best(
        propose,
        chip,
        count_attention_bytes,
        lambda job: job.tiling,
        lambda job, tiling: job._replace(tiling=tiling, taken=None),
    )


def distinct_rows_and_columns(blocks: SummaBlocks, groups: Any, copies: Any) -> tuple[Any, Any, Any]:
    """Distinct rows of A's blocks and columns of B's blocks that groups read, and output blocks. [-]

    Groups side by side work on blocks of the output that follow one another, across first, then down, then of the next copy.
    Where turns of the groups do not end with rows, or with copies, this is up to one row or copy more than there is.
    """
    outputs = copies * blocks.down * blocks.across
    rows = _overlaps(copies * blocks.down, blocks.across, blocks.waves, groups)
    columns = blocks.across * _overlaps(copies, blocks.down * blocks.across, blocks.waves, groups)
    return rows, minimum(columns, outputs), outputs


def _overlaps(copies: Any, size: Any, others: Any, other_size: Any) -> Any:
    """Pairs that overlap of two divisions of a line, each with so many stretches of a size; at most that many."""
    even = (size % other_size == 0) | (other_size % size == 0)
    return where(even, maximum(copies, others), copies + others - 1)


def cached_rows(
    propose: Callable[[Chip], closed_streamed.RowJob], chip: Chip, shares: CachedShares, *, table: bool
) -> CachedJob:
    """Row kernels through the cache; rows that are looked up in a `table` count as weights."""
    left = 1 - shares.activations

    def count_row_bytes(job: closed_streamed.RowJob) -> tuple[Any, Any, Any]:
        total, read = closed_streamed.job_cost(job).activity.memory_bytes, 0.5
        for _, packed in job.recipe.packed:
            read = packed / (packed + job.itemsize)
        return total, total * ((1 - shares.weights) * read + left * (1 - read) if table else left), 0.0

    return _best(
        propose, chip, count_row_bytes, lambda job: job.block, lambda job, block: job._replace(block=block, taken=None)
    )


def chip_behind_cache(chip: Chip, share: Any) -> tuple[Chip, Any, Any]:
    """Chip with the memory that its blocks reach through the cache, for a share of missing bytes.

    Returns:
        The chip; the share that main memory moves; and whether the cache is what takes the time.
    """
    memory, count = main_memory(chip), channels_used(chip)
    contended = memory.contended_efficiency
    crowded = 1 / (memory.channel_bandwidth * memory.stream_efficiency * maximum(memory.channels / count, 1.0) * contended)
    near = 0.0 if chip.l2 is None else count / chip.l2.bandwidth
    used = near < crowded
    share = where(used, share, 1.0)
    pace = where(used, maximum(near, share * crowded), crowded)
    alone = where(used, maximum(near, share * crowded * contended), crowded * contended)
    changes = (memory.channel_bandwidth * (crowded * contended / alone), alone / pace)
    return (
        replace_leaves(chip, dict(zip(map(memory.leaf, THROUGH), changes, strict=True))),
        share,
        used * (near > share * crowded),
    )


def _best(
    propose: Callable[[Chip], Any], chip: Chip, moved: Callable[[Any], tuple[Any, Any, Any]], sizes: Callable[[Any], Any],
    sized: Callable[[Any, Any], Any],
) -> CachedJob:  # fmt: skip
    """Groups and slices of the fastest candidates for one memory or another, by the analytical model.

    Args:
        propose: function that makes a job on a chip.
        chip: chip that runs it.
        moved: bytes of a job between memory and tiles, those of them that a memory behind a cache moves, and those that can be
            read ahead.
        sizes, sized: groups and slices of a job; the job with others.
    """

    def price_job(job: Any) -> tuple[CachedJob, Any]:
        total, main, ahead = moved(job)
        main = total if chip.l2 is None else minimum(main, total)
        given_chip, share, cache = chip_behind_cache(chip, main / total)
        before = chip_behind_cache(chip, maximum(main - ahead, 0.0) / total)[0]
        faster = job_on_chip(job, given_chip)
        return CachedJob(faster, share, cache, job_on_chip(job, before), minimum(ahead, main)), SECONDS[type(job)](faster)

    best: Any = None
    least: Any = None
    memory = main_memory(chip)
    for times in MEMORY_SPEEDUPS if chip.l2 is not None else MEMORY_SPEEDUPS[:1]:
        job = propose(replace_leaves(chip, {memory.leaf("channel_bandwidth"): memory.channel_bandwidth * times}))
        seconds = price_job(job)[1]
        best = sizes(job) if best is None else select_leafwise(seconds < least, sizes(job), best)
        least = seconds if least is None else minimum(seconds, least)
    return price_job(sized(job, best))[0]


def job_on_chip(job: Any, chip: Chip) -> Any:
    """The job on another chip, if its time differs there."""
    return job._replace(chip=chip, taken=None)


def select_leafwise(condition: Any, sizes: Any, other: Any) -> Any:
    """One of two records by a condition, leaf by leaf."""
    if isinstance(sizes, tuple):
        return type(sizes)(*(where(condition, *leaves) for leaves in zip(sizes, other, strict=True)))
    assert is_dataclass(sizes)
    names = [spec.name for spec in fields(sizes)]
    return type(sizes)(**{name: where(condition, getattr(sizes, name), getattr(other, name)) for name in names})  # type: ignore
