"""Rounds of an allreduce on the rings of a group of cores."""

import numpy as np

from dse.evaluators.kernels.partition.group_placement import GroupRings
from dse.evaluators.program.kernel_ir import Round
from dse.space.array_math import Array


def allreduce_rounds(rings: GroupRings, slot: str, rows: int) -> tuple[Round, ...]:
    """Rounds after which every core has the sum of the buffer's first `rows` rows over the group.

    Reduce-scatter along the rings, allreduce across them for the slice that each core then has whole, allgather along
    the rings.
    """
    along = even_cuts(np.zeros(rings.row.shape), np.full(rings.row.shape, rows), rings.members)
    mine = (np.indices(rings.row.shape)[1] + 1) % rings.members
    start, stop = (np.take_along_axis(along, (mine + end)[..., None], -1)[..., 0] for end in (0, 1))
    across = even_cuts(start, stop, rings.rings)
    inner = (*ring_half_rounds(rings, slot, 0, across, "sum", 0), *ring_half_rounds(rings, slot, 0, across, "set", 1))
    return (*ring_half_rounds(rings, slot, 1, along, "sum", 0), *inner, *ring_half_rounds(rings, slot, 1, along, "set", 1))


def ring_allreduce_rounds(rings: GroupRings, slot: str, rows: int) -> tuple[Round, ...]:
    """Rounds after which every core has the sum of the buffer's first `rows` rows over its ring."""
    parts = even_cuts(np.zeros(rings.row.shape), np.full(rings.row.shape, rows), rings.members)
    return (*ring_half_rounds(rings, slot, 1, parts, "sum", 0), *ring_half_rounds(rings, slot, 1, parts, "set", 1))


def even_cuts(start: Array, stop: Array, parts: int) -> Array:
    """Bounds of nearly equal parts of ranges of rows, shape (*start.shape, parts + 1)."""
    return (start[..., None] + np.round((stop - start)[..., None] * np.arange(parts + 1) / parts)).astype(int)


def ring_half_rounds(rings: GroupRings, slot: str, axis: int, parts: Array, combine: str, lead: int) -> tuple[Round, ...]:
    """Rounds in which slices travel around the rings of one axis, the first one `lead` places ahead."""
    place, members = np.indices(rings.row.shape)[axis], rings.row.shape[axis]
    turns = []
    for turn in range(members - 1):
        part = (place - turn + lead) % members
        start, stop = (np.take_along_axis(parts, (part + end)[..., None], -1)[..., 0] for end in (0, 1))
        turns.append(Round((rings.shift(slot, axis, start, stop, combine=combine),)))
    return tuple(turns)
