"""Compositions of metrics from the parts of an evaluation, and metrics that need no evaluation.

A search models parts in place of metrics (`dse/search/composed_objectives.py`): each depends on fewer knobs, and more simply.
What is declared here follows `accounting.metrics.batch_metrics` and `accounting.power`; `tests/contract/test_compositions.py`
holds them together.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from dse.evaluators.accounting.batch_account import die_and_system_area
from dse.evaluators.accounting.die_crossings import with_divided_mesh
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.accounting.layout_registry import BATCH_LAYOUTS
from dse.evaluators.silicon import area
from dse.evaluators.silicon.chip_batches import batch_chips
from dse.space.array_math import Array
from dse.space.design import Designs
from dse.space.metric_composition import MetricComposition
from dse.space.software import software_of
from dse.space.workload import BatchCase, ServingLoad, Workload

PREFILL, DECODE, TRANSITION, ENERGY = "prefill: ", "decode: ", "transition: ", "energy: "
"""Beginnings of the names of parts: seconds of a phase by what bounds them, and energy by phase."""

_BATCH = (PREFILL, DECODE, TRANSITION)
_DIE, _SYSTEM = ("die_mm2", -1), ("system_mm2", -1)

BATCH_COMPOSITIONS: Mapping[str, MetricComposition] = {
    "ttft": MetricComposition((PREFILL,)),
    "prefill_throughput": MetricComposition((PREFILL,), -1),
    "tpot": MetricComposition((DECODE,)),
    "tokens_per_s_per_user": MetricComposition((DECODE,), -1),
    "decode_throughput": MetricComposition((DECODE,), -1),
    "decode_throughput_per_die_mm2": MetricComposition((DECODE,), -1, (_DIE,)),
    "decode_throughput_per_system_mm2": MetricComposition((DECODE,), -1, (_SYSTEM,)),
    "latency": MetricComposition(_BATCH),
    "throughput": MetricComposition(_BATCH, -1),
    "throughput_per_die_mm2": MetricComposition(_BATCH, -1, (_DIE,)),
    "throughput_per_system_mm2": MetricComposition(_BATCH, -1, (_SYSTEM,)),
    "energy": MetricComposition((ENERGY,)),
    "energy_per_token": MetricComposition((ENERGY,)),
}
"""Metrics of batches that sums of parts give."""

KERNEL_COMPOSITIONS: Mapping[str, MetricComposition] = {
    "latency": MetricComposition(("",)),
}
"""Metrics of single kernels, all of whose parts are seconds."""

FREE_METRICS = ("die_mm2", "system_mm2")
"""Metrics that are known without an evaluation."""


def metric_compositions(workload: Workload, names: Collection[str], *, closed: bool = True) -> dict[str, MetricComposition]:
    """Compositions of metrics under a workload, of those that have one.

    Args:
        workload: its cases.
        names: metrics.
        closed: whether a closed form evaluates; else parts would take as long as the evaluation, and there are none.
    """
    known = {name: MetricComposition(factors=((name, 1),)) for name in FREE_METRICS}
    if isinstance(workload.cases[0], ServingLoad):
        known["throughput_per_die_mm2"] = MetricComposition(factors=(_DIE,))
        known["throughput_per_system_mm2"] = MetricComposition(factors=(_SYSTEM,))
    elif isinstance(workload.cases[0], BatchCase):
        known |= BATCH_COMPOSITIONS
    else:
        known |= KERNEL_COMPOSITIONS
    made = {name: known[name] if closed else replace(known[name], parts=()) for name in names if name in known}
    return {name: composition for name, composition in made.items() if composition.parts or composition.factors}


def free_metrics(designs: Designs, workload: Workload) -> dict[str, Array]:
    """Metrics that are known without an evaluation, shape (designs,).

    NaN where a kind of software needs an evaluation.
    """
    columns = {name: np.full(designs.size, np.nan) for name in FREE_METRICS}
    with batch_chips(designs.groups):
        for rows, whole in designs.groups:
            design = with_divided_mesh(whole)
            software = software_of(design.mapping)
            if software in BATCH_LAYOUTS:
                die, system = die_and_system_area(layout_of(design), design)
                columns["die_mm2"][rows], columns["system_mm2"][rows] = die, system
            elif design.chip.die is not None or design.chip.areas is not None:
                columns["die_mm2"][rows] = area.die_area(design.chip)
    return columns
