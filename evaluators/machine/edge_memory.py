"""Main memory at an edge of a mesh, for a rectangle of cores; leaves broadcast over designs.

Channels are served independently and spread evenly over the edge; what comes for a core goes up the line of the mesh that it is
on, so that a rectangle has as many links to the edge as it has lines there. Those at work at a time share channels and links.
"""

from typing import Any, NamedTuple

from dse.evaluators.machine.channel_layout import layout_slowdown
from dse.evaluators.machine.memory_channels import LONG_READ
from dse.evaluators.machine.mesh_fabric import ramp_cycles
from dse.space.array_math import maximum, minimum
from dse.space.chip import Chip
from dse.space.dram import pseudo_channels_for_bandwidth
from dse.space.main_memory import main_memory


class EdgeMemory(NamedTuple):
    """Times of a rectangle of cores for bytes from main memory at the edge of its mesh.

    Attributes:
        byte: of a stream to all its cores. [s/B]
        first: from a request to the first word at the farthest core. [s]
        copy: that each core spends on storing its share, for a byte of all cores. [s/B]
        links: that the rectangle's links are busy on average, for a byte over one of them. [s/B]
        hops: links that a byte crosses on its way, on average over the mesh.
    """

    byte: Any
    first: Any
    copy: Any
    links: Any
    hops: Any


def edge_memory(chip: Chip, rows: Any, cols: Any, at_work: Any, reached: Any = None) -> EdgeMemory:
    """Edge memory of a rectangle of rows and columns, where `at_work` rectangles share it.

    Weights lie one after the other, so that a channel has a long stream, of whose bandwidth it gives the share `reached`: None
    for what is said of it and what the formula of its banks says. The slowest of the channels together and of the links between
    the edge and the rectangles at work sets the pace, shared evenly by these.
    """
    memory, noc = main_memory(chip), chip.noc
    along = memory.channel_side in ("south", "north")
    side, own, deep = (chip.mesh.cols, cols, chip.mesh.rows) if along else (chip.mesh.rows, rows, chip.mesh.cols)
    link = noc.word_cycles / (noc.word_bytes * chip.clock)
    lines = minimum(at_work * own, maximum(side // own, 1) * own)
    if reached is None:
        reached = memory.stream_efficiency
        if memory.banks is not None:
            behind_each = pseudo_channels_for_bandwidth(memory.banks, memory.channel_bandwidth)
            reached = reached / layout_slowdown(memory.banks, behind_each, LONG_READ)
    all_channels = memory.channel_bandwidth * reached * memory.contended_efficiency * memory.channels
    byte = maximum(1 / all_channels, link / lines)
    cores = rows * cols
    inside = maximum(2 * (rows * (cols - 1) + cols * (rows - 1)), 1.0)
    first = memory.latency + (2 * ramp_cycles(chip) + deep * noc.hop_cycles) / chip.clock
    return EdgeMemory(
        byte * at_work, first, chip.core.word_copy / (noc.word_bytes * chip.clock) / cores, link / inside, deep / 2
    )
