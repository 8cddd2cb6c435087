"""Manufacturing limits of a chip: reticle, clock, die edge for memory, and power density."""

from typing import Any

import numpy as np

from dse.evaluators.silicon import area, energy
from dse.evaluators.silicon import supply_voltage as supply
from dse.evaluators.silicon.chip_batches import computed_per_batch
from dse.evaluators.silicon.core_repair import has_stated_breaks, row_repair
from dse.evaluators.silicon.die_division import die_grid, has_set_sides
from dse.space.array_math import ceil_div, extremes, maximum, minimum, remainder, where
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.limits import Limit
from dse.space.main_memory import main_memory, memory_devices
from dse.space.published import is_said


@computed_per_batch
def exceeded_limits(chip: Chip) -> list[Limit]:
    """Violated manufacturing limits, without the items of their needs.

    Args:
        chip: leaves broadcast over designs.
    """
    return [Limit(*bound) for bound in _bounds(chip) if not extremes(bound[1] <= bound[2])[0]]


@computed_per_batch
def silicon_limits(chip: Chip) -> list[Limit]:
    """Manufacturing limits with their items; none for parts without a process node.

    Args:
        chip: leaves broadcast over designs.
    """
    bounds = _bounds(chip)
    if not bounds:
        return []
    whole = area.total_area(chip)
    parts = {
        "chip.die.reticle": _of_one(chip, area.die_counts(chip, whole)[0]),
        "chip.die.max_power_density": {name: part / whole for name, part in energy.design_power_by_part(chip).items()},
    }
    if memory_devices(chip) is not None:
        tiers = {} if chip.tiers is None else {"memory tiers": area.tier_edge_length(chip)}
        needed = area.memory_edge_length(chip) - sum(tiers.values())
        devices = needed / chip.die.built_memory_ratio
        parts["chip.die.memory_edge_share"] = {"devices": devices, "spare sites": needed - devices, **tiers}
    return [Limit(*bound, tuple(parts.get(bound[0], {}).items())) for bound in bounds]


def lenient_limits(smallest: Chip, largest: Chip) -> list[Limit]:
    """Manufacturing limits of all chips between two at once: what one violates, none of them keeps.

    Power is that of the smallest chip, on the area of the largest; devices of memory are those of the smallest, on its edges.
    Reticle and edges bind only a set number of dies: else there are as many dies as keep them.

    Args:
        smallest, largest: chips, of which the first has no more of anything than the second; leaves broadcast over designs.
    """
    own = smallest.die
    if own is None or smallest.areas is not None:
        return []
    density = energy.peak_design_power(smallest) / area.total_area(largest)
    limits = [
        Limit("chip.clock", smallest.clock, supply.maximum_clock(smallest), "Hz"),
        Limit("chip.die.max_power_density", density, own.max_power_density, "W/mm2"),
    ]
    if isinstance(own.dies, np.ndarray) or own.dies == 0:
        return limits
    if own.is_wafer is False:
        limits.append(Limit("chip.die.reticle", area.die_area(smallest), own.reticle, "mm2"))
    if memory_devices(smallest) is None or smallest.die_link is not None:
        return limits
    edges = area.EDGES * area.die_area(largest) ** 0.5 * own.dies * own.memory_edge_share
    return [*limits, Limit("chip.die.memory_edge_share", area.memory_edge_length(smallest), edges, "mm")]


def _bounds(chip: Chip) -> list[tuple[str, Any, Any, str]]:
    """Of each limit, its address, need, what there is, and the unit of both; a part that is sold keeps those of its facts."""
    if chip.die is None or chip.areas is not None:
        return []
    die_area, own, whole = area.die_area(chip), chip.die, area.total_area(chip)
    sold = is_said(chip, "die_area") and area.is_as_sold(chip)
    rated = is_said(chip, "tdp") and energy.is_as_rated(chip)
    density = energy.peak_design_power(chip) / whole
    made = [
        (
            "chip.die.reticle",
            die_area,
            where(own.is_wafer, die_area, where(sold, maximum(die_area, own.reticle), own.reticle)),
            "mm2",
        ),
        ("chip.clock", chip.clock, supply.maximum_clock(chip), "Hz"),
        (
            "chip.die.max_power_density",
            density,
            where(rated, maximum(density, own.max_power_density), own.max_power_density),
            "W/mm2",
        ),
    ]
    if chip.die_link is not None:
        made += _division_bounds(chip, whole)
    if has_stated_breaks(chip):
        used, repair = chip.mesh.rows * chip.mesh.cols, row_repair(chip)
        needed = used + chip.mesh.rows * repair.needed
        made += [
            ("chip.die.built_cores", needed, maximum(own.built_cores, used), "1"),
            ("chip.die.dies", area.die_counts(chip, whole)[0], 1.0, "1"),
        ]
    devices = memory_devices(chip)
    if devices is None:
        return made
    if devices.footprint is not None:
        made.append((FOOTPRINT, area.memory_device_count(chip) * devices.footprint, whole, "mm2"))
    edges = area.EDGES * die_area**0.5 * area.die_counts(chip, whole)[0] * own.memory_edge_share
    if chip.die_link is not None:  # edges between dies are for their links
        edges = 2 * (chip.mesh.rows + chip.mesh.cols) * _tile_edge(chip, whole) * own.memory_edge_share
    shore = area.memory_edge_length(chip)
    return [*made, ("chip.die.memory_edge_share", shore, where(sold, maximum(shore, edges), edges), "mm")]


FOOTPRINT = "chip.dram.footprint"
"""Limit of main memory that is stacked above the dies: it is no larger than they are."""


def _division_bounds(chip: Chip, whole: Any) -> list[tuple[str, Any, Any, str]]:
    """Limits of the dies of a mesh: they divide it, and links between them fit the edges."""
    link, dies = area.divide_mesh(chip).die_link, area.die_counts(chip, whole)[0]
    made = (chip.mesh.rows / link.die_rows) * (chip.mesh.cols / link.die_cols)
    even = (remainder(chip.mesh.rows, link.die_rows) == 0) & (remainder(chip.mesh.cols, link.die_cols) == 0)
    most = link.edge_bandwidth * _tile_edge(chip, whole)
    return [
        ("chip.die.dies", maximum(dies, made), where(even, minimum(dies, made), 0.0), "1"),
        ("chip.die_link.link_bandwidth", link.link_bandwidth, most, "B/s"),
    ]


def _tile_edge(chip: Chip, whole: Any) -> Any:
    """Edge of a tile on dies of an area [mm2], with its share of what else is there. [mm]"""
    return (whole / (chip.mesh.rows * chip.mesh.cols)) ** 0.5


def _of_one(chip: Chip, count: Any) -> dict[str, Any]:
    """Area of one of the dies with cores by block. [mm2]"""
    found_area = area.area_by_block(chip)
    if chip.base is None and not isinstance(count, np.ndarray) and count == 1:
        return found_area
    above = {name: value for name, value in found_area.items() if chip.base is None or name not in area.BASE_DIE_BLOCKS}
    share = area.die_area(chip) / sum(above.values())
    return {name: value * share for name, value in above.items()}


MOST_DIES = 16
"""Numbers of dies up to which a message says which divide a mesh."""


def advice_text(address: str, chip: Chip) -> str:
    """What to change where a manufacturing limit is violated, as text; empty string for other limits."""
    if chip.die is None:
        return ""
    if address == "chip.die.reticle":
        whole = area.total_area(chip)
        return f"use {ceil_div(whole, chip.die.reticle):.0f} dies: chip.die.dies, or chip.die.is_wafer=true for a wafer"
    if address == "chip.die.memory_edge_share":
        devices = f"chip.{main_memory(chip).devices_part}.device_bandwidth"
        behind = "" if chip.tiers is None else ", a tier behind lanes (chip.tiers.second.attachment=lanes)"
        return f"use fewer or faster devices ({devices}){behind}, or more dies: chip.die.dies"
    if address == FOOTPRINT:
        memory = main_memory(chip)
        return (
            f"stack less above the dies: lower {memory.address('capacity')} or its bandwidth, or have more dies: chip.die.dies"
        )
    if address == "chip.die.built_cores":
        cores = repairing_cores(chip)
        more = f"build {cores} cores: chip.die.built_cores={cores}, or " if cores else ""
        return f"{more}lower chip.die.broken_density"
    if address == "chip.die.dies" and has_stated_breaks(chip):
        return "broken cores are replaced within one die: set chip.die.dies=1, or leave out chip.die.broken_density"
    if address == "chip.die.dies":
        rows, cols = int(chip.mesh.rows), int(chip.mesh.cols)
        if chip.die_link is not None and has_set_sides(chip):
            return (
                f"sides that are set, chip.die_link.die_rows and chip.die_link.die_cols, must divide the {rows} x {cols} "
                "mesh into as many; set both to 0 to have them chosen"
            )
        fits = [count for count in range(1, MOST_DIES + 1) if die_grid(rows, cols, count)]
        return (
            f"equal dies divide the {rows} x {cols} mesh as {', '.join(map(str, fits))} (up to {MOST_DIES}); set one of these"
        )
    if address == "chip.die_link.link_bandwidth":
        return "lower it, set 0 for the share of the die edge, or use a denser link: +die_link@chip.die_link=ucie_advanced"
    most = chip.technology.max_voltage
    words = {
        "chip.clock": (f"the highest lasting supply, {most:g} V, is too low for the clock; lower chip.clock{_deeper(chip)}"),
        "chip.die.max_power_density": "lower the clock, or improve the cooling: chip.die.max_power_density",
    }
    return words.get(address, "")


def repairing_cores(chip: Chip) -> int:
    """Fewest cores to build on a mesh so that most chips can be repaired, in whole columns of spare cores.

    0 where that takes more spare cores than there are others.
    """
    rows, cols = int(chip.mesh.rows), int(chip.mesh.cols)
    needed = int(extremes(row_repair(chip).needed)[1])
    while needed <= cols:  # more cores are broken where more are built
        built = rows * (cols + needed)
        enough = int(extremes(row_repair(replace_leaves(chip, {"die.built_cores": built})).needed)[1])
        if enough <= needed:
            return built
        needed = enough
    return 0


def _deeper(chip: Chip) -> str:
    """What else makes a clock possible: more pipeline registers, where elements have fewer than a usual design."""
    return ", or set more pipeline registers: chip.tile.matrix.depth" if supply.is_shallow(chip) else ""
