"""What all GEMVs share: x[k] over the rows of the mesh and replicated along the columns, W[k, n] over both, and one local
product, after which each column of cores holds partial sums of its part of y[n] ([he2025] section 6.2).
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np

from evaluators.kernels.gemm.tiling import Mesh, Shape, blocks
from evaluators.machine.fabric import Fabric
from evaluators.numeric import Tiles
from evaluators.rounds import Activity, Cores, Multicast, Multiply, Reduce, Round, Slot
from space.elementwise import Array, ceil_div, maximum


def slots(shape: Shape, mesh: Mesh, dtype: str) -> tuple[Slot, ...]:
    """x, W, partial sums, and the result."""
    k, n = ceil(shape.k / mesh.rows), ceil(shape.n / mesh.cols)
    return Slot("x", (k,), dtype), Slot("w", (k, n), dtype), Slot("y", (n,), "float32", depth=2), Slot("out", (n,), "float32")


def product() -> Round:
    """The local product of every core."""
    return Round((Multiply("x", "w", "y", "k,kn->n"),))


def columns(mesh: Mesh, rows: Array) -> Cores:
    """The same members, root first, in every column of cores: shape (cols, members)."""
    return Cores(rows[None, :], np.arange(mesh.cols)[:, None])


def reduction(mesh: Mesh, rows: Array, length: int, into: str = "y") -> Reduce:
    """Sums over some rows of every column, at the first of them."""
    return Reduce("y", columns(mesh, rows), np.asarray(0), np.asarray(length), into)


def spread(mesh: Mesh, root: int, length: int) -> Round:
    """The root's sums to its whole column, in the network."""
    others = np.array([root, *(row for row in range(mesh.rows) if row != root)])
    return Round((Multicast("y", columns(mesh, others), np.asarray(0), np.asarray(length), "out"),))


def seconds(shape: Shape, mesh: Mesh, fabric: Fabric, reduction: Any, *, broadcast: bool, root: Any) -> Any:
    """Local product, a reduction, and (with `broadcast`) its result to the whole column.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        reduction: time from the products to the sums at the root. [s]
        broadcast: whether it follows.
        root: row that has the sums.
    """
    k, n = ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    product = fabric.launch + k * n * fabric.mac
    if not broadcast:
        return product + reduction
    away = maximum(root, mesh.rows - 1 - root)
    return product + reduction + fabric.launch + 2 * fabric.ramp + away * fabric.hop + stream(shape, mesh, fabric)


def stream(shape: Shape, mesh: Mesh, fabric: Fabric) -> Any:
    """Time of one core's sums, in single precision, on a link. [s]"""
    return ceil_div(ceil_div(shape.n, mesh.cols) * 4, fabric.word_bytes) * fabric.word


def counted(shape: Shape, mesh: Mesh, sent: Any, hops: Any) -> Activity:
    """What all columns together do.

    Args:
        shape, mesh: as in `seconds`.
        sent: messages of one column, each as long as its sums.
        hops: links that these cross.
    """
    k, n = ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    column = 4.0 * n * mesh.cols
    return Activity(macs=k * n * mesh.rows * mesh.cols, sent_bytes=sent * column, hop_bytes=hops * column)


def by_side(function: Callable[[int], float], rows: Any) -> Any:
    """A count that depends on the number of rows alone, for one mesh or for each of many; each side is worked out once."""
    if not isinstance(rows, np.ndarray):
        return function(int(rows))
    sides, which = np.unique(rows, return_inverse=True)
    return np.array([function(int(side)) for side in sides], dtype=float)[which].reshape(rows.shape)


def place(shape: Shape, mesh: Mesh, x: Array, w: Array) -> Tiles:
    """Operands as tiles."""
    parts = blocks(x[:, None], mesh.rows, 1)[..., 0]
    return {"x": np.broadcast_to(parts, (mesh.rows, mesh.cols, parts.shape[-1])), "w": blocks(w, mesh.rows, mesh.cols)}


def result(shape: Shape, mesh: Mesh, tiles: Tiles) -> Array:
    """What every row of cores holds of y, shape (rows, n); without a broadcast only the root's row is right."""
    return tiles["out"].reshape(mesh.rows, -1)[:, : shape.n]
