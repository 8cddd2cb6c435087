"""Explanation of a design: time shares, effect of each knob, cost of constraints, next designs."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from math import inf, log
from typing import Any

import numpy as np
import pandas as pd

from dse.analysis.optimality_gap import OptimalityGap, compute_optimality_gap
from dse.config.setting_effects import NoEffect
from dse.evaluators import explain
from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.evaluation import is_simulated, limits
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.explanations.bound_relaxations import compute_bound_relaxations
from dse.explanations.data_sheet_bases import comparable_outcomes
from dse.explanations.elasticities import KnobEffect, compute_knob_effect, compute_knob_effects
from dse.explanations.kept_answers import GAP, LIMITS, NOTHING_KEPT, TIME, KeptAnswers
from dse.explanations.near_feasible import find_near_feasible_designs
from dse.explanations.neighbours import (
    DesignOutcome,
    StudyGoal,
    analytical_goal,
    evaluate_points,
    judge_answer,
    judged_metrics,
    list_neighbours,
)
from dse.explanations.row_dominance import find_better_rows
from dse.explanations.shadow_prices import (
    MAX_RELAXATION,
    KnownDesign,
    ShadowPrice,
    find_shadow_prices,
    gain_over_beaten,
    gain_over_rivals,
)
from dse.explanations.stored_design import StoredStudyDesign
from dse.space.design import Design, design_key, make_ids
from dse.space.errors import DesignError
from dse.space.knobs import Value
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace
from dse.space.neighbourhood import Neighbour
from dse.space.workload import Workload

COST_METRICS = ("system_price", "system_mm2", "die_mm2", "cores")
"""What cheaper means: the first of these that both designs have."""

SPEED_METRICS = ("tpot", "latency", "ttft", "throughput", "achieved_bandwidth")
"""What slower means, where no objective is a time or a rate: the first of these that both designs have."""

TIMES = ("s", "cycle")
RATES = ("token/s", "Hz", "B/s", "op/s")

BUDGET_S = 120.0
"""What the steps of a named design may take at its own fidelity; knobs that are left then are named."""

GAP_BUDGET_S = 10.0
"""What the choices of an optimality gap may take after the first; those that are left then are counted. [CPU s]"""

FRONT_BUDGET_S = 20.0
"""What the steps of a whole front may take, by the closed form."""

APART = 0.01
"""Relative difference from which on a design is cheaper or slower than another."""


@dataclass(frozen=True, slots=True)
class NearestDesign:
    """A design next to another one: cheaper and slower, or more expensive and faster.

    Attributes:
        name: id of the design in its study; "" of a step away.
        knobs: that differ, from which value to which.
        cost, pace: the metrics that are compared, with the values of both, in SI.
        point: how it came out.
    """

    name: str
    knobs: Mapping[str, tuple[Value | None, Value | None]]
    cost: tuple[str, float, float]
    pace: tuple[str, float, float]
    point: DesignOutcome


@dataclass(frozen=True)
class Explanation:
    """Explanation of one design.

    Attributes:
        name: of the design: its id in its study, or what was typed.
        space: whose knobs are moved.
        values: of its knobs.
        goal: its workload, objectives, constraints and fidelity.
        point: how it came out.
        shares: of the time that something is done, by what it is spent on, largest first; they add up to one. Empty where
            it cannot be.
        changes: what a step of each knob does, both ways.
        left: knobs for whose steps there was no time.
        prices: gain from relaxing each constraint or limit: the smallest relaxation that admits a known design which
            beats this one.
        cheaper: the nearest design that is cheaper and slower; None where none is known.
        faster: the nearest that is more expensive and faster.
        known: in words, among which designs the last three were looked for.
        without_effect: settings that were typed and have no effect.
        beaten_by: ids of the designs of the study's front that beat it; None where there is no study.
        limits: for each limit the share of it that is used, fullest first. [-]
        bounds: effect of each SLO bound a tenth looser, of those that change something.
        kept: where answers may be known already.
    """

    name: str
    space: AnySpace
    values: Mapping[str, Value]
    design: Design
    goal: StudyGoal
    point: DesignOutcome
    shares: Mapping[str, float]
    changes: tuple[KnobEffect, ...]
    left: tuple[str, ...]
    prices: tuple[ShadowPrice, ...]
    cheaper: NearestDesign | None
    faster: NearestDesign | None
    known: str
    without_effect: tuple[NoEffect, ...] = ()
    beaten_by: tuple[str, ...] | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    bounds: tuple[KnobEffect, ...] = ()
    kept: KeptAnswers = NOTHING_KEPT

    @cached_property
    def certificate(self) -> OptimalityGap | None:
        """Optimality gap of the auto-tuned settings; None if nothing was open or a limit is violated."""
        goal, workload = self.goal, self.goal.workload
        if not self.shares or SUBMESH_MARK in goal.fidelity:
            return None
        answer = _find_or_compute(
            GAP, self.design, goal, self.kept, lambda: _optimality_gap_answer(self.design, workload, goal.fidelity)
        )
        return OptimalityGap(**{**answer, "left": tuple(answer["left"])}) if answer else None

    def margins(self) -> dict[str, float]:
        """By constraint that holds, the relative distance to it, smallest first. [-]"""
        known = [bound for bound in self.goal.bounds if bound.metric in self.point.metrics and bound.value]
        margins = {str(bound): -float(bound.excess(self.point.metrics[bound.metric])) for bound in known}
        return {text: margin for text, margin in sorted(margins.items(), key=lambda pair: pair[1]) if margin >= 0}

    @property
    def id(self) -> str:
        """Id of the design in its study, with more digits if other ids begin alike."""
        own = design_key(self.design)
        return self.name if own.startswith(self.name) else make_ids([own])[0]

    @property
    def idle(self) -> list[str]:
        """Knobs of which no step changes an objective or violates a limit."""
        moved = dict.fromkeys(change.step.knob for change in self.changes)
        return [knob for knob in moved if all(change.is_nothing for change in self.changes if change.step.knob == knob)]


def _find_or_compute(question: str, design: Design, goal: StudyGoal, kept: KeptAnswers, compute: Callable[[], Any]) -> Any:
    """The kept answer to a question on a design, or a new one, which is kept where it took a simulation."""
    if not kept.place or not is_simulated(design, goal.workload, goal.fidelity):
        return compute()
    key = design_key(design)
    answer = kept.find(question, goal.workload, goal.fidelity, key)
    if answer is None:
        answer = compute()
        kept.keep(question, goal.workload, goal.fidelity, key, answer)
    return answer


def _optimality_gap_answer(design: Design, workload: Workload, fidelity: str) -> dict[str, Any]:
    """Fields of an optimality gap; none where there is no gap."""
    seconds = explain(design, workload.cases[0], decode_context=workload.decode_context, fidelity=fidelity).seconds
    gap = compute_optimality_gap(design, workload, seconds, budget=GAP_BUDGET_S)
    return asdict(gap) if gap is not None else {}


def time_shares(design: Design, goal: StudyGoal, kept: KeptAnswers = NOTHING_KEPT) -> dict[str, float]:
    """Shares of time by bottleneck over all cases, largest first; they add up to 1. [-]

    Cases count as metrics do: the mean of each share's seconds. Empty if nothing can be simulated.
    """
    return average_shares(_find_or_compute(TIME, design, goal, kept, lambda: _seconds_of_cases(design, goal)))


def _seconds_of_cases(design: Design, goal: StudyGoal) -> list[dict[str, float]]:
    """Seconds by cause in each case."""
    decode_context, fidelity = goal.workload.decode_context, goal.fidelity
    return [
        dict(explain(design, case, decode_context=decode_context, fidelity=fidelity).seconds_by_cause())
        for case in goal.workload.cases
    ]


def used_limits(design: Design, goal: StudyGoal, kept: KeptAnswers = NOTHING_KEPT) -> dict[str, float]:
    """Share of each limit that a design uses, fullest first. [-]"""
    shares: dict[str, float] = {}

    def compute() -> dict[str, float]:
        for limit in limits(design, goal.workload):
            need, have = float(np.max(limit.need)), float(np.min(limit.have))
            if have > 0 and need > 0:
                shares[limit.address] = max(need / have, shares.get(limit.address, 0.0))
        return shares

    answer = _find_or_compute(LIMITS, design, goal, kept, compute)
    return dict(sorted(answer.items(), key=lambda pair: -pair[1]))


def average_shares(binding: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Shares of time by bottleneck over several cases, largest first; they add up to 1. [-]"""
    sums: dict[str, float] = {}
    for parts in binding:
        for name, seconds in parts.items():
            sums[name] = sums.get(name, 0.0) + seconds
    total = sum(sums.values())
    return (
        {name: seconds / total for name, seconds in sorted(sums.items(), key=lambda pair: -pair[1]) if seconds} if total else {}
    )


Watch = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Shows how far something is: takes what is under way, and gives what takes designs done and of how many."""

Show = Callable[[str, Explanation], None]
"""Takes a stage of `STAGES`, and what is known of the explanation by then."""

STAGES = ("known", "time", "steps", "chips", "constraints")
"""Stages of an explanation: what is stored, where time goes, steps of knobs, of the chip, and what constraints cost."""


def show_nothing(stage: str, explanation: Explanation) -> None:
    """Wait for the whole explanation."""


def watch_nothing(what: str) -> AbstractContextManager[Callable[[int, int], None]]:
    """Ignore progress: show nothing."""
    return nullcontext(lambda done, total: None)


def explain_stored_design(
    study: Study,
    frame: pd.DataFrame,
    design: StoredStudyDesign,
    screened: ScreenResult | None = None,
    *,
    seconds: float = BUDGET_S,
    show: Show = show_nothing,
    watch: Watch = watch_nothing,
) -> Explanation:
    """Explain a design of a study, at the study's fidelity.

    Args:
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        design: of the study, as `dse.explanations.stored_design.find_stored_design` finds it.
        screened: what its screen looked at; with it all of that is looked through for what constraints cost.
        seconds: what its steps may take.
        show: takes each stage as soon as it is known.
        watch: shows progress.
    """
    rows = report_order(study, frame)
    values, space, goal = design.values, study.question.space, study_goal(study)
    near = [front_outcome for front_outcome in list_front_outcomes(study, rows) if front_outcome[0] != design.id]
    return explain_named(
        design.id,
        space,
        values,
        space.design_at(values),
        goal,
        list_neighbours(space, values),
        outcome=outcome_of_row(goal, rows, design.id),
        front=near,
        stored=lambda outcome: find_near_feasible_designs(study, rows, screened, [outcome], MAX_RELAXATION),
        rows=rows,
        seconds=seconds,
        kept=KeptAnswers(study.store),
        show=show,
        watch=watch,
    )


def outcome_of_row(goal: StudyGoal, rows: pd.DataFrame, name: str) -> DesignOutcome | None:
    """Outcome of a stored design with all its metrics; None if its row does not say it.

    A row lacks the need of a violated limit, and the metrics of a failed evaluation.
    """
    matches = rows[(rows[DESIGN] == name).to_numpy() & rows["limit"].isna().to_numpy() & rows["error"].isna().to_numpy()]
    if not len(matches):
        return None
    row = matches.iloc[0]
    metrics = {metric: float(row[metric]) for metric in METRICS if metric in matches and np.isfinite(float(row[metric]))}
    complete = all(metric in metrics or metric in goal.defined for metric in judged_metrics(goal))
    return judge_answer({"metrics": metrics}, goal) if complete else None


def _no_designs(outcome: DesignOutcome) -> Sequence[KnownDesign]:
    """No stored designs."""
    return ()


def explain_named(
    name: str,
    space: AnySpace,
    values: Mapping[str, Value],
    design: Design,
    goal: StudyGoal,
    away: Sequence[Neighbour],
    *,
    outcome: DesignOutcome | None = None,
    front: Sequence[tuple[str, Mapping[str, Value], DesignOutcome]] = (),
    stored: Callable[[DesignOutcome], Sequence[KnownDesign]] = _no_designs,
    rows: pd.DataFrame | None = None,
    seconds: float = BUDGET_S,
    kept: KeptAnswers = NOTHING_KEPT,
    show: Show = show_nothing,
    watch: Watch = watch_nothing,
) -> Explanation:
    """Explain a design by its neighbours, and by the designs of a study if there is one.

    Args:
        name: for people.
        space: whose knobs are moved.
        values: of its knobs.
        design: built.
        goal: at whose fidelity it and its steps are evaluated.
        away: the designs one step away.
        outcome: how it comes out; None where that is not known.
        front: names, knob values and metrics of designs among which the next ones are looked for; without any, those one step
            away.
        stored: designs that are known beside those one step away, and could beat the one asked about.
        rows: of the study, in the order of the report; None where there is no study.
        seconds: what the steps may take.
        kept: where answers may be known already, and where new ones go.
        show: takes each stage as soon as it is known.
        watch: shows progress.

    Raises:
        DesignError: the design does not support the workload.
    """
    if outcome is None:
        (outcome,) = evaluate_points([design], goal, kept=kept)
    assert outcome is not None
    if outcome.refused:
        raise DesignError(outcome.refused)
    beaten_by = None
    if rows is not None:
        better = find_better_rows(goal, outcome, rows) & rows["front"].to_numpy(dtype=bool)
        beaten_by = tuple(map(str, rows[DESIGN][better]))
    why = Explanation(
        name, space, values, design, goal, outcome, {}, (), (), (), None, None, "", beaten_by=beaten_by, kept=kept
    )
    show("known", why)
    if not outcome.limit:
        why = replace(why, shares=time_shares(design, goal, kept), limits=used_limits(design, goal, kept))
    show("time", why)
    end, points = time.monotonic() + seconds, dict[Neighbour, DesignOutcome | None]()
    # cheaper and faster designs are looked for by other metrics, in a study among those of the front
    steps_goal = replace(goal, metrics=judged_metrics(goal)) if front else goal
    own = [step for step in away if step.knob != CHIP_KNOB]
    # designs of one chip share much of what is computed; another chip shares nothing, and may take the longest
    for stage, batches in (("steps", [own]), ("chips", [[step] for step in away if step.knob == CHIP_KNOB])):
        if any(batches):
            with watch(stage) as progress:
                for number, batch in enumerate(batches):
                    left = end - time.monotonic()
                    outcomes = evaluate_points(
                        [step.design for step in batch],
                        steps_goal,
                        seconds=left,
                        kept=kept,
                        progress=progress if len(batches) == 1 else lambda done, total: None,
                    )
                    points.update(zip(batch, outcomes, strict=True))
                    if len(batches) > 1:
                        progress(number + 1, len(batches))
        reached = {step: point for step, point in points.items() if point is not None}
        bases = comparable_outcomes(design, outcome, [step for step in away if step in reached], steps_goal, kept)
        changes = [
            replace(compute_knob_effect(step, base, reached[step], goal), base=base, modelled=facts)
            for step, (base, facts) in bases.items()
        ]
        missing = dict.fromkeys(step.knob for step in away if step in points and points[step] is None)
        why = replace(why, changes=tuple(changes), left=tuple(missing))
        show(stage, why)
    why = _with_prices(why, front, stored, end - time.monotonic())
    show("constraints", why)
    return why


def _with_prices(
    why: Explanation,
    front: Sequence[tuple[str, Mapping[str, Value], DesignOutcome]],
    stored: Callable[[DesignOutcome], Sequence[KnownDesign]],
    seconds: float,
) -> Explanation:
    """An explanation with what constraints and bounds cost, and with the next designs, from the steps that it has."""
    goal, outcome = why.goal, why.point
    beside = [
        KnownDesign({**why.values, step.step.knob: step.step.new}, partial(_same_design, step.step.design), step.point)
        for step in why.changes
    ]
    others = [(*design, outcome) for design in front] or [
        ("", design.at, design.point, change.base or outcome)
        for design, change in zip(beside, why.changes, strict=True)
        if design.point.feasible
    ]
    cheaper, faster = find_nearest_cheaper_and_faster(goal, why.values, others)
    known = f"{'the study and ' if stored is not _no_designs else ''}{len(beside):,} designs one step away"
    if not outcome.feasible:
        return replace(why, cheaper=cheaper, faster=faster, known=known)
    prices = find_shadow_prices(
        goal, [*stored(outcome), *beside], lambda point: gain_over_beaten(goal, point, outcome), together=True
    )
    bounds = compute_bound_relaxations(why.design, goal, outcome, seconds=seconds, kept=why.kept)
    return replace(why, cheaper=cheaper, faster=faster, known=known, prices=tuple(prices), bounds=bounds)


def _same_design(design: Design) -> Design:
    return design


def study_goal(study: Study) -> StudyGoal:
    """Workload, objectives and constraints that a study evaluates designs by."""
    question = study.question
    return StudyGoal(question.workload, study.objectives, study.bounds, study.fidelity, defined=question.defined)


def list_front_outcomes(study: Study, rows: pd.DataFrame) -> list[tuple[str, dict[str, Value], DesignOutcome]]:
    """Front of ordered rows: id, knob values, and the metrics of price and speed."""
    names = [name for name in dict.fromkeys((*study.objectives, *COST_METRICS, *SPEED_METRICS)) if name in rows]
    outcomes = []
    for row in rows[rows["front"]].to_dict("records"):
        metrics = {name: float(row[name]) for name in names if row[name] == row[name]}
        outcomes.append((row[DESIGN], knob_values(study, row), DesignOutcome(metrics)))
    return outcomes


@dataclass(frozen=True)
class FrontMember:
    """One design of a front, with the effects of its knobs.

    Attributes:
        name: its id in the study.
        values: of its knobs.
        point: its objectives, and what it costs.
        changes: effect of a step of each knob with the analytical model, both ways; None where there was no time.
    """

    name: str
    values: Mapping[str, Value]
    point: DesignOutcome
    changes: tuple[KnobEffect, ...] | None


def explain_front(
    study: Study, frame: pd.DataFrame, *, seconds: float = FRONT_BUDGET_S, most: int | None = None
) -> list[FrontMember]:
    """Designs of a study's front in the order of the report, with the effect of each knob.

    Args:
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        seconds: what the steps of all may take.
        most: of them, the first; None for all.
    """
    members = list_front_outcomes(study, report_order(study, frame))[:most]
    rows, crew, kept = [values for _, values, _ in members], study.crew, KeptAnswers(study.store)
    changes = compute_knob_effects(study.question.space, rows, study_goal(study), seconds=seconds, crew=crew, kept=kept)
    return [
        FrontMember(name, values, point, None if change is None else tuple(change))
        for (name, values, point), change in zip(members, changes, strict=True)
    ]


def compute_front_time_shares(
    study: Study,
    members: Sequence[FrontMember],
    *,
    seconds: float = FRONT_BUDGET_S,
    known: Callable[[str, str], Mapping[str, float] | None] = lambda key, by: None,
) -> dict[str, dict[str, float]]:
    """Time shares of front designs by id, with the analytical model; each set adds up to 1. [-]

    Args:
        members: of the front.
        seconds: after which no more designs are broken down; these are left out.
        known: seconds that a design spends in the first case, by its content key and a fidelity; None where nobody has kept
            them.
    """
    space, end, kept = study.question.space, time.monotonic() + seconds, KeptAnswers(study.store)
    goal = analytical_goal(study_goal(study), space.base)
    shares: dict[str, dict[str, float]] = {}
    for member in members:
        if time.monotonic() > end:
            break
        spent = known(space.key_at(member.values), goal.fidelity) if len(goal.workload.cases) == 1 else None
        design = space.design_at(member.values)
        shares[member.name] = time_shares(design, goal, kept) if spent is None else average_shares([spent])
    return shares


def compute_front_shadow_prices(study: Study, frame: pd.DataFrame, screened: ScreenResult | None = None) -> list[ShadowPrice]:
    """Shadow prices of a study: the smallest relaxation of each constraint that moves its front.

    Args:
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        screened: what its screen looked at; with it all of that is looked through.
    """
    goal, rows = study_goal(study), frame[frame["front"]]
    rivals = [DesignOutcome({name: float(row[name]) for name in study.objectives}) for row in rows.to_dict("records")]
    known = find_near_feasible_designs(study, frame, screened, rivals, MAX_RELAXATION) if rivals else []
    return find_shadow_prices(goal, known, lambda point: gain_over_rivals(goal, point, rivals))


def speed_metric(goal: StudyGoal, outcome: DesignOutcome, other: DesignOutcome) -> tuple[str, int] | None:
    """Metric of the speed of designs, with 1 if more of it is slower and -1 if faster."""
    both = [name for name in (*goal.objectives, *SPEED_METRICS) if name in outcome.metrics and name in other.metrics]
    for name in both:
        if METRICS[name].unit in (*TIMES, *RATES):
            return name, 1 if METRICS[name].unit in TIMES else -1
    return None


def find_nearest_cheaper_and_faster(
    goal: StudyGoal,
    values: Mapping[str, Value],
    others: Sequence[tuple[str, Mapping[str, Value], DesignOutcome, DesignOutcome]],
) -> tuple[NearestDesign | None, NearestDesign | None]:
    """Nearest cheaper and slower design, and nearest more expensive and faster one.

    Args:
        goal: whose metrics tell which is faster.
        values: of the knobs of the design asked about.
        others: name, knob values and outcome of each, and the outcome of the design asked about with which it is compared.
    """
    best: dict[int, tuple[float, NearestDesign]] = {}
    for name, at, point, outcome in others:
        pace = speed_metric(goal, outcome, point)
        cost = next((metric for metric in COST_METRICS if metric in outcome.metrics and metric in point.metrics), None)
        if pace is None or cost is None or not point.feasible:
            continue
        if min(point.metrics[cost], outcome.metrics[cost], point.metrics[pace[0]], outcome.metrics[pace[0]]) <= 0:
            continue
        dearer = log(point.metrics[cost] / outcome.metrics[cost])
        slower = pace[1] * log(point.metrics[pace[0]] / outcome.metrics[pace[0]])
        if min(abs(dearer), abs(slower)) < APART or dearer * slower > 0:
            continue
        side, far = 1 if dearer > 0 else -1, abs(dearer) + abs(slower)
        if far < best.get(side, (inf,))[0]:
            pairs = {knob: (values.get(knob), at.get(knob)) for knob in dict.fromkeys((*values, *at))}
            differ = {knob: pair for knob, pair in pairs.items() if pair[0] != pair[1]}
            costs, paces = ((metric, outcome.metrics[metric], point.metrics[metric]) for metric in (cost, pace[0]))
            best[side] = far, NearestDesign(name, differ, costs, paces, point)
    return tuple(best[side][1] if side in best else None for side in (-1, 1))  # type: ignore[return-value]
