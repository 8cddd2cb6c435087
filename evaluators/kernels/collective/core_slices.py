"""Slices of collectives among all cores: each core has one slice for, or from, each other core."""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.program.kernel_ir import Tiles
from dse.space.array_math import Array, ceil_div
from dse.space.chip import TOPOLOGIES
from dse.space.errors import DesignError, suggest_nearest
from dse.space.workload import DIE_EXCHANGES


def pattern_stages(pattern: str, topology: str) -> tuple[str, ...]:
    """Stages of a pattern among all cores, in sequence.

    Raises:
        DesignError: no such pattern, or no such topology.
    """
    for name, word, words in (("pattern", pattern, DIE_EXCHANGES), ("topology", topology, TOPOLOGIES)):
        if word not in words:
            raise DesignError(f"{name}: no option {word!r}; {suggest_nearest(word, words)}")
    return ("reduce_scatter", "allgather") if pattern == "allreduce" else (pattern,)


def slice_elements(shape: GemmShape, mesh: CoreMesh) -> Any:
    """Elements of a slice; the last ones are padded. [-]"""
    return ceil_div(shape.m, mesh.rows * mesh.cols)


def scatter_slices(shape: GemmShape, mesh: CoreMesh, x: Array, pattern: str) -> Array:
    """Vectors of all cores, shape (rows, cols, m), as slices of shape (rows, cols, cores, slice).

    An allgather starts with each core's own slice.
    """
    cores, each = mesh.rows * mesh.cols, slice_elements(shape, mesh)
    padded = np.zeros((mesh.rows, mesh.cols, cores * each), x.dtype)
    padded[..., : shape.m] = x
    slices = padded.reshape(mesh.rows, mesh.cols, cores, each)
    own = np.arange(cores).reshape(mesh.rows, mesh.cols, 1) == np.arange(cores)
    return slices * own[..., None] if pattern == "allgather" else slices


def gather_slices(shape: GemmShape, mesh: CoreMesh, tiles: Tiles, slot: str) -> Array:
    """Contents of a buffer of slices on all cores, in order, shape (rows, cols, m)."""
    return tiles[slot].reshape(mesh.rows, mesh.cols, -1)[..., : shape.m]
