"""Partition of the inner dimension.

Every core has a slice of input and weights; an allreduce sums the outputs.

In turns, columns are multiplied part after part, as many as there are cores, and the sums of one go round beside the product of
the next: [zhu2025] section 4.1 has a ring allreduce in N iterations of the product, N being the cores.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import GemmShape, matrix_blocks
from dse.evaluators.kernels.partition.group_placement import (
    buffered_steps,
    group_sides,
    place_group,
    ring_grid,
    ring_shift_seconds,
)
from dse.evaluators.kernels.partition.input_only import gather_blocks, scatter_blocks
from dse.evaluators.kernels.partition.ktree_allreduce import ktree_rounds, ktree_seconds
from dse.evaluators.kernels.partition.ring_allreduce import allreduce_rounds
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, MultiplyInstruction, Program, Round, SendInstruction
from dse.space.array_math import Array, ceil_div, maximum, remainder, where

IS_TWO_DIMENSIONAL = False


def values_per_core(shape: GemmShape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
    """Values of input, weights and output on one core; the output is whole until it is scattered. [-]"""
    k = ceil_div(shape.k, rings * members)
    return shape.m * k, k * shape.n, shape.m * shape.n


def values_sent(shape: GemmShape, rings: Any, members: Any) -> Any:
    """Values that a core sends: 2 (num - 1) / num x M x N, [zhu2025] table 2. [-]"""
    cores = rings * members
    return 2 * (cores - 1) / cores * shape.m * shape.n


def cost(
    shape: GemmShape, placement: str, cores: Any, fabric: MeshFabric, engines: TileEngines, nbytes: float,
    sums: str = "ring", phases: Any = 1,
) -> tuple[Any, Any]:  # fmt: skip
    """Time of a product and its allreduce, and of the product on a core. [s], [s]

    The allreduce is a reduce-scatter and an allgather along the rings of the group, and across them for a slice; or a K-tree.

    In turns t = product + (turns - 1) max(product, sums) + sums, with product and sums of a part of the columns.
    """
    if sums == "overlapped_ring":
        n = ceil_div(shape.n, cores)
        turns, part = ceil_div(shape.n, n), replace(shape, n=n)
        product = engines.product_with_start(part.m, ceil_div(part.k, cores), n, nbytes)
        added = _allreduce(part, placement, cores, fabric, nbytes, halves=2 * turns)
        return product + (turns - 1) * maximum(product, added) + added, turns * product
    product = engines.product_with_start(shape.m, ceil_div(shape.k, cores), shape.n, nbytes)
    if sums == "ktree":
        return product + ktree_seconds(placement, cores, phases, shape.m * shape.n * nbytes, fabric), product
    return product + _allreduce(shape, placement, cores, fabric, nbytes, divided=sums == "two_level"), product


def _allreduce(
    shape: GemmShape, placement: str, cores: Any, fabric: MeshFabric, nbytes: float, *, divided: bool = False, halves: Any = 2
) -> Any:
    """Sums of what every core has go to all of them: along the rings of the group, and across them for a slice. [s]

    Slices of a single row are all that a core has, so that what comes overwrites what it was.
    """
    rings, members = ring_grid(placement, cores, divided=divided)
    row, slice_ = shape.m * nbytes, ceil_div(shape.n, members)

    def time_rings(axis: int, parts: Any, rows: Any, share: Any) -> Any:
        """All steps along or across rings, of slices of some rows in as many parts, which are a share of all."""
        how: dict[str, Any] = {
            "divided": divided,
            "halves": halves,
            "mean": row * shape.n / share,
            "rest": remainder(shape.n, share),
            "row": row,
        }
        arguments, count = (row * ceil_div(rows, parts), fabric), 2 * (parts - 1)
        in_place = count * ring_shift_seconds(placement, cores, axis, *arguments, **how)
        if not np.any(shape.n == 1):
            return in_place
        return where(shape.n == 1, buffered_steps(placement, cores, axis, count, *arguments, 0.0, **how), in_place)

    return time_rings(1, members, shape.n, members) + time_rings(0, rings, slice_, cores)


def build_program(
    shape: GemmShape, placement: str, cores: int, dtype: str = "float32", sums: str = "ring", phases: int = 1
) -> Program:
    """Program of a product, then an allreduce of its output.

    Output and weights have their columns first, so that they can be cut. In turns, a part of the columns goes at a time; the
    last one takes of those before what it lacks.
    """
    k = ceil_div(shape.k, cores)
    slots = (
        Buffer("a", (shape.m, k), dtype), Buffer("w", (shape.n, k), dtype), Buffer("c", (shape.n, shape.m), dtype, depth=2)
    )  # fmt: skip
    if sums == "overlapped_ring":
        return _in_turns(shape, placement, cores, dtype, slots)
    if sums == "ktree":
        added = ktree_rounds(placement, cores, phases, "c", shape.n)
    else:
        added = allreduce_rounds(place_group(placement, cores, divided=sums == "two_level"), "c", shape.n)
    return Program(
        *group_sides(placement, cores), slots, ((Round((MultiplyInstruction("a", "w", "c", "mk,nk->nm"),)), *added),)
    )


def _in_turns(shape: GemmShape, placement: str, cores: int, dtype: str, slots: tuple[Buffer, ...]) -> Program:
    group, n = place_group(placement, cores), ceil_div(shape.n, cores)
    a, w, c = slots
    buffers = (Buffer("v", (n, a.shape[1]), dtype, depth=2), Buffer("p", (n, shape.m), dtype, depth=2), c._replace(depth=1))
    zero, part = np.zeros(group.row.shape, int), np.full(group.row.shape, n)
    rounds: list[Round] = []
    for turn in range(ceil_div(shape.n, n)):
        start = min(turn * n, shape.n - n)
        rounds.append(
            Round((SendInstruction("w", group.cores, group.cores, zero + start, zero + start + n, at=zero, into="v"),))
        )
        rounds.append(Round((MultiplyInstruction("a", "v", "p", "mk,nk->nm", combine="set"),)))
        rounds += allreduce_rounds(group, "p", n)
        rounds.append(Round((SendInstruction("p", group.cores, group.cores, zero, part, at=zero + start, into="c"),)))
    return Program(*group_sides(placement, cores), (a, w, *buffers), (tuple(rounds),))


def scatter_operands(a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
    """Blocks of input and weights of the cores, shape (rows, cols, ...)."""
    group = place_group(placement, cores)
    return {
        "a": scatter_blocks(matrix_blocks(a, 1, cores)[0], group, placement),
        "w": scatter_blocks(matrix_blocks(w, cores, 1)[:, 0].swapaxes(1, 2), group, placement),
    }


def gather_result(tiles: dict[str, Array], placement: str, cores: int, shape: GemmShape) -> Array:
    """Product, shape (m, n), which every core has."""
    outputs = gather_blocks(tiles["c"], place_group(placement, cores))
    if not np.allclose(outputs, outputs[:1], rtol=1e-4, atol=1e-4):
        raise ValueError("cores differ in what the allreduce left")
    return np.asarray(outputs[0].T)
