"""Metrics of a serving run from the instants of its requests.

Instants of a request: it *arrives*; it is *first scheduled* when the iteration starts that computes its first prompt
tokens; its prompt is *done* when the iteration ends that makes its first token; it is *completed* when the one ends
that makes its last. TTFT = done - arrival; TBT = the gaps between tokens, over all tokens of all requests but the first
ones; TPOT = (completed - done) / (output - 1), of requests with two tokens or more; latency = completed - arrival.
Percentiles are the smallest value that at least that share does not exceed.

Time is counted from the first arrival to the last completion. The offered load is the rate of requests over the rate
that the same instances serve when some always wait (a closed loop). A load is *overloaded* above 1, *backlogged* above
0.95 or where queues grow by more than chance, else *stable*; a run shorter than a few times the quick requests' latency
is *too short to say*.

Turns of sessions arrive as the conversation goes. For sessions that begin independently, the rate is that of their
requests in the long run; queues are examined while sessions begin. A closed population sends no faster than it is
answered, and its queues do not grow: its load is the number of users over the number from which on they wait for each
other, N X1 / X: X1 is the rate of a single user, who thinks and is answered in turn, X that of the closed loop, and at
X / X1 users the two bounds on the rate meet ([denning1978]). It is *saturated* above 1, where answers take longer by as
much, else *stable*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dse.evaluators.serving.closed_loop import CLEAR_LOAD, MIN_REQUESTS, saturated_rate
from dse.evaluators.serving.simulator import Deployment, ServingRun
from dse.evaluators.serving.steady_state import explain_no_steady_state
from dse.evaluators.serving.steady_state_solver import solve_deployments
from dse.evaluators.serving.sustained_rate import sustained_rate
from dse.space.array_math import Array
from dse.space.requests import Requests
from dse.space.workload import SloClass

LOAD_STATUSES = ("stable", "backlogged", "overloaded", "too short to say", "saturated")
NEAR = 0.95
"""Load above which waiting grows with every further request."""

MIN_DURATION_RATIO = 3.0
"""Duration of the arrivals over the latency of a request from which on a verdict is possible."""

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
GROWTH = 0.05
"""Share of the requests of the second half that must be left in queues at its end, for a load to count as too much."""


@dataclass(frozen=True, slots=True)
class SloTargets:
    """SLO of requests: bounds on TTFT and mean TPOT. [s]

    Numbers, or of shape (requests,) where requests differ.
    """

    ttft: float | Array = float("inf")
    tpot: float | Array = float("inf")


class ClassResult(NamedTuple):
    """Attainment, goodput and latencies of the requests of one SLO class.

    Attributes:
        name: of the class.
        requests: of it.
        attainment: share of them that are served within the bounds of the class.
        goodput: those that are, over the time from the first arrival to the last token of all. [1/s]
        ttft, ttft_p90, tpot: as the metrics of these names; NaN where no request tells. [s]
    """

    name: str
    requests: int
    attainment: float
    goodput: float
    ttft: float
    ttft_p90: float
    tpot: float


class TurnResult(NamedTuple):
    """Latencies and prefix reuse of session turns at some positions.

    Attributes:
        name: of the places, from 1: "1", "2", "3-4", "5-8" and so on.
        requests: of them.
        prompt: tokens, the mean. [token]
        reused: share of prompt tokens found in prefix caches.
        ttft, ttft_p90, tpot, latency: as the metrics of these names; NaN where no request tells. [s]
    """

    name: str
    requests: int
    prompt: float
    reused: float
    ttft: float
    ttft_p90: float
    tpot: float
    latency: float


def run_statistics(served: ServingRun, slo: SloTargets = SloTargets()) -> dict[str, float]:
    """Metrics of a run by name, as `evaluators.accounting.metrics` defines them; NaN without data."""
    requests = served.requests
    done, several, tpot, good = _kept(served, slo)
    ttft, latency = (served["first"] - requests.arrival)[done], (served["completed"] - requests.arrival)[done]
    span = _span(served)
    values = {
        "throughput": float(requests.output[done].sum()) / span,
        "request_throughput": done.sum() / span,
        "goodput": good.sum() / span,
        "slo_attainment": good.sum() / len(requests),
        **_spread("ttft", ttft),
        "tpot": _mean(tpot[several]),
        **_gaps(served.state.gaps["count"], served.state.gaps["seconds"]),
        **_spread("latency", latency),
        "queue_delay": _mean((served["scheduled"] - requests.arrival)[done]),
        "preemptions": served.total["preempted"] / len(requests),
        "recomputed_share": served.total["lost"] / max(1, served.total["prefilled"]),
        **tokens_per_step(served),
        "prefix_hit_rate": float(served["hit"].sum()) / float(requests.prompt.sum()),
        **host_prefix_share(served),
        "queue_growth": queue_growth(served),
        "offered_load": (load := offered_load(served)),
        "load_status": float(LOAD_STATUSES.index(load_status(served, load))),
    }
    return {**values, **_utilisation(served, span)}


def class_results(served: ServingRun, classes: Sequence[SloClass]) -> list[ClassResult]:
    """Results of the requests of each SLO class, by the class's bounds."""
    requests, span = served.requests, _span(served)
    results = []
    for number, slo_class in enumerate(classes):
        done, several, tpot, good = _kept(served, SloTargets(slo_class.ttft, slo_class.tpot))
        mine = requests.kinds == number
        many, kept = int(mine.sum()), int((good & mine).sum())
        ttft = _spread("ttft", (served["first"] - requests.arrival)[done & mine])
        results.append(
            ClassResult(
                slo_class.name,
                many,
                kept / many if many else np.nan,
                kept / span,
                ttft["ttft"],
                ttft["ttft_p90"],
                _mean(tpot[several & mine]),
            )
        )
    return results


def turn_results(served: ServingRun) -> list[TurnResult]:
    """Results of session turns by their position; empty for requests without sessions."""
    requests = served.requests
    if not len(requests.turns):
        return []
    done, several, tpot, _ = _kept(served, SloTargets())
    results, first, last = list[TurnResult](), 1, 1
    while first <= int(requests.turns.max()) + 1:
        mine = (requests.turns + 1 >= first) & (requests.turns + 1 <= last)
        if mine.any():
            ttft, ends = (served[name] - requests.arrival for name in ("first", "completed"))
            spread, prompts = _spread("ttft", ttft[done & mine]), requests.prompt[mine].astype(float)
            results.append(
                TurnResult(
                    f"{first}" if first == last else f"{first}-{last}", int(mine.sum()), float(prompts.mean()),
                    float(served["hit"][mine].sum()) / float(prompts.sum()), spread["ttft"], spread["ttft_p90"],
                    _mean(tpot[several & mine]), _mean(ends[done & mine]),
                )
            )  # fmt: skip
        first, last = last + 1, 2 * last
    return results


def class_and_turn_results(served: ServingRun, classes: Sequence[SloClass]) -> tuple[list[ClassResult], list[TurnResult]]:
    """Results of each SLO class, and of session turns by their position."""
    return class_results(served, classes), turn_results(served)


def _kept(served: ServingRun, slo: SloTargets) -> tuple[Array, Array, Array, Array]:
    """Masks of completed requests and of those with two tokens or more, TPOT, and those within their SLO, shape
    (requests,).
    """
    requests = served.requests
    done = ~np.isnan(served["completed"])
    several = done & (requests.output > 1)
    tpot = np.zeros(len(requests))
    tpot[several] = (served["completed"] - served["first"])[several] / (requests.output[several] - 1)
    return done, several, tpot, done & (served["first"] - requests.arrival <= slo.ttft) & (tpot <= slo.tpot)


def _span(served: ServingRun) -> float:
    """Time from the first arrival to the last token; NaN if no request completed. [s]"""
    done = served["completed"][~np.isnan(served["completed"])]
    return float(done.max()) - float(served.requests.arrival[0]) if len(done) else float("nan")


def host_prefix_share(served: ServingRun) -> dict[str, float]:
    """Share of prompt tokens fetched from the host's prefix cache; recomputed tokens count again."""
    if not any(pool.hosted for pool in served.pools):
        return {}
    return {"prefix_host_hit_rate": served.total["fetched"] / float(served.requests.prompt.sum())}


def tokens_per_step(served: ServingRun) -> dict[str, float]:
    """Output tokens per request and iteration with speculative decoding, mean."""
    total = served.total
    if not served.pools[-1].guesses:
        return {}
    return {"tokens_per_step": 1 + total["guessed"] / total["decoded"] if total["decoded"] else np.nan}


def load_status(served: ServingRun, load: float | None = None) -> str:
    """Verdict on a run, one of `VERDICTS`: whether the instances keep up with the load.

    Args:
        served: a run.
        load: of it, where it is known.
    """
    requests, arrival = served.requests, served.requests.begins
    if served.never or served.stopped:
        return "overloaded"
    if requests.population:
        load = offered_load(served) if load is None else load
        return (
            "too short to say"
            if len(requests) < MIN_DURATION_RATIO * requests.population
            else "saturated"
            if load > 1
            else "stable"
        )
    done = ~np.isnan(served["completed"])
    waited, ran = (served["scheduled"] - requests.arrival)[done], (served["completed"] - served["scheduled"])[done]
    if len(requests.before):  # all of a session
        ran = _lives(served)
    if arrival[-1] == arrival[0]:  # no rate: only whether some wait longer than they run
        return "backlogged" if waited.mean() > ran.mean() else "stable"
    load = offered_load(served) if load is None else load
    if load < CLEAR_LOAD and not queue_growth(served):
        return "stable"
    if load > 1 and len(requests) >= MIN_REQUESTS:  # whatever comes after
        return "overloaded"
    if arrival[-1] - arrival[0] < MIN_DURATION_RATIO * np.quantile(ran, 0.1):
        return "too short to say"
    if load > 1:
        return "overloaded"
    return "backlogged" if load > NEAR or queue_growth(served) > GROWTH else "stable"


def _lives(served: ServingRun) -> Array:
    """From the begin of each session to its last token, where that is made. [s]"""
    requests = served.requests
    first, ends = requests.sessions, np.full(len(requests), -np.inf)
    np.maximum.at(ends, first, np.where(np.isnan(served["completed"]), np.inf, served["completed"]))
    begins = np.flatnonzero(requests.turns == 0)
    lives = ends[begins] - requests.arrival[begins]
    return np.asarray(lives[np.isfinite(lives)])


def offered_load(served: ServingRun) -> float:
    """Offered load: arrival rate over the closed-loop rate; infinite for simultaneous arrivals. [1]

    That of one request is unknown, NaN. Where the steady state's estimate is clearly low, the estimate is returned.
    For a closed population: users over the number from which on they wait for each other.
    """
    requests = served.requests
    if requests.is_alone:
        return float("nan")
    if requests.population and not served.never:
        alone = served.deployment.serve(requests.as_closed_loop(1))
        span = float(np.nanmax(alone["completed"]))
        return requests.population * len(requests) / span / saturated_rate(served.deployment, requests)
    if served.never or not np.isfinite(requests.rate):
        return float("inf")
    deployment = served.deployment
    estimate = _estimated(deployment, requests)
    if estimate and requests.rate < CLEAR_LOAD * estimate:
        return requests.rate / estimate
    return requests.rate / saturated_rate(deployment, requests)


def _estimated(deployment: Deployment, requests: Requests) -> float:
    """What instances serve where some always wait, by their steady state; where it has none, with no regard to queues. [1/s]"""
    if explain_no_steady_state(deployment.pools, requests):
        return sustained_rate(deployment, requests, tpot=float("inf")).rate
    return float(solve_deployments([deployment], requests, prompts=False)[0]["saturated"])


def queue_growth(served: ServingRun) -> float:
    """Growth of queues over the second half of the arrivals, relative to its requests. [1]

    In a fluid model, 1 - served load / offered load. Growth within three standard deviations of as many Poisson
    arrivals, or below a twentieth of the requests that the instances run at a time, counts as 0. 0 for simultaneous
    arrivals.
    """
    if served.never:
        return 1.0
    arrival, queued = served.requests.arrival, served["queued"]
    if len(served.requests.before):
        if served.requests.population:
            return 0.0
        order = np.argsort(arrival, kind="stable")  # while sessions begin
        order = order[arrival[order] <= served.requests.begins[-1]]
        arrival, queued = arrival[order], queued[order]
    half = int(np.searchsorted(arrival, (arrival[0] + arrival[-1]) / 2))
    coming = len(arrival) - half
    if arrival[-1] == arrival[0] or coming < 2:
        return 0.0
    more = int(queued[-1] - queued[half])
    slots = sum(pool.instances * pool.batch for pool in served.pools)
    return more / coming if more > 3 * coming**0.5 and queued[-1] > min(slots, coming) * GROWTH else 0.0


def _utilisation(served: ServingRun, span: float) -> dict[str, float]:
    s, metrics = served.state.instances, {}
    names = ("prefill", "decode") if len(served.pools) == 2 else ("prefill",)
    shares = s["busy"] / s["stages"] / span
    for number, name in enumerate(names):
        metrics[f"{name}_busy_share"] = float(shares[s["pool"] == number].mean())
    if len(names) == 1:
        metrics["decode_busy_share"] = metrics["prefill_busy_share"]
    memories = [served.pools[number].memory for number in s["pool"]]
    blocks = np.array([max(1, memory.blocks + memory.pages) for memory in memories])
    for name, metric in (("by_batch", "blocked_by_batch_share"), ("by_memory", "blocked_by_kv_share")):
        each = [float(s[name][s["pool"] == number].mean()) / span for number in range(len(served.pools))]
        metrics[metric] = max(each)
    return metrics | {
        "kv_utilisation_mean": float((s["area"] / blocks / span).mean()),
        "kv_utilisation_peak": float((s["peak"] / blocks).max()),
    }


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _spread(name: str, values: Array) -> dict[str, float]:
    if not len(values):
        return dict.fromkeys((name, *(f"{name}_{at}" for at in PERCENTILES)), float("nan"))
    percentile = np.percentile(values, [100 * share for share in PERCENTILES.values()], method="inverted_cdf")
    return {name: float(values.mean())} | {
        f"{name}_{at}": float(value) for at, value in zip(PERCENTILES, percentile, strict=True)
    }


def _gaps(counts: Array, sums: Array) -> dict[str, float]:
    """Mean and percentiles of the gaps between tokens; a percentile is the mean of its bin, 1/512 of its value wide at most."""
    total = int(counts.sum())
    if not total:
        return dict.fromkeys(("tbt", *(f"tbt_{at}" for at in PERCENTILES)), float("nan"))
    up_to = np.cumsum(counts)
    places = [int(np.searchsorted(up_to, share * total)) for share in PERCENTILES.values()]
    gaps = {"tbt": float(sums.sum()) / total}
    return gaps | {f"tbt_{at}": float(sums[place] / counts[place]) for at, place in zip(PERCENTILES, places, strict=True)}
