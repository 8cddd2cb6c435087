"""GEMV with ring allreduce: slices travel along each column and back over the wrap, one software stage a core.

[he2025] section 6.1 (2): every partial sum traverses all cores, at 2 alpha + beta each. With a reduce-scatter and an allgather
every core ends with the whole sum.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import partial
from dse.evaluators.kernels.gemv.partial import place, result, slots
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Cores, Program, Round, Send
from dse.space.elementwise import ceil_div, maximum, where

__all__ = ["at_once", "cost", "line", "moved", "paths", "place", "reduction", "result", "root", "slots", "stages", "steps"]


def paths(mesh: Mesh, phases: Any = 2) -> Any:
    """Routing paths of a core: one in, one out, and the wrap that passes through."""
    return 3


def at_once(mesh: Mesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: all of them, set once."""
    return paths(mesh, phases)


def stages(side: int) -> int:
    """Software stages on the critical path."""
    return 2 * (side - 1)


def root(mesh: Mesh) -> int:
    """The row that holds the sums; with a ring all do."""
    return 0


def line(side: Any, words: Any, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Any:
    """Time until all cores of a line have the sums; a ring leaves them everywhere, so `broadcast` changes nothing.

    2 (N - 1) rounds, each a software stage and a message from memory; a slice that goes round twice meets the wrap of N - 1
    hops in each turn:

        t = 2 (N - 1) (post + 2 ramp + stage + words / N) + 2 (2 N - 3) hop

    Source:
        [he2025] section 6.1 (2), [thakur2005].
    """
    rounds = 2.0 * (side - 1)
    slices = maximum(ceil_div(words, side), 1.0) * fabric.pace
    each = fabric.post + 2 * fabric.ramp + fabric.stage + slices
    return where(side > 1, rounds * each + 2 * (2 * side - 3) * fabric.hop, 0.0)


def moved(side: Any, *, broadcast: bool = True, phases: int = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross, in whole vectors."""
    # a round moves one slice of each core: together a whole vector, over N - 1 single hops and one wrap of N - 1
    rounds = 2.0 * (side - 1)
    return rounds, rounds * 2 * (side - 1) / side


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Cost:
    """Time until every row has the product; leaves broadcast over designs."""
    return partial.cost(shape, mesh, fabric, line, moved)


def reduction(mesh: Mesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum") -> tuple[Round, ...]:
    """``y`` of every column combined into ``out``: reduce-scatter, then allgather."""
    side = mesh.rows
    bounds = np.linspace(0, length, side + 1).round().astype(int)
    row, col = np.arange(side)[:, None], np.arange(mesh.cols)[None, :]
    here, there = Cores(row, col), Cores(np.roll(row, -1, axis=0), col)
    rounds = []
    for how, lag in ((combine, 0), ("set", -1)):
        for turn in range(side - 1):
            part = (row - turn - lag) % side
            rounds.append(Round((Send("y", here, there, bounds[part], bounds[part + 1], combine=how, via="core"),)))
    keep = Send("y", here, here, np.asarray(0), np.asarray(length), into="out")
    return (*rounds, Round((keep,)))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2) -> Program:
    """The program; a ring leaves the sums everywhere, so `broadcast` changes nothing."""
    return partial.program(shape, mesh, dtype, reduction(mesh, ceil(shape.n / mesh.cols)))
