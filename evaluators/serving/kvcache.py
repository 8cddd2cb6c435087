"""Memory for keys and values: blocks of one memory, or blocks in SRAM first and a buffer for each request in HBM.

Blocks are of one size and any will do, so the list of free blocks is a count; the same holds for the buffers of a ring. What is
where follows from when it was written: a request's cache grows into free blocks, and where there are none into its buffer.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from dse.space.elementwise import maximum, minimum
from dse.space.errors import DesignError


@dataclass(frozen=True, slots=True)
class Memory:
    """What an instance has for the caches of its requests.

    Attributes:
        blocks: of the one memory, or of SRAM where there are buffers.
        block: positions in a block. [token]
        spare: share of the blocks that taking a request up leaves free, for those that run to grow into; vLLM's watermark.
        buffers: in HBM, one for each request that is taken up, whether it overflows or not; 0 where there is one memory alone.
        buffer: positions in a buffer, the longest request. [token]
        host: time to move one position to the host's memory or back. [s]
    """

    blocks: int
    block: int = 16
    spare: float = 0.01
    buffers: int = 0
    buffer: int = 0
    host: float = 0.0

    def __post_init__(self) -> None:
        if self.blocks < (0 if self.buffers else 1) or self.block < 1 or min(self.buffers, self.buffer, self.host) < 0:
            raise DesignError(
                f"KV memory: {self.blocks} blocks of {self.block} tokens, {self.buffers} buffers of {self.buffer}"
            )
        if not 0 <= self.spare < 1:
            raise DesignError(f"KV memory: a share of {self.spare:g} of the blocks cannot stay free; give 0 to 1, 1 left out")

    @property
    def longest(self) -> int:
        """Positions of the longest request that can ever be held. [token]"""
        return self.buffer if self.buffers else self.blocks * self.block


def paged(capacity: float, position: float, *, block: int = 16, spare: float = 0.01, host_bandwidth: float = 0.0) -> Memory:
    """One memory in blocks.

    Args:
        capacity: for KV alone, of an instance. [B]
        position: keys and values of one token in all layers. [B]
        block: positions in a block. [token]
        spare: as in `Memory`.
        host_bandwidth: to the host's memory, for caches that are swapped; 0 where they never are. [B/s]

    Raises:
        DesignError: not one block fits.

    >>> paged(1e6, 1e3, block=16).blocks
    62
    """
    blocks = int(capacity // (block * position))
    if blocks < 1:
        raise DesignError(f"KV memory: {capacity:.4g} B hold no block of {block} tokens, which takes {block * position:.4g} B")
    return Memory(blocks, block, spare, host=position / host_bandwidth if host_bandwidth else 0.0)


def two_level(sram: float, hbm: float, position: float, *, longest: int, block: int = 16) -> Memory:
    """Blocks in SRAM, and a ring of buffers in HBM, each for a request of `longest` tokens.

    Args:
        sram, hbm: for KV alone, of an instance. [B]
        position: keys and values of one token in all layers. [B]
        longest: of a request, prompt and output. [token]
        block: positions in a block of SRAM. [token]

    Raises:
        DesignError: HBM has no room for one buffer.

    Source:
        [zhu2025] section 4.2: fine-grained blocks in SRAM, a whole buffer a request in HBM.

    >>> two_level(1e6, 1e8, 1e3, longest=4096)
    Memory(blocks=62, block=16, spare=0.0, buffers=24, buffer=4096, host=0.0)
    """
    buffers = int(hbm // (longest * position))
    if buffers < 1:
        raise DesignError(
            f"KV memory: {hbm:.4g} B of HBM hold no buffer of {longest} tokens, which takes {longest * position:.4g} B"
        )
    return Memory(int(sram // (block * position)), block, 0.0, buffers, longest)


class Sram(NamedTuple):
    """How what working sets leave of a core's SRAM is shared out. [B]"""

    kv: Any
    weights: Any


def shared_out(room: Any, kv: Any, weights: Any, *, kv_share: Any = 1.0) -> Sram:
    """What the KV cache and weights take of a core's SRAM; leaves broadcast over designs.

    Args:
        room: that activations, inputs and temporary buffers leave. [B]
        kv: the most that caches could take. [B]
        weights: the core's share of the model. [B]
        kv_share: of the room, the part that caches may take before weights; what one does not need the other may have. [-]

    Source:
        [zhu2025] section 4.2.

    >>> shared_out(28e6, 20e6, 40e6)
    Sram(kv=20000000.0, weights=8000000.0)
    """
    for_kv = minimum(kv, maximum(kv_share * room, room - weights))
    return Sram(for_kv, minimum(weights, room - for_kv))
