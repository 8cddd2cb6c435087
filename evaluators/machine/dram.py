"""Channels of HBM, command by command: banks with row buffers, bank groups, refresh, and a controller that reorders.

The controller keeps rows open. Requests wait in a read queue or a write buffer, from which one a clock goes on to the queue of
its bank; a bank's queue is served out of order: hits of the open row come before the precharge that its head may need, at most
`ROW_HITS` in a row. Banks take turns. Rows and columns have a command bus each, as HBM has: in a clock a column command (read,
write) and a row command (activate, precharge) may be issued. Writes are held back until their buffer is full, or half idle, and
are then drained. Refresh closes all banks of the channel, or one bank after the other, idle ones first.

Every clock that the data bus stands idle is charged to a word of `CAUSES`: to what held the next column command, or, where that
waited for its row, what held the activate.

Requesters offer their requests in order, each at its time, as long as they have fewer outstanding than their window allows; a
channel takes one a clock, in the order in which they were offered, and completes them in any order. Between requesters and
channels there may be a mesh, whose links data hold one after the other (`Ways`).

All times in clocks of the channels; a request is one burst. Sets of banks are bits of a word, so a channel has at most 64.

Source:
    The controller's behaviour is that of [li2020]; timing constraints are those of JEDEC's HBM standards.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import loop, lowest, part, piece
from dse.evaluators.machine.crossing import FROM, TO, Ways, nowhere
from dse.evaluators.machine.dram_words import (
    ACTIVATES,
    BANK,
    BANK_GROUP,
    CAUSES,
    CHANNEL,
    GROUP,
    LOAD,
    NOC,
    QUEUE,
    REFRESH,
    REQUESTER,
    ROW,
    TURN,
    WINDOW,
    Queues,
    Timing,
)
from dse.space.elementwise import Array

ROW_HITS = 4
"""Hits of an open row after which a waiting request for another row may close it."""

DRAIN = 8
"""Writes beyond which they are drained where no read is queued; fewer wait for company, as long as more can come."""

NEVER = 1 << 60


class Served(NamedTuple):
    """What came of requests.

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


class Channels(NamedTuple):
    """State of channels, the leading axis: records, ends of the last four windows, banks' queues (requests and their rows)."""

    state: Any
    banks: Any
    groups: Any
    window: Any
    queue: Any
    line: Any
    idle: Any


class Requests(NamedTuple):
    """Requests, requester after requester, and what becomes of them.

    Attributes:
        channel: of each, shape (requests,).
        place, write, arrival: as for `serve`.
        offered, accepted, finished, crossed, waited: as in `Served`.
        late: whether the requester held it back because too many were outstanding.
        held: what the one whose end let it go had waited for links.
        queued: when it went to the queue of its bank.
        follow: the next one offered to the same channel, then the next one held for the same bank.
        requester, requesters: of each; records of `REQUESTER`.
        ends, links: when outstanding reads and writes end and what they wait for links, a ring each; shape (requesters, 2,
            largest window).
        awake: next clock in which each requester can do something, as far as that is known; shape (requesters,).
        issued: requests in the order in which banks got them, and how many, shape (1,).
        begins, path: as for `serve`.
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


def serve(
    place: Array,
    write: Array,
    arrival: Array,
    timing: Timing,
    *,
    groups: int,
    banks: int,
    channel: Array | None = None,
    channels: int = 1,
    windows: Array | None = None,
    requester: Array | None = None,
    begins: Array | None = None,
    path: int = 0,
    queues: Queues = Queues(),  # noqa: B008
    ways: Ways | None = None,
    limit: int = NEVER,
) -> Served:
    """Plays requests, each offered from its arrival on, those of a requester in order.

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
    asked = Requests(
        to, np.ascontiguousarray(place, dtype=np.int32), np.ascontiguousarray(write, dtype=np.bool_),
        np.ascontiguousarray(arrival, dtype=np.int64), offered, accepted, finished, crossed, waited, np.zeros(count, np.bool_),
        held, queued, np.zeros(count, np.int32), by, who,
        np.zeros(rings, np.int64), np.zeros(rings, np.int64), np.zeros(len(window), np.int64), np.zeros(count, np.int32),
        np.zeros(1, np.int64), first, path,
    )  # fmt: skip
    every = at_rest(channels, groups, banks, queues, timing)
    every.state["left"] = np.bincount(to, minlength=channels)
    clocks = _play(every, asked, timing, queues, ways or nowhere(), limit)
    reads, writes, activates, hits = (int(every.state[name].sum()) for name in ("reads", "writes", "activates", "hits"))
    return Served(offered, accepted, finished, crossed, waited, reads, writes, activates, hits, int(clocks), every.idle)


def at_rest(channels: int, groups: int, banks: int, queues: Queues, timing: Timing) -> Channels:
    """Channels with all rows closed."""
    state, each = np.zeros(channels, CHANNEL), np.zeros((channels, groups * banks), BANK)
    state["refresh"] = timing.refi
    for name in ("coming", "room"):
        state[name] = -1
    each["group"] = np.arange(groups * banks) // banks
    for name in ("row", "first_read", "first_write", "held_read", "held_write", "refreshed"):
        each[name] = -1
    depth = (channels, groups * banks, queues.bank)
    return Channels(
        state, each, np.zeros((channels, groups), BANK_GROUP), np.full((channels, 4), -NEVER, np.int64),
        np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros((channels, len(CAUSES)), np.int64),
    )  # fmt: skip


@loop
def _play(channels, asked, t, queues, ways, limit):
    """Plays all requests, or until the limit; returns the clock."""
    clock, done, count = 0, 0, len(asked.write)
    while clock < limit and done < count:
        wake = limit
        for number in range(len(asked.awake)):
            if asked.awake[number] <= clock:
                asked.awake[number] = _offer(channels, asked, number, clock)
            wake = min(wake, asked.awake[number])
        for i in range(len(channels.state)):
            c = channels.state[i]
            if c.awake <= clock:
                before = c.reads + c.writes
                c.awake = step(channels, i, asked, t, queues, ways, clock)
                done += c.reads + c.writes - before
                if c.left + c.held_reads + c.held_writes + c.queued == 0:
                    c.awake = NEVER
            wake = min(wake, c.awake)
        # what ended in this clock lets requesters go on
        for number in range(len(asked.awake)):
            wake = min(wake, asked.awake[number])
        clock = max(clock + 1, wake) if done < count else clock + 1
    return clock


@piece
def _offer(channels, asked, number, clock):
    """Offers what a requester may offer by now; returns when it may offer more, as far as that is known."""
    q = asked.requesters[number]
    window, ends, links = q.window, asked.ends[number], asked.links[number]
    if window > 0:
        while q.reads != q.read_tail and ends[0, q.reads % window] + asked.path <= clock:
            q.freed = links[0, q.reads % window]
            q.reads += 1
            q.outstanding -= 1
        while q.writes != q.write_tail and ends[1, q.writes % window] + asked.path <= clock:
            q.freed = links[1, q.writes % window]
            q.writes += 1
            q.outstanding -= 1
    while q.next < q.end:
        r = q.next
        if asked.arrival[r] > clock:
            return asked.arrival[r]
        if window > 0 and asked.begins[r] and q.outstanding + q.most > window:
            wake = NEVER
            if q.reads != q.read_tail:
                wake = min(wake, ends[0, q.reads % window] + asked.path)
            if q.writes != q.write_tail:
                wake = min(wake, ends[1, q.writes % window] + asked.path)
            return wake
        c = channels.state[asked.channel[r]]
        if c.coming < 0:
            c.coming = r
        else:
            asked.follow[c.latest] = r
        c.latest = r
        c.awake = clock
        asked.offered[r] = clock
        asked.late[r] = clock > asked.arrival[r]
        asked.held[r] = q.freed
        q.outstanding += 1
        q.next += 1
    return NEVER


@part
def _cross(asked, ways, r, clock):
    """When the data of a request that is at its channel have crossed the mesh, links one after the other."""
    number, at, write = asked.requester[r], asked.channel[r], asked.write[r]
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
    asked.waited[r] = int(np.ceil(time - clock - far - 1e-6))
    return int(np.ceil(time + far + ways.pass_ - 1e-6))


@piece
def _end(asked, ways, r, clock):
    """Notes when a request ends, for its requester and the one that waits for room."""
    asked.finished[r] = clock
    end = clock
    if len(ways.row) > 0:
        end = _cross(asked, ways, r, clock)
        asked.crossed[r] = end - clock
    number = asked.requester[r]
    q = asked.requesters[number]
    if q.window > 0:
        kind = int(asked.write[r])
        first, last = (q.writes, q.write_tail) if kind else (q.reads, q.read_tail)
        ends, links = asked.ends[number, kind], asked.links[number, kind]
        place = last
        while place > first and ends[(place - 1) % q.window] > end:
            ends[place % q.window] = ends[(place - 1) % q.window]
            links[place % q.window] = links[(place - 1) % q.window]
            place -= 1
        ends[place % q.window] = end
        links[place % q.window] = asked.waited[r]
        asked.awake[number] = min(asked.awake[number], end + asked.path)
        if kind:
            q.write_tail += 1
        else:
            q.read_tail += 1


@piece
def step(channels, i, asked, t, queues, ways, clock):
    """What a channel does in a clock; returns the next clock in which it can do something if nothing is offered before."""
    c = channels.state[i]
    moved = _accept(channels, i, asked, queues, ways, clock)
    if clock == c.refresh:
        c.refresh += t.refi
        c.refreshing = 1
    issued = False
    wake = NEVER
    if c.refreshing and not t.per_bank:
        issued, wake = _refresh(channels, i, t, clock)
    else:
        if c.refreshing:
            issued, wake = _refresh_bank(channels, i, t, clock)
        if clock >= c.asleep:
            issued |= _issue(channels, i, asked, t, ways, issued, clock)
        wake = min(wake, c.asleep)
    moved |= _forward(channels, i, asked, queues, clock)
    if issued or moved:
        return clock + 1
    return max(clock + 1, min(c.refresh, wake))


@piece
def _accept(channels, i, asked, queues, ways, clock):
    """Takes the next request that was offered, if there is room; whether it did."""
    c = channels.state[i]
    r = c.coming
    if r < 0:
        return False
    bank = asked.place[r, 0]
    b = channels.banks[i, bank]
    follow = asked.follow[r]
    if asked.write[r]:
        if c.held_writes == queues.waiting:
            return False
        _end(asked, ways, r, clock + 1)
        c.held_writes += 1
        if b.held_write < 0:
            b.held_write = r
            c.writes_for |= 1 << bank
        else:
            asked.follow[b.last_write] = r
        b.last_write = r
    else:
        if c.held_reads == queues.waiting:
            return False
        c.held_reads += 1
        if b.held_read < 0:
            b.held_read = r
            c.reads_for |= 1 << bank
        else:
            asked.follow[b.last_read] = r
        b.last_read = r
    asked.accepted[r] = clock
    c.coming = -1 if r == c.latest else follow
    c.left -= 1
    return True


@piece
def _refresh(channels, i, t, clock):
    """Closes a bank, or refreshes when all are closed; whether it did, and else when it might."""
    c, wake = channels.state[i], NEVER
    for bank in range(channels.banks.shape[1]):
        b = channels.banks[i, bank]
        at = b.can_precharge if b.row >= 0 else b.can_activate
        if at > clock:
            wake = min(wake, at)
        elif b.row >= 0:
            _precharge(channels, i, t, clock, bank)
            return True, clock
    if wake < NEVER:
        return False, wake
    for bank in range(channels.banks.shape[1]):
        b = channels.banks[i, bank]
        b.can_activate = b.refreshed = clock + t.rfc
    c.refreshing = c.asleep = 0
    return True, clock


@piece
def _refresh_bank(channels, i, t, clock):
    """Closes the bank whose refresh is due, which takes no other commands by then, or refreshes it; as `_refresh`."""
    c = channels.state[i]
    if c.kept == 0:
        c.kept = 1 << _idle_bank(channels, i)
        c.asleep = 0
    bank = lowest(c.kept)
    b = channels.banks[i, bank]
    at = b.can_precharge if b.row >= 0 else b.can_activate
    if at > clock:
        return False, at
    if b.row >= 0:
        _precharge(channels, i, t, clock, bank)
        return True, clock
    b.can_activate = b.refreshed = clock + t.rfc
    c.round &= ~c.kept
    c.refreshing = c.asleep = c.kept = 0
    return True, clock


@piece
def _idle_bank(channels, i):
    """Of the banks that this round of refreshes has left, one that no request waits for, opened last; else the first."""
    c = channels.state[i]
    banks = channels.banks.shape[1]
    if c.round == 0:
        c.round = -1 if banks == 64 else (1 << banks) - 1
    best, bank = -1, lowest(c.round)
    left = c.round & ~(c.reads_for | c.writes_for)
    while left != 0:
        place = lowest(left)
        b = channels.banks[i, place]
        if b.waiting == 0 and b.can_activate > best:
            best, bank = b.can_activate, place
        left &= left - 1
    return bank


@piece
def _issue(channels, i, asked, t, ways, row, clock):
    """Issues a column and a row command (if that bus is free), of the banks whose turn it is and that can; whether it did.

    Banks are looked at in turn, once: a command takes its bus from those that come after. `asleep` is until one of them might.
    """
    c = channels.state[i]
    issued, turns = False, 0
    left, wake = _want_now(channels, i, clock)
    ahead = left & ~((2 << c.turn) - 1)
    left ^= ahead
    while ahead | left != 0:
        if ahead == 0:
            ahead, left = left, 0
        bank, bit = lowest(ahead), ahead & -ahead
        ahead ^= bit
        b = channels.banks[i, bank]
        kind, at = _may(channels, i, bank, bit, clock)
        if kind == NOTHING:
            wake = min(wake, at)
            continue
        c.turn = bank
        if kind == DATA:
            _column(channels, i, asked, t, ways, clock, bank)
            ahead, left = ahead & (c.opening | c.closing), left & (c.opening | c.closing)
            wake = min(wake, _soonest(c, b, bit))
            issued = True
        elif row:  # its turn is lost
            wake = clock
        else:
            issued = row = True
            if kind == OPEN:
                _activate(channels, i, asked, t, clock, bank)
                ahead, left = ahead & ~c.opening, left & ~c.opening
                wake = min(wake, min(b.can_read, b.can_write))
                if c.opening != 0:
                    wake = min(wake, max(c.can_activate, channels.window[i, c.oldest]))
            else:
                _precharge(channels, i, t, clock, bank)
                wake = min(wake, b.can_activate)
        turns += 1
        if turns == 2:
            c.asleep = clock + 1
            return issued
    c.asleep = max(wake, clock + 1)
    return issued


NOTHING, OPEN, CLOSE, DATA = range(4)
"""What a bank may be issued: nothing yet, an activate, a precharge, a read or a write."""


@piece
def _want_now(channels, i, clock):
    """Set of banks that want what the channel lets them, and when it lets others."""
    c = channels.state[i]
    wake = NEVER
    opening, left = max(c.can_activate, channels.window[i, c.oldest]), c.closing
    if opening <= clock:
        left |= c.opening
    elif c.opening != 0:
        wake = opening
    if c.can_read <= clock:
        left |= c.reading
    elif c.reading != 0:
        wake = min(wake, c.can_read)
    if c.can_write <= clock:
        left |= c.writing
    elif c.writing != 0:
        wake = min(wake, c.can_write)
    return left & ~c.kept, wake


@piece
def _may(channels, i, bank, bit, clock):
    """What a bank may be issued, and when it may be something if it is nothing now; rows come before data."""
    c, b = channels.state[i], channels.banks[i, bank]
    g = channels.groups[i, b.group]
    if c.opening & bit:
        at = max(b.can_activate, g.can_activate)
        return (OPEN if at <= clock else NOTHING), at
    wake = NEVER
    if c.closing & bit:
        if b.can_precharge <= clock:
            return CLOSE, clock
        wake = b.can_precharge
    if c.reading & bit:
        at = max(max(b.can_read, g.can_read), c.can_read)
        if at <= clock:
            return DATA, clock
        wake = min(wake, at)
    if c.writing & bit:
        at = max(max(b.can_write, g.can_write), c.can_write)
        if at <= clock:
            return DATA, clock
        wake = min(wake, at)
    return NOTHING, wake


@piece
def _soonest(c, b, bit):
    """When data may follow on the bus, or the bank that had them be closed, at the soonest."""
    wake = NEVER
    if c.reading != 0:
        wake = c.can_read
    if c.writing != 0:
        wake = min(wake, c.can_write)
    if c.closing & bit:
        wake = min(wake, b.can_precharge)
    return wake


@piece
def _activate(channels, i, asked, t, clock, bank):
    c, b = channels.state[i], channels.banks[i, bank]
    g = channels.groups[i, b.group]
    others = max(max(c.can_activate, g.can_activate), channels.window[i, c.oldest])
    came = asked.queued[channels.queue[i, bank, 0]]
    if came >= max(others, b.can_activate):
        b.why = _came(asked, channels.queue[i, bank, 0])
    elif others > b.can_activate:
        b.why = ACTIVATES
    else:
        b.why = REFRESH if b.can_activate == b.refreshed else ROW
    b.row = channels.line[i, bank, 0]
    b.hits = 0
    b.can_read = clock + t.rcd_read
    b.can_write = clock + t.rcd_write
    b.can_precharge = max(b.can_precharge, clock + t.ras)
    b.can_activate = max(b.can_activate, clock + t.ras + t.rp)
    g.can_activate = clock + t.rrd_l
    c.can_activate = clock + t.rrd_s
    channels.window[i, c.oldest] = clock + t.faw
    c.oldest = (c.oldest + 1) & 3
    c.activates += 1
    c.opening &= ~(1 << bank)
    _look(channels, i, asked, bank)


@piece
def _precharge(channels, i, t, clock, bank):
    c, b = channels.state[i], channels.banks[i, bank]
    b.row = -1
    b.hits = 0
    b.can_activate = max(b.can_activate, clock + t.rp)
    bit = 1 << bank
    c.closing &= ~bit
    c.reading &= ~bit
    c.writing &= ~bit
    if b.waiting > 0:
        c.opening |= bit


@piece
def _column(channels, i, asked, t, ways, clock, bank):
    """Issues the read or the write of an open row that came first, of those that can be issued."""
    c, b = channels.state[i], channels.banks[i, bank]
    g = channels.groups[i, b.group]
    pick = -1
    if b.first_read >= 0 and max(max(b.can_read, g.can_read), c.can_read) <= clock:
        pick = b.first_read
    written = b.first_write >= 0 and (pick < 0 or b.first_write < pick)
    if written and max(max(b.can_write, g.can_write), c.can_write) <= clock:
        pick = b.first_write
    r = channels.queue[i, bank, pick]
    _charge(channels, i, asked, t, clock, bank, r)
    asked.issued[asked.count[0]] = r
    asked.count[0] += 1
    b.waiting -= 1
    for place in range(pick, b.waiting):
        channels.queue[i, bank, place] = channels.queue[i, bank, place + 1]
        channels.line[i, bank, place] = channels.line[i, bank, place + 1]
    c.room |= 1 << bank
    c.queued -= 1
    b.hits += 1
    c.hits += b.hits > 1
    same, other = max(t.burst, t.ccd_l), max(t.burst, t.ccd_s)
    if asked.write[r]:
        c.writes += 1
        b.writes -= 1
        end = clock + t.cwl + t.burst
        b.can_precharge = max(b.can_precharge, end + t.wr)
        g.can_read = max(g.can_read, end + t.wtr_l)
        c.can_read = max(c.can_read, end + t.wtr_s)
        g.can_write = max(g.can_write, clock + same)
        c.can_write = max(c.can_write, clock + other)
    else:
        c.reads += 1
        end = clock + t.cl + t.burst
        _end(asked, ways, r, end)
        b.can_precharge = max(b.can_precharge, clock + t.rtp)
        g.can_read = max(g.can_read, clock + same)
        c.can_read = max(c.can_read, clock + other)
        c.can_write = max(c.can_write, end - t.cwl + t.turn)
    _look(channels, i, asked, bank)


@piece
def _charge(channels, i, asked, t, clock, bank, r):
    """Charges the clocks that the data bus was idle before a column command to what held it."""
    c, b, write = channels.state[i], channels.banks[i, bank], asked.write[r]
    g = channels.groups[i, b.group]
    start = clock + (t.cwl if write else t.cl)
    idle, turned = start - c.data_end, c.wrote != write
    c.data_end = start + t.burst
    c.wrote = write
    if idle <= 0:
        return
    row = b.can_write if write else b.can_read
    bus = max(c.can_write, g.can_write) if write else max(c.can_read, g.can_read)
    if asked.queued[r] >= max(row, bus):
        why = _came(asked, r)
    elif row >= bus:
        why = b.why
    else:
        why = TURN if turned else GROUP
    if why == WINDOW:
        links = min(idle, asked.held[r])
        channels.idle[i, NOC] += links
        idle -= links
    channels.idle[i, why] += idle


@piece
def _came(asked, r):
    """Why a request went to the queue of its bank no earlier."""
    if asked.queued[r] > asked.offered[r]:
        return QUEUE
    return WINDOW if asked.late[r] else LOAD


@piece
def _look(channels, i, asked, bank):
    """Of what waits for a bank with an open row, the first read of that row and the first write that no read holds up."""
    b = channels.banks[i, bank]
    b.first_read = b.first_write = -1
    for place in range(b.waiting):
        if channels.line[i, bank, place] != b.row:
            continue
        if not asked.write[channels.queue[i, bank, place]]:
            if b.first_read < 0:
                b.first_read = place
        elif b.first_write < 0 and _free(channels, i, asked, bank, place):
            b.first_write = place
        if b.first_read >= 0 and (b.first_write >= 0 or b.writes == 0):
            break
    _want(channels, i, bank)


@piece
def _free(channels, i, asked, bank, place):
    """Whether no read before the write at a place of a bank's queue is of the same address."""
    w = channels.queue[i, bank, place]
    for before in range(place):
        r = channels.queue[i, bank, before]
        if not asked.write[r] and asked.place[r, 1] == asked.place[w, 1] and asked.place[r, 2] == asked.place[w, 2]:
            return False
    return True


@piece
def _want(channels, i, bank):
    """Says what a bank with an open row wants."""
    c, b, bit = channels.state[i], channels.banks[i, bank], 1 << bank
    c.reading = c.reading | bit if b.first_read >= 0 else c.reading & ~bit
    c.writing = c.writing | bit if b.first_write >= 0 else c.writing & ~bit
    hit = b.first_read >= 0 or b.first_write >= 0
    miss = b.waiting > 0 and channels.line[i, bank, 0] != b.row
    c.closing = c.closing | bit if miss and (not hit or b.hits >= ROW_HITS) else c.closing & ~bit


@piece
def _forward(channels, i, asked, queues, clock):
    """Moves the first request held that finds room to the queue of its bank; whether it did. Decides when to drain writes."""
    c = channels.state[i]
    if c.draining == 0 and c.held_writes > 0:
        alone = DRAIN if c.left > 0 or c.held_reads > 0 else 0
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
        if asked.accepted[r] < first:
            first, bank = asked.accepted[r], place
        left &= left - 1
    _append(channels, i, asked, queues, clock, bank)
    return True


@piece
def _append(channels, i, asked, queues, clock, bank):
    """Puts the first read or, when writes are drained, the first write held for a bank at the end of its queue."""
    c, b, bit = channels.state[i], channels.banks[i, bank], 1 << bank
    if c.draining > 0:
        r = b.held_write
        c.held_writes -= 1
        c.draining -= 1
        b.writes += 1
        b.held_write = -1 if r == b.last_write else asked.follow[r]
        if b.held_write < 0:
            c.writes_for ^= bit
    else:
        r = b.held_read
        c.held_reads -= 1
        b.held_read = -1 if r == b.last_read else asked.follow[r]
        if b.held_read < 0:
            c.reads_for ^= bit
    place = b.waiting
    asked.queued[r] = clock
    channels.queue[i, bank, place] = r
    channels.line[i, bank, place] = asked.place[r, 1]
    b.waiting += 1
    c.queued += 1
    if b.waiting == queues.bank:
        c.room ^= bit
    c.asleep = 0
    if b.row < 0:
        c.opening |= bit
        return
    if b.row == asked.place[r, 1]:
        if not asked.write[r]:
            if b.first_read < 0:
                b.first_read = place
        elif b.first_write < 0 and _free(channels, i, asked, bank, place):
            b.first_write = place
    _want(channels, i, bank)
