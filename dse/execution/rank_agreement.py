"""Rank agreement of two fidelities: on the front, off it and overall, and whether it is decided."""

from dataclasses import dataclass

import numpy as np

from dse.space.array_math import Array

CONFIDENCE = 1.959964
"""Standard deviations either side of 95 % of a normal distribution."""

MIN_DESIGNS = 5
"""Designs from which on there is an interval."""


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """Rank correlation of two fidelities over some designs, with its interval.

    Attributes:
        designs: that have the metric at both fidelities.
        tau: Kendall's tau-b; None where fewer than three designs, or all alike, leave nothing to rank.
        low, high: its 95 % interval; None where designs are few.
    """

    designs: int
    tau: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Rank agreement of two fidelities by one objective.

    Attributes:
        front, off, overall: designs on the study's front, those drawn from all over the others, and all that were evaluated.
        row: of the design that moves by most places overall, in the study's frame; -1 where none moves.
        before, after: its places, from 1.
        pairs, decided: neighbours on the front at the lower fidelity, and those that both fidelities order alike, each by
            more than the spread of shifts.
        spread: standard deviation of the relative shift between fidelities, over all designs.
    """

    metric: str
    front: RankCorrelation
    off: RankCorrelation
    overall: RankCorrelation
    row: int
    before: int
    after: int
    pairs: int
    decided: int
    spread: float


def rank_correlation(low: Array, high: Array) -> RankCorrelation:
    """Rank correlation of two fidelities, with its interval. [-]

    The interval is that of Fisher's z of a rank correlation, whose variance is about 0.437 / (n - 4) for Kendall's tau
    ([fieller1957], for ranks of normal deviates), whatever the scale at either fidelity. As tau is of n (n - 1) / 2 pairs, a
    tau of 1 is taken as one in which half a pair could be the other way round.

    Args:
        low, high: values of a metric at both fidelities, shape (designs,).

    >>> rank_correlation(np.arange(20.0), np.arange(20.0) ** 2).tau
    1.0
    """
    from scipy.stats import kendalltau

    count = len(low)
    if count < 3 or not np.ptp(low) or not np.ptp(high):
        return RankCorrelation(count, None, None, None)
    tau = float(kendalltau(low, high).statistic)
    if count < MIN_DESIGNS:
        return RankCorrelation(count, tau, None, None)
    most = 1 - 2 / (count * (count - 1))
    middle, half = np.arctanh(np.clip(tau, -most, most)), CONFIDENCE * np.sqrt(0.437 / (count - 4))
    ends = np.tanh([middle - half, middle + half])
    return RankCorrelation(count, tau, min(float(ends[0]), tau), max(float(ends[1]), tau))


def rank_agreement(metric: str, low: Array, high: Array, rows: Array, front: Array, off: Array) -> RankAgreement:
    """Rank agreement of two fidelities by one objective.

    Args:
        metric: its name.
        low, high: its values, rounded to digits that count; shape (designs,), finite and not 0.
        rows: in the study's frame, shape (designs,).
        front, off: masks of designs on the front and of those drawn off it, shape (designs,).
    """
    front_rank, aside, overall = (
        rank_correlation(low[mask], high[mask]) for mask in (front, off, np.ones(len(low), dtype=bool))
    )
    before, after = _rank_places(low), _rank_places(high)
    moved = np.abs(after - before)
    worst = int(moved.argmax()) if len(moved) and moved.any() else -1
    shift = np.log(np.abs(high / low))
    spread = float(np.std(shift)) if len(shift) > 1 else 0.0
    order = np.flatnonzero(front)[np.argsort(low[front], kind="stable")]
    below, above = np.diff(np.log(np.abs(low[order]))), np.diff(np.log(np.abs(high[order])))
    alike = (np.sign(low[order][:-1] - low[order][1:]) == np.sign(high[order][:-1] - high[order][1:])) & (below != 0)
    decided = int((alike & (np.minimum(np.abs(below), np.abs(above)) > spread)).sum())
    row, was, now = (int(rows[worst]), int(before[worst]), int(after[worst])) if worst >= 0 else (-1, 0, 0)
    return RankAgreement(metric, front_rank, aside, overall, row, was, now, max(len(order) - 1, 0), decided, spread)


def _rank_places(values: Array) -> Array:
    """Places from 1 in rising order; of equal values the middle one, rounded down."""
    from scipy.stats import rankdata

    return np.asarray(np.floor(rankdata(values)), dtype=int)
