"""Knobs and the design space that they span: from knob values to designs, singly or in columns.

A knob's address may contain ``both``: the value then goes to the leaves of both phases, as in ``mapping.both.tp``.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dse.space.array_math import Array, convert_to_slice, distinct_values
from dse.space.design import KEY_DIGITS, Design, Designs, hash_lines, key_line, key_of_leaves
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import (
    addresses,
    check_leaf,
    field_at,
    is_keyed,
    iterate_key_leaves,
    iterate_leaves,
    key_option,
    key_text,
    leaf_at,
    match_addresses_or_none,
    replace_leaves,
)
from dse.space.unread_leaves import Condition, explain_unread, read_conditions

Value = float | int | str

MAX_TIED_VALUES = 20_000
"""Combinations of values that what is tied is looked at for, when a space is made."""

GROUP_ROWS = 256
"""Rows that a group must have on average to be a group of its own. Numbers of the mapping that differ within a group cost
as much as some four groups with one number each, and more for each design.
"""

ADDRESS = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
"""An address in an expression."""

ADDRESS = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
"""An address in an expression."""

Columns = dict[str, Array]
"""By knob: numbers as float64, NaN where inactive; options as int16 codes into `ChoiceKnob.values`, -1 where inactive."""


@dataclass(frozen=True, slots=True)
class ChoiceKnob:
    """A knob with a finite, ordered set of values.

    Attributes:
        address: the leaves it moves.
        values: in the leaves' SI units, or options.
        when: (knob address, values) pairs that must all apply for this knob to count; elsewhere leaves keep their base
            value.
        read: knobs of choices, one of which must have a value under which something reads the leaves; none for leaves
            that are always read. A space fills it in.
    """

    address: str
    values: tuple[Any, ...]
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    read: tuple[Condition, ...] = field(default=(), repr=False)

    @property
    def words(self) -> bool:
        """Whether the knob's values are options, which change the structure of a design."""
        return isinstance(self.values[0], str)


@dataclass(frozen=True, slots=True)
class IntervalKnob:
    """A knob with any value from `low` to `high`, both included."""

    address: str
    low: float
    high: float
    log: bool = False
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    read: tuple[Condition, ...] = field(default=(), repr=False)

    def unit(self, value: float) -> float:
        """Position of a value in the interval, from 0 at `low` to 1 at `high`."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


Knob = ChoiceKnob | IntervalKnob


@dataclass(frozen=True, slots=True)
class TiedLeaf:
    """A tied setting: leaves whose value is computed from the values of other leaves.

    Attributes:
        address: the leaves.
        text: the expression, as it was written.
        inputs: leaves that it is made of.
        worth: function from the input values to the value in SI, for numbers or for arrays of one shape.
    """

    address: str
    text: str
    inputs: tuple[str, ...]
    worth: Callable[[Mapping[str, Any]], Any] = field(repr=False, compare=False)


def order_by_dependency(knobs: Sequence[Knob]) -> list[Knob]:
    """Knobs sorted so that each comes after the knobs that it depends on.

    Raises:
        DesignError: two count by one another.
    """
    known, ordered = {knob.address: knob for knob in knobs}, dict[str, Knob]()

    def place_knob(knob: Knob, path: tuple[str, ...]) -> None:
        if knob.address in path:
            raise DesignError(
                f"space.{knob.address}: its 'when' depends on itself, by {', '.join(path[1:]) or 'its own value'}"
            )
        for other in (*(other for other, _ in knob.when), *(other for other, _, _ in knob.read)):
            if other not in ordered:
                place_knob(known[other], (*path, knob.address))
        ordered[knob.address] = knob

    for knob in knobs:
        if knob.address not in ordered:
            place_knob(knob, ())
    return list(ordered.values())


def active_rows(knobs: Sequence[Knob], moved: Callable[[Knob, tuple[Any, ...]], Array]) -> dict[str, Array]:
    """Mask of the rows in which each knob is active, by the knob's address.

    Args:
        knobs: of a space.
        moved: where a knob has one of some values, were it to count.
    """
    rows: dict[str, Any] = {}
    known = {knob.address: knob for knob in knobs}
    for knob in order_by_dependency(knobs):
        active_row: Any = np.True_
        for other, allowed in knob.when:
            active_row = active_row & rows[other] & moved(known[other], allowed)
        if knob.read:
            somewhere: Any = np.False_
            for other, words, usual in knob.read:
                somewhere = somewhere | np.where(rows[other], moved(known[other], words), usual)
            active_row = active_row & somewhere
        rows[knob.address] = active_row
    return rows


def explain_never_read(base: Design, targets: Sequence[str], knobs: Sequence[Knob]) -> str:
    """Settings beside which none of some leaves is read, as text; empty string if one may be read."""
    if read_conditions(base, targets, _moved(base, knobs)) is not None:
        return ""
    return ", ".join(dict.fromkeys(explain_unread(base, target) for target in targets))


def _moved(base: Design, knobs: Sequence[Knob]) -> dict[str, tuple[str, Sequence[Any]]]:
    """Choice knobs by the leaf that they set, as address and values; for knobs whose address the base has."""
    choices = [knob for knob in knobs if isinstance(knob, ChoiceKnob)]
    known = [address for address, _, _ in iterate_leaves(base)] if choices else []
    return {leaf: (knob.address, knob.values) for knob in choices for leaf in match_addresses_or_none(known, knob.address)}


class _Here(dict[str, Any]):
    """Leaves of a base with changes: those that were not changed have the base's value."""

    def __init__(self, base: Design, changes: Mapping[str, Any]) -> None:
        super().__init__(changes)
        self._base = base

    def __missing__(self, leaf: str) -> Any:
        return leaf_at(self._base, leaf)


@dataclass(frozen=True)
class Space:
    """A design space: a base design, the knobs that vary it, and its tied settings in dependency order.

    Raises:
        DesignError: a knob names no leaf, sets a leaf that another knob sets, or has a value that its leaf cannot take.
    """

    base: Design
    knobs: tuple[Knob, ...]
    tied: tuple[TiedLeaf, ...] = ()
    targets: dict[str, list[str]] = field(init=False, repr=False, compare=False)
    _following: dict[str, list[str]] = field(init=False, repr=False, compare=False)
    _former: dict[str, str] = field(init=False, repr=False, compare=False)
    _options: dict[str, Field[Any]] = field(init=False, repr=False, compare=False)
    _entries: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        targets = {knob.address: addresses(self.base, knob.address) for knob in self.knobs}
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "_following", {tied.address: addresses(self.base, tied.address) for tied in self.tied})
        keyed = [leaf for leaf in iterate_leaves(self.base) if is_keyed(leaf[2])]
        base = list(zip(keyed, iterate_key_leaves(self.base), strict=True))
        object.__setattr__(self, "_former", {leaf: former for (leaf, _, _), (former, _) in base if leaf != former})
        object.__setattr__(self, "_options", {leaf: spec for (leaf, _, spec), _ in base if "former_options" in spec.metadata})
        object.__setattr__(self, "_entries", {leaf: key_line(*former) for (leaf, _, _), former in base})
        owner: dict[str, str] = {}
        for knob in self.knobs:
            for address in targets[knob.address]:
                if address in owner:
                    raise DesignError(f"space: {knob.address} and {owner[address]} both set {address}; remove one of them")
                owner[address] = knob.address
                self._check(knob, address)
            for other, _ in knob.when:
                if other not in targets:
                    which = f"'when' names {other!r}, which is no knob of this space"
                    raise DesignError(f"space.{knob.address}: {which}; {suggest_nearest(other, targets)}")
        moved = _moved(self.base, self.knobs)
        read = (read_conditions(self.base, targets[knob.address], moved) or () for knob in self.knobs)
        object.__setattr__(
            self, "knobs", tuple(replace(knob, read=leaves_read) for knob, leaves_read in zip(self.knobs, read, strict=True))
        )
        order_by_dependency(self.knobs)
        for tied in self.tied:
            for address in self._following[tied.address]:
                if address in owner:
                    raise DesignError(
                        f"space: {tied.address} is tied, and {owner[address]} sets {address} too; remove one of them"
                    )
                owner[address] = tied.address
        self._check_tied()

    @property
    def base_spaces(self) -> Iterator[tuple[dict[str, Value], "Space"]]:
        """Spaces of a single base each, with the knob values that select each; here only this space."""
        return iter(((dict[str, Value](), self),))

    def spec(self, address: str) -> Field[Any]:
        """Field declaration of the leaf that a knob sets."""
        return field_at(self.base, self.targets[address][0])

    @property
    def key(self) -> str:
        """Content key of the base and the knobs."""
        former = [self._former_knob(knob) for knob in self.knobs]
        knobs = [(f"knob {knob.address}", key_text(knob)) for knob in former]
        read = [(f"read {knob.address}", key_text(knob.read)) for knob in former if knob.read]
        tied = [(f"tied {self._former_address(tied.address)}", self._former_text(tied.text)) for tied in self.tied]
        return key_of_leaves([*iterate_key_leaves(self.base), *knobs, *read, *tied])

    def _former_address(self, address: str) -> str:
        """An address of a knob, or of what is tied, as content keys have it."""
        leaf = next(iter(match_addresses_or_none(list(self._entries), address)), address)
        names = zip(address.split("."), self._former.get(leaf, leaf).split("."), strict=True)
        return ".".join(name if name == "both" else first for name, first in names)

    def _former_knob(self, knob: Knob) -> Knob:
        """A knob as content keys have it: with former addresses and options, its own and those that it counts by."""

        def list_former_options(address: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
            leaf = next(iter(self.targets.get(address, [address])))
            return tuple(self._former_option(leaf, value) for value in values)

        when = tuple((self._former_address(other), list_former_options(other, values)) for other, values in knob.when)
        read = tuple(
            (self._former_address(other), list_former_options(other, values), usual) for other, values, usual in knob.read
        )
        former = replace(knob, address=self._former_address(knob.address), when=when, read=read)
        return (
            replace(former, values=list_former_options(knob.address, former.values))
            if isinstance(former, ChoiceKnob)
            else former
        )

    def _former_text(self, text: str) -> str:
        """An expression with the addresses that content keys have."""
        return ADDRESS.sub(lambda match: self._former_address(match[0]), text) if self._former else text

    def _former_option(self, leaf: str, value: Any) -> Any:
        """A value of a leaf as content keys have it."""
        return key_option(self._options[leaf], value) if leaf in self._options else value

    def _line(self, leaf: str, value: Any) -> str:
        """One line of what a key is made of."""
        return key_line(self._former.get(leaf, leaf), self._former_option(leaf, value))

    def design_at(self, values: Mapping[str, Value]) -> Design:
        """The design at knob values; a missing or inactive knob leaves its base value."""
        return replace_leaves(self.base, self._changes(values))

    def key_at(self, values: Mapping[str, Value]) -> str:
        """Content key of the design at knob values, without building the design."""
        entries = dict(self._entries)
        entries.update((address, self._line(address, value)) for address, value in self._changes(values).items())
        return hash_lines(entries.values())

    def with_ties(self, design: Design) -> Design:
        """A design with its tied settings recomputed from its other leaves."""
        return replace_leaves(design, self._tied(design, {})) if self.tied else design

    def keys(self, columns: Columns) -> list[str]:
        """Content keys of the designs in columns, each equal to `key_at` of the row."""
        size = len(next(iter(columns.values()))) if columns else 1
        moved, changes = dict[str, Sequence[str]](), dict[str, Any]()
        for knob in self.knobs:
            words = isinstance(knob, ChoiceKnob) and knob.words
            for leaf in self.targets[knob.address]:
                moved[leaf] = self._word_entries(knob, leaf, columns[knob.address]) if words else ()
            if not words:
                self._change(knob, columns[knob.address], changes)
        for tied in self.tied:
            value = np.asarray(tied.worth(_Here(self.base, changes)), dtype=float)
            for leaf in self._following[tied.address]:
                changes[leaf] = np.trunc(value) if "whole" in field_at(self.base, leaf).metadata else value
        moved |= {
            leaf: _number_entries(self._former.get(leaf, leaf), np.broadcast_to(value, size)) for leaf, value in changes.items()
        }
        start, *rest = self._around(list(moved))
        begun = hashlib.sha256(start.encode())
        keys = []
        for row in zip(*(moved[leaf] for leaf in self._entries if leaf in moved), strict=True) if moved else ((),) * size:
            started_rows = begun.copy()
            started_rows.update("".join(part for pair in zip(row, rest, strict=True) for part in pair).encode())
            keys.append(started_rows.hexdigest()[:KEY_DIGITS])
        return keys

    def _word_entries(self, knob: Knob, leaf: str, codes: Array) -> list[str]:
        """Key line of an option leaf in each row; the base's line where the knob is inactive."""
        assert isinstance(knob, ChoiceKnob)
        entries = [*(self._line(leaf, word) for word in knob.values), self._entries[leaf]]
        return [entries[code] for code in codes.tolist()]

    def _around(self, moved: Sequence[str]) -> list[str]:
        """What of the lines of a key stands before, between and behind leaves that are moved."""
        parts, between = [], ""
        for place, (leaf, line) in enumerate(self._entries.items()):
            between += "\n" if place else ""
            if leaf in moved:
                parts.append(between)
                between = ""
            else:
                between += line
        return [*parts, between]

    @property
    def follows(self) -> list[str]:
        """Addresses of all leaves that are tied to others."""
        return [leaf for several in self._following.values() for leaf in several]

    def _changes(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Leaves with other values than the base's, and those that follow them."""
        changes = {a: value for knob, value in values.items() if self.active(knob, values) for a in self.targets[knob]}
        return self._tied(self.base, changes)

    def _tied(self, base: Design, changes: dict[str, Value]) -> dict[str, Value]:
        """Changes of a base, with those that follow them."""
        for tied in self.tied:
            value = float(tied.worth(_Here(base, changes)))
            for address in self._following[tied.address]:
                changes[address] = int(value) if "whole" in field_at(self.base, address).metadata else value
        return changes

    def active(self, address: str, values: Mapping[str, Value]) -> bool:
        """Whether a knob is active, given the values of the other knobs."""
        knob = self.knob(address)
        when = all(self.active(other, values) and values.get(other) in allowed for other, allowed in knob.when)
        return when and (not knob.read or any(self._reads(condition, values) for condition in knob.read))

    def knob(self, address: str) -> Knob:
        """Knob at an address; an error if the space has none there."""
        for knob in self.knobs:
            if knob.address == address:
                return knob
        raise DesignError(f"space: no knob {address!r}; knobs: {', '.join(self.targets)}")

    def canonical(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Values of active knobs only, in the order of the knobs."""
        return {k.address: values[k.address] for k in self.knobs if k.address in values and self.active(k.address, values)}

    @property
    def combinations(self) -> int | None:
        """Number of grid rows, with repetitions by inactive knobs; None if a knob is an interval."""
        if any(isinstance(knob, IntervalKnob) for knob in self.knobs):
            return None
        return math.prod(len(knob.values) for knob in self._order())

    def grid(self, start: int, stop: int) -> Columns:
        """Columns of grid rows `start` to `stop`, without repeated rows.

        Options vary slowest, then the mapping, then the chip.
        """
        order = self._order()
        index = np.arange(start, stop)
        codes: dict[str, Array] = {}
        for choice in reversed(order):
            index, codes[choice.address] = np.divmod(index, len(choice.values))
        return self._columns(codes)

    def sample(self, unit: Array) -> Columns:
        """Columns of designs from points of the unit cube, shape (designs, knobs)."""
        codes: dict[str, Array] = {}
        for column, knob in zip(unit.T, self.knobs, strict=True):
            if isinstance(knob, ChoiceKnob):
                codes[knob.address] = np.minimum((column * len(knob.values)).astype(int), len(knob.values) - 1)
            elif knob.log:
                codes[knob.address] = knob.low * (knob.high / knob.low) ** column
            else:
                codes[knob.address] = knob.low + (knob.high - knob.low) * column
        return self._columns(codes, unique=False)

    def columns_of_codes(self, codes: Mapping[str, Array]) -> Columns:
        """Columns of knobs given by places of choices and values of intervals."""
        return self._columns(codes, unique=False)

    def stack(self, columns: Columns) -> Designs:
        """Designs of the rows of columns, grouped by structure.

        Many rows are grouped by numbers of the mapping as well: what shapes every operator is then one number a group.
        """
        size = len(next(iter(columns.values()))) if columns else 1
        code = self._structure(columns, size)
        groups = []
        for rows in np.split(_in_order(code), np.cumsum(np.bincount(code))[:-1]) if code.any() else [np.arange(size)]:
            changes: dict[str, Any] = {}
            selection = None if len(rows) == size else convert_to_slice(rows)
            for moved in self.knobs:
                column = columns[moved.address]
                self._change(moved, column if selection is None else column[selection], changes)
            for tied in self.tied:
                value = tied.worth(_Here(self.base, changes))
                value = float(value) if np.ndim(value) == 0 else value
                changes.update(dict.fromkeys(self._following[tied.address], value))
            groups.append((rows, replace_leaves(self.base, changes)))
        return Designs(size, tuple(groups))

    def parts(self, columns: Columns, most: int) -> list[Array]:
        """Groups of at most `most` rows, each of one structure where possible.

        Structure is as in `stack`, with counts of parts of the chip whose values leave each structure a quarter
        of a group or more, on average. A group ends with a structure once it is a quarter full. Values on which
        array shapes depend are then one number per group.
        """
        size, least = len(next(iter(columns.values()))) if columns else 1, max(most // 4, 1)
        if not size:
            return []
        code = self._structure(columns, size, least)
        rows = _in_order(code) if (code[1:] < code[:-1]).any() else np.arange(size)
        ends = [*(np.flatnonzero(np.diff(code[rows])) + 1).tolist(), size]
        parts, start = [], 0
        for end, after in zip(ends, [*ends[1:], None], strict=True):
            if after is None or end - start >= least or after - start > most:
                parts += np.array_split(rows[start:end], -(-(end - start) // most))
                start = end
        return parts

    def row(self, columns: Columns, index: int) -> dict[str, Value]:
        """Knob values of one row of columns; inactive knobs are left out."""
        values: dict[str, Value] = {}
        for knob in self.knobs:
            cell = columns[knob.address][index]
            if isinstance(knob, ChoiceKnob) and knob.words:
                if cell >= 0:
                    values[knob.address] = knob.values[int(cell)]
            elif not math.isnan(cell):
                values[knob.address] = self.number(knob, float(cell))
        return values

    def number(self, knob: Knob, value: float) -> Value:
        """Number from a column as the knob's leaf needs it: an integer where the leaf counts things."""
        whole = "whole" in self.spec(knob.address).metadata
        return int(value) if whole else value

    def _change(self, knob: Knob, column: Array, changes: dict[str, Any]) -> None:
        if isinstance(knob, ChoiceKnob) and knob.words:
            if column[0] >= 0:
                changes.update((address, knob.values[int(column[0])]) for address in self.targets[knob.address])
            return
        hole = np.isnan(column)
        for address in self.targets[knob.address]:
            full = np.where(hole, leaf_at(self.base, address), column) if hole.any() else column
            changes[address] = full[0].item() if _one_value(full) else full

    def _reads(self, condition: Condition, values: Mapping[str, Value]) -> bool:
        """Whether a condition holds for knob values; a knob without an active value has the base's."""
        other, words, usual = condition
        return values[other] in words if other in values and self.active(other, values) else usual

    def _structure(self, columns: Columns, size: int, counted: int = 0) -> Array:
        """Structures of rows, numbered from 0: by words, and by numbers of the mapping that leave each enough rows on average.

        Args:
            columns, size: rows.
            counted: rows that are enough for counts of things on the chip to be of a structure too; 0 where they never are.
        """
        code, rows = np.zeros(size, dtype=np.intp), min(GROUP_ROWS, counted or GROUP_ROWS)
        for knob, always, divides, counts in self._structural:
            column = columns[knob.address]
            if not (always or divides or (counted and counts)) or _one_value(column):
                continue
            most = size if always else size // (rows if divides else counted)
            if _at_least(column) > most:  # whatever the rows of each are
                continue
            values, place = (knob.values, column + 1) if knob.words else _places(knob, column)
            finer = code * (len(values) + 1) + place
            is_present = np.bincount(finer) > 0
            number = np.cumsum(is_present) - 1
            if number[-1] < most:
                code = number[finer]
        return code

    @cached_property
    def _structural(self) -> list[tuple[ChoiceKnob, bool, bool, bool]]:
        """Knobs of choices in order, each with whether it is always structure, divides operators, counts parts of chips."""
        knobs = self._order()
        return [(knob, knob.words or self._apart(knob), self._divides(knob), self._counts(knob)) for knob in knobs]

    def _apart(self, knob: ChoiceKnob) -> bool:
        """Whether designs that differ in a knob are evaluated in separate groups."""
        return "apart" in self.spec(knob.address).metadata

    def _divides(self, knob: ChoiceKnob) -> bool:
        """Whether a knob of the mapping divides operators; serving settings do not."""
        return knob.address.startswith("mapping.") and not knob.address.startswith("mapping.serving.")

    def _counts(self, knob: ChoiceKnob) -> bool:
        """Whether a knob is of a number of things on the chip."""
        return knob.address.startswith("chip.") and "whole" in self.spec(knob.address).metadata

    def _order(self) -> Sequence[ChoiceKnob]:
        knobs = [knob for knob in self.knobs if isinstance(knob, ChoiceKnob)]
        return sorted(knobs, key=lambda knob: (not knob.words, not knob.address.startswith("mapping.")))

    def _columns(self, codes: Mapping[str, Array], *, unique: bool = True) -> Columns:
        def match_allowed_rows(knob: Knob, allowed: tuple[Any, ...]) -> Array:
            if not isinstance(knob, ChoiceKnob):
                raise DesignError(f"space: 'when' needs a knob with choices, but {knob.address} is an interval")
            return np.isin(codes[knob.address], [i for i, value in enumerate(knob.values) if value in allowed])

        active = {
            address: np.broadcast_to(active_row, np.shape(codes[address]))
            for address, active_row in active_rows(self.knobs, match_allowed_rows).items()
        }
        if unique and any(knob.when or knob.read for knob in self.knobs):
            keep = np.logical_and.reduce([active[a] | (code == 0) for a, code in codes.items()])
            codes = {a: code[keep] for a, code in codes.items()}
            active = {a: is_active[keep] for a, is_active in active.items()}
        columns: Columns = {}
        for knob in self.knobs:
            code, is_active = codes[knob.address], active[knob.address]
            if isinstance(knob, ChoiceKnob) and knob.words:
                columns[knob.address] = (
                    np.where(is_active, code, -1).astype(np.int16) if knob.when or knob.read else code.astype(np.int16)
                )
            else:
                numbers = np.asarray(knob.values, dtype=float)[code] if isinstance(knob, ChoiceKnob) else code
                columns[knob.address] = np.where(is_active, numbers, np.nan) if knob.when or knob.read else numbers
        return columns

    def _check_tied(self) -> None:
        """Refuses knobs that bring what is tied to a value that its leaf cannot have, by the values that do."""
        knobs = {address: knob for knob in self.knobs for address in self.targets[knob.address]}
        known: dict[str, Array] = {}
        for tied in self.tied:
            values = [known[leaf] if leaf in known else self._values(knobs.get(leaf), leaf) for leaf in tied.inputs]
            while math.prod(map(len, values)) > MAX_TIED_VALUES:  # ends of the longest alone
                longest = max(range(len(values)), key=lambda place: len(values[place]))
                values[longest] = np.array([values[longest].min(), values[longest].max()])
            grid = np.meshgrid(*values, indexing="ij")
            columns = {leaf: column.ravel() for leaf, column in zip(tied.inputs, grid, strict=True)}
            with np.errstate(all="ignore"):
                worths = np.atleast_1d(np.asarray(tied.worth(columns), dtype=float))
            leaves_of = self._following[tied.address]
            for place in np.unique(worths, return_index=True)[1]:
                made = ", ".join(f"{leaf}={column[place]:g}" for leaf, column in columns.items())
                try:
                    for leaf in leaves_of:
                        check_leaf(float(worths[place]), field_at(self.base, leaf), f"space.{tied.address}")
                except DesignError as error:
                    raise DesignError(f"{error}; {tied.text} gives this value at {made}") from None
            known |= dict.fromkeys(leaves_of, np.unique(worths))

    def _values(self, knob: Knob | None, leaf: str) -> Array:
        """The values that a leaf may have."""
        own = [float(leaf_at(self.base, leaf))]
        if knob is None:
            return np.array(own)
        moved = [float(value) for value in knob.values] if isinstance(knob, ChoiceKnob) else [knob.low, knob.high]
        return np.unique(moved + (own if knob.when else []))

    def _check(self, knob: Knob, address: str) -> None:
        spec = field_at(self.base, address)
        values = knob.values if isinstance(knob, ChoiceKnob) else (knob.low, knob.high)
        for value in values:
            check_leaf(value, spec, f"space.{knob.address}")
        if isinstance(knob, IntervalKnob):
            if "whole" in spec.metadata:
                raise DesignError(f"space.{knob.address}: must be a whole number; use range(...) or choice(...)")
            if not knob.low < knob.high or (knob.log and knob.low <= 0):
                raise DesignError(
                    f"space.{knob.address}: the interval from {knob.low:g} to {knob.high:g} is empty, or not "
                    "positive for a log scale"
                )
        elif not values:
            raise DesignError(f"space.{knob.address}: has no value to choose from; ~space.{knob.address} removes the knob")
        elif len(set(values)) != len(values):
            raise DesignError(f"space.{knob.address}: a value occurs twice among {values}")


def _number_entries(leaf: str, values: Array) -> list[str]:
    """In each row, the line of a key of a leaf that has numbers, by the address that keys have."""
    several, places = np.unique(values, return_inverse=True)
    key_lines = [key_line(leaf, value) for value in several.tolist()]
    return [key_lines[place] for place in places.tolist()]


FIRST_ROWS = 64
"""First rows of a column, in which many distinct values are noticed early."""


def _at_least(column: Array) -> int:
    """Values that a column has at least: those of its first rows, but for holes."""
    return sum(value == value for value in set(column[:FIRST_ROWS].tolist()))


def _one_value(column: Array) -> bool:
    """Whether all rows of a column have one value, which the ends of most others already deny."""
    return bool(column[0] == column[-1]) and bool((column == column[0]).all())


def _places(knob: ChoiceKnob, column: Array) -> tuple[Any, Array]:
    """Distinct values and each number's index among them, by a table or by a search, which is slower for random numbers."""
    values = np.sort(np.asarray(knob.values, dtype=float))
    return distinct_values(column) or (values, np.searchsorted(values, column))


def _in_order(code: Array) -> Array:
    """Rows sorted by structure, stable within each; few structures are sorted by radix in narrow integers."""
    return np.argsort(code.astype(np.min_scalar_type(int(code.max()))), kind="stable")
