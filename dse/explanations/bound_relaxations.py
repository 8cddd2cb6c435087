"""Shadow prices of a workload's SLO bounds: a design's metrics with one bound a tenth looser.

At a fixed rate a looser bound changes the share of requests that keep it. With ``workload.rate=max`` the rate itself follows
from the bounds, and with it capacity by area, power and money.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite

from dse.evaluators.accounting.metrics import METRICS
from dse.explanations.elasticities import SAME, KnobEffect, compute_knob_effect
from dse.explanations.kept_answers import NOTHING_KEPT, KeptAnswers
from dse.explanations.neighbours import DesignOutcome, StudyGoal, evaluate_points, judged_metrics
from dse.space.design import Design
from dse.space.neighbourhood import Neighbour
from dse.space.workload import ServingLoad

LOOSER = 0.1
"""How much looser a bound becomes: of a time, that share of it; of a share of requests, that share of those allowed to miss."""


@dataclass(frozen=True, slots=True)
class SloBound:
    """One bound of the loads of a workload.

    Attributes:
        address: the setting.
        unit: of its value; of the percentile, which is in %, the empty string.
        loosen: a load with the bound `LOOSER`.
        read: the value in a load; 0 or infinite if the load has no such bound.
    """

    address: str
    unit: str
    loosen: Callable[[ServingLoad], ServingLoad]
    read: Callable[[ServingLoad], float]


def _loosen_share(load: ServingLoad) -> ServingLoad:
    return replace(load, largest=1 - (1 - load.largest) * (1 + LOOSER))


def _loosen_classes(load: ServingLoad) -> ServingLoad:
    by = 1 + LOOSER
    return replace(load, classes=tuple(replace(kind, ttft=kind.ttft * by, tpot=kind.tpot * by) for kind in load.classes))


SLO_BOUNDS = (
    SloBound(
        "workload.ttft",
        "s",
        lambda load: replace(load, ttft=load.ttft * (1 + LOOSER)),
        lambda load: 0.0 if load.classes else load.ttft,
    ),
    SloBound(
        "workload.tpot",
        "s",
        lambda load: replace(load, tpot=load.tpot * (1 + LOOSER)),
        lambda load: 0.0 if load.classes else load.tpot,
    ),
    SloBound("workload.slo_classes", "s", _loosen_classes, lambda load: load.classes[0].ttft if load.classes else 0.0),
    SloBound("workload.slo_percentile", "", _loosen_share, lambda load: 100 * load.largest if load.largest < 1 else 0.0),
)
"""Bounds by which requests of a load are judged; of classes all together, whose value is the first one's TTFT."""

SLO_UNITS = {bound.address: bound.unit for bound in SLO_BOUNDS}


def judged_goal(goal: StudyGoal) -> StudyGoal:
    """The goal with the metrics of its constraints beside its objectives."""
    extra = {bound.metric: METRICS[bound.metric].better for bound in goal.bounds if bound.metric not in goal.objectives}
    return replace(goal, objectives={**goal.objectives, **extra})


def compute_bound_relaxations(
    design: Design, goal: StudyGoal, outcome: DesignOutcome, *, seconds: float = inf, kept: KeptAnswers = NOTHING_KEPT
) -> tuple[KnobEffect, ...]:
    """Effect of each SLO bound a tenth looser on a design's objectives and constraint metrics.

    Args:
        design: of scalars.
        goal: whose workload has the bounds.
        outcome: how the design comes out.
        seconds: after which no more bounds are loosened.
        kept: where outcomes may be known already, and where new ones go.

    Returns:
        Those that change something, as steps whose knob is the setting.
    """
    loads = [case for case in goal.workload.cases if isinstance(case, ServingLoad)]
    if not loads or not outcome.metrics:
        return ()
    effects = []
    for bound in SLO_BOUNDS:
        old = bound.read(loads[0])
        if not old or not isfinite(old):
            continue
        cases = tuple(bound.loosen(case) if isinstance(case, ServingLoad) else case for case in goal.workload.cases)
        looser = replace(goal, metrics=judged_metrics(goal), workload=replace(goal.workload, cases=cases))
        new = bound.read(next(case for case in cases if isinstance(case, ServingLoad)))
        (point,) = evaluate_points([design], looser, seconds=seconds, kept=kept)
        if point is not None:
            effects.append(compute_knob_effect(Neighbour(bound.address, old, new, design), outcome, point, judged_goal(goal)))
    return tuple(effect for effect in effects if any(abs(change) > SAME for change in effect.change.values()))
