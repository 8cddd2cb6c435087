"""GEMM by allgather: every core collects its row of A and its column of B, then multiplies once.

[he2025] section 5.1 (1): chunks are stored and forwarded from neighbour to neighbour, both ways at once, so the critical
path has as many software stages as hops; and every core holds 1 / N of both operands.
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm import summa
from evaluators.kernels.gemm.tiling import Mesh, Shape, all_cores, joined
from evaluators.numeric import Tiles
from evaluators.rounds import Cores, Multiply, Program, Round, Send, Slot
from space.elementwise import Array

__all__ = ["WAIT", "paths", "place", "result", "steps"]

WAIT = "slots"
"""Nothing to overlap: the product starts when everything is there."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one from every core of its row and of its column."""
    return mesh.rows + mesh.cols


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program: as many rounds as the longer side has hops, then one product."""
    m, k, n = ceil(shape.m / mesh.rows), ceil(shape.k / mesh.chunks), ceil(shape.n / mesh.cols)
    slots = (
        Slot("a", (mesh.chunks, m, k), dtype, depth=2),
        Slot("b", (mesh.chunks, k, n), dtype, depth=2),
        Slot("c", (m, n), "float32"),
    )
    rounds = []
    for hop in range(max(mesh.rows, mesh.cols) - 1):
        sends = [_forward(mesh, slot, hop, way) for slot in ("a", "b") for way in (1, -1)]
        rounds.append(Round(tuple(send for send in sends if send is not None), WAIT))
    multiply = Round((Multiply("a", "b", "c", "lmk,lkn->mn"),), WAIT)
    return Program(mesh.rows, mesh.cols, slots, ((*rounds, multiply),))


def place(shape: Shape, mesh: Mesh, a: Array, b: Array) -> Tiles:
    """Operands in the natural layout, at their own place among the chunks that will arrive."""
    own = summa.place(shape, mesh, a, b)
    tiles = {name: np.zeros((mesh.rows, mesh.cols, mesh.chunks, *tile.shape[3:]), tile.dtype) for name, tile in own.items()}
    for col in range(mesh.cols):
        tiles["a"][:, col, col * mesh.per_col : (col + 1) * mesh.per_col] = own["a"][:, col]
    for row in range(mesh.rows):
        tiles["b"][row, :, row * mesh.per_row : (row + 1) * mesh.per_row] = own["b"][row]
    return tiles


def result(shape: Shape, mesh: Mesh, tiles: Tiles) -> Array:
    """The product, from the natural layout."""
    return joined(tiles["c"], shape.m, shape.n)


def _forward(mesh: Mesh, slot: str, hop: int, way: int) -> Send | None:
    """Every core passes on the chunks that came from `hop` hops away."""
    row, col = all_cores(mesh)
    side, line, width = (mesh.cols, col, mesh.per_col) if slot == "a" else (mesh.rows, row, mesh.per_row)
    line = line.ravel()
    origin, target = line - way * hop, line + way
    able = (origin >= 0) & (origin < side) & (target >= 0) & (target < side)
    if not able.any():
        return None
    origin, source, target = origin[able], line[able], target[able]
    if slot == "a":
        pair = Cores(row, source[None, :]), Cores(row, target[None, :])
        start = origin[None, :] * width
    else:
        pair = Cores(source[:, None], col), Cores(target[:, None], col)
        start = origin[:, None] * width
    return Send(slot, *pair, start, start + width, via="relay")
