"""Compiled simulator of HBM channels, command by command.

It has banks with row buffers, bank groups, refresh, and a controller that reorders requests.

The controller keeps rows open. Requests wait in a read queue or a write buffer, from which one a clock goes on to the queue of
its bank; a bank's queue is served out of order: hits of the open row come before the precharge that its head may need, at most
`MAX_ROW_HITS` in a row. Banks take turns. Rows and columns have a command bus each, as HBM has: in a clock a column command
(read, write) and a row command (activate, precharge) may be issued. Writes are held back until their buffer is full, or half
idle, and are then drained. Refresh closes all banks of the channel, or one bank after the other, idle ones first.

Every clock that the data bus stands idle is charged to an option of `IDLE_CAUSES`: to what held the next column command, or,
where that waited for its row, what held the activate.

Requesters offer their requests in order, each at its time, as long as they have fewer outstanding than their window allows; a
channel takes one a clock, in the order in which they were offered, and completes them in any order. Between requesters and
channels there may be a mesh, whose links data hold one after the other (`RequesterMesh`).

All times in clocks of the channels; a request is one burst. Sets of banks are bits of a word, so a channel has at most 64.

Source:
    The controller's behaviour is that of [li2020]; timing constraints are those of JEDEC's HBM standards.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function, lowest
from dse.evaluators.machine.dram_commands import (
    has_no_earlier_read,
    issue_commands,
    note_wanted_command,
    refresh_bank,
    refresh_channel,
)
from dse.evaluators.machine.dram_constants import (
    BANK,
    BANK_GROUP,
    CHANNEL,
    IDLE_CAUSES,
    NEVER,
    REQUESTER,
    ClockedTiming,
    QueueSizes,
)
from dse.evaluators.machine.dram_requests import end_request, offer_requests
from dse.evaluators.machine.requester_mesh import RequesterMesh, no_mesh
from dse.space.array_math import Array

DRAIN_THRESHOLD = 8
"""Writes beyond which they are drained where no read is queued; fewer wait for company, as long as more can come."""


class SimulatedRequests(NamedTuple):
    """Times and counts of simulated memory requests. [clock]

    Attributes:
        offered: when the requester offered each request, -1 where it did not; shape (requests,). [clock]
        accepted: when the controller took it, likewise.
        finished: when its last data came, or a write was taken, likewise.
        crossed, waited: from then until the requester has it, and what of that is for links that others held, likewise.
        reads, writes, activates: that were issued to banks.
        hits: column commands that found their row open from another one before.
        clocks: until the last request was issued, or the limit.
        idle: clocks that data buses stood idle before their last data, by what they waited for; shape (channels, causes).
    """

    offered: Array
    accepted: Array
    finished: Array
    crossed: Array
    waited: Array
    reads: int
    writes: int
    activates: int
    hits: int
    clocks: int
    idle: Array


class ChannelState(NamedTuple):
    """State of channels (leading axis): records, activate windows, and queues of banks."""

    state: Any
    banks: Any
    groups: Any
    window: Any
    queue: Any
    line: Any
    idle: Any


class RequestState(NamedTuple):
    """Memory requests, requester after requester, and their progress.

    Attributes:
        channel: of each, shape (requests,).
        place, write, arrival: as for `simulate_requests`.
        offered, accepted, finished, crossed, waited: as in `SimulatedRequests`.
        late: whether the requester held it back because too many were outstanding.
        held: what the one whose end let it go had waited for links.
        queued: when it went to the queue of its bank.
        follow: the next one offered to the same channel, then the next one held for the same bank.
        requester, requesters: of each; records of `REQUESTER`.
        ends, links: when outstanding reads and writes end and what they wait for links, a ring each; shape (requesters, 2,
            largest window).
        awake: next clock in which each requester can do something, as far as that is known; shape (requesters,).
        issued: requests in the order in which banks got them, and how many, shape (1,).
        begins, path: as for `simulate_requests`.
    """

    channel: Any
    place: Any
    write: Any
    arrival: Any
    offered: Any
    accepted: Any
    finished: Any
    crossed: Any
    waited: Any
    late: Any
    held: Any
    queued: Any
    follow: Any
    requester: Any
    requesters: Any
    ends: Any
    links: Any
    awake: Any
    issued: Any
    count: Any
    begins: Any
    path: int


def simulate_requests(
    place: Array,
    write: Array,
    arrival: Array,
    timing: ClockedTiming,
    *,
    groups: int,
    banks: int,
    channel: Array | None = None,
    channels: int = 1,
    windows: Array | None = None,
    requester: Array | None = None,
    begins: Array | None = None,
    path: int = 0,
    queues: QueueSizes = QueueSizes(),  # noqa: B008
    ways: RequesterMesh | None = None,
    limit: int = NEVER,
) -> SimulatedRequests:
    """Simulate memory requests, each offered from its arrival on, those of a requester in order.

    Args:
        place: bank (0 to groups x banks, those of a group side by side), row and column of each; shape (requests, 3).
        write: whether each is a write, shape (requests,).
        arrival: shape (requests,), for each requester not falling. [clock]
        groups, banks: bank groups of a channel, and banks of each.
        channel, channels: of each request, shape (requests,), None where there is one; how many there are.
        windows: requests that each requester may have outstanding, 0 for any; shape (requesters,). None is one, with 0.
        requester: of each request, shape (requests,), not falling; None where there is one.
        begins: whether each is the first of a burst, offered at once where the window has room for any; None for all are.
        path: from the end of a request at its channel until the requester sees it. [clock]
        timing, queues: of the channels, and of each one's controller.
        ways: between requesters and channels; None where nothing is.
        limit: when to stop. [clock]
    """
    count = len(write)
    to = np.zeros(count, np.int32) if channel is None else np.ascontiguousarray(channel, dtype=np.int32)
    by = np.zeros(count, np.int32) if requester is None else np.ascontiguousarray(requester, dtype=np.int32)
    window = np.zeros(1, np.int64) if windows is None else np.asarray(windows, dtype=np.int64)
    offered, accepted, finished, queued = (np.full(count, -1, np.int64) for _ in range(4))
    crossed, waited, held = (np.zeros(count, np.int64) for _ in range(3))
    who = np.zeros(len(window), REQUESTER)
    first = np.ones(count, np.bool_) if begins is None else begins
    who["most"] = np.diff(np.append(np.flatnonzero(first), count)).max(initial=1)
    who["window"], who["next"], who["end"] = window, *np.searchsorted(by, [np.arange(len(window)), np.arange(len(window)) + 1])
    rings = (len(window), 2, max(1, int(window.max())))
    state = RequestState(
        to, np.ascontiguousarray(place, dtype=np.int32), np.ascontiguousarray(write, dtype=np.bool_),
        np.ascontiguousarray(arrival, dtype=np.int64), offered, accepted, finished, crossed, waited, np.zeros(count, np.bool_),
        held, queued, np.zeros(count, np.int32), by, who,
        np.zeros(rings, np.int64), np.zeros(rings, np.int64), np.zeros(len(window), np.int64), np.zeros(count, np.int32),
        np.zeros(1, np.int64), first, path,
    )  # fmt: skip
    every = closed_channels(channels, groups, banks, queues, timing)
    every.state["left"] = np.bincount(to, minlength=channels)
    clocks = _play(every, state, timing, queues, ways or no_mesh(), limit)
    reads, writes, activates, hits = (int(every.state[name].sum()) for name in ("reads", "writes", "activates", "hits"))
    return SimulatedRequests(
        offered, accepted, finished, crossed, waited, reads, writes, activates, hits, int(clocks), every.idle
    )


def closed_channels(channels: int, groups: int, banks: int, queues: QueueSizes, timing: ClockedTiming) -> ChannelState:
    """State of channels with all rows closed."""
    state, each = np.zeros(channels, CHANNEL), np.zeros((channels, groups * banks), BANK)
    state["refresh"] = timing.refi
    for name in ("coming", "room"):
        state[name] = -1
    each["group"] = np.arange(groups * banks) // banks
    for name in ("row", "first_read", "first_write", "held_read", "held_write", "refreshed"):
        each[name] = -1
    depth = (channels, groups * banks, queues.bank)
    return ChannelState(
        state, each, np.zeros((channels, groups), BANK_GROUP), np.full((channels, 4), -NEVER, np.int64),
        np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros((channels, len(IDLE_CAUSES)), np.int64),
    )  # fmt: skip


@compiled_loop
def _play(channels, state, t, queues, ways, limit):
    """Simulate all requests, or until the limit; returns the clock."""
    clock, done, count = 0, 0, len(state.write)
    while clock < limit and done < count:
        wake = limit
        for number in range(len(state.awake)):
            if state.awake[number] <= clock:
                state.awake[number] = offer_requests(channels, state, number, clock)
            wake = min(wake, state.awake[number])
        for i in range(len(channels.state)):
            c = channels.state[i]
            if c.awake <= clock:
                before = c.reads + c.writes
                c.awake = advance_channel(channels, i, state, t, queues, ways, clock)
                done += c.reads + c.writes - before
                if c.left + c.held_reads + c.held_writes + c.queued == 0:
                    c.awake = NEVER
            wake = min(wake, c.awake)
        # what ended in this clock lets requesters go on
        for number in range(len(state.awake)):
            wake = min(wake, state.awake[number])
        clock = max(clock + 1, wake) if done < count else clock + 1
    return clock


@inlined_function
def advance_channel(channels, i, state, t, queues, ways, clock):
    """Advance a channel by a clock; returns the next clock at which it can act if nothing is offered."""
    c = channels.state[i]
    moved = _accept(channels, i, state, queues, ways, clock)
    if clock == c.refresh:
        c.refresh += t.refi
        c.refreshing = 1
    issued = False
    wake = NEVER
    if c.refreshing and not t.per_bank:
        issued, wake = refresh_channel(channels, i, t, clock)
    else:
        if c.refreshing:
            issued, wake = refresh_bank(channels, i, t, clock)
        if clock >= c.asleep:
            issued |= issue_commands(channels, i, state, t, ways, issued, clock)
        wake = min(wake, c.asleep)
    moved |= _forward(channels, i, state, queues, clock)
    if issued or moved:
        return clock + 1
    return max(clock + 1, min(c.refresh, wake))


@inlined_function
def _accept(channels, i, state, queues, ways, clock):
    """Takes the next request that was offered, if there is room; whether it did."""
    c = channels.state[i]
    r = c.coming
    if r < 0:
        return False
    bank = state.place[r, 0]
    b = channels.banks[i, bank]
    follow = state.follow[r]
    if state.write[r]:
        if c.held_writes == queues.waiting:
            return False
        end_request(state, ways, r, clock + 1)
        c.held_writes += 1
        if b.held_write < 0:
            b.held_write = r
            c.writes_for |= 1 << bank
        else:
            state.follow[b.last_write] = r
        b.last_write = r
    else:
        if c.held_reads == queues.waiting:
            return False
        c.held_reads += 1
        if b.held_read < 0:
            b.held_read = r
            c.reads_for |= 1 << bank
        else:
            state.follow[b.last_read] = r
        b.last_read = r
    state.accepted[r] = clock
    c.coming = -1 if r == c.latest else follow
    c.left -= 1
    return True


@inlined_function
def _forward(channels, i, state, queues, clock):
    """Move the first held request that finds room to its bank's queue; returns whether it did."""
    c = channels.state[i]
    if c.draining == 0 and c.held_writes > 0:
        alone = DRAIN_THRESHOLD if c.left > 0 or c.held_reads > 0 else 0
        if c.held_writes >= queues.waiting or (c.held_writes > alone and c.queued == 0):
            c.draining = c.held_writes
    left = (c.writes_for if c.draining > 0 else c.reads_for) & c.room
    if left == 0:
        return False
    first, bank = NEVER, 0
    while left != 0:
        place = lowest(left)
        b = channels.banks[i, place]
        r = b.held_write if c.draining > 0 else b.held_read
        if state.accepted[r] < first:
            first, bank = state.accepted[r], place
        left &= left - 1
    _append(channels, i, state, queues, clock, bank)
    return True


@inlined_function
def _append(channels, i, state, queues, clock, bank):
    """Append the first held read of a bank to its queue, or the first held write while writes are drained."""
    c, b, bit = channels.state[i], channels.banks[i, bank], 1 << bank
    if c.draining > 0:
        r = b.held_write
        c.held_writes -= 1
        c.draining -= 1
        b.writes += 1
        b.held_write = -1 if r == b.last_write else state.follow[r]
        if b.held_write < 0:
            c.writes_for ^= bit
    else:
        r = b.held_read
        c.held_reads -= 1
        b.held_read = -1 if r == b.last_read else state.follow[r]
        if b.held_read < 0:
            c.reads_for ^= bit
    place = b.waiting
    state.queued[r] = clock
    channels.queue[i, bank, place] = r
    channels.line[i, bank, place] = state.place[r, 1]
    b.waiting += 1
    c.queued += 1
    if b.waiting == queues.bank:
        c.room ^= bit
    c.asleep = 0
    if b.row < 0:
        c.opening |= bit
        return
    if b.row == state.place[r, 1]:
        if not state.write[r]:
            if b.first_read < 0:
                b.first_read = place
        elif b.first_write < 0 and has_no_earlier_read(channels, i, state, bank, place):
            b.first_write = place
    note_wanted_command(channels, i, bank)
