"""A design space over several chips: one space per chip, and one more knob that selects the chip.

The class has the same interface as `Space` and forwards each row to the space of its chip, so searches see knobs only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.design import Design, Designs, key_of_leaves
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import addresses, iterate_leaves, match_addresses, match_addresses_or_none
from dse.space.knobs import ChoiceKnob, Columns, Knob, Space, TiedLeaf, Value, explain_never_read, order_by_dependency
from dse.space.unread_leaves import Condition

CHIP_KNOB = "chip"
"""The knob that chooses among chips."""

ABOUT: dict[str, Any] = {"unit": "", "doc": "chip of the design"}


@dataclass(frozen=True)
class MultiChipSpace:
    """A design space over several chips, with one space per chip.

    Attributes:
        spaces: by chip, each with the knobs that count there.
        knobs: the choice of chip, then all others; one that some chips lack counts `when` the chip is another.
    """

    spaces: dict[str, Space]
    knobs: tuple[Knob, ...]

    @property
    def base(self) -> Design:
        """Base design of the first chip."""
        return next(iter(self.spaces.values())).base

    @property
    def base_spaces(self) -> Iterator[tuple[dict[str, Value], Space]]:
        """Spaces of the single chips, each with the knob value that selects the chip."""
        return (({CHIP_KNOB: name}, space) for name, space in self.spaces.items())

    @cached_property
    def targets(self) -> dict[str, list[str]]:
        """Leaves that each knob sets, on the first chip that has them; none for the knob of the chip."""
        return {CHIP_KNOB: []} | {knob.address: self._having(knob.address).targets[knob.address] for knob in self.knobs[1:]}

    @property
    def key(self) -> str:
        """Content key of the space: its bases and knobs."""
        return key_of_leaves([(f"chip {name}", space.key) for name, space in self.spaces.items()])

    def spec(self, address: str) -> Any:
        """Field declaration of the leaf that a knob sets, on the first chip that has the leaf."""
        return _About(ABOUT) if address == CHIP_KNOB else self._having(address).spec(address)

    def design_at(self, values: Mapping[str, Value]) -> Design:
        """The design at knob values; of the first chip if the values name none."""
        space, own = self._own(values)
        return space.design_at(own)

    def key_at(self, values: Mapping[str, Value]) -> str:
        """Content key of the design at knob values, equal to that in a study of its chip alone."""
        space, own = self._own(values)
        return space.key_at(own)

    def keys(self, columns: Columns) -> list[str]:
        """Content keys of the designs in columns, each equal to `key_at` of the row."""
        found_keys = [""] * len(columns[CHIP_KNOB])
        for space, rows, own in self._split(columns):
            keys = space.keys(own) if own else space.keys({}) * len(rows)
            for row, key in zip(rows.tolist(), keys, strict=True):
                found_keys[row] = key
        return found_keys

    def active(self, address: str, values: Mapping[str, Value]) -> bool:
        """Whether a knob is active, given the values of the other knobs."""
        space, own = self._own(values)
        return address == CHIP_KNOB or (address in space.targets and space.active(address, own))

    def knob(self, address: str) -> Knob:
        """Knob at an address; an error if the space has none there."""
        knob = next((knob for knob in self.knobs if knob.address == address), None)
        if knob is None:
            raise DesignError(f"space: no knob {address!r}; knobs: {', '.join(self.targets)}")
        return knob

    def canonical(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Values of active knobs only, in the order of the knobs."""
        space, own = self._own(values)
        return {CHIP_KNOB: values.get(CHIP_KNOB, next(iter(self.spaces)))} | space.canonical(own)

    @property
    def combinations(self) -> int | None:
        """Number of grid rows of all chips; None if a knob is an interval."""
        counts = [space.combinations for space in self.spaces.values()]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def grid(self, start: int, stop: int) -> Columns:
        """Columns of grid rows `start` to `stop`, chip after chip, without repeated rows."""
        parts, first = [], 0
        for code, space in enumerate(self.spaces.values()):
            rows = space.combinations
            if rows is None:
                raise DesignError("space: an interval has no grid; use range(...) or choice(...)")
            low, high = max(start - first, 0), min(stop - first, rows)
            if low < high:
                columns = space.grid(low, high)
                size = len(next(iter(columns.values()))) if columns else high - low
                parts.append(self._filled(code, columns, size))
            first += rows
        return {address: np.concatenate([columns[address] for columns in parts]) for address in self.targets}

    def sample(self, unit: Array) -> Columns:
        """Columns from points of the unit cube, shape (designs, knobs), with equally many rows per chip."""
        codes = np.minimum((unit[:, 0] * len(self.spaces)).astype(int), len(self.spaces) - 1)
        sample = self._filled(0, {}, len(unit))
        sample[CHIP_KNOB] = codes.astype(np.int16)
        for code, space in enumerate(self.spaces.values()):
            rows = np.flatnonzero(codes == code)
            places = np.flatnonzero([knob.address in space.targets for knob in self.knobs])
            for address, column in space.sample(unit[np.ix_(rows, places)]).items():
                sample[address][rows] = column
        return sample

    def stack(self, columns: Columns) -> Designs:
        """Designs of the rows of columns, grouped by chip and structure."""
        groups: list[tuple[Array, Design]] = []
        for space, rows, own in self._split(columns):
            inner = space.stack(own).groups if own else ((np.arange(len(rows)), space.base),)
            groups += [(rows[places], design) for places, design in inner]
        return Designs(len(columns[CHIP_KNOB]), tuple(groups))

    def parts(self, columns: Columns, most: int) -> list[Array]:
        """Groups of at most `most` rows, each of one chip and of one structure where possible."""
        parts: list[Array] = []
        for space, rows, own in self._split(columns):
            inner = space.parts(own, most) if own else np.array_split(np.arange(len(rows)), -(-len(rows) // most))
            parts += [rows[places] for places in inner]
        return parts

    def row(self, columns: Columns, index: int) -> dict[str, Value]:
        """Knob values of one row of columns; inactive knobs are left out."""
        name = list(self.spaces)[int(columns[CHIP_KNOB][index])]
        space = self.spaces[name]
        own = {address: columns[address][index : index + 1] for address in space.targets}
        return {CHIP_KNOB: name} | space.row(own, 0)

    def number(self, knob: Knob, value: float) -> Value:
        """Number from a column as the knob's leaf needs it: an integer where the leaf counts things."""
        return self._having(knob.address).number(knob, value)

    def _having(self, address: str) -> Space:
        return next(space for space in self.spaces.values() if address in space.targets)

    def _own(self, values: Mapping[str, Value]) -> tuple[Space, dict[str, Value]]:
        """The space of the chip that values choose, and those of them that it has knobs for."""
        space = self.spaces[str(values.get(CHIP_KNOB, next(iter(self.spaces))))]
        return space, {address: value for address, value in values.items() if address in space.targets}

    def _split(self, columns: Columns) -> Iterator[tuple[Space, Array, Columns]]:
        """Of each chip that has some: its space, its rows, and the columns of its knobs there."""
        for code, space in enumerate(self.spaces.values()):
            rows = np.flatnonzero(columns[CHIP_KNOB] == code)
            if len(rows):
                yield space, rows, {address: columns[address][rows] for address in space.targets}

    def _filled(self, code: int, columns: Columns, size: int) -> Columns:
        """Columns of one chip, with those of knobs that it does not have as inactive."""
        found_columns: Columns = {CHIP_KNOB: np.full(size, code, dtype=np.int16)}
        for knob in self.knobs[1:]:
            words = isinstance(knob, ChoiceKnob) and knob.words
            absent = np.full(size, -1, dtype=np.int16) if words else np.full(size, np.nan)
            found_columns[knob.address] = columns.get(knob.address, absent)
        return found_columns


@dataclass(frozen=True, slots=True)
class _About:
    """What is declared of no leaf."""

    metadata: dict[str, Any]


AnySpace = Space | MultiChipSpace
"""What a study searches."""


def chips_with_address(bases: Mapping[str, Design], address: str) -> list[str]:
    """Chips that have a knob's address.

    Raises:
        DesignError: none has it; the message has the nearest valid address of any.
    """
    known = {name: [leaf for leaf, _, _ in iterate_leaves(base)] for name, base in bases.items()}
    match_addresses(list(dict.fromkeys(leaf for leaves in known.values() for leaf in leaves)), address)
    return [name for name, own in known.items() if match_addresses_or_none(own, address)]


def multi_chip_space(
    bases: Mapping[str, Design], knobs: Sequence[Knob], tied: Mapping[str, tuple[TiedLeaf, ...]] | None = None
) -> MultiChipSpace:
    """Build the space over several base designs; a knob is active on chips with its address and `when`.

    Args:
        bases: by chip.
        knobs: `when` may name `CHIP`.
        tied: by chip, leaves that follow knobs.

    Raises:
        DesignError: a knob that no chip has; one that `when` gives to a chip that lacks it; a value that a chip's leaf cannot
            take. The message names the chip.
    """
    narrowed = [_narrowed(bases, knob, knobs) for knob in knobs]
    known = {knob.address for knob in narrowed}
    for knob in narrowed:
        for other, _ in knob.when:
            if other != CHIP_KNOB and other not in known:
                raise DesignError(
                    f"space.{knob.address}: 'when' names {other!r}, which is no knob of this space; "
                    f"{suggest_nearest(other, known)}"
                )
    chip = ChoiceKnob(CHIP_KNOB, tuple(bases))
    order_by_dependency((chip, *narrowed))
    spaces = {}
    for name, base in bases.items():
        own = [knob for knob in narrowed if _counts(knob, name, narrowed)]
        plain = (replace(knob, when=tuple(pair for pair in knob.when if pair[0] != CHIP_KNOB)) for knob in own)
        try:
            spaces[name] = Space(base, tuple(plain), (tied or {}).get(name, ()))
        except DesignError as error:
            raise DesignError(f"{error}; this is of chip {name}: exclude the chip with when: {{chip: ...}}") from None
    for knob in narrowed:
        if not any(knob.address in space.targets for space in spaces.values()):
            raise DesignError(f"space.{knob.address}: no chip has it and all knobs that its 'when' names")
    return MultiChipSpace(spaces, (chip, *(_read(knob, list(spaces.values())) for knob in narrowed)))


def _read(knob: Knob, spaces: Sequence[Space]) -> Knob:
    """The knob with the conditions of all its chips under which its leaves are read; each design uses its own chip's."""
    own = [space.knob(knob.address).read for space in spaces if knob.address in space.targets]
    if not all(own):
        return knob
    conditions: dict[str, Condition] = {}
    for other, words, usual in (condition for conditions in own for condition in conditions):
        before = conditions.get(other, (other, (), False))
        conditions[other] = other, tuple(dict.fromkeys((*before[1], *words))), usual or before[2]
    return replace(knob, read=tuple(conditions.values()))


def _narrowed(bases: Mapping[str, Design], knob: Knob, knobs: Sequence[Knob]) -> Knob:
    """The knob with `when` saying which chips have it and read it, where some do not."""
    chips = chips_with_address(bases, knob.address)
    chips = [
        name for name in chips if not explain_never_read(bases[name], addresses(bases[name], knob.address), knobs)
    ] or chips
    allowed_chips = [allowed for other, allowed in knob.when if other == CHIP_KNOB]
    for name in (name for allowed in allowed_chips for name in allowed):
        if name not in bases:
            raise DesignError(f"space.{knob.address}: 'when' names chip {name!r}; {suggest_nearest(str(name), bases)}")
        if name not in chips:
            raise DesignError(f"space.{knob.address}: chip {name} has no such field; those that have it: {', '.join(chips)}")
    chips = [name for name in chips if all(name in allowed for allowed in allowed_chips)]
    when = tuple(pair for pair in knob.when if pair[0] != CHIP_KNOB)
    return replace(knob, when=when if len(chips) == len(bases) else ((CHIP_KNOB, tuple(chips)), *when))


def _counts(knob: Knob, name: str, knobs: Sequence[Knob]) -> bool:
    """Whether a knob can count on a chip: it and those that its `when` names have addresses there."""
    others = {knob.address: knob for knob in knobs}
    return all(name in allowed if other == CHIP_KNOB else _counts(others[other], name, knobs) for other, allowed in knob.when)
