"""States of Mamba-1, each entry of which has a decay of its own: what they hold and do is counted by hand, at random shapes."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.evaluators.graph.operators import MatMulOp, RecurrenceOp, useful_flop
from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.model import Model, RecurrentMixing
from dse.space.parameter_counts import fixed_bytes_per_sequence, mixing_parameter_count
from dse.space.workload import BatchCase, Workload
from tests.samples import base

SHAPES = st.tuples(*(st.integers(1, most) for most in (4, 8, 12, 16)), st.integers(0, 4), st.booleans())


def model_of(shape: tuple[int, int, int, int, int, bool], hidden: int = 24) -> Model:
    heads, value_dim, key_dim, rank, conv, bias = shape
    state = RecurrentMixing(
        rule="selective", heads=heads, key_heads=1, key_dim=key_dim, value_dim=value_dim, conv=conv, conv_bias=bias,
        gate_rank=rank, chunk=1,
    )  # fmt: skip
    return Model(
        name="random", layers=3, hidden=hidden, heads=4, kv_heads=2, head_dim=6, ffn_intermediate=16, vocab=50,
        max_position=512, recurrence=state, qk_norm=bias,
    )  # fmt: skip


@given(SHAPES)
@settings(max_examples=60, deadline=None)
def test_weights_and_states_are_those_counted_by_hand(shape: tuple[int, int, int, int, int, bool]) -> None:
    heads, value_dim, n, rank, conv, bias = shape
    model, inner, h = model_of(shape), heads * value_dim, 24
    projections = h * 2 * inner + inner * (2 * n + rank) + rank * inner + inner * h
    vectors = inner * conv + bias * inner + inner + inner * n + inner + bias * (2 * n + rank)
    assert mixing_parameter_count(model) == projections + vectors
    assert fixed_bytes_per_sequence(model, 2.0) == 3 * (inner * n * 4 + max(conv - 1, 0) * inner * 2)


@given(SHAPES, st.sampled_from(["prefill", "decode"]), st.integers(1, 5), st.integers(2, 60))
@settings(max_examples=60, deadline=None)
def test_operators_do_what_the_layer_does(
    shape: tuple[int, int, int, int, int, bool], phase: str, requests: int, tokens: int
) -> None:
    heads, value_dim, n, rank, _, _ = shape
    model, inner = model_of(shape), heads * value_dim
    case = BatchCase("", model, ((requests, tokens, 4),))
    step = prefill_step(case) if phase == "prefill" else decode_steps(case, "last")[0][1]
    part = next(part for part in transformer_segments(model, step) if part.kind == "mixing")
    rows = requests * tokens if phase == "prefill" else requests
    products = sum(useful_flop(operator) for operator in part.operators if isinstance(operator, MatMulOp))
    states = sum(useful_flop(operator) for operator in part.operators if isinstance(operator, RecurrenceOp))
    assert products == pytest.approx(2 * rows * (3 * 24 * inner + inner * (2 * n + rank) + rank * inner))
    assert states == pytest.approx(2 * rows * inner * 2 * n)


def test_larger_states_take_longer_and_more_memory_on_devices() -> None:
    small = model_of((16, 64, 16, 16, 4, True), hidden=512)
    assert small.recurrence is not None
    large = replace(small, recurrence=replace(small.recurrence, key_dim=128))
    metrics = []
    for model in (small, large):
        outcomes = evaluate(stack_designs([base()]), Workload("one", (BatchCase("one", model, ((64, 256, 64),)),)))
        metrics.append({name: float(column[0]) for name, column in outcomes.columns.items()})
    assert all(metrics[0][name] < metrics[1][name] for name in ("ttft", "tpot", "hbm_used"))


@pytest.mark.parametrize("chip", ["tile_gh200", "wse3"])
def test_chips_without_such_kernels_say_so(chip: str) -> None:
    design = build_question(compose([f"chip={chip}"]), Path()).base
    case = BatchCase("one", model_of((2, 8, 4, 4, 4, True)), ((1, 64, 4),))
    with pytest.raises(DesignError, match=r"Mamba-1 states .* use chip=h100"):
        evaluate(stack_designs([design]), Workload("one", (case,))).require_compatible()
