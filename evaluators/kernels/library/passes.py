"""A library's passes over elements on a die with a cache.

    t = (start^q + rest^q)^(1/q)
    rest = row / b + ((bytes - c) / W + c / L) / s,   c = min(bytes, cached share of the cache)

Cores take a row each, at a rate b that shows where rows are few; W and L are the bandwidths of memory and cache.
"""

from typing import Any, NamedTuple

from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Die
from dse.space.elementwise import minimum
from dse.space.libraries.passes import Passes

SORTS = ("norm", "gate", "rotate", "copy", "gather", "softmax")
"""Sorts of passes, as `space.libraries.passes.Passes` has them."""


class Elements(NamedTuple):
    """Rows that a kernel passes over; leaves broadcast over steps and designs.

    Attributes:
        m: rows.
        row: what is read and written of each. [B]
        sort: a word of `SORTS`.
    """

    m: Any
    row: Any
    sort: str

    @property
    def kind(self) -> str:
        """A name of `kernels.library.LIBRARY`."""
        return "elementwise"


def took(of: Elements, constants: Passes, die: Die) -> Took | None:
    """Time of a pass, in its parts; None where the library has none of its sort.

    Args:
        of: the pass; leaves of shape () or broadcasting over (steps, designs).
        constants: of the library.
        die: that runs it.
    """
    own = getattr(constants, of.sort)
    if own is None:
        return None
    nbytes = of.m * of.row
    near = minimum(nbytes, constants.cached * die.cache)
    rest = ((nbytes - near) / die.bandwidth + near / die.cache_bandwidth) / own.share
    if constants.row is not None:
        rest = rest + of.row / constants.row
    return Took(0.0, 0.0, own.start, rest, constants.sharpness, 1 / die.bandwidth, 1 / die.cache_bandwidth)
