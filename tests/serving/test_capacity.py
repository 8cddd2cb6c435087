"""The largest rate: kept there and broken a little beyond, on random loads and pools; and deployments against all of them."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.capacity import CHIP_ORDERS, _sort_value, find_capacity, find_unread_overrides, parse_query
from dse.analysis.capacity_bounds import ROUNDS, bound_max_rate, bound_prefill_rate
from dse.analysis.deployment_search import (
    NEAR,
    SimulatedDeployment,
    _has_lost_alike,
    can_hold_rate,
    drop_hopeless,
    find_best_deployment,
    requests_by_class,
    thread_pool,
)
from dse.analysis.deployments import CandidateDeployment
from dse.commands.capacity_output import capacity_record, explain_too_few_requests, write_capacity
from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.evaluators.serving.closed_loop import saturated_rate
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.max_rate import RateSearch
from dse.evaluators.serving.run_statistics import LOAD_STATUSES
from dse.evaluators.serving.scheduling_policy import SHIPPED, make_policy
from dse.evaluators.serving.simulator import NO_STOP, Deployment, InstancePool, ServingRun
from dse.evaluators.serving.simulator_state import KvTransfer, StopBounds
from dse.evaluators.serving.slo_bounds import (
    BREAKING_FACTOR,
    DIGITS,
    CapacityResult,
    SloBounds,
    find_max_rate,
    latency_percentiles,
    make_slo_bounds,
)
from dse.evaluators.serving.sustained_rate import SustainedRate, pool_paces, sustained_rate
from dse.space.array_math import Array
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import ServingLoad, SloClass
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar

pytestmark = pytest.mark.usefixtures("flat_stack")


def _draw(seed: int) -> tuple[Deployment, Requests]:
    rng = np.random.default_rng(seed)
    lengths = [(int(rng.integers(1, 600)), int(rng.integers(1, 80))) for _ in range(int(rng.integers(60, 200)))]
    requests = make_requests(lengths).with_arrivals("poisson", rate=1.0, seed=seed)
    price = linear_time(*(float(value) for value in 10 ** rng.uniform((-3, -6, -9, -5, -8, -9), (-2, -4, -7, -3, -6, -8))))

    def pool(rule: str, instances: int) -> InstancePool:
        return InstancePool(
            price, make_policy(rule), KvMemory(int(rng.integers(700, 20_000))), instances, batch=int(rng.integers(4, 65))
        )

    count = int(rng.integers(1, 4))
    if rng.random() < 0.4:
        pools = (pool("prefill_first", int(rng.integers(1, 4))), pool("chunked_prefill", count))
        return Deployment(pools, KvTransfer(1e-6, 1e-4, 1, True), "least_loaded"), requests
    return Deployment((pool(str(rng.choice(list(SHIPPED))), count),), None, "least_loaded"), requests


def _bounds(deployment: Deployment, requests: Requests, rng: np.random.Generator) -> SloBounds:
    """Some times what requests take when they are alone."""
    served = deployment.serve(replace(requests, arrival=1e3 * np.arange(len(requests))))
    ttft, tpot = latency_percentiles(served, 0.9)
    return SloBounds(float(rng.uniform(1.2, 8)) * ttft, float(rng.uniform(1.2, 5)) * tpot, float(rng.choice([0.5, 0.9, 0.99])))


def _share(served: ServingRun, ttft: float, tpot: float, span: Array | slice = slice(None)) -> float:
    """Of the requests, those that keep both bounds."""
    requests = served.requests
    first, each = (
        served["first"] - requests.arrival,
        (served["completed"] - served["first"]) / np.maximum(requests.output - 1, 1),
    )
    return float(((first <= ttft) & (each <= tpot))[span].mean())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_bounds_are_kept_at_the_largest_rate_and_broken_beyond(seed: int) -> None:
    deployment, requests = _draw(seed)
    bounds = _bounds(deployment, requests, np.random.default_rng(seed))

    def play(rate: float, stop: StopBounds) -> ServingRun:
        return deployment.serve(requests.scale_times(rate / requests.rate), stop=stop)

    max_rate = find_max_rate(play, bounds, len(requests), 1.0)
    if max_rate.rate == 0:
        return
    if max_rate.rate == np.inf:  # bounds are kept whatever comes
        assert not bounds.broken_bound(play(1e12, NO_STOP))
        return
    # as it is printed, of few digits
    assert any(
        times * float(f"{max_rate.rate / times:.{DIGITS}g}") == max_rate.rate
        for times in (1.0, BREAKING_FACTOR, BREAKING_FACTOR**2)
    )
    # whole runs say the same as what stopped the runs
    for rate, kept in ((max_rate.rate, True), (BREAKING_FACTOR * max_rate.rate, False)):
        assert (_share(play(rate, NO_STOP), bounds.ttft, bounds.tpot) >= bounds.share - 1e-9) == kept


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**9))
def test_every_class_keeps_its_bounds_at_the_largest_rate(seed: int) -> None:
    """Shares of each class by itself; and classes with equal bounds and all requests of one are no classes."""
    deployment, requests = _draw(seed)
    rng = np.random.default_rng(seed)
    selected_bounds = _bounds(deployment, requests, rng)
    classes = (
        SloClass("near", selected_bounds.ttft, selected_bounds.tpot, 0),
        SloClass("far", 4 * selected_bounds.ttft, math.inf, 1),
    )
    kinds = rng.integers(0, 2, len(requests)).astype(np.int32)

    def capacity_of(of_kinds: Array, several: tuple[SloClass, ...]) -> tuple[CapacityResult, ServingLoad]:
        load = ServingLoad("", None, replace(requests, kinds=of_kinds, ranks=of_kinds), *selected_bounds[:2], classes=several)  # type: ignore[arg-type]
        bounds = make_slo_bounds(load, selected_bounds.share)
        return find_max_rate(
            lambda rate, stop: deployment.serve(load.requests_at(rate), stop=stop), bounds, len(requests), 1.0
        ), load

    got, load = capacity_of(kinds, classes)
    if 0 < got.rate < np.inf:
        for rate, kept in ((got.rate, True), (BREAKING_FACTOR * got.rate, False)):
            served = deployment.serve(load.requests_at(rate))
            each = [_share(served, slo_class.ttft, slo_class.tpot, kinds == number) for number, slo_class in enumerate(classes)]
            assert (min(each) >= selected_bounds.share - 1e-9) == kept
    alone = capacity_of(np.zeros_like(kinds), classes)[0]
    assert alone.rate == capacity_of(np.zeros_like(kinds), ())[0].rate
    assert alone.binds in ("", "memory", "ttft", "tpot", "ttft of near", "tpot of near")


@pytest.mark.sampled
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_no_deployment_computes_prompts_faster_than_alone(seed: int) -> None:
    deployment, requests = _draw(seed)
    bounds = _bounds(deployment, requests, np.random.default_rng(seed))
    load = ServingLoad("", None, requests, bounds.ttft, bounds.tpot)  # type: ignore[arg-type]
    max_rate = find_max_rate(lambda rate, stop: deployment.serve(load.requests_at(rate), stop=stop), bounds, len(requests), 1.0)
    assert max_rate.rate <= bound_prefill_rate(deployment.pools, pool_paces(deployment.pools, requests), load, bounds)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_no_deployment_serves_more_than_it_may(seed: int) -> None:
    """Where an iteration itself takes most, as on wafers, prompts that are computed together take little more than one."""
    rng = np.random.default_rng(seed)
    step, token, row = (float(10 ** rng.uniform(*ends)) for ends in ((-3, -1), (-7, -5), (-5, -3)))
    deployment, requests = _draw(seed)
    pools = tuple(replace(pool, price=linear_time(step, token, 1e-10, row, 1e-8)) for pool in deployment.pools)
    deployment = deployment._replace(pools=pools)
    requests = requests.draw_requests(500, seed).with_arrivals("poisson", rate=1.0, seed=seed)
    bounds = _bounds(deployment, requests.first_requests(50), rng)
    load = ServingLoad("", None, requests, bounds.ttft, bounds.tpot)  # type: ignore[arg-type]
    most = bound_max_rate(deployment.pools, pool_paces(deployment.pools, requests), load, bounds)
    assert most == np.inf or bounds.broken_bound(
        deployment.serve(load.requests_at(1.001 * most), stop=bounds.stop(len(requests)))
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4), st.booleans(), st.floats(-2, 1), st.sampled_from([0.3, 1.0, 2.0]))
def test_no_population_that_keeps_its_bounds_has_more_users_than_it_may(
    seed: int, turns: int, equal: bool, think: float, cv: float
) -> None:
    """Sessions of any lengths and think times, on pools of any rules: beyond its bound no population keeps what it must."""
    rng = np.random.default_rng(seed)
    deployment, requests = _draw(seed)
    bounds = _bounds(deployment, requests.first_requests(50), rng)._replace(share=float(rng.choice([0.75, 0.9, 0.99])))
    places = np.concatenate(
        [np.arange(turns if equal else rng.geometric(1 / turns)) for _ in range(int(rng.integers(40, 250)))]
    )
    many = len(places)
    requests = replace(
        requests.draw_requests(many, seed), before=np.where(places == 0, -1, np.arange(many) - 1).astype(np.int32),
        turns=places.astype(np.int32), think=rng.gamma(1 / cv**2, 10**think * cv**2, many), arrival=np.zeros(many),
    ).as_closed_loop(1)  # fmt: skip
    load = ServingLoad("", None, requests, bounds.ttft, bounds.tpot)  # type: ignore[arg-type]
    most = bound_max_rate(deployment.pools, pool_paces(deployment.pools, requests), load, bounds)
    sessions = int((places == 0).sum())
    if most < np.inf:
        assert ROUNDS * most <= sessions
        for users in {math.floor(most) + 1, math.ceil(1.5 * most), sessions // 2}:
            assert users <= most or bounds.broken_bound(deployment.serve(load.requests_at(users), stop=bounds.stop(many))), (
                users
            )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4), st.integers(2, 12), st.integers(64, 512))
def test_as_many_decode_as_fill_iterations_with_their_prompts(seed: int, output: int, chunks: int, tokens: int) -> None:
    """Where an iteration takes the same whatever it has, chunks are full in the steady state as in the loop."""
    pool = InstancePool(linear_time(1.0, 1e-6), make_policy("chunked_prefill", tokens=tokens), KvMemory(1 << 30), batch=16)
    rng = np.random.default_rng(seed)
    lengths = [(int(rng.integers(tokens // 2, chunks * tokens)), output) for _ in range(2000)]
    deployment, requests = Deployment((pool,), None, "least_loaded"), make_requests(lengths, np.zeros(2000))
    rate = sustained_rate(deployment, requests, tpot=np.inf).rate
    assert rate == pytest.approx(saturated_rate(deployment, requests), rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4), st.integers(1, 12))
def test_few_further_tokens_and_long_prompts_have_a_steady_state(seed: int, output: int, times: int) -> None:
    """Less than one request decodes in the mean; with one token none does. The loop in the end serves that."""
    deployment, requests = _draw(seed)
    deployment = deployment._replace(pools=tuple(replace(pool, memory=KvMemory(20_000), batch=16) for pool in deployment.pools))
    requests = replace(requests, prompt=times * requests.prompt, output=np.minimum(requests.output, output)).draw_requests(
        2000, seed
    )
    rate, served = sustained_rate(deployment, requests, tpot=np.inf).rate, saturated_rate(deployment, requests)
    assert 0.5 < served / rate < 2.0


def test_prompts_longer_than_a_budget_are_searched() -> None:
    """14 chunks a prompt, and one further token: no chunked deployment is left out for what its estimate says."""
    words = ["chip=h100", "model=qwen3_1b7", "devices=2", "workload.prompt=7000", "workload.ttft=1 s", "workload.tpot=50 ms"]
    knobs = [
        "mapping.both.tp=1",
        "space=empty",
        "+space.mapping.serving.max_batched_tokens=choice(512, 1024)",
        "mapping.serving.policy=chunked_prefill",
    ]
    for output in (1, 2):
        (side,) = find_capacity([*words, *knobs, f"workload.output={output}", "workload.requests=400", "disaggregated=false"])
        assert side.best is not None
        assert 0.7 < side.best.rate / side.best.candidate.estimate.rate < 1.4
        assert all(candidate.estimate.rate > 0.3 * side.best.rate for candidate in side.candidates)


def test_no_wafer_serves_more_than_it_may() -> None:
    words = ["chip=wse2", "model=qwen3_1b7", "devices=2", "workload.prompt=500", "workload.output=200", "space=empty"]
    words += ["workload.ttft='500 ms'", "workload.tpot='10 ms'", "workload.requests=2000", "disaggregated=false"]
    (side,) = find_capacity([*words, "mapping.serving.policy=prefill_first", "mapping.serving.max_batch_size=64"])
    assert side.best is not None
    assert side.best.rate <= side.best.candidate.most


@pytest.mark.parametrize("reuse", [{"pooled": True}, {"prefix": 400}])
def test_prompts_that_are_reused_bound_no_rate(reuse: dict[str, Any]) -> None:
    """The same prompt again and again, of which only the last block is computed: far more than by prompts alone."""
    hashes = np.tile(np.arange(40), 100)
    requests = replace(
        make_requests([(640, 2)] * 100).with_arrivals("poisson", rate=1.0, seed=1),
        starts=40 * np.arange(101), hashes=hashes.astype(np.int32), block=16,
    )  # fmt: skip
    price = linear_time(1e-3, 1e-4, 1e-9)
    deployment = Deployment(
        (InstancePool(price, make_policy("prefill_first"), KvMemory(2000, 16), batch=8, **reuse),), None, "least_loaded"
    )
    bounds, load = SloBounds(0.5, 0.5), ServingLoad("", None, requests, 0.5, 0.5)  # type: ignore[arg-type]
    rate = find_max_rate(
        lambda rate, stop: deployment.serve(load.requests_at(rate), stop=stop), bounds, len(requests), 1.0
    ).rate
    taken = pool_paces(deployment.pools, requests)
    assert (
        bound_prefill_rate(deployment.pools, taken, load, bounds)
        < rate
        <= bound_max_rate(deployment.pools, taken, load, bounds)
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 1)), min_size=1, max_size=40))
def test_a_race_plays_none_twice_and_leaves_none_that_could_win(drawn: list[tuple[float, float]]) -> None:
    """Deployments in any order, each with a rate of its own and some more that it might have had."""
    estimate = SimpleNamespace(rate=0.0)
    namespaces = [
        SimpleNamespace(most=rate + more, own=rate, but_batch=at, estimate=estimate) for at, (rate, more) in enumerate(drawn)
    ]
    played: list[SimpleNamespace] = []

    def against(candidate, load, bounds, winner):  # type: ignore[no-untyped-def]
        played.append(candidate)
        best = winner.rate if winner else 0.0
        own = candidate.own if candidate.own > best * NEAR else 0.0
        return SimpleNamespace(candidate=candidate, rate=own, lost=(best * NEAR, ()), capacity=SimpleNamespace(rate=own))

    with pytest.MonkeyPatch.context() as patch, ProgressBar("") as progress, thread_pool() as several:
        patch.setattr("dse.analysis.deployment_search._search_against_winner", against)
        patch.setattr("dse.analysis.deployment_search.drop_hopeless", lambda left, *_: left)
        load = SimpleNamespace(requests=SimpleNamespace(users=0), draw=None)
        tried = find_best_deployment(namespaces, load, SloBounds(), progress, several)  # type: ignore[arg-type]
    best = max(deployment.rate for deployment in tried)
    assert len({id(deployment) for deployment in played}) == len(played) == len(tried)
    assert best >= max(namespace.own for namespace in namespaces) / NEAR
    assert all(namespace.most <= best for namespace in namespaces if not any(namespace is other for other in played))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.lists(st.integers(1, 60), min_size=2, max_size=2))
def test_runs_whose_batches_are_never_full_are_the_same(seed: int, batches: list[int]) -> None:
    """What a race takes as known: `Candidate.but_batch` is that of both, and neither has as many requests as its batch."""
    deployment, requests = _draw(seed)
    single_deployment, other = (
        deployment._replace(pools=tuple(replace(pool, batch=most) for pool in deployment.pools)) for most in batches
    )
    served = single_deployment.serve(requests, stop=SloBounds(0.5, 0.1).stop(len(requests)))
    held = served.state.instances["most"]
    pools = tuple(int(held[served.state.instances["pool"] == at].max()) for at in range(len(deployment.pools)))
    lost = SimulatedDeployment(_candidate(single_deployment), None, (NEAR, pools))
    again = other.serve(requests, stop=SloBounds(0.5, 0.1).stop(len(requests)))
    if _has_lost_alike(_candidate(other), [lost], NEAR):
        assert max(pools) < min(batches)
        assert all(np.array_equal(served[name], again[name], equal_nan=True) for name in ("first", "completed", "scheduled"))
    elif max(pools) < min(batches):
        raise AssertionError("a run that is known is played again")


def _candidate(deployment: Deployment) -> CandidateDeployment:
    return CandidateDeployment(None, None, {}, 1, False, deployment.pools, SustainedRate(0.5, 0.0, 0.0, 1.0), 0.0, 0.0)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.01, 100))
def test_a_run_that_stops_early_says_what_the_whole_one_does(seed: int, rate: float) -> None:
    deployment, requests = _draw(seed)
    bounds = _bounds(deployment, requests, np.random.default_rng(seed))
    scaled = requests.scale_times(rate / requests.rate)
    ttft, tpot = latency_percentiles(whole := deployment.serve(scaled), bounds.share)
    if whole.never:
        return
    stopped = deployment.serve(scaled, stop=bounds.stop(len(requests)))
    late = ttft > bounds.ttft
    assert (bounds.broken_bound(stopped) != "") == (late or tpot > bounds.tpot)


def test_requests_alone_are_no_faster_than_the_steady_state_says() -> None:
    """Where nothing queues, the steady state's prompt is the loop's to rounding."""
    price = linear_time(1e-3, 1e-5, 1e-9, 1e-4, 1e-8)
    for rule in ("chunked_prefill", "prefill_first", "orca"):
        deployment = Deployment((InstancePool(price, make_policy(rule), KvMemory(10_000), batch=16),), None, "least_loaded")
        requests = make_requests([(1000, 50)] * 20, [100.0 * i for i in range(20)])
        ttft, _ = latency_percentiles(deployment.serve(requests), 0.5)
        assert sustained_rate(deployment, requests, tpot=1.0).ttft == pytest.approx(ttft, rel=1e-6)


QUICK = [
    "chip=h200", "model=llama3_8b", "workload.prompt=700", "workload.output=60", "workload.requests=300",
    "workload.ttft='400 ms'", "workload.tpot='15 ms'", "space=empty", "+space.mapping.both.tp='choice(1,2,4)'",
    "+space.mapping.serving.max_batch_size='choice(16,64)'", "+space.mapping.serving.max_batched_tokens='choice(512,2048)'",
]  # fmt: skip


def test_the_winner_is_that_of_all_deployments() -> None:
    """Every deployment searched by itself, without estimates: none serves three percent more."""
    (side,) = find_capacity([*QUICK, "devices=4"])
    assert side.best is not None

    def own(deployment: CandidateDeployment) -> float:
        return RateSearch(deployment.make_deployment, side.load, side.bounds).settle(deployment.estimate.rate).rate

    rates = [own(candidate) for candidate in side.candidates if candidate.estimate.rate]
    assert max(rates) <= 1.03 * side.best.rate
    # what is left out unplayed could not have won
    assert all(
        rate <= candidate.most for rate, candidate in zip(rates, (o for o in side.candidates if o.estimate.rate), strict=True)
    )
    assert len({id(deployment.candidate) for deployment in side.tried}) == len(side.tried) < len(rates)
    assert any(deployment.candidate.apart for deployment in side.tried if deployment.capacity)


def test_what_is_printed_is_what_an_evaluation_finds() -> None:
    """Overrides of the best deployment, evaluated by themselves at the printed rate."""
    (side,) = find_capacity([*QUICK, "devices=4"])
    assert side.best is not None
    for deployment in capacity_record([side]).chips[0].deployments:
        assert deployment.rate_override == f"workload.rate='{deployment.max_rate_hz:.10g} Hz'"
    base = [word for word in QUICK if not word.lstrip("+").startswith(("space", "workload.requests"))]
    config = compose(
        [*base, "workload=serving", *side.best.candidate.words, *side.words, f"workload.rate={side.best.rate!r} Hz"]
    )
    question = build_question({**config, "space": {}}, find_study_folder(config))
    columns = evaluate(stack_designs([question.base]), question.workload).columns
    assert columns["devices"][0] == side.best.candidate.devices
    assert columns["slo_attainment"][0] >= 0.9
    assert LOAD_STATUSES[int(columns["load_status"][0])] != "overloaded"


def test_pipelines_of_a_chip_are_a_deployment() -> None:
    """The best way to share a chip's cores, as an evaluation finds it; chips are cells that are alike."""
    words = ["chip=npu64", "model=qwen3_1b7", "workload.prompt=200", "workload.output=20", "workload.ttft='150 ms'"]
    words += ["workload.tpot='20 ms'", "mapping.both.tp=4", "mapping.both.pp=4", "workload.requests=150"]
    knobs = ["space=empty", "+space.mapping.serving.prefill_cores='choice(0,32)'"]
    (side,) = find_capacity([*words, *knobs, "devices=3"])
    assert (side.cells, side.devices, side.words) == (3, 1, ("workload.requests=150", "seed=0"))
    assert side.best is not None
    assert {deployment.candidate.apart for deployment in side.tried} == {True, False}
    assert [candidate.devices for candidate in side.candidates] == [1, 1]
    rate = f"workload.rate={side.best.rate!r} Hz"
    config = compose([*words, "workload=serving", *side.best.candidate.words, rate])
    question = build_question({**config, "space": {}}, find_study_folder(config))
    (load,) = question.workload.cases
    assert isinstance(load, ServingLoad)
    columns = evaluate(stack_designs([question.base]), question.workload).columns
    run = side.best.candidate.make_deployment(load.requests).serve(load.requests)
    assert columns["ttft"][0] == pytest.approx(float((run["first"] - load.requests.arrival).mean()))
    assert columns["system_price"][0] == pytest.approx(side.best.price)
    assert not side.bounds.list_broken_bounds(run)


def test_the_most_users_of_a_closed_population_keep_the_bounds() -> None:
    """Nobody says how many requests, nor how many users there may be; more than 1.2 times as many break a bound."""
    words = ["chip=h200", "model=llama3_8b", "workload.prompt=500", "workload.output=50", "workload.ttft='300 ms'"]
    words += ["workload.sessions={turns: 2, think: 100 ms}", "workload.arrivals=closed_loop", "workload.tpot='12 ms'"]
    words += ["mapping.both.tp=1", "slo_percentile=80"]
    knobs = ["space=empty", "+space.mapping.serving.max_batch_size='choice(64,256)'"]
    (side,) = find_capacity([*words, *knobs, "devices=1"])
    assert side.best is not None
    assert side.best.capacity is not None
    users = side.best.rate
    assert users == round(users) > 1
    kept = []
    for user_count in (round(users), math.ceil(1.2 * users)):
        config = compose(
            [*words[:-1], "workload=serving", *side.best.candidate.words, *side.words, f"workload.users={user_count}"]
        )
        (load,) = build_question({**config, "space": {}}, find_study_folder(config)).workload.cases
        assert isinstance(load, ServingLoad)
        run = side.best.candidate.make_deployment(load.requests).serve(load.requests)
        kept.append(not side.bounds.list_broken_bounds(run))
        assert kept != [True] or np.array_equal(run["completed"], side.best.capacity.served["completed"])  # type: ignore[index]
    assert kept == [True, False]
    (record,) = capacity_record([side]).chips
    assert record.best is not None
    assert (record.best.max_users, record.best.rate_override) == (users, f"workload.users={users:.0f}")
    assert record.best.max_rate_hz < users / 0.1


@pytest.mark.parametrize("seed", range(1))
def test_most_users_last_and_are_found_from_any_guess(seed: int) -> None:
    """Of sessions whose prefixes are reused: 5 % fewer users keep the bounds in the middle half of twice as many requests, of
    seeds that the search has not seen; a search that begins far off finds the same within 4 %; routing is looked through.
    """
    rng = np.random.default_rng((3, seed))
    turns, think = int(rng.integers(3, 8)), float(rng.uniform(0.2, 1.0))
    words = [
        "chip=h200",
        "model=llama3_8b",
        f"workload.prompt={rng.integers(100, 300)}",
        "workload.output=40",
        "disaggregated=false",
    ]
    words += [
        f"workload.sessions={{turns: {turns}, think: {think:.2f} s}}",
        "workload.arrivals=closed_loop",
        "workload.max_length=8000",
    ]
    words += ["workload.ttft='200 ms'", "workload.tpot='8 ms'", "mapping.serving.prefix_cache=shared", "mapping.both.tp=1"]
    knobs = ["space=empty", "+space.mapping.serving.max_batch_size='choice(32)'"]
    (side,) = find_capacity([*words, *knobs, "devices=2"])
    assert side.best is not None
    assert side.best.capacity is not None
    assert side.best.capacity.lasts
    assert {candidate.values["mapping.serving.routing"] for candidate in side.candidates} == {"cache_aware", "least_loaded"}
    users, count, load, deployment_at = side.best.rate, side.best.capacity.count, side.load, side.best.candidate.make_deployment
    assert load.draw is not None
    middle = []
    for number in range(90, 93):
        draw = load.draw(2 * count, number, math.floor(users / 1.05))
        middle.append(side.bounds.attainment(deployment_at(draw).serve(draw), slice(count // 2, 3 * count // 2)))
    assert np.mean(middle) >= side.bounds.share
    far = RateSearch(deployment_at, load, side.bounds).settle(3 * users)
    assert far.rate == pytest.approx(users, rel=0.04)


def test_a_largest_rate_is_a_metric() -> None:
    words = [
        "chip=h200",
        "model=llama3_8b",
        "workload=serving",
        "workload.requests=300",
        "workload.prompt=500",
        "workload.output=50",
    ]
    config = compose([*words, "workload.rate=max", "workload.ttft='300 ms'", "workload.slo_percentile=95"])
    question = build_question({**config, "space": {}}, find_study_folder(config))
    columns = evaluate(stack_designs([question.base]), question.workload).columns
    rate = float(columns["max_rate"][0])
    for times in (1.0, BREAKING_FACTOR):
        config = compose([*words, f"workload.rate={times * rate!r} Hz", "workload.ttft='300 ms'"])
        again = build_question({**config, "space": {}}, find_study_folder(config))
        single_columns = evaluate(stack_designs([again.base]), again.workload).columns
        if times == 1.0:
            assert single_columns["ttft"][0] == pytest.approx(float(columns["ttft"][0]), rel=1e-9)
            assert single_columns["ttft_p50"][0] <= 0.3
        load = again.workload.cases[0]
        assert load.content != question.workload.cases[0].content


def test_more_devices_serve_no_less_and_the_fewest_are_enough() -> None:
    rates = []
    for devices in (1, 2, 4):
        (side,) = find_capacity([*QUICK, f"devices={devices}"])
        assert side.best is not None
        rates.append(side.best.rate)
    assert rates[0] < rates[1] * 1.05
    assert rates[1] < rates[2] * 1.05
    (fewest,) = find_capacity([*QUICK, f"rate='{rates[1] * 0.9} Hz'"])
    assert fewest.devices == 2
    assert fewest.best is not None
    assert fewest.best.rate >= rates[1] * 0.9 / NEAR


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), *2 * [st.floats(0.5, 1.5).filter(lambda share: abs(share - 1) > 1e-6)])  # at 1 rounding decides
def test_who_breaks_a_bound_alone_keeps_it_at_no_rate(seed: int, ttft: float, tpot: float) -> None:
    deployment, requests = _draw(seed)
    alone = latency_percentiles(deployment.serve(replace(requests, arrival=1e3 * np.arange(len(requests)))), 0.9)
    bounds = SloBounds(ttft * alone[0], tpot * alone[1], 0.9)
    load = ServingLoad("", None, requests, bounds.ttft, bounds.tpot)  # type: ignore[arg-type]
    namespace = SimpleNamespace(
        pools=deployment.pools, estimate=SustainedRate(0.5, 0.1, 0.0, 1.0), make_deployment=lambda _: deployment
    )
    max_rate = find_max_rate(lambda rate, stop: deployment.serve(load.requests_at(rate), stop=stop), bounds, len(requests), 1.0)
    assert drop_hopeless([namespace], load, bounds, {}) == [namespace] or max_rate.rate == 0  # type: ignore[list-item]


def test_json_and_page(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    sides = find_capacity([*QUICK, "devices=2"])
    write_capacity(sides, tmp_path / "page.html", as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads(format_json(capacity_record(sides)))
    assert data["chips"][0]["best"]["max_rate_hz"] == data["chips"][0]["deployments"][0]["max_rate_hz"]
    assert "time to first token" in (tmp_path / "page.html").read_text().lower()
    best = data["chips"][0]["best"]
    words = [word for word in QUICK if "space" not in word]
    config = compose([*words, "workload=serving", *best["overrides"], best["rate_override"]])
    question = build_question({**config, "space": {}}, find_study_folder(config))
    columns = evaluate(stack_designs([question.base]), question.workload).columns
    assert best["system_price_usd"] == pytest.approx(float(columns["system_price"][0]))
    # the override has six digits of the rate
    assert best["price_per_mtoken_usd"] == pytest.approx(float(columns["price_per_mtoken"][0]), rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 9), st.integers(1, 99), st.floats(0.1, 9)), min_size=1), st.data())
def test_chips_stand_in_the_order_of_what_is_asked(rows: list[tuple[int, int, int, float]], data: st.DataObject) -> None:
    """Cells, devices of a cell (0 for a chip that serves nothing), their price, and that of tokens."""
    sides = []
    for cells, devices, price, token in rows:
        best = SimpleNamespace(candidate=SimpleNamespace(devices=devices), price=float(price), per_mtoken=token)
        sides.append(SimpleNamespace(cells=cells, best=best if devices else None))
    by, rate = data.draw(st.sampled_from(CHIP_ORDERS)), data.draw(st.sampled_from([0.0, 1.0]))
    query = replace(parse_query(["chip=h200", "devices=1", f"by={by}"]), rate=rate)
    found_sides = sorted(sides, key=lambda side: _sort_value(side, query))  # type: ignore[arg-type]
    capacities = [(side.cells, side.best) for side in found_sides if side.best]
    devices, whole = (
        [cells * best.candidate.devices for cells, best in capacities],
        [cells * best.price for cells, best in capacities],
    )
    keys = devices if by == "devices" else whole if rate else [best.per_mtoken for _, best in capacities]
    assert keys == sorted(keys)
    assert all(side.best is None for side in found_sides[len(keys) :])


def test_words_are_told_from_overrides() -> None:
    query = parse_query(["chip=[h200,h100]", "rate='10 Hz'", "slo_percentile=99", "model=qwen3_32b", "disaggregated=false"])
    assert (query.chips, query.rate, query.share, query.apart) == (("h200", "h100"), 10.0, 0.99, False)
    assert query.overrides == ("model=qwen3_32b",)


SMALL = ("chip=h100", "model=qwen3_1b7", "devices=4", "workload.prompt=700", "workload.output=30", "workload.requests=1500",
         "workload.ttft=100 ms", "workload.tpot=8 ms", "space=empty", "+space.mapping.both.tp=choice(1, 2)")  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("instances", "prefill"), [(1, None), (2, None), (2, 1), (1, 3), (1, 0), (3, 0)])
def test_as_many_instances_as_are_said(instances: int, prefill: int | None) -> None:
    words = [f"mapping.serving.instances={instances}"]
    words += [] if prefill is None else [f"mapping.serving.prefill_instances={prefill}"]
    (side,) = find_capacity([*SMALL, *words])
    assert side.candidates
    for candidate in side.candidates:
        assert candidate.values["mapping.serving.instances"] == instances
        assert prefill is None or candidate.values.get("mapping.serving.prefill_instances", 0) == prefill
    with pytest.raises(DesignError, match="the smallest needs 9"):
        find_capacity([*SMALL, "mapping.serving.instances=9"])


def test_what_only_some_deployments_read_is_kept_by_those() -> None:
    """Caches that go layer by layer: pools apart send them so; alike instances send none, and say that nothing reads it."""
    words = ["mapping.serving.kv_transfer=layerwise", "mapping.serving.prefill_policy=chunked_prefill"]
    (side,) = find_capacity([*SMALL, *words])
    apart = [candidate for candidate in side.candidates if candidate.apart]
    assert apart
    assert all(deployment.make_deployment(side.load.requests).transfer.layers > 0 for deployment in apart)  # type: ignore[union-attr]
    assert all(
        deployment.pools[0].policy.chunked and find_unread_overrides(deployment, side.typed) == [] for deployment in apart
    )
    together = [candidate for candidate in side.candidates if not candidate.apart]
    assert together
    assert all(find_unread_overrides(deployment, side.typed) == words for deployment in together)
    for best in capacity_record([side]).chips[0].deployments:
        left = [*SMALL[:2], *SMALL[3:8], *(word for word in words if word not in best.left_out)]
        build_question(config := compose(["workload=serving", *left, *best.overrides]), find_study_folder(config))


@pytest.mark.parametrize("word", ["workload.rate=5 Hz", "workload.rate_scale=2"])
def test_a_rate_that_is_looked_for_is_not_said(word: str) -> None:
    with pytest.raises(DesignError, match="searches the maximum rate"):
        find_capacity([*SMALL, word])


def test_a_rate_within_bounds_that_nothing_keeps_plays_one_of_each_number_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deployments whose requests break a bound alone are not played at the rate."""
    rates: list[float] = []

    def played(deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, rate: float) -> bool:
        rates.append(rate)
        return can_hold_rate(deployment, load, bounds, rate)

    monkeypatch.setattr("dse.analysis.capacity.MAX_SEARCHED_DEVICES", 4)
    monkeypatch.setattr("dse.analysis.capacity.can_hold_rate", played)
    words = ["workload.ttft='1 ms'", "workload.requests=50", "workload.prompt=300", "workload.output=20"]
    with pytest.raises(DesignError, match=r"no deployment keeps 1 ms to the first token.* 4 devices do not serve 20 requests"):
        find_capacity(["chip=h200", "model=llama3_8b", "rate='20 Hz'", *words])
    assert rates == [20.0] * 3


def test_a_class_that_nobody_serves_is_refused_by_its_name() -> None:
    classes = "[{name: near, share: 0.7, ttft: 9 s, tpot: 9 s}, {name: far, share: 0.3, ttft: 1 us, tpot: 9 s, priority: 1}]"
    overrides = ("chip=h200", "model=qwen3_1b7", "devices=1", "disaggregated=false", "mapping.serving.max_batch_size=8")
    few = ("workload.requests=40", "workload.prompt=64", "workload.output=8", f"workload.slo_classes={classes}")
    with pytest.raises(DesignError, match="keeps 1 us to the first token and 9 s a token of far; a request alone takes"):
        find_capacity((*overrides, *few))


def test_requests_by_class_are_all_of_them_each_with_its_bounds() -> None:
    kinds = np.random.default_rng(3).integers(0, 3, 50)
    requests = replace(make_requests([(10 + row, 5) for row in range(50)], 1.0 * np.arange(50)), kinds=kinds, ranks=kinds)
    classes = tuple(SloClass(name, 1.0 + place, 0.1, place) for place, name in enumerate("abc"))
    found_requests = requests_by_class(
        ServingLoad("", None, requests, 1.0, 0.1, classes=classes), SloBounds(3.0, 0.1, 0.9, classes)
    )  # type: ignore[arg-type]
    assert (
        sorted(length for _, class_requests, _ in found_requests for length in class_requests.prompt)
        == requests.prompt.tolist()
    )
    for place, (name, class_requests, its) in enumerate(found_requests):
        assert (name, its.ttft) == (classes[place].name, classes[place].ttft)
        assert class_requests.arrival.tolist() == requests.arrival[kinds == place].tolist()


@pytest.mark.parametrize("count", [300, 2000])
def test_a_short_load_names_as_many_requests_as_last_and_these_are_enough(count: int) -> None:
    """A short run keeps its bounds at rates that do not last, of which requests would be counted that nobody needs."""
    words = ("chip=h200", "model=llama3_8b", "mapping=serving", "devices=2", "disaggregated=false", "workload.ttft='1 s'")
    wanted_words = (
        *words,
        "workload.tpot='30 ms'",
        "mapping.serving.max_batch_size=256",
        "mapping.serving.max_batched_tokens=4096",
    )
    (short,) = find_capacity((*wanted_words, f"workload.requests={count}"))
    search = re.search(r"or set ([\d,]+) or more", explain_too_few_requests(short))
    assert search
    assert not capacity_record([short]).chips[0].best.lasts
    (usual,), (long,) = (
        find_capacity(wanted_words),
        find_capacity((*wanted_words, f"workload.requests={4 * int(search[1].replace(',', ''))}")),
    )
    assert not explain_too_few_requests(usual)
    assert not explain_too_few_requests(long)
    assert (usual.best.rate, usual.words) == (long.best.rate, long.words)  # type: ignore[union-attr]


def test_stages_are_looked_through_where_no_instance_fits_without_them() -> None:
    """As few as hold the model, and up to twice as many."""
    words = ["chip=groq", "model=llama2_7b", "devices=80", "workload.requests=50", "disaggregated=false"]
    words += ["workload.prompt=200", "workload.output=20", "mapping.serving.policy=prefill_first"]
    (side,) = find_capacity([*words, "mapping.both.tp=4", "mapping.serving.max_batch_size=32"])
    assert side.best is not None
    degrees = {candidate.design.mapping.decode.stages for candidate in side.candidates}
    assert min(degrees) > 1
    assert max(degrees) <= 2 * min(degrees)
    assert all(candidate.devices <= 80 for candidate in side.candidates)
    assert f"mapping.both.pp={side.best.candidate.design.mapping.decode.stages}" in side.best.candidate.words
