"""Words of a channel of HBM: its timing constraints, its controller's queues, and what its data bus waits for."""

from typing import NamedTuple

CAUSES = ("load", "window", "noc", "queue", "row", "activates", "group", "turn", "refresh")
"""What the data bus waits for: requests that were not there yet (their time had not come, or the requester had too many
outstanding, or had them because their data waited for links), the controller's queues, a row to be closed and opened, another
activate (tRRD, tFAW), its bank group (tCCD_L), the bus turning round between reads and writes, a refresh."""

LOAD, WINDOW, NOC, QUEUE, ROW, ACTIVATES, GROUP, TURN, REFRESH = range(len(CAUSES))


class Timing(NamedTuple):
    """Timing constraints of a channel. [clock]

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


class Queues(NamedTuple):
    """Requests that a controller holds: in its read queue and write buffer (each), and for each bank."""

    waiting: int = 32
    bank: int = 8
