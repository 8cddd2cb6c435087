"""Sweep syntax of Hydra: knobs of a space as plain dictionaries."""

import re
from functools import lru_cache
from typing import Any

from dse.space.errors import DesignError


def parse_knobs(space: Any, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Knobs by address from Hydra's sweep syntax, as plain dictionaries.

    ``range(a, b, step)`` leaves out its end, as Hydra's and Python's do; ``interval(a, b)`` has both ends.
    """
    if not isinstance(space, dict):
        raise DesignError(
            f"space.{prefix.rstrip('.')}: {space!r} is not a sweep; write choice(...), range(...) or interval(...)"
        )
    knobs: dict[str, dict[str, Any]] = {}
    for key, entry in space.items():
        address = f"{prefix}{key}"
        if isinstance(entry, dict) and "sweep" in entry:
            unknown = set(entry) - {"sweep", "when"}
            if unknown:
                raise DesignError(f"space.{address}: a knob has sweep and when; got {', '.join(sorted(unknown))}")
            knobs[address] = _parse_sweep_text(address, entry["sweep"]) | {"when": dict(_flat_pairs(entry.get("when") or {}))}
        elif isinstance(entry, dict) and "tied" in entry:
            unknown = set(entry) - {"tied", "when"}
            if unknown:
                raise DesignError(f"space.{address}: what is tied has tied and when; got {', '.join(sorted(unknown))}")
            knobs[address] = {"tied": entry["tied"], "when": dict(_flat_pairs(entry.get("when") or {}))}
        elif isinstance(entry, dict):
            knobs |= parse_knobs(entry, f"{address}.")
        elif isinstance(entry, list):
            knobs[address] = {"values": entry}
        elif entry is not None:
            knobs[address] = _parse_sweep_text(address, entry)
    return knobs


MAX_VALUES = 100_000
"""Values of a range."""


def _parse_sweep_text(address: str, text: Any) -> dict[str, Any]:
    """A sweep as a plain dictionary: ``values``, or ``low`` and ``high``, with ``unit`` where it has one.

    Raises:
        DesignError: the text is no sweep.
    """
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
    from hydra.errors import HydraException

    where = f"space.{address}"
    try:
        sweep = _override_value(f"x={text}")
    except HydraException as error:
        raise DesignError(f"{where}: {str(text)!r} is not a sweep: {extract_first_statement(error)}") from None
    if not isinstance(sweep, ChoiceSweep | RangeSweep | IntervalSweep):
        raise DesignError(f"{where}: {str(text)!r} is not a sweep; write choice(...), range(...) or interval(...)")
    units = sorted(sweep.tags - {"log"})
    if len(units) > 1:
        raise DesignError(f"{where}: more than one unit in {str(text)!r}: {', '.join(units)}")
    unit = {"unit": units[0]} if units else {}
    if isinstance(sweep, IntervalSweep):
        return {"low": sweep.start, "high": sweep.end, "log": "log" in sweep.tags} | unit
    if isinstance(sweep, ChoiceSweep):
        return {"values": [_plain_entry(entry) for entry in sweep.list]} | unit
    start: Any = sweep.start
    if sweep.step and (sweep.stop - start) / sweep.step > MAX_VALUES:
        raise DesignError(f"{where}: {str(text)!r} has more than {MAX_VALUES:,} values; write interval(a, b), or a larger step")
    if not sweep.step:
        raise DesignError(f"{where}: {str(text)!r} has a step of 0")
    values: list[Any] = []
    while (start + len(values) * sweep.step - sweep.stop) * sweep.step < 0:
        values.append(start + len(values) * sweep.step)
    if not values:
        raise DesignError(f"{where}: {str(text)!r} is empty; range leaves out its end")
    return {"values": values} | unit


def parse_swept_override(override: str) -> dict[str, Any] | None:
    """Values that an override sweeps, with their unit if it has one; None if it sweeps nothing.

    A list sweeps its entries; a list of one list has one value, the inner list.

    Raises:
        DesignError: the sweep is empty, or an interval, which has no values to enumerate.

    >>> parse_swept_override("mapping.both.tp=[1,2,4]"), parse_swept_override("chip=h100,h200")
    ({'values': [1, 2, 4]}, {'values': ['h100', 'h200']})
    >>> parse_swept_override("chip.cores=range(100,300,100)"), parse_swept_override("workload.batch=8")
    ({'values': [100, 200]}, None)
    """
    key, _, text = override.partition("=")
    address = key.lstrip("+~")
    if is_sweep(override):
        swept = _parse_sweep_text(address, text)
        if "values" not in swept:
            raise DesignError(f"{address}: an interval has no steps; write range(a,b,step), or search it in a study")
        return swept
    value = _override_value(f"x={text}") if is_sweep(f"x={text}") is False else None
    return {"values": value} if isinstance(value, list) and value else None


def _plain_entry(entry: Any) -> Any:
    """An entry of a choice as a plain value: a quoted text without its quotes."""
    return entry if isinstance(entry, int | float | bool | str) else str(getattr(entry, "text", entry))


@lru_cache(maxsize=4096)
def _override_value(override: str) -> Any:
    """What an override says, as Hydra reads it: once of a knob that several chips have."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(override).value()


def _flat_pairs(group: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs = []
    for key, value in group.items():
        if isinstance(value, dict):
            pairs += _flat_pairs(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def overridden_group(override: str) -> Any:
    """Group of fields that an override sets, as Hydra reads it; None if it sets none or is invalid."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        value = OverridesParser.create().parse_override(override).value()
    except HydraException:  # it says so when it composes
        return None
    return value if isinstance(value, dict) else None


def is_sweep(override: str) -> bool | None:
    """Whether an override has several values; None if Hydra cannot parse it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:
        return None


def hydra_text(value: Any) -> str:
    """A value in Hydra's syntax."""
    from dse.config.hydra_internals import override_text

    return override_text(value)


def extract_first_statement(error: Exception) -> str:
    """First statement of an error, without the name of the inner exception."""
    text = re.sub(r"^\w+Error while evaluating '.*': (?=\S)", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:2]) if lines else type(error).__name__
