"""Iteration part times shared between designs: each distinct part is computed once.

Designs are distinguished by the leaves on which times depend. Computing few designs takes as long as computing many.
All groups of a block therefore first record the times that they will need (`collect_requests`); a later need of one
group is computed for all that want the same.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from dse.space.array_math import Array
from dse.space.design import Design, hash_lines, key_line
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.memoize import MAX_ENTRIES, BlockState, LastUsed

T = TypeVar("T")

MAX_VALUES = 1 << 25
"""Numbers that are kept of all structures, some 256 MB; beyond, those of structures that were used least recently go."""

MAX_BATCH = 2048
"""Most designs that are computed together."""

NUMBERS = (int, float, np.ndarray)


class _Known:
    """Designs of one structure that came, and what is spent on them.

    Attributes:
        design: one of them.
        addresses: of numbers.
        rows: of each design, by the bytes of these leaves, in the order in which they came.
        values: results by request, shape (what, designs); NaN where not requested.
        wanted: places of designs that will ask, by what.
    """

    def __init__(self, design: Design, addresses: tuple[str, ...]) -> None:
        self.design, self.addresses = design, addresses
        self.rows: dict[bytes, int] = {}
        self.values: dict[Hashable, Array] = {}
        self.wanted: dict[Hashable, list[Array]] = {}

    @property
    def size(self) -> int:
        return sum(values.size for values in self.values.values())

    def places(self, rows: Array) -> Array:
        """Of some designs; shape (designs, leaves)."""
        known = self.rows
        return np.array([known.setdefault(row.tobytes(), len(known)) for row in rows], np.intp)

    def of(self, key: Hashable) -> Array:
        """Of all designs."""
        values = self.values.get(key, np.zeros((1, 0)))
        if values.shape[1] < len(self.rows):
            more = max(len(self.rows), 2 * values.shape[1]) - values.shape[1]
            values = self.values[key] = np.concatenate([values, np.full((len(values), more), np.nan)], axis=1)
        return values

    def put(self, key: Hashable, places: Array, amounts: Array) -> None:
        values = self.of(key)
        if len(values) != len(amounts):  # of nothing known, nobody knew of how much
            values = self.values[key] = np.full((len(amounts), values.shape[1]), np.nan)
        values[:, places] = amounts

    def designs(self, places: Array) -> Design:
        """Leaves of shape (designs,); numbers where all agree."""
        every = list(self.rows)
        columns = np.array([np.frombuffer(every[place]) for place in places]).T
        alike = (columns == columns[:, :1]).all(axis=1)
        changes: dict[str, Any] = {}
        for address, column, same in zip(self.addresses, columns, alike, strict=True):
            changes[address] = _number_like(column[0].item(), leaf_at(self.design, address)) if same else column
        return replace_leaves(self.design, changes)


_structures: LastUsed[str, _Known] = LastUsed(MAX_ENTRIES)
"""By structure, of which `MAX_VALUES` bounds all values together."""


_recording: BlockState[bool] = BlockState()
"""Whether requests are only recorded."""


@contextmanager
def collect_requests() -> Iterator[None]:
    """Record needed times as wanted, and answer with zeros, in a with block."""
    with _recording.open(True):
        yield


class SharedTimes(Generic[T]):
    """Part times of designs of one structure, shared with other designs.

    Args:
        design: of several, leaves of shape (designs,), or one.
        make: cost function of some designs, made once for those that are new together.
        without: prefixes of addresses on which times do not depend.
        beside: further inputs of the times.
        whats: how many numbers an answer has of a design, for what is only noted.
    """

    def __init__(
        self, design: Design, make: Callable[[Design], T], without: tuple[str, ...], *beside: str, whats: int = 1
    ) -> None:
        every = list(iterate_leaves(design))
        leaves = [leaf for leaf in every if not leaf[0].startswith(without)]
        numbers = {
            a: v for a, v, spec in leaves if isinstance(v, NUMBERS) and not isinstance(v, bool) and "apart" not in spec.metadata
        }
        key = hash_lines([*(key_line(a, v) for a, v, _ in leaves if a not in numbers), *numbers, *beside])
        self._make, self._made, self._whats = make, dict[bytes, T](), whats
        known = _structures.find(key)
        self._known = known or _structures.keep(key, _Known(_first_design(design), tuple(numbers)))
        rows = np.empty((max((len(v) for _, v, _ in every if isinstance(v, np.ndarray)), default=1), len(numbers)))
        for place, column in enumerate(numbers.values()):
            rows[:, place] = column
        self._places = self._known.places(rows)
        _structures.shrink(MAX_VALUES, lambda known: known.size)

    def spent_for(self, key: Hashable, spent: Callable[[T], Array]) -> Array:
        """Costs of one part for all designs, shape (what, designs).

        Args:
            key: the requested part, equal where the result is.
            spent: result of a cost function for some designs, shape (what, those designs).
        """
        known = self._known
        amounts = known.of(key)[:, self._places]
        if _recording.innermost:
            if np.isnan(amounts[0]).any():
                known.wanted.setdefault(key, []).append(self._places)
            return np.zeros((self._whats, len(self._places)))
        if np.isnan(amounts[0]).any():
            want = np.unique(np.concatenate([self._places, *known.wanted.pop(key, [])]))
            new = want[np.isnan(known.of(key)[0, want])]
            for places in np.array_split(new, -(-len(new) // MAX_BATCH)):
                if places.tobytes() not in self._made:
                    self._made[places.tobytes()] = self._make(known.designs(places))
                known.put(key, places, spent(self._made[places.tobytes()]))
            amounts = known.of(key)[:, self._places]
        return amounts


def _first_design(design: Design) -> Design:
    """The first of several."""
    first = {address: value[0].item() for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)}
    return replace_leaves(design, first) if first else design


def _number_like(value: float, like: Any) -> float:
    """Whole where numbers of its leaf are."""
    return int(value) if isinstance(like, int) and value.is_integer() else value
