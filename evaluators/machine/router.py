"""Virtual-channel wormhole routers on a 2-D mesh, cycle by cycle, compiled.

A flit that comes to an empty input channel of its router waits for its route, asks for a virtual channel of the link that
it takes, asks for the switch, and is on the next router's input `forward` cycles later; what it leaves behind is a credit,
which counts where it came from `credit` cycles later. Both allocators are separable and round-robin, iSLIP with one
iteration [mckeown1999]: every output grants to the first asker at or after its pointer, every asker accepts the first grant
at or after its own, and pointers move past what was accepted. An input channel routes a packet when the one before it has
left: packets of one input channel are not pipelined. With speculation, heads ask for a channel and for the switch in one
cycle, and a turn of the switch is lost where no channel was got [becker2009].

A packet goes to one port of one router, along a tree (routers copy its flits to the branches, each as it is free), or is one of
the addends of a sum (routers wait until the flits of all that meet are there, and send one). A router that holds nothing is not
looked at. Links have a number of cycles a flit, ports one flit a turn.

Ports are east, west, south, north, the core's and, where there is one, a memory channel's. Input channels, and output channels,
are numbered (router ports + port) vcs + vc; those in which cores and channels keep what they know of their router's come after
them. A flit is a number: packet << 2, plus 2 for a tail, plus 1 for a head. All times are cycles.
"""

# mypy: disable-error-code="no-untyped-def,assignment"

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from space.elementwise import Array

HEAD, TAIL = 1, 2
CORE, MEMORY = 4, 5
WAITS, HAS = 1, 2
"""A branch of a packet: it waits for a channel, or has one, whose number is added."""

_plain = {"error_model": "numpy", "_nrt": False}
_inside = {**_plain, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_piece: Any = partial(njit, forceinline=True, **_inside)()
_part: Any = partial(njit, cache=True, **_inside)()
_loop: Any = partial(njit, cache=True, **_plain)()


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
    router = np.zeros(n, ROUTER)
    router["row"], router["col"] = (axis.ravel() for axis in np.indices((rows, cols)))
    port = np.zeros((n, 8), PORT)
    port["width"] = 1
    if width is not None:
        port["width"][:, :ports] = width
    for way, (down, across) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
        row, col = router["row"] + down, router["col"] + across
        here = np.flatnonzero((row >= 0) & (row < rows) & (col >= 0) & (col < cols))
        there = here + down * cols + across
        port["onward"][here, way] = (there * ports + (way ^ 1)) * vcs
        port["back"][there, way ^ 1] = (here * ports + way) * vcs
    for way in range(CORE, ports):
        port["onward"][:, way] = channels + (np.arange(n) * ports + way) * vcs
        port["back"][:, way] = channels + (np.arange(n) * (ports - CORE) + way - CORE) * vcs
    channel, out, place = np.zeros(channels, CHANNEL), np.zeros(channels + own, OUT), np.zeros(ports * vcs, PLACE)
    eject = forward if eject is None else eject
    channel["member"], out["credits"] = -1, depth
    ring = depth + (inject + local if roomy else 0)
    for way in range(CORE, ports if roomy else 0):
        for first, more in ((port["onward"][:, way] - channels, eject + credit), (port["back"][:, way], inject + local)):
            out["credits"][first[:, None] + np.arange(vcs)] += more
    place["port"], place["vc"] = np.divmod(np.arange(ports * vcs), vcs)
    slots = 1 << int(max(forward, eject, credit, inject, route + 1, local)).bit_length()
    most, at_once = ports * vcs * (ports if trees else 1), 2 * n * ports

    def zeros(count: int, kind: Any = np.uint32) -> Array:
        return np.zeros(count, kind)

    return Net(
        n, ports, vcs, ring, route, forward, eject, credit, inject, local, int(speculative), int(row_first),
        channels, most, at_once, slots - 1, place, np.repeat(np.arange(n, dtype=np.uint32), ports * vcs),
        zeros(channels * ring), channel, zeros(channels * 8, np.uint8), out, port.ravel(), router,
        zeros(n * most), zeros(n * most), zeros(slots, SLOT), zeros(slots * at_once, COMING), zeros(slots * at_once),
        zeros(slots * channels), zeros(n * ports, COMING), zeros(n), np.full((n if sums else 0, ports * vcs, 3), -1, np.int32),
        zeros(packets or (channels + own) * depth + n, np.int32), np.zeros((trees, n), np.uint8),
        np.zeros((trees, n), np.uint8), np.zeros((0, 0), np.uint8), _first(), zeros(vcs, np.int32), zeros(most + 1, GRANT),
        zeros(64), zeros(8), zeros(8), zeros(most + 8), zeros(8, np.int64),
    )  # fmt: skip


@_piece
def _wake(net, r):
    if net.router[r].living == 0:
        net.router[r].living = 1
        net.alive[net.sums[ALIVE]] = r
        net.sums[ALIVE] += 1


@_piece
def _towards(net, r, packet):
    """Ports that a packet takes from a router."""
    to = net.target[packet]
    if to < 0:
        return np.int64(net.tree_out[-1 - to, r])
    there = to >> 3
    if len(net.table) and there != r:
        return 1 << np.int64(net.table[r, there])
    across, down = net.router[there].col - net.router[r].col, net.router[there].row - net.router[r].row
    if across != 0 and (down == 0 or net.row_first == 0):
        return 1 if across > 0 else 2
    if down != 0:
        return 4 if down > 0 else 8
    return 1 << (to & 7)


@_piece
def _wants(net, r, entry):
    """A branch wants the switch."""
    net.turns[r * net.most + net.router[r].turning] = entry
    net.router[r].turning += 1


@_piece
def _ask(net, r, channel, ports):
    """The packet in front of an input channel asks for channels of the links that it takes."""
    net.channel[channel].mask = ports
    here = (channel - r * net.ports * net.vcs) << 3
    while ports:
        port = net.first[ports << 3]
        ports &= ports - 1
        net.branch[(channel << 3) + port] = WAITS
        net.asks[r * net.most + net.router[r].asking] = here + port
        net.router[r].asking += 1
        if net.speculative:
            _wants(net, r, here + port)
    _wake(net, r)


@_part
def _add(net, r, channel, packet, tree):
    """An addend has come to a router; whether all that meet there have, and so the chain of them can go on."""
    port = net.place[channel - r * net.ports * net.vcs].port
    needed = net.tree_in[tree, r]
    place = -1
    for at in range(net.adding.shape[1]):
        if net.adding[r, at, 0] == packet:
            place = at
            break
        if net.adding[r, at, 0] < 0 and place < 0:
            place = at
    if net.adding[r, place, 0] != packet:
        net.adding[r, place, 0], net.adding[r, place, 1], net.adding[r, place, 2] = packet, 0, -1
    net.adding[r, place, 1] |= 1 << port
    net.channel[channel].member = net.adding[r, place, 2]
    net.adding[r, place, 2] = channel
    if net.adding[r, place, 1] != needed:
        return False
    net.adding[r, place, 0] = -1
    return True


@_piece
def _begin(net, channel):
    """The head in front of an input channel has its route."""
    r = np.int64(net.router_of[channel])
    packet = np.int64(net.buffer[channel * net.depth + net.channel[channel].front]) >> 2
    to = net.target[packet]
    if to >= 0 or net.tree_in[-1 - to, r] == 0 or _add(net, r, channel, packet, -1 - to):
        _ask(net, r, channel, _towards(net, r, packet))


@_piece
def _later(net, channel, cycle):
    """The packet in front of an input channel has its route at a cycle."""
    slot = cycle & net.slots
    net.routing[slot * net.channels + net.slot[slot].routings] = channel
    net.slot[slot].routings += 1


@_piece
def _arrive(net, channel, flit, now):
    """A flit comes to an input channel."""
    count = np.int64(net.channel[channel].count)
    at = net.channel[channel].front + count
    if at >= net.depth:
        at -= net.depth
    net.buffer[channel * net.depth + at] = flit
    net.channel[channel].count = count + 1
    if net.channel[channel].busy == 0:
        net.channel[channel].busy = 1
        _later(net, channel, now + net.route)
    elif count == 0:
        r = np.int64(net.router_of[channel])
        here = (channel - r * net.ports * net.vcs) << 3
        ports = np.int64(net.channel[channel].mask)
        while ports:
            port = net.first[ports << 3]
            ports &= ports - 1
            if net.branch[(channel << 3) + port] >= HAS:
                _wants(net, r, here + port)
                _wake(net, r)


@_piece
def _leave(net, r, base, channel, flit, now):
    """The flit in front of an input channel, and those added to it, are gone: credits go back, the next packets are routed."""
    while channel >= 0:
        front = net.channel[channel].front + 1
        net.channel[channel].front = 0 if front == net.depth else front
        count = net.channel[channel].count - 1
        net.channel[channel].count = count
        port = net.place[channel - base].port
        slot = (now + (net.credit if port < CORE else net.local)) & net.slots
        net.credits_back[slot * net.at_once + net.slot[slot].returning] = (
            net.port[(r << 3) + port].back + net.place[channel - base].vc
        )
        net.slot[slot].returning += 1
        after = np.int64(net.channel[channel].member)
        if flit & TAIL:
            net.channel[channel].mask = 0
            net.channel[channel].member = -1
            if count:
                _later(net, channel, now + 1 + net.route)
            else:
                net.channel[channel].busy = 0
        channel = after


@_piece
def _send(net, r, base, here, port, now):
    """The branch that has won the switch sends its flit; whether it wants the switch no longer."""
    channel = base + here
    place = (channel << 3) + port
    vc = np.int64(net.branch[place]) - HAS
    out = base + port * net.vcs + vc
    flit = np.int64(net.buffer[channel * net.depth + net.channel[channel].front])
    net.out[out].credits -= 1
    net.port[(r << 3) + port].free = now + net.port[(r << 3) + port].width
    net.sums[CROSSED] += 1
    onward = np.int64(net.port[(r << 3) + port].onward) + vc
    slot = (now + (net.forward if port < CORE else net.eject)) & net.slots
    k = slot * net.at_once + net.slot[slot].comings
    net.coming[k].at = onward
    net.coming[k].flit = flit
    net.slot[slot].comings += 1
    if flit & TAIL:
        net.out[out].used = 0
        net.branch[place] = 0
    done = net.channel[channel].done | 1 << port
    if done == net.channel[channel].mask:
        done = 0
        _leave(net, r, base, channel, flit, now)
    net.channel[channel].done = done
    return flit & TAIL != 0 or net.channel[channel].count == 0


@_piece
def _accept(net, base, here, port, j, got, single):
    """Of the channels granted to an asker, the first at or after its pointer; how many have got one."""
    offset = net.channel[base + here].accept - port * net.vcs
    vc = offset if 0 <= offset < net.vcs else 0
    left = net.vcs
    while left:
        out = base + port * net.vcs + vc
        if (net.out[out].used == 0) if single else (net.offers[vc] == j):
            everyone = net.ports * net.vcs
            net.out[out].grant = here + 1 if here + 1 < everyone else 0
            after = port * net.vcs + vc + 1
            net.channel[base + here].accept = after if after < everyone else 0
            net.granted[got].place, net.granted[got].vc = j, vc
            return got + 1
        vc = vc + 1 if vc + 1 < net.vcs else 0
        left -= 1
    return got


@_piece
def _allocate(net, r, base):
    """Channels to those who ask for one: pairs of an entry's place and a channel, in `granted`; how many."""
    count, asks = np.int64(net.router[r].asking), r * net.most
    if count == 1:
        entry = np.int64(net.asks[asks])
        return _accept(net, base, entry >> 3, entry & 7, 0, 0, True)
    ports, got, j = 0, 0, 0
    while j < count:
        ports |= 1 << np.int64(net.asks[asks + j] & 7)
        j += 1
    while ports:
        port = np.int64(net.first[ports << 3])
        ports &= ports - 1
        vc = 0
        while vc < net.vcs:
            out = base + port * net.vcs + vc
            net.offers[vc] = -1
            nearest = 0 if net.out[out].used else net.ports * net.vcs
            j = 0
            while j < count:
                entry = np.int64(net.asks[asks + j])
                if entry & 7 == port:
                    far = (entry >> 3) - net.out[out].grant
                    far += net.ports * net.vcs if far < 0 else 0
                    if far < nearest:
                        nearest = far
                        net.offers[vc] = j
                j += 1
            vc += 1
        j = 0
        while j < count:
            entry = np.int64(net.asks[asks + j])
            if entry & 7 == port:
                got = _accept(net, base, entry >> 3, port, j, got, False)
            j += 1
    return got


@_piece
def _may_turn(net, r, base, here, port, now):
    """Whether a branch may ask for the switch: 2 with a channel, 1 without one yet, 0 not at all."""
    if net.port[(r << 3) + port].free > now:
        return 0
    channel = base + here
    branch = np.int64(net.branch[(channel << 3) + port])
    if branch >= HAS:
        if net.out[base + port * net.vcs + branch - HAS].credits <= 0 or net.channel[channel].done >> port & 1:
            return 0
        other = net.channel[channel].member
        while other >= 0:
            if net.channel[other].count == 0:
                return 0
            other = net.channel[other].member
        return 2
    out = base + port * net.vcs
    while out < base + port * net.vcs + net.vcs:
        if net.out[out].used == 0 and net.out[out].credits > 0:
            return 1
        out += 1
    return 0


@_piece
def _turn(net, r, i, here, port):
    """An input port has its turn: pointers move past it, past its channel and past the port that it goes to."""
    net.port[(r << 3) + i].accept = port + 1 if port + 1 < net.ports else 0
    vc = net.place[here].vc + 1
    net.port[(r << 3) + i].turn = vc if vc < net.vcs else 0
    net.port[(r << 3) + port].grant = i + 1 if i + 1 < net.ports else 0


@_piece
def _switch(net, r, base, now):
    """Turns of the switch to those who want one: their entries in `won`; how many."""
    count, turns = np.int64(net.router[r].turning), r * net.most
    if count == 1:
        entry = np.int64(net.turns[turns])
        here, port = entry >> 3, entry & 7
        if _may_turn(net, r, base, here, port, now) == 0:
            return 0
        _turn(net, r, np.int64(net.place[here].port), here, port)
        net.won[0] = entry
        return 1
    outs, got, j = 0, 0, 0
    while j < count:
        entry = np.int64(net.turns[turns + j])
        j += 1
        here, port = entry >> 3, entry & 7
        may = _may_turn(net, r, base, here, port, now)
        if may == 0:
            continue
        i = np.int64(net.place[here].port)
        if outs >> port & 1 == 0:
            outs |= 1 << port
            net.wanted[port] = 0
        best = (i << 3) + port
        if net.wanted[port] >> i & 1:
            other = np.int64(net.best[best])
            sure = (other & 1) + 1
            if may < sure:
                continue
            if may == sure:
                turn = net.port[(r << 3) + i].turn
                mine, theirs = net.place[here].vc - turn, net.place[other >> 4].vc - turn
                if mine + (net.vcs if mine < 0 else 0) > theirs + (net.vcs if theirs < 0 else 0):
                    continue
        net.wanted[port] |= 1 << i
        net.best[best] = entry << 1 | (may - 1)
    ins = 0
    while outs:
        port = np.int64(net.first[outs << 3])
        outs &= outs - 1
        i = np.int64(net.first[(np.int64(net.wanted[port]) << 3) + net.port[(r << 3) + port].grant])
        if ins >> i & 1 == 0:
            ins |= 1 << i
            net.offered[i] = 0
        net.offered[i] |= 1 << port
    while ins:
        i = np.int64(net.first[ins << 3])
        ins &= ins - 1
        offered = np.int64(net.offered[i])
        port = np.int64(net.first[(offered << 3) + net.port[(r << 3) + i].accept])
        chosen = np.int64(net.best[(i << 3) + port]) >> 1
        _turn(net, r, i, chosen >> 3, port)
        net.won[got] = chosen
        got += 1
        offered &= np.int64(net.channel[base + (chosen >> 3)].mask) & ~(1 << port)
        while offered:  # copies of a flit leave together
            other = np.int64(net.first[offered << 3])
            offered &= offered - 1
            if np.int64(net.best[(i << 3) + other]) >> 4 == chosen >> 3:
                net.port[(r << 3) + other].grant = i + 1 if i + 1 < net.ports else 0
                net.won[got] = np.int64(net.best[(i << 3) + other]) >> 1
                got += 1
    return got


@_piece
def _router(net, r, now):
    """A cycle of one router that holds something."""
    base, asks = r * net.ports * net.vcs, r * net.most
    granted = _allocate(net, r, base) if net.router[r].asking else 0
    won = _switch(net, r, base, now) if net.router[r].turning else 0
    k = 0
    while k < granted:
        entry, vc = np.int64(net.asks[asks + net.granted[k].place]), np.int64(net.granted[k].vc)
        port = entry & 7
        net.out[base + port * net.vcs + vc].used = 1
        net.branch[((base + (entry >> 3)) << 3) + port] = HAS + vc
        k += 1
    k, gone = 0, False
    while k < won:
        entry = np.int64(net.won[k])
        here, port = entry >> 3, entry & 7
        branch = np.int64(net.branch[((base + here) << 3) + port])
        if branch >= HAS and net.out[base + port * net.vcs + branch - HAS].credits > 0:
            gone |= _send(net, r, base, here, port, now)
        k += 1
    if gone:
        j, left, turning = 0, 0, np.int64(net.router[r].turning)
        while j < turning:
            entry = np.int64(net.turns[asks + j])
            channel = base + (entry >> 3)
            if net.branch[(channel << 3) + (entry & 7)] and net.channel[channel].count:
                net.turns[asks + left] = entry
                left += 1
            j += 1
        net.router[r].turning = left
    if granted:
        j, left, asking = 0, 0, np.int64(net.router[r].asking)
        while j < asking:
            entry = np.int64(net.asks[asks + j])
            if net.branch[((base + (entry >> 3)) << 3) + (entry & 7)] == WAITS:
                net.asks[asks + left] = entry
                left += 1
            elif net.speculative == 0:
                _wants(net, r, entry)
            j += 1
        net.router[r].asking = left


@_part
def _step(net, now):
    """A cycle of all routers; what comes to cores and channels is in `ejected`."""
    slot = now & net.slots
    first, k, count = slot * net.at_once, 0, np.int64(net.slot[slot].returning)
    while k < count:
        net.out[net.credits_back[first + k]].credits += 1
        k += 1
    net.slot[slot].returning = 0
    here, k, count = 0, 0, np.int64(net.slot[slot].comings)
    while k < count:
        at, flit = np.int64(net.coming[first + k].at), np.int64(net.coming[first + k].flit)
        k += 1
        if at < net.channels:
            _arrive(net, at, flit, now)
            continue
        net.ejected[here].at, net.ejected[here].flit = at - net.channels, flit
        here += 1
        back = (now + net.credit) & net.slots
        net.credits_back[back * net.at_once + net.slot[back].returning] = at - net.channels
        net.slot[back].returning += 1
    net.slot[slot].comings = 0
    net.sums[HERE] = here
    net.sums[ARRIVED] += here
    k, count = 0, np.int64(net.slot[slot].routings)
    while k < count:
        _begin(net, np.int64(net.routing[slot * net.channels + k]))
        k += 1
    net.slot[slot].routings = 0
    left, k, count = 0, 0, net.sums[ALIVE]
    while k < count:
        r = np.int64(net.alive[k])
        _router(net, r, now)
        if net.router[r].asking or net.router[r].turning:
            net.alive[left] = r
            left += 1
        else:
            net.router[r].living = 0
        k += 1
    net.sums[ALIVE] = left


@_piece
def _inject(net, r, port, vc, flit, now):
    """A core or memory channel sends a flit."""
    source = _own(net, r, port) + vc
    net.out[source].credits -= 1
    net.out[source].used = 0 if flit & TAIL else 1
    slot = (now + (net.inject if port == CORE else 0)) & net.slots
    k = slot * net.at_once + net.slot[slot].comings
    net.coming[k].at = (r * net.ports + port) * net.vcs + vc
    net.coming[k].flit = flit
    net.slot[slot].comings += 1
    net.sums[SENT] += 1


@_piece
def _own(net, r, port):
    """The first of the channels in which a core or memory channel keeps what it knows of its router's."""
    return net.channels + (r * (net.ports - CORE) + port - CORE) * net.vcs


@_piece
def _choose(net, source, last):
    """The next free channel after the one that a source used last, with room; -1 where there is none."""
    k = 1
    while k <= net.vcs:
        vc = last + k
        vc -= net.vcs if vc >= net.vcs else 0
        if net.out[source + vc].used == 0 and net.out[source + vc].credits > 0:
            return vc
        k += 1
    return -1


class Load(NamedTuple):
    """Sources that send packets at random times, open loop: they wait in their source for as long as they must.

    Attributes:
        chance: that a packet is made in a cycle.
        flits: of a packet.
        targets: nodes that each source sends to, each as likely, shape (sources, choices); any node where there are no choices.
        due: when each source's next packet is made; `left`: flits that it has still to send of the one before it.
        packet, vc: of that one; `last`: the channel used last.
        random: state of the generator.
        born, measured, hops: of each packet in flight; `unused`: numbers of packets, a stack, its height in `tally`.
        latencies: packets by latency, shape (cycles,), the last for all longer ones.
        tally: integers, see the places below.
    """

    chance: float
    flits: int
    targets: Array
    due: Array
    left: Array
    packet: Array
    vc: Array
    last: Array
    random: Array
    born: Array
    measured: Array
    hops: Array
    unused: Array
    latencies: Array
    tally: Array


UNUSED, MEASURED, RETIRED, LATENCY, HOPS, ACCEPTED, FLYING, FLYING_BORN, MADE = range(9)
"""Places of `Load.tally`: numbers left; measured packets in flight; packets that arrived, sum of their latencies and of routers
passed; flits that arrived; flits made and not arrived, and the sum of when they were made; packets made."""


def load(net: Net, chance: float, flits: int, targets: Array, seed: int, longest: int = 8192) -> Load:
    """Sources of a mesh, with nothing sent yet."""
    n, packets = net.routers, len(net.target)
    tally = np.zeros(9, np.int64)
    tally[UNUSED] = packets
    random = np.array([np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]], np.uint64)
    made = Load(
        chance, flits, targets.astype(np.int32), np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.int32),
        np.zeros(n, np.int32), np.full(n, -1, np.int32), random, np.zeros(packets, np.int64), np.zeros(packets, np.uint8),
        np.zeros(packets, np.int32), np.arange(packets, dtype=np.int32), np.zeros(longest, np.int64), tally,
    )  # fmt: skip
    _first_packets(made)
    return made


@_piece
def _draw(state):
    """A number of 64 bits: SplitMix64 [steele2014]."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_piece
def _gap(source):
    """Cycles until the next packet is made, at least 1: trials until the first success."""
    if source.chance >= 1.0:
        return 1
    u = (np.float64(_draw(source.random) >> np.uint64(11)) + 1.0) * 2.0**-53
    return 1 + int(min(np.log(u) / np.log1p(-source.chance), 2.0**40))


@_loop
def _first_packets(source):
    for node in range(len(source.due)):
        source.due[node] = _gap(source) - 1


@_piece
def _far(net, r, to):
    """Links of the way from a router to another."""
    if len(net.table) == 0:
        return abs(net.router[to].col - net.router[r].col) + abs(net.router[to].row - net.router[r].row)
    far = 0
    while r != to:
        r = np.int64(net.port[(r << 3) + net.table[r, to]].onward) // (net.ports * net.vcs)
        far += 1
    return far


@_piece
def _make(net, source, node, measured):
    """The packet of a source that is due."""
    source.tally[UNUSED] -= 1
    packet = source.unused[source.tally[UNUSED]]
    choices = source.targets.shape[1]
    k = np.int64(_draw(source.random) >> np.uint64(32)) * (choices if choices else net.routers) >> 32
    to = np.int64(source.targets[node, k]) if choices else k
    net.target[packet] = to << 3 | CORE
    source.born[packet] = source.due[node]
    source.measured[packet] = measured
    source.hops[packet] = _far(net, node, to) + 1
    source.tally[MEASURED] += measured
    source.tally[FLYING] += source.flits
    source.tally[FLYING_BORN] += source.flits * source.due[node]
    source.tally[MADE] += 1
    source.packet[node] = packet
    source.left[node] = source.flits
    source.due[node] += _gap(source)


@_piece
def _offer(net, source, node, now):
    """A source sends a flit of its packet if its router has room."""
    at = _own(net, node, CORE)
    head = source.left[node] == source.flits
    if head:
        vc = _choose(net, at, source.last[node])
        if vc < 0:
            return
        source.vc[node] = source.last[node] = vc
    vc = source.vc[node]
    if net.out[at + vc].credits > 0:
        tail = source.left[node] == 1
        source.left[node] -= 1
        _inject(net, node, CORE, vc, source.packet[node] << 2 | (TAIL if tail else 0) | (HEAD if head else 0), now)


WARMING, RUNNING, DRAINING = range(3)
"""What counts: all that arrives; flits that arrive, and packets made meanwhile; what is left of these."""


@_loop
def run(net, source, now, until, phase, measured_before):
    """Cycles from `now` to `until`, or to the end of draining; the next cycle.

    Draining ends when all measured packets have arrived and sources have made all that were due before `measured_before`.
    """
    while now < until:
        for node in range(net.routers):
            if source.left[node] == 0:
                if source.due[node] > now:
                    continue
                measured = phase == RUNNING or (phase == DRAINING and source.due[node] < measured_before)
                _make(net, source, node, 1 if measured else 0)
            _offer(net, source, node, now)
        _step(net, now)
        for k in range(net.sums[HERE]):
            flit = np.int64(net.ejected[k].flit)
            packet = flit >> 2
            source.tally[FLYING] -= 1
            source.tally[FLYING_BORN] -= source.born[packet]
            source.tally[ACCEPTED] += phase != DRAINING
            if flit & TAIL:
                source.unused[source.tally[UNUSED]] = packet
                source.tally[UNUSED] += 1
                source.tally[MEASURED] -= source.measured[packet]
                if phase == WARMING or source.measured[packet]:
                    latency = now - source.born[packet]
                    source.tally[RETIRED] += 1
                    source.tally[LATENCY] += latency
                    source.tally[HOPS] += source.hops[packet]
                    source.latencies[min(latency, len(source.latencies) - 1)] += 1
        now += 1
        if phase == DRAINING and source.tally[MEASURED] == 0:
            waiting = 0
            for node in range(net.routers):
                waiting += source.due[node] < measured_before
            if waiting == 0:
                break
    return now


class Tasks(NamedTuple):
    """What is done in what order: a task is ready when all before it are done.

    Attributes:
        kind: a word of `NOTE`, `WORK`, `BLOCK`, `PACKET`.
        on: the engine or memory channel of a task, or its packet.
        busy: that it takes its engine, or bytes of a block.
        after: from its start until what waits for it may start.
        needs: tasks before it that are not done.
        ready: when they are.
        first, then: tasks after it, `then[first[i]:first[i + 1]]`.
        queued: the next task that waits for the same engine.
        done: when it was.
    """

    kind: Array
    on: Array
    busy: Array
    after: Array
    needs: Array
    ready: Array
    first: Array
    then: Array
    queued: Array
    done: Array


NOTE, WORK, BLOCK, PACKET = range(4)
"""Kinds of tasks: a time; work of an engine; a block that a memory channel serves; a packet that a router is given."""


class Packets(NamedTuple):
    """Packets of tasks.

    Attributes:
        router, port: where it comes from: a core, or a memory channel.
        number: of it in the network: addends of one sum have the same.
        flits: of it; `pace`: cycles from one to the next; `sent` and `came`: how many did; `due`: when the next may go.
        feeder: a packet whose flits these continue, -1 for none.
        left, head, tail: tasks that are done when it has left, when its first flit arrives and when its last does; -1 for none.
            Those of a tree begin at `tail`, in the order of `place`.
        line: the next packet that waits at the same place.
        far: links from end to end, for circuits.
        owed: flits of it that are to arrive, all together; an addend's are those of the first one.
        ahead: channels of its circuit that it does not have yet.
    """

    router: Array
    port: Array
    number: Array
    flits: Array
    pace: Array
    sent: Array
    came: Array
    due: Array
    feeder: Array
    left: Array
    head: Array
    tail: Array
    line: Array
    far: Array
    owed: Array
    ahead: Array


class Floor(NamedTuple):
    """Who works on tasks, and what is going to happen.

    Attributes:
        free: until when each engine or channel is busy; `queue`: first and last task that waits for it, -1 for none.
        waiting: first and last packet at each place that sends, -1; `vc`, `last`: channels there; `sending`, `place_sends`:
            places with packets.
        latency, byte, crowded: of memory channels, in cycles.
        of: packet by its number in the network.
        place: of each tree and router, which of the tree's members it is.
        when, what: a heap of times and of what happens: a task << 2 is done, or its packet has `COME`, or an engine << 2 is
            `FREE`; or less than 0, a circuit's end.
        stack: tasks that have just become ready.
        locks: first and last in the line of each channel of circuits (a link, both ways; each core's way out and in), -1 for
            none; `asker` and `next_asker` make the lines, in the order in which packets ask.
        locked: whether packets of cores take circuits; `trip`: cycles between cores and their routers, out and in; `hop`: from
            router to router.
        counts: places below.
    """

    free: Array
    queue: Array
    waiting: Array
    vc: Array
    last: Array
    sending: Array
    place_sends: Array
    latency: float
    byte: float
    crowded: float
    of: Array
    place: Array
    when: Array
    what: Array
    stack: Array
    locks: Array
    asker: Array
    next_asker: Array
    locked: int
    trip: float
    hop: float
    counts: Array


HEAP, STACK, SENDING, DONE, STILL, OWED, NODES = range(7)
"""Places of `Floor.counts`: of events, of the stack, of places that send; tasks done; cycles in which nothing moved; flits that
are to arrive of all packets that have been sent; places in lines for channels that have been given."""

FREE, COME = 1, 2
"""What happens, beside that a task is done."""

PATIENCE = 4096
"""Cycles in which flits are there and none moves, and nothing else is going to happen, until it is called a deadlock."""


@_piece
def _push(floor, time, what):
    k = floor.counts[HEAP]
    floor.counts[HEAP] += 1
    while k > 0:
        up = (k - 1) >> 1
        if floor.when[up] <= time:
            break
        floor.when[k], floor.what[k] = floor.when[up], floor.what[up]
        k = up
    floor.when[k], floor.what[k] = time, what


@_piece
def _pop(floor):
    """Takes what happens next off the heap, whose first place it was at."""
    floor.counts[HEAP] -= 1
    n = floor.counts[HEAP]
    time, what = floor.when[n], floor.what[n]
    k = 0
    while 2 * k + 1 < n:
        down = 2 * k + 1
        if down + 1 < n and floor.when[down + 1] < floor.when[down]:
            down += 1
        if time <= floor.when[down]:
            break
        floor.when[k], floor.what[k] = floor.when[down], floor.what[down]
        k = down
    floor.when[k], floor.what[k] = time, what


@_part
def _start(floor, tasks, task, time):
    """An engine begins with a task, or a channel with a block."""
    on = tasks.on[task]
    busy, after = tasks.busy[task], tasks.after[task]
    if tasks.kind[task] == BLOCK:
        busy *= floor.crowded if time > tasks.ready[task] else floor.byte
        after = max(floor.latency, busy + floor.latency - after)
    floor.free[on] = time + busy
    _push(floor, time + after, task << 2)
    _push(floor, time + busy, on << 2 | FREE)


@_piece
def _join(floor, packets, packet, lock):
    """A packet asks for a channel, after all that asked before it."""
    node = floor.counts[NODES]
    floor.counts[NODES] += 1
    floor.asker[node], floor.next_asker[node] = packet, -1
    if floor.locks[lock, 0] < 0:
        floor.locks[lock, 0] = node
    else:
        floor.next_asker[floor.locks[lock, 1]] = node
        packets.ahead[packet] += 1
    floor.locks[lock, 1] = node


@_piece
def _release(floor, packets, lock, time):
    """A channel goes to the packet that asked for it next, which starts if that was the last that it waited for."""
    node = floor.next_asker[floor.locks[lock, 0]]
    floor.locks[lock, 0] = node
    if node >= 0:
        packet = floor.asker[node]
        packets.ahead[packet] -= 1
        if packets.ahead[packet] == 0:
            _connect(floor, packets, packet, time)


@_part
def _connect(floor, packets, packet, time):
    """A packet has its circuit: a request crosses the way, a grant comes back, and flits follow."""
    trips = 3 * (floor.trip + packets.far[packet] * floor.hop)
    _push(floor, time + trips + packets.flits[packet] * packets.pace[packet], -1 - packet)


@_part
def _circuit(net, floor, packets, packet, time, ends):
    """A packet asks for all channels of its way, or gives them back: links, for both directions at once, and ends."""
    r = np.int64(packets.router[packet])
    to = np.int64(net.target[packets.number[packet]]) >> 3
    for lock in (2 * net.routers + r, 3 * net.routers + to):
        if ends:
            _release(floor, packets, lock, time)
        else:
            _join(floor, packets, packet, lock)
    while r != to:
        port = np.int64(net.first[_towards(net, r, packets.number[packet]) << 3])
        on = np.int64(net.port[(r << 3) + port].onward) // (net.ports * net.vcs)
        lock = 2 * min(r, on) + (port >> 1)
        if ends:
            _release(floor, packets, lock, time)
        else:
            _join(floor, packets, packet, lock)
        r = on
    if not ends and packets.ahead[packet] == 0:
        _connect(floor, packets, packet, time)


@_part
def _ready(net, floor, tasks, packets):
    """Everything that has become ready begins, and what is done at once makes others ready."""
    while floor.counts[STACK]:
        floor.counts[STACK] -= 1
        task = floor.stack[floor.counts[STACK]]
        time, kind, on = tasks.ready[task], tasks.kind[task], tasks.on[task]
        if kind == PACKET:
            packets.due[on] = time
            floor.counts[DONE] += 1
            if floor.locked and net.target[packets.number[on]] >= 0 and packets.port[on] == CORE:
                _circuit(net, floor, packets, on, time, False)
                continue
            at = packets.router[on] * (net.ports - CORE) + packets.port[on] - CORE
            packets.line[on] = -1
            if floor.waiting[at, 0] < 0:
                floor.waiting[at, 0] = on
            else:
                packets.line[floor.waiting[at, 1]] = on
            floor.waiting[at, 1] = on
            if floor.sending[at] == 0:
                floor.sending[at] = 1
                floor.place_sends[floor.counts[SENDING]] = at
                floor.counts[SENDING] += 1
        elif kind == NOTE:
            if tasks.after[task] > 0:
                _push(floor, time + tasks.after[task], task << 2)
            else:
                _finish(floor, tasks, task, time)
        elif floor.queue[on, 0] < 0 and floor.free[on] <= time:
            floor.queue[on, 0] = floor.queue[on, 1] = task
            _start(floor, tasks, task, time)
        else:
            tasks.queued[task] = -1
            tasks.queued[floor.queue[on, 1]] = task
            floor.queue[on, 1] = task


@_piece
def _finish(floor, tasks, task, time):
    """A task is done; those that waited for it alone are ready."""
    tasks.done[task] = time
    floor.counts[DONE] += 1
    k = tasks.first[task]
    while k < tasks.first[task + 1]:
        after = tasks.then[k]
        k += 1
        tasks.ready[after] = max(tasks.ready[after], time)
        tasks.needs[after] -= 1
        if tasks.needs[after] == 0:
            floor.stack[floor.counts[STACK]] = after
            floor.counts[STACK] += 1


@_part
def _happen(net, floor, tasks, packets, now):
    """Everything that happens until a cycle."""
    while floor.counts[HEAP] and floor.when[0] <= now:
        time, what = floor.when[0], floor.what[0]
        _pop(floor)
        if what < 0:
            packet = -1 - what
            _circuit(net, floor, packets, packet, time, True)
            for task in (packets.left[packet], packets.tail[packet]):
                if task >= 0:
                    _push(floor, time, task << 2 | COME)
        elif what & 3 == COME:
            task = what >> 2
            tasks.ready[task] = time
            floor.stack[floor.counts[STACK]] = task
            floor.counts[STACK] += 1
        elif what & 3 == FREE:
            on = what >> 2
            task = tasks.queued[floor.queue[on, 0]]
            floor.queue[on, 0] = task
            if task >= 0:
                _start(floor, tasks, task, time)
        else:
            _finish(floor, tasks, what >> 2, time)
        if floor.counts[STACK]:
            _ready(net, floor, tasks, packets)


@_piece
def _hand_over(net, floor, packets, at, now):
    """A place that sends gives its router a flit, if it may; whether it has no packets left."""
    packet = np.int64(floor.waiting[at, 0])
    port = np.int64(packets.port[packet])
    r = np.int64(packets.router[packet])
    source = _own(net, r, port)
    sent = packets.sent[packet]
    feeder = packets.feeder[packet]
    if packets.due[packet] > now or (feeder >= 0 and packets.came[feeder] <= sent):
        return False
    if sent == 0:
        vc = _choose(net, source, floor.last[at])
        if vc < 0:
            return False
        floor.vc[at] = floor.last[at] = vc
    vc = floor.vc[at]
    if net.out[source + vc].credits <= 0:
        return False
    tail = sent + 1 == packets.flits[packet]
    _inject(net, r, port, vc, packets.number[packet] << 2 | (TAIL if tail else 0) | (HEAD if sent == 0 else 0), now)
    packets.sent[packet] = sent + 1
    packets.due[packet] = max(packets.due[packet], now - 1.0) + packets.pace[packet]
    if not tail:
        return False
    if packets.left[packet] >= 0:
        _push(floor, now + packets.pace[packet], packets.left[packet] << 2 | COME)
    floor.counts[OWED] += packets.owed[packet]
    floor.waiting[at, 0] = packets.line[packet]
    return floor.waiting[at, 0] < 0


@_loop
def perform(net, floor, tasks, packets):
    """Does all tasks; whether it came to its end, or has nothing left that could happen."""
    now = np.int64(0)
    _ready(net, floor, tasks, packets)
    while True:
        _happen(net, floor, tasks, packets, now)
        quiet = floor.counts[SENDING] == 0 and floor.counts[OWED] == net.sums[ARRIVED]
        if quiet and floor.counts[STILL] > net.slots:
            if floor.counts[HEAP] == 0:
                return floor.counts[DONE] == len(tasks.kind)
            now = np.int64(np.ceil(floor.when[0]))
            continue
        k, left, moved = 0, 0, net.sums[CROSSED] + net.sums[SENT]
        while k < floor.counts[SENDING]:
            at = np.int64(floor.place_sends[k])
            if _hand_over(net, floor, packets, at, now):
                floor.sending[at] = 0
            else:
                floor.place_sends[left] = at
                left += 1
            k += 1
        floor.counts[SENDING] = left
        _step(net, now)
        k = 0
        while k < net.sums[HERE]:
            at, flit = np.int64(net.ejected[k].at), np.int64(net.ejected[k].flit)
            k += 1
            packet = np.int64(floor.of[flit >> 2])
            packets.came[packet] += 1
            task = np.int64(packets.tail[packet])
            to = net.target[flit >> 2]
            if to < 0:
                task += floor.place[-1 - to, at // (net.ports * net.vcs)]
            if flit & TAIL:
                _push(floor, now + packets.pace[packet], task << 2 | COME)
            if flit & HEAD and packets.head[packet] >= 0:
                _push(floor, now + 1.0, packets.head[packet] << 2 | COME)
        floor.counts[STILL] = 0 if net.sums[CROSSED] + net.sums[SENT] > moved or net.sums[HERE] else floor.counts[STILL] + 1
        if floor.counts[STILL] > PATIENCE and not quiet:
            if floor.counts[HEAP] == 0:
                return False
            now = max(now, np.int64(np.ceil(floor.when[0])) - 1)
        now += 1
