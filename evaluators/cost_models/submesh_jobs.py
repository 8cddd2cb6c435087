"""Jobs on a submesh of tiles, for simulators that are too slow for the whole mesh.

Tiles keep their work per wave.

A job becomes as much smaller as that takes, in turns too, and memory channels as many fewer as leaves each its bytes.
"""

from dataclasses import replace
from math import ceil, gcd

from dse.evaluators.calls.submesh import submesh_share, submesh_sides
from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_block_loop as closed_walked
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models.cached_job import CachedJob
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.kernels.attention.attention_shape import AttentionTiling, BlockCounts, block_counts, memory_bytes
from dse.evaluators.kernels.attention.dataflow import tiling_of_pairs
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.vector import block_loop_kernels as walked
from dse.evaluators.kernels.vector import row_kernels as streamed
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.main_memory import main_memory

MAX_WAVES = 4
"""Turns that a job keeps at most: those after the first few are like one another."""

MAX_CHUNKS = 16
"""Chunks that products whose depth is divided keep in all of their turns at least."""

SubmeshJob = (
    closed_summa.SummaJob
    | closed_attention.AttentionJob
    | closed_streamed.RowJob
    | closed_walked.BlockLoopJob
    | JobSequence
    | CachedJob
)


def job_on_submesh(job: SubmeshJob, side: int) -> tuple[SubmeshJob, float]:
    """Job of one design on at most `side` x `side` tiles, and the repetitions that it stands for.

    Itself, once, where `side` is 0.
    """
    if not side:
        return job, 1.0
    if isinstance(job, CachedJob):  # both ways to memory have as many bytes
        (current_job, times), (return_job, _) = job_on_submesh(job.job, side), job_on_submesh(job.there, side)
        return job._replace(job=current_job, there=return_job), times
    if isinstance(job, JobSequence):
        parts = [(count, job_on_submesh(job, side)) for count, job in job.counted_jobs]
        return JobSequence(tuple(job for _, (job, _) in parts), tuple(count * times for count, (_, times) in parts)), 1.0
    if isinstance(job, closed_attention.AttentionJob):
        return attention_on_submesh(job, side)
    if isinstance(job, closed_walked.BlockLoopJob):
        return block_loop_on_submesh(job, side)
    return summa_on_submesh(job, side) if isinstance(job, closed_summa.SummaJob) else row_job_on_submesh(job, side)


def summa_on_submesh(job: closed_summa.SummaJob, side: int) -> tuple[closed_summa.SummaJob, float]:
    """SUMMA job on a submesh, with the same depth per group.

    Each tile of the diagonal loads as many blocks, and there are as many outputs as waves.
    """
    tiling, copies = SummaTiling(*map(int, job.part)), int(job.copies)
    shape = GemmShape(int(job.shape.m), int(job.shape.k), int(job.shape.n))
    whole = summa_diagonal.busy_mesh(shape, tiling, CoreMesh(int(job.mesh.rows), int(job.mesh.cols)), copies)
    rows, cols = submesh_sides(whole.rows, whole.cols, side)
    mesh = CoreMesh(rows, cols)
    part = tiling._replace(
        **{name: find_largest_divisor(rows, rows * getattr(tiling, name) // whole.rows) for name in ("rows", "split")}
    )
    before = summa_diagonal.block_counts(shape, tiling, whole, copies)
    # where turns have few chunks, the way of the first block to its tile is as long as they are
    turns = max(MAX_WAVES, ceil(MAX_CHUNKS / before.chunks)) if tiling.split > 1 else MAX_WAVES
    left = min(before.waves, turns) * (mesh.rows // (part.rows * part.split))
    copies = min(copies, left)
    down = min(before.down, left // copies)
    across = min(before.across, left // (copies * down))
    high, wide = (ceil(min(size, most) / tiles) for size, most, tiles in (
        (shape.m, tiling.m * tiling.rows, tiling.rows), (shape.n, tiling.n * whole.cols, whole.cols)
    ))  # fmt: skip
    now = GemmShape(high * part.rows * down, ceil(shape.k * part.split / tiling.split), wide * mesh.cols * across)
    waves = summa_diagonal.block_counts(now, part, mesh, copies).waves
    bytes_ = summa_diagonal.memory_bytes(now, part, mesh, job.itemsize, copies, job.weights)
    bytes_ = bytes_ / summa_diagonal.memory_bytes(shape, tiling, whole, job.itemsize, job.copies, job.weights)
    chip = chip_on_submesh(job.chip, mesh, bytes_ / (waves / before.waves))
    return closed_summa.SummaJob(now, part, chip, copies, job.itemsize, job.weights), before.waves / waves


def attention_on_submesh(job: closed_attention.AttentionJob, side: int) -> tuple[closed_attention.AttentionJob, float]:
    """Attention job on a submesh: groups as they are, or shrunk with their queries, keys and heads."""
    shape, tiling, mesh = job.shape, job.tiling, closed_attention.working_mesh(job)
    whole = CoreMesh(int(mesh.rows), int(mesh.cols))
    current_mesh = CoreMesh(*submesh_sides(whole.rows, whole.cols, side))
    # both sides by as much, since what a mask leaves goes by their ratio
    scale = min(1.0, current_mesh.rows / float(tiling.rows), current_mesh.cols / float(tiling.cols))
    rows, cols = (
        find_largest_divisor(current_mesh.rows, int(tiling.rows * scale)),
        find_largest_divisor(current_mesh.cols, int(tiling.cols * scale)),
    )
    group = AttentionTiling(rows, cols, int(tiling.queries), int(tiling.keys), int(tiling.kv_splits))
    heads = max(round(shape.rows / shape.queries), 1)  # whose queries are stacked, as those of a group
    queries = max(submesh_share(int(shape.rows), int(tiling.rows), rows) // heads, 1)
    counted = tiling_of_pairs(job.of, shape, tiling)
    before, keys = block_counts(shape, counted, whole), submesh_share(int(shape.keys), int(tiling.cols), cols)
    window = submesh_share(int(shape.window), int(tiling.cols), cols)  # as the keys, so that bands are of as many blocks
    now = replace(shape, batch=1, heads=heads, kv_heads=1, queries=queries, keys=keys, window=window)
    other_tiling = tiling_of_pairs(job.of, now, group)
    counts = block_counts(now, other_tiling, current_mesh)
    now = replace(now, batch=_heads(before, counts, causal=shape.causal))
    waves = block_counts(now, other_tiling, current_mesh).waves / before.waves
    nbytes = job.itemsize, job.kv
    bytes_ = memory_bytes(now, other_tiling, current_mesh, *nbytes) / memory_bytes(shape, counted, whole, *nbytes)
    chip = chip_on_submesh(job.chip, current_mesh, bytes_ / waves)
    return closed_attention.AttentionJob(job.of, now, group, chip, job.itemsize, job.kv), float(1 / waves)


def _heads(before: BlockCounts, counts: BlockCounts, *, causal: bool) -> int:
    """Heads of a part, each of so many blocks of queries: as many turns as before, of groups that have as much to do each.

    Under a causal mask these are blocks of the same queries in each turn, since others see more or fewer keys. Where no number
    of heads does that in as many turns as before, the last turn is not full, as it may be on the whole mesh.
    """
    turns, outer, groups = min(int(before.waves), MAX_WAVES), int(counts.outer * counts.parts), int(counts.groups)
    items = float(min(before.items * groups / before.groups, MAX_WAVES * groups))
    even = 1 if turns == 1 else groups if causal else groups // gcd(groups, outer)
    heads = ceil(items / (outer * even)) * even
    if heads * outer > int(before.waves) * groups:
        heads = min(ceil(items / outer), turns * groups // outer)
    return max(heads, 1)


def row_job_on_submesh(job: closed_streamed.RowJob, side: int) -> tuple[closed_streamed.RowJob, float]:
    """Row job on a submesh, with as many rows per tile and tiles per memory channel."""
    every = CoreMesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols))
    before = streamed.row_waves(job.rows, job.block, every)
    whole = streamed.busy_mesh(before, every)
    mesh = CoreMesh(*submesh_sides(int(whole.rows), whole.cols, side))
    tiles = mesh.rows * mesh.cols / (whole.rows * whole.cols)
    kept = min(before.waves, MAX_WAVES)
    rows = min(ceil(job.rows * tiles), int(job.block.rows) * mesh.rows * mesh.cols * kept)
    return job._replace(rows=rows, chip=chip_on_submesh(job.chip, mesh, tiles), taken=None), float(before.waves / kept)


def block_loop_on_submesh(job: closed_walked.BlockLoopJob, side: int) -> tuple[closed_walked.BlockLoopJob, float]:
    """Block loop job on a submesh, with as many items per tile and tiles per memory channel."""
    whole = walked.busy_mesh(int(job.items), CoreMesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols)))
    mesh = CoreMesh(*submesh_sides(whole.rows, whole.cols, side))
    tiles = mesh.rows * mesh.cols / (whole.rows * whole.cols)
    items = min(ceil(job.items * tiles), mesh.rows * mesh.cols * MAX_WAVES)
    rising = job.rising
    if rising is not None:  # as long ones at the same share of all items
        alike, first, more = rising
        rising = max(alike * tiles, 1.0), first, more / min(alike * tiles, 1.0)
    part = job._replace(items=items, chip=chip_on_submesh(job.chip, mesh, tiles), rising=rising)
    return part, sum(closed_walked.blocks_per_wave(job)) / sum(closed_walked.blocks_per_wave(part))


def chip_on_submesh(chip: Chip, mesh: CoreMesh, memory: float) -> Chip:
    """Chip with other mesh sides and the same share of memory channels."""
    main = main_memory(chip)
    channels = max(round(float(main.stated_channels) * memory), 1)
    return replace_leaves(chip, {"mesh.rows": mesh.rows, "mesh.cols": mesh.cols, main.leaf("channels"): channels})


def find_largest_divisor(side: int, most: int) -> int:
    """Largest divisor of a side that is at most a given size, or 1. [-]"""
    return max((count for count in range(1, side + 1) if side % count == 0 and count <= most), default=1)
