"""Designs one step away from a design, and the outcomes of designs: the material of explanations.

A step is the next value of a knob in its space; of an interval a tenth up or down, within its ends; of a word each other word.
A design that is not in a study has a space of its own: the free settings of its chip, and those of its mapping.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

from dse.config.metric_expressions import (
    DefinedMetrics,
    extend_with_derived_metrics,
    input_metrics,
)
from dse.evaluators import evaluate
from dse.evaluators.accounting.metrics import METRICS, Direction
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import FIDELITIES, fidelities, is_simulated
from dse.execution.study import MetricConstraint
from dse.explanations.kept_answers import NOTHING_KEPT, KeptAnswers
from dse.space.design import Design, design_key, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import leaf_at
from dse.space.knobs import ChoiceKnob, Value
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace
from dse.space.neighbourhood import Neighbour, adjacent_values
from dse.space.units import format_quantity
from dse.space.workload import Workload

FAR_FACTOR = 10.0
"""Relative excess over a constraint from which on its value says more than the excess."""

FIRST_BATCH = 256
"""Designs that the analytical model evaluates together first; of the next ones as many as there is time for."""

FEW_AT_ONCE, MOST_AT_ONCE = 64, 4096
"""The same of loads in the steady state, at least and at most: calls for each structure take most of it, as many for few
designs as for many, so that as many come at once as there is time for."""

DESIGNS_PER_S = 40
"""Designs of these that come first, for each second that there is: 800 around a front of mesh_llm took 22 s of CPU."""

GROWTH = 8
"""Times as many of these at most as came before: what the first have taken is little to go by."""


Answer = dict[str, Any]
"""What evaluating a design gives, as it is kept: fields of `DesignOutcome` that no goal changes."""

NO_ANSWER: Answer = {"metrics": {}, "limit": "", "need": 0.0, "have": 0.0, "refused": ""}


@dataclass(frozen=True)
class StudyGoal:
    """Workload, fidelity, objectives and constraints by which designs are compared.

    Attributes:
        objectives: metrics with their directions, max or min.
        bounds: constraints on metrics.
        metrics: requested ones that take extra work; None for all.
        defined: metrics that are made of others.
    """

    workload: Workload
    objectives: Mapping[str, Direction]
    bounds: tuple[MetricConstraint, ...]
    fidelity: str
    metrics: tuple[str, ...] | None = None
    defined: DefinedMetrics = field(default_factory=dict)

    def gain(self, name: str, old: float, new: float) -> float:
        """Relative improvement of an objective; below 0 if it is worse, NaN if undefined. [-]"""
        if old == new:
            return 0.0
        if not (old > 0 and new > 0):
            return float("nan")
        return new / old - 1 if self.objectives[name] == "max" else old / new - 1


@dataclass(frozen=True, slots=True)
class DesignOutcome:
    """Metrics of one evaluated design, or the limit and constraints that it violates.

    Attributes:
        metrics: by name, in SI; those that it has.
        limit, need, have: the limit that it breaks most, "" for none, in the limit's unit.
        broken: constraints that it does not keep, as they are written, with the excess relative to them.
        refused: why it does not support the workload; empty string if it does.
    """

    metrics: Mapping[str, float]
    limit: str = ""
    need: float = 0.0
    have: float = 0.0
    broken: tuple[tuple[str, float], ...] = ()
    refused: str = ""

    @property
    def feasible(self) -> bool:
        """Whether every limit and constraint holds."""
        return not (self.limit or self.broken or self.refused)

    @property
    def excess(self) -> float:
        """Largest relative excess over a limit or a constraint; 0 if all hold. [-]"""
        over = [self.need / self.have - 1 if self.have else inf] if self.limit else []
        return max([*over, *(excess for _, excess in self.broken)], default=inf if self.refused else 0.0)

    @property
    def violations_text(self) -> str:
        """Violated limit and constraints as text; empty string if it is feasible."""
        limit = []
        if self.limit:
            unit = SILICON_LIMITS[self.limit]
            limit = [f"needs {format_quantity(self.need, unit)} of {self.limit}, has {format_quantity(self.have, unit)}"]
        return "; ".join([*limit, *(self._violation_text(*bound) for bound in self.broken), *filter(None, [self.refused])])

    def _violation_text(self, text: str, excess: float) -> str:
        """In words, by how much a constraint is broken: relative to it, or what is there where that is next to nothing."""
        name = text.partition(" ")[0]
        if excess < FAR_FACTOR or name not in self.metrics:
            return f"violates {text} by {excess:.2%}"
        return f"violates {text}, is {format_quantity(self.metrics[name], METRICS[name].unit)}"


def evaluate_points(
    designs: Sequence[Design],
    goal: StudyGoal,
    *,
    seconds: float = inf,
    kept: KeptAnswers = NOTHING_KEPT,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[DesignOutcome | None]:
    """Outcomes of designs; equal designs are evaluated once.

    Args:
        designs: all of scalars.
        goal: the workload, the fidelity, objectives and constraints.
        seconds: after which no more are evaluated.
        kept: where outcomes may be known already, and where new ones go.
        progress: called with the number of designs that are done, and of all.

    Returns:
        One a design, in order; None of those that there was no time for.
    """
    different = list(dict.fromkeys(designs))
    outcomes = find_known_outcomes(different, goal, kept)
    waiting = [design for design in different if design not in outcomes]
    end = time.monotonic() + seconds
    steady, start, known = goal.fidelity == FIDELITIES[0], 0, len(outcomes)
    few = MOST_AT_ONCE if seconds == inf else min(max(int(DESIGNS_PER_S * seconds), FEW_AT_ONCE), MOST_AT_ONCE)
    alone = bool(waiting) and is_evaluated_alone(waiting[0], goal)
    size = 1 if alone else few if steady else FIRST_BATCH
    progress(known, len(different))
    while start < len(waiting) and (began := time.monotonic()) <= end:
        batch = waiting[start : start + size]
        answers = _evaluate_answers(batch, goal)
        keep_outcomes(batch, answers, goal, kept)
        outcomes.update((design, judge_answer(answer, goal)) for design, answer in zip(batch, answers, strict=True))
        start += size
        size = size if alone else batch_size(size, time.monotonic() - began, end - time.monotonic())
        progress(known + min(start, len(waiting)), len(different))
    return [outcomes.get(design) for design in designs]


def find_known_outcomes(designs: Sequence[Design], goal: StudyGoal, kept: KeptAnswers) -> dict[Design, DesignOutcome]:
    """Outcomes of the designs that are stored, where reading one takes less time than an evaluation."""
    if not kept.place or not designs or not _is_kept(designs[0], goal):
        return {}
    keys = {design: design_key(design) for design in designs}
    answers = kept.find_outcomes(goal.workload, goal.fidelity, list(keys.values()), _evaluated_metrics(goal))
    known = {design: answers[key] for design, key in keys.items() if key in answers}
    return {
        design: judge_answer(answer, goal)
        for design, answer in known.items()
        if not answer.get("limit") or answer["limit"] in SILICON_LIMITS
    }


def keep_outcomes(designs: Sequence[Design], answers: Sequence[Answer], goal: StudyGoal, kept: KeptAnswers) -> None:
    """Keep evaluated designs, where reading one takes less time than an evaluation."""
    if not kept.place or not designs or not _is_kept(designs[0], goal):
        return
    finite = [
        (design, answer)
        for design, answer in zip(designs, answers, strict=True)
        if isfinite(answer["need"]) and isfinite(answer["have"])
    ]
    answers_by_key = {design_key(design): answer for design, answer in finite}
    kept.keep_outcomes(goal.workload, goal.fidelity, answers_by_key, _evaluated_metrics(goal))


def _is_kept(design: Design, goal: StudyGoal) -> bool:
    """Whether outcomes are worth keeping: a formula takes less time than a store."""
    return is_simulated(design, goal.workload, goal.fidelity)


def batch_size(before: int, taken: float, left: float) -> int:
    """Number of steady-state designs in the next batch, from the time of the last one.

    As many as are done in time if each takes as long. More take less time each, so that they mostly are done before.

    Args:
        before: how many came at once.
        taken: by them. [s]
        left: until no more are evaluated. [s]

    >>> batch_size(64, 2.0, 10.0), batch_size(64, 2.0, 100.0), batch_size(64, 2.0, 0.1), batch_size(64, 0.0, 1.0)
    (320, 512, 64, 512)
    """
    most = min(GROWTH * before, MOST_AT_ONCE)
    return max(FEW_AT_ONCE, int(min(most, before * left / taken)) if taken > 0 else most)


def is_evaluated_alone(design: Design, goal: StudyGoal) -> bool:
    """Whether designs are evaluated one by one, since requests or kernels are simulated."""
    return goal.fidelity != FIDELITIES[0] and is_simulated(design, goal.workload, goal.fidelity)


def _evaluate_answers(designs: Sequence[Design], goal: StudyGoal) -> list[Answer]:
    """What evaluating some designs together gives, before objectives and constraints count."""
    try:
        outcomes = evaluate(stack_designs(designs), goal.workload, fidelity=goal.fidelity, metrics=_evaluated_metrics(goal))
    except DesignError as error:
        if len(designs) == 1:
            return [{**NO_ANSWER, "refused": str(error)}]
        middle = len(designs) // 2
        return [answer for part in (designs[:middle], designs[middle:]) for answer in _evaluate_answers(part, goal)]
    answers, words = [], list(SILICON_LIMITS)
    for row in range(len(designs)):
        if refused := outcomes.refused.get(row, ""):
            answers.append({**NO_ANSWER, "refused": refused})
            continue
        metrics = {name: float(column[row]) for name, column in outcomes.columns.items() if isfinite(column[row])}
        code = int(outcomes.limit[row])
        limited = {"limit": words[code], "need": float(outcomes.need[row]), "have": float(outcomes.have[row])}
        answers.append({**NO_ANSWER, "metrics": metrics, **(limited if code >= 0 else {})})
    return answers


def _evaluated_metrics(goal: StudyGoal) -> tuple[str, ...] | None:
    """Metrics to evaluate, in place of those that are derived; None for all."""
    return None if goal.metrics is None else input_metrics(goal.metrics, goal.defined)


def judge_answer(answer: Mapping[str, Any], goal: StudyGoal) -> DesignOutcome:
    """Outcome of an evaluated design, with derived metrics and the constraints that it violates."""
    answer = {**NO_ANSWER, **answer}
    metrics = extend_with_derived_metrics(answer["metrics"], goal.defined)
    broken = tuple(
        (str(bound), excess)
        for bound in goal.bounds
        if bound.metric in metrics and (excess := float(bound.excess(metrics[bound.metric]))) > 0
    )
    return DesignOutcome(metrics, answer["limit"], answer["need"], answer["have"], broken, answer["refused"])


def list_neighbours(space: AnySpace, values: Mapping[str, Value]) -> list[Neighbour]:
    """Every design one step of one active knob away from the design at some knob values."""
    neighbours = []
    for knob in space.knobs:
        if knob.address not in values or not space.active(knob.address, values):
            continue
        old = values[knob.address]
        for new in adjacent_values(knob, old):
            new = new if isinstance(new, str) else space.number(knob, new)
            moved = _complete_values(space, space.canonical({**values, knob.address: new}))
            neighbours.append(Neighbour(knob.address, old, new, space.design_at(moved)))
    return neighbours


def _complete_values(space: AnySpace, values: dict[str, Value]) -> dict[str, Value]:
    """Values, and of knobs that count only with these the first one where their base's is none of theirs."""
    for knob in space.knobs:
        if knob.address in values or not space.active(knob.address, values):
            continue
        known = leaf_at(space.design_at(values), space.targets[knob.address][0])
        if known not in knob.values if isinstance(knob, ChoiceKnob) else not knob.low <= known <= knob.high:
            values = {**values, knob.address: knob.values[0] if isinstance(knob, ChoiceKnob) else knob.low}
    return values


def format_knob_value(space: AnySpace, address: str, value: Value) -> str:
    """A knob's value with its unit, as text."""
    if isinstance(value, str) or address == CHIP_KNOB:
        return str(value)
    return format_quantity(float(value), space.spec(address).metadata["unit"] or "1")


def analytical_goal(goal: StudyGoal, base: Design) -> StudyGoal:
    """The goal at the lowest fidelity of a kind of chip, with the metrics of the goal only."""
    known = fidelities(base, goal.workload)
    return replace(goal, fidelity=known[0] if known else goal.fidelity, metrics=judged_metrics(goal))


def judged_metrics(goal: StudyGoal) -> tuple[str, ...]:
    """Metrics of the goal: objectives, then those of constraints."""
    return tuple(dict.fromkeys((*goal.objectives, *(bound.metric for bound in goal.bounds))))
