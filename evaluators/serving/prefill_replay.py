"""Steady-state replay of a load's prompts over its arrivals, compiled: first and last token times.

A queueing formula knows gaps and prompts by two moments only, but the delay of the last tenth of a load's requests
depends on their order. So prompts are replayed as in the serving simulation, iteration by iteration through the stages
of their instance. Decode-only iterations are equal between two events, and are counted (`lane_clocks`).

The replay ignores memory beyond the mean number of requests that fit, and preemptions, and all decodes read the same
context. Where nothing decodes and memory does not limit, it equals the simulation.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_inlined, compiled_without_gil, inlined_function
from dse.evaluators.serving.disaggregated_decode import replay_decode_pool
from dse.evaluators.serving.iteration_time import IterationTime
from dse.evaluators.serving.lane_clocks import (
    GAPS,
    LEAVING,
    MAX_CACHED_TIMES,
    OCTAVES,
    PER_OCTAVE,
    PLENTY,
    PRICED,
    append_request,
    catch_up_lane,
    count_gaps,
    count_passes,
    delay_lanes,
    finish_requests,
    gap_quantile,
    lane_ready_time,
    lane_round_seconds,
    next_departure,
    next_departure_of_instance,
    order_statistic,
    prefill_pass_seconds,
    replay_pool,
    ring_place,
    set_lane_period,
    start_decoding,
)
from dse.evaluators.serving.prefill_chunks import longest_chunk
from dse.evaluators.serving.single_stage_replay import INSTANCE as ALONE
from dse.evaluators.serving.single_stage_replay import replay_single_stage
from dse.space.array_math import Array
from dse.space.requests import Requests

MAX_REQUESTS = 4096
"""Requests of a load up to which its prompts are replayed."""

INSTANCE = np.dtype(
    [
        ("held", "i8"),  # requests that have begun here, and have not left
        ("head", "i8"),  # first in the queue, -1 for none
        ("tail", "i8"),  # last in the queue
        ("queued", "i8"),
        ("turn", "i8"),  # lane that is tried first
        ("prefilling", "i8"),  # requests that prefill, in all lanes
        ("filling", "i8"),  # lanes that have requests that prefill
        ("flying", "i8"),  # passes with prompts under way, of a ring of lanes
        ("oldest", "i8"),  # place in the ring of the one that ends first
        ("decoding", "i8"),  # lanes that have requests that decode
        ("paces", "f8"),  # passes of decodes of all lanes, one each [s]
        ("slowest", "f8"),  # the longest of these [s]
        ("around", "f8"),  # from one pass of a lane to its next, where nobody prefills [s]
        ("leaves", "f8"),  # before which nobody who decodes leaves [s]
        ("at", "f8"),  # when it tries to start passes again; infinite for not before one ends
        ("next", "f8"),  # before which nothing happens [s]
        ("due", "?"),  # whether a pass has ended, or somebody has come, at the instant `at`
    ],
    align=True,
)
LANE = np.dtype(
    [
        ("prompts", "i8"),  # requests that prefill
        ("decodes", "i8"),  # requests that decode, a heap by their last token
        ("older", "i8"),  # those of them that wait for a token since `last`,
        ("fresh", "i8"),  # and since their first one, of those who do not get one in each pass
        ("tokens", "i8"),  # of a request that has decoded here at all times
        ("pace", "f8"),  # a pass of these decodes alone [s]
        ("start", "f8"),  # of the last pass with prompts
        ("gone", "f8"),  # from the first stage, this pass
        ("end", "f8"),  # of the last pass that is known, which may be still under way
        ("last", "f8"),
        ("stands", "?"),  # whether a pass of decodes from `end` on stands behind prompts that are under way
    ],
    align=True,
)


class ArrivalArrays(NamedTuple):
    """Arrival times and lengths of requests as arrays of shape (requests,).

    Attributes:
        arrival: [s]
        prompt, further: tokens, those after the first one. [token]
    """

    arrival: Array
    prompt: Array
    further: Array


class ReplayWorkspace(NamedTuple):
    """Work arrays of the replay: instances, lanes and requests.

    Attributes:
        instances, lanes: records.
        alone: records of instances of one stage, of `single_stage_replay.INSTANCE`.
        free: when each stage of each instance is, shape (instances, stages). [s]
        ring: lanes under way, shape (lanes,).
        running: requests that prefill, of each lane; shape (lanes, most).
        leaving: heaps, shape (lanes, most).
        since: first tokens of requests that wait for their second one, shape (lanes, most). [s]
        paces: times of decode-only iterations by their number of decodes; negative if not computed yet. [s]
        gaps: histogram of the gaps between tokens; empty where they are not counted.
        prices: cached iteration times, records of `PRICED`.
        channels: when each is free. [s]
        way: the first cache on its way between pools, and the last one; shape (2,).
        order: of requests, by their first tokens.
        behind, done, share: for each request: next in the queue, tokens computed, and tokens in the current iteration.
        first, begun, last: for each request: times of its first token, first iteration and last token. [s]
        arrival: of the requests of a load at another rate. [s]
    """

    instances: Array
    lanes: Array
    alone: Array
    free: Array
    ring: Array
    running: Array
    leaving: Array
    since: Array
    paces: Array
    gaps: Array
    prices: Array
    channels: Array
    way: Array
    order: Array
    behind: Array
    done: Array
    share: Array
    first: Array
    begun: Array
    last: Array
    arrival: Array


def arrival_arrays(requests: Requests) -> ArrivalArrays:
    """Arrival times and lengths of a load's requests as arrays."""
    return ArrivalArrays(requests.arrival, requests.prompt.astype(np.int64), requests.output.astype(np.int64) - 1)


def make_replay_workspace(stations: Array, requests: int, channels: int = 1, *, gaps: bool = True) -> ReplayWorkspace:
    """Work arrays for the replay of any of some pools.

    Args:
        stations: records of `pool_balance.STATION`.
        requests: of a load.
        channels: between pools.
        gaps: whether gaps between tokens are counted.
    """
    lanes = stations["instances"] * stations["stages"]
    most, widest, instances = int(lanes.max()), int(stations["batch"].max()) + 2, int(stations["instances"].max())
    behind, done, share = (np.zeros(requests, np.int64) for _ in range(3))
    first, begun, last = (np.zeros(requests) for _ in range(3))
    few = min(widest, requests)
    return ReplayWorkspace(
        np.zeros(instances, INSTANCE), np.zeros(most, LANE), np.zeros(instances, ALONE),
        np.zeros((instances, int(stations["stages"].max()))),
        np.zeros(most, np.int64), np.zeros((most, few), np.int64), np.zeros((most, few), LEAVING), np.zeros((most, few)),
        np.zeros(few + 1), np.zeros(OCTAVES * PER_OCTAVE * gaps, GAPS), np.zeros(MAX_CACHED_TIMES, PRICED),
        np.zeros(channels), np.zeros(2, np.int64), np.zeros(requests, np.int64), behind, done, share, first, begun, last,
        np.zeros(requests),
    )  # fmt: skip


@compiled_without_gil
def replay_prefill(price, pool, shares, nearest, load, steady, spilled, room):
    """Replay a load's prompts on a pool; `first`, `begun` and `last` of the workspace give the times.

    Args:
        price: iteration time of the pool.
        pool: its record of `pool_balance.STATION`.
        shares: stage shares of an iteration's time.
        nearest: whether a request goes to the instance with fewest requests, else to the next in rotation.
        load: `Load`.
        steady: a `pool_balance.RequestMix` of it.
        spilled: share of what is read that is not in SRAM.
        room: workspace, a `ReplayWorkspace`.
    """
    room.paces[:] = -1.0
    for place in range(len(room.gaps)):
        room.gaps[place].count, room.gaps[place].seconds = 0, 0.0
    for place in range(MAX_CACHED_TIMES):
        room.prices[place].tokens = -1.0
    if pool.stages == 1:
        replay_single_stage(price, replay_pool(pool, 1), shares[0], nearest, load, steady, spilled, room)
    else:
        _played(price, replay_pool(pool, int(pool.stages)), shares, nearest, load, steady, spilled, room)


@inlined_function
def _played(price, pool, shares, nearest, load, steady, spilled, room):
    """`replay_prefill` for a `lane_clocks.ReplayPool`."""
    instances, stages, turn = pool.instances, pool.stages, 0
    for i in range(instances):
        instance = room.instances[i]
        instance.held = instance.queued = instance.prefilling = instance.filling = instance.turn = instance.flying = (
            instance.oldest
        ) = instance.decoding = 0
        instance.head = instance.tail = -1
        instance.paces = instance.slowest = instance.around = 0.0
        instance.leaves, instance.at, instance.due, instance.next = math.inf, math.inf, False, math.inf
        for stage in range(stages):
            room.free[i, stage] = 0.0
    for number in range(instances * stages):
        lane = room.lanes[number]
        lane.prompts = lane.decodes = lane.older = lane.fresh = lane.tokens = 0
        lane.pace, lane.end, lane.stands = 0.0, -math.inf, False
    for r in range(len(load.arrival) + 1):
        end = r == len(load.arrival)
        t, best, every = math.inf if end else load.arrival[r], 0 if nearest else turn, nearest or end
        for i in range(0 if every else turn, instances if every else turn + 1):
            instance = room.instances[i]
            if instance.next <= t:
                _advance(price, pool, shares, load, steady, spilled, room, i, t)
                _caught(price, pool, steady, spilled, room, i, t)
                instance.next = _next(pool, room, i)
            if instance.held + instance.queued < room.instances[best].held + room.instances[best].queued:
                best = i
        if end:
            return
        turn = turn + 1 if turn + 1 < instances else 0
        instance = room.instances[best]
        room.done[r] = 0
        room.first[r] = room.begun[r] = room.last[r] = math.nan
        append_request(instance, room.behind, r)
        instance.at, instance.due, instance.next = t, True, t


@inlined_function
def _caught(price, pool, steady, spilled, room, i, t):
    """Release requests that finish at an instance by an instant."""
    instance, earliest = room.instances[i], math.inf
    if instance.leaves > t:
        return
    slower = instance.around
    for number in range(i * pool.stages, (i + 1) * pool.stages):
        catch_up_lane(price, pool, steady, spilled, room, i, number, t)
        earliest = min(earliest, next_departure(pool, instance, room.lanes[number], room.leaving[number]))
    instance.leaves = earliest if instance.around >= slower else -math.inf


@inlined_function
def _next(pool, room, i):
    """Time before which nothing happens in an instance: no iteration starts or ends, and no request leaves. [s]"""
    instance = room.instances[i]
    event_time = min(instance.at, instance.leaves)
    if instance.flying > 0:
        event_time = min(event_time, room.lanes[room.ring[i * pool.stages + instance.oldest]].end)
    return event_time


@inlined_function
def _advance(price, pool, shares, load, steady, spilled, room, i, until):
    """Replay an instance up to an instant, except for iterations that start then."""
    instance, stages = room.instances[i], pool.stages
    while True:
        if not instance.due:
            t = instance.at
            if instance.flying > 0:
                t = min(t, room.lanes[room.ring[i * stages + instance.oldest]].end)
            if t > until or t == math.inf:
                return
            while instance.flying > 0:
                number = room.ring[i * stages + instance.oldest]
                if room.lanes[number].end > t:
                    break
                instance.oldest = ring_place(instance.oldest, 1, stages)
                instance.flying -= 1
                _finish(price, pool, load, steady, spilled, room, i, number, t)
            instance.at, instance.due = t, True
        if instance.at >= until:
            return
        instance.due = False
        _start(price, pool, shares, load, steady, spilled, room, i, instance.at)


@inlined_function
def _finish(price, pool, load, steady, spilled, room, i, number, t):
    """Finish an iteration: decodes get a token, and completed prompts start decoding or leave."""
    instance, lane, keep = room.instances[i], room.lanes[number], 0
    if lane.older > 0 and pool.mixed:
        if len(room.gaps) > 0:
            count_gaps(room, t - lane.last, lane.older)
        lane.tokens += 1
        lane.older = 0
        finish_requests(price, pool, steady, spilled, room, i, number)
    before = lane.decodes
    for place in range(lane.prompts):
        r = room.running[number, place]
        room.done[r] += room.share[r]
        room.share[r] = 0
        if room.done[r] < load.prompt[r]:
            room.running[number, keep] = r
            keep += 1
            continue
        room.first[r] = room.last[r] = t
        if pool.decodes and load.further[r] > 0:
            start_decoding(pool, load, room, number, r)
        else:
            instance.held -= 1
    instance.prefilling += keep - lane.prompts
    instance.filling -= keep == 0
    lane.prompts = keep
    if lane.decodes > before:
        set_lane_period(price, pool, steady, spilled, room, i, number, before)
    instance.leaves = min(instance.leaves, next_departure(pool, instance, lane, room.leaving[number]))
    if pool.stages > 1 and instance.decoding > 0:
        delay_lanes(price, pool, steady, spilled, room, i, number, t)


@inlined_function
def _start(price, pool, shares, load, steady, spilled, room, i, t):
    """Start an iteration in each idle lane with prompts, while the first stage is free."""
    instance, stages, free = room.instances[i], pool.stages, room.free[i]
    instance.at, turn, stuck = math.inf, instance.turn, False
    if instance.flying == stages:
        return  # nobody leaves before one of them has ended
    _caught(price, pool, steady, spilled, room, i, t)
    if instance.prefilling + instance.queued == 0:
        return
    most = min(pool.batch, instance.held + instance.queued)  # of all lanes, which have them as evenly as can be
    # lanes without prompts under way, and of these the ones that have some: of others there is nothing to ask
    idle, waits = stages - instance.flying, instance.filling - instance.flying
    for _ in range(stages):
        if idle == 0 or (waits == 0 and instance.head < 0):
            break
        number = i * stages + turn
        turn = ring_place(turn, 1, stages)
        lane = room.lanes[number]
        idle -= lane.end <= t or lane.prompts == 0
        waits -= lane.end <= t and lane.prompts > 0
        if lane.end > t:
            if lane.prompts == 0 and instance.head >= 0:
                instance.at = min(instance.at, lane.end)
            continue
        takes = instance.head >= 0 and (lane.prompts + lane.decodes) * stages < most and instance.held < pool.batch
        if lane.prompts == 0 and not takes:
            continue
        if free[0] > t:
            instance.at = min(instance.at, free[0])
            return
        if lane.decodes > 0 and lane.end < t:  # in a pass of decodes
            end, many = lane_ready_time(pool, room, i, number, t)
            if end > t and lane.prompts == 0:
                instance.at = min(instance.at, end)
                continue
            if end > t:  # it has stood before the first stage for the last part of one
                many -= many > 0
            if many > 0:
                count_passes(room, number, many, lane_round_seconds(pool, instance, lane))
                finish_requests(price, pool, steady, spilled, room, i, number)
        beside = lane.decodes if pool.mixed else 0
        tokens, pairs, past = _formed(pool, load, room, i, number, most, beside, t)
        if tokens == 0:
            stuck = True
            continue
        step = prefill_pass_seconds(price, steady, spilled, room, tokens, pairs, past, beside)
        end = t
        for stage in range(stages):
            end = max(end, free[stage]) + step * shares[stage]
            free[stage] = end
        others = instance.decoding - instance.flying - (lane.decodes > 0)
        if others > 0:
            end = free[stages - 1] = max(end, t + pool.share * (step + others * instance.paces / instance.decoding))
        if lane.older + lane.fresh == 0:
            lane.last, lane.older = lane.end, lane.decodes
        lane.start, lane.gone, lane.end, lane.stands = t, free[0], end, False
        room.ring[i * stages + ring_place(instance.oldest, instance.flying, stages)] = number
        instance.flying += 1
        instance.turn = turn
    if (
        (stuck or instance.queued > 0) and instance.decoding > 0 and instance.flying < stages
    ):  # there may be room when somebody leaves
        # at the latest when a pass ends it is tried again
        least = (
            min(instance.at, room.lanes[room.ring[i * stages + instance.oldest]].end) if instance.flying > 0 else instance.at
        )
        leaves = next_departure_of_instance(pool, room, i, least)
        if leaves < least:
            instance.at = max(t, leaves)


@inlined_function
def _formed(pool, load, room, i, number, most, beside, t):
    """Prompts of an iteration, as the budget allows: tokens, pairs of query and key, and earlier positions."""
    instance, lane = room.instances[i], room.lanes[number]
    budget, chunks, longest = pool.tokens, PLENTY, PLENTY
    if pool.unit > 0:
        budget, chunks = PLENTY, (pool.tokens - beside) // pool.unit
    elif pool.chunked:
        budget -= beside
    if pool.chunk > 0:
        longest = pool.chunk
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
        instance.head >= 0 and (lane.prompts + lane.decodes) * pool.stages < most and instance.held < pool.batch
        and budget > 0 and chunks > 0 and lane.prompts < room.running.shape[1]
    ):  # fmt: skip
        r = instance.head
        tokens = load.prompt[r]
        if pool.chunked:
            tokens = min(tokens, budget, longest)
        elif tokens > budget and prompt > 0:
            break
        instance.head = room.behind[r]
        instance.queued -= 1
        instance.held += 1
        room.running[number, lane.prompts] = r
        instance.filling += lane.prompts == 0
        lane.prompts += 1
        instance.prefilling += 1
        room.begun[r], room.share[r] = t, tokens
        prompt += tokens
        pairs += tokens * (tokens + 1) / 2
        budget -= tokens
        chunks -= 1
    return prompt, pairs, past


@compiled_without_gil
def replay_prompts(
    linear, tables, apart, first, last, shares, nearest, load, steady, times, sends, sent, ttft, tpot, ranked, room, records
):
    """Replay a load on several designs, one after the other, and fill their result records.

    Args:
        linear: iteration times of the first and of the last pool; their tables are ignored.
        tables: tables of each of the two pools: distinct ones, and the index of each design's table.
        apart: whether there are two pools.
        first, last, shares: pool records of each design, and stage shares of the first pool.
        nearest, load, steady, room: as in `replay_prefill`.
        times: of each design, what arrival times are multiplied by, and how many requests come; shape (designs, 2).
        sends, sent: channel times of requests by kind of design, the kind of each design, and rows of
            `steady_state.transfer_constants`.
        ttft, tpot: SLO bounds on TTFT and TPOT. [s]
        ranked: the fields of `steady_state.RANKED` to compute; others are NaN, and so is `tbt_p99` if the workspace counts
            no gaps.
        records: records of `steady_state.STEADY_STATE_RECORD`; `steady_state.MAIN_FIELDS` and the span are filled in.
    """
    whole_load = load
    for row in range(len(records)):
        record, near, many = records[row], nearest[row], int(times[row, 1])
        load = scaled_load(whole_load, times[row, 0], many, room)
        price, spilled = with_pool_table(linear[0], tables[0], row), 0.0 if apart else record.spilled
        replay_prefill(price, first[row], shares[row], near, load, steady, spilled, room)
        whole = waited = kept = ended = paces = latest = 0.0
        several = 0
        if apart:
            for r in range(many):  # `replay_decode_pool` has another use for `begun`
                waited += room.begun[r] - load.arrival[r]
            later, each = with_pool_table(linear[1], tables[1], row), sends[sent[0][row]][:many]
            its = replay_pool(last[row], int(last[row].stages))
            replay_decode_pool(
                later, its, near, load, steady, record.spilled, each, sent[1][row], longest_chunk(first[row], 0.0), room
            )
        for r in range(many):
            further, taken = load.further[r], room.first[r] - load.arrival[r]
            if not apart:
                waited += room.begun[r] - load.arrival[r]
            kept += taken <= ttft and (further == 0 or room.last[r] - room.first[r] <= tpot * further)
            if further > 0:
                several += 1
                paces += (room.last[r] - room.first[r]) / further
            whole += taken
            ended += room.last[r] - load.arrival[r]
            latest = max(latest, room.last[r])
            room.first[r] = taken
        record.latency, record.span = ended / many, latest - load.arrival[0]
        if several > 0:
            record.tpot = paces / several
        record.ttft, record.wait, record.within = whole / many, waited / many, kept / many
        half, most, top = math.ceil(0.5 * many) - 1, math.ceil(0.9 * many) - 1, math.ceil(0.99 * many) - 1
        taken_by = room.first[:many]
        record.ttft_p50 = order_statistic(taken_by, half) if ranked[0] else math.nan
        half = half if ranked[0] else 0  # those before it are less
        record.ttft_p90 = order_statistic(taken_by[half:], most - half) if ranked[1] else math.nan
        most = most if ranked[1] else half
        record.ttft_p99 = order_statistic(taken_by[most:], top - most) if ranked[2] else math.nan
        record.tbt_p99 = gap_quantile(room.gaps, 0.99)


@compiled_without_gil
def replay_last_tokens(linear, tables, apart, first, last, shares, nearest, load, steady, spilled, sends, sent, room):
    """Replay a load on one design; the workspace's `last` gives each request's last token.

    Args:
        tables: of the first pool and of the last one: those that differ, and which of them this one has, shape (1,).
        first, last: a record of each, shape (1,).
        shares, spilled, sends: the design's own, as in `replay_prefill` and `replay_decode_pool`.
        sent: a row of `steady_state.transfer_constants`.
    """
    replay_prefill(
        with_pool_table(linear[0], tables[0], 0), first[0], shares, nearest, load, steady, 0.0 if apart else spilled, room
    )
    if apart:
        price, its = with_pool_table(linear[1], tables[1], 0), replay_pool(last[0], int(last[0].stages))
        replay_decode_pool(price, its, nearest, load, steady, spilled, sends, sent, longest_chunk(first[0], 0.0), room)


@inlined_function
def scaled_load(load, scale, many, room):
    """The first requests of a load at another rate: arrival times are multiplied by `scale`."""
    for r in range(many):
        room.arrival[r] = scale * load.arrival[r]
    return ArrivalArrays(room.arrival[:many], load.prompt[:many], load.further[:many])


@compiled_inlined
def with_pool_table(price, tables, row):
    """Iteration time with the table of one pool."""
    return IterationTime(price.linear, price.grid, price.sizes, tables[0][tables[1][row]], price.places, price.weights)
