"""Decode progress of lanes in the replay, compiled: all requests of a lane advance together.

Without prompts in between, decode iterations are equal until a request leaves, so they are counted and not formed. A
lane of a pipeline behind another lane's prompts ends its iteration when these do.

Throughout: of is a `ReplayPool`, room a `prefill_replay.ReplayWorkspace`, i an instance, number a lane, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, compiled_without_gil, inlined_function
from dse.evaluators.serving.iteration_time_lookup import iteration_seconds
from dse.evaluators.serving.prefill_chunks import decode_iteration_seconds

NEAR = 1e-9
"""Rounding tolerance, as a share of a decode iteration."""

OCTAVES, PER_OCTAVE = 44, 64
"""Of the histogram of gaps between tokens: from 2^-32 s on, each octave in equal parts."""

LEAST = -32

BELOW = 52 - 6
"""Bits of a number that its place in the histogram leaves out: of 52 of its mantissa all but the `PER_OCTAVE` = 2^6 parts."""

FIRST = (LEAST + 1022) * PER_OCTAVE
"""The place of the least one, from that of 0."""

PLENTY = 1 << 40

LEAVING = np.dtype([("token", "i8"), ("request", "i8")])
"""The token of its lane that a request leaves with."""

GAPS = np.dtype([("count", "i8"), ("seconds", "f8")])


PRICED = np.dtype([("tokens", "f8"), ("pairs", "f8"), ("past", "f8"), ("beside", "i8"), ("seconds", "f8")])
"""A cached iteration with prompts: tokens, pairs of query and key, earlier positions, and decodes."""

MAX_CACHED_TIMES = 256
"""Cached iteration times with prompts."""


class ReplayPool(NamedTuple):
    """A pool in the replay: fields of a `steady_state` pool record with integer counts and instance batch."""

    instances: int
    stages: int
    share: float
    batch: int
    mixed: bool
    chunked: bool
    tokens: int
    unit: int
    chunk: int
    prefills: bool
    decodes: bool


@inlined_function
def replay_pool(pool, stages):
    """Pool record for the replay; `stages` is separate so that single-stage code compiles apart."""
    batch, sizes = max(1, int(pool.batch * stages)), (int(pool.tokens), int(pool.unit), int(pool.chunk))
    return ReplayPool(
        int(pool.instances), stages, pool.share, batch, pool.mixed, pool.chunked, *sizes, pool.prefills, pool.decodes
    )


@inlined_function
def append_request(queue, behind, r):
    """Append a request to the queue of an instance; `behind` links each request to the next."""
    behind[r] = -1
    if queue.head < 0:
        queue.head = r
    else:
        behind[queue.tail] = r
    queue.tail = r
    queue.queued += 1


@inlined_function
def decode_pass_seconds(price, pool, steady, spilled, room, decodes):
    """Time of a decode-only iteration, computed once per number of decodes. [s]"""
    if room.paces[decodes] < 0:
        room.paces[decodes] = _decoded(price, pool, steady, decodes, spilled)
    return room.paces[decodes]


@compiled_without_gil
def _decoded(price, pool, steady, decodes, spilled):
    """Time of a decode-only iteration; a separate function, since it is large and seldom called."""
    return decode_iteration_seconds(price, pool, steady, float(decodes), spilled)


@inlined_function
def prefill_pass_seconds(price, steady, spilled, room, tokens, pairs, past, beside):
    """Time of an iteration with prompts, cached for equal requests. [s]"""
    # chunks are powers of two, and so are positions before them: products by large odd numbers spread these over all places
    entry = room.prices[(int(tokens) * 40503 + int(past) * 60493 + beside * 52757 >> 9) & (MAX_CACHED_TIMES - 1)]
    if entry.tokens != tokens or entry.beside != beside or entry.pairs != pairs or entry.past != past:
        read = beside * steady.context
        entry.tokens, entry.pairs, entry.past, entry.beside = tokens, pairs, past, beside
        entry.seconds = iteration_seconds(price, tokens, pairs, float(beside), read, past, spilled * (past + read))
    return entry.seconds


@inlined_function
def lane_round_seconds(pool, instance, lane):
    """Time from one iteration of a lane to its next, without prompts. [s]"""
    return instance.around if pool.stages > 1 else lane.pace


@inlined_function
def set_lane_period(price, pool, steady, spilled, room, i, number, before):
    """Set the period of a lane after its number of decodes has changed.

    Lanes go through the stages one behind the other, and none overtakes: from one pass to the next all take as long as the
    slowest of them through all stages, or as all of them in the slowest stage.
    """
    instance, lane = room.instances[i], room.lanes[number]
    now = decode_pass_seconds(price, pool, steady, spilled, room, lane.decodes) if lane.decodes > 0 else 0.0
    instance.decoding += (lane.decodes > 0) - (before > 0)
    if pool.stages == 1:
        lane.pace = now
        return
    instance.paces = instance.paces + now - lane.pace if instance.decoding > 0 else 0.0
    slowest = max(now, instance.slowest)
    if now < lane.pace and lane.pace >= instance.slowest:
        slowest = now
        for other in range(i * pool.stages, (i + 1) * pool.stages):
            if other != number:
                slowest = max(slowest, room.lanes[other].pace)
    lane.pace, instance.slowest, slower = now, slowest, instance.around
    instance.around = max(slowest, pool.share * instance.paces)
    if instance.around < slower:
        instance.leaves = -math.inf


@inlined_function
def count_gaps(room, seconds, times):
    """Count gaps between two tokens."""
    place = (np.float64(seconds).view(np.int64) >> BELOW) - FIRST  # exponents come before mantissas, which go up evenly
    entry = room.gaps[min(max(place, 0), OCTAVES * PER_OCTAVE - 1)]
    entry.count += times
    entry.seconds += times * seconds


@called_part
def push_heap(heap, place, token, r):
    """Insert an entry into a heap with `place` entries."""
    while place > 0:
        above = (place - 1) // 2
        if heap[above].token <= token:
            break
        heap[place].token, heap[place].request = heap[above].token, heap[above].request
        place = above
    heap[place].token, heap[place].request = token, r


@called_part
def pop_heap(heap, left):
    """Remove and return the first of a heap, leaving `count` entries."""
    first_entry, place = heap[0].request, 0
    token, request = heap[left].token, heap[left].request
    while True:
        below = 2 * place + 1
        if below >= left:
            break
        if below + 1 < left and heap[below + 1].token < heap[below].token:
            below += 1
        if heap[below].token >= token:
            break
        heap[place].token, heap[place].request = heap[below].token, heap[below].request
        place = below
    heap[place].token, heap[place].request = token, request
    return first_entry


@inlined_function
def start_decoding(pool, load, room, number, r):
    """Start decoding a request that has its first token."""
    lane, heap = room.lanes[number], room.leaving[number]
    place, token = lane.decodes, lane.tokens + load.further[r]
    lane.decodes += 1
    if not (pool.mixed and pool.prefills):
        room.since[number, lane.fresh] = room.first[r]
        lane.fresh += 1
    push_heap(heap, place, token, r)


@inlined_function
def finish_requests(price, pool, steady, spilled, room, i, number):
    """Finish the requests that have all tokens when a lane ends an iteration."""
    instance, lane, heap, before = room.instances[i], room.lanes[number], room.leaving[number], room.lanes[number].decodes
    while lane.decodes > 0 and heap[0].token <= lane.tokens:
        lane.decodes -= 1
        room.last[pop_heap(heap, lane.decodes)] = lane.end
        instance.held -= 1
    if lane.decodes < before:
        set_lane_period(price, pool, steady, spilled, room, i, number, before)


@inlined_function
def count_passes(room, number, many, each):
    """Count several equal decode iterations of a lane as done, with their token gaps.

    Of the lane's requests, `older` wait since `last`, `fresh` since their first tokens, and the others since its
    last iteration ended.
    """
    lane = room.lanes[number]
    if len(room.gaps) > 0:
        if lane.older > 0:
            count_gaps(room, lane.end + each - lane.last, lane.older)
        for place in range(lane.fresh):
            count_gaps(room, lane.end + each - room.since[number, place], 1)
        left = lane.decodes * many - lane.older - lane.fresh
        if left > 0:
            count_gaps(room, each, left)
    lane.tokens += many
    lane.end += many * each
    lane.older = lane.fresh = 0


@inlined_function
def free_passes(pool, room, i, lane, each):
    """Iterations of a lane until one is delayed by another lane's prompts under way."""
    instance = room.instances[i]
    if pool.stages == 1 or instance.flying == 0:
        return PLENTY
    if lane.stands:
        return 0
    start = room.lanes[room.ring[i * pool.stages + instance.oldest]].start
    return max(0, math.ceil((start - lane.end) / each - NEAR))


@inlined_function
def catch_up_lane(price, pool, steady, spilled, room, i, number, t):
    """Advance a lane to the last departure by an instant, while no prompts delay it."""
    lane, heap = room.lanes[number], room.leaving[number]
    while lane.decodes > 0 and lane.end <= t:
        each, few = lane_round_seconds(pool, room.instances[i], lane), heap[0].token - lane.tokens
        if lane.end + few * each > t or few > free_passes(pool, room, i, lane, each):
            return
        if few > 0:
            count_passes(room, number, few, each)
        finish_requests(price, pool, steady, spilled, room, i, number)


@inlined_function
def next_departure(pool, instance, lane, heap):
    """Time before which no request leaves a lane: half an iteration before the first departure. [s]

    The margin exceeds rounding errors.
    """
    return (
        lane.end + (heap[0].token - lane.tokens - 0.5) * lane_round_seconds(pool, instance, lane)
        if lane.decodes > 0
        else math.inf
    )


@inlined_function
def delay_lanes(price, pool, steady, spilled, room, i, number, t):
    """Delay lanes whose decode iteration runs behind the prompts of a lane that end; they end in turn."""
    instance, stages, start, gone = room.instances[i], pool.stages, room.lanes[number].start, room.lanes[number].gone
    other, newer = number, room.lanes[room.ring[i * stages + instance.oldest]].start if instance.flying > 0 else math.inf
    for rank in range(1, stages):
        other += 1 if other < (i + 1) * stages - 1 else 1 - stages
        lane = room.lanes[other]
        if lane.decodes == 0 or lane.end >= t or (lane.stands and newer <= gone):  # which is behind the next ones then
            continue
        if instance.leaves <= start:
            catch_up_lane(price, pool, steady, spilled, room, i, other, start)
        each, later = lane_round_seconds(pool, instance, lane), rank * pool.share * lane.pace
        many = 0 if lane.stands else max(0, math.ceil((start - lane.end) / each - NEAR))
        enters = max(lane.end + many * each, gone + later)
        if (not lane.stands and enters >= t) or lane.decodes == 0:
            continue
        if many > 0:
            count_passes(room, other, many, each)
        lane.stands = newer <= enters
        if lane.stands:
            continue  # it is behind those
        count_passes(room, other, 1, max(each, t + later - lane.end))
        finish_requests(price, pool, steady, spilled, room, i, other)


@inlined_function
def lane_ready_time(pool, room, i, number, t):
    """Time at which a decoding lane can take prompts, and its decode iterations ended by then. [s]

    Behind other lanes' prompts it waits before the first stage until these have left that stage, and the count is
    not given.
    """
    instance, lane, stages = room.instances[i], room.lanes[number], pool.stages
    each = lane_round_seconds(pool, instance, lane)
    many, most = max(0, math.ceil((t - lane.end) / each - NEAR)), free_passes(pool, room, i, lane, each)
    if many <= most:
        return lane.end + many * each, many
    enters = end = lane.end + most * each
    for place in range(instance.flying):
        other = room.ring[i * stages + ring_place(instance.oldest, place, stages)]
        newer = room.lanes[other]
        if newer.start > enters and place > 0:
            break
        later = (number - other + (stages if other > number else 0)) * pool.share * lane.pace
        enters, end = max(enters, newer.gone + later), newer.end + later
    return (t, most) if t <= enters else (end, 0)


@inlined_function
def ring_place(place, count, stages):
    """Place in a ring that is `count` places after another."""
    place += count
    return place - stages if place >= stages else place


@inlined_function
def next_departure_of_instance(pool, room, i, next_departure):
    """Time of an instance's next departure, while no prompts are in the way; at most `next_departure`. [s]"""
    instance, stages = room.instances[i], pool.stages
    if instance.leaves >= next_departure:
        return next_departure
    for number in range(i * stages, (i + 1) * stages):
        lane = room.lanes[number]
        if lane.decodes == 0:
            continue
        each, few = lane_round_seconds(pool, instance, lane), room.leaving[number][0].token - lane.tokens
        ends = lane.end + few * each
        if ends < next_departure and few <= free_passes(pool, room, i, lane, each):
            next_departure = ends
    return next_departure


@compiled_without_gil
def gap_quantile(gaps, share):
    """Token gap at a quantile, as the mean of its histogram bin; NaN for no gaps. [s]"""
    total = 0
    for place in range(len(gaps)):
        total += gaps[place].count
    below = 0
    for place in range(len(gaps)):
        below += gaps[place].count
        if below > 0 and below >= share * total:
            return gaps[place].seconds / gaps[place].count
    return math.nan


@compiled_without_gil
def order_statistic(values, place):
    """Value of a given rank among values, whose order is changed.

    >>> order_statistic(np.array([3.0, 1.0, 2.0]), 1)
    2.0
    """
    low, high = 0, len(values)
    while True:
        pivot, least = values[(low + high) // 2], low
        for at in range(low, high):  # without a branch
            value = values[at]
            values[at], values[least] = values[least], value
            least += value < pivot
        if place < least:
            high = least
            continue
        low = least
        for at in range(least, high):
            value = values[at]
            values[at], values[low] = values[low], value
            low += not value > pivot
        if place < low:
            return pivot
