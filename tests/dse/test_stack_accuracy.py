"""A stack's card says how far measured rates lie from its own; answers show the band where it applies, and only there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import dse
from dse.config.compose import CONF
from dse.space.errors import DesignError

CARDS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CONF / "stack").glob("*.yaml"))}
WITH_ACCURACY = sorted(name for name, card in CARDS.items() if card.get("accuracy"))
MODEL = ("model=qwen3_1b7", "mapping.both.tp=1", "workload.batch=[4]")


def test_the_stacks_of_software_maturity_say_how_sharp_they_are() -> None:
    assert {"early", "tuned", "ideal", "unfitted"} <= set(WITH_ACCURACY)


@pytest.mark.parametrize("name", WITH_ACCURACY)
def test_a_card_names_its_own_stack_and_a_range(name: str) -> None:
    accuracy = CARDS[name]["accuracy"]
    assert accuracy["stack"] == name
    assert 0 < accuracy["low"]["value"] < accuracy["high"]["value"]


@pytest.mark.parametrize("name", ["early", "tuned", "ideal", "unfitted"])
def test_the_band_is_the_rate_times_the_range_of_the_card(name: str) -> None:
    evaluation = dse.evaluate("chip=h100", f"stack={name}", *MODEL)
    basis, accuracy = evaluation.stack_basis, CARDS[name]["accuracy"]
    assert basis is not None
    assert basis.accuracy is not None
    assert (basis.accuracy.low, basis.accuracy.high) == (accuracy["low"]["value"], accuracy["high"]["value"])
    assert f"{accuracy['rows']} rows of {accuracy['kind']}" in evaluation.rate_band


@pytest.mark.parametrize(
    "words",
    [
        ("stack=trtllm_h100", *MODEL),
        ("stack=tuned", "mapping.stack.matrix_efficiency=0.5", *MODEL),
        ("stack=tuned", "workload=gemm"),
    ],
    ids=["a stack that inherits", "a stack with other numbers", "a single kernel"],
)
def test_other_answers_have_no_band(words: tuple[str, ...]) -> None:
    assert dse.evaluate("chip=h100", *words).rate_band == ""


def test_a_stable_load_at_a_rate_has_no_band_since_its_throughput_is_what_arrives() -> None:
    words = ["chip=h100", "model=llama3_8b", "workload=serving", "workload.requests=60", "fidelity=steady_state"]
    stable = dse.evaluate(*words, "workload.rate='2 Hz'")
    assert stable.metrics["load_status"] == 0
    assert stable.rate_band == ""
    assert any(line.startswith("throughput") and line.endswith("; what arrives") for line in stable.first_screen())
    bounds = ("workload.rate=max", "workload.ttft='1 s'", "workload.tpot='50 ms'")
    assert dse.evaluate(*words, *bounds).rate_band != ""
    assert dse.evaluate(*words, "workload.rate='900 Hz'").rate_band != ""


def test_accuracy_changes_no_result() -> None:
    plain, without = (
        dse.evaluate("chip=h100", "stack=tuned", *MODEL, *more) for more in ((), ("mapping.stack.accuracy=null",))
    )
    assert dict(plain.metrics) == dict(without.metrics)
    assert without.rate_band == ""


def test_a_range_that_is_no_range_is_refused_by_its_address() -> None:
    with pytest.raises(DesignError, match=r"mapping\.stack\.accuracy\.low"):
        dse.evaluate("chip=h100", "stack=tuned", *MODEL, "mapping.stack.accuracy.low=-1")


def test_evaluate_compare_and_capacity_print_the_band(tmp_path: Path, typed: Callable[..., tuple[int, str, str]]) -> None:
    load = ("workload.requests=300", "workload.ttft=20 ms", "space=empty", "devices=1", "--out", str(tmp_path / "page.html"))
    asks = {"evaluate": ("chip=h100",), "compare": ("chip=[h100]",), "capacity": ("chip=h100", *load)}
    accuracy = CARDS["tuned"]["accuracy"]
    for command, own in asks.items():
        code, out, err = typed(command, "model=qwen3_1b7", "stack=tuned", *own)
        assert code == 0, err
        assert f"{accuracy['rows']} rows of {accuracy['kind']}" in " ".join(out.split())
    data = json.loads(typed("evaluate", "--json", "chip=h100", "model=qwen3_1b7", "stack=tuned")[1])
    assert data["stack_basis"]["accuracy"]["rows"] == accuracy["rows"]
