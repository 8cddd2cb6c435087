"""Pipeline allreduce: partial sums pass from the farthest core to the root, one software stage a core; then a broadcast.

[he2025] section 6.1 (1): 2 N hops and N routing stages, a constant number of paths.
"""

from functools import partial as bound
from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import partial
from dse.evaluators.kernels.gemv.partial import copies, place, result, slots
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Program, Round
from dse.space.elementwise import where

__all__ = [
    "at_once",
    "copies",
    "cost",
    "line",
    "moved",
    "paths",
    "place",
    "reduction",
    "result",
    "root",
    "slots",
    "stages",
    "steps",
]


def paths(mesh: Mesh, phases: Any = 2) -> Any:
    """Routing paths of a core: the chain, and the broadcast."""
    return 2


def at_once(mesh: Mesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: all of them, set once."""
    return paths(mesh, phases)


def stages(side: int) -> int:
    """Software stages on the critical path."""
    return side - 1


def root(mesh: Mesh) -> int:
    """The row that holds the sums."""
    return 0


def line(side: Any, words: Any, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Any:
    """Time until the root (or with `broadcast` all cores) of a line has the sums.

    The chain of N - 1 software stages, one hop apart, through which the words stream:

        t = (N - 1) (2 ramp + hop + stage) + words

    With stage = hop = 1 cycle this is the chain reduction of [luczynski2024].

    Source:
        [he2025] section 6.1 (1).
    """
    legs = side - 1.0
    chain = where(legs > 0, legs * (2 * fabric.ramp + fabric.hop + fabric.stage) + words * fabric.pace, 0.0)
    return chain + partial.spread_seconds(side, 0, words, fabric) if broadcast else chain


def moved(side: Any, *, broadcast: bool = True, phases: int = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross."""
    legs = side - 1.0
    spread = broadcast * (side > 1)
    return legs + spread, legs + spread * legs


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Cost:
    """Time until the root (or with `broadcast` every row) has the product; leaves broadcast over designs."""
    return partial.cost(
        shape, mesh, fabric, bound(line, broadcast=broadcast), bound(moved, broadcast=broadcast),
        bound(copies, broadcast=broadcast),
    )  # fmt: skip


def reduction(mesh: Mesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum") -> tuple[Round, ...]:
    """``y`` of every column combined into ``out``."""
    chain = Round((partial.reduced(mesh, np.arange(mesh.rows), length, "y" if broadcast else "out", combine),))
    return (chain, partial.spread(mesh, 0, length)) if broadcast else (chain,)


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2) -> Program:
    """The program; without `broadcast` the sums stay at the root."""
    return partial.program(shape, mesh, dtype, reduction(mesh, ceil(shape.n / mesh.cols), broadcast=broadcast))
