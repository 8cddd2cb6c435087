"""What each way of mixing tokens computes and reads, by formulas of its own."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.accounting.decode_segments import arrays_by_case
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.accounting.serving_instances import whole_chip_iterations as tiles
from dse.evaluators.graph.operators import AttentionOp, IndexerOp, MatMulOp, RecurrenceOp, Segment, useful_flop
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.layouts.tensor_parallel import device_blocks
from dse.space.errors import DesignError
from dse.space.layers import AttentionReach, layers, value_at_reach
from dse.space.mapping import FormatPlan
from dse.space.model import Model
from dse.space.parameter_counts import parameter_count
from dse.space.workload import BatchCase
from tests.samples import asked, load_of, metrics

BF16 = FormatPlan(weights="bf16", activations="bf16", kv="bf16")

DELTA = "{rule: delta, heads: 32, key_heads: 16, key_dim: 128, value_dim: 64, conv: 4}"
SSD = "{rule: ssd, heads: 64, key_heads: 8, key_dim: 128, value_dim: 64, conv: 4, conv_bias: true}"
INDEX = "{heads: 8, dim: 64, top: 256}"
M = "+model.qwen3_1b7"
HYBRIDS = {
    "windows": (f"{M}.kinds={{local: {{window: 512}}, full: {{}}}}", f"{M}.order='5 (4 local, full), 3 local'"),
    "chunks": (f"{M}.kinds={{local: {{chunk: 512}}, nope: {{rope: 0}}}}", f"{M}.order='7 (3 local, nope)'"),
    "delta": (f"{M}.kinds={{delta: {{recurrence: {DELTA}}}, full: {{}}}}", f"{M}.order='7 (3 delta, full)'"),
    "ssd": (
        f"{M}.kinds={{mamba: {{ffn: none, recurrence: {SSD}}}, mlp: {{mixing: none}}, attend: {{ffn: none}}}}",
        f"{M}.order='4 (2 (mamba, mlp), attend, mlp, mamba)'",
    ),
    "indexed": (f"{M}.indexer={INDEX}",),
    "reused": (
        f"{M}.kinds={{own: {{indexer: {INDEX}}}, same: {{indexer: {INDEX[:-1]}, reused: true}}}}}}",
        f"{M}.order='7 (own, 3 same)'",
    ),
    "blocks": (f"{M}.indexer={{heads: 2, dim: 64, top: 1024, block: 128}}",),
    "shared": (f"{M}.kinds={{own: {{}}, reader: {{kv_reused: true}}}}", f"{M}.order='14 (own, reader)'"),
}
"""Overrides that make layers of a small model differ."""


def case_of(name: str, batch: int = 2, prompt: int = 3000, steps: int = 64) -> BatchCase:
    words = (f"workload.batch=[{batch}]", f"workload.prompt={prompt}", f"workload.output={steps + 1}")
    batch_case: BatchCase = asked("model=qwen3_1b7", *words, *HYBRIDS[name]).workload.cases[0]  # type: ignore[assignment]
    return batch_case


def weights(parts: tuple[Segment, ...]) -> float:
    products = [(part.times, operator) for part in parts for operator in part.operators if isinstance(operator, MatMulOp)]
    return sum(
        times * operator.stored * operator.k.units * operator.k.width * operator.n.units * operator.n.width
        for times, operator in products
    )


@pytest.mark.parametrize("name", HYBRIDS)
def test_products_hold_all_weights_but_norms_convolutions_and_single_values(name: str) -> None:
    model = case_of(name).model
    held = weights(transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0)))
    table = 0 if model.tied_embeddings else model.vocab * model.hidden
    assert held + table <= parameter_count(model) <= (held + table) * 1.001


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_devices_do_each_layer_once_in_its_place(name: str, phase: str) -> None:
    case = case_of(name)
    at = prefill_step(case) if phase == "prefill" else decode_steps(case, "mean")[0][1]
    order, parts = segment_order(case.model, at), transformer_segments(case.model, at)
    blocks = device_blocks(parts, (order,), 2, BF16, "ring")
    assert {part.name: part.times for part in parts} == {name: order.count(name) for name in dict.fromkeys(order)}
    assert sum(block.times for block in blocks) == len(order)
    met = sum(block.times for block in blocks if block.opener is not None)
    halves = sum(bool(mixes) + bool(feeds) for mixes, feeds in layers(case.model).line)
    assert met == halves  # after each half of a layer devices sum up what they have


@pytest.mark.sampled
@given(st.integers(1, 5000), st.integers(0, 700), st.integers(1, 400))
def test_pairs_of_a_prompt_are_those_of_its_tokens_one_by_one(prompt: int, limit: int, top: int) -> None:
    for reach in (AttentionReach(), AttentionReach(window=limit), AttentionReach(top=top)):
        assert reach.count_pairs(prompt) == sum(reach.seen_positions(context) for context in range(1, prompt + 1))
    chunk = limit + 1
    assert AttentionReach(chunk=chunk).count_pairs(prompt) == sum((place % chunk) + 1 for place in range(prompt))


@given(st.integers(1, 300), st.integers(1, 8), st.integers(0, 300), st.integers(0, 50))
def test_pairs_of_compressed_entries_grow_as_they_are_seen(prompt: int, ratio: int, window: int, top: int) -> None:
    reach = AttentionReach(window=window, ratio=ratio, top=top)  # an indexer has entries alone
    one_by_one = sum(reach.seen_positions(context) for context in range(1, prompt + 1))
    assert reach.count_pairs(prompt) == pytest.approx(one_by_one, abs=prompt)  # entries begin within a token
    assert reach.kept_positions(prompt) == min(prompt, window) + prompt / ratio


def test_steps_look_as_far_as_each_kind_does() -> None:
    case = case_of("windows")
    (count, at), *_ = decode_steps(case, "last")
    assert count == 64
    assert [value_at_reach(at.positions, place) for place in (0, 1)] == [2 * 512.0, 2 * 3064.0]
    chunks = case_of("chunks", batch=1, prompt=512, steps=512)
    ((_, mean),) = decode_steps(chunks, "mean")
    assert value_at_reach(mean.positions, 0) == sum((place % 512) + 1 for place in range(512, 1024)) / 512


def state(model: Model) -> tuple[int, int, int]:
    (recurrence,) = {layer.of.recurrence for layer in layers(model).mixings} - {None}
    assert recurrence is not None
    return recurrence.heads, recurrence.key_dim, recurrence.value_dim


@pytest.mark.parametrize("name", ["delta", "ssd"])
def test_states_cost_the_same_whatever_the_context(name: str) -> None:
    def recurrence_at(prompt: int) -> RecurrenceOp:
        case = case_of(name, batch=3, prompt=prompt)
        (recurrence,) = (
            operator
            for part in transformer_segments(case.model, decode_steps(case, "last")[0][1])
            for operator in part.operators
            if isinstance(operator, RecurrenceOp)
        )
        return recurrence

    operator, other = recurrence_at(500), recurrence_at(30000)
    assert replace(operator, tokens=0) == replace(other, tokens=0)
    heads, keys, values = state(case_of(name).model)
    # read with keys where values are corrected, written with keys and values, read with queries
    assert useful_flop(operator) == 3 * heads * 2 * keys * values * (3 if name == "delta" else 2)


@pytest.mark.parametrize(("name", "corrected"), [("delta", True), ("ssd", False)])
def test_prompts_go_through_states_in_chunks(name: str, corrected: bool) -> None:
    """Operations of the chunked forms of Gated DeltaNet and of Mamba-2, written down from their papers."""
    case = case_of(name, batch=2, prompt=6400)
    (operator,) = (
        operator
        for part in transformer_segments(case.model, prefill_step(case))
        for operator in part.operators
        if isinstance(operator, RecurrenceOp)
    )
    heads, keys, values = state(case.model)
    c = operator.chunk
    groups = heads / operator.shared
    delta = heads * (6 * keys * values + 2 * c * (3 * keys + 2 * values))
    ssd = heads * (4 * keys * values + 2 * c * values) + groups * 2 * c * keys
    assert useful_flop(operator) == pytest.approx(2 * 6400 * (delta if corrected else ssd))


def calls(name: str, **lengths: Any) -> dict[str, Any]:
    case = case_of(name, **lengths)
    at = decode_steps(case, "last")[0][1]
    blocks = device_blocks(transformer_segments(case.model, at), (segment_order(case.model, at),), 1, BF16, "ring")
    return {f"{call.part}/{call.name}": call for block in blocks for call in block.calls}


def test_an_indexer_reads_a_key_a_position_and_attention_what_it_picks() -> None:
    found_calls = calls("indexed", batch=3, prompt=5000, steps=8)
    index, attention = found_calls["attention/index"], found_calls["attention/attention"]
    assert index.fetch == 3 * 5008 * 64 * 2
    assert index.flop == 3 * 5008 * 2 * 8 * 64
    assert attention.fetch == 3 * 256 * 8 * 256 * 2
    assert attention.piece == 8 * 256 * 2  # keys and values of all heads of a position, wherever it is
    assert calls("blocks", prompt=5000)["attention/attention"].piece == 128 * 8 * 256 * 2


def test_a_choice_that_is_reused_costs_nothing_again() -> None:
    found_calls = calls("reused", prompt=5000)
    assert {name for name in found_calls if "index" in name} == {
        f"own attention/{name}" for name in ("index_q", "index_k", "index_weights", "index")
    }
    assert found_calls["own attention/attention"].fetch == found_calls["same attention/attention"].fetch


def test_keys_and_values_of_another_layer_are_read_and_not_made() -> None:
    found_calls = calls("shared", prompt=5000)
    assert "reader attention/k_proj" not in found_calls
    assert found_calls["reader attention/attention"].fetch == found_calls["own attention/attention"].fetch


@pytest.mark.parametrize("name", HYBRIDS)
def test_attention_is_asked_with_the_reach_of_its_kind(name: str) -> None:
    case = case_of(name)
    at, reaches = prefill_step(case), layers(case.model).reaches
    for part in transformer_segments(case.model, at):
        for operator in part.operators:
            if isinstance(operator, AttentionOp):
                assert operator.pairs == 2 * reaches[part.reach].count_pairs(3000)
            if isinstance(operator, IndexerOp):
                assert operator.pairs == 2 * AttentionReach().count_pairs(3000)


def test_picked_pieces_open_rows_on_a_die_and_smaller_ones_more_of_them() -> None:
    def token(*more: str) -> float:
        words = ("chip=h100", "model=qwen3_1b7", "workload.batch=[64]", "workload.prompt=20000", "workload.output=64")
        return metrics(*words, *HYBRIDS["indexed"], *more)["tpot"]

    whole, scattered = token("chip.hbm.random_access_overhead='0 B'"), token("chip.hbm.random_access_overhead='4096 B'")
    layers_, rows, nbytes = 28, 64 * 256, 4096 * 8 // 8
    hbm = asked("chip=h100").base
    lost = layers_ * rows * nbytes / (hbm.chip.hbm.bandwidth * hbm.mapping.stack.hbm_efficiency)
    assert scattered - whole == pytest.approx(lost, rel=0.05)
    with pytest.raises(DesignError, match=r"chip\.hbm\.random_access_overhead: missing"):
        token("chip.hbm.random_access_overhead=null")


def test_decodes_beside_a_prompt_read_and_write_their_states() -> None:
    """In an iteration of both, where only the prompt's own state begins from nothing."""
    model = case_of("delta").model

    def moved(resumed: float) -> float:
        at = StepCounts("prefill", 100.0 + 8.0, 8.0 + 1.0, 1.0, 1.0, resumed=resumed)
        blocks = device_blocks(transformer_segments(model, at), (segment_order(model, at),), 1, BF16, "ring")
        return sum(call.fetch for block in blocks for call in block.calls if call.name == "state")

    heads, keys, values = state(model)
    kinds = 1 + (layers(model).line[0][0] == "delta")  # a first layer is a block of its own
    assert moved(0.0) == kinds * 9 * heads * keys * values * 4
    assert moved(8.0) == kinds * (9 + 8) * heads * keys * values * 4


@pytest.mark.parametrize("name", ["delta", "indexed"])
def test_tiles_that_serve_take_longer_for_states_and_indexers_of_more_requests(name: str) -> None:
    """An iteration of decodes alone is what the same step of a batch is."""
    small = ("chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8", "model.qwen3_1b7.layers=4")
    order = () if name == "indexed" else ("model.qwen3_1b7.order='3 delta, full'",)
    words = ("chip=tile32", *small, "model=qwen3_1b7", *HYBRIDS[name], *order, "workload.speculation=none")
    batch = asked(*words, "workload.batch=[4]", "workload.prompt=600", "workload.output=2", "workload.decode_context=last")
    (job,) = arrays_by_case(batch.workload)
    step = layout_of(batch.base).phases(batch.base, job, "analytical")[1].seconds
    served, load = load_of(*words[:-1], "workload=serving", "workload.requests=8", "workload.prompt=600", "workload.output=4")
    prices = tiles._price_parts(served, load, "decode", "analytical")
    seconds, *_ = (prices.layers(4) + prices.head(4) + prices.tokens(4, 601)).ravel()
    assert seconds == pytest.approx(float(step), rel=1e-9)


def test_scores_that_go_through_a_tanh_take_vector_engines_longer() -> None:
    words = ("chip=tile_gh200", "model=gemma2_9b", "workload.batch=[1]", "workload.prompt=256", "workload.output=2")
    capped, free = metrics(*words), metrics(*words, "model.gemma2_9b.softcap=false")
    for name in ("ttft", "tpot"):
        assert free[name] < capped[name] < 1.1 * free[name]
