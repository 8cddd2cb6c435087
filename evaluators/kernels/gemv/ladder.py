"""GEMV on a mesh used as shared memory: cores load weights and vectors from where they lie.

[he2025] section 3.2: a compiler for shared memory such as Ladder assumes uniform access. Weights are interleaved over the row
of cores, so a core loads its tile from all over it, a value at a time; partial sums are added to memory at the root, which
answers every core of the column with the result once all have come.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import local_product as partial
from dse.evaluators.kernels.gemv.local_product import gather_result
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction, Tiles
from dse.space.array_math import Array, ceil_div, where

__all__ = [
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "gather_result",
    "line_seconds",
    "message_counts",
    "reduction_rounds",
    "root_row",
    "routing_paths",
    "scatter_operands",
    "software_stages",
]


def routing_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core without software routing: one to and from each core of its lines. [-]"""
    return mesh.rows + mesh.cols


def concurrent_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: to and from four neighbours; software routes the other hops. [-]"""
    return 8


def software_stages(side: int) -> int:
    """Software stages on the critical path: one addition per core. [-]"""
    return side - 1


def root_row(mesh: CoreMesh) -> int:
    """Row of cores that holds the sums."""
    return 0


def line_seconds(side: Any, words: Any, fabric: MeshFabric, *, broadcast: bool = True, phases: int = 2) -> Any:
    """Time until all cores of a line hold the sums. [s]

    The root adds N - 1 messages one after the other, then answers them, the last of them to the far end:

        t = post + (N - 1) (words + stage) + 2 ramp + hop + (N - 1) served + values 2 (2 ramp + (N - 1) hop)
    """
    others = side - 1.0
    values = words  # sums are in single precision, a word each
    add = fabric.post + others * (words * fabric.pace + fabric.stage) + 2 * fabric.ramp + fabric.hop
    load = others * fabric.load_cost("answer") + values * 2 * (2 * fabric.ramp + others * fabric.hop)
    return where(others > 0, add + (load if broadcast else 0.0), 0.0)


def message_counts(side: Any, *, broadcast: bool = True, phases: int = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross. [-]"""
    others, links = side - 1.0, side * (side - 1.0) / 2
    return others * (1 + broadcast), links * (1 + broadcast)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, broadcast: bool = True, phases: int = 2) -> KernelCost:
    """Time [s] and activity: loads of the weights, then as `gemv_cost`; leaves broadcast over designs.

    loads = sum over a tile's rows, at distance d, of served + values 2 (2 ramp + d hop)
    """
    rest = partial.gemv_cost(
        shape,
        mesh,
        fabric,
        lambda *amounts: line_seconds(*amounts, broadcast=broadcast),
        lambda side: message_counts(side, broadcast=broadcast),
    )
    k, n = ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    rows, hops = _remote_rows(k, mesh.cols), _remote_hops(k, mesh.cols)
    loads = rows * (fabric.load_cost() + n * 4 * fabric.ramp) + n * 2 * hops * fabric.hop
    tile = 2.0 * n * mesh.rows
    sent, links = tile * rows * mesh.cols, tile * _all_hops(k, mesh.cols)
    return KernelCost(rest.seconds + loads, rest.activity + Activity(sent_bytes=sent, hop_bytes=links))


def reduction_rounds(
    mesh: CoreMesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum"
) -> tuple[Round, ...]:
    """Rounds that combine ``y`` of every column into ``out``."""
    col = np.arange(mesh.cols)[None, :]
    others = np.arange(1, mesh.rows)[:, None]
    top, low = CoreIndex(np.zeros((1, 1), int), col), CoreIndex(others, col)
    whole = np.asarray(0), np.asarray(length)
    own = SendInstruction("y", top, top, *whole, into="out")
    add = SendInstruction("y", low, CoreIndex(np.zeros_like(others), col), *whole, into="out", combine=combine, via="shared")
    load = SendInstruction("out", CoreIndex(np.zeros_like(others), col), low, *whole, via="answer")
    rounds = (Round((own,), "mesh"), Round((add,), "mesh"), Round((load,), "mesh"))
    return rounds if broadcast else rounds[:2]


def build_program(
    shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2
) -> Program:
    """Program of the product; without `broadcast` the sums stay at the root."""
    k, n = ceil(shape.k / mesh.rows), ceil(shape.n / mesh.cols)
    row, col = np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :]
    loads = tuple(
        SendInstruction(
            "home",
            CoreIndex(row, _home(col, r, k, mesh.cols)),
            CoreIndex(row, col),
            np.asarray(r),
            np.asarray(r + 1),
            into="w",
            at=np.asarray(r),
            via="shared",
        )
        for r in range(k)
    )
    rounds = (Round(loads, "mesh"), partial.local_product(), *reduction_rounds(mesh, n, broadcast=broadcast))
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), (rounds,))


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: x, loaded part of W, sums, result, and its own part of W."""
    x, w, y, out = partial.buffers(shape, mesh, dtype)
    return x, w, y, out._replace(depth=2), w._replace(name="home")


def scatter_operands(shape: GemmShape, mesh: CoreMesh, x: Array, w: Array) -> Tiles:
    """Operands as for other GEMVs, but each row of a weight block lies on the core that owns it."""
    tiles = partial.scatter_operands(shape, mesh, x, w)
    own = tiles.pop("w")
    k = own.shape[2]
    home = np.zeros_like(own)
    for r in range(k):
        home[:, _home(np.arange(mesh.cols), r, k, mesh.cols), r] = own[:, :, r]
    return {**tiles, "home": home}


def _home(col: Array, r: int, k: int, cols: int) -> Array:
    """The column of cores where row `r` of a tile of `k` rows lives: rows are spread over all columns evenly."""
    return (col + r * cols // k) % cols


@tabulate
def _remote_rows(k: int, cols: int) -> float:
    """Rows of a tile that live elsewhere."""
    return float(sum(r * cols // k > 0 for r in range(k)))


@tabulate
def _remote_hops(k: int, cols: int) -> float:
    """Hops from the first core of a line, which has the longest way, to all rows of its tile."""
    return float(sum(r * cols // k for r in range(k)))


@tabulate
def _all_hops(k: int, cols: int) -> float:
    """Hops of a line's cores to all rows of their tiles."""
    col = np.arange(cols)
    return float(sum(np.abs(_home(col, r, k, cols) - col).sum() for r in range(k)))
