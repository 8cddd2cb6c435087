"""Search for the best of several deployments by simulation at the best rate so far.

Each deployment is simulated a little above the best rate so far. If it keeps the SLOs there, its own maximum rate is searched
(`evaluators.serving.max_rate`). A deployment is not simulated if its estimate, its prefill rate or the run of a deployment
that it cannot beat shows that it is slower.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
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


def thread_count() -> int:
    """Number of simultaneous simulation runs; the compiled loop does not block other threads."""
    return max(1, min(SIMULATIONS_PER_WAVE, os.cpu_count() or 1))


@contextlib.contextmanager
def thread_pool() -> Iterator[ThreadPoolExecutor]:
    """Context with threads for simulation runs, which stop soon after an exception such as Ctrl-C."""
    over = Event()
    with ThreadPoolExecutor(thread_count(), initializer=CALLED_OFF.set, initargs=(over,)) as several:
        try:
            yield several
        except BaseException:
            over.set()
            several.shutdown(wait=False, cancel_futures=True)
            raise


def find_best_deployment(
    found: Sequence[CandidateDeployment],
    load: ServingLoad,
    bounds: SloBounds,
    progress: ProgressBar,
    several: ThreadPoolExecutor,
) -> list[SimulatedDeployment]:
    """Simulate the deployments that may be best, by falling estimate; skip those known to be slower."""
    tried: list[SimulatedDeployment] = []
    left, best, winner, alone = list(found), 0.0, None, Alone()
    if bounds.classes and not drop_hopeless(
        left[:1], load, bounds, alone
    ):  # runs that break the bounds of one class go on to their end
        left = drop_hopeless(left, load, bounds, alone)
    while left := [one for one in left if one.most > best and not _known(one, tried, _above(best, load))]:
        # the first is searched by itself: against no rate at all, others would be, too
        wave = _wave(left) if best else left[:1]
        left = [one for one in left if one not in wave]
        tried += several.map(lambda one, winner=winner: _against(one, load, bounds, winner), wave)
        first = max(tried, key=lambda one: one.rate)
        best, winner = first.rate, first.capacity if first.rate else None
        if not best:
            left = drop_hopeless(left, load, bounds, alone)
        unit = "users" if load.requests.users else "requests/s"
        progress.update(len(tried), len(tried) + sum(one.most > best for one in left), f"best {best:.3g} {unit}")
    return _settled(tried, load, bounds) if load.requests.users and load.draw is not None else tried


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
    for one in left:
        kind = tuple((id(pool.price), pool.policy, pool.prefix, pool.pooled) for pool in one.pools)
        if kind not in alone:
            alone[kind] = all(_keeps(one, some, its) for _, some, its in requests_by_class(load, bounds)), one
        if alone[kind][0]:
            kept.append(one)
    return kept


def requests_by_class(load: ServingLoad, bounds: SloBounds) -> list[tuple[str, Requests, SloBounds]]:
    """Requests of each SLO class with name and bounds; one entry if there are no classes.

    All requests are one entry too if they may share prefixes.
    """
    asked = load.requests
    if not bounds.classes or len(asked.starts):
        return [("", asked, bounds)]
    every = ((of, asked.of_kind(number)) for number, of in enumerate(bounds.classes))
    return [(of.name, some, SloBounds(of.ttft, of.tpot, bounds.share)) for of, some in every if len(some)]


def _keeps(one: CandidateDeployment, some: Requests, bounds: SloBounds) -> bool:
    """Whether a deployment keeps bounds of requests that meet no other."""
    gap = 10 * (one.estimate.ttft + float(some.output.max()) * LONGEST)
    asked = replace(some, arrival=gap * np.arange(len(some)))
    return not bounds.broken(one.at(asked).serve(asked, stop=bounds.stop(len(asked))))


def _wave(left: Sequence[CandidateDeployment]) -> list[CandidateDeployment]:
    """The first few that differ in more than their batch: of others, one run may do for all."""
    wave: dict[tuple[Any, ...], CandidateDeployment] = {}
    for one in left:
        wave.setdefault(one.but_batch, one)
    return list(wave.values())[:SIMULATIONS_PER_WAVE]


def _known(one: CandidateDeployment, tried: Sequence[SimulatedDeployment], rate: float) -> bool:
    """Whether its run at the rate to be kept is that of another one, which has lost: neither has as many requests as a batch.

    Args:
        one: a deployment.
        tried: what has been played.
        rate: as of `_above`. [1/s]
    """
    return one.estimate.rate < rate * NEAR and any(
        other.lost[0] == rate
        and other.candidate.but_batch == one.but_batch
        and all(
            most < min(pool.batch, mine.batch)
            for most, pool, mine in zip(other.lost[1], other.candidate.pools, one.pools, strict=True)
        )
        for other in tried
    )


def best_of_other_kinds(
    found: Sequence[CandidateDeployment],
    tried: Sequence[SimulatedDeployment],
    load: ServingLoad,
    bounds: SloBounds,
    several: ThreadPoolExecutor,
) -> list[SimulatedDeployment]:
    """Best deployment of each other kind of instance, coarsely simulated, for comparison.

    If such a deployment has a higher rate than the best one, its maximum rate is searched like that of the best.
    """
    known = {_kind(one.candidate) for one in tried if one.capacity}
    first: dict[tuple[Any, ...], CandidateDeployment] = {}
    for one in found:
        if _kind(one) not in known and one.estimate.rate:
            first.setdefault(_kind(one), one)
    # so few requests let others exceed their estimates, too, if less
    best = max(tried, key=lambda one: one.rate)
    gained = (best.rate / best.candidate.estimate.rate) ** 0.5 if best.candidate.estimate.rate else 1.0
    return list(several.map(lambda one: _beside(one, load, bounds, one.estimate.rate * gained, best.rate), first.values()))


def _beside(one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, guess: float, best: float) -> SimulatedDeployment:
    """A deployment at its largest rate, coarsely where that is not above the best rate of others. [1/s]"""
    coarse = _coarse(one, load, bounds, guess)
    return _searched(one, load, bounds, coarse.rate) if coarse.rate > best and load.draw is not None else coarse


def _coarse(one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, guess: float) -> SimulatedDeployment:
    """A deployment at its largest rate by one stream, to `COARSE`."""
    points: list[Point] = []
    if load.draw is None:
        return SimulatedDeployment(one, find_replayed_rate(one.at, load, bounds, guess, COARSE))
    return SimulatedDeployment(
        one, _search(one, load, bounds, streams=1, points=points).roughly(guess, long=True), points=tuple(points)
    )


def _kind(one: CandidateDeployment) -> tuple[Any, ...]:
    """What tells kinds of instances apart that are compared: phases apart, FFNs on dies of their own, or by their devices."""
    return (True,) if one.apart else (False, any(one.values.get(address) for address in ATTENTION), one.values.get(TP[0]))


def _against(one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, winner: MaxRate | None) -> SimulatedDeployment:
    """A deployment a little above the best rate of the others, and at its own where it keeps the bounds there.

    Args:
        one, load, bounds: what is played.
        winner: what the best of the others serves; None where there is none.
    """
    if load.requests.users and load.draw is not None:
        return _of_users(one, load, bounds, winner)
    if winner is None:
        return _searched(one, load, bounds, one.estimate.rate)
    rate, guess = _above(winner.rate, load), one.estimate.rate
    # time per token need not grow with the rate: what nearly keeps its bounds is looked at by itself
    nearly = bounds.wider(NEARLY)
    served = simulate_at_rate(one, load, rate, nearly)
    if not nearly.broken(served):
        found = _beyond(one, load, bounds, (guess if guess > rate and _breaks(served, bounds) else rate), winner)
    else:
        further = guess > rate * NEAR and not bounds.broken(simulate_at_rate(one, load, guess, bounds))
        found = _beyond(one, load, bounds, guess, winner) if further else None
    return found or SimulatedDeployment(one, None, (rate, _most_at_once(one, served)))


def _of_users(one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, winner: MaxRate | None) -> SimulatedDeployment:
    """A deployment at about the most users that it has by one stream, where it has more so than the best of the others.

    How many may ask does not follow from the steady state where prompts are reused: it may be several times the estimate.
    """
    points: list[Point] = []
    search = _search(one, load, bounds, streams=1, points=points)
    rate = _above(winner.rate, load) if winner else max(1.0, one.estimate.rate)
    if winner and not search.kept(rate_index(rate), 1, lasting=True):
        return SimulatedDeployment(one, None, (rate, _most_at_once(one, search.latest) if search.latest else ()))
    return SimulatedDeployment(one, search.roughly(rate, near=ROUGH, step=FARTHER), points=tuple(points))


def _settled(tried: Sequence[SimulatedDeployment], load: ServingLoad, bounds: SloBounds) -> list[SimulatedDeployment]:
    """Deployments of which the best few by one stream have their maximum numbers of users, by all streams; others have none."""
    found, best = dict[int, SimulatedDeployment](), None
    for one in sorted((one for one in tried if one.rate), key=lambda one: -one.rate)[:SETTLED]:
        if best and best.capacity:
            again = _beyond(one.candidate, load, bounds, _above(best.capacity.grid, load), best.capacity)
        else:
            again = _searched(one.candidate, load, bounds, one.rate)
        if again and again.rate > (best.rate if best else 0.0):
            best = again
        if again:
            found[id(one)] = replace(again, points=(*one.points, *again.points))
    return [found.get(id(one), replace(one, capacity=None)) for one in tried]


def _above(best: float, load: ServingLoad) -> float:
    """A rate, or a number of users, a little above the best one so far, which a better deployment has to keep. [1/s]"""
    return max(best * BETTER, best + 1) if load.requests.users else best * NEAR


def _most_at_once(one: CandidateDeployment, served: ServingRun) -> tuple[int, ...]:
    """The most requests that an instance of each pool had at a time in a run."""
    held = served.state.instances
    return tuple(int(held["most"][held["pool"] == at].max()) for at in range(len(one.pools)))


def _beyond(
    one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, rate: float, winner: MaxRate
) -> SimulatedDeployment | None:
    """A deployment at its maximum rate, if streams that are as long as those of the best keep the bounds at a rate."""
    points: list[Point] = []
    search = _search(one, load, bounds, points=points)
    if load.draw is None:
        return _searched(one, load, bounds, rate)
    if not search.kept(rate_index(rate), winner.length, lasting=winner.lasts):
        return None
    return _found(one, load, bounds, search.settle(rate), points)


def _breaks(served: ServingRun, bounds: SloBounds) -> str:
    """Which bounds a whole run breaks, as in "ttft and tpot"; "" for none."""
    return " and ".join(bounds.breaks(served))


def _search(
    one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, *, streams: int = SEEDS, points: list[Point] | None = None
) -> RateSearch:
    """The search of a deployment for its maximum rate; what whole runs were worth is added to `points`."""

    def keep(rate: float, served: ServingRun) -> None:
        if points is not None:
            points.append(
                (answered_rate(served) if load.requests.users else rate, *throughput_and_interactivity(served, one.devices))
            )

    return RateSearch(one.at, load, bounds, tuple(range(streams)), keep)


def _searched(one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, guess: float) -> SimulatedDeployment:
    """A deployment at its maximum rate; of requests that are replayed, at the largest that keeps the bounds."""
    points: list[Point] = []
    guess = guess or 1 / (one.estimate.ttft + bounds.tightest[1] * float(load.requests.output.mean()))
    if load.draw is None:
        found = find_replayed_rate(one.at, load, bounds, guess, NEAR)
    else:
        found = _search(one, load, bounds, points=points).settle(guess)
    return _found(one, load, bounds, found, points)


def _found(
    one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, found: MaxRate, points: Sequence[Point]
) -> SimulatedDeployment:
    """A deployment with its maximum rate, and what its runs were worth."""
    if math.isinf(found.rate):
        raise DesignError(_endless(load, bounds))
    return SimulatedDeployment(one, found, points=tuple(points))


def _endless(load: ServingLoad, bounds: SloBounds) -> str:
    """What to say where bounds are kept whatever comes."""
    return (
        f"workload.requests: {len(load.requests):,} replay a longer trace, "
        f"or bound them tighter, who may take {format_quantity(longest_allowed_time(load, bounds), 's')}"
    )


def holds(one: CandidateDeployment, load: ServingLoad, bounds: SloBounds, rate: float) -> bool:
    """Whether a deployment keeps the SLOs at a rate, for the same streams as at its maximum rate."""
    if load.draw is None:
        return not bounds.broken(simulate_at_rate(one, load, rate, bounds))
    return _search(one, load, bounds).holds(rate)


def simulate_at_rate(one: CandidateDeployment, load: ServingLoad, rate: float, until: SloBounds | StopBounds) -> ServingRun:
    """Simulate a load's requests at a rate, up to where an SLO can no longer be kept."""
    asked = load.at(rate)
    if load.requests.users and load.draw is not None:  # so many have more sessions than there are
        count = enough_requests(load, until if isinstance(until, SloBounds) else SloBounds(), rate)
        asked = load.draw(min(count, load.most or count), load.seed, max(1.0, math.ceil(rate - 1e-9)))
    stop = until.stop(len(asked)) if isinstance(until, SloBounds) else until
    return one.at(asked).serve(asked, stop=stop)


def throughput_and_interactivity(served: ServingRun, devices: int) -> tuple[float, float]:
    """Output tokens per second and device, and per second and user (mean over users). [token/s]"""
    span = float(np.nanmax(served["completed"])) - float(served.requests.arrival[0])
    several = served.requests.output > 1
    each = (served["completed"] - served["first"])[several] / (served.requests.output[several] - 1)
    return float(served.requests.output.sum()) / span / devices, 1 / float(each.mean()) if several.any() else math.nan


def answered_rate(served: ServingRun) -> float:
    """Requests over the time until the last of them is answered. [1/s]"""
    return len(served.requests) / (float(np.nanmax(served["completed"])) - float(served.requests.arrival[0]))


def latency_curve(
    best: SimulatedDeployment, load: ServingLoad, bounds: SloBounds, several: ThreadPoolExecutor
) -> tuple[SimulatedDeployment, tuple[tuple[float, float, float, float, str], ...]]:
    """The best deployment with more complete runs, and its latency against load."""
    known = best.capacity and best.capacity.served

    def at_load(times: float) -> ServingRun:
        return known if known and times == 1.0 else simulate_at_rate(best.candidate, load, times * best.rate, NO_STOP)

    runs = list(several.map(at_load, LOAD_FRACTIONS))
    rows = [
        (
            times,
            answered_rate(run) if load.requests.users else times * best.rate,
            *latency_percentiles(run, bounds.share),
            _breaks(run, bounds),
        )
        for times, run in zip(LOAD_FRACTIONS, runs, strict=True)
    ]
    kept = [
        (row[1], *throughput_and_interactivity(run, best.candidate.devices))
        for row, run in zip(rows, runs, strict=True)
        if not row[-1]
    ]
    return replace(best, points=(*best.points, *kept)), tuple(rows)


def unloaded_latency_text(found: Sequence[CandidateDeployment], load: ServingLoad, bounds: SloBounds) -> list[tuple[bool, str]]:
    """Latency of a lone request on the fastest deployments, against the SLOs, as text.

    A pair per SLO class, or one for all requests: whether no deployment keeps the SLOs, and the text.
    """
    said = []
    for name, some, its in requests_by_class(load, bounds):
        alone, first, tightest = [], some.first(min(len(some), 20)), its.tightest
        for one in _distinct(found):
            gap = 10 * (one.estimate.ttft + float(first.output.max()) * min(tightest[1], LONGEST))
            asked = replace(first, arrival=gap * np.arange(len(first)))
            alone.append(latency_percentiles(one.at(asked).serve(asked, stop=NO_STOP), bounds.share))
        ttft, tpot = (min(values) for values in zip(*alone, strict=True))
        bound = f"{format_quantity(tightest[0], 's')} to the first token and {format_quantity(tightest[1], 's')} a token" + (
            f" of {name}" if name else ""
        )
        took = (
            f"{format_quantity(ttft, 's')} and {format_quantity(tpot, 's')} at best, each by another deployment "
            f"where they differ"
        )
        here = f"{bound}; a request alone takes {took}"
        said.append((ttft > tightest[0] or tpot > tightest[1], here))
    return said


def no_deployment_text(chip: str, said: Sequence[tuple[bool, str]]) -> str:
    """Message that no deployment of a chip keeps the SLOs, with the unloaded latency.

    If no deployment keeps some of them even unloaded, the message names these.
    """
    never = [here for broken, here in said if broken]
    return f"{chip}: no deployment keeps {'; nor '.join(never or [here for _, here in said])}"


def _distinct(found: Sequence[CandidateDeployment]) -> list[CandidateDeployment]:
    """One of each kind of instance."""
    kinds: dict[tuple[Any, ...], CandidateDeployment] = {}
    for one in found:
        kinds.setdefault((one.apart, *(one.values.get(address) for address in TP)), one)
    return list(kinds.values())
