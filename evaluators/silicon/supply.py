"""Supply voltage of a clock: what a node's transistors need to switch as fast."""

from typing import Any

import numpy as np

from dse.space.chip import Chip
from dse.space.elementwise import Array, interpolated, where
from dse.space.remember import same
from dse.space.technology import Node

EXPONENT = 1.3
"""Of the alpha-power law: clock ~ (V - threshold)^EXPONENT / V [sakurai1990]."""

POINTS = 512
"""Supplies between which the law is interpolated."""


def volts(chip: Chip) -> Any:
    """Supply at a chip's clock, the lowest at which memories work or more. [V], broadcasts over designs."""
    return interpolated(chip.clock / nominal(chip), *_law(chip.technology))


def nominal(chip: Chip) -> Any:
    """Clock at the node's own supply: what the chip is built for, or as a usual design of its node. [Hz]"""
    return where(chip.die.speed > 0, chip.die.speed, chip.technology.speed)


@same
def _law(tech: Node) -> tuple[Array, Array]:
    """Clocks over the nominal one and the supplies that they need, the lowest at which memories work and more. [1], [V]"""
    supplies = np.linspace(tech.least, MOST * tech.most, POINTS)
    return _relative(supplies, tech), supplies


MOST = 2.0
"""Supplies that are looked at, over the highest that lasts; beyond that a limit refuses a design."""


def fastest(chip: Chip) -> Any:
    """Clock at the highest supply that lasts. [Hz]"""
    return nominal(chip) * _relative(chip.technology.most, chip.technology)


@same
def squared(chip: Chip) -> Any:
    """Energy of an operation over that at the node's own supply. [1], broadcasts over designs."""
    return (volts(chip) / chip.technology.volts) ** 2


def _relative(supply: Any, tech: Node) -> Any:
    """Clock at a supply over that at the node's own."""

    def law(at: Any) -> Any:
        return (at - tech.threshold) ** EXPONENT / at

    return law(supply) / law(tech.volts)
