"""Weight of constants: ends are what overrides would give, order and limits, and the table over all chips."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import jsonschema
import pytest

from dse.accuracy.constant_ranges import find_uncertain_constants
from dse.commands.constants_output import weigh_overrides
from dse.config.compose import compose
from dse.config.question import build_question
from dse.documents import build_schema
from dse.explanations.constant_weights import OUT_OF_TIME
from dse.explanations.neighbours import StudyGoal, evaluate_points
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from dse.studies.constant_weights import finding

Typed = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    "words",
    [
        ("chip=a100", "workload.batch=[4]"),
        ("chip=npu64", "model=qwen3_1b7"),
        ("chip=wse2", "workload=gemv"),
    ],
    ids=lambda words: words[0],
)
def test_each_end_is_what_the_design_with_that_value_gives(words: tuple[str, ...]) -> None:
    weights = weigh_overrides(*words)
    question = build_question(compose(list(words)), Path())
    goal = StudyGoal(question.workload, dict.fromkeys(weights.metrics, "min"), (), "analytical")
    (base,) = evaluate_points([question.base], goal)
    assert base is not None
    moving = [weight for weight in weights.weights if weight.moves]
    assert moving
    for weight in (moving[0], *Random(words[0]).sample(weights.weights, 4)):
        constant = weight.constant
        value = float(leaf_at(question.base, constant.address))
        for place, factor in enumerate((constant.low, constant.high)):
            (outcome,) = evaluate_points([replace_leaves(question.base, {constant.address: value * factor})], goal)
            assert outcome is not None
            assert outcome.limit == weight.breaks[place] or weights.limit
            for metric, ends in weight.ends.items() if outcome.feasible else ():
                assert ends[place] * base.metrics[metric] == pytest.approx(outcome.metrics[metric], rel=1e-9)


def test_constants_are_in_the_order_of_their_weight_after_those_that_break_a_limit() -> None:
    weights = weigh_overrides("chip=a100").weights
    breaking = [weight for weight in weights if any(weight.breaks)]
    assert breaking == list(weights[: len(breaking)])
    assert "chip.clock" in {limit for weight in breaking for limit in weight.breaks}
    others = [weight.weight for weight in weights[len(breaking) :]]
    assert others == sorted(others, reverse=True)


def test_elasticity_of_a_proportional_metric_is_one() -> None:
    """The energy of a stream is of its bytes and of its time; the two parts sum to it."""
    weights = {weight.constant.address: weight for weight in weigh_overrides("chip=hbm3", "workload=stream").weights}
    of_bytes, of_time = (weights[f"chip.dram.{leaf}"] for leaf in ("energy_per_byte", "idle_power"))
    shares = [(weight.ends["energy"][1] - 1) / (weight.constant.high - 1) for weight in (of_bytes, of_time)]
    assert 0 < of_time.elasticity("energy") < of_bytes.elasticity("energy") < 1
    assert of_bytes.elasticity("latency") == 0
    assert sum(shares) == pytest.approx(1.0, rel=1e-9)


def test_all_constants_with_a_range_are_weighed_or_left_with_a_reason() -> None:
    words = ["chip=hbm3", "workload=stream"]
    weights = weigh_overrides(*words)
    question = build_question(compose(words), Path())
    known = {constant.address for constant in find_uncertain_constants(question.sources, question.space)}
    reasons = {constant.address: why for constant, why in weights.left}
    assert known == {weight.constant.address for weight in weights.weights} | reasons.keys()
    assert "power of two" in reasons["chip.memory.granularity"]
    late = weigh_overrides(*words, seconds=0.0)
    assert not late.weights
    assert {why for _, why in late.left} == {OUT_OF_TIME}
    assert late.metrics == weights.metrics


def test_of_a_simulation_constants_are_moved_until_the_time_is_over() -> None:
    words = ("chip=wse2", "workload=gemv", "workload.shapes=[1x1024x1024]", "fidelity=events")
    weights = weigh_overrides(*words, seconds=0.5)
    assert weights.fidelity == "events"
    assert weights.weights or weights.left
    assert {why for _, why in weights.left} <= {OUT_OF_TIME}


def test_the_answer_keeps_to_its_schema_and_its_source(typed: Typed) -> None:
    code, out, err = typed("constants", "--json", "--source", "assumed", "chip=npu64", "model=qwen3_1b7")
    assert code == 0, err
    document = json.loads(out)
    jsonschema.Draft202012Validator(build_schema("constants")).validate(document)
    assert {constant["source"] for constant in document["constants"]} == {"assumed"}
    code, out, err = typed("constants", "chip=npu64", "model=qwen3_1b7", "+objectives.tpot=min", "search.budget=4")
    assert code == 0, err
    assert "chip.hbm.channel_bandwidth" in out
    assert "fitted" in out
    assert "search.budget" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--source", "asumed", "chip=a100"), "asumed"),
        (("chips=[a100,npu64]",), "one design of a100, npu64"),
        (("quickstat",), "as in dse constants quickstart"),
        (("chip=a100", "chip.nope=1"), "nope"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words: tuple[str, ...], says: str, typed: Typed) -> None:
    code, out, err = typed("constants", *words)
    assert code == 2
    assert not out
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_the_table_over_chips_sums_their_weights() -> None:
    answers = {}
    for chip in ("npu64", "npu256"):
        answer = finding.weigh_chip(chip)
        assert answer is not None
        answers[chip] = answer[1]
    shared = finding.share_constants(answers)
    totals = [constant.total for constant in shared]
    assert totals == sorted(totals, reverse=True)
    assert sum(totals) == pytest.approx(sum(weight.weight for answer in answers.values() for weight in answer.weights))
    text = finding.summarise(answers, ["npu64", "npu256", "none"])
    assert text.startswith(f"2 chips have {len(shared)} addresses")
    assert "Not asked, for no question or no assumed constant fits: none." in text
    assert f"`{shared[0].address}`" in text


def test_a_chip_without_a_question_has_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: str, source: str) -> None:
        raise DesignError("none")

    monkeypatch.setattr(finding, "weigh_overrides", refuse)
    assert finding.weigh_chip("npu64") is None
