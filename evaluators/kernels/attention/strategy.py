"""Which slice a tile gets, and how large groups are ([zhang2026] section V-B, figure 10): first the engine, then flattening.

Among slices that fit the local memory the largest with an engine utilisation of at least 95 %, or the one with the best, and of
equals the one nearest to a square; then the largest group that the queries and keys of a head fill and that divides the mesh;
and of slices that make as few blocks, the smallest.
"""

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from evaluators.kernels.attention.dataflow import Dataflow, kept
from evaluators.kernels.attention.shape import Heads, Tiling
from evaluators.kernels.gemm.tiling import Mesh
from evaluators.kernels.table import tabulated
from evaluators.machine.engine import Engines
from evaluators.rounds import DTYPES
from space.elementwise import ceil_div, even, lowest, maximum, minimum, plain, where

ENOUGH = 0.95
"""Engine utilisation that a slice should reach."""

SLICES = (16, 32, 64, 128, 256, 512, 1024)
"""Queries and keys of a slice that are tried; all of a head where it has fewer."""


ANY = Tiling(0, 0, 0, 0)
"""Nothing is chosen yet."""


class Slice(NamedTuple):
    """A slice of a tile; leaves broadcast over designs.

    Attributes:
        queries, keys: of it.
        utilisation: of the matrix engine while it works on both products. [1]
        nbytes: local memory that all strands need. [B]
    """

    queries: Any
    keys: Any
    utilisation: Any
    nbytes: Any


def sliced(of: Dataflow, shape: Heads, engines: Engines, queries: Any, keys: Any, itemsize: float = 2.0) -> Slice:
    """What a slice asks and gives.

    >>> from space.chip import MatrixEngine, VectorEngine
    >>> engine = MatrixEngine(dataflow="ce", rows=32, cols=16, depth=3, reload="hidden", fill=10.0, call=230.0)
    >>> tile = Engines(1.0, engine, VectorEngine(lanes=128.0, special=64.0, call=20.0), 512.0)
    >>> round(sliced(Dataflow("hardware", 1, True), Heads(1, 1, 1, 4096, 4096, 128, 128), tile, 128, 128).utilisation, 3)
    0.981
    """
    busy = engines.product(queries, shape.key_dim, keys, itemsize) + engines.product(queries, keys, shape.v, itemsize)
    busy = busy + (engines.product(queries, shape.v, keys, itemsize) if shape.latent else 0.0)
    least = queries * keys * (shape.qk + shape.v) / (engines.matrix.rows * engines.matrix.cols * engines.clock)
    held = (
        slot for strand in range(of.strands) for slot in kept(of, shape, Tiling(2, 2, queries, keys), DTYPES[itemsize], strand)
    )
    return Slice(queries, keys, least / busy, sum(slot.nbytes for slot in held) * 1.0)


def proposed(
    of: Dataflow, shape: Heads, mesh: Mesh, engines: Engines, sram: Any, said: Tiling = ANY, itemsize: float = 2.0
) -> Tiling:
    """Slice and group for a shape, kept where leaves are numbers; arguments as of `searched`."""
    asked = (of, shape, mesh, engines, sram, said, itemsize)
    try:
        hash(asked)
    except TypeError:  # arrays over designs
        return searched(*asked)
    return _known(*asked)


def searched(of: Dataflow, shape: Heads, mesh: Mesh, engines: Engines, sram: Any, said: Tiling, itemsize: float) -> Tiling:
    """Slice and group for a shape; leaves broadcast over designs.

    Args:
        of, shape, mesh: the dataflow, what is computed, and the tiles.
        engines: of a tile.
        sram: its local memory. [B]
        said: what is chosen already, 0 for what is not.
        itemsize: bytes of an operand's value.
    """
    # a group that is said leaves each tile its share
    most = ceil_div(shape.rows, maximum(said.rows, 1)), ceil_div(shape.keys, maximum(said.cols, 1))
    wide, long = np.array(list(product(SLICES, SLICES))).T[:, :, None, None]  # before cases and designs
    queries, keys = _said(said.queries, minimum(wide, most[0])), _said(said.keys, minimum(long, most[1]))
    one = sliced(of, shape, engines, queries, keys, itemsize)
    # the memory comes first, then that the engine is kept busy, then how much work a start is for, then a square
    over, short = maximum(one.nbytes / sram - 1, 0.0), maximum(ENOUGH - one.utilisation, 0.0)
    ranks = np.broadcast_arrays(over, short, -queries * keys, abs(queries - keys), queries + 0 * wide, keys + 0 * wide)
    best = lowest(ranks[:4])
    queries, keys = (plain(np.take_along_axis(sizes, best, axis=0)[0]) for sizes in ranks[4:])
    rows = _said(said.rows, _largest(mesh.rows, ceil_div(shape.rows, queries)) if of.grouped else 1)
    cols = _said(said.cols, _largest(mesh.cols, ceil_div(shape.keys, keys)) if of.grouped else 1)
    # as few blocks as that, all of one size: less padding to load
    queries = _said(said.queries, even(shape.rows, rows, queries))
    return Tiling(rows, cols, queries, _said(said.keys, even(shape.keys, cols, keys)))


_known = lru_cache(maxsize=4096)(searched)


def _said(said: Any, else_: Any) -> Any:
    return where(said > 0, said, else_)


@tabulated
def _largest(side: int, slices: int) -> float:
    """Most tiles in a line of a group, a divisor of the mesh's side, that slices of all queries or keys fill."""
    return float(max(count for count in range(1, side + 1) if side % count == 0 and (count == 1 or count <= slices)))
