"""A library's attention of single queries on a die with a cache: it reads what is cached, in parts that cores share out.

    t = start + merge log2(1 + keys / 256) + (C^q + M^q)^(1/q)
    C = units cost / cores + times B / (cached L)
    M = miss B / (hbm W) + (1 - miss) B / (cached L) + near / (hbm W) + ramp (1 - e^(-(times B / kept S)^knee))
    miss = 1 - e^(-(B / kept S)^knee)

with S the size of the die's cache, L its bandwidth (in M no less than memory's) and W the bandwidth of memory: what the cache
keeps is read from there, and what comes from memory pays `ramp` before it streams. A tile has up to `shared` queries of a KV
head; it costs `unit`, and the cache keeps more of long requests, as (keys / 1024)^`length`, which was measured and is not
explained. Where a KV head has one query, or more than a tile, each is by itself: it costs `alone`, and of several each reads
keys and values again, from the die's cache (`times`; 1 elsewhere, where that term is none).
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Die
from dse.space.elementwise import maximum, minimum, where
from dse.space.libraries.generation import Generation

PART = 256.0
"""Keys of a part of a cache, which parts are counted by."""

LONG = 1024.0
"""Keys of a request of which the die's cache keeps `kept`."""


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
    cached = constants.cached * die.cache_bandwidth
    near = minimum(1 / cached, stream)
    together = of.heads * of.queries / of.kv_heads
    many = together > constants.shared
    times, alone = where(many, together, 1.0), (together <= 1) | many
    cost = where(alone, constants.alone * times, constants.unit)
    again = where(many, times * of.nbytes / cached, 0.0)
    compute = cost * of.m * of.kv_heads / die.cores + again
    kept = constants.kept * die.cache * where(alone, 1.0, maximum(of.keys / LONG, 1 / LONG) ** constants.length)
    miss, begun = (-np.expm1(-((nbytes / kept) ** constants.knee)) for nbytes in (of.nbytes, times * of.nbytes))
    byte = miss * stream + (1 - miss) * near
    memory = byte * of.nbytes + of.near * stream + constants.ramp * begun
    start = constants.start + constants.merge * np.log2(1.0 + of.keys / PART)
    return Took(start, 0.0, compute, memory, constants.sharpness, byte, 1 / die.cache_bandwidth)
