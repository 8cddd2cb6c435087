"""Maximum rate of designs in the steady state, from compiled replays of one stream.

The definition is that of `max_rate`: the largest rate at which a share of the requests keeps both SLO bounds, and at
which a queue does not grow without end. Here one stream stands for five: its gaps and lengths are the same for all
designs and rates, so that near designs are told apart better than each rate is known. The stream lasts a window of
time whatever the rate, so that queues of fast and of slow designs have as long to settle; the first requests, which
find no queue, do not count.

Attainment falls with the rate, but for chance. So the rate is bracketed, from where a queue in heavy traffic keeps the
TTFT bound, and never above that of a closed loop, beyond which queues grow whatever the bounds allow. The bracket is
narrowed by the logarithm of the misses, which is nearly a line: a rate just below its root is kept, and is the last.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, compiled_without_gil, inlined_function
from dse.evaluators.serving.closed_loop import MIN_REQUESTS, MORE, ROUNDS
from dse.evaluators.serving.disaggregated_decode import replay_decode_pool
from dse.evaluators.serving.lane_clocks import order_statistic, replay_pool
from dse.evaluators.serving.max_rate import LONG, RELAXATIONS, SURE, longest_allowed_time, relaxation
from dse.evaluators.serving.pool_balance import RequestMix
from dse.evaluators.serving.prefill_chunks import longest_chunk
from dse.evaluators.serving.prefill_replay import (
    ReplayWorkspace,
    arrival_arrays,
    replay_prefill,
    scaled_load,
    with_pool_table,
)
from dse.evaluators.serving.simulator_state import make_records
from dse.evaluators.serving.slo_bounds import SloBounds
from dse.evaluators.serving.steady_state import solve_row
from dse.space.array_math import Array
from dse.space.requests import Requests
from dse.space.workload import ServingLoad

WINDOW = 30.0
"""Times the TTFT bound over which requests arrive at least."""

LEAST, MOST = 8000, 1 << 16
"""Requests of a stream, at least and at most."""

SHORTER, LEAST_FIRST = 8.0, 1000
"""Times that streams of the first search are shorter, and requests that they have at least."""

CLOSED = 2000
"""Requests of the closed loop, at least."""

WARM = 0.1
"""Share of the requests, the first ones, that do not count, since they find no queue."""

NEAR, NEAR_FIRST = 1.005, 1.04
"""Ratio of a rate that breaks a bound to the one that keeps all, at most; of the first search."""

SURELY, BRACKET = 1.004, 1.03
"""Ratio of a rate to the one that keeps all, at most, at which misses are as many as are allowed by a line through both ends of
a bracket; and ratio of these ends, at most, where that ends the search."""

AIMED, AIMED_FIRST = 0.0018, 0.005
"""Logarithm of how much a rate lies below the one that such a line says; of the first search. It is kept then, and the last."""

FIRST, EASED = 0.9, 0.985
"""Times the saturated rate, the first rate that is tried where nothing bounds the TTFT, and the least otherwise; and times what
the first search found, where the next begins, as few requests end before their queues have settled."""

STEP, STEP_FIRST, FARTHEST = 1.03, 1.12, 2.0
"""Ratio of the second rate to the first, whose square is the next, while only lower or higher ones are known; of the first
search; and the most downwards."""

CLOSE, FAR = math.log(2.0), math.log(8.0)
"""Logarithm of misses over those that are allowed, below which a first rate needs no search by few requests; and below which it
tells how far the next one is."""

TOLD = 0.1
"""Logarithm of the ratio of rates, at most, over which one rate tells of the next."""

LEAST_TOLD = 0.004
"""Logarithm of the ratio of rates, at least, over which one rate tells of the next: about the resolution of the search."""

HOPELESS, UNLOADED, LONE = 0.5, 0.05, 2.0**-20
"""Times the share of requests that has to keep the bounds: where fewer keep them, requests that never meet come next; times
the saturated rate, below which these are tried in any case; times it, the rate at which they come, which is the least."""

INSIDE = 0.15
"""Of a bracket, what the next rate is at least away from its ends."""

MAX_RATE_RECORD = np.dtype(
    [
        ("saturated", "f8"),  # the rate at which some always wait [1/s]
        ("rate", "f8"),  # the maximum rate, 0 for none [1/s]
        ("count", "f8"),  # requests of the stream at that rate
        ("attained", "f8"),  # share of them that keep the bounds
        ("binds", "f8"),  # what is broken beyond, a place in `BINDING`
        ("lone_ttft", "f8"),  # the TTFT that the share of the requests keeps where they never meet; NaN if not worked out [s]
        ("lone_tpot", "f8"),  # the TPOT likewise [s]
        ("lone_attained", "f8"),  # share of requests that keep the bounds where they never meet
        ("tried", "f8"),  # rates
    ]
)

UNLOADED_FIELDS = ("lone_ttft", "lone_tpot", "lone_attained")
"""Fields that say what breaks the bounds of requests that never meet."""

BINDING = ("ttft", "tpot", "saturation")
"""What a rate above the maximum breaks."""


class RateStream(NamedTuple):
    """A stream of requests at one request a second, and what a share of them keeps.

    Attributes:
        requests: with arrival times, as many as are replayed at most.
        window: that arrivals last at least. [s]
        least: requests at least.
        settling: requests at least, by the square of the rate, that queues take to settle. [s2]
        ttft, tpot: SLO bounds. [s]
        share: of the requests that keep both.
        demand: of a fleet of equal systems, which share it evenly; 0 where each system has its maximum rate. [1/s]
    """

    requests: Requests
    window: float
    least: int
    settling: float
    ttft: float
    tpot: float
    share: float
    demand: float = 0.0

    def needed_requests(self, rate: Any) -> Any:
        """Requests that it takes to show whether a rate lasts, shape of `rate`."""
        return np.ceil(np.maximum(np.maximum(self.window * rate, self.settling * rate**2), self.least))

    def count_requests(self, rate: Any) -> Any:
        """Requests of the stream that are replayed at a rate, shape of `rate`."""
        return np.minimum(self.needed_requests(rate), len(self.requests))

    def search(
        self, prices: Any, tables: Any, apart: bool, first: Array, last: Array, shares: Array, nearest: Array,
        mix: RequestMix, sends: Array, sent: Any, room: ReplayWorkspace, pools: Any, records: Array,
    ) -> Array:  # fmt: skip
        """Maximum rates of designs, as records of `MAX_RATE_RECORD`; arguments as of `search_max_rates`."""
        results = make_records(MAX_RATE_RECORD, len(records))
        bounds, sizes = (self.ttft, self.tpot, self.share), (self.window, float(self.least), self.settling)
        load = arrival_arrays(self.requests)
        search_max_rates(
            prices, tables, apart, first, last, shares, nearest, load, mix, sends, sent, bounds, sizes, room, pools, records,
            results,
        )  # fmt: skip
        return results

    def shared_rates(self, results: Array) -> tuple[Array | None, Array]:
        """Number of systems that the demand takes, and the rate of each.

        Without a demand a system has its maximum rate. Where no rate is kept, requests never meet.
        """
        systems, rates = fleet_of_demand(self.demand, results["rate"]) if self.demand else (None, results["rate"])
        return systems, np.maximum(rates, LONE * results["saturated"])


def rate_stream(load: ServingLoad, bounds: SloBounds) -> RateStream:
    """Stream of requests by which the maximum rate of a load is found.

    It is that of the load's seed; of a replayed trace its own requests.
    """
    ttft, tpot = bounds.tightest
    if load.draw is None:
        requests = load.requests.scale_times(1 / load.rate)
        return RateStream(requests, 0.0, len(requests), 0.0, ttft, tpot, bounds.share, load.demand)
    finite = ttft if ttft < math.inf else 0.0
    window = max(WINDOW * finite, LONG * longest_allowed_time(load, bounds))
    most = min(MOST, load.most) if load.most else MOST
    requests = load.draw(most, load.seed, 1.0)
    return RateStream(requests, window, LEAST, RELAXATIONS * relaxation(bounds, 1.0), ttft, tpot, bounds.share, load.demand)


def fleet_of_demand(demand: float, max_rate: Array) -> tuple[Array, Array]:
    """Number of systems that a demand takes, and the rate of each, shape (designs,).

    Both are 0 where there is no maximum rate.

    >>> fleet_of_demand(10.0, np.array([4.0, 5.0, 0.0]))
    (array([3., 2., 0.]), array([3.33333333, 5.        , 0.        ]))
    """
    systems = np.where(max_rate > 0, np.ceil(demand / np.where(max_rate > 0, max_rate, 1.0) * (1 - 1e-12)), 0.0)
    return systems, np.where(systems > 0, demand / np.maximum(systems, 1.0), 0.0)


@compiled_without_gil
def search_max_rates(
    linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, bounds, sizes, room, pools, records, results
):
    """Find the maximum rates of several designs, one after the other.

    Args:
        linear, tables, apart, first, last, shares, nearest, sends, sent, room: as in `prefill_replay.replay_prompts`.
        load: the stream at one request a second.
        steady: a `pool_balance.RequestMix` of it.
        bounds: of TTFT and TPOT, and the share of requests that keeps both. [s], [s], [1]
        sizes: of the stream, its window, requests at least, and how long queues settle. [s], [1], [s2]
        pools: work arrays of `steady_state.solve_row`.
        records: records of `steady_state.STEADY_STATE_RECORD`, as work space.
        results: records of `MAX_RATE_RECORD`, which are written.
    """
    share, most = bounds[2], len(load.arrival)
    for row in range(len(results)):
        record, result = records[row], results[row]
        closed = _closed_loop_rate(
            linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, room, pools, row, record
        )  # fmt: skip
        result.saturated, top = closed, SURE * closed
        result.rate, result.binds, result.tried = 0.0, 2.0, 0.0
        result.count = result.attained = result.lone_ttft = result.lone_tpot = result.lone_attained = math.nan
        rate, slope, alone = top * _usable_share(steady, share, bounds[0], closed), 0.0, True
        for stage in range(2):  # by few requests, which find about where, and by many
            near, step, shorter = (NEAR_FIRST, STEP_FIRST, SHORTER) if stage == 0 else (NEAR, STEP, 1.0)
            low = under = below = over = above = 0.0
            high, side, tries = math.inf, 0, 0
            while True:
                count = _stream_count(sizes, rate, shorter, most)
                kept, late, slow = _attained(
                    linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, bounds, room, pools, row,
                    rate, count, record,
                )  # fmt: skip
                excess = _log_excess(kept, share, count)
                result.tried += 1
                tries += 1
                if kept >= share:  # of an end that stays, half counts, so that the other one moves
                    low, under, below, above = rate, excess, excess, above / 2 if side > 0 else above
                    side = 1
                    result.rate, result.count, result.attained = rate, count, kept
                    if rate >= top:
                        result.binds = 2.0
                        break
                else:
                    high, over, above, below = rate, excess, excess, below / 2 if side < 0 else below
                    side = -1
                    result.binds = 1.0 if slow > late else 0.0
                if stage == 0 and tries == 1 and excess < CLOSE:
                    low = rate / EASED
                    break
                if low > 0 and high < math.inf:
                    slope = (over - under) / math.log(high / low)
                    narrow = stage == 1 and side > 0 and high <= BRACKET * low
                    if high <= near * low or (narrow and under + slope * math.log(SURELY) >= 0):
                        break
                    rate = _rate_between(low, below, high, above, near, AIMED if stage else AIMED_FIRST)
                elif stage == 1 and tries == 1 and excess < FAR:
                    rate = min(top, rate * math.exp(side * _told_distance(rate / closed, excess, slope, share)))
                elif low > 0:
                    rate, step = min(top, rate * step), step * step
                else:
                    if (kept < HOPELESS * share or rate <= UNLOADED * top) and alone:
                        alone, few = False, int(min(most, min(sizes[1], LEAST_FIRST)))
                        result.lone_attained, _, _ = _attained(
                            linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, bounds, room, pools,
                            row, LONE * top, few, record,
                        )  # fmt: skip
                        result.tried += 1
                        if result.lone_attained < share:
                            result.lone_ttft, result.lone_tpot = _quantiles(load, share, few, room, LONE * top)
                            break
                    if rate < LONE * top:
                        break
                    rate, step = rate / step, min(step * step, FARTHEST)
            rate = EASED * low
            if low == 0:
                result.rate = 0.0
                break


@inlined_function
def _stream_count(sizes, rate, shorter, most):
    """Requests of a stream at a rate, which is some times shorter than it takes to be sure."""
    needed = max(sizes[1], sizes[0] * rate, sizes[2] * rate * rate) / shorter
    return int(min(most, math.ceil(max(needed, min(sizes[1], LEAST_FIRST)))))


@inlined_function
def _rate_between(low, below, high, above, near, aimed):
    """Rate inside a bracket, a little below the root of the line through excesses at both ends. [1/s]"""
    width = math.log(high / low)
    place, inside = below / min(below - above, -1e-9) - aimed / width, min(INSIDE, 0.4 * math.log(near) / width)
    return low * math.exp(width * min(max(place, inside), 1 - inside))


@inlined_function
def _log_excess(kept, share, count):
    """Logarithm of the share of requests that miss the bounds over the one that may; below 0 exactly where enough keep them."""
    few = 1.0 / count
    excess = math.log(max(1 - kept, 0.5 * few) / max(1 - share, 0.7 * few))
    return min(excess, -1e-9) if kept >= share else max(excess, 1e-9)


@inlined_function
def _usable_share(steady, share, ttft, rate):
    """Share of the saturated rate at which a queue keeps the TTFT bound of a share of the requests, about.

    In heavy traffic the wait is exponential, with mean `(c_a + c_s) / (2 rate spare)` for squared coefficients of variation of
    gaps and prompts [kingman1961].
    """
    mean = square = 0.0
    for kind in range(len(steady.prompts)):
        mean += steady.weights[kind] * steady.prompts[kind]
        square += steady.weights[kind] * steady.prompts[kind] ** 2
    varied = steady.gaps + square / mean**2 - 1
    if ttft == math.inf or not 0 < share < 1:
        return FIRST
    return max(FIRST / 2, 1 + varied * math.log(1 - share) / (2 * rate * ttft))


@inlined_function
def _told_distance(load, excess, slope, share):
    """Logarithm of the ratio of rates from one to that with as many misses as are allowed, and a little beyond.

    The slope is that of the first search; where it has none, misses fall exponentially with the spare share of the rate.
    """
    if slope > 0:
        distance = abs(excess) / slope
    else:
        allowed = math.log(1 - share) if share < 1 else -CLOSE
        spare = (1 - load) * allowed / min(allowed + excess, -1e-9)
        distance = abs(math.log(max(1 - spare, 1e-9) / load))
    return min(max(distance + AIMED, LEAST_TOLD), TOLD)


@inlined_function
def _closed_loop_rate(linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, room, pools, row, record):
    """Rate that is served where some requests always wait, as of `closed_loop.saturated_rate`. [1/s]"""
    held = max(
        first[row].batch * first[row].instances * first[row].stages, last[row].batch * last[row].instances * last[row].stages
    )
    many = min(len(load.arrival), int(max(CLOSED, ROUNDS * held)))
    rate = 0.0
    for turn in range(2 if max(first[row].stages, last[row].stages) > 1 else 1):
        scale = 1.0 / (MORE * rate) if turn else 0.0  # equal requests at once would keep in step
        _replayed(
            linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, room, pools, row, math.inf, scale,
            many, record,
        )  # fmt: skip
        skipped = many // 10 if many >= MIN_REQUESTS else 0
        begin = order_statistic(room.last[:many], skipped) if skipped else 0.0
        end = order_statistic(room.last[:many], many - 1 - skipped)
        now = (many - 1 - 2 * skipped) / (end - begin) if skipped and end > begin else many / end
        rate = min(rate, now) if turn else now
    return rate


@called_part
def _replayed(
    linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, room, pools, row, rate, scale, count, record
):
    """The first requests of a stream, with arrival times multiplied by `scale`, replayed into the workspace."""
    if first[row].near < math.inf or last[row].near < math.inf:  # how much is read from far depends on the rate
        solve_row(
            linear[0], linear[1], tables, apart, first, last, sent[1], steady, rate, math.inf, False, pools, row, record
        )  # fmt: skip
    part = scaled_load(load, scale, count, room)
    price, spilled = with_pool_table(linear[0], tables[0], row), 0.0 if apart else record.spilled
    replay_prefill(price, first[row], shares[row], nearest[row], part, steady, spilled, room)
    if apart:
        later, each = with_pool_table(linear[1], tables[1], row), sends[sent[0][row]][:count]
        its = replay_pool(last[row], int(last[row].stages))
        replay_decode_pool(
            later, its, nearest[row], part, steady, record.spilled, each, sent[1][row], longest_chunk(first[row], 0.0), room
        )
    return part


@inlined_function
def _attained(
    linear,
    tables,
    apart,
    first,
    last,
    shares,
    nearest,
    load,
    steady,
    sends,
    sent,
    bounds,
    room,
    pools,
    row,
    rate,
    count,
    record,
):
    """Share of a stream's requests at a rate that keep the bounds, and how many miss TTFT and TPOT, without the first ones."""
    ttft, tpot = bounds[0], bounds[1]
    part = _replayed(
        linear, tables, apart, first, last, shares, nearest, load, steady, sends, sent, room, pools, row, rate, 1.0 / rate,
        count, record,
    )  # fmt: skip
    kept = late = slow = 0
    begin = int(WARM * count)
    for r in range(begin, count):
        further = part.further[r]
        waits = room.first[r] - part.arrival[r] > ttft
        drags = further > 0 and room.last[r] - room.first[r] > tpot * further
        late += waits
        slow += drags
        kept += not (waits or drags)
    return kept / (count - begin), late, slow


@inlined_function
def _quantiles(load, share, count, room, rate):
    """TTFT and TPOT that a share of the last replayed requests keeps. [s]"""
    place = max(0, math.ceil(share * count - 1e-9) - 1)
    for r in range(count):
        further = load.further[r]
        room.begun[r] = (room.last[r] - room.first[r]) / further if further > 0 else 0.0
        room.first[r] -= load.arrival[r] / rate
    return order_statistic(room.first[:count], place), order_statistic(room.begun[:count], place)
