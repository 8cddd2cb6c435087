"""Evaluation of prefill and decode of a model, on any chip: metrics, limits and breakdown.

A layout makes the calls of a step and says how often steps run, a cost model gives the time and activity of calls, and
this module adds them up.
"""

from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow, TimelineBar, timeline_bars
from dse.evaluators.accounting.decode_segments import BatchArrays, arrays_of_cases
from dse.evaluators.accounting.metrics import CaseOutcomes, batch_metrics
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.power_profile import PowerProfile, idle_power, profile_of_phases
from dse.evaluators.calls.submesh import parse_fidelity
from dse.evaluators.tuning.per_design import compute_metrics_per_design
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.memoize import has_attribute
from dse.space.software import DEVICES, MANY_DIES, PIPELINES, POOLED_DIES, REGIONS, WHOLE_CHIP, software_of
from dse.space.workload import BatchCase, Workload

LAYOUT_MODULES = {
    DEVICES: "tensor_parallel",
    REGIONS: "regions",
    PIPELINES: "pipelines",
    WHOLE_CHIP: "whole_chip",
    MANY_DIES: "tile_dies",
    POOLED_DIES: "shared_cache_dies",
}
"""Layout modules of `accounting`, by the software that runs; imported at first use."""


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Fidelities that a layout supports, on the whole mesh or on a submesh."""
    layout = layout_module(design)
    fidelities: tuple[str, ...] = layout.SUBMESH_FIDELITIES if part else layout.FIDELITIES
    if has_attribute(layout, "simulation_obstacle") and layout.simulation_obstacle(design):
        fidelities = layout.ANALYTICAL_FIDELITIES
    if part and hasattr(layout, "submesh_obstacle") and layout.submesh_obstacle(design):
        fidelities = layout.ANALYTICAL_FIDELITIES
    return fidelities


def simulation_obstacle(design: Design, fidelity: str) -> str:
    """Why a simulator cannot run this design, and the setting to change; empty string if it can."""
    layout = layout_module(design)
    if has_attribute(layout, "simulation_obstacle") and fidelity in layout.FIDELITIES:
        obstacle: str = layout.simulation_obstacle(design)
        return obstacle
    submesh_obstacle: str = (
        layout.submesh_obstacle(design) if hasattr(layout, "submesh_obstacle") and fidelity in layout.SUBMESH_FIDELITIES else ""
    )
    return submesh_obstacle


def is_evaluated_alone(design: Design) -> bool:
    """Whether a design is evaluated apart from others."""
    layout = layout_module(design)
    return bool(has_attribute(layout, "is_evaluated_alone") and layout.is_evaluated_alone(design))


def submesh_text(design: Design) -> str:
    """How a model shrinks on a submesh, as text; empty string if it does not."""
    template: str = layout_module(design).SUBMESH_TEXT
    return template


def early_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of one design that its layout knows before any cost is computed; may be empty."""
    layout = layout_module(design)
    return (
        [limit for job in layout.TOGETHER(workload) for limit in layout.early_limits(design, job)]
        if hasattr(layout, "early_limits")
        else []
    )


def evaluate_cases(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Metrics and limits for each model; leaves of shape (cases, designs), or floats for one of each.

    Raises:
        DesignError: an algorithm or a number format that the layout has no kernels for.
    """
    return [_judged(design, job, fidelity) for job in layout_module(design).TOGETHER(workload)]


def _judged(design: Design, job: BatchArrays, fidelity: str) -> CaseOutcomes:
    layout = layout_module(design)
    without = layout.layout_limits(design, job)
    if without:
        die, system = layout.die_and_system_area(design)
        return CaseOutcomes(job.rows, {"die_mm2": die, "system_mm2": system}, without, priced=False)
    if parse_fidelity(fidelity)[0] in layout.ALONE:
        played = compute_metrics_per_design(design, [job], lambda design, job: _metrics(design, job, fidelity))
        values = {name: value[0] if isinstance(value, np.ndarray) else value for name, value in played.items()}
        return CaseOutcomes(job.rows, values, layout.limits(design, job, *layout.phases(design, job, "analytical")))
    phases = layout.phases(design, job, fidelity)
    return CaseOutcomes(job.rows, _metrics(design, job, fidelity, phases), layout.limits(design, job, *phases))


def _metrics(design: Design, job: BatchArrays, fidelity: str, phases: tuple[PhaseCost, ...] = ()) -> dict[str, Any]:
    layout = layout_module(design)
    phases = phases or layout.phases(design, job, fidelity)
    prefill, decode, *between = phases
    latency = prefill.seconds + decode.seconds
    for phase in between:
        latency = latency + phase.seconds
    rates = batch_metrics(job, prefill.seconds, decode.seconds, latency, *layout.die_and_system_area(design))
    used: dict[str, Any] = layout.usage_metrics(design, job, *phases)
    return rates | used


def case_breakdown(design: Design, case: BatchCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of one design's time for one case; no rows for a model without a layout."""
    layout = layout_module(design)
    job = arrays_of_cases(case.model, ((0, case),), decode_context)
    parts = {name: float(value) for name, value in layout.area_by_block(design).items()}
    if layout.layout_limits(design, job):
        return Breakdown((), 0.0, parts, {})
    rows: list[BreakdownRow] = []
    spans: dict[str, dict[str, list[TimelineBar]]] = {}
    phases = layout.phases(design, job, fidelity, detailed=True)
    for phase in phases:
        rows += _rows(layout, phase, fidelity)
        blocks = [timed_block for timed_block in phase.timed if np.any(timed_block.block.times)]
        lines: dict[str, list[TimelineBar]] = {}
        for block in blocks:
            lines.setdefault(block.block.name, timeline_bars(block))  # of the first step
        spans |= {phase.name: lines} if lines else {}
    held = layout.fullest_die_memory(phases) if hasattr(layout, "fullest_die_memory") else {}
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), parts, spans, memory=held)


def settle_open_choices(design: Design, case: BatchCase, decode_context: str) -> None:
    """Choose what designs leave open for a case, where a layout keeps that for each of them."""
    layout = layout_module(design)
    if hasattr(layout, "settle_open_choices"):
        layout.settle_open_choices(design, arrays_of_cases(case.model, ((0, case),), decode_context))


def case_power_profile(design: Design, case: BatchCase, decode_context: str, fidelity: str) -> PowerProfile | None:
    """Power of all chips over a batch, phase by phase; None for a model without a layout. [W]"""
    layout = layout_module(design)
    job = arrays_of_cases(case.model, ((0, case),), decode_context)
    if layout.layout_limits(design, job):
        return None
    prefill, decode, *between = layout.phases(design, job, fidelity)
    ordered = (prefill, *between, decode)
    rest = idle_power(design.chip, layout.die_count(design) if hasattr(layout, "die_count") else 1.0)
    return profile_of_phases(layout.energy_and_time(design, job, *ordered), [phase.name for phase in ordered], rest)


def with_remedy(worst: Infeasibility, design: Design, workload: Workload) -> Infeasibility:
    """The violated limit with the layout's remedy, if there is one."""
    return replace(worst, remedy=layout_module(design).remedy_text(worst, design, layout_module(design).TOGETHER(workload)))


def layout_module(design: Design) -> ModuleType:
    """Layout module for the software of a mapping."""
    return layout_module_of_software(software_of(design.mapping))


@cache
def layout_module_of_software(software: str) -> ModuleType:
    """Layout module for some software."""
    return import_module(f"dse.evaluators.accounting.{LAYOUT_MODULES[software]}")


def _rows(layout: ModuleType, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
    """Breakdown rows of one phase, with a row for waits or overlap between instances and stages; they add up to its
    time.
    """
    rows: list[BreakdownRow] = layout.breakdown_rows(phase, fidelity)
    seconds = float(np.max(phase.seconds)) if phase.name == "transition" else float(np.sum(phase.seconds))
    gap = seconds - sum(row.seconds for row in rows)
    if abs(gap) > 1e-9 * seconds:
        gap_label = getattr(layout, "GAP_LABEL" if gap > 0 else "HIDDEN_LABEL", "overlap of requests")
        rows.append(BreakdownRow(phase.name, layout.WAIT_LABEL, gap_label, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
    return rows
