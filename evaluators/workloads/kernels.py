"""Evaluation of single kernels, on any machine: metrics, limits and breakdown.

Products, attention, collectives, experts, elementwise operators, memory streams and packet traffic. A module of
`accounting/kernel_workloads` gives the job for the machine, its cost and its limits. This module combines cases and
designs, and adds energy, area, power and the rest of a breakdown.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.power import kernel_power_metrics
from dse.evaluators.silicon import area
from dse.evaluators.tuning.per_design import metrics_per_design
from dse.space.design import Design
from dse.space.lazy_metrics import lazy_metrics
from dse.space.limits import Infeasibility, Limit
from dse.space.memoize import has_attribute
from dse.space.software import ATTENTION, COLLECTIVE, DEVICES, DIE_COLLECTIVE, PRODUCT, STREAM, SUMMA, TRAFFIC, software_of
from dse.space.workload import Workload, WorkloadCase

KERNEL_MODULES = {
    DEVICES: "shared_cache_kernels",
    PRODUCT: "mesh_product",
    SUMMA: "tile_gemm",
    COLLECTIVE: "tile_collective",
    DIE_COLLECTIVE: "die_collective",
    ATTENTION: "tile_attention",
    STREAM: "memory_stream",
    TRAFFIC: "noc_traffic",
}
"""Modules of `accounting/kernel_workloads`, by software; imported at first use."""


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Fidelities that a design's software supports; the same ones on a submesh."""
    of = kernel_module(design)
    if has_attribute(of, "simulation_obstacle") and of.simulation_obstacle(design):
        return (of.ANALYTICAL_FIDELITY,)
    return fidelities_of_software(software_of(design.mapping))


def simulation_obstacle(design: Design, fidelity: str) -> str:
    """Why a simulator cannot run this design, and the setting to change; empty string if it can."""
    of = kernel_module(design)
    found: str = (
        of.simulation_obstacle(design) if has_attribute(of, "simulation_obstacle") and fidelity in of.FIDELITIES else ""
    )
    return found


def fidelities_of_software(software: str) -> tuple[str, ...]:
    """Fidelities that some software supports, on any chip."""
    found: tuple[str, ...] = kernel_module_of_software(software).FIDELITIES
    return found


def evaluate_cases(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Metrics and limits of cases evaluated together; leaves of shape (cases, designs), or floats."""
    of, found = kernel_module(design), []
    for rows, cases in _together(of, workload.cases):
        asked = of.prepare_case(design, cases)
        limits = of.limits(design, asked)
        if of.needs_single_designs(design, fidelity) if hasattr(of, "needs_single_designs") else fidelity != "analytical":
            metrics = metrics_per_design(design, cases, lambda one, case: _of_one(of, one, case, fidelity))
        else:
            metrics = _metrics(of, design, asked, limits, fidelity)
        found.append(CaseOutcomes(rows, metrics, limits))
    return found


def kernel_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of designs, without computing any cost."""
    of = kernel_module(design)
    return [limit for _, cases in _together(of, workload.cases) for limit in of.limits(design, of.prepare_case(design, cases))]


def case_breakdown(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of one design's time for one case."""
    of = kernel_module(design)
    rows, spans = of.kernel_breakdown(design, case, of.prepare_case(design, (case,)), fidelity)
    blocks = {name: float(value) for name, value in area.area_by_block(design.chip).items()} if of.WHOLE else {}
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), blocks, spans)


def with_remedy(worst: Infeasibility, design: Design, workload: Workload) -> Infeasibility:
    """The violated limit with the module's remedy, if there is one."""
    of = kernel_module(design)
    return replace(worst, remedy=of.remedy_text(worst, design, workload.cases)) if hasattr(of, "remedy_text") else worst


def submesh_text(design: Design) -> str:
    """How a case shrinks on a submesh, as text; empty string if it does not."""
    return getattr(kernel_module(design), "SUBMESH_TEXT", "")


def shrink_to_submesh(design: Design, case: WorkloadCase, side: int) -> tuple[Design, WorkloadCase] | None:
    """A design and case on at most `side` x `side` cores; None if cases of this type do not shrink.

    Cores keep their tiles and the mapping. The workload shrinks in proportion, and memory channels decrease so that
    each keeps its bytes.
    """
    of = kernel_module(design)
    return of.shrink_to_submesh(design, case, side) if hasattr(of, "shrink_to_submesh") else None


def kernel_module(design: Design) -> ModuleType:
    """Module that evaluates the kernels of a mapping."""
    return kernel_module_of_software(software_of(design.mapping))


@cache
def kernel_module_of_software(software: str) -> ModuleType:
    """Module that evaluates the kernels of some software."""
    return import_module(f"dse.evaluators.accounting.kernel_workloads.{KERNEL_MODULES[software]}")


def _together(of: ModuleType, cases: Sequence[WorkloadCase]) -> list[tuple[tuple[int, ...], tuple[WorkloadCase, ...]]]:
    """Cases that are worked out together, and their rows."""
    places: dict[Any, list[int]] = {}
    for row, case in enumerate(cases):
        places.setdefault(case.subject if of.STACKED else row, []).append(row)
    return [(tuple(rows), tuple(cases[row] for row in rows)) for rows in places.values()]


def _of_one(of: ModuleType, design: Design, case: WorkloadCase, fidelity: str) -> dict[str, Any]:
    """Metrics of one scalar design and one case."""
    asked = of.prepare_case(design, (case,))
    return _metrics(of, design, asked, of.limits(design, asked), fidelity)


def _metrics(of: ModuleType, design: Design, asked: Any, limits: list[Limit], fidelity: str) -> dict[str, Any]:
    spent, chip = of.kernel_outcome(design, asked, fidelity), design.chip
    found: dict[str, Any] = dict(spent.metrics)
    if of.WHOLE:
        found |= {"die_mm2": area.die_area(chip), "system_mm2": area.total_area(chip) * spent.dies}
    if spent.held:
        found[spent.held] = limits[0].need
    if spent.dynamic is None:
        return found
    found |= kernel_power_metrics(chip, spent.dynamic, found["latency"], chips=spent.dies)
    if spent.tokens is None:
        return found
    return found | lazy_metrics(
        ("energy_per_token",), lambda: {"energy_per_token": found["energy"].of("energy") / spent.tokens}
    )
