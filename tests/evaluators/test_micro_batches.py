"""Requests of a batch follow one another through stages, regions or groups of dies in micro-batches, none of which is empty."""

import itertools
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting import pipelines
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.cost_models import READERS
from dse.evaluators.layouts.micro_batches import micro_batch_counts
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked, metrics

SHORT = ("workload.prompt=[20]", "workload.output=[4]")


@given(st.integers(1, 10_000), st.integers(1, 200))
def test_no_fewer_micro_batches_hold_requests_and_none_is_larger_than_it_must_be(requests: int, most: int) -> None:
    count, each = micro_batch_counts(requests, most)
    assert count <= most
    assert (count - 1) * each < requests <= count * each
    assert most * (each - 1) < requests


@settings(max_examples=8, deadline=None)
@given(st.sampled_from((2, 3, 4, 6, 8)), st.integers(1, 60))
def test_a_step_of_a_pipeline_waits_for_micro_batches_that_there_are(stages: int, batch: int) -> None:
    question = asked("chip=npu64", "model=qwen3_4b", "mapping.both.tp=4", f"workload.batch={batch}", *SHORT)
    design = replace_leaves(question.base, {f"mapping.{phase}.pp": stages for phase in ("prefill", "decode")})
    (job,) = arrays_by_model(question.workload)
    made, seconds = pipelines._pass_phase(
        design, job, "decode", *pipelines._lay_phases(design, job)["decode"], READERS["analytical"]
    )
    current_ceil = ceil(batch / (64 // (4 * stages)))
    turns = next(count for count in range(1, stages + 1) if count * ceil(current_ceil / stages) >= current_ceil)
    step = np.maximum(made.seconds, turns * made.stage)
    assert np.allclose(seconds, np.sum(job.steps * step), rtol=1e-12)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 30))
def test_regions_of_a_wafer_have_no_empty_micro_batch(batch: int) -> None:
    question = asked("chip=wse2", "model=llama3_8b", f"workload.batch={batch}", *SHORT)
    (job,) = arrays_by_model(question.workload)
    decode = layout_of(question.base).phases(question.base, job, "analytical")[1]
    turns, each = decode.runs / job.steps, ceil(batch / 6)  # six regions of 360 x 360 cores
    assert np.all((turns - 1) * each < batch)
    assert np.all(turns * each >= batch)


@pytest.mark.parametrize("word", ["mapping.both.pp=2", "mapping.both.pp=4"])
def test_requests_fewer_than_stages_are_as_many_micro_batches_on_dies(word: str) -> None:
    words = ("chip=wafer64", "model=deepseek_v3", "mapping.both.tp=8", "mapping.both.ep=8", "mapping.both.dp=1", word, *SHORT)
    stated, chosen = (metrics(*words, "workload.batch=1", f"mapping.decode.microbatches={count}") for count in (1, 0))
    assert chosen == stated


@settings(max_examples=3, deadline=None)
@given(st.floats(2e9, 2e11))
def test_regions_that_wait_leave_main_memory_to_those_that_work(bandwidth: float) -> None:
    """More requests never make all slower: while a region waits for the slowest one, which has the head, others read."""
    questions = [asked("chip=wse2_hbm", "model=qwen3_30b_a3b", f"workload.batch={batch}", *SHORT) for batch in (1, 3, 4, 6)]
    design = replace_leaves(questions[0].base, {"chip.hbm.channel_bandwidth": bandwidth})
    each = [
        float(evaluate(stack_designs([design]), question.workload).columns["decode_throughput"][0]) for question in questions
    ]
    assert all(after >= before * (1 - 2e-3) for before, after in itertools.pairwise(each)), each
