"""Metrics of runs that can be worked out by hand, and the verdict on loads around what an instance can do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.serving.closed_loop import CLEAR_LOAD, saturated_rate
from dse.evaluators.serving.iteration_time import constant_time, linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import SloTargets, load_status, offered_load, run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun, simulate_serving
from dse.evaluators.serving.simulator_state import KvTransfer, StopBounds
from dse.evaluators.serving.traces import read_trace
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
HERE = pytest.mark.skipif(not SHARED.exists(), reason="the traces are not beside this checkout")


def test_two_requests_by_hand() -> None:
    """Prompts first: the first one's second token waits for the second one's prompt."""
    served = simulate_serving(
        make_requests([(10, 3), (10, 1)], [0.0, 0.5]),
        [InstancePool(constant_time(1.0), make_policy("prefill_first"), KvMemory(100))],
    )
    assert served["first"].tolist() == [1.0, 2.0]
    assert served["completed"].tolist() == [4.0, 2.0]
    statistics = run_statistics(served, SloTargets(ttft=1.2))
    assert statistics["ttft"] == pytest.approx((1.0 + 1.5) / 2)
    assert statistics["ttft_p50"] == 1.0
    assert statistics["ttft_p99"] == 1.5
    assert statistics["tbt"] == pytest.approx(1.5)
    assert (statistics["tbt_p50"], statistics["tbt_p99"]) == (1.0, 2.0)
    assert statistics["tpot"] == pytest.approx(1.5)
    assert statistics["latency"] == pytest.approx((4.0 + 1.5) / 2)
    assert statistics["throughput"] == pytest.approx(4 / 4.0)
    assert statistics["request_throughput"] == pytest.approx(2 / 4.0)
    assert statistics["goodput"] == pytest.approx(1 / 4.0)
    assert statistics["slo_attainment"] == 0.5
    assert statistics["prefill_busy_share"] == 1.0


def test_a_cache_waits_for_its_channel() -> None:
    """Two prefills end at once; one cache of 10 tokens goes after the other, 0.1 s a token, and 0.5 s later is there."""
    prefill = InstancePool(constant_time(1.0), make_policy("prefill_first"), KvMemory(100), instances=2)
    pools = [prefill, InstancePool(constant_time(1.0), make_policy("chunked_prefill"), KvMemory(100))]
    served = simulate_serving(make_requests([(10, 2), (10, 2)], [0.0, 0.0]), pools, transfer=KvTransfer(0.1, 0.5, 1, True))
    assert served["first"].tolist() == [1.0, 1.0]
    assert served["completed"].tolist() == [3.5, 4.5]


def test_a_pipeline_has_as_many_iterations_in_flight_as_stages() -> None:
    many = make_requests([(8, 40)] * 8).with_arrivals("offline")
    alone = [
        InstancePool(
            constant_time(1.0), make_policy("chunked_prefill", by_chunk=False), KvMemory(1000), shares=(1 / n,) * n, batch=8
        )
        for n in (1, 4)
    ]
    single_pipeline, four = (simulate_serving(many, [pool]) for pool in alone)
    # two requests a micro-batch; each takes as long, but four of them go at a time
    assert four.total["iterations"] == 4 * single_pipeline.total["iterations"]
    assert four["completed"].max() < single_pipeline["completed"].max() + 1.0
    assert run_statistics(four)["prefill_busy_share"] > 0.95


@settings(max_examples=50)
@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60))
def test_percentiles_of_gaps_are_those_of_all_gaps(gaps: list[float]) -> None:
    from dse.evaluators.serving.run_statistics import _gaps
    from dse.evaluators.serving.simulator_state import GAP
    from dse.evaluators.serving.token_gap_histogram import OCTAVES, PER_OCTAVE, count_gap

    table = np.zeros(OCTAVES * PER_OCTAVE, GAP)
    for gap in gaps:
        count_gap(table, gap, 1)
    found_gaps = _gaps(table["count"], table["seconds"])
    assert found_gaps["tbt"] == pytest.approx(np.mean(gaps))
    for name, share in (("tbt_p50", 50), ("tbt_p90", 90), ("tbt_p99", 99)):
        assert found_gaps[name] == pytest.approx(float(np.percentile(gaps, share, method="inverted_cdf")), rel=1 / PER_OCTAVE)


def loaded(rate: float, count: int = 3000) -> ServingRun:
    """Requests that take 10 iterations of 0.1 s, 20 at a time: 20 requests/s is all there is."""
    many = make_requests([(10, 10)] * count).with_arrivals("poisson", rate=rate, seed=3)
    return simulate_serving(many, [InstancePool(constant_time(0.1), make_policy("orca"), KvMemory(10_000), batch=20)])


def test_the_verdict_turns_where_the_load_is_more_than_can_be_served() -> None:
    words = [load_status(loaded(rate)) for rate in (5, 15, 18, 22, 30, 60)]
    assert words == ["stable"] * 3 + ["overloaded"] * 3
    assert run_statistics(loaded(40))["queue_growth"] == pytest.approx(1 - 20 / 40, abs=0.03)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.1, 1.6), st.integers(1, 3), st.integers(2, 30), st.integers(0, 10**6))
def test_the_load_is_the_rate_over_what_a_closed_loop_serves(share: float, instances: int, batch: int, seed: int) -> None:
    """Iterations of 10 ms make as many tokens as requests run: batch / (10 ms x output) a second are all there is."""
    most = instances * batch / 0.1
    many = make_requests([(10, 10)] * 1500).with_arrivals("poisson", rate=share * most, seed=seed)
    served = simulate_serving(
        many, [InstancePool(constant_time(0.01), make_policy("orca"), KvMemory(10_000), instances, batch=batch)]
    )
    load = offered_load(served)
    # 1,500 requests are 16 full batches at least, of which the first and the last are partly empty
    assert load == pytest.approx(many.rate / most, rel=1 / 16 if load > CLEAR_LOAD else 0.3)
    if abs(load - 1) > 0.06:
        assert load_status(served, load) == ("overloaded" if load > 1 else "stable")


def test_short_bounds_and_short_waits_do_not_make_a_backlog() -> None:
    """Half a load of requests that run for one iteration wait about as long as they run: nothing is the matter."""
    many = make_requests([(100, 1)] * 2000).with_arrivals("poisson", rate=4.0, seed=1)
    served = simulate_serving(
        many, [InstancePool(constant_time(0.1), make_policy("prefill_first", tokens=100), KvMemory(10_000), batch=1)]
    )
    waited, ran = served["scheduled"] - many.arrival, served["completed"] - served["scheduled"]
    assert waited.mean() > 0.2 * ran.mean()
    assert load_status(served) == "stable"
    few = simulate_serving(
        many.first_requests(3), [InstancePool(constant_time(10.0), make_policy("prefill_first"), KvMemory(10_000), batch=1)]
    )
    assert load_status(few) == "too short to say"


def test_a_burst_is_a_backlog_that_goes_away() -> None:
    burst = make_requests([(10, 10)] * 400).with_arrivals("offline")
    assert (
        load_status(
            simulate_serving(burst, [InstancePool(constant_time(0.1), make_policy("orca"), KvMemory(10_000), batch=20)])
        )
        == "backlogged"
    )
    assert (
        load_status(
            simulate_serving(
                burst.first_requests(20), [InstancePool(constant_time(0.1), make_policy("orca"), KvMemory(10_000), batch=20)]
            )
        )
        == "stable"
    )


def test_a_decode_pool_that_is_too_small_is_seen() -> None:
    many = make_requests([(10, 20)] * 2000).with_arrivals("poisson", rate=30.0)
    decode = InstancePool(constant_time(0.1), make_policy("chunked_prefill"), KvMemory(10_000), batch=20)
    assert (
        load_status(
            simulate_serving(many, [InstancePool(constant_time(0.01), make_policy("prefill_first"), KvMemory(10_000)), decode])
        )
        == "overloaded"
    )


def test_a_request_that_no_memory_holds_is_said_at_once() -> None:
    served = simulate_serving(
        make_requests([(10, 10), (100, 30)], [0.0, 1.0]),
        [InstancePool(constant_time(1.0), make_policy("chunked_prefill"), KvMemory(8, 16))],
    )
    assert served.never == "request 1 needs 129 tokens of KV memory, an instance has 128"
    assert load_status(served) == "overloaded"
    assert np.isnan(run_statistics(served)["ttft"])


def test_a_run_stops_at_the_bound_on_queues() -> None:
    many = make_requests([(10, 10)] * 5000).with_arrivals("poisson", rate=1000.0)
    served = simulate_serving(
        many,
        [InstancePool(constant_time(0.1), make_policy("orca"), KvMemory(10_000), batch=20)],
        stop=StopBounds(float("inf"), 100),
    )
    assert served.stopped
    assert load_status(served) == "overloaded"
    assert served.total["served"] < 100


def test_what_cannot_be_asked_is_refused() -> None:
    pool = InstancePool(constant_time(1.0), make_policy("chunked_prefill"), KvMemory(10))
    timed = make_requests([(1, 1)], [0.0])
    with pytest.raises(DesignError, match="choose an arrival process"):
        simulate_serving(make_requests([(1, 1)]), [pool])
    with pytest.raises(DesignError, match="did you mean 'round_robin'"):
        simulate_serving(timed, [pool], routing="round")
    with pytest.raises(DesignError, match="one for prefill and one for decode"):
        simulate_serving(timed, [pool] * 3)
    with pytest.raises(DesignError, match="transfer: -1"):
        simulate_serving(timed, [pool], transfer=KvTransfer(-1.0, 0.0, 1, True))
    with pytest.raises(DesignError, match="did you mean 'chunked_prefill'"):
        make_policy("chunk")
    with pytest.raises(DesignError, match="no prompt could run"):
        make_policy("pd_fusion", tokens=8, unit=9)
    with pytest.raises(DesignError, match="must be at least 1"):
        InstancePool(constant_time(1.0), make_policy("chunked_prefill"), KvMemory(10), shares=())


def test_a_prompt_that_is_cut_keeps_the_hashes_of_whole_blocks() -> None:
    many = replace(make_requests([(20, 2), (9, 2)]), starts=np.array([0, 3, 5]), hashes=np.arange(5, dtype=np.int32), block=8)
    short = many.clip_lengths(14)
    assert short.prompt.tolist() == [12, 9]
    assert (short.starts.tolist(), short.hashes.tolist()) == ([0, 1, 3], [0, 3, 4])


@HERE
def test_prefix_reuse_in_a_public_trace_is_what_is_stated_beside_it() -> None:
    """With a cache of everything, at a pace that lets each request end before the next: 37.4 % of the tokens asked."""
    many = read_trace(SHARED / "mooncake_conversation.jsonl")
    spaced = Requests(np.arange(len(many)) * 1e4, many.prompt, many.output, many.starts, many.hashes, many.block)
    pool = InstancePool(linear_time(1e-3), make_policy("prefill_first"), KvMemory(1 << 20), prefix=1 << 20)
    reused = run_statistics(simulate_serving(spaced, [pool]))["prefix_hit_rate"]
    assert reused == pytest.approx(0.374, abs=0.0005)
    assert many.reusable == pytest.approx(reused, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_saturation_is_that_of_many_requests_however_few_come(seed: int) -> None:
    """Fewer requests than run at a time end together, and would say anything from half to ten times the rate."""
    rng = np.random.default_rng(seed)
    count, batch, instances = int(rng.integers(10, 150)), int(rng.integers(4, 65)), int(rng.integers(1, 4))
    integers = np.stack([rng.integers(1, 600, count), rng.integers(1, 80, count)], axis=1)
    price = linear_time(*(float(value) for value in 10 ** rng.uniform((-3, -6, -9, -5, -8, -9), (-2, -4, -7, -3, -6, -8))))
    rule = make_policy(str(rng.choice(["chunked_prefill", "prefill_first", "orca", "pd_fusion"])))
    pool = InstancePool(price, rule, KvMemory(20_000), instances, batch=batch)
    deployment = Deployment((pool,), None, "least_loaded")
    few, many = (
        make_requests(np.tile(integers, (times, 1))).with_arrivals("poisson", rate=1.0) for times in (1, 1 + 20_000 // count)
    )
    assert saturated_rate(deployment, few) == pytest.approx(saturated_rate(deployment, many), rel=0.25)
