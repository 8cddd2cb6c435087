"""Bounds of serving loads over boxes of designs, from the steady state at the corners of each box.

A box takes the metrics of its fastest corner, and the areas and prices of its smallest. What a metric divides by, or is
proportional to, is exchanged: capacity per area of the first times its area over that of the second. A faster chip may gather
other batches, so that the bounds are sampled, not proved (`leaf_effects.bound_margin`).
"""

from collections.abc import Collection

from dse.evaluators import evaluate
from dse.evaluators.accounting.leaf_effects import AREAS_AND_PRICE
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.outcome_columns import fill_outcomes
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.accounting.serving_runs.metric_bounds import metric_bounds
from dse.evaluators.accounting.serving_runs.steady_state_run import STEADY
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon.chip_batches import batch_chips
from dse.evaluators.workloads.serving import serving_layout
from dse.space.design import Designs
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.workload import Workload

BASES = {
    "capacity_per_mm2": "system_mm2",
    "throughput_per_system_mm2": "system_mm2",
    "throughput_per_die_mm2": "die_mm2",
    "capital_per_mtoken": "system_price",
}
"""Metric of the smallest corner that a metric divides by, or is proportional to."""

NO_LIMIT = 1e30
"""Value of a limit of silicon that the fastest corner does not have to keep: its area is no area of the box."""

LIFTED = ("chip.die.reticle", "chip.die.max_power_density", "chip.die.memory_edge_share")


def evaluate_serving_box_bounds(
    fastest: Designs, smallest: Designs, largest: Designs, workload: Workload, metrics: Collection[str]
) -> Outcomes:
    """Bounds of metrics over boxes, and the limit of boxes whose designs all violate one.

    Args:
        fastest, smallest, largest: corners of the boxes, grouped alike.
        workload: serving loads.
        metrics: that are bounded, of `leaf_effects.metric_sides`.

    Returns:
        Outcomes of one row a box, in SI. Where the fastest corner violates a limit of memory or structure there are no metrics.
    """
    needed = {name for name in metrics if name not in AREAS_AND_PRICE} | {BASES[name] for name in metrics if name in BASES}
    bounds = evaluate(_without_silicon_limits(fastest), workload, fidelity=STEADY, metrics=sorted(needed))
    exact = metric_bounds(serving_layout, smallest, workload, AREAS_AND_PRICE, priced=False).low
    for name, base in BASES.items():
        if name in metrics:
            ratio = bounds.columns[base] / exact[base]
            bounds.columns[name] = bounds.columns[name] * (1 / ratio if name == "capital_per_mtoken" else ratio)
    for name in metrics:
        if name in AREAS_AND_PRICE:
            bounds.columns[name] = exact[name]
    every = tuple(range(len(workload.cases)))
    with batch_chips([*smallest.groups, *largest.groups]):
        for (rows, small), (_, large) in zip(smallest.groups, largest.groups, strict=True):
            limits = CaseOutcomes(every, {}, silicon.lenient_limits(small.chip, large.chip))
            fill_outcomes(bounds, rows, small, [limits], len(every), metrics)
    return bounds


def _without_silicon_limits(designs: Designs) -> Designs:
    """The designs, whose dies may be of any size and power density."""
    groups = []
    for rows, design in designs.groups:
        known = {address for address, _, _ in iterate_leaves(design)}
        groups.append((rows, replace_leaves(design, {address: NO_LIMIT for address in LIFTED if address in known})))
    return Designs(designs.size, tuple(groups))
