"""Experts and operators on elements by themselves, on a die with a cache."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.graph.benchmark_expert_loads import balanced_rows, busiest_device_share, power_law_rows
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked, metrics

EXPERTS = ("chip=h100", "workload=experts", "mapping.decode.tp=1")
ELEMENTS = ("chip=a100", "workload=elementwise", "mapping.decode.tp=1")
QUESTIONS = (
    (*EXPERTS, "stack=trtllm_h100", "workload.tokens=[3,500]", "workload.ep=8"),
    (*EXPERTS, "workload.distribution=power_law", "workload.exponent=1.2", "workload.tokens=[77]"),
    (*ELEMENTS, "stack=vllm_a100", "workload.operator=gate"),
    (*ELEMENTS, "workload.operator=softmax", "mapping.decode.tp=4"),
)

layer = st.tuples(st.integers(1, 3000), st.integers(1, 6).map(lambda power: 2**power), st.integers(1, 8)).filter(
    lambda sizes: sizes[2] <= sizes[1]
)


@given(layer)
def test_evenly_spread_rows_are_all_there(sizes: tuple[int, int, int]) -> None:
    tokens, experts, top_k = sizes
    rows = balanced_rows(tokens, experts, top_k)
    assert rows.sum() == tokens * top_k


@given(layer, st.floats(1.01, 2.5), st.integers(0, 99))
def test_drawn_rows_are_all_there_and_none_has_more_than_there_are_tokens(
    sizes: tuple[int, int, int], exponent: float, seed: int
) -> None:
    tokens, experts, top_k = sizes
    rows = power_law_rows(tokens, experts, top_k, exponent, np.random.default_rng(seed))
    assert rows.sum() == tokens * top_k
    assert rows.min() >= 0
    assert rows.max() <= tokens


@given(st.integers(100, 3000), st.integers(0, 99))
def test_the_fullest_of_many_parts_has_at_least_its_share(tokens: int, seed: int) -> None:
    rows, touched = busiest_device_share(tokens, 64, 4, 8, "power_law", 1.2, seed)
    assert rows >= tokens * 4 / 8
    assert 1 <= touched <= 8


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words[3:]))
def test_a_breakdown_of_a_kernel_adds_up(words: tuple[str, ...]) -> None:
    question = asked(*words)
    cases = evaluate(stack_designs([question.base]), question.workload, cases=True).cases["latency"]
    for case, seconds in zip(question.workload.cases, np.ravel(cases), strict=True):
        explanation = explain(question.base, case)
        assert sum(row.seconds for row in explanation.rows) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words[3:]))
def test_kernels_are_answered_alike_alone_and_together(words: tuple[str, ...]) -> None:
    question, random = asked(*words), np.random.default_rng(1)
    designs = [
        replace_leaves(question.base, {"chip.hbm.bandwidth": float(random.uniform(1e12, 5e12)), "mapping.decode.tp": int(tp)})
        for tp in random.integers(1, 9, 6)
    ]
    together = evaluate(stack_designs(designs), question.workload).columns["latency"]
    alone = [evaluate(stack_designs([design]), question.workload).columns["latency"][0] for design in designs]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_experts_cost_what_is_touched() -> None:
    few, medium, many = (
        metrics(*EXPERTS, "stack=trtllm_h100", f"workload.tokens=[{tokens}]")["latency"] for tokens in (1, 64, 1024)
    )
    assert medium > 15 * few  # 256 experts are touched where 8 were
    assert many < 1.5 * medium


def test_one_of_eight_dies_has_less_to_do() -> None:
    single_latency, eight = (metrics(*EXPERTS, f"workload.ep={ep}")["latency"] for ep in (1, 8))
    assert eight < single_latency / 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*EXPERTS, "workload.top_k=300"), "workload.top_k: a token goes to 300 of 256 experts"),
        ((*EXPERTS, "workload.ep=7"), "workload.ep: 7 devices do not divide 256 experts"),
        ((*EXPERTS, "workload.distribution=zipf"), "workload.distribution: no option 'zipf'"),
        ((*EXPERTS, "workload.exponent=1.2"), "workload.exponent: balanced rows have none"),
        ((*EXPERTS, "workload.distribution=power_law", "workload.exponent=1"), "workload.exponent: 1 is not above 1"),
        ((*EXPERTS, "+workload.batch=[1]"), "no field 'workload.batch'"),
        ((*ELEMENTS, "workload.operator=sort"), "workload.operator: no option 'sort'"),
        ((*ELEMENTS, "workload.rows=[0]"), "workload.rows: 0 is below the minimum, 1"),
        (("chip=wse2", "workload=elementwise"), "nothing runs operators on this chip"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError) as error:
        asked(*words)
    assert message in str(error.value)
