"""Area of a chip by part, from its process node or from a paper's own model."""

from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.silicon import link_wiring as links
from dse.evaluators.silicon import supply_voltage as supply
from dse.evaluators.silicon.chip_batches import computed_per_batch
from dse.evaluators.silicon.die_division import crossing_links, describe_division, divided_link, is_divided
from dse.space.array_math import ceil_div, maximum, minimum, option_index, where
from dse.space.array_math import sum_nonzero as summed
from dse.space.chip import DATAFLOWS, Chip, decode_only_chip
from dse.space.fields import iterate_leaves
from dse.space.main_memory import has_main_memory, main_memory, memory_devices
from dse.space.memoize import memoize_by_identity
from dse.space.memory_tiers import tier_device_count, tiers_of
from dse.space.number_formats import FORMATS, FormatRates
from dse.space.published import given_part, is_near, is_said, remove_published_facts, without_tiers
from dse.space.technology import DieCrossings, ProcessNode

SPECIAL = 1.0
"""Vector-engine area of an exponential, a root or a quotient per cycle, in operations per cycle."""

LANE = 4e9
"""What a lane to the host carries in one direction, as of PCIe 5. [B/s]"""

OPERAND, SUM = 2.0, 4.0
"""Storage in an array element for the next stationary operand, or for a sum that leaves, beside its work. [B]"""


STAGE = 8.0
"""What a pipeline register of a multiply-adder holds: a product and a sum that are not yet added, and exponents (assumed:
64 bits); `supply.STAGES` of them are in the area of a node's multiply-adder. [B]"""


def area_by_block(chip: Chip, decode_cores: Any = 0) -> dict[str, Any]:
    """Area of each kind of block on all dies of a chip. [mm2]

    Args:
        chip: with a floor plan or with such areas; leaves broadcast over designs.
        decode_cores: tiles that only decode.
    """
    return _made(chip, decode_cores)[0]


def total_area(chip: Chip, decode_cores: Any = 0) -> Any:
    """Area of all dies of a chip, the sum of its parts; broadcasts over designs. [mm2]"""
    return _made(chip, decode_cores)[1]


@computed_per_batch
def _made(chip: Chip, decode_cores: Any = 0) -> tuple[dict[str, Any], Any]:
    """Parts and their sum, with the difference to the model if a data sheet gives the die area."""
    if is_said(chip, "die_area"):
        modelled = remove_published_facts(chip)
        cores, whole = _made(modelled, decode_cores)
        more = _dies(modelled, whole) * (die_area(chip, decode_cores) - die_area(modelled, decode_cores))
        return cores | {DIFFERENCE: more}, whole + more
    if chip.areas is not None or chip.router is not None:
        cores = _as_published(chip) if chip.router is None else {"network": _routers(chip)}
        return cores, summed(cores.values())
    cores, whole = _undivided(chip, decode_cores)
    share = chip.technology.other_area_share
    if chip.die_link is not None:
        link = divide_mesh(chip).die_link
        cut = 2 * crossing_links(chip, link) * link.link_bandwidth * link.phy_area
        cores[DIE_LINK_BLOCK], whole = cores[DIE_LINK_BLOCK] + cut, whole + cut
    elif chip.tile is not None:
        cut = _cut(chip, _dies(chip, whole / (1 - share)))
        cores[DIE_LINK_BLOCK], whole = cores[DIE_LINK_BLOCK] + cut, whole + cut
    if chip.base is not None:
        vias = chip.base.via_area_share * sum(value for name, value in cores.items() if name not in BASE_DIE_BLOCKS)
        cores["vias of base dies"], whole = vias, whole + vias
    other = whole * (share / (1 - share))
    return cores | {"other": other}, whole + other


def _undivided(chip: Chip, decode_cores: Any = 0) -> tuple[dict[str, Any], Any]:
    """Parts of a chip, and their sum, without links between dies that a mesh is divided into."""
    blocks = _of_cores(chip, decode_cores) | _around(chip)
    return blocks, summed(blocks.values())


@memoize_by_identity
def divide_mesh(chip: Chip) -> Chip:
    """Return a chip with the sides of its dies, and the bandwidth of a link from die to die.

    A chip without die crossings, or of which all of this is known, stays as it is. What is made of parts of the chip, or with
    another memory, then keeps its dies.
    """
    known = chip.die_link is None or is_divided(chip.die_link)
    return chip if known else replace(chip, die_link=_division(chip))


def describe_dies(chip: Chip) -> str:
    """Text on the dies of a mesh of tiles and what crossings between them take; empty string for one die."""
    if chip.tile is None or chip.dies is not None:
        return ""
    dies = int(die_counts(chip, total_area(chip))[0])
    if chip.die_link is not None:
        return describe_division(chip, divide_mesh(chip).die_link)
    return f"the mesh is on {dies} dies, and crossings between them take no time" if dies > 1 else ""


@computed_per_batch
def _division(chip: Chip) -> DieCrossings:
    area = _undivided(chip)[1] / (1 - chip.technology.other_area_share)
    edge = (area / (chip.mesh.rows * chip.mesh.cols)) ** 0.5
    return divided_link(chip, _dies(chip, area), edge)


@computed_per_batch
def die_area(chip: Chip, decode_cores: Any = 0) -> Any:
    """Area of one of the dies with cores; broadcasts over designs. [mm2]"""
    if is_said(chip, "die_area"):
        modelled, sold = die_area(remove_published_facts(chip), decode_cores), chip.published.die_area
        if chip.tiers is not None:
            sold = sold + modelled - die_area(given_part(chip, "die_area"))
        return where(is_as_sold(chip, decode_cores), sold, modelled)
    areas, area = _made(chip, decode_cores)
    if chip.areas is not None:
        return area
    if chip.base is not None:
        above = sum(value for name, value in areas.items() if name not in (*BASE_DIE_BLOCKS, "other"))
        return above / (1 - chip.technology.other_area_share) / _dies(chip, 0.0)
    return area / _dies(chip, area)


def core_area(chip: Chip, decode_cores: Any = 0) -> Any:
    """Area of the cores of one die, spare ones included; broadcasts over designs. [mm2]"""
    return die_area(chip, decode_cores) * _share_of_cores(chip, decode_cores)


def _share_of_cores(chip: Chip, decode_cores: Any) -> Any:
    found_area = area_by_block(chip, decode_cores)
    inside = ("matrix engines", "vector engines", "registers", "sram", "control", "network")
    above = [name for name in found_area if chip.base is None or name not in BASE_DIE_BLOCKS]
    return sum(found_area[name] for name in inside) / sum(
        found_area[name] for name in above if name not in ("other", DIFFERENCE)
    )


@computed_per_batch
def is_as_sold(chip: Chip, decode_cores: Any = 0) -> Any:
    """Whether the modelled die area equals that of the published chip, memory tiers apart.

    Broadcasts over designs.
    """
    own, part = (without_tiers(part) for part in (remove_published_facts(chip), given_part(chip, "die_area")))
    return is_near(die_area(own, decode_cores), die_area(part))


def die_counts(chip: Chip, area: Any) -> tuple[Any, Any]:
    """Numbers of compute dies and of base dies of a chip with a total area; broadcasts over designs. [1]"""
    if is_said(chip, "die_area"):  # as many as the model makes, however large
        return die_counts(remove_published_facts(chip), total_area(remove_published_facts(chip)))
    return (1.0, 0.0) if chip.areas is not None else (_dies(chip, area), 0.0 if chip.base is None else chip.base.dies)


@computed_per_batch
def pitch(chip: Chip) -> Any:
    """Distance between neighbours of a mesh: side of a square core with its router. [mm]"""
    cores = _of_cores(chip)
    area = summed(value for name, value in cores.items() if name != "hbm_phy") / (1 - chip.technology.other_area_share)
    return (area / _count(chip, chip.mesh.rows * chip.mesh.cols)) ** 0.5


DIFFERENCE = "data sheet less model"
"""Item by which a figure of a data sheet differs from what the model makes of its parts."""

DIE_LINK_BLOCK = "links between dies"

TIER_BLOCK = "memory tiers"

BASE_DIE_BLOCKS = ("l2", "hbm_phy", TIER_BLOCK, "links", "host", DIE_LINK_BLOCK, "vias of base dies")
"""Blocks that are on dies below the others, where a chip has such."""


def _as_published(chip: Chip) -> dict[str, Any]:
    areas, network = chip.areas, chip.network
    return {
        "cores": chip.cores * chip.core.matrix * areas.core,
        "l2": chip.l2.size * areas.l2,
        "hbm_phy": main_memory(chip).bandwidth * areas.hbm_phy,
        "link_phy": network.ports * network.bandwidth * areas.link_phy,
    }


def _of_cores(chip: Chip, decode_cores: Any = 0) -> dict[str, Any]:
    """Area of each kind of block inside cores. [mm2]"""
    if chip.tile is None:
        return _pool(chip) if chip.mesh is None else _mesh(chip)
    count = _count(chip, chip.mesh.rows * chip.mesh.cols)
    if not isinstance(decode_cores, np.ndarray) and decode_cores == 0:
        return _tiles(chip, count)
    own = _tiles(decode_only_chip(chip), decode_cores)
    return {name: value + own[name] for name, value in _tiles(chip, count - decode_cores).items()}


def multiplier_count(chip: Chip) -> Any:
    """Number of 16-bit multiply-adders on all cores in use. [1]"""
    if chip.tile is not None:
        return chip.mesh.rows * chip.mesh.cols * chip.tile.matrix.rows * chip.tile.matrix.cols * 1.0
    if chip.mesh is not None:
        return chip.mesh.rows * chip.mesh.cols / chip.core.mac
    return chip.cores * _of_core(chip)


RATE = 4.0
"""Operations on 8-bit values that a multiply-adder of 16 bits does in a cycle: two multiply-adds."""


@memoize_by_identity
def _of_core(chip: Chip) -> Any:
    """16-bit multiply-adders of a shared-cache die's core, for the format that needs most. [1]"""
    return chip.core.matrix / (RATE * chip.clock) * format_area_factor(chip.core.rates)


@memoize_by_identity
def format_area_factor(rates: FormatRates | None) -> Any:
    """Multipliers relative to 16-bit products, for the most demanding format: its rate x bits / 16.

    A 16-bit multiplier does two 8-bit multiply-adds per cycle, or four of 4 bits, for the same area and energy;
    scales take none. An engine with a faster rate in some format has proportionally more multipliers.

    >>> (
    ...     format_area_factor(None),
    ...     format_area_factor(FormatRates(int8=2.0, mxfp4=4.0)),
    ...     format_area_factor(FormatRates(int8=1.0)),
    ...     format_area_factor(FormatRates(fp8=2.0, nvfp4=6.0)),
    ... )
    (1.0, 1.0, 1.0, 1.5)
    """
    area_factor: Any = 1.0
    for name, value, _ in () if rates is None else iterate_leaves(rates):
        area_factor = maximum(area_factor, value * FORMATS[name].bits / FORMATS["bf16"].bits)
    return area_factor


def _pool(chip: Chip) -> dict[str, Any]:
    tech, own, core = chip.technology, chip.die, chip.core
    count = _count(chip, chip.cores)
    vector = core.vector / chip.clock
    threaded = where(own.simt_ops > 0, vector / maximum(own.simt_ops, 1e-9) * tech.simt_lane, vector * tech.lane)
    return {
        "matrix engines": count * _of_core(chip) * tech.multiplier,
        "vector engines": count * (threaded + own.fp64_units * tech.fp64_unit),
        "registers": count * own.register_size * tech.register,
        "sram": count * own.l1_size * tech.sram,
        "control": count * own.issue_rate * tech.issue,
        "network": count * _cached(chip) / chip.cores * tech.crossbar,
        "l2": chip.l2.size * own.built_cache_ratio * tech.cache + _cached(chip) * tech.port,
    }


@memoize_by_identity
def _cached(chip: Chip) -> Any:
    """Width of the ways to the shared cache: none to a cache of no size. [B/cycle]"""
    return where(chip.l2.size > 0, chip.l2.bandwidth, 0.0) / chip.clock


def _mesh(chip: Chip) -> dict[str, Any]:
    tech, own, core = chip.technology, chip.die, chip.core
    count = _count(chip, chip.mesh.rows * chip.mesh.cols)
    return {
        "matrix engines": count / core.mac * tech.multiplier,
        "vector engines": count * (1 / core.vector_operation + SPECIAL / core.special) * tech.lane,
        "registers": count * own.register_size * tech.register,
        "sram": count * core.sram * tech.sram,
        "control": count * own.issue_rate * tech.issue,
        "network": count * _router(chip.noc, tech, links.PORTS),
    }


def _tiles(chip: Chip, count: Any) -> dict[str, Any]:
    tech, own, tile = chip.technology, chip.die, chip.tile
    banks, sides = tile.sram_bandwidth + tile.sram_per_row * tile.matrix.rows, (chip.mesh.rows, chip.mesh.cols)
    linked, ports = links.relative_router_ports(*sides, chip.noc.topology), links.router_ports(*sides, chip.noc.topology)
    return {
        "matrix engines": count * tile.matrix.rows * tile.matrix.cols * _element(tile.matrix, tech),
        "vector engines": count * (tile.vector.lanes + SPECIAL * tile.vector.special) * tech.lane,
        "registers": count * own.register_size * tech.register,
        "sram": count * (tile.sram * tech.sram + banks * tech.bank),
        "control": count * own.issue_rate * tech.issue,
        "network": count * _router(chip.noc, tech, ports, linked),
        "hbm_phy": count * main_memory(chip).channels / (chip.mesh.rows * chip.mesh.cols) * _channel(chip),
    }


def _element(matrix: Any, tech: ProcessNode) -> Any:
    """A multiply-adder; with a register for what an array loads behind its work, and pipeline registers over the usual ones.

    An element holds two operands and a sum, whichever of them streams by. Behind its work an array loads an operand that stays,
    or lets sums leave that do.
    """
    stays = option_index(matrix.dataflow, DATAFLOWS)
    behind = where(stays == DATAFLOWS.index("output"), SUM, OPERAND) * (matrix.reload == "hidden")
    held = where(stays == DATAFLOWS.index("ce"), STAGE * (matrix.depth + 1.0 - supply.STAGES), behind)
    return tech.multiplier + held * tech.register


def _router(noc: Any, tech: ProcessNode, ports: Any, linked: Any = 1.0) -> Any:
    """A router with its links: wires and switch by width, over those of a mesh, and what virtual channels of its ports hold.

    Where routes are locked a port holds a word: circuits need no more buffers ([dally2004] section 12.2).
    """
    wires, locked = noc.word_bytes / noc.word_cycles * tech.router, getattr(noc, "routing", "") == "locked"
    held = 1 if locked else noc.vcs * noc.vc_depth
    return wires * linked + ports * held * noc.word_bytes * tech.register


def _routers(chip: Chip) -> Any:
    """Routers and links of a network without cores, which carry a flit in several cycles along rows and columns. [mm2]"""
    router, tech = chip.router, chip.technology
    wires = router.flit_bytes * (1 / router.flit_x + 1 / router.flit_y) / 2 * tech.router
    return (
        chip.mesh.rows
        * chip.mesh.cols
        * (wires + links.PORTS * router.vcs * router.vc_depth * router.flit_bytes * tech.register)
    )


def _channel(chip: Chip) -> Any:
    """Interface of one memory channel with its controller, on the dies with spare ones. [mm2]"""
    return _interface(chip, main_memory(chip).channel_bandwidth)


def _interface(chip: Chip, bandwidth: Any) -> Any:
    """Interfaces of main memory with controllers for a bandwidth [B/s], on the dies with spare ones. [mm2]"""
    devices = memory_devices(chip)
    return bandwidth / devices.device_bandwidth * devices.phy_area * chip.die.built_memory_ratio


def _tier_interfaces(chip: Chip) -> Any:
    """Interfaces of memory tiers: of devices at the die, and lanes of those behind links. [mm2]"""
    total: Any = 0.0
    for _, tier in tiers_of(chip):
        if tier.attachment == "die":
            total = total + tier_device_count(tier) * tier.devices.phy_area
        elif tier.attachment == "lanes":
            total = total + tier.lanes * chip.technology.pcie_lane
    return total


def _around(chip: Chip) -> dict[str, Any]:
    """Parts of the dies besides cores."""
    tech, own = chip.technology, chip.die
    blocks = {
        DIE_LINK_BLOCK: own.die_link_bandwidth * getattr(tech, own.die_link_reach),
        "host": own.pcie_lanes * tech.pcie_lane,
    }
    outside = own.unused_link_bandwidth
    if chip.chain is not None:
        outside = maximum(outside, 2 * links.chain_bandwidth(chip))  # over the same ports
    if chip.mesh is None:
        blocks["hbm_phy"] = _interface(chip, main_memory(chip).bandwidth)
        if chip.tiers is not None:
            blocks[TIER_BLOCK] = _tier_interfaces(chip)
        ports = chip.network or chip.d2d
        more = maximum(links.node_port_bandwidth(chip) - own.pcie_lanes * LANE, 0.0)  # than lanes to the host carry
        outside = outside + 2 * (ports.ports * ports.bandwidth + more)
    elif chip.tile is None and has_main_memory(chip):
        blocks["hbm_phy"] = main_memory(chip).channels * _channel(chip)
    elif chip.l2 is not None:
        blocks["l2"] = chip.l2.size * own.built_cache_ratio * tech.cache + chip.l2.bandwidth / chip.clock * tech.port
    if chip.d2d is not None:
        blocks[DIE_LINK_BLOCK] = blocks[DIE_LINK_BLOCK] + _linked(chip)
        if chip.mesh is not None:
            outside = outside + 2 * maximum(links.node_port_bandwidth(chip) - own.pcie_lanes * LANE, 0.0)
    return blocks | {"links": outside * getattr(tech, own.chip_link_reach)}


def _linked(chip: Chip) -> Any:
    """Of one die's links to others: interfaces, both directions, buffers, and its share of a switch beside the dies. [mm2]

    Links of a pool to other dies are outside, where switches are bought.
    """
    d2d, tech = chip.d2d, chip.technology
    if chip.mesh is None:
        return d2d.ports * _buffered(chip)
    area = links.link_interfaces_per_die(chip) * 2 * d2d.bandwidth * getattr(
        tech, chip.die.die_link_reach
    ) + d2d.ports * _buffered(chip)
    if d2d.topology != "switch":
        return area
    stage = d2d.bandwidth / chip.clock * tech.router / links.PORTS
    return area + d2d.ports * (links.switch_stages_between_dies(chip) * stage + _buffered(chip))


def _buffered(chip: Chip) -> Any:
    """Of one link to another die, buffers for the bytes that are on their way. [mm2]"""
    d2d = chip.d2d
    return where(d2d.credits > 0, d2d.credits, 2 * d2d.latency * d2d.bandwidth) * chip.technology.sram


def _count(chip: Chip, used: Any) -> Any:
    """Cores on all dies, of which so many are used."""
    return maximum(chip.die.built_cores, used)


@memoize_by_identity
def _dies(chip: Chip, area: Any) -> Any:
    """Compute dies of a chip with a total die area: the given number, or as few as possible."""
    dies = chip.die.dies
    if not isinstance(dies, np.ndarray) and dies > 0:
        return dies
    fewest = ceil_div(maximum(maximum(minimum(area, MOST) / chip.die.reticle, _shores(chip, area)), 1.0), 1.0)
    return where(dies > 0, dies, fewest)


def _shores(chip: Chip, area: Any) -> Any:
    """Dies, or fractions, with enough edge for all memory devices: n square dies have EDGES (n area)^(1/2)."""
    if memory_devices(chip) is None:
        return 1.0
    side = minimum(memory_edge_length(chip) / (EDGES * chip.die.memory_edge_share), MOST)
    return side * side / maximum(area, 1e-9)


@computed_per_batch
def memory_edge_length(chip: Chip) -> Any:
    """Length of die edge that main memory takes; broadcasts over designs. [mm]"""
    length = memory_device_count(chip) * chip.die.built_memory_ratio * memory_devices(chip).edge_length
    return length if chip.tiers is None else length + tier_edge_length(chip)


def tier_edge_length(chip: Chip) -> Any:
    """Length of die edge that memory tiers take; broadcasts over designs. [mm]"""
    at_die = [tier for _, tier in tiers_of(chip) if tier.attachment == "die"]
    return summed(tier_device_count(tier) * tier.devices.edge_length for tier in at_die)


@computed_per_batch
def memory_device_count(chip: Chip) -> Any:
    """Number of main-memory devices that bandwidth, and stacked capacity, need; over designs. [1]"""
    memory, devices = main_memory(chip), memory_devices(chip)
    count = memory.bandwidth / devices.device_bandwidth
    return count if devices.device_capacity is None else maximum(count, memory.capacity / devices.device_capacity)


MOST = 1e12
"""Largest length [mm] and area [mm2] that are distinguished."""

EDGES = 4.0
"""Of a square die."""


def _cut(chip: Chip, count: Any) -> Any:
    """Links between dies that a mesh is cut into, as near a square of them as it gets, at both ends; longer ones more. [mm2]"""
    sides = chip.mesh.rows, chip.mesh.cols
    lines = chip.mesh.rows + chip.mesh.cols
    if chip.noc.topology != "mesh":
        length = links.link_wiring(*sides, chip.noc.topology).length
        lines = lines * length / maximum(links.link_wiring(*sides, "mesh").length, 1.0)
    crossing = 2 * lines * chip.noc.word_bytes / chip.noc.word_cycles
    return (np.sqrt(count) - 1) * (2 * crossing * getattr(chip.technology, chip.die.die_link_reach)) * chip.clock
