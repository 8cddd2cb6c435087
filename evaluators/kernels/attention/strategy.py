"""Which slice a tile gets, and how large groups are ([zhang2026] section V-B, figure 10): first the engine, then flattening.

Among slices that fit the local memory the one with the best engine utilisation, starts of products included, at least 95 %
starts apart where any has that; then the largest group that the queries and keys of a head fill and that divides the mesh.
"""

from functools import lru_cache
from typing import NamedTuple

from evaluators.kernels.attention.dataflow import Dataflow, kept
from evaluators.kernels.attention.shape import Heads, Tiling
from evaluators.kernels.gemm.tiling import Mesh
from evaluators.machine.engine import Engines
from space.elementwise import ceil_div

ENOUGH = 0.95
"""Engine utilisation that a slice should reach."""

SLICES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Queries and keys of a slice that are tried, beside all of a head where it has fewer."""


ANY = Tiling(0, 0, 0, 0)
"""Nothing is chosen yet."""


class Slice(NamedTuple):
    """A slice of a tile.

    Attributes:
        queries, keys: of it.
        utilisation: of the matrix engine while it works on both products. [1]
        started: starts of products included. [1]
        nbytes: local memory that all strands need. [B]
    """

    queries: int
    keys: int
    utilisation: float
    started: float
    nbytes: float


def sliced(of: Dataflow, shape: Heads, engines: Engines, queries: int, keys: int, itemsize: float = 2.0) -> Slice:
    """What a slice asks and gives.

    >>> from space.chip import MatrixEngine, VectorEngine
    >>> engine = MatrixEngine(dataflow="ce", rows=32, cols=16, depth=3, reload="hidden", fill=10.0, call=230.0)
    >>> tile = Engines(1.0, engine, VectorEngine(lanes=128.0, special=64.0, call=20.0), 512.0)
    >>> round(sliced(Dataflow("hardware", 1, True), Heads(1, 1, 1, 4096, 4096, 128, 128), tile, 128, 128).utilisation, 3)
    0.981
    """
    busy = engines.product(queries, shape.key_dim, keys, itemsize) + engines.product(queries, keys, shape.v, itemsize)
    busy += engines.product(queries, shape.v, keys, itemsize) if shape.latent else 0.0
    least = queries * keys * (shape.qk + shape.v) / (engines.matrix.rows * engines.matrix.cols * engines.clock)
    starts = (3 if shape.latent else 2) * engines.matrix.call / engines.clock
    nbytes = sum(
        held.nbytes for strand in range(of.strands) for held in kept(of, shape, Tiling(2, 2, queries, keys), "float16", strand)
    )
    return Slice(queries, keys, float(least / busy), float(least / (busy + starts)), float(nbytes))


@lru_cache(maxsize=65536)
def proposed(of: Dataflow, shape: Heads, mesh: Mesh, engines: Engines, sram: float, said: Tiling = ANY) -> Tiling:
    """Slice and group for a shape.

    Args:
        of, shape, mesh: whole numbers.
        engines: of a tile.
        sram: its local memory. [B]
        said: what is chosen already, 0 for what is not.
    """
    wanted = ((said.queries, shape.rows), (said.keys, shape.keys))
    sizes = [[fixed] if fixed else _shares(whole) for fixed, whole in wanted]
    tried = [sliced(of, shape, engines, queries, keys) for queries in sizes[0] for keys in sizes[1]]
    fitting = [one for one in tried if one.nbytes <= sram] or [min(tried, key=lambda one: one.nbytes)]
    good = [one for one in fitting if one.utilisation >= ENOUGH] or fitting
    best = max(good, key=lambda one: (one.started, -abs(one.queries - one.keys)))
    rows = said.rows or (_largest(mesh.rows, shape.rows, best.queries) if of.grouped else 1)
    cols = said.cols or (_largest(mesh.cols, shape.keys, best.keys) if of.grouped else 1)
    return Tiling(rows, cols, best.queries, best.keys)


def _shares(whole: int) -> list[int]:
    """Slices that are tried."""
    return [side for side in SLICES if side < whole] + ([whole] if whole <= SLICES[-1] else [])


def _largest(side: int, whole: int, share: int) -> int:
    """Most tiles in a line of a group, a divisor of the mesh's side, that slices of all queries or keys fill."""
    return max(count for count in range(1, side + 1) if side % count == 0 and (count == 1 or count <= ceil_div(whole, share)))
