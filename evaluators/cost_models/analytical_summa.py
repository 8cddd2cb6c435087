"""Analytical cost model of products from memory on a mesh of tiles; leaves broadcast over designs."""

from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling, SummaWork, WeightStorage, buffers
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.memory_channels import ColumnMemory, channels_used, column_memory
from dse.evaluators.machine.mesh_fabric import MeshFabric, tile_fabric
from dse.evaluators.program.kernel_ir import DTYPES
from dse.evaluators.tuning.design_groups import (
    MESH_SIDES,
    DesignGroups,
    GroupBatch,
    group_batches,
    group_designs,
    group_equal_rows,
    order_by_group,
)
from dse.evaluators.tuning.fastest_candidate import memory_steps
from dse.space.array_math import Array, argmin_lexicographic, ceil_div, collapse_if_equal, even_share, maximum, minimum
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.limits import is_row_count
from dse.space.main_memory import main_memory
from dse.space.mapping import TileGemmPlan
from dse.space.memoize import memoize, memoize_by_identity


class SummaJob(NamedTuple):
    """Matrix products that all tiles of a chip run by SUMMA from main memory.

    Attributes:
        shape, copies: of a product, and products of other matrices each.
        part: groups, and what a tile multiplies at a time.
        chip: chip that runs it.
        itemsize: bytes of a value.
        weights: how the second operand is stored; as the first where it is None.
        taken: its time, where choosing the part has worked it out; None of a job of which anything was changed. [s]
    """

    shape: GemmShape
    part: SummaTiling
    chip: Chip
    copies: Any = 1
    itemsize: float = 2.0
    weights: WeightStorage | None = None
    taken: Any = None

    @property
    def mesh(self) -> CoreMesh:
        """Mesh of tiles of the chip."""
        return CoreMesh(self.chip.mesh.rows, self.chip.mesh.cols)


TIME_PARTS = ("hbm", "multicast", "vector", "matrix")
"""What takes time, in the order in which it is left out; the rest is products. Vectors are those of what is expanded."""


def job_cost(job: SummaJob) -> KernelCost:
    """Time [s] and activity of a SUMMA job."""
    what, how = (job.shape, job.part, job.mesh), (job.itemsize, job.copies, job.weights)
    if job.taken is not None:
        return KernelCost(job.taken, summa_diagonal.activity(*what, *how))
    return summa_diagonal.cost(*what, tile_fabric(job.chip), tile_engines(job.chip), column_memory(job.chip), *how)


def job_seconds(job: SummaJob) -> Any:
    """Time of a SUMMA job on a chip of tiles. [s]"""
    return _seconds(job, tile_fabric(job.chip), column_memory(job.chip)) if job.taken is None else job.taken


def min_product_seconds(
    shape: GemmShape, chip: Chip, copies: Any, itemsize: float, weights: WeightStorage | None = None
) -> Any:
    """Lower bound on the time of products for any tiling: full engine rate, or each operand once. [s]"""
    engine, memory = chip.tile.matrix, column_memory(chip)
    rate = maximum(engine.rows * engine.cols, chip.tile.vector.lanes) * chip.clock * chip.mesh.rows * chip.mesh.cols
    stored = weights.nbytes if weights else itemsize
    nbytes = itemsize * shape.m * (shape.k + shape.n) + stored * shape.k * shape.n
    return copies * maximum(shape.m * shape.k * shape.n / rate, nbytes * memory.crowded / memory.count)


def time_by_resource(job: SummaJob) -> dict[str, Any]:
    """Time of a SUMMA job by resource, with the keys of `TIME_PARTS`, saved by freeing each in turn. [s]"""
    fabric, memory = tile_fabric(job.chip), column_memory(job.chip)
    still = fabric._replace(hop=0.0, word=0.0, copy=0.0, post=0.0, ramp=0.0, crossing=0.0, crossing_word=0.0)
    rest = memory._replace(latency=0.0, byte=0.0, crowded=0.0)
    whole, moved, left = (_seconds(job, *free) for free in ((fabric, memory), (fabric, rest), (still, rest)))
    seconds = {"hbm": whole - moved, "multicast": moved - left}
    if not has_dequantize(job):
        return seconds | {"matrix": left}
    products = _seconds(job._replace(weights=None, taken=None), still, rest)
    return seconds | {"vector": left - products, "matrix": products}


def has_dequantize(job: SummaJob) -> bool:
    """Whether tiles dequantise the second operand before they multiply."""
    return bool(job.weights and job.weights.expand)


def _seconds(job: SummaJob, fabric: MeshFabric, memory: ColumnMemory) -> Any:
    hardware = fabric, tile_engines(job.chip), memory
    return summa_diagonal.seconds(job.shape, job.part, job.mesh, *hardware, job.itemsize, job.copies, job.weights)


SLICES, DEPTHS = (16, 32, 64, 128, 256, 512), (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Rows and columns, and depths, of what a tile multiplies at a time that are tried; all of a share where it has fewer."""

ANY_VALUE = (0.0,)
"""Steps of sizes and rates of memory, on which times alone depend: within a structure they may differ in any way."""

MAX_LOOP_DESIGNS = 64
"""Designs for which every candidate is timed; of more, a compiled loop leaves out what none of a structure would take."""

SLICE_SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64)
"""Groups that a mesh is tried with, and groups that divide the depth among them, where they divide its rows."""

LINES = 32
"""Columns of a product that an array takes at a time: a tile that has fewer leaves some of it idle."""

HALVES = tuple(2**power for power in range(20))
"""Rows of a group, and groups that divide the depth, that are tried on any mesh that has as many, the rest of it being idle."""


class SummaCandidates(NamedTuple):
    """Candidate tilings of a product on several meshes, one mesh after the other.

    Attributes:
        part, held: groups and slices, and local memory of a tile [B], shape (candidates,).
        starts: where those of each mesh begin, shape (meshes + 1,).
        order: of all, by mesh and by memory, shape (candidates,).
        slices: which slice each has, shape (candidates,), and a candidate with each slice that there is, shape (slices,).
    """

    part: SummaTiling
    held: Array
    starts: Array
    order: Array
    slices: tuple[Array, Array]


def propose_summa_job(
    shape: GemmShape,
    chip: Chip,
    plan: TileGemmPlan,
    copies: Any = 1,
    itemsize: float = 2.0,
    weights: WeightStorage | None = None,
) -> SummaJob:
    """SUMMA job whose open settings take the least time and fit; leaves broadcast over designs.

    Args:
        shape, copies: of the products.
        chip: chip that runs it.
        plan: settings that are not open; 0 for open ones.
        itemsize: bytes of a value.
        weights: how the second operand is stored; as the first where it is None.
    """
    arguments = (shape, chip, plan, copies, itemsize, weights)
    try:
        hash(arguments)
    except TypeError:  # arrays over designs or cases
        part, taken = _cases(*arguments)
        return SummaJob(shape, part, chip, copies, itemsize, weights, taken)
    return SummaJob(shape, _known(*arguments), chip, copies, itemsize, weights)


def _cases(
    shape: GemmShape, chip: Chip, plan: TileGemmPlan, copies: Any, itemsize: float, weights: WeightStorage | None
) -> tuple[SummaTiling, Any]:
    """Case by case, one above the other, with their times; None for these where designs are not many."""
    sizes = [np.asarray(size) for size in (shape.m, shape.k, shape.n, copies)]
    count = max(size.size for size in sizes)
    tilings = []
    for case in range(count):
        m, k, n, times = (size.ravel()[min(case, size.size - 1)].item() for size in sizes)
        tilings.append(_searched(GemmShape(m, k, n), chip, plan, times, itemsize, weights))
    if count == 1:
        return tilings[0] if all(size.ndim == 0 for size in sizes) else (tilings[0][0], None)
    parts, taken = zip(*tilings, strict=True)
    part = SummaTiling(*(np.stack(np.broadcast_arrays(*map(np.atleast_1d, sides))) for sides in zip(*parts, strict=True)))
    return part, None if taken[0] is None else np.stack(taken)


def search_summa_tiling(
    shape: GemmShape, chip: Chip, plan: TileGemmPlan, copies: Any, itemsize: float, weights: WeightStorage | None = None
) -> SummaTiling:
    """Fastest SUMMA tiling of one case that fits local memory."""
    return _searched(shape, chip, plan, copies, itemsize, weights)[0]


def _searched(
    shape: GemmShape, chip: Chip, plan: TileGemmPlan, copies: Any, itemsize: float, weights: WeightStorage | None
) -> tuple[SummaTiling, Any]:
    """Each structure has its candidates' work once, and a design times what may be its best; of many, with their times."""
    given_designs = group_designs(chip, plan, memory_steps(chip, ANY_VALUE, ANY_VALUE))
    crowded = column_memory(chip).crowded
    room, byte = (np.broadcast_to(np.asarray(value, float), given_designs.which.shape) for value in (chip.tile.sram, crowded))
    designs = _by_byte(given_designs, crowded)
    sizes, taken = np.empty((len(SummaTiling._fields), len(given_designs.which))), np.empty(len(given_designs.which))
    for batch in group_batches(given_designs):
        meshes, differ, own = _groups(given_designs, batch)
        arguments = shape, copies, meshes, own, itemsize, weights
        tried, machine = _tried(*arguments), _without_memory(batch)
        if len(meshes) > 1:
            counts = np.diff(tried.starts)
            machine = replace_leaves(machine, {name: np.repeat([mesh[at] for mesh in meshes], counts) for name, at in differ})
        work = _worked(machine, *arguments)
        choose = _one_by_one if len(given_designs.which) <= MAX_LOOP_DESIGNS else _together
        choose(work, tried, batch.rows, designs, room, byte, sizes, taken)
    return SummaTiling(*map(collapse_if_equal, sizes)), taken if given_designs.many else None


@memoize_by_identity
def _by_byte(groups: DesignGroups, byte: Any) -> tuple[Array, Array]:
    """As `by_structure`, those of a structure by a channel's time for a byte."""
    return np.lexsort((np.broadcast_to(byte, groups.which.shape), groups.which)), order_by_group(groups)[1]


@memoize_by_identity
def _groups(
    groups: DesignGroups, batch: GroupBatch
) -> tuple[tuple[tuple[float, float], ...], list[tuple[str, int]], tuple[TileGemmPlan, ...]]:
    """Design groups of a batch: their meshes, the settings of `SIDES` that differ, and the set tilings."""
    sides = [groups.side(group) for group in batch.groups]
    meshes = tuple(
        (side.get(MESH_SIDES[0], groups.chip.mesh.rows), side.get(MESH_SIDES[1], groups.chip.mesh.cols)) for side in sides
    )
    return (
        meshes,
        [(name, place) for place, name in enumerate(MESH_SIDES) if name in sides[0]],
        tuple(map(groups.plan_of_rows, batch.groups)),
    )


@memoize_by_identity
def _without_memory(batch: GroupBatch) -> Chip:
    """Machines, the same wherever memories alone differ: nothing of candidates' work depends on these."""
    return replace_leaves(batch.chip, dict.fromkeys(memory_steps(batch.chip), 1.0))


@partial(memoize, most=64)
def _worked(
    chip: Chip, shape: GemmShape, copies: Any, meshes: tuple[tuple[float, float], ...], plans: tuple[TileGemmPlan, ...],
    itemsize: float, weights: WeightStorage | None,
) -> list[Array]:  # fmt: skip
    """Leaves of the work of candidates on kinds of machines, each of shape (kinds or 1, candidates or 1)."""
    tried = _tried(shape, copies, meshes, plans, itemsize, weights)
    part, (which, first) = tried.part, tried.slices
    job = SummaJob(shape, part, chip, copies, itemsize, weights)
    memory = ColumnMemory(channels_used(chip), main_memory(chip).latency, byte=0.0, crowded=0.0)
    hardware = tile_fabric(chip), tile_engines(chip), memory
    # on each kind of machine, candidates on several meshes and in several groups have the same slices
    m, k, n = (side[first] for side in part[:3])
    product = hardware[1].product_with_start(m, k, n, (weights or WeightStorage(itemsize)).width(itemsize)).take(which, axis=-1)
    work = summa_diagonal.program_work(job.shape, job.part, job.mesh, *hardware, job.itemsize, job.copies, job.weights, product)
    return [np.ascontiguousarray(np.atleast_2d(leaf), float) for leaf in work]


def _one_by_one(
    work: list[Array],
    tried: SummaCandidates,
    rows: Array,
    designs: tuple[Array, Array],
    room: Array,
    byte: Array,
    sizes: Array,
    taken: Array,
) -> None:
    """Writes what each design takes of all candidates: the least time of those that fit, or the least memory; the first one.

    Args:
        work: of candidates; leaves as of `_worked`.
        tried: the candidates.
        rows: of structures, as of `Batch`.
        designs: as of `_by_byte`.
        room, byte: of the designs. [B], [s/B], shape (designs,)
        found, taken: to be written, shape (fields of `Part`, designs), and their times [s], shape (designs,).
    """
    (order, ends), (part, held, starts, *_) = designs, tried
    for number, side, kind in rows.T:
        span = slice(starts[side], starts[side + 1])
        rows_of = (leaf[min(kind, len(leaf) - 1)] for leaf in work)
        own = SummaWork(*(leaf if len(leaf) == 1 else leaf[span] for leaf in rows_of))
        for design in order[ends[number] : ends[number + 1]]:
            over, seconds = np.maximum(held[span] / room[design] - 1, 0.0), summa_diagonal.program_seconds(own, byte[design])
            best = argmin_lexicographic([over, seconds])[0]
            sizes[:, design] = [size[starts[side] + best] for size in part]
            taken[design] = np.broadcast_to(seconds, over.shape)[best]


def _together(
    work: list[Array],
    tried: SummaCandidates,
    rows: Array,
    designs: tuple[Array, Array],
    room: Array,
    byte: Array,
    sizes: Array,
    taken: Array,
) -> None:
    """The same by a compiled loop, which leaves out what no design of a structure would take."""
    from dse.evaluators.cost_models.summa_candidate_search import (
        LEAVES,
        choose_candidates,
    )  # a few closed questions do without compiled loops

    part, held, starts, order, _ = tried
    (near, nearer), fast, best = np.empty((2, len(held)), np.int64), np.empty(len(held)), np.full(sizes.shape[1], -1)
    own = np.empty((len(held), LEAVES + 1))
    given = np.array(room), np.array(byte)
    choose_candidates(tuple(work), held, order, starts, rows, *designs, *given, near, nearer, fast, own, best, taken)
    mine = best >= 0
    sizes[:, mine] = [size[best[mine]] for size in part]


@lru_cache(maxsize=64)
def _tried(
    shape: GemmShape, copies: Any, meshes: tuple[tuple[float, float], ...], plans: tuple[TileGemmPlan, ...], itemsize: float,
    weights: WeightStorage | None,
) -> SummaCandidates:  # fmt: skip
    """What is tried on meshes, whatever else differs between chips."""
    parts = [_options(shape, copies, *mesh_and_plan) for mesh_and_plan in zip(meshes, plans, strict=True)]
    starts = np.cumsum([0, *(len(part.m) for part in parts)])
    part = SummaTiling(*map(np.concatenate, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]
    held = sum(slot.nbytes for slot in buffers(part, DTYPES[itemsize], weights)) * 1.0
    first, which = group_equal_rows(list(part[:3]))
    order = np.lexsort((held, np.repeat(np.arange(len(parts)), np.diff(starts))))
    return SummaCandidates(part, held, starts, order, (which, first))


@lru_cache(maxsize=1024)
def _options(shape: GemmShape, copies: Any, mesh: tuple[float, float], plan: TileGemmPlan) -> SummaTiling:
    """Groups and slices that are tried, once each, shape (candidates,)."""
    most, high = mesh[0], np.array(list(product(SLICES, DEPTHS, SLICES)), float).T
    groups: list[Any] = sorted({*(most // share for share in SLICE_SHARES if most % share == 0), *_halves(most)}, reverse=True)
    groups = groups if shape.m < SLICES[-1] * most else groups[:1]  # smaller groups are for products of few rows
    if plan.rows > 0:
        groups = [plan.rows if is_row_count(plan.rows, most) else most]  # others are a limit
    candidates = []
    for rows, split in _shared(most, groups, shape, plan):
        m = plan.m + 0 * high[0] if plan.m > 0 else even_share(shape.m, rows, high[0])
        k = plan.k + 0 * high[1] if plan.k > 0 else even_share(shape.k, split, high[1])
        # groups that a row of blocks leaves without work share its columns
        sharing = maximum(mesh[0] // (rows * split) // (copies * ceil_div(shape.m, m * rows)), 1)
        # all that there are, or as few as leave a tile columns enough for its array
        # all that there are, or as few as leave a tile columns enough for its array
        # all that there are, or as few as leave a tile columns enough for its array
        for teams in (sharing, minimum(sharing, ceil_div(shape.n, mesh[1] * minimum(high[2], LINES)))):
            n = plan.n + 0 * high[2] if plan.n > 0 else even_share(shape.n, mesh[1] * teams, high[2])
            candidates.append(np.stack([m, k, n, rows + 0 * m, split + 0 * m]))
    every = np.concatenate(candidates, axis=1)
    first, _ = group_equal_rows(list(every))
    return SummaTiling(*every[:, np.sort(first)])


def _halves(most: float) -> list[int]:
    return [rows for rows in HALVES if rows <= most]


def _shared(most: float, groups: list[Any], shape: GemmShape, plan: TileGemmPlan) -> list[tuple[Any, Any]]:
    """Rows of groups that are tried, each with the groups among which the depth is divided."""
    if plan.split_k > 0:
        fits = is_row_count(plan.split_k, most) and plan.rows <= 1  # others are a limit
        return [(1, plan.split_k)] if plan.split_k > 1 and fits else [(rows, 1) for rows in groups]
    several = (
        sorted({*(share for share in SLICE_SHARES if most % share == 0), *_halves(most)}) if shape.m <= SLICES[-1] else [1]
    )
    return [(rows, split) for rows in groups for split in (several if rows == 1 else [1])]


_known = lru_cache(maxsize=16384)(search_summa_tiling)
