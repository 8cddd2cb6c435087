"""Candidate groups and slices of attention ([zhang2026] section V-B).

Groups are divisors of the mesh, and slices are equal shares of a head.

Rows of a group need not divide those of the mesh: the rest of them is idle.

A slice is as much of a line of tiles' share as leaves all blocks of one size: less is padding. Others than those tried take
more blocks, or more memory for as many. FlashAttention has blocks of as many queries as keys (section III-A, M = B_r = B_c).
"""

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, key_blocks
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.space.array_math import Array, ceil_div, even_share, maximum, minimum

SLICES = 8.0 * 2.0 ** np.arange(0, 10)
"""Queries and keys of a slice that are tried; all of a share where it has fewer."""

MAX_GROUP_SIDES = 16
"""What slices are whole multiples of: an array has no fewer lines, and a part of one costs as much as all of it."""

STEPS = (0.75, 1.0, 1.5)
"""Sizes tried next to a slice that is worth its memory."""

SPLIT_COUNTS = np.array([1.0, *(whole * 2.0**power for power in range(7) for whole in (2, 3))])
"""Into how many parts of keys are split that is tried."""

HALVES = tuple(2**power for power in range(16))
"""Rows of groups that are tried on any mesh that has as many."""

OPEN_TILING = AttentionTiling(0, 0, 0, 0, 0)
"""Nothing is chosen yet."""


@lru_cache(maxsize=1024)
def tiling_candidates(shape: AttentionShape, grouped: bool, mesh: CoreMesh, tiling: AttentionTiling) -> tuple[Array, ...]:
    """Candidate groups and slices: rows, columns, queries and keys, shape (candidates,)."""
    lines = [
        [
            (side, slice_)
            for side in ([own] if own else sides(whole, size) if grouped else [1])
            for slice_ in ([part] if part else np.unique([_even(each, side, SLICES) for each in (size, *other)]).tolist())
        ]
        for whole, own, size, part, other, sides in (
            (mesh.rows, tiling.rows, shape.rows, tiling.queries, (), _rows),
            (mesh.cols, tiling.cols, shape.keys, tiling.keys, _bands(shape), _sides),
        )
    ]
    pairs = list(product(*lines))
    if has_square_blocks(grouped, tiling):
        wholes = [(shape.rows, keys) for keys in (shape.keys, *_bands(shape))]
        blocks = np.concatenate([np.unique([_even(size, 1, SLICES) for size in whole], axis=1) for whole in wholes], axis=1)
        pairs = [((1, query_block), (1, other)) for query_block, other in blocks.T.tolist()]
    rows, queries, cols, keys = np.array([(*query_side, *other) for query_side, other in pairs], float).T
    return rows, cols, queries, keys


def _bands(shape: AttentionShape) -> tuple[Any, ...]:
    """Keys that blocks of queries see within a window, where these are few, half as many as it has, or as many."""
    if not shape.is_windowed:
        return ()
    return tuple(minimum(shape.keys, ceil_div(shape.window * more, 2)) for more in (2, 3, 4))


def has_square_blocks(grouped: bool, tiling: AttentionTiling) -> bool:
    """Whether blocks have as many queries as keys: FlashAttention with all sizes left open."""
    return not (grouped or np.any(tiling.queries) or np.any(tiling.keys))


def add_split_counts(shape: AttentionShape, tiling: AttentionTiling, sizes: tuple[Array, ...]) -> tuple[Array, ...]:
    """Candidates with each number of key parts that leaves every part a block, shape (candidates,)."""
    parts = np.array([tiling.kv_splits]) if tiling.kv_splits else SPLIT_COUNTS
    rows, cols, queries, keys = (np.repeat(size, len(parts)) for size in sizes)
    splits = np.tile(parts * 1.0, len(sizes[0]))
    sound = (splits == 1) | (splits <= key_blocks(shape, AttentionTiling(rows, cols, queries, keys))) | bool(tiling.kv_splits)
    return tuple(size[sound] for size in (rows, cols, queries, keys, splits))


def neighbouring_slices(
    shape: AttentionShape, grouped: bool, tiling: AttentionTiling, sizes: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Candidates with slightly larger or smaller slices, shape (neighbours, candidates)."""
    rows, cols, queries, keys = sizes
    alike = has_square_blocks(grouped, tiling)
    steps = [
        (step, other) for step, other in product(STEPS, STEPS) if (step, other) != (1.0, 1.0) and (step == other or not alike)
    ]
    more = np.array(steps).T[:, :, None]
    m = _even(shape.rows, rows, np.floor(queries * more[0])) if not tiling.queries else queries + 0 * more[0]
    n = _even(shape.keys, cols, np.floor(keys * more[1])) if not tiling.keys else keys + 0 * more[1]
    return np.broadcast_to(rows, m.shape), np.broadcast_to(cols, m.shape), m, n


def _even(size: Any, members: Any, most: Any) -> Array:
    """Equal shares in whole lines, none larger than what a member would have of the whole."""
    whole = ceil_div(size, members)
    return np.asarray(
        minimum(
            ceil_div(even_share(size, members, minimum(maximum(most, 1.0), whole)), MAX_GROUP_SIDES) * MAX_GROUP_SIDES, whole
        )
    )


def _rows(side: Any, share: float) -> list[int]:
    """Likewise, and powers of two, which leave some rows of tiles idle."""
    return sorted({*_sides(side, share), *(count for count in HALVES if count <= min(side, max(share, 1)))})


def _sides(side: Any, share: float) -> list[int]:
    """Divisors of a mesh's side that slices fill."""
    return [count for count in range(1, int(side) + 1) if side % count == 0 and (count == 1 or count <= share)]
