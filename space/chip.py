"""A chip of parts, each a list of sourced constants; what they mean for time is in ``evaluators/machine``."""

from typing import Any

from dse.space.elementwise import Number, where
from dse.space.fields import flag, part, quantity, record, replaced, whole, word
from dse.space.memory import Memory
from dse.space.numbers import Rates
from dse.space.published import Published
from dse.space.technology import Areas, Base, Carrier, Die, Dram, Economics, Node


@record
class Core:
    """One compute core."""

    matrix: Number = quantity(
        "op/s",
        "twice the 16-bit peak of the matrix engine; files say chip.core.peak or chip.peak by format instead",
        positive=True,
    )
    vector: Number = quantity("op/s", "peak of the vector engine, one operation an element", positive=True)
    rates: Any = part(
        "formats that the matrix engine multiplies beside 16 bits; int8 and fp8, twice as fast, if not said", Rates
    )


@record
class Cache:
    """The on-die cache all cores share; of a mesh of tiles, between its memory channels and main memory."""

    size: Number = quantity("B", "capacity")
    bandwidth: Number = quantity("B/s", "bandwidth to all cores together", positive=True)


@record
class Hbm:
    """The off-die memory of one die; `banks` is what its reads are played on, where a reader goes that far."""

    capacity: Number = quantity("B", "capacity", positive=True)
    bandwidth: Number = quantity("B/s", "bandwidth of a contiguous stream", positive=True)
    gap: Number = quantity("s", "time lost on each row of a strided read; 0 where strides are free")
    waste: Number = quantity("1", "share of the bytes skipped by a strided read that is fetched all the same", high=1.0)
    scatter: Any = quantity(
        "B",
        "bytes that could be read while a row is opened for a piece that lies anywhere; of models with indexers",
        absent=True,
    )
    banks: Memory | None = None


@record
class Nodes:
    """Dies in boxes of a few: inside one they reach each other through their ports, beyond it through the node's network."""

    size: Number = whole("dies in a node")
    bandwidth: Number = quantity("B/s", "of one node towards the others, one direction, shared by its dies", positive=True)
    latency: Number = quantity("s", "start-up time between nodes, charged as `latency_per` says")


@record
class Network:
    """The ports of one die towards its peers."""

    ports: Number = whole("links to other dies: 2 make a ring, peers - 1 a full mesh")
    bandwidth: Number = quantity("B/s", "one port, one direction", positive=True)
    latency: Number = quantity("s", "start-up time, charged as `latency_per` says")
    latency_per: str = word("what one latency is charged for", ("collective", "hop"))
    hops: Number = whole("links that a message to a die of the same node crosses: 1, or 2 by way of a switch", default=1)
    nodes: Nodes | None = None


@record
class Mesh:
    """Cores that software can use, as a rectangle."""

    rows: Number = whole("rows of cores")
    cols: Number = whole("columns of cores")


@record
class MeshCore:
    """One core of a mesh: an engine for products and vectors, and its own memory; times are cycles of the chip's clock."""

    sram: Number = quantity("B", "local memory of a core (M)", positive=True)
    launch: Number = quantity("cycle", "start of a task: a product, or a tile that is stored and forwarded")
    post: Number = quantity("cycle", "start of a message from memory, on the engine")
    copy: Number = quantity("cycle", "a word between memory and router, on the engine; 0 where a DMA engine does it")
    stage: Number = quantity("cycle", "beta: a message handled in software on its way")
    call: Number = quantity("cycle", "start of a vector instruction")
    mac: Number = quantity("cycle", "a multiply-add of a vector instruction", positive=True)
    operation: Number = quantity("cycle", "another operation on an element of a vector")
    special: Number = quantity("cycle", "an exponential, a root or a quotient of an element")


@record
class Noc:
    """The network between the cores of a mesh. Its times are cycles of the chip's clock."""

    word_bytes: Number = quantity("B", "width of a link", positive=True)
    word: Number = quantity("cycle", "a word on a link", positive=True)
    hop: Number = quantity("cycle", "alpha: from router to router")
    ramp: Number = quantity("cycle", "between a core and its router, one way")
    paths: Number = whole("routing paths that a core can be part of (R)")
    vcs: Number = whole("virtual channels of a router's port, where routers are played")
    depth: Number = whole("words that a virtual channel holds, likewise")


DATAFLOWS = ("weight", "output", "input", "ce")
"""What stays in a systolic array while the rest streams by; or compute elements with a pipeline each, in rows that share an
operand, as RedMulE has them [tortorella2023]."""

SYSTOLIC = {"dataflow": DATAFLOWS[:-1]}
"""Engines whose elements have no pipelines."""

RELOADS = ("tile", "hidden")
"""When what stays is loaded: for each tile after the one before has left, or behind it."""


@record
class MatrixEngine:
    """Multiply-adders of a core, one multiply-add a cycle each."""

    dataflow: str = word("what stays in a systolic array: weight, output or input; or ce, elements with pipelines", DATAFLOWS)
    rows: Number = whole("rows of multiply-adders")
    cols: Number = whole("columns of multiply-adders")
    depth: Number = whole(
        "pipeline registers of an element: a row of them has cols x (depth + 1) results in flight; fewer than 3 slow the clock",
        low=0,
        unread=SYSTOLIC,
    )
    reload: str = word("how what stays in a systolic array is loaded", RELOADS, unread={"dataflow": ("ce",)})
    fill: Number = quantity(
        "cycle", "from the first operand of a tile of elements with pipelines to its first product", unread=SYSTOLIC
    )
    call: Number = quantity("cycle", "start of a product by the core's software")


@record
class VectorEngine:
    """Lanes of a core for everything that is no product of matrices."""

    lanes: Number = quantity("op/cycle", "operations on elements", positive=True)
    special: Number = quantity("op/cycle", "exponentials, roots and quotients", positive=True)
    call: Number = quantity("cycle", "start of a vector instruction by the core's software")


PRODUCTS = ("matrix", "either")


@record
class Tile:
    """One core with engines of its own for products, vectors and transfers, which work side by side."""

    sram: Number = quantity("B", "local memory", positive=True)
    sram_bandwidth: Number = quantity("B/cycle", "between local memory and engines")
    sram_per_row: Number = quantity("B/cycle", "more of it for each row of the matrix engine", default=0.0)
    matrix: MatrixEngine
    vector: VectorEngine
    dma: Number = quantity("cycle", "start of a transfer, on the DMA engine")
    sync: Number = quantity("cycle", "between two steps of a collective in software: everyone has what the last one moved")
    control: Number = quantity("cycle", "of software, on each operation where several heads are in flight", default=0.0)
    products: str = word("which engine multiplies matrices: matrix, or either, whichever is faster", PRODUCTS, default="matrix")


ROUTINGS = ("wormhole", "locked")
"""A wormhole's words hold each link of their route as they come by, either way apart. Locked, a route is set up by a handshake,
and holds the channels between its routers until the last word is there: both ways where it passes through others, by which the
grant comes back, its own way between neighbours."""


TOPOLOGIES = ("mesh", "torus", "full")
"""Links between neighbours; also between the ends of each row and column; or between every pair."""


@record
class TileNoc:
    """The network between tiles. Its times are cycles of the chip's clock."""

    routing: str = word("how a message takes links: wormhole, or locked", ROUTINGS, default="wormhole")
    topology: str = word("which tiles have links", TOPOLOGIES, default="mesh")
    word_bytes: Number = quantity("B", "width of a link", positive=True)
    word: Number = quantity("cycle", "a word on a link", positive=True)
    hop: Number = quantity("cycle", "from router to router")
    ramp: Number = quantity("cycle", "between a tile and its router, one way")
    vcs: Number = whole("virtual channels of a router's port, where routers are played")
    depth: Number = whole("words that a virtual channel holds, likewise")


PLACES = ("south", "north", "west", "east", "core")
"""Where memory channels are: along an edge of the mesh, evenly spread, or one at each core."""


@record
class MainMemory:
    """HBM of a mesh of tiles; `banks` is the memory that its transactions are priced on, where a reader goes that far."""

    capacity: Number = quantity("B", "capacity of all channels; of each core's, where channels are at cores", positive=True)
    channels: Number = whole("channels that are served independently; where they are at cores, as many as cores")
    channel_bandwidth: Number = quantity("B/s", "of one channel", positive=True)
    achieved: Number = quantity(
        "1", "share of the bandwidth that long blocks reach: what refresh and turns of the bus leave", high=1.0, positive=True
    )
    latency: Number = quantity("s", "from a request at the channel to its first word")
    crowded: Number = quantity(
        "1",
        "share of that of blocks that wait for one another, where bursts are not played",
        high=1.0,
        positive=True,
        default=1.0,
    )
    place: str = word("where the channels are", PLACES)
    banks: Memory | None = None


@record
class DecodeCore:
    """What cores that only decode have in another measure than the others; 0 for as much."""

    rows: Number = whole("rows of multiply-adders", low=0)
    cols: Number = whole("columns of multiply-adders", low=0)
    lanes: Number = quantity("op/cycle", "operations on elements; special ones in proportion")
    sram: Number = quantity("B", "local memory")
    bandwidth: Number = quantity("B/s", "of the core's memory channel")


@record
class Router:
    """An input-queued router with virtual channels and credits, a stage after the other; all times are cycles.

    Routes are computed at the router, or with `route` 0 one router ahead. With `speculative`, a head asks for a channel and for
    the switch at once.
    """

    vcs: Number = whole("virtual channels of a port")
    depth: Number = whole("flits that a virtual channel holds")
    route: Number = whole("computing a route; 0 where that is done a router ahead", low=0, unit="cycle")
    vc_alloc: Number = whole("allocating a virtual channel", unit="cycle")
    switch_alloc: Number = whole("allocating the switch", unit="cycle")
    traversal: Number = whole("crossing the switch", low=0, unit="cycle")
    link: Number = whole("on the wire to the next router or core", low=0, unit="cycle")
    credit: Number = whole("handling a credit, after its way back", low=0, unit="cycle")
    speculative: bool = flag("whether heads ask for a channel and for the switch at once")
    flit_x: Number = whole("cycles that a flit takes a link along a row: more than 1 for narrow ones", unit="cycle")
    flit_y: Number = whole("cycles that a flit takes a link along a column", unit="cycle")
    flit_bytes: Any = quantity("B", "bytes of a flit, for area and power of a network with a node", absent=True, positive=True)


@record
class Dies:
    """Dies of one package, wafer or cluster, as a rectangle; each is a chip of its own otherwise."""

    rows: Number = whole("rows of dies", apart=True)
    cols: Number = whole("columns of dies", apart=True)


D2D_TOPOLOGIES = ("mesh", "torus", "ring", "full", "switch")
"""Links from die to die: between neighbours; also between the ends of each row and column; from each to the next, row after row
and back; between every pair; or from each die's ports to switches that take from any to any."""


@record
class D2d:
    """Links from die to die."""

    topology: str = word("which dies have links", D2D_TOPOLOGIES)
    ports: Number = whole("links that a die has room for: 4 make a mesh or a torus, 2 a ring, dies - 1 a full mesh")
    bandwidth: Number = quantity("B/s", "one link, one direction", positive=True)
    latency: Number = quantity("s", "of a hop, from die to die")
    credits: Number = quantity("B", "on their way over a link at a time; 0 for bandwidth x round trip")
    barrier: Number = quantity("s", "until all dies know that all are done, where no library of the stack says it")


@record
class Boxes:
    """Dies in boxes of a few: inside one they have links to each other, and each has a port to a network of all boxes."""

    size: Number = whole("dies of a box, which follow one another", apart=True)
    bandwidth: Number = quantity("B/s", "of one die to the network of boxes, one direction", positive=True)
    latency: Number = quantity("s", "from die to die over that network")
    start: Number = quantity("s", "start of an exchange over it")


def box_sides(cols: Any, size: Any) -> tuple[Any, Any]:
    """Rows and columns of a box of dies that follow one another: whole rows of dies, or else one row by itself.

    >>> box_sides(8, 64), box_sides(8, 8), box_sides(8, 4)
    ((8, 8), (1, 8), (1, 4))
    """
    whole = size % cols == 0
    return where(whole, size // cols, 1), where(whole, cols, size)


@record
class Chip:
    """An accelerator: the parts that it has, None for those it has not.

    Cores are pooled behind a cache (`cores` of `core`, `l2`), a mesh with a memory each (`mesh` of `core`), or a mesh of tiles
    with engines of their own (`mesh` of `tile`). Each kind of a part has its own leaves; `space.machines` says which parts make
    a machine.
    """

    cores: Any = whole("cores on the die, which a cache pools", absent=True)
    mesh: Any = part("cores that software can use, as a rectangle", Mesh)
    clock: Any = quantity("Hz", "of cores, and of the routers of a mesh", positive=True, absent=True)
    core: Any = part("one core: of a pool, or of a mesh", Core, MeshCore)
    tile: Any = part("one core of a mesh, with engines of its own", Tile)
    l2: Any = part("the cache that all cores share", Cache)
    noc: Any = part("the network between the cores of a mesh", Noc, TileNoc)
    router: Any = part("the routers of a network by itself", Router)
    faults: Any = word(
        "broken links and cores, by cores counted row after row, as in 3-4+12; or none", number=True, absent=True
    )
    hbm: Any = part("off-die memory: of a die, or of a mesh", Hbm, MainMemory)
    network: Any = part("the ports of one die towards its peers", Network)
    power: Any = quantity("W", "of the whole chip at work; 0 where it is not known", absent=True)
    technology: Any = part("the process node: areas, energies, supply, price of a wafer", Node)
    areas: Any = part("a paper's own area model, in the place of the node's", Areas)
    die: Any = part("what is on a die beside what takes time, and how many dies there are", Die)
    base: Any = part("dies below the others", Base)
    dram: Any = part("main memory as it is bought", Dram)
    carrier: Any = part("what the dies of a wafer are joined on", Carrier)
    economics: Any = part("what a chip costs to make and to run", Economics)
    decode: Any = part("of tiles that a mapping sets apart for decode", DecodeCore)
    memory: Any = part("a memory by itself", Memory)
    dies: Any = part("dies of one package, wafer or cluster", Dies)
    d2d: Any = part("links from die to die", D2d)
    boxes: Any = part("boxes that dies are in, with a network between them", Boxes)
    published: Any = part("what a data sheet says of the chip as it is sold", Published)


def memory_of(chip: Chip) -> Any:
    """Main memory of the whole chip: where channels are at cores, every core brings its own. [B]"""
    of_cores = chip.mesh is not None and chip.hbm.place == "core"
    return chip.hbm.capacity * (chip.mesh.rows * chip.mesh.cols) if of_cores else chip.hbm.capacity


def memory_of_core(chip: Chip) -> Any:
    """A core's share of main memory. [B]"""
    return chip.hbm.capacity if chip.hbm.place == "core" else chip.hbm.capacity / (chip.mesh.rows * chip.mesh.cols)


def memory_channels(chip: Chip) -> Any:
    """Channels of main memory on the whole chip."""
    return chip.mesh.rows * chip.mesh.cols if chip.hbm.place == "core" else chip.hbm.channels


def decoding(chip: Chip) -> Chip:
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
    return replaced(chip, changes)
