"""Pipelines that serve with a partition of its own for each operator: one set of words, in the tables of the serving loop."""

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.serving_instances.pipeline_fleet import (
    PipelinePool,
    _mean_iterations_of,
    iteration_pass,
    pipeline_pools,
)
from dse.evaluators.cost_models import READERS
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.layouts.operator_partitions import offered_partitions
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.mapping import AUTO
from dse.space.workload import ServingLoad
from tests.samples import asked

WORDS = (
    "chip=npu64", "workload=serving", "workload.requests=30", "workload.prompt=300", "workload.output=20",
    "workload.rate='2 Hz'", "mapping.both.tp=8", "mapping.both.pp=4",
)  # fmt: skip


def with_word(design: Design, word: str) -> Design:
    return replace_leaves(design, {f"mapping.{phase}.partition": word for phase in ("prefill", "decode")})


def typical(pool: PipelinePool, load: ServingLoad, prompts: float) -> float:
    """Seconds of what a mean request asks of pipelines, with caches that a full micro-batch leaves in local memory."""
    _, (prompt, generating), runs = _mean_iterations_of(pool, load, prompts)
    lengths, outputs = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    phase = "prefill" if prompts or pool.name == "prefill" else "decode"
    counts = (prompt.tokens, lengths / 2, generating.tokens, lengths + outputs / 2, 1 - pool.held.kv_here)
    return float(np.sum(iteration_pass(load, pool, READERS["analytical"], phase, *counts).seconds * runs))


@pytest.mark.sampled
@pytest.mark.parametrize("apart", [0, 32])
@pytest.mark.parametrize("placement", ["ring", "mesh"])
def test_typical_work_takes_no_longer_than_with_one_partition_for_all(placement: str, apart: int) -> None:
    question = asked(*WORDS, "model=qwen3_1b7", f"mapping.both.placement={placement}", f"mapping.serving.prefill_cores={apart}")
    (load,) = question.workload.cases
    assert isinstance(load, ServingLoad)
    seconds_by_word: dict[str, list[float]] = {}
    for word in (AUTO, *offered_partitions(question.base.mapping.prefill)):
        design = with_word(question.base, word)
        if explain_infeasibility(design, question.workload) is None:
            fleet = pipeline_pools(design, load)
            seconds_by_word[word] = [
                typical(pool, load, 0.0 if apart else float(load.requests.prompt.mean())) for pool in fleet
            ]
    auto = seconds_by_word.pop(AUTO)
    for pool, seconds in enumerate(auto):
        assert seconds <= min(seconds_of_word[pool] for seconds_of_word in seconds_by_word.values()) * (1 + 1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["qwen3_1b7", "deepseek_v2_lite"])
def test_a_run_has_the_words_in_its_breakdown_and_its_prices(model: str) -> None:
    question = asked(*WORDS, f"model={model}", "mapping.both.partition=auto", "mapping.serving.prefill_cores=32")
    shown = explain(question.base, question.workload.cases[0])
    names = [row.shape for row in shown.rows if row.operator in ("o_proj", "head")]
    assert names
    assert all(" by " in name for name in names)
    evaluation = evaluate(stack_designs([question.base]), question.workload)
    assert evaluation.columns["ttft"][0] > 0


def test_operators_that_phases_do_not_share_are_not_left_open_on_the_same_cores() -> None:
    question = asked(*WORDS, "model=deepseek_v2_lite", "mapping.both.partition=auto")
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    assert worst.limit == "mapping.decode.partition"
    assert "set cores apart by mapping.serving.prefill_cores" in worst.remedy
