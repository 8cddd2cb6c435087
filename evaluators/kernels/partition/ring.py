"""What every core of a group has comes to all of them, or sums of it to their owners, around the rings of the group.

Tokens go so to experts that are whole on one core each, and outputs of experts back as sums; keys and values go so to queries
whose rows are divided. In a group of several rings, what a ring has gathered goes on across them; sums go the other way round.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.partition.placement import Group, grid, placed, sides, step
from dse.evaluators.kernels.partition.sums import cuts, half
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Program, Round, Slot
from dse.space.elementwise import Array


def cost(placement: str, cores: Any, nbytes: Any, fabric: Fabric) -> Any:
    """Time until all cores have a slice of some bytes of each, or each the sum of all others' for its own. [s]

        t = (members - 1) step(slice) + (rings - 1) step(members slice)

    Args:
        placement, cores: of the group; leaves broadcast over designs.
        nbytes: of a slice. [B]
        fabric: the network.
    """
    rings, members = grid(placement, cores)
    across = (rings - 1) * step(placement, cores, 0, members * nbytes, fabric, halves=1)
    return (members - 1) * step(placement, cores, 1, nbytes, fabric, halves=1) + across


def gathered(of: Group, slot: str, rows: int) -> tuple[Round, ...]:
    """Every core ends with all slices, so many rows each in the order of the group, of which it has its own at first."""
    along, across = _slices(of, rows)
    return (*half(of, slot, 1, along, "set", 0), *half(of, slot, 0, across, "set", 0))


def summed(of: Group, slot: str, rows: int) -> tuple[Round, ...]:
    """Every core ends with the sum of its own slice over all of them, so many rows in the order of the group."""
    along, across = _slices(of, rows)
    return (*half(of, slot, 0, across, "sum", -1), *half(of, slot, 1, along, "sum", -1))


def steps(placement: str, cores: int, nbytes: int, halves: int = 1) -> Program:
    """The program: slices of ``x`` come to all cores; with two halves, they are summed before."""
    of = placed(placement, cores)
    before = summed(of, "x", nbytes) if halves == 2 else ()
    slots = (Slot("x", (cores * nbytes, 1), "int8", depth=2),)
    return Program(*sides(placement, cores), slots, ((*before, *gathered(of, "x", nbytes)),))


def _slices(of: Group, rows: int) -> tuple[Array, Array]:
    """Where slices of a core's own ring begin and end, and those of all rings."""
    ring = np.arange(of.rings)[:, None] * np.ones(of.row.shape, int)
    ends = ring * of.members * rows, (ring + 1) * of.members * rows
    return cuts(*ends, of.members), cuts(0 * ring, 0 * ring + of.row.size * rows, of.rings)
