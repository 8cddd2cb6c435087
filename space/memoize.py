"""Results that are remembered between calls, by arguments or by key, and state of with blocks."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from types import ModuleType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MAX_ENTRIES = 4096
"""Results of a function that are kept."""


def memoize(function: Callable[..., T], most: int = MAX_ENTRIES) -> Callable[..., T]:
    """Wrap a function to cache its last results by arguments; calls with arrays are not cached.

    >>> @memoize
    ... def twice(value):
    ...     return 2 * value
    >>> twice(2), twice([1.0]), twice(2), twice.known().hits
    (4, [1.0, 1.0], 4, 1)
    """
    known = lru_cache(maxsize=most)(function)

    @wraps(function)
    def look_up(*given: Any) -> T:
        try:
            return known(*given)
        except TypeError:  # some of it cannot be looked up
            return function(*given)

    look_up.known = known.cache_info  # type: ignore[attr-defined]
    return look_up


MAX_IDENTITIES = 8
"""Results of a function of the same objects that are kept."""


def memoize_by_identity(function: Callable[..., T], few: int = MAX_IDENTITIES) -> Callable[..., T]:
    """Wrap a function to cache its last results by the identity of the argument objects.

    Field values are frozen and arrays of designs are never written, so the same object means the same values.

    >>> @memoize_by_identity
    ... def length(values):
    ...     return [len(values)]
    >>> first = [1, 2]
    >>> length(first) is length(first), length(first) is length([1, 2])
    (True, False)

    What is left out is what stands there by default:

    >>> @memoize_by_identity
    ... def longer(values, by=1):
    ...     return [len(values) + by]
    >>> longer(first) is longer(first, 1)
    True
    """
    kept: dict[tuple[int, ...], tuple[tuple[Any, ...], T]] = {}
    of_one: dict[int, tuple[Any, T]] = {}
    usual = function.__defaults__ or ()
    most = function.__code__.co_argcount

    if most == 1:  # what is asked for most often

        @wraps(function)
        def look_up_single(given: Any) -> T:
            known = of_one.get(id(given))
            if known is None:
                if len(of_one) >= few:
                    of_one.clear()
                known = of_one[id(given)] = given, function(given)
            return known[1]

        return look_up_single

    @wraps(function)
    def look_up(*given: Any) -> T:
        if len(given) < most:
            given += usual[len(given) - most :]
        places = tuple(map(id, given))
        known = kept.get(places)
        if known is None:
            if len(kept) >= few:
                kept.clear()
            # what was given is kept too, so that nothing else takes its place
            known = kept[places] = given, function(*given)
        return known[1]

    return look_up


class LastUsed(Generic[K, T]):
    """Results by key, of which the last used ones are kept.

    >>> kept = LastUsed(2)
    >>> [kept.keep(name, len(name)) for name in ("a", "bb")], kept.find("a"), kept.keep("ccc", 3), kept.find("bb"), len(kept)
    ([1, 2], 1, 3, None, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._results: dict[K, T] = {}

    def __len__(self) -> int:
        return len(self._results)

    def find(self, key: K) -> T | None:
        """The result of a key, which is then the last used one; None if it is not kept."""
        result = self._results.pop(key, None)
        if result is not None:
            self._results[key] = result
        return result

    def keep(self, key: K, result: T) -> T:
        """Keep a result as the last used one, and drop the oldest beyond as many as are kept."""
        self._results.pop(key, None)
        self._results[key] = result
        while len(self._results) > self._most:
            self._results.pop(next(iter(self._results)))
        return result

    def results(self) -> list[T]:
        """All that is kept, the last used result at the end."""
        return list(self._results.values())

    def shrink(self, most: int, size: Callable[[T], int]) -> None:
        """Drop the oldest results while all of them are larger than `most`; the last used one stays.

        >>> kept = LastUsed(8)
        >>> for name in ("ccc", "bb", "a"):
        ...     _ = kept.keep(name, name)
        >>> kept.shrink(3, len)
        >>> kept.results()
        ['bb', 'a']
        """
        sizes = {key: size(result) for key, result in self._results.items()}
        for key in list(sizes)[:-1]:
            if sum(sizes.values()) <= most:
                break
            del self._results[key], sizes[key]

    def forget(self) -> None:
        """Forget the results of all keys."""
        self._results.clear()


class KeptWithOwner(Generic[K, T]):
    """One result of each of some objects, kept as long as the object lives."""

    def __init__(self) -> None:
        self._results: WeakKeyDictionary[K, T] = WeakKeyDictionary()

    def find(self, owner: K, make: Callable[[], T]) -> T:
        """The result of an object, made at its first use."""
        result = self._results.get(owner)
        if result is None:
            result = self._results[owner] = make()
        return result


class BlockState(Generic[T]):
    """What the innermost of nested with blocks collects.

    >>> state = BlockState()
    >>> with state.open([]) as outer, state.open([1]):
    ...     state.innermost
    [1]
    >>> state.innermost is None
    True
    """

    def __init__(self) -> None:
        self.innermost: T | None = None

    @contextmanager
    def open(self, state: T) -> Iterator[T]:
        """Collect in a state of its own, in a with block."""
        before, self.innermost = self.innermost, state
        try:
            yield state
        finally:
            self.innermost = before


@cache
def has_attribute(module: ModuleType, name: str) -> bool:
    """Whether a module has an attribute of a name; cached, since failed look-ups are slow.

    >>> import math
    >>> has_attribute(math, "pi"), has_attribute(math, "tau2")
    (True, False)
    """
    return hasattr(module, name)
