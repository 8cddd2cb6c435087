"""Presets of devices beside their data sheets: memory, peaks by format, and answers as a newcomer asks for them."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.evaluators.silicon.area import area_by_block, format_area_factor
from dse.evaluators.silicon.published import SAME, departures, stated_and_own
from dse.space.design import design_key
from dse.space.fields import replace_leaves
from dse.space.number_formats import FormatRates
from dse.space.peaks import peaks
from dse.space.published import STATED_FACTS
from dse.space.units import parse_quantity
from tests.samples import asked

CHIPS = sorted(path.stem for path in (Path(dse.__file__).parent / "conf/chip").glob("*.yaml"))

SHEETS = (
    "a100", "b200", "b300", "gaudi2", "gaudi3", "gh200", "groq", "groq3_lpu", "h100", "h20", "h200", "h800", "inferentia2",
    "l40s", "mi250x", "mi300x", "mi325x", "mi355x", "n150", "n300", "p100", "p150", "rtx4090", "rtx5090", "rtx_pro_6000",
    "rubin", "sn40l", "t3k", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7x", "trainium1", "trainium2", "wormhole",
    "wormhole_galaxy",
)  # fmt: skip
"""Devices with a cache whose data sheets state peaks."""


def chip_of(name: str, *words: str):
    return asked(f"chip={name}", "model=llama3_8b", "workload.batch=[1]", *words).base.chip


@pytest.mark.parametrize("name", SHEETS)
def test_a_preset_has_the_memory_and_the_peaks_of_its_data_sheet(name):
    chip = chip_of(name)
    stated = stated_and_own(chip)
    assert any(fact.startswith("peak") for fact in stated)
    for fact, (sheet, own) in stated.items():
        assert own == pytest.approx(sheet, rel=SAME), fact
    assert not departures(chip)
    formats = {fact: fact.removeprefix("peak_") for fact in STATED_FACTS if fact.startswith("peak")}
    own = peaks(chip)
    if name not in ("groq", "groq3_lpu", "p100", "p150"):  # whose sheets give fewer formats than are multiplied here
        missing = {word for fact, word in formats.items() if getattr(chip.published, fact) is None}
        assert not missing & own.keys()


def test_every_preset_that_states_facts_is_compared():
    stating = set()
    for name in CHIPS:
        text = (Path(dse.__file__).parent / f"conf/chip/{name}.yaml").read_text()
        if "\npublished:" in text:
            stating.add(name)
    assert stating <= set(SHEETS)


@pytest.mark.parametrize(
    ("name", "over"),
    [
        ("b300", {"int8": 153 / 2250, "fp8": 2.0, "nvfp4": 6.0}),
        ("rubin", {"int8": 2500 / 4000, "fp8": 4.375, "nvfp4": 8.75}),
        ("gaudi3", {"fp8": 1.0, "int8": None}),
        ("tpu_v6e", {"fp8": 1.0, "int8": 2.0}),
        ("tpu_v7x", {"fp8": 2.0, "int8": None}),
        ("tpu_v5e", {"fp8": None, "int8": 2.0}),
        ("trainium2", {"fp8": 1299 / 667, "int8": None}),
        ("sn40l", {"fp8": None, "int8": None}),
    ],
)
def test_formats_are_not_multiples_of_one_another(name, over):
    own = peaks(chip_of(name))
    for number_format, times in over.items():
        if times is None:
            assert number_format not in own
        else:
            assert own[number_format] == pytest.approx(times * own["fp16"], rel=2e-3)


def test_int8_is_slower_than_fp8_where_engines_have_little_of_it():
    words = [
        "chip=b300",
        "model=llama3_8b",
        "workload.batch=[64]",
        "workload.prompt=1024",
        "workload.output=2",
        "mapping.both.tp=1",
        "inference_engine=none",
    ]
    slow = dse.evaluate(words, "precision={weights: int8, activations: int8, kv: fp8}")
    fast = dse.evaluate(words, "precision={weights: fp8, activations: fp8, kv: fp8}")
    assert slow.metrics["ttft"] > 8 * fast.metrics["ttft"]
    assert slow.metrics["peak_flops"] == pytest.approx(153e12, rel=1e-3)


@given(st.floats(0.01, 2.0), st.floats(0.01, 2.0), st.floats(0.01, 4.0))
def test_a_format_that_needs_fewer_multipliers_takes_no_area(int8, fp8, fp4):
    assert format_area_factor(FormatRates(int8=int8, fp8=fp8, nvfp4=fp4)) == 1.0


@given(st.floats(4.0, 16.0), st.floats(0.01, 2.0))
def test_engines_grow_with_the_format_that_needs_most(fp4, int8):
    chip = chip_of("b300", "chip.published=null")
    base = area_by_block(replace_leaves(chip, {"core.rates.nvfp4": 4.0, "core.rates.mxfp4": 4.0}))
    more = area_by_block(replace_leaves(chip, {"core.rates.nvfp4": fp4, "core.rates.mxfp4": 4.0, "core.rates.int8": int8}))
    assert more["matrix engines"] == pytest.approx(base["matrix engines"] * fp4 / 4)
    assert all(np.isfinite(value) for value in more.values())


def test_stated_facts_are_in_no_key_and_move_no_result():
    usual = asked("chip=tpu_v5p", "model=llama3_8b", "workload.batch=[1]").base
    without = asked("chip=tpu_v5p", "model=llama3_8b", "workload.batch=[1]", "chip.published=null").base
    assert usual.chip.published is not None
    assert design_key(usual) == design_key(without)


def test_an_answer_tells_what_is_not_as_its_data_sheet_states():
    words = ["chip=h100", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=2"]
    assert not any(text.startswith("memory") for _, text in dse.evaluate(words).facts())
    told = [text for name, text in dse.evaluate(words, "chip.hbm.capacity='40 GB'").facts() if name == "data sheet"]
    assert "memory 85.04 GB; this design has 42.52 GB" in told


def test_a_stated_figure_is_given_and_has_no_error_band():
    words = ["chip=h100", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=2"]
    stated, modelled = dse.evaluate(words), dse.evaluate(words, "chip.published=null")
    assert (stated.metrics["die_mm2"], stated.metrics["tdp"]) == (pytest.approx(814), pytest.approx(700))
    assert not {"die_mm2", "tdp"} & {band.metric for band in stated.bands}
    assert {"die_mm2", "tdp"} <= {band.metric for band in modelled.bands}
    another = dse.evaluate(words, "chip.l2.size=60MB")
    assert another.metrics["die_mm2"] > modelled.metrics["die_mm2"]
    assert "die_mm2" in {band.metric for band in another.bands}


@pytest.mark.parametrize("tier", ["tier_host", "tier_cxl"])
def test_a_memory_tier_adds_to_what_a_data_sheet_states(tier):
    words = ["chip=h100", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=2"]
    alone, beside = dse.evaluate(words), dse.evaluate(words, f"+part@chip.tiers={tier}")
    modelled = [dse.evaluate(words, "chip.published=null", *more) for more in ((), (f"+part@chip.tiers={tier}",))]
    for name in ("die_mm2", "tdp"):
        more = modelled[1].metrics[name] - modelled[0].metrics[name]
        assert beside.metrics[name] - alone.metrics[name] == pytest.approx(more, abs=1e-6)
        assert more >= 0
    assert beside.metrics["system_price"] > alone.metrics["system_price"]


NEW = (
    "b300", "groq3_lpu", "h20", "inferentia2", "l40s", "mi325x", "mi355x", "n150", "n300", "p150", "rtx5090", "rtx_pro_6000",
    "rubin", "sn40l", "t3k", "tpu_v5e", "tpu_v6e", "tpu_v7x", "trainium1", "trainium2", "gaudi2",
)  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_a_device_by_its_data_sheet_is_answered_alone_and_served(name):
    static = dse.evaluate(f"chip={name}", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=4")
    assert static.infeasible is None
    assert static.metrics["throughput"] > 0
    load = ["workload=serving", "workload.requests=4", "workload.prompt=64", "workload.output=4", "workload.rate=0.1 Hz"]
    served = dse.evaluate(f"chip={name}", "model=llama3_8b", *load)
    assert served.infeasible is None


@pytest.mark.parametrize(
    ("name", "edge", "picojoule"), [("gddr7", 30, 4.75), ("lpddr5x", 14, 5), ("ddr5", 7.5, 15), ("hbm4e", 280, 2.3)]
)
def test_memories_have_the_bandwidth_of_their_edge_and_their_energy(name, edge, picojoule):
    """Bandwidth of a millimetre of die edge [GB/s], and energy of a bit [pJ], as documents of the memories state them."""
    file = yaml.safe_load((Path(dse.__file__).parent / f"conf/dram/{name}.yaml").read_text())
    bandwidth = parse_quantity(file["device_bandwidth"]["value"], "B/s")
    dram = chip_of("h100", f"dram@chip.dram={name}", f"chip.dram.device_bandwidth='{bandwidth!r} B/s'").dram
    assert dram.device_bandwidth / dram.edge_length / 1e9 == pytest.approx(edge, rel=0.05)
    assert dram.energy_per_byte / 8 * 1e12 == pytest.approx(picojoule, rel=0.03)
