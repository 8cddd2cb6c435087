"""Partition of the input's rows: every core has all weights, and nothing is sent."""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import GemmShape, matrix_blocks
from dse.evaluators.kernels.partition.group_placement import GroupRings, group_sides, place_group
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, MultiplyInstruction, Program, Round
from dse.space.array_math import Array, ceil_div

IS_TWO_DIMENSIONAL = False


def values_per_core(shape: GemmShape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
    """Values of input, weights and output on one core, [zhu2025] table 2. [-]"""
    m = ceil_div(shape.m, rings * members)
    return m * shape.k, shape.k * shape.n, m * shape.n


def values_sent(shape: GemmShape, rings: Any, members: Any) -> Any:
    """Values that a core sends during the product. [-]"""
    return 0.0 * rings


def cost(
    shape: GemmShape, placement: str, cores: Any, fabric: MeshFabric, engines: TileEngines, nbytes: float
) -> tuple[Any, Any]:
    """Time of the product of a core's rows, and of its matrix engine. [s], [s]"""
    seconds = engines.product_with_start(ceil_div(shape.m, cores), shape.k, shape.n, nbytes)
    return seconds, seconds


def build_program(shape: GemmShape, placement: str, cores: int, dtype: str = "float32") -> Program:
    """Program of one product on each core, without messages."""
    m = ceil_div(shape.m, cores)
    slots = (Buffer("a", (m, shape.k), dtype), Buffer("w", (shape.k, shape.n), dtype), Buffer("c", (m, shape.n), dtype))
    return Program(*group_sides(placement, cores), slots, ((Round((MultiplyInstruction("a", "w", "c"),)),),))


def scatter_operands(a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
    """Blocks of input and weights of the cores, shape (rows, cols, ...)."""
    group = place_group(placement, cores)
    return {
        "a": scatter_blocks(matrix_blocks(a, cores, 1)[:, 0], group, placement),
        "w": scatter_blocks(np.stack([w] * cores), group, placement),
    }


def gather_result(tiles: dict[str, Array], placement: str, cores: int, shape: GemmShape) -> Array:
    """Product, shape (m, n), whose rows the cores have."""
    return gather_blocks(tiles["c"], place_group(placement, cores)).reshape(-1, shape.n)[: shape.m]


def scatter_blocks(parts: Array, rings: GroupRings, placement: str) -> Array:
    """One block per core, in the order of the group, at the places of the cores."""
    tiles = np.zeros((*group_sides(placement, rings.row.size), *parts.shape[1:]), parts.dtype)
    tiles[rings.row.ravel(), rings.col.ravel()] = parts
    return tiles


def gather_blocks(tiles: Array, rings: GroupRings) -> Array:
    """Blocks of the cores in the order of the group."""
    return tiles[rings.row.ravel(), rings.col.ravel()]
