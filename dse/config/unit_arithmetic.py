"""Expressions with units: numbers, quantities in quotes, names, + - * / ** and brackets.

The caller gives names their meaning: metrics (`dse.config.metric_expressions`) or fields of a design
(`dse.config.tied_leaves`).
"""

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dse.space.errors import DesignError
from dse.space.units import conversion_factor, dimension, parse_with_dimension, unit_text

MAX_CHARACTERS = 500
"""Letters of an expression."""

Values = Mapping[str, Any]
ValueFunction = Callable[[Values], Any]

ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True)
class UnitExpression:
    """One term of an expression: its unit, the names that it contains, and its value function.

    A value is computed from values only: units belong to a registry, which another process lacks.
    """

    unit: Any
    inputs: frozenset[str]
    worth: ValueFunction
    number: float | None = None


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """Value function of a number, which is the same for all values."""

    value: Any

    def __call__(self, values: Values) -> Any:
        """The number."""
        return self.value


@dataclass(frozen=True, slots=True)
class CombinedValue:
    """Value function of two terms and the operation between them, which other processes can read."""

    operation: Callable[[Any, Any], Any]
    left: ValueFunction
    right: ValueFunction

    def __call__(self, values: Values) -> Any:
        """The result of the operation."""
        return self.operation(self.left(values), self.right(values))


def scaled_value(worth: ValueFunction, scale: float) -> ValueFunction:
    """Value function times a number."""
    return CombinedValue(operator.mul, worth, ConstantValue(scale))


def parse_unit_expression(text: str, where: str, named: Callable[[str], UnitExpression], valid: str) -> UnitExpression:
    """Term of an expression, parsed from text.

    Args:
        text: as it was written.
        where: what it is the expression of, for messages.
        named: the term of a name; raises for one that there is not.
        valid: what may be written.

    Raises:
        DesignError: text that is none, or units that do not fit.
    """
    if len(text) > MAX_CHARACTERS:
        raise DesignError(f"{where}: {text[:40]!r} is no expression; {valid}")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's own, of what is refused below
            tree = ast.parse(text.strip(), mode="eval").body
        return _parse_term(tree, where, named, valid)
    except DesignError:
        raise
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        raise DesignError(f"{where}: {text!r} is no expression; {valid}") from None


def _parse_term(node: ast.expr, where: str, named: Callable[[str], UnitExpression], valid: str) -> UnitExpression:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        number = float(node.value)
        return UnitExpression(dimension("1"), frozenset(), ConstantValue(number), number)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        value, unit = parse_with_dimension(node.value, where)
        return UnitExpression(unit, frozenset(), ConstantValue(value))
    if (name := _dotted_name(node)) is not None:
        return named(name)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _parse_term(node.operand, where, named, valid)
        negative = CombinedValue(operator.mul, ConstantValue(-1), inner.worth)
        return UnitExpression(inner.unit, inner.inputs, negative, None if inner.number is None else -inner.number)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        left, right = (_parse_term(side, where, named, valid) for side in (node.left, node.right))
        return _raise_power(left, right, where)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = (_parse_term(side, where, named, valid) for side in (node.left, node.right))
        return _of_two(type(node.op), left, right, where)
    raise DesignError(f"{where}: {ast.unparse(node)!r} is not allowed in an expression; {valid}")


def _dotted_name(node: ast.expr) -> str | None:
    """A name, or names with points between them."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted_name(node.value) if isinstance(node, ast.Attribute) else None
    return f"{inner}.{node.attr}" if inner is not None and isinstance(node, ast.Attribute) else None


def _raise_power(base: UnitExpression, by: UnitExpression, where: str) -> UnitExpression:
    if by.number is None or (not by.number.is_integer() and not base.unit.dimensionless) or abs(by.number) > 8:
        raise DesignError(f"{where}: a power is a whole number up to 8, as in tpot**2")
    exponent = int(by.number) if by.number.is_integer() else by.number
    return UnitExpression(base.unit**exponent, base.inputs, CombinedValue(operator.pow, base.worth, ConstantValue(exponent)))


def _of_two(kind: type, left: UnitExpression, right: UnitExpression, where: str) -> UnitExpression:
    inputs, does = left.inputs | right.inputs, ARITHMETIC[kind]
    if kind in (ast.Mult, ast.Div):
        unit = left.unit * right.unit if kind is ast.Mult else left.unit / right.unit
        return UnitExpression(unit, inputs, CombinedValue(does, left.worth, right.worth))
    scale = conversion_factor(left.unit, right.unit)
    if scale is None:
        sign = "+" if kind is ast.Add else "-"
        raise DesignError(
            f"{where}: units do not fit, {unit_text(left.unit)} {sign} {unit_text(right.unit)}; both sides need the same"
        )
    return UnitExpression(left.unit, inputs, CombinedValue(does, left.worth, scaled_value(right.worth, scale)))
