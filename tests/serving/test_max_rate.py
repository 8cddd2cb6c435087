"""The maximum rate on random questions: streams are the same for all, so that more of anything good is never less."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.max_rate import (
    MaxRate,
    RateSearch,
    bound_attainment,
    enough_requests,
    lower_bound,
    rate_at,
    rate_index,
    round_to_range,
)
from dse.evaluators.serving.run_statistics import load_status
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.evaluators.serving.slo_bounds import SloBounds
from dse.evaluators.serving.sustained_rate import sustained_rate
from dse.space.requests import Requests, make_requests
from dse.space.workload import ServingLoad

UNSEEN = range(100, 106)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """First streams of 400 requests, and no long ones, so that a question takes a fraction of a second."""
    monkeypatch.setattr("dse.evaluators.serving.max_rate.USUAL", 400)
    monkeypatch.setattr("dse.evaluators.serving.max_rate.LONGEST_STREAM", 1 << 14)


class Asked(SimpleNamespace):
    """A random question: what serves, how fast, within which bounds."""

    def deployed(self, instances: float = 1, pace: float = 1.0) -> Deployment:
        """So many times as many instances, whose iterations take so many times as long."""
        pools = tuple(
            InstancePool(
                linear_time(*(pace * price for price in self.prices)),
                make_policy(rule),
                KvMemory(self.memory),
                round(instances * many),
                batch=self.batch,
            )
            for rule, many in self.pools
        )
        return Deployment(pools, KvTransfer(1e-6, 1e-4, 1, True) if len(pools) == 2 else None, "least_loaded")

    def found(self, deployment: Deployment | None = None, bounds: SloBounds | None = None, most: int = 0) -> MaxRate:
        """The maximum rate of some deployment within some bounds, of so many requests at most."""
        deployment, bounds = deployment or self.deployed(), bounds or self.bounds
        load = ServingLoad("", None, self.draw(500, 0, 1.0), bounds.ttft, bounds.tpot, draw=self.draw, most=most)  # type: ignore[arg-type]
        guess = sustained_rate(deployment, load.requests, tpot=bounds.tpot)
        return RateSearch(lambda _: deployment, load, bounds).settle(guess.rate or 1 / guess.ttft)


def _asked(seed: int) -> Asked:
    rng = np.random.default_rng((7, seed))
    prices = [float(value) for value in 10 ** rng.uniform((-3, -6, -9, -5, -8, -9), (-2, -4.5, -8, -3.5, -7, -8))]
    pairs = [(int(rng.integers(20, 600)), int(rng.integers(2, 60))) for _ in range(int(rng.choice([1, 40])))]

    def draw(count: int, number: int, rate: float) -> Requests:
        order = np.random.default_rng((seed, number)).integers(len(pairs), size=count)
        return make_requests([pairs[row] for row in order]).with_arrivals("poisson", rate=rate, seed=number)

    apart = rng.random() < 0.3
    pools = [("prefill_first", int(rng.integers(1, 4))), ("chunked_prefill", int(rng.integers(1, 4)))]
    study = Asked(
        prices=prices, draw=draw, memory=int(rng.integers(3000, 30_000)), batch=int(rng.integers(8, 65)),
        pools=pools if apart else pools[1:],
    )  # fmt: skip
    alone = study.deployed().serve(replace(draw(60, 0, 1.0), arrival=1e3 * np.arange(60)))
    ttft = float(np.quantile(alone["first"] - alone.requests.arrival, 0.95))
    each = (alone["completed"] - alone["first"]) / np.maximum(alone.requests.output - 1, 1)
    tpot, share = float(np.quantile(each, 0.95)), float(rng.choice([0.5, 0.9, 0.95]))
    study.bounds = SloBounds(float(rng.uniform(1.5, 12)) * ttft, float(rng.uniform(1.3, 6)) * tpot, share)
    return study


def _share(served: ServingRun, bounds: SloBounds) -> float:
    first = served["first"] - served.requests.arrival
    each = (served["completed"] - served["first"]) / np.maximum(served.requests.output - 1, 1)
    return float(((first <= bounds.ttft) & (each <= bounds.tpot)).mean())


QUESTIONS = pytest.mark.parametrize("seed", range(50))


@pytest.mark.sampled
@QUESTIONS
def test_a_maximum_rate_is_kept_by_streams_that_nobody_has_seen(seed: int) -> None:
    """The stream that is printed keeps the bounds and is not overloaded; others do in the mean; a little more is too much."""
    study = _asked(seed)
    max_rate, deployment = study.found(), study.deployed()
    assert max_rate.rate > 0
    assert max_rate.range is not None
    assert max_rate.range[0] <= max_rate.rate * 1.02
    printed = deployment.serve(study.draw(max_rate.count, max_rate.seed, max_rate.rate))
    assert _share(printed, study.bounds) >= study.bounds.share
    assert load_status(printed) != "overloaded"
    others = [_share(deployment.serve(study.draw(max_rate.count, number, max_rate.rate)), study.bounds) for number in UNSEEN]
    assert np.mean(others) >= study.bounds.share - 0.02
    if max_rate.lasts:
        for times in (0.5, 2):
            count = round(times * max_rate.count)
            longer = [_share(deployment.serve(study.draw(count, number, max_rate.rate)), study.bounds) for number in UNSEEN]
            assert np.mean(longer) >= study.bounds.share - 0.03, times
    beyond = [
        _share(deployment.serve(study.draw(max_rate.count, number, 1.1 * max_rate.range[1])), study.bounds)
        for number in range(5)
    ]
    assert lower_bound(beyond) < study.bounds.share or max_rate.binds == "saturation"


@pytest.mark.sampled
@QUESTIONS
def test_more_of_anything_good_serves_no_less(seed: int) -> None:
    """A looser bound on either time or on the share, more instances, or quicker ones: not below the range."""
    study, rng = _asked(seed), np.random.default_rng((8, seed))
    max_rate, bounds, by = study.found(), study.bounds, float(rng.uniform(1.02, 2))
    assert max_rate.range is not None
    looser = {
        "ttft": study.found(bounds=bounds._replace(ttft=by * bounds.ttft)),
        "tpot": study.found(bounds=bounds._replace(tpot=by * bounds.tpot)),
        "share": study.found(bounds=bounds._replace(share=bounds.share / by)),
        "instances": study.found(study.deployed(instances=2)),
        "pace": study.found(study.deployed(pace=1 / by)),
    }
    for what, result in looser.items():
        assert result.rate >= min(max_rate.range[0], max_rate.rate), what


@pytest.mark.sampled
@QUESTIONS
def test_as_many_requests_as_are_needed_or_more_have_one_rate(seed: int) -> None:
    """Whoever says how many there are at most has the same answer from the number on that it takes."""
    study = _asked(seed)
    max_rate = study.found()
    if max_rate.lasts:
        for times in (1.0, 1.7, 20.0):
            more = study.found(most=math.ceil(times * max_rate.count))
            assert (more.rate, more.count, more.seed, more.range) == (
                max_rate.rate,
                max_rate.count,
                max_rate.seed,
                max_rate.range,
            )
    few = study.found(most=40)
    assert few.count <= 40
    assert not few.lasts


@QUESTIONS
def test_a_maximum_rate_is_the_last_of_the_grid_that_is_kept(seed: int) -> None:
    """By all streams at each rate, whatever the search tried."""
    study = _asked(seed)
    max_rate, deployment = study.found(), study.deployed()
    load = ServingLoad("", None, study.draw(500, 0, 1.0), study.bounds.ttft, study.bounds.tpot, draw=study.draw)  # type: ignore[arg-type]
    search = RateSearch(lambda _: deployment, load, study.bounds)
    place, lasting = rate_index(max_rate.grid), max_rate.length > enough_requests(load, study.bounds, max_rate.grid)
    assert search.keeps_bounds(place, max_rate.length, lasting=lasting)
    assert not search.keeps_bounds(place + 1, max_rate.length, lasting=lasting)


def test_rates_of_the_grid_are_a_hundredth_apart_at_most() -> None:
    rates = [rate_at(place) for place in range(-1000, 1000)]
    steps = [more / rate for rate, more in pairwise(rates)]
    assert 1.004 < min(steps) < max(steps) < 1.0101
    assert [rate_index(rate) for rate in rates] == list(range(-1000, 1000))
    assert all(float(f"{rate:.3g}") == rate for rate in rates)


@pytest.mark.parametrize("seed", range(20))
def test_no_streams_that_are_left_make_a_bound_larger_than_it_may_become(seed: int) -> None:
    rng = np.random.default_rng(seed)
    draws = rng.uniform(0.5, 1, int(rng.integers(1, 5))).tolist()
    most = bound_attainment(draws, 5 - len(draws))
    for _ in range(200):
        assert lower_bound(draws + rng.uniform(0, 1, 5 - len(draws)).tolist()) <= most + 1e-9
    rate, half = float(rng.uniform(1, 1000)), float(rng.uniform(0.001, 100))
    printed = round_to_range(rate, (rate - half, rate + half))
    assert rate - half - 1e-9 <= printed <= rate
