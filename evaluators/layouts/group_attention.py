"""Attention of a model on all cores of a pipeline's group: FlatAttention with the group as a chip.

Each entry of a step is a job of its own, whose leaves are numbers. Keys, values, queries and outputs are in the group's memory.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dse.evaluators.cost_models.analytical_attention import AttentionJob, job_buffers, make_job, resolve_tiling
from dse.evaluators.cost_models.jobs import JobColumns
from dse.evaluators.graph.operators import AttentionOp
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.kernels.partition.group_placement import group_sides
from dse.evaluators.layouts.attention_requests import attention_shape
from dse.evaluators.layouts.tensor_formats import refuse_scaled_activations
from dse.space.array_math import ceil_div
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.limits import FITS, IncompatibleOptionsError, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, PipelinePlan
from dse.space.model import Model

SHARE = 0.5
"""Of the local memory that slices which are left open may take: the rest is for activations, weights and what is prefetched."""


class GroupChip(NamedTuple):
    """Chip of one group's cores and memory channels, and bytes per value."""

    chip: Chip
    itemsize: float


def group_chip(chip: Chip, plan: PipelinePlan, precision: FormatPlan) -> GroupChip:
    """Chip made of the cores of one group, for a design whose leaves are numbers.

    Raises:
        ClashError: formats of other sizes side by side, or with scales of blocks.
    """
    refuse_scaled_activations(precision)
    if BYTES_BY_FORMAT[precision.kv] != BYTES_BY_FORMAT[precision.activations]:
        raise IncompatibleOptionsError(
            f"mapping.precision.kv: attention on groups needs KV and activations of one size, got {precision.kv} and "
            f"{precision.activations}; choose formats of equal size, or remove mapping.both.attention",
            "kv", "activations",
        )  # fmt: skip
    rows, cols = group_sides(plan.placement, int(plan.tp))
    share = rows * cols / (chip.mesh.rows * chip.mesh.cols)
    memory = main_memory(chip)
    channels = max(round(float(memory.channels * share)), 1)
    changes = {"mesh.rows": rows, "mesh.cols": cols, memory.leaf("channels"): channels}
    return GroupChip(replace_leaves(chip, changes), float(BYTES_BY_FORMAT[precision.activations]))


def group_attention_jobs(
    model: Model, operator: AttentionOp, at: StepCounts, plan: PipelinePlan, chip: GroupChip
) -> JobColumns:
    """Attention jobs of a step for layers of one kind, one job per entry.

    Prompts attend as a whole. In decode, a token of each request attends to the mean number of cached positions.
    """
    attention = plan.attention
    assert attention is not None
    dataflow, prefilling = find_dataflow(attention.dataflow), at.phase == "prefill"
    room = replace_leaves(chip.chip, {"tile.sram": chip.chip.tile.sram * SHARE})

    def of_entry(tokens: float, requests: float, positions: float) -> AttentionJob:
        keys = max(ceil_div(tokens / requests if prefilling else positions / requests, 1), 1)
        shape = attention_shape(model, operator, ceil_div(requests, 1), keys if prefilling else 1, keys, prefilling=prefilling)
        sliced = resolve_tiling(dataflow, shape, room, attention, chip.itemsize)
        return make_job(dataflow, shape, sliced, chip.chip, chip.itemsize)

    counts = np.broadcast_arrays(at.tokens, np.maximum(at.requests, 1e-9), at.positions)
    return JobColumns(tuple(of_entry(*map(float, entry)) for entry in zip(*(count.ravel() for count in counts), strict=True)))


def slice_bytes(jobs: JobColumns) -> float:
    """Local memory of a core for the slices of group attention. [B]"""
    return max(float(sum(slot.nbytes for slot in job_buffers(job))) for job in jobs.jobs)


def group_side_limits(name: str, plan: PipelinePlan) -> list[Limit]:
    """Limits: sides of attention's groups divide those of the pipeline's group."""
    if plan.attention is None or not find_dataflow(plan.attention.dataflow).grouped:
        return []
    plan_sides = (plan.attention.rows, plan.attention.cols)
    return [
        FITS[side](f"mapping.{name}.attention.{side}", count, given_side)
        for side, count, given_side in zip(("rows", "cols"), plan_sides, _sides(plan), strict=True)
    ]


def side_advice_text(limit: str, plans: Mapping[str, PipelinePlan]) -> str:
    """Text of the attention group sides that divide a pipeline's group; empty string if they fit.

    Args:
        limit: that does not hold.
        plans: by phase.
    """
    for name, plan in plans.items():
        if limit in {side_limit.address for side_limit in group_side_limits(name, plan) if side_limit.need > side_limit.have}:
            rows, cols = _sides(plan)
            return f"rows {_divisors(rows)} and columns {_divisors(cols)} divide a group of {rows} x {cols} cores"
    return ""


def _sides(plan: PipelinePlan) -> tuple[int, int]:
    """Of a pipeline's group."""
    return group_sides(plan.placement, int(plan.tp))


def _divisors(whole: int) -> str:
    """In words, as 1, 2 or 4."""
    *divisors, last = [str(count) for count in range(1, whole + 1) if whole % count == 0]
    return f"{', '.join(divisors)} or {last}" if divisors else last
