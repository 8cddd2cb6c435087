"""Cannon's algorithm: compute and shift on a ring along a line.

The last core of a line wraps to the first one in N - 1 hops.

[he2025] section 5.1 (3): constant routing paths, the wrap passes straight through the cores between, so it costs hops and no
routing stage; the step is as long as its longest message, since the shift of a line ends before the next one starts.
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
"""[he2025] section 7.2: "head-to-tail transmission in Cannon" is not overlapped with computation."""

MIN_SIDE = 1
"""Cores of a line that it needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: a neighbour in each direction, and the wraps that pass through. [-]"""
    return 4 + 2


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of Cannon's algorithm; a wrap over the whole line decides each shift."""
    reach = maximum(mesh.rows, mesh.cols) - 1
    return shift.cost(shape, mesh, fabric, order=np.arange, reach=reach, leave=1, overlapped=False)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program of Cannon's algorithm: compute and shift on a ring in line order."""
    return shift.build_program(shape, mesh, order=np.arange(mesh.chunks), wait=BARRIER, dtype=dtype)
