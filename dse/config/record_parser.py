"""Parser of records: dictionaries to frozen value objects, and text with units to numbers."""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from math import inf
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from dse.config.part_presets import preset_overrides
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import check_leaf, integer_field, list_field, text_field
from dse.space.stack import StackAccuracy
from dse.space.units import parse_quantity, usual_unit

T = TypeVar("T")


CONSTANT = {
    "value",
    "source",
    "page",
    "note",
    "range",
    "fitted_on",
    "meant_for",
    "measured_rows",
    "measured_by",
    "measured_ranges",
}
USUAL_CHOICES = {
    "mapping",
    "mapping_serving",
    "mapping_gemm",
    "mapping_gemv",
    "mapping_attention",
    "mapping_collective",
    "stack",
    "inference_engine",
    "vendor",
    "node",
}
"""A chip or a workload may name the mapping that it usually has, a chip also for workload=serving, its stack, its inference
engine, its vendor, and the part that puts it into nodes whose dies share out experts; the command line reads that
(`dse.config.compose`, `dse.analysis.capacity`)."""


ORIGIN, STACK = ("fitted_on", "meant_for", "measured_rows", "measured_by", "measured_ranges"), "mapping.stack"
"""What a stack, or a part of one, says of its constants beside them, as `Source` has it: chips by name, and measurements.

`RANGES`, the sizes that rows have, go to the part itself, whose kernels are extrapolated outside of them.
"""

RANGES, ACCURACY = "measured_ranges", "accuracy"

USUAL = ("mapping", "stack", "inference_engine")
"""Groups of which a chip names its usual choice."""


@dataclass(frozen=True, slots=True)
class ConstantSource:
    """Source of one constant: a key of the bibliography, "override", or "assumed".

    Attributes:
        fitted_on, meant_for: of a constant of a stack, chips by name: those that it was fitted on, and others that it is for.
        measured_rows: measurements that it was fitted on, with the others of its part; 0 where nothing says how many.
        measured_by: likewise, the key of who published them.
        accuracy: how far measured rates of whole models lie from those of its stack; None where nothing says it.
        stated_range: lowest and highest value that the constant states for itself, over its value; None if it states none.
    """

    address: str
    value: str
    source: str
    page: str = ""
    note: str = ""
    fitted_on: tuple[str, ...] = ()
    meant_for: tuple[str, ...] = ()
    measured_rows: int = 0
    measured_by: str = ""
    accuracy: StackAccuracy | None = None
    stated_range: tuple[float, float] | None = None


CHIP_NAMES = text_field("name of a chip"), "chips by name; write [h100, h200]"

ORIGIN_FIELDS = {
    "fitted_on": list_field("chips that constants were fitted on", *CHIP_NAMES, empty=True),
    "meant_for": list_field("other chips that constants are for", *CHIP_NAMES, empty=True),
    "measured_rows": integer_field("measurements that constants were fitted on", low=0),
    "measured_by": text_field("key of the source of these measurements"),
}
"""Declarations of what a stack, or a part of one, says of chips and of the measurements that its constants are from."""


@cache
def field_types(kind: Any) -> dict[str, Any]:
    """Types of the fields of a record class."""
    return get_type_hints(kind)


def parse_settings(cls: type[T], config: Any, address: str, *, owner: str = "", complete: bool = False) -> T:
    """A record of settings, which are no constants with a source, from a dictionary of its fields.

    Args:
        cls: record class whose fields declare the settings.
        config: values by the names of fields.
        address: of the group, as users write it.
        owner: what messages say of whose fields they are, as "served requests have"; empty string for nothing.
        complete: whether every field must be given, those that may be null included.

    Raises:
        DesignError: an unknown field, one that is missing, of another type, or out of range; one line with its address.
    """
    if complete and isinstance(config, Dict):
        for spec in fields(cls):  # type: ignore[arg-type]
            if spec.name not in config and "computed" not in spec.metadata:
                raise DesignError(f"{address}.{spec.name}: missing from the configuration; {_meaning_text(spec)}")
    return parse_record(cls, config, address, [], owner=owner)


def parse_setting(value: Any, declared: Any, address: str) -> Any:
    """One setting by a field that is declared alone, as an option of a command.

    Raises:
        DesignError: of another type, or out of range.
    """
    return None if value is None and "absent" in declared.metadata else _parse_leaf(value, declared, address, [])


def parse_record(cls: type[T], config: Any, address: str, sources: list[ConstantSource], *, owner: str = "") -> T:
    """A record from a dictionary of its fields: text with units, and constants with their source."""
    if not isinstance(config, Dict):
        given = "null" if config is None else repr(config)
        raise DesignError(f"{address}: {given} is not a group of fields; {_fields_text(address, cls)}")
    hints = field_types(cls)  # type: ignore[arg-type]
    names = {
        spec.name: spec
        for spec in fields(cls)  # type: ignore[arg-type]
        if spec.compare and "computed" not in spec.metadata
    }
    origin, begun = _source_origin(config, address), len(sources)
    ranges = origin.pop(RANGES, None)
    config = {key: value for key, value in config.items() if key not in (*origin, *_beside_records(address, ranges))}
    config = _gather_part(config, names)
    for key in config:
        if key not in names:
            whose = f"{owner} " if owner else ""
            raise DesignError(f"{address}: {whose}no field {f'{address}.{key}'!r}; {suggest_nearest(str(key), names)}")
    values: dict[str, Any] = {}
    for name, spec in names.items():
        field_address = f"{address}.{name}".lstrip(".")  # options of a command are in no group
        if name not in config:
            if spec.default is MISSING and spec.default_factory is MISSING:
                others = preset_overrides(cls.__name__, address)
                raise DesignError(f"{field_address}: missing; {_meaning_text(spec)}{f'; {others}' if others else ''}")
            continue
        group = record_type(hints[name])
        if "refused" in spec.metadata:
            if config[name] is not None:
                raise DesignError(f"{field_address}: {spec.metadata['refused']}")
        elif "table" in spec.metadata:
            values[name] = _parse_table(spec.metadata["table"], config[name], field_address, sources)
        elif isinstance(config[name], str) and config[name] in spec.metadata.get("words", ()):
            values[name] = spec.metadata["words"][config[name]]
        elif "parts" in spec.metadata:
            kinds = spec.metadata["parts"]
            other_address = address if "inline" in spec.metadata else field_address
            if (len(kinds) > 1 or "words" in spec.metadata) and not isinstance(config[name], Dict | None):
                raise DesignError(
                    f"{field_address}: {config[name]!r} is not a group of fields; "
                    f"set them one by one, {field_address}.FIELD=VALUE{_alternatives_text(spec)}"
                )
            values[name] = (
                None
                if config[name] is None
                else parse_record(best_matching_kind(config[name], kinds), config[name], other_address, sources)
            )
        elif spec.default is None and config[name] is None:
            continue
        elif group is not None:
            absent = config[name] is None and isinstance(hints[name], UnionType)
            values[name] = None if absent else parse_record(group, config[name], field_address, sources)
        else:
            values[name] = _parse_leaf(config[name], spec, field_address, sources)
    if origin:
        sources[begun:] = [_with_origin(source, origin) for source in sources[begun:]]
    return cls(**values) if ranges is None else cls(**values, **{RANGES: ranges})


def _source_origin(config: Dict[Any, Any], address: str) -> dict[str, Any]:
    """What a stack or a part of one, or a constant in it, says of chips that it is from and for, and of measurements.

    Nothing of other groups.
    """
    if not f"{address}.".startswith(f"{STACK}."):
        return {}
    origin = {key: config[key] for key in ORIGIN if key in config}
    ranges = origin.pop(RANGES, None)
    stated = {key: parse_setting(value, ORIGIN_FIELDS[key], f"{address}.{key}") for key, value in origin.items()}
    found_chips_of: dict[str, Any] = {key: value for key, value in stated.items() if value or value == ()}
    if address == STACK and config.get(ACCURACY) is not None:
        found_chips_of[ACCURACY] = parse_record(StackAccuracy, config[ACCURACY], f"{address}.{ACCURACY}", [])
    return found_chips_of if ranges is None else found_chips_of | {RANGES: _parse_ranges(ranges, f"{address}.{RANGES}")}


def _beside_records(address: str, ranges: Any) -> tuple[str, ...]:
    """Keys of a group that no field of its record has."""
    return ((RANGES,) if ranges is not None else ()) + ((ACCURACY,) if address == STACK else ())


def _parse_ranges(config: Any, address: str) -> tuple[tuple[str, float, float], ...]:
    """Sizes that measured rows have, as (name, least, most)."""
    if not isinstance(config, Dict):
        raise DesignError(f"{address}: {config!r} is not a group of ranges; write {{keys: [256, 16384]}}")
    for name, ends in config.items():
        numbers = isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)
        if not numbers or not 0 <= ends[0] <= ends[1]:
            raise DesignError(f"{address}.{name}: {ends!r} is not a range; write the least and the most, as [256, 16384]")
    return tuple((str(name), float(low), float(high)) for name, (low, high) in config.items())


def _with_origin(source: ConstantSource, origin: Dict[str, Any]) -> ConstantSource:
    """A constant with what is said of chips, of its group where neither it nor a group in that says so itself."""
    if source.source == "override" or not origin:
        return source
    return replace(source, **({ACCURACY: origin.get(ACCURACY)} if source.fitted_on else origin))


def _parse_table(kind: type, config: Any, address: str, sources: list[ConstantSource]) -> tuple[tuple[str, Any], ...]:
    """Value objects by name, in order."""
    if config is None:
        return ()
    if not isinstance(config, Dict):
        raise DesignError(f"{address}: {config!r} is not a group of groups; write NAME: {{...}} for each")
    return tuple((str(name), parse_record(kind, entry or {}, f"{address}.{name}", sources)) for name, entry in config.items())


def _gather_part(config: Dict[Any, Any], names: Dict[str, Any]) -> Dict[Any, Any]:
    """A group whose fields of an inline part are gathered under the name of that part."""
    for name, spec in names.items():
        if "inline" in spec.metadata:
            known = {own.name for kind in spec.metadata["parts"] for own in fields(kind)}
            own = {key: value for key, value in config.items() if key in known - set(names)}
            config = {key: value for key, value in config.items() if key not in own} | ({name: own} if own else {})
    return config


def best_matching_kind(config: Any, kinds: Sequence[type]) -> type:
    """The record class that shares most fields with a group; the first of equals.

    Fields of nested groups break ties.
    """

    def count_shared_fields(kind: type) -> tuple[int, int]:
        hints, within = field_types(kind), 0
        own = set(hints) & set(config)
        for key in own:
            group = record_type(hints[key])
            if isinstance(config[key], Dict) and group is not None:
                within += len(set(field_types(group)) & set(config[key]))
        return len(own), within

    if not isinstance(config, Dict) or len(kinds) == 1:
        return kinds[0]
    return max(kinds, key=count_shared_fields)


def parse_value(value: Any, unit: str, address: str) -> float:
    """A number from text with a unit, or from a bare number if the field has no unit.

    Raises:
        DesignError: with the address in front.
    """
    if isinstance(value, str):
        try:
            return parse_quantity(value, unit)
        except DesignError as error:
            raise DesignError(f"{address}: {error}") from None
    if isinstance(value, int | float) and not isinstance(value, bool) and unit != "1" and value != 0:
        raise DesignError(f"{address}: {value!r} has no unit; expected one of {unit}, as in '{value} {usual_unit(unit)}'")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DesignError(f"{address}: {value!r} is not a number")
    return value


def _parse_leaf(value: Any, spec: Any, address: str, sources: list[ConstantSource]) -> Any:
    if not COMPOUND.isdisjoint(spec.metadata):
        return _parse_compound(value, spec, address)
    if isinstance(value, Dict):
        chips = _source_origin(value, address)
        unknown = set(value) - (CONSTANT - {*ORIGIN} | chips.keys())
        if unknown or "value" not in value:
            got = ", ".join(map(str, value))
            constant = (
                "its constant may have value, source, page, note and range; " if address.startswith((*SOURCED, "pools")) else ""
            )
            raise DesignError(f"{address}: one value, not a group of fields ({got}); {constant}{_meaning_text(spec)}")
        page, note = (str(value.get(key, "")) for key in ("page", "note"))
        source = ConstantSource(address, str(value["value"]), str(value.get("source", "override")), page, note)
        if value.get("range") is not None:
            source = replace(source, stated_range=_parse_constant_range(value, spec, address))
        sources.append(_with_origin(source, chips))
        value = value["value"]
    elif address.startswith(SOURCED):
        sources.append(ConstantSource(address, str(value), "override"))
    return _parse_plain(value, spec, address)


SOURCED = ("chip", "mapping.stack", "mapping.inference_engine")
"""Parts of a design whose numbers are constants with a source."""

COMPOUND = frozenset({"list", "group", "listed", "several", "words"})
"""Declarations of fields whose values are more than one number, word or truth value."""


def _parse_plain(value: Any, spec: Any, address: str) -> Any:
    """A number, a word or a truth value."""
    if value is None:
        raise DesignError(f"{address}: null is no value here; needed: {_meaning_text(spec)}")
    unit = spec.metadata["unit"]
    try:
        if isinstance(value, str) and "whole" in spec.metadata and ("%" in value or "percent" in value):
            raise DesignError(f"{address}: {value!r} is a share; write a whole number")
        if unit and not isinstance(value, bool):
            value = parse_value(value, unit, address)
        return check_leaf(value, spec, address)
    except DesignError as error:
        raise DesignError(f"{error}{_alternatives_text(spec)}") from None


def _parse_compound(value: Any, spec: Any, address: str) -> Any:
    """A list, a group of any fields, one quantity or several, or a word that stands for a value."""
    limits = spec.metadata
    words = limits.get("words", ())
    if isinstance(value, str) and value in words:
        return words[value]
    if "group" in limits:
        if not isinstance(value, Dict):
            example = f", as in {limits['group']}" if limits["group"] else ""
            given = "null" if value is None else repr(value)
            raise DesignError(f"{address}: {given} is not a group of fields{example}")
        return value
    entries = value if isinstance(value, list) else []
    for entry in entries:
        if isinstance(entry, str) and entry in words:
            raise DesignError(f"{address}: {entry} cannot be in a list; write it alone")
    if "list" in limits:
        return _parse_list(value, spec, address)
    if "several" in limits and entries:
        return tuple(_parse_plain(entry, spec, address) for entry in entries)
    return _parse_plain(entries[0] if "listed" in limits and len(entries) == 1 else value, spec, address)


def _parse_list(value: Any, spec: Any, address: str) -> tuple[Any, ...]:
    """Values of a list; a bare value is a list of one where its field says so."""
    limits, inner = spec.metadata, spec.metadata["list"]
    if "single" in limits and not isinstance(value, list | Dict):
        value = [value]
    if not isinstance(value, list) or not (value or "empty" in limits):
        raise DesignError(f"{address}: {value!r} is not a list of {limits['expected']}{_alternatives_text(spec)}")
    if isinstance(inner, type):
        return tuple(parse_record(inner, entry, f"{address}.{place}", []) for place, entry in enumerate(value))
    return tuple(_parse_leaf(entry, inner, address, []) for entry in value)


def _alternatives_text(spec: Any) -> str:
    """What can be written in the place of a value, as the end of a message; empty string for nothing."""
    others = [*spec.metadata.get("words", ()), *(["null"] if "absent" in spec.metadata else [])]
    return f"; or set {' or '.join(others)}" if others else ""


def _parse_constant_range(constant: Dict[Any, Any], spec: Any, address: str) -> tuple[float, float]:
    """Range that a constant states for itself, as factors of its value.

    Raises:
        DesignError: no quantity, or no two factors of which the first is up to 1 and the second from 1 on.
    """
    ends = constant["range"]
    numbers = isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)
    if not spec.metadata.get("unit") or "whole" in spec.metadata:
        raise DesignError(f"{address}.range: only quantities have a range; remove it")
    if not numbers or not 0 < ends[0] <= 1 <= ends[1] < inf:
        raise DesignError(f"{address}.range: {ends!r} is not the least and the most over the value; write [0.8, 1.25]")
    return float(ends[0]), float(ends[1])


def record_type(hint: Any) -> Any:
    """Record class of a field's values, if they are records."""
    candidates = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return next((c for c in candidates if isinstance(c, type) and is_dataclass(c)), None)


def _meaning_text(spec: Any) -> str:
    unit = spec.metadata.get("unit", "")
    doc = str(spec.metadata.get("doc", "a group of fields"))
    return f"{doc} [{unit}]" if unit not in ("", "1") else doc


def _fields_text(address: str, cls: type) -> str:
    return f"{address} has {', '.join(sorted(spec.name for spec in fields(cls)))}"
