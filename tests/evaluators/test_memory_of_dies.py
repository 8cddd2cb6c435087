"""What dies that share a model hold of it: all of them together its parameters, its caches and its states, and no more."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import explain
from dse.evaluators.accounting.multi_die_memory import cache_bytes, layers_of_units, unit_weight_bytes
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.model_weights import model_weight_bytes
from dse.evaluators.layouts.multi_die import EMBEDDING, HEAD, DieSplit, layer_label
from dse.evaluators.layouts.tensor_formats import value_bytes
from dse.evaluators.layouts.tensor_parallel import device_memory
from dse.space.layers import layers, per_reach
from dse.space.mapping import FormatPlan
from dse.space.model import Model
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import sequence_memory
from tests.presets import EVERY
from tests.samples import asked, typed

FORMATS = st.sampled_from(("bf16", "fp8", "fp32"))
ALONE = DieSplit(tp=1, pp=1, ep=1, dp=1, group=1, redundant=0, batches=1, halves=1)


def shipped(name: str) -> Model:
    model: Model = asked(f"model={name}").workload.cases[0].model
    return model


def units(model: Model) -> list[str]:
    """Units of a model, each as often as it is there."""
    return [EMBEDDING, *(layer_label(model, *names) for names in layers(model).line), HEAD]


@given(st.sampled_from(EVERY), st.booleans(), FORMATS)
@settings(max_examples=20, deadline=None)
def test_a_die_by_itself_has_the_weights_of_a_model_once(name: str, tied: bool, word: str) -> None:
    model = replace(shipped(name), tied_embeddings=tied)
    given_value_bytes = value_bytes(FormatPlan(weights=word, activations="bf16", kv="bf16"))
    held = sum(
        unit_weight_bytes(unit, layers_of_units(model).get(unit, ("", "")), model, ALONE, given_value_bytes)
        for unit in units(model)
    )
    formats = FormatPlan(weights=word, activations="bf16", kv="bf16")
    assert held == pytest.approx(model_weight_bytes(model, formats), rel=1e-12)


@given(st.sampled_from(EVERY), st.sampled_from([2, 3, 4, 8]), FORMATS)
@settings(max_examples=30, deadline=None)
def test_dies_that_share_heads_each_have_all_of_what_has_none(name: str, tp: int, word: str) -> None:
    """What a die multiplies by is on it: as one of as many devices holds it."""
    model, formats = shipped(name), FormatPlan(weights=word, activations="bf16", kv="bf16")
    subject = ALONE._replace(tp=tp, group=tp)
    held = sum(
        unit_weight_bytes(unit, layers_of_units(model).get(unit, ("", "")), model, subject, value_bytes(formats))
        for unit in units(model)
    )
    parts = transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))
    whole = device_memory(parts, model, tp, formats, cached=0.0, sequences=0.0, tokens=0.0)
    assert held == pytest.approx(whole.weights, rel=1e-6)  # each die has the biases of a router


@given(st.sampled_from(EVERY), st.integers(1, 9000), st.integers(1, 9), FORMATS, FORMATS)
@settings(max_examples=30, deadline=None)
def test_layers_have_caches_or_states_of_their_sequences(name: str, length: int, many: int, kv: str, activations: str) -> None:
    """A recurrent layer has no keys and values beside its state."""
    model, given_value_bytes = shipped(name), value_bytes(FormatPlan(weights="bf16", activations=activations, kv=kv))
    cached = per_reach(model, lambda reach: float(many * reach.kept_positions(length)))
    held = sum(
        cache_bytes(layers_of_units(model).get(unit, ("", ""))[0], model, cached, many, ALONE, given_value_bytes)
        for unit in units(model)
    )
    wanted = 0.0
    for layer in sequence_memory(model):
        kept, scored = layer.kept_positions(length)
        each = (
            (layer.kv * kept + layer.scores * scored) * BYTES_BY_FORMAT[kv]
            + 4 * layer.state
            + layer.conv * BYTES_BY_FORMAT[activations]
        )
        wanted += many * layer.layer.times * each
    assert held == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("chip", ["chip=h800_ep chip.dies.rows=1", "chip=wafer64 chip.dies.rows=2 chip.dies.cols=4"])
@pytest.mark.parametrize("name", ["qwen3_next_80b_a3b", "gemma4_26b_a4b"])
def test_copies_of_attention_share_out_caches_of_a_batch_evenly(chip: str, name: str) -> None:
    question = asked(
        *chip.split(), f"model={name}", "mapping.both.ep=8", "mapping.both.pp=1", "mapping.both.tp=1",
        "workload.speculation=none", "workload.batch=[16]", "workload.prompt=10", "workload.output=5091",
    )  # fmt: skip
    model, precision = shipped(name), question.base.mapping.precision
    grown = sum(
        layer.layer.times * layer.kv * layer.kept_positions(5100)[0] * BYTES_BY_FORMAT[precision.kv]
        for layer in sequence_memory(model)
    )
    states = sum(
        layer.layer.times * (4 * layer.state + BYTES_BY_FORMAT[precision.activations] * layer.conv)
        for layer in sequence_memory(model)
    )
    assert explain(question.base, question.workload.cases[0]).memory["KV cache"] == pytest.approx(
        2 * (grown + states), rel=1e-9
    )
    tables = model.vocab * model.hidden * (1 if model.tied_embeddings else 2) + model.hidden
    nbytes = explain(question.base, question.workload.cases[0]).memory["weights of embedding and head"]
    sizes = value_bytes(precision)
    assert sizes.embedding == sizes.head
    assert nbytes == pytest.approx(tables * sizes.head, rel=1e-3)  # with the last norm


@pytest.mark.parametrize("chip", ["chip=h800_ep chip.dies.rows=2", "chip=wafer64 chip.dies.rows=2 chip.dies.cols=8"])
@pytest.mark.parametrize("tp", [1, 4])
def test_rows_of_exchanges_say_what_leaves_dies(chip: str, tp: int) -> None:
    """Tokens to the experts of 16 dies and back, and sums of four dies that share heads."""
    question = asked(
        *chip.split(), "model=qwen3_30b_a3b", "workload.expert_load=even", "mapping.both.ep=16", "mapping.both.pp=1",
        f"mapping.both.tp={tp}", "workload.batch=[64]", "workload.prompt=100", "workload.output=2",
    )  # fmt: skip
    case, precision = question.workload.cases[0], question.base.mapping.precision
    rows = {row.operator: row for row in explain(question.base, case).rows if row.phase == "decode"}
    copies = 48 * case.decode_steps * 64 * 8 * 2048 * 15 / 16
    assert rows["dispatch"].sent == pytest.approx(copies * BYTES_BY_FORMAT[precision.activations], rel=1e-9)
    assert rows["combine"].sent == pytest.approx(copies * BYTES_BY_FORMAT[precision.combine or precision.activations], rel=1e-9)
    if tp > 1:  # slices of a token's values go to three others, those of each of four copies of attention
        whole = 48 * case.decode_steps * 64 * 2048 * BYTES_BY_FORMAT[precision.activations]
        assert rows["attention sums"].sent == pytest.approx(3 * whole, rel=1e-9)
        assert rows["tokens"].sent == pytest.approx(3 * whole, rel=1e-9)


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("tp", [1, 2])
def test_stages_hand_on_each_token_once_and_pay_for_it(pp: int, tp: int) -> None:
    """As a row says, and by two links of a board each: of dies that share heads each has the whole of a token."""
    words = (
        "chip=h800_ep", "chip.dies.rows=4", "chip.dies.cols=4", "chip.nodes.size=4", "model=qwen3_1b7", "mapping.both.ep=1",
        f"mapping.both.pp={pp}", f"mapping.both.tp={tp}", "mapping.both.microbatches=2", "workload.batch=[16]",
        "workload.prompt=100", "workload.output=3",
    )  # fmt: skip
    question = asked(*words)
    case, precision = question.workload.cases[0], question.base.mapping.precision
    steps = {"prefill": 16 * 100, "decode": 16 * case.decode_steps}
    each = {phase: (pp - 1) * tp * tokens * 2048 * BYTES_BY_FORMAT[precision.activations] for phase, tokens in steps.items()}
    rows = {row.phase: row for row in explain(question.base, case).rows if row.operator == "to the next stage"}
    assert {phase: row.sent for phase, row in rows.items()} == pytest.approx(each, rel=1e-9)
    if tp == 1:  # else sums cross links too
        dear, free = (typed(asked(*words, f"chip.technology.board_energy_per_byte='{value} pJ/B'")) for value in (1000, 0))
        joules = float((dear.columns["energy"] - free.columns["energy"])[0])
        assert joules == pytest.approx(2 * sum(each.values()) * 1000e-12, rel=1e-6)


@pytest.mark.parametrize("apart", [4, 8])
def test_rows_of_served_loads_say_what_dies_of_attention_and_of_ffns_exchange(apart: int) -> None:
    """Copies of tokens go from dies that have attention to others, all of them over links, and results come back."""
    question = asked(
        "chip=h800_ep", f"chip.dies.rows={apart // 4}", "model=qwen3_30b_a3b", "mapping.both.pp=1", "mapping.both.tp=1",
        f"mapping.both.ep={apart}", f"mapping.both.attention_dies={apart}", "mapping.both.pingpong=2", "workload=serving",
        "workload.arrivals=offline", f"workload.requests={4 * apart}", "workload.prompt=64", "workload.output=1",
        "mapping.serving.max_batch_size=64", "mapping.serving.max_batched_tokens=10000", "chip.hbm.capacity='1 TB'",
    )  # fmt: skip
    precision, copies = question.base.mapping.precision, 48 * 4 * apart * 64 * 8 * 2048
    rows = {row.operator: row.sent for row in explain(question.base, question.workload.cases[0]).rows}
    assert rows["dispatch"] == pytest.approx(copies * BYTES_BY_FORMAT[precision.activations], rel=1e-9)
    assert rows["combine"] == pytest.approx(copies * BYTES_BY_FORMAT[precision.combine or precision.activations], rel=1e-9)
