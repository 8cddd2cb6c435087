"""Memory of many channels: address mapping, simulation of requests, and time of blocks.

`simulate_memory` is transaction by transaction, on the channels of `evaluators.machine.dram_simulator`; `transfer_seconds` and
`block_rates` give times of large transfers from simulated samples.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine import dram_simulator as dram
from dse.evaluators.machine.dram_constants import IDLE_CAUSES, ClockedTiming, QueueSizes
from dse.evaluators.machine.dram_simulator import SimulatedRequests
from dse.evaluators.machine.requester_mesh import RequesterMesh
from dse.space.array_math import Array
from dse.space.dram import ORDERS, MemorySystem, capacity_bytes, check_memory, peak_bandwidth, pseudo_channel_count
from dse.space.errors import DesignError

ALL_IDLE_CAUSES = (*IDLE_CAUSES, "channels")
"""What a data bus waits for: `IDLE_CAUSES` of its channel's, and at its end the other channels, which have more to do."""

FULL_SHARE = 0.9
"""Share of its time without refresh from which on a data bus counts as the bottleneck. [-]"""


def map_addresses(memory: MemorySystem, address: Array) -> tuple[Array, Array]:
    """Channel, and bank, row and column, of addresses [B]; shapes (requests,) and (requests, 3).

    Stretches of `granularity` go round the channels; within a channel `ORDERS` says what the bits mean. Every address has its
    own place.
    """
    count, size = int(pseudo_channel_count(memory)), int(memory.granularity)
    block = address // size
    channel, local = block % count, block // count * size + address % size
    rest, at = local // int(memory.access), {}
    extents = {"column": memory.row / memory.access, "group": memory.groups, "bank": memory.banks, "row": memory.rows}
    for name in reversed(ORDERS[memory.order]):
        rest, at[name] = np.divmod(rest, int(extents[name]))
    if memory.hashed != "none":
        low, high = at["row"] & int(memory.banks - 1), at["row"] // int(memory.banks) & int(memory.groups - 1)
        at["bank"], at["group"] = at["bank"] ^ low, at["group"] ^ high
    if memory.hashed == "all":
        channel = channel ^ (at["row"] & (count - 1))
    return channel, np.stack([at["group"] * int(memory.banks) + at["bank"], at["row"], at["column"]], axis=1)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Times, bandwidth share and idle causes of simulated memory requests.

    Attributes:
        begin_request, end_request, begin_response, end_response: of each request: when its requester offered it, when the
            controllers had taken all of it, when its first data came (or its first write was taken), and when the last did;
            shape (requests,). [s]
        nbytes: bytes of all requests. [B]
        seconds: from the first arrival to the last data.
        share: of the peak.
        row_hits: share of bursts that found their row open from another one before.
        idle: share of the time of the data buses by what they waited for, an option of `ALL_IDLE_CAUSES` each.
        after: share of the time in which channels had done all and links had not.
        latencies: of reads, from `end_request` of their first burst to `end_response`; shape (reads,). [s]
    """

    begin_request: Array
    end_request: Array
    begin_response: Array
    end_response: Array
    nbytes: float
    seconds: float
    share: float
    row_hits: float
    idle: dict[str, float]
    after: float
    latencies: Array

    @property
    def bandwidth(self) -> float:
        """Bandwidth that the requests reached. [B/s]"""
        return self.nbytes / self.seconds

    @property
    def bound_text(self) -> str:
        """Resource that limits the requests: noc, bandwidth, or a cause of idle bus time.

        Links where they end well after channels, whatever these waited for meanwhile; bandwidth where data buses have hardly
        anything to wait for but refresh; else what they wait for most.
        """
        if self.after > 1 - FULL_SHARE:
            return "noc"
        busy = 1 - sum(self.idle.values())
        if busy >= FULL_SHARE * (1 - self.idle["refresh"]):
            return "bandwidth"
        return max(self.idle, key=lambda cause: self.idle[cause])


def simulate_memory(
    memory: MemorySystem,
    address: Array,
    nbytes: Array | int,
    write: Array | bool,
    arrival: Array | float = 0.0,
    *,
    windows: Array | None = None,
    requester: Array | None = None,
    ways: RequesterMesh | None = None,
) -> MemoryReport:
    """Simulate requests of any size, each from its arrival on, those of a requester in order.

    Args:
        memory: what they go to.
        address: shape (requests,). [B]
        nbytes: of each, shape (requests,) or (). [B]
        write: whether each is a write, likewise.
        arrival: shape (requests,), for each requester not falling. [s]
        windows: bursts that each requester may have outstanding, 0 for any; shape (requesters,). None is one, with 0.
        requester: of each request, shape (requests,); None where there is one.
        ways: the mesh that data cross; None where requesters are at the memory.

    Raises:
        DesignError: the memory makes no sense, or an address is beyond its end, or there are no requests.
    """
    check_memory(memory)
    address, nbytes, write, arrival = (
        np.broadcast_to(np.asarray(given, dtype=kind), np.shape(address))
        for given, kind in ((address, np.int64), (nbytes, np.int64), (write, np.bool_), (arrival, float))
    )
    if address.size == 0 or nbytes.min() < 1 or address.min() < 0:
        raise DesignError("memory: needs one request or more, addresses of at least 0 and sizes of at least 1 B")
    if (address + nbytes).max() > capacity_bytes(memory):
        raise DesignError(
            f"memory: the capacity is {capacity_bytes(memory):,.0f} B, but a request ends at {(address + nbytes).max():,} B"
        )
    by = np.zeros(address.size, np.int64) if requester is None else np.asarray(requester, dtype=np.int64)
    known = 1 if windows is None else len(windows)
    if by.min() < 0 or by.max() >= known or (windows is not None and np.min(windows) < 0):
        raise DesignError(f"memory: requesters are 0 to {known - 1}, each with a window of at least 0")
    access, clock = int(memory.access), float(memory.clock)
    first = address // access
    bursts = (address + nbytes - 1) // access - first + 1
    order = np.argsort(by, kind="stable")
    owner = np.repeat(order, bursts[order])  # of each burst, the request
    begin = np.concatenate([[0], np.cumsum(bursts[order])[:-1]])
    burst = (np.arange(len(owner)) - np.repeat(begin, bursts[order]) + first[owner]) * access
    channel, at = map_addresses(memory, burst)
    cycles = np.ceil(arrival * clock - arrival.min() * clock - 1e-6).astype(np.int64)
    served = dram.simulate_requests(
        at,
        write[owner],
        cycles[owner],
        clocked_timing(memory),
        groups=int(memory.groups),
        banks=int(memory.banks),
        channel=channel,
        channels=int(pseudo_channel_count(memory)),
        windows=windows,
        requester=by[owner],
        path=path_clocks(memory),
        queues=queue_sizes(memory),
        ways=ways,
    )
    return _report(memory, served, channel, owner, begin, order, write, float(nbytes.sum()), float(arrival.min()))


def _report(
    memory: MemorySystem,
    served: SimulatedRequests,
    channel: Array,
    owner: Array,
    begin: Array,
    order: Array,
    write: Array,
    nbytes: float,
    start: float,
) -> MemoryReport:
    clock, burst, far = float(memory.clock), int(memory.timing.burst), path_clocks(memory)
    writes, seen = write[owner], served.finished + served.crossed + far
    data = np.where(writes, served.accepted + far, seen - burst)
    stamps = [np.empty(len(write)) for _ in range(4)]
    firsts = np.empty(len(write))
    firsts[order] = np.minimum.reduceat(served.accepted, begin)
    for stamp, merge, clocks in (
        (stamps[0], np.minimum, served.offered), (stamps[1], np.maximum, served.accepted),
        (stamps[2], np.minimum, data), (stamps[3], np.maximum, seen),
    ):  # fmt: skip
        stamp[order] = start + merge.reduceat(clocks, begin) / clock
    busy = np.bincount(channel, minlength=len(served.idle)) * burst
    ends = busy + served.idle.sum(axis=1)
    channels_end = int(ends.max())
    end = max(channels_end, int((served.finished + served.waited).max()))
    after = (end - channels_end) / end
    idle = dict(zip(IDLE_CAUSES, (served.idle.sum(axis=0) / (end * len(ends))).tolist(), strict=True))
    idle["noc"] += after
    idle["channels"] = float((channels_end - ends).sum() / (end * len(ends)))
    seconds = end / clock
    latencies = (stamps[3] - start - firsts / clock)[~write]
    hits = served.hits / (served.reads + served.writes)
    begin_request, end_request, begin_response, end_response = stamps
    share = nbytes / seconds / peak_bandwidth(memory)
    return MemoryReport(
        begin_request, end_request, begin_response, end_response, nbytes, seconds, share, hits, idle, after, latencies
    )


def clocked_timing(memory: MemorySystem) -> ClockedTiming:
    """Timing constraints of a memory's channels. [clock]

    Raises:
        DesignError: they make no sense together, as where a search moved one of them: a refresh would never end.
    """
    check_memory(memory)
    t, single = memory.timing, memory.refresh == "bank"
    named = {name: int(getattr(t, name)) for name in ClockedTiming._fields if name not in ("rfc", "refi", "turn", "per_bank")}
    refi = int(t.refi) // int(memory.groups * memory.banks) if single else int(t.refi)
    turn = int(t.rtw - t.cl - t.burst + t.cwl)
    return ClockedTiming(**named, rfc=int(t.rfc_bank if single else t.rfc), refi=refi, turn=turn, per_bank=single)


def queue_sizes(memory: MemorySystem) -> QueueSizes:
    """Queue sizes of a memory's controllers."""
    return QueueSizes(int(memory.controller.waiting), int(memory.controller.queue))


def path_clocks(memory: MemorySystem) -> int:
    """Time from a requester to the controller and back. [clock]"""
    return int(np.ceil(memory.controller.path * memory.clock))


def idle_read_latency(memory: MemorySystem, *, row_open: bool) -> float:
    """Latency of a read of one burst on an idle memory. [s]"""
    t = memory.timing
    return float((1 + (0 if row_open else t.rcd_read) + t.cl + t.burst + path_clocks(memory)) / memory.clock)


ROUNDS = 4
"""Refresh intervals of a channel for which a stream is simulated before it is taken to repeat."""


@lru_cache(maxsize=4096)
def transfer_seconds(memory: MemorySystem, nbytes: int, *, write: bool = False, window: int = 0) -> float:
    """Time of one contiguous transfer over all channels, from its arrival to its last data. [s]

    Transfers of up to twice `ROUNDS` refresh intervals at the peak are simulated. Beyond that a stream repeats itself but for
    the phase of its refreshes, and the rate of the second half is gone on with: within 1 % of what simulating all of it gives.

    Raises:
        DesignError: as `simulate_memory`.
    """
    period = (
        ROUNDS * int(memory.timing.refi) * int(pseudo_channel_count(memory)) * int(memory.access) // int(memory.timing.burst)
    )
    if nbytes <= 2 * period:
        return _played(memory, nbytes, write, window)
    half, whole = (_played(memory, period * rounds, write, window) for rounds in (1, 2))
    return whole + (nbytes - 2 * period) / period * (whole - half)


@lru_cache(maxsize=4096)
def _played(memory: MemorySystem, nbytes: int, write: bool, window: int) -> float:
    size = int(memory.granularity)
    start = np.arange(0, nbytes, size)
    pieces = np.minimum(size, nbytes - start)
    return simulate_memory(memory, start, pieces, write, windows=np.array([window])).seconds


class BlockRates(NamedTuple):
    """Times of blocks at one channel by size; the largest size stands for all larger ones.

    Attributes:
        access: one request. [B]
        first: from a block's arrival at an idle channel to its first data, of reads and of writes; shape (2,). [s]
        each: a block's occupation of the channel, among its like at random places, over its bytes; shape (2, sizes). [s/B]
    """

    access: float
    first: Array
    each: Array


MAX_BLOCK_POWER = 16
"""Powers of two that `block_rates` knows: blocks of up to 2 MiB of requests of 32 B."""

BURSTS = 1 << 16
"""Requests of a sample."""


@lru_cache(maxsize=64)
def block_rates(memory: MemorySystem) -> BlockRates:
    """Times of blocks at one channel of a memory, from simulated blocks.

    Raises:
        DesignError: as `simulate_memory`.
    """
    check_memory(memory)
    rng, access, sizes = np.random.default_rng(0), int(memory.access), 2 ** np.arange(MAX_BLOCK_POWER + 1)
    each = np.empty((2, len(sizes)))
    for kind in (0, 1):
        for number, bursts in enumerate(sizes):
            count = max(1, BURSTS // int(bursts))
            each[kind, number] = _occupation(memory, int(bursts), np.full(count, bool(kind)), rng)
    return BlockRates(float(access), first_data_seconds(memory), each)


def first_data_seconds(memory: MemorySystem) -> Array:
    """Time from a block's arrival at an idle channel to its first data, for read and write. [s]"""
    t, clock = memory.timing, memory.clock
    return np.array([idle_read_latency(memory, row_open=False) - t.burst / clock, (1 + path_clocks(memory)) / clock])


@lru_cache(maxsize=256)
def random_access_slowdown(memory: MemorySystem, piece: float) -> float:
    """Time of pieces at random places over that of one long block of as many bytes. [-]

    1 for a piece of 0, or if no time is lost.

    Args:
        memory: memory with the channels.
        piece: contiguous bytes of one channel, 0 for a long block. [B]

    Raises:
        DesignError: as `simulate_memory`.
    """
    if not piece:
        return 1.0
    bursts = int(-(-piece // memory.access))
    return max(_reads(memory, bursts) / _reads(memory, BURSTS), 1.0) * float(bursts * memory.access / piece)


@lru_cache(maxsize=256)
def _reads(memory: MemorySystem, bursts: int) -> float:
    """Seconds a byte of a sample of reads of one size."""
    return _occupation(memory, bursts, np.zeros(max(1, BURSTS // bursts), bool), np.random.default_rng(0))


def _occupation(memory: MemorySystem, bursts: int, write: Array, rng: np.random.Generator) -> float:
    """Seconds a byte of blocks at random places of one channel, offered at once."""
    counts = (0, len(write)) if write[0] else (len(write), 0)
    clocks = channel_occupancy(memory, (bursts, bursts), counts, rng)
    return clocks / float(memory.clock) / (len(write) * bursts * int(memory.access))


def channel_occupancy(
    memory: MemorySystem, bursts: tuple[int, int], counts: tuple[int, int], rng: np.random.Generator
) -> float:
    """Time for which blocks at random places, mixed reads and writes, keep a channel busy. [clock]

    Args:
        memory: memory with the channel.
        bursts: requests of a block that is read, and of one that is written.
        counts: blocks of either.
        rng: for their places.

    Raises:
        DesignError: as `simulate_memory`.
    """
    check_memory(memory)
    access, size, many = int(memory.access), int(memory.granularity), int(pseudo_channel_count(memory))
    turns, starts, requests, write = [], [], [], []
    for kind in (0, 1):
        if not counts[kind]:
            continue
        each = bursts[kind]
        room = max(int(capacity_bytes(memory) / many) // (each * access), 1)
        starts.append(rng.integers(0, room, counts[kind]) * each * access)
        turns.append((np.arange(counts[kind]) + 0.5) / counts[kind])
        requests.append(np.full(counts[kind], each))
        write.append(np.full(counts[kind], bool(kind)))
    order = np.argsort(np.concatenate(turns), kind="stable")
    start, each_, wrote = (np.concatenate(column)[order] for column in (starts, requests, write))
    first = np.cumsum(each_) - each_
    local = np.repeat(start - first * access, each_) + np.arange(int(each_.sum())) * access
    address = local // size * many * size + local % size  # all of them in one channel
    _, at = map_addresses(memory, address)
    served = dram.simulate_requests(
        at, np.repeat(wrote, each_), np.zeros(address.size), clocked_timing(memory), groups=int(memory.groups),
        banks=int(memory.banks), path=path_clocks(memory), queues=queue_sizes(memory),
    )  # fmt: skip
    return float(address.size * int(memory.timing.burst) + int(served.idle.sum()))
