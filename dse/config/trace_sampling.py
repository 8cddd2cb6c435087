"""Requests of a load drawn again: more of them, with another seed, or at another rate."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dse.config.arrival_times import list_requests_by_rate
from dse.config.session_workloads import CLOSED, read_sessions
from dse.config.slo_classes import assign_slo_classes
from dse.config.workload_fields import read_whole_numbers
from dse.space.requests import Requests, make_requests
from dse.space.workload import SloClass

KEPT, ASKED = 8, 2
"""Sessions of so many seeds and counts are kept, as they take long to draw; and those as so many numbers of users ask them."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Generator of a load's requests for any number, seed and rate.

    Attributes:
        spec: fields of the workload.
        classes: of requests.
        trace: whose lengths these are; None where lengths are generated.
        longest: tokens of a request at most, as the load has that the prices are made for; prompts beyond it are shortened. 0
            for no bound.
    """

    spec: Mapping[str, Any]
    classes: tuple[SloClass, ...] = ()
    trace: Requests | None = None
    longest: int = 0
    known: dict[tuple[int, int], Requests] = field(default_factory=dict, repr=False)
    asked: dict[tuple[int, int, float], Requests] = field(default_factory=dict, repr=False)

    def draw_lengths(self, count: int, seed: int) -> Requests:
        """Draw a number of requests of a seed, without times.

        Of a trace they are the first rows, or with `workload.resample` copies of it in other orders.
        """
        if self.trace is None and self.spec.get("sessions") is not None:
            if (count, seed) not in self.known:
                while len(self.known) >= KEPT:
                    self.known.pop(next(iter(self.known)))
                self.known[count, seed] = self._assign_classes(read_sessions(dict(self.spec), count, seed), seed)
            return self.known[count, seed]
        if self.trace is not None:
            if self.spec.get("resample"):
                return self._assign_classes(self.trace.shuffled_copies(count, seed), seed)
            requests = self.trace.shuffle_order(seed) if self.spec.get("shuffle") else self.trace
            return self._assign_classes(requests.first_requests(count), seed)
        each = (read_whole_numbers(dict(self.spec), "prompt")[0], read_whole_numbers(dict(self.spec), "output")[0])
        return self._assign_classes(make_requests([each] * count), seed)

    def _assign_classes(self, requests: Requests, seed: int) -> Requests:
        if self.spec.get("max_length") is not None:
            requests = requests.clip_lengths(read_whole_numbers(dict(self.spec), "max_length")[0])
        if self.longest and requests.longest > self.longest:
            requests = requests.clip_lengths(self.longest)
        return assign_slo_classes(requests, self.classes, self.spec, seed)

    def __call__(self, count: int, seed: int, rate: float) -> Requests:
        """So many requests as they come, at a rate, or of so many users where the population is closed. [1/s]"""
        if self.spec["arrivals"] != CLOSED:
            return list_requests_by_rate(self.draw_lengths(count, seed), {**self.spec, "rate": f"{rate!r} Hz"}, seed)[0][1]
        key = count, seed, float(round(rate))
        if (requests := self.asked.get(key)) is None:  # many deployments are asked by as many users
            requests = list_requests_by_rate(self.draw_lengths(count, seed), {**self.spec, "users": round(rate)}, seed)[0][1]
            while len(self.asked) >= ASKED:
                self.asked.pop(next(iter(self.asked)), None)
            self.asked[key] = requests
        return requests
