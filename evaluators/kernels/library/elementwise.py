"""Library kernels of elementwise operators on a shared-cache die.

    t = (start^q + rest^q)^(1/q)
    rest = max(row / b, (bytes - c) / (s W) + near),   c = bytes / (1 + (bytes / share of the cache)^2)
    near = c / (s L), or ceil(rows / cores) row / core where a sort has its `core`

Cores take a row each, at a rate b that shows where rows are few, but for copies and rows of a table (`ROW_KINDS`); W and L are
the bandwidths of memory and cache. What was written before is in the cache still if it is smaller than a share of that, and
less of it the larger it is (a form that measured rows have, not one of a policy). A core that is slower than its part of the
cache takes its rows one after the other, which is where steps of as many rows as there are cores come from. Up to `FEW_ROWS`
rows of a table are picked one after the other, each `walked`: frameworks have a kernel for few rows and one for many, and 17
rows take less than 16.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import maximum, where
from dse.space.libraries.elementwise import ElementwiseConstants

ELEMENTWISE_KINDS = ("norm", "gate", "rotate", "copy", "gather", "softmax")
"""Sorts of passes, as `space.libraries.elementwise.ElementwiseConstants` has them."""


ROW_KINDS = ("norm", "gate", "rotate", "softmax")
"""Sorts whose rows a core takes one by one; others go element by element over all cores."""

FEW_ROWS = 16
"""Rows of a table that PyTorch's kernel for few takes one after the other ([pytorch2025] index_select)."""


class ElementwiseKernel(NamedTuple):
    """Rows that one elementwise kernel reads and writes; leaves broadcast over steps and designs.

    Attributes:
        m: rows.
        row: what is read and written of each. [B]
        sort: an option of `ELEMENTWISE_KINDS`.
    """

    m: Any
    row: Any
    sort: str

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "elementwise"

    def sizes(self) -> dict[str, Any]:
        """Sizes in which measured rows of this kernel differ, by name."""
        return {"rows": self.m, "row_bytes": self.row}

    def resized_problem(self, sizes: dict[str, Any]) -> "ElementwiseKernel":
        """The same problem with some sizes changed."""
        own = self.sizes() | sizes
        return ElementwiseKernel(own["rows"], own["row_bytes"], self.sort)

    def peak_times(self, die: LibraryDie) -> tuple[Any, Any]:
        """Time of operations, taken as 0, and of bytes at the peaks of a die. [s], [s]"""
        return 0.0, self.m * self.row / die.bandwidth


def kernel_time(attention: ElementwiseKernel, constants: ElementwiseConstants, die: LibraryDie) -> LibraryKernelTime | None:
    """Time of an elementwise kernel in its parts [s]; None if the library has none of its sort.

    Args:
        attention: the pass; leaves of shape () or broadcasting over (steps, designs).
        constants: fitted constants of the library.
        die: die that runs it.
    """
    own = getattr(constants, attention.sort)
    if own is None:
        return None
    nbytes = attention.m * attention.row
    near: Any = 0.0
    if own.cached is not None:
        near = nbytes / (1 + (nbytes / (own.cached * die.cache)) ** 2)
    if own.core is None:
        cached = near / die.cache_bandwidth / own.share
    else:
        cached = maximum(np.ceil(attention.m / die.cores), 1.0) * attention.row / own.core
    rest = (nbytes - near) / die.bandwidth / own.share + cached
    if constants.row is not None and attention.sort in ROW_KINDS:
        rest = maximum(rest, attention.row / constants.row)
    if constants.walked is not None and attention.sort == "gather":
        rest = rest + where(attention.m <= FEW_ROWS, constants.walked * attention.m, 0.0)
    return LibraryKernelTime(0.0, 0.0, own.start, rest, constants.sharpness, 1 / die.bandwidth, 1 / die.cache_bandwidth)
