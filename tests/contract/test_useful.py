"""Useful operations are those that a workload asks for, whoever does them, and no engine does more of them than it could."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.evaluation import explain
from dse.space.design import Design, stacked
from dse.space.workload import Asked, Attention, Workload
from tests.samples import asked

ALONE = "mapping=sglang mapping.both.tp=1"
ATTENDING = ("chip=tile32", "chip=tile_gh200", "chip=npu64", f"chip=a100 {ALONE}", f"chip=h100 {ALONE}")


def useful(design: Design, case: Asked) -> float:
    """Useful operations of a case, in its breakdown."""
    return sum(row.flop for row in explain(design, case, decode_at="mean", fidelity="closed").rows)


def utilisation(design: Design, case: Asked) -> float:
    """Of matrix engines by a case."""
    return float(evaluate(stacked([design]), Workload("", (case,))).columns["utilisation"][0])


@st.composite
def attention(draw: Any) -> Attention:
    """Attention of any shape: to all keys, those up to a query, or a window of them."""
    kv_heads, queries = draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 5000))
    keys, causal = queries + draw(st.sampled_from([0, 0, 7, 3000])), draw(st.booleans())
    window = draw(st.sampled_from([0, 1, 100, keys, keys + 5])) if causal else 0
    heads = kv_heads * draw(st.sampled_from([1, 4]))
    return Attention("", draw(st.integers(1, 3)), heads, kv_heads, queries, keys, 128, 64, causal, False, window)


def pairs(of: Attention) -> float:
    """Query and key that a mask lets through, counted query by query."""
    seen = np.arange(of.keys - of.queries + 1, of.keys + 1) if of.causal else np.full(of.queries, of.keys)
    return float((np.minimum(seen, of.window) if of.window else seen).sum())


@given(st.sampled_from(ATTENDING), attention())
@settings(max_examples=25, deadline=None)
def test_useful_operations_of_attention_are_those_of_pairs_that_the_mask_lets_through(chip: str, case: Attention) -> None:
    design = asked(*chip.split(), "workload=attention").base
    assert useful(design, case) == pytest.approx(2 * case.batch * case.heads * pairs(case) * (case.qk + case.v), rel=1e-12)
    assert 0 < utilisation(design, case) <= 1
