"""Times of a mesh's network and cores: hop, word, software stage, product.

They follow PLMR, [he2025] section 3.1.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.silicon.die_division import is_divided
from dse.space.array_math import ceil_div, maximum, where
from dse.space.chip import Chip
from dse.space.memoize import memoize_by_identity

ONE_DIE = 2.0**52
"""Cores of a die along a line where all cores of the line are on it: more than any line has."""


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
        die_rows, die_cols: cores of a die along a column and along a row; `ONE_DIE` where one die has the mesh.
        crossing: a link to the next die, beside `hop`. [s]
        crossing_word: a word of a message that crosses to another die, on every link of its route; at least `word`. [s]
        missing_rows: rows of the first die that are not there, where a program runs on the last rows of a mesh.
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
    die_rows: Any = ONE_DIE
    die_cols: Any = ONE_DIE
    crossing: Any = 0.0
    crossing_word: Any = 0.0
    missing_rows: Any = 0.0

    @property
    def pace(self) -> Any:
        """Time from one word of a message to the next one. [s]"""
        return maximum(self.word, self.copy)

    @property
    def crossing_pace(self) -> Any:
        """Time from one word to the next one of a message that crosses to another die. [s]"""
        return maximum(self.pace, self.crossing_word)

    def edge_seconds(self, rows: Any) -> Any:
        """Time of a word over the links of a column from its edge to the last of some rows. [s]"""
        return (rows - 1) * self.hop + (ceil_div(rows, self.die_rows) - 1) * self.crossing

    @property
    def is_divided(self) -> bool:
        """Whether messages cross to other dies, in some design."""
        return isinstance(self.crossing_word, np.ndarray) or self.crossing_word > 0

    def extra_pace(self, cores: Any, die_cores: Any) -> Any:
        """What a word to a line of cores takes more where a die has fewer cores of the line. [s]"""
        return where(cores > die_cores, self.crossing_pace - self.pace, 0.0)

    def on_last_rows(self, rows: int) -> "MeshFabric":
        """The fabric as a program on the last rows of a mesh finds it: the first die may have fewer rows."""
        return self if self.die_rows >= ONE_DIE else self._replace(missing_rows=-rows % self.die_rows)

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


def die_period(cores: Any, die_cores: Any) -> Any:
    """Cores between two crossings on the line of a group that begins at a multiple of its length.

    Exact where one of both lengths divides the other; where neither does, groups cross at different places, and this is the
    closest that any do.

    >>> die_period(32, 16.0), die_period(8, 16.0) == ONE_DIE, die_period(np.array([12.0, 16.0]), 8.0).tolist()
    (16.0, True, [4.0, 8.0])
    """
    common = np.gcd(np.asarray(cores, np.int64), np.asarray(die_cores, np.int64)) * 1.0
    period = np.where((common < cores) & (np.asarray(die_cores) < ONE_DIE), common, ONE_DIE)
    return period if period.ndim else float(period)


def ramp_cycles(chip: Chip) -> Any:
    """Time between a core and its router, one way, with hops around broken cores. [cycle]

    A message between cores passes two ramps, which have half of it each. One between main memory and a tile may pass but the
    tile's: those of tiles have all of it.
    """
    if chip.die is None or chip.die.broken_density is None:
        return chip.noc.ramp_cycles
    if chip.die.detour_hops is None:
        raise ValueError("hops around broken cores are not known: settle them first, by silicon.core_repair.settle_detours")
    return chip.noc.ramp_cycles + chip.die.detour_hops / (2 if chip.tile is None else 1) * chip.noc.hop_cycles


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
        ramp=ramp_cycles(chip) * cycle,
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
        ramp=ramp_cycles(chip) * cycle,
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
        **_crossings(chip),
    )


def _crossings(chip: Chip) -> dict[str, Any]:
    """Fields of a fabric for the dies that a mesh of tiles is divided into; none where it is not, or they take no time.

    A network on chip passes words at its clock: a crossing takes whole cycles.
    """
    if chip.die_link is None:
        return {}
    link, cycle = chip.die_link, 1 / chip.clock
    if not is_divided(link):
        raise ValueError("the sides of the dies are not known: divide the mesh first, by silicon.area.divide_mesh")
    return {
        "die_rows": where(link.die_rows < chip.mesh.rows, link.die_rows, ONE_DIE),
        "die_cols": where(link.die_cols < chip.mesh.cols, link.die_cols, ONE_DIE),
        "crossing": ceil_div(link.latency * chip.clock - ROUNDING, 1.0) * cycle,
        "crossing_word": maximum(chip.noc.word_cycles * cycle, chip.noc.word_bytes / link.link_bandwidth),
    }


ROUNDING = 1e-9
"""Part of a cycle that a latency may exceed whole cycles by, which is rounding. [1]"""

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
