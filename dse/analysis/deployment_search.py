"""Search for the best of several deployments by simulation at the best rate so far.

Each deployment is simulated a little above the best rate so far. If it keeps the SLOs there, its own maximum rate is searched
(`evaluators.serving.max_rate`). A deployment is not simulated if its estimate, its prefill rate or the run of a deployment
that it cannot beat shows that it is slower.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dse.analysis.deployments import ATTENTION, TP, CandidateDeployment
from dse.evaluators.serving.max_rate import (
    SEEDS,
    MaxRate,
    RateSearch,
    enough_requests,
    find_replayed_rate,
    longest_allowed_time,
    rate_index,
)
from dse.evaluators.serving.simulator import CALLED_OFF, NO_STOP, ServingRun
from dse.evaluators.serving.simulator_state import StopBounds
from dse.evaluators.serving.slo_bounds import BREAKING_FACTOR, SloBounds, latency_percentiles
from dse.execution.pool.dispatch import Pool
from dse.execution.pool.threads import Threads
from dse.execution.pool.worker_settings import cpu_count
from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad
from dse.terminal.progress import ProgressBar

LONGEST = 10.0
"""Of a token, for requests that are to be alone where nothing bounds it. [s]"""

Point = tuple[float, float, float]
"""Of a whole run: its rate, output tokens over time and devices, and one request's over time. [1/s], [token/s]"""

Alone = dict[tuple[Any, ...], tuple[bool, CandidateDeployment]]
"""Whether kinds of instances keep the bounds where requests meet no other, each with one that has been played."""

SIMULATIONS_PER_WAVE = 4
"""Deployments that are tried against the same best rate, whatever the machine: so that an answer is that of any machine."""

NEAR, COARSE = 1.01, 1.05
"""Ratio of a rate that breaks a bound to one that keeps all, at most, of those that may be best, and of others that the best is
compared with. Who is looked at next has to be better by the first, and a draw of arrivals may break a bound at one rate and
keep it at a higher one: both together are to be less than 3 % of what a search of every deployment finds."""

ROUGH, FARTHER, BETTER, SETTLED = 3, 24, 1.03, 3
"""Places of the grid to which the most users of one stream are looked for, and to the first next one; times the users of the
best so far that a better one has; and of how many deployments all streams are played."""

NEARLY = 1.02
"""Times a bound: a deployment that breaks it by less at the best rate of others may keep it at a higher one, where batches are
full, and is searched by itself."""

LOAD_FRACTIONS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, BREAKING_FACTOR, 1.2)
"""Times the largest rate, at which the best deployment is drawn."""


@dataclass(frozen=True, eq=False)
class SimulatedDeployment:
    """One deployment with its simulated maximum rate and the run at that rate.

    Attributes:
        capacity: its largest rate; None where it breaks a bound at the best rate of the others, which it was tried at.
        lost: where that is None, the rate that it was tried at, and the most requests of an instance of each pool. [1/s]
        points: of complete runs: rate, output tokens over time and devices, and one request's over time. [1/s], [token/s]
        price: to make all its chips, with their memory and share of servers; NaN if it is not requested. [USD]
        per_mtoken: of a million output tokens at the largest rate; likewise. [USD]
    """

    candidate: CandidateDeployment
    capacity: MaxRate | None
    lost: tuple[float, tuple[int, ...]] = (0.0, ())
    points: tuple[Point, ...] = ()
    price: float = math.nan
    per_mtoken: float = math.nan

    @property
    def rate(self) -> float:
        """The maximum rate; 0 if it is unknown. [1/s]"""
        return self.capacity.rate if self.capacity else 0.0


@contextlib.contextmanager
def thread_pool() -> Iterator[Pool]:
    """Context with threads for simulation runs, which stop soon after an exception such as Ctrl-C."""
    pool = Pool(Threads(max(1, min(SIMULATIONS_PER_WAVE, cpu_count())), CALLED_OFF.set))
    try:
        yield pool
    finally:
        pool.close()


def find_best_deployment(
    deployments: Sequence[CandidateDeployment],
    load: ServingLoad,
    bounds: SloBounds,
    progress: ProgressBar,
    several: Pool,
) -> list[SimulatedDeployment]:
    """Simulate the deployments that may be best, by falling estimate; skip those known to be slower."""
    tried: list[SimulatedDeployment] = []
    left, best, winner, alone = list(deployments), 0.0, None, Alone()
    if bounds.classes and not drop_hopeless(
        left[:1], load, bounds, alone
    ):  # runs that break the bounds of one class go on to their end
        left = drop_hopeless(left, load, bounds, alone)
    while left := [
        candidate
        for candidate in left
        if candidate.most > best and not _has_lost_alike(candidate, tried, _rate_above(best, load))
    ]:
        # the first is searched by itself: against no rate at all, others would be, too
        wave = _next_wave(left) if best else left[:1]
        left = [candidate for candidate in left if candidate not in wave]
        tried += several.map_in_order(partial(_search_against_winner, load=load, bounds=bounds, winner=winner), wave)
        first = max(tried, key=lambda deployment: deployment.rate)
        best, winner = first.rate, first.capacity if first.rate else None
        if not best:
            left = drop_hopeless(left, load, bounds, alone)
        unit = "users" if load.requests.users else "requests/s"
        progress.update(len(tried), len(tried) + sum(candidate.most > best for candidate in left), f"best {best:.3g} {unit}")
    return _settle_users(tried, load, bounds) if load.requests.users and load.draw is not None else tried


def drop_hopeless(
    left: Sequence[CandidateDeployment], load: ServingLoad, bounds: SloBounds, alone: Alone
) -> list[CandidateDeployment]:
    """Deployments that keep the SLOs for requests that meet no other.

    Without those that miss an SLO even so, which is the fastest they can be; of equal instances one is simulated.

    Args:
        left: deployments.
        load, bounds: what they serve, and what they are to keep.
        alone: whether kinds of instances keep the bounds so, as far as that is known; simulated kinds are added.
    """
    if len(load.requests.before):  # turns come when they are answered
        return list(left)
    kept = []
    for candidate in left:
        kind = tuple((id(pool.price), pool.policy, pool.prefix, pool.pooled) for pool in candidate.pools)
        if kind not in alone:
            alone[kind] = (
                all(_keeps_bounds(candidate, requests, its) for _, requests, its in requests_by_class(load, bounds)),
                candidate,
            )
        if alone[kind][0]:
            kept.append(candidate)
    return kept


def requests_by_class(load: ServingLoad, bounds: SloBounds) -> list[tuple[str, Requests, SloBounds]]:
    """Requests of each SLO class with name and bounds; one entry if there are no classes.

    All requests are one entry too if they may share prefixes.
    """
    requests = load.requests
    if not bounds.classes or len(requests.starts):
        return [("", requests, bounds)]
    every = ((slo_class, requests.of_kind(number)) for number, slo_class in enumerate(bounds.classes))
    return [
        (class_.name, requests, SloBounds(class_.ttft, class_.tpot, bounds.share))
        for class_, requests in every
        if len(requests)
    ]


def _keeps_bounds(deployment: CandidateDeployment, requests: Requests, bounds: SloBounds) -> bool:
    """Whether a deployment keeps bounds of requests that meet no other."""
    gap = 10 * (deployment.estimate.ttft + float(requests.output.max()) * LONGEST)
    wanted_requests = replace(requests, arrival=gap * np.arange(len(requests)))
    return not bounds.broken_bound(
        deployment.make_deployment(wanted_requests).serve(wanted_requests, stop=bounds.stop(len(wanted_requests)))
    )


def _next_wave(left: Sequence[CandidateDeployment]) -> list[CandidateDeployment]:
    """The first few that differ in more than their batch: of others, one run may do for all."""
    wave: dict[tuple[Any, ...], CandidateDeployment] = {}
    for deployment in left:
        wave.setdefault(deployment.but_batch, deployment)
    return list(wave.values())[:SIMULATIONS_PER_WAVE]


def _has_lost_alike(deployment: CandidateDeployment, tried: Sequence[SimulatedDeployment], rate: float) -> bool:
    """Whether its run at the rate to be kept is that of another one, which has lost: neither has as many requests as a batch.

    Args:
        deployment: a deployment.
        tried: what has been played.
        rate: as of `_rate_above`. [1/s]
    """
    return deployment.estimate.rate < rate * NEAR and any(
        other.lost[0] == rate
        and other.candidate.but_batch == deployment.but_batch
        and all(
            most < min(pool.batch, mine.batch)
            for most, pool, mine in zip(other.lost[1], other.candidate.pools, deployment.pools, strict=True)
        )
        for other in tried
    )


def find_best_of_other_kinds(
    deployments: Sequence[CandidateDeployment],
    tried: Sequence[SimulatedDeployment],
    load: ServingLoad,
    bounds: SloBounds,
    several: Pool,
) -> list[SimulatedDeployment]:
    """Best deployment of each other kind of instance, coarsely simulated, for comparison.

    If such a deployment has a higher rate than the best one, its maximum rate is searched like that of the best.
    """
    known = {_instance_kind(deployment.candidate) for deployment in tried if deployment.capacity}
    first: dict[tuple[Any, ...], CandidateDeployment] = {}
    for deployment in deployments:
        if _instance_kind(deployment) not in known and deployment.estimate.rate:
            first.setdefault(_instance_kind(deployment), deployment)
    # so few requests let others exceed their estimates, too, if less
    best = max(tried, key=lambda deployment: deployment.rate)
    gained = (best.rate / best.candidate.estimate.rate) ** 0.5 if best.candidate.estimate.rate else 1.0
    return several.map_in_order(
        lambda deployment: _search_beside(deployment, load, bounds, deployment.estimate.rate * gained, best.rate),
        list(first.values()),
    )


def _search_beside(
    deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, guess: float, best: float
) -> SimulatedDeployment:
    """A deployment at its largest rate, coarsely where that is not above the best rate of others. [1/s]"""
    coarse = _search_coarsely(deployment, load, bounds, guess)
    return _search_rate(deployment, load, bounds, coarse.rate) if coarse.rate > best and load.draw is not None else coarse


def _search_coarsely(
    deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, guess: float
) -> SimulatedDeployment:
    """A deployment at its largest rate by one stream, to `COARSE`."""
    points: list[Point] = []
    if load.draw is None:
        return SimulatedDeployment(deployment, find_replayed_rate(deployment.make_deployment, load, bounds, guess, COARSE))
    return SimulatedDeployment(
        deployment,
        _rate_search(deployment, load, bounds, streams=1, points=points).estimate_max_rate(guess, long=True),
        points=tuple(points),
    )


def _instance_kind(deployment: CandidateDeployment) -> tuple[Any, ...]:
    """What tells kinds of instances apart that are compared: phases apart, FFNs on dies of their own, or by their devices."""
    return (
        (True,)
        if deployment.apart
        else (False, any(deployment.values.get(address) for address in ATTENTION), deployment.values.get(TP[0]))
    )


def _search_against_winner(
    deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, winner: MaxRate | None
) -> SimulatedDeployment:
    """A deployment a little above the best rate of the others, and at its own where it keeps the bounds there.

    Args:
        one, load, bounds: what is played.
        winner: what the best of the others serves; None where there is none.
    """
    if load.requests.users and load.draw is not None:
        return _of_users(deployment, load, bounds, winner)
    if winner is None:
        return _search_rate(deployment, load, bounds, deployment.estimate.rate)
    rate, guess = _rate_above(winner.rate, load), deployment.estimate.rate
    # time per token need not grow with the rate: what nearly keeps its bounds is looked at by itself
    nearly = bounds.scale_bounds(NEARLY)
    served = simulate_at_rate(deployment, load, rate, nearly)
    if not nearly.broken_bound(served):
        found_deployment = _confirm_beyond(
            deployment, load, bounds, (guess if guess > rate and _broken_bounds_text(served, bounds) else rate), winner
        )
    else:
        further = guess > rate * NEAR and not bounds.broken_bound(simulate_at_rate(deployment, load, guess, bounds))
        found_deployment = _confirm_beyond(deployment, load, bounds, guess, winner) if further else None
    return found_deployment or SimulatedDeployment(deployment, None, (rate, _most_at_once(deployment, served)))


def _of_users(
    deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, winner: MaxRate | None
) -> SimulatedDeployment:
    """A deployment at about the most users that it has by one stream, where it has more so than the best of the others.

    How many may ask does not follow from the steady state where prompts are reused: it may be several times the estimate.
    """
    points: list[Point] = []
    search = _rate_search(deployment, load, bounds, streams=1, points=points)
    rate = _rate_above(winner.rate, load) if winner else max(1.0, deployment.estimate.rate)
    if winner and not search.keeps_bounds(rate_index(rate), 1, lasting=True):
        return SimulatedDeployment(deployment, None, (rate, _most_at_once(deployment, search.latest) if search.latest else ()))
    return SimulatedDeployment(deployment, search.estimate_max_rate(rate, near=ROUGH, step=FARTHER), points=tuple(points))


def _settle_users(tried: Sequence[SimulatedDeployment], load: ServingLoad, bounds: SloBounds) -> list[SimulatedDeployment]:
    """Deployments of which the best few by one stream have their maximum numbers of users, by all streams; others have none."""
    settled_runs, best = dict[int, SimulatedDeployment](), None
    for deployment in sorted((deployment for deployment in tried if deployment.rate), key=lambda deployment: -deployment.rate)[
        :SETTLED
    ]:
        if best and best.capacity:
            again = _confirm_beyond(deployment.candidate, load, bounds, _rate_above(best.capacity.grid, load), best.capacity)
        else:
            again = _search_rate(deployment.candidate, load, bounds, deployment.rate)
        if again and again.rate > (best.rate if best else 0.0):
            best = again
        if again:
            settled_runs[id(deployment)] = replace(again, points=(*deployment.points, *again.points))
    return [settled_runs.get(id(deployment), replace(deployment, capacity=None)) for deployment in tried]


def _rate_above(best: float, load: ServingLoad) -> float:
    """A rate, or a number of users, a little above the best one so far, which a better deployment has to keep. [1/s]"""
    return max(best * BETTER, best + 1) if load.requests.users else best * NEAR


def _most_at_once(deployment: CandidateDeployment, served: ServingRun) -> tuple[int, ...]:
    """The most requests that an instance of each pool had at a time in a run."""
    held = served.state.instances
    return tuple(int(held["most"][held["pool"] == at].max()) for at in range(len(deployment.pools)))


def _confirm_beyond(
    deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, rate: float, winner: MaxRate
) -> SimulatedDeployment | None:
    """A deployment at its maximum rate, if streams that are as long as those of the best keep the bounds at a rate."""
    points: list[Point] = []
    search = _rate_search(deployment, load, bounds, points=points)
    if load.draw is None:
        return _search_rate(deployment, load, bounds, rate)
    if not search.keeps_bounds(rate_index(rate), winner.length, lasting=winner.lasts):
        return None
    return _with_found_rate(deployment, load, bounds, search.settle(rate), points)


def _broken_bounds_text(served: ServingRun, bounds: SloBounds) -> str:
    """Which bounds a whole run breaks, as in "ttft and tpot"; "" for none."""
    return " and ".join(bounds.list_broken_bounds(served))


def _rate_search(
    deployment: CandidateDeployment,
    load: ServingLoad,
    bounds: SloBounds,
    *,
    streams: int = SEEDS,
    points: list[Point] | None = None,
) -> RateSearch:
    """The search of a deployment for its maximum rate; what whole runs were worth is added to `points`."""

    def record_point(rate: float, served: ServingRun) -> None:
        if points is not None:
            points.append(
                (
                    answered_rate(served) if load.requests.users else rate,
                    *throughput_and_interactivity(served, deployment.devices),
                )
            )

    return RateSearch(deployment.make_deployment, load, bounds, tuple(range(streams)), record_point)


def _search_rate(deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, guess: float) -> SimulatedDeployment:
    """A deployment at its maximum rate; of requests that are replayed, at the largest that keeps the bounds."""
    points: list[Point] = []
    guess = guess or 1 / (deployment.estimate.ttft + bounds.tightest[1] * float(load.requests.output.mean()))
    if load.draw is None:
        max_rate = find_replayed_rate(deployment.make_deployment, load, bounds, guess, NEAR)
    else:
        max_rate = _rate_search(deployment, load, bounds, points=points).settle(guess)
    return _with_found_rate(deployment, load, bounds, max_rate, points)


def _with_found_rate(
    deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, max_rate: MaxRate, points: Sequence[Point]
) -> SimulatedDeployment:
    """A deployment with its maximum rate, and what its runs were worth."""
    if math.isinf(max_rate.rate):
        raise DesignError(_endless_text(load, bounds))
    return SimulatedDeployment(deployment, max_rate, points=tuple(points))


def _endless_text(load: ServingLoad, bounds: SloBounds) -> str:
    """What to say where bounds are kept whatever comes."""
    return (
        f"workload.requests: {len(load.requests):,} replay a longer trace, "
        f"or bound them tighter, who may take {format_quantity(longest_allowed_time(load, bounds), 's')}"
    )


def can_hold_rate(deployment: CandidateDeployment, load: ServingLoad, bounds: SloBounds, rate: float) -> bool:
    """Whether a deployment keeps the SLOs at a rate, for the same streams as at its maximum rate."""
    if load.draw is None:
        return not bounds.broken_bound(simulate_at_rate(deployment, load, rate, bounds))
    return _rate_search(deployment, load, bounds).is_kept(rate)


def simulate_at_rate(
    deployment: CandidateDeployment, load: ServingLoad, rate: float, until: SloBounds | StopBounds
) -> ServingRun:
    """Simulate a load's requests at a rate, up to where an SLO can no longer be kept."""
    requests = load.requests_at(rate)
    if load.requests.users and load.draw is not None:  # so many have more sessions than there are
        count = enough_requests(load, until if isinstance(until, SloBounds) else SloBounds(), rate)
        requests = load.draw(min(count, load.most or count), load.seed, max(1.0, math.ceil(rate - 1e-9)))
    stop = until.stop(len(requests)) if isinstance(until, SloBounds) else until
    return deployment.make_deployment(requests).serve(requests, stop=stop)


def throughput_and_interactivity(served: ServingRun, devices: int) -> tuple[float, float]:
    """Output tokens per second and device, and per second and user (mean over users). [token/s]"""
    span = float(np.nanmax(served["completed"])) - float(served.requests.arrival[0])
    several = served.requests.output > 1
    each = (served["completed"] - served["first"])[several] / (served.requests.output[several] - 1)
    return float(served.requests.output.sum()) / span / devices, 1 / float(each.mean()) if several.any() else math.nan


def answered_rate(served: ServingRun) -> float:
    """Requests over the time until the last of them is answered. [1/s]"""
    return len(served.requests) / (float(np.nanmax(served["completed"])) - float(served.requests.arrival[0]))


def simulate_latency_curve(
    best: SimulatedDeployment, load: ServingLoad, bounds: SloBounds, several: Pool
) -> tuple[SimulatedDeployment, tuple[tuple[float, float, float, float, str], ...]]:
    """The best deployment with more complete runs, and its latency against load."""
    known = best.capacity and best.capacity.served

    def at_load(times: float) -> ServingRun:
        return known if known and times == 1.0 else simulate_at_rate(best.candidate, load, times * best.rate, NO_STOP)

    runs = several.map_in_order(at_load, LOAD_FRACTIONS)
    rows = [
        (
            times,
            answered_rate(run) if load.requests.users else times * best.rate,
            *latency_percentiles(run, bounds.share),
            _broken_bounds_text(run, bounds),
        )
        for times, run in zip(LOAD_FRACTIONS, runs, strict=True)
    ]
    kept = [
        (row[1], *throughput_and_interactivity(run, best.candidate.devices))
        for row, run in zip(rows, runs, strict=True)
        if not row[-1]
    ]
    return replace(best, points=(*best.points, *kept)), tuple(rows)


def describe_unloaded_latency(
    deployments: Sequence[CandidateDeployment], load: ServingLoad, bounds: SloBounds
) -> list[tuple[bool, str]]:
    """Latency of a lone request on the fastest deployments, against the SLOs, as text.

    A pair per SLO class, or one for all requests: whether no deployment keeps the SLOs, and the text.
    """
    latency_text = []
    for name, requests, its in requests_by_class(load, bounds):
        alone, first, tightest = [], requests.first_requests(min(len(requests), 20)), its.tightest
        for deployment in _distinct_kinds(deployments):
            gap = 10 * (deployment.estimate.ttft + float(first.output.max()) * min(tightest[1], LONGEST))
            wanted_requests = replace(first, arrival=gap * np.arange(len(first)))
            alone.append(
                latency_percentiles(
                    deployment.make_deployment(wanted_requests).serve(wanted_requests, stop=NO_STOP), bounds.share
                )
            )
        ttft, tpot = (min(values) for values in zip(*alone, strict=True))
        bound = f"{format_quantity(tightest[0], 's')} to the first token and {format_quantity(tightest[1], 's')} a token" + (
            f" of {name}" if name else ""
        )
        took = (
            f"{format_quantity(ttft, 's')} and {format_quantity(tpot, 's')} at best, each by another deployment "
            f"where they differ"
        )
        reason = f"{bound}; a request alone takes {took}"
        latency_text.append((ttft > tightest[0] or tpot > tightest[1], reason))
    return latency_text


def explain_no_deployment(chip: str, reasons: Sequence[tuple[bool, str]]) -> str:
    """Message that no deployment of a chip keeps the SLOs, with the unloaded latency.

    If no deployment keeps some of them even unloaded, the message names these.
    """
    never = [reason for broken, reason in reasons if broken]
    return f"{chip}: no deployment keeps {'; nor '.join(never or [reason for _, reason in reasons])}"


def _distinct_kinds(deployments: Sequence[CandidateDeployment]) -> list[CandidateDeployment]:
    """One of each kind of instance."""
    kinds: dict[tuple[Any, ...], CandidateDeployment] = {}
    for deployment in deployments:
        kinds.setdefault((deployment.apart, *(deployment.values.get(address) for address in TP)), deployment)
    return list(kinds.values())
