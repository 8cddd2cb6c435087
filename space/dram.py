"""Main memory as channels of banks: counts, sizes and timing constants.

How the memory answers requests is in ``evaluators/machine/hbm``.
"""

from dataclasses import fields
from typing import Any

from dse.space.array_math import Number, maximum
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import integer_field, option_field, quantity_field, record_class

ORDERS = {
    "row_group_bank_column": ("row", "group", "bank", "column"),
    "row_bank_column_group": ("row", "bank", "column", "group"),
    "row_column_bank_group": ("row", "column", "bank", "group"),
    "bank_row_column_group": ("bank", "row", "column", "group"),
}
"""Interleaving policies: meaning of the bits of an address within a channel, high to low. The first fills a row before the
next bank; the second alternates between bank groups; the third visits all banks before it returns to a row; the fourth
gives each bank a contiguous part of the memory.
"""

HASHES = ("none", "bank", "all")
"""What the low bits of the row are XORed into: nothing; bank and bank group; or the channel as well ([zhang2000])."""


def _cycles(doc: str, *, low: int = 1) -> Any:
    return integer_field(doc, low=low, unit="cycle")


@record_class
class DramTiming:
    """Timing constraints between DRAM commands, by JEDEC's names, in cycles of the memory's clock."""

    cl: Number = _cycles("from a read to its first data (CL)")
    cwl: Number = _cycles("from a write to its first data (CWL)")
    rcd_read: Number = _cycles("from activate to read (tRCDRD)")
    rcd_write: Number = _cycles("from activate to write (tRCDWR)")
    rp: Number = _cycles("from precharge to activate (tRP)")
    ras: Number = _cycles("from activate to precharge (tRAS)")
    rrd_s: Number = _cycles("from activate to activate in another bank group (tRRD_S)")
    rrd_l: Number = _cycles("from activate to activate in the same bank group (tRRD_L)")
    faw: Number = _cycles("in which four activates are allowed (tFAW)")
    ccd_s: Number = _cycles("from column command to column command in another bank group (tCCD_S)")
    ccd_l: Number = _cycles("from column command to column command in the same bank group (tCCD_L)")
    wtr_s: Number = _cycles("from the end of a write's data to a read in another bank group (tWTR_S)")
    wtr_l: Number = _cycles("from the end of a write's data to a read in the same bank group (tWTR_L)")
    rtw: Number = _cycles("from a read to a write (tRTW)")
    wr: Number = _cycles("from the end of a write's data to precharge (tWR)")
    rtp: Number = _cycles("from read to precharge (tRTP)")
    burst: Number = _cycles("data of one request")
    refi: Number = _cycles("in which every bank is refreshed once (tREFI)")
    rfc: Number = _cycles("a refresh of all banks (tRFCab); 0 where it is not known", low=0)
    rfc_bank: Number = _cycles("a refresh of one bank (tRFCpb); 0 where there is none", low=0)


@record_class
class MemoryController:
    """Queue sizes of a channel's memory controller, and its distance from a requester. [s]"""

    waiting: Number = integer_field("requests in the controller's read queue, and in its write buffer")
    queue: Number = integer_field("requests in the queue of a bank")
    path: Number = quantity_field("s", "time from a requester to the controller and back, without contention", high=1e-3)


@record_class
class MemorySystem:
    """Main memory as stacks of channels of banks: counts, sizes, timing and policies."""

    stacks: Number = integer_field("stacks")
    channels: Number = integer_field("channels of a stack")
    pseudo: Number = integer_field("pseudo-channels of a channel, each with its own banks and data bus")
    groups: Number = integer_field("bank groups of a pseudo-channel")
    banks: Number = integer_field("banks of a group")
    rows: Number = integer_field("rows of a bank")
    row: Number = quantity_field("B", "bytes of a row of a bank, which its buffer holds", positive=True)
    access: Number = quantity_field("B", "bytes of one request, moved by one burst", positive=True)
    clock: Number = quantity_field("Hz", "of commands", positive=True)
    timing: DramTiming
    refresh: str = option_field("what is refreshed at once", ("all", "bank"))
    order: str = option_field("interleaving within a channel", tuple(ORDERS))
    granularity: Number = quantity_field("B", "consecutive bytes in one channel before the next channel's", positive=True)
    hashed: str = option_field("address bits into which the row's low bits are XORed", HASHES)
    controller: MemoryController


def pseudo_channel_count(memory: MemorySystem) -> Any:
    """Number of pseudo-channels of all stacks."""
    return memory.stacks * memory.channels * memory.pseudo


def capacity_bytes(memory: MemorySystem) -> Any:
    """Capacity of all stacks of a memory. [B]"""
    return pseudo_channel_count(memory) * memory.groups * memory.banks * memory.rows * memory.row


def peak_bandwidth(memory: MemorySystem) -> Any:
    """Peak bandwidth of the data buses. [B/s]"""
    return pseudo_channel_count(memory) * memory.access * memory.clock / memory.timing.burst


def pseudo_channels_for_bandwidth(memory: MemorySystem, bandwidth: Any) -> Any:
    """Pseudo-channels that a bandwidth stands for, at least 1; fractions mean a different clock."""
    return maximum(bandwidth * pseudo_channel_count(memory) / peak_bandwidth(memory), 1.0)


def check_memory(memory: MemorySystem, address: str = "memory") -> None:
    """Refuse a memory whose counts or timing constants contradict each other.

    Raises:
        DesignError: a number that is below its least, that has to be a power of two and is not, or that contradicts another.
    """
    for part, where in ((memory, address), (memory.timing, f"{address}.timing"), (memory.controller, f"{address}.controller")):
        for spec in fields(part):
            value = getattr(part, spec.name)
            if isinstance(value, int | float) and spec.metadata and not value >= spec.metadata["low"]:
                raise DesignError(f"{where}.{spec.name}: must be at least {spec.metadata['low']:g}, got {value:g}")
    for name, options in (("order", ORDERS), ("hashed", HASHES)):
        if getattr(memory, name) not in options:
            raise DesignError(
                f"{address}.{name}: no option {getattr(memory, name)!r}; {suggest_nearest(getattr(memory, name), options)}"
            )
    for name in ("groups", "banks", "rows", "row", "access", "granularity"):
        value = float(getattr(memory, name))
        if value < 1 or value != int(value) or int(value) & (int(value) - 1):
            raise DesignError(f"{address}.{name}: {value:g} is not a power of two")
    if memory.groups * memory.banks > 64:
        raise DesignError(f"{address}.banks: at most 64 banks per channel are supported, got {memory.groups * memory.banks:g}")
    if memory.hashed == "all" and int(pseudo_channel_count(memory)) & (int(pseudo_channel_count(memory)) - 1):
        raise DesignError(
            f"{address}.hashed: all needs a power of two of channels, got {pseudo_channel_count(memory):g}; use bank"
        )
    if not memory.access <= memory.granularity <= memory.row:
        between = f"between a request of {memory.access:g} and a row of {memory.row:g}"
        raise DesignError(f"{address}.granularity: {memory.granularity:g} B must be {between}")
    _refuse_timing(memory, f"{address}.timing")


def _between_refreshes(memory: MemorySystem) -> Any:
    """Least cycles from one refresh of a bank to its next: half of them to read, or no row might ever be; banks take turns."""
    t = memory.timing
    if memory.refresh == "all":
        return 2 * (t.rfc + t.ras + t.rp)
    return max(2 * (t.rfc_bank + t.ras + t.rp), 2 * memory.groups * memory.banks)


def _refuse_timing(memory: MemorySystem, address: str) -> None:
    t = memory.timing
    needs = (
        ("ras", t.ras, max(t.rcd_read, t.rcd_write), "rcd, the time until the row can be read or written"),
        ("rrd_l", t.rrd_l, t.rrd_s, "rrd_s: the same bank group is no faster than another"),
        ("ccd_l", t.ccd_l, t.ccd_s, "ccd_s: the same bank group is no faster than another"),
        ("wtr_l", t.wtr_l, t.wtr_s, "wtr_s: the same bank group is no faster than another"),
        ("faw", t.faw, t.rrd_s, "rrd_s, which four activates cannot undercut"),
        ("rtw", t.rtw, t.cl + t.burst - t.cwl, "cl + burst - cwl, or data of a write would meet those of a read"),
        ("refi", t.refi, _between_refreshes(memory), "a refresh and of as much time to read rows before the next one"),
    )
    for name, have, need, why in needs:
        if have < need:
            raise DesignError(f"{address}.{name}: {have:g} cycles are less than {need:g} of {why}")
    name = "rfc" if memory.refresh == "all" else "rfc_bank"
    if getattr(t, name) == 0:
        raise DesignError(f"{address}.{name}: unknown, but refresh is {memory.refresh}; set it, or choose the other refresh")
