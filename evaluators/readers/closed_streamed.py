"""The closed reader of what tiles do row by row from memory; leaves broadcast over designs."""

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.kernels.vector import streamed
from dse.evaluators.kernels.vector.streamed import WAVES, Block, Recipe, pieces, slots
from dse.evaluators.machine.channels import ColumnMemory, column_memory
from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.program.rounds import DTYPES
from dse.space.chip import Chip
from dse.space.elementwise import ceil_div, lowest, maximum, one_value, where, within
from dse.space.fields import leaves
from dse.space.remember import KEPT, remembered, same


class Job(NamedTuple):
    """What a chip is asked to do with rows: a recipe, how many of them, and how tiles take them.

    `taken` is its time, where choosing the block has worked it out; None of a job of which anything was changed. [s]
    """

    recipe: Recipe
    rows: Any
    block: Block
    chip: Chip
    itemsize: float = 2.0
    taken: Any = None


PARTS = ("hbm", "vector")
"""What takes time, in the order in which it is left out."""


def price(job: Job) -> Cost:
    """Time and activity."""
    seconds = _seconds(job, column_memory(job.chip)) if job.taken is None else job.taken
    return Cost(seconds, streamed.activity(job.recipe, job.rows, job.block, *_where(job)))


def split(job: Job) -> dict[str, Any]:
    """The time by what it goes into, words of `PARTS`: what falls away when memory is free; the rest is instructions."""
    memory = column_memory(job.chip)
    whole, left = _seconds(job, memory), _seconds(job, memory._replace(latency=0.0, byte=0.0, crowded=0.0))
    return dict(zip(PARTS, (whole - left, left), strict=True))


def proposed(recipe: Recipe, rows: Any, width: Any, chip: Chip, itemsize: float = 2.0) -> Job:
    """What takes the least time by the closed form and fits; leaves broadcast over designs.

    Args:
        recipe: what is done.
        rows, width: to how many rows of how many columns.
        chip: where.
        itemsize: bytes of a value.
    """
    asked = (recipe, rows, width, chip, itemsize)
    try:
        hash(asked)
    except TypeError:  # arrays over designs or cases: turns that are tried are one more axis
        axes = max(np.ndim(rows), np.ndim(width), wide(chip))
        waves = 1 if recipe.whole else np.array(WAVES).reshape(-1, *[1] * axes)
        return _least(*asked, [(slices, waves) for slices in recipe.slices])
    return _known(*asked)


@lru_cache(maxsize=KEPT)
def _known(recipe: Recipe, rows: Any, width: Any, chip: Chip, itemsize: float) -> Job:
    return _least(recipe, rows, width, chip, itemsize, list(product(recipe.slices, (1,) if recipe.whole else WAVES)))


@same
def wide(chip: Chip) -> int:
    """Axes of the leaves of a chip: none where they are numbers."""
    return max(np.ndim(value) for _, value, _ in leaves(chip))


def _least(recipe: Recipe, rows: Any, width: Any, chip: Chip, itemsize: float, tried: list[tuple[int, Any]]) -> Job:
    """Of slices, each with a number of turns or with several along a first axis."""
    rows, width = pieces(recipe, rows, width)
    best: tuple[Any, ...] | None = None
    for slices, waves in tried:
        some, part = rows * slices, ceil_div(width, slices)
        kept, more = _needs(recipe, part, itemsize)
        fits = maximum((chip.tile.sram - kept) // (more - kept), 1)
        one = ceil_div(some, chip.mesh.rows * chip.mesh.cols * waves)
        one = one if recipe.whole else within(one, fits)
        held = kept + (more - kept) * one  # as `nbytes` has it: it grows with rows
        over = maximum(held / chip.tile.sram - 1, 0.0)
        seconds = _seconds(Job(recipe, some, Block(one, part), chip, itemsize), column_memory(chip))
        if isinstance(waves, np.ndarray):
            every = np.broadcast_arrays(over, seconds, one)
            place = lowest(every[:2])
            over, seconds, one = (np.take_along_axis(value, place, axis=0)[0] for value in every)
        found = over, seconds, some, one, part
        if best is not None:
            lower = (found[0] < best[0]) | ((found[0] == best[0]) & (found[1] < best[1]))
            found = tuple(where(lower, new, old) for new, old in zip(found, best, strict=True))
        best = found
    assert best is not None
    return Job(recipe, one_value(best[2]), Block(*map(one_value, best[3:])), chip, itemsize, best[1])


@remembered
def _needs(recipe: Recipe, width: Any, itemsize: float) -> tuple[Any, Any]:
    """Local memory of a tile with blocks of no row, and of one. [B]"""
    without, one = (_held(recipe, Block(rows, width), itemsize) for rows in (0, 1))
    return without, one


def nbytes(job: Job) -> Any:
    """Local memory of a tile in use. [B]"""
    return _held(job.recipe, job.block, job.itemsize)


def _held(recipe: Recipe, block: Block, itemsize: float) -> Any:
    return sum(slot.nbytes for slot in slots(recipe, block, DTYPES[itemsize])) * 1.0


def _seconds(job: Job, memory: ColumnMemory) -> Any:
    mesh, dtype = _where(job)
    chip = job.chip
    return streamed.seconds(job.recipe, job.rows, job.block, mesh, tile_fabric(chip), engines(chip), memory, dtype)


def _where(job: Job) -> tuple[Mesh, str]:
    """Tiles, and the format of values there."""
    return Mesh(job.chip.mesh.rows, job.chip.mesh.cols), DTYPES[job.itemsize]
