"""A channel of HBM, command by command: banks with row buffers, bank groups, refresh, and a controller that reorders.

The controller keeps rows open. Requests wait in a read queue or a write buffer, from which one a clock goes on to the queue of
its bank; a bank's queue is served out of order: hits of the open row come before the precharge that its head may need, at most
`ROW_HITS` in a row. Banks take turns. Rows and columns have a command bus each, as HBM has: in a clock a column command (read,
write) and a row command (activate, precharge) may be issued. Writes are held back until their buffer is full, or half idle, and
are then drained. Refresh closes all banks of the channel.

All times in clocks of the channel; a request is one burst.

Source:
    The controller's behaviour is that of [li2020]; timing constraints are those of JEDEC's HBM standards.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import numpy as np
from numba import njit

from space.elementwise import Array

ROW_HITS = 4
"""Hits of an open row after which a waiting request for another row may close it."""

DRAIN = 8
"""Writes beyond which they are drained where no read is queued; fewer wait for company, as long as more can come."""


class Timing(NamedTuple):
    """Timing constraints of a channel. [clock]

    Attributes:
        cl, cwl: from a read or write to its first data.
        rcd_read, rcd_write: from activate to read or write.
        rp: from precharge to activate.
        ras: from activate to precharge.
        rfc: a refresh.
        refi: from refresh to refresh.
        rrd_s, rrd_l: from activate to activate, in another or in the same bank group.
        ccd_s, ccd_l: from column command to column command, likewise.
        wtr_s, wtr_l: from the end of a write's data to a read, likewise.
        faw: any four activates.
        wr: from the end of a write's data to precharge.
        rtp: from read to precharge.
        turn: between the data of a read and of a write, for the bus to turn round.
        burst: data of one request.
    """

    cl: int
    cwl: int
    rcd_read: int
    rcd_write: int
    rp: int
    ras: int
    rfc: int
    refi: int
    rrd_s: int
    rrd_l: int
    ccd_s: int
    ccd_l: int
    wtr_s: int
    wtr_l: int
    faw: int
    wr: int
    rtp: int
    turn: int
    burst: int


class Queues(NamedTuple):
    """Requests that a controller holds: in its read queue and write buffer (each), and for each bank."""

    waiting: int = 32
    bank: int = 8


class Served(NamedTuple):
    """What came of the requests of a channel.

    Attributes:
        accepted: when the controller took each request, -1 where it did not; shape (requests,). [clock]
        finished: when its last data came, or a write was taken; -1 where it did not; shape (requests,). [clock]
        reads, writes: that were issued to banks.
        activates: rows opened.
        hits: column commands that found their row open from another one before.
        clocks: until the last request was finished, or the limit.
    """

    accepted: Array
    finished: Array
    reads: int
    writes: int
    activates: int
    hits: int
    clocks: int


def serve(
    place: Array,
    write: Array,
    arrival: Array,
    timing: Timing,
    *,
    groups: int,
    banks: int,
    queues: Queues = Queues(),  # noqa: B008
    limit: int = 1 << 60,
) -> Served:
    """Plays the requests of one channel, in the order given, each offered from its arrival on.

    Args:
        place: bank (0 to groups x banks, those of a group side by side), row and column of each; shape (requests, 3).
        write: whether each is a write, shape (requests,).
        arrival: shape (requests,), not falling. [clock]
        timing: of the channel.
        groups: bank groups.
        banks: of each group.
        queues: of the controller.
        limit: when to stop. [clock]
    """
    accepted, finished = np.full(len(write), -1, np.int64), np.full(len(write), -1, np.int64)
    counts = np.zeros(5, np.int64)
    _play(
        np.ascontiguousarray(place, dtype=np.int64), np.ascontiguousarray(write, dtype=np.bool_),
        np.ascontiguousarray(arrival, dtype=np.int64), groups, banks, queues, timing, limit, accepted, finished, counts,
    )  # fmt: skip
    return Served(accepted, finished, *(int(count) for count in counts))


@njit(cache=True)
def _look(b, queue, line_of, waiting, place, write, row, first):
    """Of what waits for bank `b`, the first read of its open row, and the first write that no read holds up; -1 where none."""
    first[b, 0] = first[b, 1] = -1
    for i in range(waiting[b]):
        if line_of[b, i] != row[b]:
            continue
        r = queue[b, i]
        if not write[r]:
            if first[b, 0] < 0:
                first[b, 0] = i
        elif first[b, 1] < 0:
            free = True
            for j in range(i):
                o = queue[b, j]
                if not write[o] and place[o, 1] == place[r, 1] and place[o, 2] == place[r, 2]:
                    free = False
            if free:
                first[b, 1] = i


@njit(cache=True)
def _play(place, write, arrival, groups, banks, queues, t, limit, accepted, finished, counts):
    never = 1 << 60
    count, all_banks = len(write), groups * banks
    queue = np.zeros((all_banks, queues.bank), np.int64)
    line_of = np.zeros((all_banks, queues.bank), np.int64)
    waiting = np.zeros(all_banks, np.int64)
    row = np.full(all_banks, -1, np.int64)
    hits = np.zeros(all_banks, np.int64)
    first = np.full((all_banks, 2), -1, np.int64)
    # earliest clocks: of reads, writes, activates and precharges, by bank; of the first three also by group
    read, written, activate, precharge = np.zeros((4, all_banks), np.int64)
    group_read, group_written, group_activate = np.zeros((3, groups), np.int64)
    window, oldest = np.full(4, -never, np.int64), 0
    reads, writes = np.zeros(queues.waiting, np.int64), np.zeros(queues.waiting, np.int64)
    held_reads = held_writes = queued = draining = 0
    blocked = False
    same, other = max(t.burst, t.ccd_l), max(t.burst, t.ccd_s)
    read_to_write = t.cl + t.burst - t.cwl + t.turn
    to_read_same, to_read_other = t.cwl + t.burst + t.wtr_l, t.cwl + t.burst + t.wtr_s
    write_to_precharge = t.cwl + t.burst + t.wr
    clock, coming, last, done = 0, 0, 0, 0
    refreshing, refresh = False, t.refi
    while clock < limit and done < count:
        moved = False
        if coming < count and arrival[coming] <= clock:
            if write[coming] and held_writes < queues.waiting:
                accepted[coming] = clock
                finished[coming] = clock + 1
                writes[held_writes] = coming
                held_writes += 1
                moved = True
            elif not write[coming] and held_reads < queues.waiting:
                accepted[coming] = clock
                reads[held_reads] = coming
                held_reads += 1
                moved = True
            if moved:
                coming += 1
                blocked = False
        if clock == refresh:
            refreshing = True
            refresh += t.refi
        wake = min(refresh, limit)
        issued = False
        if refreshing:
            closed = 0
            for b in range(all_banks):
                if row[b] >= 0:
                    if clock >= precharge[b]:
                        row[b] = -1
                        hits[b] = 0
                        activate[b] = max(activate[b], clock + t.rp)
                        issued = True
                        break
                    wake = min(wake, precharge[b])
                elif clock >= activate[b]:
                    closed += 1
                else:
                    wake = min(wake, activate[b])
            if not issued and closed == all_banks:
                for b in range(all_banks):
                    activate[b] = clock + t.rfc
                refreshing = False
                issued = True
        else:
            kind = 0  # of what the first bus took: 1 a column, 2 a row command
            for _ in range(2):
                took = False
                for step in range(1, all_banks + 1):
                    b = last + step
                    if b >= all_banks:
                        b -= all_banks
                    if waiting[b] == 0:
                        continue
                    g = b // banks
                    if row[b] < 0:
                        at = max(max(activate[b], group_activate[g]), window[oldest])
                        if at > clock:
                            wake = min(wake, at)
                            continue
                        took = True
                        last = b
                        if kind != 2:
                            kind, issued = 2, True
                            row[b] = line_of[b, 0]
                            hits[b] = 0
                            read[b], written[b] = clock + t.rcd_read, clock + t.rcd_write
                            precharge[b] = max(precharge[b], clock + t.ras)
                            activate[b] = max(activate[b], clock + t.ras + t.rp)
                            for o in range(groups):
                                group_activate[o] = max(group_activate[o], clock + (t.rrd_l if o == g else t.rrd_s))
                            window[oldest] = clock + t.faw
                            oldest = (oldest + 1) & 3
                            counts[2] += 1
                            _look(b, queue, line_of, waiting, place, write, row, first)
                        break
                    hit_read, hit_write = first[b, 0], first[b, 1]
                    head_hits = hit_read == 0 or hit_write == 0 or line_of[b, 0] == row[b]
                    if not head_hits and ((hit_read < 0 and hit_write < 0) or hits[b] >= ROW_HITS):
                        if precharge[b] <= clock:
                            took = True
                            last = b
                            if kind != 2:
                                kind, issued = 2, True
                                row[b] = -1
                                hits[b] = 0
                                activate[b] = max(activate[b], clock + t.rp)
                            break
                        wake = min(wake, precharge[b])
                    pick = -1
                    if hit_read >= 0:
                        at = max(read[b], group_read[g])
                        if at <= clock:
                            pick = hit_read
                        else:
                            wake = min(wake, at)
                    if hit_write >= 0 and (pick < 0 or hit_write < pick):
                        at = max(written[b], group_written[g])
                        if at <= clock:
                            pick = hit_write
                        else:
                            wake = min(wake, at)
                    if pick < 0:
                        continue
                    took, kind, issued, last = True, 1, True, b
                    r = queue[b, pick]
                    waiting[b] -= 1
                    for i in range(pick, waiting[b]):
                        queue[b, i] = queue[b, i + 1]
                        line_of[b, i] = line_of[b, i + 1]
                    queued -= 1
                    blocked = False
                    hits[b] += 1
                    counts[3] += hits[b] > 1
                    if write[r]:
                        counts[1] += 1
                        done += 1
                        precharge[b] = max(precharge[b], clock + write_to_precharge)
                        for o in range(groups):
                            group_read[o] = max(group_read[o], clock + (to_read_same if o == g else to_read_other))
                            group_written[o] = max(group_written[o], clock + (same if o == g else other))
                    else:
                        counts[0] += 1
                        done += 1
                        finished[r] = clock + t.cl + t.burst
                        precharge[b] = max(precharge[b], clock + t.rtp)
                        for o in range(groups):
                            group_read[o] = max(group_read[o], clock + (same if o == g else other))
                            group_written[o] = max(group_written[o], clock + read_to_write)
                    _look(b, queue, line_of, waiting, place, write, row, first)
                    break
                if not took:
                    break
        alone = DRAIN if coming < count or held_reads else 0
        if draining == 0 and (held_writes >= queues.waiting or (held_writes > alone and queued == 0)):
            draining = held_writes
            blocked = False
        if not blocked:
            line, held = (writes, held_writes) if draining > 0 else (reads, held_reads)
            blocked = True
            for i in range(held):
                r = line[i]
                b = place[r, 0]
                if waiting[b] < queues.bank:
                    queue[b, waiting[b]] = r
                    line_of[b, waiting[b]] = place[r, 1]
                    waiting[b] += 1
                    queued += 1
                    for j in range(i, held - 1):
                        line[j] = line[j + 1]
                    if draining > 0:
                        held_writes -= 1
                        draining -= 1
                    else:
                        held_reads -= 1
                    blocked = False
                    moved = True
                    _look(b, queue, line_of, waiting, place, write, row, first)
                    break
        if issued or moved:
            clock += 1
            continue
        if coming < count and (held_writes if write[coming] else held_reads) < queues.waiting:
            wake = min(wake, arrival[coming])
        clock = max(clock + 1, wake)
    counts[4] = clock
