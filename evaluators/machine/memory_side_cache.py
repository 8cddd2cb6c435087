"""Memory-side cache that the tiles of a mesh share, as one tile sees it."""

from typing import Any, NamedTuple

from dse.space.array_math import where
from dse.space.chip import Chip
from dse.space.main_memory import main_memory


class MemorySideCache(NamedTuple):
    """Even share of the memory-side cache for each tile; leaves broadcast over designs.

    Attributes:
        byte: from it to a tile, all tiles reading at a time. [s/B]
        size: of what it keeps for a tile. [B]
    """

    byte: Any
    size: Any


def memory_side_cache(chip: Chip) -> MemorySideCache | None:
    """Memory-side cache of a mesh with a memory channel per tile; None if there is none.

    A cache whose share is slower than a tile's channel is left alone: nothing is kept in it.
    """
    if chip.l2 is None:
        return None
    tiles, memory = chip.mesh.rows * chip.mesh.cols, main_memory(chip)
    byte, channel = tiles / chip.l2.bandwidth, 1 / (memory.channel_bandwidth * memory.stream_efficiency)
    return MemorySideCache(byte, where(byte < channel, chip.l2.size / tiles, 0.0))
