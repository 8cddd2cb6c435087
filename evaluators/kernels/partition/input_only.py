"""Every core has some rows of the input and all weights: nothing is sent."""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import Shape, blocks
from dse.evaluators.kernels.partition.placement import Group, placed, sides
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Multiply, Program, Round, Slot
from dse.space.elementwise import Array, ceil_div

DIVIDED = False


def held(shape: Shape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
    """Values of input, weights and output on one core, [zhu2025] table 2."""
    m = ceil_div(shape.m, rings * members)
    return m * shape.k, shape.k * shape.n, m * shape.n


def moved(shape: Shape, rings: Any, members: Any) -> Any:
    """Values that a core sends."""
    return 0.0 * rings


def cost(shape: Shape, placement: str, cores: Any, fabric: Fabric, engines: Engines, nbytes: float) -> tuple[Any, Any]:
    """The product of a core's rows."""
    seconds = engines.started(ceil_div(shape.m, cores), shape.k, shape.n, nbytes)
    return seconds, seconds


def steps(shape: Shape, placement: str, cores: int, dtype: str = "float32") -> Program:
    """One product."""
    m = ceil_div(shape.m, cores)
    slots = (Slot("a", (m, shape.k), dtype), Slot("w", (shape.k, shape.n), dtype), Slot("c", (m, shape.n), dtype))
    return Program(*sides(placement, cores), slots, ((Round((Multiply("a", "w", "c"),)),),))


def place(a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
    """Tiles of the cores, shape (rows, cols, ...)."""
    of = placed(placement, cores)
    return {"a": spread(blocks(a, cores, 1)[:, 0], of, placement), "w": spread(np.stack([w] * cores), of, placement)}


def result(tiles: dict[str, Array], placement: str, cores: int, shape: Shape) -> Array:
    """The product."""
    return gathered(tiles["c"], placed(placement, cores)).reshape(-1, shape.n)[: shape.m]


def spread(parts: Array, of: Group, placement: str) -> Array:
    """One tile a core, in the order of the group, where the cores are."""
    tiles = np.zeros((*sides(placement, of.row.size), *parts.shape[1:]), parts.dtype)
    tiles[of.row.ravel(), of.col.ravel()] = parts
    return tiles


def gathered(tiles: Array, of: Group) -> Array:
    """Tiles of the cores in the order of the group."""
    return tiles[of.row.ravel(), of.col.ravel()]
