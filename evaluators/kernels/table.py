"""Counts that depend on a few whole numbers, for one design or for each of many: every combination is worked out once."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import numpy as np

MOST_BITS = 22
"""Of a table: 32 MB. Keys that need more are sorted instead."""

WIDEST = 62
"""Bits that one number holds."""


def tabulated(function: Callable[..., float]) -> Callable[..., Any]:
    """`function` of natural numbers, which then takes arrays that broadcast as well and keeps what it has worked out.

    >>> add = tabulated(lambda a, b: a + b)
    >>> add(np.array([1.0, 2.0, 1.0]), 3).tolist(), add(4, 4)
    ([4.0, 5.0, 4.0], 8)
    """
    known = lru_cache(maxsize=None)(function)
    tables: dict[tuple[int, ...], Any] = {}

    @wraps(function)
    def of(*keys: Any) -> Any:
        if not any(isinstance(key, np.ndarray) for key in keys):
            return known(*(int(key) for key in keys))
        columns = [np.asarray(key).astype(np.int64) for key in keys]
        bits = tuple(int(column.max()).bit_length() for column in columns)
        place = columns[0]
        for column, width in zip(columns[1:], bits[1:], strict=True):
            place = (place << width) | column
        if sum(bits) > WIDEST:
            rows = np.stack([column.ravel() for column in np.broadcast_arrays(*columns)], axis=1)
            each, which = np.unique(rows, axis=0, return_inverse=True)
            return np.array([known(*map(int, row)) for row in each], dtype=float)[which.reshape(place.shape)]
        if sum(bits) > MOST_BITS:
            each, which = np.unique(place, return_inverse=True)
            return np.array([known(*_keys(int(at), bits)) for at in each], dtype=float)[which.reshape(place.shape)]
        if bits not in tables:
            tables[bits] = np.full(1 << sum(bits), np.nan)
        table = tables[bits]
        found = table[place]
        missing = np.isnan(found)
        if missing.any():
            for at in np.unique(place[missing]):
                table[at] = known(*_keys(int(at), bits))
            found = table[place]
        return found

    return of


def _keys(place: int, bits: tuple[int, ...]) -> list[int]:
    """What a place in a table stands for."""
    keys = []
    for width in reversed(bits):
        keys.append(place & ((1 << width) - 1))
        place >>= width
    return keys[::-1]
