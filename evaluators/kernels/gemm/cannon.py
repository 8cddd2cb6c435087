"""Cannon's algorithm: compute and shift on a ring laid out in line, whose last core wraps to the first in N - 1 hops.

[he2025] section 5.1 (3): constant routing paths, the wrap passes straight through the cores between, so it costs hops and no
routing stage; the step is as long as its longest message, since the shift of a line ends before the next one starts.
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
"""[he2025] section 7.2: "head-to-tail transmission in Cannon" is not overlapped with computation."""

LEAST = 1
"""Cores of a line that it needs."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: a neighbour each way in row and column, and the wraps that pass through."""
    return 4 + 2


def at_once(mesh: Mesh) -> int:
    """Routing paths of a core at a time: all of them, set once."""
    return paths(mesh)


def cost(shape: Shape, mesh: Mesh, fabric: Fabric) -> Cost:
    """The closed form: a wrap over the whole line decides each shift."""
    reach = maximum(mesh.rows, mesh.cols) - 1
    return shift.cost(shape, mesh, fabric, order=np.arange, reach=reach, leave=1, overlapped=False)


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program."""
    return shift.steps(shape, mesh, order=np.arange(mesh.chunks), wait=WAIT, dtype=dtype)
