"""Division of a mesh of tiles into dies: their sides, and what links between them carry.

Dies are equal rectangles, as near to square as their number allows. Tiles are square and equally far apart on all dies, so that
each link of the mesh has a die edge as long as its tile.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from dse.space.array_math import distinct_columns, minimum, where
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.technology import DieCrossings
from dse.space.units import format_quantity


@lru_cache(maxsize=4096)
def die_grid(rows: int, cols: int, dies: int) -> tuple[int, int] | None:
    """Rows and columns of equal dies on a mesh, nearest to squares of cores; None if none divide it.

    >>> die_grid(32, 32, 4), die_grid(32, 32, 2), die_grid(16, 64, 4), die_grid(32, 32, 3)
    ((2, 2), (1, 2), (1, 4), None)
    """
    grids = [(down, dies // down) for down in range(1, dies + 1) if not (dies % down or rows % down or cols % (dies // down))]
    sides = {(down, across): (rows / down, cols / across) for down, across in grids}
    return min(grids, key=lambda grid: max(sides[grid]) / min(sides[grid]), default=None)


@lru_cache(maxsize=4096)
def fitting_dies(rows: int, cols: int, dies: int) -> int:
    """Largest number of dies up to a given one that divides a mesh. [1]

    >>> [fitting_dies(32, 32, dies) for dies in (1, 3, 4, 7)]
    [1, 2, 4, 4]
    """
    return next(count for count in range(dies, 0, -1) if die_grid(rows, cols, count))


def divided_link(chip: Chip, dies: Any, tile_edge: Any) -> DieCrossings:
    """Return the die crossings of a mesh with the sides of dies and the bandwidth of a link.

    Leaves broadcast over designs.

    A link carries its share of the die edge, and no more than the network on chip does. Leaves that are set stay. A number of
    dies that does not divide the mesh is replaced by the next lower one that does (`manufacturing_limits` refuses it).

    Args:
        chip: a mesh of tiles with die crossings.
        dies: into which it is divided.
        tile_edge: distance of two tiles. [mm]
    """
    link, mesh, noc = chip.die_link, chip.mesh, chip.noc
    down, across = _grids(mesh.rows, mesh.cols, dies)
    share = minimum(link.edge_bandwidth * tile_edge, noc.word_bytes / noc.word_cycles * chip.clock)
    changes = {
        "die_rows": where(link.die_rows > 0, link.die_rows, mesh.rows / down),
        "die_cols": where(link.die_cols > 0, link.die_cols, mesh.cols / across),
        "link_bandwidth": where(link.link_bandwidth > 0, link.link_bandwidth, share),
    }
    divided: DieCrossings = replace_leaves(link, changes)
    return divided


def is_divided(link: DieCrossings) -> bool:
    """Whether the sides of the dies and the bandwidth of a link are known for all designs."""
    return bool(min(np.min(link.die_rows), np.min(link.die_cols), np.min(link.link_bandwidth)) > 0)


def has_set_sides(chip: Chip) -> bool:
    """Whether the sides of dies are others than those that their number has by itself, of one design."""
    rows, cols, link = int(chip.mesh.rows), int(chip.mesh.cols), chip.die_link
    grid = die_grid(rows, cols, fitting_dies(rows, cols, max(1, int(chip.die.dies))))
    assert grid is not None
    return any(
        side not in (0, whole / count)
        for side, whole, count in zip((link.die_rows, link.die_cols), (rows, cols), grid, strict=True)
    )


def crossing_links(chip: Chip, link: DieCrossings) -> Any:
    """Links of a mesh that lead from die to die, each counted once; broadcasts over designs. [1]"""
    rows, cols = chip.mesh.rows, chip.mesh.cols
    return rows * (cols / link.die_cols - 1) + cols * (rows / link.die_rows - 1)


def describe_division(chip: Chip, link: DieCrossings) -> str:
    """Text on the dies of a mesh and the links between them; empty string for one die."""
    count = int(crossing_links(chip, link))
    if not count:
        return ""
    down, across = chip.mesh.rows / link.die_rows, chip.mesh.cols / link.die_cols
    inside = chip.noc.word_bytes / chip.noc.word_cycles * chip.clock
    rate, whole = (format_quantity(float(value), "B/s") for value in (link.link_bandwidth, inside))
    dies = f"{down:.0f} x {across:.0f} dies of {link.die_rows:.0f} x {link.die_cols:.0f} tiles"
    more = format_quantity(float(link.latency), "s")
    return f"{dies}; {count} links between them of {rate}, and {more} more a crossing (on a die {whole})"


def _grids(rows: Any, cols: Any, dies: Any) -> tuple[Any, Any]:
    """Rows and columns of dies for each design."""
    if not any(isinstance(side, np.ndarray) for side in (rows, cols, dies)):
        return _grid(int(rows), int(cols), int(dies))
    sides = np.broadcast_arrays(rows, cols, dies)
    table = np.stack([side.ravel() for side in sides]).astype(float)
    first, which = distinct_columns(table)
    grids = np.array([_grid(*map(int, kind)) for kind in table[:, first].T.tolist()], float)[which]
    return tuple(grids.T.reshape(2, *sides[0].shape))


def _grid(rows: int, cols: int, dies: int) -> tuple[int, int]:
    return die_grid(rows, cols, fitting_dies(rows, cols, dies)) or (1, 1)
