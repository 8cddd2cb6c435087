"""Channels of main memory on a mesh for readers that play links: their pace by played tables, and the banks behind them."""

from typing import Any, NamedTuple

from dse.evaluators.machine.channels import LONG, Channels, channels, channels_used
from dse.space.chip import Chip
from dse.space.fields import replaced
from dse.space.memory import Memory, behind, peak, refuse

BURST = 4096
"""Bytes of an AXI burst, which crosses no page of so many: what a tile's DMA engine asks for at once ([benz2024])."""

SAME = 1.02
"""Of what a memory's banks move, bandwidth up to which they are a chip's: more is that of a cache in front of them."""


class Behind(NamedTuple):
    """Banks behind each memory channel of a mesh.

    Attributes:
        of: the pseudo-channels of one memory channel, as a memory of its own.
        bandwidth: of a memory channel. [B/s]
        rows: by stream, the name of its tensor, and the row with which the block of each core begins each time that it is
            loaded, shape (times, cores of a step); streams that are not there have a place for each core.
    """

    of: Memory
    bandwidth: float
    rows: Any = ()


def behind_channel(of: Memory, bandwidth: float) -> Behind:
    """Of a memory channel of some bandwidth [B/s]: as many whole pseudo-channels as that is next to.

    Raises:
        DesignError: the memory makes no sense.
    """
    memory = replaced(of, {"stacks": 1, "channels": max(round(float(behind(of, bandwidth))), 1), "pseudo": 1})
    refuse(memory, "chip.hbm.banks")
    return Behind(memory, bandwidth)


def chip_memory(chip: Chip) -> dict[str, Any]:
    """Channels of a chip and the banks behind them, as readers take them.

    No banks where nobody says what they are, or where a cache has a part of what blocks are made of.
    """
    hbm, count, banks = chip.hbm, int(channels_used(chip)), None
    if hbm.banks is not None and hbm.channel_bandwidth * hbm.channels <= SAME * peak(hbm.banks):
        banks = behind_channel(hbm.banks, float(hbm.channel_bandwidth * max(hbm.channels / count, 1.0)))
    return {"memory": chip_channels(chip), "banks": banks}


def chip_channels(chip: Chip) -> Channels:
    """Channels of a chip with their places, for who plays links; what long blocks lose is what tables of their banks say."""
    from dse.evaluators.machine import bank_state  # which compiles, as nobody needs whose memory has no banks

    hbm, count = chip.hbm, int(channels_used(chip))
    share = hbm.achieved
    if hbm.banks is not None:
        share = 1 / bank_state.pace(hbm.banks, behind(hbm.banks, hbm.channel_bandwidth), LONG)
    sides, bandwidth = (int(chip.mesh.rows), int(chip.mesh.cols)), hbm.channel_bandwidth * max(hbm.channels / count, 1.0)
    return channels(hbm.place, count, *sides, float(hbm.latency), float(bandwidth * share), float(hbm.crowded))
