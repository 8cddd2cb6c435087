"""Attention from main memory on tiles: eight dataflows, with open or set group sides and tiling."""

from dataclasses import replace
from typing import Any, NamedTuple

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_workloads import KernelOutcome, KernelWorkload, TimelineSpans
from dse.evaluators.accounting.kernel_workloads.tile_jobs import job_breakdown, job_outcome, memory_limits
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.cost_models import READERS, jobs
from dse.evaluators.cost_models.analytical_attention import (
    AttentionJob,
    job_buffers,
    job_machine,
    make_job,
    partial_bytes,
    propose_tiling,
    resolve_tiling,
)
from dse.evaluators.cost_models.submesh_jobs import MAX_WAVES, attention_on_submesh
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.kernels.attention.attention_shape import SAME_AS_ACTIVATIONS, AttentionShape, AttentionTiling, KvStorage
from dse.evaluators.layouts.tensor_formats import attention_bytes, kv_storage
from dse.evaluators.machine.mesh_fabric import VALUE
from dse.evaluators.silicon import area
from dse.space.array_math import as_column
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.limits import FITS, Infeasibility, Limit, suggest_nearest_side
from dse.space.mapping import AttentionPlan
from dse.space.workload import AttentionCase

FIDELITIES = tuple(READERS)

SUBMESH_TEXT = (
    "queries and keys shrink with groups of tiles, heads with the number of groups and to "
    f"{MAX_WAVES} waves, channels with the bytes"
)

SIZE_FIELDS = ("batch", "heads", "kv_heads", "queries", "keys", "qk", "v", "window")
"""Numbers of a case that make its shape."""

OPERAND_NAMES = {"q": "Q", "c": "Q", "k": "K", "v": "V", "s": "scores", "o": "O", "arriving": "arriving", "merge": "merging"}
"""Names of slots in what a limit itemises; the others are statistics."""


class TiledAttention(NamedTuple):
    """Equal cases of attention as one job, with the resolved tiling.

    Attributes:
        job: the attention job.
        tiling: group sides and tiling as set, for the limits.
    """

    job: AttentionJob
    tiling: AttentionTiling


def prepare_case(design: Design, cases: tuple[AttentionCase, ...]) -> TiledAttention:
    """Attention job of equal cases, with open group sides and tilings chosen."""
    dataflow, cut = find_dataflow(_attention_plan(design).dataflow), chosen_tiling(design, *cases)
    return TiledAttention(make_job(dataflow, attention_shape(*cases), cut, design.chip, *operand_bytes(design)), cut)


def limits(design: Design, kernel: TiledAttention) -> list[Limit]:
    """Limits of memories, and of tile groups that divide the mesh."""
    job, shape, mesh = kernel.job, kernel.job.shape, design.chip.mesh
    held = [(OPERAND_NAMES.get(slot.name.split(".")[-1], "statistics"), slot.nbytes) for slot in job_buffers(job)]
    stored = {
        "queries and outputs": shape.batch * shape.heads * shape.queries * (shape.qk + shape.v) * job.itemsize,
        "KV cache": shape.problems * shape.keys * (shape.key_dim + shape.v) * job.kv.value_bytes(job.itemsize),
        **({"partial outputs": partial_bytes(job)} if job.of.split else {}),
    }
    sides, mapping = ("rows", "cols") if job.of.grouped else (), _attention_plan(design)
    return [
        *memory_limits(job, held, stored),
        *(FITS[side](f"mapping.{side}", getattr(mapping, side), getattr(mesh, side)) for side in sides),
    ]


def kernel_outcome(design: Design, kernel: TiledAttention, fidelity: str) -> KernelOutcome:
    """Time, utilisation and energy of attention on all tiles."""
    chip, job, (_, engines) = design.chip, kernel.job, job_machine(design.chip, kernel.job.of)
    shape, cut = job.shape, job.tiling
    peak = chip.mesh.rows * chip.mesh.cols * engines.matrix.rows * engines.matrix.cols * chip.clock
    width = job.kv.multiplied_bytes(job.itemsize)
    engine_seconds = 0.0 if shape.bare else engines.product(cut.queries, shape.key_dim, cut.keys, width)
    engine_seconds = engine_seconds + engines.product(cut.queries, cut.keys, shape.v, width)
    engine_seconds = engine_seconds + (engines.product(cut.queries, shape.v, cut.keys, width) if shape.latent else 0.0)
    rate = cut.queries * cut.keys * (shape.qk + shape.v) / (engines.matrix.rows * engines.matrix.cols * chip.clock)
    outcome = job_outcome(job, fidelity, {"peak_flops": 2.0 * peak, "engine_utilisation": rate / engine_seconds})
    seconds = outcome.metrics["latency"]
    share = shape.macs / (peak * seconds)
    outcome.metrics.update(
        mfu=share,
        mfu_per_system_mm2=share / area.total_area(chip),
        communication_share=jobs.communication_seconds(fidelity, job, seconds) / seconds,
    )
    return outcome._replace(tokens=shape.batch * shape.queries)


def kernel_breakdown(
    design: Design, case: AttentionCase, kernel: TiledAttention, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of attention: exchanges, memory, vector work and products."""
    job, t = kernel.job, kernel.job.tiling
    groups = f"{t.rows:.0f} x {t.cols:.0f} tiles, {t.queries:.0f} x {t.keys:.0f} a tile"
    groups += f", keys in {t.kv_splits:.0f}" if job.of.split else ""
    dataflow, useful = _attention_plan(design).dataflow, 2.0 * float(job.shape.macs)
    return job_breakdown(job, fidelity, "attention", dataflow, groups, useful, masked=job.shape.causal)


def chosen_tiling(design: Design, *cases: AttentionCase) -> AttentionTiling:
    """Group sides and tiling of equal cases, with open ones chosen."""
    mapping = _attention_plan(design)
    return resolve_tiling(
        find_dataflow(mapping.dataflow), attention_shape(*cases), design.chip, mapping, *operand_bytes(design)
    )


def operand_bytes(design: Design) -> tuple[float, KvStorage]:
    """Bytes per query, score and output value, and the storage of keys and values. [B]

    Raises:
        DesignError: weights of another size, of which there are none, or activations with scales of blocks.
    """
    if design.mapping.precision is None:
        return VALUE, SAME_AS_ACTIVATIONS
    return attention_bytes(design.mapping), kv_storage(design.mapping.precision)


def attention_shape(*cases: AttentionCase) -> AttentionShape:
    """Attention shape of equal cases, sizes as columns over the cases."""
    if any(case.decodes for case in cases):
        raise DesignError(
            "workload.decodes: tiles do not mix prompts and decodes in one kernel; remove it, or use a "
            "shared-cache die, as chip=h100"
        )
    values = {name: as_column([getattr(case, name) for case in cases]) for name in SIZE_FIELDS}
    return AttentionShape(**values, causal=cases[0].causal, latent=cases[0].latent)


def levers(worst: Infeasibility, design: Design, cases: tuple[AttentionCase, ...]) -> tuple[Lever, ...]:
    """What to change where attention on tiles violates a limit."""
    chip, (case, *_), dataflow = design.chip, cases, find_dataflow(_attention_plan(design).dataflow)
    if worst.limit in ("mapping.rows", "mapping.cols"):
        side = worst.limit.split(".")[1]
        return advise(suggest_nearest_side(side, getattr(_attention_plan(design), side), getattr(chip.mesh, side)))
    if worst.limit != "chip.tile.sram":
        return advise("use fewer sequences at a time")
    shape, (each, kv) = attention_shape(case), operand_bytes(design)
    suited = propose_tiling(dataflow, shape, chip, itemsize=each, kv=kv)
    slice_ = f"mapping.queries={suited.queries:.0f} mapping.keys={suited.keys:.0f}"
    if sum(held.nbytes for held in job_buffers(AttentionJob(dataflow, shape, suited, chip, each, kv))) > worst.have:
        return advise(f"no tiling fits heads of {case.qk} + {case.v} columns, not even {slice_}")
    return advise(f"a tiling that fits: {slice_}")


def shrink_to_submesh(design: Design, case: AttentionCase, side: int) -> tuple[Design, AttentionCase]:
    """A case scaled to a submesh; groups keep their sides if they fit."""
    job, _ = attention_on_submesh(prepare_case(design, (case,)).job, side)
    names = ("rows", "cols", "queries", "keys", *(("kv_splits",) if job.of.split else ()))
    changes: dict[str, Any] = {f"mapping.{name}": getattr(job.tiling, name) for name in names}
    shape = job.shape
    smaller = replace(case, batch=shape.batch, heads=shape.heads, kv_heads=1, queries=shape.queries, keys=shape.keys)
    return replace(replace_leaves(design, changes), chip=job.chip), smaller


def _attention_plan(design: Design) -> AttentionPlan:
    plan: AttentionPlan = design.mapping.kernel
    return plan


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=True,
    whole=True,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    levers=levers,
    shrink_to_submesh=shrink_to_submesh,
    submesh_text=SUBMESH_TEXT,
)
