"""What depends on scalars alone is computed once; with an array among what it depends on, every time."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

T = TypeVar("T")

KEPT = 1024
"""Results of a function that are kept."""


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """A function whose results are kept by its arguments, where these can be hashed: arrays over designs cannot.

    >>> @remembered
    ... def twice(value):
    ...     return 2 * value
    >>> twice(2), twice([1.0]), twice(2), twice.known().hits
    (4, [1.0, 1.0], 4, 1)
    """
    known = lru_cache(maxsize=KEPT)(function)

    @wraps(function)
    def answer(*given: Any) -> T:
        try:
            hash(given)
        except TypeError:
            return function(*given)
        return known(*given)

    answer.known = known.cache_info  # type: ignore[attr-defined]
    return answer
