"""SUMMA: in step p, the column that holds chunk p of A multicasts it along the rows, the row of B's along the columns.

[he2025] section 5.1 (2): a working set of two tiles beside the operands' own doubles the memory; every core needs a path from
each core of its row and column. Each broadcast ends before its product starts.
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm.tiling import Mesh, Shape, blocks, joined
from evaluators.numeric import Tiles
from evaluators.rounds import Cores, Multicast, Multiply, Program, Round, Slot
from space.elementwise import Array

WAIT = "line"
"""[he2025] section 7.2: "pipeline broadcast in SUMMA" is not overlapped with computation as MeshGEMM's shifts are."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one from every core of its row and of its column."""
    return mesh.rows + mesh.cols


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program: a multicast of each chunk, then its product."""
    m, k, n = ceil(shape.m / mesh.rows), ceil(shape.k / mesh.chunks), ceil(shape.n / mesh.cols)
    slots = (
        Slot("a", (mesh.per_col, m, k), dtype),
        Slot("b", (mesh.per_row, k, n), dtype),
        Slot("a_in", (1, m, k), dtype, depth=2),
        Slot("b_in", (1, k, n), dtype, depth=2),
        Slot("c", (1, m, n), "float32"),
    )
    multiply = Multiply("a_in", "b_in", "c", "imk,ikn->imn")
    strand = []
    for chunk in range(mesh.chunks):
        strand += [Round((_along_rows(mesh, chunk), _along_cols(mesh, chunk)), WAIT), Round((multiply,), WAIT)]
    return Program(mesh.rows, mesh.cols, slots, (tuple(strand),))


def place(shape: Shape, mesh: Mesh, a: Array, b: Array) -> Tiles:
    """Operands in the natural layout, chunks of K stacked."""
    cut_a, cut_b = blocks(a, mesh.rows, mesh.chunks), blocks(b, mesh.chunks, mesh.cols)
    return {
        "a": cut_a.reshape(mesh.rows, mesh.cols, mesh.per_col, *cut_a.shape[2:]),
        "b": cut_b.reshape(mesh.rows, mesh.per_row, mesh.cols, *cut_b.shape[2:]).swapaxes(1, 2),
    }


def result(shape: Shape, mesh: Mesh, tiles: Tiles) -> Array:
    """The product, from the natural layout."""
    return joined(tiles["c"][:, :, 0], shape.m, shape.n)


def _along_rows(mesh: Mesh, chunk: int) -> Multicast:
    root, part = divmod(chunk, mesh.per_col)
    others = np.array([root, *(col for col in range(mesh.cols) if col != root)])
    path = Cores(np.arange(mesh.rows)[:, None], others[None, :])
    return Multicast("a", path, np.asarray(part), np.asarray(part + 1), "a_in")


def _along_cols(mesh: Mesh, chunk: int) -> Multicast:
    root, part = divmod(chunk, mesh.per_row)
    others = np.array([root, *(row for row in range(mesh.rows) if row != root)])
    path = Cores(others[None, :], np.arange(mesh.cols)[:, None])
    return Multicast("b", path, np.asarray(part), np.asarray(part + 1), "b_in")
