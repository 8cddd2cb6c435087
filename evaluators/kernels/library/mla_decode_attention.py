"""Library kernel of decode attention over latents (absorbed MLA) on a shared-cache die.

    t = start + merge min(keys / 64, 128) + sums / (cached L) + converted / (convert W) + (C^q + B^q)^(1/q)
    C = max(2 queries heads (qk + v) positions / cores, that of one block) / (achieved P)
    B = (latents + queries + results) / (hbm W) + ramp (1 - e^(-(latents / S)^4))

All heads of a request read one latent a position, of which the first v columns are values too. Engines work on 16 bits whatever
the cache has; queries are converted where it has 8. A tile of up to 64 heads walks blocks of 64 positions. Tiles are cut into
parts, no smaller than a block, as long as all together have no more than 128, and a kernel after this one merges those of a
request, one after the other: as of `generation`, `merge` counts those of one that has the die for itself. The `sums` of a part,
v columns of 32 bits a head, go through the die's cache, of bandwidth L and size S. Latents that it cannot keep pay `ramp`
before they stream.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import ceil_div, divisor, maximum, minimum
from dse.space.libraries.mla_decode_attention import MlaDecodeConstants

BLOCK = 64.0
"""Positions of a block, the smallest part of a cache: as of FlashMLA."""

TILE = 64
"""Heads of a tile, as warp groups of a matrix engine take rows."""

PARTS = 128
"""Parts of a request at most, as `most` of conf/library/decode_attention."""

SUM = 8.0
"""Bytes of a partial result of 32 bits, written and read."""

KNEE = 4.0
"""How sharply what exceeds the cache comes from memory, as `knee` of conf/library/decode_attention."""


class MlaDecodeAttention(NamedTuple):
    """Attention of one or a few queries of each request over latents.

    Leaves broadcast over steps and designs.

    Attributes:
        m: requests.
        keys: positions that each sees, on average.
        heads: on this device.
        queries: of a request, those that are guessed included.
        dims: columns of a key and of a value.
        v: columns of a value.
        nbytes: of latents. [B]
        near: of queries and results, once. [B]
        converted: queries that come in 16 bits and are worked on in 8, at both widths. [B]
    """

    m: Any
    keys: Any
    heads: Any
    queries: Any
    dims: Any
    v: Any
    nbytes: Any
    near: Any
    converted: Any = 0.0

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "mla_decode_attention"

    def sizes(self) -> dict[str, Any]:
        """Sizes in which measured rows of this kernel differ, by name."""
        latent = divisor(self.m * self.keys * (self.dims - self.v))
        return {
            "requests": self.m, "keys": self.keys, "heads": self.heads, "queries": self.queries, "columns": self.dims,
            "bits": 8.0 * self.nbytes / latent,
        }  # fmt: skip

    def resized_problem(self, sizes: dict[str, Any]) -> "MlaDecodeAttention":
        """The same problem with some sizes changed; value columns follow those of key and value."""
        own = self.sizes() | sizes
        v = self.v * own["columns"] / self.dims
        rows = own["requests"] * own["heads"] * own["queries"] * own["columns"]
        before = divisor(self.m * self.heads * self.queries * self.dims)
        return MlaDecodeAttention(
            own["requests"], own["keys"], own["heads"], own["queries"], own["columns"], v,
            own["requests"] * own["keys"] * (own["columns"] - v) * own["bits"] / 8.0, self.near / before * rows,
            self.converted / before * rows,
        )  # fmt: skip

    def peak_times(self, die: LibraryDie) -> tuple[Any, Any]:
        """Time of operations and of bytes at the peaks of a die, without conversions. [s], [s]"""
        operations = 2.0 * self.m * self.heads * self.queries * self.keys * self.dims
        return operations / (die.cores * die.peak), (self.nbytes + self.near) / die.bandwidth


def kernel_time(attention: MlaDecodeAttention, constants: MlaDecodeConstants, die: LibraryDie) -> LibraryKernelTime:
    """Time of a library's absorbed MLA decode attention, in its parts. [s]

    Args:
        attention: the attention; leaves of shape () or broadcasting over (steps, designs).
        constants: fitted constants of the library.
        die: die that runs it.
    """
    stream = 1 / (constants.hbm * die.bandwidth)
    rows = attention.heads * attention.queries
    high, tiles, blocks = minimum(rows, TILE), attention.m * ceil_div(rows, TILE), attention.keys / BLOCK
    compute = (
        2.0
        * attention.dims
        * maximum(attention.m * rows * attention.keys / die.cores, high * BLOCK)
        / (constants.achieved * die.peak)
    )
    memory = (attention.nbytes + attention.near) * stream + constants.ramp * -np.expm1(
        -((attention.nbytes / die.cache) ** KNEE)
    )
    sums = maximum(minimum(tiles * blocks, PARTS), tiles) * high * attention.v * SUM
    merging = constants.merge * minimum(blocks, PARTS) + sums / (constants.cached * die.cache_bandwidth)
    beside = merging + attention.converted / (constants.convert * die.bandwidth)
    return LibraryKernelTime(constants.start, beside, compute, memory, constants.sharpness, stream, 1 / die.cache_bandwidth)
