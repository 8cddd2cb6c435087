"""What dies do together on routers of a mesh, flit by flit: the messages of `events_dies`, one design at a time.

Each die has a router of virtual channels, whose links take so many cycles for a flit as its port to the die takes fewer.
Routers are a mesh, or one whose ends are joined: a torus, or a ring, which is one row. Half of the channels of such are for
packets that have yet to cross a joint of the line that they are on, so that none wait for one another in a circle ([dally2004]
section 14.2.3).
Packets go in the order in which a die sends; who waits for room holds what is behind it in its channel, as links by themselves
do not. Channels share a link's credits evenly: where these are few, so are the channels, since a packet that waits for its own
one's credits leaves those of others unused. A flit's credit goes back as it comes to a die, whose memory takes it, or (`held`)
as it leaves that again, and buffers are as deep as credits say; where those are not said, deeper than anything waits for.
"""

from functools import lru_cache

import numpy as np

from dse.evaluators.machine.d2d import Level, crossings, routes, shortest
from dse.evaluators.machine.net import CORE, Net, network
from dse.evaluators.machine.tasks import NOTE, PACKET, STACK, Floor, Packets, Tasks, perform
from dse.evaluators.readers.cycles import deadlock
from dse.evaluators.readers.die_exchange import BARRIER
from dse.evaluators.readers.events_dies import CHUNK, Played
from dse.space.elementwise import Array
from dse.space.errors import DesignError

VCS = 16
"""Virtual channels of a port, at most: as many as routers are played with."""

FLITS = 32
"""Of a message of middle length: fewer, and rounding of the others shows; more take longer to play."""

PACKED = 4
"""Flits of a packet, at most."""

MOST = 40_000_000
"""Flits times the links that they cross that are played: some minutes."""

DEEP = 512
"""Flits of a channel, at least, where credits make nobody wait."""

SHALLOW = 64
"""Flits of a link's credits, at least: whole numbers of fewer would be far from what is said."""

HOPS = 2, 1024
"""Cycles of a hop: at least its router's one and its link's one; of longer ways flits may be rounded, which they hide."""

LINES = ("mesh", "torus", "ring")
"""Topologies whose dies need a router of four links at most."""

WIDTHS = 16
"""Cycles of a flit on a link, at most."""


def messages(
    level: Level,
    source: Array,
    target: Array,
    nbytes: Array,
    *,
    then: Array | None = None,
    barrier: float = BARRIER,
    interleave: bool = True,
    held: bool = False,
    chunk: float = CHUNK,
) -> Played:
    """As `events_dies.messages`; `chunk` makes no difference, as packets are the routers' own.

    Raises:
        DesignError: links that routers do not have, more flits than can be played, or packets that wait for one another.
    """
    if level.topology not in LINES or level.outer is not None:
        have = "dies in boxes" if level.outer is not None else f"a {level.topology}"
        raise DesignError(
            f"fidelity: cycles plays routers of four links, a {', '.join(LINES)}, not {have}; events plays them all"
        )
    of = routes(level.rows, level.cols, level.topology)
    moves = (source != target) & (nbytes > 0)
    done = np.zeros(len(source))
    over, far = crossings(of, (source * level.dies + target)[moves])
    links = np.bincount(over, np.repeat(nbytes[moves], far), len(of.ends))
    if not moves.any():
        return Played(0.0, done, links)
    onward = np.full(int(moves.sum()), -1) if then is None else then
    wide, ported = _widths(level)
    flit, cycle, hop = _flit(level, nbytes[moves], wide)
    flits = np.maximum(np.round(nbytes[moves] / flit), 1).astype(np.int64)
    if int(flits @ far) > MOST:
        raise DesignError(f"fidelity: cycles would play {int(flits @ far):,} flits over links; {MOST:,} at most, or events")
    tasks, packets, targets = _packed(level, source[moves], target[moves], flits, onward, interleave=interleave, pace=ported)
    most = 0 if held or level.credits <= 0 else int(np.bincount(over, np.repeat(flits, far)).max())
    net = _routers(level, targets, (flit, hop), wide, ported, most)
    if not perform(net, _floor(level, tasks, packets), tasks, packets):
        raise DesignError(f"fidelity: deadlock: {deadlock(net, level.cols)}; give chip.d2d.credits more")
    done[moves] = tasks.done[-len(flits) :] * cycle
    return Played(float(done.max()) + barrier, done, links)


def _widths(level: Level) -> tuple[int, int]:
    """Cycles of a flit on a link and at a die's port, whole numbers that are nearest to what these take.

    >>> _widths(Level(4, 4, "mesh", 4, 1e12, 256e-9)), _widths(Level(4, 4, "mesh", 4, 1e12, 256e-9, inject=1.5e12))
    ((4, 1), (3, 2))
    """
    ports = float(level.injection) / float(level.rate)
    some = [(wide, max(round(wide / ports), 1)) for wide in range(1, WIDTHS + 1)]
    return min(some, key=lambda pair: (round(abs(pair[0] / pair[1] / ports - 1), 3), pair[0]))


def _flit(level: Level, nbytes: Array, wide: int) -> tuple[float, float, int]:
    """Bytes of a flit, a cycle [s], and cycles of a hop: as many bytes as make that a whole number."""
    bandwidth, latency = float(level.bandwidth), float(level.latency)
    flit = float(np.median(nbytes)) / FLITS
    if level.credits > 0:
        flit = min(flit, float(level.credits) / SHALLOW)
    hop = min(max(round(latency * bandwidth * wide / flit), HOPS[0]), HOPS[1])
    flit = latency * bandwidth * wide / hop if latency > 0 else flit
    return flit, flit / bandwidth / wide, hop


def _packed(
    level: Level, source: Array, target: Array, flits: Array, then: Array, *, interleave: bool, pace: int
) -> tuple[Tasks, Packets, Array]:
    """Tasks and packets of messages, and targets of packets: each packet's start, its arrival, and each message's end."""
    pieces = -(-flits // PACKED)
    message = np.repeat(np.arange(len(flits)), pieces)
    place = np.arange(len(message)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    order = np.lexsort((message, place)) if interleave else np.arange(len(message))
    message, place = message[order], place[order]
    size = np.minimum(flits[message] - place * PACKED, PACKED)
    count, ends = len(message), len(flits)
    waits = np.zeros(ends, np.int64)
    waits[then[then >= 0]] = 1
    needs = np.concatenate([waits[message], np.ones(count, np.int64), pieces]).astype(np.int32)
    after = np.concatenate([np.zeros(count, np.int64), 2 * count + message])  # of starts, of arrivals
    begun = [np.flatnonzero(message == one) if one >= 0 else np.zeros(0, np.int64) for one in then.tolist()]
    lists = np.concatenate([[0] * count, [1] * count, [len(of) for of in begun]]).astype(np.int64)
    onward = np.concatenate([after[count:], *begun]) if ends else after
    none, empty = np.full(count, -1), np.zeros(count, np.int64)
    kind = np.concatenate([np.full(count, PACKET), np.full(count + ends, NOTE)]).astype(np.uint8)
    total = len(kind)
    tasks = Tasks(
        kind, np.append(np.arange(count), np.zeros(count + ends, np.int64)), np.zeros(total), np.zeros(total), needs,
        np.zeros(total), np.concatenate([[0], np.cumsum(lists)]), onward.astype(np.int64), np.full(total, -1), np.zeros(total),
    )  # fmt: skip
    packets = Packets(
        source[message].astype(np.int64), np.full(count, CORE), np.arange(count), size, np.full(count, float(pace)), empty,
        empty.copy(), np.zeros(count), none, none.copy(), none.copy(), count + np.arange(count), none.copy(), empty.copy(),
        size.copy(), empty.copy(),
    )  # fmt: skip
    return tasks, packets, (target[message] << 3) + CORE


def _routers(level: Level, targets: Array, hop: tuple[float, int], wide: int, ported: int, most: int) -> Net:
    """Empty routers, with buffers for as many flits as credits say.

    Args:
        level, targets: the network, and where packets go.
        hop: bytes of a flit, and cycles of a hop.
        wide, ported: cycles of a flit on a link, and at a port.
        most: flits over a link, where memory takes them; 0 where routers hold them.
    """
    flit, far = hop
    trip, joined = 2 * far // wide + 2, level.topology != "mesh"
    own = VCS // 2 if joined else VCS  # channels that a packet may have: of few credits each has a round trip's
    if level.credits > 0 and level.latency > 0:  # but two let packets by, where no joint has channels apart
        own = min(max(round(level.credits / (2 * level.latency * level.bandwidth)), 1 if joined else 2), own)
    depth = max(round(level.credits / flit / own), 1) if level.credits > 0 else max(DEEP, 2 * trip)
    width = np.full((level.dies, CORE + 1), wide)
    width[:, CORE] = ported
    rows, cols = (1, level.dies) if level.topology == "ring" else (level.rows, level.cols)
    net = network(
        rows, cols, 2 * own if joined else own, depth, route=0, forward=far - 1, credit=far, eject=1,
        inject=1, local=1, roomy=True, closed=joined, stored=most, width=width, packets=len(targets),
    )  # fmt: skip
    net.target[:] = targets
    if not joined:
        return net
    table, around = ways(rows, cols)
    return net._replace(table=table, around=around, apart=own)


@lru_cache(maxsize=16)
def ways(rows: int, cols: int) -> tuple[Array, Array]:
    """Of a torus, the port from each router to each other one, and whether the way along its line crosses where that is joined.

    >>> port, crosses = ways(1, 5)
    >>> port[3].tolist()[:3], crosses[3].tolist()
    ([0, 1, 1], [True, False, False, False, False])
    """
    here, there = np.indices((rows * cols, rows * cols))
    across = shortest(here % cols, there % cols, cols, True)
    down = shortest(here // cols, there // cols, rows, True)
    port = np.where(across != 0, (across < 0) * 1, 2 + (down < 0)).astype(np.uint8)
    to, side = np.where(across != 0, here % cols + across, here // cols + down), np.where(across != 0, cols, rows)
    return port, (to < 0) | (to >= side)


def _floor(level: Level, tasks: Tasks, packets: Packets) -> Floor:
    """Nobody computes: who sends, and what has begun."""
    begin = np.flatnonzero(tasks.needs == 0)
    stack, counts = np.zeros(len(tasks.kind) + 1, np.int64), np.zeros(8, np.int64)
    stack[: len(begin)], counts[STACK] = begin[::-1], len(begin)
    events, dies = len(tasks.kind) + len(packets.router) + 1, level.dies

    def nobody(*shape: int) -> Array:
        return np.full(shape, -1, np.int64)

    return Floor(
        np.zeros(0), nobody(0, 2), nobody(dies, 2), np.zeros(dies, np.int64), nobody(dies), np.zeros(dies, np.uint8),
        np.zeros(dies, np.int64), 0.0, 0.0, 0.0, np.arange(len(packets.router)), np.zeros((0, dies), np.int32),
        np.zeros(events), np.zeros(events, np.int64), stack, nobody(4 * dies, 2), nobody(0), 0, 0.0, 0.0, counts,
    )  # fmt: skip
