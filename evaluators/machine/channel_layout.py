"""Slowdown of a core's blocks by the layout of their bytes over channels, as a formula.

Stretches of `granularity` go round the channels (`evaluators.machine.memory_system.map_addresses`), so that a page of the cache
is a few requests in each of some channels, and what it costs there goes by these. `evaluators.machine.bank_tables` has the same
from simulated tables, `evaluators.machine.burst_simulator` simulates it.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.random_access import activate_interval, address_fields, rows_touched
from dse.space.array_math import cap_keeping_scalar, floor_keeping_scalar, maximum, minimum, where
from dse.space.dram import ORDERS, MemorySystem
from dse.space.memoize import memoize_by_identity

OVERLAP_POWER = 6
"""Exponent of the overlap of data and rows in a channel, as in `random_access`; fitted on simulated tables of 200 random
memories and sizes."""

BEFORE = 32
"""Requests of a block in one bank group, or of writes drained, from which on those of other blocks are far away."""

SAME = 0.2
"""Share of the time between requests of one bank group (tCCD_L) that those of other blocks do not hide, with a controller that
looks `BEFORE` requests ahead; fitted likewise."""


class MemoryRequest(NamedTuple):
    """Bytes that a call reads from or writes to a core's memory; leaves broadcast over steps and designs.

    Attributes:
        nbytes: that are read and written. [B]
        piece: contiguous bytes of what is read: a matrix, a page of a cache. [B]
        stride: from one piece to the next; 0 where each lies anywhere, or there is one. [B]
        written: share of `nbytes` that is written.
        wrote: contiguous bytes of what is written. [B]
    """

    nbytes: Any
    piece: Any = 0.0
    stride: Any = 0.0
    written: Any = 0.0
    wrote: Any = 0.0


SHOWN_SHARE = 0.75
"""Share of closing and opening a row that others do not hide, where neighbouring rows are in one bank; fitted likewise."""


def contiguous_bytes(memory: MemorySystem, count: Any, piece: Any) -> Any:
    """Bytes of a block that are contiguous in one of `count` channels. [B]

    >>> from dse.space.dram import MemorySystem
    >>> class Stretches:
    ...     granularity = 256
    >>> [float(contiguous_bytes(Stretches, 16, size)) for size in (64, 1024, 8192)]
    [64.0, 256.0, 512.0]
    """
    return maximum(minimum(piece, memory.granularity), piece / count)


def layout_slowdown(memory: MemorySystem | None, count: Any, request: MemoryRequest) -> Any:
    """Time of a memory request over that of one long read of as many bytes. [-]

    The long read visits neighbouring bank groups in turn.

        pace = (1 - w) x reads + w x (writes + (1 - w) x (tWTR + CL + tRAS + tRP) / (drained x burst))

    Reads and writes each as `random_block_slowdown_model`. Writes wait until their buffer is full, or are drained block by
    block where blocks are larger; then the bus turns round (tWTR, CL), and rows that were read are opened again (tRAS + tRP).

    Args:
        memory: memory with the channels; None if its banks are unknown, which gives 1.
        count: channels that blocks lie over.
        request: memory request; only shares and sizes matter.

    Source:
        Ours; against `bank_tables` on random memories, orders and sizes in `tests/evaluators/test_laid.py`.
    """
    if memory is None:
        return 1.0
    reads = _laid(memory, count, request.piece)
    if isinstance(request.written, float) and request.written == 0:
        return reads
    near = contiguous_bytes(memory, count, request.wrote)
    t, share = memory.timing, request.written
    drains = 1 / maximum(minimum(memory.controller.waiting, BEFORE), near / memory.access)
    drain = (t.wtr_l + t.cl + t.ras + t.rp) * drains / t.burst
    return (1 - share) * reads + share * (_laid(memory, count, request.wrote) + drain * (1 - share))


MAX_PIECES = 64
"""Largest number of piece sizes that are cached per channel."""


def _laid(memory: MemorySystem, count: Any, piece: Any) -> Any:
    """`random_block_slowdown_model` of what `contiguous_bytes` says of a piece, once for each number where channels are of many
    designs.
    """
    if isinstance(piece, np.ndarray) or not isinstance(count, np.ndarray):
        return random_block_slowdown_model(memory, contiguous_bytes(memory, count, piece))
    known = _known(memory, count)
    if piece not in known:
        if len(known) >= MAX_PIECES:
            known.clear()
        known[piece] = random_block_slowdown_model(memory, contiguous_bytes(memory, count, piece))
    return known[piece]


@memoize_by_identity
def _known(memory: MemorySystem, count: Any) -> dict[float, Any]:
    """By the size of a piece."""
    return {}


def random_block_slowdown_model(memory: MemorySystem, piece: Any) -> Any:
    """Time of random blocks of a channel over that of as many bytes in neighbouring bank groups. [-]

    1 for blocks of 0 bytes.

    Data keep the bus for `burst` clocks a request, and for a share of tCCD_L where neighbouring requests are of one bank group,
    among which a controller finds those of other blocks, the more the farther it looks ahead; rows are opened as in
    `random_access.random_piece_slowdown`. Where each bank has a stretch of the memory, a long block closes a row to open the
    next one in the same bank.

    Args:
        memory: memory with the channel.
        piece: contiguous bytes of a block. [B]
    """
    t = memory.timing
    whole = piece / memory.access
    requests = floor_keeping_scalar(whole, 1.0)
    gap = maximum(t.burst, t.ccd_s)
    near = maximum(cap_keeping_scalar(requests, same_group_requests(memory)) - 1, 0.0) / BEFORE
    data = requests * (gap + maximum(t.ccd_l - gap, 0.0) * _exposed(memory) * minimum(near, 1.0))
    if _turns(memory):  # what is behind a row is in the same bank again
        alike = memory.groups * memory.row / memory.access
        data = data + SHOWN_SHARE * floor_keeping_scalar(requests / alike - 2, 0.0) * (t.rtp + t.rp + t.rcd_read)
    slower = (
        (1 + (rows_touched(memory, requests) * activate_interval(memory) / data) ** OVERLAP_POWER) ** (1 / OVERLAP_POWER)
        * data
        / (requests * t.burst)
    )
    if requests is whole:
        return slower
    return where(piece > 0, slower * maximum(memory.access / maximum(piece, 1e-9), 1.0), 1.0)


def _exposed(memory: MemorySystem) -> Any:
    """Share of tCCD_L among requests of one bank group that stays: all of it without look-ahead, `SAME` with `BEFORE` requests.

    >>> from types import SimpleNamespace as Part
    >>> [round(float(_exposed(Part(controller=Part(waiting=waiting)))), 3) for waiting in (0, 16, 32, 64)]
    [1.0, 0.6, 0.2, 0.0]
    """
    return maximum(SAME + (1 - SAME) * (1 - memory.controller.waiting / BEFORE), 0.0)


@memoize_by_identity
def same_group_requests(memory: MemorySystem) -> Any:
    """Neighbouring requests of a channel that lie in one bank group. [-]"""
    count: Any = 1.0
    for name, extent in address_fields(memory):
        if name == "group":
            break
        count = count * extent
    return count


@memoize_by_identity
def _turns(memory: MemorySystem) -> bool:
    """Whether neighbouring rows are in one bank."""
    order = ORDERS[memory.order]
    return memory.hashed == "none" and order.index("bank") < order.index("row")
