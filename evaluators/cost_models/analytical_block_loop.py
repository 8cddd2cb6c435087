"""Analytical cost model of block loops of tiles over blocks from memory; broadcasts over designs."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.vector import block_loop_kernels as walked
from dse.evaluators.kernels.vector.block_loop_kernels import BlockLoopKernel, remove_vector_instructions
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.memory_channels import ColumnMemory, column_memory
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.space.array_math import maximum, where
from dse.space.chip import Chip


class BlockLoopJob(NamedTuple):
    """A block loop kernel over items that all tiles of a chip run from main memory.

    Attributes:
        walk: block loop kernel.
        items, blocks: how many, and blocks of the longest.
        chip: chip that runs it.
        rising: of items that are ever longer, how many are alike, and blocks of the first one; and how many more those of each
            other length have. Nothing where all are alike.
    """

    walk: BlockLoopKernel
    items: Any
    blocks: Any
    chip: Chip
    rising: tuple[Any, Any, Any] | None = None


TIME_PARTS = ("hbm", "vector", "matrix")
"""What takes time, in the order in which it is left out."""


def job_cost(job: BlockLoopJob) -> KernelCost:
    """Time [s] and activity of a block loop job."""
    return _price(job, column_memory(job.chip))


def time_by_resource(job: BlockLoopJob) -> dict[str, Any]:
    """Time of a block loop job by resource, with the keys of `TIME_PARTS`: time saved by freeing each. [s]"""
    free = column_memory(job.chip)._replace(latency=0.0, byte=0.0, crowded=0.0)
    whole, engines_, matrix = (
        _price(*variant).seconds
        for variant in (
            (job, column_memory(job.chip)),
            (job, free),
            (job._replace(walk=remove_vector_instructions(job.walk)), free),
        )
    )
    return dict(zip(TIME_PARTS, (whole - engines_, engines_ - matrix, matrix), strict=True))


def blocks_per_wave(job: BlockLoopJob) -> tuple[int, ...]:
    """Blocks of the longest item of each wave, for a job of one design. [-]"""
    return _counts(*(float(leaf) for leaf in _sizes(job)))


def choose_fastest_job(jobs: list[BlockLoopJob]) -> BlockLoopJob:
    """Fastest of the jobs that fit, chosen design by design."""
    best, least = jobs[0], _badness(jobs[0])
    for job in jobs[1:]:
        badness = _badness(job)
        lower = (badness[0] < least[0]) | ((badness[0] == least[0]) & (badness[1] < least[1]))
        best = _either(lower, job, best)
        least = tuple(where(lower, value, other) for value, other in zip(badness, least, strict=True))
    return best


def _badness(job: BlockLoopJob) -> tuple[Any, Any]:
    """How far local memory is exceeded, then time."""
    return maximum(job.walk.nbytes / job.chip.tile.sram - 1, 0.0), job_cost(job).seconds


def _either(condition: Any, job: BlockLoopJob, other: BlockLoopJob) -> BlockLoopJob:
    if np.ndim(condition) == 0:
        return job if condition else other
    slots = tuple(
        mine._replace(shape=tuple(where(condition, *sides) for sides in zip(mine.shape, theirs.shape, strict=True)))
        for mine, theirs in zip(job.walk.slots, other.walk.slots, strict=True)
    )
    items, blocks = where(condition, job.items, other.items), where(condition, job.blocks, other.blocks)
    rising = None
    if job.rising is not None and other.rising is not None:
        alike, first, more = (where(condition, *leaves) for leaves in zip(job.rising, other.rising, strict=True))
        rising = alike, first, more
    return job._replace(walk=replace(job.walk, slots=slots), items=items, blocks=blocks, rising=rising)


def _price(job: BlockLoopJob, memory: ColumnMemory) -> KernelCost:
    chip = job.chip
    mesh, blocks, loaded = CoreMesh(chip.mesh.rows, chip.mesh.cols), job.blocks, job.blocks * job.items
    if job.rising is not None:
        spread = np.broadcast_arrays(*_sizes(job))
        each = [_means(*(float(leaf.ravel()[place]) for leaf in spread)) for place in range(spread[0].size)]
        blocks, loaded = (
            each[0] if spread[0].ndim == 0 else (np.reshape(column, spread[0].shape) for column in np.transpose(each))
        )
    return walked.cost(job.walk, job.items, blocks, mesh, tile_fabric(chip), tile_engines(chip), memory, loaded)


def _sizes(job: BlockLoopJob) -> tuple[Any, ...]:
    """Arguments of `_counts` for a job."""
    mesh = walked.busy_mesh(job.items, CoreMesh(job.chip.mesh.rows, job.chip.mesh.cols))
    return (job.items, job.blocks, *(job.rising or (1.0, job.blocks, 0.0)), mesh.rows * mesh.cols)


@lru_cache(maxsize=4096)
def _counts(items: float, most: float, alike: float, first: float, more: float, tiles: float) -> tuple[int, ...]:
    """Numbers of blocks of each wave. [-]"""
    last = np.minimum((np.arange(-(-items // tiles)) + 1) * tiles, items) - 1
    return tuple(np.clip(np.ceil(first + last // alike * more), 1, most).astype(int).tolist())


@lru_cache(maxsize=4096)
def _means(*sizes: float) -> tuple[float, float]:
    """Blocks of a wave on average, and those that are loaded all together."""
    counts, items, tiles = _counts(*sizes), sizes[0], sizes[-1]
    return float(np.mean(counts)), float(sum(counts) * tiles - counts[-1] * (len(counts) * tiles - items))
