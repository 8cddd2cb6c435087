"""Analytical cost model of row kernels of tiles from memory; leaves broadcast over designs."""

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.vector import row_kernels as streamed
from dse.evaluators.kernels.vector.row_kernels import WAVES, RowBlock, RowKernel, buffers, row_pieces
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.memory_channels import ColumnMemory, column_memory
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.program.kernel_ir import DTYPES, FUNCTIONS
from dse.space.array_math import (
    Array,
    argmin_lexicographic,
    cap_if_exceeded,
    ceil_div,
    collapse_if_equal,
    maximum,
    minimum,
    where,
)
from dse.space.chip import Chip
from dse.space.fields import iterate_leaves
from dse.space.memoize import MAX_ENTRIES, memoize, memoize_by_identity


class RowJob(NamedTuple):
    """A row kernel over a number of rows that all tiles of a chip run from main memory.

    `taken` is its time, where choosing the block has worked it out; None of a job of which anything was changed. [s]
    """

    recipe: RowKernel
    rows: Any
    block: RowBlock
    chip: Chip
    itemsize: float = 2.0
    taken: Any = None


TIME_PARTS = ("hbm", "vector")
"""What takes time, in the order in which it is left out."""

MAX_LOOP_DESIGNS = 64
"""Designs for which everything that is tried is timed in NumPy; of more, in a compiled loop."""


def job_cost(job: RowJob) -> KernelCost:
    """Time [s] and activity of a row job."""
    if job.taken is None:
        return streamed.cost(*_asked(job, column_memory(job.chip)))
    return KernelCost(job.taken, streamed.activity(job.recipe, job.rows, job.block, *_where(job)))


def time_by_resource(job: RowJob) -> dict[str, Any]:
    """Time of a row job by resource, with the keys of `TIME_PARTS`: memory, and instructions. [s]"""
    memory = column_memory(job.chip)
    whole, left = _seconds(job, memory), _seconds(job, memory._replace(latency=0.0, byte=0.0, crowded=0.0))
    return dict(zip(TIME_PARTS, (whole - left, left), strict=True))


def propose_row_job(recipe: RowKernel, rows: Any, width: Any, chip: Chip, itemsize: float = 2.0) -> RowJob:
    """Row job with the block that takes least time and fits; leaves broadcast over designs.

    Args:
        recipe: row kernel.
        rows, width: to how many rows of how many columns.
        chip: chip that runs it.
        itemsize: bytes of a value.
    """
    arguments = (recipe, rows, width, chip, itemsize)
    if chip.tile.is_range:
        return _least_of_box(*arguments)
    try:
        hash(arguments)
    except TypeError:  # arrays over designs or cases: turns that are tried are one more axis
        if np.ndim(rows) == np.ndim(width) == 0 and _many(chip) > MAX_LOOP_DESIGNS:
            return _together(*arguments)
        axes = max(np.ndim(rows), np.ndim(width), design_axes(chip))
        waves = 1 if recipe.whole else np.array(WAVES).reshape(-1, *[1] * axes)
        return _least(*arguments, [(slices, waves) for slices in recipe.slices])
    return _known(*arguments)


@lru_cache(maxsize=MAX_ENTRIES)
def _known(recipe: RowKernel, rows: Any, width: Any, chip: Chip, itemsize: float) -> RowJob:
    return _least(recipe, rows, width, chip, itemsize, list(product(recipe.slices, (1,) if recipe.whole else WAVES)))


@memoize_by_identity
def _many(chip: Chip) -> int:
    """Designs of a chip whose leaves are numbers or of shape (designs,)."""
    return int(max(np.size(value) for _, value, _ in iterate_leaves(chip)))


@memoize_by_identity
def design_axes(chip: Chip) -> int:
    """Axes of the leaves of a chip: none if they are numbers."""
    return max(np.ndim(value) for _, value, _ in iterate_leaves(chip))


def _least(recipe: RowKernel, rows: Any, width: Any, chip: Chip, itemsize: float, tried: list[tuple[int, Any]]) -> RowJob:
    """Of slices, each with a number of turns or with several along a first axis."""
    rows, width = row_pieces(recipe, rows, width)
    best: tuple[Any, ...] | None = None
    for slices, waves in tried:
        sliced_rows, part = _sliced(rows, width, slices)
        kept, more = _needs(recipe, part, itemsize)
        fits = maximum((chip.tile.sram - kept) // (more - kept), 1)
        block_rows = ceil_div(sliced_rows, chip.mesh.rows * chip.mesh.cols * waves)
        block_rows = block_rows if recipe.whole else cap_if_exceeded(block_rows, fits)
        held = kept + (more - kept) * block_rows  # as `nbytes` has it: it grows with rows
        over = maximum(held / chip.tile.sram - 1, 0.0)
        seconds = _seconds(RowJob(recipe, sliced_rows, RowBlock(block_rows, part), chip, itemsize), column_memory(chip))
        if isinstance(waves, np.ndarray):
            every = np.broadcast_arrays(over, seconds, block_rows)
            place = argmin_lexicographic(every[:2])
            over, seconds, block_rows = (np.take_along_axis(value, place, axis=0)[0] for value in every)
        candidate = over, seconds, sliced_rows, block_rows, part
        if best is not None:
            lower = (candidate[0] < best[0]) | ((candidate[0] == best[0]) & (candidate[1] < best[1]))
            candidate = tuple(where(lower, new, old) for new, old in zip(candidate, best, strict=True))
        best = candidate
    assert best is not None
    return RowJob(recipe, collapse_if_equal(best[2]), RowBlock(*map(collapse_if_equal, best[3:])), chip, itemsize, best[1])


def _least_of_box(recipe: RowKernel, rows: Any, width: Any, chip: Chip, itemsize: float) -> RowJob:
    """Row job whose time is a lower bound over all tiles of a box.

    Each design takes, for some slices and waves, blocks of r rows: as many as these waves need, or as fit in its local memory.
    All such r are from those of the smallest memory, r0, to those of the largest, r1, and any of these may be the fastest: the
    bound is the least over slices and waves. Where r0 = r1 it is the block's own time. Else a block's instructions and bytes
    are a constant and a multiple of its rows, so that a row takes least of either in blocks of r1. All instructions of the
    busiest tile and all bytes of the busiest channel are then at least

        rows / tiles x instructions(r1) / r1,   rows / channels x bytes(r1) / r1

    and before both is the latency of the first load, behind them the way of the last store.
    """
    (rows, width), bounds = row_pieces(recipe, rows, width), list[tuple[Any, ...]]()
    fabric, memory = tile_fabric(chip), column_memory(chip)
    tiles, channels = chip.mesh.rows * chip.mesh.cols, minimum(memory.count, chip.mesh.cols)
    for slices, waves in product(recipe.slices, (1,) if recipe.whole else WAVES):
        sliced_rows, part = _sliced(rows, width, slices)
        kept, more = _needs(recipe, part, itemsize)
        block_rows = least_rows = ceil_div(sliced_rows, tiles * waves)
        if not recipe.whole:
            block_rows, least_rows = (
                minimum(block_rows, maximum((sram - kept) // (more - kept), 1))
                for sram in (chip.tile.sram, chip.tile.least_sram)
            )
        over = maximum((kept + (more - kept) * block_rows) / chip.tile.sram - 1, 0.0)
        job = RowJob(recipe, sliced_rows, RowBlock(block_rows, part), chip, itemsize)
        seconds, work = _seconds(job, memory), streamed.block_work(*_asked(job, memory))
        vector = sliced_rows / tiles * work.vector / block_rows
        moved = sliced_rows / channels * (work.loaded + work.stored) / block_rows * memory.crowded
        ends = 3 * fabric.ramp + memory.latency + 2 * fabric.post
        bound = where(least_rows == block_rows, seconds, ends + maximum(vector, moved))
        bounds.append((over, bound, sliced_rows, block_rows, part))
    every = [np.stack(values) for values in zip(*(np.broadcast_arrays(*bound) for bound in bounds), strict=True)]
    best = argmin_lexicographic(every[:2])
    over, seconds, sliced_rows, block_rows, part = (np.take_along_axis(value, best, axis=0)[0] for value in every)
    block = RowBlock(collapse_if_equal(block_rows), collapse_if_equal(part))
    return RowJob(recipe, collapse_if_equal(sliced_rows), block, chip, itemsize, seconds)


def _sliced(rows: Any, width: Any, slices: int) -> tuple[Any, Any]:
    """Rows and columns of what tiles take of rows that are cut into at most so many slices, none of which is empty.

    >>> _sliced(1, 5, 4), _sliced(2, 128, 8)
    ((3, 2), (16, 16))
    """
    part = ceil_div(width, slices)
    return rows * ceil_div(width, part), part


def _together(recipe: RowKernel, rows: Any, width: Any, chip: Chip, itemsize: float) -> RowJob:
    """Likewise of many designs, by a compiled loop."""
    from dse.evaluators.cost_models.row_block_search import (
        choose_row_blocks,
    )  # a few closed questions do without compiled loops

    rows, width = row_pieces(recipe, rows, width)
    row_counts, widths = zip(*(_sliced(rows, width, slices) for slices in recipe.slices), strict=True)
    room = np.array([_needs(recipe, part, itemsize) for part in widths], float)
    held = np.array([_tabulated(recipe, part, itemsize) for part in widths], float)
    waves, best = np.array((1,) if recipe.whole else WAVES, float), np.empty((3, _many(chip)))
    choose_row_blocks(
        _rates(chip), np.array(row_counts, float), room, waves, recipe.whole, held, *_program(recipe), len(recipe.groups), best
    )
    taken, which, block_rows = best
    if len(row_counts) == 1:
        return RowJob(recipe, row_counts[0], RowBlock(collapse_if_equal(block_rows), widths[0]), chip, itemsize, taken)
    which = which.astype(int)
    several, part = (collapse_if_equal(np.array(sides, float)[which]) for sides in (row_counts, widths))
    return RowJob(recipe, several, RowBlock(collapse_if_equal(block_rows), part), chip, itemsize, taken)


@memoize_by_identity
def _rates(chip: Chip) -> Array:
    """Of designs, columns as of `row_block_search.RATE_COLUMNS`, shape (designs, columns)."""
    fabric, engines, memory = tile_fabric(chip), tile_engines(chip), column_memory(chip)
    columns = (
        chip.mesh.rows, chip.mesh.cols, chip.tile.sram, fabric.hop, fabric.post, fabric.ramp, *memory, engines.vector.lanes,
        engines.vector.special, engines.sram_bandwidth, engines.vector.start / engines.clock, engines.clock,
        fabric.die_rows, fabric.crossing,
    )  # fmt: skip
    return np.stack([np.broadcast_to(np.asarray(column, float), _many(chip)) for column in columns], axis=-1)


@lru_cache(maxsize=MAX_ENTRIES)
def _tabulated(recipe: RowKernel, width: Any, itemsize: float) -> list[tuple[float, ...]]:
    """Slots of blocks of a width, as of `row_block_search.choose_row_blocks`: what grows with rows is the same for each."""
    sizes: list[tuple[float, ...]] = []
    for none, buffer in zip(*(buffers(recipe, RowBlock(rows, width), DTYPES[itemsize]) for rows in (0, 1)), strict=True):
        beside = none.shape[-1]
        sizes.append((none.shape[0], prod(none.shape[1:-1]), buffer.shape[-1] - beside, beside, none.itemsize))
    return sizes


@lru_cache(maxsize=MAX_ENTRIES)
def _program(recipe: RowKernel) -> tuple[Array, Array, Array]:
    """Instructions, the slots that they read and write, and slots that are moved, as of
    `row_block_search.choose_row_blocks`.
    """
    from dse.evaluators.cost_models.row_block_search import MAX_INPUTS

    place = {name: number for number, (name, _) in enumerate(recipe.slots)}
    calls, names = [], []
    for call, joined in streamed.vector_instructions(recipe):
        what, slots = FUNCTIONS[call.function], [place[name] for name in (*call.inputs, call.out)]
        calls.append((what.operations, what.specials, not joined))
        names.append((slots[0], slots[-1], *slots, *[-1] * (MAX_INPUTS - len(slots))))
    moved = recipe.loads, recipe.stored, recipe.groups[0][0]
    most = max(map(len, moved))
    rows = [[*(place[name] for name in names), *[-1] * (most - len(names))] for names in moved]
    return np.array(calls, float).reshape(-1, 3), np.array(names, int).reshape(-1, 2 + MAX_INPUTS), np.array(rows)


@memoize
def _needs(recipe: RowKernel, width: Any, itemsize: float) -> tuple[Any, Any]:
    """Local memory of a tile with blocks of no row, and of one. [B]"""
    without, per_row = (_held(recipe, RowBlock(rows, width), itemsize) for rows in (0, 1))
    return without, per_row


def local_bytes(job: RowJob) -> Any:
    """Local memory of a tile in use. [B]"""
    return _held(job.recipe, job.block, job.itemsize)


def _held(recipe: RowKernel, block: RowBlock, itemsize: float) -> Any:
    return sum(slot.nbytes for slot in buffers(recipe, block, DTYPES[itemsize])) * 1.0


def _seconds(job: RowJob, memory: ColumnMemory) -> Any:
    return streamed.seconds(*_asked(job, memory))


def _asked(job: RowJob, memory: ColumnMemory) -> tuple[Any, ...]:
    (mesh, dtype), chip = _where(job), job.chip
    return job.recipe, job.rows, job.block, mesh, tile_fabric(chip), tile_engines(chip), memory, dtype


def _where(job: RowJob) -> tuple[CoreMesh, str]:
    """Tiles, and the format of values there."""
    return CoreMesh(job.chip.mesh.rows, job.chip.mesh.cols), DTYPES[job.itemsize]
