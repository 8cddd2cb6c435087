"""Model of memory busy time with queues for bus, bank groups, activates and banks.

The analytical model uses it for streams of memory requests.

A request enters its channel when its requester's window and the controller's queues have room. Then each thing that it needs
has a backlog of its own, and it is served when the last of these lets it: the data bus (tCCD_S), its bank group (tCCD_L),
activates of the channel (tRRD, tFAW) and of the group, and its bank, whose rows are opened and closed (tRCD, tRAS, tRTP, tWR,
tRP) unless a request for the same row is there. That is one pass over requests in the order in which they come, without a clock
and without commands: what one thing does while another one waits is free. Commands are simulated by
`evaluators.machine.dram_simulator`.

Of random memories, patterns and windows 84 in 100 are within 15 % of what that gives, of streams that write 72; several
requesters with windows, and writes that are few among reads, are farthest.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_part, compiled_with_arrays
from dse.evaluators.machine.dram_commands import MAX_ROW_HITS
from dse.evaluators.machine.dram_constants import ClockedTiming, QueueSizes
from dse.space.array_math import Array

DISTANT_PAST = -1e9


class BurstRequests(NamedTuple):
    """Requests of one burst each, requester after requester; shape (bursts,).

    Attributes:
        channel, bank, row, write: of each.
        arrival: not falling for each requester. [clock]
        first: of each requester, and the end; shape (requesters + 1,).
    """

    channel: Array
    bank: Array
    row: Array
    write: Array
    arrival: Array
    first: Array


class BusyTimes(NamedTuple):
    """Times for which requests keep a memory busy, and their latency. [clock]

    Attributes:
        clocks: until the last data are there; `halfway`: until half of the requests are.
        latency: of reads, from when the controller takes them: the mean. [clock]
        work: clocks that the bus, a bank group and activates of the busiest channel take by themselves.
    """

    clocks: float
    halfway: float
    latency: float
    work: dict[str, float]


class ChannelBacklogs(NamedTuple):
    """Times until which channels (leading axis), groups and banks have work, and the open rows."""

    entered: Any
    leaving: Any
    taken: Any
    bus: Any
    activates: Any
    group: Any
    group_activates: Any
    refresh: Any
    held: Any
    opened: Any
    activated: Any
    closable: Any
    openable: Any
    ready: Any
    rows: Any
    known: Any
    seen: Any
    hits: Any
    refreshed: Any
    opens: Any


def channel_busy_time(
    bursts: BurstRequests,
    timing: ClockedTiming,
    *,
    channels: int,
    groups: int,
    banks: int,
    window: int,
    path: int,
    queues: QueueSizes,
) -> BusyTimes:
    """Time for which requests keep the channels of a memory busy. [clock]

    Args:
        bursts: requests, in order for each requester.
        timing: of the channels.
        channels, groups, banks: channels, groups of each, and banks of a group.
        window: bursts that a requester may have outstanding, 0 for any.
        path: from the end of a request until its requester sees it. [clock]
        queues: of each controller.
    """
    number = groups * banks
    room = queues.waiting + queues.bank * number // 2  # banks' queues fill unevenly

    def make_zeros(*shape: int) -> Array:
        return np.zeros((channels, *shape))

    def make_counters(*shape: int) -> Array:
        return np.zeros((channels, *shape), np.int64)

    state = ChannelBacklogs(
        entered=make_zeros() - 1, leaving=make_zeros(room), taken=make_counters(), bus=make_zeros(), activates=make_zeros(),
        group=make_zeros(groups), group_activates=make_zeros(groups), refresh=make_zeros() + timing.refi,
        held=make_counters(), opened=make_counters(number) - 1, activated=make_zeros(number) + DISTANT_PAST,
        closable=make_zeros(number), openable=make_zeros(number), ready=make_zeros(number),
        rows=make_counters(number, queues.bank), known=make_counters(number), seen=make_counters(number),
        hits=make_counters(number), refreshed=make_counters(number), opens=make_counters(),
    )  # fmt: skip
    mixed = not bool(bursts.write.all())
    clocks, halfway, latency = _run(bursts, timing, state, banks, window, path, queues.waiting if mixed else 0)
    per_group = np.bincount(bursts.channel * groups + bursts.bank // banks, minlength=channels * groups)
    count = np.bincount(bursts.channel, minlength=channels)
    work = {
        "bandwidth": float(count.max() * max(timing.burst, timing.ccd_s)),
        "group": float(per_group.max() * max(timing.burst, timing.ccd_l)),
        "activates": float(state.opens.max() * _between.py_func(timing)),
    }
    return BusyTimes(float(clocks), float(halfway), float(latency), work)


IDLE_ROUNDS = 3
"""Refreshes of all banks that are counted in an idle time of a channel."""


@compiled_part
def _between(t):
    """Clocks from activate to activate, in the long run."""
    return max(float(t.rrd_s), t.faw / 4)


@compiled_with_arrays
def _run(bursts, t, state, banks, window, path, drain):
    """Clocks until the last data, until half of the requests are served, and the mean latency of reads."""
    requesters = len(bursts.first) - 1
    out, outstanding = np.zeros((requesters, max(window, 1))), np.zeros(requesters, np.int64)
    ahead, may = bursts.first[:-1].copy(), np.zeros(requesters)
    for who in range(requesters):
        may[who] = bursts.arrival[ahead[who]]
    end, halfway, waited, reads = 0.0, 0.0, 0.0, 0
    for number in range(len(bursts.write)):
        who = int(np.argmin(may))
        r, time = ahead[who], may[who]
        if window > 0 and outstanding[who] == window:
            outstanding[who] -= 1
            out[who, np.argmin(out[who])] = out[who, window - 1]
        enters, done = _serve(bursts, t, state, banks, r, time, drain)
        if window > 0:
            out[who, outstanding[who]] = (enters + 1 if bursts.write[r] else done) + path
            outstanding[who] += 1
        if not bursts.write[r]:
            waited += done + path - enters
            reads += 1
        ahead[who] += 1
        may[who] = np.inf
        if ahead[who] < bursts.first[who + 1]:
            full = out[who].min() if window > 0 and outstanding[who] == window else 0.0
            may[who] = max(time, max(bursts.arrival[ahead[who]], full))
        end = max(end, done + path)
        if 2 * number < len(bursts.write):
            halfway = end
    return end, halfway, waited / max(reads, 1)


@compiled_with_arrays
def _serve(bursts, t, state, banks, r, time, drain):
    """When a request enters its channel, and when its data are there."""
    c, b, row, write = bursts.channel[r], bursts.bank[r], bursts.row[r], bursts.write[r]
    g, room = b // banks, state.leaving.shape[1]
    enters = max(time, state.entered[c] + 1)
    if state.taken[c] >= room:
        enters = max(enters, state.leaving[c, state.taken[c] % room])
    state.entered[c] = enters
    while state.refresh[c] <= enters:
        _pass_rounds(t, state, c, enters)
        _refresh(t, state, c)
    state.seen[c, b] += 1
    if state.seen[c, b] > state.rows.shape[2]:
        state.seen[c, b], state.known[c, b] = 1, 0
    same, other = max(t.burst, t.ccd_l), max(t.burst, t.ccd_s)
    column = max(enters + 1, max(state.bus[c], state.group[c, g]))
    if _open(state, c, b, row, enters):
        state.hits[c, b] += 1
        column = max(column, state.ready[c, b])
    else:
        column = max(column, _activate(t, state, c, b, g, row, enters) + (t.rcd_write if write else t.rcd_read))
    state.bus[c] = max(state.bus[c], enters) + other
    state.group[c, g] = max(state.group[c, g], enters) + same
    state.ready[c, b] = column + same
    state.closable[c, b] = column + (t.cwl + t.burst + t.wr if write else t.rtp)
    if write and drain > 0:
        state.held[c] += 1
        if state.held[c] == drain:  # the bus turns round, and back
            state.held[c] = 0
            state.bus[c] += t.turn + t.wtr_l + t.cl
    state.leaving[c, state.taken[c] % room] = column
    state.taken[c] += 1
    return enters, column + t.cl + t.burst


@compiled_part
def _open(state, c, b, row, time):
    """Whether a request finds its row open, or queued ones that open it: hits come first, as far as a row may have them."""
    backlog = state.ready[c, b] >= time
    hit = state.opened[c, b] == row
    if backlog and not hit:
        for place in range(state.known[c, b]):
            hit = hit or state.rows[c, b, place] == row
    return hit and not (backlog and state.known[c, b] > 1 and state.hits[c, b] >= MAX_ROW_HITS)


@compiled_part
def _activate(t, state, c, b, g, row, time):
    """Opens a row, after the one that is open is closed; when."""
    if state.opened[c, b] >= 0:
        row_found = max(time + 1, max(state.closable[c, b], state.activated[c, b] + t.ras)) + t.rp
    else:
        row_found = max(time + 1, state.openable[c, b])
    row_found = max(row_found, max(state.activates[c], state.group_activates[c, g]))
    state.activates[c] = max(state.activates[c], time) + _between(t)
    state.group_activates[c, g] = max(state.group_activates[c, g], time) + t.rrd_l
    state.activated[c, b], state.opened[c, b], state.hits[c, b] = row_found, row, 1
    state.opens[c] += 1
    if state.known[c, b] < state.rows.shape[2]:
        state.rows[c, b, state.known[c, b]] = row
        state.known[c, b] += 1
    return row_found


@compiled_with_arrays
def _pass_rounds(t, state, c, time):
    """Passes over refreshes of a channel that was idle for long, but for the last rounds: each leaves what the last one did."""
    each = state.opened.shape[1] if t.per_bank else 1
    rounds = int((time - state.refresh[c]) / t.refi) // each - IDLE_ROUNDS
    busy = max(state.bus[c], max(state.ready[c].max(), state.openable[c].max()))
    if rounds > 0 and busy <= state.refresh[c] + t.rfc:  # banks that were refreshed last may still be
        state.refresh[c] += rounds * each * t.refi


@compiled_with_arrays
def _refresh(t, state, c):
    """Closes and refreshes all banks of a channel, or one, as controllers do."""
    time, banks = state.refresh[c], state.opened.shape[1]
    state.refresh[c] += t.refi
    if t.per_bank:
        _shut(t, state, c, _idle(state, c, time), time)
        return
    closed = time
    for b in range(banks):
        if state.opened[c, b] >= 0:
            closed = max(closed, max(state.closable[c, b], state.activated[c, b] + t.ras) + t.rp)
    for b in range(banks):
        state.opened[c, b] = -1
        _shut(t, state, c, b, closed)
    state.bus[c], state.activates[c] = max(state.bus[c], closed + t.rfc), max(state.activates[c], closed + t.rfc)


@compiled_part
def _shut(t, state, c, b, time):
    if state.opened[c, b] >= 0:
        time = max(time, max(state.closable[c, b], state.activated[c, b] + t.ras)) + t.rp
    state.openable[c, b] = max(state.openable[c, b], time) + t.rfc
    state.ready[c, b] = max(state.ready[c, b], time + t.rfc)
    state.opened[c, b], state.known[c, b], state.seen[c, b] = -1, 0, 0


@compiled_with_arrays
def _idle(state, c, time):
    """Of the banks that this round of refreshes has left, the idle one that was opened last; else the first."""
    if state.refreshed[c].all():
        state.refreshed[c] = 0
    is_idle, first, latest = -1, -1, 2 * DISTANT_PAST
    for b in range(state.opened.shape[1]):
        if state.refreshed[c, b] == 0:
            first = b if first < 0 else first
            if state.ready[c, b] <= time and state.activated[c, b] > latest:
                is_idle, latest = b, state.activated[c, b]
    is_idle = first if is_idle < 0 else is_idle
    state.refreshed[c, is_idle] = 1
    return is_idle
