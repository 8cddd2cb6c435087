"""Parts of a chip by name: an answer says which they are, and boxes make many dies of one with a cache."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import dse
from dse.config.compose import compose
from dse.config.part_presets import find_chosen_parts, find_parts_from_outside

Typed = Callable[..., tuple[int, str, str]]

CHIPS = sorted(path.stem for path in Path(dse.__file__).parent.glob("conf/chip/*.yaml"))

BOXES = {"node_nvlink3": "a100", "node_nvlink4": "h200", "node_nvlink5": "b200", "node_infinity": "mi300x"}


@pytest.mark.sampled
@pytest.mark.parametrize("chip", CHIPS)
def test_a_chip_as_it_ships_has_no_other_parts(chip: str) -> None:
    choices = compose([f"chip={chip}"])["choices"]
    assert not find_parts_from_outside(choices)
    assert all("@chip" in group for group in find_chosen_parts(choices))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("chip", "word", "note_text"),
    [
        ("h100", "technology@chip.technology=n3", "technology@chip.technology=n3"),
        ("npu64", "+part@chip.l2=l2_256mb", "part@chip.l2=l2_256mb"),
        ("h200", "dram@chip.dram=hbm2e", "dram@chip.dram=hbm2e"),
    ],
)
def test_an_answer_names_parts_that_are_not_those_of_its_chip(chip: str, word: str, note_text: str) -> None:
    evaluation = dse.evaluate(f"chip={chip}", "model=qwen3_1b7", word, "workload.batch=[1]")
    assert dict(evaluation.facts())["chip"] == f"{chip}, {note_text}"
    assert all("unchanged chip" in band.text for band in evaluation.bands if band.rows)
    assert dict(dse.evaluate(f"chip={chip}", "model=qwen3_1b7", "workload.batch=[1]").facts())["chip"] == chip


def test_json_has_the_parts_of_the_chip(typed: Typed) -> None:
    _, out, _ = typed("evaluate", "--json", "chip=h100", "technology@chip.technology=n3", "workload.batch=[1]")
    parts = json.loads(out)["parts_of_chip"]
    assert parts["technology@chip.technology"] == "n3"
    assert parts["dram@chip.dram"] == "hbm3"


def test_chips_side_by_side_say_what_is_not_as_it_ships(typed: Typed) -> None:
    words = ["chip=[h100,h200]", "technology@chip.technology=n3", "chip.hbm.bandwidth='2 TB/s'", "workload.batch=[1]"]
    _, out, _ = typed("compare", "--json", *words)
    for side in json.loads(out)["chips"]:
        assert side["set"] == ["technology@chip.technology=n3", "chip.hbm.bandwidth=2 TB/s"]
    _, out, _ = typed("compare", "--full", *words)
    assert "technology@chip.technology=n3" in out
    _, out, _ = typed("compare", "--full", *words[:1], *words[-1:])
    assert "set" not in out.split()


@pytest.mark.sampled
@pytest.mark.parametrize(("part", "chip"), BOXES.items())
def test_boxes_divide_a_model_by_experts(part: str, chip: str) -> None:
    words = [f"chip={chip}", f"+part@chip={part}", "model=qwen3_30b_a3b", "workload.batch=[32]"]
    words += ["workload.prompt=[512]", "workload.output=[64]"]
    eight = dse.evaluate(words, "mapping.both.ep=8")
    two = dse.evaluate(words, "chip.dies.rows=2", "mapping.both.ep=16")
    assert eight.infeasible is None
    assert two.infeasible is None
    assert two.metrics["hbm_used"] < eight.metrics["hbm_used"]
    assert two.metrics["system_mm2"] == pytest.approx(2 * eight.metrics["system_mm2"])


def test_h100s_in_boxes_are_that_part_on_an_h100() -> None:
    words = ["model=deepseek_v3", "mapping.both.ep=64", "workload.batch=[128]", "workload.prompt=[512]", "workload.output=[8]"]
    ready = dse.evaluate("chip=h100_ep", "chip.dies.rows=8", words)
    made = dse.evaluate("chip=h100", "+part@chip=node_nvlink4", "chip.dies.rows=8", words)
    assert ready.metrics == made.metrics


@pytest.mark.parametrize("word", ["mapping.both.ep=8", "mapping=expert_parallel"])
def test_what_one_box_does_not_have_says_how_to_make_boxes(word: str, typed: Typed) -> None:
    status, _, message = typed("evaluate", "--full", "chip=h200", word)
    assert status == 2
    assert "+part@chip=node_nvlink4" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("chip=wse2_hbm", "+part@chip.hbm=hbm3_edge"),
            "chip.hbm: its file sets one already; part@chip.hbm=hbm3_edge, without a +, replaces it",
        ),
        (
            ("chip=wse2_hbm", "+dram@chip.dram=hbm4"),
            "chip.dram: its file sets one already; dram@chip.dram=hbm4, without a +, replaces it",
        ),
        (("chip=npu64", "+part@chip=node_nvlink4"), "part@chip=node_nvlink4 changes the kind of chip; remove that preset"),
        (("chip=wse3", "part@chip=wafers_ethernet"), "part@chip: nothing chooses it yet; write +part@chip=NAME"),
        (("chip=tile_gh200", "chip.die_link=sow"), "this chip leaves it out; +die_link@chip.die_link=ucie_advanced sets it"),
        (("chip=tile_gh200", "die_link=sow"), "it is a part of a chip, as in +die_link@chip.die_link=ucie_advanced"),
    ],
)
def test_a_part_that_does_not_go_there_says_what_would_do(words: tuple[str, ...], message: str, typed: Typed) -> None:
    status, _, line = typed("evaluate", "--full", *words)
    assert status == 2
    assert message in line
    assert line.strip().count("\n") == 0


def test_a_value_that_a_part_cannot_have_is_not_blamed_on_the_part(typed: Typed) -> None:
    status, _, line = typed(
        "evaluate", "--full", "chip=wse3", "model=llama3_8b", "+part@chip=wafers_ethernet", "chip.chain.chips=0"
    )
    assert status == 2
    assert line.strip().endswith("chip.chain.chips: 0 is below the minimum, 1")


def test_a_part_takes_the_place_of_one_that_a_chip_has() -> None:
    words = ["chip=wse2_hbm", "model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=[64]", "workload.output=[4]"]
    other = dse.evaluate(words, "dram@chip.dram=hbm4")
    assert other.infeasible is None
    assert other.metrics["system_price"] != dse.evaluate(words).metrics["system_price"]
