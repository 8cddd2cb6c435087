"""Jobs of attention on tiles: tiling and cost, by the formulas of `kernels.attention.attention_cost`."""

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.attention import attention_cost as cost
from dse.evaluators.kernels.attention import split_kv_merge as merge
from dse.evaluators.kernels.attention import tiling_candidates as strategy
from dse.evaluators.kernels.attention.attention_shape import (
    SAME_AS_ACTIVATIONS,
    AttentionShape,
    AttentionTiling,
    BlockCounts,
    KvStorage,
    busy_mesh,
)
from dse.evaluators.kernels.attention.dataflow import Dataflow, strand_buffers, tiling_of_pairs
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.compute_engines import TileEngines, tile_engines
from dse.evaluators.machine.memory_channels import column_memory
from dse.evaluators.machine.mesh_fabric import VALUE, MeshFabric, with_vector_reduction
from dse.evaluators.machine.random_access import random_piece_slowdown
from dse.evaluators.program.kernel_ir import DTYPES, Buffer
from dse.evaluators.tuning.design_groups import group_equal_rows
from dse.evaluators.tuning.fastest_candidate import CandidateBounds, find_fastest_sizes, find_least_sizes
from dse.space.array_math import Array, maximum, minimum, where
from dse.space.chip import Chip
from dse.space.main_memory import main_memory
from dse.space.mapping import AttentionPlan
from dse.space.memoize import memoize_by_identity


class AttentionJob(NamedTuple):
    """Attention that all tiles of a chip run from main memory.

    `kv` gives the storage of keys and values.

    `taken` is its time, where choosing the tiling has worked it out; None of a job of which anything was changed. [s]
    """

    of: Dataflow
    shape: AttentionShape
    tiling: AttentionTiling
    chip: Chip
    itemsize: float = VALUE
    kv: KvStorage = SAME_AS_ACTIVATIONS
    taken: Any = None

    @property
    def mesh(self) -> CoreMesh:
        """Mesh of tiles of the chip."""
        return CoreMesh(self.chip.mesh.rows, self.chip.mesh.cols)


@memoize_by_identity
def job_machine(chip: Chip, dataflow: Dataflow) -> tuple[MeshFabric, TileEngines]:
    """Network and engines of the chip; several heads in flight cost software more per operation."""
    extra = chip.tile.multi_head_overhead * (1.0 if dataflow.strands > 1 else 0.0)
    fabric, engines = with_vector_reduction(chip), tile_engines(chip)
    matrix, vector = (
        replace(engines.matrix, start=engines.matrix.start + extra),
        replace(engines.vector, start=engines.vector.start + extra),
    )
    more = {name: getattr(fabric, name) + extra / chip.clock for name in ("post", "launch", "call")}
    return fabric._replace(**more), engines._replace(matrix=matrix, vector=vector)


def job_cost(job: AttentionJob) -> KernelCost:
    """Time [s] and activity of an attention job."""
    return (
        cost.attention_cost(*_asked(job)) if job.taken is None else KernelCost(job.taken, cost.attention_activity(_task(job)))
    )


def min_attention_seconds(shape: AttentionShape, chip: Chip, itemsize: float, kv: KvStorage = SAME_AS_ACTIVATIONS) -> Any:
    """Lower bound on attention time for any tiling: full engine rate, or each operand once. [s]"""
    engine, memory = chip.tile.matrix, column_memory(chip)
    rate = maximum(engine.rows * engine.cols, chip.tile.vector.lanes) * chip.clock * chip.mesh.rows * chip.mesh.cols
    nbytes = shape.batch * shape.heads * shape.queries * (shape.qk + shape.v) * itemsize
    nbytes = nbytes + shape.problems * shape.keys * (shape.key_dim + shape.v) * kv.value_bytes(itemsize)
    return maximum(shape.macs / rate, nbytes * minimum(memory.byte, memory.crowded) / memory.count)


def job_counts(job: AttentionJob) -> BlockCounts:
    """Numbers of groups, blocks, items and waves of an attention job. [-]"""
    return _asked(job)[0].counts


def own_bytes(job: AttentionJob) -> Any:
    """Bytes between memory and tiles for queries and outputs, with partial outputs both ways. [B]"""
    return cost.own_bytes(_asked(job)[0])


def partial_bytes(job: AttentionJob) -> Any:
    """Bytes of partial outputs, maxima and sums in main memory. [B]"""
    task = _asked(job)[0]
    return where(task.partial, task.counts.items * job.tiling.rows * task.stored_bytes, 0.0)


def time_by_resource(job: AttentionJob) -> dict[str, Any]:
    """Time of an attention job by resource, with the keys of `TIME_PARTS`. [s]"""
    return cost.time_by_resource(*_asked(job))


def communication_seconds(job: AttentionJob, seconds: Any) -> Any:
    """Time of an attention job saved if tiles exchanged data in no time. [s]"""
    return cost.exchange_seconds(*_asked(job))


def propose_tiling(
    dataflow: Dataflow,
    shape: AttentionShape,
    chip: Chip,
    tiling: AttentionTiling = strategy.OPEN_TILING,
    itemsize: float = VALUE,
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> AttentionTiling:
    """Tiling of an attention with the least time that fits local memory; broadcasts over designs.

    Args:
        of, shape: the dataflow, and what is computed.
        chip: chip that runs it.
        tiling: settings that are not open; 0 for open ones.
        itemsize, kv: bytes of a value; how keys and values are stored.
    """
    return _proposed(dataflow, shape, chip, tiling, itemsize, kv)[0]


def _proposed(
    dataflow: Dataflow, shape: AttentionShape, chip: Chip, tiling: AttentionTiling, itemsize: float, kv: KvStorage
) -> tuple[AttentionTiling, Any]:
    """With its time; None where designs are not many."""
    arguments = (dataflow, shape, chip, tiling, itemsize, kv)
    try:
        hash(arguments)
    except TypeError:  # arrays over designs or cases
        return _cases(*arguments)
    return _known(*arguments)


def _cases(
    dataflow: Dataflow, shape: AttentionShape, chip: Chip, given_tiling: AttentionTiling, itemsize: float, kv: KvStorage
) -> tuple[AttentionTiling, Any]:
    """Case by case, one above the other."""
    sizes = {spec.name: np.asarray(getattr(shape, spec.name)) for spec in fields(shape)}
    count = max(size.size for size in sizes.values())
    if count == 1:
        tiling, taken = search_tiling(dataflow, shape, chip, given_tiling, itemsize, kv)
        return tiling, taken if all(size.ndim == 0 for size in sizes.values()) else None
    cases = [
        replace(shape, **{name: size.ravel()[min(case, size.size - 1)].item() for name, size in sizes.items()})
        for case in range(count)
    ]
    tilings, times = zip(*(_proposed(dataflow, case, chip, given_tiling, itemsize, kv) for case in cases), strict=True)
    names = ("rows", "cols", "queries", "keys", *(("kv_splits",) if dataflow.split else ()))
    sides = (np.stack(np.broadcast_arrays(*(np.atleast_1d(getattr(tiling, name)) for tiling in tilings))) for name in names)
    return AttentionTiling(*sides), None if times[0] is None else np.stack(times)


class TilingChoice(NamedTuple):
    """Attention for which a tiling is chosen; sizes are (rows, columns, queries, keys[, parts])."""

    of: Dataflow
    shape: AttentionShape
    itemsize: float
    kv: KvStorage = SAME_AS_ACTIVATIONS

    def options(self, chip: Chip, tiling: AttentionTiling) -> tuple[Any, ...]:
        """Candidate tilings on one chip."""
        tiling_candidates = strategy.tiling_candidates(
            self.shape, self.of.grouped, CoreMesh(chip.mesh.rows, chip.mesh.cols), tiling
        )
        return strategy.add_split_counts(self.shape, tiling, tiling_candidates) if self.of.split else tiling_candidates

    def neighbours(self, tiling: AttentionTiling, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Candidates whose slices are slightly larger or smaller than given ones."""
        neighbouring_slices = strategy.neighbouring_slices(self.shape, self.of.grouped, tiling, sizes[:4])
        return (
            (*neighbouring_slices, np.broadcast_to(sizes[4], neighbouring_slices[0].shape))
            if self.of.split
            else neighbouring_slices
        )

    def local_memory(self, sizes: tuple[Any, ...]) -> Any:
        """Local memory of all strands of a tile. [B]"""
        return (
            sum(slot.nbytes for slot in _slots(self.of, self.shape, AttentionTiling(*sizes), DTYPES[self.itemsize], self.kv))
            * 1.0
        )

    def size_counts(self, chip: Chip, sizes: tuple[Any, ...]) -> Any:
        """Values of candidates that depend only on their sizes and the mesh."""
        return cost.item_counts(self._task(chip, sizes))

    def work(self, chip: Chip, sizes: tuple[Any, ...], counted: Any) -> Any:
        """Time parts of candidates that do not depend on main memory."""
        return cost.item_work(self._task(chip, sizes), *job_machine(chip, self.of), counted)

    def memory(self, chip: Chip) -> Any:
        """Main memory of chips, as columns of channels."""
        return column_memory(chip)

    def bound_inputs(self, sizes: tuple[Any, ...], counted: Any) -> tuple[Array, ...]:
        """Inputs of the lower bounds of candidates, and the slice of each candidate."""
        queries, keys, turns, nbytes = np.broadcast_arrays(*sizes[2:4], *cost.bound_inputs(AttentionTiling(*sizes), counted))
        first, slices = group_equal_rows([queries, keys])
        return np.ascontiguousarray(turns), np.ascontiguousarray(nbytes), slices, queries[first], keys[first]

    def bounds(self, chip: Chip, bounded: tuple[Array, ...], memory: Any) -> CandidateBounds:
        """Lower bounds on the times of candidates. [s]"""
        turns, nbytes, slices, queries, keys = bounded
        task = self._task(chip, (1, 1, queries[:, None], keys[:, None]))
        busy, byte = cost.time_lower_bound(task, job_machine(chip, self.of)[1], memory)
        size = np.size(memory.byte[0])
        return CandidateBounds(
            turns, nbytes, slices, _whole(busy, (len(queries), size)), _whole(byte, (len(memory.byte), size))
        )

    def seconds(self, chip: Chip, sizes: tuple[Any, ...], work: Any, memory: Any) -> Any:
        """Attention times of candidates. [s]"""
        return cost.attention_seconds(self._task(chip, sizes), cost.TileMachine(*job_machine(chip, self.of), memory), work)

    def _task(self, chip: Chip, sizes: tuple[Any, ...]) -> cost.AttentionTask:
        return _task(AttentionJob(self.of, self.shape, AttentionTiling(*sizes), chip, self.itemsize, self.kv))


def _whole(value: Any, shape: tuple[int, int]) -> Array:
    """Whole numbers as integers, for compiled loops."""
    return np.ascontiguousarray(np.broadcast_to(value, shape), float)


def search_tiling(
    dataflow: Dataflow,
    shape: AttentionShape,
    chip: Chip,
    tiling: AttentionTiling,
    itemsize: float,
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> tuple[AttentionTiling, Any]:
    """Fastest tiling of one case that fits local memory, and its time. [s]"""
    search = find_least_sizes if chip.tile.is_range else find_fastest_sizes
    sizes, seconds = search(TilingChoice(dataflow, shape, itemsize, kv), chip, tiling)
    return AttentionTiling(*sizes), seconds


_known = lru_cache(maxsize=4096)(search_tiling)


def _asked(job: AttentionJob) -> tuple[cost.AttentionTask, cost.TileMachine]:
    return _task(job), cost.TileMachine(*job_machine(job.chip, job.of), column_memory(job.chip))


def _task(job: AttentionJob) -> cost.AttentionTask:
    return cost.AttentionTask(
        job.of,
        job.shape,
        job.tiling,
        job.mesh,
        job.itemsize,
        random_piece_slowdown(main_memory(job.chip).banks, job.shape.piece),
        job.kv,
    )


def working_mesh(job: AttentionJob) -> CoreMesh:
    """Tiles that have work in an attention job."""
    return busy_mesh(job.shape, tiling_of_pairs(job.of, job.shape, job.tiling), job.mesh)


def make_job(
    dataflow: Dataflow,
    shape: AttentionShape,
    cut: AttentionTiling,
    chip: Chip,
    itemsize: float = VALUE,
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> AttentionJob:
    """Attention job of a tiling; groups larger than the mesh, which a limit reports, count as the mesh."""
    return AttentionJob(dataflow, shape, _dividing(cut, chip), chip, itemsize, kv)


def _dividing(cut: AttentionTiling, chip: Chip) -> AttentionTiling:
    cols = where((cut.cols == 0) | (chip.mesh.cols % maximum(cut.cols, 1) == 0), cut.cols, chip.mesh.cols)
    return replace(cut, rows=minimum(cut.rows, chip.mesh.rows), cols=cols)


def resolve_tiling(
    dataflow: Dataflow,
    shape: AttentionShape,
    chip: Chip,
    mapping: AttentionPlan,
    itemsize: float = VALUE,
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> AttentionTiling:
    """Tiling as the mapping sets it; sizes set to 0 are chosen for the shape."""
    return _tiled(dataflow, shape, chip, mapping, itemsize, kv)[0]


def resolve_job(
    dataflow: Dataflow, shape: AttentionShape, chip: Chip, mapping: AttentionPlan, itemsize: float, kv: KvStorage
) -> AttentionJob:
    """Attention job with its resolved tiling, and its time if the choice computed it.

    Roots of arrays are rounded otherwise than those of numbers, so a time that is a number is left to the cost model.
    """
    tiling, taken = _tiled(dataflow, shape, chip, mapping, itemsize, kv)
    job = make_job(dataflow, shape, tiling, chip, itemsize, kv)
    memory, cut = column_memory(chip), job.tiling
    of_times = memory.count, memory.crowded, chip.mesh.rows, cut.rows, cut.cols, cut.queries, cut.keys
    return job._replace(taken=taken) if any(isinstance(leaf, np.ndarray) for leaf in of_times) else job


def _tiled(
    dataflow: Dataflow, shape: AttentionShape, chip: Chip, mapping: AttentionPlan, itemsize: float, kv: KvStorage
) -> tuple[AttentionTiling, Any]:
    """With its time, where it is known."""
    splits = (0 if mapping.kv_splits is None else mapping.kv_splits) if dataflow.split else 1
    tiling = AttentionTiling(mapping.rows, mapping.cols, mapping.queries, mapping.keys, splits)
    if not dataflow.grouped:
        tiling = replace(tiling, rows=1, cols=1)
    if all(
        np.all(np.asarray(value) > 0) for value in (tiling.rows, tiling.cols, tiling.queries, tiling.keys, tiling.kv_splits)
    ):
        return tiling, None
    # sides that do not divide the mesh are a limit, and stay as they are said
    found_tiling, taken = _proposed(dataflow, shape, chip, _dividing(tiling, chip), itemsize, kv)
    rows, cols = (
        where(own > 0, own, side) for own, side in ((tiling.rows, found_tiling.rows), (tiling.cols, found_tiling.cols))
    )
    return replace(found_tiling, rows=rows, cols=cols), taken


def job_buffers(job: AttentionJob) -> list[Any]:
    """Buffers of a tile in an attention job."""
    return _slots(job.of, job.shape, job.tiling, DTYPES[job.itemsize], job.kv)


def _slots(dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling, dtype: str, kv: KvStorage) -> list[Any]:
    """Of all strands, and what the pass that puts parts together needs beyond them."""
    slots = [slot for strand in range(dataflow.strands) for slot in strand_buffers(dataflow, shape, tiling, dtype, strand, kv)]
    if dataflow.split and np.any(tiling.kv_splits > 1):
        beyond = merge.merge_bytes(shape, tiling, dtype) - sum(slot.nbytes for slot in slots)
        slots.append(Buffer("merge", (maximum(beyond, 0), 1), "int8"))
    return slots
