"""Cannon's algorithm: compute and shift on a ring laid out in line, whose last core wraps to the first in N - 1 hops.

[he2025] section 5.1 (3): constant routing paths, the wrap passes straight through the cores between, so it costs hops and no
routing stage; the step is as long as its longest message, since the shift of a line ends before the next one starts.
"""

import numpy as np

from evaluators.kernels.gemm import shift
from evaluators.kernels.gemm.shift import place, result
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.rounds import Program

__all__ = ["WAIT", "paths", "place", "result", "steps"]

WAIT = "line"
"""[he2025] section 7.2: "head-to-tail transmission in Cannon" is not overlapped with computation."""


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: a neighbour each way in row and column, and the wraps that pass through."""
    return 4 + 2


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program."""
    return shift.steps(shape, mesh, order=np.arange(mesh.chunks), wait=WAIT, dtype=dtype)
