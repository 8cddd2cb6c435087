"""GEMM on a mesh used as shared memory.

For each chunk of K, every core loads the blocks of A and B from their owners.

[he2025] section 3.2: a compiler for shared memory such as Ladder assumes uniform access; the owner of a tile serves the cores
of its row or column one after the other, and each of these waits for every value to come and go the whole way.
"""

import numpy as np

from dse.evaluators.kernels.gemm.column_ring import owners_send_time
from dse.evaluators.kernels.gemm.summa import buffers, gather_result, local_product_count, scatter_operands
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import CoreIndex, MultiplyInstruction, Program, Round, SendInstruction
from dse.space.array_math import ceil_div, maximum

__all__ = [
    "BARRIER",
    "MIN_SIDE",
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "gather_result",
    "local_product_count",
    "owners_send_time",
    "routing_paths",
    "scatter_operands",
]

BARRIER = "mesh"
"""A shared memory's step ends for all cores before the next one begins."""

MIN_SIDE = 1
"""Cores of a line that it needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core without software routing: one to and from each core of its lines. [-]"""
    return int(mesh.rows + mesh.cols)


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: to and from four neighbours; software routes the other hops. [-]"""
    return 8


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of a product whose cores load blocks from their owners.

    In each chunk the owner of A serves the other columns, then owners of B the other rows; each load takes

        2 values (2 ramp + d hop)

    from when it is served, and the one that ends last ends the chunk's: that of the last core that is served, or, with large
    tiles, of the first one, where it is far away (`column_ring.owners_send_time`). A product follows.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
    """
    chunks = mesh.chunks * 1.0
    m_, k_, n_ = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, chunks), ceil_div(shape.n, mesh.cols)
    macs = m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    loads = mesh.per_col * owners_send_time(mesh.cols, m_ * k_, fabric) + mesh.per_row * owners_send_time(
        mesh.rows, k_ * n_, fabric
    )
    a_bytes, b_bytes = 2.0 * m_ * k_ * mesh.rows, 2.0 * k_ * n_ * mesh.cols
    sent = chunks * (a_bytes * (mesh.cols - 1) + b_bytes * (mesh.rows - 1))
    links = a_bytes * _all(mesh.cols, mesh.per_col) + b_bytes * _all(mesh.rows, mesh.per_row)
    return KernelCost(chunks * product + loads, Activity(macs * chunks * mesh.rows * mesh.cols, sent, links))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program: the loads of each chunk, then its product."""
    multiply = MultiplyInstruction("a_in", "b_in", "c", "imk,ikn->imn")
    row, col = np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :]
    source = CoreIndex(row, col)
    strand = []
    for chunk in range(mesh.chunks):
        a_root, a_part = divmod(chunk, mesh.per_col)
        b_root, b_part = divmod(chunk, mesh.per_row)
        from_a, from_b = CoreIndex(row, np.full_like(col, a_root)), CoreIndex(np.full_like(row, b_root), col)
        loads = (
            SendInstruction(
                "a", from_a, source, np.asarray(a_part), np.asarray(a_part + 1), at=np.asarray(0), into="a_in", via="shared"
            ),
            SendInstruction(
                "b", from_b, source, np.asarray(b_part), np.asarray(b_part + 1), at=np.asarray(0), into="b_in", via="shared"
            ),
        )
        strand += [Round(loads, BARRIER), Round((multiply,), BARRIER)]
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), (tuple(strand),))


@tabulate
def _all(side: int, per: int) -> float:
    """Hops from each chunk's owner to all cores, all chunks together."""
    place = np.arange(side)
    return float(per * np.abs(place[:, None] - place).sum())
