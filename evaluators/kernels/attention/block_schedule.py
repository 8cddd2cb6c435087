"""Schedule of attention items over waves of tile groups, with the number of key blocks in each.

Where these differ from turn to turn, of many designs every combination of sizes is counted once.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, BlockCounts, block_counts
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.space.array_math import Array
from dse.space.memoize import memoize_by_identity


class GroupWave(NamedTuple):
    """One wave of tile groups: one item per group, and its numbers of blocks.

    Attributes:
        active: groups that have one.
        blocks: of queries, of each item; nothing where all are alike.
        plain, inner: blocks of keys that nobody sees less of because of later ones, and all blocks.
        parts: of the keys, of each item; nothing where all are alike.
        low: blocks of keys from the first one on that somebody's window leaves a part of.
    """

    active: int
    blocks: tuple[int, ...]
    plain: int
    inner: int
    parts: tuple[int, ...] = ()
    low: int = 0


def stream_name(slot: str, wave: GroupWave, counts: BlockCounts) -> str:
    """Name of a buffer's block stream; groups with fewer blocks in the last wave have one of their own."""
    return slot if wave.active == counts.groups else f"{slot}/part"


class WaveArrays(NamedTuple):
    """All waves as arrays of shape (waves,): first items, and counts as in `GroupWave`."""

    first: Array
    active: Array
    plain: Array
    inner: Array
    low: Array


class CausalBand(NamedTuple):
    """Range of keys that each block of queries sees; arrays of shape (blocks of queries,).

    Attributes:
        first: key with which its blocks of keys begin.
        whole: from there on, keys that no query has after it.
        every: from there on, keys that any query sees.
        low: from there on, keys that some query's window has left behind.
    """

    first: Array
    whole: Array
    every: Array
    low: Array


def causal_band(shape: AttentionShape, tiling: AttentionTiling, blocks: Array) -> CausalBand:
    """Range of keys that blocks of queries see under a causal mask. [-], shape (blocks,)

    A query at position p sees keys p - window + 1 to p. The blocks' first key is the first one that the first query sees.

    >>> of = AttentionShape(1, 1, 1, 12, 12, 4, 4, causal=True, window=5)
    >>> [part.tolist() for part in causal_band(of, AttentionTiling(1, 1, 4, 2), np.arange(3))]
    [[0, 0, 4], [1, 5, 5], [4, 8, 8], [0, 3, 3]]
    """
    queries = tiling.rows * tiling.queries
    rows = blocks * queries, np.minimum((blocks + 1) * queries - 1, shape.rows - 1)
    seen, last = (shape.keys - shape.queries + 1 + row // shape.heads_per_kv for row in rows)
    reach = shape.window or shape.keys
    first = np.maximum(seen - reach, 0)
    return CausalBand(first, np.maximum(seen - first, 0), last - first, np.maximum(last - reach, 0) - first)


def wave_arrays(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> WaveArrays:
    """Waves of items as arrays: first blocks of queries first, since they see the fewest keys."""
    counts = block_counts(shape, tiling, mesh)
    keys = tiling.cols * tiling.keys
    first = np.arange(0, counts.items, counts.groups)
    active = np.minimum(counts.groups, counts.items - first)
    least = most = np.full(len(first), shape.keys)
    low = np.zeros(len(first), int)
    alike = shape.problems * counts.parts
    blocks = first // alike, (first + active - 1) // alike
    if shape.causal:
        bands = causal_band(shape, tiling, np.arange(counts.outer))
        least, most, low = (_over(*band, blocks) for band in zip(_MOST, bands[1:], strict=True))
    if counts.parts > 1:
        # one that goes on with the next block of queries has the last parts of this one and the first ones of that
        ends = (item // shape.problems % counts.parts for item in (first, first + active - 1))
        start, end = (
            np.where(blocks[0] == blocks[1], part, over) for part, over in zip(ends, (0, counts.parts - 1), strict=True)
        )
        most, low, least = (
            np.clip(seen - part * counts.inner * keys, 0, counts.inner * keys)
            for seen, part in ((most, start), (low, start), (least, end))
        )
        most = np.maximum(most, 1)  # a part of which nobody sees anything has a block, all of it masked
    return WaveArrays(first, active, np.maximum(least, 0) // keys, -(-most // keys), -(-low // keys))


_MOST = (np.minimum, np.maximum, np.maximum)
"""Of fields of `CausalBand` but the first, what holds for several blocks of queries side by side."""


def _over(most: np.ufunc, values: Array, blocks: tuple[Array, Array]) -> Array:
    """The least or most of values from the first to the last block, each of shape (waves,)."""
    ends = np.stack([blocks[0], blocks[1] + 1], axis=1).ravel()
    return np.asarray(most.reduceat(np.append(values, values[-1]), ends)[::2])


def list_waves(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> list[GroupWave]:
    """List the waves of `wave_arrays` as one `GroupWave` each."""
    waves, several = [], block_counts(shape, tiling, mesh).parts
    for first, active, plain, inner, low in zip(*(column.tolist() for column in wave_arrays(shape, tiling, mesh)), strict=True):
        items = [item // shape.problems for item in range(first, first + active)]
        blocks = tuple(number // several for number in items) if shape.causal else ()
        parts = tuple(number % several for number in items) if several > 1 and (plain < inner or low) else ()
        waves.append(GroupWave(active, blocks, plain, inner, parts, low))
    return waves


def key_blocks_passed(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> tuple[Any, Any]:
    """Key blocks of all waves, and how often one of them is masked: at one edge, or at each. [-]"""
    counts = block_counts(shape, tiling, mesh)
    if not (shape.causal or np.any(tiling.kv_splits > 1)):
        whole = shape.keys // (tiling.cols * tiling.keys)
        return counts.waves * counts.inner, counts.waves * (counts.inner - whole)
    return _by_turns(*_keys(shape, tiling, mesh))[:2]


def key_blocks_loaded(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> Any:
    """Key blocks that all groups load. [-]"""
    counts = block_counts(shape, tiling, mesh)
    apart = shape.causal or np.any(tiling.kv_splits > 1)
    return _by_turns(*_keys(shape, tiling, mesh))[2] if apart else counts.items * counts.inner


def _keys(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> tuple[Any, ...]:
    sizes = (shape.problems, shape.heads_per_kv, shape.queries, shape.keys, int(shape.causal), shape.window)
    return (*sizes, tiling.rows, tiling.cols, tiling.queries, tiling.keys, tiling.kv_splits, mesh.rows, mesh.cols)


def _by_turns(*keys: Any) -> tuple[Any, Any, Any]:
    """As `_counted`, of designs."""
    return _several(*keys) if any(isinstance(key, np.ndarray) for key in keys) else _single(*keys)


@cache
def _single(*keys: Any) -> tuple[float, float, float]:
    """Key-block counts of one design, as numbers."""
    blocks, masked, loads = _counted(np.array([keys], np.int64))[:, 0].tolist()
    return blocks, masked, loads


@memoize_by_identity  # many calls of a layout are divided alike
def _several(*keys: Any) -> tuple[Array, Array, Array]:
    """Of arrays that broadcast."""
    columns = np.broadcast_arrays(*keys)
    if columns[0].size > WAVES_PER_BATCH:
        rows = _row(*keys).astype(int)  # first, as it adds to the counts
        count = _rows.counts[:, rows]
    else:
        count = _counted(np.stack([column.ravel() for column in columns], axis=1).astype(np.int64))
        count = np.ascontiguousarray(count).reshape(-1, *columns[0].shape)
    count.flags.writeable = False
    return count[0], count[1], count[2]


WAVES_PER_BATCH = 4096
"""Counts up to which all are made, in less time than it takes to look for those that are known."""

MAX_EXACT_WAVES = 2_000
"""Counts of a process that are made in NumPy, in as long as compiled code takes to load."""


class _Rows:
    """What was counted and is kept, shape (3, rows): more rows than are used; and how many were made in NumPy, kept or not."""

    def __init__(self) -> None:
        self.counts, self.used, self.slowly = np.empty((3, 1024)), 0, 0

    def add(self, counts: Array) -> Array:
        """Where they are; counts of shape (3, some)."""
        start, self.used = self.used, self.used + counts.shape[1]
        if self.used > self.counts.shape[1]:
            more = max(self.used, 2 * self.counts.shape[1]) - self.counts.shape[1]
            self.counts = np.concatenate([self.counts, np.empty((3, more))], axis=1)
        self.counts[:, start : self.used] = counts
        return np.arange(start, self.used)


_rows = _Rows()


def _counted(keys: Array) -> Array:
    """Blocks of keys of all waves, how often they are masked, and those that groups load, shape (3, rows).

    Args:
        keys: in the order of `_keys`, shape (rows, keys).
    """
    if _rows.slowly + len(keys) > MAX_EXACT_WAVES:
        from dse.evaluators.kernels.attention.block_counts import count_many  # with the compiler, which takes a while to load

        out = np.empty((len(keys), 3))
        count_many(np.ascontiguousarray(keys), out)
        return out.T
    _rows.slowly += len(keys)
    return np.array([count_by_waves(*row) for row in keys.tolist()]).T


def _many(keys: Array) -> Array:
    """Of what was counted, of rows of keys."""
    return _rows.add(_counted(keys))


def _one(*keys: int) -> float:
    """Key-block counts of one tiling, without arrays."""
    return float(_many(np.array([keys], np.int64))[0])


_row = tabulate(_one, _many)
"""Of what was counted."""


def count_by_waves(problems: int, shared: int, queries: int, keys: int, *rest: int) -> tuple[float, float, float]:
    """Key blocks of all waves, masked ones and loaded ones, counted wave by wave. [-]"""
    causal, window, rows, cols, m, n, splits, *sides = rest
    shape = AttentionShape(problems, shared, 1, queries, keys, 1, 1, causal=bool(causal), window=window)
    arrays = wave_arrays(shape, AttentionTiling(rows, cols, m, n, splits), CoreMesh(*sides))
    return (
        float(arrays.inner.sum()),
        float((arrays.inner - arrays.plain + arrays.low).sum()),
        float((arrays.inner * arrays.active).sum()),
    )
