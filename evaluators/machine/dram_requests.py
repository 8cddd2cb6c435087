"""Compiled requesters of HBM channels, which limit their outstanding requests.

They end when their data have crossed the mesh between. Compiled loops play them (`machine.dram_simulator`).
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_part, inlined_function
from dse.evaluators.machine.dram_constants import FROM, NEVER, TO


@inlined_function
def offer_requests(channels, state, number, clock):
    """Offer the requests that a requester may offer now; returns when it may offer more, if known."""
    q = state.requesters[number]
    window, ends, links = q.window, state.ends[number], state.links[number]
    if window > 0:
        while q.reads != q.read_tail and ends[0, q.reads % window] + state.path <= clock:
            q.freed = links[0, q.reads % window]
            q.reads += 1
            q.outstanding -= 1
        while q.writes != q.write_tail and ends[1, q.writes % window] + state.path <= clock:
            q.freed = links[1, q.writes % window]
            q.writes += 1
            q.outstanding -= 1
    while q.next < q.end:
        r = q.next
        if state.arrival[r] > clock:
            return state.arrival[r]
        if window > 0 and state.begins[r] and q.outstanding + q.most > window:
            wake = NEVER
            if q.reads != q.read_tail:
                wake = min(wake, ends[0, q.reads % window] + state.path)
            if q.writes != q.write_tail:
                wake = min(wake, ends[1, q.writes % window] + state.path)
            return wake
        c = channels.state[state.channel[r]]
        if c.coming < 0:
            c.coming = r
        else:
            state.follow[c.latest] = r
        c.latest = r
        c.awake = clock
        state.offered[r] = clock
        state.late[r] = clock > state.arrival[r]
        state.held[r] = q.freed
        q.outstanding += 1
        q.next += 1
    return NEVER


@compiled_part
def _cross(state, ways, r, clock):
    """When the data of a request that is at its channel have crossed the mesh, links one after the other."""
    number, at, write = state.requester[r], state.channel[r], state.write[r]
    row, col, to_row, to_col = ways.row[at], ways.col[at], ways.from_row[number], ways.from_col[number]
    if write:
        row, col, to_row, to_col = to_row, to_col, row, col
    far = ways.ramp + (abs(to_row - row) + abs(to_col - col)) * ways.hop
    time = float(clock)
    if write:
        time = max(time, ways.free[FROM, row, col])
        ways.free[FROM, row, col] = time + ways.pass_
        time += ways.ramp
    while row != to_row or col != to_col:
        way = (0 if to_col > col else 1) if col != to_col else (2 if to_row > row else 3)
        time = max(time, ways.free[way, row, col])
        ways.free[way, row, col] = time + ways.pass_
        time += ways.hop
        col += (way == 0) - (way == 1)
        row += (way == 2) - (way == 3)
    if not write:
        time = max(time, ways.free[TO, row, col])
        ways.free[TO, row, col] = time + ways.pass_
        time += ways.ramp
    state.waited[r] = int(np.ceil(time - clock - far - 1e-6))
    return int(np.ceil(time + far + ways.pass_ - 1e-6))


@inlined_function
def end_request(state, ways, r, clock):
    """Note the end of a request, for its requester and the one that waits for room."""
    state.finished[r] = clock
    end = clock
    if len(ways.row) > 0:
        end = _cross(state, ways, r, clock)
        state.crossed[r] = end - clock
    number = state.requester[r]
    q = state.requesters[number]
    if q.window > 0:
        kind = int(state.write[r])
        first, last = (q.writes, q.write_tail) if kind else (q.reads, q.read_tail)
        ends, links = state.ends[number, kind], state.links[number, kind]
        place = last
        while place > first and ends[(place - 1) % q.window] > end:
            ends[place % q.window] = ends[(place - 1) % q.window]
            links[place % q.window] = links[(place - 1) % q.window]
            place -= 1
        ends[place % q.window] = end
        links[place % q.window] = state.waited[r]
        state.awake[number] = min(state.awake[number], end + state.path)
        if kind:
            q.write_tail += 1
        else:
            q.read_tail += 1
