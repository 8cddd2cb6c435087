"""Queues of instances, request routing, and KV transfer between pools, compiled.

Throughout: s is the `simulator_state.ServingState`, r the number of a request and q its record, here an instance, pool
its pool, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, inlined_function
from dse.evaluators.serving.block_allocation import allocate, cached_positions
from dse.evaluators.serving.prefix_blocks import release_prefix
from dse.evaluators.serving.simulator_state import BATCH, MEMORY
from dse.evaluators.serving.wake_times import set_wake_time


@inlined_function
def update_busy_time(instance, t):
    """Update the time sums of an instance, before its blocks change and before it forms an iteration."""
    instance.area += (t - instance.since) * (instance.used + instance.paged)
    if instance.why == BATCH:
        instance.by_batch += t - instance.since
    elif instance.why == MEMORY:
        instance.by_memory += t - instance.since
    instance.since = t
    instance.due = True


@called_part
def enqueue(s, r, i):
    """Append a request to its rank in the queue of an instance."""
    instance, q = s.instances[i], s.requests[r]
    q.instance = i
    instance.due = True
    s.loads[i] += 1
    set_wake_time(s, i, -np.inf)
    _behind(s, instance, r, _last(s, instance, q.rank))
    s.lasts[i, q.rank] = r


@called_part
def enqueue_first(s, instance, r):
    """Insert a preempted request as the first of its rank in the queue."""
    rank = s.requests[r].rank
    _behind(s, instance, r, _last(s, instance, rank - 1))
    if s.lasts[instance.number, rank] < 0:
        s.lasts[instance.number, rank] = r


@inlined_function
def _last(s, instance, rank):
    """The last in the queue of those up to a rank; -1 for none."""
    while rank >= 0 and s.lasts[instance.number, rank] < 0:
        rank -= 1
    return s.lasts[instance.number, rank] if rank >= 0 else -1


@inlined_function
def _behind(s, instance, r, before):
    """A request stands in the queue behind another, or first of all."""
    if before < 0:
        s.requests[r].follower = instance.head
        instance.head = r
    else:
        s.requests[r].follower = s.requests[before].follower
        s.requests[before].follower = r
    instance.queued += 1
    s.total[0].queued += 1


@inlined_function
def dequeue(s, instance):
    """Remove and return the first request of an instance's queue."""
    r = instance.head
    instance.head = s.requests[r].follower
    rank = s.requests[r].rank
    if s.lasts[instance.number, rank] == r:
        s.lasts[instance.number, rank] = -1
    instance.queued -= 1
    s.total[0].queued -= 1
    return r


@called_part
def route_request(s, pool, nearest, low, high):
    """Instance of a pool to which a request is routed, from number `low` up to below `high`."""
    best = pool.first + low
    if not nearest:
        best += pool.turn % (high - low)
        pool.turn += 1
        return best
    for i in range(best + 1, pool.first + high):
        if s.loads[best] == 0:
            break
        if s.loads[i] < s.loads[best]:
            best = i
    return best


@inlined_function
def arrivals_elsewhere(s, pool, instance, transfer):
    """Lower bound on the next arrivals routed to other instances, while no request ends in this one."""
    if transfer.aware:
        return 0
    if not transfer.nearest:
        return (instance.number - pool.first - pool.turn) % pool.instances
    # each of the others takes one after another until it holds as many; what ends there lets it take more
    arrivals, mine = 0, s.loads[instance.number]
    for i in range(pool.first, pool.first + pool.instances):
        if i != instance.number:
            arrivals += max(0, mine + (i < instance.number) - s.loads[i])
    return arrivals


@called_part
def route_arrival(s, q, transfer):
    """Instance to which an arriving request is routed.

    With cache-aware routing: the instance with the longest prefix match, the first among several, if the match is
    long enough and instances are loaded evenly; else the one with fewest requests.
    """
    pool = s.pools[0]
    if not transfer.aware:
        return route_request(s, pool, transfer.nearest, 0, pool.instances)
    best, longest, least, most = 0, -1, 1 << 60, 0
    for i in range(pool.instances):
        instance = s.instances[i]
        load, match = s.loads[i], cached_positions(s, instance, pool, q)
        least, most = min(least, load), max(most, load)
        if match > longest:
            best, longest = i, match
    if longest < transfer.matched * q.prompt or (most - least > transfer.apart and most > transfer.times * least):
        return route_request(s, pool, True, 0, pool.instances)
    return best


@inlined_function
def start_transfers(s, instance, transfer, t):
    """Start waiting KV transfers to an instance, as long as the instance has room."""
    pool = s.pools[instance.pool]
    while instance.head >= 0 and s.requests[instance.head].remote and instance.held < pool.batch:
        q = s.requests[instance.head]
        if not allocate(s, pool, instance, q, q.prompt + q.made):
            return
        r = dequeue(s, instance)
        s.total[0].remote -= 1
        instance.held += 1
        channel = _first_free(s.channels)
        gone = max(t, s.channels[channel]) + q.sending
        if transfer.layers > 0 and q.last == t:  # there was room for what has been computed
            gone = max(s.channels[channel] + q.sending, q.gone)
        s.channels[channel] = gone
        q.ready = gone + transfer.latency
        s.total[0].sent += q.prompt
        before, after = -1, s.transit[0]
        while after >= 0 and s.requests[after].ready <= q.ready:
            before, after = after, s.requests[after].follower
        q.follower = after
        if before < 0:
            s.transit[0] = r
        else:
            s.requests[before].follower = r


@inlined_function
def _first_free(channels):
    """The channel that is free first; `np.argmin` would make every process import SciPy for its machine code."""
    least = 0
    for channel in range(1, len(channels)):
        if channels[channel] < channels[least]:
            least = channel
    return least


@inlined_function
def send_layerwise(q, transfer, start, t):
    """Send the prompt part of one iteration layer by layer, over a free channel.

    A layer's part can go when the layer is done, and layers take equal times; parts follow one another. With G the
    time at which everything before has gone, n parts of S / n and an iteration from b to e, that is

        G' = max(max(G, b + (e - b) / n) + S, e + S / n)

    since a channel that waits for evenly spaced parts is limited either by the first or by the last. A reused
    prefix is there before. A channel that is busy until c has sent everything at max(c + all of S, G).
    """
    if q.gone < 0 and q.begun > 0:
        q.gone = start + q.sending * (q.begun / q.prompt)
    part = q.sending * (q.part / q.prompt)
    q.gone = max(max(q.gone, start + (t - start) / transfer.layers) + part, t + part / transfer.layers)


@called_part
def receive_cache(s, t):
    """Receive the next KV cache in transit: free its source, and join the lane with fewest requests."""
    r = s.transit[0]
    q = s.requests[r]
    s.transit[0] = q.follower
    q.remote = False
    source, instance = s.instances[q.source], s.instances[q.instance]
    update_busy_time(source, t)
    source.used -= q.left
    source.paged -= q.left_paged
    source.buffers -= 1
    if s.pools[source.pool].pooled:
        release_prefix(s, source, s.pools[source.pool], q)
    best = instance.first_lane
    for other in range(best + 1, best + instance.stages):
        if s.lanes[other].count < s.lanes[best].count:
            best = other
    instance.held -= 1
    instance.due = True
    set_wake_time(s, source.number, -np.inf)
    set_wake_time(s, instance.number, -np.inf)
    join_lane(s, instance, s.lanes[best], r)


@called_part
def join_lane(s, instance, lane, r):
    """Append a request to its rank in a lane."""
    running, place = s.running[lane.number], lane.count
    while place > 0 and s.requests[running[place - 1]].rank > s.requests[r].rank:
        running[place] = running[place - 1]
        place -= 1
    running[place] = r
    lane.count += 1
    instance.held += 1
    instance.most = max(instance.most, instance.held)
