"""What a step computes, against parameter counts, published kernel shapes and simulated routing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dse.evaluators.graph.expert_loads import busiest_core_load, expert_probabilities, experts_touched
from dse.evaluators.graph.operators import AttentionOp, MatMulOp, Segment
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.layouts.tensor_parallel import device_blocks, device_memory
from dse.space.layers import AttentionReach
from dse.space.mapping import FormatPlan
from dse.space.model import ExpertLayers, Model
from dse.space.parameter_counts import STATE_BYTES, active_parameter_count, mtp_layers, sequence_memory
from tests.presets import EVERY, MODELS
from tests.samples import asked

BF16 = FormatPlan(weights="bf16", activations="bf16", kv="bf16")


def model_of(name: str) -> Model:
    return asked(f"model={name}").workload.cases[0].model


def flop(parts: tuple[Segment, ...], tp: int = 1) -> dict[str, float]:
    """Of all layers, by operator."""
    flop: dict[str, float] = {}
    for block in device_blocks(parts, (tuple(part.name for part in parts for _ in range(part.times)),), tp, BF16, "ring"):
        for call in block.calls:
            flop[call.name] = flop.get(call.name, 0.0) + call.flop * block.times
    return flop


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_token_costs_two_operations_a_weight_that_it_uses(name: str, phase: str) -> None:
    """Also in both forms of latent attention, which use the same weights on one token."""
    model = model_of(name)
    parts = transformer_segments(model, StepCounts(phase, 1.0, 1.0, 0.0, 0.0))
    table = 0 if model.tied_embeddings else model.vocab * model.hidden  # a look-up
    found_flop = flop(parts)
    products = sum(found_flop.values()) - found_flop.get("state", 0.0)  # whose values are no weights
    assert products == pytest.approx(2 * (active_parameter_count(model) - table), rel=5e-4)  # norms and biases are no products


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_decode_reads_what_is_cached_once(name: str) -> None:
    case = asked(f"model={name}", "workload.batch=[3]", "workload.prompt=100", "workload.output=21").workload.cases[0]
    (_, step), model = decode_steps(case, "last")[0], case.model
    guesses = case.guesses
    cut = device_blocks(transformer_segments(model, step), (segment_order(model, step),), 1, BF16, "ring")
    read = sum(call.fetch * block.times for block in cut for call in block.calls if call.reads == "kv")
    drafted, wanted = mtp_layers(model)[0].name, 0.0
    for memory in sequence_memory(model):
        times, context = memory.layer.times + guesses * (memory.layer.name == drafted), 120 + guesses
        wanted += (
            times
            * 2
            * (memory.kv * memory.reach.seen_positions(context) + memory.scores * memory.indexed.seen_positions(context))
        )
        wanted += times * 2 * STATE_BYTES * memory.state  # read and written
    assert read == pytest.approx(3 * wanted, rel=1e-12)


@given(st.integers(1, 300), st.integers(0, 320))
def test_pairs_of_a_prompt_are_those_of_a_causal_mask(prompt: int, window: int) -> None:
    queries, keys = np.indices((prompt, prompt))
    seen = (keys <= queries) & (keys > queries - (window or prompt))
    assert AttentionReach(window=window).count_pairs(prompt) == seen.sum()


@given(st.integers(1, 9), st.integers(1, 9000), st.integers(2, 600), st.sampled_from(["mean", "last"]))
def test_decode_looks_at_all_that_was_said_within_the_window(batch: int, prompt: int, output: int, decode_context: str) -> None:
    case = asked("model=mistral_7b", "workload.batch=[1]").workload.cases[0]
    for window in (0, 4096):
        window_case = replace(case, model=replace(case.model, window=window), requests=((batch, prompt, output),))
        ((steps, at),) = decode_steps(window_case, decode_context)
        given_prompt = prompt + (steps if decode_context == "last" else (1 + steps) / 2)
        assert at.positions == at.pairs == batch * min(given_prompt, window or given_prompt)


@pytest.mark.slow
@given(st.sampled_from(EVERY), st.integers(1, 200), st.integers(1, 9000))
def test_a_device_reads_the_cache_that_it_holds(name: str, tp: int, context: int) -> None:
    """Whole KV heads, also where there are more devices than heads."""
    model, step = replace(model_of(name), window=0), StepCounts("decode", 1.0, 1.0, float(context), float(context))
    assume(
        all(memory.state == memory.scores == 0 for memory in sequence_memory(model))
    )  # what is read of these is not what is held
    parts = transformer_segments(model, step)
    cut = device_blocks(parts, (segment_order(model, step),), tp, BF16, "ring")
    read = sum(call.fetch * block.times for block in cut for call in block.calls if call.reads == "kv")
    assert read == pytest.approx(device_memory(parts, model, tp, BF16, cached=context, sequences=1.0, tokens=1).kv, rel=1e-12)


def test_decode_of_deepseek_v3_is_the_published_shapes() -> None:
    """128 requests with 4,096 tokens each, weight-absorbed; operations of one layer from the shapes of its kernels."""
    b, s, h, heads = 128, 4096, 7168, 128
    found_flop = flop(transformer_segments(model_of("deepseek_v3"), StepCounts("decode", b, b, b * s, b * s)))
    layer = {
        "q_down": 2 * b * h * 1536,
        "kv_down": 2 * b * h * (512 + 64),
        "q_up": 2 * b * 1536 * heads * 192,
        "q_absorb": 2 * b * heads * 128 * 512,
        "attention": 2 * b * s * heads * (576 + 512),
        "v_absorb": 2 * b * heads * 512 * 128,
        "o_proj": 2 * b * heads * 128 * h,
    }
    moe = {"router": 2 * b * h * 256, "experts_down": 2 * 8 * b * 2048 * h, "shared_down": 2 * b * 2048 * h}
    dense = {"down": 2 * b * 18432 * h}
    for layers, shapes in ((61, layer), (58, moe), (3, dense)):
        for name, operations in shapes.items():
            assert found_flop[name] == pytest.approx(layers * operations), name
    assert layer["attention"] == pytest.approx(146.0e9, rel=1e-3)  # 278,528 a position and request


def test_prefill_of_latent_attention_is_the_naive_form() -> None:
    case = asked("model=deepseek_v3", "workload.batch=[1]", "workload.prompt=512", "workload.output=1").workload.cases[0]
    found_flop = flop(transformer_segments(case.model, prefill_step(case)))
    assert found_flop["kv_up"] == (61 + 1) * 2 * 512 * 512 * 128 * 256
    assert found_flop["attention"] == (61 + 1) * 2 * (512 * 513 / 2) * 128 * (192 + 128)
    assert "q_absorb" not in found_flop


@pytest.mark.parametrize(("count", "top_k", "tokens"), [(8, 2, 1), (8, 2, 5), (64, 6, 16), (256, 8, 128)])
def test_experts_touched_are_those_of_uniform_routing(count: int, top_k: int, tokens: int) -> None:
    rng, draws = np.random.default_rng(5), 2000
    picks = rng.random((draws, tokens, count)).argsort(axis=2)[:, :, :top_k].reshape(draws, -1)
    distinct = np.array([len(np.unique(row)) for row in picks])
    error = distinct.std() / np.sqrt(draws)
    expected = experts_touched(ExpertLayers(count=count, top_k=top_k, intermediate=1), float(tokens))
    assert abs(distinct.mean() - expected) <= 5 * error + 1e-9


@pytest.mark.parametrize("name", ["mixtral_8x7b", "qwen3_30b_a3b", "deepseek_v3"])
def test_a_large_batch_reads_every_expert_once_and_one_token_its_own(name: str) -> None:
    model = model_of(name)
    experts = model.experts
    assert experts is not None
    for tokens, copies in ((1.0, experts.top_k), (1e5, experts.count)):
        moe = next(
            part for part in transformer_segments(model, StepCounts("decode", tokens, tokens, 0.0, 0.0)) if part.name == "moe"
        )
        routed = [
            operator for operator in moe.operators if isinstance(operator, MatMulOp) and operator.name.startswith("experts")
        ]
        assert [operator.copies for operator in routed] == [pytest.approx(copies)] * 3
        assert [operator.stored for operator in routed] == [experts.count] * 3


def test_latent_attention_caches_one_head_for_all_devices() -> None:
    model, at = model_of("deepseek_v3"), StepCounts("decode", 1.0, 1.0, 100.0, 100.0)
    for tp in (1, 16):
        (call,) = [
            call
            for block in device_blocks(transformer_segments(model, at), (segment_order(model, at),), tp, BF16, "ring")
            if block.name == "attention"
            for call in block.calls
            if call.reads == "kv"
        ]
        assert call.fetch == 100 * 576 * 2
    attention = next(
        operator
        for part in transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))
        for operator in part.operators
        if isinstance(operator, AttentionOp)
    )
    assert (attention.qk_dim, attention.v_dim) == (576, 512)


@given(st.integers(2, 64), st.data(), st.floats(0, 4), st.integers(1, 500), st.integers(1, 16))
def test_popular_experts_are_chosen_more_often_and_fewer_are_touched(
    count: int, data: st.DataObject, skew: float, tokens: int, cores: int
) -> None:
    top_k = data.draw(st.integers(1, count))
    even, uneven = (ExpertLayers(count=count, top_k=top_k, intermediate=1, skew=exponent) for exponent in (0.0, skew))
    shares = expert_probabilities(uneven)
    assert shares.sum() == pytest.approx(top_k)
    assert (np.diff(shares) <= 1e-12).all()
    assert shares.max() <= 1 + 1e-12
    assert experts_touched(uneven, float(tokens)) <= experts_touched(even, float(tokens)) * (1 + 1e-9)
    rows, copies = busiest_core_load(uneven, float(tokens), cores)
    assert tokens * top_k / cores <= rows * (1 + 1e-9)
    assert rows <= tokens * top_k * (1 + 1e-9)
    assert copies <= experts_touched(uneven, float(tokens)) * (1 + 1e-9)
    if cores == 1:
        assert (rows, copies) == pytest.approx((tokens * top_k, experts_touched(uneven, float(tokens))))
