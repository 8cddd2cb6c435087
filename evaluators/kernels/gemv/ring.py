"""GEMV with ring allreduce: slices travel along each column and back over the wrap, one software stage a core.

[he2025] section 6.1 (2): every partial sum traverses all cores, at 2 alpha + beta each. With a reduce-scatter and an allgather
every core ends with the whole sum.
"""

from math import ceil

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import partial
from evaluators.kernels.gemv.partial import place, result
from evaluators.machine.fabric import Fabric
from evaluators.rounds import Cores, Program, Round, Send
from space.elementwise import ceil_div, where

__all__ = ["cost", "paths", "place", "result", "root", "stages", "steps"]


def paths(mesh: Mesh) -> int:
    """Routing paths of a core: one in, one out, and the wrap that passes through."""
    return 3


def stages(side: int) -> int:
    """Software stages on the critical path."""
    return 2 * (side - 1)


def root(mesh: Mesh) -> int:
    """The row that holds the sums; with a ring all do."""
    return 0


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, broadcast: bool = True) -> Cost:
    """Time until every row has the product.

    2 (N - 1) rounds, each a software stage; a slice that goes round twice meets the wrap of N - 1 hops in each turn:

        t = 2 (N - 1) (launch + 2 ramp + stage + words / N) + 2 (2 N - 3) hop

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        broadcast: a ring leaves the sums everywhere, so this changes nothing.

    Source:
        [he2025] section 6.1 (2), [thakur2005].
    """
    side = mesh.rows
    slices = ceil_div(ceil_div(ceil_div(shape.n, mesh.cols), side) * 4, fabric.word_bytes) * fabric.word
    rounds = 2.0 * (side - 1)
    reduction = where(
        side > 1, rounds * (fabric.launch + 2 * fabric.ramp + fabric.stage + slices) + 2 * (2 * side - 3) * fabric.hop, 0.0
    )
    seconds = partial.seconds(shape, mesh, fabric, reduction, broadcast=False, root=0)
    # a round moves one slice of each core: together a whole vector, over N - 1 single hops and one wrap of N - 1
    return Cost(seconds, partial.counted(shape, mesh, rounds, rounds * 2 * (side - 1) / side))


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
