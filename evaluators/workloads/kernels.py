"""Evaluation of single kernels, on any machine: metrics, limits and breakdown.

Products, attention, collectives, experts, elementwise operators, memory streams and packet traffic. A module of
`accounting/kernel_workloads` gives the job for the machine, its cost and its limits. This module combines cases and
designs, and adds energy, area, power and the rest of a breakdown.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.kernel_workloads import KernelWorkload
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.power import kernel_power_metrics
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.workload_evaluator import WorkloadEvaluator
from dse.evaluators.silicon import area
from dse.evaluators.tuning.per_design import compute_metrics_per_design
from dse.space.design import Design
from dse.space.lazy_metrics import make_lazy_metrics
from dse.space.limits import Infeasibility, Limit
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
    kernel = kernel_workload(design)
    return kernel.fidelities[:1] if kernel.simulation_obstacle(design) else kernel.fidelities


def simulation_obstacle(design: Design, fidelity: str) -> str:
    """Why a simulator cannot run this design, and the setting to change; empty string if it can."""
    kernel = kernel_workload(design)
    return kernel.simulation_obstacle(design) if fidelity in kernel.fidelities else ""


def fidelities_of_software(software: str) -> tuple[str, ...]:
    """Fidelities that some software supports, on any chip."""
    return kernel_workload_of_software(software).fidelities


def evaluate_cases(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Metrics and limits of cases evaluated together; leaves of shape (cases, designs), or floats."""
    kernel, found_cases = kernel_workload(design), []
    for rows, cases in _together(kernel, workload.cases):
        prepared_case = kernel.prepare_case(design, cases)
        limits = kernel.limits(design, prepared_case)
        if kernel.needs_single_designs(design, fidelity):
            metrics = compute_metrics_per_design(design, cases, lambda design, case: _of_one(kernel, design, case, fidelity))
        else:
            metrics = _metrics(kernel, design, prepared_case, limits, fidelity)
        found_cases.append(CaseOutcomes(rows, metrics, limits))
    return found_cases


def kernel_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of designs, without computing any cost."""
    kernel = kernel_workload(design)
    return [
        limit
        for _, cases in _together(kernel, workload.cases)
        for limit in kernel.limits(design, kernel.prepare_case(design, cases))
    ]


def case_breakdown(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of one design's time for one case."""
    kernel = kernel_workload(design)
    rows, spans = kernel.kernel_breakdown(design, case, kernel.prepare_case(design, (case,)), fidelity)
    blocks = {name: float(value) for name, value in area.area_by_block(design.chip).items()} if kernel.whole else {}
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), blocks, spans)


def levers(worst: Infeasibility, design: Design, workload: Workload) -> Iterable[Lever]:
    """What may be changed so that a violated limit of the kernel holds."""
    return kernel_workload(design).levers(worst, design, workload.cases)


def submesh_text(design: Design) -> str:
    """How a case shrinks on a submesh, as text; empty string if it does not."""
    return kernel_workload(design).submesh_text


def shrink_to_submesh(design: Design, case: WorkloadCase, side: int) -> tuple[Design, WorkloadCase] | None:
    """A design and case on at most `side` x `side` cores; None if cases of this type do not shrink.

    Cores keep their tiles and the mapping. The workload shrinks in proportion, and memory channels decrease so that
    each keeps its bytes.
    """
    return kernel_workload(design).shrink_to_submesh(design, case, side)


def kernel_workload(design: Design) -> KernelWorkload:
    """What evaluates the kernels of a mapping."""
    return kernel_workload_of_software(software_of(design.mapping))


@cache
def kernel_workload_of_software(software: str) -> KernelWorkload:
    """What evaluates the kernels of some software."""
    module = import_module(f"dse.evaluators.accounting.kernel_workloads.{KERNEL_MODULES[software]}")
    workload: KernelWorkload = module.WORKLOAD
    return workload


def _together(kernel: KernelWorkload, cases: Sequence[WorkloadCase]) -> list[tuple[tuple[int, ...], tuple[WorkloadCase, ...]]]:
    """Cases that are worked out together, and their rows."""
    places: dict[Any, list[int]] = {}
    for row, case in enumerate(cases):
        places.setdefault(case.subject if kernel.stacked else row, []).append(row)
    return [(tuple(rows), tuple(cases[row] for row in rows)) for rows in places.values()]


def _of_one(kernel: KernelWorkload, design: Design, case: WorkloadCase, fidelity: str) -> dict[str, Any]:
    """Metrics of one scalar design and one case."""
    prepared_case = kernel.prepare_case(design, (case,))
    return _metrics(kernel, design, prepared_case, kernel.limits(design, prepared_case), fidelity)


def _metrics(kernel: KernelWorkload, design: Design, prepared_case: Any, limits: list[Limit], fidelity: str) -> dict[str, Any]:
    spent, chip = kernel.kernel_outcome(design, prepared_case, fidelity), design.chip
    metrics: dict[str, Any] = dict(spent.metrics)
    if kernel.whole:
        metrics |= {"die_mm2": area.die_area(chip), "system_mm2": area.total_area(chip) * spent.dies}
    if spent.held:
        metrics[spent.held] = limits[0].need
    if spent.dynamic is None:
        return metrics
    metrics |= kernel_power_metrics(chip, spent.dynamic, metrics["latency"], chips=spent.dies)
    if spent.tokens is None:
        return metrics
    return metrics | make_lazy_metrics(
        ("energy_per_token",), lambda: {"energy_per_token": metrics["energy"].metric("energy") / spent.tokens}
    )


EVALUATOR = WorkloadEvaluator(
    fidelities=fidelities,
    evaluate_cases=evaluate_cases,
    known_limits=kernel_limits,
    case_breakdown=case_breakdown,
    levers=levers,
    fidelities_of_software=fidelities_of_software,
    simulation_obstacle=simulation_obstacle,
    submesh_text=submesh_text,
    shrink_to_submesh=shrink_to_submesh,
)
