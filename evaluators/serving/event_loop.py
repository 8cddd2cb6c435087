"""Serving simulation loop, compiled: events at each instant, and the forming of iterations.

An instant is when a request arrives, an iteration ends, a first stage is free, or a KV cache has been sent. Everything
that ends at an instant is booked before anything new is formed, instances and their lanes in order, so that a run is a
function of its requests. A lane is a micro-batch of a pipeline: an instance has as many as stages, and a request stays
in the lane that admitted it.

Throughout: s is the `simulator_state.ServingState`, `held` in one place, r the number of a request and q its record,
here an instance, pool its pool, lane one of its lanes, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import math

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, compiled_whole, held, inlined_function
from dse.evaluators.serving.block_allocation import (
    allocate,
    cached_positions,
    can_take_first,
    extend_allocation,
    free_blocks,
    host_wait_seconds,
    refresh_prefix,
    spilled_blocks,
    spilled_positions,
    transferred_positions,
    wait_reason,
)
from dse.evaluators.serving.busiest_iterations import count_end, count_start, keep_busiest, span_index
from dse.evaluators.serving.decode_iterations import log_iteration, skip_decode_iterations
from dse.evaluators.serving.instance_queues import (
    arrivals_elsewhere,
    dequeue,
    enqueue,
    enqueue_first,
    join_lane,
    receive_cache,
    route_arrival,
    route_request,
    send_layerwise,
    start_transfers,
    update_busy_time,
)
from dse.evaluators.serving.iteration_time_lookup import iteration_seconds
from dse.evaluators.serving.prefix_blocks import count_host_transfer, publish_blocks
from dse.evaluators.serving.session_turns import next_arrival, next_independent, pop_next_turn, safe_horizon, schedule_next_turn
from dse.evaluators.serving.speculation import accepted_tokens, positions_needed
from dse.evaluators.serving.token_gap_histogram import gap_bin
from dse.evaluators.serving.wake_times import earliest_before, earliest_wake, next_awake, set_wake_time

ENDED, STOPPED, UNPRICED, STUCK, PAUSED = range(5)
"""How a run ended: all requests served; at the caller's bound; at a step price that is no time; with nothing left to happen. Or
not yet: it has worked for a while and is to be called again, so that the caller can be interrupted."""

LARGE_COUNT = 1 << 40

INSTANT_WORK = 16
"""Work of an instant, in iterations that are skipped."""


@compiled_whole
def run_event_loop(state, prices, transfer, stop):
    """Simulate all requests, or continue after a pause; results are in the state. Returns how it ended."""
    s = held(state)
    n, total = len(s.requests), s.total[0]
    now, coming = total.now, total.coming
    total.work = stop.work
    while total.served < n:
        if total.work <= 0:
            total.now, total.coming = now, coming
            return PAUSED
        total.work -= INSTANT_WORK
        coming = next_independent(s, coming)
        t = _next(s, next_arrival(s, coming))
        if t == np.inf:
            return STUCK
        if t > stop.seconds or total.queued > stop.waiting or max(total.late, total.slow) > stop.misses:
            return STOPPED
        total.system_area += (t - now) * total.in_system
        total.queue_area += (t - now) * total.queued
        now = t
        if total.again > 0:
            _wake_due(s, t)
        i = next_awake(s, 0, t)
        while i < len(s.instances):
            instance = s.instances[i]
            if instance.ends <= t:
                instance.ends = np.inf
                for lane in range(instance.first_lane, instance.first_lane + instance.stages):
                    if s.lanes[lane].end <= t:
                        _finish(s, s.lanes[lane], transfer, stop, t)
                    instance.ends = min(instance.ends, s.lanes[lane].end)
                set_wake_time(s, i, -np.inf)
            i = next_awake(s, i + 1, t)
        while s.transit[0] >= 0 and s.requests[s.transit[0]].ready <= t:
            receive_cache(s, t)
        while coming < n and s.requests[coming].arrival <= t:
            _arrive(s, coming, transfer)
            coming = next_independent(s, coming + 1)
        while total.thinking > 0 and s.requests[s.coming[0]].arrival <= t:
            _arrive(s, pop_next_turn(s), transfer)
        i = next_awake(s, 0, t)
        while i < len(s.instances):
            instance = s.instances[i]
            # who has tried all lanes waits for something to happen; who had to stop, for the first stage
            update_busy_time(instance, t)
            start_transfers(s, instance, transfer, t)
            if not _start(s, prices, instance, transfer, stop, coming, t):
                return UNPRICED
            start_transfers(s, instance, transfer, t)
            instance.why = wait_reason(s, instance)
            wakes = instance.ends
            if instance.due:
                if s.stage_free[i, 0] > t:
                    wakes = min(wakes, s.stage_free[i, 0])
                else:
                    total.again += 1
            set_wake_time(s, i, wakes)
            i = next_awake(s, i + 1, t)
    return ENDED


@called_part
def _wake_due(s, t):
    """Wake instances that could not start all they might, at the next instant, whatever it is."""
    s.total[0].again = 0
    for i in range(len(s.instances)):
        if s.instances[i].due and s.stage_free[i, 0] <= t:
            set_wake_time(s, i, -np.inf)


@called_part
def _arrive(s, r, transfer):
    """Add an arriving request to the queue of its instance."""
    s.total[0].in_system += 1
    enqueue(s, r, route_arrival(s, s.requests[r], transfer))
    s.requests[r].queued = s.total[0].queued


@inlined_function
def _next(s, arrival):
    """The next instant."""
    t = min(arrival, earliest_wake(s))
    if s.transit[0] >= 0:
        t = min(t, s.requests[s.transit[0]].ready)
    return t


@inlined_function
def _start(s, prices, instance, transfer, stop, coming, t):
    """Start an iteration in each idle lane of an instance, while its first stage is free; returns whether all had a
    time.
    """
    pool, free, f, turn = s.pools[instance.pool], s.stage_free[instance.number], s.step[0], instance.next_lane
    left = s.total[0].preempted
    for _ in range(instance.stages):
        lane = s.lanes[instance.first_lane + turn]
        turn = (turn + 1) % instance.stages
        if free[0] > t:
            return True
        if lane.end < np.inf or (lane.count == 0 and not _open(s, instance, pool)) or not _form(s, instance, pool, lane, t):
            continue
        alone = instance.stages == 1 and f.requests == lane.count and pool.guesses == 0
        if alone and f.far == 0 and f.moved == 0 and _closed(s, instance, pool, lane):
            instance.why = wait_reason(s, instance)
            t = skip_decode_iterations(
                s, prices[instance.pool], instance, pool, lane, t, _horizon(s, instance, transfer, stop, coming, t)
            )
        step = iteration_seconds(
            prices[instance.pool], f.prompt, f.pairs, f.requests, f.positions, f.past, f.far
        ) + host_wait_seconds(f, pool)
        if not (step > 0 and step < np.inf):
            return False
        end = t
        for stage in range(instance.stages):
            end = max(end, free[stage]) + step * s.shares[instance.pool, stage]
            free[stage] = end
        lane.start, lane.end = t, end
        instance.ends = min(instance.ends, end)
        instance.next_lane = turn
        count_start(s.at_once[instance.pool], lane, f.prompt > 0)
        _count(s, instance, lane, t, end, step)
    # who has left may need less than it has let go of, with less to guess or more to share: a lane that was tried before might
    # take it up
    instance.due = s.total[0].preempted > left
    return True


@inlined_function
def _open(s, instance, pool):
    """Whether the first queued request may be admitted."""
    if instance.head < 0 or instance.held >= pool.batch:
        return False
    q = s.requests[instance.head]
    return not q.remote and can_take_first(s, pool, instance, q)


@inlined_function
def _closed(s, instance, pool, lane):
    """Whether no request can join a lane in which none ends: none waits, or memory is full."""
    if instance.head < 0 or instance.held >= pool.batch or (pool.static and not s.requests[instance.head].remote):
        return True
    # what a chunk of the first in the queue would be depends on what is left of the budget: one position is the least
    return not can_take_first(s, pool, instance, s.requests[instance.head])


@called_part
def _horizon(s, instance, transfer, stop, coming, t):
    """The instant up to which nothing from outside can reach an instance, known when those before it have started."""
    if s.instances[0].pool == instance.pool and len(s.coming) == 0:
        coming += arrivals_elsewhere(s, s.pools[instance.pool], instance, transfer)
    until = safe_horizon(s, instance, min(next_arrival(s, coming), stop.seconds), t)
    if s.instances[0].pool == instance.pool:
        return until
    if s.total[0].remote > 0 or s.transit[0] >= 0:
        return t
    # caches come from iterations of the other pool, which an arrival alone can start while none is under way
    if s.instances[0].stages == 1:  # each wakes when its iteration ends
        return min(until, earliest_before(s, s.pools[instance.pool].first))
    for i in range(instance.number):
        if s.instances[i].pool != instance.pool:
            until = min(until, s.instances[i].ends)
            if s.stage_free[i, 0] > t:
                until = min(until, s.stage_free[i, 0])
    return until


@inlined_function
def _count(s, instance, lane, t, end, step):
    f, total, work = s.step[0], s.total[0], s.work[instance.pool, 1 if s.step[0].prompt > 0 else 0, span_index(s.step[0])]
    instance.busy += step
    keep_busiest(s.busiest[instance.pool], f)
    work.iterations += 1
    work.prompt += f.prompt
    work.pairs += f.pairs
    work.requests += f.requests
    work.positions += f.positions
    work.past += f.past
    work.far += f.far
    total.iterations += 1
    total.prefilled += int(f.prompt)
    total.decoded += int(f.requests)
    total.swapped += int(f.moved)
    if total.logged < len(s.log):
        log_iteration(s, instance, lane, t, end, step)


@inlined_function
def _form(s, instance, pool, lane, t):
    """Chooses what a lane runs next: requests' tokens in `part`, their counts in `step`. Returns whether any."""
    f = s.step[0]
    f.prompt = f.pairs = f.requests = f.positions = f.past = f.far = f.moved = f.cells = f.moves = 0.0
    share = -(-(instance.held + instance.queued) // instance.stages)
    room = min(-(-pool.batch // instance.stages), share)
    for _ in range(2):
        new = not pool.static or lane.count == 0
        _resume(s, instance, pool, lane, room)
        kept = True
        if not pool.mixed:
            kept = _prefill(s, instance, pool, lane, t, room, new)
            if f.prompt > 0:
                return True
        kept = _decode(s, instance, pool, lane) and kept
        if pool.mixed:
            kept = _prefill(s, instance, pool, lane, t, room, new and kept) and kept
        if f.prompt > 0 or f.requests > 0:
            return True
        if kept:
            return False
        # all have left, for want of memory that others held: whom it has room for now may come back
    return False


@inlined_function
def _resume(s, instance, pool, lane, room):
    """Brings back from the host what waits first, where it fits."""
    while instance.head >= 0 and lane.count < room and instance.held < pool.batch:
        q = s.requests[instance.head]
        if not q.parked or not allocate(s, pool, instance, q, q.done):
            return
        q.parked = False
        _move(s, instance, pool, q)
        join_lane(s, instance, lane, dequeue(s, instance))


@inlined_function
def _decode(s, instance, pool, lane):
    """All that can decode does, in the order of the lane. Returns whether memory sufficed: else the last have left."""
    f, requests, running, kept, k = s.step[0], s.requests, s.running[lane.number], True, 0
    limit = pool.tokens // (1 + pool.guesses) if pool.chunked else LARGE_COUNT
    count, positions = 0, 0  # at hand: a sum in memory waits for the one before
    while k < lane.count and count < limit:
        q = requests[running[k]]
        if q.done == q.target:
            # most need no more memory, and a call takes longer than all else here
            if positions_needed(pool, q) > q.room * pool.block and not extend_allocation(
                s, pool, instance, q, positions_needed(pool, q)
            ):
                _preempt(s, instance, pool, lane)
                kept = False
                continue
            context = q.prompt + q.made
            q.part = 1
            count += 1
            positions += context
            if q.spilled > 0:
                f.far += spilled_positions(pool, q, context)
        k += 1
    f.requests += count
    f.positions += positions
    return kept


@inlined_function
def _prefill(s, instance, pool, lane, t, room, new):
    """Prompts, as far as the budget goes: those begun first, then new ones in the order of the queue.

    Returns whether memory sufficed for chunks of those begun: else the last to come have left, and nobody new is taken up.
    """
    f, running, kept, k = s.step[0], s.running[lane.number], True, 0
    budget, chunks, rows = pool.tokens, LARGE_COUNT, int(f.requests) * (1 + pool.guesses)
    if pool.unit > 0:
        budget, chunks = LARGE_COUNT, (pool.tokens - rows) // pool.unit
    elif pool.chunked or pool.shared_budget:
        budget -= rows
    longest = pool.chunk if pool.chunk > 0 else LARGE_COUNT
    while k < lane.count and budget > 0 and chunks > 0:
        q = s.requests[running[k]]
        if q.done < q.target:
            tokens = min(q.target - q.done, budget, longest)
            if not extend_allocation(s, pool, instance, q, q.done + tokens):
                _undecoded(f, s.requests[running[lane.count - 1]])
                _preempt(s, instance, pool, lane)
                kept = False
                continue
            _chunk(f, pool, q, tokens)
            budget -= tokens
            chunks -= 1
        k += 1
    while (
        new and kept and instance.head >= 0 and lane.count < room and instance.held < pool.batch and budget > 0 and chunks > 0
    ):
        q = s.requests[instance.head]
        if q.parked or q.remote or not can_take_first(s, pool, instance, q):
            break
        hit = cached_positions(s, instance, pool, q)
        tokens = q.target - hit
        if pool.chunked:
            tokens = min(tokens, budget, longest)
        elif tokens > budget and f.prompt > 0:
            break
        if not allocate(s, pool, instance, q, hit + tokens):
            break
        join_lane(s, instance, lane, dequeue(s, instance))
        if q.fetch > 0:
            f.cells += transferred_positions(s, pool, q.fetch)
            f.moves += 1
            count_host_transfer(s, instance, transferred_positions(s, pool, q.fetch))
            s.total[0].fetched += q.fetch
            q.fetch = 0
        q.done = q.begun = hit
        refresh_prefix(s, instance, pool, q, hit)
        s.total[0].reused += hit
        if math.isnan(q.scheduled):
            q.scheduled = t
            q.hit = hit
        _chunk(f, pool, q, tokens)
        budget -= tokens
        chunks -= 1
    return kept


@inlined_function
def _undecoded(f, q):
    """Remove a request's token, if any, from the iteration; its place in the budget stays empty."""
    if q.part > 0:
        q.part = 0
        f.requests -= 1
        f.positions -= q.prompt + q.made


@inlined_function
def _chunk(f, pool, q, tokens):
    q.part = tokens
    f.prompt += tokens
    f.pairs += tokens * q.done + tokens * (tokens + 1) // 2
    f.past += q.done
    f.far += spilled_positions(pool, q, q.done)


@inlined_function
def _finish(s, lane, transfer, stop, t):
    """Books the iteration of a lane."""
    instance, running, gaps, keep = s.instances[lane.instance], s.running[lane.number], s.gaps, 0
    pool, last, place = s.pools[instance.pool], -1.0, 0
    count, seconds = gaps[place].count, gaps[place].seconds  # of that place, at hand
    update_busy_time(instance, t)
    count_end(s.at_once[instance.pool], lane)
    lane.end = np.inf
    for k in range(lane.count):
        r = running[k]
        q = s.requests[r]
        if q.part > 0:
            more = accepted_tokens(pool, r, q) if q.done == q.target else 0
            if q.done < q.target:
                if transfer.layers > 0 and pool.hands_over:
                    send_layerwise(q, transfer, lane.start, t)
                q.done += q.part
                if q.done == q.target:
                    refresh_prefix(s, instance, pool, q, q.target)
            q.part = 0
            if q.done == q.target:
                if more > 0:
                    s.total[0].guessed += more
                for _ in range(1 + more):
                    gap = _token(s.total[0], q, stop, t)
                    if gap < 0:
                        continue
                    if gap != last:  # most have waited as long as the one before
                        gaps[place].count, gaps[place].seconds = count, seconds
                        last, place = gap, gap_bin(gaps, gap)
                        count, seconds = gaps[place].count, gaps[place].seconds
                    count += 1
                    seconds += gap
            if pool.pooled:
                publish_blocks(s, instance, pool, q, _held(q))
            if q.done == q.target and (q.made == q.output or pool.hands_over):
                _leave(s, instance, pool, r, q, transfer, stop, t)
                continue
        running[keep] = r
        keep += 1
    gaps[place].count, gaps[place].seconds = count, seconds
    lane.count = keep


@inlined_function
def _token(total, q, stop, t):
    """One more token of a request is there. Returns the gap to the one before; less than 0 for none."""
    q.made += 1
    gap = t - q.last
    if q.made == 1:
        q.first = t
        total.late += t - q.arrival > stop.ttft
        gap = -1.0
    q.last = t
    return gap


@called_part
def _leave(s, instance, pool, r, q, transfer, stop, t):
    """A request that is done here is completed, or waits for its cache to be sent."""
    instance.held -= 1
    s.loads[instance.number] -= 1
    if q.made == q.output:
        q.completed = t
        s.total[0].slow += q.output > 1 and (t - q.first) / (q.output - 1) > stop.tpot
        s.total[0].served += 1
        s.total[0].in_system -= 1
        free_blocks(s, pool, instance, q)
        schedule_next_turn(s, q, t)
        return
    q.source, q.left, q.left_paged = instance.number, q.blocks, spilled_blocks(pool, q)
    q.blocks = q.spilled = q.room = q.entered = 0
    q.remote = True
    s.total[0].remote += 1
    other_pool, blocks = s.pools[1], transfer.blocks
    block = (instance.number - pool.first) * blocks // pool.instances
    low, high = -(-block * other_pool.instances // blocks), -(-(block + 1) * other_pool.instances // blocks)
    enqueue(s, r, route_request(s, other_pool, transfer.nearest, low, high))


@called_part
def _preempt(s, instance, pool, lane):
    """The last of a lane leaves, for the front of its rank in the queue; its cache goes to the host, or is lost."""
    lane.count -= 1
    r = s.running[lane.number, lane.count]
    q, total = s.requests[r], s.total[0]
    instance.held -= 1
    q.preempted += 1
    total.preempted += 1
    free_blocks(s, pool, instance, q)
    if pool.swap:
        q.parked = True
        _move(s, instance, pool, q)
    else:
        total.lost += _held(q)
        q.done, q.target, q.gone = 0, q.prompt + q.made, -np.inf
    enqueue_first(s, instance, r)


@inlined_function
def _move(s, instance, pool, q):
    """Count positions moved to or from the host."""
    s.step[0].moved += _held(q)
    s.step[0].cells += transferred_positions(s, pool, _held(q))
    count_host_transfer(s, instance, transferred_positions(s, pool, _held(q)))
    s.step[0].moves += _held(q) > 0


@inlined_function
def _held(q):
    """Positions of a request whose keys and values have been computed."""
    return q.prompt + q.made - 1 if q.done == q.target else q.done
