"""Metrics that a study derives from others, as in ``goodput_per_watt: goodput / power``.

Their values are computed from the other metrics when they are read: stores and workers do not know them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import itemgetter
from typing import Any

import numpy as np

from dse.config.unit_arithmetic import MAX_CHARACTERS, UnitExpression, ValueFunction, Values
from dse.config.unit_arithmetic import parse_unit_expression as parsed
from dse.evaluators import evaluate as evaluated
from dse.evaluators.accounting.metrics import COLUMNS, METRICS, Metric
from dse.evaluators.accounting.outcomes import Outcomes
from dse.space.design import Designs
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import FORMER_METRICS, read_metric_text, stored_metric
from dse.space.units import dimension, unit_text
from dse.space.workload import Workload

VALID = "write names of metrics, numbers, + - * / ** and brackets, as in 'goodput / power'"


@dataclass(frozen=True, slots=True)
class MetricExpression:
    """One metric that is derived from other metrics by an expression.

    Attributes:
        text: as it was written.
        inputs: metrics that it is made of, none of which is an expression.
        unit: what comes of theirs.
        worth: its value from theirs, in SI: of numbers, or of arrays of one shape.
    """

    text: str
    inputs: frozenset[str]
    unit: str
    worth: ValueFunction


DefinedMetrics = Mapping[str, MetricExpression]
"""The expressions of a study, by name."""

LABELLED: set[str] = set()
"""Names that stand in `METRICS` for their unit and definition alone: what they are worth is the study's."""


def parse_metric_expressions(config: Mapping[str, Any]) -> dict[str, MetricExpression]:
    """Derived metrics that a configuration defines in ``metrics``.

    More is better unless an objective minimises the metric.

    Raises:
        DesignError: a name that is taken or none, an expression that is none, a metric that there is not, units that do not
            fit, or expressions in a circle.
    """
    texts, objectives = config.get("metrics") or {}, config.get("objectives")
    if not isinstance(texts, Mapping):
        raise DesignError(f"metrics: {texts!r} is not expressions by name, as in metrics={{goodput_per_watt: goodput / power}}")
    known = {str(name): text for name, text in texts.items()}
    expressions = {name: _define_metric(name, known, ()) for name in known}
    for name, expression in expressions.items():
        wanted = objectives.get(name) if isinstance(objectives, Mapping) else None
        LABELLED.add(name)
        METRICS[name] = Metric(expression.unit, "min" if wanted == "min" else "max", f"{expression.text}, each over all cases")
    return expressions


def refuse_conflicting_definitions(several: Sequence[DefinedMetrics]) -> None:
    """Refuse studies of one report that define one metric name differently."""
    seen: dict[str, str] = {}
    for name, expression in (pair for defined in several for pair in defined.items()):
        if seen.setdefault(name, expression.text) != expression.text:
            raise DesignError(
                f"metrics.{name}: {seen[name]!r} in one study and {expression.text!r} in another; rename one of them"
            )


def _define_metric(name: str, texts: Mapping[str, Any], path: tuple[str, ...]) -> MetricExpression:
    if name in path:
        raise DesignError(f"metrics.{name}: depends on itself by {', '.join(path[path.index(name) + 1 :]) or 'itself'}")
    if name in METRICS and name not in LABELLED:
        raise DesignError(f"metrics.{name}: is a metric already; give the expression another name")
    if name in FORMER_METRICS:
        present = FORMER_METRICS[name]
        raise DesignError(f"metrics.{name}: is the former name of {present}; give the expression another name")
    if name in COLUMNS:
        raise DesignError(f"metrics.{name}: tables of designs have a column of that name; give the expression another")
    if not name.isidentifier():
        raise DesignError(f"metrics.{name}: names have letters, digits and _ only")
    text = read_metric_text(texts[name]) if isinstance(texts[name], str) else texts[name]
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise DesignError(f"metrics.{name}: {str(text)[:40]!r} is no expression; {VALID}")
    term = parsed(text, f"metrics.{name}", lambda metric: _named_expression(metric, name, texts, (*path, name)), VALID)
    if not term.inputs:
        raise DesignError(f"metrics.{name}: {text!r} is the same for all designs; {VALID}")
    return MetricExpression(text.strip(), term.inputs, unit_text(term.unit), term.worth)


def _named_expression(metric: str, name: str, texts: Mapping[str, Any], path: tuple[str, ...]) -> UnitExpression:
    if metric in texts:
        inner = _define_metric(metric, texts, path)
        return UnitExpression(dimension(inner.unit), inner.inputs, inner.worth)
    if metric in LABELLED or metric not in METRICS:
        others = [known for known in METRICS if known not in LABELLED]
        raise DesignError(f"metrics.{name}: no metric {metric!r}; {suggest_nearest(metric, [*others, *texts])}")
    if METRICS[metric].words:
        raise DesignError(f"metrics.{name}: {metric} is a verdict ({', '.join(METRICS[metric].words)}), and no number")
    return UnitExpression(dimension(METRICS[metric].unit), frozenset((metric,)), itemgetter(metric))


def derive_metrics(metrics: Values, defined: DefinedMetrics) -> dict[str, Any]:
    """Derived metrics that given metrics suffice for; NaN where they have no value."""
    found_metrics: dict[str, Any] = {}
    for name, expression in defined.items():
        if not expression.inputs <= metrics.keys():
            continue
        values = {name: np.asarray(metrics[name], dtype=float) for name in expression.inputs}
        with np.errstate(all="ignore"):
            worth = np.asarray(expression.worth(values), dtype=float)
        found_metrics[name] = np.where(np.isfinite(worth), worth, np.nan)
    return found_metrics


def extend_with_derived_metrics(metrics: Mapping[str, float], defined: DefinedMetrics) -> Mapping[str, float]:
    """Metrics of one design together with those derived from them."""
    if not defined:
        return metrics
    return {**metrics, **{name: float(value) for name, value in derive_metrics(metrics, defined).items() if isfinite(value)}}


def input_metrics(names: Collection[str], defined: DefinedMetrics) -> tuple[str, ...]:
    """Metrics that some metrics are derived from, in place of the derived ones."""
    metrics: dict[str, None] = {}
    for name in names:
        metrics.update(dict.fromkeys(sorted(defined[name].inputs, key=stored_metric)) if name in defined else {name: None})
    return tuple(metrics)


def evaluate_with_derived(
    designs: Designs,
    workload: Workload,
    defined: DefinedMetrics,
    *,
    fidelity: str = "analytical",
    cases: bool = False,
    metrics: Collection[str] | None = None,
) -> Outcomes:
    """Metrics of designs for a workload, derived ones included; otherwise `dse.evaluators.evaluate`."""
    wanted_metrics = None if metrics is None else input_metrics(metrics, defined)
    outcomes = evaluated(designs, workload, fidelity=fidelity, cases=cases, metrics=wanted_metrics)
    outcomes.columns.update(derive_metrics(outcomes.columns, defined))
    outcomes.cases.update(derive_metrics(outcomes.cases, defined))
    return outcomes
