"""Elasticity of each objective by each knob, from designs one step away in both directions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Any

from dse.execution.pool.worker_settings import WorkerSettings
from dse.explanations.data_sheet_bases import comparable_outcomes
from dse.explanations.kept_answers import NOTHING_KEPT, KeptAnswers
from dse.explanations.neighbours import DesignOutcome, StudyGoal, analytical_goal, list_neighbours
from dse.explanations.parallel_evaluation import evaluate_in_processes
from dse.space.knobs import Value
from dse.space.multi_chip_space import AnySpace
from dse.space.neighbourhood import Neighbour

SERIAL_CREW = WorkerSettings()
"""Nobody beside this process."""

SAME = 1e-9
"""Relative change of a metric up to which it is the same: what rounding leaves."""


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """Effect of one step of one knob on the objectives.

    Attributes:
        step: the knob, and from which value to which.
        point: how the design a step away comes out.
        change: by objective, new over old less 1; of those that both designs have. [-]
        elasticity: by objective, change of its logarithm over change of the knob's; none of words and of steps from 0. [-]
        base: the outcome that changes are against; None for that of the design itself.
        modelled: facts of the data sheet that the step leaves behind; both sides then have the model's figures.
    """

    step: Neighbour
    point: DesignOutcome
    change: Mapping[str, float]
    elasticity: Mapping[str, float]
    base: DesignOutcome | None = None
    modelled: frozenset[str] = frozenset()

    @property
    def is_nothing(self) -> bool:
        """Whether the step changes no objective and violates no limit or constraint."""
        return self.point.feasible and all(abs(change) <= SAME for change in self.change.values())

    @property
    def largest_change(self) -> float:
        """Largest change of an objective, as the magnitude of its logarithm; 0 if none changes. [-]"""
        return max((abs(log(1 + change)) if change > -1 else inf for change in self.change.values()), default=0.0)


def compute_knob_effect(step: Neighbour, outcome: DesignOutcome, other_outcome: DesignOutcome, goal: StudyGoal) -> KnobEffect:
    """Effect of a step on the objectives of a design.

    Args:
        step: from the design to another.
        here, there: how the two come out.
        goal: whose objectives count.
    """
    known = [name for name in goal.objectives if name in outcome.metrics and name in other_outcome.metrics]
    pairs = {name: _without_rounding(outcome.metrics[name], other_outcome.metrics[name]) for name in known}
    changes = {name: new / old - 1 for name, (old, new) in pairs.items() if old} | {
        name: 0.0 for name, (old, new) in pairs.items() if not old and not new
    }
    by = _positive_ratio(step.old, step.new)
    elastic = {name: log(new / old) / log(by) for name, (old, new) in pairs.items() if by and old > 0 and new > 0}
    return KnobEffect(step, other_outcome, changes, elastic)


def _without_rounding(old: float, new: float) -> tuple[float, float]:
    """Both values, the new one as the old where they differ by rounding alone."""
    return old, old if abs(new - old) <= SAME * abs(old) else new


def _positive_ratio(old: Any, new: Any) -> float | None:
    """New over old of numbers above 0 that differ; None of others."""
    if isinstance(old, str) or isinstance(new, str) or not (old > 0 and new > 0) or old == new:
        return None
    return float(new / old)


def compute_knob_effects(
    space: AnySpace,
    rows: Sequence[Mapping[str, Value]],
    goal: StudyGoal,
    *,
    seconds: float = inf,
    crew: WorkerSettings = SERIAL_CREW,
    kept: KeptAnswers = NOTHING_KEPT,
) -> list[list[KnobEffect] | None]:
    """Effects of every step of every active knob on some designs of a space, at the fidelity `quick`.

    Args:
        space: of which they are.
        rows: the knob values of each design.
        goal: whose objectives and constraints count; its fidelity does not.
        seconds: after which no more designs are evaluated.
        crew: workers who take a share each, where that repays their start.
        kept: where outcomes may be known already, and where new ones go.

    Returns:
        A list a design, in order; None of those that there was no time for.
    """
    wanted_goal = analytical_goal(goal, space.base)
    around = [list_neighbours(space, values) for values in rows]
    designs = [
        design
        for values, steps in zip(rows, around, strict=True)
        for design in (space.design_at(values), *(s.design for s in steps))
    ]
    outcomes, place = evaluate_in_processes(designs, wanted_goal, crew, seconds=seconds, kept=kept), 0
    changes: list[list[KnobEffect] | None] = []
    for steps in around:
        outcome, *other_outcomes = outcomes[place : place + 1 + len(steps)]
        design = designs[place]
        place += 1 + len(steps)
        if outcome is None or None in other_outcomes:
            changes.append(None)
            continue
        bases = comparable_outcomes(design, outcome, steps, wanted_goal, kept)
        changes.append(
            [
                replace(compute_knob_effect(step, bases[step][0], single_outcome, wanted_goal), modelled=bases[step][1])
                for step, single_outcome in zip(steps, other_outcomes, strict=True)
                if single_outcome is not None
            ]
        )
    return changes


def group_effects_by_knob(changes: Sequence[KnobEffect]) -> dict[str, list[KnobEffect]]:
    """Knob effects by knob, in order."""
    effects: dict[str, list[KnobEffect]] = {}
    for change in changes:
        effects.setdefault(change.step.knob, []).append(change)
    return effects
