"""Evaluation of prefill and decode of a model, on any chip: metrics, limits and breakdown.

A layout makes the calls of a step and says how often steps run, a cost model gives the time and activity of calls, and
this module adds them up.
"""

from collections.abc import Iterable

import numpy as np

from dse.evaluators.accounting.batch_account import (
    account_limits,
    account_metrics,
    die_and_system_area,
    energy_and_time,
    order_phases,
)
from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow, TimelineBar, timeline_bars
from dse.evaluators.accounting.decode_segments import BatchArrays, arrays_of_cases
from dse.evaluators.accounting.layout import Layout, layout_of
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.power_profile import PowerProfile, idle_power, profile_of_phases
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.usage import PeakRates, system_peak_rates
from dse.evaluators.accounting.workload_evaluator import WorkloadEvaluator
from dse.evaluators.calls.submesh import parse_fidelity
from dse.evaluators.silicon.area import area_by_block
from dse.evaluators.tuning.per_design import compute_metrics_per_design
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.workload import BatchCase, Workload


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Fidelities that a layout supports, on the whole mesh or on a submesh."""
    layout = layout_of(design)
    obstacle = layout.simulation_obstacle(design) or (part and layout.submesh_obstacle(design))
    if obstacle:
        return layout.ANALYTICAL_FIDELITIES
    return layout.SUBMESH_FIDELITIES if part else layout.FIDELITIES


def simulation_obstacle(design: Design, fidelity: str) -> str:
    """Why a simulator cannot run this design, and the setting to change; empty string if it can."""
    layout = layout_of(design)
    obstacle = layout.simulation_obstacle(design) if fidelity in layout.FIDELITIES else ""
    return obstacle or (layout.submesh_obstacle(design) if fidelity in layout.SUBMESH_FIDELITIES else "")


def is_evaluated_alone(design: Design) -> bool:
    """Whether a design is evaluated apart from others."""
    return layout_of(design).is_evaluated_alone(design)


def submesh_text(design: Design) -> str:
    """How a model shrinks on a submesh, as text; empty string if it does not."""
    return layout_of(design).SUBMESH_TEXT


def early_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of one design that its layout knows before any cost is computed; may be empty."""
    layout = layout_of(design)
    return [limit for job in layout.batch_arrays(workload) for limit in layout.early_limits(design, job)]


def evaluate_cases(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Metrics and limits for each model; leaves of shape (cases, designs), or floats for one of each.

    Raises:
        DesignError: an algorithm or a number format that the layout has no kernels for.
    """
    return [_judged(design, job, fidelity) for job in layout_of(design).batch_arrays(workload)]


def _judged(design: Design, job: BatchArrays, fidelity: str) -> CaseOutcomes:
    layout = layout_of(design)
    violated = layout.layout_limits(design, job)
    if violated:
        die, system = die_and_system_area(layout, design)
        return CaseOutcomes(job.rows, {"die_mm2": die, "system_mm2": system}, violated, priced=False)
    if parse_fidelity(fidelity)[0] in layout.SINGLE_DESIGN_FIDELITIES:
        played = compute_metrics_per_design(
            design, [job], lambda design, job: account_metrics(layout, design, job, layout.phases(design, job, fidelity))
        )
        values = {name: value[0] if isinstance(value, np.ndarray) else value for name, value in played.items()}
        return CaseOutcomes(job.rows, values, account_limits(layout, design, job, layout.phases(design, job, "analytical")))
    phases = layout.phases(design, job, fidelity)
    metrics = account_metrics(layout, design, job, phases)
    return CaseOutcomes(job.rows, metrics, account_limits(layout, design, job, phases))


def case_breakdown(design: Design, case: BatchCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of one design's time for one case; no rows for a model without a layout."""
    layout = layout_of(design)
    job = arrays_of_cases(case.model, ((0, case),), decode_context)
    parts = {name: float(value) for name, value in area_by_block(design.chip).items()}
    if layout.layout_limits(design, job):
        return Breakdown((), 0.0, parts, {})
    rows: list[BreakdownRow] = []
    spans: dict[str, dict[str, list[TimelineBar]]] = {}
    phases = layout.phases(design, job, fidelity, detailed=True)
    for phase in phases:
        if not np.any(phase.seconds):  # a batch without decode, or a transition between equal layouts
            continue
        rows += _rows(layout, phase, fidelity)
        blocks = [timed_block for timed_block in phase.timed if np.any(timed_block.block.times)]
        lines: dict[str, list[TimelineBar]] = {}
        for block in blocks:
            lines.setdefault(block.block.name, timeline_bars(block))  # of the first step
        spans |= {phase.name: lines} if lines else {}
    seconds = sum(row.seconds for row in rows)
    return Breakdown(tuple(rows), seconds, parts, spans, memory=layout.memory_by_use(phases))


def settle_open_choices(design: Design, case: BatchCase, decode_context: str) -> None:
    """Choose what designs leave open for a case, where a layout keeps that for each of them."""
    layout_of(design).settle_open_choices(design, arrays_of_cases(case.model, ((0, case),), decode_context))


def case_power_profile(design: Design, case: BatchCase, decode_context: str, fidelity: str) -> PowerProfile | None:
    """Power of all chips over a batch, phase by phase; None for a model without a layout. [W]"""
    layout = layout_of(design)
    job = arrays_of_cases(case.model, ((0, case),), decode_context)
    if layout.layout_limits(design, job):
        return None
    ordered = order_phases(layout.phases(design, job, fidelity))
    spent = energy_and_time(layout, design, job, ordered)
    return profile_of_phases(spent, [phase.name for phase in ordered], idle_power(design.chip, layout.die_count(design)))


def peak_rates(design: Design) -> PeakRates:
    """Peak rates of all chips of a design together."""
    layout = layout_of(design)
    return system_peak_rates(layout.peak_rates(design), layout.die_count(design))


def levers(worst: Infeasibility, design: Design, workload: Workload) -> Iterable[Lever]:
    """What may be changed so that a violated limit of the layout holds."""
    layout = layout_of(design)
    return layout.levers(worst, design, layout.batch_arrays(workload))


def _rows(layout: Layout, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
    """Breakdown rows of one phase, with a row for waits or overlap between instances and stages; they add up to its
    time.
    """
    rows = layout.breakdown_rows(phase, fidelity)
    seconds = float(np.max(phase.seconds)) if phase.name == "transition" else float(np.sum(phase.seconds))
    gap = seconds - sum(row.seconds for row in rows)
    if abs(gap) > 1e-9 * seconds:
        gap_label = layout.GAP_LABEL if gap > 0 else layout.HIDDEN_LABEL
        rows.append(BreakdownRow(phase.name, layout.WAIT_LABEL, gap_label, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
    return rows


def known_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits of designs, in closed form."""
    return [limit for judged in evaluate_cases(design, workload, "analytical") for limit in judged.limits]


EVALUATOR = WorkloadEvaluator(
    fidelities=fidelities,
    evaluate_cases=evaluate_cases,
    known_limits=known_limits,
    case_breakdown=case_breakdown,
    levers=levers,
    power_profile=case_power_profile,
    peak_rates=peak_rates,
    simulation_obstacle=simulation_obstacle,
    submesh_text=submesh_text,
    early_limits=early_limits,
    is_evaluated_alone=is_evaluated_alone,
    settle_open_choices=settle_open_choices,
)
