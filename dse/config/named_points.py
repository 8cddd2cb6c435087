"""Named points of a study, such as existing chips: evaluated first, and marked in the report."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import leaf_at
from dse.space.knobs import ChoiceKnob, Knob, Value
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace


def named_points(config: Any, space: AnySpace) -> dict[str, dict[str, Value]]:
    """Knob values of each named point; unset knobs have the value of the point's base design.

    Args:
        config: by name, values by the addresses of knobs, in the leaves' SI units or as words; what is left out is the base's.
        space: in which they have to be.

    Raises:
        DesignError: a knob that there is not, or a value that is none of its.
    """
    if not isinstance(config, Mapping):
        raise DesignError(f"report.points: {config!r} is no points by name, as in points={{NpuSim: {{chip: npu64}}}}")
    return {str(name): _parse_point(f"report.points.{name}", point, space) for name, point in config.items()}


def _parse_point(where: str, given_values: Any, space: AnySpace) -> dict[str, Value]:
    if not isinstance(given_values, Mapping):
        raise DesignError(f"{where}: {given_values!r} is no values by knob, as in {{chip: npu64}}; {{}} is the base itself")
    for address in given_values:
        if address not in space.targets:
            raise DesignError(f"{where}: no knob {address!r}; {suggest_nearest(str(address), space.targets)}")
    bases = {chosen.get(CHIP_KNOB): chip_base for chosen, chip_base in space.base_spaces}
    chip = given_values.get(CHIP_KNOB, next(iter(bases)))
    if chip not in bases:
        raise DesignError(f"{where}.chip: no chip {chip!r}; {suggest_nearest(str(chip), [str(name) for name in bases])}")
    own = bases[chip]
    base = {address: leaf_at(own.base, leaves[0]) for address, leaves in own.targets.items()}
    values: dict[str, Value] = {**base, **given_values, **({CHIP_KNOB: chip} if chip is not None else {})}
    point = {}
    for address, value in space.canonical(values).items():
        point[address] = value if address == CHIP_KNOB else _nearest_value(where, own.knob(address), value)
    return point


def _nearest_value(where: str, knob: Knob, value: Any) -> Value:
    """The value of a knob that is meant."""
    if isinstance(knob, ChoiceKnob):
        same: list[Value] = [
            option
            for option in knob.values
            if option == value or (not knob.words and math.isclose(option, value, rel_tol=1e-9))
        ]
        if same:
            return same[0]
        raise DesignError(f"{where}: {knob.address} is {value!r} there, which is none of its values; have it among them")
    if not knob.low <= value <= knob.high:
        raise DesignError(f"{where}: {knob.address} is {value:g} there, outside {knob.low:g} to {knob.high:g}")
    return float(value)


def find_rows_of_points(
    points: Mapping[str, Mapping[str, Value]], space: AnySpace, frame: pd.DataFrame
) -> dict[str, int | None]:
    """Row of each named point in a frame of designs; None if it is not there."""
    rows: dict[str, int | None] = {}
    for name, values in points.items():
        series = pd.Series(True, index=frame.index)
        for knob in space.knobs:
            series &= frame[knob.address] == values[knob.address] if knob.address in values else frame[knob.address].isna()
        places = frame.index[series]
        rows[name] = int(frame.index.get_loc(places[0])) if len(places) else None  # type: ignore[arg-type]
    return rows
