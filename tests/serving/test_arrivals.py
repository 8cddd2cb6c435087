"""Prompts that the steady state plays over a load's arrivals: Lindley's recursion, and the loop where nothing decodes."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from dse.accuracy.validate import compose_question
from dse.evaluators import evaluate
from dse.evaluators.serving import prefill_replay as arrivals
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.lane_clocks import GAPS, LEAST, OCTAVES, PER_OCTAVE, count_gaps, order_statistic
from dse.evaluators.serving.run_statistics import SloTargets, run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.evaluators.serving.steady_state import MAIN_FIELDS, make_pool_records, request_mix
from dse.evaluators.serving.steady_state_solver import BRIEF, TAIL, solve_deployments
from dse.evaluators.workloads.serving import evaluate_cases
from dse.space.array_math import Array
from dse.space.lazy_metrics import compute_all, requested_metrics
from dse.space.lazy_metrics import select_metrics as wanted
from dse.space.requests import Requests, make_requests
from dse.space.serving_plan import ROUTING

TIMES = ("ttft", "ttft_p50", "ttft_p90", "ttft_p99")


def _asked(rng: np.random.Generator, count: int, most: int, rate: float) -> Requests:
    """Requests in bursts, some at the same time."""
    gaps = rng.gamma(0.3, 1 / 0.3 / rate, count) * (rng.random(count) > 0.1)
    return make_requests(np.stack([rng.integers(1, 3000, count), rng.integers(1, most + 1, count)], 1), np.cumsum(gaps))


def _loaded(deployment: Deployment, requests: Requests, share: float) -> Requests:
    """Requests that come as fast as a share of what is served of them."""
    most = float(solve_deployments([deployment], requests, prompts=False)[0]["saturated"])
    return requests.scale_times(share * most / requests.rate)


def _pool(rng: np.random.Generator, rule: str) -> InstancePool:
    price = linear_time(*(float(value) for value in 10 ** rng.uniform((-3, -6, -9, -5, -8, -9), (-2, -4, -7, -3, -6, -8))))
    shares = rng.dirichlet(np.full(int(rng.integers(1, 6)), 20.0))
    batch, instances = int(rng.integers(8, 65)), int(rng.integers(1, 5))
    return InstancePool(
        price, make_policy(rule, by_chunk=False), KvMemory(1 << 22), instances, tuple((shares / shares.sum()).tolist()), batch
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.1, 3.0))
def test_one_server_of_prompts_that_go_by_themselves_is_lindleys_recursion(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    each, token = 10 ** rng.uniform(-3, -2), 10 ** rng.uniform(-6, -4)
    pool = InstancePool(linear_time(each, prefill_token=token), make_policy("prefill_first", tokens=1), KvMemory(1 << 22))
    deployment, requests = Deployment((pool,), None, "least_loaded"), _asked(rng, 300, 1, 1.0)
    requests = _loaded(deployment, requests, share)
    services, gaps, waits = each + token * requests.prompt, np.diff(requests.arrival), [0.0]
    for service, between in zip(services, gaps, strict=False):
        waits.append(max(0.0, waits[-1] + service - between))
    found_deployment = solve_deployments([deployment], requests)[0]
    assert found_deployment["wait"] == pytest.approx(np.mean(waits), rel=1e-9, abs=1e-12)
    assert found_deployment["ttft"] == pytest.approx(np.mean(waits + services), rel=1e-9)
    assert found_deployment["ttft_p90"] == pytest.approx(np.quantile(waits + services, 0.9, method="inverted_cdf"), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**9), st.floats(0.05, 3.0), st.sampled_from(("chunked_prefill", "prefill_first", "orca", "pd_fusion")),
    st.sampled_from(("least_loaded", "round_robin")),
)  # fmt: skip
def test_where_nothing_decodes_it_is_the_loop(seed: int, share: float, rule: str, routing: str) -> None:
    rng = np.random.default_rng(seed)
    deployment, requests = Deployment((_pool(rng, rule),), None, routing), _asked(rng, 200, 1, 1.0)
    requests = _loaded(deployment, requests, share)
    run, found_deployment = deployment.serve(requests), solve_deployments([deployment], requests)[0]
    loop = run_statistics(run, SloTargets())
    if share > 1:
        assert found_deployment["span"] == pytest.approx(run["completed"].max() - requests.arrival[0], rel=1e-9)
    for name in TIMES:
        assert found_deployment[name] == pytest.approx(loop[name], rel=1e-9), name
    assert found_deployment["wait"] == pytest.approx(loop["queue_delay"], rel=1e-9, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.05, 3.0), st.sampled_from(("chunked_prefill", "prefill_first")))
def test_prompts_that_have_a_pool_of_their_own_are_those_of_the_loop(seed: int, share: float, rule: str) -> None:
    rng = np.random.default_rng(seed)
    deployment = Deployment((_pool(rng, rule), _pool(rng, "chunked_prefill")), KvTransfer(1e-8, 1e-5, 4, True), "least_loaded")
    requests = _loaded(deployment, _asked(rng, 200, 90, 1.0), share)
    bound = float(rng.uniform(0.05, 2))
    loop, found_deployment = (
        run_statistics(deployment.serve(requests), SloTargets(ttft=bound)),
        solve_deployments([deployment], requests, bound)[0],
    )
    for name in TIMES:
        assert found_deployment[name] == pytest.approx(loop[name], rel=1e-9), name
    assert found_deployment["within"] == pytest.approx(loop["slo_attainment"], rel=1e-9)


def test_bursts_are_nearer_to_the_loop_than_a_queue_in_closed_form() -> None:
    """Prompts beside decodes, of instances of one stage: medians over loads and rules, of which the queue is off by a half."""
    off: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        pool = replace(_pool(rng, ("chunked_prefill", "prefill_first")[seed % 2]), shares=(1.0,), batch=64)
        deployment = Deployment((pool,), None, "least_loaded")
        requests = _loaded(deployment, _asked(rng, 400, 90, 1.0), 0.3 + 0.05 * seed)
        loop = run_statistics(deployment.serve(requests), SloTargets())["ttft_p90"]
        for played, errors in off.items():
            errors.append(abs(solve_deployments([deployment], requests, prompts=played)[0]["ttft_p90"] / loop - 1))
    assert np.median(off[True]) < 0.1
    assert np.median(off[False]) > 3 * np.median(off[True])


def test_many_requests_are_left_to_the_queue() -> None:
    rng = np.random.default_rng(3)
    deployment, requests = Deployment((_pool(rng, "chunked_prefill"),), None, ROUTING[0]), _asked(rng, 200, 9, 1.0)
    many = _asked(rng, arrivals.MAX_REQUESTS + 1, 9, 1.0)
    for selected_requests, played in (
        (_loaded(deployment, requests, 0.5), True),
        (_loaded(deployment, requests, 1.2), True),
        (_loaded(deployment, many, 0.5), False),
    ):
        whole, queue = (
            solve_deployments([deployment], selected_requests)[0],
            solve_deployments([deployment], selected_requests, prompts=False)[0],
        )
        others = [name for name in queue.dtype.names if name not in (*MAIN_FIELDS, "span")]
        assert whole[others] == queue[others]
        late = queue["span"] - (selected_requests.arrival[-1] - selected_requests.arrival[0]) > TAIL * queue["span"]
        at_once = played and (selected_requests.rate >= whole["saturated"] or late or len(selected_requests) <= BRIEF)
        assert at_once or whole["span"] == queue["span"]
        assert (whole["ttft_p90"] != queue["ttft_p90"]) == played


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.floats(0.2, 0.9), st.sampled_from(("chunked_prefill", "orca", "pd_fusion")))
def test_passes_end_in_turn_in_stages_that_differ(seed: int, share: float, rule: str) -> None:
    """Beside decodes in all lanes, of which passes with long prompts wait more than those with short ones."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(8, 5.0))
    price = linear_time(1e-3, prefill_token=3e-6, decode_request=10 ** rng.uniform(-4, -3))
    pool = InstancePool(
        price, make_policy(rule, by_chunk=False), KvMemory(1 << 22), 2, tuple((shares / shares.sum()).tolist()), batch=64
    )
    requests = _loaded(Deployment((pool,), None, "least_loaded"), _asked(rng, 300, 200, 1.0), share)
    at = make_pool_records((pool,), requests, prefills=True, decodes=True)
    room = arrivals.make_replay_workspace(at, len(requests))
    arguments = (np.array(pool.shares), True, arrivals.arrival_arrays(requests), request_mix(requests), 0.0, room)
    arrivals.replay_prefill(pool.price, at[0], *arguments)
    instances = room.instances
    assert not instances["flying"].any()
    assert not instances["queued"].any()
    assert not room.lanes["prompts"].any()
    assert not instances["held"].any()
    assert not room.lanes["decodes"].any()
    assert (room.last >= room.first).all()
    assert (room.begun >= 0).all()
    step, token = price.linear[:2]
    assert (room.first - room.begun >= (step + token * requests.prompt) * (1 - 1e-9)).all()


LINES = {
    "dies": ("chip=h200", "model=llama3_8b", "+space.mapping.serving.max_batch_size=choice(8,32)"),
    "tiles": ("chip=npu64", "model=qwen3_4b", "mapping.both.tp=4", "mapping.both.pp=4",
              "+space.mapping.both.microbatch_size=choice(2,8)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_prompts_are_played_where_somebody_asks_when_first_tokens_come(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("workload=serving", "workload.requests=400", "workload.prompt=500", "workload.output=60", "workload.rate='1 Hz'")
    question = compose_question((*more, *LINES[name])).question
    space = question.space
    designs = space.stack(space.sample(np.array([[0.1], [0.9]])))
    real, played = arrivals.replay_prompts, list[int]()

    def prompted(*args: Array) -> None:
        played.append(len(args[-1]))
        real(*args)

    monkeypatch.setattr(arrivals, "replay_prompts", prompted)
    evaluate(designs, question.workload, fidelity="steady_state", metrics=("throughput", "offered_load"))
    assert not played
    evaluate(designs, question.workload, fidelity="steady_state", metrics=("ttft_p90", "slo_attainment"))
    assert played == [2]


@pytest.mark.parametrize("name", LINES)
def test_what_nobody_asks_for_is_left_out_until_somebody_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("workload=serving", "workload.requests=60", "workload.prompt=500", "workload.output=60")
    rate = {"dies": "35 Hz", "tiles": "29 Hz"}[name]
    question = compose_question((*more, f"workload.rate='{rate}'", *LINES[name])).question
    space = question.space
    designs = space.stack(space.sample(np.array([[0.1], [0.9]])))
    whole = evaluate(designs, question.workload, fidelity="steady_state").columns
    assert (whole["offered_load"] > 1).tolist() == [True, False]  # the first one is played for its span, too
    real, counted = arrivals.replay_prompts, list[tuple[list[bool], bool]]()

    def prompted(*args: Any) -> None:
        counted.append((args[-3].tolist(), len(args[-2].gaps) > 0))
        real(*args)

    monkeypatch.setattr(arrivals, "replay_prompts", prompted)
    few = evaluate(designs, question.workload, fidelity="steady_state", metrics=("ttft_p90", "slo_attainment"))
    assert set(map(str, counted)) == {str(([False, True, False], False))}
    assert not {"ttft_p50", "ttft_p99", "tbt_p99"} & few.columns.keys()
    assert {"ttft_p50", "ttft_p99", "tbt_p99"} <= few.left
    for metric in few.columns:
        assert few.columns[metric].tobytes() == whole[metric].tobytes(), metric
    with requested_metrics(("ttft_p90",)):
        late = [evaluate_cases(design, question.workload, "steady_state") for _, design in designs.groups]
        early = [compute_all(wanted(outcomes_of_case[0].metrics, ("ttft_p90",))) for outcomes_of_case in late]
    for (rows, _), (outcome,), had in zip(designs.groups, late, early, strict=True):
        for metric, values in (compute_all(outcome.metrics) | had).items():
            assert np.array_equal(np.broadcast_to(values, len(rows)), whole[metric][rows], equal_nan=True), metric


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.integers(0, 39))
def test_the_nth_value_is_that_of_values_in_order(values: list[int], place: int) -> None:
    place = min(place, len(values) - 1)
    sample = np.array(values, float)
    assert order_statistic(sample, place) == sorted(values)[place] == sample[place:].min()


class _Counted(NamedTuple):
    gaps: Array


@njit  # type: ignore[untyped-decorator]
def _counts(room: _Counted, seconds: float) -> None:
    count_gaps(room, seconds, 3)


@settings(max_examples=50, deadline=None)
@given(st.floats(2.0**LEAST, 2.0 ** (LEAST + OCTAVES), exclude_min=True, exclude_max=True))
def test_a_gap_is_counted_in_its_part_of_its_octave(seconds: float) -> None:
    room, (mantissa, exponent) = _Counted(np.zeros(OCTAVES * PER_OCTAVE, GAPS)), np.frexp(seconds)
    _counts(room, seconds)
    place = min((exponent - LEAST) * PER_OCTAVE + int((mantissa - 0.5) * 2 * PER_OCTAVE), OCTAVES * PER_OCTAVE - 1)
    assert np.flatnonzero(room.gaps["count"]).tolist() == [place]
    assert room.gaps[place].tolist() == (3, 3 * seconds)
