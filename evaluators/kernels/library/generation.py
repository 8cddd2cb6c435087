"""A library's attention of single queries on a die with a cache: it reads what is cached, in parts that cores share out.

    t = start + merge log2(1 + keys / 256) + (max(units unit / cores, again)^q + memory^q)^(1/q)
    memory = B / (hbm W) + ramp (1 - e^(-B / (kept C)))

with C the size of the die's cache: keys and values that fit there are read faster than main memory could, and longer ones pay
`ramp` before they stream. A request and KV head is a unit, of which a core works on one at a time. A tile has up to `shared`
queries of a KV head; where there are more, each reads keys and values again from the die's cache, and those bytes make the
ramp.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Die
from dse.space.elementwise import maximum, where
from dse.space.libraries.generation import Generation

PART = 256.0
"""Keys of a part of a cache, which parts are counted by."""


class Decode(NamedTuple):
    """Attention of one query of some requests, or a few of each; leaves broadcast over steps and designs.

    Attributes:
        m: requests.
        keys: that a request has, on average.
        heads, kv_heads: on this device.
        queries: of a request, those that are guessed included.
        nbytes: of keys and values. [B]
        near: of queries and results. [B]
    """

    m: Any
    keys: Any
    heads: Any
    kv_heads: Any
    queries: Any
    nbytes: Any
    near: Any

    @property
    def kind(self) -> str:
        """A name of `kernels.library.LIBRARY`."""
        return "generation"


def took(of: Decode, constants: Generation, die: Die) -> Took:
    """Time of attention, in its parts.

    Args:
        of: the attention; leaves of shape () or broadcasting over (steps, designs).
        constants: of the library.
        die: that runs it.
    """
    stream = 1 / (constants.hbm * die.bandwidth)
    together = of.heads * of.queries / of.kv_heads
    times = where(together > constants.shared, together, 1.0)
    again = where(times > 1, times * of.nbytes / (constants.cached * die.cache_bandwidth), 0.0)
    units = constants.unit * of.m * of.kv_heads / die.cores
    ramp = constants.ramp * -np.expm1(-times * of.nbytes / (constants.kept * die.cache))
    memory = (of.nbytes + of.near) * stream + ramp
    start = constants.start + constants.merge * np.log2(1.0 + of.keys / PART)
    compute = maximum(units, again)
    return Took(start, 0.0, compute, memory, constants.sharpness, stream, 1 / die.cache_bandwidth)
