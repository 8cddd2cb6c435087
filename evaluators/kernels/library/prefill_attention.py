"""Library kernel of prefill attention on a shared-cache die.

Tiles of queries run over the cores; each walks along its keys.

    t = start + converted / (convert W) + (compute^q + (bytes / (hbm W))^q)^(1/q)
    compute = max(wait + max(work / cores + left, longest), alone)

A tile has `rows` queries of a head of a request and takes unit + rows keys (2 (qk + v) / (achieved P) + 1 / (16 clock)), with P
of a core: no library that was measured hides the exponential of a score, of which a core makes 16 a cycle, behind its products.
`work` sums this over the keys that queries see on average, `longest` has those of the last tile. If tiles are more than cores,
the last ones leave cores idle: left = tail max(longest, alone) min(tiles / cores, 1).

A request that decodes in the same launch has a tile for each head too, one row of which counts, and which takes `alone`: a
library that splits caches over cores does not do so in a launch with prompts. Heads come one after the other, with decodes
before prompts, so that where all together are more than cores prompts wait until cores have done the decodes, and have skipped
the tiles that these would have if they were as long as a prompt: `idle` each.

Libraries have their best kernels for heads of the `usual` columns. Kernels for other heads have a start and a unit of their
own, and those for wider heads, whose tiles have room for fewer keys, reach less of the peak.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import ceil_div, divisor, maximum, minimum, where
from dse.space.libraries.prefill_attention import PrefillAttentionConstants

EXPONENTIALS = 16.0
"""Of a core in a cycle, of compute capability 8.0 to 9.0 [nvidia2025guide]: throughput of arithmetic instructions."""


class PrefillAttention(NamedTuple):
    """Attention of prompts or prompt chunks, with decodes in the same launch.

    Leaves broadcast over steps and designs.

    Attributes:
        m: new queries of a request, on average.
        requests: prompts.
        seen: keys that a query sees, on average.
        keys: that the last query of a request sees.
        decodes: requests that have one query beside.
        cached: keys that each of these sees, on average.
        heads: of queries on this device.
        dims: columns of a key and of a value of a head.
        nbytes: read and written in main memory. [B]
        converted: queries, keys and values that come in 16 bits and are worked on in 8, at both widths. [B]
        latent: whether keys are wider than values, as those that are expanded of a latent.
    """

    m: Any
    requests: Any
    seen: Any
    keys: Any
    decodes: Any
    cached: Any
    heads: Any
    dims: Any
    nbytes: Any
    converted: Any = 0.0
    latent: bool = False

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "mla_prefill_attention" if self.latent else "prefill_attention"

    def sizes(self) -> dict[str, Any]:
        """Sizes in which measured rows of this kernel differ, by name."""
        converts = np.any(self.converted > 0)
        return {
            "requests": self.requests, "queries": self.m, "keys": self.keys, "heads": self.heads, "columns": self.dims,
            "decodes": self.decodes, "bits": 8.0 if converts else 16.0,
        }  # fmt: skip

    def resized_problem(self, sizes: dict[str, Any]) -> "PrefillAttention":
        """The same problem with some sizes changed; keys that are seen and bytes follow them."""
        own = self.sizes() | sizes
        rows = own["requests"] * own["queries"] * own["heads"] * own["columns"]
        moved = rows / divisor(self.requests * self.m * self.heads * self.dims)
        before = divisor(self.requests * self.keys * self.heads * self.dims)
        cached = own["requests"] * own["keys"] * own["heads"] * own["columns"] / before
        keys = maximum(own["keys"], own["queries"])
        return PrefillAttention(
            own["queries"], own["requests"], self.seen / divisor(self.keys) * keys, keys, own["decodes"], self.cached,
            own["heads"], own["columns"], self.nbytes * maximum(moved, cached), self.converted * moved, self.latent,
        )  # fmt: skip

    def peak_times(self, die: LibraryDie) -> tuple[Any, Any]:
        """Time of operations and of bytes at the peaks of a die, without conversions. [s], [s]"""
        pairs = self.requests * self.m * self.seen + self.decodes * self.cached
        operations = 2.0 * self.heads * pairs * self.dims
        return operations / (die.cores * die.peak), self.nbytes / die.bandwidth


class MixedBatchAttention(NamedTuple):
    """Attention of an iteration with prompts and decodes, in one launch for both or one for each.

    Attributes:
        both: in one launch.
        prompts, decodes: each in a launch of its own; a problem of attention of prompts, and of single queries.
    """

    both: PrefillAttention
    prompts: PrefillAttention
    decodes: Any

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return self.both.kind


def kernel_time(attention: PrefillAttention, constants: PrefillAttentionConstants, die: LibraryDie) -> LibraryKernelTime:
    """Time of a library's prefill attention, in its parts. [s]

    Args:
        attention: the attention; leaves of shape () or broadcasting over (steps, designs).
        constants: fitted constants of the library.
        die: die that runs it.
    """
    rows, (start, unit, achieved) = constants.rows, _constants_of_heads(attention.dims, constants)
    key = rows * (2.0 * attention.dims / (achieved * die.peak) + 1 / (EXPONENTIALS * die.clock))
    # a tile computes whole blocks of keys, half of one too many on the diagonal
    mean = unit + key * minimum(attention.seen + (rows - 1) / 2, attention.keys)
    blocks = ceil_div(attention.m, rows)
    tiles, singles = attention.requests * attention.heads * blocks, attention.decodes * attention.heads
    alone = where(singles > 0, unit + key * attention.cached, 0.0)
    longest = where(tiles > 0, unit + key * attention.keys, 0.0)
    over = where(tiles + singles > die.cores, 1.0, 0.0)
    wait = over * singles * (alone + constants.idle * maximum(blocks - 1.0, 0.0)) / die.cores
    left = over * constants.tail * minimum(tiles / die.cores, 1.0) * maximum(longest, alone)
    compute = maximum(wait + maximum(tiles * mean / die.cores + left, longest), alone)
    stream = 1 / (constants.hbm * die.bandwidth)
    converting = attention.converted / (constants.convert * die.bandwidth)
    return LibraryKernelTime(
        start, converting, compute, attention.nbytes * stream, constants.sharpness, stream, 1 / die.cache_bandwidth
    )


def _constants_of_heads(dims: Any, constants: PrefillAttentionConstants) -> tuple[Any, Any, Any]:
    """Start, time per tile and share of the peak of the kernel for heads of `dims` columns of a key and a value."""
    usual = (constants.start, constants.unit, constants.achieved)
    if constants.usual is None:
        return usual
    others = (constants.other_start, constants.other_unit, constants.wide_achieved)
    has_others = (dims != constants.usual, dims != constants.usual, dims > constants.usual)
    start, unit, achieved = (
        own if other is None else where(has_other, other, own)
        for own, other, has_other in zip(usual, others, has_others, strict=True)
    )
    return start, unit, achieved
