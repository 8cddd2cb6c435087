"""Maximum rates of the steady state: near the simulation's, in batches as one by one, of fleets, and where none is kept."""

import shlex

import numpy as np
import pytest

import dse
from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.serving import steady_state_max_rate
from dse.evaluators.serving.slo_bounds import make_slo_bounds
from dse.evaluators.serving.steady_state_max_rate import NEAR, WARM, fleet_of_demand, rate_stream
from dse.evaluators.serving.steady_state_solver import solve_deployment
from dse.evaluators.workloads.serving import deploy_load
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves

LOAD = (
    "model=qwen3_8b workload=serving workload.rate=max workload.prompt=700 workload.output=60 workload.ttft='1 s' "
    "workload.tpot='60 ms' fidelity=steady_state"
)
CHIPS = {
    "devices": "chip=h100 mapping=serving stack=tuned inference_engine=none",
    "pools": "chip=npu_dse mapping=serving mapping.both.tp=2 mapping.serving.instances=2 mapping.serving.prefill_instances=1",
    "tiles": "chip=tile_gh200 mapping=flat_serving",
    "pipelines": "chip=npu256 mapping=npu_serving mapping.both.tp=4 mapping.both.pp=8 workload.ttft='20 s' workload.tpot='1 s'",
}


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of fewer requests, so that a test takes no minute."""
    monkeypatch.setattr(steady_state_max_rate, "LEAST", 2000)


def _question(words: str) -> Question:
    return compose_question(tuple(shlex.split(words))).question


def _outcomes(designs: list[Design], question: Question, fidelity: str = "steady_state") -> Outcomes:
    return evaluate(stack_designs(designs), question.workload, fidelity=fidelity)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_rate_is_near_that_of_the_simulation_and_tokens_come_at_it(chip: str) -> None:
    question = _question(f"{LOAD} {CHIPS[chip]}")
    steady, loop = (_outcomes([question.base], question, fidelity).columns for fidelity in ("steady_state", "analytical"))
    assert steady["max_rate"][0] == pytest.approx(loop["max_rate"][0], rel=0.1)
    assert steady["throughput"][0] == pytest.approx(60 * steady["max_rate"][0])
    assert steady["request_throughput"][0] == pytest.approx(steady["max_rate"][0])
    assert steady["capacity_per_mm2"][0] == pytest.approx(steady["throughput_per_system_mm2"][0])
    assert steady["capacity_per_dollar"][0] == pytest.approx(1e6 / steady["price_per_mtoken"][0])
    assert steady["energy_per_token"][0] == pytest.approx(loop["energy_per_token"][0], rel=0.12)


def test_many_designs_have_the_rates_that_each_has_alone() -> None:
    question = _question(f"{CHIPS['devices']} {LOAD}")
    designs = [
        replace_leaves(question.base, {"mapping.serving.max_batch_size": batch, "mapping.serving.instances": count})
        for batch, count in ((4, 1), (32, 1), (64, 3))
    ]
    together = _outcomes(designs, question).columns
    for name in ("max_rate", "tpot", "ttft_p90", "tbt_p99", "energy_per_token", "slo_attainment"):
        alone = [_outcomes([design], question).columns[name][0] for design in designs]
        assert together[name].tolist() == pytest.approx(alone, rel=1e-9), name
    assert (np.diff(together["max_rate"]) > 0).all()


def test_looser_bounds_and_smaller_shares_never_lower_the_rate() -> None:
    rates = [
        _outcomes([question.base], question).columns["max_rate"][0]
        for question in (
            _question(f"{CHIPS['devices']} {LOAD} {words}")
            for words in (
                "workload.slo_percentile=99",
                "workload.slo_percentile=50",
                "workload.slo_percentile=50 workload.ttft='4 s'",
            )
        )
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[1]


@pytest.mark.parametrize(
    "words",
    [
        "workload.ttft='60 ms' workload.tpot='1 s'",
        "workload.ttft='120 ms' workload.tpot='1 s'",
        "workload.ttft='100 ms' workload.tpot='13 ms' mapping.serving.policy=chunked_prefill",
    ],
)
def test_enough_requests_keep_their_bounds_at_the_rate_and_too_few_just_above_it(words: str) -> None:
    question = _question(f"{CHIPS['devices']} {LOAD} workload.requests=3000 workload.slo_percentile=50 {words}")
    (load,), bounds = question.workload.cases, make_slo_bounds(question.workload.cases[0], 0.5)
    rate, stream = _outcomes([question.base], question).columns["max_rate"][0], rate_stream(load, bounds)
    deployment, _ = deploy_load(question.base, load, "analytical")

    def attained(at: float) -> float:
        part = stream.requests.first_requests(int(stream.count_requests(at))).scale_times(at)
        return float(solve_deployment(deployment, part, *bounds.tightest).replayed_records()["within"][0])

    # the first requests, which do not count in the search, find no queue
    assert (1 - WARM) * 0.5 <= attained(rate) <= WARM + (1 - WARM) * 0.6
    assert attained(rate * NEAR**2) < WARM + (1 - WARM) * 0.5


def test_a_fleet_has_as_many_systems_as_its_demand_takes_and_loads_them_alike() -> None:
    alone, fleet = (_question(f"{CHIPS['devices']} {LOAD} {words}") for words in ("", "workload.demand='1000 Hz'"))
    most = _outcomes([alone.base], alone).columns["max_rate"][0]
    columns = _outcomes([fleet.base], fleet).columns
    systems = np.ceil(1000 / most)
    assert columns["fleet_systems"][0] == systems
    assert columns["max_rate"][0] == pytest.approx(most)
    assert columns["request_throughput"][0] == pytest.approx(1000 / systems)
    assert columns["fleet_price"][0] == pytest.approx(systems * columns["system_price"][0])
    assert columns["capacity_per_mm2"][0] == pytest.approx(
        _outcomes([alone.base], alone).columns["throughput_per_system_mm2"][0]
    )
    played = _outcomes([fleet.base], fleet, "analytical").columns
    assert played["fleet_systems"][0] == pytest.approx(systems, rel=0.1)
    assert played["request_throughput"][0] * played["fleet_systems"][0] == pytest.approx(1000, rel=0.05)


def test_systems_of_a_demand_are_whole_and_none_where_no_rate_is_kept() -> None:
    systems, rates = fleet_of_demand(10.0, np.array([3.0, 5.0, 10.0, 11.0, 0.0]))
    assert systems.tolist() == [4, 2, 1, 1, 0]
    assert rates.tolist() == [2.5, 5, 10, 10, 0]


@pytest.mark.parametrize("fidelity", ["steady_state", "analytical"])
def test_a_bound_that_a_request_alone_breaks_is_a_limit_with_what_it_takes(fidelity: str) -> None:
    question = _question(f"{CHIPS['devices']} {LOAD} workload.tpot='2 ms'")
    outcomes = _outcomes([question.base, question.base], question, fidelity)
    assert not outcomes.feasible.any()
    worst = outcomes.row_outcome(0)
    loose = _question(f"{CHIPS['devices']} {LOAD} workload.rate='0.01 Hz' workload.requests=20")
    alone = _outcomes([loose.base], loose).columns["tpot"][0]
    assert (worst.limit, worst.have) == ("workload.tpot", 0.002)
    assert worst.need == pytest.approx(alone, rel=0.05)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("workload.demand='100 Hz' workload.rate='1 Hz'", "workload.demand: .*workload.rate=max"),
        ("workload.demand='0 Hz'", "workload.demand: "),
        ("workload.resample=true", "workload.resample: .*workload.trace"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(words: str, why: str) -> None:
    with pytest.raises(DesignError, match=why):
        _question(f"{CHIPS['devices']} {LOAD} {words}")


def test_the_answer_says_whose_rate_it_is_and_whether_it_lasts() -> None:
    words = shlex.split(f"{CHIPS['devices']} {LOAD}")
    fleet = dse.evaluate(*words, "workload.demand='1000 Hz'")
    assert "at a system's share of 1000 Hz" in fleet.cases[0].label
    whole, few = dse.evaluate(*words), dse.evaluate(*words, "workload.requests=300")
    assert "at the maximum rate" in whole.cases[0].label
    assert "too few" not in whole.max_rates[0]
    assert "300 requests are too few to show whether this rate lasts" in few.max_rates[0]
