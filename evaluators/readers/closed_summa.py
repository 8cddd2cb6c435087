"""The closed reader of products from memory on a mesh of tiles; leaves broadcast over designs."""

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.choices.quickest import RATE, ROOM
from dse.evaluators.choices.structures import structures
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import Part, Weights, Work, slots
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.channels import ColumnMemory, column_memory
from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import Fabric, tile_fabric
from dse.evaluators.program.rounds import DTYPES
from dse.space.chip import Chip
from dse.space.elementwise import Array, ceil_div, even, lowest, maximum
from dse.space.mapping import SummaPlan


class Job(NamedTuple):
    """Products as a chip is asked for them.

    Attributes:
        shape, copies: of a product, and products of other matrices each.
        part: groups, and what a tile multiplies at a time.
        chip: where.
        itemsize: bytes of a value.
        weights: how the second operand is stored; as the first where it is None.
    """

    shape: Shape
    part: Part
    chip: Chip
    copies: Any = 1
    itemsize: float = 2.0
    weights: Weights | None = None

    @property
    def mesh(self) -> Mesh:
        """Of the chip."""
        return Mesh(self.chip.mesh.rows, self.chip.mesh.cols)


PARTS = ("hbm", "multicast", "vector", "matrix")
"""What takes time, in the order in which it is left out; the rest is products. Vectors are those of what is expanded."""


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
        job.weights,
    )


def split(job: Job) -> dict[str, Any]:
    """The time by what it goes into, words of `PARTS`: what falls away when that is free, in turn."""
    fabric, memory = tile_fabric(job.chip), column_memory(job.chip)
    still = fabric._replace(hop=0.0, word=0.0, copy=0.0, post=0.0, ramp=0.0)
    rest = memory._replace(latency=0.0, byte=0.0, crowded=0.0)
    whole, moved, left = (_price(job, *free).seconds for free in ((fabric, memory), (fabric, rest), (still, rest)))
    found = {"hbm": whole - moved, "multicast": moved - left}
    if not expands(job):
        return found | {"matrix": left}
    products = _price(job._replace(weights=None), still, rest).seconds
    return found | {"vector": left - products, "matrix": products}


def expands(job: Job) -> bool:
    """Whether tiles make wide values of the second operand."""
    return bool(job.weights and job.weights.expand)


def _price(job: Job, fabric: Fabric, memory: ColumnMemory) -> Cost:
    on = fabric, engines(job.chip), memory
    return summa_diagonal.cost(job.shape, job.part, job.mesh, *on, job.itemsize, job.copies, job.weights)


SLICES, DEPTHS = (16, 32, 64, 128, 256, 512), (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Rows and columns, and depths, of what a tile multiplies at a time that are tried; all of a share where it has fewer."""

EACH, STEPS = 16, 16
"""Designs of a structure for a step of rate and room of their memory, for which candidates are compared; most steps of each."""

DESIGNS, TOGETHER = 2048, 2**17
"""Designs, and candidates on structures, that are timed together: arrays that a core's cache holds."""

SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64)
"""Groups that a mesh is tried with, where they divide its rows."""


def proposed(
    shape: Shape, chip: Chip, said: SummaPlan, copies: Any = 1, itemsize: float = 2.0, weights: Weights | None = None
) -> Job:
    """What is not said is what takes the least time by the closed form and fits; leaves broadcast over designs.

    Args:
        shape, copies: of the products.
        chip: where.
        said: what is chosen already, 0 for what is not.
        itemsize: bytes of a value.
        weights: how the second operand is stored; as the first where it is None.
    """
    asked = (shape, chip, said, copies, itemsize, weights)
    try:
        hash(asked)
    except TypeError:  # arrays over designs or cases
        return Job(shape, _cases(*asked), chip, copies, itemsize, weights)
    return Job(shape, _known(*asked), chip, copies, itemsize, weights)


def _cases(shape: Shape, chip: Chip, said: SummaPlan, copies: Any, itemsize: float, weights: Weights | None) -> Part:
    """Case by case, one above the other."""
    sizes = [np.asarray(size) for size in (shape.m, shape.k, shape.n, copies)]
    count = max(size.size for size in sizes)
    found = []
    for case in range(count):
        m, k, n, times = (size.ravel()[min(case, size.size - 1)].item() for size in sizes)
        found.append(searched(Shape(m, k, n), chip, said, times, itemsize, weights))
    return (
        found[0]
        if count == 1
        else Part(*(np.stack([np.atleast_1d(side) for side in sides]) for sides in zip(*found, strict=True)))
    )


def searched(shape: Shape, chip: Chip, said: SummaPlan, copies: Any, itemsize: float, weights: Weights | None = None) -> Part:
    """As `proposed`, of one case: each structure has its candidates' work once, and a design times what may be its best."""
    on = structures(chip, said, {ROOM: (0.0,), RATE: (0.0,)})
    room, byte = (
        np.broadcast_to(np.asarray(value, float), on.which.shape) for value in (chip.tile.sram, column_memory(chip).crowded)
    )
    found = np.empty((4, len(on.which)))
    place = np.empty(on.kinds, int)
    for alike in on.together(np.arange(on.kinds)):
        first = on.chips(alike[:1])
        part = _options(shape, copies, (first.mesh.rows, first.mesh.cols), on.asked(alike))
        held = np.asarray(sum(slot.nbytes for slot in slots(part, DTYPES[itemsize], weights)))
        each = max(TOGETHER // len(held), 1)
        for rows in (alike[start : start + each] for start in range(0, len(alike), each)):
            work = _worked(Job(shape, part, on.chips(rows), copies, itemsize, weights), len(rows))
            place[:] = -1
            place[rows] = np.arange(len(rows))
            mine = np.flatnonzero(place[on.which] >= 0)
            best = _best(work, held, place[on.which[mine]], room[mine], byte[mine])
            found[:, mine] = [side[best] for side in part]
    return Part(*(found if on.many else found[:, 0].tolist()))


def _best(work: Array, held: Array, which: Array, room: Array, byte: Array) -> Array:
    """Of each design, the candidate that takes the least time of those that fit, or that need the least memory; the first one.

    More time for a byte never makes a candidate faster, and more memory never makes it fit less. So designs that are between
    the same two of both leave out a candidate that takes longer with the faster memory than another one, which needs no more
    or fits all of them, with the slower one. This is exact, rounding included.

    Args:
        work: of candidates on structures, shape (leaves, structures, candidates).
        held: by candidates. [B], shape (candidates,)
        which: structure, shape (designs,).
        room, byte: of the designs. [B], [s/B], shape (designs,)
    """
    steps = int(np.clip(np.sqrt(len(which) / (EACH * work.shape[1])), 1, STEPS))
    (slower, rate), (larger, size) = _between(byte, steps), _between(room, steps)
    # shape (structures, rates, 1, candidates), and (rooms, candidates)
    times = summa_diagonal.timed(Work(*work[:, :, None, None, :]), slower[:, None, None])
    fast, slow, over = times[:, :-1], times[:, 1:], _over(held, larger[:, None])
    fits, never = over[:-1] == 0, over[1:] > 0
    order = np.argsort(held, kind="stable")
    beaten = np.empty((*times.shape[:1], steps, 1, len(held)), bool)
    beaten[..., order] = fast[..., order] > np.minimum.accumulate(slow[..., order], axis=-1)
    fitting = np.minimum.accumulate(np.where(fits, slow, np.inf), axis=-1)
    beaten = beaten | (fast > fitting[..., -1:]) | (never & fits.any(axis=-1, keepdims=True))
    beaten[..., 1:] |= fast[..., 1:] >= fitting[..., :-1]  # of equals the first one counts
    few = _few(~beaten.reshape(-1, len(held)))
    cell = (which * steps + rate) * steps + size
    near = np.take_along_axis(work, few.reshape(1, work.shape[1], -1), axis=2).reshape(len(work), *few.shape)
    best = np.empty(len(which), int)
    for some in (slice(start, start + DESIGNS) for start in range(0, len(which), DESIGNS)):
        tried = few[cell[some]].T
        seconds_ = summa_diagonal.timed(Work(*near[:, cell[some]].swapaxes(1, 2)), byte[some])
        best[some] = np.take_along_axis(tried, lowest([_over(held[tried], room[some]), seconds_]), axis=0)[0]
    return best


def _between(values: Array, steps: int) -> tuple[Array, Array]:
    """Bounds of steps that values are in, shape (steps + 1,), and in which step each is."""
    least, most = values.min(), values.max()
    bounds = np.clip(np.geomspace(least, most, steps + 1), least, most)
    bounds[0], bounds[-1] = least, most
    return bounds, np.clip(np.searchsorted(bounds, values, side="right") - 1, 0, steps - 1)


def _over(held: Array, room: Any) -> Array:
    """By how much candidates need more than there is; 0 where they fit."""
    return np.asarray(np.maximum(held / room - 1, 0.0))


def _few(kept: Array) -> Array:
    """Places of what is kept in each row, in order; rows with fewer than others have their first one again."""
    rows, places = np.nonzero(kept)
    count = kept.sum(axis=1)
    first = np.cumsum(count) - count
    few = np.repeat(places[first][:, None], int(count.max()), axis=1)
    few[rows, np.arange(len(rows)) - first[rows]] = places
    return few


def _worked(job: Job, count: int) -> Array:
    """Work of candidates on structures, shape (leaves, structures, candidates)."""
    on = tile_fabric(job.chip), engines(job.chip), column_memory(job.chip)
    work = summa_diagonal.worked(job.shape, job.part, job.mesh, *on, job.itemsize, job.copies, job.weights)
    return np.stack([np.broadcast_to(leaf, (count, len(job.part.m))) for leaf in work])


@lru_cache(maxsize=1024)
def _options(shape: Shape, copies: Any, mesh: tuple[float, float], said: SummaPlan) -> Part:
    """Groups and slices that are tried, once each, shape (candidates,)."""
    most, high = mesh[0], np.array(list(product(SLICES, DEPTHS, SLICES)), float).T
    groups: list[Any] = [most // share for share in SHARES if most % share == 0]
    groups = groups if shape.m < SLICES[-1] * most else groups[:1]  # smaller groups are for products of few rows
    if said.rows > 0:
        groups = [said.rows if most % said.rows == 0 else most]  # others are a limit
    found = []
    for rows in groups:
        m = said.m + 0 * high[0] if said.m > 0 else even(shape.m, rows, high[0])
        k = said.k + 0 * high[1] if said.k > 0 else even(shape.k, 1, high[1])
        # groups that a row of blocks leaves without work share its columns
        sharing = maximum(mesh[0] // rows // (copies * ceil_div(shape.m, m * rows)), 1)
        n = said.n + 0 * high[2] if said.n > 0 else even(shape.n, mesh[1] * sharing, high[2])
        found.append(np.stack([m, k, n, rows + 0 * m]))
    every = np.concatenate(found, axis=1)
    _, first = np.unique(every, axis=1, return_index=True)
    return Part(*every[:, np.sort(first)])


_known = lru_cache(maxsize=16384)(searched)
