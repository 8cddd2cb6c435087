"""Fields of records: how each declares unit, range and meaning, for builders, knobs and reports."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, cast, dataclass_transform

import numpy as np

from dse.space.errors import DesignError, suggest_nearest

T = TypeVar("T")

Unread = Mapping[str, tuple[str | int | None, ...]]
"""Options or whole numbers, by the leaf that has them, under which another leaf is not read."""

ALWAYS: Unread = MappingProxyType({})

KEY_NAMES = {
    "ChoiceKnob": "Choice",
    "CompressedAttention": "Compressed",
    "ExpertLayers": "Experts",
    "IntervalKnob": "Interval",
    "LatentAttention": "Latent",
    "LayerKind": "Kind",
    "RecurrentMixing": "Recurrence",
    "SloClass": "Class",
    "SparseIndexer": "Indexer",
}
"""By renamed class, the name that content keys of stored results have for it."""

RENAMED = re.compile(rf"\b(?:{'|'.join(KEY_NAMES)})(?=\()")
"""A renamed class at the beginning of a `repr`."""


NO_WORDS: Mapping[str, Any] = MappingProxyType({})
"""No words in the place of a value."""


def quantity_field(
    unit: str,
    doc: str,
    *,
    low: float = 0.0,
    high: float = math.inf,
    positive: bool = False,
    above: float | None = None,
    below: float | None = None,
    several: bool = False,
    words: Mapping[str, Any] = NO_WORDS,
    default: float | None = None,
    absent: bool = False,
    unread: Unread = ALWAYS,
    former: str = "",
    keyed: bool = True,
) -> Any:
    """Field for a quantity with a unit, bounded by `low` and `high`.

    `positive` refuses zero as well, `above` and `below` refuse these bounds themselves, and `absent` allows a missing value.
    With `several`, a list of quantities is allowed too; a word of `words` stands for its value. Where other leaves have the
    options or whole numbers in `unread`, nothing reads this leaf (`dse.space.unread_leaves`). `former` is
    the name that the field had before, which is an alias of it (`dse.space.aliases`) and the one that content keys have.
    No result depends on a field that is not `keyed`, and content keys leave it out.
    """
    metadata: dict[str, Any] = {"unit": unit, "doc": doc, "low": low, "high": high, "positive": positive}
    metadata |= {} if keyed else {"keyed": False}
    metadata |= _set_only(above=above, below=below, several=several or None, words=words or None)
    return _leaf(metadata | _unread(unread) | _former(former), default, absent)


def integer_field(
    doc: str,
    *,
    low: int = 1,
    high: int | None = None,
    words: Mapping[str, Any] = NO_WORDS,
    listed: bool = False,
    default: int | None = None,
    unit: str = "1",
    absent: bool = False,
    apart: bool = False,
    unread: Unread = ALWAYS,
    former: str = "",
) -> Any:
    """Field for a whole number of things or units, from `low` to `high`.

    Designs that differ in a field with `apart` are evaluated in separate groups. A word of `words` stands for its value; with
    `listed`, a list of one number is this number.
    """
    metadata: dict[str, Any] = {"unit": unit, "doc": doc, "low": low, "whole": True} | ({"apart": True} if apart else {})
    metadata |= _set_only(high=high, words=words or None, listed=listed or None)
    return _leaf(metadata | _unread(unread) | _former(former), default, absent)


def option_field(
    doc: str,
    options: Sequence[str] = (),
    *,
    default: str | None = None,
    number: bool = False,
    unfit: Mapping[str, str] = MappingProxyType({}),
    form: str = "",
    pattern: str = "",
    absent: bool = False,
    unread: Unread = ALWAYS,
    former: str = "",
    former_options: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Field for an option, one of several words.

    With `options`, the value is one of these; with `number`, a whole number is allowed too; `unfit` gives reasons
    against other options. A text of the regular expression `pattern` is an option too, which messages write as `form`.

    `former_options` are options by the names that they had before, which are aliases of them, and which content keys have.
    """
    metadata: dict[str, Any] = {"unit": "", "doc": doc, "options": tuple(options), "unfit": unfit}
    metadata |= _set_only(number=number or None, form=form or None, pattern=pattern or None)
    before = {"former_options": MappingProxyType(dict(former_options))} if former_options else {}
    return _leaf(metadata | _unread(unread) | _former(former) | before, default, absent)


def boolean_field(doc: str, *, default: bool | None = None, absent: bool = False, former: str = "") -> Any:
    """Field for a true or false value."""
    return _leaf({"unit": "", "doc": doc, "flag": True} | _former(former), default, absent)


def text_field(
    doc: str,
    expected: str = "text",
    *,
    pattern: str = "",
    number: bool = False,
    default: str | None = None,
    absent: bool = False,
) -> Any:
    """Field for a text: any, or one of the regular expression `pattern`.

    `expected` says in messages what has to be written. With `number`, a whole number is a text too, as the name of a file
    may be.
    """
    metadata = {"unit": "", "doc": doc, "text": expected, "pattern": pattern} | ({"number": True} if number else {})
    return _leaf(metadata, default, absent)


def list_field(
    doc: str,
    inner: Any,
    expected: str,
    *,
    single: bool = False,
    empty: bool = False,
    words: Mapping[str, Any] = NO_WORDS,
    default: tuple[Any, ...] | None = None,
    absent: bool = False,
) -> Any:
    """Field for a list of values, stored as a tuple.

    Args:
        doc: meaning of the list.
        inner: field of one value, or record class of one group of fields.
        expected: what messages say of the list, with an example.
        single: whether a bare value is a list of one.
        empty: whether a list without values is one.
        words: values that words in the place of the list stand for.
        default: value of a field that is left out; None if it must be given.
        absent: whether null, or a field that is left out, is None.
    """
    metadata: dict[str, Any] = {"doc": doc, "list": inner, "unit": _inner_unit(inner), "expected": expected}
    metadata |= _set_only(single=single or None, empty=empty or None, words=words or None)
    return _leaf(metadata, default, absent)


def group_field(doc: str, example: str = "") -> Any:
    """Field for a group of any fields, stored as the dictionary that was given; empty by default."""
    return field(metadata={"doc": doc, "group": example}, default_factory=dict)


def computed_field(doc: str, default: Any) -> Any:
    """Field that no configuration sets: the program computes it, or another group has it."""
    return field(metadata={"doc": doc, "computed": True}, default=default)


def table_field(doc: str, kind: type) -> Any:
    """Field for records by user-given names, stored as pairs in the given order; empty by default."""
    return field(metadata={"doc": doc, "table": kind}, default=())


def part_field(
    doc: str, *kinds: type, inline: bool = False, words: Mapping[str, Any] = NO_WORDS, default: Any = None, former: str = ""
) -> Any:
    """Field for a part: a record of one of several kinds, told apart by their fields, or None.

    The addresses of an `inline` part's leaves are those of the whole: ``mapping.rows``, not ``mapping.kernel.rows``. A word of
    `words` stands for its value.
    """
    metadata = {"doc": doc, "parts": kinds} | ({"inline": True} if inline else {}) | _set_only(words=words or None)
    return field(metadata=metadata | _former(former), default=default)


def refused_field(why: str) -> Any:
    """Field that this record must not have though similar records do; `why` is the message."""
    return field(metadata={"doc": why, "refused": why}, default=None)


def ranges() -> Any:
    """Field for the sizes that a part's constants were fitted on, as (name, lowest, highest); not a leaf."""
    return field(default=None, compare=False, repr=False)


def _set_only(**metadata: Any) -> dict[str, Any]:
    """Metadata that are not None."""
    return {name: value for name, value in metadata.items() if value is not None}


def _inner_unit(inner: Any) -> str:
    return "" if isinstance(inner, type) else str(inner.metadata.get("unit", ""))


def _unread(words: Unread) -> dict[str, Any]:
    return {"unread": words} if words else {}


def _former(name: str) -> dict[str, Any]:
    return {"former": name} if name else {}


def _leaf(metadata: dict[str, Any], default: Any, absent: bool) -> Any:
    if absent:
        return field(metadata=metadata | {"absent": True}, default=None)
    return field(metadata=metadata) if default is None else field(metadata=metadata, default=default)


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(
        quantity_field,
        integer_field,
        option_field,
        boolean_field,
        text_field,
        list_field,
        group_field,
        computed_field,
        part_field,
        table_field,
        refused_field,
        ranges,
        field,
    ),
)
def record_class(cls: type[T]) -> type[T]:
    """Class decorator for a frozen, slotted dataclass with declared leaves."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def iterate_leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any, Field[Any]]]:
    """Leaves below a record as (address, value, field), in order of declaration, without absent parts."""
    leaves: list[tuple[str, Any, Field[Any]]] = []
    _gather(value, prefix, leaves)
    return iter(leaves)


def iterate_key_leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Address and value of every leaf as content keys have them, in the order of `iterate_leaves`.

    Keys stay as they were when a field or an option is renamed: they have former names, as `former` and `former_options` of the
    field say.
    """
    former_part: list[tuple[str, Any, Field[Any]]] = []
    _gather(value, prefix, former_part, former=True)
    return ((address, key_option(spec, inner)) for address, inner, spec in former_part if is_keyed(spec))


def is_keyed(spec: Field[Any]) -> bool:
    """Whether content keys have a leaf; they leave out those on which no result depends."""
    return bool(spec.metadata.get("keyed", True))


def key_option(spec: Field[Any], value: Any) -> Any:
    """A value of a leaf as content keys have it: a former option where an option was renamed."""
    former: Mapping[str, str] = spec.metadata.get("former_options", ALWAYS)
    return next((old for old, new in former.items() if new == value), value) if former and isinstance(value, str) else value


def has_equal_leaves(record: Any, other: Any) -> bool:
    """Whether two records have the same leaves with equal values in all their designs.

    >>> from dse.space.dram import MemoryController
    >>> queues = MemoryController(waiting=64, queue=8, path=1e-7)
    >>> (
    ...     has_equal_leaves(queues, MemoryController(waiting=64, queue=8, path=1e-7)),
    ...     has_equal_leaves(queues, MemoryController(waiting=32, queue=8, path=1e-7)),
    ... )
    (True, False)
    """
    both = [[(address, value) for address, value, _ in iterate_leaves(value_of_pair)] for value_of_pair in (record, other)]
    return (
        type(record) is type(other)
        and len(both[0]) == len(both[1])
        and all(a == b and np.array_equal(left, right) for (a, left), (b, right) in zip(*both, strict=True))
    )


def _gather(value: Any, prefix: str, leaves: list[tuple[str, Any, Field[Any]]], *, former: bool = False) -> None:
    values, declared = _declared(type(value), prefix, former)  # type: ignore[arg-type]
    for inner, (address, below, spec) in zip(values(value), declared, strict=True):
        if inner is None:
            continue
        if _nests(type(inner)):  # type: ignore[arg-type]
            _gather(inner, below, leaves, former=former)
        elif spec.metadata:
            leaves.append((address, inner, spec))


@cache
def _declared(
    kind: type[Any], prefix: str, former: bool = False
) -> tuple[Callable[[Any], Any], tuple[tuple[str, str, Field[Any]], ...]]:
    """What tells all fields of a value object; and of each its address, the prefix of what is below it, and its declaration.

    With `former`, addresses have the names that fields had before.
    """
    specs = fields(kind)
    names = [spec.metadata.get("former", spec.name) if former else spec.name for spec in specs]
    rows = tuple(
        (prefix + name, prefix if "inline" in spec.metadata else f"{prefix}{name}.", spec)
        for name, spec in zip(names, specs, strict=True)
    )
    if len(specs) > 1:
        return attrgetter(*(spec.name for spec in specs)), rows
    return lambda value: [getattr(value, spec.name) for spec in specs], rows


@cache
def _nests(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__")


def addresses(value: Any, pattern: str) -> list[str]:
    """Leaf addresses that an address names: itself, or those of both phases for ``mapping.both.tp``.

    Raises:
        DesignError: none; the message has the nearest valid address.
    """
    return match_addresses([address for address, _, _ in iterate_leaves(value)], pattern)


def match_addresses(known: list[str], pattern: str) -> list[str]:
    """Known addresses that a pattern names; an error if there is none."""
    addresses = match_addresses_or_none(known, pattern)
    if not addresses:
        raise DesignError(f"no field {pattern!r}; {_nearest_sibling(pattern.split('.'), known)}")
    return addresses


def match_addresses_or_none(known: Sequence[str], pattern: str) -> list[str]:
    """Known addresses that a pattern names; an empty list if there is none."""
    if "both" not in pattern:
        return [address for address in known if address == pattern]
    named_by = _both(pattern).fullmatch
    return [address for address in known if named_by(address)]


@cache
def _both(pattern: str) -> re.Pattern[str]:
    """What the addresses look like that one with ``both`` names."""
    return re.compile(r"\.".join("[^.]*" if name == "both" else re.escape(name) for name in pattern.split(".")))


def leaf_at(value: Any, address: str) -> Any:
    """Leaf at a dotted address of a record."""
    for name in address.split("."):
        owner = _owner(value, name)
        value = getattr(getattr(value, owner) if owner else value, name)
    return value


def holder(value: Any, address: str) -> tuple[Any, str]:
    """Record that has the leaf at a dotted address, and the leaf's field name in the record."""
    *path, last = address.split(".")
    owner = leaf_at(value, ".".join(path)) if path else value
    inline = _owner(owner, last)
    return (getattr(owner, inline) if inline else owner), last


def field_at(value: Any, address: str) -> Field[Any]:
    """Field declaration of the leaf at a dotted address."""
    owner, name = holder(value, address)
    return next(spec for spec in fields(owner) if spec.name == name)


def _owner(value: Any, name: str) -> str:
    """The inline part that has a field which the whole does not have; "" where the whole has it."""
    if hasattr(value, name):
        return ""
    inline = (spec.name for spec in fields(value) if "inline" in spec.metadata)
    return next((own for own in inline if hasattr(getattr(value, own), name)), "")


def fingerprint(value: Any) -> str:
    """Text that identifies a record's content; fields at their defaults are left out.

    A new field with a default therefore changes no key.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(fingerprint, value))})"
    if not is_dataclass(value):
        return repr(value)
    own = [spec for spec in fields(value) if spec.compare]
    values = ((spec.name, getattr(value, spec.name)) for spec in own if getattr(value, spec.name) != spec.default)
    name = type(value).__name__
    return f"{KEY_NAMES.get(name, name)}({', '.join(f'{name}={fingerprint(inner)}' for name, inner in values)})"


def key_text(value: Any) -> str:
    """Text of a value for content keys: its `repr`, with former class names where stored keys use them.

    >>> from dse.space.knobs import ChoiceKnob
    >>> key_text(ChoiceKnob("chip.cores", (1, 2)))[:7]
    'Choice('
    """
    return RENAMED.sub(lambda match: KEY_NAMES[match[0]], repr(value))


def replace_leaves(value: T, changes: Mapping[str, Any]) -> T:
    """Copy of a record with the leaves at some addresses changed; the rest is shared."""
    current_changes: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for address, new in changes.items():
        head, _, tail = address.partition(".")
        owner = _owner(value, head)
        if owner:
            below.setdefault(owner, {})[address] = new
        elif tail:
            below.setdefault(head, {})[tail] = new
        else:
            current_changes[head] = new
    for head, inner in below.items():
        current_changes[head] = replace_leaves(getattr(value, head), inner)
    return _copied(value, current_changes)


def _copied(value: T, changes: Mapping[str, Any]) -> T:
    """A copy with some fields changed, as `dataclasses.replace` makes it, in a quarter of its time."""
    values, names = _as_they_are(type(value))  # type: ignore[arg-type]
    if values is None or not changes.keys() <= names.keys():
        return cast(T, replace(cast(Any, value), **changes))
    copy = object.__new__(type(value))
    for fields_of in (zip(names, values(value), strict=True), changes.items()):
        for name, inner in fields_of:
            object.__setattr__(copy, name, inner)
    return copy


@cache
def _as_they_are(kind: type[Any]) -> tuple[Callable[[Any], Any] | None, dict[str, None]]:
    """What tells all fields, and their names; None where making a value object does more than to set them."""
    names = {spec.name: None for spec in fields(kind)}
    if hasattr(kind, "__post_init__") or not all(spec.init for spec in fields(kind)):
        return None, names
    return _declared(kind, "")[0], names  # type: ignore[arg-type]


def _names(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    return len(wanted) == len(parts) and all(w in (p, "both") for w, p in zip(wanted, parts, strict=True))


def _nearest_sibling(wanted: Sequence[str], known: list[str]) -> str:
    """Hint about the last group of an address that exists: its nearest field, and all of them.

    >>> _nearest_sibling(["chip", "l2", "sze"], ["chip.l2.size", "chip.l2.width", "chip.cores"])
    "did you mean 'size'? valid: size, width"
    >>> _nearest_sibling(["chip", "l3", "size"], ["chip.l2.size", "chip.l2.width", "chip.cores"])
    "did you mean 'l2'? valid: cores, l2"
    """
    paths = [address.split(".") for address in known]
    for depth in range(len(wanted) - 1, 0, -1):
        siblings = {path[depth] for path in paths if len(path) > depth and _names(wanted[:depth], path[:depth])}
        if siblings:
            return suggest_nearest(wanted[depth], siblings)
    return suggest_nearest(wanted[0], {path[0] for path in paths})


MAX_EXACT_INTEGER = 2**53
"""Whole numbers up to it are themselves as floats, which columns of designs are."""


def check_leaf(value: Any, spec: Field[Any], address: str) -> Any:
    """Value of a leaf, checked against its declaration.

    Raises:
        DesignError: of another type, out of range, or not one of the options.
    """
    limits = spec.metadata
    if "flag" in limits:
        if not isinstance(value, bool):
            raise DesignError(f"{address}: {value!r} is not true or false")
        return value
    if "options" in limits or "text" in limits:
        return _check_text(value, limits, address)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DesignError(f"{address}: {value!r} is not a number")
    if not math.isfinite(value):
        raise DesignError(f"{address}: {value!r} is not a finite number")
    if "whole" in limits and (value != int(value) or abs(value) > MAX_EXACT_INTEGER):
        raise DesignError(
            f"{address}: {value!r} is not a whole number"
            + (f" up to {MAX_EXACT_INTEGER}" if abs(value) > MAX_EXACT_INTEGER else "")
        )
    number: int | float = int(value) if "whole" in limits else float(value)
    if not limits["low"] <= number <= limits.get("high", math.inf) or "above" in limits or "below" in limits:
        _check_bounds(number, limits, address)
    if limits.get("positive") and number == 0:
        raise DesignError(f"{address}: must be above 0")
    return number


def _check_bounds(number: float, limits: Mapping[str, Any], address: str) -> None:
    """Refuse a number outside of its declared range."""
    form = ",d" if "whole" in limits else "g"
    bounds = (
        (number < limits["low"], "is below the minimum,", limits["low"]),
        (number > limits.get("high", math.inf), "is above the maximum,", limits.get("high", 0)),
        (number <= limits.get("above", -math.inf), "is not above", limits.get("above", 0)),
        (number >= limits.get("below", math.inf), "is not below", limits.get("below", 0)),
    )
    for is_broken, why, bound in bounds:
        if is_broken:
            unit = f" {limits['unit']}" if limits["unit"] != "1" else ""
            raise DesignError(f"{address}: {number:{form}}{unit} {why} {bound:{form}}")


def _check_text(value: Any, limits: Mapping[str, Any], address: str) -> str:
    """A text or an option, checked against its declaration."""
    if "number" in limits and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise DesignError(f"{address}: {value!r} is not {limits.get('text', 'text')}")
    matches = bool(limits.get("pattern")) and re.fullmatch(limits["pattern"], value) is not None
    if "text" in limits:
        if limits["pattern"] and not matches:
            raise DesignError(f"{address}: {value!r} is not {limits['text']}")
        return value
    if value in limits["unfit"]:
        raise DesignError(f"{address}: {limits['unfit'][value]}")
    if limits["options"] and value not in limits["options"] and not matches:
        form = f"; or {limits['form']}" if "form" in limits else ""
        raise DesignError(f"{address}: no option {value!r}; {suggest_nearest(value, limits['options'])}{form}")
    return value
