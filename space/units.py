"""Quantities with units: text to SI once, at the border, and SI to text for people.

`pint` knows the units; this file adds those the field counts in (op, token, USD, cycle). It is the only file that knows pint.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from space.errors import DesignError

if TYPE_CHECKING:
    from pint import UnitRegistry

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
SCALED = {"B", "B/s", "s", "op/s", "op", "W", "J", "Hz"}


def parse(text: str, unit: str) -> float:
    """The value of a quantity in `unit`, which is the SI unit of its field.

    Args:
        text: a number and a unit, as in ``48 KiB``, ``1.84 TB/s``, ``25 us`` or ``0.36 mm2/MB``.
        unit: the unit of the result, in the same grammar; ``1`` for a plain number.

    Raises:
        DesignError: the text is no quantity, or is one of another dimension.

    >>> parse("48 KiB", "B"), parse("200 Gbit/s", "B/s"), parse("1.84 Top/s", "op/s")
    (49152.0, 25000000000.0, 1840000000000.0)
    """
    quantity = _quantity(text)
    if quantity is None:
        raise DesignError(f"{text!r} is not a quantity; write a number and a unit, as in '8 {unit}'")
    if quantity.dimensionless and unit != "1":
        raise DesignError(f"{text!r} has no unit; expected one of {unit}, as in '{text} {unit}'")
    if not quantity.is_compatible_with(_spelling(unit)):
        raise DesignError(f"{text!r} is a quantity of {quantity.units:~}, expected one of {unit}")
    return float(quantity.to(_spelling(unit)).magnitude)


def show(value: float, unit: str, digits: int = 4) -> str:
    """A quantity for people, with a decimal prefix where the unit takes one.

    >>> show(104e6, "B"), show(2.5e-5, "s"), show(0.36e-6, "mm2/B"), show(518400.0, "1"), show(0.123456, "1")
    ('104 MB', '25 us', '3.6e-07 mm2/B', '518400', '0.1235')
    """
    if unit in ("", "1"):
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e7 else f"{value:.{digits}g}"
    if unit not in SCALED or value == 0:
        return f"{value:.{digits}g} {unit}"
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s), PREFIXES[-1])
    return f"{value / scale:.{digits}g} {prefix}{unit}"


def display(largest: float, unit: str) -> tuple[float, str]:
    """The divisor and the prefixed unit in which values up to `largest` read well, for an axis or a column.

    >>> display(256e6, "B"), display(3.0, "1")
    ((1000000.0, 'MB'), (1.0, ''))
    """
    if unit in ("", "1"):
        return 1.0, ""
    if unit not in SCALED or largest == 0:
        return 1.0, unit
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(largest) >= s), PREFIXES[-1])
    return scale, f"{prefix}{unit}"


@cache
def _registry() -> "UnitRegistry[Any]":
    import pint

    registry: UnitRegistry[Any] = pint.UnitRegistry(cache_folder=":auto:")
    for definition in ("bit = [information]", "op = [operation]", "token = [token]", "USD = [currency]", "cycle = [cycle]"):
        registry.define(definition)
    return registry


@cache
def _quantity(text: str) -> Any:
    try:
        return _registry().Quantity(_spelling(text))
    except Exception:  # pint raises many kinds, down to tokenizer errors; each means "no quantity"
        return None


def _spelling(unit: str) -> str:
    return "dimensionless" if unit == "1" else unit.replace("mm2", "mm**2").replace("cm2", "cm**2")
