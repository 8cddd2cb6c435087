"""Prompts of a load played over its own arrivals, compiled: when each request has its first token, in the steady state.

A queue in closed form knows gaps and prompts by two moments alone; how late the last tenth of a load's requests is depends on
who comes after whom. So prompts are played as the loop plays them, pass after pass through the stages of their instance, but
decodes are not: a request decodes for as long as the steady state says, and while nobody prefills, nothing happens.

It does not know memory, beyond the requests that there is room for in the mean, nor preemptions. Where nothing decodes, and
memory does not bind, it is the loop.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import inlined, piece, released
from dse.evaluators.serving.chunks import decoded
from dse.evaluators.serving.price import Price
from dse.evaluators.serving.priced import seconds
from dse.space.elementwise import Array
from dse.space.requests import Requests

MOST = 4096
"""Requests of a load up to which its prompts are played."""

PLENTY = 1 << 40

NEAR = 1e-9
"""Of an iteration of decodes, what is rounding."""

INSTANCE = np.dtype(
    [
        ("held", "i8"),  # requests that have begun here, and have not left
        ("head", "i8"),  # first in the queue, -1 for none
        ("tail", "i8"),  # last in the queue
        ("queued", "i8"),
        ("turn", "i8"),  # lane that is tried first
        ("flying", "i8"),  # passes under way, of a ring of lanes
        ("oldest", "i8"),  # place in the ring of the one that ends first
        ("leaving", "i8"),  # requests that decode, a heap by when they leave
        ("decoding", "i8"),  # lanes that have some of these
        ("since", "f8"),  # when the queue was empty for the last time
        ("at", "f8"),  # when it tries to start passes again; infinite for not before one ends
        ("due", "?"),  # whether a pass has ended, or somebody has come, at that instant
    ]
)
LANE = np.dtype([("prompts", "i8"), ("decodes", "i8"), ("start", "f8"), ("end", "f8")])
"""Requests that prefill in it, and that decode; when its last pass with prompts has started, and when it ends or has ended."""

LEAVING = np.dtype([("time", "f8"), ("lane", "i8")])


class Load(NamedTuple):
    """Requests as they come; shape (requests,).

    Attributes:
        arrival: [s]
        prompt, further: tokens, those after the first one. [token]
    """

    arrival: Array
    prompt: Array
    further: Array


class Room(NamedTuple):
    """To work in: for instances, their lanes, and requests.

    Attributes:
        instances, lanes: records.
        free: when each stage of each instance is, shape (instances, stages). [s]
        ring: lanes under way, shape (lanes,).
        running: requests that prefill, of each lane; shape (lanes, most).
        leaving: heaps, shape (instances, most).
        behind, done, share: of requests: the next in the queue, tokens computed, and those of the pass under way.
        first, begun: of requests: their first token and their first pass, after they came. [s]
    """

    instances: Array
    lanes: Array
    free: Array
    ring: Array
    running: Array
    leaving: Array
    behind: Array
    done: Array
    share: Array
    first: Array
    begun: Array


def of(requests: Requests) -> Load:
    """Of a workload."""
    return Load(requests.arrival, requests.prompt.astype(np.int64), requests.output.astype(np.int64) - 1)


def room(stations: Array, requests: int) -> Room:
    """For any of some pools, one after the other.

    Args:
        stations: records of `balance.STATION`.
        requests: of a load.
    """
    lanes = stations["instances"] * stations["stages"]
    most, widest = int(lanes.max()), int(stations["batch"].max()) + 1
    instances, held = int(stations["instances"].max()), int((stations["batch"] * stations["stages"]).max()) + 1
    behind, done, share = (np.zeros(requests, np.int64) for _ in range(3))
    return Room(
        np.zeros(instances, INSTANCE), np.zeros(most, LANE), np.zeros((instances, int(stations["stages"].max()))),
        np.zeros(most, np.int64), np.zeros((most, min(widest, requests)), np.int64),
        np.zeros((instances, min(held, requests) + 1), LEAVING), behind, done, share, np.zeros(requests), np.zeros(requests),
    )  # fmt: skip


@released
def played(price, of, shares, nearest, load, steady, period, decodes, spilled, room):
    """Plays the prompts of a load on a pool; `first` and `begun` of the room say when each request had them after it came.

    Args:
        price: of the pool.
        of: its record of `balance.STATION`.
        shares: of a pass, by stage.
        nearest: whether a request goes to the instance that has the fewest, else to the next in turn.
        load: `Load`.
        steady: a `balance.Mix` of it.
        period, decodes: an iteration of decodes, in the steady state, and requests in it. [s], [1]
        spilled: share of what is read that is not in SRAM.
        room: `Room`.
    """
    instances, stages, turn = int(of.instances), int(of.stages), 0
    for i in range(instances):
        here = room.instances[i]
        here.held = here.queued = here.turn = here.flying = here.oldest = here.leaving = here.decoding = 0
        here.head = here.tail = -1
        here.at, here.due = math.inf, False
        for stage in range(stages):
            room.free[i, stage] = 0.0
    for number in range(instances * stages):
        lane = room.lanes[number]
        lane.prompts = lane.decodes = 0
        lane.end = -math.inf
    pace = decoded(price, of, steady, max(1.0, decodes), spilled) if of.decodes else 0.0
    for r in range(len(load.arrival)):
        t, best = load.arrival[r], -1
        for i in range(instances):
            here = room.instances[i]
            if here.held + here.queued > 0:
                _advance(price, of, shares, load, steady, period, spilled, pace, room, i, t)
                _left(room, i, stages, t)
            if best < 0 or here.held + here.queued < room.instances[best].held + room.instances[best].queued:
                best = i
        if not nearest:
            best = turn % instances
            turn += 1
        here = room.instances[best]
        room.behind[r], room.done[r] = -1, 0
        room.first[r] = room.begun[r] = math.nan
        if here.head < 0:
            here.head, here.since = r, t
        else:
            room.behind[here.tail] = r
        here.tail = r
        here.queued += 1
        here.at, here.due = t, True
    for i in range(instances):
        _advance(price, of, shares, load, steady, period, spilled, pace, room, i, math.inf)
    for r in range(len(load.arrival)):
        room.first[r] -= load.arrival[r]
        room.begun[r] -= load.arrival[r]


@piece
def _advance(price, of, shares, load, steady, period, spilled, pace, room, i, until):
    """Plays an instance up to an instant, but for what starts then."""
    here, stages = room.instances[i], int(of.stages)
    while True:
        if here.due:
            if here.at >= until:
                return
            here.due = False
            _start(price, of, shares, load, steady, spilled, pace, room, i, here.at)
        t = here.at
        if here.flying > 0:
            t = min(t, room.lanes[room.ring[i * stages + here.oldest]].end)
        if t > until or t == math.inf:
            return
        while here.flying > 0:
            number = room.ring[i * stages + here.oldest]
            if room.lanes[number].end > t:
                break
            here.oldest = _after(here.oldest, 1, stages)
            here.flying -= 1
            _finish(of, load, period, room, i, number, t)
        here.at, here.due = t, True


@piece
def _after(place, count, stages):
    """A place of a ring, so many after another one."""
    place += count
    return place - stages if place >= stages else place


@piece
def _finish(of, load, period, room, i, number, t):
    """Books a pass: who has its prompt computed decodes from now on, or leaves."""
    here, lane, keep = room.instances[i], room.lanes[number], 0
    for place in range(lane.prompts):
        r = room.running[number, place]
        room.done[r] += room.share[r]
        room.share[r] = 0
        if room.done[r] < load.prompt[r]:
            room.running[number, keep] = r
            keep += 1
            continue
        room.first[r] = t
        if of.decodes and load.further[r] > 0:
            lane.decodes += 1
            here.decoding += lane.decodes == 1
            _enter(room, i, number, t + load.further[r] * period)
        else:
            here.held -= 1
    lane.prompts = keep


@piece
def _enter(room, i, number, time):
    """A request that leaves at some time, in the heap of its instance."""
    here, heap = room.instances[i], room.leaving[i]
    place = here.leaving
    here.leaving += 1
    while place > 0:
        above = (place - 1) // 2
        if heap[above].time <= time:
            break
        heap[place].time, heap[place].lane = heap[above].time, heap[above].lane
        place = above
    heap[place].time, heap[place].lane = time, number


@piece
def _left(room, i, stages, t):
    """Who has left an instance by some time."""
    here, heap = room.instances[i], room.leaving[i]
    while here.leaving > 0 and heap[0].time <= t:
        lane_ = room.lanes[heap[0].lane]
        lane_.decodes -= 1
        here.decoding -= lane_.decodes == 0
        here.held -= 1
        here.leaving -= 1
        time, lane, place = heap[here.leaving].time, heap[here.leaving].lane, 0
        while True:
            below = 2 * place + 1
            if below >= here.leaving:
                break
            if below + 1 < here.leaving and heap[below + 1].time < heap[below].time:
                below += 1
            if heap[below].time >= time:
                break
            heap[place].time, heap[place].lane = heap[below].time, heap[below].lane
            place = below
        heap[place].time, heap[place].lane = time, lane


@piece
def _start(price, of, shares, load, steady, spilled, pace, room, i, t):
    """Starts a pass in each lane that has prompts and is not under way, while the first stage is free."""
    here, stages, free = room.instances[i], int(of.stages), room.free[i]
    _left(room, i, stages, t)
    here.at, turn, stuck = math.inf, here.turn, False
    batch = max(1, int(of.batch * of.stages))
    each = min(-(-batch // stages), -(-(here.held + here.queued) // stages))
    for _ in range(stages):
        number = i * stages + turn
        turn = _after(turn, 1, stages)
        lane = room.lanes[number]
        if lane.end > t:
            if lane.prompts == 0 and here.head >= 0:
                here.at = min(here.at, lane.end)
            continue
        takes = here.head >= 0 and lane.prompts + lane.decodes < each and here.held < batch
        if lane.prompts == 0 and not takes:
            continue
        if free[0] > t:
            here.at = min(here.at, free[0])
            return
        beside = lane.decodes if of.mixed else 0
        if lane.decodes > 0 and lane.prompts == 0 and lane.end < here.since:  # in an iteration of decodes
            step = decoded(price, of, steady, float(lane.decodes), spilled)
            ready = _ready(room, i, stages, lane, step, t)
            if ready > t:
                lane.end = ready
                here.at = min(here.at, ready)
                continue
        tokens, pairs, past = _formed(of, load, room, i, number, each, batch, beside, t)
        if tokens == 0:
            stuck = True
            continue
        read = beside * steady.context
        step = seconds(price, tokens, pairs, float(beside), read, past, spilled * (past + read))
        end = t
        for stage in range(stages):
            end = max(end, free[stage]) + step * shares[stage]
            free[stage] = end
        others = here.decoding - here.flying - (lane.decodes > 0)
        if others > 0:
            end = free[stages - 1] = max(end, t + of.share * (step + others * pace))
        lane.start, lane.end = t, end
        room.ring[i * stages + _after(here.oldest, here.flying, stages)] = number
        here.flying += 1
        here.turn = turn
    if (stuck or here.queued > 0) and here.leaving > 0:  # there may be room when somebody leaves
        here.at = min(here.at, room.leaving[i][0].time)


@piece
def _ready(room, i, stages, lane, step, t):
    """When a lane ends the iteration of decodes that is under way, each of which takes a step."""
    here = room.instances[i]
    if here.flying > 0:
        newest = room.lanes[room.ring[i * stages + _after(here.oldest, here.flying - 1, stages)]]
        last = lane.end + max(0.0, math.ceil((newest.start - lane.end) / step - NEAR)) * step
        return last if last >= t else newest.end  # what comes after a pass with prompts is behind it
    return lane.end + math.ceil((t - lane.end) / step - NEAR) * step


@piece
def _formed(of, load, room, i, number, each, batch, beside, t):
    """Prompts of a pass, as far as the budget goes: tokens, pairs of query and key, and positions before them."""
    here, lane = room.instances[i], room.lanes[number]
    budget, chunks, longest = int(of.tokens), PLENTY, PLENTY
    if of.unit > 0:
        budget, chunks = PLENTY, (int(of.tokens) - beside) // int(of.unit)
    elif of.chunked:
        budget -= beside
    if of.chunk > 0:
        longest = int(of.chunk)
    prompt = pairs = past = 0.0
    for place in range(lane.prompts):
        if budget <= 0 or chunks <= 0:
            break
        r = room.running[number, place]
        tokens = min(load.prompt[r] - room.done[r], budget, longest)
        room.share[r] = tokens
        prompt += tokens
        pairs += tokens * room.done[r] + tokens * (tokens + 1) / 2
        past += room.done[r]
        budget -= tokens
        chunks -= 1
    while (
        here.head >= 0 and lane.prompts + lane.decodes < each and here.held < batch and budget > 0 and chunks > 0
        and lane.prompts < room.running.shape[1]
    ):  # fmt: skip
        r = here.head
        tokens = load.prompt[r]
        if of.chunked:
            tokens = min(tokens, budget, longest)
        elif tokens > budget and prompt > 0:
            break
        here.head = room.behind[r]
        here.queued -= 1
        here.held += 1
        room.running[number, lane.prompts] = r
        lane.prompts += 1
        room.begun[r], room.share[r] = t, tokens
        prompt += tokens
        pairs += tokens * (tokens + 1) / 2
        budget -= tokens
        chunks -= 1
    return prompt, pairs, past


@released
def prompted(linear, tables, stations, shares, nearest, load, steady, bound, room, found):
    """Plays the prompts of a load on some pools, one after the other.

    Args:
        linear: a price of theirs, whose table does not count.
        tables: those that differ, and which of them each pool has.
        stations, shares: a record of each, and a row.
        nearest, load, steady, room: as in `played`.
        bound: of the time to first token. [s]
        found: records of `standing.STANDING`, whose times to first tokens are worked out.
    """
    many = len(load.arrival)
    for row in range(len(found)):
        price, here = _priced(linear, tables, row), found[row]
        decoding = stations[row].decodes
        spilled, period = (here.spilled, here.period) if decoding else (0.0, 0.0)
        played(price, stations[row], shares[row], nearest[row], load, steady, period, here.decodes, spilled, room)
        whole = waited = kept = 0.0
        for r in range(many):
            whole += room.first[r]
            waited += room.begun[r]
            kept += room.first[r] <= bound
        here.ttft, here.wait, here.within = whole / many, waited / many, kept / many
        here.ttft_p50 = nth(room.first, math.ceil(0.5 * many) - 1)
        here.ttft_p90 = nth(room.first, math.ceil(0.9 * many) - 1)
        here.ttft_p99 = nth(room.first, math.ceil(0.99 * many) - 1)


@inlined
def _priced(price, tables, row):
    """A price with the table of a pool."""
    return Price(price.linear, price.grid, price.sizes, tables[0][tables[1][row]], price.places, price.weights)


@released
def nth(values, place):
    """The value that so many are below, of values that are put in another order.

    >>> nth(np.array([3.0, 1.0, 2.0]), 1)
    2.0
    """
    low, high = 0, len(values) - 1
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return values[place]
