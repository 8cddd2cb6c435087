"""Counts that depend on a few whole numbers, tabulated for arrays of designs.

Every combination of numbers is computed once.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from itertools import compress
from math import prod
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.memoize import memoize_by_identity

MAX_TABLE_BITS = 22
"""Of a table: 32 MB. Keys that need more are numbered by their values first."""

WIDEST = 62
"""Bits that one number holds."""

MAX_SMALL_VALUE = 2**16
"""Values up to which keys are numbered without sorting; and places of the largest table by values that is kept: 512 kB."""

TABLES = 64
"""Tables by values that are kept."""


def tabulate(function: Callable[..., float], many: Callable[[Array], Array] | None = None) -> Callable[..., Any]:
    """Return `function` of natural numbers as a function that also takes arrays that broadcast.

    Results are cached.

    `many` does the same of rows of numbers, shape (rows, arguments), where that is quicker than one by one.

    >>> add = tabulate(lambda a, b: a + b)
    >>> add(np.array([1.0, 2.0, 1.0]), 3).tolist(), add(4, 4)
    ([4.0, 5.0, 4.0], 8)
    """
    known = lru_cache(maxsize=None)(lambda *keys: function(*map(int, keys)))
    tables: dict[tuple[int, ...], Any] = {}
    worked = _worked(known, many)
    kept = lru_cache(maxsize=TABLES)(lambda values, dims: np.full(prod(dims), np.nan))

    def by_values(columns: list[Array]) -> Array:
        values, codes = zip(*map(_numbered, columns), strict=True)
        dims = tuple(map(len, values))
        if prod(dims).bit_length() > WIDEST:
            return _of_rows(worked, columns)
        place = codes[0]
        for code, count in zip(codes[1:], dims[1:], strict=True):
            place = place * count + code

        def compute_rows(places: Array) -> Array:
            columns = [value[at] for value, at in zip(values, np.unravel_index(places, dims), strict=True)]
            return worked(np.stack(columns, axis=1))

        if prod(dims) > 1 << MAX_TABLE_BITS:
            each, which = np.unique(place, return_inverse=True)
            return compute_rows(each)[which.reshape(place.shape)]
        of_these = prod(dims) <= MAX_SMALL_VALUE
        table = kept(tuple(value.tobytes() for value in values), dims) if of_these else np.full(prod(dims), np.nan)
        missing = place[np.isnan(table[place])]
        if missing.size:
            each = np.flatnonzero(np.bincount(missing, minlength=prod(dims)))
            table[each] = compute_rows(each)
        return np.asarray(table[place])

    @wraps(function)
    def table_values(*keys: Any) -> Any:
        try:
            return known(*keys)
        except TypeError:  # arrays cannot be looked up
            if not any(isinstance(key, np.ndarray) for key in keys):
                raise
        return compute_read_only(*keys)

    @memoize_by_identity  # many calls of a layout are divided alike
    def compute_read_only(*keys: Any) -> Array:
        several = compute_each(*keys)
        several.flags.writeable = False
        return several

    def compute_each(*keys: Any) -> Array:
        columns = [np.asarray(key).astype(np.int64) for key in keys]
        bits = tuple(int(column.max()).bit_length() for column in columns)
        if sum(bits) > MAX_TABLE_BITS:
            return by_values(columns)
        place = columns[0]
        for column, width in zip(columns[1:], bits[1:], strict=True):
            place = (place << width) | column
        if bits not in tables:
            tables[bits] = np.full(1 << sum(bits), np.nan)
        table = tables[bits]
        values: Array = table[place]
        missing = np.isnan(values)
        if missing.any():
            new = np.unique(place[missing])
            table[new] = worked(np.array([_keys(at, bits) for at in new.tolist()]))
            values = table[place]
        return values

    return table_values


def _of_rows(worked: Callable[[Array], Array], columns: list[Array]) -> Array:
    """What is known of columns that broadcast, each row of numbers worked out once."""
    rows = np.stack([column.ravel() for column in np.broadcast_arrays(*columns)], axis=1)
    each, which = np.unique(rows, axis=0, return_inverse=True)
    return worked(each)[which.reshape(np.broadcast_shapes(*(column.shape for column in columns)))]


def _worked(known: Callable[..., float], many: Callable[[Array], Array] | None) -> Callable[[Array], Array]:
    """What is known of rows that differ; with `many`, of those that are new together."""
    made: dict[tuple[int, ...], float] = {}

    def values_of_rows(rows: Array) -> Array:
        each = list(map(tuple, rows.tolist()))
        if many is None:
            return np.array([known(*row) for row in each], dtype=float)
        new = np.array([row not in made for row in each])
        if new.any():
            made.update(zip(compress(each, new), many(rows[new]).tolist(), strict=True))
        return np.array([made[row] for row in each])

    return values_of_rows


def _numbered(column: Array) -> tuple[Array, Array]:
    """Values of a column, each once, and the place of each element's among them."""
    if column.size == 1:
        return column.ravel(), np.zeros(column.shape, np.int64)
    most = int(column.max())
    if most > MAX_SMALL_VALUE:
        values, code = np.unique(column, return_inverse=True)
        return values, code.reshape(column.shape)
    is_used = np.zeros(most + 1, bool)
    is_used[column] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[column]


def _keys(place: int, bits: tuple[int, ...]) -> list[int]:
    """What a place in a table stands for."""
    keys = []
    for width in reversed(bits):
        keys.append(place & ((1 << width) - 1))
        place >>= width
    return keys[::-1]
