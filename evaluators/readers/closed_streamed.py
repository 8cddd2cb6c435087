"""The closed reader of what tiles do row by row from memory; leaves broadcast over designs."""

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.kernels.vector import streamed
from dse.evaluators.kernels.vector.streamed import WAVES, Block, Recipe, pieces, slots
from dse.evaluators.machine.channels import ColumnMemory, column_memory
from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.program.rounds import DTYPES, FUNCTIONS
from dse.space.chip import Chip
from dse.space.elementwise import Array, ceil_div, lowest, maximum, one_value, where, within
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

FEW = 64
"""Designs for which everything that is tried is timed in NumPy; of more, in a compiled loop."""


def price(job: Job) -> Cost:
    """Time and activity."""
    if job.taken is None:
        return streamed.cost(*_asked(job, column_memory(job.chip)))
    return Cost(job.taken, streamed.activity(job.recipe, job.rows, job.block, *_where(job)))


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
        if np.ndim(rows) == np.ndim(width) == 0 and _many(chip) > FEW:
            return _together(*asked)
        axes = max(np.ndim(rows), np.ndim(width), wide(chip))
        waves = 1 if recipe.whole else np.array(WAVES).reshape(-1, *[1] * axes)
        return _least(*asked, [(slices, waves) for slices in recipe.slices])
    return _known(*asked)


@lru_cache(maxsize=KEPT)
def _known(recipe: Recipe, rows: Any, width: Any, chip: Chip, itemsize: float) -> Job:
    return _least(recipe, rows, width, chip, itemsize, list(product(recipe.slices, (1,) if recipe.whole else WAVES)))


@same
def _many(chip: Chip) -> int:
    """Designs of a chip whose leaves are numbers or of shape (designs,)."""
    return int(max(np.size(value) for _, value, _ in leaves(chip)))


@same
def wide(chip: Chip) -> int:
    """Axes of the leaves of a chip: none where they are numbers."""
    return max(np.ndim(value) for _, value, _ in leaves(chip))


def _least(recipe: Recipe, rows: Any, width: Any, chip: Chip, itemsize: float, tried: list[tuple[int, Any]]) -> Job:
    """Of slices, each with a number of turns or with several along a first axis."""
    rows, width = pieces(recipe, rows, width)
    best: tuple[Any, ...] | None = None
    for slices, waves in tried:
        some, part = _sliced(rows, width, slices)
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


def _sliced(rows: Any, width: Any, slices: int) -> tuple[Any, Any]:
    """Rows and columns of what tiles take of rows that are cut into at most so many slices, none of which is empty.

    >>> _sliced(1, 5, 4), _sliced(2, 128, 8)
    ((3, 2), (16, 16))
    """
    part = ceil_div(width, slices)
    return rows * ceil_div(width, part), part


def _together(recipe: Recipe, rows: Any, width: Any, chip: Chip, itemsize: float) -> Job:
    """Likewise of many designs, by a compiled loop."""
    from dse.evaluators.readers.streamed_blocks import choose  # a few closed questions do without compiled loops

    rows, width = pieces(recipe, rows, width)
    some, widths = zip(*(_sliced(rows, width, slices) for slices in recipe.slices), strict=True)
    room = np.array([_needs(recipe, part, itemsize) for part in widths], float)
    held = np.array([_tabulated(recipe, part, itemsize) for part in widths], float)
    waves, best = np.array((1,) if recipe.whole else WAVES, float), np.empty((3, _many(chip)))
    choose(_rates(chip), np.array(some, float), room, waves, recipe.whole, held, *_program(recipe), len(recipe.groups), best)
    taken, which, one = best
    if len(some) == 1:
        return Job(recipe, some[0], Block(one_value(one), widths[0]), chip, itemsize, taken)
    which = which.astype(int)
    several, part = (one_value(np.array(sides, float)[which]) for sides in (some, widths))
    return Job(recipe, several, Block(one_value(one), part), chip, itemsize, taken)


@same
def _rates(chip: Chip) -> Array:
    """Of designs, columns as of `streamed_blocks.RATES`, shape (designs, columns)."""
    fabric, on, memory = tile_fabric(chip), engines(chip), column_memory(chip)
    columns = (
        chip.mesh.rows, chip.mesh.cols, chip.tile.sram, fabric.hop, fabric.post, fabric.ramp, *memory, on.vector.lanes,
        on.vector.special, on.sram_bandwidth, on.vector.call / on.clock, on.clock,
    )  # fmt: skip
    return np.stack([np.broadcast_to(np.asarray(column, float), _many(chip)) for column in columns], axis=-1)


@lru_cache(maxsize=KEPT)
def _tabulated(recipe: Recipe, width: Any, itemsize: float) -> list[tuple[float, ...]]:
    """Slots of blocks of a width, as of `streamed_blocks.choose`: what grows with rows is the same for each."""
    found: list[tuple[float, ...]] = []
    for none, one in zip(*(slots(recipe, Block(rows, width), DTYPES[itemsize]) for rows in (0, 1)), strict=True):
        beside = none.shape[-1]
        found.append((none.shape[0], prod(none.shape[1:-1]), one.shape[-1] - beside, beside, none.itemsize))
    return found


@lru_cache(maxsize=KEPT)
def _program(recipe: Recipe) -> tuple[Array, Array, Array]:
    """Instructions, the slots that they read and write, and slots that are moved, as of `streamed_blocks.choose`."""
    from dse.evaluators.readers.streamed_blocks import INPUTS

    place = {name: number for number, (name, _) in enumerate(recipe.slots)}
    calls, names = [], []
    for call, joined in streamed.instructions(recipe):
        what, some = FUNCTIONS[call.function], [place[name] for name in (*call.inputs, call.out)]
        calls.append((what.operations, what.specials, not joined))
        names.append((some[0], some[-1], *some, *[-1] * (INPUTS - len(some))))
    moved = recipe.loads, recipe.stored, recipe.groups[0][0]
    most = max(map(len, moved))
    rows = [[*(place[name] for name in some), *[-1] * (most - len(some))] for some in moved]
    return np.array(calls, float).reshape(-1, 3), np.array(names, int).reshape(-1, 2 + INPUTS), np.array(rows)


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
    return streamed.seconds(*_asked(job, memory))


def _asked(job: Job, memory: ColumnMemory) -> tuple[Any, ...]:
    (mesh, dtype), chip = _where(job), job.chip
    return job.recipe, job.rows, job.block, mesh, tile_fabric(chip), engines(chip), memory, dtype


def _where(job: Job) -> tuple[Mesh, str]:
    """Tiles, and the format of values there."""
    return Mesh(job.chip.mesh.rows, job.chip.mesh.cols), DTYPES[job.itemsize]
