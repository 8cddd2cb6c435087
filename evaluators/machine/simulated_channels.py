"""Main memory channels of a mesh for simulators, and the banks behind them.

Their rates come from simulated tables.
"""

from typing import Any

import numpy as np

from dse.evaluators.machine.memory_channels import (
    LONG_READ,
    MeshChannels,
    banks_of_channel,
    channels_used,
    is_faster_than_banks,
    mesh_channels,
    port_seconds_per_byte,
)
from dse.space.chip import Chip
from dse.space.dram import pseudo_channels_for_bandwidth
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.main_memory import MainMemory, main_memory


def simulated_memory(chip: Chip) -> dict[str, Any]:
    """Channels of a chip and the banks behind them, as arguments of simulators.

    No banks if they are unknown, or if a memory-side cache has a part of the blocks.
    """
    memory, count = main_memory(chip), int(channels_used(chip))
    if memory.banks is None or is_faster_than_banks(memory):
        return {"memory": simulated_channels(chip), "banks": None}
    bandwidth = float(memory.channel_bandwidth * max(float(memory.channels / count), 1.0))
    banks = banks_of_channel(memory.banks, bandwidth, f"chip.{memory.banks_part}")
    return {"memory": _channels(chip, 1.0), "banks": banks._replace(paced=lambda: simulated_channels(chip))}


def simulated_channels(chip: Chip) -> MeshChannels:
    """Channels of a chip with their places, for simulators.

    Losses of long blocks come from tables of their banks.
    """
    return _channels(chip, reached_share(main_memory(chip)))


def reached_share(memory: MainMemory) -> Any:
    """Share of a channel's bandwidth that long blocks reach. [-]

    It comes from tables of the banks; without banks it is the memory's own setting.

    Designs are the last axis of leaves that differ.
    """
    if memory.banks is None:
        return memory.stream_efficiency
    from dse.evaluators.machine import bank_tables as bank_state  # which compiles

    banks, behind_each = memory.banks, pseudo_channels_for_bandwidth(memory.banks, memory.channel_bandwidth)
    wide = {name: value for name, value, _ in iterate_leaves(banks) if isinstance(value, np.ndarray)}
    if not wide:
        return 1 / bank_state.request_slowdown(banks, behind_each, LONG_READ)
    count, *columns = np.broadcast_arrays(behind_each, *wide.values())
    settings = ({name: column[at].item() for name, column in zip(wide, columns, strict=True)} for at in np.ndindex(count.shape))
    each = [
        bank_state.request_slowdown(replace_leaves(banks, changes), many, LONG_READ)
        for many, changes in zip(count.ravel(), settings, strict=True)
    ]
    return 1 / np.reshape(each, count.shape)  # memory by memory


def _channels(chip: Chip, share: Any) -> MeshChannels:
    """Channels of a chip of which long blocks have a share of the bandwidth."""
    memory, count = main_memory(chip), int(channels_used(chip))
    sides, bandwidth = (
        (int(chip.mesh.rows), int(chip.mesh.cols)),
        memory.channel_bandwidth * max(float(memory.channels / count), 1.0),
    )
    latency, crowded = float(memory.latency), float(memory.contended_efficiency)
    channels = mesh_channels(memory.channel_side, count, *sides, latency, float(bandwidth * share), crowded)
    port = float(port_seconds_per_byte(chip))
    return channels._replace(byte=max(channels.byte, port), crowded=max(channels.crowded, port))
