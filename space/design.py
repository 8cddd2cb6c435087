"""What the search moves: a design, its content key, and many designs stacked as one of arrays."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.fields import iterate_key_leaves, iterate_leaves, replace_leaves
from dse.space.mapping import Mapping


@dataclass(frozen=True, slots=True)
class Design:
    """A chip and the mapping on it."""

    chip: Chip
    mapping: Mapping


@dataclass(frozen=True, slots=True)
class Designs:
    """Many designs, grouped by structure (which leaves there are, and the words); row i is the i-th design asked for."""

    size: int
    groups: tuple[tuple[Array, Design], ...]

    def __len__(self) -> int:
        return self.size


KEY_DIGITS = 32
"""Hexadecimal digits of a content key."""


def design_key(design: Design) -> str:
    """The content key of a design: equal for equal leaves, whatever file or override they came from.

    Returns:
        32 hexadecimal digits of SHA-256 over ``address=value`` lines; numbers count by value, so 8 and 8.0 are equal.
    """
    return record_key(design)


def record_key(value: Any) -> str:
    """The content key of a value object, of the addresses and values that `iterate_key_leaves` has."""
    return key_of_leaves(iterate_key_leaves(value))


def key_of_leaves(items: Iterable[tuple[str, Any]]) -> str:
    """The key of (address, value) pairs."""
    return hash_lines(key_line(address, value) for address, value in items)


def key_line(address: str, value: Any) -> str:
    """One line of what a key is made of."""
    return f"{address}={float(value)!r}" if isinstance(value, int | float) else f"{address}={value}"


def hash_lines(entries: Iterable[str]) -> str:
    """The key of lines."""
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()[:KEY_DIGITS]


LEAST = 10
"""Digits of a key that an id of a design has at least."""


def ids_of(keys: Sequence[str]) -> list[str]:
    """Ids of designs: the beginnings of their keys, as long as tell them apart, of `LEAST` digits or more.

    >>> ids_of(["0123456789abcd", "0123456789abff", "fedcba9876543210"])
    ['0123456789abc', '0123456789abf', 'fedcba9876']
    """
    several = sorted(set(keys))
    same = [_alike(one, other) for one, other in pairwise(several)]
    longest = {one: max(sides) + 1 for one, *sides in zip(several, [0, *same], [*same, 0], strict=True)}
    return [one[: max(LEAST, longest[one])] for one in keys]


def _alike(one: str, other: str) -> int:
    """Digits that the beginnings of two keys share."""
    return next((place for place, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), len(one))


def stack_designs(designs: Sequence[Design]) -> Designs:
    """Many designs as one of arrays per structure; leaves on which all agree, or that are worked out in turn, stay scalars."""
    if len(designs) == 1:
        return Designs(1, ((np.zeros(1, dtype=np.intp), designs[0]),))
    rows: dict[tuple[str, ...], list[int]] = {}
    table = []
    for row, design in enumerate(designs):
        found = list(iterate_leaves(design))
        table.append({address: value for address, value, _ in found})
        apart = (str(value) for _, value, spec in found if isinstance(value, str) or "apart" in spec.metadata)
        rows.setdefault((*table[row], *apart), []).append(row)
    groups = []
    for members in rows.values():
        first = table[members[0]]
        columns = {address: [table[row][address] for row in members] for address in first}
        changes = {a: np.asarray(c, dtype=float) for a, c in columns.items() if any(v != c[0] for v in c)}
        groups.append((np.asarray(members, dtype=np.intp), replace_leaves(designs[members[0]], changes)))
    return Designs(len(designs), tuple(groups))
