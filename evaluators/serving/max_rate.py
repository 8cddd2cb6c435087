"""Maximum rate of a deployment: one definition for ``dse capacity`` and for the metric `max_rate`.

The maximum rate is the largest at which the lower 95 % bound of the mean attainment reaches the given share. The mean
is over `SEEDS` streams of arrivals, and over their first halves alike, so that streams half as long give the same
verdict. Attainment is the share of a stream's requests that keep both SLOs (of the class that keeps them least, where
there are classes). Near saturation, queues grow for thousands of requests before they settle: the deciding streams are
several times as long as those of the first search. Rates above the closed-loop rate of the instances never last,
whatever a short run shows, and are not tried.

Streams are the same for all rates, deployments and SLOs: those of seed, seed + 1 and so on, faster or slower. Rates are
those of a fixed grid, about 1 % apart, so that a result does not depend on the start of its search. For a closed
population a rate is a number of users, each of whom has as many sessions; as all begin with their first turn, middle
halves count.

Requests that cannot be drawn again, as those of a replayed trace, have another definition: the largest rate at which
this one stream keeps its SLOs (`slo_bounds.find_max_rate`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dse.evaluators.serving.closed_loop import saturated_rate
from dse.evaluators.serving.simulator import NO_STOP, Deployment, ServingRun
from dse.evaluators.serving.simulator_state import StopBounds
from dse.evaluators.serving.slo_bounds import RATE_RESOLUTION, SloBounds, find_max_rate
from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.workload import ServingLoad

SEEDS = 5

STUDENT = 2.132
"""95 % of Student's t of `SEEDS` - 1 degrees of freedom lies below."""

USUAL, LONG = 2000, 5
"""Least requests of the first streams; and multiples of a request's allowed time over which they arrive."""

SESSIONS, DOZEN = 2, 12
"""Sessions, and requests, that each user of a closed population has at least."""

MOST_PLAYED = 40_000
"""Requests of the first streams at most."""

LASTING, LASTING_USERS, LEAST_LASTING = 4, 3, 8
"""Times the first streams that those which decide are long, of a rate and of users; and times `USUAL` requests, at least."""

ONE_STEP, ONE_NEAR = 24, 6
"""Grid steps to the next number of users, and to the largest, after one stream gave an approximate number."""

LENGTHS_PER_OCTAVE = 4
"""Numbers of requests per octave for streams of users, since sessions take long to draw."""


RELAXATIONS = 3
"""Relaxation times of a queue that a stream which decides has at least, where it is not longer than `LONGEST_STREAM`."""

LONGEST_STREAM = 1 << 16
"""Most requests of a stream unless the first ones are longer; they take about a second."""

MOST_BLOCKS = 4_000_000
"""Most hash blocks in the prompts of a stream, beyond the first streams."""

DECADE = 350
"""Rates of the grid from one to ten: steps of 0.01 up to two, of 0.02 up to five, of 0.05 beyond."""

FAR = 6 * DECADE
"""Places of the grid below the first rate, at which a rate counts as none."""

MOST_CLOSED = 200_000
"""Requests of the first stream of a closed population at most."""

SHARED = 0.9
"""Of the sessions that there are, users at most, as other streams have fewer sessions."""

THIRDS = 60
"""Times that a third is left out where the largest lower bound is looked for."""

RANGED = 2
"""Places of the grid to which the largest rates of single streams are looked for."""

SURE = 0.999
"""Times the saturated rate: the largest that is tried."""

CLOSED = 2 * USUAL
"""Most requests of the closed loop that gives the saturated rate during the search."""


@dataclass(frozen=True, eq=False)
class MaxRate:
    """Result of a search for the maximum rate of a deployment.

    Attributes:
        rate: the maximum rate; 0 for none, infinite if the SLO is kept at any rate. [1/s]
        served: the run of the stream with which the rate is confirmed; None where there is none.
        binds: the SLO bound that is violated beyond the rate.
        count, seed: of the requests of that stream.
        range: the largest rates of single streams, the least and the most; None where there is one stream. [1/s]
        lasts: whether the verdict is the same of streams half as long.
        attained: lower bound of the mean attainment. [1]
        runs: number of simulated runs.
        length: of the streams, as of `RateSearch.count_requests`.
        grid: the largest rate of the grid that is kept, of which `rate` has fewer digits. [1/s]
    """

    rate: float
    served: ServingRun | None
    binds: str
    count: int = 0
    seed: int = 0
    range: tuple[float, float] | None = None
    lasts: bool = False
    attained: float = math.nan
    runs: int = 0
    length: int = 1
    grid: float = 0.0


def longest_allowed_time(load: ServingLoad, bounds: SloBounds) -> float:
    """Time that a request of mean length may take under the loosest SLOs. [s]"""
    ttft = max((bound.ttft for bound in bounds.bounds_by_class if bound.ttft < math.inf), default=0.0)
    tpot = max((bound.tpot for bound in bounds.bounds_by_class if bound.tpot < math.inf), default=0.0)
    return ttft + float(load.requests.output.mean()) * tpot


def enough_requests(load: ServingLoad, bounds: SloBounds, rate: float) -> int:
    """Requests of the first streams: arrivals over `LONG` times the time that one request may take.

    For a closed population the rate is users, each of whom has `SESSIONS` sessions and at least a `DOZEN` requests.
    """
    if load.requests.users:
        turns = len(load.requests) / int((load.requests.turns == 0).sum())
        octaves = math.log2(max(1.0, max(SESSIONS * turns, DOZEN) * rate / USUAL))
        return 100 * math.ceil(USUAL * 2 ** (math.ceil(octaves * LENGTHS_PER_OCTAVE) / LENGTHS_PER_OCTAVE) / 100)
    return max(USUAL, 1000 * math.ceil(LONG * longest_allowed_time(load, bounds) * rate / 1000))


def relaxation(bounds: SloBounds, rate: float) -> float:
    """Requests until a queue is independent of its start, if the TTFT share waits at most its SLO.

    In heavy traffic the backlog of random arrivals to servers of constant rate is a reflected Brownian motion:
    exponential in the long run, with mean `1 / (2 rate spare)` and relaxation `2 / (rate spare ** 2)`, where
    `spare` is the unused share of the service rate [kingman1961].

    >>> relaxation(SloBounds(ttft=1.0, share=0.9), 100.0) > 15_000
    True
    """
    waits = max((bound.ttft for bound in bounds.bounds_by_class if bound.ttft < math.inf), default=0.0)
    return 8 * (rate * waits / math.log(1 - min(bounds.share, 0.999))) ** 2


def decisive(load: ServingLoad, bounds: SloBounds, rate: float, first: int) -> int:
    """Requests of the deciding streams: the first streams doubled until queues have settled. [1]

    Args:
        load, bounds: what is served, and what is to be kept.
        rate: about the largest; or users. [1/s]
        first: requests of the first streams.
    """
    if load.requests.users:
        return LASTING_USERS * max(first, enough_requests(load, bounds, rate))
    wanted = max(LASTING * first, LEAST_LASTING * USUAL, math.ceil(RELAXATIONS * relaxation(bounds, rate)))
    blocks = len(load.requests.hashes) / len(load.requests)
    most = min(max(LONGEST_STREAM, 2 * first), MOST_BLOCKS / max(blocks, 1e-9))
    count = first
    while count < wanted and 2 * count <= most:
        count *= 2
    return count


def rate_at(place: int) -> float:
    """Rate at a place of the grid, of three digits. [1/s]

    >>> [rate_at(place) for place in (0, 1, 100, 250, 349, 350, -1)]
    [1.0, 1.01, 2.0, 5.0, 9.95, 10.0, 0.995]
    """
    decade, step = divmod(place, DECADE)
    digits = 100 + step if step < 100 else 200 + 2 * (step - 100) if step < 250 else 500 + 5 * (step - 250)
    return float(f"{digits}e{decade - 2}")


def rate_index(rate: float) -> int:
    """Place of the largest grid rate that is not above a rate.

    >>> all(rate_index(rate_at(place)) == place for place in range(-800, 800))
    True
    """
    decade = math.floor(math.log10(rate))
    digits = rate / 10.0 ** (decade - 2) * (1 + 1e-12)
    step = digits - 100 if digits < 200 else 100 + (digits - 200) / 2 if digits < 500 else 250 + (digits - 500) / 5
    return decade * DECADE + math.floor(step)


@dataclass(eq=False)
class RateSearch:
    """Search of one deployment for its maximum rate, with cached runs.

    Attributes:
        at: function from requests to the deployment.
        load: a stream that can be drawn again.
        bounds: what a share of the requests must keep.
        numbers: of the streams.
        keep: callback for each complete run and its rate.
        attained: by rate, requests and number of a stream, as of `measure_shares`.
        missed: by rate, the bound that is broken.
        busy: by requests, the saturated rate.
        last: attainment of each stream, where it was simulated last.
        whole: runs that keep the bounds, of the last rate and length.
        latest: the last simulated run.
    """

    at: Callable[[Requests], Deployment]
    load: ServingLoad
    bounds: SloBounds
    numbers: tuple[int, ...] = tuple(range(SEEDS))
    keep: Callable[[float, ServingRun], None] = lambda rate, served: None
    attained: dict[tuple[float, int, int], tuple[float, float]] = field(default_factory=dict)
    missed: dict[float, str] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    whole: dict[tuple[float, int, int], ServingRun] = field(default_factory=dict)
    latest: ServingRun | None = None

    @property
    def seeds(self) -> int:
        """Number of random streams."""
        return len(self.numbers)

    @property
    def users(self) -> bool:
        """Whether the population is closed, so that rates are numbers of users."""
        return bool(self.load.requests.users)

    @property
    def hopeless(self) -> float:
        """Attainment of one stream below which the bound of the mean misses the share in any case."""
        if self.seeds == 1:
            return self.bounds.share
        return 1 - (1 - self.bounds.share) * self.seeds / (1 + STUDENT)

    def count_requests(self, length: int, rate: float) -> int:
        """Requests of a stream `length` times as long as the first one, at a rate."""
        first = enough_requests(self.load, self.bounds, rate) if self.users else length
        count = first * length if self.users else first
        return min(count, self.load.most) if self.load.most else count

    def draw_stream(self, rate: float, count: int, number: int) -> Requests:
        """Requests of one stream at a rate."""
        assert self.load.draw is not None
        return self.load.draw(count, self.load.seed + number, rate)

    def play(self, rate: float, count: int, number: int, stop: StopBounds = NO_STOP) -> ServingRun:
        """Simulate one stream at a rate."""
        requests = self.draw_stream(rate, count, number)
        return self.at(requests).serve(requests, stop=stop)

    def measure_shares(self, rate: float, count: int, number: int) -> tuple[float, float]:
        """Attainment of the first half of a stream (middle half for users), and of the whole stream.

        0 for a run that was stopped because the mean is below the share whatever other streams attain.
        """
        key = rate, count, number
        if key not in self.attained:
            misses = count - math.ceil(self.hopeless * count - 1e-9)
            stop = StopBounds(ttft=self.bounds.ttft, tpot=self.bounds.tpot, misses=misses)
            served = self.latest = self.play(rate, count, number, stop)
            over = served.stopped or bool(served.never)
            # users begin together, with short prompts, and leave one by one: what they get between is what lasts
            part = slice(count // 4, 3 * count // 4) if self.users else slice(count // 2)
            half, whole = (0.0, 0.0) if over else (self.bounds.attainment(served, part), self.bounds.attainment(served))
            self.attained[key] = half, whole
            if whole >= self.bounds.share:
                self.whole = {run_key: run for run_key, run in self.whole.items() if run_key[:2] == key[:2]} | {key: served}
            if not over and number == self.numbers[0]:
                self.keep(rate, served)
            if min(half, whole) < self.bounds.share:
                self.missed[rate] = self.bounds.most_missed_bound(served)
        return self.attained[key]

    def bound_mean(self, rate: float, count: int, *, lasting: bool) -> float:
        """Lower 95 % bound of the mean attainment; if lasting, the lesser of whole streams and first halves.

        -1 as soon as no attainment of the remaining streams could reach the share. Streams with the lowest
        attainment so far go first.
        """
        shares, left = list[tuple[float, ...]](), len(self.numbers)
        for number in sorted(self.numbers, key=lambda number: self.last.get(number, 1.0)):
            shares.append(self.measure_shares(rate, count, number)[0 if lasting else 1 :])
            self.last[number], left = min(shares[-1]), left - 1
            most = min(bound_attainment(list(rate_key), left) for rate_key in zip(*shares, strict=True))
            if min(shares[-1]) < self.hopeless or most < self.bounds.share:
                return -1.0
        return min(lower_bound(list(rate_key)) for rate_key in zip(*shares, strict=True))

    def saturation_rate(self, count: int) -> float:
        """Rate at which some requests always wait; infinite for a closed population. [1/s]"""
        if self.users:
            return math.inf
        count = min(count, MOST_PLAYED)
        if count not in self.busy:
            several = [self.draw_stream(1.0, count, 0) for count in {count, max(count, USUAL)}]  # a burst is served faster
            self.busy[count] = min(saturated_rate(self.at(requests), requests) for requests in several)
        return self.busy[count]

    def get_value(self, place: int) -> float:
        """Rate at a place of the grid, or a whole number of users."""
        return float(max(1, round(rate_at(place)))) if self.users else rate_at(place)

    def keeps_bounds(self, place: int, length: int, *, lasting: bool = False) -> bool:
        """Whether the SLOs are kept at a grid rate; if lasting, by the first halves of the streams too."""
        rate = self.get_value(place)
        count = self.count_requests(length, rate)
        if self.users and not self._asked_by(rate, count):
            return False
        if rate > SURE * self.saturation_rate(min(count, CLOSED)):
            self.missed.setdefault(rate, "saturation")
            return False
        return self.bound_mean(rate, count, lasting=lasting) >= self.bounds.share

    def _asked_by(self, users: float, count: int) -> bool:
        """Whether there are sessions for so many users.

        Raises:
            DesignError: more requests than are simulated.
        """
        sessions = int((self.load.requests.turns == 0).sum())
        if self.load.most and users > SHARED * sessions:
            self.missed.setdefault(users, "sessions")
            return False
        if self.count_requests(1, users) > MOST_CLOSED:
            raise DesignError(
                f"workload.users: {users:,.0f} users would send {count:,} requests, more than are "
                "simulated; tighten workload.ttft, or use fewer devices"
            )
        return True

    def climb(self, length: int, place: int, step: int, near: int = 1, *, lasting: bool = False) -> int | None:
        """Index of the largest kept rate, by growing steps from a start and bisection.

        Args:
            length: of the streams, as of `count_requests`.
            place: to begin at.
            step: to the next.
            near: places between a rate that is kept and one that is not, at most.
            lasting: as of `kept`.

        Returns:
            None where none is kept.
        """
        kept = partial(self.keeps_bounds, length=length, lasting=lasting)
        low = high = place
        if kept(place):
            high = low + step
            while kept(high):
                low, high, step = high, high + 2 * step, 2 * step
        else:
            floor = place - FAR
            while not kept(low):
                if low < floor or (self.users and self.get_value(low) <= 1):
                    return None
                high, low, step = low, low - step, 2 * step
        while high - low > near and self.get_value(high) - self.get_value(low) > (1 if self.users else 0):
            middle = (low + high) // 2
            low, high = (middle, high) if kept(middle) else (low, middle)
        return low

    def stream_length(self, first: int, rate: float) -> tuple[int, bool]:
        """Length of the deciding streams, and whether enough requests can be drawn for it."""
        wanted = decisive(self.load, self.bounds, rate, self.count_requests(first, rate))
        if self.users:
            length = LASTING_USERS if self.count_requests(LASTING_USERS, rate) > self.count_requests(first, rate) else first
            return length, self.count_requests(length, rate) >= wanted
        length = first
        while (count := self.count_requests(length, rate)) < wanted and self.count_requests(2 * length, rate) == 2 * count:
            length *= 2
        return length, length > first and count >= wanted

    def is_kept(self, rate: float) -> bool:
        """Whether a rate is kept by the first streams and by the deciding ones."""
        first = self._first(rate)
        if (
            rate > SURE * self.saturation_rate(min(first, CLOSED))
            or self.bound_mean(rate, first, lasting=False) < self.bounds.share
        ):
            return False
        length, _ = self.stream_length(first, rate)
        return length == first or self.bound_mean(rate, length, lasting=True) >= self.bounds.share

    def settle(self, guess: float, *, step: int = 4) -> MaxRate:
        """The maximum rate: searched with the first streams, then with those long enough to decide.

        Args:
            guess: where to begin. [1/s]
            step: of the grid, to the next rate.
        """
        start = rate_index(max(1.0, guess) if self.users else guess)
        if self.users:
            length, lasts = self.stream_length(1, self.get_value(start))
            place = self.climb(
                length, self._by_one(length, start, ONE_STEP, ONE_NEAR, lasting=True), ONE_NEAR // 2, lasting=True
            )
            return self._none() if place is None else self._confirmed(place, length, lasts)
        first = self._first(guess)
        begin = self._by_one(first, start, step, 1, lasting=False)
        length, lasts = self.stream_length(first, self.get_value(begin))
        if length > first:
            begin = self._by_one(length, begin, 1, 1, lasting=True)
        place = self.climb(length, begin, 1, lasting=length > first)
        return self._none() if place is None else self._confirmed(place, length, lasts)

    def _by_one(self, length: int, start: int, step: int, near: int, *, lasting: bool) -> int:
        """The place of about the largest rate by the first of the streams, which is one of those that decide.

        Args:
            length, start, step, near, lasting: as of `climb`; `start` is returned where none is kept.
        """
        alone = RateSearch(
            self.at, self.load, self.bounds, self.numbers[:1], self.keep, attained=dict(self.attained), busy=self.busy
        )
        place = alone.climb(length, start, step, near, lasting=lasting)
        self.attained |= {key: shares for key, shares in alone.attained.items() if min(shares) > 0}  # to their end
        self.missed, self.whole = alone.missed | self.missed, alone.whole | self.whole
        return start if place is None else place

    def estimate_max_rate(self, guess: float, near: int = 12, step: int = 12, *, long: bool = False) -> MaxRate:
        """Approximate maximum rate from the first streams, to within `near` places of the grid.

        Users are searched with the deciding streams if `long` is set.
        """
        start = rate_index(max(1.0, guess) if self.users else guess)
        length = (self.stream_length(1, self.get_value(start))[0] if long else 1) if self.users else self._first(guess)
        place = self.climb(length, start, step, near, lasting=self.users)
        return self._none() if place is None else self._confirmed(place, length, lasts=False)

    def _first(self, guess: float) -> int:
        """Requests of the first streams: enough, but no more than the given bound or than are simulated."""
        return min(enough_requests(self.load, self.bounds, guess), self.load.most or MOST_PLAYED)

    def _none(self) -> MaxRate:
        slowest = min(self.missed, default=0.0)
        return MaxRate(0.0, None, self.missed.get(slowest, ""), runs=len(self.attained))

    def _confirmed(self, place: int, length: int, lasts: bool) -> MaxRate:
        """A rate with its range over streams, as many digits as it has, and a stream that confirms it."""
        several = self._range(place, length, lasts) if self.seeds > 1 else None
        rate = grid = self.get_value(place)
        if several is not None:
            rate = round_to_range(rate, several)
        rate = max(rate, 1.0) if self.users else rate
        count = self.count_requests(length, rate)
        while True:
            lower = self.bound_mean(rate, count, lasting=lasts)
            for number in self.numbers:
                served = self.whole.get((rate, count, number)) or self.play(rate, count, number)
                if self.bounds.attainment(served) >= self.bounds.share and not self._over(served, count):
                    beyond = min((other for other in self.missed if other > rate), default=0.0)
                    self.keep(rate, served)
                    seed = self.load.seed + number
                    return MaxRate(
                        rate, served, self.missed.get(beyond, "saturation"), count, seed, several, lasts, lower,
                        len(self.attained), length, grid,
                    )  # fmt: skip
            place = rate_index(rate) - 1
            rate = self.get_value(place)

    def _over(self, served: ServingRun, count: int) -> bool:
        """Whether the drawn requests of a stream arrive faster than they can be served."""
        return not self.users and served.requests.rate > self.saturation_rate(count)

    def _range(self, place: int, length: int, lasting: bool) -> tuple[float, float]:
        """The largest rates that single streams keep, the least and the most of them."""
        values = list[float]()
        for number in self.numbers:
            alone = RateSearch(self.at, self.load, self.bounds, (number,), attained=dict(self.attained), busy=self.busy)
            best = alone.climb(length, place, RANGED, RANGED, lasting=lasting)
            values.append(0.0 if best is None else alone.get_value(best))
        return min(values), max(values)


def lower_bound(shares: list[float]) -> float:
    """Lower 95 % bound of the mean of attainments, by Student's t; for one stream its attainment.

    >>> lower_bound([0.9]), lower_bound([1.0] * 5), round(lower_bound([1.0, 1.0, 1.0, 1.0, 0.84]), 4)
    (0.9, 1.0, 0.8998)
    """
    mean, many = sum(shares) / len(shares), len(shares)
    if many == 1:
        return mean
    variance = sum((share - mean) ** 2 for share in shares) / (many - 1)
    return mean - STUDENT * math.sqrt(variance / many)


def bound_attainment(shares: list[float], left: int) -> float:
    """Largest possible `lower_bound` of some attainments and `left` unknown ones.

    The bound is concave and symmetric in the unknown attainments, so it is largest where these are equal.

    >>> bound_attainment([0.9], 0), bound_attainment([1.0], 4), round(bound_attainment([0.84], 4), 4)
    (0.9, 1.0, 0.8998)
    """
    if not left:
        return lower_bound(shares)
    low, high = 0.0, 1.0
    for _ in range(THIRDS):
        near, far = low + (high - low) / 3, high - (high - low) / 3
        if lower_bound(shares + [near] * left) < lower_bound(shares + [far] * left):
            low = near
        else:
            high = far
    return lower_bound(shares + [high] * left)


def round_to_range(rate: float, several: tuple[float, float]) -> float:
    """A rate rounded down to the digit of half its range, but not below a range that contains it.

    >>> round_to_range(113.0, (112.0, 115.0)), round_to_range(113.0, (90.0, 130.0)), round_to_range(1.07, (1.0, 1.2))
    (113.0, 110.0, 1.0)
    >>> round_to_range(879.0, (875.0, 905.0))
    875.0
    """
    half = (several[1] - several[0]) / 2
    if not half > 0 or half >= rate:
        return rate
    unit = math.floor(math.log10(half) + 1e-9)
    fewer = float(f"{math.floor(rate / 10.0**unit * (1 + 1e-12))}e{unit}") or rate
    return max(fewer, min(several[0], rate))


def search_max_rate(at: Callable[[Requests], Deployment], load: ServingLoad, bounds: SloBounds, guess: float) -> MaxRate:
    """Maximum rate of a deployment; for requests that cannot be redrawn, of their single stream."""
    if load.draw is not None:
        return RateSearch(at, load, bounds).settle(guess)
    return find_replayed_rate(at, load, bounds, guess)


def find_replayed_rate(
    at: Callable[[Requests], Deployment], load: ServingLoad, bounds: SloBounds, guess: float, near: float = RATE_RESOLUTION
) -> MaxRate:
    """Largest rate at which the only stream of a load keeps its SLOs."""

    def serve_at_rate(rate: float, stop: StopBounds) -> ServingRun:
        scaled = load.requests_at(rate)
        return at(scaled).serve(scaled, stop=stop)

    max_rate = find_max_rate(serve_at_rate, bounds, len(load.requests), guess, near)
    return MaxRate(max_rate.rate, max_rate.served, max_rate.binds, len(load.requests), load.seed, runs=len(max_rate.tried))
