"""KV memory of an instance: blocks of one memory, or SRAM first and then HBM blocks or buffers.

Blocks have one size and any free block will do, so the list of free blocks is a count; the same holds for the buffers
of a ring. Placement follows from the order of writes: a request's cache grows into free blocks of SRAM, and into HBM
where there are none.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, gcd
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import maximum, minimum, where
from dse.space.errors import DesignError
from dse.space.layers import layers, per_reach
from dse.space.memoize import memoize
from dse.space.model import Model

ENDLESS = 1 << 40
"""Steps that are as good as no end."""


class RequestMemory(NamedTuple):
    """KV memory of one request: growing, fixed and window parts. [B]

    Attributes:
        growing: of each position, in layers that keep all. [B]
        fixed: of states, whatever its length. [B]
        windows: of layers that keep the last positions, or those of a chunk: how many, and bytes of each. [token], [B]

    Bytes are of one design, or of several in the shape (designs,).
    """

    growing: Any
    fixed: Any = 0.0
    windows: tuple[tuple[int, Any], ...] = ()

    def request_bytes(self, positions: Any) -> Any:
        """Bytes of a request with a number of positions. [B]

        >>> RequestMemory(10.0, 500.0, ((64, 2.0),)).request_bytes(100)
        1628.0
        """
        return self.growing * positions + self.fixed + sum(nbytes * minimum(positions, most) for most, nbytes in self.windows)

    def sum_bytes(self, positions: Any) -> Any:
        """Bytes of several requests together, shape (requests,). [B]

        >>> RequestMemory(10.0, 500.0, ((64, 2.0),)).sum_bytes(np.array([100, 10]))
        2248.0
        """
        windows = sum(nbytes * float(np.minimum(positions, most).sum()) for most, nbytes in self.windows)
        return self.growing * float(positions.sum()) + self.fixed * len(positions) + windows

    @property
    def nbytes_by_kind(self) -> tuple[Any, ...]:
        """Bytes of all parts: growing, fixed, and each window. [B]"""
        return self.growing, self.fixed, *(nbytes for _, nbytes in self.windows)

    @property
    def position(self) -> Any:
        """Bytes of a position over all layers that keep some. [B]"""
        return self.growing + sum(nbytes for _, nbytes in self.windows)

    def each_of(self, size: int) -> "list[RequestMemory]":
        """The memory of a request for each of `size` designs."""
        columns = [np.broadcast_to(values, size).tolist() for values in self.nbytes_by_kind]
        sizes = [most for most, _ in self.windows]
        return [
            RequestMemory(growing, fixed, tuple(zip(sizes, windows, strict=True)))
            for growing, fixed, *windows in zip(*columns, strict=True)
        ]

    def design_memory(self, row: int) -> "RequestMemory":
        """The memory of a request for one design of several."""
        windows = tuple((most, value_of_row(nbytes, row)) for most, nbytes in self.windows)
        return RequestMemory(value_of_row(self.growing, row), value_of_row(self.fixed, row), windows)

    def times(self, each: Any) -> "RequestMemory":
        """The memory scaled by a factor, or by seconds per byte."""
        return RequestMemory(
            self.growing * each, self.fixed * each, tuple((most, nbytes * each) for most, nbytes in self.windows)
        )


def value_of_row(values: Any, row: int) -> float:
    """Value of one design, from a number or an array over designs.

    >>> value_of_row(2.0, 1), value_of_row(np.array([3.0, 4.0]), 1)
    (2.0, 4.0)
    """
    return float(values[row]) if np.ndim(values) and len(values) > 1 else float(values)


def fullest_request(rooms: Sequence[RequestMemory], positions: int) -> RequestMemory:
    """The request memory with most bytes at a number of positions, design by design."""
    request = rooms[0]
    for other in rooms[1:]:
        more = other.request_bytes(positions) > request.request_bytes(positions)
        windows = tuple((most, where(more, b, a)) for (most, a), (_, b) in zip(request.windows, other.windows, strict=True))
        request = RequestMemory(where(more, other.growing, request.growing), where(more, other.fixed, request.fixed), windows)
    return request


def request_memory(model: Model, held: Callable[[Any, float], Any], *, window_caches: bool = True) -> RequestMemory:
    """KV memory of one request, from a function of bytes that a layout keeps. [B]

    Args:
        model: what is served.
        held: bytes of positions that are kept, by reach of the model, and of states of sequences; in proportion to both, and
            of one design or of several. [B]
        window_caches: whether layers with a window or chunks keep these alone; all positions if not.
    """
    windows = dict[int, Any]()
    growing: Any = 0.0
    for reach in layers(model).reaches:
        nbytes = held(per_reach(model, lambda other, this=reach: float(other == this)), 0.0)  # type: ignore[misc]
        growing = growing + nbytes * reach.grows
        most = reach.window or reach.chunk
        if most and not window_caches:
            growing = growing + nbytes
        elif most and np.any(nbytes):
            windows[most] = windows.get(most, 0.0) + nbytes
    fixed = held(per_reach(model, lambda reach: 0.0), 1.0)
    return RequestMemory(growing, fixed, tuple(sorted(windows.items())))


WATERMARK = 0.01
"""Share of all blocks that taking a request up leaves free, vLLM's."""


@dataclass(frozen=True, slots=True)
class KvMemory:
    """KV memory of one instance: blocks, HBM pages or buffers, and time to the host.

    Attributes:
        blocks: of the one memory, or of SRAM where there are buffers.
        block: positions of an allocation step. [token]
        spare: share of all blocks that taking a request up leaves free, for those that run to grow into; vLLM's watermark.
        pages: blocks of HBM for what SRAM cannot hold; 0 for one memory alone, or with buffers.
        buffers: buffers in HBM, one for each admitted request, whether it overflows or not; 0 for one memory alone.
        buffer: positions in a buffer, the longest request. [token]
        host: time to move what a block has of one position to the host's memory or back. [s]
        each: blocks per allocation step; 0 where no layer keeps all positions.
        fixed: blocks that a request needs at once, whatever its length.
        windows: windows of layers that keep the last positions: positions, and blocks per step up to them. [token], [1]
        block_bytes: bytes of a block; 0 where they are not known. [B]
    """

    blocks: int
    block: int = 16
    spare: float = WATERMARK
    pages: int = 0
    buffers: int = 0
    buffer: int = 0
    host: float = 0.0
    each: int = 1
    fixed: int = 0
    windows: tuple[tuple[int, int], ...] = ()
    block_bytes: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        counts = (self.blocks, self.pages, self.buffers, self.buffer, self.host, self.each, self.fixed)
        none = min((*counts, *(min(window) for window in self.windows))) < 0
        if not (self.blocks or self.pages or self.buffers) or self.block < 1 or none or (self.pages and self.buffers):
            raise DesignError(
                f"KV memory: {self.blocks} blocks of {self.block} tokens, {self.pages} in HBM, {self.buffers} buffers of "
                f"{self.buffer}"
            )
        if not 0 <= self.spare < 1:
            raise DesignError(f"KV memory: the share of spare blocks must be at least 0 and below 1, got {self.spare:g}")

    def token_capacity(self, positions: int) -> float:
        """Tokens in the caches of as many requests with a number of positions as fit at once. [token]

        With buffers, each request needs one. Blocks are divided without a remainder, as if requests were many.

        >>> KvMemory(100, 16).token_capacity(64), KvMemory(100, 16, buffers=3, buffer=64).token_capacity(64)
        (1600.0, 192.0)
        """
        if self.buffers:
            return float(self.buffers * positions)
        return float((self.blocks + self.pages) * positions // max(self.blocks_needed(positions), 1))

    def request_capacity(self, positions: int) -> int:
        """Whole requests with a number of positions that fit at once.

        >>> KvMemory(100, 16).request_capacity(64), KvMemory(100, 16, buffers=3, buffer=64).request_capacity(64)
        (25, 3)
        """
        return self.buffers or (self.blocks + self.pages) // max(self.blocks_needed(positions), 1)

    @property
    def nbytes(self) -> float:
        """Bytes of all blocks, pages and buffers. [B]"""
        return (self.blocks + self.pages + self.buffers * self.blocks_needed(self.buffer)) * self.block_bytes

    def blocks_needed(self, positions: int) -> int:
        """Blocks that a request with a number of positions needs.

        >>> KvMemory(100, 16, each=1, fixed=5, windows=((64, 2),)).blocks_needed(100)
        20
        """
        steps = -(-positions // self.block)
        return (
            self.fixed + self.each * steps + sum(window * min(steps, -(-most // self.block)) for most, window in self.windows)
        )

    @property
    def longest(self) -> int:
        """Positions of the longest request that fits, as far as block counts can be summed. [token]"""
        if self.buffers:
            return self.buffer
        return (
            bisect_right(range(1, ENDLESS), self.blocks + self.pages, key=lambda steps: self.blocks_needed(steps * self.block))
        ) * self.block


def paged_memory(
    capacity: float,
    room: RequestMemory,
    *,
    block: int = 16,
    spare: float = WATERMARK,
    host_bandwidth: float = 0.0,
    longest: int = 0,
) -> KvMemory:
    """KV memory of one instance in equal blocks of one memory.

    A block has the bytes of `block` positions: of growing layers; of states, where there is nothing else; with
    windows, of the part for which all windows have whole steps. Fixed parts are rounded up.

    Args:
        capacity: for caches alone, of an instance. [B]
        room: KV memory of one request.
        block: positions in a step. [token]
        spare: as in `KvMemory`.
        host_bandwidth: to the host's memory, for caches that are swapped; 0 where they never are. [B/s]
        longest: positions of a request that must fit, as a limit guarantees, however blocks round. [token]

    Raises:
        DesignError: not one block fits.

    >>> paged_memory(1e6, RequestMemory(1e3), block=16).blocks
    62
    >>> paged_memory(1e9, RequestMemory(1e3, fixed=1e6)).fixed, paged_memory(1e9, RequestMemory(0.0, fixed=1e6)).blocks
    (63, 1000)
    """
    size, memory = _sized(room, block)
    blocks = max(int(capacity // size), memory.blocks_needed(longest) if longest else 0)
    if blocks < 1:
        raise DesignError(f"KV memory: {capacity:.4g} B do not fit one block of {block} tokens, which needs {size:.4g} B")
    return replace(memory, blocks=blocks, spare=spare, host=size / block / host_bandwidth if host_bandwidth else 0.0)


def host_blocks(capacity: float, room: RequestMemory, *, block: int = 16) -> int:
    """Blocks for prefixes, as those of `paged_memory`, that a host's memory has room for.

    >>> host_blocks(1e6, RequestMemory(1e3), block=16)
    62
    """
    return int(capacity // _sized(room, block)[0])


def two_level_memory(sram: float, hbm: float, room: RequestMemory, *, longest: int, block: int = 16) -> KvMemory:
    """KV memory of one instance: blocks in SRAM, and a ring of request-sized buffers in HBM.

    Args:
        sram, hbm: for caches alone, of an instance. [B]
        room: KV memory of one request.
        longest: of a request, prompt and output. [token]
        block: positions in a step. [token]

    Raises:
        DesignError: HBM cannot hold one buffer.

    Source:
        [zhu2025] section 4.2: fine-grained blocks in SRAM, a whole buffer a request in HBM.

    >>> two_level_memory(1e6, 1e8, RequestMemory(1e3), longest=4096)
    KvMemory(blocks=62, block=16, spare=0.0, pages=0, buffers=24, buffer=4096, host=0.0, each=1, fixed=0, windows=())
    """
    size, memory = _sized(room, block)
    buffer = room.request_bytes(longest)
    buffers = int(hbm // buffer)
    if buffers < 1:
        raise DesignError(
            f"KV memory: {hbm:.4g} B of HBM do not fit one buffer of {longest} tokens, which needs {buffer:.4g} B"
        )
    return replace(memory, blocks=int(sram // size), spare=0.0, buffers=buffers, buffer=longest)


def two_level_paged_memory(sram: float, hbm: float, room: RequestMemory, *, longest: int, block: int = 16) -> KvMemory:
    """KV memory of one instance: blocks in SRAM, and equal blocks in HBM once SRAM is full.

    Args:
        sram, hbm: for caches alone, of an instance. [B]
        room: KV memory of one request.
        longest: positions of a request that must fit, as a limit guarantees, however blocks round. [token]
        block: positions in a step. [token]

    >>> some = two_level_paged_memory(1e6, 1e8, RequestMemory(1e3), longest=4096)
    >>> some.blocks, some.pages, some.longest
    (62, 6250, 100992)
    """
    size, memory = _sized(room, block)
    blocks = int(sram // size)
    pages = max(int(hbm // size), memory.blocks_needed(longest) - blocks, int(blocks == 0))
    return replace(memory, blocks=blocks, pages=pages)


@memoize
def _sized(room: RequestMemory, block: int) -> tuple[float, KvMemory]:
    """Bytes of a block, and a memory of one such."""
    size, each = block * room.growing, 1
    windows: tuple[tuple[int, int], ...] = ()
    if room.windows:
        steps = [ceil(block * nbytes) for nbytes in (room.growing, *(nbytes for _, nbytes in room.windows))]
        size = float(gcd(*steps))
        each, *blocks = (int(nbytes // size) for nbytes in steps)
        windows = tuple((most, block) for (most, _), block in zip(room.windows, blocks, strict=True))
    elif not room.growing:
        size, each = room.fixed or 1.0, 0
    return size, KvMemory(1, block, each=each, fixed=ceil(room.fixed / size), windows=windows, block_bytes=size)


class PrefixCacheSizes(NamedTuple):
    """Sizes of an instance's prefix cache in hash blocks, with snapshots of states.

    Attributes:
        prefix: hash blocks; snapshots, where layers have nothing but states.
        entry, snapshot: units of `prefix` per hash block, and per snapshot.
        every: hash blocks from one snapshot to the next.
    """

    prefix: int
    entry: int
    snapshot: int
    every: int


@memoize
def prefix_cache_sizes(capacity: float, room: RequestMemory, block: int, every: int = 0) -> PrefixCacheSizes:
    """Sizes of a prefix cache: hash blocks of all layers, windows included, and state snapshots.

    Args:
        capacity: for them. [B]
        room: KV memory of one request.
        block: tokens of a hash block.
        every: tokens from snapshot to snapshot, rounded up to hash blocks; 0 for one at the end of a prompt alone.

    >>> prefix_cache_sizes(1e6, RequestMemory(10.0, fixed=12e3), 512, 1000)
    PrefixCacheSizes(prefix=195, entry=1, snapshot=3, every=2)
    >>> prefix_cache_sizes(1e6, RequestMemory(0.0, fixed=12e3), 512)
    PrefixCacheSizes(prefix=83, entry=0, snapshot=1, every=0)
    """
    entry = block * room.position
    unit = entry or room.fixed or 1.0
    return PrefixCacheSizes(max(0, int(capacity // unit)), int(entry > 0), ceil(room.fixed / unit), -(-every // block))


class SramShares(NamedTuple):
    """Split of the SRAM that working sets leave on a core, between KV cache and weights. [B]"""

    kv: Any
    weights: Any


def sram_shares(room: Any, kv: Any, weights: Any, *, kv_share: Any = 1.0) -> SramShares:
    """SRAM of a core for the KV cache and for weights; leaves broadcast over designs. [B]

    Args:
        room: SRAM that activations, inputs and temporary buffers leave free. [B]
        kv: size of the whole KV cache. [B]
        weights: the core's share of the model. [B]
        kv_share: share of the free SRAM that the KV cache may use before weights; unused parts go to the other. [-]

    Source:
        [zhu2025] section 4.2.

    >>> sram_shares(28e6, 20e6, 40e6)
    SramShares(kv=20000000.0, weights=8000000.0)
    """
    for_kv = minimum(kv, maximum(kv_share * room, room - weights))
    return SramShares(for_kv, minimum(weights, room - for_kv))
