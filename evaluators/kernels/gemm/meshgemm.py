"""MeshGEMM: compute and shift on an interleaved ring, whose neighbours are at most two hops away.

[he2025] section 5.2 and algorithm 1. Two hops are the least possible: on a line, a circle of one-hop neighbours cannot close.
"""

from functools import lru_cache

import numpy as np

from dse.evaluators.kernels.gemm import compute_shift as shift
from dse.evaluators.kernels.gemm.compute_shift import buffers, gather_result, local_product_count, scatter_operands
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Program
from dse.space.array_math import Array

__all__ = [
    "BARRIER",
    "MIN_SIDE",
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "gather_result",
    "interleaved_order",
    "local_product_count",
    "ring_neighbours",
    "routing_paths",
    "scatter_operands",
]

BARRIER = "slots"
"""[he2025] section 7.2: interleaving lets MeshGEMM "as much as possible, overlap communication with computation"."""

MIN_SIDE = 3
"""Cores of a line that INTERLEAVE needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: two neighbours and one passing message in its row and in its column. [-]"""
    return 4 + 2


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh)


def ring_neighbours(places: int) -> tuple[Array, Array]:
    """Places that each place of a line sends to and receives from, [he2025] algorithm 1.

    Returns:
        send, receive: places, shape (places,).

    >>> ring_neighbours(5)[0].tolist(), ring_neighbours(5)[1].tolist()
    ([2, 0, 4, 1, 3], [1, 3, 0, 4, 2])
    """
    index = np.arange(places)
    up, down = np.minimum(index + 2, places - 1), np.maximum(index - 2, 0)
    even = index % 2 == 0
    send, receive = np.where(even, up, down), np.where(even, down, up)
    receive[0] = min(1, places - 1)
    if places % 2 == 0:
        receive[-1] = max(places - 2, 0)
    else:
        send[-1] = max(places - 2, 0)
    return send, receive


@lru_cache(maxsize=4096)
def interleaved_order(places: int) -> Array:
    """Place on the line of each logical position; a place's follower is one position back.

    >>> interleaved_order(5).tolist()
    [1, 3, 4, 2, 0]
    """
    send, _ = ring_neighbours(places)
    ring = [0]
    while len(ring) < places:
        ring.append(int(send[ring[-1]]))
    return np.array(ring[::-1])


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of MeshGEMM; each shift takes two hops on any mesh."""
    return shift.cost(shape, mesh, fabric, order=interleaved_order, reach=2, leave=2, overlapped=True)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program of MeshGEMM: compute and shift on an interleaved ring."""
    return shift.build_program(shape, mesh, order=interleaved_order(mesh.chunks), wait=BARRIER, dtype=dtype)
