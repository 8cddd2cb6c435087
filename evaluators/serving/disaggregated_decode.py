"""Steady-state replay of decode instances after prefill instances, compiled: last token times.

KV caches are transferred as in the serving simulation: to an instance in rotation or to the one with fewest requests,
when that has room, over the channel that is free first; caches arrive in the order in which they left. Decode
iterations are counted, not formed (`lane_clocks`).
"""

# mypy: disable-error-code="no-untyped-def"

import math

from dse.evaluators.machine.compile_cache import compiled_without_gil, inlined_function
from dse.evaluators.serving.lane_clocks import (
    NEAR,
    append_request,
    catch_up_lane,
    count_passes,
    lane_round_seconds,
    next_departure,
    next_departure_of_instance,
    set_lane_period,
    start_decoding,
)
from dse.evaluators.serving.prefill_chunks import chunk_count


@compiled_without_gil
def exposed_transfer_seconds(taken, layers, chunks, prefill):
    """KV transfer time that remains after the prompt is computed, on one channel. [s]

    Args:
        taken: transfer time of the whole cache. [s]
        layers: that go each when it is computed; 0 where a cache goes whole.
        chunks, prefill: of a prompt, and the time from its first to its last. [1], [s]

    >>> (
    ...     exposed_transfer_seconds(8.0, 0.0, 1.0, 4.0),
    ...     exposed_transfer_seconds(8.0, 4.0, 1.0, 4.0),
    ...     exposed_transfer_seconds(2.0, 4.0, 1.0, 4.0),
    ... )
    (8.0, 5.0, 0.5)
    """
    if layers == 0:
        return taken
    parts = layers * chunks
    return max(taken / parts, taken - prefill * (1 - 1 / parts))


@compiled_without_gil
def replay_decode_pool(price, pool, nearest, load, steady, spilled, sends, sent, chunk, room):
    """Replay the decode pool; the workspace's `last` gives each request's last token, `first` its first.

    Args:
        price, of, nearest, load, steady, spilled, room: as in `replay_prefill`, for the decode pool.
        sends: that each request has a channel, shape (requests,). [s]
        sent: a row of `steady_state.transfer_constants`.
        chunk: of a prompt, the longest. [token]
    """
    for i in range(pool.instances):
        instance = room.instances[i]
        instance.held = instance.queued = instance.flying = instance.oldest = instance.decoding = 0
        instance.head = instance.tail = -1
        instance.paces = instance.slowest = instance.around = 0.0
        instance.leaves = math.inf
    for number in range(pool.instances * pool.stages):
        lane = room.lanes[number]
        lane.prompts = lane.decodes = lane.older = lane.fresh = lane.tokens = 0
        lane.pace, lane.end, lane.stands = 0.0, -math.inf, False
    room.paces[:] = -1.0
    room.channels[:] = -math.inf
    room.way[0] = room.way[1] = -1
    many, turn = _sorted(load, room), 0
    for place in range(many):
        r, best = room.order[place], 0
        t = room.first[r]
        _until(price, pool, load, steady, spilled, sends, sent, chunk, room, t)
        for i in range(pool.instances):
            instance = room.instances[i]
            if instance.held + instance.queued < room.instances[best].held + room.instances[best].queued:
                best = i
        if not nearest:
            best = turn % pool.instances
            turn += 1
        instance = room.instances[best]
        room.share[r] = best
        if instance.held < pool.batch:
            _send(load, sends, sent, chunk, room, r, t)
            continue
        append_request(instance, room.behind, r)
    _until(price, pool, load, steady, spilled, sends, sent, chunk, room, math.inf)


@inlined_function
def _until(price, pool, load, steady, spilled, sends, sent, chunk, room, t):
    """Process events up to an instant: arriving caches, and finished requests, which make room for others."""
    while True:
        now, who = t, -1
        for i in range(pool.instances):
            if room.instances[i].queued > 0 and room.instances[i].held >= pool.batch:
                leaves = next_departure_of_instance(pool, room, i, now)
                if leaves < now:
                    now, who = leaves, i
        r = room.way[0]
        if r >= 0 and room.begun[r] <= now:
            room.way[0] = room.behind[r]
            _join(price, pool, load, steady, spilled, room, r)
            continue
        for i in range(pool.instances):
            _left(price, pool, steady, spilled, room, i, now)
        if who < 0:
            return
        instance = room.instances[who]
        while instance.head >= 0 and instance.held < pool.batch:
            r = instance.head
            instance.head = room.behind[r]
            instance.queued -= 1
            _send(load, sends, sent, chunk, room, r, now)


@inlined_function
def _left(price, pool, steady, spilled, room, i, now):
    """Release requests that finish at an instance by an instant; before its `leaves` none does."""
    instance, stages = room.instances[i], pool.stages
    if instance.leaves > now:
        return
    for number in range(i * stages, (i + 1) * stages):
        catch_up_lane(price, pool, steady, spilled, room, i, number, now)
    earliest = math.inf  # when none has gone any more, since each that goes makes others quicker
    for number in range(i * stages, (i + 1) * stages):
        earliest = min(earliest, next_departure(pool, instance, room.lanes[number], room.leaving[number]))
    instance.leaves = earliest


@inlined_function
def _send(load, sends, sent, chunk, room, r, t):
    """Send a KV cache; `begun` gives its arrival."""
    room.instances[room.share[r]].held += 1
    least = 0
    for channel in range(1, int(sent[2])):
        if room.channels[channel] < room.channels[least]:
            least = channel
    taken = exposed_transfer_seconds(sends[r], sent[3], chunk_count(load.prompt[r], chunk), room.first[r] - room.begun[r])
    room.channels[least] = max(t, room.channels[least]) + taken
    room.begun[r], room.behind[r] = room.channels[least] + sent[1], -1
    if room.way[0] < 0:
        room.way[0] = r
    else:
        room.behind[room.way[1]] = r
    room.way[1] = r


@inlined_function
def _join(price, pool, load, steady, spilled, room, r):
    """Start decoding a transferred request in the lane with fewest requests, from its next iteration."""
    i, stages, t = room.share[r], pool.stages, room.begun[r]
    instance, best = room.instances[i], room.share[r] * pool.stages
    for number in range(i * stages, (i + 1) * stages):
        catch_up_lane(price, pool, steady, spilled, room, i, number, t)
        if room.lanes[number].decodes < room.lanes[best].decodes:
            best = number
    lane = room.lanes[best]
    if lane.decodes == 0:
        lane.end = max(lane.end, t)
    elif lane.end < t:
        each = lane_round_seconds(pool, instance, lane)
        many = math.ceil((t - lane.end) / each - NEAR)
        if many > 0:  # who leaves with the last of them is there until then
            count_passes(room, best, many, each)
    before = lane.decodes
    start_decoding(pool, load, room, best, r)
    set_lane_period(price, pool, steady, spilled, room, i, best, before)
    instance.leaves = min(instance.leaves, next_departure(pool, instance, lane, room.leaving[best]))


@inlined_function
def _sorted(load, room):
    """Sort requests with further tokens by their first ones, into `order` of the workspace; returns their number."""
    many, order, first = 0, room.order, room.first
    for r in range(len(load.arrival)):
        if load.further[r] > 0:
            place = many  # most come in their order
            while place > 0 and first[order[place - 1]] > first[r]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = r
            many += 1
    return many
