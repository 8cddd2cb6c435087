"""Conditions of knobs: values of other knobs, read like those knobs, in SI or as options."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse.config.record_parser import parse_value
from dse.space import multi_chip_space as chips
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import addresses, check_leaf, field_at
from dse.space.knobs import IntervalKnob, Knob

ROUNDING = 1e-9
"""Relative difference up to which two ways to write a quantity mean one value."""


def parse_conditions(knobs: Sequence[Knob], bases: Mapping[str, Design]) -> tuple[Knob, ...]:
    """Knobs with the values of their ``when`` parsed like the values of the knobs that it names.

    A value that such a knob does not have stays where its leaf could have it: a space may be narrowed.

    Args:
        knobs: ``when`` as it was written; names of chips, and of what is no knob, are left as they are.
        bases: by chip.

    Raises:
        DesignError: a value that the leaf cannot have, a quantity without a unit, or an interval, of which no value is met.
    """
    known = {knob.address: knob for knob in knobs}

    def parse_values(knob: Knob, other: str, written: Sequence[Any]) -> tuple[Any, ...]:
        if other not in known:
            return tuple(written)
        where, other_knob = f"space.{knob.address}: 'when' of {other}", known[other]
        if isinstance(other_knob, IntervalKnob):
            raise DesignError(
                f"{where}: an interval, of which no design has one value; write {other} as choice(...) or range(...)"
            )
        base = bases[chips.chips_with_address(bases, other)[0]]
        spec = field_at(base, addresses(base, other)[0])
        unit = spec.metadata["unit"]
        read = [check_leaf(parse_value(value, unit, where) if unit else value, spec, where) for value in written]
        return tuple(next((option for option in other_knob.values if _is_same(option, value)), value) for value in read)

    return tuple(
        replace(knob, when=tuple((other, parse_values(knob, other, written)) for other, written in knob.when)) for knob in knobs
    )


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(value, str) or isinstance(other, str):
        return bool(value == other)
    return math.isclose(value, other, rel_tol=ROUNDING)
