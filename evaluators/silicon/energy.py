"""Energy from what was done and how long it took."""

from typing import Any

from dse.evaluators.program.counts import Activity
from dse.evaluators.silicon import area
from dse.space.chip import Chip
from dse.space.mapping import BYTES

OPERAND = BYTES["bf16"]
"""Bytes of what is multiplied, in the format whose multiply-adds a technology prices."""


def mesh_energy(activity: Activity, chip: Chip, seconds: Any) -> Any:
    """Dynamic energy of an activity, and static of the whole chip meanwhile. [J], broadcasts over designs."""
    tech = chip.technology
    dynamic = (
        activity.macs * tech.mac
        + activity.elements * tech.element
        + activity.sent_bytes * tech.copy
        + activity.hop_bytes * tech.hop
    )
    return dynamic + tech.static * area.mesh_die(chip) * seconds


def tile_energy(activity: Activity, chip: Chip, seconds: Any) -> Any:
    """Dynamic energy of an activity, and static of the whole chip meanwhile. [J], broadcasts over designs."""
    return tile_dynamic(activity, chip) + chip.technology.static * area.tile_die(chip) * seconds


def tile_dynamic(activity: Activity, chip: Chip) -> Any:
    """Energy of what is done, however long it takes. [J], broadcasts over designs.

    A value read from local memory feeds a row or a column of a tile's array. A byte of the cache in front of main memory is one
    more access of a memory of its kind.
    """
    tech, array = chip.technology, chip.tile.matrix
    operands = OPERAND * (1 / array.rows + 1 / array.cols)
    accessed = activity.macs * operands + 2 * (activity.sent_bytes + activity.memory_bytes) + 4 * activity.elements
    accessed = accessed + 3 * activity.cache_bytes
    return (
        activity.macs * tech.mac
        + activity.elements * tech.element
        + accessed * tech.access
        + activity.hop_bytes * tech.hop
        + activity.memory_bytes * tech.hbm
    )
