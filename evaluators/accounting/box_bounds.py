"""Bounds of static batches over boxes of designs, from the corners of each box.

The account of a batch takes times and activity from phases, and areas, powers and prices from a design. Here the phases are
those of a box's fastest corner, and the design is its smallest corner. So one evaluation bounds every metric of
`leaf_effects.LEAST` and `MOST`, each of which is a product or a sum of non-negative terms of both. The largest corner counts in
limits of silicon only.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from dse.evaluators.accounting.batch_account import account_limits, account_metrics
from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.outcome_columns import fill_outcomes
from dse.evaluators.accounting.outcomes import Outcomes, empty_outcomes
from dse.evaluators.accounting.sequence_limits import length_limits
from dse.evaluators.machine.machine import shared_cache_machine
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon.chip_batches import batch_chips
from dse.evaluators.tuning.per_design import split_group
from dse.space.array_math import Array, extremes
from dse.space.design import Design, Designs
from dse.space.lazy_metrics import requested_metrics
from dse.space.limits import IncompatibleOptionsError
from dse.space.workload import Workload


def evaluate_box_bounds(
    fastest: Designs, smallest: Designs, largest: Designs, workload: Workload, metrics: Collection[str]
) -> Outcomes:
    """Bounds of metrics over boxes, and the limit of boxes whose designs all violate one.

    Limits of memories and structure are those of the fastest corner, which has most room. A limit of silicon compares what the
    smallest corner needs with what the largest has.

    Args:
        fastest, smallest, largest: corners of the boxes, grouped alike.
        workload: static batches.
        metrics: that are bounded.

    Returns:
        Outcomes of one row a box. A column has lower bounds of metrics of `leaf_effects.LEAST`, upper ones of `MOST`, in SI.
    """
    outcomes, common, every = empty_outcomes(len(fastest)), length_limits(workload), tuple(range(len(workload.cases)))
    with requested_metrics(metrics), batch_chips([*smallest.groups, *largest.groups]):
        for groups in zip(fastest.groups, smallest.groups, largest.groups, strict=True):
            (rows, _), *others = groups
            assert all(np.array_equal(rows, same) for same, _ in others), "corners of boxes are grouped by the same options"
            left: list[tuple[Any, list[Design]]] = [(rows, [design for _, design in groups])]
            while left:
                rows, (fast, small, large) = left.pop()
                try:
                    judged = [_bounds(fast, small, job) for job in layout_of(fast).batch_arrays(workload)]
                except IncompatibleOptionsError as clash:
                    if len(rows) > 1 and clash.some is not None:
                        parts = zip(*(split_group(rows, corner, clash.some) for corner in (fast, small, large)), strict=True)
                        left += [(part[0][0], [corner for _, corner in part]) for part in parts]
                        continue
                    judged = [CaseOutcomes(every, {}, [clash.limit])]
                fill_outcomes(
                    outcomes,
                    rows,
                    small,
                    [*judged, *common, CaseOutcomes(every, {}, silicon.lenient_limits(small.chip, large.chip))],
                    len(workload.cases),
                    metrics,
                    weights=workload.case_weights,
                    worst_case=workload.combine == "worst",
                )
    return outcomes


def _bounds(fast: Design, small: Design, job: BatchArrays) -> CaseOutcomes:
    """Bounds of the cases of one model over boxes of one structure."""
    layout = layout_of(fast)
    violated = layout.layout_limits(fast, job)
    if violated:
        return CaseOutcomes(job.rows, {}, violated, priced=False)
    phases = layout.least_phases(fast, small, job)
    return CaseOutcomes(job.rows, account_metrics(layout, small, job, phases), account_limits(layout, fast, job, phases))


def cache_is_faster(design: Design) -> bool:
    """Whether a byte comes sooner from the cache than from main memory, as a larger cache has to."""
    return bool(extremes(shared_cache_machine(design.chip, design.mapping).saved)[0] >= 0)


def size_thresholds(design: Design, workload: Workload) -> dict[str, Array]:
    """First values after jumps of a design's times, ascending, by the address of the number.

    Args:
        design: whose options count; its numbers with ranges do not move the jumps.
        workload: static batches.
    """
    layout = layout_of(design)
    thresholds: dict[str, list[Any]] = {}
    for job in layout.batch_arrays(workload):
        if layout.layout_limits(design, job):
            continue
        for address, sizes in layout.size_thresholds(design, job).items():
            thresholds.setdefault(address, []).append(sizes)
    return {address: np.unique(np.concatenate(sizes)) for address, sizes in thresholds.items()}
