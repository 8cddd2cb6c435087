"""Shape of an attention problem, and its tiling over groups of tiles ([zhang2026] section III).

Heads that share keys and values are one problem: their queries make one longer sequence (section III-D), position by
position, so that a causal mask is a staircase. A group of tiles works on one block of a problem's queries, an item, and goes
through its keys block by block; every tile has a slice of both. Keys and values are loaded once a block of queries: GQA loads
fewer than MHA where a block has queries of several heads, as in decode and of short prompts. Of longer prompts it has as many
blocks, and takes as long to the bit.

Within a sliding window a block of queries sees a band of the keys. Its blocks of keys begin with the first key that its first
query sees, wherever that is, so that no more of them are loaded and computed than the band is long, whatever the group; pairs
beyond its two edges are masked. The paper has no windows.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.program.kernel_ir import Buffer
from dse.space.array_math import ceil_div, floor_div, minimum, where
from dse.space.layers import causal_pairs

STATISTIC = "float32"
"""Number format of maxima and sums of rows."""

NUMBER, NUMBER_BYTES = "int32", 4
"""Number format of row numbers of keys that were selected."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Softmax(Q K^T / sqrt(d)) V for all heads of a layer.

    Sizes are whole numbers, or arrays over designs for the analytical model.

    MHA has as many KV heads as heads, MQA one, GQA some. MLA with absorbed weights is MQA whose values are the last `v` columns
    of its keys, so that they are loaded once (`latent`), or all of them, where a row is key and value; the naive one is MHA.

    Attributes:
        batch: sequences.
        heads, kv_heads: of queries, and of keys and values.
        queries, keys: of a sequence; one query is decode, a few are speculative decode.
        qk, v: dimensions of a head.
        causal: whether a query sees no later key, the last query seeing all.
        latent: whether values are columns of keys.
        piece: bytes of the contiguous pieces in which main memory has keys and values that were selected; their row numbers are
            loaded before them. 0 where they follow one another. [B]
        window: keys that a query of a causal mask sees at most, its own one included; 0 for all.
        capped: whether scores go through a tanh.
    """

    batch: Any
    heads: Any
    kv_heads: Any
    queries: Any
    keys: Any
    qk: Any
    v: Any
    causal: bool = False
    latent: bool = False
    piece: Any = 0
    window: Any = 0
    capped: bool = False

    @property
    def is_windowed(self) -> bool:
        """Whether queries attend only to the last keys (a sliding window)."""
        return bool(np.any(self.window > 0))

    @property
    def has_selected_rows(self) -> bool:
        """Whether keys and values are selected rows (sparse attention)."""
        return bool(np.any(self.piece > 0))

    @property
    def problems(self) -> Any:
        """Independent attention problems: sequences times KV heads. [-]"""
        return self.batch * self.kv_heads

    @property
    def heads_per_kv(self) -> Any:
        """Query heads per KV head. [-]"""
        return self.heads // self.kv_heads

    @property
    def rows(self) -> Any:
        """Query rows of one problem: queries of a sequence times query heads per KV head. [-]"""
        return self.queries * self.heads_per_kv

    @property
    def key_dim(self) -> Any:
        """Columns of keys that are not also columns of values. [-]"""
        return self.qk - self.v if self.latent else self.qk

    @property
    def bare(self) -> bool:
        """Whether all columns of keys are values, so that each position is loaded once."""
        return self.latent and bool(np.all(np.equal(self.key_dim, 0)))

    @property
    def pairs(self) -> Any:
        """Pairs of query and key of one head and sequence that the mask allows. [-]"""
        return causal_pairs(self.queries, self.keys, self.window) if self.causal else self.queries * self.keys

    @property
    def macs(self) -> Any:
        """Useful multiply-adds: those of pairs that the mask allows, without padding. [-]

        >>> AttentionShape(1, 2, 2, 4, 6, 8, 8).macs, AttentionShape(1, 2, 2, 4, 6, 8, 8, causal=True, window=2).macs
        (768, 256.0)
        """
        return self.batch * self.heads * self.pairs * (self.qk + self.v)


def per_query_attention(shape: AttentionShape, top: Any, piece: Any) -> AttentionShape:
    """Sparse attention as one problem per query, whose heads share the selected rows.

    Args:
        shape: attention to all keys.
        top: rows that are selected, no more than there are keys.
        piece: bytes of the contiguous pieces in which they lie. [B]

    >>> one = per_query_attention(AttentionShape(4, 128, 1, 2, 8192, 576, 512, causal=True, latent=True), 2048, 1152)
    >>> one.problems, one.rows, one.keys
    (8, 128, 2048)
    """
    return replace(shape, batch=shape.batch * shape.queries, queries=1, keys=top, causal=False, piece=piece, window=0)


def queries_of(shape: AttentionShape, first: Any, end: Any) -> AttentionShape:
    """Attention of a range of the queries, `first` to before `end`, to the keys that they see.

    >>> queries_of(AttentionShape(1, 8, 1, 6, 10, 64, 64, causal=True), 0, 4).keys
    8
    >>> queries_of(AttentionShape(1, 8, 1, 6, 10, 64, 64, causal=True, window=3), 4, 6).keys
    4
    """
    keys = shape.keys - (shape.queries - end) if shape.causal else shape.keys
    if shape.is_windowed:
        keys = minimum(keys, shape.window + end - first - 1)
    return replace(shape, queries=end - first, keys=keys)


@dataclass(frozen=True, slots=True)
class AttentionTiling:
    """Tiles of an attention group and slices of a tile.

    Sizes are whole numbers, or arrays over designs for the analytical model.

    Attributes:
        rows, cols: of a group; its rows share out the queries of a block (G_y), its columns the keys (G_x).
        queries, keys: of a tile's slice.
        kv_splits: parts of a problem's keys, of whole blocks, that are items of their own; as many as there are blocks at most.
    """

    rows: Any
    cols: Any
    queries: Any
    keys: Any
    kv_splits: Any = 1


class BlockCounts(NamedTuple):
    """Numbers of groups, blocks, items and waves of an attention; they broadcast over designs. [-]

    Attributes:
        groups: on the mesh.
        outer, inner: blocks of queries of a problem, and of keys of a part of it, or of its band within a window.
        items: blocks of queries of all problems, each with every part of the keys.
        waves: turns in which groups work on them.
        parts: of the keys of a problem that have some.
    """

    groups: Any
    outer: Any
    inner: Any
    items: Any
    waves: Any
    parts: Any = 1


def block_counts(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> BlockCounts:
    """Blocks of an attention shape on a mesh of tiles; the last ones are padded.

    >>> block_counts(AttentionShape(2, 32, 32, 4096, 4096, 128, 128), AttentionTiling(32, 32, 128, 128), CoreMesh(32, 32))
    BlockCounts(groups=1, outer=1, inner=1, items=64, waves=64, parts=1)
    >>> block_counts(AttentionShape(2, 32, 32, 1, 4096, 128, 128), AttentionTiling(1, 1, 1, 128, 7), CoreMesh(32, 32))
    BlockCounts(groups=1024, outer=1, inner=5, items=448, waves=1, parts=7)
    """
    groups = floor_div(mesh.rows, tiling.rows) * floor_div(mesh.cols, tiling.cols)
    outer, blocks = ceil_div(shape.rows, tiling.rows * tiling.queries), key_blocks(shape, tiling)
    if np.ndim(tiling.kv_splits) == 0 and tiling.kv_splits == 1:
        items = shape.problems * outer
        return BlockCounts(groups, outer, blocks, items, ceil_div(items, groups))
    inner = ceil_div(blocks, tiling.kv_splits)
    parts = ceil_div(blocks, inner)
    items = shape.problems * outer * parts
    return BlockCounts(groups, outer, inner, items, ceil_div(items, groups), parts)


def busy_mesh(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> CoreMesh:
    """Tiles that have work: rows of groups with an item, those nearest to memory, or all whole groups.

    >>> busy_mesh(AttentionShape(1, 8, 8, 1, 4096, 128, 128), AttentionTiling(2, 8, 1, 128), CoreMesh(32, 32))
    CoreMesh(rows=4, cols=32)
    """
    return busy_tiles(block_counts(shape, tiling, mesh), tiling, mesh)


def busy_tiles(counts: BlockCounts, tiling: AttentionTiling, mesh: CoreMesh) -> CoreMesh:
    """Tiles that have work, as `busy_mesh`, from known block counts."""
    return CoreMesh(tiling.rows * ceil_div(minimum(counts.items, counts.groups), floor_div(mesh.cols, tiling.cols)), mesh.cols)


def key_blocks(shape: AttentionShape, tiling: AttentionTiling) -> Any:
    """Upper bound on the blocks of keys that one block of queries visits: all, or those of a window. [-]

    >>> key_blocks(AttentionShape(1, 8, 1, 4096, 4096, 64, 64, causal=True, window=512), AttentionTiling(8, 8, 128, 16))
    5
    """
    width = tiling.cols * tiling.keys
    every = ceil_div(shape.keys, width)
    if not shape.is_windowed:
        return every
    m, shared = tiling.rows * tiling.queries, shape.heads_per_kv
    # a block that neither divides a position's heads nor is divided by them may begin amid them
    positions = where(shared % m == 0, 1, where(m % shared == 0, m // shared, (m + shared - 2) // shared + 1))
    return where(shape.window > 0, minimum(every, ceil_div(shape.window + positions - 1, width)), every)


class KvStorage(NamedTuple):
    """Number format of stored keys and values, and the operations that dequantise them.

    Attributes:
        nbytes: of a value with its share of scales; 0 for as many as of others. [B]
        expand: operations of the vector engine that make a value of it as others are; 0 where it is multiplied as it is.
    """

    nbytes: float = 0.0
    expand: float = 0.0

    def value_bytes(self, itemsize: float) -> float:
        """Bytes of a stored KV value, where other values have `itemsize`. [B]"""
        return self.nbytes or itemsize

    def multiplied_bytes(self, itemsize: float) -> float:
        """Bytes of the wider of a KV value and another value, as both are multiplied. [B]"""
        return itemsize if self.expand else max(itemsize, self.nbytes)


SAME_AS_ACTIVATIONS = KvStorage()


def memory_bytes(
    shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh, itemsize: float, kv: KvStorage = SAME_AS_ACTIVATIONS
) -> Any:
    """Bytes between main memory and tiles with unsplit keys, padding included. [B]

    With B_r = B_c = N M and no mask this is the paper's

        IO = 2 B H D S (1 + S / (N M)) itemsize

    Source:
        [zhang2026] section III-A and III-B.

    >>> memory_bytes(AttentionShape(2, 32, 32, 4096, 4096, 128, 128), AttentionTiling(8, 8, 128, 128), CoreMesh(32, 32), 2)
    671088640
    """
    counts = block_counts(shape, tiling, mesh)
    block = tiling.rows * tiling.queries * (shape.qk + shape.v)
    cached = counts.inner * tiling.cols * tiling.keys * (shape.key_dim + shape.v)
    return counts.items * (itemsize * block + kv.value_bytes(itemsize) * cached)


def attention_buffers(
    shape: AttentionShape,
    tiling: AttentionTiling,
    dtype: str,
    *,
    software: bool,
    prefix: str = "",
    kv: KvStorage = SAME_AS_ACTIVATIONS,
) -> tuple[Buffer, ...]:
    """Buffers of a tile for one strand: operands, scores, outputs, statistics, and received partial sums.

    A group of one column sums nothing, and leaves no room for it; over designs, some groups do and some do not.

    One buffer each is enough to load ahead: K of the next block comes while P V is computed, V while Q K^T is.
    Scores and outputs lie with queries along their last axis. K and V are as `kv` says; where they are expanded, so is what
    they become.
    """
    m, n, statistic = tiling.queries, tiling.keys, ("top", "total", "m", "l", "decay")
    tiles = [Buffer(prefix + "q", (m, shape.key_dim), dtype), Buffer(prefix + "k", (n, shape.key_dim), dtype, packed=kv.nbytes)]
    tiles += [Buffer(prefix + "c", (m, shape.v), dtype)] if shape.latent else []
    tiles += [
        Buffer(prefix + "v", (n, shape.v), dtype, packed=kv.nbytes),
        Buffer(prefix + "s", (n, m), dtype),
        *(Buffer(prefix + "o", (shape.v, queries), kind) for queries, kind in _outputs(shape, tiling, dtype)),
    ]
    summed = where(tiling.cols > 1, m, 0) if software else 0
    tiles += [Buffer(prefix + "arriving", (shape.v, summed), dtype)] if np.any(summed) else []
    tiles += [Buffer(prefix + "i", (n, 1), NUMBER, depth=2)] if shape.has_selected_rows else []
    wide = (("wk", shape.key_dim), ("wv", shape.v)) if kv.expand else ()
    tiles += [Buffer(prefix + name, (n, columns), dtype) for name, columns in wide]
    return (*tiles, *(Buffer(prefix + name, (1, m), STATISTIC) for name in statistic))


def _outputs(shape: AttentionShape, tiling: AttentionTiling, dtype: str) -> list[tuple[Any, str]]:
    """Queries of a slice with outputs of a format: partial ones, of split keys, have that of sums."""
    wide = (tiling.kv_splits > 1) & (key_blocks(shape, tiling) > 1)
    outputs = [(where(wide, 0, tiling.queries), dtype), (where(wide, tiling.queries, 0), STATISTIC)]
    return [(queries, kind) for queries, kind in outputs if np.any(queries)]
