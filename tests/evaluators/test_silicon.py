"""Area, power and money of every chip: what they sum to, what they rise with, and that nothing which buys time is free."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.evaluation import explain_infeasibility, limits
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.die_network import die_routes
from dse.evaluators.silicon import area, energy, price
from dse.evaluators.silicon import link_wiring as links
from dse.evaluators.silicon import supply_voltage as supply
from dse.space.design import stack_designs
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.fixed_leaves import CONSTANTS, FREE, PRICED_PREFIXES, is_design_choice
from tests.samples import asked as question_of

FOLDER = Path(__file__).resolve().parents[2] / "conf/chip"


def has(name: str, part: str) -> bool:
    """Whether a chip's file, or one that it goes on from, has a part or names a preset of it."""
    file = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    defaults = file.get("defaults", [])
    return part in file or any(
        part in str(entry) or (isinstance(entry, str) and entry != "_self_" and has(entry, part)) for entry in defaults
    )


CHIPS = tuple(name for name in sorted(path.stem for path in FOLDER.glob("*.yaml")) if has(name, "economics"))
"""All that are made."""

BOXES = ("h100_ep", "h200_ep", "h800_ep", "nvl72", "cm384")
"""Dies with a cache, many of them, in boxes or on one switch."""

MANY = ("model=deepseek_v2_lite", "workload.batch=[4096]", "mapping.both.pp=1")
"""What is asked of chips with many dies."""

METRICS = ("latency", "system_mm2", "tdp", "energy", "system_price")


def asked(chip: str, *words: str):
    """What is asked of a chip by the model alone: a knob drops a fact of a data sheet, which says nothing of the knob."""
    overrides = ("model=qwen3_8b", "workload.batch=[32]") if chip == "tile_gh200" else ("model=qwen3_1b7", "workload.batch=[2]")
    if chip.startswith("wafer"):  # little work is done sooner by fewer tiles
        overrides = (*MANY, "mapping.both.ep=8", "chip.dies.rows=4")
    if chip in BOXES:
        overrides = (*MANY, "mapping.both.ep=32", "chip.dies.rows=4")
    alone = ["chip.published=null"] if has(chip, "published") else []
    return question_of(f"chip={chip}", *alone, *overrides, "workload.sequence=[512]", *words)


def metrics(design, workload):
    evaluation = evaluate(stack_designs([design]), workload)
    return {name: float(evaluation.columns[name][0]) for name in METRICS}


@pytest.mark.sampled
@pytest.mark.parametrize("chip", CHIPS)
def test_parts_add_up_to_dies_and_dies_to_the_chip(chip):
    given_chip = asked(chip).base.chip
    whole = area.total_area(given_chip)
    above, below = area.die_counts(given_chip, whole)
    assert sum(area.area_by_block(given_chip).values()) == pytest.approx(whole)
    if not below:
        assert area.die_area(given_chip) * above == pytest.approx(whole)


DIES = (
    "mapping.decode.tp=4",
    "workload.group_axis=rectangle",
    "workload.root=0",
    "workload.group=mesh",
    "workload.combine=sum",
)

SERVED = ("workload=serving", "workload.requests=20", "workload.prompt=256", "workload.output=16")


COSTS = {"system_mm2": area.total_area, "tdp": energy.peak_design_power, "system_price": price.system_price}
"""What is paid for is area, rated power or money, of all chips where a case says how many: energy by itself falls with time."""

USUAL = {"tile.sram_bandwidth": 1024.0, "tile.sram_per_row": 8.0, "d2d.credits": 1e6, "l2.size": 1e6}
"""What is chosen where a chip has none."""


FACTORS = (0.25, 0.5, 2.0, 4.0)


def changed(chip):
    """Each numeric choice of a chip up to a factor of four less and more, and each word another one, as far as they can be."""
    for address, value, spec in iterate_leaves(chip):
        if not is_design_choice(address) or address in FREE or isinstance(value, bool):
            continue
        if not value:
            yield address, USUAL.get(address, 1.0)
            continue
        if isinstance(value, str):
            yield from ((address, word) for word in spec.metadata.get("options", ()) if word != value)
        elif isinstance(value, int | float):
            numbers = {value * factor for factor in FACTORS}
            if "whole" in spec.metadata:
                low = spec.metadata["low"]
                numbers = {
                    number
                    for number in numbers | set(range(low, min(int(value), low + 4)))
                    if number == int(number) and number >= low
                }
            yield from ((address, number) for number in sorted(numbers))


def crossed(chip):
    """Other words of a chip, from which all numbers move too; of a topology, links that are there all the same differ."""
    for address, value, spec in iterate_leaves(chip):
        if isinstance(value, str) and address not in CONSTANTS and not address.startswith(PRICED_PREFIXES):
            yield from ((address, word) for word in spec.metadata.get("options", ()) if word != value)


@pytest.mark.sampled
@pytest.mark.parametrize("chip", CHIPS)
def test_whatever_buys_time_costs_area_power_or_money(chip):
    question = asked(chip)
    dear_or_no_sooner(question)
    words = [(address, word) for address, word in crossed(question.base.chip) if is_read(question, address, word)]
    for place in np.random.default_rng([len(chip), *chip.encode()]).permutation(len(words))[:CROSSED]:
        address, word = words[place]
        dear_or_no_sooner(question, replace_leaves(question.base, {f"chip.{address}": word}))


CROSSED = int(os.environ.get("CROSSED", "1"))
"""Words that are crossed with all numbers of a chip; CROSSED=100 takes all."""


def is_read(question, address, word):
    """Whether what is asked runs on a chip with another word, and fits it."""
    if address == "noc.topology":  # of collectives by themselves alone
        return False
    return explain_infeasibility(replace_leaves(question.base, {f"chip.{address}": word}), question.workload) is None


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("chip", "words"),
    [
        *((chip, ("workload=gemm", "workload.shapes=[512x2048x2048]")) for chip in ("a100", "npu64", "wse2", "tile_gh200")),
        *((chip, ("workload=attention",)) for chip in ("h100", "tile32")),
        ("a100", ("workload=collective", "workload.pattern=allreduce", *DIES)),
        *((chip, (*SERVED, "model=qwen3_1b7")) for chip in ("a100", "npu64", "wse2")),
    ],
    ids=lambda entry: entry if isinstance(entry, str) else entry[0],
)
def test_whatever_buys_time_of_a_kernel_or_a_load_costs_as_much(chip, words):
    dear_or_no_sooner(question_of(f"chip={chip}", *words))


def along(chip, address, value):
    """A choice with what goes with it: a box of more dies keeps an adapter for each, or fewer would pay for it."""
    if address == "network.nodes.size":
        nodes = chip.network.nodes
        return {f"chip.{address}": value, "chip.network.nodes.bandwidth": nodes.bandwidth * value / nodes.size}
    return {f"chip.{address}": value} if address else {}


SMALLER = ("tile.matrix.rows", "tile.matrix.cols")
"""Sides of systolic arrays: a smaller one fills sooner, and no mapping leaves a part of one idle. [0.01 % of tile32's time]"""


def dominates(base, address, value):
    """Whether a change makes a design that is better all round: less silicon that works better, where software uses all of it.

    Sums between boxes take the latency of both networks, so that boxes of one die are sooner where messages are small (15 % of
    a batch of two of a small model over two boxes of gh200).
    """
    if address == "hbm.channel_side":  # a channel at each core is many more of them, which columns of links do not carry
        return value == "core"
    if address in SMALLER:
        return base.chip.tile.matrix.dataflow != "ce" and value < leaf_at(base.chip, address)
    return address == "network.nodes.size" and value == 1


def dear_or_no_sooner(question, base=None):
    """That no choice of the chip buys time for nothing; of a base whose words are not the question's, no number."""
    base, crossing = base or question.base, base is not None
    changes = [
        (address, value)
        for address, value in changed(base.chip)
        if not (crossing and isinstance(value, str)) and not dominates(base, address, value)
    ]
    changes.insert(0, (None, None))
    designs = [replace_leaves(base, along(base.chip, address, value)) for address, value in changes]
    evaluation = evaluate(stack_designs(designs), question.workload)
    latency = evaluation.columns["latency" if "latency" in evaluation.columns else "tpot"]
    costs = [
        evaluation.columns[name] if name in evaluation.columns else np.array([float(cost(design.chip)) for design in designs])
        for name, cost in COSTS.items()
    ]
    assert np.isfinite(latency[0])
    more = np.any([cost > cost[0] * (1 + 1e-12) for cost in costs], axis=0)
    less = np.any([cost < cost[0] * (1 - 1e-12) for cost in costs], axis=0)
    # the word that is there may be the one that buys time; a topology of fewer links leaves ports that are there all the same
    worded = np.array([isinstance(value, str) and not address.endswith("topology") for address, value in changes])
    free = (latency < latency[0] * (1 - 1e-9)) & ~more | worded & (latency > latency[0] * (1 + 1e-9)) & ~less
    assert not [changes[row] for row in np.flatnonzero(free) if made(designs[row], question.workload)]


def made(design, workload):
    """Whether a design can be made and laid out, except for heat, area and such, which a designer has other means against."""
    return not any(np.any(limit.need > limit.have) for limit in limits(design, workload) if "chip.die" not in limit.address)


@given(st.integers(0, 12), st.integers(1, 12), st.floats(0.3e9, 1.9e9))
def test_fewer_pipeline_registers_cost_clock_or_power_and_more_cost_area(depth, more, clock):
    """Of elements with pipelines; a systolic array has none."""
    base = asked("tile32").base
    few, many = (
        replace_leaves(base, {"chip.tile.matrix.depth": depth, "chip.clock": clock}).chip for depth in (depth, depth + more)
    )
    assert supply.maximum_clock(few) <= supply.maximum_clock(many)
    assert depth >= 3 or supply.maximum_clock(few) < supply.maximum_clock(many)
    assert supply.supply_voltage(few) >= supply.supply_voltage(many)
    assert area.total_area(few) < area.total_area(many)
    arrays = [replace(chip, tile=replace_leaves(chip.tile, {"matrix.dataflow": "weight"})) for chip in (few, many)]
    assert supply.maximum_clock(arrays[0]) == supply.maximum_clock(arrays[1])
    assert area.total_area(arrays[0]) == area.total_area(arrays[1])


@given(st.sampled_from(["weight", "output", "input"]), st.integers(0, 7), st.sampled_from([1, 128, 4096]))
@example("output", 3, 128)
def test_pipeline_registers_that_a_systolic_array_has_not_buy_no_time(dataflow, depth, rows):
    """Of sums that stay, an element has one, whatever is said of pipelines: operands stream by as often."""
    base = asked("tile32", "chip.tile.sram_bandwidth='8 B/cycle'").base
    none, some = (
        tile_engines(replace_leaves(base, {"chip.tile.matrix.dataflow": dataflow, "chip.tile.matrix.depth": of}).chip)
        for of in (0, depth)
    )
    assert some.product(rows, 512, 512, 2.0) == none.product(rows, 512, 512, 2.0)


def test_sums_that_leave_an_array_behind_its_work_have_a_register():
    base = asked("npu64").base
    areas = {
        (dataflow, reload): area.total_area(
            replace_leaves(base, {"chip.tile.matrix.dataflow": dataflow, "chip.tile.matrix.reload": reload}).chip
        )
        for dataflow in ("weight", "output")
        for reload in ("tile", "hidden")
    }
    assert areas["weight", "tile"] == areas["output", "tile"] < areas["weight", "hidden"] < areas["output", "hidden"]


def test_a_clock_that_few_pipeline_registers_do_not_reach_is_refused_with_what_would():
    question = asked("tile32", "chip.tile.matrix.depth=0", "chip.die.max_power_density='100 W/mm2'")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.clock"
    assert "chip.tile.matrix.depth" in verdict.remedy
    slower = replace_leaves(question.base, {"chip.clock": verdict.have})
    assert explain_infeasibility(slower, question.workload) is None


@given(st.sampled_from(["tile32", "npu64", "wse2"]), st.floats(1.05, 8.0))
def test_hops_take_more_energy_between_larger_cores(chip, more):
    """The wires do, in proportion to the side of a core; the router does not."""
    base = asked(chip).base
    memory = "chip.core.sram" if chip == "wse2" else "chip.tile.sram"
    small, large = (replace_leaves(base, {memory: leaf_at(base, memory) * factor}).chip for factor in (1.0, more))
    grown = area.pitch(large) / area.pitch(small)
    assert grown > 1
    assert energy.hop(small) < energy.hop(large) < energy.hop(small) * grown
    wires = [energy.hop(chip) - chip.technology.hop * (1 - energy.WIRES) for chip in (small, large)]
    assert wires[1] / wires[0] == pytest.approx(grown)


def test_constants_are_leaves_of_some_chip():
    bases = (*(asked(chip).base for chip in CHIPS), question_of("chip=wse3", "+part@chip=wafers_ethernet").base)
    known = {address for base in bases for address, _, _ in iterate_leaves(base.chip)}
    assert {*CONSTANTS, *FREE} <= known
    assert all(
        any(address.startswith(part) for address in known)
        for part in PRICED_PREFIXES
        if part not in ("areas.", "base.", "published.")
    )


@given(st.floats(0.2e9, 2.5e9), st.floats(1.01, 1.5))
def test_a_faster_clock_needs_a_higher_supply(clock, more):
    chip = asked("a100").base.chip
    slow, fast = (supply.supply_voltage(replace(chip, clock=clock)) for clock in (clock, clock * more))
    assert fast >= slow >= chip.technology.min_voltage
    if slow > chip.technology.min_voltage:
        assert fast > slow
    assert supply.supply_voltage(replace(chip, clock=np.array([clock])))[0] == pytest.approx(slow)


@pytest.mark.parametrize("chip", ["wse2", "npu64", "tile32"])
def test_twice_the_clock_takes_more_energy_for_the_same_work(chip):
    question = asked(chip)
    usual, fast = (
        metrics(replace_leaves(question.base, {"chip.clock": question.base.chip.clock * factor}), question.workload)
        for factor in (1.5, 3.0)
    )
    assert fast["latency"] < usual["latency"]
    assert fast["tdp"] > 1.9 * usual["tdp"]


def test_a_die_beyond_the_reticle_is_refused_with_the_dies_that_would_do():
    question = asked("npu64", "chip.die.dies=1")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.die.reticle"
    assert sum(value for _, value in verdict.parts) == pytest.approx(verdict.need)
    count = int(verdict.remedy.split()[1])
    enough = replace_leaves(question.base, {"chip.die.dies": count})
    assert explain_infeasibility(enough, question.workload) is None
    wafer = replace_leaves(question.base, {"chip.die.is_wafer": True})
    assert (
        explain_infeasibility(wafer, question.workload) is None
        or explain_infeasibility(wafer, question.workload).limit != "chip.die.reticle"
    )


def test_a_clock_beyond_the_supply_and_heat_are_refused():
    question = asked("a100", "chip.clock=6GHz")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit in ("chip.clock", "chip.die.max_power_density")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("max_power_density", ("chip.die.max_power_density=0.01 W/mm2",)),
        ("memory_edge_share", ("chip.die.dies=1", "chip.die.memory_edge_share=0.05")),
    ],
)
def test_heat_and_edges_are_itemised(limit, words):
    question = asked("b200", "chip.die.reticle=5000 mm2", *words)
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == f"chip.die.{limit}"
    assert len(verdict.parts) > 1
    assert sum(value for _, value in verdict.parts) == pytest.approx(verdict.need)


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(["mesh", "torus", "ring", "full"]))
def test_links_are_as_many_and_as_long_as_those_that_messages_take(rows, cols, topology):
    ends = die_routes(rows, cols, topology).ends
    far = np.abs(ends // cols - ends[:, ::-1] // cols)[:, 0] + np.abs(ends % cols - ends[:, ::-1] % cols)[:, 0]
    wiring = links.link_wiring(rows, cols, topology)
    assert (wiring.links, wiring.length) == (len(ends) / 2, far.sum() / 2)  # both ways of a link are one


@given(st.integers(1, 9), st.integers(1, 9))
def test_a_switch_is_in_the_middle(rows, cols):
    at, to = np.indices((rows, cols))
    far = np.abs(at - rows // 2) + np.abs(to - cols // 2)
    assert links.link_wiring(rows, cols, "switch").length == far.sum()


@given(st.floats(1.05, 100.0), st.sampled_from(["chip.nodes.bandwidth", "chip.nodes.size", "chip.d2d.bandwidth"]))
def test_a_network_of_boxes_costs_what_it_carries_and_joins(more, address):
    usual = asked("h800_ep").base
    few, many = (replace_leaves(usual, {address: leaf_at(usual, address) * factor}).chip for factor in (1.0, more))
    assert price.system_price(many) > price.system_price(few)
    if address == "chip.nodes.bandwidth":
        added = few.economics.scale_out_price * few.nodes.bandwidth * (more - 1)
        between = [price.price_by_part(chip)["network between servers"] for chip in (few, many)]
        assert between[1] - between[0] == pytest.approx(added)
        assert energy.peak_design_power(many) > energy.peak_design_power(few)
        assert (
            price.token_price_by_part(many, 8, 1.0, 0.0, 1.0)["electricity"]
            > price.token_price_by_part(few, 8, 1.0, 0.0, 1.0)["electricity"]
        )


@given(st.integers(1, 8), st.integers(1, 8))
def test_links_that_reach_further_take_more_area_and_power(rows, cols):
    usual = replace_leaves(asked("wafer64").base, {"chip.dies.rows": rows, "chip.dies.cols": cols, "chip.d2d.ports": 64})
    mesh, *others = (
        replace_leaves(usual, {"chip.d2d.topology": topology}).chip for topology in ("mesh", "torus", "full", "switch")
    )
    for other in others:
        assert area.total_area(other) >= area.total_area(mesh)
        assert energy.peak_design_power(other) >= energy.peak_design_power(mesh)
    assert area.total_area(others[-1]) > area.total_area(mesh)
    assert max(rows, cols) < 3 or area.total_area(others[0]) > area.total_area(mesh)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
def test_many_chips_at_once_are_as_one_by_one(seed):
    random = np.random.default_rng(seed)
    question = asked(str(random.choice(CHIPS)))
    addresses = [
        address
        for address, value, spec in iterate_leaves(question.base.chip)
        if isinstance(value, float) and value and is_design_choice(address) and "whole" not in spec.metadata
    ]
    picked = random.choice(addresses, 3, replace=False)
    usual = np.array([float(leaf_at(question.base.chip, str(address))) for address in picked])
    designs = [
        replace_leaves(question.base, {f"chip.{address}": float(value) for address, value in zip(picked, row, strict=True)})
        for row in random.uniform(0.6, 1.4, (4, 3)) * usual
    ]
    together = evaluate(stack_designs(designs), question.workload)
    for row, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload)
        for name in (*METRICS, "price_per_mtoken", "peak_power", "die_mm2"):
            assert together.columns[name][row] == pytest.approx(alone.columns[name][0], rel=1e-12)
        assert together.limit[row] == alone.limit[0]


def test_energy_is_what_is_done_and_what_runs_meanwhile():
    question = asked("a100")
    columns = evaluate(stack_designs([question.base]), question.workload).columns
    chips = max(question.base.mapping.prefill.tp, question.base.mapping.decode.tp)
    idle = energy.static_power(question.base.chip) * chips
    assert columns["energy"][0] > idle * columns["latency"][0]
    assert columns["power"][0] == pytest.approx(columns["energy"][0] / columns["latency"][0])
    assert columns["peak_power"][0] >= columns["power"][0]
    assert columns["peak_power"][0] <= chips * energy.peak_design_power(question.base.chip)
    parts = columns["capital_per_mtoken"][0] + columns["electricity_per_mtoken"][0]
    assert columns["price_per_mtoken"][0] == pytest.approx(parts)
    assert columns["system_price"][0] == pytest.approx(chips * sum(price.price_by_part(question.base.chip).values()))


def test_metrics_that_nobody_asks_for_are_left_out():
    question = asked("a100")
    few = evaluate(stack_designs([question.base]), question.workload, metrics=("energy",)).columns
    everything = evaluate(stack_designs([question.base]), question.workload).columns
    assert "price_per_mtoken" not in few
    assert few["energy"][0] == everything["energy"][0]
    assert few["latency"][0] == everything["latency"][0]
