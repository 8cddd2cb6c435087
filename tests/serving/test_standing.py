"""The steady state against the loop: one request alone, no load, growing loads, more instances; and through the door."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import evaluate, explain, fidelities
from dse.evaluators.accounting.serving_runs.steady_state_run import steady_state_columns
from dse.evaluators.serving.closed_loop import saturated_rate
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.pool_balance import requests_met_ratio
from dse.evaluators.serving.queueing import mean_wait, others_in_lane, response_quantile, response_share
from dse.evaluators.serving.run_statistics import SloTargets, offered_load, queue_growth, run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.evaluators.serving.steady_state_solver import BRIEF, solve_deployment, solve_deployments
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.lazy_metrics import compute_all
from dse.space.requests import Requests, make_requests

RULES = ("chunked_prefill", "prefill_first", "orca", "pd_fusion")


def _pool(rng: np.random.Generator, instances: int, rule: str = "") -> InstancePool:
    """A pool of random prices and stages."""
    price = linear_time(*(float(value) for value in 10 ** rng.uniform((-3, -6, -9, -5, -8, -9), (-2, -4, -7, -3, -6, -8))))
    stages = int(rng.integers(1, 6))
    shares = rng.dirichlet(np.full(stages, 50.0))
    chosen = make_policy(rule or str(rng.choice(RULES)), by_chunk=False)
    batch = int(rng.integers(8, 65))
    return InstancePool(price, chosen, KvMemory(1 << 16), instances, tuple((shares / shares.sum()).tolist()), batch=batch)


def _deployment(rng: np.random.Generator) -> Deployment:
    count = int(rng.integers(1, 4))
    if rng.random() < 0.3:
        pools = (_pool(rng, int(rng.integers(1, 4)), "prefill_first"), _pool(rng, count))
        return Deployment(pools, KvTransfer(1e-6, 1e-4, 1, True, fixed=1e-4), "least_loaded")
    return Deployment((_pool(rng, count),), None, "least_loaded")


def _steady(deployment: Deployment, requests: Requests) -> dict[str, float]:
    return {
        name: float(value[0])
        for name, value in compute_all(steady_state_columns(solve_deployment(deployment, requests), requests)).items()
    }


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9))
def test_without_load_a_request_takes_what_it_takes_alone_in_the_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deployment, lengths = _deployment(rng), (int(rng.integers(1, 1500)), int(rng.integers(2, 200)))
    requests = make_requests([lengths] * 3, 1e6 * np.arange(3))
    loop, steady = run_statistics(deployment.serve(requests), SloTargets()), _steady(deployment, requests)
    for name in ("ttft", "ttft_p50", "ttft_p90", "ttft_p99", "tpot", "latency"):
        assert steady[name] == pytest.approx(loop[name], rel=1e-5), name


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_prompts_of_any_lengths_take_what_they_take_alone(seed: int) -> None:
    """Chunks of long prompts are priced in thirds, which is exact for linear prices."""
    rng = np.random.default_rng(seed)
    deployment = _deployment(rng)
    requests = make_requests(np.stack([rng.integers(1, 9000, 20), rng.integers(2, 90, 20)], 1), 1e6 * np.arange(20))
    loop, steady = run_statistics(deployment.serve(requests), SloTargets()), _steady(deployment, requests)
    assert steady["ttft"] == pytest.approx(loop["ttft"], rel=1e-5)
    assert steady["ttft_p90"] == pytest.approx(loop["ttft_p90"], rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.05, 0.9))
@example(500531972, 0.5)  # where what sends caches is the slowest
def test_throughput_is_the_offered_rate_below_saturation_and_the_saturated_one_above(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    deployment = _deployment(rng)
    requests = make_requests([(int(rng.integers(1, 1500)), int(rng.integers(2, 200)))] * 40_000).with_arrivals(
        "poisson", rate=1.0, seed=seed
    )
    most = float(solve_deployments([deployment], requests)[0]["saturated"])
    below, above = requests.scale_times(share * most / requests.rate), requests.scale_times(2 * most / requests.rate)
    steady, late = _steady(deployment, below), _steady(deployment, above)
    window = below.arrival[-1] - below.arrival[0]
    # the span is the window of arrivals and what the last requests take
    assert steady["request_throughput"] == pytest.approx(len(below) / (window + steady["latency"]), rel=0.02)
    assert steady["offered_load"] == pytest.approx(share)
    assert late["request_throughput"] == pytest.approx(most, rel=0.1)
    # waiting grows with the trace: the last request waits for half of all
    assert late["ttft"] > len(requests) / 4 / most * 0.9


def test_the_load_and_what_is_served_of_few_requests_are_the_loops() -> None:
    """A closed loop is played in both: of random deployments, what is usual, and far nearer than pools in balance are."""
    off: dict[str, list[float]] = {
        "load, one stage": [],
        "load, stages": [],
        "balance": [],
        "served, one stage": [],
        "served": [],
    }
    for seed in range(100):
        rng = np.random.default_rng(seed)
        deployment, many = _deployment(rng), int(rng.integers(24, 400))
        lengths = np.stack([rng.integers(1, 1500, many), rng.integers(1, 200, many)], axis=1)
        requests = make_requests(lengths).with_arrivals("poisson", rate=1.0, seed=seed)
        most = float(solve_deployments([deployment], requests, prompts=False)[0]["saturated"])
        requests = requests.scale_times(rng.uniform(0.3, 2.0) * most / requests.rate)
        steady, served = _steady(deployment, requests), deployment.serve(requests)
        load, deep = offered_load(served), any(pool.stages > 1 for pool in deployment.pools)
        off["load, stages" if deep else "load, one stage"].append(steady["offered_load"] / load - 1)
        off["balance"].append(requests.rate / most / load - 1)
        if many <= BRIEF:
            alike = not deep and len(deployment.pools) == 1
            off["served, one stage" if alike else "served"].append(
                steady["throughput"] / run_statistics(served, SloTargets())["throughput"] - 1
            )
    usual = {name: np.median(np.abs(errors)) for name, errors in off.items()}
    nine_in_ten = {name: np.quantile(np.abs(errors), 0.9) for name, errors in off.items()}
    assert usual["load, one stage"] < 0.003
    assert usual["load, stages"] < min(0.02, usual["balance"] / 3)
    assert nine_in_ten["load, one stage"] < 0.03
    assert nine_in_ten["load, stages"] < 0.07
    assert usual["served, one stage"] < 0.01
    assert nine_in_ten["served, one stage"] < 0.04
    assert usual["served"] < 0.06


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.05, 1.5))
@example(595088474, 1.4861660189388912)  # just below saturation where there is one instance more
def test_more_instances_never_raise_tpot_nor_lower_what_is_served(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    pool = _pool(rng, int(rng.integers(1, 4)))
    deployment = Deployment((pool,), None, "least_loaded")
    requests = make_requests([(int(rng.integers(1, 1500)), int(rng.integers(2, 200)))] * 500).with_arrivals(
        "poisson", rate=1.0, seed=seed
    )
    requests = requests.scale_times(share * float(solve_deployments([deployment], requests)[0]["saturated"]) / requests.rate)
    several = [replace(pool, instances=pool.instances + more) for more in range(4)]
    # what is played is only as near as it is to the loop: 1.9 % more with one instance more, at 1.5 times saturation
    deployments = solve_deployments([Deployment((pool,), None, "least_loaded") for pool in several], requests, prompts=False)
    assert (np.diff(deployments["tpot"]) <= 1e-6 * deployments["tpot"][1:]).all()
    assert (np.diff(deployments["saturated"]) >= 0).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.1, 0.6))
@example(106771, 0.53125)  # prompts by themselves in five stages: those behind one end with it, and wait no pass more
def test_random_pools_are_near_the_loop(seed: int, share: float) -> None:
    """Bounds are wide: a draw of arrivals is not their mean."""
    rng = np.random.default_rng(seed)
    deployment = _deployment(rng)
    requests = make_requests([(int(rng.integers(64, 1500)), int(rng.integers(8, 200)))] * 300).with_arrivals(
        "poisson", rate=1.0, seed=seed
    )
    requests = requests.scale_times(share * float(solve_deployments([deployment], requests)[0]["saturated"]) / requests.rate)
    loop, steady = run_statistics(deployment.serve(requests), SloTargets()), _steady(deployment, requests)
    assert steady["throughput"] == pytest.approx(loop["throughput"], rel=0.25)
    assert steady["tpot"] == pytest.approx(loop["tpot"], rel=0.6)


@pytest.mark.parametrize("stages", [2, 5])
def test_full_lanes_do_not_wait_a_pass_for_every_prompt_of_another(stages: int) -> None:
    """Prompts by themselves that take as long as decodes: what is behind one ends as if it was another decode."""
    shares, rng = (1 / stages,) * stages, np.random.default_rng(1)
    price = linear_time(1e-4, prefill_token=1e-4, decode_request=1.25e-3)
    pool = InstancePool(price, make_policy("prefill_first"), KvMemory(1 << 16), shares=shares, batch=8 * stages)
    requests = make_requests(
        np.stack([np.full(3000, 100), rng.geometric(1 / 60, 3000) + 1], 1), np.cumsum(rng.exponential(1, 3000))
    )
    deployment = Deployment((pool,), None, "least_loaded")
    assert solve_deployments([deployment], requests)[0]["saturated"] == pytest.approx(
        saturated_rate(deployment, requests), rel=0.1
    )


@pytest.mark.parametrize("rule", ["chunked_prefill", "prefill_first", "orca"])
def test_long_pipelines_wait_for_the_longest_of_prompts_that_differ(rule: str) -> None:
    """Few tokens a prompt, and lengths that spread: if all were as the mean one, two to four times as many would be served."""
    rng = np.random.default_rng(5)
    shares, price = (1 / 16,) * 16, linear_time(2e-3, prefill_token=1.5e-5, pair=2e-8, decode_request=1e-4)
    lengths = [np.clip(rng.lognormal(np.log(mean), 0.8, 3000), 2, 8000).astype(int) for mean in (900, 14)]
    pool = InstancePool(price, make_policy(rule, by_chunk=False), KvMemory(1 << 18), shares=shares, batch=16 * 16)
    requests = make_requests(np.stack(lengths, 1), np.cumsum(rng.exponential(1, 3000)))
    deployment = Deployment((pool,), None, "least_loaded")
    assert solve_deployments([deployment], requests)[0]["saturated"] == pytest.approx(
        saturated_rate(deployment, requests), rel=0.25
    )


@pytest.mark.sampled
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.floats(0.01, 90.0), st.integers(0, 10**6))
def test_a_prompt_finds_what_is_left_of_every_nth_request(instances: int, held: float, seed: int) -> None:
    left = np.random.default_rng(seed).poisson(instances * held, 200_000) // instances
    assert requests_met_ratio(instances, held) == pytest.approx(
        left.mean() / held, rel=0.05, abs=5 * (left.var() + 1e-4) ** 0.5 / 200_000**0.5 / held
    )


@pytest.mark.parametrize("seed", range(8))
def test_few_gaps_have_a_prompt_where_it_goes_to_who_decodes_least(seed: int) -> None:
    """Prompts that take ten times an iteration: the loop's share of gaps that are long, which the p99 follows."""
    rng = np.random.default_rng(seed)
    instances, held = int(rng.integers(2, 6)), float(rng.uniform(0.3, 3))
    price, further = linear_time(0.01, 1e-4, decode_request=1e-5), int(rng.integers(50, 150))
    requests = make_requests([(1000, 1 + further)] * 8000).with_arrivals(
        "poisson", rate=held * instances / further / 0.011, seed=seed
    )
    deployment = Deployment(
        (InstancePool(price, make_policy("orca"), KvMemory(10**6), instances, batch=64),), None, "least_loaded"
    )
    run, found_deployment = deployment.serve(requests), solve_deployments([deployment], requests)[0]
    gaps = run.state.gaps[run.state.gaps["count"] > 0]
    long = gaps["count"][gaps["seconds"] / gaps["count"] > 0.05].sum() / gaps["count"].sum()
    each = requests.rate / instances * found_deployment["period"]
    estimate = each * requests_met_ratio(instances, each * further)
    assert estimate == pytest.approx(long, rel=0.45)
    assert abs(estimate / long - 1) < abs(each / long - 1)
    if not 0.6 < long / 0.01 < 1.5:  # nearer than that, a draw of arrivals decides on which side of it a percentile is
        assert found_deployment["tbt_p99"] == pytest.approx(run_statistics(run, SloTargets())["tbt_p99"], rel=0.1)


def test_deployments_that_share_prices_are_solved_as_if_they_were_alone() -> None:
    rng = np.random.default_rng(7)
    requests = make_requests(np.stack([rng.integers(1, 900, 80), rng.integers(1, 90, 80)], 1)).with_arrivals(
        "poisson", rate=2.0, seed=3
    )
    pools = [_pool(rng, 1) for _ in range(3)]
    several = [Deployment((replace(pool, instances=n),), None, "least_loaded") for n in (1, 2, 4) for pool in pools]
    together = solve_deployments(several, requests)
    for place, deployment in enumerate(several):
        assert together[place] == solve_deployments([deployment], requests)[0]


@given(st.floats(0.01, 0.99), st.floats(0.1, 10), st.floats(0, 5))
@settings(max_examples=30, deadline=None)
def test_one_server_waits_as_pollaczek_and_khinchine_have_it(load: float, service: float, spread: float) -> None:
    rate = load / service
    assert mean_wait(load, 1.0, service, 1.0, spread) == pytest.approx(rate * service**2 * (1 + spread) / (2 * (1 - load)))


@given(st.integers(0, 10**9), st.floats(0.05, 0.995))
@settings(max_examples=30, deadline=None)
def test_a_percentile_is_kept_and_no_shorter_time_is(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    services, weights = np.sort(rng.uniform(0.1, 5, 9)), rng.dirichlet(np.ones(9))
    waiting, mean = float(rng.uniform()), float(rng.uniform(0.01, 5))
    quantile = response_quantile(share, services, weights, waiting, mean)
    assert response_share(quantile * (1 + 1e-9), services, weights, waiting, mean) >= share - 1e-6
    assert response_share(quantile * (1 - 1e-3), services, weights, waiting, mean) < share


def test_others_in_a_lane_are_what_is_left_of_an_even_spread() -> None:
    rng = np.random.default_rng(5)
    for held, lanes in ((20.0, 4.0), (3.0, 4.0), (40.0, 8.0)):
        beside = (rng.poisson(held, 20_000) + 1) / lanes - 1
        assert others_in_lane(held, lanes) == pytest.approx(np.maximum(beside, 0).mean(), abs=0.06)


LINES = {
    "dies": "chip=h200 model=llama3_8b mapping.both.tp=2 workload.rate='5 Hz'",
    "dies apart": "chip=h200 model=llama3_8b mapping.serving.prefill_instances=1 workload.rate='5 Hz'",
    "tiles": "chip=npu64 model=qwen3_4b mapping.both.tp=4 mapping.both.pp=4 workload.rate='1 Hz'",
    "tiles apart": "chip=npu64 model=qwen3_4b mapping.both.tp=4 mapping.both.pp=4 mapping.serving.prefill_cores=32 "
    "workload.rate='1 Hz'",
}


def _asked(words: str) -> Question:
    more = ("workload=serving", "workload.requests=60", "workload.prompt=500", "workload.output=60")
    return compose_question((*more, *shlex.split(words))).question


@pytest.mark.parametrize("name", LINES)
def test_through_the_door_it_says_what_the_loop_says(name: str) -> None:
    question = _asked(LINES[name])
    assert fidelities(question.base, question.workload)[:2] == ("steady_state", "analytical")
    low, high = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns
        for word in ("steady_state", "analytical")
    )
    for metric, within in (("throughput", 0.05), ("tpot", 0.15), ("ttft", 0.25), ("energy_per_token", 0.25), ("tbt_p99", 0.4)):
        assert low[metric][0] == pytest.approx(high[metric][0], rel=within), metric
    assert "tbt_p50" not in {key for key, values in low.items() if not np.isnan(values).all()}
    parts = explain(question.base, question.workload.cases[0], fidelity="steady_state")
    assert parts.seconds > 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("workload.arrivals=offline", "arrive at once"),
        ("mapping.serving.policy=static", "static batches have no steady state"),
    ],
)
def test_what_it_cannot_say_is_refused_in_one_line(words: str, message: str) -> None:
    question = _asked(f"chip=h200 model=llama3_8b {words}")
    with pytest.raises(DesignError, match=message):
        evaluate(stack_designs([question.base]), question.workload, fidelity="steady_state")


@pytest.mark.parametrize("rule", ["chunked_prefill", "prefill_first"])
def test_what_pipelines_serve_at_most_is_what_they_serve_of_requests_that_come_at_random(rule: str) -> None:
    """Of equal lengths: all at once they stay in step, and 36 and 40 % more are served."""
    rng, price = np.random.default_rng(7), linear_time(2e-3, prefill_token=1.5e-5, pair=2e-8, decode_request=1e-4)
    pool = InstancePool(price, make_policy(rule, by_chunk=False), KvMemory(1 << 18), shares=(1 / 8,) * 8, batch=8 * 8)
    deployment, count = Deployment((pool,), None, "least_loaded"), 2000
    requests = make_requests(np.tile([256, 64], (count, 1)), np.zeros(count))
    most = saturated_rate(deployment, requests)
    for share, grows in ((0.85, False), (1.2, True)):
        served_run = deployment.serve(replace(requests, arrival=np.cumsum(rng.exponential(1 / (share * most), count))))
        ended = np.sort(served_run["completed"])[count // 10 : -count // 10]
        rate = (len(ended) - 1) / (ended[-1] - ended[0])
        assert rate == pytest.approx(min(share, 1.0) * most, rel=0.1)
        assert (queue_growth(served_run) > 0) == grows
