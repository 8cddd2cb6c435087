"""Times of a mesh's network and cores: hop, word, software stage, product.

They follow PLMR, [he2025] section 3.1.
"""

from typing import Any, NamedTuple

from dse.evaluators.machine.compute_engines import tile_engines
from dse.space.array_math import maximum
from dse.space.chip import Chip
from dse.space.memoize import memoize_by_identity


class MeshFabric(NamedTuple):
    """Times of one core, its router and its links; leaves broadcast over designs.

    A core whose engine also moves words between memory and router (WSE-2) has `post` and `copy`; where a DMA engine does it
    they are 0, and messages go beside products. Words of a message follow one another at `pace`, whichever is slower.

    Attributes:
        hop: alpha, a router that passes a word on to the next. [s]
        stage: beta, a core that handles a message in software and sends it on. [s]
        word: a word on a link. [s]
        copy: a word between memory and router, which the core's engine spends. [s]
        post: starting to send from memory, which the core's engine spends. [s]
        ramp: between a core and its router, one way. [s]
        launch: starting a task on a core: a product, or a tile stored and forwarded. [s]
        call: starting a vector instruction: a product is one for each vector of results and value multiplied with it. [s]
        mac: a multiply-add of a vector instruction. [s]
        operation: an operation on an element that is no product, as in norms and rotations. [s]
        special: an exponential, a root or a quotient. [s]
        word_bytes: bytes of a word. [B]
        locked: whether a message locks the channels of its route, both ways where routers are between; 0 or 1.
        combine: an element of a message that is summed or compared by the engine of the core that it came to, beside `call` for
            each message; nothing where words are combined as they come by. [s]
        cycle: of the routers' clock. [s]
        vcs, depth: of a router's port, and flits that each holds; for the cycle-level simulator.
        apart: whether messages start and go beside what the engine does; 0 or 1.
    """

    hop: Any
    stage: Any
    word: Any
    copy: Any
    post: Any
    ramp: Any
    launch: Any
    call: Any
    mac: Any
    operation: Any
    special: Any
    word_bytes: Any
    locked: Any = 0.0
    combine: Any = 0.0
    cycle: Any = 0.0
    vcs: Any = 0
    depth: Any = 0
    apart: Any = 0.0

    @property
    def pace(self) -> Any:
        """Time from one word of a message to the next one. [s]"""
        return maximum(self.word, self.copy)

    @property
    def plain(self) -> "MeshFabric":
        """The same times as floats, since a loop is compiled for each mixture of types."""
        return MeshFabric(*map(float, self))

    def load_cost(self, via: str = "shared") -> Any:
        """Time that a load from another core's memory costs its owner. [s]

        It has a request, a grant and a release, each a task, and the start of a message. An ``answer`` has no request: it is
        requested with what was added.
        """
        return (2 if via == "answer" else 3) * self.launch + self.post


def mesh_fabric(chip: Chip) -> MeshFabric:
    """Network of a mesh of cores whose engines move words themselves."""
    cycle = 1 / chip.clock
    core, noc = chip.core, chip.noc
    return MeshFabric(
        hop=noc.hop_cycles * cycle,
        stage=core.software_stage * cycle,
        word=noc.word_cycles * cycle,
        copy=core.word_copy * cycle,
        post=core.message_start * cycle,
        ramp=noc.ramp_cycles * cycle,
        launch=core.launch * cycle,
        call=core.vector_start * cycle,
        mac=core.mac * cycle,
        operation=core.vector_operation * cycle,
        special=core.special * cycle,
        word_bytes=noc.word_bytes,
        cycle=cycle,
        vcs=noc.vcs,
        depth=noc.vc_depth,
    )


@memoize_by_identity
def tile_fabric(chip: Chip) -> MeshFabric:
    """Network of a mesh of tiles whose DMA engines move words while other engines work."""
    cycle, tile, noc = 1 / chip.clock, chip.tile, chip.noc
    return MeshFabric(
        hop=noc.hop_cycles * cycle,
        stage=tile.collective_sync * cycle,
        word=noc.word_cycles * cycle,
        copy=0.0,
        post=tile.dma_start * cycle,
        ramp=noc.ramp_cycles * cycle,
        launch=tile.matrix.start * cycle,
        call=tile.vector.start * cycle,
        mac=cycle / (tile.matrix.rows * tile.matrix.cols),
        operation=cycle / tile.vector.lanes,
        special=cycle / tile.vector.special,
        word_bytes=noc.word_bytes,
        locked=1.0 if noc.routing == "locked" else 0.0,
        cycle=cycle,
        vcs=noc.vcs,
        depth=noc.vc_depth,
        apart=1.0,
    )


VALUE = 2.0
"""Bytes of what collectives move: numbers of 16 bits."""


@memoize_by_identity
def with_vector_reduction(chip: Chip) -> MeshFabric:
    """Network of a mesh of tiles whose vector engines add up messages of software reductions.

    A multiply-adder, whose two operations a vector engine's lanes count, does one sum a cycle; two values are read for each one
    that is written. Lanes that count instructions, and run products (`TileEngines.product`), would do two, but memory binds
    there: of NpuSim's cores it takes 12 times as long for a sum as lanes do.
    """
    each = maximum(2 / chip.tile.vector.lanes, 3 * VALUE / tile_engines(chip).sram_bandwidth)
    return tile_fabric(chip)._replace(combine=each / chip.clock)
