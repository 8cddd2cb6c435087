"""GEMM on a mesh taken for shared memory: for each chunk of K, every core loads the tiles of A and B from whoever owns them.

[he2025] section 3.2: a compiler for shared memory such as Ladder assumes uniform access; the owner of a tile serves the cores
of its row or column one after the other, and each of these waits for every value to come and go the whole way.
"""

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.column import loaded
from dse.evaluators.kernels.gemm.summa import place, products, result, slots
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.table import tabulated
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Cores, Multiply, Program, Round, Send
from dse.space.elementwise import ceil_div, maximum

__all__ = ["LEAST", "WAIT", "at_once", "cost", "loaded", "paths", "place", "products", "result", "slots", "steps"]

WAIT = "mesh"
"""A shared memory's step ends for all cores before the next one begins."""

LEAST = 1
"""Cores of a line that it needs."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one to and from each core of its row and column, were it not for software that routes."""
    return int(mesh.rows + mesh.cols)


def at_once(mesh: Mesh) -> int:
    """Routing paths of a core at a time: to and from four neighbours; software routes the rest of the way."""
    return 8


def cost(shape: Shape, mesh: Mesh, fabric: Fabric) -> Cost:
    """Time of the program.

    In each chunk the owner of A serves the other columns, then owners of B the other rows; each load takes

        2 values (2 ramp + d hop)

    from when it is served, and the one that ends last ends the chunk's: that of the last core that is served, or, with large
    tiles, of the first one, where it is far away (`column.loaded`). A product follows.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
    """
    chunks = mesh.chunks * 1.0
    m_, k_, n_ = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, chunks), ceil_div(shape.n, mesh.cols)
    macs = m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    loads = mesh.per_col * loaded(mesh.cols, m_ * k_, fabric) + mesh.per_row * loaded(mesh.rows, k_ * n_, fabric)
    a_bytes, b_bytes = 2.0 * m_ * k_ * mesh.rows, 2.0 * k_ * n_ * mesh.cols
    sent = chunks * (a_bytes * (mesh.cols - 1) + b_bytes * (mesh.rows - 1))
    links = a_bytes * _all(mesh.cols, mesh.per_col) + b_bytes * _all(mesh.rows, mesh.per_row)
    return Cost(chunks * product + loads, Activity(macs * chunks * mesh.rows * mesh.cols, sent, links))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program: the loads of each chunk, then its product."""
    multiply = Multiply("a_in", "b_in", "c", "imk,ikn->imn")
    row, col = np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :]
    here = Cores(row, col)
    strand = []
    for chunk in range(mesh.chunks):
        a_root, a_part = divmod(chunk, mesh.per_col)
        b_root, b_part = divmod(chunk, mesh.per_row)
        from_a, from_b = Cores(row, np.full_like(col, a_root)), Cores(np.full_like(row, b_root), col)
        loads = (
            Send("a", from_a, here, np.asarray(a_part), np.asarray(a_part + 1), at=np.asarray(0), into="a_in", via="shared"),
            Send("b", from_b, here, np.asarray(b_part), np.asarray(b_part + 1), at=np.asarray(0), into="b_in", via="shared"),
        )
        strand += [Round(loads, WAIT), Round((multiply,), WAIT)]
    return Program(mesh.rows, mesh.cols, slots(shape, mesh, dtype), (tuple(strand),))


@tabulated
def _all(side: int, per: int) -> float:
    """Hops from each chunk's owner to all cores, all chunks together."""
    place = np.arange(side)
    return float(per * np.abs(place[:, None] - place).sum())
