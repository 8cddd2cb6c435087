"""Useful operations are those that a workload asks for, whoever does them, and no engine does more of them than it could."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.breakdown import BreakdownRow, excess_by_cause, merge_rows, scale_row
from dse.evaluators.accounting.decode_segments import arrays_by_case
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.evaluation import explain
from dse.evaluators.graph.operators import useful_flop as of_operator
from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.workload import AttentionCase, BatchCase, ProductCase, Workload, WorkloadCase
from tests.contract.test_one_transcription import words_of
from tests.samples import asked

DIES = "mapping=sglang mapping.both.tp"
ATTENDING = ("chip=tile32", "chip=tile_gh200", "chip=npu64", f"chip=a100 {DIES}=1", f"chip=h100 {DIES}=3")
MULTIPLYING = ("chip=tile32 mapping=summa", "chip=tile32 mapping=product mapping.rows=8", "chip=wse2", f"chip=a100 {DIES}=3")
CELLS = [
    (model, chip)
    for model, chips in {
        "qwen3_30b_a3b": (f"chip=h200 {DIES}=16", "chip=npu64", "chip=tile32", "chip=wse2", "chip=wafer64", "chip=h800_ep"),
        "deepseek_v2_lite": (f"chip=a100 {DIES}=3", "chip=npu64", "chip=wse2"),
        "gemma3_12b": (f"chip=a100 {DIES}=3", "chip=npu64", "chip=wse2"),
        "delta_beside_attention": ("chip=npu64", "chip=wse2"),
    }.items()
    for chip in chips
]


def spent(design: Design, case: WorkloadCase) -> tuple[BreakdownRow, ...]:
    """Where the time of a case goes; what is executed is what is useful and its excess, which has a cause."""
    result = explain(design, case, decode_context="mean", fidelity="analytical").rows
    for row in result:
        assert set(row.excess or {}) <= {"padding", "repetition", "mask"}
        assert row.executed_flop is None or row.executed_flop >= row.flop >= 0
        assert min((row.excess or {"": 0.0}).values(), default=0.0) >= 0
    return result


def useful(design: Design, case: WorkloadCase) -> float:
    """Useful operations of a case, in its breakdown."""
    return sum(row.flop for row in spent(design, case))


def utilisation(design: Design, case: WorkloadCase) -> float:
    """Of matrix engines by a case, which is no more than all of them; nor does memory move more than it could."""
    columns = evaluate(stack_designs([design]), Workload("", (case,))).columns
    assert all(0 <= columns[name][0] <= 1 for name in ("mfu", "hbm_utilisation") if name in columns)
    return float(columns["mfu"][0]) if "mfu" in columns else float("nan")


@st.composite
def attention(draw: Any) -> AttentionCase:
    """Attention of any shape: to all keys, those up to a query, or a window of them."""
    kv_heads, queries = draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 5000))
    keys, causal = queries + draw(st.sampled_from([0, 0, 7, 3000])), draw(st.booleans())
    window = draw(st.sampled_from([0, 1, 100, keys, keys + 5])) if causal else 0
    heads = kv_heads * draw(st.sampled_from([1, 4]))
    return AttentionCase("", draw(st.integers(1, 3)), heads, kv_heads, queries, keys, 128, 64, causal, False, window)


def pairs(attention_case: AttentionCase) -> float:
    """Query and key that a mask lets through, counted query by query."""
    seen = (
        np.arange(attention_case.keys - attention_case.queries + 1, attention_case.keys + 1)
        if attention_case.causal
        else np.full(attention_case.queries, attention_case.keys)
    )
    return float((np.minimum(seen, attention_case.window) if attention_case.window else seen).sum())


@given(st.sampled_from(ATTENDING), attention())
@settings(max_examples=8, deadline=None)
def test_useful_operations_of_attention_are_those_of_pairs_that_the_mask_lets_through(chip: str, case: AttentionCase) -> None:
    design = asked(*chip.split(), "workload=attention").base
    assert useful(design, case) == pytest.approx(2 * case.batch * case.heads * pairs(case) * (case.qk + case.v), rel=1e-12)
    assert utilisation(design, case) > 0


@given(st.sampled_from(MULTIPLYING), st.tuples(*[st.integers(1, 3000)] * 3))
@settings(max_examples=6, deadline=None)
def test_useful_operations_of_a_product_are_those_of_its_sizes(words: str, sizes: tuple[int, int, int]) -> None:
    design, case = asked(*words.split(), "workload=gemm").base, ProductCase("", "gemm", *sizes)
    m, k, n = sizes
    assert useful(design, case) == pytest.approx(2 * m * k * n, rel=1e-12)
    assert utilisation(design, case) > 0


def of_graph(case: BatchCase) -> dict[str, float]:
    """Useful operations of both phases of a case, as its graph has them."""
    steps = {"prefill": [(1.0, prefill_step(case))], "decode": decode_steps(case, "mean")}
    return {
        phase: sum(
            times * part.times * float(of_operator(operator))
            for times, at in step
            for part in transformer_segments(case.model, at)
            for operator in part.operators
        )
        for phase, step in steps.items()
    }


@pytest.mark.sampled
@pytest.mark.parametrize(("model", "chip"), CELLS)
def test_useful_operations_of_a_model_are_those_of_its_graph_in_every_layout(model: str, chip: str) -> None:
    """Also where requests are no multiple of the regions, stages or copies that work on them."""
    question = asked(*words_of(model), *chip.split(), "workload.batch=[5]", "workload.prompt=700", "workload.output=20")
    (case,) = question.workload.cases
    assert isinstance(case, BatchCase)
    rows, done = spent(question.base, case), of_graph(case)
    for phase, flop in done.items():
        assert sum(row.flop for row in rows if row.phase == phase) == pytest.approx(flop, rel=1e-9), phase
    utilisation(question.base, case)


@pytest.mark.parametrize("chip", ["wafer64", "h800_ep"])
def test_copies_that_have_equally_many_requests_do_what_is_asked_and_no_more(chip: str) -> None:
    question = asked("model=qwen3_30b_a3b", f"chip={chip}", "workload.batch=[768]", "workload.prompt=300", "workload.output=4")
    (job,) = arrays_by_case(question.workload)
    assert [phase.useful_share for phase in layout_of(question.base).phases(question.base, job, "analytical")] == pytest.approx(
        [1.0, 1.0]
    )


@pytest.mark.parametrize(("tp", "cause"), [(16, "repetition"), (3, "padding")])
def test_devices_that_share_heads_execute_more_than_is_useful(tp: int, cause: str) -> None:
    """8 KV heads are each on two of 16 devices; 32 heads are no multiple of 3."""
    question = asked("model=qwen3_8b", "chip=npu_dse", "workload.batch=[2]", "workload.prompt=256", "workload.output=4")
    rows = {
        row.operator: row
        for row in spent(
            replace_leaves(question.base, {"mapping.prefill.tp": float(tp), "mapping.decode.tp": float(tp)}),
            question.workload.cases[0],
        )
    }
    assert rows["k_proj"].cause == cause
    assert rows["k_proj"].excess == pytest.approx({cause: (tp / 8 - 1 if tp == 16 else 1 / 8) * rows["k_proj"].flop})


def test_masked_pairs_of_a_wafer_are_those_that_it_multiplies_beside_useful_ones() -> None:
    question = asked("model=qwen3_8b", "chip=wse2", "workload.batch=[1]", "workload.prompt=1000", "workload.output=4")
    (row,) = (
        row for row in spent(question.base, question.workload.cases[0]) if (row.phase, row.operator) == ("prefill", "scores")
    )
    assert row.excess is not None
    assert row.excess["mask"] / row.flop == pytest.approx(1000 * 999 / (1000 * 1001))


def test_rows_are_repeated_and_merged_with_all_that_they_count() -> None:
    row = BreakdownRow("", "", "", "", 6.0, 4.0, 0.0, "hbm", 1.0, {"hbm": 1.0}, 3.0, excess_by_cause(10.0, 6.0, masked=3.0))
    assert merge_rows(row, row) == scale_row(row, 2.0)
    assert scale_row(row, 2.0).executed_flop == 20.0
    assert merge_rows(row, scale_row(row, 2.0)).sent == 9.0
