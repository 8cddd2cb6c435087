"""Cycle-level simulation of exchanges between dies over the links of any network.

It simulates the messages of `event_die_network` flit by flit, one design at a time.

Dies are joined along lines, each to each, behind a switch, or in nodes with a network between: `machine.flit_simulator` has
crossbars of as many links as meet at a die or a switch, and a port of each die for each network that sends, and one that
receives. On a line that is joined at its ends half of the channels are for packets that have yet to cross the joint, so that
none wait for one another in a circle ([dally2004] section 14.2.3). Channels share a link's credits evenly: where these are few,
so are the channels, since a packet that waits for its own one's credits leaves those of others unused. Ports hold what waits
there, and their credits are not counted.
"""

import numpy as np

from dse.evaluators.cost_models.event_die_network import CHUNK_BYTES, DieNetLinks, ExchangeResult, die_net_links
from dse.evaluators.machine.die_network import DieNetworkLevel
from dse.evaluators.machine.flit_simulator import ENDLESS, FLITS_PER_WORD, VCS, FlitLinks, FlitPackets, send_packets
from dse.space.array_math import Array
from dse.space.errors import DesignError

FLITS = 32
"""Flits of a message of middle length: with fewer, rounding of the others shows; more take longer to simulate."""

MAX_FLITS = 40_000_000
"""Largest number of flits times links that is simulated: half a minute of CPU time or more, at a million per second."""

MIN_BUFFER = 64
"""Fewest flits of a link's credits: with fewer, rounding to whole flits would change the credits too much."""

MAX_WIDTHS = 16
"""Cycles of a flit on the fastest link, at most."""


def simulate_messages(
    level: DieNetworkLevel,
    source: Array,
    target: Array,
    nbytes: Array,
    *,
    then: Array | None = None,
    interleave: bool = True,
    held: bool = False,
    chunk: float = CHUNK_BYTES,
) -> ExchangeResult:
    """Simulate messages between dies flit by flit; as `event_die_network.simulate_messages`.

    Raises:
        DesignError: more flits than can be simulated, or packets that wait for one another.
    """
    moves = (source != target) & (nbytes > 0)
    done = np.zeros(len(source))
    over = die_net_links(level, source[moves], target[moves])
    far = np.diff(over.first)
    links = np.bincount(over.over, np.repeat(nbytes[moves], far), len(over.byte))
    if not moves.any():
        return ExchangeResult(0.0, done, links)
    onward = np.full(int(moves.sum()), -1) if then is None else then
    flit, cycle, wide = _flit(level, over, nbytes[moves])
    flits = np.maximum(np.round(nbytes[moves] / flit), 1).astype(np.int64)
    if int(flits @ far) > MAX_FLITS:
        raise DesignError(
            f"fidelity: cycles can simulate {MAX_FLITS:,} flits over links, got {int(flits @ far):,}; use fidelity=events"
        )
    sent = _packets(over, flits, onward, interleave=interleave)
    send_packets(_links(level, over, sent, flit, cycle, wide, held=held), sent)
    if left := np.count_nonzero(sent.left):
        raise DesignError(f"chip.d2d.credits: {left} messages between dies are in a deadlock; increase the credits")
    done[moves] = sent.done * cycle
    return ExchangeResult(float(done.max()) + level.barrier, done, links)


def _flit(level: DieNetworkLevel, over: DieNetLinks, nbytes: Array) -> tuple[float, float, Array]:
    """Bytes of a flit, a cycle [s], and cycles that a flit takes on each link and at each die's port, whole numbers."""
    paces = np.concatenate([over.byte, over.ported])
    fastest, ratios = paces.min(), paces / paces.min()
    widths = np.round(ratios * np.arange(1, MAX_WIDTHS + 1)[:, None])
    apart = np.abs(widths / (ratios * np.arange(1, MAX_WIDTHS + 1)[:, None]) - 1).max(axis=1)
    fine = int(np.argmin(np.round(apart, 3))) + 1
    flit = float(np.median(nbytes)) / FLITS
    if level.credits > 0:
        flit = min(flit, float(level.credits) / MIN_BUFFER)
    return flit, flit * fastest / fine, widths[fine - 1].astype(np.int64)


def _packets(over: DieNetLinks, flits: Array, then: Array, *, interleave: bool) -> FlitPackets:
    """Packets of messages in the order in which dies send, and ways with the ports at both ends."""
    pieces = -(-flits // FLITS_PER_WORD)
    message = np.repeat(np.arange(len(flits)), pieces)
    place = np.arange(len(message)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    if interleave:
        order = np.lexsort((message, place))
        message, place = message[order], place[order]
    count, channels = len(message), (len(over.byte) + 2 * len(over.ported)) * VCS
    waits = np.zeros(len(flits), np.uint8)
    waits[then[then >= 0]] = 1
    first, ways, kind = _ways(over)
    far = np.diff(first)[message]
    own = channels + np.cumsum(far) - far
    none = np.full(channels + int(far.sum()), -1, np.int64)
    return FlitPackets(
        first,
        ways,
        kind,
        message,
        np.minimum(flits[message] - place * FLITS_PER_WORD, FLITS_PER_WORD),
        own,
        np.concatenate([[0], np.cumsum(pieces)]),
        np.argsort(message, kind="stable"),
        pieces.copy(),
        then.astype(np.int64),
        np.zeros(len(flits), np.int64),
        waits,
        np.zeros(count * FLITS_PER_WORD, np.int64),
        np.zeros(count * FLITS_PER_WORD, np.int64),
        np.full(count * FLITS_PER_WORD, -1),
        none,
        none.copy(),
        none.copy(),
        none.copy(),
    )


def _ways(over: DieNetLinks) -> tuple[Array, Array, Array]:
    """Where the way of each message begins, its links from port to port, and kinds of channels on them.

    On a line that is joined at its ends a packet has the second kind from the joint on.
    """
    far, links, ports = np.diff(over.first), len(over.byte), len(over.ported)
    first = over.first + 2 * np.arange(len(over.first))
    ways, kind = np.zeros(int(first[-1]), np.int64), np.zeros(int(first[-1]), np.int64)
    ways[first[:-1]], ways[first[1:] - 1] = links + over.source, links + ports + over.target
    inside = np.ones(len(ways), bool)
    inside[first[:-1]] = inside[first[1:] - 1] = False
    ways[inside] = over.over
    for step in range(1, int(far.max(initial=0))):
        at = over.first[:-1][far > step] + step
        before, current, given_step = over.over[at - 1], over.over[at], first[:-1][far > step] + step + 1
        same = over.line[before] == over.line[current]
        kind[given_step] = np.where(same, np.maximum(kind[given_step - 1], over.closes[before]), 0)
    return first, ways, kind


def _links(
    level: DieNetworkLevel, over: DieNetLinks, sent: FlitPackets, flit: float, cycle: float, wide: Array, *, held: bool
) -> FlitLinks:
    """Empty links, ports that send after those of the network and then ports that receive."""
    ports, joined = len(over.ported), bool(over.closes.any())
    widths = np.concatenate([wide, wide[len(over.byte) :]])
    count = len(widths)
    hop = np.ones(count, np.int64)
    hop[: len(over.byte)] = np.maximum(np.round(over.latency / cycle), 1)
    own = VCS // 2 if joined else VCS  # as on routers: of few credits each channel has a round trip's
    if level.credits > 0 and level.latency > 0:
        own = min(max(round(level.credits / (2 * level.latency * level.bandwidth)), 1 if joined else 2), own)
    room = np.full(count, ENDLESS)
    limited = np.flatnonzero(np.isfinite(over.room))
    room[limited] = np.maximum(np.round(over.room[limited] / flit / own), 1)
    channels = np.tile([own, own if joined else 0], (count, 1))
    channels[len(over.byte) :] = VCS, 0
    crossings = int(sent.size @ np.diff(sent.first)[sent.message]) if len(limited) else 0
    events, place = len(sent.next) + crossings + count + 1, np.arange(count)
    begins, ends = (place >= len(over.byte)) & (place < count - ports), place >= count - ports

    def make_zeros(*shape: int) -> Array:
        return np.zeros(shape, np.int64)

    def make_unset(*shape: int) -> Array:
        return np.full(shape, -1)

    return FlitLinks(
        widths, hop, channels, np.repeat(room, VCS), begins, ends, held, make_zeros(count), make_zeros(count),
        np.zeros(count, np.uint8), make_unset(count), make_unset(count * VCS), make_zeros(count, 2), make_unset(count, 2, 2),
        make_unset(count), make_zeros(4 * count + 8), make_zeros(events), make_zeros(events), make_zeros(2),
    )  # fmt: skip
