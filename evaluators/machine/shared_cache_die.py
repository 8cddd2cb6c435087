"""Shared-cache die: pooled engines of its cores, its cache, and main memory with a rate."""

from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.memory_channels import is_faster_than_banks
from dse.evaluators.machine.strided_reads import strided_efficiency
from dse.space.array_math import ceil_div, divisor, extremes, maximum, where
from dse.space.chip import Chip
from dse.space.dram import MemorySystem
from dse.space.errors import DesignError
from dse.space.limits import IncompatibleOptionsError
from dse.space.main_memory import main_memory
from dse.space.mapping import Mapping
from dse.space.stack import Stack


class PooledEngines(NamedTuple):
    """Engines of all cores of a die, which run in parallel as one engine.

    Attributes:
        matrix, vector: an operation, on values of 16 bits. [s]
        passes: of the vector engine over each element of K and V in decode attention.
    """

    matrix: Any
    vector: Any
    passes: Any

    def product_with_start(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Time of a product on all cores. [s]"""
        return self.operations(m, k, n) * self.matrix

    @staticmethod
    def operations(m: Any, k: Any, n: Any) -> Any:
        """Operations of a product: two per multiply-add. [op]"""
        return (2.0 * m) * (k * n)

    def vectors(self, operations: Any, specials: Any, streamed: Any, starts: Any) -> Any:
        """Time of vector operations, special ones counted as others, and of elements of K and V. [s]

        Starts of kernels are in the software stack.

        What starts them is the stack's, of each kernel.
        """
        return (operations + specials + streamed * self.passes) * self.vector

    def call_seconds(self, matrix: Any, vector: Any) -> Any:
        """Time of both engines for one call, in parallel. [s]"""
        return maximum(matrix, vector)

    def shares(self, matrix: Any, vector: Any) -> tuple[Any, Any]:
        """Time of each engine in a call: the slower one takes all of it. [s], [s]"""
        return where(matrix >= vector, matrix, 0.0), where(matrix >= vector, 0.0, vector)


class ResultBlocks(NamedTuple):
    """Squares of a product's results, of which each core computes one at a time.

    Attributes:
        side: rows and columns of a square.
        cores: of the die.
    """

    side: Any
    cores: Any

    def time_factor(self, m: Any, n: Any) -> Any:
        """Time of a product over that of one whose results are shared evenly by cores.

        Cores without a square in the last round wait.

        >>> ResultBlocks(128, 64).time_factor(128, 4096), ResultBlocks(128, 2).time_factor(128, 4096)
        (2.0, 1.0)
        """
        squares = maximum(ceil_div(m, self.side), 1) * ceil_div(n, self.side)
        return ceil_div(squares, self.cores) * self.cores / squares


class DieCache(NamedTuple):
    """Cache of a die, for activations that fit and for prefetched data.

    Attributes:
        byte: from it to the cores. [s/B]
        size: of all of it; `smallest` and `largest` over designs. [B]
    """

    byte: Any
    size: Any
    smallest: float
    largest: float

    def is_exceeded(self, nbytes: Any) -> Any:
        """Whether activations exceed the cache; one answer if it is the same for all designs."""
        if type(nbytes) is float and self.smallest == self.largest:
            return nbytes > self.smallest
        low, high = extremes(nbytes)
        if high <= self.smallest:
            return False
        if low > self.largest:
            return True
        return nbytes > self.size


class RatedMemory(NamedTuple):
    """Main memory with a bandwidth, and the losses of strided and random reads.

    Attributes:
        byte: of a contiguous stream. [s/B]
        bandwidth: the same. [B/s]
        gap, waste: of strided reads, as in `strided_efficiency`.
        scatter: bytes that each piece costs beside its own where pieces lie anywhere; None if it is unknown. [B]
        banks: behind it; None if they are unknown, or slower than the stated bandwidth.
        peak: what these move together. [B/s]
        cores: that read side by side.
        scatter_address: setting for `scatter`.
    """

    byte: Any
    bandwidth: Any
    gap: Any
    waste: Any
    scatter: Any = None
    banks: MemorySystem | None = None
    peak: Any = 0.0
    cores: Any = 1
    scatter_address: str = "chip.hbm.random_access_overhead"

    def per_byte(self, piece: Any, stride: Any) -> Any:
        """Time per byte of a read in pieces `stride` apart, or at random places if infinite. [s/B]"""
        if isinstance(stride, float) and stride == inf and self.scatter is None:
            raise DesignError(
                f"{self.scatter_address}: missing, but the model's indexer selects pieces at random places; set the bytes that "
                f"could be read while a row is opened, such as +{self.scatter_address}='250 B'"
            )
        if isinstance(stride, float) and stride == inf:
            return self.byte * (1 + self.scatter / piece)
        return self.byte / strided_efficiency(piece, stride, self.bandwidth, self.gap, self.waste)

    def read(self, request: MemoryRequest) -> tuple[Any, Any]:
        """Time of a memory request [s], and of one more byte [s/B]."""
        stride = request.stride
        byte = self.byte if isinstance(stride, float) and stride == 0 else self.per_byte(request.piece, stride)
        return request.nbytes * byte, byte


def power_limited_seconds(chip: Chip, stack: Stack) -> Any:
    """Time by which the power limit of a board lengthens an operation; None without such a term. [s]

        t = E / P

    E is the energy of an operation, whatever its format, and P the power of the board. With the reached peak F of a format
    an operation takes 1/F + E/P, so that the share of the peak falls as 1 / (1 + E F / P).

    It is 0 where the power is unknown, which `refuse_unknown_power` refuses.
    """
    if stack.matrix_energy is None:
        return None
    power = 0.0 if chip.power is None else chip.power
    return stack.matrix_energy * where(power > 0, 1.0, 0.0) / divisor(power)


def refuse_unknown_power(chip: Chip, stack: Stack) -> None:
    """Refuse an energy of operations at the power limit for chips whose power is unknown.

    Raises:
        IncompatibleOptionsError: likewise, of these designs.
    """
    if stack.matrix_energy is None:
        return
    unknown = np.logical_and(stack.matrix_energy > 0, (0.0 if chip.power is None else chip.power) == 0)
    if unknown.any():
        raise IncompatibleOptionsError(
            "mapping.stack.matrix_energy: needs the chip's power limit, which is unknown; set chip.power, or "
            "mapping.stack.matrix_energy=null",
            *("matrix_energy", "power"),
            some=unknown,
        )


def shared_cache_parts(chip: Chip, mapping: Mapping) -> tuple[PooledEngines, DieCache, RatedMemory]:
    """Pooled engines, cache and main memory of a die under a mapping's software stack."""
    stack, memory = mapping.stack, main_memory(chip)
    bandwidth = memory.bandwidth * stack.hbm_efficiency
    banks = None if memory.banks is None or is_faster_than_banks(memory) else memory.banks
    return (
        PooledEngines(
            2.0 / (chip.cores * chip.core.matrix * stack.matrix_efficiency),
            1 / (chip.cores * chip.core.vector),
            stack.attention_passes,
        ),
        DieCache(1 / chip.l2.bandwidth, chip.l2.size, *extremes(chip.l2.size)),
        RatedMemory(
            1 / bandwidth,
            bandwidth,
            memory.strided_row_overhead,
            memory.strided_overfetch,
            memory.random_access_overhead,
            banks,
            memory.bandwidth,
            chip.cores,
            memory.address("random_access_overhead"),
        ),
    )
