"""What a run is worth, from the instants of its requests.

Instants of a request: it *arrives*; it is *first scheduled* when the iteration starts that computes its first prompt tokens;
its prompt is *done* when the iteration ends that makes its first token; it is *completed* when the one ends that makes its
last. From these: time to first token = done - arrival; time between tokens = the gaps between tokens, over all tokens of all
requests but the first ones; time per output token = (completed - done) / (output - 1), of requests with two tokens or more;
end to end = completed - arrival. Percentiles are the smallest value that at least that share does not exceed.

Time is counted from the first arrival to the last completion. A load is *overloaded* where queues grow as long as requests
come; *backlogged* where requests wait longer than they are served, but queues do not keep growing; else *stable*.
"""

from dataclasses import dataclass

import numpy as np

from dse.evaluators.serving.loop import Served
from dse.space.elementwise import Array

VERDICTS = ("stable", "backlogged", "overloaded")
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
GROWTH = 0.05
"""Share of the requests of the second half that must be left in queues at its end, for a load to count as too much."""


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to count as good: time to first token, and mean time per output token. [s]"""

    ttft: float = float("inf")
    tpot: float = float("inf")


def measures(served: Served, slo: Slo = Slo()) -> dict[str, float]:
    """Metrics by name, as `evaluators.account.metrics` defines them; NaN where no request tells."""
    requests = served.requests
    done = ~np.isnan(served["completed"])
    ttft, latency = (served["first"] - requests.arrival)[done], (served["completed"] - requests.arrival)[done]
    several = done & (requests.output > 1)
    tpot = np.zeros(len(requests))
    tpot[several] = (served["completed"] - served["first"])[several] / (requests.output[several] - 1)
    good = (ttft <= slo.ttft) & (tpot[done] <= slo.tpot)
    end = float(served["completed"][done].max()) if done.any() else np.nan
    span = end - float(requests.arrival[0])
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
        "recomputed": served.total["lost"] / max(1, served.total["prefilled"]),
        "prefix_reused": float(served["hit"].sum()) / float(requests.prompt.sum()),
        "queue_growth": growth(served),
        "load_verdict": float(VERDICTS.index(verdict(served))),
    }
    return {**values, **_utilisation(served, span)}


def verdict(served: Served) -> str:
    """A word of `VERDICTS`: whether the instances keep up with what comes."""
    arrival = served.requests.arrival
    if served.never or served.stopped or growth(served) > GROWTH:
        return "overloaded"
    done = ~np.isnan(served["completed"])
    waited, ran = (served["scheduled"] - arrival)[done], (served["completed"] - served["scheduled"])[done]
    return "backlogged" if waited.mean() > ran.mean() else "stable"


def growth(served: Served) -> float:
    """By how much queues are longer at the end of the second half of the arrivals than at its start, over its requests.

    In a fluid, 1 - served load / offered load. What lies within three standard deviations of as many Poisson arrivals, or
    leaves less in queues than a twentieth of what the instances run at a time, is no growth. 0 where requests come at once.
    """
    if served.never:
        return 1.0
    arrival, queued = served.requests.arrival, served["queued"]
    half = int(np.searchsorted(arrival, (arrival[0] + arrival[-1]) / 2))
    coming = len(arrival) - half
    if arrival[-1] == arrival[0] or coming < 2:
        return 0.0
    more = int(queued[-1] - queued[half])
    slots = sum(pool.instances * pool.batch for pool in served.pools)
    return more / coming if more > 3 * coming**0.5 and queued[-1] > min(slots, coming) * GROWTH else 0.0


def _utilisation(served: Served, span: float) -> dict[str, float]:
    s, found = served.state.instances, {}
    names = ("prefill", "decode") if len(served.pools) == 2 else ("prefill",)
    shares = s["busy"] / s["stages"] / span
    for number, name in enumerate(names):
        found[f"{name}_busy"] = float(shares[s["pool"] == number].mean())
    if len(names) == 1:
        found["decode_busy"] = found["prefill_busy"]
    blocks = np.array([max(1, served.pools[number].memory.blocks) for number in s["pool"]])
    return found | {"kv_mean": float((s["area"] / blocks / span).mean()), "kv_peak": float((s["peak"] / blocks).max())}


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _spread(name: str, values: Array) -> dict[str, float]:
    if not len(values):
        return dict.fromkeys((name, *(f"{name}_{at}" for at in SHARES)), float("nan"))
    found = np.percentile(values, [100 * share for share in SHARES.values()], method="inverted_cdf")
    return {name: float(values.mean())} | {f"{name}_{at}": float(value) for at, value in zip(SHARES, found, strict=True)}


def _gaps(counts: Array, sums: Array) -> dict[str, float]:
    """Mean and percentiles of the gaps between tokens; a percentile is the mean of its bin, 1/512 of its value wide at most."""
    total = int(counts.sum())
    if not total:
        return dict.fromkeys(("tbt", *(f"tbt_{at}" for at in SHARES)), float("nan"))
    up_to = np.cumsum(counts)
    places = [int(np.searchsorted(up_to, share * total)) for share in SHARES.values()]
    found = {"tbt": float(sums.sum()) / total}
    return found | {f"tbt_{at}": float(sums[place] / counts[place]) for at, place in zip(SHARES, places, strict=True)}
