"""Prompts and decodes of latents and states in one iteration: each has its own form, and reads of a cache what there is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.accounting.serving_instances.pipeline_fleet import _iteration_steps
from dse.evaluators.accounting.serving_instances.tensor_parallel import _step_counts, _timed_iteration
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.pipelines import group_blocks
from dse.space.fields import replace_leaves
from dse.space.layers import layers
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.model import Model
from dse.space.parameter_counts import kv_values_per_token
from tests.samples import asked, load_of

pytestmark = pytest.mark.usefixtures("flat_stack")

MODELS = st.sampled_from(["deepseek_v2_lite", "deepseek_v3", "kimi_k2", "mistral_small_4", "qwen3_8b", "gemma3_12b"])
STATES = st.sampled_from(["qwen3_next_80b_a3b", "nemotron3_nano"])
COUNTS = st.tuples(st.integers(1, 2000), st.integers(0, 9000), st.integers(1, 64), st.integers(1, 9000))
"""New tokens of a prompt, those before them, requests that decode, and positions that each sees."""


def compulsory(model: Model, past: float, decodes: float, context: float, kv: str) -> float:
    """Bytes of the cache that an iteration has to read, all heads together."""
    found_layers = layers(model)
    seen = [(layer, found_layers.reaches[layer.reach]) for layer in found_layers.mixings]
    each = (
        layer.times
        * kv_values_per_token(layer.of)
        * (decodes * float(reach.seen_positions(context)) + float(reach.seen_positions(past)))
        for layer, reach in seen
    )
    return sum(each) * BYTES_BY_FORMAT[kv]


@given(st.sampled_from(["a100", "h100", "npu_dse"]), MODELS | STATES, COUNTS, st.sampled_from([1, 2, 4]))
@settings(max_examples=40, deadline=None)
def test_an_iteration_takes_no_longer_than_its_prompts_and_then_its_decodes(
    chip: str, name: str, counts: tuple[int, int, int, int], tp: int
) -> None:
    """And reads no more of caches and states than both; on dies that share heads each has a latent, or a KV head, of its own.

    Nothing is prefetched, as what fits beside the weights of one may not fit beside those of both.
    """
    words = f"chip={chip}", f"model={name}", "workload=serving", "workload.speculation=none", "mapping.both.prefetch=none"
    design, load = load_of(*words)
    new, past, decodes, context = counts

    def priced(phase: str, *made_of: float) -> tuple[float, float]:
        step = _step_counts(load, phase, *(np.atleast_2d(float(count)) for count in made_of))
        timed = _timed_iteration(design, load, replace_leaves(getattr(design.mapping, phase), {"tp": tp}), step)
        seconds = sum(block.block.times * float(np.sum(taken)) for block in timed for taken in block.durations)
        cached = [
            timed_block.block.times * float(np.sum(call.fetch))
            for timed_block in timed
            for call in timed_block.block.calls
            if call.reads == "kv"
        ]
        return seconds, sum(cached)

    ahead = past + (new + 1) / 2
    prompt, decoding = priced("prefill", new, ahead, 0, 0), priced("decode", 0, 0, decodes, context)
    mixed = priced("prefill", new, ahead, decodes, context)
    assert max(prompt[0], decoding[0]) * (1 - 1e-9) <= mixed[0] <= (prompt[0] + decoding[0]) * (1 + 1e-9)
    assert mixed[1] == pytest.approx(prompt[1] + decoding[1], rel=1e-9)
    precision = design.mapping.precision
    if any(layer.of.recurrence is not None for layer in layers(load.model).mixings):
        return
    assert mixed[1] * tp <= tp * 1.001 * compulsory(load.model, past + 1, decodes, context, precision.kv)


@given(MODELS, COUNTS, st.sampled_from(["k", "mn", "mn_k", "input_only"]), st.sampled_from([1, 2, 4]))
@settings(max_examples=30, deadline=None)
def test_pipelines_move_what_is_cached_of_prompts_and_of_decodes(
    name: str, counts: tuple[int, int, int, int], partition: str, tp: int
) -> None:
    question = asked("chip=npu64", f"model={name}", "workload.batch=[1]")
    model, new, (_, past, decodes, context) = question.workload.cases[0].model, counts[0], counts
    plan = replace_leaves(question.base.mapping.prefill, {"tp": float(tp), "partition": partition})

    def moved(at: StepCounts, attending: tuple[StepCounts, ...]) -> float:
        blocks = group_blocks(model, at, plan, question.base.mapping.precision, attending)
        return sum(block.times * float(call.nbytes) for block in blocks for call in block.calls if call.reads == "kv")

    at, attending = _iteration_steps(model, "prefill", *map(float, (new, past + (new + 1) / 2, decodes, context)))
    kv = question.base.mapping.precision.kv
    written = (
        (new + decodes)
        * sum(layer.times * kv_values_per_token(layer.of) for layer in layers(model).mixings)
        * BYTES_BY_FORMAT[kv]
    )
    assert moved(at, attending) <= (compulsory(model, past + new, decodes, context, kv) + written) * (1 + 1e-9)


@given(COUNTS)
@settings(max_examples=20, deadline=None)
def test_latents_before_a_chunk_are_expanded_again(counts: tuple[int, int, int, int]) -> None:
    """Queries of a chunk meet keys of heads, which a cache of latents has none of."""
    model: Any = asked("model=deepseek_v3").workload.cases[0].model
    new, past, _, _ = map(float, counts)
    parts = transformer_segments(model, StepCounts("prefill", new, 1.0, new * (past + (new + 1) / 2), past))
    (rows,) = {float(operator.m) for part in parts for operator in part.operators if operator.name == "kv_up"}
    assert rows == new + past
