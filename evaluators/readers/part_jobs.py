"""Jobs of tiles on a part of their mesh, for readers to which the whole is too large: tiles keep what they do at a time.

A job becomes as much smaller as that takes, in turns too, and memory channels as many fewer as leaves each its bytes.
"""

from dataclasses import replace
from math import ceil, gcd

from dse.evaluators.kernels.attention.dataflow import in_turns
from dse.evaluators.kernels.attention.shape import Cut, Tiling, cut, memory_bytes
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import Part
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.vector import streamed, walked
from dse.evaluators.passes.part import share, sides
from dse.evaluators.readers import closed_attention, closed_streamed, closed_summa, closed_walked
from dse.evaluators.readers.cached import Cached
from dse.evaluators.readers.in_turn import InTurn
from dse.space.chip import Chip
from dse.space.fields import replaced

WAVES = 4
"""Turns that a job keeps at most: those after the first few are like one another."""

CHUNKS = 16
"""Chunks that products whose depth is divided keep in all of their turns at least."""

Job = closed_summa.Job | closed_attention.Job | closed_streamed.Job | closed_walked.Job | InTurn | Cached


def job_on(job: Job, side: int) -> tuple[Job, float]:
    """A job whose leaves are numbers on at most `side` x `side` tiles, and how many of its turns that stands for.

    Itself, once, where `side` is 0.
    """
    if not side:
        return job, 1.0
    if isinstance(job, Cached):  # both ways to memory have as many bytes
        (here, times), (there, _) = job_on(job.job, side), job_on(job.there, side)
        return job._replace(job=here, there=there), times
    if isinstance(job, InTurn):
        parts = [(count, job_on(one, side)) for count, one in job.counted]
        return InTurn(tuple(one for _, (one, _) in parts), tuple(count * times for count, (_, times) in parts)), 1.0
    if isinstance(job, closed_attention.Job):
        return attention_on(job, side)
    if isinstance(job, closed_walked.Job):
        return walked_on(job, side)
    return summa_on(job, side) if isinstance(job, closed_summa.Job) else streamed_on(job, side)


def summa_on(job: closed_summa.Job, side: int) -> tuple[closed_summa.Job, float]:
    """As deep for a group, so that as many blocks come from memory to each tile of the diagonal; as many outputs as turns."""
    of, copies = Part(*map(int, job.part)), int(job.copies)
    shape = Shape(int(job.shape.m), int(job.shape.k), int(job.shape.n))
    whole = summa_diagonal.busy_mesh(shape, of, Mesh(int(job.mesh.rows), int(job.mesh.cols)), copies)
    rows, cols = sides(whole.rows, whole.cols, side)
    here = Mesh(rows, cols)
    part = of._replace(**{name: divisor(rows, rows * getattr(of, name) // whole.rows) for name in ("rows", "split")})
    before = summa_diagonal.cut(shape, of, whole, copies)
    # where turns have few chunks, the way of the first block to its tile is as long as they are
    turns = max(WAVES, ceil(CHUNKS / before.chunks)) if of.split > 1 else WAVES
    left = min(before.waves, turns) * (here.rows // (part.rows * part.split))
    copies = min(copies, left)
    down = min(before.down, left // copies)
    across = min(before.across, left // (copies * down))
    high, wide = (ceil(min(size, most) / tiles) for size, most, tiles in (
        (shape.m, of.m * of.rows, of.rows), (shape.n, of.n * whole.cols, whole.cols)
    ))  # fmt: skip
    now = Shape(high * part.rows * down, ceil(shape.k * part.split / of.split), wide * here.cols * across)
    waves = summa_diagonal.cut(now, part, here, copies).waves
    bytes_ = summa_diagonal.memory_bytes(now, part, here, job.itemsize, copies, job.weights)
    bytes_ = bytes_ / summa_diagonal.memory_bytes(shape, of, whole, job.itemsize, job.copies, job.weights)
    chip = chip_on(job.chip, here, bytes_ / (waves / before.waves))
    return closed_summa.Job(now, part, chip, copies, job.itemsize, job.weights), before.waves / waves


def attention_on(job: closed_attention.Job, side: int) -> tuple[closed_attention.Job, float]:
    """Groups as they are, or as large as the part: queries and keys of a block shrink with them, heads with their number."""
    shape, tiling, mesh = job.shape, job.tiling, closed_attention.busy(job)
    whole = Mesh(int(mesh.rows), int(mesh.cols))
    here = Mesh(*sides(whole.rows, whole.cols, side))
    # both sides by as much, since what a mask leaves goes by their ratio
    scale = min(1.0, here.rows / float(tiling.rows), here.cols / float(tiling.cols))
    rows, cols = divisor(here.rows, int(tiling.rows * scale)), divisor(here.cols, int(tiling.cols * scale))
    group = Tiling(rows, cols, int(tiling.queries), int(tiling.keys), int(tiling.splits))
    heads = max(round(shape.rows / shape.queries), 1)  # whose queries are stacked, as those of a group
    queries = max(share(int(shape.rows), int(tiling.rows), rows) // heads, 1)
    counted = in_turns(job.of, shape, tiling)
    before, keys = cut(shape, counted, whole), share(int(shape.keys), int(tiling.cols), cols)
    window = share(int(shape.window), int(tiling.cols), cols)  # as the keys, so that bands are of as many blocks
    now = replace(shape, batch=1, heads=heads, kv_heads=1, queries=queries, keys=keys, window=window)
    there = in_turns(job.of, now, group)
    of = cut(now, there, here)
    now = replace(now, batch=_heads(before, of, causal=shape.causal))
    waves = cut(now, there, here).waves / before.waves
    nbytes = job.itemsize, job.kv
    bytes_ = memory_bytes(now, there, here, *nbytes) / memory_bytes(shape, counted, whole, *nbytes)
    chip = chip_on(job.chip, here, bytes_ / waves)
    return closed_attention.Job(job.of, now, group, chip, job.itemsize, job.kv), float(1 / waves)


def _heads(before: Cut, of: Cut, *, causal: bool) -> int:
    """Heads of a part, each of so many blocks of queries: as many turns as before, of groups that have as much to do each.

    Under a causal mask these are blocks of the same queries in each turn, since others see more or fewer keys. Where no number
    of heads does that in as many turns as before, the last turn is not full, as it may be on the whole mesh.
    """
    turns, outer, groups = min(int(before.waves), WAVES), int(of.outer * of.parts), int(of.groups)
    items = float(min(before.items * groups / before.groups, WAVES * groups))
    even = 1 if turns == 1 else groups if causal else groups // gcd(groups, outer)
    heads = ceil(items / (outer * even)) * even
    if heads * outer > int(before.waves) * groups:
        heads = min(ceil(items / outer), turns * groups // outer)
    return max(heads, 1)


def streamed_on(job: closed_streamed.Job, side: int) -> tuple[closed_streamed.Job, float]:
    """As many rows a tile, and as many tiles a memory channel."""
    every = Mesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols))
    before = streamed.cut(job.rows, job.block, every)
    whole = streamed.busy_mesh(before, every)
    here = Mesh(*sides(int(whole.rows), whole.cols, side))
    tiles = here.rows * here.cols / (whole.rows * whole.cols)
    kept = min(before.waves, WAVES)
    rows = min(ceil(job.rows * tiles), int(job.block.rows) * here.rows * here.cols * kept)
    return job._replace(rows=rows, chip=chip_on(job.chip, here, tiles), taken=None), float(before.waves / kept)


def walked_on(job: closed_walked.Job, side: int) -> tuple[closed_walked.Job, float]:
    """As many items a tile, and as many tiles a memory channel; of longer and longer items the first ones."""
    whole = walked.busy_mesh(int(job.items), Mesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols)))
    here = Mesh(*sides(whole.rows, whole.cols, side))
    tiles = here.rows * here.cols / (whole.rows * whole.cols)
    items = min(ceil(job.items * tiles), here.rows * here.cols * WAVES)
    rising = job.rising
    if rising is not None:  # as long ones at the same share of all items
        alike, first, more = rising
        rising = max(alike * tiles, 1.0), first, more / min(alike * tiles, 1.0)
    part = job._replace(items=items, chip=chip_on(job.chip, here, tiles), rising=rising)
    return part, sum(closed_walked.counts(job)) / sum(closed_walked.counts(part))


def chip_on(chip: Chip, mesh: Mesh, memory: float) -> Chip:
    """A chip of other sides, with a share of the memory channels."""
    channels = max(round(float(chip.hbm.channels) * memory), 1)
    return replaced(chip, {"mesh.rows": mesh.rows, "mesh.cols": mesh.cols, "hbm.channels": channels})


def divisor(side: int, most: int) -> int:
    """The largest divisor of a side that is at most so large, or 1."""
    return max((count for count in range(1, side + 1) if side % count == 0 and count <= most), default=1)
