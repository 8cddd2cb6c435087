"""Arithmetic that accepts a Python float or an array over designs.

NumPy functions on Python floats are four times slower than the built-ins, so each helper looks at its
arguments first. Nothing else in the project branches on scalar against array.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from dse.space.memoize import memoize_by_identity

Array = NDArray[Any]
Number = float | Array


def maximum(a: Any, b: Any) -> Any:
    """Larger of two numbers, element by element.

    >>> maximum(1.0, 2.0), maximum(np.array([1.0, 3.0]), 2.0).tolist()
    (2.0, [2.0, 3.0])
    """
    if type(a) is float and type(b) is float:
        return a if a >= b else b
    if isinstance(a, ndarray) or isinstance(b, ndarray):
        return np.maximum(a, b)
    return a if a >= b else b


def minimum(a: Any, b: Any) -> Any:
    """Smaller of two numbers, element by element.

    >>> minimum(1.0, 2.0), minimum(np.array([1.0, 3.0]), 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(a, ndarray) or isinstance(b, ndarray):
        return np.minimum(a, b)
    return a if a <= b else b


def option_index(word: Any, options: Sequence[str]) -> Any:
    """Index of an option among its options; an array of indices, shape (designs,), is returned unchanged.

    >>> option_index("mesh", ("ring", "mesh")), option_index(np.array([1, 0]), ("ring", "mesh")).tolist()
    (1, [1, 0])
    """
    return options.index(word) if isinstance(word, str) else word


def select_by_option(word: Any, options: Sequence[str], value_of: Callable[[str], Any]) -> Any:
    """Value of a function at an option; for an array of option indices, each design's own value.

    >>> select_by_option("b", "abc", str.upper), select_by_option(np.array([1, 0]), "abc", {"a": 1.5, "b": 2.5}.get).tolist()
    ('B', [2.5, 1.5])
    """
    if isinstance(word, str):
        return value_of(word)
    masks = [(word == place, name) for place, name in enumerate(options)]
    (_, last), *others = [(mine, name) for mine, name in masks if np.any(mine)]
    values = value_of(last)
    for mine, name in others:
        values = where(mine, value_of(name), values)
    return values


def ceil_div(a: Any, b: Any) -> Any:
    """Number of groups of `b` that `a` things need: a / b rounded up.

    >>> ceil_div(28, 8), ceil_div(8, np.array([3.0, 32.0])).tolist()
    (4, [3.0, 1.0])
    """
    parts = a / b
    if type(parts) is float:
        return math.ceil(parts)
    if isinstance(parts, ndarray):
        return np.ceil(parts, out=parts)
    return np.ceil(parts) if isinstance(a, ndarray) or isinstance(b, ndarray) else math.ceil(parts)


def floor_div(a: Any, b: Any) -> Any:
    """Whole quotient of `a` by `b`, for whole numbers above 0 and up to 2^52, without rounding up.

    NumPy's `//` of floats takes forty times as long as a quotient.

    >>> floor_div(28, 8), floor_div(np.array([28.0, 32.0, 7.0]), 8.0).tolist()
    (3, [3.0, 4.0, 0.0])
    """
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return a // b
    parts = np.divide(a, b)
    if np.result_type(a, b).kind != "f" or not isinstance(parts, np.ndarray):
        return a // b
    return np.floor(parts, out=parts)


def remainder(a: Any, b: Any) -> Any:
    """Remainder of `a` divided by `b`, as `floor_div` divides.

    >>> remainder(28, 8), remainder(np.array([28.0, 32.0, 7.0]), 8.0).tolist()
    (4, [4.0, 0.0, 7.0])
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a - b * floor_div(a, b)
    return a % b


def cap_keeping_scalar(a: Any, most: Any) -> Any:
    """Minimum with a scalar bound; a single number if all elements exceed the bound.

    >>> (
    ...     cap_keeping_scalar(np.array([1.0, 3.0]), 2.0).tolist(),
    ...     cap_keeping_scalar(np.array([2.0, 3.0]), 2.0),
    ...     cap_keeping_scalar(1.0, 2.0),
    ... )
    ([1.0, 2.0], 2.0, 1.0)
    """
    if not isinstance(a, ndarray) or isinstance(most, ndarray):
        return minimum(a, most)
    return most if np.minimum.reduce(a, axis=None) >= most else np.minimum(a, most)


def cap_if_exceeded(a: Any, most: Any) -> Any:
    """Minimum with bounds; the array itself if no element exceeds the smallest bound.

    >>> (
    ...     cap_if_exceeded(2.0, np.array([3.0, 2.0])),
    ...     cap_if_exceeded(np.array([[1.0], [3.0]]), np.array([3.0, 2.0])).tolist(),
    ...     cap_if_exceeded(1.0, 2.0),
    ... )
    (2.0, [[1.0, 1.0], [3.0, 2.0]], 1.0)
    """
    if not isinstance(most, ndarray):
        return minimum(a, most)
    return a if extremes(a)[1] <= extremes(most)[0] else np.minimum(a, most)


def floor_keeping_scalar(a: Any, least: Any) -> Any:
    """Maximum with a scalar bound; the array itself if no element is below the bound.

    >>> (
    ...     floor_keeping_scalar(np.array([1.0, 3.0]), 2.0).tolist(),
    ...     floor_keeping_scalar(np.array([2.0, 3.0]), 2.0).tolist(),
    ...     floor_keeping_scalar(1.0, 2.0),
    ... )
    ([2.0, 3.0], [2.0, 3.0], 2.0)
    """
    if not isinstance(a, ndarray) or isinstance(least, ndarray):
        return maximum(a, least)
    return a if np.minimum.reduce(a, axis=None) >= least else np.maximum(a, least)


def even_share(size: Any, members: Any, most: Any) -> Any:
    """Even share of a size for each member, in as few rounds as keep each share at or below a maximum.

    >>> even_share(6827, 32, 256), even_share(4096, 32, 128)
    (214, 128)
    """
    return ceil_div(size, members * ceil_div(size, members * most))


def where(condition: Any, a: Any, b: Any) -> Any:
    """Value `a` where the condition holds, else `b`, element by element.

    >>> where(True, 1.0, 2.0), where(np.array([True, False]), 1.0, 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(condition, ndarray):
        return np.where(condition, a, b)
    return a if condition else b


def divisor(a: Any) -> Any:
    """Safe divisor: the number itself where it is positive, and 1 elsewhere.

    >>> divisor(0.0), divisor(3.0)
    (1.0, 3.0)
    """
    return where(a > 0, a, 1.0)


def exponential(a: Any) -> Any:
    """Exponential of a number or of each element of an array.

    >>> exponential(0.0), exponential(np.array([0.0])).tolist()
    (1.0, [1.0])
    """
    return np.exp(a) if isinstance(a, ndarray) else math.exp(a)


def logarithm(a: Any) -> Any:
    """Natural logarithm of a number or of each element of an array.

    >>> logarithm(1.0), logarithm(np.array([1.0])).tolist()
    (0.0, [0.0])
    """
    return np.log(a) if isinstance(a, ndarray) else math.log(a)


ALIKE, PLACES = 16, 4096
"""Numbers to each value from which on values are looked for, and places of a table of them."""

MAX_DISTINCT_VALUES = 64
"""Tables of values that are kept, by the lowest and the highest of them."""

_tables: dict[tuple[float, float], tuple[Array, Array]] = {}


@memoize_by_identity
def distinct_values(a: Any) -> tuple[Array, Array] | None:
    """Distinct values of an array and each element's index among them; None if there are too many.

    Args:
        a: numbers, shape (designs,).

    Returns:
        Values, ascending, shape (values,), and places among them, shape (designs,). Of numbers with the ends of others that
        came before, values of those may be among them.

    >>> values, places = distinct_values(np.repeat([9.0, 4.0], 50))
    >>> values.tolist(), places[[0, -1]].tolist(), distinct_values(np.arange(100.0))
    ([4.0, 9.0], [1, 0], None)
    """
    if not isinstance(a, ndarray) or a.ndim != 1 or a.dtype != float or len(a) < ALIKE:
        return None
    ends = extremes(a)
    if not -math.inf < ends[0] < ends[1] < math.inf:
        return None
    if ends in _tables:  # mostly the same numbers again
        values, table = _tables[ends]
        places = table.take(_of_table(a, *ends))
        if (values.take(places) == a).all():
            return values, places
    few = a[: len(a) // ALIKE + 1].tolist()
    if len(set(few)) == len(few):  # of so many two are equal, if there are no more values than that
        return None
    values = np.unique(a)
    at = _of_table(values, *ends)
    if len(values) * ALIKE > len(a) or (at[1:] == at[:-1]).any():
        return None
    table = np.zeros(PLACES, dtype=np.intp)
    table[at] = np.arange(len(values))
    if len(_tables) >= MAX_DISTINCT_VALUES:
        _tables.clear()
    _tables[ends] = values, table
    return values, table.take(_of_table(a, *ends))


def _of_table(a: Array, low: float, high: float) -> Array:
    """Places of numbers in a table from the lowest to the highest."""
    return ((a - low) / ((high - low) / (PLACES - 1))).astype(np.intp)


def map_distinct(work: Callable[..., Any], a: Any, *given: Any) -> Any:
    """Result of an elementwise function, computed once per distinct value where these are few.

    Args:
        work: element by element.
        a: numbers, shape () or (designs,).
        given: further arguments; with arrays among them, distinct values are not looked for.

    >>> map_distinct(np.power, np.repeat([4.0, 9.0], 50), 0.5).sum().item(), map_distinct(np.power, 4.0, 0.5).item()
    (250.0, 2.0)
    """
    distinct = distinct_values(a) if isinstance(a, ndarray) and is_hashable(given) else None
    if distinct is None:
        return work(a, *given)
    values, places = distinct
    return _of_values(work, values.tobytes(), given)[places]


@lru_cache(maxsize=256)
def _of_values(work: Callable[..., Any], values: bytes, given: tuple[Any, ...]) -> Any:
    """Of the same values again the same."""
    return work(np.frombuffer(values), *given)


def is_hashable(given: Any) -> bool:
    """Whether a value can be a dictionary key: numbers and text can, arrays cannot."""
    try:
        hash(given)
    except TypeError:
        return False
    return True


def sum_nonzero(values: Iterable[Any]) -> Any:
    """Sum of numbers or arrays in order; zeros are skipped.

    >>> sum_nonzero([0.0, np.array([1.0, 2.0]), 3.0]).tolist(), sum_nonzero([])
    ([4.0, 5.0], 0.0)
    """
    mask: Any = 0.0
    for value in values:
        if type(value) is float and type(mask) is float:
            mask += value
        elif isinstance(value, ndarray) or value != 0:
            mask = mask + value if isinstance(mask, ndarray) or mask != 0 else value
    return mask


def extremes(a: Any) -> tuple[float, float]:
    """Smallest and largest element of an array.

    >>> extremes(2.0), extremes(np.array([3.0, 1.0]))
    ((2.0, 2.0), (1.0, 3.0))
    """
    if isinstance(a, ndarray):
        return float(np.minimum.reduce(a, axis=None)), float(np.maximum.reduce(a, axis=None))
    return a, a


def convert_to_slice(rows: Array) -> Any:
    """Slice that selects consecutive rows without a copy; other row indices are returned unchanged.

    >>> convert_to_slice(np.array([3, 4, 5])), convert_to_slice(np.array([3, 5, 4])).tolist()
    (slice(3, 6, None), [3, 5, 4])
    """
    if not len(rows) or rows[-1] - rows[0] != len(rows) - 1 or (rows[1:] <= rows[:-1]).any():
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def collapse_if_equal(values: Any) -> Any:
    """Single number if all elements of an array are equal, else the array.

    >>> collapse_if_equal(np.array([2.0, 2.0])), collapse_if_equal(np.array([2.0, 3.0])).tolist(), collapse_if_equal(2.0)
    (2.0, [2.0, 3.0], 2.0)
    """
    if not isinstance(values, ndarray) or not values.size:
        return values
    low, high = extremes(values)
    return low if low == high else values


def as_column(values: Sequence[float]) -> Any:
    """Values of several cases as a column, shape (cases, 1), or a scalar if there is one case."""
    return values[0] if len(values) == 1 else np.array(values)[:, None]


def argmin_lexicographic(ranks: Sequence[Array]) -> Array:
    """Index along the first axis of the lowest element by several keys in order, shape (1, ...).

    >>> argmin_lexicographic([np.array([1, 0, 0]), np.array([0, 2, 1])]).tolist()
    [2]
    """
    alive = np.ones(ranks[0].shape, bool)
    for rank in ranks:
        alive &= rank == np.where(alive, rank, np.inf).min(axis=0)
    return np.asarray(alive.argmax(axis=0)[None])


def squeeze_cases(values: Array) -> Any:
    """Values of shape (cases, designs) without axes of length 1: a number, or an array over designs.

    >>> squeeze_cases(np.array([[2.0]])), squeeze_cases(np.array([[2.0, 3.0]])).tolist()
    (2.0, [2.0, 3.0])
    """
    return values.item() if values.size == 1 else values[0] if len(values) == 1 else values


def distinct_columns(columns: Array) -> tuple[Array, Array]:
    """First position of each distinct column in lexicographic order, and the index of each column.

    As `np.unique` along that axis, which sorts whole columns: here rows are ranked one by one, and those of one value not at
    all.

    >>> first, which = distinct_columns(np.array([[3.0, 1.0, 3.0, 1.0], [7.0, 7.0, 7.0, 7.0], [2.0, 5.0, 2.0, 4.0]]))
    >>> first.tolist(), which.tolist()
    ([3, 1, 0], [2, 1, 2, 0])
    """
    which = np.zeros(columns.shape[1], np.int64)
    for row in columns[(columns != columns[:, :1]).any(axis=1)]:
        ranks = np.unique(row, return_inverse=True)[1]
        which = np.unique(which * len(row) + ranks, return_inverse=True)[1] if which.any() else ranks
    return np.unique(which, return_index=True)[1], which
