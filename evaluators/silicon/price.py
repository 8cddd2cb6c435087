"""Price of a chip: dies per wafer, yield, and the price of making and running the chip."""

from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.silicon import area
from dse.evaluators.silicon import link_wiring as links
from dse.evaluators.silicon.chip_batches import computed_per_batch
from dse.evaluators.silicon.core_repair import CM2, has_stated_breaks, row_repair
from dse.evaluators.silicon.energy import peak_design_power
from dse.space.array_math import exponential, extremes, maximum, minimum, sum_nonzero, where
from dse.space.chip import Chip
from dse.space.main_memory import main_memory, memory_devices
from dse.space.memoize import memoize_by_identity
from dse.space.memory_tiers import tiers_of
from dse.space.published import given_part, is_near, is_said, remove_published_facts, without_tiers

WAFER = 300.0
"""Diameter of a wafer. [mm]"""

NONE = 1e-300
"""Share of dies that work, of such as are never made."""


def dies_of_wafer(mm2: Any) -> Any:
    """Whole dies of an area on a round wafer: area ratio less dies cut by the edge, at least one. [1]

    >>> round(dies_of_wafer(814.0), 1), round(dies_of_wafer(115.0)), dies_of_wafer(46225.0)
    (63.5, 553, 1.0)
    """
    return maximum(np.pi * (WAFER / 2) ** 2 / mm2 - np.pi * WAFER / (2 * mm2) ** 0.5, 1.0)


def negative_binomial_yield(mm2: Any, defects: Any, clustering: Any) -> Any:
    """Probability that no defect hits an area: negative binomial (1 + A D / alpha)^-alpha. [1]

    >>> round(negative_binomial_yield(814.0, 0.11, 3.0), 3), round(negative_binomial_yield(814.0, 0.11, 10.0), 3)
    (0.457, 0.424)
    """
    return (1 + mm2 / CM2 * defects / clustering) ** -clustering


def spare_core_yield(mm2: Any, defects: Any, spare: Any) -> Any:
    """Probability that at most the spare cores of an area have a defect, by Poisson's law. [1]

    >>> spare_core_yield(400.0, 0.1, 0.0) == float(np.exp(-0.4)), round(spare_core_yield(46225.0, 0.1, 7000.0), 6)
    (True, 1.0)
    """
    mean = mm2 / CM2 * defects
    never = mean + 9 * mean**0.5 + 9  # more are broken less often than once in 1e16
    if extremes(never - spare // 1)[1] <= 0:
        return 1.0 + 0.0 * mean
    most = minimum(spare // 1, never)
    good_share, term, alike = exponential(-mean), exponential(-mean), not isinstance(spare, np.ndarray)
    for broken in range(1, int(extremes(most)[1]) + 1):
        term = term * (mean / broken)
        good_share = good_share + (term if alike else where(broken <= most, term, 0.0))
    return minimum(good_share, 1.0)


def die_yield(chip: Chip, decode_cores: Any = 0) -> Any:
    """Yield of compute dies, with spare cores where there are any; broadcasts over designs. [1]"""
    tech, die_area = chip.technology, area.die_area(chip, decode_cores)
    if chip.areas is not None:
        return negative_binomial_yield(die_area, tech.defect_density, tech.clustering)
    used = chip.cores if chip.mesh is None else chip.mesh.rows * chip.mesh.cols
    spare = maximum(chip.die.built_cores - used, 0.0) / area.die_counts(chip, area.total_area(chip, decode_cores))[0]
    least, most = extremes(spare)
    if most < 1:
        return negative_binomial_yield(die_area, tech.defect_density, tech.clustering)
    cores = area.core_area(chip, decode_cores)
    with_spares = spare_core_yield(cores, tech.defect_density, spare)
    if has_stated_breaks(chip):
        with_spares = minimum(with_spares, row_repair(chip).repairable)
    if chip.die.is_wafer is not True:
        with_spares = with_spares * negative_binomial_yield(
            where(chip.die.is_wafer, 0.0, die_area - cores), tech.defect_density, tech.clustering
        )
    return (
        with_spares
        if least >= 1
        else where(spare >= 1, with_spares, negative_binomial_yield(die_area, tech.defect_density, tech.clustering))
    )


@memoize_by_identity
def price_by_part(chip: Chip, decode_cores: Any = 0) -> dict[str, Any]:
    """Price of a chip in its server by part; broadcasts over designs. [USD]

    Some tiles may only decode.
    """
    if is_said(chip, "price"):
        price = price_by_part(replace(chip, published=replace(chip.published, price=None)), decode_cores)
        part = price if chip.tiers is None else price_by_part(given_part(chip, "price"))
        more = chip.published.price - sum(part[name] for name in SOLD if name in part)
        return price | {area.DIFFERENCE: where(is_as_priced(chip, decode_cores), more, 0.0)}
    devices = memory_devices(chip)
    memory = 0.0 if devices is None else devices.price * main_memory(chip).capacity * _sold(chip)
    dies, package, around = _without_memory(chip, decode_cores)
    for _, tier in tiers_of(chip):
        memory = memory + tier.devices.price * tier.capacity * _sold(chip)
    made = {"dies": dies, "memory": memory, "package": package}
    return made | ({} if chip.carrier is None else _joined_on(chip, decode_cores, made)) | around


@computed_per_batch
def _without_memory(chip: Chip, decode_cores: Any = 0) -> tuple[Any, Any, dict[str, Any]]:
    """Dies, their package, and what is around them. [USD]"""
    tech, economics, whole, die_area = (
        chip.technology,
        chip.economics,
        area.total_area(chip, decode_cores),
        area.die_area(chip, decode_cores),
    )
    count, below = area.die_counts(chip, whole)
    silicon = count * tech.wafer_price / (dies_of_wafer(die_area) * maximum(die_yield(chip, decode_cores), NONE))
    if chip.base is not None:
        under = (whole - count * die_area) / below
        working = maximum(negative_binomial_yield(under, tech.defect_density, tech.clustering), NONE)
        silicon = silicon + below * tech.wafer_price / (dies_of_wafer(under) * working)
    ports = chip.network or (chip.d2d if chip.mesh is None else None)
    outward = 0.0 if ports is None else ports.ports * ports.bandwidth
    outside = chip.die.unused_link_bandwidth / 2
    if chip.chain is not None:
        outside = maximum(outside, links.chain_bandwidth(chip))
    around = {
        "test": economics.test * economics.markup,
        "board": economics.board,
        "network": economics.scale_up_price * (outward * _joined(chip) + outside),
        "network between servers": economics.scale_out_price * links.node_port_bandwidth(chip),
        "power and cooling": economics.facility_price * economics.pue * wall_power(chip, decode_cores),
    }
    return silicon * _sold(chip), economics.package * whole * _sold(chip), around


def _sold(chip: Chip) -> Any:
    """What is paid for what is put together, over what it costs: more by a margin, and by those that fail. [1]"""
    return chip.economics.markup / chip.economics.assembly_yield


def _joined_on(chip: Chip, decode_cores: Any, made: dict[str, Any]) -> dict[str, Any]:
    """A die's share of what all dies of a wafer are joined on, and of those that are lost with one that fails there. [USD]

    Where dies are good before they are joined, and one that fails spoils all: with a share b of n dies that hold, b ** -n times
    as many are bought as are used.
    """
    given_carrier, beside = chip.carrier, area.memory_device_count(chip) * memory_devices(chip).edge_length ** 2
    bought = given_carrier.bond_yield ** -(chip.dies.rows * chip.dies.cols * 1.0)
    carrier = given_carrier.price * (area.total_area(chip, decode_cores) + beside) * chip.economics.markup
    return {"carrier": carrier, "lost in joining": (bought - 1) * (sum(made.values()) + carrier)}


@computed_per_batch
def wall_power(chip: Chip, decode_cores: Any = 0) -> Any:
    """Wall power of a chip: peak with its share of server and network, at the server's input. [W]"""
    return (peak_design_power(chip, decode_cores) + _beside(chip)) / chip.economics.power_supply_efficiency


@memoize_by_identity
def system_price(chip: Chip, decode_cores: Any = 0) -> Any:
    """Price of a chip in its server; broadcasts over designs. [USD]"""
    return sum_nonzero(price_by_part(chip, decode_cores).values())


def token_price_by_part(
    chip: Chip, chips: Any, seconds: Any, joules: Any, tokens: Any, decode_cores: Any = 0
) -> dict[str, Any]:
    """Price of a million tokens by part: share of the chips' life, and electricity. [USD]

    Args:
        chip, chips: that work, and how many.
        seconds, joules: time and energy for the tokens, of all chips together.
        tokens: output tokens.
        decode_cores: tiles that only decode.
    """
    economics = chip.economics
    owned = system_price(chip, decode_cores) * (chips / (economics.lifetime * economics.duty_cycle)) * seconds
    drawn = grid_power(chip, chips * seconds, joules) * economics.electricity_price
    return {"chips": owned * (1e6 / tokens), "electricity": drawn * (1e6 / tokens)}


def grid_power(chip: Chip, chips: Any, watts: Any) -> Any:
    """Power drawn from the grid for chips: with servers, network, supply losses and the data centre. [W]

    Energy likewise, of chip-seconds and joules. [J]

    Args:
        chip, chips: that are up, and how many.
        watts: power of all these chips.
    """
    economics = chip.economics
    return (watts + chips * _beside(chip)) * (economics.pue / economics.power_supply_efficiency)


def _beside(chip: Chip) -> Any:
    """Power of a chip's share of its server, and of the network between servers. [W]"""
    return chip.economics.host_power + chip.economics.scale_out_power * links.node_port_bandwidth(chip)


REFERENCE_NODE_DIES = 8.0
"""Chips of the node whose links and switches `Economics.network` is the price of."""


def _joined(chip: Chip) -> Any:
    """Price of a byte/s outward relative to a node of `REFERENCE_NODE_DIES`: switches by stages, other links by length."""
    if chip.mesh is not None:
        return 1.0
    if chip.d2d is None:
        nodes = chip.network.nodes
        return 1.0 if nodes is None else links.switch_stages(nodes.size) / links.switch_stages(REFERENCE_NODE_DIES)
    if chip.d2d.topology == "switch":
        return links.switch_stages_between_dies(chip) / links.switch_stages(REFERENCE_NODE_DIES)
    return links.link_interfaces_per_die(chip) / chip.d2d.ports


SOLD = ("dies", "memory", "package", "carrier", "lost in joining", "test")
"""Parts of the price of a chip in its server that belong to the chip."""


def estimate_chip_price(chip: Chip, decode_cores: Any = 0) -> Any:
    """Modelled price of a chip without its server; broadcasts over designs. [USD]"""
    price = price_by_part(remove_published_facts(chip), decode_cores)
    return sum(price[name] for name in SOLD if name in price)


def is_as_priced(chip: Chip, decode_cores: Any = 0) -> Any:
    """Whether the modelled price equals that of the published chip, memory tiers apart.

    Broadcasts over designs.
    """
    own, part = (without_tiers(part) for part in (chip, given_part(chip, "price")))
    return is_near(estimate_chip_price(own, decode_cores), estimate_chip_price(part))
