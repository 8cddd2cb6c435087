"""Partition of the input's rows and the weights' columns.

The weights go around, so that every core has each of them once.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import GemmShape, matrix_blocks
from dse.evaluators.kernels.partition.group_placement import GroupRings, buffered_steps, group_sides, place_group, ring_grid
from dse.evaluators.kernels.partition.input_only import gather_blocks, scatter_blocks
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, MultiplyInstruction, Program, Round, SendInstruction
from dse.space.array_math import Array, ceil_div

IS_TWO_DIMENSIONAL = False


def values_per_core(shape: GemmShape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
    """Values of input, weights and output on one core; weights are double buffered, [zhu2025] table 2. [-]"""
    cores = rings * members
    m = ceil_div(shape.m, cores)
    return m * shape.k, 2 * shape.k * ceil_div(shape.n, cores), m * shape.n


def values_sent(shape: GemmShape, rings: Any, members: Any) -> Any:
    """Values that a core sends: (num - 1) / num x K x N, [zhu2025] table 2. [-]"""
    cores = rings * members
    return (cores - 1) / cores * shape.k * shape.n


def cost(
    shape: GemmShape, placement: str, cores: Any, fabric: MeshFabric, engines: TileEngines, nbytes: float
) -> tuple[Any, Any]:
    """Time of products of parts of the weights while the next part comes, and of products alone. [s], [s]"""
    rings, members = ring_grid(placement, cores)
    n = ceil_div(shape.n, cores)
    product = engines.product_with_start(ceil_div(shape.m, cores), shape.k, n, nbytes)
    arguments = (shape.k * n * nbytes, fabric, product)
    along, across = (
        buffered_steps(placement, cores, axis, count - 1, *arguments) for axis, count in ((1, members), (0, rings))
    )
    shifts = rings * along + across
    return shifts + product, cores * product


def build_program(shape: GemmShape, placement: str, cores: int, dtype: str = "float32") -> Program:
    """Program of products with one part of the weights after the other; outputs go to their columns."""
    group, m, n = place_group(placement, cores), ceil_div(shape.m, cores), ceil_div(shape.n, cores)
    slots = (
        Buffer("a", (m, shape.k), dtype), Buffer("w", (shape.k, n), dtype, depth=2), Buffer("p", (n, m), dtype, depth=2),
        Buffer("c", (n * cores, m), dtype),
    )  # fmt: skip
    rounds = []
    for turn, part in enumerate(weight_part_order(group)):
        multiply = MultiplyInstruction("a", "w", "p", "mk,kn->nm", combine="set")
        axis = 1 if (turn + 1) % group.members else 0
        whole = np.zeros(group.row.shape, int), np.full(group.row.shape, shape.k)
        moving = (group.shift("w", axis, *whole),) if turn + 1 < cores else ()
        rounds.append(Round((multiply, *moving)))
        keep = SendInstruction(
            "p", group.cores, group.cores, np.zeros(group.row.shape, int), np.full(group.row.shape, n), at=part * n, into="c"
        )
        rounds.append(Round((keep,)))
    return Program(*group_sides(placement, cores), slots, (tuple(rounds),))


def weight_part_order(rings: GroupRings) -> list[Array]:
    """Part of the weights on each core in each step, shape (rings, members)."""
    now = np.arange(rings.row.size).reshape(rings.row.shape)
    part_order = [now]
    for turn in range(1, rings.row.size):
        now = np.roll(now, 1, 1 if turn % rings.members else 0)
        part_order.append(now)
    return part_order


def scatter_operands(a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
    """Blocks of input and weights of the cores, shape (rows, cols, ...)."""
    group = place_group(placement, cores)
    return {
        "a": scatter_blocks(matrix_blocks(a, cores, 1)[:, 0], group, placement),
        "w": scatter_blocks(matrix_blocks(w, 1, cores)[0], group, placement),
    }


def gather_result(tiles: dict[str, Array], placement: str, cores: int, shape: GemmShape) -> Array:
    """Product, shape (m, n), whose rows the cores have."""
    outputs = gather_blocks(tiles["c"], place_group(placement, cores)).swapaxes(1, 2)
    return outputs.reshape(-1, outputs.shape[-1])[: shape.m, : shape.n]
