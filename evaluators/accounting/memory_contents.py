"""Contents of the memories of the fullest worker, and the limits and metrics that follow from them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import divisor, maximum, where
from dse.space.chip import Chip
from dse.space.limits import Limit
from dse.space.main_memory import CAPACITY_LIMITS, main_memory
from dse.space.memory_tiers import TIER_LIMITS

CACHE, STATES, ACTIVATIONS = "KV cache", "states", "activations"
"""Names of contents that metrics ask for."""

GROWING = (CACHE, STATES)
"""Contents that grow with requests."""


class MemoryContents(NamedTuple):
    """Contents of one memory of the fullest device or core; leaves broadcast over designs. [B]

    Attributes:
        address: setting of its size.
        capacity: that size.
        parts: bytes that it must hold, by name.
        resident: bytes beside these, which stay there because there is room.
        cache: the worker's whole KV cache, also what of it is in a nearer memory; None where all of it is among the parts.
    """

    address: str
    capacity: Any
    parts: tuple[tuple[str, Any], ...]
    resident: Any = 0.0
    cache: Any = None

    @property
    def need(self) -> Any:
        """Bytes that must fit in it. [B]"""
        return sum_parts(self.parts)

    @property
    def bytes_in_use(self) -> Any:
        """Bytes in use, with those that stay because there is room. [B]"""
        return self.need + self.resident

    @property
    def is_main(self) -> bool:
        """Whether it is main memory, else a memory tier or the local memory of a core."""
        return self.address in CAPACITY_LIMITS

    @property
    def is_local(self) -> bool:
        """Whether it is the local memory of a core."""
        return not self.is_main and self.address not in TIER_LIMITS

    @property
    def has_cache(self) -> bool:
        """Whether some design has a KV cache."""
        cache = self.bytes_of(CACHE) if self.cache is None else self.cache
        return bool(np.any(cache > 0)) if isinstance(cache, np.ndarray) else cache > 0

    def bytes_of(self, name: str) -> Any:
        """Bytes of the parts of one name; 0 where there are none. [B]"""
        return sum_parts(part for part in self.parts if part[0] == name)


def cache_scale(memory: MemoryContents) -> Any:
    """How many times the worker's KV cache fits beside everything else; NaN where there is no cache. [1]

    >>> cache_scale(MemoryContents("chip.hbm.capacity", 10.0, (("weights", 4.0), ("KV cache", 2.0))))
    3.0
    """
    cache = memory.bytes_of(CACHE) if memory.cache is None else memory.cache
    return where(cache > 0, maximum(1 + (memory.capacity - memory.need) / divisor(cache), 0.0), np.nan)


def request_room(memory: MemoryContents) -> Any:
    """Room for the caches and states of requests beside everything else; negative where there is none. [B]

    >>> request_room(MemoryContents("chip.hbm.capacity", 10.0, (("weights", 4.0), ("KV cache", 2.0), ("states", 1.0))))
    6.0
    """
    return memory.capacity - sum_parts(part for part in memory.parts if part[0] not in GROWING)


def spread_cache_scale(memories: Sequence[MemoryContents]) -> Any:
    """How many times a KV cache fits in main memory and the tiers behind it; NaN without a cache. [1]

    >>> main = MemoryContents("chip.hbm.capacity", 10.0, (("weights", 4.0), ("KV cache", 2.0)))
    >>> spread_cache_scale([main, MemoryContents("chip.tiers.second.capacity", 6.0, (("KV cache", 0.0),))])
    6.0
    """
    cache, left = sum_parts((CACHE, memory.bytes_of(CACHE)) for memory in memories), 0.0
    for memory in memories:
        left = left + memory.capacity - memory.need
    return where(cache > 0, maximum(1 + left / divisor(cache), 0.0), np.nan)


def main_memory_contents(
    chip: Chip, parts: tuple[tuple[str, Any], ...], *, cache: Any = None, capacity: Any = None
) -> MemoryContents:
    """Contents of a chip's main memory, or of a core's share of it.

    Args:
        chip: with main memory.
        parts: bytes that it must hold, by name.
        cache: whole KV cache of the worker, where a part of it is in a nearer memory.
        capacity: of a core's share; None for the chip's. [B]
    """
    memory = main_memory(chip)
    return MemoryContents(memory.address("capacity"), memory.capacity if capacity is None else capacity, parts, cache=cache)


def core_memory_contents(chip: Chip, parts: tuple[tuple[str, Any], ...], resident: Any = 0.0) -> MemoryContents:
    """Contents of the local memory of a core or tile.

    Args:
        chip: with a mesh.
        parts: bytes that it must hold, by name.
        resident: bytes beside these, which stay because there is room.
    """
    name, core = ("core", chip.core) if chip.tile is None else ("tile", chip.tile)
    return MemoryContents(f"chip.{name}.sram", core.sram, parts, resident)


def sum_parts(parts: Iterable[tuple[str, Any]]) -> Any:
    """Sum of the bytes of named parts. [B]"""
    total: Any = 0.0
    for _, nbytes in parts:
        total = total + nbytes
    return total


def fuller_parts(parts: tuple[tuple[str, Any], ...], others: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """The larger of two contents of a memory with equal names, design by design. [B]"""
    more = sum_parts(others) > sum_parts(parts)
    return tuple((name, where(more, other, value)) for (name, value), (_, other) in zip(parts, others, strict=True))


def memory_limits(contents: Iterable[MemoryContents]) -> list[Limit]:
    """Limit of each memory: what it must hold fits."""
    return [Limit(memory.address, memory.need, memory.capacity, "B", memory.parts) for memory in contents]


def largest_use(contents: Sequence[MemoryContents], *, main: bool) -> Any:
    """Bytes in use of main memory, or of the fullest local memory; None where there is none. [B]"""
    uses = [memory.bytes_in_use for memory in contents if (memory.is_main if main else memory.is_local)]
    if not uses:
        return None
    largest = uses[0]
    for use in uses[1:]:
        largest = maximum(largest, use)
    return largest
