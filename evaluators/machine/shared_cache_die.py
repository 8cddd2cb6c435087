"""Cores behind a cache as one engine, the cache, and main memory with a rate."""

from math import inf
from typing import Any, NamedTuple

from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.memory_channels import is_faster_than_banks
from dse.evaluators.machine.strided_reads import strided_efficiency
from dse.space.array_math import extremes, maximum, where
from dse.space.chip import Chip
from dse.space.dram import MemorySystem
from dse.space.errors import DesignError
from dse.space.mapping import Mapping


class PooledEngines(NamedTuple):
    """Engines of all cores of a die, which work side by side.

    Attributes:
        matrix, vector: an operation, on values of 16 bits. [s]
        passes: of the vector engine over each element of K and V in decode attention.
    """

    matrix: Any
    vector: Any
    passes: Any

    def started(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Time of a product. [s]"""
        return self.operations(m, k, n) * self.matrix

    @staticmethod
    def operations(m: Any, k: Any, n: Any) -> Any:
        """Of a product. [op]"""
        return (2.0 * m) * (k * n)

    def vectors(self, operations: Any, specials: Any, streamed: Any, starts: Any) -> Any:
        """Time of operations on elements, special ones counting as others, and of K and V that vectors pass over. [s]

        What starts them is the stack's, of each kernel.
        """
        return (operations + specials + streamed * self.passes) * self.vector

    def together(self, matrix: Any, vector: Any) -> Any:
        """Time of what both engines have to do for one call. [s]"""
        return maximum(matrix, vector)

    def shares(self, matrix: Any, vector: Any) -> tuple[Any, Any]:
        """Whose time that is: the longer one's. [s]"""
        return where(matrix >= vector, matrix, 0.0), where(matrix >= vector, 0.0, vector)


class DieCache(NamedTuple):
    """The cache that activations live in where they fit, and that data can be prefetched into.

    Attributes:
        byte: from it to the cores. [s/B]
        size: of all of it; `smallest` and `largest` over designs. [B]
    """

    byte: Any
    size: Any
    smallest: float
    largest: float

    def exceeded(self, nbytes: Any) -> Any:
        """Whether activations are larger; one answer where it is the same for all designs, as it mostly is."""
        if type(nbytes) is float and self.smallest == self.largest:
            return nbytes > self.smallest
        low, high = extremes(nbytes)
        if high <= self.smallest:
            return False
        if low > self.largest:
            return True
        return nbytes > self.size


class RatedMemory(NamedTuple):
    """Main memory with a rate.

    Attributes:
        byte: of a contiguous stream. [s/B]
        bandwidth: the same. [B/s]
        gap, waste: of strided reads, as in `strided_efficiency`.
        scatter: bytes that each piece costs beside its own where pieces lie anywhere; None where nobody says. [B]
        banks: behind it; None where nobody says what they are, or where they move less than is said of it.
        peak: what these move together. [B/s]
        cores: that read side by side.
    """

    byte: Any
    bandwidth: Any
    gap: Any
    waste: Any
    scatter: Any = None
    banks: MemorySystem | None = None
    peak: Any = 0.0
    cores: Any = 1

    def per_byte(self, piece: Any, stride: Any) -> Any:
        """Time of a byte of a read in pieces, `stride` apart, or anywhere where that is infinite. [s/B]"""
        if isinstance(stride, float) and stride == inf and self.scatter is None:
            raise DesignError(
                "chip.hbm.scatter: missing; this model reads what an indexer picks piece by piece: say how many bytes could be "
                "read while a row is opened, as in +chip.hbm.scatter='250 B'"
            )
        if isinstance(stride, float) and stride == inf:
            return self.byte * (1 + self.scatter / piece)
        return self.byte / strided_efficiency(piece, stride, self.bandwidth, self.gap, self.waste)

    def read(self, asked: MemoryRequest) -> tuple[Any, Any]:
        """Time of so many bytes [s], and of one more [s/B]."""
        stride = asked.stride
        byte = self.byte if isinstance(stride, float) and stride == 0 else self.per_byte(asked.piece, stride)
        return asked.nbytes * byte, byte


def shared_cache_parts(chip: Chip, mapping: Mapping) -> tuple[PooledEngines, DieCache, RatedMemory]:
    """Those of a die under a mapping's stack; calls say how fast products of their formats are."""
    stack = mapping.stack
    hbm = chip.hbm.bandwidth * stack.hbm_efficiency
    banks = None if chip.hbm.banks is None or is_faster_than_banks(chip.hbm) else chip.hbm.banks
    return (
        PooledEngines(
            2.0 / (chip.cores * chip.core.matrix * stack.matrix_efficiency),
            1 / (chip.cores * chip.core.vector),
            stack.attention_passes,
        ),
        DieCache(1 / chip.l2.bandwidth, chip.l2.size, *extremes(chip.l2.size)),
        RatedMemory(1 / hbm, hbm, chip.hbm.gap, chip.hbm.waste, chip.hbm.scatter, banks, chip.hbm.bandwidth, chip.cores),
    )
