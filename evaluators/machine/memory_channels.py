"""Main memory channels of a mesh: their places, and the time of a block.

What a long block loses to banks goes by interleaving: by the formula of `channel_layout`, or by simulated tables where links
are simulated.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.channel_layout import MemoryRequest, layout_slowdown
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.space.array_math import Array, ceil_div, distinct_columns, maximum, minimum
from dse.space.chip import Chip
from dse.space.dram import MemorySystem, check_memory, peak_bandwidth, pseudo_channels_for_bandwidth
from dse.space.fields import replace_leaves
from dse.space.main_memory import MainMemory, main_memory
from dse.space.memoize import memoize_by_identity

LONG_READ = MemoryRequest(1.0, 1048576.0)
"""A block of a tile, as its channel has it: tiles of operands lie one after the other, so that it goes on with the next one."""


BLOCK_BYTES = 4096
"""Bytes of an AXI burst, which crosses no page of so many: what a tile's DMA engine asks for at once ([benz2024])."""

EQUAL_RATIO = 1.02
"""Of what a memory's banks move, bandwidth up to which they are a chip's: more is that of a cache in front of them."""


class ColumnMemory(NamedTuple):
    """Channels below the columns of a mesh, for the analytical model; leaves broadcast over designs.

    Attributes:
        count: number of channels.
        latency: from a request at the channel to its first word. [s]
        byte, crowded: of a block alone, and of one that waits for others. [s/B]
    """

    count: Any
    latency: Any
    byte: Any
    crowded: Any


class MeshChannels(NamedTuple):
    """Memory channels of a mesh, each of which serves blocks in order of request.

    Attributes:
        row, col: of the router that a channel is at, shape (channels,).
        latency: from a request at the channel to its first word. [s]
        byte: of a long block, on the channel. [s/B]
        crowded: of one that finds the channel at work, whose bursts take turns with others'. [s/B]
    """

    row: Array
    col: Array
    latency: float
    byte: float
    crowded: float


class ChannelBanks(NamedTuple):
    """Banks behind each memory channel of a mesh.

    Attributes:
        memory: what they are banks of.
        pseudo: pseudo-channels of a memory channel.
        bandwidth: of a memory channel. [B/s]
        paced: says how the channels serve blocks that are not simulated burst by burst; None for as they are given.
        rows: says, by stream, the name of its tensor, and the row with which the block of each core begins each time that it
            is loaded, shape (times, cores of a step); streams that are not there have a place for each core.
    """

    memory: MemorySystem
    pseudo: int
    bandwidth: float
    paced: Callable[[], MeshChannels] | None = None
    rows: Callable[[], dict[str, tuple[str, Array]]] = dict

    @property
    def channel_memory(self) -> MemorySystem:
        """Pseudo-channels of one memory channel, as a memory of their own."""
        return replace_leaves(self.memory, {"stacks": 1, "channels": self.pseudo, "pseudo": 1})


def banks_of_channel(memory: MemorySystem, bandwidth: float, address: str = "memory") -> ChannelBanks:
    """Banks of a memory channel of some bandwidth [B/s], with the nearest number of pseudo-channels.

    Args:
        memory: what they are banks of.
        bandwidth: of the memory channel. [B/s]
        address: of the memory, for errors.

    Raises:
        DesignError: the memory makes no sense.
    """
    banks = ChannelBanks(memory, max(round(float(pseudo_channels_for_bandwidth(memory, bandwidth))), 1), bandwidth)
    check_memory(banks.channel_memory, address)
    return banks


def mesh_channels(
    place: str, count: int, rows: int, cols: int, latency: float, bandwidth: float, crowded: float = 1.0
) -> MeshChannels:
    """Memory channels of a mesh with their routers.

    Args:
        place: an edge, on which they are spread evenly, or "core": one at each core, row by row, whatever the count.
        count: number of channels.
        rows, cols: sides of the mesh.
        latency: from a request to its first word. [s]
        bandwidth: of one channel, as blocks reach it. [B/s]
        crowded: share of it that is left to blocks that wait for one another. [1]

    >>> mesh_channels("south", 2, 4, 8, 0.0, 1.0)[:2]
    (array([3, 3]), array([2, 6]))
    """
    if place == "core":
        row, col = (axis.ravel() for axis in np.indices((rows, cols)))
    else:
        along = ((2 * np.arange(count) + 1) * (cols if place in ("south", "north") else rows)) // (2 * count)
        edge = np.full(count, {"south": rows - 1, "north": 0, "west": 0, "east": cols - 1}[place])
        row, col = (edge, along) if place in ("south", "north") else (along, edge)
    return MeshChannels(row, col, latency, 1 / bandwidth, 1 / (bandwidth * crowded))


def is_faster_than_banks(memory: MainMemory) -> bool:
    """Whether a memory's stated bandwidth exceeds that of its stated banks.

    Blocks then have a rate, and the banks are not simulated.

    Of many designs, whether those of any do.
    """
    if memory.banks is None:
        return False
    return bool(np.any(memory.channel_bandwidth * memory.stated_channels > EQUAL_RATIO * peak_bandwidth(memory.banks)))


def near_memory(chip: Chip, rows: int) -> Chip:
    """Rows of tiles nearest to a chip's memory, as a chip with their faults.

    Args:
        chip: leaves are numbers.
        rows: how many; the chip itself where that is all.
    """
    away = int(chip.mesh.rows) - rows
    if not away:
        return chip
    first = 0 if main_memory(chip).channel_side == "north" else away * int(chip.mesh.cols)
    nodes = range(first, first + rows * int(chip.mesh.cols))
    parts = [] if chip.faults in (None, "none") else [tuple(map(int, part.split("-"))) for part in chip.faults.split("+")]
    left = ["-".join(str(node - first) for node in part) for part in parts if all(node in nodes for node in part)]
    return replace_leaves(chip, {"mesh.rows": rows} | ({"faults": "+".join(left) or "none"} if parts else {}))


def check_within(memory: MeshChannels | None, rows: int, cols: int) -> None:
    """Refuse memory channels at routers outside a program's mesh, which compiled loops cannot read.

    Raises:
        ValueError: a caller has taken the memory of another mesh.
    """
    if memory is not None and ((np.asarray(memory.row) >= rows).any() or (np.asarray(memory.col) >= cols).any()):
        raise ValueError(f"memory channels at routers beyond the program's mesh of {rows} x {cols}")


def is_on_last_row(memory: MeshChannels | None, rows: int) -> bool:
    """Whether memory channels are along the last row of a program.

    Its rows are then the last ones of its mesh.
    """
    return memory is not None and bool((np.asarray(memory.row) == rows - 1).all())


def channels_used(chip: Chip) -> Any:
    """Channels that a mesh's columns use: one per column at most, over which blocks are spread. [-]"""
    return minimum(main_memory(chip).channels, chip.mesh.cols)


@memoize_by_identity
def column_memory(chip: Chip) -> ColumnMemory:
    """Channels of a chip as blocks reach them, limited by the link up each column."""
    raw = _raw(chip)
    link = port_seconds_per_byte(chip)
    if chip.die_link is None:
        return raw._replace(byte=maximum(raw.byte, link), crowded=maximum(raw.crowded, link))
    fabric = tile_fabric(chip)
    other, most = _columns_on_other_dies(chip.mesh.cols, raw.count, fabric.die_cols)
    columns = ceil_div(chip.mesh.cols, raw.count)
    side = maximum(columns // 2, 1)
    slow, near = link * (fabric.crossing_word / fabric.word), minimum(fabric.die_rows / chip.mesh.rows, 1.0)
    # a block holds the links of its route: those to other dies as long as the slowest of them takes
    mean = link * near + slow * (1 - near)
    link = maximum(link, (mean * side + (slow - mean) * other) / columns)
    latency = raw.latency + 2 * most * fabric.crossing
    return raw._replace(latency=latency, byte=maximum(raw.byte, link), crowded=maximum(raw.crowded, link))


def port_seconds_per_byte(chip: Chip) -> Any:
    """Time per byte of a memory channel's port on its router, which has the rate of one link. [s/B]"""
    return chip.noc.word_cycles / (chip.noc.word_bytes * chip.clock)


def _columns_on_other_dies(cols: Any, count: Any, die_cols: Any) -> tuple[Any, Any]:
    """Columns beside a channel, of those that it serves on one side, that are on other dies; and most crossings to one.

    Of the channel that has most of them.
    """
    if not any(isinstance(side, np.ndarray) for side in (cols, count, die_cols)):
        return _columns_by_channel(float(cols), float(count), float(die_cols))
    sides = np.broadcast_arrays(cols, count, die_cols)
    table = np.stack([side.ravel() for side in sides]).astype(float)
    first, which = distinct_columns(table)
    found_columns = np.array([_columns_by_channel(*kind) for kind in table[:, first].T.tolist()])[which]
    return tuple(found_columns.T.reshape(2, *sides[0].shape))


@lru_cache(maxsize=4096)
def _columns_by_channel(cols: float, count: float, die_cols: float) -> tuple[float, float]:
    column = np.arange(int(cols))
    channel = column * int(count) // int(cols)
    at = mesh_channels("south", int(count), 1, int(cols), 0.0, 1.0).col[channel]
    crossings = np.abs(column // die_cols - at // die_cols)
    sides = np.bincount(2 * channel + (column > at), weights=crossings > 0)
    return float(sides.max()), float(crossings.max())


def read_ahead_seconds_per_byte(chip: Chip) -> Any:
    """Time per byte of a prefetched stream, into a memory-side cache or up all columns. [s/B]"""
    memory = column_memory(chip) if chip.l2 is None else _raw(chip)
    return memory.crowded / memory.count


@memoize_by_identity
def _raw(chip: Chip) -> ColumnMemory:
    memory, count = main_memory(chip), channels_used(chip)
    byte = 1 / (memory.channel_bandwidth * memory.stream_efficiency * maximum(memory.channels / count, 1.0))
    if memory.banks is not None:
        behind_each = pseudo_channels_for_bandwidth(memory.banks, memory.channel_bandwidth)
        byte = byte * layout_slowdown(memory.banks, behind_each, LONG_READ)
    return ColumnMemory(count, memory.latency, byte, byte / memory.contended_efficiency)
