"""Latency of one design against the arrival rate, up to the largest rate that keeps its SLO bounds.

All rates have one random stream: its gaps are scaled, nothing else changes. Requests that can be drawn are drawn in the
number that a rate needs (`enough_requests`); a replayed trace keeps the requests that it has.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.evaluators import evaluate
from dse.space.array_math import Array
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.workload import ServingLoad, Workload

LATENCIES = ("ttft_p50", "ttft_p90", "ttft_p99", "tpot", "tbt_p50", "tbt_p90", "tbt_p99")
"""Metrics that are drawn against the rate, as far as a fidelity has them."""

ATTAINMENT = "slo_attainment"
USUAL_SHARE = 0.9
"""Share of the requests that must keep their SLO where nothing states one, as of ``workload.rate=max``."""

OCTAVES, HALVINGS = 6, 6
"""Factors of two below saturation at which the largest rate is bracketed, and halvings of the bracket: to 1.1 %."""

POINTS, BEYOND = 12, 1.25
"""Rates of a curve, and its end as a multiple of the largest rate; saturation ends it earlier."""


@dataclass(frozen=True)
class LoadCurve:
    """Latency of one design against the arrival rate.

    Attributes:
        rates: ascending. [1/s], shape (rates,)
        metrics: latencies [s] and SLO attainment [-], by name, shape (rates,).
        max_rate: the largest rate at which `share` of the requests keeps the SLO; 0 for none. [1/s]
        is_known: whether the largest rate was known before, as a metric of the design; else it is of these very requests.
        saturated: the rate at which queues grow without bound. [1/s]
        share: of the requests that must keep the SLO. [-]
        bounds: of each SLO class: its name, TTFT and TPOT. [s]
        requests: number of requests at the largest rate.
        fidelity: of the evaluation.
    """

    rates: Array
    metrics: dict[str, Array]
    max_rate: float
    is_known: bool
    saturated: float
    share: float
    bounds: tuple[tuple[str, float, float], ...]
    requests: int
    fidelity: str


def latency_against_load(
    design: Design, load: ServingLoad, fidelity: str, share: float = 0.0, max_rate: float = 0.0
) -> LoadCurve:
    """Latency of a design at rates up to `BEYOND` times its largest, or up to saturation.

    Args:
        design: one design.
        load: requests and SLO bounds; their own rate does not count.
        fidelity: of the evaluation.
        share: of the requests that must keep the SLO; 0 for that of the load, or else `USUAL_SHARE`.
        max_rate: the largest rate where it is known; 0 to look for it. [1/s]

    Raises:
        DesignError: the load has users or requests at once in place of a rate.
    """
    if not math.isfinite(load.requests.rate):
        raise DesignError(
            "workload.arrivals: latency against load needs requests that arrive at a rate, "
            f"got {'a closed loop of users' if load.requests.users else 'requests all at once'}; use poisson"
        )
    share = share or load.largest or USUAL_SHARE
    load = replace(load, largest=0.0)
    saturated = _saturated_rate(design, load, fidelity)
    rate = max_rate or _largest_rate(design, load, fidelity, share, saturated)
    end = min(saturated, BEYOND * rate) if rate else saturated
    rates = np.linspace(end / POINTS, end, POINTS)
    if rate and not np.isclose(rates, rate, rtol=1e-9, atol=0.0).any():
        rates = np.sort(np.append(rates, rate))
    values = _metrics_at(design, load, fidelity, rates, (*LATENCIES, ATTAINMENT))
    kept = {name: value for name, value in values.items() if np.isfinite(value).any()}
    classes = [(slo_class.name, slo_class.ttft, slo_class.tpot) for slo_class in load.classes] or [("", load.ttft, load.tpot)]
    count = len(_requests_at(load, rate or end).requests)
    return LoadCurve(rates, kept, rate, bool(max_rate), saturated, share, tuple(classes), count, fidelity)


def _saturated_rate(design: Design, load: ServingLoad, fidelity: str) -> float:
    """Rate that the deployment can serve in the long run. [1/s]"""
    offered = _metrics_at(design, load, fidelity, [load.rate], ("offered_load",))["offered_load"]
    return float(load.rate / offered[0])


def _largest_rate(design: Design, load: ServingLoad, fidelity: str, share: float, saturated: float) -> float:
    """Largest rate below the first that breaks the SLO, by bisection on the ratio of rates; 0 for none. [1/s]"""

    def keeps(rates: Sequence[float]) -> list[bool]:
        return list(_metrics_at(design, load, fidelity, rates, (ATTAINMENT,))[ATTAINMENT] >= share)

    octaves = [saturated * 2.0**-octave for octave in range(OCTAVES, -1, -1)]
    kept = keeps(octaves)
    if all(kept):
        return saturated
    first = kept.index(False)
    if not first:
        return 0.0
    low, high = octaves[first - 1], octaves[first]
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps([middle])[0] else (low, middle)
    return low


def _metrics_at(
    design: Design, load: ServingLoad, fidelity: str, rates: Sequence[float] | Array, names: Sequence[str]
) -> dict[str, Array]:
    """Metrics of a design at some rates, by name, shape (rates,); those that the fidelity lacks are left out."""
    cases = tuple(_requests_at(load, float(rate)) for rate in rates)
    outcomes = evaluate(stack_designs([design]), Workload("", cases), fidelity=fidelity, cases=True, metrics=names)
    outcomes.require_compatible()
    return {name: outcomes.cases[name][:, 0] for name in names if name in outcomes.cases}


def _requests_at(load: ServingLoad, rate: float) -> ServingLoad:
    """The load at another rate: drawn in the number that the rate needs, or the same requests faster or slower."""
    if load.draw is None:
        return replace(load, requests=load.requests_at(rate), said=rate if load.said else 0.0)
    from dse.evaluators.serving.max_rate import enough_requests  # with compiled loops, which a page without served loads spares
    from dse.evaluators.serving.prefill_replay import MAX_REQUESTS
    from dse.evaluators.serving.slo_bounds import make_slo_bounds

    needed = enough_requests(load, make_slo_bounds(load, load.largest or USUAL_SHARE), rate)
    count = min(max(needed, len(load.requests)), load.most or MAX_REQUESTS, MAX_REQUESTS)
    return replace(load, requests=load.draw(count, load.seed, rate), said=rate)
