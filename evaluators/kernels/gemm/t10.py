"""Compute and shift for a crossbar (T10) on a mesh.

Every core on the way of a ring's wrap stores and forwards it.

[he2025] section 3.2: T10 is made for cores that reach each other in constant time; on a mesh its shifts know nothing of
distance, so the one from the last core back to the first passes through all others, each of which handles the whole tile in
software.
"""

import numpy as np

from dse.evaluators.kernels.gemm import compute_shift as shift
from dse.evaluators.kernels.gemm.compute_shift import buffers, gather_result, local_product_count, scatter_operands
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Program
from dse.space.array_math import maximum

__all__ = [
    "BARRIER",
    "MIN_SIDE",
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "gather_result",
    "local_product_count",
    "routing_paths",
    "scatter_operands",
]

BARRIER = "line"
"""[he2025] section 7.1: the order of memory accesses along a row or column is enforced."""

MIN_SIDE = 1
"""Cores of a line that it needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: to and from neighbours in row and column, twice for relayed blocks. [-]"""
    return 8


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of T10's shifts; a relay over the whole line decides each shift."""
    reach = maximum(mesh.rows, mesh.cols) - 1
    return shift.cost(shape, mesh, fabric, order=np.arange, reach=reach, leave=1, overlapped=False, via="relay")


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program: compute and shift on a ring in line order, with relayed messages."""
    return shift.build_program(shape, mesh, order=np.arange(mesh.chunks), wait=BARRIER, dtype=dtype, via="relay")
