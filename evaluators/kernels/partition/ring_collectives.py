"""Allgather and reduce-scatter around the rings of a group of cores.

Tokens go so to experts that are whole on one core each, and outputs of experts back as sums; keys and values go so to queries
whose rows are divided. In a group of several rings, what a ring has gathered goes on across them; sums go the other way round.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.partition.group_placement import GroupRings, group_sides, place_group, ring_grid, ring_shift_seconds
from dse.evaluators.kernels.partition.ring_allreduce import even_cuts, ring_half_rounds
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, Program, Round
from dse.space.array_math import Array


def ring_seconds(placement: str, cores: Any, nbytes: Any, fabric: MeshFabric) -> Any:
    """Time of an allgather or reduce-scatter of a slice per core, around the rings of a group. [s]

        t = (members - 1) step(slice) + (rings - 1) step(members slice)

    Args:
        placement, cores: of the group; leaves broadcast over designs.
        nbytes: of a slice. [B]
        fabric: network of the mesh.
    """
    rings, members = ring_grid(placement, cores)
    across = (rings - 1) * ring_shift_seconds(placement, cores, 0, members * nbytes, fabric, halves=1)
    return (members - 1) * ring_shift_seconds(placement, cores, 1, nbytes, fabric, halves=1) + across


def allgather_rounds(rings: GroupRings, slot: str, rows: int) -> tuple[Round, ...]:
    """Rounds after which every core has all slices, of `rows` rows each, in the order of the group."""
    along, across = _slices(rings, rows)
    return (*ring_half_rounds(rings, slot, 1, along, "set", 0), *ring_half_rounds(rings, slot, 0, across, "set", 0))


def reduce_scatter_rounds(rings: GroupRings, slot: str, rows: int) -> tuple[Round, ...]:
    """Rounds after which every core has the sum of its own slice of `rows` rows over the group."""
    along, across = _slices(rings, rows)
    return (*ring_half_rounds(rings, slot, 0, across, "sum", -1), *ring_half_rounds(rings, slot, 1, along, "sum", -1))


def ring_program(placement: str, cores: int, nbytes: int, halves: int = 1) -> Program:
    """Program of an allgather of slices of ``x``; with two halves, of a reduce-scatter before it."""
    group = place_group(placement, cores)
    before = reduce_scatter_rounds(group, "x", nbytes) if halves == 2 else ()
    slots = (Buffer("x", (cores * nbytes, 1), "int8", depth=2),)
    return Program(*group_sides(placement, cores), slots, ((*before, *allgather_rounds(group, "x", nbytes)),))


def _slices(rings: GroupRings, rows: int) -> tuple[Array, Array]:
    """Where slices of a core's own ring begin and end, and those of all rings."""
    ring = np.arange(rings.rings)[:, None] * np.ones(rings.row.shape, int)
    ends = ring * rings.members * rows, (ring + 1) * rings.members * rows
    return even_cuts(*ends, rings.members), even_cuts(0 * ring, 0 * ring + rings.row.size * rows, rings.rings)
