"""Metrics that a study makes of others, as in ``goodput_per_watt: goodput / power``: numbers, + - * / **, and names.

What they are worth is worked out from the other metrics when these are read: stores and workers know nothing of them.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from dse.evaluators import evaluate as evaluated
from dse.evaluators.account.metrics import METRICS, Metric, Outcomes
from dse.space.design import Designs
from dse.space.errors import DesignError, nearest
from dse.space.units import dimension, factor, told
from dse.space.workload import Workload

LONGEST = 500
"""Letters of an expression."""

Values = Mapping[str, Any]
Worth = Callable[[Values], Any]

ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

VALID = "write names of metrics, numbers, + - * / ** and brackets, as in 'goodput / power'"


@dataclass(frozen=True, slots=True)
class Expression:
    """A metric made of others.

    Attributes:
        text: as it was written.
        inputs: metrics that it is made of, none of which is an expression.
        unit: what comes of theirs.
        worth: its value from theirs, in SI: of numbers, or of arrays of one shape.
    """

    text: str
    inputs: frozenset[str]
    unit: str
    worth: Worth


@dataclass(frozen=True, slots=True)
class _Term:
    """A part of an expression: its unit as pint has it, what it is made of, and its value."""

    unit: Any
    inputs: frozenset[str]
    worth: Worth
    number: float | None = None


Defined = Mapping[str, Expression]
"""The expressions of a study, by name."""

LABELLED: set[str] = set()
"""Names that stand in `METRICS` for their unit and definition alone: what they are worth is the study's."""


def define(config: Mapping[str, Any]) -> dict[str, Expression]:
    """The metrics that a configuration defines in ``metrics``; more is better unless an objective says otherwise.

    Raises:
        DesignError: a name that is taken or none, an expression that is none, a metric that there is not, units that do not
            fit, or expressions in a circle.
    """
    texts, objectives = config.get("metrics") or {}, config.get("objectives")
    if not isinstance(texts, Mapping):
        raise DesignError(f"metrics: {texts!r} is not expressions by name, as in metrics={{goodput_per_watt: goodput / power}}")
    known = {str(name): text for name, text in texts.items()}
    found = {name: _defined(name, known, ()) for name in known}
    for name, expression in found.items():
        wanted = objectives.get(name) if isinstance(objectives, Mapping) else None
        LABELLED.add(name)
        METRICS[name] = Metric(expression.unit, "min" if wanted == "min" else "max", f"{expression.text}, each over all cases")
    return found


def refuse_unlike(several: Sequence[Defined]) -> None:
    """Raises where studies that are shown together mean different things by one name."""
    seen: dict[str, str] = {}
    for name, expression in (pair for defined in several for pair in defined.items()):
        if seen.setdefault(name, expression.text) != expression.text:
            raise DesignError(
                f"metrics.{name}: {seen[name]!r} in one study and {expression.text!r} in another; rename one of them"
            )


def _defined(name: str, texts: Mapping[str, Any], path: tuple[str, ...]) -> Expression:
    if name in path:
        raise DesignError(f"metrics.{name}: comes back to itself by {', '.join(path[path.index(name) + 1 :]) or 'itself'}")
    if name in METRICS and name not in LABELLED:
        raise DesignError(f"metrics.{name}: is a metric already; give the expression another name")
    if not name.isidentifier():
        raise DesignError(f"metrics.{name}: names have letters, digits and _ only")
    text = texts[name]
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or len(text) > LONGEST:
        raise DesignError(f"metrics.{name}: {str(text)[:40]!r} is no expression; {VALID}")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's own, of what is refused below
            tree = ast.parse(text.strip(), mode="eval").body
        term = _term(tree, name, texts, (*path, name))
    except DesignError:
        raise
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        raise DesignError(f"metrics.{name}: {text!r} is no expression; {VALID}") from None
    if not term.inputs:
        raise DesignError(f"metrics.{name}: {text!r} is the same for all designs; {VALID}")
    return Expression(text.strip(), term.inputs, told(term.unit), term.worth)


def _term(node: ast.expr, name: str, texts: Mapping[str, Any], path: tuple[str, ...]) -> _Term:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        number = float(node.value)
        return _Term(dimension("1"), frozenset(), lambda values: number, number)
    if isinstance(node, ast.Name):
        return _named(node.id, name, texts, path)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _term(node.operand, name, texts, path)
        return _Term(
            inner.unit, inner.inputs, lambda values: -inner.worth(values), None if inner.number is None else -inner.number
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(_term(node.left, name, texts, path), _term(node.right, name, texts, path), name)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = (_term(side, name, texts, path) for side in (node.left, node.right))
        return _of_two(type(node.op), left, right, name)
    raise DesignError(f"metrics.{name}: {ast.unparse(node)!r} is nothing that an expression can have; {VALID}")


def _named(metric: str, name: str, texts: Mapping[str, Any], path: tuple[str, ...]) -> _Term:
    if metric in texts:
        inner = _defined(metric, texts, path)
        return _Term(dimension(inner.unit), inner.inputs, inner.worth)
    if metric in LABELLED or metric not in METRICS:
        others = [known for known in METRICS if known not in LABELLED]
        raise DesignError(f"metrics.{name}: no metric {metric!r}; {nearest(metric, [*others, *texts])}")
    if METRICS[metric].words:
        raise DesignError(f"metrics.{name}: {metric} is a verdict ({', '.join(METRICS[metric].words)}), and no number")
    return _Term(dimension(METRICS[metric].unit), frozenset((metric,)), lambda values: values[metric])


def _power(base: _Term, by: _Term, name: str) -> _Term:
    if by.number is None or (not by.number.is_integer() and not base.unit.dimensionless) or abs(by.number) > 8:
        raise DesignError(f"metrics.{name}: a power is a whole number up to 8, as in tpot**2")
    exponent = int(by.number) if by.number.is_integer() else by.number
    return _Term(base.unit**exponent, base.inputs, lambda values: base.worth(values) ** exponent)


def _of_two(kind: type, left: _Term, right: _Term, name: str) -> _Term:
    inputs, does = left.inputs | right.inputs, ARITHMETIC[kind]
    if kind in (ast.Mult, ast.Div):
        unit = left.unit * right.unit if kind is ast.Mult else left.unit / right.unit
        return _Term(unit, inputs, lambda values: does(left.worth(values), right.worth(values)))
    scale = factor(left.unit, right.unit)
    if scale is None:
        sign = "+" if kind is ast.Add else "-"
        raise DesignError(
            f"metrics.{name}: units do not fit, {told(left.unit)} {sign} {told(right.unit)}; both sides need the same"
        )
    return _Term(left.unit, inputs, lambda values: does(left.worth(values), right.worth(values) * scale))


def derived(metrics: Values, defined: Defined) -> dict[str, Any]:
    """The defined metrics that some metrics are enough for; not a number where they come to none."""
    found: dict[str, Any] = {}
    for name, expression in defined.items():
        if not expression.inputs <= metrics.keys():
            continue
        values = {one: np.asarray(metrics[one], dtype=float) for one in expression.inputs}
        with np.errstate(all="ignore"):
            worth = np.asarray(expression.worth(values), dtype=float)
        found[name] = np.where(np.isfinite(worth), worth, np.nan)
    return found


def known(metrics: Mapping[str, float], defined: Defined) -> Mapping[str, float]:
    """Metrics of one design, and those that are defined of them."""
    if not defined:
        return metrics
    return {**metrics, **{name: float(value) for name, value in derived(metrics, defined).items() if isfinite(value)}}


def needed(names: Collection[str], defined: Defined) -> tuple[str, ...]:
    """The metrics that some metrics are made of, in the place of those that are defined."""
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(sorted(defined[name].inputs)) if name in defined else {name: None})
    return tuple(found)


def evaluate(
    designs: Designs,
    workload: Workload,
    defined: Defined,
    *,
    fidelity: str = "closed",
    cases: bool = False,
    metrics: Collection[str] | None = None,
) -> Outcomes:
    """The metrics of designs under a workload, defined ones among them; the rest as `dse.evaluators.evaluate`."""
    asked = None if metrics is None else needed(metrics, defined)
    outcomes = evaluated(designs, workload, fidelity=fidelity, cases=cases, metrics=asked)
    outcomes.columns.update(derived(outcomes.columns, defined))
    outcomes.cases.update(derived(outcomes.cases, defined))
    return outcomes
