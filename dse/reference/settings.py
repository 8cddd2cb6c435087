"""Settings by their addresses, as the records declare them: unit, range or options, default, and meaning."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from math import inf, isfinite
from typing import Any

import yaml

from dse.config.record_parser import field_types, record_type

LIST_ITEM, TABLE_ROW = "N", "NAME"
"""What stands in an address for the number of a list's item, and for a name that the user gives."""


WORD = "a word"
"""Value of a setting whose options its declaration does not list."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one record.

    Attributes:
        address: dotted, as in an override.
        spec: its declaration.
        record: class that declares it.
        default: value where nothing sets it; MISSING where it must be given.
        part: meaning of the part that has it; "" of a setting that stands by itself.
    """

    address: str
    spec: Field[Any]
    record: type
    default: Any
    part: str = ""


def declared_settings(
    record: type, address: str, values: Mapping[str, Any] | None = None, part_meaning: str = ""
) -> Iterator[Setting]:
    """Settings of a record and of all kinds of parts below it, in order of declaration.

    Args:
        record: class.
        address: of the record, without a dot at the end.
        values: of a preset, in the place of declared defaults.
        part_meaning: meaning of the record as a part.
    """
    hints, values = field_types(record), values or {}
    for spec in fields(record):
        if not spec.compare or {"computed", "refused"} & spec.metadata.keys():
            continue
        own = f"{address}.{spec.name}"
        parts, below = _parts_below(spec, hints[spec.name], own, address)
        value = values.get(spec.name, spec.default)
        is_list = isinstance(spec.metadata.get("list"), type)
        if not parts or is_list or "words" in spec.metadata:
            yield Setting(own, spec, record, value, part_meaning)
        for part in parts:
            inner = value if isinstance(value, Mapping) and not is_list else None
            yield from declared_settings(part, below, inner, str(spec.metadata.get("doc", "")) or part_meaning)


def _parts_below(spec: Field[Any], hint: Any, own: str, address: str) -> tuple[list[type], str]:
    """Records below a field, and the address that theirs begin with."""
    limits = spec.metadata
    if "table" in limits:
        return [limits["table"]], f"{own}.{TABLE_ROW}"
    if isinstance(inner := limits.get("list"), type) and is_dataclass(inner):
        return [inner], f"{own}.{LIST_ITEM}"
    if "parts" in limits:
        return list(limits["parts"]), address if "inline" in limits else own
    group = record_type(hint)
    return ([group] if group is not None and not limits else []), own


def settings_by_address(settings: Iterable[Setting]) -> dict[str, list[Setting]]:
    """Settings by address: several where kinds of a part declare one each."""
    by_address: dict[str, list[Setting]] = {}
    for setting in settings:
        by_address.setdefault(setting.address, []).append(setting)
    return by_address


def default_text(value: Any) -> str:
    """A value as it is written on the command line; a dash for one that must be given."""
    if value is MISSING:
        return "-"
    plain = [*value] if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=inf).removesuffix("...\n").strip()


def values_text(spec: Field[Any]) -> str:
    """Values that a field may have: unit and range, or options.

    >>> from dse.execution.study_settings import StopSettings, VerifySettings
    >>> {field.name: values_text(field) for field in fields(StopSettings)}["growth"]
    'number above 0, below 1'
    >>> {field.name: values_text(field) for field in fields(VerifySettings)}["submesh"]
    'whole number from 0'
    """
    limits = spec.metadata
    others = [*limits.get("words", ()), *(["null"] if "absent" in limits else [])]
    return ", or ".join([_plain_text(limits), *others])


def _plain_text(limits: Mapping[str, Any]) -> str:
    if "list" in limits:
        inner = limits["list"]
        each = "groups of fields" if isinstance(inner, type) else values_text(inner)
        return f"{'one or a list' if 'single' in limits else 'list'}: {each}"
    if "parts" in limits or "group" in limits or "table" in limits:
        return "group of fields"
    if "flag" in limits:
        return "true, false"
    if limits.get("options"):
        form = f", or {limits['form']}" if "form" in limits else ""
        return ", ".join(limits["options"]) + form
    if "options" in limits:
        return str(limits.get("form") or WORD)
    if "text" in limits:
        return str(limits["text"])
    several = ", or a list" if "several" in limits else ""
    return f"{_range_text(limits)}{several}"


def _range_text(limits: Mapping[str, Any]) -> str:
    """Unit and range of a number."""
    unit = "" if limits["unit"] == "1" else f" of {limits['unit']}" if "whole" in limits else f" in {limits['unit']}"
    low = limits["above"] if "above" in limits else limits["low"]
    start = "above" if limits.get("positive") or "above" in limits else "from"
    ends = [f"{start} {low:g}"] if isfinite(low) and abs(low) < 2**53 else []
    ends += [f"below {limits['below']:g}"] if "below" in limits else []
    ends += [f"to {limits['high']:g}"] if isfinite(limits.get("high", inf)) else []
    return f"{'whole number' if 'whole' in limits else 'number'}{unit}{' ' if ends else ''}{', '.join(ends)}"
