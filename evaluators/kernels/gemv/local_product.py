"""Local products and cost that all GEMVs share ([he2025] section 6.2).

x[m, k] lies over the rows of the mesh and is replicated along the columns; W[k, n] lies over both. After one local product
each column of cores holds partial sums of its part of y[m, n].

m is 1 for one request; a batch sends m sums for each column of W through the same line.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, matrix_blocks
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    Tiles,
)
from dse.space.array_math import Array, ceil_div, maximum, where


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: x, W, partial sums, and the result; leaves broadcast over designs."""
    k, n = ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    sums = (n, shape.m)
    return Buffer("x", (k, shape.m), dtype), Buffer("w", (k, n), dtype), Buffer("y", sums, depth=2), Buffer("out", sums)


def local_product() -> Round:
    """Round with the local product of every core."""
    return Round((MultiplyInstruction("x", "w", "y", "km,kn->nm"),))


def gemv_program(shape: GemmShape, mesh: CoreMesh, dtype: str, reduction: tuple[Round, ...]) -> Program:
    """Program of a local product, then a reduction of ``y`` into ``out``."""
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), ((local_product(), *reduction),))


def column_groups(mesh: CoreMesh, rows: Array) -> CoreIndex:
    """Members of a group, root first, in every column of cores, shape (cols, members)."""
    return CoreIndex(rows[None, :], np.arange(mesh.cols)[:, None])


def column_reduction(mesh: CoreMesh, rows: Array, length: int, into: str, combine: str = "sum") -> ReduceInstruction:
    """Instruction that combines ``y`` of some rows of every column at the first of them."""
    return ReduceInstruction("y", column_groups(mesh, rows), np.asarray(0), np.asarray(length), into, combine=combine)


def column_broadcast(mesh: CoreMesh, root: int, length: int) -> Round:
    """Round that sends the root's sums to its whole column, in the network."""
    others = np.array([root, *(row for row in range(mesh.rows) if row != root)])
    return Round((MulticastInstruction("y", column_groups(mesh, others), np.asarray(0), np.asarray(length), "out"),))


def broadcast_seconds(side: Any, root: Any, words: Any, fabric: MeshFabric) -> Any:
    """Time of a multicast from a line's root to its ends. [s]"""
    away = maximum(root, side - 1 - root)
    seconds = fabric.post + 2 * fabric.ramp + away * fabric.hop + words * fabric.pace
    return where(side > 1, seconds, 0.0)


def extra_deliveries(side: Any, *, broadcast: bool = True) -> Any:
    """Messages received beyond those sent: the broadcast of the root's sums to all other cores. [-]"""
    return where(side > 1, side - 2.0, 0.0) if broadcast else 0.0


def gemv_cost(
    shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, line: Callable[[Any, Any, MeshFabric], Any],
    moved: Callable[[Any], tuple[Any, Any]], copied: Callable[[Any], Any] = lambda side: 0.0,
) -> KernelCost:  # fmt: skip
    """Time [s] and activity of a local product and its reduction along every column.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        line: time of the reduction of some words along a line of some cores.
        moved: messages along such a line, each as long as the sums, and links that these cross.
        copied: messages that come to cores beyond those that leave them.
    """
    k, n = ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    macs = shape.m * k * n
    product = fabric.launch + macs / maximum(n, shape.m) * fabric.call + macs * fabric.mac
    sums = 4.0 * n * shape.m
    sent, hops = moved(mesh.rows)
    all_of = sums * mesh.cols
    spread = copied(mesh.rows) * all_of
    activity = Activity(macs * mesh.rows * mesh.cols, sent * all_of, hops * all_of, spread_bytes=spread)
    return KernelCost(product + line(mesh.rows, ceil_div(sums, fabric.word_bytes), fabric), activity)


def scatter_operands(shape: GemmShape, mesh: CoreMesh, x: Array, w: Array) -> Tiles:
    """Operands x[m, k] and W[k, n] as blocks of the cores."""
    parts = matrix_blocks(x.T, mesh.rows, 1)[:, 0]
    return {
        "x": np.broadcast_to(parts[:, None], (mesh.rows, mesh.cols, *parts.shape[1:])),
        "w": matrix_blocks(w, mesh.rows, mesh.cols),
    }


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles) -> Array:
    """Product y on every row of cores, shape (rows, m, n); without broadcast valid on the root's row."""
    out = tiles["out"]
    return out.reshape(mesh.rows, -1, shape.m)[:, : shape.n].swapaxes(1, 2)
