"""Tokens that prefer some experts count on every chip that takes such a model."""

import pytest

from dse.evaluators import evaluate, explain
from dse.space.design import stacked
from tests.samples import asked

MODEL = ("model=qwen3_30b_a3b", "workload.batch=[16]", "workload.prompt=256", "workload.output=16")


def token(chip: str, skew: float) -> float:
    """Seconds of each further one."""
    given = asked(f"chip={chip}", *MODEL, f"+model.qwen3_30b_a3b.experts.skew={skew}")
    return float(evaluate(stacked([given.base]), given.workload).columns["tpot"][0])


@pytest.mark.parametrize("chip", ["wse2", "a100", "tile32"])
def test_where_all_cores_share_each_expert_tokens_that_prefer_some_touch_fewer(chip: str) -> None:
    even, uneven, more = (token(chip, skew) for skew in (0.0, 1.5, 2.5))
    assert more < uneven < even


def test_a_wafer_sends_tokens_to_experts_and_back_and_adds_them_in_both_phases() -> None:
    given = asked("chip=wse2", *MODEL)
    rows = explain(given.base, given.workload.cases[0]).rows
    names = {
        phase: [row.operator for row in rows if row.phase == phase and row.segment == "moe"] for phase in ("prefill", "decode")
    }
    for of in names.values():
        assert of.index("dispatch") < of.index("combine") < of.index("ffn_sum")
