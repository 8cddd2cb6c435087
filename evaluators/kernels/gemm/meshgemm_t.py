"""MeshGEMM for C = A B^T without a transpose: B travels along the columns, partial products are added along the rows.

[he2025] section 5.4: no alignment; in each of N steps, B shifts by one place of the interleaved ring, every core multiplies its
tiles over its own chunk of K, and each row adds these up at the core that owns that block of C. B comes as [n, k].
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm.meshgemm import interleaved
from evaluators.kernels.gemm.tiling import Mesh, Shape, all_cores, blocks, joined
from evaluators.numeric import Tiles
from evaluators.rounds import Cores, Multiply, Program, Reduce, Round, Send, Slot, Step
from space.elementwise import Array

TRANSPOSED = True
"""B is given as [n, k]."""

WAIT = "slots"


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: the interleaved ring in its column, and the reduction through its row both ways."""
    return 3 + 2


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program: product of the block that is there, its sum along the row a round later, the next block meanwhile."""
    m, k, n = ceil(shape.m / mesh.rows), ceil(shape.k / mesh.cols), ceil(shape.n / mesh.chunks)
    slots = (
        Slot("a", (m, k), dtype),
        Slot("b", (mesh.per_row, n, k), dtype, depth=2),
        Slot("p", (mesh.per_row, m, n), "float32", depth=2),
        Slot("zero", (mesh.per_row, m, n), "float32"),
        Slot("c", (mesh.per_col, m, n), "float32"),
    )
    order = interleaved(mesh.rows)
    position = np.argsort(order)
    row, col = all_cores(mesh)
    shift = Send(
        "b", Cores(row, col), Cores(order[(position - 1) % mesh.rows][row], col), np.asarray(0), np.asarray(mesh.per_row)
    )
    multiply = Multiply("a", "b", "p", "mk,ink->imn")
    clear = Send("zero", Cores(row, col), Cores(row, col), np.asarray(0), np.asarray(mesh.per_row), into="p")
    rounds = []
    for step in range(mesh.rows):
        rounds.append(Round((clear,), WAIT))
        rounds.append(Round((multiply,), WAIT))
        held = order[(position + step) % mesh.rows]
        reductions: tuple[Step, ...] = tuple(_reductions(mesh, held))
        rounds.append(Round((*reductions, shift) if step + 1 < mesh.rows else reductions, WAIT))
    return Program(mesh.rows, mesh.cols, slots, (tuple(rounds),))


def place(shape: Shape, mesh: Mesh, a: Array, b: Array) -> Tiles:
    """A and B in the natural layout: rows over rows, K over columns."""
    cut = blocks(b, mesh.chunks, mesh.cols)
    return {
        "a": blocks(a, mesh.rows, mesh.cols),
        "b": cut.reshape(mesh.rows, mesh.per_row, mesh.cols, *cut.shape[2:]).swapaxes(1, 2),
    }


def result(shape: Shape, mesh: Mesh, tiles: Tiles) -> Array:
    """The product, from the natural layout: chunks of N over columns."""
    rows, cols, _, m, n = tiles["c"].shape
    return joined(tiles["c"].reshape(rows, cols * mesh.per_col, m, n), shape.m, shape.n)


def _reductions(mesh: Mesh, held: Array) -> list[Reduce]:
    """Each row adds up every slice of the block of B that it holds, at the column that owns that part of C."""
    reductions = []
    for y in range(mesh.per_row):
        block = held * mesh.per_row + y
        root, at = block // mesh.per_col, block % mesh.per_col
        others = np.stack([np.concatenate(([r], np.delete(np.arange(mesh.cols), r))) for r in root])
        path = Cores(np.arange(mesh.rows)[:, None], others)
        reductions.append(Reduce("p", path, np.asarray(y), np.asarray(y + 1), "c", at=at))
    return reductions
