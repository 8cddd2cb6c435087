"""Conversion of quantities with units: text to SI on input, and SI to text for output.

`pint` does the arithmetic on the units defined here: those of the field, with what it counts (op, token, USD, cycle), each
once. Nothing is read from pint's own list, where a bit has no dimension, and nothing is kept between runs. It is the only
file that knows pint.
"""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from dse.space.errors import DesignError

if TYPE_CHECKING:
    from pint import UnitRegistry

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
PREFIXED_UNITS = {"B", "B/s", "s", "op/s", "op", "W", "J", "Hz", "V"}


USUAL_UNITS = {"B": "GB", "B/s": "GB/s", "USD/s": "USD/hour"}
"""Units as people write them, where the plain unit is none that anybody writes."""


def usual_unit(unit: str) -> str:
    """A unit as people write its quantities: bytes of memories have a prefix, rents are by the hour.

    >>> usual_unit("B/s"), usual_unit("s")
    ('GB/s', 's')
    """
    return USUAL_UNITS.get(unit, unit)


_CURRENCY = r"€|£|¥|\b(?:EUR|GBP|CNY|RMB|JPY|KRW|TWD|CHF|INR|CAD|AUD|SGD|HKD)\b"
"""Currencies besides dollars in which prices are often quoted."""


@lru_cache(maxsize=4096)  # the same files say the same constants
def parse_quantity(text: str, unit: str) -> float:
    """Value of a quantity in `unit`, the SI unit of its field.

    Args:
        text: a number and a unit, as in ``48 KiB``, ``1.84 TB/s``, ``25 us`` or ``0.36 mm2/MB``.
        unit: the unit of the result, in the same grammar; ``1`` for a plain number.

    Raises:
        DesignError: the text is no quantity, or is one of another dimension.

    >>> (
    ...     parse_quantity("48 KiB", "B"),
    ...     parse_quantity("200 Gbit/s", "B/s"),
    ...     parse_quantity("1.84 Top/s", "op/s"),
    ...     parse_quantity("0.1/cm2", "1/cm2"),
    ... )
    (49152.0, 25000000000.0, 1840000000000.0, 0.1)
    >>> {parse_quantity(f"989 {unit}", "op/s") for unit in ("Tflop/s", "TFLOP/s", "TFLOPS", "TOPS", "Tflops")}
    {989000000000000.0}
    """
    quantity = _quantity(text)
    if quantity is None:
        if unit.startswith("USD") and (other := re.search(_CURRENCY, text)):
            raise DesignError(f"{text!r} is in {other[0]}; all prices are in USD: convert it, and give the rate in its note")
        if meant := _meant(text):
            raise DesignError(f"{text!r} has an unknown unit; did you mean {meant}?")
        needed_text = (
            "a number; write a number, as in '8'"
            if unit == "1"
            else f"a quantity; write a number and a unit, as in '8 {usual_unit(unit)}'"
        )
        raise DesignError(f"{text!r} is not {needed_text}")
    if quantity.dimensionless and unit != "1":
        raise DesignError(f"{text!r} has no unit; expected one of {unit}, as in '{text} {usual_unit(unit)}'")
    if not quantity.is_compatible_with(_spelling(unit)):
        wanted = "a plain number" if unit == "1" else f"one of {unit}"
        raise DesignError(f"{text!r} is a quantity of {quantity.units:~}, expected {wanted}")
    return float(quantity.to(_spelling(unit)).magnitude)


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """A quantity as text, with a decimal prefix where its unit takes one.

    >>> (
    ...     format_quantity(104e6, "B"),
    ...     format_quantity(2.5e-5, "s"),
    ...     format_quantity(0.36e-6, "mm2/B"),
    ...     format_quantity(518400.0, "1"),
    ...     format_quantity(0.123456, "1"),
    ... )
    ('104 MB', '25 us', '3.6e-07 mm2/B', '518400', '0.1235')
    >>> format_quantity(163840.0, "token")
    '163840 token'
    """
    if unit in ("", "1", "token"):
        count = f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e7 else f"{value:.{digits}g}"
        return f"{count} {unit}" if unit == "token" else count
    if unit not in PREFIXED_UNITS or value == 0:
        return f"{value:.{digits}g} {unit}"
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s), PREFIXES[-1])
    return f"{value / scale:.{digits}g} {prefix}{unit}"


def choose_display_unit(largest: float, unit: str) -> tuple[float, str]:
    """Divisor and prefixed unit for values up to `largest`, for an axis or a column.

    >>> choose_display_unit(256e6, "B"), choose_display_unit(3.0, "1")
    ((1000000.0, 'MB'), (1.0, ''))
    """
    if unit in ("", "1"):
        return 1.0, ""
    if unit not in PREFIXED_UNITS or largest == 0:
        return 1.0, unit
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(largest) >= s), PREFIXES[-1])
    return scale, f"{prefix}{unit}"


DEFINITIONS = """
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = u- = µ- = μ-
milli- = 1e-3 = m-
centi- = 1e-2 = c-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
percent = 0.01 = %
meter = [length] = m = metre
second = [time] = s
minute = 60 * second = min
hour = 60 * minute = h = hr
day = 24 * hour = d
year = 365.25 * day
gram = [mass] = g
ampere = [current] = A
kelvin = [temperature] = K
hertz = 1 / second = Hz
newton = kilogram * meter / second ** 2 = N
joule = newton * meter = J
watt = joule / second = W
watthour = watt * hour = Wh
volt = watt / ampere = V
ohm = volt / ampere = Ω
farad = ampere * second / volt = F
bit = [information]
byte = 8 * bit = B
operation = [operation] = op = flop = FLOP
operation_rate = operation / second = OPS = FLOPS = flops
token = [token]
cycle = [cycle]
USD = [currency]
"""
"""Every unit there is, in pint's notation."""


@cache
def _registry() -> "UnitRegistry[Any]":
    import pint

    return pint.UnitRegistry(DEFINITIONS.strip().splitlines())


QUANTITY = re.compile(
    r"\s*([+-]?(?:[0-9][0-9_]*+\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)\s*((?:1?/)?[A-Za-z%µμΩ][A-Za-z0-9%µμΩ/*^ .]*)?\s*"
)
"""A number with all of its digits, and a unit. Left to itself pint calculates: to it ``12:30`` is 360, ``010`` is 0 and
``2-1 s`` is a second."""


@cache
def _quantity(text: str) -> Any:
    quantity_match = QUANTITY.fullmatch(text)
    try:
        return _registry().Quantity(float(quantity_match[1]), _spelling(quantity_match[2] or "1")) if quantity_match else None
    except Exception:  # pint raises many kinds, down to tokenizer errors; each means "no quantity"
        return None


def _spelling(unit: str) -> str:
    return (
        "dimensionless"
        if unit == "1"
        else f"{'1' * unit.startswith('/')}{unit}".replace("mm2", "mm**2").replace("cm2", "cm**2")
    )


def dimension(unit: str) -> Any:
    """A unit as a pint object, to multiply, divide and compare.

    >>> unit_text(dimension("Hz") / dimension("W")), unit_text(dimension("token/s") * dimension("s"))
    ('Hz/W', 'token')
    """
    return _registry().Unit(_spelling(unit))


def parse_with_dimension(text: str, where: str) -> tuple[float, Any]:
    """Number of a quantity from text, and its unit as a pint object.

    Raises:
        DesignError: text that is none, as of `where`.
    """
    quantity = _quantity(text)
    if quantity is None:
        if meant := _meant(text):
            raise DesignError(f"{where}: {text!r} has an unknown unit; did you mean {meant}?")
        raise DesignError(f"{where}: {text!r} is not a quantity; write a number and a unit, as in '8 MB'")
    return float(quantity.magnitude), quantity.units


def unit_text(unit: Any) -> str:
    """A pint unit as fields write it; 1 for a dimensionless unit.

    >>> unit_text(dimension("token/s") / dimension("mm2")), unit_text(dimension("J") / dimension("W") * dimension("Hz"))
    ('token/mm2/s', '1')
    """
    return "1" if unit.dimensionless else f"{unit:~C}".replace("mm**2", "mm2").replace("cm**2", "cm2")


def conversion_factor(unit: Any, other: Any) -> float | None:
    """Factor from unit `other` to unit `unit`; None if the units are incompatible.

    >>> conversion_factor(dimension("s"), dimension("1/Hz")), conversion_factor(dimension("s"), dimension("W"))
    (1.0, None)
    """
    return float(_registry().Quantity(1.0, other).to(unit).magnitude) if unit.is_compatible_with(other) else None


def _meant(text: str) -> str:
    """A quantity with its unit in letters of the usual case; "" where that is none either.

    >>> _meant("1 KB"), _meant("2 gb/S"), _meant("3 furlongs")
    ("'1 kB'", "'2 GB/s'", '')
    >>> _meant("4 Gb/s")
    "'4 GB/s' or '4 Gbit/s'"
    """
    quantity_match = QUANTITY.fullmatch(text)
    if quantity_match is None or quantity_match[2] is None:
        return ""
    usual = {
        f"{prefix}{unit}".lower(): f"{prefix}{unit}"
        for unit in KNOWN_UNITS
        for prefix in ("m", "n", "u", "", "Ki", "Mi", "Gi", "Ti", "T", "G", "M", "k")
    }
    unit = re.sub("[A-Za-z]+", lambda word: usual.get(word[0].lower(), word[0]), quantity_match[2].strip())
    meant = f"{quantity_match[1]} {unit}"
    if unit == quantity_match[2].strip() or _quantity(meant) is None:
        return ""
    bits = re.search(r"(?<=[kMGT])b\b", quantity_match[2])
    return f"'{meant}' or '{quantity_match[1]} {quantity_match[2].strip().replace('b', 'bit')}'" if bits else f"'{meant}'"


KNOWN_UNITS = ("B", "bit", "op", "flop", "FLOPS", "s", "Hz", "W", "J", "V", "token", "USD", "mm2")
"""Units that are tried in other letters, with prefixes."""
