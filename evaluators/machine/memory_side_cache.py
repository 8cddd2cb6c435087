"""A cache in front of main memory that the tiles of a mesh share, as one of them sees it."""

from typing import Any, NamedTuple

from dse.space.array_math import where
from dse.space.chip import Chip


class MemorySideCache(NamedTuple):
    """An even share of the cache for each tile; leaves broadcast over designs.

    Attributes:
        byte: from it to a tile, all tiles reading at a time. [s/B]
        size: of what it keeps for a tile. [B]
    """

    byte: Any
    size: Any


def memory_side_cache(chip: Chip) -> MemorySideCache | None:
    """The cache of a mesh of tiles with a memory channel each; None where there is none.

    A cache whose share is slower than a tile's channel is left alone: nothing is kept in it.
    """
    if chip.l2 is None:
        return None
    tiles = chip.mesh.rows * chip.mesh.cols
    byte, channel = tiles / chip.l2.bandwidth, 1 / (chip.hbm.channel_bandwidth * chip.hbm.stream_efficiency)
    return MemorySideCache(byte, where(byte < channel, chip.l2.size / tiles, 0.0))
