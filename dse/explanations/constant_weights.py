"""Weight of constants: change of the metrics of one design across the range of each constant.

Each constant is moved alone. Ranges are those of `dse.accuracy.constant_ranges`: constants of papers, standards and data sheets
have none and no weight. Whether a front hangs on them all together is `dse.explanations.robustness`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

import numpy as np

from dse.accuracy.constant_ranges import UncertainConstant
from dse.config.metric_expressions import evaluate_with_derived
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import is_simulated
from dse.explanations.neighbours import StudyGoal
from dse.explanations.robustness import ContestedDesigns, apply_factors
from dse.space.array_math import Array
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError

ROWS_AT_ONCE = 512
"""Designs that are evaluated together, two for each constant."""

OUT_OF_TIME = "no time was left"
"""Why a constant was not moved."""

LEAST_SPREAD = 5e-6
"""Spread of a metric from which on a constant counts as one that moves it."""

Limits = tuple[str, str]
"""Limits that are violated at the low and the high end; empty strings for none."""


@dataclass(frozen=True, slots=True)
class ConstantWeight:
    """Effect of one constant on the metrics of a design, moved alone to both ends of its range.

    Attributes:
        constant: with its range.
        ends: by metric, its value at the low and the high end over that with the constant as it is; of metrics above 0. [-]
        breaks: the limits that the design violates at the two ends and keeps as it is.
    """

    constant: UncertainConstant
    ends: Mapping[str, tuple[float, float]]
    breaks: Limits = ("", "")

    def spread(self, metric: str) -> float:
        """Difference of the largest and least value of a metric in the range, over its value. [-]

        0 if the design does not have the metric.

        >>> constant = UncertainConstant("chip.clock", ("",), "1 GHz", 1e9, "Hz", 0.7, 1.4, "assumed", False)
        >>> round(ConstantWeight(constant, {"tpot": (1.25, 0.9)}).spread("tpot"), 9)
        0.35
        """
        low, high = self.ends.get(metric, (1.0, 1.0))
        return max(low, 1.0, high) - min(low, 1.0, high)

    @property
    def weight(self) -> float:
        """Largest spread over the metrics. [-]"""
        return max((self.spread(metric) for metric in self.ends), default=0.0)

    @property
    def metric(self) -> str:
        """Metric with the largest spread; empty string if nothing moves."""
        return max(self.ends, key=self.spread) if self.moves else ""

    @property
    def moves(self) -> bool:
        """Whether a metric changes, or a limit is violated, within the range."""
        return self.weight >= LEAST_SPREAD or any(self.breaks)

    def elasticity(self, metric: str) -> float:
        """Elasticity of a metric: change of its logarithm over that of the constant. [-]

        From end to end of the range; NaN if the design does not have the metric.
        """
        low, high = self.ends.get(metric, (float("nan"), float("nan")))
        if not (low > 0 and high > 0):
            return float("nan")
        return log(high / low) / log(self.constant.high / self.constant.low)


@dataclass(frozen=True)
class ConstantWeights:
    """Weights of the constants of one design.

    Attributes:
        weights: heaviest first; a constant that makes the design violate a limit comes before all others.
        metrics: of the design as it is, in SI.
        limit: that the design violates as it is; empty string for none.
        left: constants that were not moved, each with the reason.
        fidelity: of the evaluations.
    """

    weights: tuple[ConstantWeight, ...]
    metrics: Mapping[str, float]
    limit: str
    left: tuple[tuple[UncertainConstant, str], ...]
    fidelity: str


def weigh_constants(
    design: Design,
    constants: Sequence[UncertainConstant],
    goal: StudyGoal,
    *,
    chip: str = "",
    seconds: float = inf,
    report_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ConstantWeights:
    """Weight of each constant of a design, moved alone to both ends of its range.

    Args:
        design: whose metrics count.
        constants: with their ranges.
        goal: workload, fidelity, and as objectives the metrics that count.
        chip: name of the design's chip, as constants have it; the empty string of a study of one.
        seconds: of CPU time after which no constant is moved; what has begun ends.
        report_progress: takes constants that are done, and of how many.

    Raises:
        DesignError: the design does not support the workload.
    """
    began = time.process_time()
    alone = ContestedDesigns(stack_designs([design]), (chip,), 1)
    ((base, limit),) = _evaluate_rows(alone, constants, np.ones((1, len(constants))), goal)
    step = 1 if is_simulated(design, goal.workload, goal.fidelity) else ROWS_AT_ONCE // 2
    weights: list[ConstantWeight] = []
    left: list[tuple[UncertainConstant, str]] = []
    queue = [constants[start : start + step] for start in range(0, len(constants), step)]
    while queue:
        several = queue.pop(0)
        if time.process_time() - began > seconds:
            left += [(constant, OUT_OF_TIME) for constant in several]
            continue
        try:
            rows = _evaluate_rows(alone, several, _alone_at_ends(several), goal)
        except DesignError as error:  # of one of them an end is no value, as of a power of two
            middle = len(several) // 2
            left += [(several[0], str(error))] if not middle else []
            queue[:0] = [several[:middle], several[middle:]] if middle else []
            continue
        pairs = zip(several, rows[::2], rows[1::2], strict=True)
        weights += [_weight(constant, base, limit, low, high) for constant, low, high in pairs]
        report_progress(len(weights) + len(left), len(constants))
    order = sorted(weights, key=lambda weight: (not any(weight.breaks), -weight.weight))
    known = {name: value for name, value in base.items() if isfinite(value)}
    return ConstantWeights(tuple(order), known, limit, tuple(left), goal.fidelity)


def _alone_at_ends(constants: Sequence[UncertainConstant]) -> Array:
    """Factors with each constant in turn at the low and the high end of its range; shape (2 constants, constants)."""
    factors = np.ones((2 * len(constants), len(constants)))
    places = np.arange(len(constants))
    factors[2 * places, places] = [constant.low for constant in constants]
    factors[2 * places + 1, places] = [constant.high for constant in constants]
    return factors


def _evaluate_rows(
    alone: ContestedDesigns, constants: Sequence[UncertainConstant], factors: Array, goal: StudyGoal
) -> list[tuple[dict[str, float], str]]:
    """Metrics of the goal and the violated limit of one design in each row of factors."""
    outcomes = evaluate_with_derived(
        apply_factors(alone, constants, factors), goal.workload, goal.defined, fidelity=goal.fidelity, metrics=goal.metrics
    )
    names = [name for name in goal.objectives if name in outcomes.columns]
    columns = {name: np.asarray(outcomes.columns[name], dtype=float) for name in names}
    return [
        ({name: float(column[row]) for name, column in columns.items()}, _limit_name(int(outcomes.limit[row])))
        for row in range(len(factors))
    ]


def _weight(
    constant: UncertainConstant,
    base: Mapping[str, float],
    limit: str,
    low: tuple[Mapping[str, float], str],
    high: tuple[Mapping[str, float], str],
) -> ConstantWeight:
    ends = {}
    for name, value in base.items():
        ratios = [side[0].get(name, inf) / value if value > 0 else inf for side in (low, high)]
        if all(map(isfinite, ratios)):
            ends[name] = (ratios[0], ratios[1])
    return ConstantWeight(constant, ends, ("", "") if limit else (low[1], high[1]))


def _limit_name(place: int) -> str:
    return "" if place < 0 else list(SILICON_LIMITS)[place]
