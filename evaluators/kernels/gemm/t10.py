"""Compute and shift as for a crossbar: a ring in line whose wrap is stored and forwarded by every core on its way.

[he2025] section 3.2: T10 is made for cores that reach each other in constant time; on a mesh its shifts know nothing of
distance, so the one from the last core back to the first passes through all others, each of which handles the whole tile in
software.
"""

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm import shift
from dse.evaluators.kernels.gemm.shift import place, products, result, slots
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Program
from dse.space.elementwise import maximum

__all__ = ["LEAST", "WAIT", "at_once", "cost", "paths", "place", "products", "result", "slots", "steps"]

WAIT = "line"
"""[he2025] section 7.1: the order of memory accesses along a row or column is enforced."""

LEAST = 1
"""Cores of a line that it needs."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: to and from neighbours in row and column, and both again for what it relays."""
    return 8


def at_once(mesh: Mesh) -> int:
    """Routing paths of a core at a time: all of them, set once."""
    return paths(mesh)


def cost(shape: Shape, mesh: Mesh, fabric: Fabric) -> Cost:
    """The closed form: a relay over the whole line decides each shift."""
    reach = maximum(mesh.rows, mesh.cols) - 1
    return shift.cost(shape, mesh, fabric, order=np.arange, reach=reach, leave=1, overlapped=False, via="relay")


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program."""
    return shift.steps(shape, mesh, order=np.arange(mesh.chunks), wait=WAIT, dtype=dtype, via="relay")
