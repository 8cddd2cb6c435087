"""A library's passes over elements on a die with a cache.

    t = (start^q + rest^q)^(1/q)
    rest = row / b + ((bytes - c) / W + c / L) / s,   c = bytes / (1 + (bytes / share of the cache)^2)

Cores take a row each, at a rate b that shows where rows are few, but for copies and rows of a table (`BY_ROW`); W and L are the
bandwidths of memory and cache. What was written before is in the cache still if it is smaller than a share of that, and less of
it the larger it is (a form that measured rows have, not one of a policy).
"""

from typing import Any, NamedTuple

from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Die
from dse.space.libraries.passes import Passes

SORTS = ("norm", "gate", "rotate", "copy", "gather", "softmax")
"""Sorts of passes, as `space.libraries.passes.Passes` has them."""


BY_ROW = ("norm", "gate", "rotate", "softmax")
"""Sorts whose rows a core takes one by one; others go element by element over all cores."""


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
    near: Any = 0.0
    if own.cached is not None:
        near = nbytes / (1 + (nbytes / (own.cached * die.cache)) ** 2)
    rest = ((nbytes - near) / die.bandwidth + near / die.cache_bandwidth) / own.share
    if constants.row is not None and of.sort in BY_ROW:
        rest = rest + of.row / constants.row
    return Took(0.0, 0.0, own.start, rest, constants.sharpness, 1 / die.bandwidth, 1 / die.cache_bandwidth)
