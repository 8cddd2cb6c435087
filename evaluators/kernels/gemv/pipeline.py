"""Pipeline allreduce: partial sums pass from the farthest core to the root, one software stage a core; then a broadcast.

[he2025] section 6.1 (1): 2 N hops and N routing stages, a constant number of paths.
"""

from math import ceil

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import partial
from evaluators.kernels.gemv.partial import place, result
from evaluators.machine.fabric import Fabric
from evaluators.rounds import Program, Round
from space.elementwise import where

__all__ = ["cost", "paths", "place", "result", "root", "stages", "steps"]


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one in, one out, and the broadcast."""
    return 3


def stages(side: int) -> int:
    """Software stages on the critical path."""
    return side - 1


def root(mesh: Mesh) -> int:
    """The row that holds the sums."""
    return 0


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, broadcast: bool = True) -> Cost:
    """Time until the root (or with `broadcast` every row) has the product.

    The chain of N - 1 software stages, one hop apart, through which the words stream:

        t = launch + (N - 1) (2 ramp + hop + stage) + words

    With stage = hop = 1 cycle and no launch this is the chain reduction of [luczynski2024].

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        broadcast: whether the sums go back to all rows.

    Source:
        [he2025] section 6.1 (1).
    """
    legs = mesh.rows - 1.0
    one = 2 * fabric.ramp + fabric.hop + fabric.stage
    reduction = where(legs > 0, fabric.launch + legs * one + partial.stream(shape, mesh, fabric), 0.0)
    seconds = partial.seconds(shape, mesh, fabric, reduction, broadcast=broadcast, root=0)
    spread = broadcast * (mesh.rows > 1)
    return Cost(seconds, partial.counted(shape, mesh, legs + spread, legs + spread * legs))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True) -> Program:
    """The program; without `broadcast` the sums stay at the root."""
    length = ceil(shape.n / mesh.cols)
    reduce = Round((partial.reduction(mesh, np.arange(mesh.rows), length, "y" if broadcast else "out"),))
    rounds = (partial.product(), reduce, *((partial.spread(mesh, 0, length),) if broadcast else ()))
    return Program(mesh.rows, mesh.cols, partial.slots(shape, mesh, dtype), (rounds,))
