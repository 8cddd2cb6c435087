"""Records of a chip and its parts, whose leaves are constants with sources.

What the constants mean for time is in ``evaluators/machine``.
"""

from dataclasses import fields, replace
from typing import Any

from dse.space.array_math import Number, where
from dse.space.dram import MemorySystem
from dse.space.fields import (
    boolean_field,
    integer_field,
    option_field,
    part_field,
    quantity_field,
    record_class,
    replace_leaves,
)
from dse.space.main_memory import CHANNEL_SIDES as CHANNEL_SIDES  # where packages outside import it from
from dse.space.main_memory import HighBandwidthMemory, TileMemory, main_memory
from dse.space.memory_tiers import MemoryTiers
from dse.space.number_formats import FormatRates
from dse.space.published import PublishedFacts
from dse.space.technology import BaseDies, Carrier, DieBudget, DieCrossings, DramDevices, Economics, PaperAreas, ProcessNode


@record_class
class PooledCore:
    """One core of a shared-cache die: rates of its matrix and vector engines. [op/s]"""

    matrix: Number = quantity_field(
        "op/s",
        "peak rate, twice the 16-bit multiply-adds; files may give chip.core.peak or chip.peak by format instead",
        positive=True,
    )
    vector: Number = quantity_field("op/s", "peak rate of the vector engine, one operation per element", positive=True)
    rates: Any = part_field("formats multiplied besides 16 bits; int8 and fp8 at twice the rate if absent", FormatRates)


@record_class
class SharedCache:
    """The cache that all cores share; on a mesh of tiles, the memory-side cache."""

    size: Number = quantity_field("B", "capacity")
    bandwidth: Number = quantity_field("B/s", "bandwidth to all cores together", positive=True)

    @property
    def least_size(self) -> Any:
        """Least capacity of a range of caches; None for a cache of one size. [B]"""
        return None


@record_class
class SharedCacheRange(SharedCache):
    """Range of caches from `smallest` to `size`, for lower bounds of times; no chip has one."""

    smallest: Number = quantity_field("B", "least capacity")

    @property
    def least_size(self) -> Any:
        """Least capacity of the range. [B]"""
        return self.smallest


@record_class
class NodeNetwork:
    """Nodes of a few dies, with scale-up links inside a node and a scale-out network between nodes."""

    size: Number = integer_field("dies in a node")
    bandwidth: Number = quantity_field(
        "B/s", "bandwidth of one node to the others, one direction, shared by its dies", positive=True
    )
    latency: Number = quantity_field("s", "start-up time between nodes, charged per `latency_per`")


@record_class
class DeviceLinks:
    """Scale-up links of one die to its peers: ports, bandwidth [B/s] and latency [s]."""

    ports: Number = integer_field("links to other dies: 2 for a ring, peers - 1 for a full mesh")
    bandwidth: Number = quantity_field("B/s", "bandwidth of one port, one direction", positive=True)
    latency: Number = quantity_field("s", "start-up time, charged per `latency_per`")
    latency_per: str = option_field("what one latency is charged for: a collective or a hop", ("collective", "hop"))
    hops: Number = integer_field("links that a message to a die of the same node crosses: 1, or 2 through a switch", default=1)
    nodes: NodeNetwork | None = None


@record_class
class Mesh:
    """Rows and columns of cores that software can use."""

    rows: Number = integer_field("rows of cores")
    cols: Number = integer_field("columns of cores")


@record_class
class MeshCore:
    """One core of a mesh: matrix and vector work on one engine, and local memory; times in cycles."""

    sram: Number = quantity_field("B", "local memory of a core (M)", positive=True)
    launch: Number = quantity_field("cycle", "start of a task: a product, or a block that is stored and forwarded")
    message_start: Number = quantity_field("cycle", "start of a message from memory, on the engine", former="post")
    word_copy: Number = quantity_field(
        "cycle", "time of a word between memory and router, on the engine; 0 with a DMA engine", former="copy"
    )
    software_stage: Number = quantity_field("cycle", "beta: software handling of a message at each stop", former="stage")
    vector_start: Number = quantity_field("cycle", "start of a vector instruction", former="call")
    mac: Number = quantity_field("cycle", "time of a multiply-add of a vector instruction", positive=True)
    vector_operation: Number = quantity_field("cycle", "time of another operation on a vector element", former="operation")
    special: Number = quantity_field("cycle", "time of an exponential, a root or a quotient of an element")


@record_class
class MeshNoc:
    """The network between the cores of a mesh. Its times are cycles of the chip's clock."""

    word_bytes: Number = quantity_field("B", "width of a link", positive=True)
    word_cycles: Number = quantity_field("cycle", "time of a word on a link", positive=True, former="word")
    hop_cycles: Number = quantity_field("cycle", "alpha: time from router to router", former="hop")
    ramp_cycles: Number = quantity_field("cycle", "time between a core and its router, one way", former="ramp")
    routing_paths: Number = integer_field("routing paths that a core can hold (R)", former="paths")
    vcs: Number = integer_field("virtual channels of a router's port, for simulated routers")
    vc_depth: Number = integer_field("words that a virtual channel holds, for simulated routers", former="depth")


DATAFLOWS = ("weight", "output", "input", "ce")
"""What stays in a systolic array while the rest streams by; or compute elements with a pipeline each, in rows that share an
operand, as RedMulE has them [tortorella2023]."""

SYSTOLIC = {"dataflow": DATAFLOWS[:-1]}
"""Engines whose elements have no pipelines."""

ARRAY_RELOADS = ("tile", "hidden")
"""When what stays is loaded: for each tile after the one before has left, or behind it."""


@record_class
class MatrixEngine:
    """Matrix engine of a core: rows and columns of elements, one multiply-add per cycle each."""

    dataflow: str = option_field(
        "what stays in a systolic array: weight, output or input; or ce, pipelined elements", DATAFLOWS
    )
    rows: Number = integer_field("rows of multiply-adders")
    cols: Number = integer_field("columns of multiply-adders")
    depth: Number = integer_field(
        "pipeline registers of an element: a row has cols x (depth + 1) results in flight; fewer than 3 slow the clock",
        low=0,
        unread=SYSTOLIC,
    )
    reload: str = option_field(
        "how the stationary values of a systolic array are loaded", ARRAY_RELOADS, unread={"dataflow": ("ce",)}
    )
    fill: Number = quantity_field(
        "cycle", "time from the first operand of a block to its first product, for pipelined elements", unread=SYSTOLIC
    )
    start: Number = quantity_field("cycle", "start of a product by the core's software", former="call")


@record_class
class VectorEngine:
    """Vector engine of a core: lanes for all work except matrix products."""

    lanes: Number = quantity_field("op/cycle", "operations on elements", positive=True)
    special: Number = quantity_field("op/cycle", "rate of exponentials, roots and quotients", positive=True)
    start: Number = quantity_field("cycle", "start of a vector instruction by the core's software", former="call")


PRODUCT_ENGINES = ("matrix", "either")


@record_class
class Tile:
    """One core with matrix, vector and DMA engines of its own, which work in parallel."""

    sram: Number = quantity_field("B", "local memory", positive=True)
    sram_bandwidth: Number = quantity_field("B/cycle", "bandwidth between local memory and engines")
    sram_per_row: Number = quantity_field("B/cycle", "additional bandwidth per row of the matrix engine", default=0.0)
    matrix: MatrixEngine
    vector: VectorEngine
    dma_start: Number = quantity_field("cycle", "start of a transfer, on the DMA engine", former="dma")
    collective_sync: Number = quantity_field(
        "cycle", "synchronisation between two rounds of a software collective", former="sync"
    )
    multi_head_overhead: Number = quantity_field(
        "cycle", "software time per operation with several heads in flight", default=0.0, former="control"
    )
    gemm_engine: str = option_field(
        "engines that multiply matrices: matrix, or either, whichever is faster",
        PRODUCT_ENGINES,
        default="matrix",
        former="products",
    )

    @property
    def is_range(self) -> bool:
        """Whether these stand for all tiles of a box."""
        return False


@record_class
class TileRange(Tile):
    """Tiles of a box, of whose times an evaluation gives lower bounds; no chip has one.

    The other fields are those of the fastest corner: the most of what makes calls shorter where more of it does.
    """

    least_sram: Number = quantity_field("B", "least local memory")
    least_rows: Number = integer_field("fewest rows of the matrix engine")
    least_cols: Number = integer_field("fewest columns of the matrix engine")

    @property
    def is_range(self) -> bool:
        """Whether these stand for all tiles of a box."""
        return True


ROUTINGS = ("wormhole", "locked")
"""With wormhole, the words of a message hold each link of their route in one direction while they pass. With locked, a
handshake sets up the route and holds the channels between its routers until the last word arrives: both directions through
intermediate routers, by which the grant returns, and one direction between neighbours.
"""


TOPOLOGIES = ("mesh", "torus", "full")
"""Links between neighbours; also between the ends of each row and column; or between every pair."""


@record_class
class TileNoc:
    """The network between tiles. Its times are cycles of the chip's clock."""

    routing: str = option_field("how a message takes links: wormhole, or locked", ROUTINGS, default="wormhole")
    topology: str = option_field("topology of the links between tiles", TOPOLOGIES, default="mesh")
    word_bytes: Number = quantity_field("B", "width of a link", positive=True)
    word_cycles: Number = quantity_field("cycle", "time of a word on a link", positive=True, former="word")
    hop_cycles: Number = quantity_field("cycle", "time from router to router", former="hop")
    ramp_cycles: Number = quantity_field("cycle", "time between a tile and its router, one way", former="ramp")
    vcs: Number = integer_field("virtual channels of a router's port, for simulated routers")
    vc_depth: Number = integer_field("words that a virtual channel holds, for simulated routers", former="depth")


@record_class
class DecodeCore:
    """Sizes that decode-only cores have different from the other cores; 0 for the same size."""

    rows: Number = integer_field("rows of multiply-adders", low=0)
    cols: Number = integer_field("columns of multiply-adders", low=0)
    lanes: Number = quantity_field("op/cycle", "rate of elementwise operations; special ones in proportion")
    sram: Number = quantity_field("B", "local memory")
    bandwidth: Number = quantity_field("B/s", "bandwidth of the core's memory channel")


@record_class
class Router:
    """An input-queued router with virtual channels and credits, stage after stage; times in cycles.

    Routes are computed at the router, or with `route_cycles` 0 one router ahead. With `speculative`, a head asks for a channel
    and for the switch at once.
    """

    vcs: Number = integer_field("virtual channels of a port")
    vc_depth: Number = integer_field("flits that a virtual channel holds", former="depth")
    route_cycles: Number = integer_field(
        "time to compute a route; 0 if computed one router ahead", low=0, unit="cycle", former="route"
    )
    vc_alloc: Number = integer_field("time to allocate a virtual channel", unit="cycle")
    switch_alloc: Number = integer_field("allocating the switch", unit="cycle")
    switch_traversal: Number = integer_field("crossing the switch", low=0, unit="cycle", former="traversal")
    link: Number = integer_field("time on the wire to the next router or core", low=0, unit="cycle")
    credit: Number = integer_field("time to handle a credit after its return", low=0, unit="cycle")
    speculative: bool = boolean_field("whether heads request a channel and the switch at the same time")
    flit_x: Number = integer_field("cycles that a flit takes on a link along a row: more than 1 for narrow links", unit="cycle")
    flit_y: Number = integer_field("cycles that a flit takes on a link along a column", unit="cycle")
    flit_bytes: Any = quantity_field(
        "B", "bytes of a flit, for area and power of a network with a process node", absent=True, positive=True
    )


@record_class
class DieGrid:
    """Rows and columns of dies of one package, wafer or cluster; each die is described by the other parts."""

    rows: Number = integer_field("rows of dies", apart=True)
    cols: Number = integer_field("columns of dies", apart=True)


D2D_TOPOLOGIES = ("mesh", "torus", "ring", "full", "switch")
"""Links from die to die: between neighbours; also between the ends of each row and column; from each to the next, row after
row and back; between every pair; or from each die's ports to switches.
"""


@record_class
class DieLinks:
    """Links from die to die: topology, ports, bandwidth [B/s] and latency [s]."""

    topology: str = option_field("topology of the links between dies", D2D_TOPOLOGIES)
    ports: Number = integer_field("links per die: 4 for a mesh or torus, 2 for a ring, dies - 1 for a full mesh")
    bandwidth: Number = quantity_field("B/s", "bandwidth of one link, one direction", positive=True)
    latency: Number = quantity_field("s", "latency of a hop, from die to die")
    credits: Number = quantity_field("B", "bytes in flight on a link; 0 for bandwidth x round trip")
    barrier: Number = quantity_field("s", "time until all dies know that all are done, where no library of the stack gives it")


@record_class
class ScaleOutNetwork:
    """Nodes of a few dies, each die with scale-up links inside and a port to the scale-out network."""

    size: Number = integer_field("consecutive dies of a node", apart=True)
    bandwidth: Number = quantity_field("B/s", "bandwidth of one die to the scale-out network, one direction", positive=True)
    latency: Number = quantity_field("s", "latency from die to die over the scale-out network")
    exchange_start: Number = quantity_field("s", "start of an exchange over the scale-out network", former="start")


@record_class
class ChipChain:
    """Chips that share the layers of a model, in order, with a link from each to the next."""

    chips: Number = integer_field("chips in the chain, each with its share of the layers")
    bandwidth: Number = quantity_field("B/s", "bandwidth of the link from one chip to the next, one direction", positive=True)
    payload_share: Number = quantity_field(
        "1", "share of the bandwidth that is payload, without headers of the protocol", positive=True, high=1.0
    )
    latency: Number = quantity_field("s", "latency of the link from chip to chip, with its protocol")


def node_grid(cols: Any, size: Any) -> tuple[Any, Any]:
    """Rows and columns of dies of one node: whole rows of the grid, or part of one row.

    >>> node_grid(8, 64), node_grid(8, 8), node_grid(8, 4)
    ((8, 8), (1, 8), (1, 4))
    """
    whole = size % cols == 0
    return where(whole, size // cols, 1), where(whole, cols, size)


@record_class
class Chip:
    """An accelerator: the parts that the chip has, and None for absent parts.

    Cores share a cache (`cores` of `core`, `l2`), or form a mesh with local memory each (`mesh` of `core`), or a
    mesh of tiles with engines of their own (`mesh` of `tile`). Each kind of a part has its own leaves;
    `space.machines` says which parts make a machine.
    """

    cores: Any = integer_field("cores on the die, which share a cache", absent=True)
    mesh: Any = part_field("cores that software can use, as a rectangle", Mesh)
    clock: Any = quantity_field("Hz", "clock of the cores, and of the routers of a mesh", positive=True, absent=True)
    core: Any = part_field("one core: of a shared-cache die, or of a mesh", PooledCore, MeshCore)
    tile: Any = part_field("one core of a mesh, with engines of its own", Tile)
    l2: Any = part_field("the cache that all cores share", SharedCache)
    noc: Any = part_field("the network between the cores of a mesh", MeshNoc, TileNoc)
    router: Any = part_field("the routers of a network without cores", Router)
    faults: Any = option_field("broken links and cores, numbered row by row, as in 3-4+12; or none", number=True, absent=True)
    hbm: Any = part_field("main memory of a die or of a mesh", HighBandwidthMemory, TileMemory)
    network: Any = part_field("scale-up links of one die to its peers", DeviceLinks)
    power: Any = quantity_field("W", "rated power of the whole chip; 0 if unknown", absent=True)
    technology: Any = part_field("the process node: areas, energies, supply voltage, wafer price", ProcessNode)
    areas: Any = part_field("a paper's own area model, in place of the process node's", PaperAreas)
    die: Any = part_field("die contents that take no time but for broken cores, and the number of dies", DieBudget)
    die_link: Any = part_field("links of a mesh from one of its dies to the next", DieCrossings)
    base: Any = part_field("base dies below the compute dies", BaseDies)
    dram: Any = part_field("main memory devices as they are bought", DramDevices)
    carrier: Any = part_field("carrier on which the dies of a wafer are joined", Carrier)
    economics: Any = part_field("prices of making and running a chip", Economics)
    decode: Any = part_field("sizes of the tiles that a mapping sets apart for decode", DecodeCore)
    memory: Any = part_field("a memory without cores", MemorySystem)
    dies: Any = part_field("dies of one package, wafer or cluster", DieGrid)
    d2d: Any = part_field("links from die to die", DieLinks)
    nodes: Any = part_field("nodes of dies, with a scale-out network between them", ScaleOutNetwork, former="boxes")
    chain: Any = part_field("chips in a chain that share the layers of a model", ChipChain)
    tiers: Any = part_field("memories behind main memory, in order", MemoryTiers)
    published: Any = part_field("facts of the chip's data sheet", PublishedFacts)


def main_memory_bytes(chip: Chip) -> Any:
    """Main memory of the whole chip; capacities of cores are added up where channels are at cores. [B]"""
    return main_memory(chip).capacity


def memory_bytes_per_core(chip: Chip) -> Any:
    """Main memory per core of the chip. [B]"""
    return main_memory(chip).capacity_per_core


def channel_count(chip: Chip) -> Any:
    """Memory channels of the whole chip."""
    return main_memory(chip).channels


def decode_only_chip(chip: Chip) -> Chip:
    """The chip as if all its cores were decode-only cores."""
    own, tile = chip.decode, chip.tile
    if own is None:
        return chip
    memory = main_memory(chip)

    def choose_bandwidth(bandwidth: Any, usual: Any) -> Any:
        return where(bandwidth > 0, bandwidth, usual)

    lanes = choose_bandwidth(own.lanes, tile.vector.lanes)
    changes = {
        "tile.matrix.rows": choose_bandwidth(own.rows, tile.matrix.rows),
        "tile.matrix.cols": choose_bandwidth(own.cols, tile.matrix.cols),
        "tile.vector.lanes": lanes,
        "tile.vector.special": tile.vector.special * (lanes / tile.vector.lanes),
        "tile.sram": choose_bandwidth(own.sram, tile.sram),
        memory.leaf("channel_bandwidth"): choose_bandwidth(own.bandwidth, memory.channel_bandwidth),
    }
    return replace_leaves(chip, changes)


def with_tile_range(chip: Chip, smallest: Tile) -> Chip:
    """Chip whose tiles stand for all from some small ones to its own, for lower bounds of times."""
    own: dict[str, Any] = {spec.name: getattr(chip.tile, spec.name) for spec in fields(chip.tile)}
    sides = smallest.matrix.rows, smallest.matrix.cols
    return replace(chip, tile=TileRange(**own, least_sram=smallest.sram, least_rows=sides[0], least_cols=sides[1]))


def with_cache_range(chip: Chip, smallest: Any) -> Chip:
    """Chip whose cache stands for all sizes from one to its own, for lower bounds of times. [B]"""
    return replace(chip, l2=SharedCacheRange(size=chip.l2.size, bandwidth=chip.l2.bandwidth, smallest=smallest))
