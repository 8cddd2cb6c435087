"""Turns of sessions, compiled: those that wait for an answer, and come when it is there and their user has thought.

They are a heap by (instant, row), as long as there are sessions, since a session waits for one turn at a time.

Throughout: s is the `state.State`, q a request, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, inlined_function


@inlined_function
def next_independent(s, coming):
    """The next request that waits for no answer, from a row on."""
    while coming < len(s.requests) and s.requests[coming].turn:
        coming += 1
    return coming


@inlined_function
def next_arrival(s, coming):
    """When the next request comes, of those that are known: one that waits for nobody, or a turn that is thought about."""
    t = s.requests[coming].arrival if coming < len(s.requests) else np.inf
    return min(t, s.requests[s.coming[0]].arrival) if s.total[0].thinking > 0 else t


@called_part
def schedule_next_turn(s, q, t):
    """A request has its last token: its session's next turn comes when that has been thought about."""
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
    """The turn that comes first, which leaves those that are thought about."""
    heap, requests, found = s.coming, s.requests, s.coming[0]
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
    return found


@inlined_function
def _before(requests, r, other):
    a, b = requests[r].arrival, requests[other].arrival
    return a < b or (a == b and r < other)


@inlined_function
def safe_horizon(s, here, until, t):
    """The instant up to which no answer elsewhere can make a turn come to an instance, at most `until`.

    An answer ends an iteration, of those under way or of one that starts when a first stage is free, or follows a cache that
    arrives; an instance that has not been looked at yet may start at once.
    """
    if len(s.coming) == 0:
        return until
    for i in range(len(s.instances)):
        other = s.instances[i]
        if i == here.number:
            continue
        until = min(until, other.ends)
        if other.due:
            if s.stage_free[i, 0] > t:
                until = min(until, s.stage_free[i, 0])
            elif i > here.number:
                return t
    if s.transit[0] >= 0:
        until = min(until, s.requests[s.transit[0]].ready)
    return until
