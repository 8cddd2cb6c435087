"""Division of matrices over a mesh: every core gets equal blocks, padded where sizes do not divide.

A non-square mesh is cut as if it were the square mesh of the least common multiple of its sides ([he2025] section 5.4): K has
that many chunks.
"""

from dataclasses import dataclass
from math import ceil, isqrt, lcm
from typing import Any

import numpy as np

from dse.space.array_math import Array

MAX_CHUNKS = 4096
"""Chunks of K beyond which a non-square mesh is refused: its sides have too little in common."""


@dataclass(frozen=True, slots=True)
class GemmShape:
    """C[m, n] = A[m, k] B[k, n]; whole numbers, or arrays over designs for the analytical model."""

    m: Any
    k: Any
    n: Any


@dataclass(frozen=True, slots=True)
class CoreMesh:
    """Rows and columns of cores; whole numbers, or arrays over designs for the analytical model."""

    rows: Any
    cols: Any

    @property
    def transposed_mesh(self) -> "CoreMesh":
        """The same cores with rows and columns exchanged."""
        return CoreMesh(self.cols, self.rows)

    @property
    def chunks(self) -> Any:
        """Chunks of K: the least common multiple of the sides. [-]"""
        if self.rows is self.cols:
            return self.rows
        if isinstance(self.rows, np.ndarray) or isinstance(self.cols, np.ndarray):
            return np.lcm(np.asarray(self.rows, dtype=np.int64), np.asarray(self.cols, dtype=np.int64))
        return lcm(int(self.rows), int(self.cols))

    @property
    def per_row(self) -> Any:
        """Chunks per row of the mesh. [-]"""
        return self.chunks // self.rows

    @property
    def per_col(self) -> Any:
        """Chunks per column of the mesh. [-]"""
        return self.chunks // self.cols


def matrix_blocks(matrix: Array, rows: int, cols: int) -> Array:
    """Matrix in rows x cols equal blocks, zero-padded, shape (rows, cols, height, width)."""
    height, width = ceil(matrix.shape[0] / rows), ceil(matrix.shape[1] / cols)
    padded = np.zeros((rows * height, cols * width), matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, height, cols, width).swapaxes(1, 2)


def join_blocks(tiles: Array, m: int, n: int) -> Array:
    """Matrix without padding, from blocks of shape (rows, cols, height, width)."""
    rows, cols, height, width = tiles.shape
    return tiles.swapaxes(1, 2).reshape(rows * height, cols * width)[:m, :n]


def core_indices(mesh: CoreMesh) -> tuple[Array, Array]:
    """Row and column numbers of all cores, as arrays that broadcast to the mesh."""
    return np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :]


def near_square(cores: int) -> tuple[int, int]:
    """Rows and columns of the rectangle of `cores` cores nearest to a square, wide rather than high."""
    rows = next(rows for rows in range(isqrt(cores), 0, -1) if cores % rows == 0)
    return rows, cores // rows
