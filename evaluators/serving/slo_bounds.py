"""SLO bounds of a load, and the largest rate at which one stream of requests keeps them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, log, nan
from typing import NamedTuple

import numpy as np

from dse.evaluators.serving.simulator import ServingRun
from dse.evaluators.serving.simulator_state import StopBounds
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.workload import ServingLoad, SloClass

RATE_RESOLUTION = 1.02
"""Ratio of a rate that breaks a bound to one that keeps all, at most, between which no further one is tried."""

BREAKING_FACTOR = 1.05
"""Times the largest rate: there a bound is broken, which is tried."""

DIGITS = 4
"""Of a rate that is tried."""

STEP, FARTHEST = BREAKING_FACTOR, 4.0
"""Ratio from the guess to the first neighbouring rate, and the largest between two rates before a bracket is found."""

EVERY = slice(None)
"""All requests of a run."""

MIN_RATE_FACTOR = 2.0**-20
"""Times the guess: rates below count as none."""


class SloBounds(NamedTuple):
    """SLO that a share of the requests must keep: TTFT and TPOT, per class where there are classes.

    Attributes:
        ttft, tpot: time to first token, and mean time per output token of requests with two or more; of classes, the most that
            one of them allows. [s]
        share: of the requests that keep it: 0.9 for the 90th percentile.
        classes: SLO classes with bounds of their own; empty if the bounds above apply to all requests.
    """

    ttft: float = inf
    tpot: float = inf
    share: float = 0.9
    classes: tuple[SloClass, ...] = ()

    @property
    def bounds_by_class(self) -> tuple[SloClass, ...]:
        """The SLO classes, or one class without a name."""
        return self.classes or (SloClass("", self.ttft, self.tpot),)

    @property
    def tightest(self) -> tuple[float, float]:
        """Tightest TTFT and TPOT bounds of any class. [s]"""
        return min(bound.ttft for bound in self.bounds_by_class), min(bound.tpot for bound in self.bounds_by_class)

    def scale_bounds(self, times: float) -> "SloBounds":
        """The same SLO with bounds scaled by a factor."""
        classes = tuple(
            replace(slo_class, ttft=times * slo_class.ttft, tpot=times * slo_class.tpot) for slo_class in self.classes
        )
        return self._replace(ttft=times * self.ttft, tpot=times * self.tpot, classes=classes)

    def count_allowed_misses(self, count: int) -> int:
        """Number of `count` requests that may miss the SLO.

        The percentile is the least value that the share keeps.
        """
        return count - ceil(self.share * count - 1e-9)

    def stop(self, count: int) -> StopBounds:
        """Bounds at which a run of `count` requests can be stopped, since the SLO can no longer be kept."""
        return StopBounds(ttft=self.ttft, tpot=self.tpot, misses=self.count_allowed_misses(count))

    def count_by_class(self, served: ServingRun, part: slice = EVERY) -> list[tuple[str, int, int, int, int]]:
        """Requests of each class, and those that miss TTFT, TPOT, and either of them.

        Args:
            served: a run.
            part: of its requests, those that count.
        """
        requests, counts = served.requests, list[tuple[str, int, int, int, int]]()
        output, completed, token = requests.output[part], served["completed"][part], served["first"][part]
        late_by = token - requests.arrival[part]
        each = (completed - token) / np.maximum(output - 1, 1)
        never = np.isnan(completed)
        for number, class_bounds in enumerate(self.bounds_by_class):
            mine = requests.kinds[part] == number if self.classes else np.ones(len(output), bool)
            late, slow = mine & (never | (late_by > class_bounds.ttft)), mine & (each > class_bounds.tpot) & (output > 1)
            counts.append((class_bounds.name, int(mine.sum()), int(late.sum()), int(slow.sum()), int((late | slow).sum())))
        return counts

    def attainment(self, served: ServingRun, part: slice = EVERY) -> float:
        """Share of a run's requests that keep both bounds, for the class with the lowest share."""
        return min((1 - either / many for _, many, _, _, either in self.count_by_class(served, part) if many), default=1.0)

    def most_missed_bound(self, served: ServingRun) -> str:
        """Bound that most requests miss, as "ttft" or "tpot of chat"; empty string if none is missed."""
        if served.never:
            return "memory"
        if served.stopped:
            return "tpot" if served.total["slow"] > served.total["late"] else "ttft"
        worst = max(self.count_by_class(served), key=lambda counts: counts[4] / max(counts[1], 1))
        return _named(worst, "tpot" if worst[3] > worst[2] else "ttft") if worst[4] else ""

    def broken_bound(self, served: ServingRun) -> str:
        """Bound that a run violates, as in `missed`; empty string if the share keeps both."""
        if not (served.never or served.stopped) and not self.list_broken_bounds(served):
            return ""
        return self.most_missed_bound(served)

    def list_broken_bounds(self, served: ServingRun) -> list[str]:
        """All bounds that a whole run violates, as "ttft" or "ttft of chat".

        Where either alone is kept by the share, and both together are not, the one that more requests miss.
        """
        violations = list[str]()
        for count in self.count_by_class(served):
            _, many, late, slow, either = count
            if either > self.count_allowed_misses(many):
                most = max(late, slow)
                for name, missed in (("ttft", late), ("tpot", slow)):
                    if missed > self.count_allowed_misses(many) or missed == most:
                        violations.append(_named(count, name))
        return violations


def _named(worst_limit: tuple[str, int, int, int, int], bound: str) -> str:
    return f"{bound} of {worst_limit[0]}" if worst_limit[0] else bound


RateSimulator = Callable[[float, StopBounds], ServingRun]
"""A run at a rate, up to a bound."""


@dataclass(frozen=True, eq=False)
class CapacityResult:
    """Largest rate at which one stream of requests keeps its SLO, with the rates tried.

    Attributes:
        rate: the largest that was found to keep the bounds; 0 where none does. [1/s]
        served: the run at that rate; None where there is none.
        binds: the bound that is violated at `BREAKING_FACTOR` times that rate, or at the slowest rate.
        tried: by rate, which bound was broken.
    """

    rate: float
    served: ServingRun | None
    binds: str
    tried: dict[float, str]


def find_max_rate(
    play: RateSimulator, bounds: SloBounds, count: int, guess: float, near: float = RATE_RESOLUTION
) -> CapacityResult:
    """Find the largest rate at which one stream of requests keeps the SLO.

    Rates form a geometric grid around the guess that includes `BREAKING_FACTOR`, each rounded to `DIGITS` digits as
    printed: near the bounds, another rounding breaks one. They are bracketed in growing steps, and the bracket is
    halved to one ratio. At `BREAKING_FACTOR` times the result a bound is broken: where the draw of arrivals has it
    otherwise, the search continues from there.

    Args:
        play: simulation of the same requests at any rate.
        bounds: to keep.
        count: requests.
        guess: where to begin. [1/s]
        near: the largest ratio of two rates side by side.
    """
    tried: dict[float, str] = {}
    runs: dict[float, ServingRun] = {}
    rates: dict[int, float] = {}
    beyond = max(1, ceil(log(BREAKING_FACTOR) / log(near)))
    first, most = (round(beyond * log(ratio) / log(BREAKING_FACTOR)) for ratio in (STEP, FARTHEST))
    far = int(beyond * log(1 / MIN_RATE_FACTOR) / log(BREAKING_FACTOR))

    def get_rate(place: int) -> float:
        rate = float(guess * BREAKING_FACTOR ** (place / beyond))
        return rates.setdefault(place, float(f"{rate:.{DIGITS}g}"))

    def find_broken_bound(place: int) -> str:
        rate = get_rate(place)
        if rate not in tried:
            served = play(rate, bounds.stop(count))
            tried[rate] = bounds.broken_bound(served)
            if not tried[rate]:
                runs[rate] = served
        return tried[rate]

    low, high, step = 0, 0, first
    if find_broken_bound(0):
        while find_broken_bound(low):
            high, low, step = low, low - step, min(2 * step, most)
            if low < -far:
                return CapacityResult(0.0, None, tried[get_rate(high)], tried)
    else:
        while not find_broken_bound(high):
            low, high, step = high, high + step, min(2 * step, most)
            if high > far:
                return CapacityResult(inf, runs[get_rate(low)], "", tried)
    while True:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if find_broken_bound(middle) else (middle, high)
        rates[low + beyond] = BREAKING_FACTOR * get_rate(low)
        if why := find_broken_bound(low + beyond):
            return CapacityResult(get_rate(low), runs[get_rate(low)], why, tried)
        low = high = low + beyond
        while not find_broken_bound(high):
            low, high = high, high + beyond


def percentile(values: Array, share: float) -> float:
    """Smallest value that at least a share of the values does not exceed; NaN for no values."""
    return float(np.percentile(values, 100 * share, method="inverted_cdf")) if len(values) else nan


def latency_percentiles(served: ServingRun, share: float, kind: int | None = None) -> tuple[float, float]:
    """Percentiles of TTFT and TPOT over completed requests, of one class if given. [s]"""
    done = ~np.isnan(served["completed"]) & (True if kind is None else served.requests.kinds == kind)
    several = done & (served.requests.output > 1)
    ttft = (served["first"] - served.requests.arrival)[done]
    tpot = (served["completed"] - served["first"])[several] / (served.requests.output[several] - 1)
    return percentile(ttft, share), percentile(tpot, share)


def make_slo_bounds(load: ServingLoad, share: float) -> SloBounds:
    """SLO bounds that a share of a load's requests must keep, or of those of each class.

    Raises:
        DesignError: a share that is none, or no bound at all.
    """
    every = load.classes or (load,)
    bounds = SloBounds(max(bound.ttft for bound in every), max(bound.tpot for bound in every), share, load.classes)
    if not 0 < share <= 1:
        raise DesignError(f"slo_percentile: must be above 0 and at most 100, got {100 * share:g}")
    if min(bounds.tightest) == inf:
        raise DesignError("workload: no SLO is set; set workload.ttft and workload.tpot")
    return bounds
