"""Attention of a model on all cores of a pipeline's group at a time: FlatAttention on the group as if it were a chip.

Each entry of a step is a job of its own, whose leaves are numbers. Keys, values, queries and outputs are in the group's memory.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dse.evaluators.graph.operators import Attention
from dse.evaluators.graph.step import Step
from dse.evaluators.kernels.attention import attention
from dse.evaluators.kernels.partition.placement import sides
from dse.evaluators.layouts.attended import attended
from dse.evaluators.layouts.formats import plain_activations
from dse.evaluators.readers.closed_attention import Job, job, slots, tiled
from dse.evaluators.readers.jobs import Several
from dse.space.chip import Chip, memory_channels
from dse.space.elementwise import ceil_div
from dse.space.fields import replaced
from dse.space.limits import FITS, ClashError, Limit
from dse.space.mapping import BYTES, Precision, TilePlan
from dse.space.model import Model

SHARE = 0.5
"""Of the local memory that slices which are left open may take: the rest is for activations, weights and what is prefetched."""


class OnGroup(NamedTuple):
    """A chip of one group's cores and channels, and bytes of a value."""

    chip: Chip
    itemsize: float


def on_group(chip: Chip, plan: TilePlan, precision: Precision) -> OnGroup:
    """The cores of one group of a design whose leaves are numbers.

    Raises:
        ClashError: formats of other sizes side by side, or with scales of blocks.
    """
    plain_activations(precision)
    if BYTES[precision.kv] != BYTES[precision.activations]:
        raise ClashError(
            f"mapping.precision.kv: {precision.kv} beside activations of {precision.activations}; attention on groups takes "
            "values of one size: choose formats of as many bytes, or leave mapping.both.attention out",
            "kv", "activations",
        )  # fmt: skip
    rows, cols = sides(plan.placement, int(plan.tp))
    share = rows * cols / (chip.mesh.rows * chip.mesh.cols)
    channels = max(round(float(memory_channels(chip) * share)), 1)
    changes = {"mesh.rows": rows, "mesh.cols": cols, "hbm.channels": channels}
    return OnGroup(replaced(chip, changes), float(BYTES[precision.activations]))


def asked(model: Model, of: Attention, at: Step, plan: TilePlan, on: OnGroup) -> Several:
    """A step's attention, of layers of one kind: of whole prompts, or of a token of each request to as many positions as are
    cached on average.
    """
    said = plan.attention
    assert said is not None
    dataflow, prefilling = attention(said.dataflow), at.phase == "prefill"
    room = replaced(on.chip, {"tile.sram": on.chip.tile.sram * SHARE})

    def of_entry(tokens: float, requests: float, positions: float) -> Job:
        keys = max(ceil_div(tokens / requests if prefilling else positions / requests, 1), 1)
        shape = attended(model, of, ceil_div(requests, 1), keys if prefilling else 1, keys, prefilling=prefilling)
        sliced = tiled(dataflow, shape, room, said, on.itemsize)
        return job(dataflow, shape, sliced, on.chip, on.itemsize)

    counts = np.broadcast_arrays(at.tokens, np.maximum(at.requests, 1e-9), at.positions)
    return Several(tuple(of_entry(*map(float, entry)) for entry in zip(*(count.ravel() for count in counts), strict=True)))


def slices(jobs: Several) -> float:
    """Local memory of a core for them. [B]"""
    return max(float(sum(slot.nbytes for slot in slots(one))) for one in jobs.jobs)


def limits(name: str, plan: TilePlan) -> list[Limit]:
    """Sides of attention's groups divide those of the pipeline's."""
    if plan.attention is None or not attention(plan.attention.dataflow).grouped:
        return []
    said = (plan.attention.rows, plan.attention.cols)
    return [
        FITS[side](f"mapping.{name}.attention.{side}", count, of)
        for side, count, of in zip(("rows", "cols"), said, _sides(plan), strict=True)
    ]


def remedy(limit: str, plans: Mapping[str, TilePlan]) -> str:
    """In words, which sides of attention's groups divide a pipeline's group; "" where they do, or nothing is said of them.

    Args:
        limit: that does not hold.
        plans: by phase.
    """
    for name, plan in plans.items():
        if limit in {of.address for of in limits(name, plan) if of.need > of.have}:
            rows, cols = _sides(plan)
            return f"rows {_divisors(rows)} and columns {_divisors(cols)} divide a group of {rows} x {cols} cores"
    return ""


def _sides(plan: TilePlan) -> tuple[int, int]:
    """Of a pipeline's group."""
    return sides(plan.placement, int(plan.tp))


def _divisors(whole: int) -> str:
    """In words, as 1, 2 or 4."""
    *found, last = [str(count) for count in range(1, whole + 1) if whole % count == 0]
    return f"{', '.join(found)} or {last}" if found else last
