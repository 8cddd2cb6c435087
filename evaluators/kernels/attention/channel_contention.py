"""Load of the busiest memory channel under groups of tiles, and smooth overlap of two times."""

from typing import Any

from dse.evaluators.kernels.attention.attention_shape import AttentionTiling, BlockCounts
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.space.array_math import ceil_div, floor_div, maximum, minimum, remainder

OVERLAP_POWER = 24
"""Power by which the times of tiles and of channels meet. Chosen for the share of random attentions within 5 % of events
(`python -m tests.agreement.survey --kind attention`), of one seed; 64 is as near in the mean."""

AHEAD = 64
"""The same where another head is at work meanwhile; with 16 the mean distance is as large, and more are beyond 5 %."""


def overlapped_seconds(tiles: Any, channels: Any, power: int = OVERLAP_POWER) -> Any:
    """Time of tile work that overlaps channel work: near the longer of the two, at most 3 or 1 % more. [s]

        t = (tiles ^ p + channels ^ p) ^ (1/p)

    >>> overlapped_seconds(1.0, 0.0), round(overlapped_seconds(1.0, 1.0), 3), round(overlapped_seconds(1.0, 0.9), 4)
    (1.0, 1.029, 1.0032)
    """
    longer = maximum(maximum(tiles, channels), 1e-30)
    share = minimum(tiles, channels) / longer
    return longer * (1 + share**power) ** (1 / power)


def mean_columns_served(counts: BlockCounts, tiling: AttentionTiling, mesh: CoreMesh, count: Any) -> Any:
    """Group columns that the busiest channel serves at a time, mean over waves. [-]

    Args:
        counts, tiling, mesh: items and groups; leaves broadcast over designs.
        count: channels, each below as many columns.
    """
    full, last = (
        max_columns_served(counts.groups, tiling, mesh, count),
        max_columns_served(last_wave_items(counts), tiling, mesh, count),
    )
    return full + (last - full) / counts.waves


def max_columns_served(groups: Any, tiling: AttentionTiling, mesh: CoreMesh, count: Any) -> Any:
    """Columns that the busiest channel serves if `groups` groups have an item, placed row by row. [-]

    >>> (
    ...     max_columns_served(4, AttentionTiling(2, 2, 1, 1), CoreMesh(8, 16), 4),
    ...     max_columns_served(9, AttentionTiling(2, 2, 1, 1), CoreMesh(8, 16), 4),
    ... )
    (4, 6)
    """
    columns_, each = ceil_div(mesh.cols, count), floor_div(mesh.cols, tiling.cols)
    full = floor_div(groups, each)
    return full * columns_ + minimum((groups - full * each) * tiling.cols, columns_)


def diagonal_rows_served(tiling: AttentionTiling, mesh: CoreMesh, count: Any) -> Any:
    """Rows of a group per column of the busiest channel, where diagonal tiles load queries. [-]

    >>> (
    ...     diagonal_rows_served(AttentionTiling(2, 4, 1, 1), CoreMesh(8, 8), 1),
    ...     diagonal_rows_served(AttentionTiling(2, 4, 1, 1), CoreMesh(8, 8), 8),
    ... )
    (0.5, 1.0)
    """
    columns_ = minimum(ceil_div(mesh.cols, count), tiling.cols)
    return floor_div(tiling.rows, tiling.cols) + minimum(remainder(tiling.rows, tiling.cols), columns_) / columns_


def last_wave_items(counts: BlockCounts) -> Any:
    """Items in the last wave of groups. [-]"""
    return counts.items - (counts.waves - 1) * counts.groups
