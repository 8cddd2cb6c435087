"""Limits that are known before anything runs: the length of sequences, and what a service needs of its chip."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import explain_infeasibility, find_worst_violation
from dse.evaluators.serving import simulator as loop
from dse.execution.study import build_study
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.marks import slow_if
from tests.samples import asked

pytestmark = pytest.mark.usefixtures("flat_stack")

SERVING = ("chip=npu64", "model=qwen3_4b", "workload=serving", "workload.requests=8")
LONG = ("workload.prompt=900000", "workload.output=8")
KINDS = [("chip=npu_dse",), ("chip=wse2", "workload.batch=[1]"), ("chip=npu64",), ("chip=tile_gh200", "mapping=flat")]
KINDS += [(f"chip={chip}", "workload=serving") for chip in ("npu_dse", "npu64", "wse2", "tile32")]


@pytest.fixture
def nothing_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(*args: object) -> int:
        raise AssertionError("a request was played")

    monkeypatch.setattr(loop, "run_event_loop", played)


@slow_if(lambda kind: "mapping=flat" in kind)
@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_a_sequence_longer_than_its_model_was_made_for_is_infeasible(kind: tuple[str, ...], nothing_is_played: None) -> None:
    question = asked(*kind, "model=llama3_8b", *LONG)
    verdict = explain_infeasibility(question.base, question.workload)
    outcomes = evaluate(stack_designs([question.base]), question.workload)
    assert not outcomes.feasible[0]
    assert verdict is not None
    lengths = [limit for limit in (verdict.limit, list(SILICON_LIMITS)[outcomes.limit[0]]) if limit == "model.max_position"]
    assert lengths or verdict.excess > 900_008 / 8192 - 1  # memory may lack even more


def test_a_model_that_is_said_to_be_extended_takes_longer_sequences() -> None:
    long = ("chip=npu_dse", "model=llama3_8b", "workload.sequence=[16384]", "workload.batch=[1]")
    before, after = asked(*long), asked(*long, "model.max_position=16384")
    verdict = explain_infeasibility(before.base, before.workload)
    assert verdict is not None
    assert (verdict.need, verdict.have) == (16384, 8192)
    assert "model.max_position=16384" in verdict.remedy
    assert explain_infeasibility(after.base, after.workload) is None


def test_a_study_of_sequences_that_no_design_can_take_is_refused() -> None:
    from dse.config.compose import compose

    with pytest.raises(DesignError, match=r"no design of this study is possible: .*900,008 tokens"):
        build_study(compose(["model=llama3_8b", "+objectives.tpot=min", *LONG]), Path())


both = st.sampled_from([1, 2, 4, 8, 16, 64])


@settings(max_examples=25, deadline=None)
@given(both, both, both, both, st.sampled_from([0, 8, 16, 63, 64, 200]), st.sampled_from(["k", "mn"]))
def test_a_service_that_breaks_a_limit_is_not_played(tp: int, pp: int, tp2: int, pp2: int, cores: int, how: str) -> None:
    question = asked(*SERVING)
    values = {"prefill.tp": tp, "prefill.pp": pp, "decode.tp": tp2, "decode.pp": pp2, "serving.prefill_cores": cores}
    design = replace_leaves(question.base, {f"mapping.{name}": value for name, value in values.items()} | {
        "mapping.prefill.partition": how, "mapping.decode.partition": how})  # fmt: skip
    verdict = find_worst_violation(design, question.workload)
    if verdict is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "run_event_loop", None)
        outcomes = evaluate(stack_designs([design]), question.workload)
        parts = explain(design, question.workload.cases[0])
    assert list(SILICON_LIMITS)[outcomes.limit[0]] == verdict.limit
    assert outcomes.need[0] == pytest.approx(verdict.need)
    assert np.isnan(outcomes.columns["throughput"][0])
    assert not parts.rows


def test_a_pipeline_without_room_names_the_cores_and_a_change_that_makes_room() -> None:
    question = asked(*SERVING, "mapping.both.tp=4", "mapping.both.pp=8", "mapping.serving.prefill_cores=16")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert "TP 4 x PP 8 = 32 cores for prefill, 16 of 64 are set aside by mapping.serving.prefill_cores" in verdict.remedy
    count = int(verdict.remedy.split("mapping.serving.prefill_cores=")[1].split()[0].strip(","))
    assert (
        explain_infeasibility(replace_leaves(question.base, {"mapping.serving.prefill_cores": count}), question.workload)
        is None
    )


def test_an_overloaded_service_is_bound_by_work_not_by_waiting() -> None:
    question = asked(
        *SERVING, "workload.rate=100 Hz", "mapping.both.tp=4", "mapping.both.pp=2", "mapping.serving.prefill_cores=16"
    )
    parts = explain(question.base, question.workload.cases[0])
    assert "idle" in parts.by_bound()
    bound = parts.seconds_by_cause()
    assert bound
    assert "idle" not in bound


@pytest.mark.parametrize(("chip", "model"), [("groq", "llama3_8b"), ("a100", "llama3_405b")])
def test_dies_that_are_too_few_are_told_how_many_would_do(chip: str, model: str) -> None:
    words = (f"chip={chip}", f"model={model}", "workload.batch=[4]", "workload.prompt=1000", "workload.output=100")
    question = asked(*words, "mapping.both.tp=2")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    tp = int(verdict.remedy.split("mapping.both.tp=")[1])
    with_tp = [asked(*words, f"mapping.both.tp={count}") for count in (tp, tp // 2)]
    assert [explain_infeasibility(question.base, question.workload) is None for question in with_tp] == [True, False]


SHARED = (
    (("model=llama3_8b",), 14336),  # columns of an FFN
    (("model=llama3_8b", "workload=serving", "workload.requests=2"), 14336),
    (("model=qwen3_30b_a3b",), 768),  # columns of an expert
    (("workload=attention", "mapping=tensor_parallel", "workload.heads=24"), 24),
    (("workload=gemm", "mapping=tensor_parallel", "workload.shapes=[8x640x512]"), 640),  # of the depth, which dies share
)
"""What is asked, and what dies share of a layer: heads of attention by itself, columns of what is wider."""


@pytest.mark.parametrize(("asks", "parts"), SHARED, ids=[" ".join(asks) for asks, _ in SHARED])
def test_each_die_has_a_head_or_a_column(asks: tuple[str, ...], parts: int) -> None:
    question = asked("chip=a100", *asks)
    each = [replace_leaves(question.base, {"mapping.prefill.tp": tp, "mapping.decode.tp": tp}) for tp in (parts, parts + 1)]
    assert explain_infeasibility(each[0], question.workload) is None
    left = explain_infeasibility(each[1], question.workload)
    assert left is not None
    assert left.limit in ("mapping.prefill.tp", "mapping.decode.tp")
    assert (left.need, left.have) == (parts + 1, parts)
    assert evaluate(stack_designs(each), question.workload).feasible.tolist() == [True, False]
