"""A chip of parts, each a list of sourced constants; what they mean for time is in ``evaluators/machine``."""

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
from dse.space.number_formats import FormatRates
from dse.space.published import PublishedFacts
from dse.space.technology import BaseDies, Carrier, DieBudget, DramDevices, Economics, PaperAreas, ProcessNode


@record_class
class PooledCore:
    """One compute core."""

    matrix: Number = quantity_field(
        "op/s",
        "twice the 16-bit peak of the matrix engine; files say chip.core.peak or chip.peak by format instead",
        positive=True,
    )
    vector: Number = quantity_field("op/s", "peak of the vector engine, one operation an element", positive=True)
    rates: Any = part_field(
        "formats that the matrix engine multiplies beside 16 bits; int8 and fp8, twice as fast, if not said", FormatRates
    )


@record_class
class SharedCache:
    """The on-die cache all cores share; of a mesh of tiles, between its memory channels and main memory."""

    size: Number = quantity_field("B", "capacity")
    bandwidth: Number = quantity_field("B/s", "bandwidth to all cores together", positive=True)


@record_class
class HighBandwidthMemory:
    """The off-die memory of one die; `banks` is what its reads are played on, where a reader goes that far."""

    capacity: Number = quantity_field("B", "capacity", positive=True)
    bandwidth: Number = quantity_field("B/s", "bandwidth of a contiguous stream", positive=True)
    strided_row_overhead: Number = quantity_field(
        "s", "time lost on each row of a strided read; 0 where strides are free", former="gap"
    )
    strided_overfetch: Number = quantity_field(
        "1", "share of the bytes skipped by a strided read that is fetched all the same", high=1.0, former="waste"
    )
    random_access_overhead: Any = quantity_field(
        "B",
        "bytes that could be read while a row is opened for a piece that lies anywhere; of models with indexers",
        absent=True,
        former="scatter",
    )
    banks: MemorySystem | None = None


@record_class
class NodeNetwork:
    """Dies in nodes of a few: inside one they reach each other through their ports, beyond it through the node's network."""

    size: Number = integer_field("dies in a node")
    bandwidth: Number = quantity_field(
        "B/s", "of one node towards the others, one direction, shared by its dies", positive=True
    )
    latency: Number = quantity_field("s", "start-up time between nodes, charged as `latency_per` says")


@record_class
class DeviceLinks:
    """The ports of one die towards its peers."""

    ports: Number = integer_field("links to other dies: 2 make a ring, peers - 1 a full mesh")
    bandwidth: Number = quantity_field("B/s", "one port, one direction", positive=True)
    latency: Number = quantity_field("s", "start-up time, charged as `latency_per` says")
    latency_per: str = option_field("what one latency is charged for", ("collective", "hop"))
    hops: Number = integer_field(
        "links that a message to a die of the same node crosses: 1, or 2 by way of a switch", default=1
    )
    nodes: NodeNetwork | None = None


@record_class
class Mesh:
    """Cores that software can use, as a rectangle."""

    rows: Number = integer_field("rows of cores")
    cols: Number = integer_field("columns of cores")


@record_class
class MeshCore:
    """One core of a mesh: an engine for products and vectors, and its own memory; times are cycles of the chip's clock."""

    sram: Number = quantity_field("B", "local memory of a core (M)", positive=True)
    launch: Number = quantity_field("cycle", "start of a task: a product, or a tile that is stored and forwarded")
    message_start: Number = quantity_field("cycle", "start of a message from memory, on the engine", former="post")
    word_copy: Number = quantity_field(
        "cycle", "a word between memory and router, on the engine; 0 where a DMA engine does it", former="copy"
    )
    software_stage: Number = quantity_field("cycle", "beta: a message handled in software on its way", former="stage")
    vector_start: Number = quantity_field("cycle", "start of a vector instruction", former="call")
    mac: Number = quantity_field("cycle", "a multiply-add of a vector instruction", positive=True)
    vector_operation: Number = quantity_field("cycle", "another operation on an element of a vector", former="operation")
    special: Number = quantity_field("cycle", "an exponential, a root or a quotient of an element")


@record_class
class MeshNoc:
    """The network between the cores of a mesh. Its times are cycles of the chip's clock."""

    word_bytes: Number = quantity_field("B", "width of a link", positive=True)
    word_cycles: Number = quantity_field("cycle", "a word on a link", positive=True, former="word")
    hop_cycles: Number = quantity_field("cycle", "alpha: from router to router", former="hop")
    ramp_cycles: Number = quantity_field("cycle", "between a core and its router, one way", former="ramp")
    routing_paths: Number = integer_field("routing paths that a core can be part of (R)", former="paths")
    vcs: Number = integer_field("virtual channels of a router's port, where routers are played")
    vc_depth: Number = integer_field("words that a virtual channel holds, likewise", former="depth")


DATAFLOWS = ("weight", "output", "input", "ce")
"""What stays in a systolic array while the rest streams by; or compute elements with a pipeline each, in rows that share an
operand, as RedMulE has them [tortorella2023]."""

SYSTOLIC = {"dataflow": DATAFLOWS[:-1]}
"""Engines whose elements have no pipelines."""

ARRAY_RELOADS = ("tile", "hidden")
"""When what stays is loaded: for each tile after the one before has left, or behind it."""


@record_class
class MatrixEngine:
    """Multiply-adders of a core, one multiply-add a cycle each."""

    dataflow: str = option_field(
        "what stays in a systolic array: weight, output or input; or ce, elements with pipelines", DATAFLOWS
    )
    rows: Number = integer_field("rows of multiply-adders")
    cols: Number = integer_field("columns of multiply-adders")
    depth: Number = integer_field(
        "pipeline registers of an element: a row of them has cols x (depth + 1) results in flight; fewer than 3 slow the clock",
        low=0,
        unread=SYSTOLIC,
    )
    reload: str = option_field("how what stays in a systolic array is loaded", ARRAY_RELOADS, unread={"dataflow": ("ce",)})
    fill: Number = quantity_field(
        "cycle", "from the first operand of a tile of elements with pipelines to its first product", unread=SYSTOLIC
    )
    start: Number = quantity_field("cycle", "start of a product by the core's software", former="call")


@record_class
class VectorEngine:
    """Lanes of a core for everything that is no product of matrices."""

    lanes: Number = quantity_field("op/cycle", "operations on elements", positive=True)
    special: Number = quantity_field("op/cycle", "exponentials, roots and quotients", positive=True)
    start: Number = quantity_field("cycle", "start of a vector instruction by the core's software", former="call")


PRODUCT_ENGINES = ("matrix", "either")


@record_class
class Tile:
    """One core with engines of its own for products, vectors and transfers, which work side by side."""

    sram: Number = quantity_field("B", "local memory", positive=True)
    sram_bandwidth: Number = quantity_field("B/cycle", "between local memory and engines")
    sram_per_row: Number = quantity_field("B/cycle", "more of it for each row of the matrix engine", default=0.0)
    matrix: MatrixEngine
    vector: VectorEngine
    dma_start: Number = quantity_field("cycle", "start of a transfer, on the DMA engine", former="dma")
    collective_sync: Number = quantity_field(
        "cycle", "between two steps of a collective in software: everyone has what the last one moved", former="sync"
    )
    multi_head_overhead: Number = quantity_field(
        "cycle", "of software, on each operation where several heads are in flight", default=0.0, former="control"
    )
    gemm_engine: str = option_field(
        "which engine multiplies matrices: matrix, or either, whichever is faster",
        PRODUCT_ENGINES,
        default="matrix",
        former="products",
    )


ROUTINGS = ("wormhole", "locked")
"""A wormhole's words hold each link of their route as they come by, either way apart. Locked, a route is set up by a handshake,
and holds the channels between its routers until the last word is there: both ways where it passes through others, by which the
grant comes back, its own way between neighbours."""


TOPOLOGIES = ("mesh", "torus", "full")
"""Links between neighbours; also between the ends of each row and column; or between every pair."""


@record_class
class TileNoc:
    """The network between tiles. Its times are cycles of the chip's clock."""

    routing: str = option_field("how a message takes links: wormhole, or locked", ROUTINGS, default="wormhole")
    topology: str = option_field("which tiles have links", TOPOLOGIES, default="mesh")
    word_bytes: Number = quantity_field("B", "width of a link", positive=True)
    word_cycles: Number = quantity_field("cycle", "a word on a link", positive=True, former="word")
    hop_cycles: Number = quantity_field("cycle", "from router to router", former="hop")
    ramp_cycles: Number = quantity_field("cycle", "between a tile and its router, one way", former="ramp")
    vcs: Number = integer_field("virtual channels of a router's port, where routers are played")
    vc_depth: Number = integer_field("words that a virtual channel holds, likewise", former="depth")


CHANNEL_SIDES = ("south", "north", "west", "east", "core")
"""Where memory channels are: along an edge of the mesh, evenly spread, or one at each core."""


@record_class
class TileMemory:
    """HBM of a mesh of tiles; `banks` is the memory that its transactions are priced on, where a reader goes that far."""

    capacity: Number = quantity_field(
        "B", "capacity of all channels; of each core's, where channels are at cores", positive=True
    )
    channels: Number = integer_field("channels that are served independently; where they are at cores, as many as cores")
    channel_bandwidth: Number = quantity_field("B/s", "of one channel", positive=True)
    stream_efficiency: Number = quantity_field(
        "1",
        "share of the bandwidth that long blocks reach: what refresh and turns of the bus leave",
        high=1.0,
        positive=True,
        former="achieved",
    )
    latency: Number = quantity_field("s", "from a request at the channel to its first word")
    contended_efficiency: Number = quantity_field(
        "1",
        "share of that of blocks that wait for one another, where bursts are not played",
        high=1.0,
        positive=True,
        default=1.0,
        former="crowded",
    )
    channel_side: str = option_field("where the channels are", CHANNEL_SIDES, former="place")
    banks: MemorySystem | None = None


@record_class
class DecodeCore:
    """What cores that only decode have in another measure than the others; 0 for as much."""

    rows: Number = integer_field("rows of multiply-adders", low=0)
    cols: Number = integer_field("columns of multiply-adders", low=0)
    lanes: Number = quantity_field("op/cycle", "operations on elements; special ones in proportion")
    sram: Number = quantity_field("B", "local memory")
    bandwidth: Number = quantity_field("B/s", "of the core's memory channel")


@record_class
class Router:
    """An input-queued router with virtual channels and credits, a stage after the other; all times are cycles.

    Routes are computed at the router, or with `route_cycles` 0 one router ahead. With `speculative`, a head asks for a channel
    and for the switch at once.
    """

    vcs: Number = integer_field("virtual channels of a port")
    vc_depth: Number = integer_field("flits that a virtual channel holds", former="depth")
    route_cycles: Number = integer_field(
        "computing a route; 0 where that is done a router ahead", low=0, unit="cycle", former="route"
    )
    vc_alloc: Number = integer_field("allocating a virtual channel", unit="cycle")
    switch_alloc: Number = integer_field("allocating the switch", unit="cycle")
    switch_traversal: Number = integer_field("crossing the switch", low=0, unit="cycle", former="traversal")
    link: Number = integer_field("on the wire to the next router or core", low=0, unit="cycle")
    credit: Number = integer_field("handling a credit, after its way back", low=0, unit="cycle")
    speculative: bool = boolean_field("whether heads ask for a channel and for the switch at once")
    flit_x: Number = integer_field("cycles that a flit takes a link along a row: more than 1 for narrow ones", unit="cycle")
    flit_y: Number = integer_field("cycles that a flit takes a link along a column", unit="cycle")
    flit_bytes: Any = quantity_field(
        "B", "bytes of a flit, for area and power of a network with a node", absent=True, positive=True
    )


@record_class
class DieGrid:
    """Dies of one package, wafer or cluster, as a rectangle; each is a chip of its own otherwise."""

    rows: Number = integer_field("rows of dies", apart=True)
    cols: Number = integer_field("columns of dies", apart=True)


D2D_TOPOLOGIES = ("mesh", "torus", "ring", "full", "switch")
"""Links from die to die: between neighbours; also between the ends of each row and column; from each to the next, row after row
and back; between every pair; or from each die's ports to switches that take from any to any."""


@record_class
class DieLinks:
    """Links from die to die."""

    topology: str = option_field("which dies have links", D2D_TOPOLOGIES)
    ports: Number = integer_field("links that a die has room for: 4 make a mesh or a torus, 2 a ring, dies - 1 a full mesh")
    bandwidth: Number = quantity_field("B/s", "one link, one direction", positive=True)
    latency: Number = quantity_field("s", "of a hop, from die to die")
    credits: Number = quantity_field("B", "on their way over a link at a time; 0 for bandwidth x round trip")
    barrier: Number = quantity_field("s", "until all dies know that all are done, where no library of the stack says it")


@record_class
class ScaleOutNetwork:
    """Dies in nodes of a few: inside one they have links to each other, and each has a port to a network of all nodes."""

    size: Number = integer_field("dies of a node, which follow one another", apart=True)
    bandwidth: Number = quantity_field("B/s", "of one die to the network of nodes, one direction", positive=True)
    latency: Number = quantity_field("s", "from die to die over that network")
    exchange_start: Number = quantity_field("s", "start of an exchange over it", former="start")


def node_grid(cols: Any, size: Any) -> tuple[Any, Any]:
    """Rows and columns of a node of dies that follow one another: whole rows of dies, or else one row by itself.

    >>> node_grid(8, 64), node_grid(8, 8), node_grid(8, 4)
    ((8, 8), (1, 8), (1, 4))
    """
    whole = size % cols == 0
    return where(whole, size // cols, 1), where(whole, cols, size)


@record_class
class Chip:
    """An accelerator: the parts that it has, None for those it has not.

    Cores are pooled behind a cache (`cores` of `core`, `l2`), a mesh with a memory each (`mesh` of `core`), or a mesh of tiles
    with engines of their own (`mesh` of `tile`). Each kind of a part has its own leaves; `space.machines` says which parts make
    a machine.
    """

    cores: Any = integer_field("cores on the die, which a cache pools", absent=True)
    mesh: Any = part_field("cores that software can use, as a rectangle", Mesh)
    clock: Any = quantity_field("Hz", "of cores, and of the routers of a mesh", positive=True, absent=True)
    core: Any = part_field("one core: of a pool, or of a mesh", PooledCore, MeshCore)
    tile: Any = part_field("one core of a mesh, with engines of its own", Tile)
    l2: Any = part_field("the cache that all cores share", SharedCache)
    noc: Any = part_field("the network between the cores of a mesh", MeshNoc, TileNoc)
    router: Any = part_field("the routers of a network by itself", Router)
    faults: Any = option_field(
        "broken links and cores, by cores counted row after row, as in 3-4+12; or none", number=True, absent=True
    )
    hbm: Any = part_field("off-die memory: of a die, or of a mesh", HighBandwidthMemory, TileMemory)
    network: Any = part_field("the ports of one die towards its peers", DeviceLinks)
    power: Any = quantity_field("W", "of the whole chip at work; 0 where it is not known", absent=True)
    technology: Any = part_field("the process node: areas, energies, supply, price of a wafer", ProcessNode)
    areas: Any = part_field("a paper's own area model, in the place of the node's", PaperAreas)
    die: Any = part_field("what is on a die beside what takes time, and how many dies there are", DieBudget)
    base: Any = part_field("dies below the others", BaseDies)
    dram: Any = part_field("main memory as it is bought", DramDevices)
    carrier: Any = part_field("what the dies of a wafer are joined on", Carrier)
    economics: Any = part_field("what a chip costs to make and to run", Economics)
    decode: Any = part_field("of tiles that a mapping sets apart for decode", DecodeCore)
    memory: Any = part_field("a memory by itself", MemorySystem)
    dies: Any = part_field("dies of one package, wafer or cluster", DieGrid)
    d2d: Any = part_field("links from die to die", DieLinks)
    nodes: Any = part_field("nodes that dies are in, with a network between them", ScaleOutNetwork, former="boxes")
    published: Any = part_field("what a data sheet says of the chip as it is sold", PublishedFacts)


def main_memory_bytes(chip: Chip) -> Any:
    """Main memory of the whole chip: where channels are at cores, every core brings its own. [B]"""
    of_cores = chip.mesh is not None and chip.hbm.channel_side == "core"
    return chip.hbm.capacity * (chip.mesh.rows * chip.mesh.cols) if of_cores else chip.hbm.capacity


def memory_bytes_per_core(chip: Chip) -> Any:
    """A core's share of main memory. [B]"""
    return chip.hbm.capacity if chip.hbm.channel_side == "core" else chip.hbm.capacity / (chip.mesh.rows * chip.mesh.cols)


def channel_count(chip: Chip) -> Any:
    """Channels of main memory on the whole chip."""
    return chip.mesh.rows * chip.mesh.cols if chip.hbm.channel_side == "core" else chip.hbm.channels


def decode_only_chip(chip: Chip) -> Chip:
    """The chip as if all its cores were of those that only decode."""
    own, tile = chip.decode, chip.tile
    if own is None:
        return chip

    def of(said: Any, usual: Any) -> Any:
        return where(said > 0, said, usual)

    lanes = of(own.lanes, tile.vector.lanes)
    changes = {
        "tile.matrix.rows": of(own.rows, tile.matrix.rows),
        "tile.matrix.cols": of(own.cols, tile.matrix.cols),
        "tile.vector.lanes": lanes,
        "tile.vector.special": tile.vector.special * (lanes / tile.vector.lanes),
        "tile.sram": of(own.sram, tile.sram),
        "hbm.channel_bandwidth": of(own.bandwidth, chip.hbm.channel_bandwidth),
    }
    return replace_leaves(chip, changes)
