"""What the busiest memory channel serves of groups of tiles, and how long two things take that wait for each other."""

from typing import Any

from dse.evaluators.kernels.attention.shape import Cut, Tiling
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.space.elementwise import ceil_div, floor_div, maximum, minimum, remainder

MEET = 8
"""Power by which the times of tiles and of channels meet. Chosen for the least mean distance to events on random attentions
(`python -m tests.agreement.survey`): 5.3 %, as with 6 or 12; with 4 it is 6.0 %."""

AHEAD = 16
"""The same where another head is at work meanwhile; from 8 to 32 the distance stays within 0.1 %."""


def met(tiles: Any, channels: Any, power: int = MEET) -> Any:
    """Time of what keeps tiles busy beside what keeps channels busy: near the longer, 9 or 4 % over it at most. [s]

        t = (tiles ^ p + channels ^ p) ^ (1/p)

    >>> met(1.0, 0.0), round(met(1.0, 1.0), 3), round(met(1.0, 0.5), 4)
    (1.0, 1.091, 1.0005)
    """
    longer = maximum(maximum(tiles, channels), 1e-30)
    share = minimum(tiles, channels) / longer
    return longer * (1 + share**power) ** (1 / power)


def columns(counts: Cut, tiling: Tiling, mesh: Mesh, count: Any) -> Any:
    """Columns of groups that the busiest channel serves at a time, in the mean over turns, the last of which may be part full.

    Args:
        counts, tiling, mesh: items and groups; leaves broadcast over designs.
        count: channels, each below as many columns.
    """
    full, last = busiest(counts.groups, tiling, mesh, count), busiest(left(counts), tiling, mesh, count)
    return full + (last - full) / counts.waves


def busiest(groups: Any, tiling: Tiling, mesh: Mesh, count: Any) -> Any:
    """Columns that the busiest channel serves where so many groups have an item: row by row, from the first column on.

    >>> busiest(4, Tiling(2, 2, 1, 1), Mesh(8, 16), 4), busiest(9, Tiling(2, 2, 1, 1), Mesh(8, 16), 4)
    (4, 6)
    """
    columns_, each = ceil_div(mesh.cols, count), floor_div(mesh.cols, tiling.cols)
    full = floor_div(groups, each)
    return full * columns_ + minimum((groups - full * each) * tiling.cols, columns_)


def rows(tiling: Tiling, mesh: Mesh, count: Any) -> Any:
    """Rows of a group for each of its columns that the busiest channel serves: tiles of the diagonal load their queries.

    >>> rows(Tiling(2, 4, 1, 1), Mesh(8, 8), 1), rows(Tiling(2, 4, 1, 1), Mesh(8, 8), 8)
    (0.5, 1.0)
    """
    columns_ = minimum(ceil_div(mesh.cols, count), tiling.cols)
    return floor_div(tiling.rows, tiling.cols) + minimum(remainder(tiling.rows, tiling.cols), columns_) / columns_


def left(counts: Cut) -> Any:
    """Items of the last turn."""
    return counts.items - (counts.waves - 1) * counts.groups
