"""GEMV with ring allreduce: slices travel along each column and back over the wrap, one software stage a core.

[he2025] section 6.1 (2): every partial sum traverses all cores, at 2 alpha + beta each. With a reduce-scatter and an allgather
every core ends with the whole sum.
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import partial
from evaluators.kernels.gemv.partial import place, result
from evaluators.rounds import Cores, Program, Round, Send

__all__ = ["paths", "place", "result", "root", "stages", "steps"]


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one in, one out, and the wrap that passes through."""
    return 3


def stages(side: int) -> int:
    """Software stages on the critical path."""
    return 2 * (side - 1)


def root(mesh: Mesh) -> int:
    """The row that holds the sums; with a ring all do."""
    return 0


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True) -> Program:
    """The program; a ring leaves the sums everywhere, so `broadcast` changes nothing."""
    length = ceil(shape.n / mesh.cols)
    side = mesh.rows
    bounds = np.linspace(0, length, side + 1).round().astype(int)
    row, col = np.arange(side)[:, None], np.arange(mesh.cols)[None, :]
    here, there = Cores(row, col), Cores(np.roll(row, -1, axis=0), col)
    rounds = [partial.product()]
    for combine, lag in (("sum", 0), ("set", -1)):
        for turn in range(side - 1):
            part = (row - turn - lag) % side
            rounds.append(Round((Send("y", here, there, bounds[part], bounds[part + 1], combine=combine, via="core"),)))
    keep = Send("y", here, here, np.asarray(0), np.asarray(length), into="out")
    return Program(side, mesh.cols, partial.slots(shape, mesh, dtype), ((*rounds, Round((keep,))),))
