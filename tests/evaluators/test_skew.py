"""Tokens that prefer some experts count on every chip that takes such a model."""

from dataclasses import replace

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.graph.experts import busiest, chosen, drawn
from dse.space.design import stacked
from dse.space.model import Experts
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


@pytest.mark.parametrize(("count", "top_k", "skew"), [(256, 8, 0.0), (256, 8, 0.5), (128, 8, 0.8), (64, 6, 1.0), (8, 2, 0.6)])
def test_a_draw_goes_to_experts_as_often_as_is_expected(count: int, top_k: int, skew: float) -> None:
    """Also where some are chosen by nearly all tokens; and the busiest core of a draw has about the rows of the estimate."""
    experts = Experts(count=count, top_k=top_k, intermediate=1, skew=skew, load="sampled")
    tokens, draws = 4096.0, 6
    found = [drawn(replace(experts, seed=seed), tokens) for seed in range(draws)]
    wanted = chosen(experts)
    assert [some.sum() for some in found] == [tokens * top_k] * draws
    deviation = np.sqrt(wanted * (1 - wanted) / (tokens * draws))
    assert (abs(np.mean(found, axis=0) / tokens - wanted) < 5 * deviation + 0.03 * wanted).all()
    most = [float(busiest(replace(experts, seed=seed), tokens, 8)[0]) for seed in range(draws)]
    estimate = float(busiest(replace(experts, load="expected"), tokens, 8)[0])
    assert np.mean(most) == pytest.approx(estimate, rel=0.1)
