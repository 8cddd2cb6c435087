"""What parts of iterations spend on designs, each of them priced once: in a screen most designs differ from others in a part.

Designs are told apart by the leaves that prices depend on. Where one of those that came has no price yet, all that have none
are priced together, since calls of few designs take as long as calls of many.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np

from dse.space.design import Design, entry, hashed
from dse.space.elementwise import Array
from dse.space.fields import leaves, replaced

T = TypeVar("T")

MOST = 1 << 25
"""Numbers that are kept of all structures, some 256 MB; beyond, those of structures that were used least recently go."""

TOGETHER = 2048
"""Designs that are priced together at most."""


class _Known:
    """Designs of one structure that came, and what is spent on them.

    Attributes:
        design: one of them.
        addresses: of leaves that differ.
        rows: of each design, by the bytes of these leaves, in the order in which they came.
        values: by what was asked, shape (what, designs); NaN where nobody asked.
    """

    def __init__(self, design: Design, addresses: tuple[str, ...]) -> None:
        self.design, self.addresses = design, addresses
        self.rows: dict[bytes, int] = {}
        self.values: dict[Hashable, Array] = {}

    @property
    def size(self) -> int:
        return sum(values.size for values in self.values.values())

    def places(self, rows: Array) -> Array:
        """Of some designs; shape (designs, leaves)."""
        known = self.rows
        return np.array([known.setdefault(row.tobytes(), len(known)) for row in rows], np.intp)

    def of(self, asked: Hashable) -> Array:
        """Of all designs."""
        values = self.values.get(asked, np.zeros((1, 0)))
        if values.shape[1] < len(self.rows):
            more = max(len(self.rows), 2 * values.shape[1]) - values.shape[1]
            values = self.values[asked] = np.concatenate([values, np.full((len(values), more), np.nan)], axis=1)
        return values

    def put(self, asked: Hashable, places: Array, found: Array) -> None:
        values = self.of(asked)
        if len(values) != len(found):  # of nothing known, nobody knew of how much
            values = self.values[asked] = np.full((len(found), values.shape[1]), np.nan)
        values[:, places] = found

    def designs(self, places: Array) -> Design:
        """Leaves of shape (designs,); numbers of one."""
        every = list(self.rows)
        columns = np.array([np.frombuffer(every[place]) for place in places]).T
        some = dict(zip(self.addresses, columns, strict=True))
        return replaced(self.design, {a: column if len(places) > 1 else column.item() for a, column in some.items()})


_KNOWN: dict[str, _Known] = {}
"""By structure, those used last at the end."""


class Shared(Generic[T]):
    """Prices of designs of one structure, which other designs share.

    Args:
        design: of several, leaves of shape (designs,).
        make: what prices some of them, made once for those that are new together.
        without: beginnings of addresses that prices do not depend on.
        beside: what else they depend on.
    """

    def __init__(self, design: Design, make: Callable[[Design], T], without: tuple[str, ...], *beside: str) -> None:
        found = [(address, value) for address, value, _ in leaves(design)]
        size = max(len(value) for _, value in found if isinstance(value, np.ndarray))
        said = [(address, value) for address, value in found if not address.startswith(without)]
        columns = {address: value for address, value in said if isinstance(value, np.ndarray)}
        key = hashed([*(entry(address, value) for address, value in said if address not in columns), *columns, *beside])
        self._make, self._made = make, dict[bytes, T]()
        others = {a: value[0].item() for a, value in found if isinstance(value, np.ndarray) and a not in columns}
        one = replaced(design, others) if others else design
        known = _KNOWN.pop(key) if key in _KNOWN else _Known(one, tuple(columns))
        self._known = _KNOWN[key] = known
        rows = np.empty((size, len(columns)))
        for place, column in enumerate(columns.values()):
            rows[:, place] = column
        self._places = self._known.places(rows)
        _forget()

    def of(self, asked: Hashable, spent: Callable[[T], Array]) -> Array:
        """What is spent, shape (what, designs).

        Args:
            asked: what is asked, equal where the answer is.
            spent: the answer of what prices some designs, shape (what, those designs).
        """
        known = self._known
        found = known.of(asked)[:, self._places]
        if np.isnan(found[0]).any():
            new = np.flatnonzero(np.isnan(known.of(asked)[0, : len(known.rows)]))
            for places in np.array_split(new, -(-len(new) // TOGETHER)):
                if places.tobytes() not in self._made:
                    self._made[places.tobytes()] = self._make(known.designs(places))
                known.put(asked, places, spent(self._made[places.tobytes()]))
            found = known.of(asked)[:, self._places]
        return found


def _forget() -> None:
    sizes = {key: known.size for key, known in _KNOWN.items()}
    for key in list(_KNOWN)[:-1]:
        if sum(sizes.values()) <= MOST:
            break
        del _KNOWN[key], sizes[key]
