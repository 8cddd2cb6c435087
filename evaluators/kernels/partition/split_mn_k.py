"""Partition in two dimensions.

A row of the group divides the inner dimension; a column divides rows of the input and columns of the weights.

In each turn a core multiplies what it has, its row sums the partial outputs, and the weights go on to the next row.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import GemmShape, matrix_blocks
from dse.evaluators.kernels.partition.group_placement import (
    channel_busy_seconds,
    group_sides,
    place_group,
    ring_grid,
    ring_shift_seconds,
)
from dse.evaluators.kernels.partition.input_only import gather_blocks, scatter_blocks
from dse.evaluators.kernels.partition.ring_allreduce import ring_allreduce_rounds
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, MultiplyInstruction, Program, Round, SendInstruction
from dse.space.array_math import Array, ceil_div, maximum, remainder, where

IS_TWO_DIMENSIONAL = True


def values_per_core(shape: GemmShape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
    """Values of input, weights and output on one core; weights are double buffered. [-]"""
    m, k = ceil_div(shape.m, rings), ceil_div(shape.k, members)
    return m * k, 2 * k * ceil_div(shape.n, rings), m * shape.n


def values_sent(shape: GemmShape, rings: Any, members: Any) -> Any:
    """Values that a core sends, for sums and for weights together. [-]

    R x 2 (C - 1) / C x M N / R^2 for the sums, (R - 1) x K N / (C R) for the weights.

    [zhu2025] table 2 prints (R - 1) in front of both, and C^2 in the place of R^2: it counts a turn's sums fewer, and is for
    squares.
    """
    sums = 2 * (members - 1) / members * shape.m * shape.n / rings
    return sums + (rings - 1) * shape.k * shape.n / (members * rings)


def cost(
    shape: GemmShape, placement: str, cores: Any, fabric: MeshFabric, engines: TileEngines, nbytes: float
) -> tuple[Any, Any]:
    """Time of products that overlap the allreduce of the one before, and of products alone. [s], [s]

    Weights come first, through the same ramps.

    The first product waits for nothing, its sums for the weights that come beside it. From then on a turn takes its weights and
    sums, or its product; at the end the last product and the sums before it are side by side, then come its own.
    """
    rings, members = ring_grid(placement, cores, divided=True)
    m, k, n = ceil_div(shape.m, rings), ceil_div(shape.k, members), ceil_div(shape.n, rings)
    product = engines.product_with_start(m, k, n, nbytes)
    slice_, mean = m * ceil_div(n, members) * nbytes, m * n * nbytes / members
    ragged = {"rest": remainder(n, members), "row": m * nbytes, "halves": 2 * rings}
    sums = 2 * (members - 1) * ring_shift_seconds(placement, cores, 1, slice_, fabric, divided=True, mean=mean, **ragged)
    if isinstance(rings, float) and rings == 1:
        return product + sums, product
    tile = k * n * nbytes
    weights = ring_shift_seconds(placement, cores, 0, tile, fabric, divided=True, halves=1)
    behind = (weights if fabric.locked else channel_busy_seconds(placement, cores, 0, tile, fabric, divided=True)) + sums
    first, turn, last = maximum(product, weights), maximum(product, maximum(weights, behind)), maximum(product, sums)
    return where(rings > 1, first + maximum(rings - 2, 0) * turn + last, product) + sums, rings * product


def build_program(shape: GemmShape, placement: str, cores: int, dtype: str = "float32") -> Program:
    """Program of products that overlap shifts of the weights, with an allreduce along each row."""
    group = place_group(placement, cores, divided=True)
    m, k, n = ceil_div(shape.m, group.rings), ceil_div(shape.k, group.members), ceil_div(shape.n, group.rings)
    slots = (
        Buffer("a", (m, k), dtype), Buffer("w", (k, n), dtype, depth=2), Buffer("p", (n, m), dtype, depth=2),
        Buffer("c", (n * group.rings, m), dtype),
    )  # fmt: skip
    rounds: list[Round] = []
    for turn in range(group.rings):
        whole = np.zeros(group.row.shape, int), np.full(group.row.shape, k)
        moving = (group.shift("w", 0, *whole),) if turn + 1 < group.rings else ()
        rounds.append(Round((MultiplyInstruction("a", "w", "p", "mk,kn->nm", combine="set"), *moving)))
        rounds += ring_allreduce_rounds(group, "p", n)
        part = (np.indices(group.row.shape)[0] - turn) % group.rings
        keep = SendInstruction(
            "p", group.cores, group.cores, np.zeros(group.row.shape, int), np.full(group.row.shape, n), at=part * n, into="c"
        )
        rounds.append(Round((keep,)))
    return Program(*group_sides(placement, cores), slots, (tuple(rounds),))


def scatter_operands(a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
    """Blocks of the cores, shape (rows, cols, ...): input by row and depth, weights by depth and row."""
    group = place_group(placement, cores, divided=True)
    inputs = matrix_blocks(a, group.rings, group.members)
    weights = matrix_blocks(w, group.members, group.rings).swapaxes(0, 1)
    return {
        name: scatter_blocks(tiles.reshape(-1, *tiles.shape[2:]), group, placement)
        for name, tiles in (("a", inputs), ("w", weights))
    }


def gather_result(tiles: dict[str, Array], placement: str, cores: int, shape: GemmShape) -> Array:
    """Product, shape (m, n); all members of a row of the group have the same rows."""
    group = place_group(placement, cores, divided=True)
    outputs = gather_blocks(tiles["c"], group).reshape(*group.row.shape, *tiles["c"].shape[2:]).swapaxes(2, 3)
    if not np.allclose(outputs, outputs[:, :1], rtol=1e-4, atol=1e-4):
        raise ValueError("members of a row differ in what the allreduce left")
    return outputs[:, 0].reshape(-1, outputs.shape[-1])[: shape.m, : shape.n]
