"""Slowdowns of a core's blocks by banks, from tables simulated once per memory.

`fidelity=events` uses them.

A block of some requests at a random place keeps its channel busy for as long as `evaluators.machine.memory_system.block_rates`
found, by how many of its bytes lie side by side there (`channel_layout.contiguous_bytes`). Where a few writes go among reads,
the bus turns round and rows are opened again: `write_mix_penalty`, which is simulated too.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from dse.evaluators.machine import parallel_reads as streams
from dse.evaluators.machine.channel_layout import MemoryRequest, contiguous_bytes
from dse.evaluators.machine.memory_channels import BLOCK_BYTES
from dse.evaluators.machine.memory_system import BURSTS, MAX_BLOCK_POWER, block_rates, channel_occupancy
from dse.space.array_math import Array
from dse.space.dram import MemorySystem, peak_bandwidth, pseudo_channel_count

FEW_WRITES = 1 / 16
"""Share of writes among the requests with which their cost among reads is simulated. [-]"""

STREAM_BYTES = 61 * BLOCK_BYTES
"""Bytes of a tile of a matrix that stands for all: no power of two, by which all begin in the same bank."""


def request_slowdown(memory: MemorySystem, count: Any, request: MemoryRequest) -> Any:
    """Time of a memory request over that of as many bytes at the peak; at least 1. [-]

    Args:
        memory: memory with the channels.
        count: that blocks lie over.
        request: memory request; only shares and sizes matter.

    Raises:
        DesignError: as `evaluators.machine.memory_system.simulate_memory`.
    """
    reads = random_block_slowdown(memory, contiguous_bytes(memory, count, request.piece), write=False)
    if not np.any(request.written):
        return reads
    share = np.asarray(request.written, float)
    both = [
        np.asarray(contiguous_bytes(memory, count, np.maximum(size, memory.access)), float)
        for size in (request.piece, request.wrote)
    ]
    alone = random_block_slowdown(memory, both[1], write=True)
    exponents = [np.clip(np.ceil(np.log2(size / memory.access) - 1e-9), 0, MAX_BLOCK_POWER).astype(int) for size in both]
    pairs = np.broadcast_arrays(*exponents)
    among = np.reshape(
        [
            write_mix_penalty(memory, 1 << int(piece), 1 << int(other))
            for piece, other in zip(*map(np.ravel, pairs), strict=True)
        ],
        pairs[0].shape,
    )
    return (1 - share) * reads + share * (alone + among * (1 - share))


def random_block_slowdown(memory: MemorySystem, piece: Any, *, write: bool) -> Any:
    """Time of blocks at random places over that of as many bytes at the peak. [-]

    A larger block never takes less time than a smaller one.

    Args:
        memory: memory with the channels.
        piece: contiguous bytes of a block in a channel. [B]
        write: whether they are written.
    """
    known = block_rates(memory)
    sizes = known.access * 2.0 ** np.arange(known.each.shape[1])
    times = np.maximum.accumulate(sizes * known.each[int(write)])
    at = np.clip(piece, sizes[0], sizes[-1])
    per_byte: Array = np.interp(at, sizes, times) / at
    return np.maximum(per_byte * (peak_bandwidth(memory) / pseudo_channel_count(memory)), 1.0)


def parallel_read_slowdown(memory: MemorySystem, count: Any, cores: Any, request: MemoryRequest) -> Any:
    """Time of reads that a die's cores issue together over that of as many bytes at the peak. [-]

    Of a matrix it is what so many cores get whose tiles have `STREAM_BYTES` bytes, which is simulated once; blocks of a cache
    are as `random_block_slowdown`.

    Args:
        of, count, cores, asked: as of `evaluators.machine.parallel_reads.simulate_parallel_slowdown`.

    Raises:
        DesignError: as `evaluators.machine.memory_system.simulate_memory`.
    """
    piece = streams.shared_block_bytes(request)
    if not np.any(piece):
        return streams.simulate_parallel_slowdown(memory, count, cores, MemoryRequest(cores * STREAM_BYTES))
    return random_block_slowdown(memory, contiguous_bytes(memory, count, piece), write=False)


@lru_cache(maxsize=1024)
def write_mix_penalty(memory: MemorySystem, reads: int, writes: int) -> float:
    """Extra time of a few writes among reads, over that of the written bytes at the peak; at least 0. [-]

    Args:
        memory: memory with the channel.
        reads, writes: requests of a block that is read, and of one that is written, at random places of one channel.

    Raises:
        DesignError: as `evaluators.machine.memory_system.simulate_memory`.
    """
    rng = np.random.default_rng(0)
    total = max(BURSTS // 2, int(4 * writes / FEW_WRITES))
    counts = max(1, round(total * (1 - FEW_WRITES) / reads)), max(1, round(total * FEW_WRITES / writes))
    burst, number = float(memory.timing.burst), (counts[0] * reads, counts[1] * writes)
    whole = channel_occupancy(memory, (reads, writes), counts, rng)
    size = memory.access * np.array([reads, writes], float)
    apart_ = sum(float(random_block_slowdown(memory, size[kind], write=bool(kind))) * number[kind] * burst for kind in (0, 1))
    return max((whole - apart_) / (number[1] * burst * (1 - number[1] / sum(number))), 0.0)
