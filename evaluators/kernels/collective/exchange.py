"""What collectives among all cores of a mesh, a torus or a full mesh share: each core has a slice for or of each other one."""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.program.rounds import Tiles
from dse.space.chip import TOPOLOGIES
from dse.space.elementwise import Array, ceil_div
from dse.space.errors import DesignError, nearest
from dse.space.workload import EXCHANGES


def parts(pattern: str, topology: str) -> tuple[str, ...]:
    """What a pattern consists of, one after the other.

    Raises:
        DesignError: no such pattern, or no such topology.
    """
    for name, word, words in (("pattern", pattern, EXCHANGES), ("topology", topology, TOPOLOGIES)):
        if word not in words:
            raise DesignError(f"{name}: no option {word!r}; {nearest(word, words)}")
    return ("reduce_scatter", "allgather") if pattern == "allreduce" else (pattern,)


def slice_of(shape: Shape, mesh: Mesh) -> Any:
    """Elements of a slice; the last ones are padded."""
    return ceil_div(shape.m, mesh.rows * mesh.cols)


def place(shape: Shape, mesh: Mesh, x: Array, pattern: str) -> Array:
    """Vectors of all cores, shape (rows, cols, m), in slices: shape (rows, cols, cores, slice).

    An allgather starts with each core's own slice.
    """
    cores, each = mesh.rows * mesh.cols, slice_of(shape, mesh)
    padded = np.zeros((mesh.rows, mesh.cols, cores * each), x.dtype)
    padded[..., : shape.m] = x
    slices = padded.reshape(mesh.rows, mesh.cols, cores, each)
    own = np.arange(cores).reshape(mesh.rows, mesh.cols, 1) == np.arange(cores)
    return slices * own[..., None] if pattern == "allgather" else slices


def result(shape: Shape, mesh: Mesh, tiles: Tiles, slot: str) -> Array:
    """What cores have in a slot of slices in order, shape (rows, cols, m)."""
    return tiles[slot].reshape(mesh.rows, mesh.cols, -1)[..., : shape.m]
