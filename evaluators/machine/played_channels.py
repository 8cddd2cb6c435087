"""Channels of main memory on a mesh for readers that play links: what they lose to banks is what played tables say."""

from dse.evaluators.machine.channels import LONG, Channels, channels, channels_used
from dse.space.chip import Chip
from dse.space.memory import behind


def chip_channels(chip: Chip) -> Channels:
    """Channels of a chip with their places, for who plays links; what long blocks lose is what tables of their banks say."""
    from dse.evaluators.machine import bank_state  # which compiles, as nobody needs whose memory has no banks

    hbm, count = chip.hbm, int(channels_used(chip))
    share = hbm.achieved
    if hbm.banks is not None:
        share = 1 / bank_state.pace(hbm.banks, behind(hbm.banks, hbm.channel_bandwidth), LONG)
    sides, bandwidth = (int(chip.mesh.rows), int(chip.mesh.cols)), hbm.channel_bandwidth * max(hbm.channels / count, 1.0)
    return channels(hbm.place, count, *sides, float(hbm.latency), float(bandwidth * share), float(hbm.crowded))
