"""What chips cost by hand: dies of a wafer, those that work, memory, what they stand on; also of random sizes and prices."""

from math import exp, floor, lgamma, log, pi, sqrt
from typing import Any

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon import link_wiring as links
from dse.space.chip import Chip, main_memory_bytes
from dse.space.design import Design, stack_designs
from dse.space.fields import iterate_leaves, replace_leaves
from tests.evaluators.test_silicon import CHIPS, asked

PARTS = ("technology", "economics", "dram", "die", "carrier", "base", "hbm", "l2", "d2d", "nodes", "network", "tile", "core")
SHARES = (
    *("assembly_yield", "memory_edge_share", "power_supply_efficiency", "duty_cycle", "pue", "other_area_share", "bond_yield"),
    *("strided_overfetch", "stream_efficiency", "contended_efficiency", "built_cache_ratio", "built_memory_ratio"),
)
SUPPLIES = ("nominal_voltage", "min_voltage", "max_voltage", "threshold_voltage")

CORES = ("matrix engines", "vector engines", "registers", "sram", "control", "network")


def drawn(design: Design, seed: int) -> Design:
    """Some numbers of a chip by up to half more or less; whole ones stay whole."""
    rng, changes = np.random.default_rng(seed), dict[str, Any]()
    settings = [
        (address, value)
        for address, value, spec in iterate_leaves(design.chip)
        if isinstance(value, int | float) and value not in (0, 1, True, False) and "whole" not in spec.metadata
        if address.split(".")[0] in PARTS and "banks" not in address and address.split(".")[-1] not in (*SHARES, *SUPPLIES)
    ]
    for place in rng.permutation(len(settings))[:15]:
        address, value = settings[place]
        changes[f"chip.{address}"] = float(value * rng.uniform(0.6, 1.5))
    return replace_leaves(design, changes)


def whole_dies(mm2: float) -> float:
    """Of a wafer of 300 mm, less those that its edge cuts."""
    return max(pi * 150**2 / mm2 - pi * 300 / sqrt(2 * mm2), 1.0)


def by_hand(chip: Chip) -> dict[str, float]:
    """What a chip is made of, by what it is spent on. [USD]"""
    node, own, economics = chip.technology, chip.die, chip.economics
    parts = {name: float(value) for name, value in area.area_by_block(chip).items()}
    whole, count = sum(parts.values()), float(area.die_counts(chip, area.total_area(chip))[0])
    below = area.BASE_DIE_BLOCKS if chip.base is not None else ()
    inside = sum(value for name, value in parts.items() if name not in (*below, "other"))
    mm2 = inside / (1 - node.other_area_share) / count

    def unhit(mm2: float) -> float:
        return float((1 + mm2 / 100 * node.defect_density / node.clustering) ** -node.clustering)

    def at_most(mean: float, most: int) -> float:
        return sum(exp(-mean + hits * log(mean) - lgamma(hits + 1)) for hits in range(most + 1))

    used = chip.cores if chip.mesh is None else chip.mesh.rows * chip.mesh.cols
    spare = floor(max(own.built_cores - used, 0) / count)
    good = unhit(mm2)
    if spare:  # each core that is hit is one of those
        cores = mm2 * sum(parts[name] for name in CORES) / inside
        good = at_most(cores / 100 * node.defect_density, spare) * (1.0 if own.is_wafer else unhit(mm2 - cores))
    silicon = count * node.wafer_price / (whole_dies(mm2) * good)
    if chip.base is not None:
        under = (whole - count * mm2) / chip.base.dies
        silicon += chip.base.dies * node.wafer_price / (whole_dies(under) * unhit(under))
    sold = economics.markup / economics.assembly_yield
    memory = 0.0 if chip.dram is None else chip.dram.price * float(main_memory_bytes(chip))
    memory += 0.0 if chip.tiers is None else chip.tiers.second.devices.price * float(chip.tiers.second.capacity)
    found_parts = {"dies": silicon * sold, "memory": memory * sold, "package": economics.package * whole * sold}
    if chip.carrier is not None:
        devices = chip.hbm.channels * chip.hbm.channel_bandwidth / chip.dram.device_bandwidth
        carrier = chip.carrier.price * (whole + devices * chip.dram.edge_length**2) * economics.markup
        bought = chip.carrier.bond_yield ** -(chip.dies.rows * chip.dies.cols)
        found_parts |= {"carrier": carrier, "lost in joining": (bought - 1) * (sum(found_parts.values()) + carrier)}
    return found_parts | {"test": economics.test * economics.markup, "board": economics.board}


@pytest.mark.parametrize("name", CHIPS)
def test_what_a_chip_is_made_of_costs_what_it_multiplies_out_to(name: str) -> None:
    base = asked(name).base
    for seed in range(4):
        chip = (drawn(base, seed) if seed else base).chip
        expected = by_hand(chip)
        parts = {part: float(value) for part, value in price.price_by_part(chip).items() if part in expected}
        assert parts == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["h100", "npu64", "wse2", "tile_gh200", "wafer64", "h800_ep"])
def test_tokens_cost_the_time_of_all_chips_and_what_they_draw(name: str) -> None:
    """A share of a life that is not all work, and of electricity what supplies and cooling lose."""
    question = asked(name)
    chip, ((requests, _, output),) = question.base.chip, question.workload.cases[0].requests
    metrics = {
        key: float(value[0]) for key, value in evaluate(stack_designs([question.base]), question.workload).columns.items()
    }
    chips, money, tokens = metrics["system_mm2"] / float(area.total_area(chip)), chip.economics, requests * output
    owned = (
        chips
        * sum(float(value) for value in price.price_by_part(chip).values())
        * metrics["latency"]
        / (money.lifetime * money.duty_cycle)
    )
    beside = money.host_power + money.scale_out_power * float(links.node_port_bandwidth(chip))
    drawn_ = (metrics["energy"] + chips * beside * metrics["latency"]) / money.power_supply_efficiency * money.pue
    assert metrics["capital_per_mtoken"] == pytest.approx(owned / tokens * 1e6)
    assert metrics["electricity_per_mtoken"] == pytest.approx(drawn_ * money.electricity_price / tokens * 1e6)
    assert metrics["price_per_mtoken"] == pytest.approx(metrics["capital_per_mtoken"] + metrics["electricity_per_mtoken"])
