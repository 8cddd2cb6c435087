"""Library kernel of decode attention on a shared-cache die.

KV caches are cut into parts, which cores take in waves and merge.

    t = start + lead min(keys, 256) columns / 256 + (C^q + M^q)^(1/q),   C = (W^q + S^q)^(1/q)
    M = miss B / (hbm W) + (1 - miss) B / (cached L) + near / (hbm W) + ramp (1 - e^(-(times B / kept S)^knee))
    miss = 1 - e^(-(B / kept S)^knee)

with S the size of the die's cache, L its bandwidth (in M no less than memory's) and W the bandwidth of memory: what the cache
keeps is read from there, and what comes from memory pays `ramp` before it streams. The cache keeps more of long requests, as
(keys / 1024)^`length`, where rows say so; that is not explained.

From `fewest` to `shared` queries of a KV head are a tile, and more are several where `wider` says so; those after the first
read keys and values from the die's cache again, which adds to M. A tile's cache is cut into p = keys / `part` parts, as long as
all tiles together have no more than `waves` a core, and into no more than sqrt(`full` p) and `most`. Cores take parts in waves:

    W = unit max(min(tiles p / cores, waves), tiles / cores),   S = merge p

S is what one request takes that has the die for itself; of more the library cuts each into fewer parts, and the longest of the
terms hides that. Where a KV head has fewer queries than a tile, or more and `wider` is alone, each is by itself and walks its
keys: with cores left over its cache is cut into as many parts as cores can take at once, which are joined in a step of `cut`,
or of `cut` and `join` where half of the cores have a query or more. Of several each reads keys and values again, from the die's
cache (`times`; 1 elsewhere, where S is none):

    W = max(w max(min(keys, block), keys n / cores) + single max(n / cores, 1),
            w max(min(keys, block), keys / max(floor(cores / n), 1)) + J + single),   n queries
    w = walk columns / 256,  columns of a key and value
    J = (cut + join min(max(4 n / cores - 1, 0), 1)) max(1 - block / keys, 0),   S = times B / (cached L)

Of a tile too each query is by itself where all tiles together have fewer than `few` whole parts a core: the library's rule, by
which a longer cache may take less. Tiles of heads wider than `COLUMNS` have a start and a share of the memory's bandwidth of
their own.

Source:
    TensorRT-LLM's `supportConfigHMMA` (groups of up to 32), `mayHavePerfGain` (few parts), `computeMultiBlockCount`
    (sqrt(8 p), 8 waves) and `multi_block_grid_setup`, FlashAttention-2's `set_params_splitkv` (tiles of 64) and
    `num_splits_heuristic` (two waves, 128 parts): the rules, not their rounding.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.extrapolation import is_outside, outside_sizes
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime, smooth_maximum, zero_if_absent
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import ceil_div, divisor, maximum, minimum, where
from dse.space.libraries.decode_attention import DecodeAttentionConstants

LONG_CONTEXT = 1024.0
"""Keys of a request of which the die's cache keeps `kept`."""

COLUMNS = 256.0
"""Columns of a key and value for which `walk` and `lead` are; a key takes as long as it has columns."""

FIRST_KEYS = 256.0
"""Keys of a cache whose `lead` nothing hides: of the largest tile of keys of a part."""

WIDE_TILE = 128
"""Queries of a tile as prompts have them, for KV heads with more queries or columns than any measured row."""


class DecodeAttention(NamedTuple):
    """Attention of one or a few queries of each request; leaves broadcast over steps and designs.

    Attributes:
        m: requests.
        keys: that a request has, on average.
        heads, kv_heads: on this device.
        queries: of a request, those that are guessed included.
        dims: columns of a key and of a value.
        nbytes: of keys and values. [B]
        near: of queries and results. [B]
    """

    m: Any
    keys: Any
    heads: Any
    kv_heads: Any
    queries: Any
    dims: Any
    nbytes: Any
    near: Any

    @property
    def kind(self) -> str:
        """Kind of library kernel: a key of `kernels.library.LIBRARY`."""
        return "decode_attention"

    @property
    def rows(self) -> Any:
        """Query rows per KV head of a request. [-]"""
        return self.heads * self.queries / self.kv_heads

    def sizes(self) -> dict[str, Any]:
        """Sizes in which measured rows of this kernel differ, by name."""
        values = divisor(self.m * self.keys * self.kv_heads * self.dims)
        return {
            "requests": self.m, "keys": self.keys, "kv_heads": self.kv_heads, "queries": self.queries,
            "kv_head_queries": self.rows, "columns": self.dims, "bits": 8.0 * self.nbytes / values,
        }  # fmt: skip

    def resized_problem(self, sizes: dict[str, Any]) -> "DecodeAttention":
        """The same problem with some sizes changed; heads follow rows."""
        own = self.sizes() | sizes
        heads = own["kv_head_queries"] * own["kv_heads"] / own["queries"]
        values = own["requests"] * own["keys"] * own["kv_heads"] * own["columns"]
        near = own["requests"] * heads * own["queries"] * own["columns"]
        before = divisor(self.m * self.heads * self.queries * self.dims)
        return DecodeAttention(
            own["requests"], own["keys"], heads, own["kv_heads"], own["queries"], own["columns"],
            values * own["bits"] / 8.0, self.near / before * near,
        )  # fmt: skip

    def peak_times(self, die: LibraryDie) -> tuple[Any, Any]:
        """Time of operations and of bytes at the peaks of a die. [s], [s]"""
        operations = 2.0 * self.m * self.heads * self.queries * self.keys * self.dims
        return operations / (die.cores * die.peak), (self.nbytes + self.near) / die.bandwidth


def kernel_time(attention: DecodeAttention, constants: DecodeAttentionConstants, die: LibraryDie) -> LibraryKernelTime:
    """Time of a library's decode attention, in its parts. [s]

    That queries beyond a tile go one by one is what rows say of their own heads. Of wider ones no row says it, and the quicker
    of that and of tiles as prompts have them is taken.

    Args:
        attention: the attention; leaves of shape () or broadcasting over (steps, designs).
        constants: fitted constants of the library.
        die: die that runs it.
    """
    own, ranges = (
        _took(attention, constants, die),
        tuple(measured_range for measured_range in constants.measured_ranges or () if measured_range[0] in KERNEL_CHOICE),
    )
    outside = outside_sizes(attention.sizes(), ranges) if np.any(constants.wider == "alone") else {}
    if not outside:
        return own
    other = _took(attention, replace(constants, wider="tiles", shared=WIDE_TILE), die)
    taken = is_outside(attention.sizes(), outside) & (attention.rows > constants.shared) & (other.seconds() < own.seconds())
    return own._replace(
        **{name: where(taken, getattr(other, name), getattr(own, name)) for name in ("start", "compute", "memory", "byte")}
    )


KERNEL_CHOICE = ("kv_head_queries", "columns")
"""Sizes by which a library chooses one of its kernels for decode steps."""


def _took(attention: DecodeAttention, constants: DecodeAttentionConstants, die: LibraryDie) -> LibraryKernelTime:
    """Time of attention in its parts, by the kernel that the library has for so many queries of a KV head."""
    beside = attention.rows
    over = beside > constants.shared
    many = over & (constants.wider == "alone")
    repeated = where(over & (constants.wider == "tiles"), ceil_div(beside, constants.shared), 1.0)
    many = many | _has_few_parts(attention, constants, die)
    times, alone = where(many, beside, 1.0), (beside < constants.fewest) | many
    wide = (attention.dims > COLUMNS) & ~np.asarray(alone)
    hbm = constants.hbm if constants.wide_hbm is None else where(wide, constants.wide_hbm, constants.hbm)
    stream = 1 / (hbm * die.bandwidth)
    cached = constants.cached * die.cache_bandwidth
    near = minimum(1 / cached, stream)
    merged, shared_out = _parts(attention, repeated, constants, die)
    again = where(many, times * attention.nbytes / cached, 0.0)
    first, second = where(alone, _walked(attention, constants, die), merged), where(alone, again, shared_out)
    compute = smooth_maximum(first, second, constants.sharpness)
    kept = (
        constants.kept
        * die.cache
        * where(alone, 1.0, maximum(attention.keys / LONG_CONTEXT, 1 / LONG_CONTEXT) ** constants.length)
    )
    miss, begun = (-np.expm1(-((nbytes / kept) ** constants.knee)) for nbytes in (attention.nbytes, times * attention.nbytes))
    byte = miss * stream + (1 - miss) * near
    memory = (
        byte * attention.nbytes + (repeated - 1) * attention.nbytes * near + attention.near * stream + constants.ramp * begun
    )
    start = constants.start + where(wide, zero_if_absent(constants.wide_start), 0.0)
    lead = zero_if_absent(constants.lead) * minimum(attention.keys, FIRST_KEYS) * (attention.dims / COLUMNS)
    return LibraryKernelTime(start, lead, compute, memory, constants.sharpness, byte, 1 / die.cache_bandwidth)


def _has_few_parts(attention: DecodeAttention, constants: DecodeAttentionConstants, die: LibraryDie) -> Any:
    """Whether tiles of queries have so few whole parts of their caches that the library computes queries singly."""
    if constants.few is None:
        return False
    parts = maximum(attention.keys // constants.part, 1.0)
    if constants.full is not None:
        parts = minimum(parts, ceil_div((constants.full * parts) ** 0.5, 1))
    parts = minimum(parts, constants.most)
    return (attention.m * attention.kv_heads * parts < constants.few * die.cores) & (attention.rows >= constants.fewest)


def _parts(attention: DecodeAttention, repeated: Any, constants: DecodeAttentionConstants, die: LibraryDie) -> tuple[Any, Any]:
    """Seconds of merging the parts of one request, and of all parts on the cores, where queries are together."""
    parts = maximum(attention.keys / constants.part, 1.0)
    if constants.full is not None:
        parts = minimum(parts, maximum((constants.full * parts) ** 0.5, 1.0))
    parts = minimum(parts, constants.most)
    tiles = attention.m * attention.kv_heads * repeated / die.cores
    return constants.merge * parts, constants.unit * maximum(minimum(tiles * parts, constants.waves), tiles)


def _walked(attention: DecodeAttention, constants: DecodeAttentionConstants, die: LibraryDie) -> Any:
    """Seconds of queries that are each by itself, on the cores."""
    taken = attention.m * attention.heads * attention.queries / die.cores
    shortest = minimum(attention.keys, constants.block)
    longest_part = attention.keys / maximum(1.0 / divisor(taken) // 1, 1.0)
    joined = zero_if_absent(constants.cut) + constants.join * minimum(maximum(4 * taken - 1, 0.0), 1.0)
    joined = joined * (1 - constants.block / maximum(attention.keys, constants.block))
    walk, single = constants.walk * (attention.dims / COLUMNS), zero_if_absent(constants.single)
    cut = walk * maximum(shortest, longest_part) + joined + single
    return maximum(cut, walk * maximum(shortest, attention.keys * taken) + single * maximum(taken, 1.0))
