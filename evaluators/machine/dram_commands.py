"""Compiled commands to the banks of an HBM channel: refresh, activate, precharge, read, write.

Compiled loops play them (`machine.dram_simulator`), which says how a controller works; `i` is a channel, `t` its timing, times
in clocks.
"""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import inlined_function, lowest
from dse.evaluators.machine.dram_constants import ACTIVATES, GROUP, LOAD, NEVER, NOC, QUEUE, REFRESH, ROW, TURN, WINDOW
from dse.evaluators.machine.dram_requests import end_request

MAX_ROW_HITS = 4
"""Hits of an open row after which a waiting request for another row may close it."""


@inlined_function
def refresh_channel(channels, i, t, clock):
    """Close a bank, or refresh when all are closed; returns whether it did, and else the next try."""
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


@inlined_function
def refresh_bank(channels, i, t, clock):
    """Close the bank whose refresh is due, or refresh it; returns as `refresh_channel`."""
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


@inlined_function
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


@inlined_function
def issue_commands(channels, i, state, t, ways, row, clock):
    """Issue a column and a row command of the banks whose turn has come; returns whether it did.

    A row command needs a free bus.

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
            _column(channels, i, state, t, ways, clock, bank)
            ahead, left = ahead & (c.opening | c.closing), left & (c.opening | c.closing)
            wake = min(wake, _soonest(c, b, bit))
            issued = True
        elif row:  # its turn is lost
            wake = clock
        else:
            issued = row = True
            if kind == OPEN:
                _activate(channels, i, state, t, clock, bank)
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


@inlined_function
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


@inlined_function
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


@inlined_function
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


@inlined_function
def _activate(channels, i, state, t, clock, bank):
    c, b = channels.state[i], channels.banks[i, bank]
    g = channels.groups[i, b.group]
    others = max(max(c.can_activate, g.can_activate), channels.window[i, c.oldest])
    came = state.queued[channels.queue[i, bank, 0]]
    if came >= max(others, b.can_activate):
        b.why = _came(state, channels.queue[i, bank, 0])
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
    _look(channels, i, state, bank)


@inlined_function
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


@inlined_function
def _column(channels, i, state, t, ways, clock, bank):
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
    _charge(channels, i, state, t, clock, bank, r)
    state.issued[state.count[0]] = r
    state.count[0] += 1
    b.waiting -= 1
    for place in range(pick, b.waiting):
        channels.queue[i, bank, place] = channels.queue[i, bank, place + 1]
        channels.line[i, bank, place] = channels.line[i, bank, place + 1]
    c.room |= 1 << bank
    c.queued -= 1
    b.hits += 1
    c.hits += b.hits > 1
    same, other = max(t.burst, t.ccd_l), max(t.burst, t.ccd_s)
    if state.write[r]:
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
        end_request(state, ways, r, end)
        b.can_precharge = max(b.can_precharge, clock + t.rtp)
        g.can_read = max(g.can_read, clock + same)
        c.can_read = max(c.can_read, clock + other)
        c.can_write = max(c.can_write, end - t.cwl + t.turn)
    _look(channels, i, state, bank)


@inlined_function
def _charge(channels, i, state, t, clock, bank, r):
    """Charge the idle clocks of the data bus before a column command to their cause."""
    c, b, write = channels.state[i], channels.banks[i, bank], state.write[r]
    g = channels.groups[i, b.group]
    start = clock + (t.cwl if write else t.cl)
    idle, turned = start - c.data_end, c.wrote != write
    c.data_end = start + t.burst
    c.wrote = write
    if idle <= 0:
        return
    row = b.can_write if write else b.can_read
    bus = max(c.can_write, g.can_write) if write else max(c.can_read, g.can_read)
    if state.queued[r] >= max(row, bus):
        why = _came(state, r)
    elif row >= bus:
        why = b.why
    else:
        why = TURN if turned else GROUP
    if why == WINDOW:
        links = min(idle, state.held[r])
        channels.idle[i, NOC] += links
        idle -= links
    channels.idle[i, why] += idle


@inlined_function
def _came(state, r):
    """Why a request went to the queue of its bank no earlier."""
    if state.queued[r] > state.offered[r]:
        return QUEUE
    return WINDOW if state.late[r] else LOAD


@inlined_function
def _look(channels, i, state, bank):
    """Of what waits for a bank with an open row, the first read of that row and the first write that no read holds up."""
    b = channels.banks[i, bank]
    b.first_read = b.first_write = -1
    for place in range(b.waiting):
        if channels.line[i, bank, place] != b.row:
            continue
        if not state.write[channels.queue[i, bank, place]]:
            if b.first_read < 0:
                b.first_read = place
        elif b.first_write < 0 and has_no_earlier_read(channels, i, state, bank, place):
            b.first_write = place
        if b.first_read >= 0 and (b.first_write >= 0 or b.writes == 0):
            break
    note_wanted_command(channels, i, bank)


@inlined_function
def has_no_earlier_read(channels, i, state, bank, place):
    """Whether a bank's queue has no read of the same address before the write at a place."""
    w = channels.queue[i, bank, place]
    for before in range(place):
        r = channels.queue[i, bank, before]
        if not state.write[r] and state.place[r, 1] == state.place[w, 1] and state.place[r, 2] == state.place[w, 2]:
            return False
    return True


@inlined_function
def note_wanted_command(channels, i, bank):
    """Note the command that a bank with an open row wants next."""
    c, b, bit = channels.state[i], channels.banks[i, bank], 1 << bank
    c.reading = c.reading | bit if b.first_read >= 0 else c.reading & ~bit
    c.writing = c.writing | bit if b.first_write >= 0 else c.writing & ~bit
    hit = b.first_read >= 0 or b.first_write >= 0
    miss = b.waiting > 0 and channels.line[i, bank, 0] != b.row
    c.closing = c.closing | bit if miss and (not hit or b.hits >= MAX_ROW_HITS) else c.closing & ~bit
