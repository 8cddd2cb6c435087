"""Designs of a screen that need no evaluation: their bounds violate a constraint, or are dominated.

Exact: a design is left out only if no value within its bounds would bring it on the front, so that the front is that of a
screen which evaluates every design. A design that is left out because another dominates it may be feasible or not.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dse.execution.study import Study
from dse.search.pareto import convert_to_minimisation, front_mask, nondominated_layers
from dse.space.array_math import Array
from dse.space.knobs import Columns

if TYPE_CHECKING:
    from dse.evaluators.accounting.serving_runs.metric_bounds import MetricBounds

BOUND_MARGIN = 1e-9
"""Share by which a bound has to be beaten: what a bound and an evaluation round differently is less."""

FIRST, MORE = 256, 64
"""Designs that are evaluated until one looks who is beaten, the most promising ones, and how many times as many each time after
that: few take as long as many, where calls of many are not much longer."""

LIMITS, BEATEN = "limits", "front"
"""Why a design is left out, beside the bounds of a study: a limit that needs no price, and a design that is known."""


@dataclass
class RemainingRows:
    """Rows of a block that may be on its front.

    Attributes:
        study: whose objectives and constraints count.
        why: of each row, 0 where it is not left out, else the place of a reason in `reasons` and one; shape (rows,).
        values: objectives at their bounds, as `minimised` has them, shape (rows, objectives).
        known: objectives of designs that keep all limits and that no other of them beats, likewise.
    """

    study: Study
    why: Array
    values: Array
    known: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of_block(cls, study: Study, size: int) -> "RemainingRows":
        """Remaining rows of a block of which nothing is known yet: all of them."""
        return cls(study, np.zeros(size, np.int8), np.full((size, len(study.objectives)), -np.inf))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why designs are left out."""
        return (LIMITS, *map(str, self.study.bounds), BEATEN)

    @property
    def counts(self) -> dict[str, int]:
        """Number of designs left out, by reason; reasons with none are absent."""
        counts = np.bincount(self.why, minlength=len(self.reasons) + 1)[1:].tolist()
        return {name: count for name, count in zip(self.reasons, counts, strict=True) if count}

    def take(self, rows: Array, bounds: tuple[Array, Array]) -> None:
        """Record the bounds of remaining rows, and leave out those that a known design dominates."""
        self.why[rows], self.values[rows] = bounds
        self.drop_dominated(rows[self.why[rows] == 0])

    def learn(self, values: Array) -> None:
        """Add objectives of evaluated feasible designs, shape (designs, objectives), to the known front."""
        every = convert_to_minimisation(values, self.study.directions)
        every = np.concatenate([self.known, every]) if len(self.known) else every
        self.known = every[front_mask(every, ["min"] * every.shape[1])]

    def drop_dominated(self, rows: Array) -> Array:
        """Leave out rows that a known design dominates at any value in bounds; returns the other rows."""
        lost = np.zeros(len(rows), bool)
        mine = self.values[rows]
        for known in self.known:
            lost |= (known <= mine).all(axis=1)
        self.why[rows[lost]] = len(self.reasons)
        return rows[~lost]

    def most_promising(self, rows: Array, most: int) -> Array:
        """Some of these rows, by nondominated layers of their bounds."""
        if len(rows) <= most:
            return rows
        return np.sort(rows[nondominated_layers(self.values[rows], ["min"] * self.values.shape[1], most)])


def bound_rows(study: Study, columns: Columns) -> tuple[Array, Array]:
    """Bounds of designs, and the reason why each is left out, first without and then with times.

    Args:
        study: whose objectives and constraints count.
        columns: knobs of the designs.

    Returns:
        As `Left` has them: of each design why it is left out, and its objectives at their bounds.
    """
    why, values = _metric_bounds_of(study, columns, priced=False)
    left = np.flatnonzero(why == 0)
    for part in study.question.space.parts({a: c[left] for a, c in columns.items()}, len(left)) if len(left) else ():
        rows = left[part]
        why[rows], values[rows] = _metric_bounds_of(study, {a: c[rows] for a, c in columns.items()}, priced=True)
    return why, values


def _metric_bounds_of(study: Study, columns: Columns, *, priced: bool) -> tuple[Array, Array]:
    """The same, `priced` as `optimistic.bounds` has it."""
    from dse.evaluators.accounting.serving_runs import metric_bounds as optimistic
    from dse.evaluators.workloads.serving import instance_module

    question = study.question
    wanted = {*study.objectives, *(bound.metric for bound in study.bounds)}
    metric_bounds = optimistic.metric_bounds(
        instance_module, question.space.stack(columns), question.workload, wanted, priced=priced
    )
    why = metric_bounds.broken.astype(np.int8)
    for place, bound in enumerate(study.bounds):
        side, sign = (metric_bounds.low, -BOUND_MARGIN) if bound.relation == "<=" else (metric_bounds.high, BOUND_MARGIN)
        if bound.metric in side:
            over = bound.excess(side[bound.metric] * (1 + sign)) > 0
            why[over & (why == 0)] = place + 2
    return why, _bounded_objectives(study, metric_bounds)


def _bounded_objectives(study: Study, bounds: "MetricBounds") -> Array:
    """Objectives at their bounds, beyond which by what rounding may differ."""
    sides = [bounds.high if way == "max" else bounds.low for way in study.directions]
    every = np.column_stack([side[name] for name, side in zip(study.objectives, sides, strict=True)])
    every = convert_to_minimisation(every, study.directions)
    return np.asarray(every - BOUND_MARGIN * np.abs(every))
