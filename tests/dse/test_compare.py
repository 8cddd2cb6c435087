"""Chips side by side: each with the best of its mappings, at equal formats, and the reasons of those that cannot be asked."""

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import dse
from dse import main
from dse.analysis.compare import MAX_SIMULATED, ChipComparison, describe_software_difference
from dse.evaluators import METRICS
from dse.space.errors import DesignError
from dse.space.mapping import MultiDiePlan
from tests.dse.test_chips import FP16, SIZES
from tests.marks import slow_if

CHIPS = "chip=[a100,npu64,wse2,tile_gh200,dojo]"


@pytest.fixture(scope="module")
def sides() -> list[ChipComparison]:
    return dse.compare_chips(CHIPS, *SIZES)


def test_every_chip_has_a_design_that_fits_at_the_same_formats(sides: list[ChipComparison]) -> None:
    assert [side.chip for side in sides] == ["a100", "npu64", "wse2", "tile_gh200", "dojo"]
    for side in sides:
        assert side.found is not None, side.why
        assert side.found.infeasible is None
        assert side.formats == "fp16"
        assert side.looked[0] >= side.looked[1] > 0
        assert (side.chips or 0) * (side.dies or 0) == round(side.found.metrics["system_mm2"] / side.found.metrics["die_mm2"])


@slow_if(lambda objective: objective != "tpot")
@pytest.mark.parametrize("objective", ["throughput_per_system_mm2", "tpot"])
def test_no_mapping_that_a_seed_draws_is_better_than_the_best(objective: str) -> None:
    rng, sign = np.random.default_rng(1), -1 if METRICS[objective].better == "min" else 1
    draws: dict[str, Any] = {
        "a100": {"mapping.both.tp": (1, 2, 4, 8)},
        "npu64": {"mapping.both.tp": (1, 2, 4, 8, 16), "mapping.both.pp": (1, 2, 4), "mapping.both.partition": ("k", "mn")},
        "wse2": {"mapping.prefill.rows": range(300, 751, 30), "mapping.decode.rows": range(300, 751, 30)},
    }
    for side in dse.compare_chips("chip=[a100,npu64,wse2]", *SIZES, objective=objective):
        assert side.found is not None
        for _ in range(4):
            words = [f"{address}={rng.choice(list(values))}" for address, values in draws[side.chip].items()]
            other = dse.evaluate(f"chip={side.chip}", *SIZES, *words)
            if other.infeasible is None:
                assert sign * (other.metrics[objective] / side.found.metrics[objective] - 1) <= 1e-12


def test_what_is_shown_is_what_one_design_says(sides: list[ChipComparison]) -> None:
    for side in sides:
        assert side.found is not None
        alone = dse.evaluate(f"chip={side.chip}", *SIZES, *(f"{address}={value}" for address, value in side.values.items()))
        assert side.found.metrics == pytest.approx(alone.metrics, rel=1e-9)


def test_a_chip_that_cannot_be_asked_says_why_and_stops_no_other() -> None:
    sides = {side.chip: side for side in dse.compare_chips("chip=[mesh8,a100,wse2]", *SIZES, "model=llama3_70b", FP16)}
    assert sides["a100"].found is not None
    assert "nothing runs models on this chip" in sides["mesh8"].why or "precision" in sides["mesh8"].why
    assert "fits" in sides["wse2"].why
    assert all("\n" not in side.why for side in sides.values())


def test_what_the_user_sets_is_not_searched() -> None:
    side, other = dse.compare_chips("chip=[a100,npu64]", *SIZES, "mapping.both.tp=2")
    assert side.found is not None
    assert other.found is not None
    assert side.found.design.mapping.decode.tp == other.found.design.mapping.prefill.tp == 2
    assert "mapping.both.tp" not in side.values | other.values
    assert set(other.values) == {f"mapping.both.{name}" for name in ("pp", "partition", "placement")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("chip=[a100,npu_dse]",), "formats of their default mappings differ.*precision="),
        (("model=llama3_8b",), "name the chips"),
        (("chip=[a100,a100]",), "twice"),
        (("chip=[a100]", "study=quickstart"), "study is for studies"),
        (("chip=[a100,wse2]", "+space.mapping.both.tpp=choice(1,2)"), "no field 'mapping.both.tpp'; did you mean 'tp'"),
        (("chip=[a100]", "workload.btach=[1]"), "no chip supports this workload.*batch"),
        (("chip=[a100,npu6]",), "compare: chip: no option 'npu6'; did you mean 'npu64'"),
        (("chip=[npu6,a100]", "model=llama3_70b"), "compare: chip: no option 'npu6'"),
    ],
)
def test_what_is_wrong_for_all_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(DesignError, match=says):
        dse.compare_chips(*words)


def test_a_space_of_ones_own_is_searched_in_place_of_the_usual_one() -> None:
    first_side, two = dse.compare_chips("chip=[a100,wse2]", *SIZES, "+space.mapping.both.tp=choice(2,4)")
    assert first_side.values in ({"mapping.both.tp": 2}, {"mapping.both.tp": 4})
    assert (first_side.looked[0], two.values, two.looked[0]) == (2, {}, 1)


def test_unlike_formats_are_said() -> None:
    chips = dse.compare_chips("chip=[a100,npu_dse]", "formats=own", *SIZES)
    assert [side.formats for side in chips] == ["fp16", "int8"]


DIES = ("chip.dies.rows=2", "chip.dies.cols=4", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")
WAFER = ("workload.batch=[64]", "workload.prompt=128", "workload.output=8")


def test_dies_are_divided_as_the_model_can_be() -> None:
    """A model without experts has a mapping on dies whose usual one is for experts, and each knob of the split is searched."""
    (side,) = dse.compare_chips("chip=[wafer64]", *DIES, *WAFER, "model=qwen3_1b7")
    assert side.found is not None, side.why
    assert side.values["mapping.both.ep"] == 1
    split = {field.name for field in fields(MultiDiePlan)} - {"experts", "prefetch", "all_to_all"}
    assert split <= {address.split(".")[-1] for address in side.values}


@pytest.mark.slow
def test_no_split_of_the_dies_by_hand_is_better() -> None:
    objective, rng = "throughput", np.random.default_rng(3)
    words = (*DIES, *WAFER, "model=deepseek_v2_lite", "chip.d2d.bandwidth='20 GB/s'")
    (side,) = dse.compare_chips("chip=[wafer64]", *words, objective=objective)
    assert side.found is not None, side.why
    draws = {"tp": (1, 2), "pp": (1, 2), "ep": (2, 4, 8), "overlap": ("none", "two_batch"), "placement": ("linear", "blocks")}
    for _ in range(5):
        mine = [f"mapping.both.{name}={rng.choice(list(values))}" for name, values in draws.items()]
        other = dse.evaluate("chip=wafer64", *words, *mine)
        assert other.infeasible or other.metrics[objective] <= side.found.metrics[objective] * (1 + 1e-12)


def test_unlike_software_is_said_with_what_makes_it_alike() -> None:
    chips = dse.compare_chips("chip=[npu_dse,h100,wse2]", *SIZES, FP16)
    assert [side.software for side in chips] == ["ideal", "trtllm_v1", ""]
    assert describe_software_difference(chips).startswith("software stacks differ (npu_dse ideal, h100 trtllm_v1): stack=tuned")
    alike = dse.compare_chips("chip=[npu_dse,h100]", *SIZES, FP16, "stack=tuned")
    assert [side.software for side in alike] == ["tuned", "tuned"]
    assert not describe_software_difference(alike)


def test_served_loads_are_compared_over_a_few_mappings() -> None:
    words = ("workload=serving", "workload.requests=10", "workload.prompt=256", "workload.output=16", FP16)
    for side in dse.compare_chips("chip=[a100,npu64,wse2]", *words):
        assert side.found is not None, side.why
        assert 1 < side.looked[0] <= MAX_SIMULATED + 1
        assert side.found.metrics["ttft"] > 0


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["dse", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code
    return capsys.readouterr().out


def test_the_table_has_a_column_a_chip_and_the_reasons_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = run(capsys, monkeypatch, "--full", "chip=[a100,wse2,mesh8]", *SIZES)
    for text in (
        "a100",
        "wse2",
        "tokens per joule",
        "throughput_per_system_mm2",
        "mappings evaluated",
        "mesh8  workload: nothing runs models",
    ):
        assert text in out


def test_what_a_data_sheet_states_is_told_of_the_chip_that_has_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its area is compared with areas that are modelled."""
    lines = run(capsys, monkeypatch, "--full", "chip=[h100,tile_gh200]", *SIZES).splitlines()
    told = [line for line in lines if "data sheet: " in line]
    assert any(line.startswith("h100: data sheet: die area 814 mm2; the model makes") for line in told)
    assert not any(line.startswith("tile_gh200") for line in told)


def test_json_has_every_metric_with_its_unit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(run(capsys, monkeypatch, "--json", "--objective", "tpot", "chip=[a100,mesh8]", *SIZES))
    a100, mesh8 = document["chips"]
    assert document["objective"] == "tpot"
    assert a100["metrics"]["tpot"]["unit"] == "s"
    assert a100["tokens_per_joule"] == pytest.approx(1 / a100["metrics"]["energy_per_token"]["value"])
    assert (a100["software"], mesh8["software"], document["note"]) == ("trtllm_v1", None, None)
    assert a100["formats"] == {"weights": "fp16", "activations": "fp16", "kv": "fp16"}
    assert mesh8["metrics"] == {}
    assert mesh8["why_not"].startswith("workload: nothing runs models")


def test_an_objective_by_its_former_name_is_the_present_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chips = ("chip=[a100,npu64]", *SIZES, "--objective")
    present = run(capsys, monkeypatch, *chips, "mfu")
    assert "a100 by mfu, " in present
    assert run(capsys, monkeypatch, *chips, "utilisation") == present
