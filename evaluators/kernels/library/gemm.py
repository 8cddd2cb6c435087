"""Library kernel of matrix products on a shared-cache die.

Blocks of the output run over cores in waves and overlap reads and writes.

    t = start + quantise + (C^q + B^q)^(1/q)
    B = (weights + activations + results) / (hbm W)
    C = min over tiles a x b and splits s of k of  waves x (2 a b k / (s e r P) + tile) + sums + padding k (a ceil(m / a) - m)
    waves = (1 - w) max(1, u) + w ceil(u),  u = s ceil(m / a) ceil(n / b) / cores

with P of a core, and r = min(1, (a b / (a + b)) / 53.3), what a tile of a x b loads for its operations: 128 x 128 and larger
run at full rate. Sums of a split k go through the cache, and `join` is the time of the kernel that adds them. A product
with few tiles and a long k takes either its walk along k, or that. The best tile is chosen, as a library's heuristic means to
do. Where operands have scales of blocks, a tile is no larger than a block of weights, which has one scale. Such kernels take
whole waves, and fill the rows that the last tile lacks (`padding`). So 256 rows may take less than 129.
Fewer rows than `SWAPPED` are columns of a kernel of their own, which fills none.

Source:
    TensorRT-LLM's DeepGEMM: tiles of 64 or 128 rows, and operands that change places below 32 rows on H100.
"""

from math import inf
from typing import Any, NamedTuple

from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime, zero_if_absent
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import ceil_div, divisor, maximum, minimum, where
from dse.space.libraries.gemm import GemmConstants, QuantisedGemm

TILES = tuple((a, b) for a in (64, 128, 256) for b in (32, 64, 128, 256))
"""Rows and columns of a tile of the result, which a core works on at a time."""

BLOCK = 128
"""Rows and columns of weights that have one scale, where scales are of blocks ([deepgemm2025]: tiles of up to 128 x 128)."""

SWAPPED = 32
"""Rows from which on block-scaled kernels have rows of a tile to fill; fewer are columns ([tensorrtllm2025] deep_gemm)."""

SPLITS = (1, 2, 4, 8, 16)
"""Parts of the inner dimension that cores may share out."""

REUSE = 160 / 3
"""Values that a tile of full rate multiplies for each that it loads: 1.6 x a b / (a + b) of 128 x 256 over 85.3 is 1.6."""

SUM = 4.0
"""Bytes of a partial sum."""


class Gemm(NamedTuple):
    """Product [m, k] x [k, n] with weights in memory; leaves broadcast over steps and designs.

    Attributes:
        m, k, n: of the kernel.
        weights: all of them. [B]
        act: of an activation that comes in or goes out. [B]
        scaling: how operands of 8 bits are scaled: "" for 16 bits, tensor, or block.
        pace: time of an operation over that of one on 16 bits.
        share: of the kernel that this call is of: several products of the same rows are one kernel.
        apart: matrices side by side along n, each with rows of its own.
    """

    m: Any
    k: Any
    n: Any
    weights: Any
    act: float
    scaling: str = ""
    pace: Any = 1.0
    share: Any = 1.0
    apart: Any = 1

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "gemm"

    def sizes(self) -> dict[str, Any]:
        """Sizes in which measured rows of this kernel differ, by name."""
        return {"m": self.m, "k": self.k, "n": self.n / self.apart, "bits": 8.0 * self.weights / divisor(self.k * self.n)}

    def resized_problem(self, sizes: dict[str, Any]) -> "Gemm":
        """The same problem with some sizes changed."""
        own = self.sizes() | sizes
        n = own["n"] * self.apart
        return self._replace(m=own["m"], k=own["k"], n=n, weights=own["k"] * n * own["bits"] / 8.0)

    def peak_times(self, die: LibraryDie) -> tuple[Any, Any]:
        """Time of operations and of bytes at the peaks of a die, without conversions. [s], [s]"""
        compute = 2.0 * self.m * self.k * self.n * self.pace / (die.cores * die.peak)
        rows = self.m * self.k * self.apart * self.act + self.m * self.n * 2.0
        return compute * self.share, (self.weights + rows) * self.share / die.bandwidth


def kernel_time(attention: Gemm, constants: GemmConstants, die: LibraryDie) -> LibraryKernelTime:
    """Time of a library's matrix product, in its parts. [s]

    Args:
        attention: the product; leaves of shape () or broadcasting over (steps, designs).
        constants: fitted constants of the library.
        die: die that runs it.
    """
    own = getattr(constants.eight, attention.scaling) if attention.scaling and constants.eight is not None else None
    given_constants = constants if own is None else own
    stream = 1 / (constants.hbm * die.bandwidth)
    beside: Any = 0.0
    if own is not None:  # read in 16 bits, written in 8
        beside = own.start + attention.m * attention.k * attention.apart * (2.0 + attention.act) / (
            constants.eight.traffic * die.bandwidth
        )
    memory = (
        attention.weights + attention.m * attention.k * attention.apart * attention.act + attention.m * attention.n * 2.0
    ) * stream
    operation = attention.pace / (given_constants.achieved * die.peak)
    compute, cached = core_seconds(attention, operation, given_constants, constants, die), 1 / die.cache_bandwidth
    return LibraryKernelTime(constants.start, beside, compute, memory, constants.sharpness, stream, cached).times(
        attention.share
    )


def core_seconds(
    gemm: Gemm, operation: Any, given_constants: GemmConstants | QuantisedGemm, constants: GemmConstants, die: LibraryDie
) -> Any:
    """Time of the cores with the tile and split of k that take least. [s]

    Args:
        gemm: the product.
        operation: of a core at full rate. [s]
        given_constants: constants of its format: how often the inner dimension is split.
        constants: fitted constants of the library.
        die: die that runs it.
    """
    best: Any = None
    share = getattr(given_constants, "waves", None)
    idle = constants.waves if share is None else share
    padding, join = zero_if_absent(getattr(given_constants, "padding", None)), zero_if_absent(constants.join)
    for a, b in TILES:
        if gemm.scaling == "block" and max(a, b) > BLOCK:
            continue
        high = ceil_div(gemm.m, a)
        tiles = high * ceil_div(gemm.n / gemm.apart, b) * gemm.apart
        filled = padding * gemm.k * where(gemm.m < SWAPPED, 0.0, high * a - gemm.m)
        depth = operation * (2.0 * a * b / min(1.0, a * b / (a + b) / REUSE)) * gemm.k
        for split in SPLITS:
            units = tiles * (split / die.cores)
            turns = (1 - idle) * maximum(units, 1.0) + idle * ceil_div(units, 1)
            sums = gemm.m * gemm.n * (SUM * (split + 1)) / die.cache_bandwidth + join if split > 1 else 0.0
            seconds = where(split <= given_constants.splits, turns * (depth / split + constants.tile) + sums + filled, inf)
            best = seconds if best is None else minimum(best, seconds)
    return best
