"""SUMMA: in step p, the column that holds chunk p of A multicasts it along the rows, the row of B's along the columns.

[he2025] section 5.1 (2): a working set of two tiles beside the operands' own doubles the memory; every core needs a path from
each core of its row and column. Each broadcast ends before its product starts.
"""

from math import ceil

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape, blocks, joined
from evaluators.machine.fabric import Fabric
from evaluators.numeric import Tiles
from evaluators.rounds import Activity, Cores, Multicast, Multiply, Program, Round, Slot
from space.elementwise import Array, ceil_div

WAIT = "line"
"""[he2025] section 7.2: "pipeline broadcast in SUMMA" is not overlapped with computation as MeshGEMM's shifts are."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one from every core of its row and of its column."""
    return mesh.rows + mesh.cols


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, word_bytes: int = 4) -> Cost:
    """Time of the program on a square mesh of N x N cores.

    Each chunk: a multicast of A, then of B through the ramp of the core that roots both, to the farther end, then the product:

        t = N (product + 2 launch + words A + words B + 2 ramp) + hop * sum over chunks p of max(p, N - 1 - p)

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        word_bytes: bytes of one value of A and B.

    Source:
        [he2025] section 5.1 (2).
    """
    n = mesh.rows * 1.0
    m_, k_, n_ = ceil_div(shape.m, n), ceil_div(shape.k, n), ceil_div(shape.n, n)
    values = ceil_div(m_ * k_ * word_bytes, fabric.word_bytes) + ceil_div(k_ * n_ * word_bytes, fabric.word_bytes)
    product = fabric.launch + m_ * k_ * n_ * fabric.mac
    far = 0.75 * n * n - 0.5 * n - 0.25 * (n % 2)
    each = product + 2 * fabric.launch + values * fabric.word + 2 * fabric.ramp
    return Cost(n * each + far * fabric.hop, Activity(macs=m_ * k_ * n_ * n * n * n))


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
