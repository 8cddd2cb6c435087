"""Links from core to core, and places in lists of cores, for whoever unrolls a program into tasks."""

from typing import Any

import numpy as np

from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.space.array_math import Array


def links_between(row: int, col: int, to_row: int, to_col: int, *, across_first: bool) -> list[tuple[int, int, int]]:
    """Row, column and port of every link from one core to another."""
    across = 0 if to_col > col else 1
    down = 2 if to_row > row else 3
    at_row, at_col = (row, to_col) if across_first else (to_row, col)
    line = [(at_row, c, across) for c in _between(col, to_col)]
    post = [(r, at_col, down) for r in _between(row, to_row)]
    return line + post


def _between(a: int, b: int) -> range:
    return range(a, b, 1 if b > a else -1)


def crossing_seconds(ends: tuple[Array, Array, Array, Array], fabric: MeshFabric) -> Any:
    """Time that messages take for crossings between dies, beside hops; nothing on one die. [s]

    Args:
        ends: rows and columns of sources, and of targets.
        fabric: with the dies of the mesh.
    """
    if not fabric.is_divided:
        return 0.0
    row, col, to_row, to_col = ends
    down = (to_row + fabric.missing_rows) // fabric.die_rows - (row + fabric.missing_rows) // fabric.die_rows
    return (np.abs(down) + np.abs(to_col // fabric.die_cols - col // fabric.die_cols)) * fabric.crossing


def split_by_core(cores: Array) -> list[Array]:
    """Places in order, so that no core comes twice in one of the lists."""
    if len(cores) == 0:
        return []
    counts = np.bincount(cores)
    if counts.max() == 1:
        return [np.arange(len(cores))]
    order = np.argsort(cores, kind="stable")
    counts = counts[counts > 0]
    rank = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    return [np.sort(order[rank == turn]) for turn in range(int(rank.max()) + 1)]
