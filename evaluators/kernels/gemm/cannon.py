"""Cannon's algorithm: compute and shift on a ring laid out in line, whose last core wraps to the first in N - 1 hops.

[he2025] section 5.1 (3): constant routing paths, the wrap passes straight through the cores between, so it costs hops and no
routing stage; the step is as long as its longest message, since the shift of a line ends before the next one starts.
"""

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm import shift
from evaluators.kernels.gemm.shift import place, result
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.machine.fabric import Fabric
from evaluators.rounds import Program

__all__ = ["WAIT", "cost", "paths", "place", "result", "steps"]

WAIT = "line"
"""[he2025] section 7.2: "head-to-tail transmission in Cannon" is not overlapped with computation."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: a neighbour each way in row and column, and the wraps that pass through."""
    return 4 + 2


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, word_bytes: int = 4) -> Cost:
    """The closed form on a square mesh: a wrap over the whole line decides each shift."""
    return shift.cost(shape, mesh, fabric, reach=mesh.rows - 1, overlapped=False, crowd=2.0, word_bytes=word_bytes)


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program."""
    return shift.steps(shape, mesh, order=np.arange(mesh.chunks), wait=WAIT, dtype=dtype)
