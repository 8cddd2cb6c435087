"""Time of a library kernel, in parts that a breakdown can separate."""

from typing import Any, NamedTuple

from dse.space.array_math import maximum, where


class LibraryKernelTime(NamedTuple):
    """Time of one library kernel in parts; leaves broadcast over steps and designs. [s]

        t = start + beside + (compute^q + memory^q)^(1/q)

    Attributes:
        start: of the kernel and its end. [s]
        beside: what goes before or after the rest: values that are quantised, rows that are gathered. [s]
        compute: of the engines. [s]
        memory: of what is read and written. [s]
        sharpness: q, at least 1: large where one hides behind the other, 1 where they add up. [-]
        byte: of weights or KV in `memory`: what one that is in the cache already saves there. [s/B]
        cached: what that one takes from the cache. [s/B]
    """

    start: Any
    beside: Any
    compute: Any
    memory: Any
    sharpness: Any
    byte: Any
    cached: Any

    def memory_time_left(self, resident: Any) -> Any:
        """Time of memory if so many bytes are in the cache. [s]"""
        return self.memory if resident is None else maximum(self.memory - resident * maximum(self.byte - self.cached, 0.0), 0.0)

    def seconds(self, resident: Any = None) -> Any:
        """Time of the kernel if `resident` bytes of weights or KV cache are in the die's cache. [s]

        >>> (
        ...     LibraryKernelTime(1.0, 0.5, 3.0, 4.0, 2.0, 1.0, 0.0).seconds(),
        ...     LibraryKernelTime(1.0, 0.5, 3.0, 4.0, 2.0, 1.0, 0.0).seconds(4.0),
        ... )
        (6.5, 4.5)
        """
        return self.start + self.beside + smooth_maximum(self.compute, self.memory_time_left(resident), self.sharpness)

    def times(self, share: Any) -> "LibraryKernelTime":
        """Share of this kernel's time: one of several products that run as one kernel. [s]"""
        start, beside, compute, memory = (value * share for value in self[:4])
        return LibraryKernelTime(start, beside, compute, memory, self.sharpness, self.byte, self.cached)


def add_in_sequence(time: LibraryKernelTime, other: LibraryKernelTime) -> LibraryKernelTime:
    """Sum of two kernels' times in sequence, with the parts added one by one. [s]

    >>> first, second = (
    ...     LibraryKernelTime(1.0, 0.0, 3.0, 4.0, 2.0, 1.0, 0.0),
    ...     LibraryKernelTime(1.0, 0.5, 6.0, 8.0, 2.0, 1.0, 0.0),
    ... )
    >>> add_in_sequence(first, second).seconds() == first.seconds() + second.seconds()
    True
    """
    compute: Any = 0.0
    memory: Any = 0.0
    for given_time in (time, other):
        whole, by_engines = (
            smooth_maximum(given_time.compute, given_time.memory, given_time.sharpness),
            given_time.compute >= given_time.memory,
        )
        compute, memory = compute + where(by_engines, whole, 0.0), memory + where(by_engines, 0.0, whole)
    return LibraryKernelTime(time.start + other.start, time.beside + other.beside, compute, memory, 1.0, time.byte, time.cached)


def zero_if_absent(value: Any) -> Any:
    """A constant of a library, or 0 where its record has none.

    >>> zero_if_absent(None), zero_if_absent(2e-6)
    (0.0, 2e-06)
    """
    return 0.0 if value is None else value


def smooth_maximum(compute: Any, other: Any, sharpness: Any) -> Any:
    """(a^q + b^q)^(1/q): a + b at q = 1, and the longer one as q grows. [s]

    >>> smooth_maximum(3.0, 4.0, 2.0), smooth_maximum(0.0, 0.0, 3.0)
    (5.0, 0.0)
    """
    longer = maximum(compute, other)
    whole = where(longer > 0, longer, 1.0)
    return longer * ((compute / whole) ** sharpness + (other / whole) ** sharpness) ** (1 / sharpness)
