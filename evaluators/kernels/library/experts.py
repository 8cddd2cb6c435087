"""A library's products of experts on a die with a cache: one kernel for all that are touched.

    t = start + gather + (C^q + B^q)^(1/q)
    B = (touched weights + rows that are not gathered) / (hbm W)
    C = min over tiles a x b of  max(1, u) 2 a b k / (e r P),  u = touched ceil(rows / touched / a) ceil(n / b) / cores

with r as of `products`; `gather` is rows that are collected for experts, or whose results are added up, at a rate of their own.
"""

from typing import Any, NamedTuple

from dse.evaluators.kernels.library.products import REUSE
from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Die
from dse.space.elementwise import ceil_div, maximum, minimum
from dse.space.libraries.experts import Grouped

TILES = ((16, 128), (32, 128), (32, 256), (64, 128), (64, 256), (128, 128), (128, 256))
"""Rows and columns of a tile of the result of one expert."""

WIDE = 2.0
"""Bytes of an activation before and after experts. [B]"""


class Expert(NamedTuple):
    """Rows through the experts that they go to, or a pass over what these made; leaves broadcast over steps and designs.

    Attributes:
        m: rows at all experts together.
        k, n: of each expert's weights; k is 0 of a pass.
        touched: experts that have rows.
        weights: of those. [B]
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
    weights: Any
    near: Any
    far: Any
    scaling: str = ""
    pace: Any = 1.0
    share: Any = 1.0

    @property
    def kind(self) -> str:
        """A name of `kernels.library.LIBRARY`."""
        return "experts"


def took(of: Expert, constants: Grouped, die: Die) -> Took:
    """Time of a product of experts, or of a pass over what they made, in its parts.

    Args:
        of: the product; leaves of shape () or broadcasting over (steps, designs).
        constants: of the library.
        die: that runs it.
    """
    stream, cached = 1 / (constants.hbm * die.bandwidth), 1 / die.cache_bandwidth
    memory = (of.weights + of.m * of.near * WIDE) * stream
    if isinstance(of.k, int | float) and not of.k:
        return Took(0.0, 0.0, 0.0, memory, constants.sharpness, stream, cached)
    said = {"tensor": constants.tensor, "block": constants.block}.get(of.scaling)
    operation = of.pace / ((constants.achieved if said is None else said) * die.peak)
    far = of.m * of.far * (2 * WIDE) / (constants.traffic * die.bandwidth)
    return Took(constants.start, far, tiled(of, operation, die), memory, constants.sharpness, stream, cached).times(of.share)


def tiled(of: Expert, operation: Any, die: Die) -> Any:
    """Time of the cores at the tile that takes least, all experts having as many rows. [s]

    Args:
        of: the product.
        operation: of a core at full rate. [s]
        die: that runs it.
    """
    best: Any = None
    touched = maximum(of.touched, 1e-9)
    for a, b in TILES:
        units = ceil_div(of.m / touched, a) * touched * ceil_div(of.n, b) / die.cores
        here = maximum(units, 1.0) * (operation * (2.0 * a * b / min(1.0, a * b / (a + b) / REUSE)) * of.k)
        best = here if best is None else minimum(best, here)
    return best
