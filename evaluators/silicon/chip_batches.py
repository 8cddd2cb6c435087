"""Chips of several design groups evaluated as one, since small arrays cost as much as large ones.

Groups have different options in their mappings; their chips mostly differ in numbers only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, wraps
from typing import Any, TypeVar

import numpy as np

from dse.space.array_math import Array, distinct_values
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import replace_leaves
from dse.space.main_memory import CAPACITY_LEAVES
from dse.space.memoize import MAX_ENTRIES, MAX_IDENTITIES, BlockState, LastUsed

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class ChipBatch:
    """A chip of which other chips are rows, with results cached by function and number."""

    chip: Chip
    known: dict[tuple[Callable[..., Any], Any], Any] = field(default_factory=dict)


_parts: BlockState[dict[int, tuple[Chip, ChipBatch, Any]]] = BlockState()
"""Chips that are part of another one, by what they are, while they are: themselves, the whole, and where in it."""

_grids: LastUsed[int, tuple[Any, Chip, ChipBatch]] = LastUsed(MAX_IDENTITIES)
"""The last wholes that have every value with every other: values by address, a chip that was part, themselves."""


def computed_per_batch(function: Callable[..., T]) -> Callable[..., T]:
    """Wrap a function of a chip, and perhaps a number, to cache results and compute batches once.

    The function must not read the leaves in `UNREAD`.
    """
    kept: dict[tuple[int, int], tuple[Chip, Any, T]] = {}
    usual, alone = (function.__defaults__ or (None,))[0], function.__code__.co_argcount == 1

    @wraps(function)
    def look_up(chip: Chip, number: Any = usual) -> T:
        place = id(chip), id(number)
        known = kept.get(place)
        if known is None:
            parts = None if isinstance(number, np.ndarray) else _parts.innermost
            part = parts.get(place[0]) if parts else None
            if part is None:
                value = function(chip) if alone else function(chip, number)
            else:
                _, whole, rows = part
                key = function, number
                if key not in whole.known:
                    whole.known[key] = function(whole.chip) if alone else function(whole.chip, number)
                value = _some(whole.known[key], rows)
            if len(kept) >= MAX_IDENTITIES:
                kept.clear()
            # what was given is kept too, so that nothing else takes its place
            known = kept[place] = chip, number, value
        return known[2]

    return look_up


UNREAD = CAPACITY_LEAVES
"""Numbers of chips on which nothing depends that is worked out `at_once`."""


def batch_chips(groups: Sequence[tuple[Array, Design]]) -> AbstractContextManager[None]:
    """Evaluate small groups' chips that differ only in numbers as one chip, in a with block.

    Every combination of the values of a chip's columns is evaluated instead where designs are more than these.

    Args:
        groups: rows and designs, as `Designs` has them.
    """
    alone = len(groups) == 1 and len(groups[0][0]) < LARGE
    return ALONE if alone else _opened([design.chip for _, design in groups])


LARGE, SMALL = 256, 4096
"""Designs of a group from which on it is worth while to look for values, and up to which its arrays cost more by being there
than by what is in them."""

OFTEN = 2
"""Designs to each combination of values from which on combinations are worked out instead."""

ALONE = nullcontext()
"""Context of a single chip, which needs no batch."""


@contextmanager
def _opened(chips: Sequence[Chip]) -> Iterator[None]:
    with _parts.open(chips_by_batch(chips)):
        yield


def chips_by_batch(chips: Sequence[Chip]) -> dict[int, tuple[Chip, ChipBatch, Any]]:
    """Chips that are rows of a larger chip, by id: chip, batch and rows; chips without others are absent."""
    alike: dict[Any, list[list[tuple[Chip, dict[str, Any]]]]] = {}
    for chip in chips:
        wide = _columns(chip)
        groups = alike.setdefault(tuple(wide), []) if wide else []
        size = len(next(iter(wide.values()))) if wide else 0
        several = next((several for several in groups if size <= SMALL and _same_numbers(several[0][0], chip)), None)
        if several is None:
            groups.append([(chip, wide)])
        else:
            several.append((chip, wide))
    made = {}
    for several in (several for groups in alike.values() for several in groups):
        first, wide = several[0]
        if len(several) > 1:
            wide = {address: np.concatenate([wide[address] for _, wide in several]) for address in wide}
        grid = _grid(first, wide)
        if grid is None and len(several) == 1:
            continue
        whole, places = grid or (ChipBatch(replace_leaves(first, wide)), None)
        start = 0
        for chip, own in several:
            span = slice(start, start + len(next(iter(own.values()))))
            made[id(chip)] = chip, whole, span if places is None else places[span]
            start = span.stop
    return made


def _grid(chip: Chip, columns: dict[str, Array]) -> tuple[ChipBatch, Array] | None:
    """A chip of every combination of the values of columns, and which one each design is; None where these are too many."""
    size = len(next(iter(columns.values())))
    values: dict[str, Array] = {}
    at: Any = 0
    most = size // OFTEN if size >= LARGE else 0
    read = [address for address in columns if address not in UNREAD]
    few: dict[str, tuple[Array, Array]] = {}
    for address in sorted(read, key=lambda address: _repeats(columns[address])):  # those that have many values mostly say so
        distinct = distinct_values(columns[address]) if most else None
        if distinct is None or len(distinct[0]) > most:
            return None
        few[address], most = distinct, most // len(distinct[0])
    if not few:
        return None
    for address in read:
        values[address], places = few[address]
        at = at * len(values[address]) + places
    key = tuple(columns), tuple((address, axis.tobytes()) for address, axis in values.items())
    for known, other, whole in reversed(_grids.results()):
        if known == key and _same_numbers(other, chip):
            _grids.keep(id(whole), (known, chip, whole))  # what is the very same next time is told at once
            return whole, at
    each = (np.ravel(axis) for axis in np.meshgrid(*values.values(), indexing="ij"))
    unread = {address: np.nan for address in columns if address in UNREAD}
    made = ChipBatch(replace_leaves(chip, dict(zip(values, each, strict=True)) | unread))
    _grids.keep(id(made), (key, chip, made))
    return made, at


FIRST = 32
"""Designs of which it is known soon whether a column repeats its values."""


def _repeats(column: Array) -> bool:
    """Whether the first designs of a column share values."""
    first = column[:FIRST].tolist()
    return len(set(first)) < len(first)


_plain: LastUsed[int, Any] = LastUsed(MAX_ENTRIES)
"""Parts of chips that have no columns, by what they are, the last of them."""


def _columns(part: Any) -> dict[str, Any]:
    """Columns of a part of a chip, by address in it."""
    columns = {}
    for name in _names(type(part)):  # type: ignore[arg-type]
        value = getattr(part, name)
        if isinstance(value, np.ndarray):
            columns[name] = value
        elif hasattr(type(value), "__dataclass_fields__") and _plain.find(id(value)) is not value:
            inner = _columns(value)
            columns.update((f"{name}.{address}", column) for address, column in inner.items())
            if not inner:
                _plain.keep(id(value), value)
    return columns


def _same_numbers(chip_part: Any, other: Any) -> bool:
    """Whether two parts of chips that have the same columns differ in these alone."""
    for name in _names(type(other)):  # type: ignore[arg-type]
        mine, its = getattr(chip_part, name), getattr(other, name)
        if mine is its or isinstance(its, np.ndarray):
            continue
        if type(mine) is not type(its):
            return False
        if not (_same_numbers(mine, its) if hasattr(type(its), "__dataclass_fields__") else mine == its):
            return False
    return True


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(spec.name for spec in fields(kind))


def _some(value: Any, rows: Any) -> Any:
    """Of some designs: arrays are over designs."""
    if isinstance(value, np.ndarray):
        return value[rows]
    if isinstance(value, dict):
        return {name: _some(leaf, rows) for name, leaf in value.items()}
    if isinstance(value, list | tuple):
        parts = [_some(leaf, rows) for leaf in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{spec.name: _some(getattr(value, spec.name), rows) for spec in fields(value)})
    return value
