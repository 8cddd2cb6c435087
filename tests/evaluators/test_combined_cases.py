"""Metrics of several models on one design: weighted means over cases, and the worst case."""

import numpy as np
import pytest

import dse
from dse.evaluators import METRICS
from dse.execution.study import workload_key
from dse.space.errors import DesignError
from tests.samples import asked

WORDS = ["chip=h100", "model=[llama3_8b,qwen3_14b]", "mapping.both.tp=1", "workload.batch=[2,4]"]
"""Two models of two cases each."""

MEAN = [name for name, metric in METRICS.items() if metric.over == "mean"]


def cases_and_whole(*more: str) -> tuple[list[dict[str, float]], dict[str, float]]:
    evaluation = dse.evaluate([*WORDS, *more])
    return [dict(case.metrics) for case in evaluation.cases], dict(evaluation.metrics)


def test_shares_of_models_weigh_their_cases() -> None:
    cases, whole = cases_and_whole("workload.model_shares=[0.7,0.3]")
    names = [name for name in MEAN if name in whole]
    assert len(names) > 10
    for name in names:
        each = [case[name] for case in cases]
        assert whole[name] == pytest.approx(0.35 * (each[0] + each[1]) + 0.15 * (each[2] + each[3]))


def test_equal_shares_are_the_mean_over_all() -> None:
    _, equal = cases_and_whole("workload.model_shares=[0.5,0.5]")
    assert equal == pytest.approx(cases_and_whole()[1])


def test_the_worst_of_a_metric_is_its_value_in_the_case_where_it_is_worst() -> None:
    cases, whole = cases_and_whole("workload.over_cases=worst")
    for name in (name for name in MEAN if name in whole):
        worst = max if METRICS[name].better == "min" else min
        assert whole[name] == worst(case[name] for case in cases)


def test_what_a_case_lacks_does_not_count() -> None:
    words = ["workload.prompt=[64]", "workload.output=[1,9]"]  # one token, which prefill gives: no decode
    cases, whole = cases_and_whole(*words, "workload.model_shares=[0.7,0.3]")
    each = [case.get("tpot", np.nan) for case in cases]
    assert np.isnan(each).tolist() == [True, False] * 4
    assert whole["tpot"] == pytest.approx((0.175 * (each[1] + each[3]) + 0.075 * (each[5] + each[7])) / 0.5)
    assert cases_and_whole(*words, "workload.over_cases=worst")[1]["tpot"] == np.nanmax(each)


def test_an_answer_says_how_it_combines_cases() -> None:
    weighted = " ".join(repr(dse.evaluate([*WORDS, "workload.model_shares=[0.7,0.3]"])).split())
    assert "metrics are means over all, weighted: Llama-3-8B 0.7, Qwen3-14B 0.3" in weighted
    assert "metrics are the worst of all" in " ".join(repr(dse.evaluate([*WORDS, "workload.over_cases=worst"])).split())


def test_results_of_other_combinations_have_other_keys() -> None:
    workloads = [
        asked(*WORDS, *more).workload for more in ((), ("workload.model_shares=[0.7,0.3]",), ("workload.over_cases=worst",))
    ]
    assert len({workload_key(workload) for workload in workloads}) == 3


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("workload.model_shares=[0.7]", "a share for each of Llama-3-8B, Qwen3-14B"),
        ("workload.model_shares=[0.7,0.7]", "sum to 1"),
        ("workload.model_shares=[1.5,-0.5]", "1.5 is above the maximum, 1"),
        ("workload.over_cases=best", "valid: mean, worst"),
    ],
)
def test_shares_that_are_none_are_refused(word: str, text: str) -> None:
    with pytest.raises(DesignError, match=text):
        dse.evaluate([*WORDS, word])


def test_cases_of_a_die_with_simulated_banks_are_those_of_each_alone() -> None:
    words = [
        *("chip=h100", "model=llama3_8b", "+memory@chip.hbm.banks=hbm3", "chip.hbm.banks.stacks=5", "stack=ideal"),
        *("workload.prompt=[64]", "workload.output=[4]", "fidelity=events"),
    ]
    together = dse.evaluate([*words, "workload.batch=[2,4]"])
    for case, batch in zip(together.cases, (2, 4), strict=True):
        assert case.metrics["latency"] == dse.evaluate([*words, f"workload.batch=[{batch}]"]).metrics["latency"]
