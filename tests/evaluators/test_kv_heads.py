"""KV heads that devices do not divide: some hold one more, or each as many as all can have."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves

pytestmark = pytest.mark.usefixtures("flat_stack")

METRICS = ("latency", "ttft", "hbm_used", "attention_layer_bytes", "energy")


@cache
def asked(model: str, *words: str) -> Question:
    lengths = ("workload.batch=[4]", "workload.prompt=1000", "workload.output=50")
    return build_question(compose(["chip=ascend910b", *lengths, f"model={model}", *words]), Path())


def found(word: str, tp: int, **heads: int) -> list[float]:
    """Metrics of a model of so many heads."""
    question = asked("llama3_8b", f"+mapping.both.kv_heads={word}")
    case = question.workload.cases[0]
    workload = replace(question.workload, cases=(replace(case, model=replace(case.model, **heads)),))
    design = replace_leaves(question.base, {"mapping.prefill.tp": tp, "mapping.decode.tp": tp})
    columns = evaluate(stack_designs([design]), workload).columns
    return [float(columns[name][0]) for name in METRICS]


@pytest.mark.sampled
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(0, 7), st.integers(1, 4), st.integers(2, 8))
def test_fewer_heads_are_a_model_that_has_only_those(each: int, over: int, group: int, tp: int) -> None:
    """Each device has `each` whole heads, and `over` of them are left over."""
    kv_heads, heads = each * tp + min(over, tp - 1), group * each * tp * (each * tp + min(over, tp - 1))
    few, more = (found(word, tp, heads=heads, kv_heads=kv_heads) for word in ("round_down", "round_up"))
    fewer = found("round_down", tp, heads=heads, kv_heads=each * tp)
    rounded = found("round_up", tp, heads=heads, kv_heads=(each + (over > 0)) * tp)
    memory = METRICS.index("hbm_used")  # activations hold keys of heads that are dropped
    for answer, other in ((few, fewer), (more, rounded)):
        assert answer.pop(memory) == pytest.approx(other.pop(memory), rel=1e-3)
        assert answer == pytest.approx(other, rel=1e-12)
    assert all(value <= other for value, other in zip(few, more, strict=True))


def test_a_device_holds_one_head_where_there_are_fewer_than_devices() -> None:
    assert found("round_down", 8, heads=32, kv_heads=4) == found("round_up", 8, heads=32, kv_heads=4)


def test_phases_that_hold_different_heads_and_models_that_have_none_are_refused() -> None:
    for words, message in (
        (
            ("phi3_medium", "+mapping.prefill.kv_heads=round_down"),
            r"mapping\.decode\.kv_heads: prefill and decode share one KV cache",
        ),
        (("deepseek_v3", "+mapping.both.kv_heads=round_down"), "DeepSeek-V3 has no KV heads that could be divided"),
    ):
        question = asked(*words)
        with pytest.raises(DesignError, match=message):
            evaluate(stack_designs([question.base]), question.workload).require_compatible()
