"""Ranges of constants that are assumed or fitted, within which an answer is tried.

A constant may state its range itself: ``range: [LOW, HIGH]`` beside its value, as factors of the value, or the 95 % interval
that `dse calibrate` and the fits of studies write into its note. Else the kind of its source gives the range. Constants of
papers, standards and data sheets have none.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, log
from typing import Any, TypeGuard

from dse.config.record_parser import ConstantSource, parse_value
from dse.space.errors import DesignError
from dse.space.fields import field_at, iterate_leaves
from dse.space.knobs import Space
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace

DEFAULT_FACTORS: Mapping[str, tuple[float, float]] = {"assumed": (0.7, 1.4), "fitted": (0.85, 1.18)}
"""Range of a constant by the kind of its source, as factors of its value. Assumed: two estimates of one constant differ by
about two. Fitted: fits that ship are within 15 % of 90 % of the rows that they did not see; worse ones state their range."""

CHOSEN_LEAVES = (
    "chip.core.rates.",
    "chip.die.built_cache_ratio",
    "chip.die.built_memory_ratio",
    "chip.die.reticle",
    "chip.die.unused_link_bandwidth",
)
"""Beginnings of constants that say what is built (formats that an engine multiplies, spare parts) or what scanners expose: no
estimates, whatever their source."""

MIN_WIDTH = 1e-6
"""Ratio of the ends, as a logarithm, from which on there is a range."""

SHARED_PARTS = ("chip.technology.", "chip.economics.")
"""Parts whose constants are wrong alike on all chips: nodes and price lists are made from the same few sources."""

FIT_INTERVAL = re.compile(r"95 %: (?P<low>[^;]+?) to (?P<high>[^;]+?)(?:;|$)")
"""The interval of a constant in the note that a fit writes."""

MAX_FIT_FACTOR = 4.0
"""An interval that reaches further than this from the value says that rows do not determine it: then this is the end."""


@dataclass(frozen=True, slots=True)
class UncertainConstant:
    """One constant with the range within which it may lie, on all chips that share it.

    Attributes:
        address: its leaf, as overrides name it.
        chips: names of the chips of a study that have it; an empty string in a study of one chip.
        value: as it is written, on the first of them.
        si_value: likewise, in the SI unit of its field.
        unit: of `si_value`.
        low, high: ends of the range over the value, from above 0 to 1 and from 1 on. [-]
        source: assumed, fitted, or a key of the bibliography.
        stated: whether the constant states the range itself; else its kind of source does.
    """

    address: str
    chips: tuple[str, ...]
    value: str
    si_value: float
    unit: str
    low: float
    high: float
    source: str
    stated: bool

    def factor_at(self, place: Any) -> Any:
        """Factor of the value at places from 0 to 1 of the range, of equal ratios. [-]"""
        return self.low * (self.high / self.low) ** place


def find_uncertain_constants(sources: Iterable[ConstantSource], space: AnySpace) -> list[UncertainConstant]:
    """Constants of a study's chips that are assumed or fitted, or that state a range.

    In the order of their files. Left out are words, counts, zeros (what is not there), what is chosen (`CHOSEN_LEAVES`), and
    leaves that a knob sets or that follow one.

    Args:
        sources: of the study; of several chips with the name of the chip before the address.
        space: of the study.
    """
    bases = {str(chosen.get(CHIP_KNOB, "")): own for chosen, own in space.base_spaces}
    values = {name: {address: value for address, value, _ in iterate_leaves(own.base)} for name, own in bases.items()}
    moved = {name: _moved_leaves(own) for name, own in bases.items()}
    constants: dict[tuple[str, ...], UncertainConstant] = {}
    for source in sources:
        name, _, address = source.address.rpartition(": ")
        value = values.get(name, {}).get(address)
        if not _is_quantity(value) or address in moved[name] or address.startswith(CHOSEN_LEAVES):
            continue
        spec = field_at(bases[name].base, address).metadata
        if "whole" in spec or "unit" not in spec or (factors := _range_factors(source, float(value), spec)) is None:
            continue
        low, high = _within_field(float(value), factors, spec)
        if log(high / low) < MIN_WIDTH:
            continue
        constant = UncertainConstant(
            address, (name,), source.value, float(value), spec["unit"], low, high, source.source, _is_stated(source)
        )
        key = (address,) if address.startswith(SHARED_PARTS) else (address, source.value, source.source, source.note)
        known = constants.get(key)
        constants[key] = constant if known is None else _joined(known, constant)
    return list(constants.values())


def describe_default_ranges() -> str:
    """Ranges of constants that state none, by the kind of their source, in one line.

    >>> describe_default_ranges()
    'assumed x0.7 to x1.4, fitted x0.85 to x1.18, of shares above a half what is missing to all; a stated range wins'
    """
    kinds = ", ".join(f"{kind} x{low:g} to x{high:g}" for kind, (low, high) in DEFAULT_FACTORS.items())
    return f"{kinds}, of shares above a half what is missing to all; a stated range wins"


def _moved_leaves(space: Space) -> Collection[str]:
    """Leaves of one chip's designs that knobs set, and leaves that follow knobs."""
    return {leaf for targets in space.targets.values() for leaf in targets} | set(space.follows)


def _is_quantity(value: Any) -> TypeGuard[float]:
    """Whether a leaf of a base design is a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and isfinite(value)


def _range_factors(source: ConstantSource, value: float, spec: Mapping[str, Any]) -> tuple[float, float] | None:
    """Range of a constant over its value: its own, that of its fit, or that of its kind of source; None if there is none.

    Of a share above a half of its most, as an efficiency, what is missing to the most has the range of the kind of source.
    """
    if source.stated_range is not None:
        return source.stated_range
    fitted, usual, most = _fit_factors(source, spec), DEFAULT_FACTORS.get(source.source), spec.get("high", inf)
    if fitted is not None or usual is None or value <= most / 2:
        return fitted or usual
    least, highest = (most - (most - value) * factor for factor in reversed(usual))
    return least / value, highest / value


def _is_stated(source: ConstantSource) -> bool:
    return source.stated_range is not None or FIT_INTERVAL.search(source.note) is not None


def _fit_factors(source: ConstantSource, spec: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95 % interval of a fit over the fitted value; None if its note has none."""
    interval = FIT_INTERVAL.search(source.note)
    if interval is None:
        return None
    unit = spec["unit"]
    try:
        value = parse_value(_number_or_text(source.value), unit, source.address)
        ends = [parse_value(_number_or_text(interval[name]), unit, source.address) for name in ("low", "high")]
    except DesignError:  # a note of somebody's own
        return None
    low, high = (min(max(end / value, 1 / MAX_FIT_FACTOR), MAX_FIT_FACTOR) for end in ends)
    return (low, high) if low <= 1 <= high else None


def _number_or_text(text: str) -> float | str:
    """A bare number as such, and text with a unit as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def _within_field(value: float, factors: tuple[float, float], spec: Mapping[str, Any]) -> tuple[float, float]:
    """Range over a value, cut where the field ends."""
    low, high = factors
    return max(low, spec.get("low", 0.0) / value), min(high, spec.get("high", inf) / value)


def _joined(known: UncertainConstant, other: UncertainConstant) -> UncertainConstant:
    """One constant of the chips of two, with the range that holds for both."""
    low, high = max(known.low, other.low), min(known.high, other.high)
    return UncertainConstant(
        known.address,
        tuple(dict.fromkeys((*known.chips, *other.chips))),
        known.value,
        known.si_value,
        known.unit,
        low,
        high,
        known.source,
        known.stated,
    )
