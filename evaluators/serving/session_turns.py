"""Session turns that wait for answers, compiled: each arrives a think time after the answer.

Pending turns are a heap by (instant, row), as long as there are sessions, since a session waits for one turn at a time.

Throughout: s is the `simulator_state.ServingState`, q a request, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, inlined_function


@inlined_function
def next_independent(s, coming):
    """Next request from a row on that waits for no answer."""
    while coming < len(s.requests) and s.requests[coming].turn:
        coming += 1
    return coming


@inlined_function
def next_arrival(s, coming):
    """Time of the next known arrival: an independent request, or a turn after its think time. [s]"""
    t = s.requests[coming].arrival if coming < len(s.requests) else np.inf
    return min(t, s.requests[s.coming[0]].arrival) if s.total[0].thinking > 0 else t


@called_part
def schedule_next_turn(s, q, t):
    """Schedule the next turn of a session after a request's last token and the think time."""
    if q.then < 0:
        return
    heap, requests, r = s.coming, s.requests, q.then
    requests[r].arrival = t + requests[r].think
    place = s.total[0].thinking
    s.total[0].thinking += 1
    while place > 0 and _before(requests, r, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = r


@called_part
def pop_next_turn(s):
    """Remove and return the earliest pending turn."""
    heap, requests, next_turn = s.coming, s.requests, s.coming[0]
    s.total[0].thinking -= 1
    count, place = s.total[0].thinking, 0
    r = heap[count]
    while 2 * place + 1 < count:
        child = 2 * place + 1
        if child + 1 < count and _before(requests, heap[child + 1], heap[child]):
            child += 1
        if not _before(requests, heap[child], r):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = r
    return next_turn


@inlined_function
def _before(requests, r, other):
    a, b = requests[r].arrival, requests[other].arrival
    return a < b or (a == b and r < other)


@inlined_function
def safe_horizon(s, instance, until, t):
    """Instant until which no answer elsewhere can bring a turn to an instance, at most `until`. [s]

    An answer ends an iteration: one under way, one that starts when a first stage is free, or one after the arrival
    of a KV cache. An instance that has not been examined yet may start at once.
    """
    if len(s.coming) == 0:
        return until
    for i in range(len(s.instances)):
        other = s.instances[i]
        if i == instance.number:
            continue
        until = min(until, other.ends)
        if other.due:
            if s.stage_free[i, 0] > t:
                until = min(until, s.stage_free[i, 0])
            elif i > instance.number:
                return t
    if s.transit[0] >= 0:
        until = min(until, s.requests[s.transit[0]].ready)
    return until
