"""Tokens that prefer some experts count on every chip that takes such a model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.graph.expert_loads import busiest_core_load, core_of_expert, expert_probabilities, sampled_rows
from dse.space.design import stack_designs
from dse.space.model import ExpertLayers
from tests.samples import asked

MODEL = ("model=qwen3_30b_a3b", "workload.batch=[16]", "workload.prompt=256", "workload.output=16")


def token(chip: str, skew: float) -> float:
    """Seconds of each further one."""
    given = asked(f"chip={chip}", *MODEL, f"+model.qwen3_30b_a3b.experts.skew={skew}")
    return float(evaluate(stack_designs([given.base]), given.workload).columns["tpot"][0])


@pytest.mark.sampled
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
    for name in names.values():
        assert name.index("dispatch") < name.index("combine") < name.index("ffn_sum")


@pytest.mark.parametrize(("count", "top_k", "skew"), [(256, 8, 0.0), (256, 8, 0.5), (128, 8, 0.8), (64, 6, 1.0), (8, 2, 0.6)])
def test_a_draw_goes_to_experts_as_often_as_is_expected(count: int, top_k: int, skew: float) -> None:
    """Also where some are chosen by nearly all tokens; and the busiest core of a draw has about the rows of the estimate."""
    experts = ExpertLayers(count=count, top_k=top_k, intermediate=1, skew=skew, load="sampled")
    tokens, draws = 4096.0, 6
    rows = [sampled_rows(replace(experts, seed=seed), tokens) for seed in range(draws)]
    wanted = expert_probabilities(experts)
    assert [sampled_row.sum() for sampled_row in rows] == [tokens * top_k] * draws
    deviation = np.sqrt(wanted * (1 - wanted) / (tokens * draws))
    assert (abs(np.mean(rows, axis=0) / tokens - wanted) < 5 * deviation + 0.03 * wanted).all()
    most = [float(busiest_core_load(replace(experts, seed=seed), tokens, 8)[0]) for seed in range(draws)]
    estimate = float(busiest_core_load(replace(experts, load="expected"), tokens, 8)[0])
    assert np.mean(most) == pytest.approx(estimate, rel=0.05)


def test_the_busiest_core_of_random_routings_is_that_of_draws() -> None:
    """At most 12 % off, draws being up to 3 % off themselves, and 2 % in the median."""
    rng, off = np.random.default_rng(5), []
    for _ in range(30):
        count = int(rng.choice([8, 16, 64, 128, 256]))
        top_k, cores = (
            int(rng.choice([1, 2, 4])),
            int(rng.choice([single_count for single_count in (2, 4, 8, 16, 64, 128) if single_count <= count])),
        )
        tokens = float(rng.choice([1, 2, 5, 16, 50, 128, 400]))
        experts = ExpertLayers(count=count, top_k=top_k, intermediate=1, skew=float(rng.choice([0.0, 0.1, 0.3, 0.6, 1.0])))
        draws = [replace(experts, load="sampled", seed=seed) for seed in range(120)]
        most = np.mean([float(busiest_core_load(draw, tokens, cores)[0]) for draw in draws])
        off.append(abs(float(busiest_core_load(experts, tokens, cores)[0]) / most - 1))
    assert np.median(off) < 0.02
    assert max(off) < 0.12


@given(st.sampled_from([(8, 2), (64, 6), (256, 8)]), st.floats(0, 2), st.sampled_from([1, 2, 8, 7]), st.floats(0.001, 1e7))
@settings(max_examples=60, deadline=None)
def test_more_tokens_never_have_fewer_rows_and_a_few_more_have_a_few(
    expert_sizes: tuple[int, int], skew: float, cores: int, tokens: float
) -> None:
    experts = ExpertLayers(count=expert_sizes[0], top_k=expert_sizes[1], intermediate=1, skew=skew)
    rows, more = (float(busiest_core_load(experts, tokens, cores)[0]) for tokens in (tokens, tokens * 1.0001))
    assert rows * (1 - 1e-9) <= more <= rows + 0.001 * expert_sizes[1] * tokens
    share = max(np.bincount(core_of_expert(expert_sizes[0], cores), expert_probabilities(experts), cores))
    assert share * tokens * (1 - 1e-9) <= rows <= expert_sizes[1] * tokens * (1 + 1e-9)
    if cores == 1:
        assert rows == pytest.approx(expert_sizes[1] * tokens, rel=1e-9)
    if tokens > 1e6:
        assert rows == pytest.approx(share * tokens, rel=0.01)
