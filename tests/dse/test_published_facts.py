"""Facts of a data sheet count over the model while a design is that part, and the model's own figures stand beside them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dse.analysis.evaluation import evaluate_config
from dse.commands.evaluate_output import evaluation_record
from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.silicon import area, energy, price
from dse.evaluators.silicon import supply_voltage as supply
from dse.evaluators.silicon.published import find_contradicted_limits, published_facts
from dse.execution.study import build_study
from dse.report.caveats import find_dropped_facts
from dse.space.design import design_key, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_key_leaves, leaf_at, replace_leaves
from dse.space.published import remove_published_facts

LOAD = ("model=qwen3_1b7", "workload.batch=[2]", "workload.prompt=64", "workload.output=8", "mapping.both.tp=1")

CARDS = {
    "h100_nvl": """
defaults: [h100, _self_]
hbm: {capacity: 96 GB, bandwidth: 4 TB/s}
published: {die_area: 814 mm2, tdp: 400 W}
""",
    "pro6000": """
defaults: [rtx4090, _self_]
cores: 188
peak: {fp16: 504 TFLOPS, fp8: 1007 TFLOPS, int8: 1007 TOPS, mxfp8: 1007 TFLOPS, mxfp4: 2015 TFLOPS, nvfp4: 2015 TFLOPS}
core: {vector: 670 Gop/s}
clock: 2.617 GHz
l2: {size: 128 MB}
hbm: {capacity: 96 GB, bandwidth: 1.79 TB/s}
dram: {device: 112 GB/s}
die: {cores: 192, cooling: 0.8 W/mm2}
published: {die_area: 750 mm2, tdp: 600 W, clock: 2.617 GHz, price: 8500 USD}
""",
    "gaudy": """
defaults: [rtx4090, _self_]
published: {die_area: 700 mm2, tdp: 500 W, clock: 3 GHz, price: 1600 USD}
""",
}

BROKEN = {
    "h100_nvl": {"chip.die.memory_edge_share"},
    "pro6000": {"chip.die.reticle", "chip.clock", "chip.die.max_power_density"},
    "gaudy": set(),
}
"""Limits of the model alone that each would break."""

MODEL = {
    "die_area": area.die_area,
    "tdp": energy.peak_design_power,
    "clock": supply.maximum_clock,
    "price": price.estimate_chip_price,
}

MOVED = (
    "cores", "core.matrix", "core.vector", "clock", "l2.size", "l2.bandwidth", "hbm.bandwidth", "hbm.capacity",
    "network.bandwidth", "die.built_cores", "die.l1_size", "technology.multiplier", "economics.markup", "dram.price",
    "hbm.random_access_overhead",
)  # fmt: skip
"""Leaves of a die with a cache: sizes, cores and clock, and some on which no fact depends."""


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    (folder / "chip").mkdir()
    for name, text in CARDS.items():
        (folder / f"chip/{name}.yaml").write_text(text)
    return cache(lambda *words: build_question(compose((f"--config-dir={folder}", *LOAD, *words)), folder))


@pytest.mark.parametrize("card", CARDS)
def test_a_card_that_is_sold_is_answered_and_the_models_figures_stand_beside(cards, card):
    given_cards = cards(f"chip={card}")
    chip = given_cards.base.chip
    assert explain_infeasibility(given_cards.base, given_cards.workload) is None
    assert {limit.address for limit in find_contradicted_limits(chip)} == BROKEN[card]
    alone = replace(given_cards.base, chip=remove_published_facts(chip))
    assert (explain_infeasibility(alone, given_cards.workload) is None) == (not BROKEN[card])
    columns = evaluate(stack_designs([given_cards.base]), given_cards.workload).columns
    facts = {fact.name: fact for fact in published_facts(chip)}
    assert all(fact.holds for fact in facts.values())
    assert columns["die_mm2"][0] == facts["die_area"].value == pytest.approx(sum(area.area_by_block(chip).values()))
    assert columns["tdp"][0] == facts["tdp"].value == pytest.approx(sum(energy.design_power_by_part(chip).values()))
    assert columns["power_density"][0] == pytest.approx(facts["tdp"].value / facts["die_area"].value)
    for name, fact in facts.items():
        assert fact.modelled == pytest.approx(float(MODEL[name](alone.chip)))
    if "price" in facts:
        own = sum(value for name, value in price.price_by_part(chip).items() if name in (*price.SOLD, area.DIFFERENCE))
        assert own == pytest.approx(facts["price"].value)


def test_text_and_json_have_facts_and_remarks(cards, tmp_path):
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/card.yaml").write_text(CARDS["pro6000"])
    config = evaluate_config(compose((f"--config-dir={tmp_path}", "chip=card", *LOAD)))
    text, data = [f"{name} {fact_text}" for name, fact_text in config.facts()], evaluation_record(config)
    assert any("data sheet die area 750 mm2; the model makes 9" in line for line in text)
    assert {line.split()[1].rstrip(":") for line in text if line.startswith("remark")} == BROKEN["pro6000"]
    assert [fact.name for fact in data.published] == ["die_area", "tdp", "clock", "price"]
    assert all(fact.holds and fact.modelled == fact.of_part != fact.value for fact in data.published)
    assert len(data.remarks) == len(BROKEN["pro6000"])


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("leaf", MOVED)
def test_a_fact_is_dropped_where_a_knob_moves_what_it_depends_on(cards, card, leaf):
    """It depends on what the model's own figure does; once it is dropped the model counts, as if nothing were published."""
    given_cards = cards(f"chip={card}")
    base, address = given_cards.base, f"chip.{leaf}"
    for times in (0.5, 1.0, 1.25):
        design = replace_leaves(base, {address: type(leaf_at(base, address))(leaf_at(base, address) * times)})
        chip, without = design.chip, remove_published_facts(design.chip)
        for fact in published_facts(chip):
            as_given = float(MODEL[fact.name](remove_published_facts(base.chip)))
            same = fact.modelled == pytest.approx(as_given, rel=1e-9)
            if fact.name == "clock":
                same = same and chip.clock <= fact.value * (1 + 1e-9)
            assert fact.holds == same
            assert ("is not used" in fact.text) != same
        holds = {fact.name: fact.holds for fact in published_facts(chip)}
        if times != 1.0 and leaf in ("cores", "core.matrix", "l2.size", "hbm.bandwidth", "clock"):
            assert not holds["die_area"] or (leaf == "cores" and chip.die.built_cores >= chip.cores)
            assert not holds["tdp"] or leaf == "l2.size"
        if not any(holds.values()):
            outcomes, plain = (
                evaluate(stack_designs([replace(design, chip=chip)]), given_cards.workload) for chip in (chip, without)
            )
            assert outcomes.limit[0] == plain.limit[0]
            for name, column in plain.columns.items():
                assert np.array_equal(outcomes.columns[name], column, equal_nan=True), name


def test_designs_together_are_as_one_by_one_each_by_its_own_part(cards):
    """Two parts of one structure, and designs whose knobs moved, in one batch."""
    given_cards = [cards(f"chip={card}") for card in ("pro6000", "gaudy")]
    bases = [
        replace(
            given_cards[0].base, chip=replace(given_cards[0].base.chip, core=replace(given_cards[0].base.chip.core, rates=None))
        ),
        given_cards[1].base,
    ]
    bases[1] = replace(bases[1], chip=replace(bases[1].chip, core=replace(bases[1].chip.core, rates=None)))
    designs = [
        replace_leaves(base, {"chip.l2.size": base.chip.l2.size * times, "chip.die.memory_edge_share": shore})
        for base in bases
        for times in (1.0, 0.5)
        for shore in (0.5, 1.0)
    ]
    together = evaluate(stack_designs(designs), given_cards[0].workload)
    for row, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), given_cards[0].workload)
        assert together.limit[row] == alone.limit[0]
        for name in ("die_mm2", "system_mm2", "tdp", "energy", "system_price", "latency"):
            assert together.columns[name][row] == pytest.approx(alone.columns[name][0], rel=1e-12, nan_ok=True), name
    assert len({design_key(design) for design in designs}) == len(designs)


@pytest.mark.parametrize(
    ("word", "leaf", "value"), [("'64 MB'", "l2.size", 64e6), ("100", "cores", 100), ("2GHz", "clock", 2e9)]
)
def test_a_typed_leaf_is_as_a_knob_and_typed_facts_are_of_the_typed_chip(cards, word, leaf, value):
    base = cards("chip=gaudy").base
    moved, typed = replace_leaves(base, {f"chip.{leaf}": value}), cards("chip=gaudy", f"chip.{leaf}={word}").base
    assert design_key(moved) == design_key(typed)
    assert published_facts(moved.chip) == published_facts(typed.chip)
    assert any(not fact.holds for fact in published_facts(typed.chip))
    sheet = cards("chip=gaudy", f"chip.{leaf}={word}", "chip.published.die_area='650 mm2'")
    die, *others = published_facts(sheet.base.chip)
    assert (die.holds, die.value) == (True, 650.0)
    assert [fact.holds for fact in others] == [fact.holds for fact in published_facts(typed.chip)[1:]]


def test_a_study_says_which_knobs_drop_facts(tmp_path):
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip/card.yaml").write_text(CARDS["gaudy"])
    knobs = ("+space.chip.l2.size='tag(MB,choice(72,96))'", "+space.chip.hbm.strided_row_overhead='tag(ns,choice(0,1))'")
    study = build_study(compose((f"--config-dir={tmp_path}", "chip=card", *LOAD, *knobs, "+objectives.tpot=min")), tmp_path)
    (remark,) = find_dropped_facts(study)
    assert remark.what == "card"
    assert "die area" in remark.text
    assert "where chip.l2.size change" in remark.text


def test_a_part_of_facts_is_worked_out_and_chips_without_facts_keep_their_keys(cards):
    with pytest.raises(DesignError, match=r"^chip\.published\.part: is computed"):
        cards("chip=gaudy", "+chip.published.part=mine")
    assert not any("published" in address for address, _ in iterate_key_leaves(cards("chip=tpu_v5p").base))
    plain = cards("chip=rtx4090", "chip.published=null").base
    assert design_key(
        replace(cards("chip=gaudy").base, chip=remove_published_facts(cards("chip=gaudy").base.chip))
    ) == design_key(plain)
