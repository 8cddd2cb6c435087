"""Energy and power of a chip: dynamic at the supply voltage of its clock, and static."""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon import area
from dse.evaluators.silicon import link_wiring as links
from dse.evaluators.silicon import supply_voltage as supply
from dse.evaluators.silicon.chip_batches import computed_per_batch
from dse.evaluators.silicon.die_division import crossing_links
from dse.space.array_math import map_distinct, maximum, sum_nonzero, where
from dse.space.chip import Chip, decode_only_chip
from dse.space.design import Design
from dse.space.main_memory import has_main_memory, main_memory, memory_devices
from dse.space.memory_tiers import prefix_tier, tier_device_count, tier_energy_per_byte, tiers_of
from dse.space.published import given_part, is_near, is_said, remove_published_facts, without_tiers

WORD = 2.0
"""Bytes of the values to which a process node's energies refer; others scale with their size. [B]"""

SMALL, GROWTH = 32 * 1024.0, 0.144
"""Local memory whose bytes a node prices [B], and how the energy of a byte grows with its size: 8.5 pJ for 64 bits of 32 KiB,
14 pJ of 1 MiB [jouppi2021]."""

PITCH, WIRES = 1.0, 0.5
"""Distance of the tiles between which a node's energy of a hop was measured [mm], and the share of it that wires take: tiles of
nine cores and 128 KiB at 12 nm [fischer2025] are some square millimetre, and a millimetre of wire whose bits change one time in
four takes 0.08 of the 0.15 pJ a byte (both assumed; repeated wires of a node of 7 nm take 0.04 pJ a bit and mm). [1]"""

PASSES = 3.0
"""Operands that a multiply-add of a core of a mesh reads and writes: two and the sum; those of an array serve several. [1]"""


class PooledActivity(NamedTuple):
    """Activity of a shared-cache die; leaves broadcast over designs.

    Attributes:
        macs, operands: multiply-adds, and over all of them the bytes of the wider operand, as it is multiplied. [1], [B]
        elements: operations on elements.
        memory_bytes, shared_bytes: of main memory, and of the shared cache. [B]
        linked_bytes: sent to other dies, times the links that they cross. [B]
        tier_energy: of bytes of memory tiers. [J]
    """

    macs: Any = 0.0
    operands: Any = 0.0
    elements: Any = 0.0
    memory_bytes: Any = 0.0
    shared_bytes: Any = 0.0
    linked_bytes: Any = 0.0
    tier_energy: Any = 0.0

    def plus(self, other: "PooledActivity") -> "PooledActivity":
        """Sum of two activities, field by field."""
        return PooledActivity(*(a + b for a, b in zip(self, other, strict=True)))

    def total_activity(self) -> "PooledActivity":
        """Activity summed over all steps."""
        return PooledActivity(*(float(np.sum(value)) for value in self))

    def times(self, count: Any) -> "PooledActivity":
        """Activity multiplied by a count."""
        return PooledActivity(*(value * count for value in self))


def dynamic_energy(activity: Activity, chip: Chip, width: float = WORD) -> Any:
    """Dynamic energy of a mesh's activity; broadcasts over designs. [J]

    A sent byte is read from a local memory, and written to that of each receiving core. A byte from main memory, or
    from the cache in front of it, is written to a local memory, or read there on its way out; the user reads it
    again. A value read from local memory feeds a row or a column of a tile's array. A core of a wafer mesh reads
    both operands and a sum, and writes the sum, once for as many multiply-adds as its engine has per operand.

    Args:
        activity: counts; leaves broadcast over designs.
        chip: a mesh.
        width: bytes of the values that are multiplied and computed. [B]
    """
    tech, byte = chip.technology, _local(chip)
    stored = 2 * activity.sent_bytes + activity.spread_bytes + activity.memory_bytes + activity.cache_bytes
    on_chip = (
        activity.macs * _product(chip, width)
        + activity.elements * (tech.element + 2 * width * byte)
        + stored * byte
        + activity.hop_bytes * hop(chip)
        + activity.cache_bytes * tech.shared
    )
    energy = on_chip * supply.relative_energy(chip)
    if chip.d2d is not None:
        energy = energy + activity.linked_bytes * links.die_wiring(chip).mean * _near(chip)
    if chip.nodes is not None or chip.chain is not None:
        energy = energy + activity.boxed_bytes * chip_link_energy_per_byte(chip)
    if chip.die_link is not None:
        energy = energy + activity.hop_bytes * _crossing_share(chip) * chip.die_link.energy_per_byte
    devices = memory_devices(chip)
    return energy if devices is None else energy + activity.memory_bytes * devices.energy_per_byte


@computed_per_batch
def _crossing_share(chip: Chip) -> Any:
    """Share of the links of a mesh that lead from die to die; broadcasts over designs. [1]

    Bytes cross dies in the same share of their hops where they go along whole rows or columns, or to an edge; where groups of
    tiles are smaller than a die, fewer do.
    """
    rows, cols = chip.mesh.rows, chip.mesh.cols
    return crossing_links(chip, area.divide_mesh(chip).die_link) / maximum(rows * (cols - 1) + cols * (rows - 1), 1)


def _product(chip: Chip, width: float) -> Any:
    """Energy of a multiply-add on a mesh with its operands, at the node's own supply. [J], broadcasts over designs."""
    tile = chip.tile
    operands = PASSES / chip.die.operand_reuse if tile is None else 1 / tile.matrix.rows + 1 / tile.matrix.cols
    return chip.technology.mac * (width / WORD) + width * operands * _local(chip)


@computed_per_batch
def _local(chip: Chip) -> Any:
    """Energy of a byte of a core's local memory on a mesh, at the node's own supply. [J/B], broadcasts over designs."""
    return sram_energy_per_byte(chip.technology.access, chip.core.sram if chip.tile is None else chip.tile.sram)


def pooled_dynamic_energy(activity: PooledActivity, chip: Chip) -> Any:
    """Dynamic energy of a shared-cache die's activity; broadcasts over designs. [J]"""
    tech, own = chip.technology, chip.die
    operands, nothing = activity.operands, not isinstance(activity.operands, np.ndarray) and activity.operands == 0
    multiplied = (
        0.0
        if nothing
        else operands * (tech.mac / WORD + 2 / own.operand_reuse * sram_energy_per_byte(tech.access, own.l1_size))
    )
    on_chip = sum_nonzero((multiplied, activity.elements * tech.element, activity.shared_bytes * tech.shared))
    outside = sum_nonzero(
        (
            activity.memory_bytes * memory_devices(chip).energy_per_byte,
            activity.linked_bytes * chip_link_energy_per_byte(chip),
            activity.tier_energy,
        )
    )
    if not isinstance(on_chip, np.ndarray) and on_chip == 0:
        return outside
    return sum_nonzero((on_chip * supply.relative_energy(chip), outside))


def host_transfer_energy(nbytes: Any, chip: Chip) -> Any:
    """Energy of bytes moved between a chip's memory and a host; broadcasts over designs. [J]

    It covers the chip's memory and one link; the host's own energy is in the power of its server.
    """
    return nbytes * (memory_energy_per_byte(chip) + chip_link_energy_per_byte(chip))


def prefix_transfer_energy(nbytes: Any, design: Design) -> Any:
    """Energy of bytes moved between main memory and the memory of prefixes. [J]"""
    tier = prefix_tier(design)
    if tier is None:
        return host_transfer_energy(nbytes, design.chip)
    return nbytes * (memory_energy_per_byte(design.chip) + tier_energy_per_byte(tier))


def memory_energy_per_byte(chip: Chip) -> Any:
    """Energy of a byte of main memory, or of local memories where there is none. [J/B]"""
    devices = memory_devices(chip)
    return _local(chip) * supply.relative_energy(chip) if devices is None else devices.energy_per_byte


@computed_per_batch
def static_power(chip: Chip, decode_cores: Any = 0) -> Any:
    """Static power of all dies and of main memory; broadcasts over designs. [W]"""
    devices = memory_devices(chip)
    if chip.technology is None:  # of a memory by itself
        return area.memory_device_count(chip) * devices.idle_power
    power = chip.technology.static_power_density * area.total_area(chip, decode_cores) * supply.relative_energy(chip)
    for _, tier in tiers_of(chip):
        power = power + tier_device_count(tier) * tier.devices.idle_power
    return power if devices is None else power + area.memory_device_count(chip) * devices.idle_power


@computed_per_batch
def peak_design_power(chip: Chip, decode_cores: Any = 0) -> Any:
    """Power with matrix engines at their 16-bit peak, and memory and links at theirs. [W]

    A format that needs more multipliers than 16 bits counts in its place (`area.format_area_factor`).
    """
    return sum_nonzero(design_power_by_part(chip, decode_cores).values())


@computed_per_batch
def design_power_by_part(chip: Chip, decode_cores: Any = 0) -> dict[str, Any]:
    """Peak design power by part; broadcasts over designs. [W]

    Some tiles may only decode.
    """
    if is_said(chip, "tdp"):
        modelled = remove_published_facts(chip)
        watts = design_power_by_part(modelled, decode_cores)
        part = peak_design_power(modelled, decode_cores) if chip.tiers is None else peak_design_power(given_part(chip, "tdp"))
        return watts | {area.DIFFERENCE: where(is_as_rated(chip, decode_cores), chip.published.tdp - part, 0.0)}
    watts = _busy(chip)
    if isinstance(decode_cores, np.ndarray) or decode_cores:
        share = decode_cores / (chip.mesh.rows * chip.mesh.cols)
        watts = {name: value * (1 - share) + _busy(decode_only_chip(chip))[name] * share for name, value in watts.items()}
    return watts | {"whatever is done": static_power(chip, decode_cores)}


@computed_per_batch
def is_as_rated(chip: Chip, decode_cores: Any = 0) -> Any:
    """Whether the modelled power equals that of the published chip, memory tiers apart.

    Broadcasts over designs.
    """
    own, part = (without_tiers(part) for part in (remove_published_facts(chip), given_part(chip, "tdp")))
    return is_near(peak_design_power(own, decode_cores), peak_design_power(part))


def _busy(chip: Chip) -> dict[str, Any]:
    """Of engines, memory and links at their peak. [W]"""
    macs = area.multiplier_count(chip) * chip.clock
    if chip.mesh is None:
        ports = chip.network or chip.d2d
        linked = pooled_dynamic_energy(
            PooledActivity(linked_bytes=ports.ports * ports.bandwidth + links.node_port_bandwidth(chip)), chip
        )
        bandwidth = main_memory(chip).bandwidth
        shared = where(chip.l2.size > 0, bandwidth, 0.0)
        memory = pooled_dynamic_energy(PooledActivity(memory_bytes=bandwidth, shared_bytes=shared), chip)
        watts = {
            "matrix engines": pooled_dynamic_energy(PooledActivity(macs, WORD * macs), chip),
            "links": linked,
            "memory": memory,
        }
        if chip.tiers is not None:
            watts[area.TIER_BLOCK] = sum(tier.bandwidth * tier_energy_per_byte(tier) for _, tier in tiers_of(chip))
        return watts
    squared, peak = supply.relative_energy(chip), main_memory(chip).bandwidth if has_main_memory(chip) else 0.0
    devices = memory_devices(chip)
    byte = _local(chip) * squared + (0.0 if devices is None else devices.energy_per_byte)
    watts = {"matrix engines": macs * _product(chip, WORD) * squared, "memory": peak * byte}
    if chip.d2d is not None:
        watts["links"] = links.link_interfaces_per_die(chip) * chip.d2d.bandwidth * _near(chip) + links.node_port_bandwidth(
            chip
        ) * chip_link_energy_per_byte(chip)
    if chip.chain is not None:
        watts["links"] = links.chain_bandwidth(chip) * chip_link_energy_per_byte(chip)
    return watts


def _near(chip: Chip) -> Any:
    """Energy of a byte to the next die. [J/B]"""
    return getattr(chip.technology, chip.die.die_link_reach + "_energy_per_byte")


def chip_link_energy_per_byte(chip: Chip) -> Any:
    """Energy per byte over a link to other chips. [J/B]"""
    return getattr(chip.technology, chip.die.chip_link_reach + "_energy_per_byte")


@computed_per_batch
def hop(chip: Chip) -> Any:
    """Energy per byte from router to router of a mesh, at the node's nominal supply. [J/B]"""
    length = area.pitch(chip) / PITCH * _length(chip)
    return chip.technology.hop * ((1 - WIRES) * _length(chip) + WIRES * length)


def _length(chip: Chip) -> Any:
    """Of links between cores, over those to neighbours. [1]"""
    if chip.tile is None or chip.noc.topology == "mesh":
        return 1.0
    return links.link_wiring(chip.mesh.rows, chip.mesh.cols, chip.noc.topology).mean


def sram_energy_per_byte(small: Any, size: Any) -> Any:
    """Energy per byte of a local memory, given its size. [J/B]"""
    return small * map_distinct(_grown, size)


def _grown(size: Any) -> Any:
    return (maximum(size, SMALL) / SMALL) ** GROWTH
