"""GEMV on a mesh taken for shared memory: weights and vectors are where they are, and cores load them.

[he2025] section 3.2: a compiler for shared memory such as Ladder assumes uniform access. Weights are interleaved over the row
of cores, so a core loads its tile from all over it, a value at a time; partial sums are added to memory at the root, which
answers every core of the column with the result once all have come.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import partial
from dse.evaluators.kernels.gemv.partial import result
from dse.evaluators.kernels.table import tabulated
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Cores, Program, Round, Send, Slot, Tiles
from dse.space.elementwise import Array, ceil_div, where

__all__ = ["at_once", "cost", "line", "moved", "paths", "place", "reduction", "result", "root", "slots", "stages", "steps"]


def paths(mesh: Mesh, phases: Any = 2) -> Any:
    """Routing paths of a core: one to and from each core of its row and column, were it not for software that routes."""
    return mesh.rows + mesh.cols


def at_once(mesh: Mesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: to and from four neighbours; software routes the rest of the way."""
    return 8


def stages(side: int) -> int:
    """Software stages on the critical path: one addition for each core."""
    return side - 1


def root(mesh: Mesh) -> int:
    """The row that holds the sums."""
    return 0


def line(side: Any, words: Any, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Any:
    """Time until all cores of a line have the sums.

    The root adds N - 1 messages one after the other, then answers them, the last of them to the far end:

        t = post + (N - 1) (words + stage) + 2 ramp + hop + (N - 1) served + values 2 (2 ramp + (N - 1) hop)
    """
    others = side - 1.0
    values = words  # sums are in single precision, a word each
    add = fabric.post + others * (words * fabric.pace + fabric.stage) + 2 * fabric.ramp + fabric.hop
    load = others * fabric.served("answer") + values * 2 * (2 * fabric.ramp + others * fabric.hop)
    return where(others > 0, add + (load if broadcast else 0.0), 0.0)


def moved(side: Any, *, broadcast: bool = True, phases: int = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross."""
    others, links = side - 1.0, side * (side - 1.0) / 2
    return others * (1 + broadcast), links * (1 + broadcast)


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Cost:
    """Loads of the weights, then as `partial.cost`; leaves broadcast over designs.

    loads = sum over a tile's rows, at distance d, of served + values 2 (2 ramp + d hop)
    """
    rest = partial.cost(
        shape, mesh, fabric, lambda *of: line(*of, broadcast=broadcast), lambda side: moved(side, broadcast=broadcast)
    )
    k, n = ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    rows, hops = _remote_rows(k, mesh.cols), _remote_hops(k, mesh.cols)
    loads = rows * (fabric.served() + n * 4 * fabric.ramp) + n * 2 * hops * fabric.hop
    tile = 2.0 * n * mesh.rows
    sent, links = tile * rows * mesh.cols, tile * _all_hops(k, mesh.cols)
    return Cost(rest.seconds + loads, rest.activity + Activity(sent_bytes=sent, hop_bytes=links))


def reduction(mesh: Mesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum") -> tuple[Round, ...]:
    """``y`` of every column combined into ``out``."""
    col = np.arange(mesh.cols)[None, :]
    others = np.arange(1, mesh.rows)[:, None]
    top, low = Cores(np.zeros((1, 1), int), col), Cores(others, col)
    whole = np.asarray(0), np.asarray(length)
    own = Send("y", top, top, *whole, into="out")
    add = Send("y", low, Cores(np.zeros_like(others), col), *whole, into="out", combine=combine, via="shared")
    load = Send("out", Cores(np.zeros_like(others), col), low, *whole, via="answer")
    rounds = (Round((own,), "mesh"), Round((add,), "mesh"), Round((load,), "mesh"))
    return rounds if broadcast else rounds[:2]


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2) -> Program:
    """The program; without `broadcast` the sums stay at the root."""
    k, n = ceil(shape.k / mesh.rows), ceil(shape.n / mesh.cols)
    row, col = np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :]
    loads = tuple(
        Send("home", Cores(row, _home(col, r, k, mesh.cols)), Cores(row, col), np.asarray(r), np.asarray(r + 1), into="w",
             at=np.asarray(r), via="shared")
        for r in range(k)
    )  # fmt: skip
    rounds = (Round(loads, "mesh"), partial.product(), *reduction(mesh, n, broadcast=broadcast))
    return Program(mesh.rows, mesh.cols, slots(shape, mesh, dtype), (rounds,))


def slots(shape: Shape, mesh: Mesh, dtype: str) -> tuple[Slot, ...]:
    """x, the loaded part of W, sums, the result, and what lives here of W; leaves broadcast over designs."""
    x, w, y, out = partial.slots(shape, mesh, dtype)
    return x, w, y, out._replace(depth=2), w._replace(name="home")


def place(shape: Shape, mesh: Mesh, x: Array, w: Array) -> Tiles:
    """X as for other GEMVs; each row of a weight tile at its home."""
    tiles = partial.place(shape, mesh, x, w)
    own = tiles.pop("w")
    k = own.shape[2]
    home = np.zeros_like(own)
    for r in range(k):
        home[:, _home(np.arange(mesh.cols), r, k, mesh.cols), r] = own[:, :, r]
    return {**tiles, "home": home}


def _home(col: Array, r: int, k: int, cols: int) -> Array:
    """The column of cores where row `r` of a tile of `k` rows lives: rows are spread over all columns evenly."""
    return (col + r * cols // k) % cols


@tabulated
def _remote_rows(k: int, cols: int) -> float:
    """Rows of a tile that live elsewhere."""
    return float(sum(r * cols // k > 0 for r in range(k)))


@tabulated
def _remote_hops(k: int, cols: int) -> float:
    """Hops from the first core of a line, which has the longest way, to all rows of its tile."""
    return float(sum(r * cols // k for r in range(k)))


@tabulated
def _all_hops(k: int, cols: int) -> float:
    """Hops of a line's cores to all rows of their tiles."""
    col = np.arange(cols)
    return float(sum(np.abs(_home(col, r, k, cols) - col).sum() for r in range(k)))
