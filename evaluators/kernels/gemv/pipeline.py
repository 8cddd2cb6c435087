"""Pipeline allreduce: partial sums pass from the farthest core to the root, one software stage a core; then a broadcast.

[he2025] section 6.1 (1): 2 N hops and N routing stages, a constant number of paths.
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import partial
from evaluators.kernels.gemv.partial import place, result
from evaluators.rounds import Program, Round

__all__ = ["paths", "place", "result", "root", "stages", "steps"]


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one in, one out, and the broadcast."""
    return 3


def stages(side: int) -> int:
    """Software stages on the critical path."""
    return side - 1


def root(mesh: Mesh) -> int:
    """The row that holds the sums."""
    return 0


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True) -> Program:
    """The program; without `broadcast` the sums stay at the root."""
    length = ceil(shape.n / mesh.cols)
    reduce = Round((partial.reduction(mesh, np.arange(mesh.rows), length, "y" if broadcast else "out"),))
    rounds = (partial.product(), reduce, *((partial.spread(mesh, 0, length),) if broadcast else ()))
    return Program(mesh.rows, mesh.cols, partial.slots(shape, mesh, dtype), (rounds,))
