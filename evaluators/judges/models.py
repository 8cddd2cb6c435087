"""Designs that run a model's prefill and decode for cases of a workload: metrics, limits and the breakdown, whatever the chip.

A layout makes calls of a step and says how often steps run; a reader prices them; what they add up to is accounted for here.
"""

from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from dse.evaluators.account.breakdown import Bar, Breakdown, Row, bars
from dse.evaluators.account.metrics import Judged, of_batch
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.profile import Profile, idle, successive
from dse.evaluators.account.stretches import Stretches, stretches_of
from dse.evaluators.choices.per_design import one_by_one
from dse.evaluators.passes.part import cut
from dse.space.design import Design
from dse.space.limits import Infeasible, Limit
from dse.space.remember import has
from dse.space.software import DEVICES, MANY_DIES, PIPELINES, POOLED_DIES, REGIONS, WHOLE_CHIP, software_of
from dse.space.workload import Case, Workload

LAYOUTS = {
    DEVICES: "devices",
    REGIONS: "regions",
    PIPELINES: "pipelines",
    WHOLE_CHIP: "whole_chip",
    MANY_DIES: "dies",
    POOLED_DIES: "pooled_dies",
}
"""Layouts by the software that runs them: modules of `account`, imported when they are asked."""


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Readers that a layout's calls have programs for; on a part of the mesh, or of all of it."""
    layout = layout_of(design)
    found: tuple[str, ...] = layout.IN_PART if part else layout.FIDELITIES
    if has(layout, "unplayed") and layout.unplayed(design):
        found = layout.FORMULAS
    if part and hasattr(layout, "whole_only") and layout.whole_only(design):
        found = layout.FORMULAS
    return found


def in_the_way(design: Design, fidelity: str) -> str:
    """The part or policy that keeps a reader from a layout's programs, and what to say instead; "" where there is none."""
    layout = layout_of(design)
    if has(layout, "unplayed") and fidelity in layout.FIDELITIES:
        found: str = layout.unplayed(design)
        return found
    said: str = layout.whole_only(design) if hasattr(layout, "whole_only") and fidelity in layout.IN_PART else ""
    return said


def by_itself(design: Design) -> bool:
    """Whether a design is worked out apart from others."""
    layout = layout_of(design)
    return bool(has(layout, "by_itself") and layout.by_itself(design))


def in_part(design: Design) -> str:
    """What becomes of a model on a part of the mesh, for people; "" where there is none."""
    said: str = layout_of(design).SMALLER
    return said


def early(design: Design, workload: Workload) -> list[Limit]:
    """Limits of one design that a layout knows before anything is priced; none where it knows of none."""
    layout = layout_of(design)
    return (
        [limit for job in layout.TOGETHER(workload) for limit in layout.early(design, job)] if hasattr(layout, "early") else []
    )


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, model by model; leaves of shape (cases, designs), or floats for one of each.

    Raises:
        DesignError: an algorithm or a number format that the layout has no kernels for.
    """
    return [_judged(design, job, fidelity) for job in layout_of(design).TOGETHER(workload)]


def _judged(design: Design, job: Stretches, fidelity: str) -> Judged:
    layout = layout_of(design)
    without = layout.refused(design, job)
    if without:
        die, system = layout.areas(design)
        return Judged(job.rows, {"die_mm2": die, "system_mm2": system}, without, priced=False)
    if cut(fidelity)[0] in layout.ALONE:
        played = one_by_one(design, [job], lambda one, job: _metrics(one, job, fidelity))
        values = {name: value[0] if isinstance(value, np.ndarray) else value for name, value in played.items()}
        return Judged(job.rows, values, layout.limits(design, job, *layout.phases(design, job, "closed")))
    phases = layout.phases(design, job, fidelity)
    return Judged(job.rows, _metrics(design, job, fidelity, phases), layout.limits(design, job, *phases))


def _metrics(design: Design, job: Stretches, fidelity: str, phases: tuple[Phase, ...] = ()) -> dict[str, Any]:
    layout = layout_of(design)
    phases = phases or layout.phases(design, job, fidelity)
    prefill, decode, *between = phases
    latency = prefill.seconds + decode.seconds
    for phase in between:
        latency = latency + phase.seconds
    rates = of_batch(job, prefill.seconds, decode.seconds, latency, *layout.areas(design))
    used: dict[str, Any] = layout.used(design, job, *phases)
    return rates | used


def explain(design: Design, case: Case, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one design goes, operator by operator, for one case; no rows for a model that has no layout."""
    layout = layout_of(design)
    job = stretches_of(case.model, ((0, case),), decode_at)
    parts = {name: float(value) for name, value in layout.area_parts(design).items()}
    if layout.refused(design, job):
        return Breakdown((), 0.0, parts, {})
    found: list[Row] = []
    spans: dict[str, dict[str, list[Bar]]] = {}
    phases = layout.phases(design, job, fidelity, detailed=True)
    for phase in phases:
        found += _rows(layout, phase, fidelity)
        blocks = [of for of in phase.timed if np.any(of.block.times)]
        lines: dict[str, list[Bar]] = {}
        for of in blocks:
            lines.setdefault(of.block.name, bars(of))  # of the first step
        spans |= {phase.name: lines} if lines else {}
    held = layout.memory(phases) if hasattr(layout, "memory") else {}
    return Breakdown(tuple(found), sum(row.seconds for row in found), parts, spans, memory=held)


def profile(design: Design, case: Case, decode_at: str, fidelity: str) -> Profile | None:
    """Power of all chips over a batch, phase by phase; None for a model that has no layout."""
    layout = layout_of(design)
    job = stretches_of(case.model, ((0, case),), decode_at)
    if layout.refused(design, job):
        return None
    prefill, decode, *between = layout.phases(design, job, fidelity)
    ordered = (prefill, *between, decode)
    rest = idle(design.chip, layout.chips(design) if hasattr(layout, "chips") else 1.0)
    return successive(layout.spending(design, job, *ordered), [phase.name for phase in ordered], rest)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict, with what would do where the layout knows it."""
    return replace(worst, remedy=layout_of(design).remedy(worst, design, layout_of(design).TOGETHER(workload)))


def layout_of(design: Design) -> ModuleType:
    """The layout that a mapping is for."""
    return layout_for(software_of(design.mapping))


@cache
def layout_for(software: str) -> ModuleType:
    """The layout of some software."""
    return import_module(f"dse.evaluators.account.{LAYOUTS[software]}")


def _rows(layout: ModuleType, phase: Phase, fidelity: str) -> list[Row]:
    """Calls of one phase, and what instances and pipelining take off or add, as a row of its own; they add up to its time."""
    found: list[Row] = layout.rows(phase, fidelity)
    seconds = float(np.max(phase.seconds)) if phase.name == "transition" else float(np.sum(phase.seconds))
    gap = seconds - sum(row.seconds for row in found)
    if abs(gap) > 1e-9 * seconds:
        said = getattr(layout, "GAP" if gap > 0 else "HIDDEN", "overlap of requests")
        found.append(Row(phase.name, layout.WAITS, said, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
    return found
