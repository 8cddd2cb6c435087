"""Who keeps bounds in the steady state is who keeps them in the loop, one by one, and gaps between tokens are its gaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import SloTargets, run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.evaluators.serving.steady_state_solver import solve_deployments
from dse.space.requests import Requests, make_requests
from dse.space.serving_plan import ROUTING

RULES = ("chunked_prefill", "prefill_first", "orca", "pd_fusion")


def _pool(rng: np.random.Generator, rule: str, stages: int, positions: float = 0.0) -> InstancePool:
    low, high = (-3.0, -6.0, -9.0, -5.0), (-2.0, -4.0, -7.0, -3.0)
    price = linear_time(*(float(value) for value in 10 ** rng.uniform(low, high)), position=positions)
    shares = rng.dirichlet(np.full(stages, 50.0))
    batch, chosen = int(rng.integers(8, 65)) * stages, make_policy(rule, by_chunk=False)
    return InstancePool(
        price, chosen, KvMemory(1 << 22), int(rng.integers(1, 4)), tuple((shares / shares.sum()).tolist()), batch
    )


def _loaded(rng: np.random.Generator, deployment: Deployment, bursts: bool) -> Requests:
    """Requests that differ by far in their lengths, as fast as a part of what is served of them."""
    count = 300
    gaps = rng.gamma(0.3, 1 / 0.3, count) if bursts else rng.exponential(1.0, count)
    prompt, output = (np.clip(rng.lognormal(mean, 1.0, count), 1, most).astype(int) for mean, most in ((6.5, 9000), (3.5, 400)))
    requests = make_requests(np.stack([prompt, output], 1), np.cumsum(gaps))
    most = float(solve_deployments([deployment], requests, prompts=False)[0]["saturated"])
    return requests.scale_times(float(rng.uniform(0.1, 1.5)) * most / requests.rate)


def _bounds(rng: np.random.Generator, deployment: Deployment, requests: Requests) -> tuple[SloTargets, dict[str, float]]:
    """That a part of the requests keep, between two of them; and what the loop says by these."""
    run = deployment.serve(requests)
    tpot = (run["completed"] - run["first"])[requests.output > 1] / (requests.output[requests.output > 1] - 1)
    slo = SloTargets(*(_between(times, float(rng.uniform(0.4, 1.0))) for times in (run["first"] - requests.arrival, tpot)))
    return slo, run_statistics(run, slo)


def _between(values: np.ndarray, share: float) -> float:
    order = np.sort(values)
    place = min(int(share * len(order)), len(order) - 2)
    return float(order[place] + order[place + 1]) / 2 * (1 + 1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(RULES), st.sampled_from(ROUTING[:2]), st.booleans())
def test_of_one_stage_that_reads_nothing_it_is_the_loop(seed: int, rule: str, routing: str, bursts: bool) -> None:
    """Passes that depend on who decodes, and not on where these are: nothing is left to a mean."""
    rng = np.random.default_rng(seed)
    deployment = Deployment((_pool(rng, rule, 1),), None, routing)
    requests = _loaded(rng, deployment, bursts)
    slo, loop = _bounds(rng, deployment, requests)
    found_deployment = solve_deployments([deployment], requests, float(slo.ttft), float(slo.tpot))[0]
    if found_deployment["saturated"] <= requests.rate:
        assert len(requests) / found_deployment["span"] == pytest.approx(loop["request_throughput"], rel=1e-9)
    assert found_deployment["within"] == pytest.approx(loop["slo_attainment"], abs=1e-9)
    assert found_deployment["ttft_p99"] == pytest.approx(loop["ttft_p99"], rel=1e-9)
    for name in ("latency", "tpot"):
        assert found_deployment[name] == pytest.approx(loop[name], rel=1e-9), name
    assert found_deployment["tbt_p99"] == pytest.approx(loop["tbt_p99"], rel=1 / 64)


def test_of_pools_of_their_own_it_is_nearly_the_loop() -> None:
    """But for what happens at one instant; caches of one size are there in the order in which they set out."""
    off = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        pools = _pool(rng, RULES[seed % 4], 1), _pool(rng, "chunked_prefill", 1)
        transfer = KvTransfer(0.0, float(rng.uniform(0, 0.01)), 1, True, fixed=float(rng.uniform(0, 1e-3)))
        deployment = Deployment(pools, transfer, ROUTING[seed // 4 % 2])
        requests = _loaded(rng, deployment, bool(seed // 8 % 2))
        slo, loop = _bounds(rng, deployment, requests)
        found_deployment = solve_deployments([deployment], requests, float(slo.ttft), float(slo.tpot))[0]
        times = [abs(found_deployment[name] / loop[name] - 1) for name in ("latency", "tpot", "tbt_p99")]
        off.append([abs(found_deployment["within"] - loop["slo_attainment"]), *times])
    assert (np.median(off, axis=0) < [0.001, 0.001, 0.001, 0.005]).all()
    assert (np.quantile(off, 0.9, axis=0) < [0.015, 0.001, 0.005, 0.04]).all()
    assert (np.max(off, axis=0) < [0.06, 0.01, 0.05, 0.2]).all()


@pytest.mark.parametrize("stages", [1, 4, 6])
def test_random_pools_keep_bounds_for_as_many_as_in_the_loop(stages: int) -> None:
    """Means and medians over loads and rules: not too many, and not too few."""
    off, gaps = list[float](), list[float]()
    for seed in range(24):
        rng = np.random.default_rng(seed)
        deployment = Deployment((_pool(rng, RULES[seed % 4], stages, 10 ** rng.uniform(-8, -7)),), None, "least_loaded")
        requests = _loaded(rng, deployment, bool(seed // 4 % 2))
        slo, loop = _bounds(rng, deployment, requests)
        found_deployment = solve_deployments([deployment], requests, float(slo.ttft), float(slo.tpot))[0]
        off.append(found_deployment["within"] - loop["slo_attainment"])
        gaps.append(abs(np.log(found_deployment["tbt_p99"] / loop["tbt_p99"])))
    assert abs(np.mean(off)) < 0.035
    assert np.median(np.abs(off)) < 0.03
    assert np.quantile(np.abs(off), 0.9) < 0.16
    assert np.median(gaps) < 0.09


def test_bounds_on_tokens_are_those_of_a_queue_where_nothing_is_played() -> None:
    rng = np.random.default_rng(4)
    deployment = Deployment((_pool(rng, "chunked_prefill", 2),), None, "least_loaded")
    requests = _loaded(rng, deployment, False)
    tpot = float(solve_deployments([deployment], requests, prompts=False)[0]["tpot"])
    kept = [
        float(solve_deployments([deployment], requests, np.inf, times * tpot, prompts=False)[0]["within"])
        for times in (0.99, 1.01)
    ]
    assert kept == [0.0, pytest.approx(1.0)]


def test_pools_of_their_own_count_what_a_cache_takes_on_its_way() -> None:
    """A request of one further token has all of it in that token, one of many has next to nothing."""
    price = linear_time(1e-3, prefill_token=1e-6)
    pools = (
        InstancePool(price, make_policy("prefill_first"), KvMemory(1 << 22)),
        InstancePool(price, make_policy("chunked_prefill"), KvMemory(1 << 22)),
    )
    deployment = Deployment(pools, KvTransfer(0.0, 0.05, 1, True), "least_loaded")
    requests = make_requests([(10, 2), (10, 200)] * 20, 5.0 * np.arange(40))
    for bound in (0.01, 0.1):
        loop = run_statistics(deployment.serve(requests), SloTargets(tpot=bound))["slo_attainment"]
        assert solve_deployments([deployment], requests, np.inf, bound)[0]["within"] == loop == (0.5 if bound < 0.05 else 1.0)
    single_deployment = deployment._replace(pools=pools[1:], transfer=None)
    assert solve_deployments([single_deployment], requests, np.inf, 0.01)[0]["within"] == 1.0
