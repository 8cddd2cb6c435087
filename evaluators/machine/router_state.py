"""State of the routers of a mesh, in arrays for the compiled `machine.router_simulator`.

Ports are east, west, south, north, the core's and, where there is one, a memory channel's. Input channels, and output channels,
are numbered (router ports + port) 2^shift + vc; those in which cores and channels keep what they know of their router's come
after them. Sets of channels of a port, and of ports of a router, are bits of a number. A flit is a number: packet << 2, plus 2
for a tail, plus 1 for a head. All times are cycles.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.free_memory import hold_memory
from dse.space.array_math import Array
from dse.space.errors import DesignError

HEAD, TAIL = 1, 2
CORE, MEMORY = 4, 5
WAITS, HAS = 1, 2
"""A branch of a packet: it waits for a channel, or has one, whose number is added."""

BITS, MASK = 5, 31
"""Of a branch."""


def _record(**fields: Any) -> np.dtype[Any]:
    return np.dtype([(name, *(kind if isinstance(kind, tuple) else (kind,))) for name, kind in fields.items()], align=True)


CHANNEL = _record(branches="u4", flit="u4", front="u2", count="u2", accept="u1", busy="u1", mask="u1", done="u1")
"""An input channel, four to a line of a cache.

Branches of the packet in front, `BITS` for each port; its flit in front; `count` of flits that are here, that one at place
`front`, though it alone is not kept there; pointer to output channels; whether there is a packet; ports that it goes to; those
of them that have the flit in front.
"""

CHAIN = _record(member="i4", chief="u4")
"""Of an input channel whose flits are added to others': the next of the chain of them, and the one that asks for all."""

OUT = _record(credits="u4", holder="u1", grant="u1", used="u1")
"""An output channel: flits that the other side has room for; the input channel, within its router, that has it; pointer to
input channels. A core's or memory channel's own: whether a packet has it."""

PORT = _record(
    free="i8", onward="u4", back="u4", width="u4", unused="u2", room="u2",
    turn="u1", grant="u1", accept="u1", wanted="u1", askers="u1", far="u1", wants=("u2", 8), asks=("u2", 8),
)  # fmt: skip
"""A port, both ways, a line of a cache.

When its link is free; the first input channel at its other end (`channels` and more: a core's), and the first output channel of
what feeds it; cycles that a flit takes its link, 0 for a frame of a link to another die; output channels that no packet has;
those with room; pointers to its channels, to inputs and to outputs; inputs that want a turn of the switch to it, and that ask
for channels; cycles that its link takes beyond others; and of each input its channels that could use a turn, and that ask.
"""

ROUTER = _record(row="i4", col="i4")

SLOT = _record(comings="i8", leavings="i8", returning="i8", routings="i8")
"""Up to where lists are filled of flits that come to routers at a cycle, and to cores, of credits, and of heads that have their
route."""

COMING = _record(at="u4", flit="u4")
TURN = _record(channel="u4", at="u4")


FRACTION = 16
"""Bits of the part of a cycle that a frame has."""


class DieLinkPorts(NamedTuple):
    """Ports of routers that lead to other dies.

    Attributes:
        ports: which do, shape (routers, ports).
        far: cycles that their links take beyond others.
        frame: cycles from flit to flit of such a link; at least 1.
    """

    ports: Array
    far: int
    frame: float


class RouterTables(NamedTuple):
    """Routers of a mesh with their channels, buffers and delays; made by `make_router_tables`.

    Attributes:
        routers, ports, vcs, depth: how many; ports of each; input channels of a port; flits of an input channel.
        route, forward, eject, credit, inject, local: cycles: before a head asks; from a turn of the switch to the next router,
            or to the core; from there until the credit counts; from the core to its router; until a core's credit counts.
        speculative: whether heads ask for the switch together with the channel.
        ways: ports that lead to routers north west of one, north, and so on row after row to south east, 4 bits each.
        shift, within: bits of a channel's number that are its place in its port; a mask of them.
        channels, at_once, at_most, slots: input channels; flits that may come to routers in a cycle, and to cores; a mask of
            cycles.
        frame: cycles from flit to flit of a link from die to die, in units of 2 ** -`FRACTION`.
        router_of, number: router of a port, and its number there.
        buffer: flits, `depth` for each input channel.
        channel, out, port, router: records.
        chain: records, where packets are added.
        slot, coming, leaving, credits_back, routing: what comes at a cycle, in a circle of cycles.
        ejected: what has come to cores in this cycle, `at` being the output channel.
        asking, turning: ports that have a channel for who asks, and that are wanted by who could use a turn; 64 a word.
        adding: sums that wait for addends in a router: packet, ports that came, first of the chain.
        target: of each packet: router << 3 plus port, or -1 minus the number of its tree.
        tree_out, tree_in: ports of each tree and router; `tree_in` is 0 for copies.
        table: next port by router and target, empty where routes are dimension by dimension.
        around: whether packets go round what is broken, likewise; `tree_around`: of each tree.
        apart: channels of a port that are for these alone, the first ones.
        offers, offered, proposals, won: what allocators work with in a cycle.
        sums: see the places below.
    """

    routers: int
    ports: int
    vcs: int
    depth: int
    route: int
    forward: int
    eject: int
    credit: int
    inject: int
    local: int
    speculative: int
    ways: int
    shift: int
    within: int
    channels: int
    at_once: int
    at_most: int
    slots: int
    frame: int
    router_of: Array
    number: Array
    buffer: Array
    channel: Array
    chain: Array
    out: Array
    port: Array
    router: Array
    slot: Array
    coming: Array
    leaving: Array
    credits_back: Array
    routing: Array
    ejected: Array
    asking: Array
    turning: Array
    adding: Array
    target: Array
    tree_out: Array
    tree_in: Array
    table: Array
    around: Array
    tree_around: Array
    apart: int
    offers: Array
    offered: Array
    proposals: Array
    won: Array
    sums: Array


CROSSED, SENT, ARRIVED, HERE = range(4)
"""Places of `RouterTables.sums`: flits that crossed a router, were sent, arrived; that arrived in this cycle."""


def make_router_tables(
    rows: int,
    cols: int,
    vcs: int,
    depth: int,
    *,
    route: int,
    forward: int,
    credit: int,
    eject: int | None = None,
    inject: int,
    local: int,
    speculative: bool = False,
    row_first: bool = False,
    memory: bool = False,
    roomy: bool = False,
    width: Array | None = None,
    packets: int = 0,
    trees: int = 0,
    sums: bool = False,
    die_links: DieLinkPorts | None = None,
) -> RouterTables:
    """State of empty routers of a mesh. Delays are in cycles.

    Args:
        rows, cols: sides of the mesh.
        vcs, depth: virtual channels of a port, and flits that each holds.
        memory: whether routers have a port for a memory channel.
        roomy: whether ways between cores and routers hold what is on them, beside what channels hold: long ones cost time only.
        width: cycles that a flit takes each port, shape (routers, ports), or (1, ports) of all routers; 1 where None.
        packets: at a time; as many as there is room for where 0.
        trees: for packets that are copied or added.
        sums: whether packets are added.
        die_links: links to other dies, whose receivers have room for what is on the way; None where there are none.
    """
    n, ports, shift = rows * cols, CORE + 1 + memory, (vcs - 1).bit_length()
    channels, own = n * ports << shift, n * (ports - CORE) << shift
    eject = forward if eject is None else eject
    # flits that are on a way to and from cores, and credits
    on_way = (eject + credit, inject + local) if roomy else (0, 0)
    far = 0 if die_links is None else die_links.far
    slots = 1 << int(max(forward + far, eject, credit, inject, route + 1, local)).bit_length()
    at_once, at_most, words = 2 * n * ports, n * (ports - CORE), -(-n * ports // 64)
    ring = depth + max(on_way[1], far)
    packets = packets or (channels + own) * depth + n
    ways = (8, 8, 8, 2, 0, 1, 4, 4, 4) if row_first else (2, 8, 1, 2, 0, 1, 2, 4, 1)
    width = np.ones(1, np.int64) if width is None else width
    _hold(n, channels + own, ring, depth + on_way[0], packets, int(width.max()), far)
    shapes: dict[str, tuple[Any, Any]] = {
        "router_of": (n * ports, np.uint32), "number": (n * ports, np.uint8), "router": (n, ROUTER),
        "buffer": (channels * ring, np.uint32), "channel": (channels, CHANNEL), "chain": (channels if sums else 0, CHAIN),
        "out": (channels + own, OUT), "port": (n * ports, PORT), "slot": (slots, SLOT), "coming": (slots * at_once, COMING),
        "leaving": (slots * at_most, COMING), "credits_back": (slots * at_once, np.uint32),
        "routing": (slots * channels, np.uint32), "ejected": (at_most, COMING), "asking": (words, np.int64),
        "turning": (words, np.int64), "adding": ((n if sums else 0, ports * vcs, 3), np.int32), "target": (packets, np.int32),
        "tree_out": ((trees, n), np.uint8), "tree_in": ((trees, n), np.uint8), "table": ((0, 0), np.uint8),
        "around": ((0, 0), np.bool_), "tree_around": (trees, np.bool_), "offers": (vcs, np.uint32),
        "offered": (n * ports, np.uint8), "proposals": (n * ports + 1, np.uint32), "won": (n * ports, TURN),
        "sums": (8, np.int64),
    }  # fmt: skip
    nbytes = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes.values())
    hold_memory(nbytes, "chip.mesh", f"routers of {rows:,} x {cols:,} cores", "use a smaller mesh or fidelity=events")
    arrays = {name: np.zeros(*shape) for name, shape in shapes.items()}
    made = RouterTables(
        routers=n, ports=ports, vcs=vcs, depth=ring,
        route=route, forward=forward, eject=eject, credit=credit, inject=inject, local=local,
        speculative=int(speculative), ways=sum(way << 4 * k for k, way in enumerate(ways)),
        shift=shift, within=(1 << shift) - 1, channels=channels, at_once=at_once, at_most=at_most, slots=slots - 1, apart=0,
        frame=1 << FRACTION if die_links is None else round(die_links.frame * (1 << FRACTION)),
        **arrays,
    )  # fmt: skip
    _begin(made, cols, width, depth, on_way)
    if die_links is not None:
        port = made.port.reshape(n, ports)
        port["far"][die_links.ports] = far
        port["width"][die_links.ports] = int(die_links.frame) if float(die_links.frame).is_integer() else 0
        first = np.flatnonzero(die_links.ports) << shift
        made.out["credits"][first[:, None] + np.arange(1 << shift)] += far
    return made


def _begin(made: RouterTables, cols: int, width: Array, depth: int, on_way: tuple[int, int]) -> None:
    """Write what routers of a mesh of so many columns are before anything comes; arguments as of `make_router_tables`."""
    n, ports, slots = made.routers, made.ports, np.arange(made.slots + 1)
    made.router_of[:], made.number[:] = np.repeat(np.arange(n), ports), np.tile(np.arange(ports), n)
    made.router["row"], made.router["col"] = np.divmod(np.arange(n), cols)
    port = made.port.reshape(n, ports)
    _join_ports(port, (n // cols, cols), made.shift, width)
    port["unused"] = port["room"] = (1 << made.vcs) - 1
    made.chain["member"], made.chain["chief"] = -1, np.arange(len(made.chain))
    for name, most in zip(SLOT.names or (), (made.at_once, made.at_most, made.at_once, made.channels), strict=True):
        made.slot[name] = slots * most
    made.adding[:] = -1
    _give_credits(made.out, port, made.shift, depth, on_way)


def _hold(routers: int, channels: int, inside: int, outside: int, packets: int, width: int, far: int) -> None:
    """Refuse what the numbers of records have no bits for.

    Args:
        routers, channels, packets: how many there are.
        inside, outside: flits of an input channel of a router, and of a core.
        width: cycles that a flit takes a port.
        far: cycles that a link to another die takes beyond others.

    Raises:
        DesignError: a number is too large for its field.
    """
    needs = (
        ("chip.mesh", "routers", routers << 3 | 7, np.dtype(np.int32)), ("chip.mesh", "routers", routers, ROUTER["row"]),
        ("chip.mesh", "channels", channels, PORT["onward"]), ("chip.mesh", "channels", channels, CHAIN["member"]),
        ("chip.mesh", "channels", channels, COMING["at"]), ("chip.mesh", "packets", packets << 2 | 3, COMING["flit"]),
        ("chip.noc.ramp_cycles", "flits of a channel", inside, CHANNEL["count"]),
        ("chip.noc.ramp_cycles", "flits of a channel", outside, OUT["credits"]),
        ("chip.noc.word_cycles", "cycles of a flit", width, PORT["width"]),
        ("chip.die_link.latency", "cycles of a link", far, PORT["far"]),
    )  # fmt: skip
    for address, what, need, kind in needs:
        if need > np.iinfo(kind).max:
            have = f"fidelity=cycles has no numbers for as many {what}"
            raise DesignError(f"{address}: {have}: {need:,} for at most {np.iinfo(kind).max:,}; use less or fidelity=events")


def _join_ports(port: Array, sides: tuple[int, int], shift: int, width: Array) -> None:
    """Write what each port leads to, and is fed by, shape (routers, ports); a flit takes each for its width of cycles."""
    (count, ports), (rows, cols) = port.shape, sides
    port["width"] = width
    at_row, at_col = np.divmod(np.arange(count), cols)
    for way, (down, across) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
        row, col = at_row + down, at_col + across
        routers = np.flatnonzero((row >= 0) & (row < rows) & (col >= 0) & (col < cols))
        neighbours = row[routers] * cols + col[routers]
        port["onward"][routers, way] = neighbours * ports + (way ^ 1) << shift
        port["back"][neighbours, way ^ 1] = routers * ports + way << shift
    channels = count * ports << shift
    for way in range(CORE, ports):
        port["onward"][:, way] = channels + (np.arange(count) * ports + way << shift)
        port["back"][:, way] = channels + (np.arange(count) * (ports - CORE) + way - CORE << shift)


def _give_credits(out: Array, port: Array, shift: int, depth: int, on_way: tuple[int, int]) -> None:
    """Write into output channels room for `depth` flits, and to and from cores for those on their way."""
    (count, ports), out["credits"] = port.shape, depth
    channels = count * ports << shift
    for way in range(CORE, ports):
        for first, more in zip((port["onward"][:, way] - channels, port["back"][:, way]), on_way, strict=True):
            out["credits"][first[:, None] + np.arange(1 << shift)] += more
