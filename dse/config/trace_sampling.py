"""Requests of a load drawn again: more of them, with another seed, or at another rate."""

from dataclasses import dataclass, field, replace

from dse.config.arrival_times import list_requests_by_rate
from dse.config.session_workloads import read_sessions
from dse.config.slo_classes import assign_slo_classes
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import SloClass
from dse.space.workload_settings import CLOSED, ServingSettings

KEPT, ASKED = 8, 2
"""Sessions of so many seeds and counts are kept, as they take long to draw; and those as so many numbers of users ask them."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Generator of a load's requests for any number, seed and rate.

    Attributes:
        settings: of the load, with arrivals.
        classes: of requests.
        trace: whose lengths these are; None where lengths are generated.
        longest: tokens of a request at most, as the load has that the prices are made for; prompts beyond it are shortened. 0
            for no bound.
    """

    settings: ServingSettings
    classes: tuple[SloClass, ...] = ()
    trace: Requests | None = None
    longest: int = 0
    known: dict[tuple[int, int], Requests] = field(default_factory=dict, repr=False)
    asked: dict[tuple[int, int, float], Requests] = field(default_factory=dict, repr=False)

    def draw_lengths(self, count: int, seed: int) -> Requests:
        """Draw a number of requests of a seed, without times.

        Of a trace they are the first rows, or with `workload.resample` copies of it in other orders.
        """
        settings = self.settings
        if self.trace is None and settings.sessions is not None:
            if (count, seed) not in self.known:
                while len(self.known) >= KEPT:
                    self.known.pop(next(iter(self.known)))
                self.known[count, seed] = self._assign_classes(
                    read_sessions(settings.sessions, mean_lengths(settings), count, seed), seed
                )
            return self.known[count, seed]
        if self.trace is not None:
            if settings.resample:
                return self._assign_classes(self.trace.shuffled_copies(count, seed), seed)
            requests = self.trace.shuffle_order(seed) if settings.shuffle else self.trace
            return self._assign_classes(requests.first_requests(count), seed)
        return self._assign_classes(make_requests([mean_lengths(settings)] * count), seed)

    def _assign_classes(self, requests: Requests, seed: int) -> Requests:
        if self.settings.max_length is not None:
            requests = requests.clip_lengths(self.settings.max_length)
        if self.longest and requests.longest > self.longest:
            requests = requests.clip_lengths(self.longest)
        return assign_slo_classes(requests, self.classes, self.settings, seed)

    def __call__(self, count: int, seed: int, rate: float) -> Requests:
        """So many requests as they come, at a rate, or of so many users where the population is closed. [1/s]"""
        if self.settings.arrivals != CLOSED:
            return list_requests_by_rate(self.draw_lengths(count, seed), replace(self.settings, rate=float(rate)), seed)[0][1]
        key = count, seed, float(round(rate))
        if (requests := self.asked.get(key)) is None:  # many deployments are asked by as many users
            requests = list_requests_by_rate(
                self.draw_lengths(count, seed), replace(self.settings, users=(round(rate),)), seed
            )[0][1]
            while len(self.asked) >= ASKED:
                self.asked.pop(next(iter(self.asked)), None)
            self.asked[key] = requests
        return requests


def mean_lengths(settings: ServingSettings) -> tuple[int, int]:
    """Prompt and output tokens of a request, or of a turn of a session in the mean. [token]

    Raises:
        DesignError: one of them is null.
    """
    prompt, output = settings.prompt, settings.output
    if prompt is None or output is None:
        name = "prompt" if prompt is None else "output"
        raise DesignError(f"workload.{name}: missing; set the tokens of a request, or workload.trace=FILE")
    return prompt, output
