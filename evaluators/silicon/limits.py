"""What a chip cannot be made as: a die beyond the reticle, a clock, main memory beyond the edges, heat."""

from typing import Any

import numpy as np

from dse.evaluators.silicon import area, energy, supply
from dse.evaluators.silicon.whole import at_once
from dse.space.chip import Chip
from dse.space.elementwise import ceil_div, extremes, where
from dse.space.limits import Limit


@at_once
def exceeded(chip: Chip) -> list[Limit]:
    """Limits of silicon that some design does not keep, without what needs are made of.

    Args:
        chip: leaves broadcast over designs.
    """
    return [limit for limit in limits(chip, False) if not extremes(limit.need <= limit.have)[0]]


@at_once
def limits(chip: Chip, itemised: Any = True) -> list[Limit]:
    """Limits of silicon, a die's by what all dies have; none of what is not made, or that a paper's own areas price.

    Args:
        chip: leaves broadcast over designs.
        itemised: also what needs are made of, which takes as long as the rest.
    """
    if chip.die is None or chip.areas is not None:
        return []
    one, own = area.die(chip), chip.die
    whole = area.total(chip)
    count, _ = area.dies(chip, whole)
    most, watts = where(own.wafer, one, own.reticle), energy.design_power(chip)
    blocks = _of_one(chip, count) if itemised else {}
    heat = {name: part / whole for name, part in energy.design_parts(chip).items()} if itemised else {}
    made = [
        Limit("chip.die.reticle", one, most, "mm2", tuple(blocks.items())),
        Limit("chip.clock", chip.clock, supply.fastest(chip), "Hz"),
        Limit("chip.die.cooling", watts / whole, own.cooling, "W/mm2", tuple(heat.items())),
    ]
    if chip.dram is None:
        return made
    needed, edges = area.shore(chip), area.EDGES * one**0.5 * count * own.shore
    sites = {"devices": needed / own.sites, "spare sites": needed - needed / own.sites} if itemised else {}
    return [*made, Limit("chip.die.shore", needed, edges, "mm", tuple(sites.items()))]


def _of_one(chip: Chip, count: Any) -> dict[str, Any]:
    """Area of one of the dies with cores by block. [mm2]"""
    found = area.parts(chip)
    if chip.base is None and not isinstance(count, np.ndarray) and count == 1:
        return found
    above = {name: value for name, value in found.items() if chip.base is None or name not in area.BELOW}
    share = area.die(chip) / sum(above.values())
    return {name: value * share for name, value in above.items()}


def remedy(address: str, chip: Chip) -> str:
    """In words, what to do about a limit of silicon; "" where it is none."""
    if chip.die is None:
        return ""
    if address == "chip.die.reticle":
        whole = area.total(chip)
        return f"{ceil_div(whole, chip.die.reticle):.0f} dies would do: chip.die.dies, or chip.die.wafer=true for a wafer"
    words = {
        "chip.clock": f"the supply that lasts, {chip.technology.most:g} V, is not enough; lower the clock",
        "chip.die.cooling": "lower the clock, or cool better: chip.die.cooling",
        "chip.die.shore": "fewer or faster devices (chip.dram.device), or more dies: chip.die.dies",
    }
    return words.get(address, "")
