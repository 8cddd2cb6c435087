"""Link from one chip of a chain to the next: time and bytes of what a pass sends over it.

The same formula at every fidelity. Ports stand at an edge of the mesh: the way there and from there is that to a neighbouring
region, which layouts price as on one chip.
"""

from typing import Any, NamedTuple

from dse.evaluators.program.activity import Activity
from dse.space.array_math import where
from dse.space.chip import Chip


class ChainCrossing(NamedTuple):
    """What one pass sends from chip to chip; leaves broadcast over designs.

    Attributes:
        count: crossings of a pass: one fewer than chips.
        nbytes: of one crossing. [B]
        seconds: of one crossing, from the first byte sent to the last one received. [s]
        interval: for which one crossing keeps a link busy; 0 where there is none. [s]
    """

    count: Any = 0.0
    nbytes: Any = 0.0
    seconds: Any = 0.0
    interval: Any = 0.0

    @property
    def total_seconds(self) -> Any:
        """Time of all crossings of a pass. [s]"""
        return self.count * self.seconds

    @property
    def activity(self) -> Activity:
        """Bytes of all crossings of a pass, over links between chips."""
        return Activity(boxed_bytes=self.count * self.nbytes)


NO_CROSSING = ChainCrossing()
"""Crossings of a pass that stays on one chip: none."""


def chain_crossing(chip: Chip, nbytes: Any, count: Any) -> ChainCrossing:
    """Crossings of a pass that sends some bytes from each chip of a chain to the next.

    A crossing is stored and forwarded; the latency keeps no link busy, so that passes follow one another at the payload rate:

        t = latency + n / (bandwidth payload_share),    interval = n / (bandwidth payload_share)

    Args:
        chip: with a chain or without.
        nbytes: n, of one crossing. [B]
        count: crossings of a pass; it broadcasts with `nbytes`.

    Returns:
        Crossings, none without a chain.

    Source:
        The linear model of a message's time, start-up and bytes over bandwidth [thakur2005].
    """
    chain = chip.chain
    if chain is None:
        return NO_CROSSING
    busy = nbytes / (chain.bandwidth * chain.payload_share)
    return ChainCrossing(count * 1.0, nbytes, chain.latency + busy, where(count > 0, busy, 0.0))
