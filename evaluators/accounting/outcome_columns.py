"""Filling of outcomes with metrics and limits, which layouts compute for designs of one structure."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np

from dse.evaluators.accounting.metrics import DERIVED_METRICS, METRICS, CaseOutcomes, add_derived_metrics
from dse.evaluators.accounting.outcomes import SILICON_LIMITS, MetricColumns, Outcomes
from dse.space.array_math import convert_to_slice, maximum
from dse.space.design import Design
from dse.space.lazy_metrics import compute_all, select_metrics
from dse.space.limits import Limit


def fill_outcomes(
    outcomes: Outcomes,
    rows: Any,
    design: Design,
    case_outcomes: list[CaseOutcomes],
    cases: int,
    wanted: Collection[str] | None,
    *,
    weights: tuple[float, ...] = (),
    worst_case: bool = False,
) -> None:
    """Write the metrics and the worst limit of some designs into their rows of outcomes.

    Args:
        outcomes: of all designs; they are changed.
        rows: of these designs, shape (designs,).
        design: leaves may be arrays over designs.
        case_outcomes: metrics and limits of groups of cases.
        cases: of the workload; a metric is combined over them as its kind says.
        wanted: metrics; None for all.
        weights: of cases in means, with sum 1; empty for equal ones.
        worst_case: whether the worst case counts where else the mean does.
    """
    total: dict[str, Any] = {}
    lacking: dict[str, Any] = {}  # share of the cases without a value, as of decode where prefill gives all tokens
    worst: Any = 0.0
    for judged in case_outcomes:
        outcomes.external.update(judged.external)
        inside = np.array([weights[row] for row in judged.rows]) if weights else None
        share = len(judged.rows) / cases if inside is None else float(inside.sum())
        metrics = (
            compute_all(judged.metrics if wanted is None else select_metrics(judged.metrics, wanted)) if judged.metrics else {}
        )
        if wanted is not None:
            outcomes.left.update(judged.metrics.keys() - metrics.keys())
        metrics = add_derived_metrics(metrics, design) if DERIVED_METRICS else metrics
        if isinstance(outcomes.cases, MetricColumns):
            row = np.asarray(judged.rows)[:, None]
            for name, value in metrics.items():
                outcomes.cases.put(name, (row, rows), value)
            for limit in judged.limits:
                outcomes.cases["fits"][row, rows] *= np.asarray(limit.need <= limit.have)
        if cases == 1 and not total:  # as they are
            total.update(metrics)
            metrics = {}
        for name, value in metrics.items():
            over = _worst_of(name) if worst_case and METRICS[name].over == "mean" else METRICS[name].over
            many = len(judged.rows) > 1 and isinstance(value, np.ndarray) and value.ndim == 2
            if over == "mean":
                if (missing := np.isnan(value)).any():
                    lacks = share * (_mean(missing, inside) if many else missing)
                    lacking[name], value = lacking.get(name, 0.0) + lacks, np.where(missing, 0.0, value)
                value = _mean(value, inside) if many else value
                value = value if share == 1 else value * share
                total[name] = total[name] + value if name in total else value
            else:
                farther = (EXTREMES_WITH_VALUE if worst_case else EXTREMES)[over]
                value = farther.reduce(value, axis=0) if many else value
                total[name] = value if name not in total else farther(total[name], value)
        for limit in judged.limits:
            worst = _bind(outcomes, rows, limit, worst)
    for name, lacks in lacking.items():
        total[name] = total[name] / np.where(lacks < 1 - ROUNDING, 1 - lacks, np.nan)
    for judged in case_outcomes:
        if not judged.priced:  # of all cases together there is only what each has
            total = {name: value for name, value in total.items() if name in judged.metrics}
    _put(outcomes.columns, rows, {name: total[name] for name in _ordered(tuple(total), len(METRICS))})


EXTREMES = {"max": np.maximum, "min": np.minimum}
EXTREMES_WITH_VALUE = {"max": np.fmax, "min": np.fmin}
"""The same of cases that have a value."""


def _worst_of(name: str) -> str:
    """Extreme of a metric that is its worst value."""
    return "max" if METRICS[name].better == "min" else "min"


def _mean(value: Any, weights: Any) -> Any:
    """Mean over cases, shape (cases, designs), by their weights; None for equal ones."""
    return value.mean(axis=0) if weights is None else np.average(value, axis=0, weights=weights)


ROUNDING = 1e-9
"""Of the share of cases without a value, what sums may leave of one."""


@lru_cache(maxsize=64)
def _ordered(names: tuple[str, ...], known: int) -> tuple[str, ...]:
    """Names as `METRICS` has them, of which so many are known."""
    return tuple(name for name in METRICS if name in names)


def _put(columns: MetricColumns, rows: Any, total: dict[str, Any]) -> None:
    """Writes metrics of some designs; of the only one, which has numbers, all at once."""
    if columns.shape == (1,) and np.ndarray not in set(map(type, total.values())):
        columns.update(zip(total, np.fromiter(total.values(), float, len(total))[:, None], strict=True))
        return
    selection = convert_to_slice(rows)
    at = ... if isinstance(selection, slice) and (len(rows),) == columns.shape else selection
    for name, value in total.items():
        columns.put(name, at, value)


def _bind(outcomes: Outcomes, rows: Any, limit: Limit, worst: Any) -> Any:
    """Write a limit where its excess is the largest so far; returns the largest excess."""
    need = limit.need.max(axis=0) if isinstance(limit.need, np.ndarray) and limit.need.ndim == 2 else limit.need
    over = need > limit.have
    if not (over.any() if isinstance(over, np.ndarray) else over):
        return worst
    excess = need / maximum(limit.have, 1e-300) - 1  # of some things there are none
    beyond = excess > worst
    if not (beyond.any() if isinstance(beyond, np.ndarray) else beyond):
        return worst
    over = np.broadcast_to(beyond, rows.shape)
    where = rows[over]
    outcomes.limit[where] = list(SILICON_LIMITS).index(limit.address)
    outcomes.need[where] = np.broadcast_to(need, rows.shape)[over]
    outcomes.have[where] = np.broadcast_to(limit.have, rows.shape)[over]
    return maximum(worst, excess)
