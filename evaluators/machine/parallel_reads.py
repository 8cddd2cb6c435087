"""Simulation of reads that all cores of a die issue together, burst by burst, by their layout.

A matrix lies tile by tile: each core has one, reads it from one end to the other, and goes on with the tile that is as many
farther as there are cores. A cache lies in blocks of `TOKENS` positions, which are given out anywhere; cores read a head each,
so that those of all heads of a block walk through it in step. What an indexer picks lies anywhere, piece by piece.

Every core has some bursts outstanding, and meets all others in banks, queues and refresh: those of
`evaluators.machine.dram_simulator`, which simulates some of the channels, as all of them have alike to do.
"""

from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine import dram_simulator as dram
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.memory_channels import BLOCK_BYTES
from dse.evaluators.machine.memory_system import ROUNDS, clocked_timing, map_addresses, path_clocks, queue_sizes
from dse.space.array_math import Array
from dse.space.dram import MemorySystem, capacity_bytes, check_memory
from dse.space.fields import replace_leaves

TOKENS = 16
"""Positions of a block of the cache: vLLM's default ([kwon2023])."""

MAX_OUTSTANDING = 256
"""Requests of each channel that all cores together have outstanding, at least a stretch each: 1 MB of an H100, whose local
memories hold 30 times that. Assumed: software that reaches a die's bandwidth has so many on the way."""

CHANNELS = 8
"""Number of channels that are simulated."""


class ParallelReads(NamedTuple):
    """Reads that all cores of a die issue at the same time.

    Attributes:
        cores: that read side by side.
        tile: contiguous bytes that a core has of a matrix; 0 of a cache. [B]
        piece: contiguous bytes that a core reads of a cache, and from one to the next in a block, 0 for anywhere. [B]
        stride: likewise.
    """

    cores: int
    tile: int
    piece: int
    stride: int


def simulate_parallel_slowdown(memory: MemorySystem, count: Any, cores: Any, request: MemoryRequest) -> Any:
    """Simulated time of reads by all cores over that of as many bytes at the peak; at least 1. [-]

    Args:
        memory: memory with the channels.
        count: that blocks lie over; as many whole ones as that is next to are simulated.
        cores: cores that share the request evenly.
        request: memory request; leaves broadcast.

    Raises:
        DesignError: as `evaluators.machine.memory_system.simulate_memory`.
    """
    check_memory(memory, "chip.hbm.banks")
    given = (count, cores, request.nbytes, request.piece, request.stride)
    leaves: list[Array] = list(np.broadcast_arrays(*(np.asarray(leaf, float) for leaf in given)))
    slowdowns: Array = np.ones(leaves[0].shape)
    for at in np.ndindex(slowdowns.shape):
        many, readers, nbytes, piece, stride = (float(leaf[at]) for leaf in leaves)
        if nbytes > 0:
            slowdowns[at] = _pace(memory, max(round(many), 1), parallel_reads(int(readers), nbytes, piece, stride))
    return slowdowns if slowdowns.shape else float(slowdowns)


def shared_block_bytes(request: MemoryRequest) -> Any:
    """Contiguous bytes of a KV cache that all cores read together; 0 for a matrix. [B]

    They are a KV block, or selected pieces.
    """
    if isinstance(request.stride, float) and request.stride == inf:
        return request.piece
    return TOKENS * request.stride


def parallel_reads(cores: int, nbytes: float, piece: float, stride: float) -> ParallelReads:
    """Reads of `nbytes` in all per core: a block of whole pages, or pieces of a KV cache."""
    if not stride:
        return ParallelReads(cores, max(-(-int(nbytes) // (cores * BLOCK_BYTES)), 1) * BLOCK_BYTES, 0, 0)
    if stride == inf:
        return ParallelReads(cores, 0, max(int(piece), 1), 0)
    return ParallelReads(cores, 0, max(int(piece), 1), max(int(stride), int(piece), 1))


@lru_cache(maxsize=4096)
def _pace(given_memory: MemorySystem, count: int, what: ParallelReads) -> float:
    """Of some refresh intervals, by how much later the second half of all bursts comes than the first."""
    memory = replace_leaves(given_memory, {"stacks": 1, "channels": count, "pseudo": 1})
    check_memory(memory, "chip.hbm.banks")
    t, access, channels = clocked_timing(memory), int(memory.access), min(count, CHANNELS)
    each = 2 * ROUNDS * int(given_memory.timing.refi) * count // (t.burst * what.cores)  # bursts
    bursts, by = read_bursts(memory, what, max(each, 1) * access, channels)
    channel, at = map_addresses(memory, bursts)
    begins = np.ones(len(bursts), np.bool_)  # each core's part of a stretch is offered at once, as a burst of a bus is
    begins[1:] = (np.diff(bursts // int(given_memory.granularity)) != 0) | (np.diff(by) != 0)
    together = int(given_memory.granularity) // access
    window = np.full(what.cores, max(MAX_OUTSTANDING * channels // (what.cores * together), 1) * together)
    served = dram.simulate_requests(
        at,
        np.zeros(len(bursts), np.bool_),
        np.zeros(len(bursts)),
        t,
        groups=int(given_memory.groups),
        banks=int(given_memory.banks),
        channel=channel,
        channels=channels,
        windows=window,
        requester=by,
        begins=begins,
        path=path_clocks(given_memory),
        queues=queue_sizes(given_memory),
    )
    ends = np.sort(served.finished)
    half = len(ends) // 2
    later = ends[half:].mean() - ends[:half].mean()
    return max(float(later * channels / (len(ends) / 2 * t.burst)), 1.0)


def read_bursts(memory: MemorySystem, what: ParallelReads, nbytes: int, channels: int) -> tuple[Array, Array]:
    """Bursts of the first `channels` channels that cores read, core after core, each in order.

    Args:
        memory: of so many channels of its own.
        what: that is read.
        nbytes: of each core.
        channels: number of channels whose bursts are returned.

    Returns:
        Address of each, and its core; shape (bursts,). [B]
    """
    size, access, end = int(memory.granularity), int(memory.access), int(capacity_bytes(memory))
    cores = np.arange(what.cores)[:, None]
    if what.tile:
        number = np.arange(-(-nbytes // size))[None, :] * size
        start = ((number // what.tile * what.cores + cores) * what.tile + number % what.tile) % (end // size * size)
        length = np.full(start.shape, size)
    else:
        start = _pieces(what, -(-nbytes // what.piece), end)
        length = np.full(start.shape, what.piece)
    bursts, by = _bursts(start.ravel(), length.ravel(), np.repeat(np.arange(what.cores), start.shape[1]), access)
    channel, _ = map_addresses(memory, bursts)
    mask = channel < channels
    return bursts[mask], by[mask]


def _pieces(what: ParallelReads, count: int, end: int) -> Array:
    """Where pieces of each core begin, shape (cores, pieces). [B]"""
    rng = np.random.default_rng(0)
    if not what.stride:
        return rng.integers(0, end // what.piece - 1, (what.cores, count)) * what.piece
    heads = min(max(what.stride // what.piece, 1), what.cores)
    groups, block = -(-what.cores // heads), TOKENS * what.stride
    starts = rng.integers(0, max(end // block - 1, 1), (groups, -(-count // TOKENS))) * block
    walked = (starts[:, :, None] + np.arange(TOKENS) * what.stride).reshape(groups, -1)[:, :count]
    core = np.arange(what.cores)
    pieces: Array = walked[core // heads] + (core % heads * what.piece)[:, None]
    return pieces


def _bursts(start: Array, length: Array, by: Array, access: int) -> tuple[Array, Array]:
    """Requests that pieces are of, in order, and whose they are."""
    first, count = start // access, (start + length - 1) // access - start // access + 1
    at = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return (np.repeat(first, count) + at) * access, np.repeat(by, count)
