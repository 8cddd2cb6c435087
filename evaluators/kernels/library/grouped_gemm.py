"""Library kernel of grouped products of experts on a shared-cache die.

    t = start + group held + gather + quantise + (C^q + B^q)^(1/q)
    B = (touched weights + rows that are not gathered) / (hbm W)
    C = min over tiles a x b of max(1, u) (2 a b k / (e r P) + tile),  u = touched ceil(rows / touched / a) ceil(n / b) / cores
    gather = (rows + tokens) columns / (traffic W)

with P of a core, and r of a tile as in `gemm`. Rows of an expert fill whole tiles, of which a library has small ones for few
rows. Each tile has a start and an end of its own, which is most of what narrow experts take.
`gather` is rows that are collected from tokens, or added up for all tokens of the layer that this die has, at a rate of their
own. `group` and `quantise` are of kernels with scales of blocks alone. Their cores look through all experts that the die holds
for their own tiles. Rows come in 16 bits, and are read, scaled in blocks and written in 8 before each product.
Where experts have unequal rows, half of each one's last tile is empty on average. An expert then has at least
rows / touched / a + 1 / 2 tiles.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.gemm import REUSE
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime, zero_if_absent
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import ceil_div, maximum, minimum
from dse.space.libraries.grouped_gemm import GroupedGemmConstants

TILES = tuple((a, b) for a in (16, 32, 64, 128) for b in (64, 128))
"""Rows and columns of a tile of the result of one expert, which a core works on at a time."""

UNFILLED = 0.5
"""Share of its last tile that an expert leaves empty, on average, if experts have unequal rows."""

WIDE, NARROW = 2.0, 1.0
"""Bytes of an activation before and after experts, and of one that is quantised. [B]"""


class GroupedGemm(NamedTuple):
    """Grouped product of rows with their experts, or an elementwise kernel over its results.

    Leaves broadcast over steps and designs.

    Attributes:
        m: rows at all experts together.
        k, n: of each expert's weights; k is 0 of a pass.
        touched: experts that have rows.
        held: experts that are on the die.
        weights: of those that have rows. [B]
        near: values of a row that are read and written where they are.
        far: values of a row that are collected from tokens, or added up for them.
        scaling: how operands of 8 bits are scaled: "" for 16 bits, tensor, or block.
        pace: time of an operation over that of one on 16 bits.
        share: of the kernel that this call is of: two products of the same rows are one kernel.
        tokens: of the layer on this die, from which rows are collected and for which results are added up; None for as many
            as rows.
        unequal: whether experts have unequal rows, as those that tokens choose.
    """

    m: Any
    k: Any
    n: Any
    touched: Any
    held: Any
    weights: Any
    near: Any
    far: Any
    scaling: str = ""
    pace: Any = 1.0
    share: Any = 1.0
    tokens: Any = None
    unequal: bool = False

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "grouped_gemm"

    @property
    def routed_values(self) -> Any:
        """Values that are collected from tokens or added up for them, read and written. [-]"""
        return (self.m + (self.m if self.tokens is None else self.tokens)) * self.far

    def sizes(self) -> dict[str, Any]:
        """Sizes in which measured rows of this kernel differ, by name; of an elementwise kernel only rows."""
        if isinstance(self.k, int | float) and not self.k:
            return {"rows": self.m}
        return {
            "rows": self.m, "k": self.k, "n": self.n, "touched": self.touched,
            "bits": 8.0 * self.weights / maximum(self.touched * self.k * self.n, 1.0),
        }  # fmt: skip

    def resized_problem(self, sizes: dict[str, Any]) -> "GroupedGemm":
        """The same problem with some sizes changed; bytes of a row follow its columns."""
        own = self.sizes() | sizes
        if "k" not in own:
            return self._replace(m=own["rows"])
        into = self.far is self.k or np.array_equal(
            self.far, self.k
        )  # rows are collected before the product, or added up after it
        near, far = (own["n"], own["k"]) if into else (own["k"], own["n"])
        weights = own["touched"] * own["k"] * own["n"] * own["bits"] / 8.0
        return self._replace(
            m=own["rows"], k=own["k"], n=own["n"], touched=own["touched"], held=maximum(self.held, own["touched"]),
            weights=weights, near=near, far=far,
        )  # fmt: skip

    def peak_times(self, die: LibraryDie) -> tuple[Any, Any]:
        """Time of operations and of bytes at the peaks of a die. [s], [s]"""
        compute = 2.0 * self.m * self.k * self.n * self.pace / (die.cores * die.peak)
        moved = self.weights + (self.m * self.near + self.routed_values) * WIDE
        return compute * self.share, moved * self.share / die.bandwidth


def kernel_time(attention: GroupedGemm, constants: GroupedGemmConstants, die: LibraryDie) -> LibraryKernelTime:
    """Time of a grouped product, or of an elementwise kernel over its results, in its parts. [s]

    Args:
        attention: the product; leaves of shape () or broadcasting over (steps, designs).
        constants: fitted constants of the library.
        die: die that runs it.
    """
    stream, cached = 1 / (constants.hbm * die.bandwidth), 1 / die.cache_bandwidth
    memory = (attention.weights + attention.m * attention.near * WIDE) * stream
    if isinstance(attention.k, int | float) and not attention.k:
        return LibraryKernelTime(0.0, 0.0, 0.0, memory, constants.sharpness, stream, cached)
    reached_share = {"tensor": constants.tensor, "block": constants.block}.get(attention.scaling)
    operation = attention.pace / ((constants.achieved if reached_share is None else reached_share) * die.peak)
    beside = attention.routed_values * WIDE / (constants.traffic * die.bandwidth)
    start = constants.start
    if attention.scaling == "block":
        start = start + zero_if_absent(constants.group) * attention.held
        if constants.quantised is not None:
            beside = beside + attention.m * attention.k * (WIDE + NARROW) / (constants.quantised * die.bandwidth)
    elif attention.scaling == "tensor":
        start = start + zero_if_absent(constants.tensor_start)
    compute = core_seconds(attention, operation, constants, die)
    return LibraryKernelTime(start, beside, compute, memory, constants.sharpness, stream, cached).times(attention.share)


def core_seconds(gemm: GroupedGemm, operation: Any, constants: GroupedGemmConstants, die: LibraryDie) -> Any:
    """Time of the cores with the tile that takes least. [s]

    Args:
        gemm: the product.
        operation: of a core at full rate. [s]
        constants: fitted constants of the library.
        die: die that runs it.
    """
    touched = maximum(gemm.touched, 1e-9)
    mean, best = gemm.m / touched, None
    for a, b in TILES:
        high = ceil_div(mean, a)
        if gemm.unequal:
            high = maximum(high, mean / a + UNFILLED)
        units = high * touched * ceil_div(gemm.n, b) / die.cores
        depth = operation * (2.0 * a * b / min(1.0, a * b / (a + b) / REUSE)) * gemm.k
        seconds = maximum(units, 1.0) * (depth + zero_if_absent(constants.tile))
        best = seconds if best is None else minimum(best, seconds)
    return best
