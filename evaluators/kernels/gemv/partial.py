"""What all GEMVs share: x[k] over the rows of the mesh and replicated along the columns, W[k, n] over both, and one local
product, after which each column of cores holds partial sums of its part of y[n] ([he2025] section 6.2).
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm.tiling import Mesh, Shape, blocks
from evaluators.numeric import Tiles
from evaluators.rounds import Cores, Multicast, Multiply, Reduce, Round, Slot
from space.elementwise import Array


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


def place(shape: Shape, mesh: Mesh, x: Array, w: Array) -> Tiles:
    """Operands as tiles."""
    parts = blocks(x[:, None], mesh.rows, 1)[..., 0]
    return {"x": np.broadcast_to(parts, (mesh.rows, mesh.cols, parts.shape[-1])), "w": blocks(w, mesh.rows, mesh.cols)}


def result(shape: Shape, mesh: Mesh, tiles: Tiles) -> Array:
    """What every row of cores holds of y, shape (rows, n); without a broadcast only the root's row is right."""
    return tiles["out"].reshape(mesh.rows, -1)[:, : shape.n]
