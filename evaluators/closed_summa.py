"""The closed reader of products from memory on a mesh of tiles; leaves broadcast over designs."""

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm import summa_diagonal
from evaluators.kernels.gemm.summa_diagonal import Part, slots
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.machine.channels import ColumnMemory, column_memory
from evaluators.machine.engine import engines
from evaluators.machine.fabric import Fabric, tile_fabric
from evaluators.rounds import DTYPES
from space.chip import TileChip
from space.elementwise import ceil_div, even, lowest, maximum, plain, where
from space.fields import leaves, replaced
from space.mapping import SummaMapping


class Job(NamedTuple):
    """Products as a chip is asked for them.

    Attributes:
        shape, copies: of a product, and products of other matrices each.
        part: groups, and what a tile multiplies at a time.
        chip: where.
        itemsize: bytes of a value.
    """

    shape: Shape
    part: Part
    chip: TileChip
    copies: Any = 1
    itemsize: float = 2.0

    @property
    def mesh(self) -> Mesh:
        """Of the chip."""
        return Mesh(self.chip.mesh.rows, self.chip.mesh.cols)


PARTS = ("hbm", "multicast", "matrix")
"""What takes time, in the order in which it is left out; the rest is products."""


def price(job: Job) -> Cost:
    """Time and activity."""
    return _price(job, tile_fabric(job.chip), column_memory(job.chip))


def seconds(job: Job) -> Any:
    """Time alone."""
    return summa_diagonal.seconds(
        job.shape,
        job.part,
        job.mesh,
        tile_fabric(job.chip),
        engines(job.chip),
        column_memory(job.chip),
        job.itemsize,
        job.copies,
    )


def split(job: Job) -> dict[str, Any]:
    """The time by what it goes into, words of `PARTS`: what falls away when that is free, in turn."""
    fabric, memory = tile_fabric(job.chip), column_memory(job.chip)
    still = fabric._replace(hop=0.0, word=0.0, copy=0.0, post=0.0, ramp=0.0)
    rest = memory._replace(latency=0.0, byte=0.0, crowded=0.0)
    whole, moved, left = (_price(job, *free).seconds for free in ((fabric, memory), (fabric, rest), (still, rest)))
    return dict(zip(PARTS, (whole - moved, moved - left, left), strict=True))


def _price(job: Job, fabric: Fabric, memory: ColumnMemory) -> Cost:
    return summa_diagonal.cost(job.shape, job.part, job.mesh, fabric, engines(job.chip), memory, job.itemsize, job.copies)


SLICES, DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128, 256, 512, 1024)
"""Rows and columns, and depths, of what a tile multiplies at a time that are tried; all of a share where it has fewer."""

SHARES = (1, 2, 4, 8, 16, 32, 64)
"""Groups that a mesh is tried with."""


def proposed(shape: Shape, chip: TileChip, said: SummaMapping, copies: Any = 1, itemsize: float = 2.0) -> Job:
    """Groups and slices, kept where leaves are numbers; arguments as of `searched`."""
    asked = (shape, chip, said, copies, itemsize)
    try:
        hash(asked)
    except TypeError:  # arrays over designs
        return _once(*asked)
    return _known(*asked)


def _once(shape: Shape, chip: TileChip, said: SummaMapping, copies: Any, itemsize: float) -> Job:
    """As `searched`, designs that are alike in what counts only once."""
    wide = [{a: v for a, v, _ in leaves(noun) if isinstance(v, np.ndarray)} for noun in (chip, said)]
    rows = [*wide[0].values(), *wide[1].values()]
    if not rows:
        return searched(shape, chip, said, copies, itemsize)
    each, which = np.unique(np.stack(np.broadcast_arrays(*rows)), axis=1, return_inverse=True)
    found = []
    for start in range(0, each.shape[1], BLOCK):
        block = each[:, start : start + BLOCK]
        chip_ = replaced(chip, dict(zip(wide[0], block, strict=False)))
        said_ = replaced(said, dict(zip(wide[1], block[len(wide[0]) :], strict=True)))
        part = searched(shape, chip_, said_, copies, itemsize).part
        found.append([side + np.zeros(block.shape[1]) for side in part])
    sides = (np.concatenate(sides, axis=-1) for sides in zip(*found, strict=True))
    return Job(shape, Part(*(side[..., which.ravel()] for side in sides)), chip, copies, itemsize)


BLOCK = 256
"""Designs that are looked at together: with all slices that are tried, what a core's cache holds."""


def searched(shape: Shape, chip: TileChip, said: SummaMapping, copies: Any, itemsize: float) -> Job:
    """What is not said is what takes the least time by the closed form and fits; leaves broadcast over designs.

    Args:
        shape, copies: of the products.
        chip: where.
        said: what is chosen already, 0 for what is not.
        itemsize: bytes of a value.
    """
    most, own = chip.mesh.rows, maximum(said.rows, 1)
    own = where(most % own == 0, own, most)  # others are a limit
    best: tuple[Any, Any, Part] | None = None
    for share in SHARES:
        fewer = where(most % share == 0, most // share, most)
        found = _sliced(shape, chip, said, copies, itemsize, where(said.rows > 0, own, fewer))
        if best is not None:
            lower = (found[0] < best[0]) | ((found[0] == best[0]) & (found[1] < best[1]))
            kept = (where(lower, new, old) for new, old in zip(found[2], best[2], strict=True))
            found = where(lower, found[0], best[0]), where(lower, found[1], best[1]), Part(*kept)
        best = found
        # smaller groups are for products of few rows
        filled = np.all(np.asarray(shape.m) >= SLICES[-1] * np.asarray(most))
        if filled or np.all(np.asarray(said.rows) > 0) or np.all(np.asarray(most) < share):
            break
    assert best is not None
    return Job(shape, best[2], chip, copies, itemsize)


def _sliced(shape: Shape, chip: TileChip, said: SummaMapping, copies: Any, itemsize: float, rows: Any) -> tuple[Any, Any, Part]:
    """The best slices of groups of some rows: by how much they exceed the memory, their time, and what they are."""
    high, deep, wide = np.array(list(product(SLICES, DEPTHS, SLICES)), float).T[:, :, None, None]  # before cases and designs
    m = where(said.m > 0, said.m, even(shape.m, rows, high))
    k = where(said.k > 0, said.k, even(shape.k, 1, deep))
    # groups that a row of blocks leaves without work share its columns
    sharing = maximum(chip.mesh.rows // rows // (copies * ceil_div(shape.m, m * rows)), 1)
    n = where(said.n > 0, said.n, even(shape.n, chip.mesh.cols * sharing, wide))
    part = Part(m, k, n, rows)
    over = maximum(sum(slot.nbytes for slot in slots(part, DTYPES[itemsize])) / chip.tile.sram - 1, 0.0)
    ranks = np.broadcast_arrays(over, seconds(Job(shape, part, chip, copies, itemsize)), m, k, n, 0 * high)[:5]
    best = lowest(ranks[:2])
    picked = [plain(np.take_along_axis(values, best, axis=0)[0]) for values in ranks]
    return picked[0], picked[1], Part(picked[2], picked[3], picked[4], rows)


_known = lru_cache(maxsize=16384)(searched)
