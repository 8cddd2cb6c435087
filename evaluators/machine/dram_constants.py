"""Names and records of an HBM channel: timing, controller queues, causes of idle bus time."""

from typing import NamedTuple

import numpy as np

IDLE_CAUSES = ("load", "window", "noc", "queue", "row", "activates", "group", "turn", "refresh")
"""What the data bus waits for: requests that were not there yet (their time had not come, or the requester had too many
outstanding, or had them because their data waited for links), the controller's queues, a row to be closed and opened, another
activate (tRRD, tFAW), its bank group (tCCD_L), the bus turning round between reads and writes, a refresh."""

LOAD, WINDOW, NOC, QUEUE, ROW, ACTIVATES, GROUP, TURN, REFRESH = range(len(IDLE_CAUSES))


NEVER = 1 << 60
"""A clock that does not come."""

FROM, TO = 4, 5
"""Ports of a tile that data of writes and of reads pass; before them come links to the east, west, south and north."""


class ClockedTiming(NamedTuple):
    """Timing constraints of an HBM channel. [clock]

    Attributes:
        cl, cwl: from a read or write to its first data.
        rcd_read, rcd_write: from activate to read or write.
        rp: from precharge to activate.
        ras: from activate to precharge.
        rfc: a refresh.
        refi: from refresh to refresh.
        rrd_s, rrd_l: from activate to activate, in another or in the same bank group; the former is not longer.
        ccd_s, ccd_l: from column command to column command, likewise.
        wtr_s, wtr_l: from the end of a write's data to a read, likewise.
        faw: any four activates.
        wr: from the end of a write's data to precharge.
        rtp: from read to precharge.
        turn: between the data of a read and of a write, for the bus to turn round.
        burst: data of one request.
        per_bank: whether a refresh is of one bank; then `refi` is from one bank's to the next one's.
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
    per_bank: bool = False


class QueueSizes(NamedTuple):
    """Requests that a controller holds: per read queue, per write buffer, and per bank. [-]"""

    waiting: int = 32
    bank: int = 8


CHANNEL = np.dtype([(name, np.int64) for name in (
    "awake",  # next clock in which it can do something
    "left", "coming", "latest",  # requests not accepted; of those offered the first, or -1, and the last
    "turn",  # bank that had its turn
    "reads", "writes", "activates", "hits",
    "held_reads", "held_writes", "queued", "draining",
    "refresh", "refreshing",  # next one; one is due
    "round", "kept",  # sets of banks: not refreshed in this round, and to be refreshed now, which gets no other commands
    "asleep",  # no command can be issued before
    "can_read", "can_write", "can_activate", "oldest",  # in any bank group; `oldest` of the window of four activates
    "opening", "closing", "reading", "writing",  # sets of banks that want an activate, a precharge, a read, a write
    "room", "reads_for", "writes_for",  # sets of banks: whose queue has room, and that have requests held
    "wrote", "data_end",  # of the last column command
)])  # fmt: skip
"""State of a channel."""

BANK = np.dtype([(name, np.int64) for name in (
    "group", "row", "hits", "waiting", "writes",  # open row or -1, hits in it; requests queued, those that are writes
    "first_read", "first_write",  # places in the queue of the first that can go to the open row, or -1
    "can_read", "can_write", "can_activate", "can_precharge",
    "refreshed",  # end of its last refresh
    "why",  # what held the activate of the open row
    "held_read", "last_read", "held_write", "last_write",  # first and last request held, or -1
)])  # fmt: skip
"""State of a bank."""

BANK_GROUP = np.dtype([(name, np.int64) for name in ("can_read", "can_write", "can_activate")])
"""State of a bank group."""

REQUESTER = np.dtype([(name, np.int64) for name in (
    "next", "end", "window",  # requests, in order; the most outstanding, 0 for any
    "most",  # requests of its longest burst, which are offered at once
    "outstanding", "reads", "read_tail", "writes", "write_tail",  # places in the rings of ends of reads and of writes
    "freed",  # what the last one that ended had waited for links
)])  # fmt: skip
"""State of a requester."""
