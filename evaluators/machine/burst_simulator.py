"""Simulation of a core's blocks at the channels behind it, burst by burst, by their layout.

`fidelity=cycles` uses it.

A matrix lies by itself, from one end of a core's memory; pages of a cache lie anywhere in it, as they were given out, and what
a step adds goes into such pages. All of it is asked for as fast as controllers take it, writes evenly among reads.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.memory_system import ROUNDS, simulate_memory
from dse.space.array_math import Array
from dse.space.dram import MemorySystem, capacity_bytes, check_memory, peak_bandwidth
from dse.space.fields import replace_leaves

WRITE_SHARES = 2.0 ** np.arange(-12, 0)
"""Shares of written bytes for which a mix is simulated; time is linear between them. [-]"""


def simulate_slowdown(memory: MemorySystem, count: Any, request: MemoryRequest) -> Any:
    """Simulated time of a memory request over that of as many bytes at the peak. [-]

    Args:
        memory: memory with the channels.
        count: that blocks lie over; as many whole ones as that is next to are simulated.
        request: memory request; only shares and sizes matter.

    Raises:
        DesignError: as `evaluators.machine.memory_system.simulate_memory`.
    """
    check_memory(memory, "chip.hbm.banks")
    given = (count, request.piece, request.written, request.wrote)
    leaves: list[Array] = list(np.broadcast_arrays(*(np.asarray(leaf, float) for leaf in given)))
    slowdowns: Array = np.empty(leaves[0].shape)
    for at in np.ndindex(slowdowns.shape):
        many, piece, written, wrote = (float(leaf[at]) for leaf in leaves)
        slowdowns[at] = _between(memory, max(round(many), 1), _requests(piece, memory), written, _requests(wrote, memory))
    return slowdowns if slowdowns.shape else float(slowdowns)


def _requests(nbytes: float, memory: MemorySystem) -> int:
    """Whole requests of a block, at least one. [B]"""
    return max(round(nbytes / float(memory.access)), 1) * int(memory.access)


def _between(memory: MemorySystem, count: int, piece: int, written: float, wrote: int) -> float:
    if written in (0.0, 1.0):
        return _pace(memory, count, piece, written, wrote)
    grid = np.concatenate([[0.0], WRITE_SHARES, [1.0]])
    after = int(np.searchsorted(grid, written))
    low, high = (_pace(memory, count, piece, float(grid[at]), wrote) for at in (after - 1, after))
    return float(np.interp(written, grid[after - 1 : after + 1], (low, high)))


@lru_cache(maxsize=4096)
def _pace(given_memory: MemorySystem, count: int, piece: int, written: float, wrote: int) -> float:
    """Of some refresh intervals, by how much later the second half comes than the first: a start costs nothing twice."""
    memory = replace_leaves(given_memory, {"stacks": 1, "channels": count, "pseudo": 1})
    total = 2 * ROUNDS * int(given_memory.timing.refi) * count * int(given_memory.access) // int(given_memory.timing.burst)
    address, nbytes, write = block_layout(memory, total, piece, written, wrote)
    ends = simulate_memory(memory, address, nbytes, write).end_response
    half = len(ends) // 2
    later = np.average(ends[half:], weights=nbytes[half:]) - np.average(ends[:half], weights=nbytes[:half])
    between = (nbytes[:half].sum() + nbytes[half:].sum()) / 2  # from the middle of one half to that of the other
    return max(float(later * peak_bandwidth(memory) / between), 1.0)


def block_layout(memory: MemorySystem, total: int, piece: int, written: float, wrote: int) -> tuple[Array, Array, Array]:
    """Addresses, bytes and write flags of a request's contiguous parts, in the order of issue.

    Args:
        memory: of a core.
        total: bytes, nearly.
        piece: contiguous bytes of what is read; a block of half of all or more is one matrix.
        written: share of the bytes.
        wrote: contiguous bytes of what is written.
    """
    rng, end, stretch = np.random.default_rng(0), int(capacity_bytes(memory)), int(memory.granularity)
    total = min(total, end)
    if not written and 2 * piece >= total:
        start = np.arange(0, total, stretch)
        return start, np.minimum(stretch, total - start), np.zeros(len(start), bool)
    blocks = []
    for size, share, kind in ((min(piece, end), 1 - written, False), (min(wrote, end), written, True)):
        count = max(round(total * share / size), 1) if share else 0
        start = rng.integers(0, end // size, count) * size
        turn = (np.arange(count) + 0.5) / max(count, 1)
        blocks.append((start, np.full(count, size), np.full(count, kind), turn))
    starts, sizes, kinds, turns = (np.concatenate(column) for column in zip(*blocks, strict=True))
    order = np.argsort(turns, kind="stable")
    return _stretches(starts[order], sizes[order], kinds[order], stretch)


def _stretches(start: Array, size: Array, kind: Array, most: int) -> tuple[Array, Array, Array]:
    """Blocks cut where a channel's contiguous part ends, so that a sample can be halved."""
    first, last = start // most, (start + size - 1) // most
    count = last - first + 1
    block = np.repeat(np.arange(len(start)), count)
    at = np.arange(len(block)) - np.repeat(np.cumsum(count) - count, count) + first[block]
    low, high = np.maximum(start[block], at * most), np.minimum((start + size)[block], (at + 1) * most)
    return low, high - low, kind[block]
