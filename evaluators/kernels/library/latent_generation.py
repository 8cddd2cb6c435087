"""A library's attention of single queries over latents on a die with a cache: MLA with absorbed weights.

    t = start + merge log2(1 + positions / 64) + (C^q + B^q)^(1/q)
    C = 2 queries heads (qk + v) positions / (achieved P cores) + unit min(parts / cores, 1)
    B = (latents + passes (queries + results)) / (hbm W)

All heads of a request read one latent a position, of which the first v columns are values too. Engines work on 16 bits whatever
the cache has. A tile of 64 heads walks 64 positions at a time; these are the parts that cores share out, one run of them each,
which a core starts and ends once (`unit`).
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.took import Took
from dse.evaluators.machine.library import Die
from dse.space.elementwise import ceil_div, minimum
from dse.space.libraries.latent_generation import LatentGeneration

PART = 64.0
"""Positions of a part of a cache, which parts are counted by."""

TILE = 64
"""Heads of a tile, as warp groups of a matrix engine take rows."""


class Decode(NamedTuple):
    """Attention of one query of some requests over latents, or a few of each; leaves broadcast over steps and designs.

    Attributes:
        m: requests.
        keys: positions that each sees, on average.
        heads: on this device.
        queries: of a request, those that are guessed included.
        dims: columns of a key and of a value.
        nbytes: of latents. [B]
        near: of queries and results, once. [B]
    """

    m: Any
    keys: Any
    heads: Any
    queries: Any
    dims: Any
    nbytes: Any
    near: Any

    @property
    def kind(self) -> str:
        """A name of `kernels.library.LIBRARY`."""
        return "latent_generation"


def took(of: Decode, constants: LatentGeneration, die: Die) -> Took:
    """Time of attention, in its parts.

    Args:
        of: the attention; leaves of shape () or broadcasting over (steps, designs).
        constants: of the library.
        die: that runs it.
    """
    stream = 1 / (constants.hbm * die.bandwidth)
    compute = 2.0 * of.m * of.queries * of.heads * of.dims * of.keys / (constants.achieved * die.peak * die.cores)
    parts = of.m * ceil_div(of.heads * of.queries, TILE) * of.keys / PART
    compute = compute + constants.unit * minimum(parts / die.cores, 1.0)
    memory = (of.nbytes + constants.passes * of.near) * stream
    start = constants.start + constants.merge * np.log2(1.0 + of.keys / PART)
    return Took(start, 0.0, compute, memory, constants.sharpness, stream, 1 / die.cache_bandwidth)
