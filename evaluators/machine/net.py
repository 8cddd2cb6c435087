"""What routers of a mesh hold, for loops that are compiled (`evaluators.machine.router`).

Ports are east, west, south, north, the core's and, where there is one, a memory channel's. Input channels, and output channels,
are numbered (router ports + port) vcs + vc; those in which cores and channels keep what they know of their router's come after
them. A flit is a number: packet << 2, plus 2 for a tail, plus 1 for a head. All times are cycles.
"""

from typing import Any, NamedTuple

import numpy as np

from space.elementwise import Array

HEAD, TAIL = 1, 2
CORE, MEMORY = 4, 5
WAITS, HAS = 1, 2
"""A branch of a packet: it waits for a channel, or has one, whose number is added."""


def _record(**fields: str) -> np.dtype[Any]:
    return np.dtype(list(fields.items()), align=True)


CHANNEL = _record(member="i4", front="i2", count="i2", accept="i2", busy="u1", mask="u1", done="u1")
"""An input channel: flits from place `front` on, `count` of them; whether it has a packet; ports that the one in front goes to,
and those that have its flit in front; the next of a chain of channels whose flits are added; its pointer to output channels."""

OUT = _record(credits="i2", grant="i2", used="u1")
"""An output channel: flits that the other side has room for; its pointer to input channels; whether a packet has it."""

PORT = _record(free="i8", onward="u4", back="u4", width="i4", turn="i2", grant="u1", accept="u1")
"""A port, both ways: when its link is free, and the first input channel at its other end (`channels` and more: a core's); first
output channel of what feeds it; cycles that a flit takes its link; pointers to its channels, to inputs and to outputs."""

ROUTER = _record(row="i4", col="i4", asking="i4", turning="i4", living="u1")
"""Where it is; branches that wait for a channel, that want the switch; whether it is among those that hold anything."""

SLOT = _record(comings="i4", returning="i4", routings="i4")
"""How many flits come at a cycle, credits return, heads have their route."""

COMING = _record(at="u4", flit="u4")
PLACE = _record(port="i2", vc="i2")
GRANT = _record(place="i4", vc="i4")


class Net(NamedTuple):
    """Routers, and all that they hold; made by `network`.

    Attributes:
        routers, ports, vcs, depth: how many; ports of each; input channels of a port; flits of an input channel.
        route, forward, eject, credit, inject, local: cycles: before a head asks; from a turn of the switch to the next router,
            or to the core; from there until the credit counts; from the core to its router; until a core's credit counts.
        speculative: whether heads ask for the switch together with the channel.
        row_first: whether packets go along the column first (YX).
        channels, most, at_once, slots: input channels; branches of a router; flits in flight of a cycle; a mask of cycles.
        place, router_of: port and channel of a place in a router; router of an input channel.
        buffer: flits, `depth` for each input channel.
        channel, out, port, router: records.
        branch: of each input channel and port: 0, `WAITS`, or `HAS` and the channel that it has.
        asks, turns: branches of each router that wait for a channel, and that want the switch. A branch is the input channel
            (within its router) << 3 plus the port.
        slot, coming, credits_back, routing: what comes at a cycle, in a circle of cycles.
        ejected: what has come to cores in this cycle, `at` being the output channel.
        alive: routers that hold anything.
        adding: sums that wait for addends in a router: packet, ports that came, first of the chain.
        target: of each packet: router << 3 plus port, or -1 minus the number of its tree.
        tree_out, tree_in: ports of each tree and router; `tree_in` is 0 for copies.
        table: next port by router and target, empty where routes are dimension by dimension.
        first: of a set of bits and a place, the first bit at or after it, in a circle.
        offers, granted, best, wanted, offered, won: what a router works with in a cycle.
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
    row_first: int
    channels: int
    most: int
    at_once: int
    slots: int
    place: Array
    router_of: Array
    buffer: Array
    channel: Array
    branch: Array
    out: Array
    port: Array
    router: Array
    asks: Array
    turns: Array
    slot: Array
    coming: Array
    credits_back: Array
    routing: Array
    ejected: Array
    alive: Array
    adding: Array
    target: Array
    tree_out: Array
    tree_in: Array
    table: Array
    first: Array
    offers: Array
    granted: Array
    best: Array
    wanted: Array
    offered: Array
    won: Array
    sums: Array


CROSSED, SENT, ARRIVED, ALIVE, HERE = range(5)
"""Places of `Net.sums`: flits that crossed a router, were sent, arrived; routers alive; flits that arrived in this cycle."""


def _first() -> Array:
    found = np.zeros((256, 8), np.uint8)
    for bits in range(1, 256):
        for place in range(8):
            found[bits, place] = next(at & 7 for at in range(place, place + 8) if bits >> (at & 7) & 1)
    return found.ravel()


def network(
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
) -> Net:
    """Empty routers of a mesh; delays are those of `Net`.

    Args:
        rows, cols: of the mesh.
        vcs, depth: virtual channels of a port, and flits that each holds.
        memory: whether routers have a port for a memory channel.
        roomy: whether ways between cores and routers hold what is on them, beside what channels hold: long ones cost time only.
        width: cycles that a flit takes each port, shape (routers, ports); 1 where None.
        packets: at a time; as many as there is room for where 0.
        trees: for packets that are copied or added.
        sums: whether packets are added.
    """
    n, ports = rows * cols, CORE + 1 + memory
    channels, own = n * ports * vcs, n * (ports - CORE) * vcs
    eject = forward if eject is None else eject
    router, channel, place = _places(rows, cols), np.zeros(channels, CHANNEL), np.zeros(ports * vcs, PLACE)
    port = _ports(router, rows, cols, ports, vcs)
    if width is not None:
        port["width"][:, :ports] = width
    channel["member"] = -1
    place["port"], place["vc"] = np.divmod(np.arange(ports * vcs), vcs)
    # flits that are on a way to and from cores, and credits
    on_way = (eject + credit, inject + local) if roomy else (0, 0)
    slots = 1 << int(max(forward, eject, credit, inject, route + 1, local)).bit_length()
    most, at_once = ports * vcs * (ports if trees else 1), 2 * n * ports
    ring = depth + on_way[1]

    def zeros(count: int, kind: Any = np.uint32) -> Array:
        return np.zeros(count, kind)

    return Net(
        n, ports, vcs, ring, route, forward, eject, credit, inject, local, int(speculative), int(row_first),
        channels, most, at_once, slots - 1, place, np.repeat(np.arange(n, dtype=np.uint32), ports * vcs),
        zeros(channels * ring), channel, zeros(channels * 8, np.uint8), _outputs(port, ports, vcs, depth, on_way), port.ravel(),
        router, zeros(n * most), zeros(n * most), zeros(slots, SLOT), zeros(slots * at_once, COMING), zeros(slots * at_once),
        zeros(slots * channels), zeros(n * ports, COMING), zeros(n), np.full((n if sums else 0, ports * vcs, 3), -1, np.int32),
        zeros(packets or (channels + own) * depth + n, np.int32), np.zeros((trees, n), np.uint8),
        np.zeros((trees, n), np.uint8), np.zeros((0, 0), np.uint8), _first(), zeros(vcs, np.int32), zeros(most + 1, GRANT),
        zeros(64), zeros(8), zeros(8), zeros(most + 8), zeros(8, np.int64),
    )  # fmt: skip


def _places(rows: int, cols: int) -> Array:
    """Routers row after row."""
    router = np.zeros(rows * cols, ROUTER)
    router["row"], router["col"] = (axis.ravel() for axis in np.indices((rows, cols)))
    return router


def _ports(router: Array, rows: int, cols: int, ports: int, vcs: int) -> Array:
    """What each port leads to, and is fed by, shape (routers, 8); a flit takes each for a cycle."""
    count = len(router)
    port = np.zeros((count, 8), PORT)
    port["width"] = 1
    for way, (down, across) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
        row, col = router["row"] + down, router["col"] + across
        here = np.flatnonzero((row >= 0) & (row < rows) & (col >= 0) & (col < cols))
        there = here + down * cols + across
        port["onward"][here, way] = (there * ports + (way ^ 1)) * vcs
        port["back"][there, way ^ 1] = (here * ports + way) * vcs
    channels = count * ports * vcs
    for way in range(CORE, ports):
        port["onward"][:, way] = channels + (np.arange(count) * ports + way) * vcs
        port["back"][:, way] = channels + (np.arange(count) * (ports - CORE) + way - CORE) * vcs
    return port


def _outputs(port: Array, ports: int, vcs: int, depth: int, on_way: tuple[int, int]) -> Array:
    """Output channels with room for `depth` flits, and to and from cores for those on their way."""
    count = len(port)
    channels = count * ports * vcs
    out = np.zeros(channels + count * (ports - CORE) * vcs, OUT)
    out["credits"] = depth
    for way in range(CORE, ports):
        for first, more in zip((port["onward"][:, way] - channels, port["back"][:, way]), on_way, strict=True):
            out["credits"][first[:, None] + np.arange(vcs)] += more
    return out
