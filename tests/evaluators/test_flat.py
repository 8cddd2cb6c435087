"""Whole models on a mesh of tiles: operators are those of the model, as long as by themselves, and add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.tile_operators import hbm_bytes_by_use
from dse.evaluators.evaluation import explain, explain_infeasibility
from dse.evaluators.graph.step_counts import StepCounts
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import FormatPlan
from dse.space.number_formats import BYTES_BY_FORMAT, formats_of_tensor
from dse.space.parameter_counts import ffn_parameter_count, parameter_count
from tests.samples import asked, typed

SMALL = ("workload.batch=[2]", "workload.prompt=200", "workload.output=8")
MESH = ("chip=tile_gh200", "mapping=flat", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")
MODELS = ("qwen3_1b7", "mistral_7b", "qwen3_30b_a3b", "deepseek_v2_lite")


def rows(*overrides: str, fidelity: str = "analytical") -> list[BreakdownRow]:
    question = asked(*overrides)
    return list(explain(question.base, question.workload.cases[0], fidelity=fidelity).rows)


def row(rows: list[BreakdownRow], phase: str, operator: str) -> BreakdownRow:
    (row,) = (row for row in rows if (row.phase, row.operator) == (phase, operator))
    return row


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("model", ["qwen3_1b7", "deepseek_v2_lite"])
def test_operators_add_up_to_the_latency(model: str, fidelity: str) -> None:
    question = asked(*MESH, *SMALL, f"model={model}")
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
    found_rows = rows(*MESH, *SMALL, f"model={model}", fidelity=fidelity)
    assert sum(row.seconds for row in found_rows) == pytest.approx(columns["latency"][0])
    assert sum(row.seconds for row in found_rows if row.phase == "prefill") == pytest.approx(columns["ttft"][0])
    assert sum(row.nbytes for row in found_rows) == pytest.approx(columns["hbm_bytes"][0])
    assert all(row.parts[row.bound] == max(row.parts.values()) for row in found_rows)


@pytest.mark.sampled
@pytest.mark.parametrize("model", MODELS)
def test_events_agree_with_the_closed_form(model: str) -> None:
    question = asked(*MESH, *SMALL, f"model={model}")
    closed, played = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=name).columns for name in ("analytical", "events")
    )
    for name in ("ttft", "tpot", "energy"):
        assert closed[name] == pytest.approx(played[name], rel=0.06), name
    for name in ("hbm_bytes", "mfu", "sram_used", "hbm_used"):
        assert closed[name] == pytest.approx(played[name], rel=0.06 if name == "mfu" else 1e-9), name


@pytest.mark.parametrize("model", MODELS)
def test_products_and_attention_count_what_they_do_on_another_chip(model: str) -> None:
    sizes = ("workload.batch=[2]", "workload.prompt=5000", "workload.output=8", f"model={model}")
    current_rows, other_rows = rows(*MESH, *sizes), rows("chip=npu_dse", "mapping.prefill.tp=1", *sizes)
    counted: dict[tuple[str, str], float] = {}
    for row in other_rows:
        counted[row.phase, row.operator] = counted.get((row.phase, row.operator), 0.0) + row.flop
    wanted = {key: flop for key, flop in counted.items() if flop}
    assert {(row.phase, row.operator): row.flop for row in current_rows if row.flop} == pytest.approx(wanted)


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_an_operator_takes_as_long_as_by_itself(fidelity: str) -> None:
    found_rows = rows(*MESH, *SMALL, "model=qwen3_1b7", fidelity=fidelity)
    layers = asked(*MESH, *SMALL, "model=qwen3_1b7").workload.cases[0].model.layers  # type: ignore[union-attr]
    chip = tuple(word for word in MESH if word.startswith("chip"))
    product = asked(*chip, "mapping=summa", "workload=gemm", "workload.shapes=[400x2048x6144]")
    sizes = ("workload.batch=2", "workload.heads=16", "workload.kv_heads=8", "workload.keys=[200]", "workload.causal=true")
    attention = asked(*chip, "workload=attention", "mapping=attention", *sizes)
    for name, alone in (("gate", product), ("attention", attention)):
        latency = evaluate(stack_designs([alone.base]), alone.workload, fidelity=fidelity).columns["latency"][0]
        assert row(found_rows, "prefill", name).seconds == pytest.approx(layers * latency), name


def test_many_designs_are_each_as_if_alone() -> None:
    question = asked(*MESH, *SMALL, "model=qwen3_1b7")
    knobs = {
        "mapping.prefill.gemm.rows": (0, 2, 3),
        "mapping.decode.attention.rows": (0, 1, 8),
        "chip.hbm.channel_bandwidth": (3e10, 6e10),
        "chip.tile.sram": (1e5, 4e5),
        "chip.tile.matrix.rows": (16, 32),
    }
    rng = np.random.default_rng(2)
    designs = [
        replace_leaves(question.base, {name: float(rng.choice(values)) for name, values in knobs.items()}) for _ in range(3)
    ]
    designs += designs[:1]  # what is alike is worked out once
    for fidelity in ("analytical", "events"):
        selected_designs = designs if fidelity == "analytical" else designs[:2]
        together = evaluate(stack_designs(selected_designs), question.workload, fidelity=fidelity)
        for place, design in enumerate(selected_designs):
            alone = evaluate(stack_designs([design]), question.workload, fidelity=fidelity)
            for name, column in together.columns.items():
                assert column[place] == pytest.approx(alone.columns[name][0], nan_ok=True), name
            assert together.limit[place] == alone.limit[0]


def test_requests_of_other_lengths_add_up() -> None:
    """Attention of each prompt by itself, products of all tokens together; fewer requests decode when the first has ended."""
    found_rows = rows(*MESH, "model=qwen3_1b7", "workload.lengths=lengths.csv", "workload.batch=[4]", "workload.requests=4")
    assert sum(row.operator == "attention" for row in found_rows) == 2
    question = asked(*MESH, "model=qwen3_1b7", "workload.lengths=lengths.csv", "workload.batch=[4]", "workload.requests=4")
    latency = evaluate(stack_designs([question.base]), question.workload).columns["latency"][0]
    assert sum(row.seconds for row in found_rows) == pytest.approx(latency)


def test_what_does_not_fit_is_said_with_what_would() -> None:
    large = asked("chip=tile_gh200", "mapping=flat", "model=deepseek_v3", "workload.speculation=none")
    verdict = explain_infeasibility(large.base, large.workload)
    assert verdict is not None
    assert verdict.limit == "chip.hbm.capacity"
    assert dict(verdict.parts)["weights"] == 2 * parameter_count(large.workload.cases[0].model)  # type: ignore[union-attr]
    assert "not even the weights fit" in str(verdict)
    uneven = asked(*MESH, *SMALL, "model=qwen3_1b7", "mapping.prefill.gemm.rows=3")
    assert "groups of 3 rows do not divide the mesh's 8; 2 do" in str(explain_infeasibility(uneven.base, uneven.workload))
    wide = asked(*MESH, *SMALL, "model=qwen3_1b7", "mapping.prefill.gemm.m=512", "mapping.prefill.gemm.n=512")
    assert "tilings that are left open (0) are chosen to fit" in str(explain_infeasibility(wide.base, wide.workload))
    mixed = asked(*MESH, *SMALL, "model=qwen3_1b7", "mapping.precision.activations=mxfp8")
    with pytest.raises(DesignError, match="activations: mxfp8 has scales of blocks"):
        typed(mixed)


@given(*[st.sampled_from(formats_of_tensor("weights"))] * 3, st.sampled_from(["qwen3_1b7", "mixtral_8x7b"]))
@settings(max_examples=8, deadline=None)
def test_weights_are_held_in_their_formats(weights: str, experts: str, attention: str, model: str) -> None:
    given_model = asked(f"model={model}").workload.cases[0].model  # type: ignore[union-attr]
    formats = FormatPlan(weights=weights, activations="bf16", kv="bf16", experts=experts, attention=attention)
    nbytes = dict(hbm_bytes_by_use(given_model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0), 0.0, 1.0, formats))
    routed = (
        given_model.layers * given_model.experts.count * ffn_parameter_count(given_model, given_model.experts.intermediate)
        if given_model.experts
        else 0
    )
    projected = given_model.layers * given_model.hidden * given_model.head_dim * 2 * (given_model.heads + given_model.kv_heads)
    dense = 0 if given_model.experts else given_model.layers * ffn_parameter_count(given_model, given_model.ffn_intermediate)
    rest = parameter_count(given_model) - routed - projected - dense
    wanted = routed * BYTES_BY_FORMAT[experts] + projected * BYTES_BY_FORMAT[attention] + dense * BYTES_BY_FORMAT[weights]
    wanted += rest * max(BYTES_BY_FORMAT[weights], BYTES_BY_FORMAT["bf16"])  # norms, routers, embedding and head
    assert nbytes["weights"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("weights", ["mxfp4", "fp8"])
def test_narrow_weights_are_loaded_sent_and_expanded(weights: str) -> None:
    wide, narrow = (asked(*MESH, *SMALL, "model=qwen3_1b7", f"mapping.precision.weights={word}") for word in ("fp16", weights))
    usual, closed, played = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns
        for question, word in ((wide, "analytical"), (narrow, "analytical"), (narrow, "events"))
    )
    assert closed["hbm_bytes"] == pytest.approx(played["hbm_bytes"])
    assert closed["energy"] == pytest.approx(played["energy"], rel=0.02)
    assert closed["tpot"] == pytest.approx(played["tpot"], rel=0.05)
    assert closed["hbm_bytes"][0] < usual["hbm_bytes"][0]
    assert closed["hbm_used"][0] < usual["hbm_used"][0]
    explained = explain(narrow.base, narrow.workload.cases[0]).rows
    gate = next(row for row in explained if (row.phase, row.operator) == ("decode", "gate"))
    assert (gate.parts.get("vector", 0.0) > 0) == (weights == "mxfp4")


def test_caches_of_one_byte_are_held_and_read_in_half_the_bytes() -> None:
    wide, narrow = (asked(*MESH, *SMALL, "model=qwen3_1b7", f"mapping.precision.kv={word}") for word in ("fp16", "fp8"))
    two, single_byte, played = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns
        for question, word in ((wide, "analytical"), (narrow, "analytical"), (narrow, "events"))
    )
    model = narrow.workload.cases[0].model  # type: ignore[union-attr]
    saved = 2 * 200 * model.layers * 2 * model.kv_heads * model.head_dim
    assert two["hbm_used"][0] - single_byte["hbm_used"][0] == saved  # when prompts are prefilled, which holds most
    assert single_byte["hbm_bytes"] == pytest.approx(played["hbm_bytes"])
    assert single_byte["hbm_bytes"][0] < two["hbm_bytes"][0]
    assert single_byte["tpot"] == pytest.approx(played["tpot"], rel=0.05)


@pytest.mark.parametrize("word", ["int4_head", "mxfp4", "fp8_1x128"])
def test_caches_with_scales_are_held_and_read_packed_and_expanded(word: str) -> None:
    wide, narrow = (asked(*MESH, *SMALL, "model=qwen3_1b7", f"mapping.precision.kv={kv}") for kv in ("fp16", word))
    two, single_byte, played = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
        for question, fidelity in ((wide, "analytical"), (narrow, "analytical"), (narrow, "events"))
    )
    model = narrow.workload.cases[0].model  # type: ignore[union-attr]
    saved = 2 * 200 * model.layers * 2 * model.kv_heads * model.head_dim * (2 - BYTES_BY_FORMAT[word])
    assert two["hbm_used"][0] - single_byte["hbm_used"][0] == pytest.approx(saved)
    assert single_byte["hbm_bytes"] == pytest.approx(played["hbm_bytes"])
    assert single_byte["hbm_bytes"][0] < two["hbm_bytes"][0]
    assert single_byte["tpot"] == pytest.approx(played["tpot"], rel=0.05)
    assert single_byte["energy"] == pytest.approx(played["energy"], rel=0.02)
    expanded, usual = (
        next(
            row
            for row in explain(question.base, question.workload.cases[0]).rows
            if (row.phase, row.operator) == ("decode", "attention")
        )
        for question in (narrow, wide)
    )
    assert expanded.parts["vector"] > usual.parts["vector"]


def test_values_of_one_byte_halve_what_memory_moves() -> None:
    half = tuple(f"mapping.precision.{name}=fp8" for name in ("weights", "activations", "kv"))
    half += tuple(f"+mapping.precision.{name}=as_weights" for name in ("embedding", "head"))
    two, single_byte = (
        evaluate(stack_designs([q.base]), q.workload).columns
        for q in (asked(*MESH, *SMALL, "model=qwen3_1b7"), asked(*MESH, *SMALL, "model=qwen3_1b7", *half))
    )
    assert single_byte["hbm_bytes"][0] == pytest.approx(two["hbm_bytes"][0] / 2, rel=0.02)
    assert single_byte["hbm_used"][0] == pytest.approx(two["hbm_used"][0] / 2, rel=1e-3)  # norms have 16 bits
    assert single_byte["tpot"][0] < two["tpot"][0]
