"""Library kernel of grouped products of experts on a shared-cache die.

    t = start + group held + gather + (C^q + B^q)^(1/q)
    B = (touched weights + rows that are not gathered) / (hbm W)
    C = max(1, u) 2 a b k / (e P),  u = touched ceil(rows / touched / a) ceil(n / b) / cores

with P of a core, and tiles of a x b = 16 x 128: what rows of an expert are rounded up to, and the least that a core has to do.
Larger ones are what full rates are reached with, which is in e; small ones are bound by weights that come from memory once.
`gather` is rows that are collected for experts, or whose results are added up, at a rate of their own. `group` is of kernels
with scales of blocks alone, whose cores look through all experts that the die holds for their own tiles.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import ceil_div, maximum
from dse.space.libraries.grouped_gemm import GroupedGemmConstants

ROWS, COLUMNS = 16, 128
"""Of the smallest tile of the result of one expert."""

WIDE = 2.0
"""Bytes of an activation before and after experts. [B]"""


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

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "grouped_gemm"

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
        moved = self.weights + self.m * (self.near * WIDE + self.far * (2 * WIDE))
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
    far = attention.m * attention.far * (2 * WIDE) / (constants.traffic * die.bandwidth)
    start = constants.start + (
        constants.group * attention.held if attention.scaling == "block" and constants.group is not None else 0.0
    )
    return LibraryKernelTime(
        start, far, core_seconds(attention, operation, die), memory, constants.sharpness, stream, cached
    ).times(attention.share)


def core_seconds(gemm: GroupedGemm, operation: Any, die: LibraryDie) -> Any:
    """Time of the cores if all experts have equally many rows. [s]

    Args:
        gemm: the product.
        operation: of a core at full rate. [s]
        die: die that runs it.
    """
    touched = maximum(gemm.touched, 1e-9)
    units = ceil_div(gemm.m / touched, ROWS) * touched * ceil_div(gemm.n, COLUMNS) / die.cores
    return maximum(units, 1.0) * gemm.k * (operation * (2.0 * ROWS * COLUMNS))
