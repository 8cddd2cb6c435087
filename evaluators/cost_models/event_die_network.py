"""Event-driven simulation of exchanges between dies.

Messages go chunk by chunk over busy links with credits (`machine.die_link_chunks`).

The same exchanges as `die_exchange_model` has formulas for, one design at a time. Sources rotate the order of their targets,
each begins with the member after itself; `ascending` has all of them begin with the first one, which crowds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models.die_allreduce_model import (
    ReductionAlgorithm,
    RingPhase,
    TreePhase,
    is_tree,
    ring_phases,
    tree_phases,
)
from dse.evaluators.cost_models.die_exchange_model import hierarchical_legs
from dse.evaluators.machine.die_link_chunks import ChunkedMessages, LinkTables, send_chunks
from dse.evaluators.machine.die_network import DieNetworkLevel, DieRoutes, die_routes, links_of_pairs
from dse.space.array_math import Array
from dse.space.chip import node_grid
from dse.space.errors import DesignError

MessageSimulator = Callable[..., Any]
"""Simulator of messages: `simulate_messages` or `cycle_die_network.simulate_messages`."""

CHUNK_BYTES = 65536.0
"""Bytes that take a link at a time, at most."""

PIECES = 4
"""Chunks, at least, that a message is cut into, so that ports and links work at the same message."""

OUTSTANDING_MESSAGES = 8
"""Chunks, at least, that credits allow on a link at a time, so that they come back as if by bytes."""


class ExchangeResult(NamedTuple):
    """Result of a simulated exchange: its time, arrival times of messages, and bytes over links.

    Attributes:
        seconds: until all dies know that all are done.
        done: when each message was complete, shape (messages,). [s]
        links: bytes over each link of `machine.die_network.die_routes`, then over those between nodes, shape (links,). [B]
    """

    seconds: float
    done: Array
    links: Array


def simulate_all_to_all(
    level: DieNetworkLevel,
    at: Array,
    nbytes: float,
    shares: Array | None = None,
    *,
    ascending: bool = False,
    interleave: bool = True,
    held: bool = False,
    chunk: float = CHUNK_BYTES,
    play: MessageSimulator | None = None,
) -> ExchangeResult:
    """Simulate an all-to-all inside every group of dies; arguments as in `all_to_all_cost`.

    Args:
        ascending: whether all begin with the first member.
        interleave: whether a source sends a chunk to each target in turn, or a whole message.
        held: whether credits are room in buffers at the edge of a die, which a chunk has until it has gone on, so that who
            waits makes others wait; else the die's memory takes what comes, and credits bound what is on a link.
        chunk: bytes that take a link at a time, at most.
        play: simulator of messages, `simulate_messages` by default.
    """
    members = at.shape[1]
    indices = np.arange(members)
    order = np.broadcast_to(indices, (members, members)) if ascending else (indices[:, None] + indices + 1) % members
    whole = np.full(members, 1 / members) if shares is None else np.asarray(shares, float)
    every = (*at.shape, members)
    weight = np.take_along_axis(np.broadcast_to(whole, every), np.broadcast_to(order, every), axis=2)
    source = np.broadcast_to(at[:, :, None], every)
    target, sizes = at[:, order], nbytes * weight
    ends = source.ravel(), target.ravel()
    play = play or simulate_messages
    return play(level, *ends, sizes.ravel(), interleave=interleave, held=held, chunk=chunk)


def simulate_reduction(
    pattern: str,
    level: DieNetworkLevel,
    at: Array,
    nbytes: float,
    by: ReductionAlgorithm,
    *,
    chunk: float = CHUNK_BYTES,
    play: MessageSimulator | None = None,
) -> ExchangeResult:
    """Simulate a reduction between dies; a tree's phase begins when the one before has arrived."""
    play = play or simulate_messages
    if is_tree(at, by):
        return _tree(
            level, at, [(tree_phase, nbytes * tree_phase.share) for tree_phase in tree_phases(pattern, at, by)], chunk, play
        )
    return _rings(level, nbytes, ring_phases(pattern, at, by), chunk, play)


def _rings(
    level: DieNetworkLevel, nbytes: float, phases: Sequence[RingPhase], chunk: float, play: MessageSimulator
) -> ExchangeResult:
    """Slices go round the members of rings, one turn after the other; each waits for the one before it at its die."""
    dies, steps = phases[0].at.size, sum(turn.steps for turn in phases)
    place = np.zeros(level.dies, np.int64)
    place[np.sort(phases[0].at, axis=None)] = np.arange(dies)
    source, target, sizes = (np.zeros((steps, dies)) for _ in range(3))
    first = 0
    for turn in phases:
        span = slice(first, first + turn.steps)
        source[span], target[span] = turn.at.ravel(), np.roll(turn.at, -1, axis=1).ravel()
        sizes[span] = nbytes * turn.share / turn.at.shape[1]
        first += turn.steps
    source, target = source.astype(np.int64), target.astype(np.int64)
    number = np.zeros((steps, dies), np.int64)  # of each die's message, step by step
    np.put_along_axis(number, place[source], np.arange(steps * dies).reshape(steps, dies), axis=1)
    then = np.full((steps, dies), -1)
    then[:-1] = np.take_along_axis(number[1:], place[target[:-1]], axis=1)
    flat = source.ravel(), target.ravel(), sizes.ravel()
    rings: ExchangeResult = play(level, *flat, then=then.ravel(), interleave=False, chunk=chunk)  # slice after slice
    return rings


def _tree(
    level: DieNetworkLevel, at: Array, phases: Sequence[tuple[TreePhase, Array]], chunk: float, play: MessageSimulator
) -> ExchangeResult:
    """Phases one after the other, each by itself."""
    seconds, links, done, given_level = 0.0, np.zeros(1), [np.zeros(0)], level._replace(barrier=0.0)
    for phase, nbytes in phases:
        sizes = np.tile(nbytes, len(at))
        run_result = play(given_level, at[:, phase.source].ravel(), at[:, phase.target].ravel(), sizes, chunk=chunk)
        done.append(np.where(run_result.done > 0, seconds + run_result.done, 0.0))
        seconds, links = seconds + run_result.seconds, links + run_result.links
    return ExchangeResult(seconds + level.barrier if seconds else 0.0, np.concatenate(done), links)


def simulate_hierarchical(
    level: DieNetworkLevel,
    at: Array,
    nbytes: float,
    size: int,
    between: float,
    within: float,
    shares: Array | None = None,
    *,
    back: bool = False,
    chunk: float = CHUNK_BYTES,
    play: MessageSimulator | None = None,
) -> ExchangeResult:
    """Simulate a hierarchical all-to-all, leg after leg, each ended by a barrier."""
    legs = hierarchical_legs(at, nbytes, size, between, within, shares, back=back)
    result, other = (simulate_all_to_all(level, *leg, chunk=chunk, play=play) for leg in (legs if not back else reversed(legs)))
    done = np.concatenate([result.done, np.where(other.done > 0, result.seconds + other.done, 0.0)])
    return ExchangeResult(result.seconds + other.seconds, done, result.links + other.links)


def simulate_stage_transfer(
    level: DieNetworkLevel,
    start: Array,
    end: Array,
    nbytes: float,
    *,
    chunk: float = CHUNK_BYTES,
    play: MessageSimulator | None = None,
) -> ExchangeResult:
    """Simulate a transfer of each die of a stage to one of the next."""
    start, end = np.asarray(start).ravel(), np.asarray(end).ravel()
    return (play or simulate_messages)(level, start, end, np.full(start.shape, float(nbytes)))


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
    """Simulate messages between dies, chunk by chunk.

    Each die sends its messages in the order in which they are listed.

    Those between nodes go from a port of their own over a network of their own, and their order is among themselves.

    Args:
        level: the network, of one design.
        source, target: dies, shape (messages,); what stays on its die is there at once.
        nbytes: of each message. [B], shape (messages,)
        then: message that may go when this one has come, -1 for none, shape (messages,); all go at once where None. Where there
            are any, all messages leave their die.
        interleave, held, chunk: as of `simulate_all_to_all`.

    Raises:
        DesignError: nothing can go on, though messages are left.
    """
    moves = (source != target) & (nbytes > 0)
    done = np.zeros(len(source))
    ways = die_net_links(level, source[moves], target[moves])
    links = np.bincount(ways.over, np.repeat(nbytes[moves], np.diff(ways.first)), len(ways.byte))
    if not moves.any():
        return ExchangeResult(0.0, done, links)
    if level.credits > 0:
        chunk = min(chunk, level.credits / OUTSTANDING_MESSAGES)
    onward = np.full(int(moves.sum()), -1) if then is None else then
    sent = _messages(ways, nbytes[moves], onward, chunk)
    left = send_chunks(_floor(level, ways, sent, held), sent, interleave)
    if left:
        raise DesignError(f"chip.d2d.credits: {left} chunks between dies are in a deadlock; increase the credits")
    done[moves] = sent.done
    return ExchangeResult(float(sent.done.max()) + level.barrier, done, links)


class DieNetLinks(NamedTuple):
    """Routes of messages over the links of one or two networks, with a port of each die to each.

    Attributes:
        source, target: ports, those to the network between nodes after all others, shape (messages,).
        first, over: where the way of each message begins, shape (messages + 1,), and links, shape (crossings,).
        byte, latency, room, line, closes: of links, as of `machine.die_link_chunks.LinkTables`, `room` of each channel.
        ported: of ports.
    """

    source: Array
    target: Array
    first: Array
    over: Array
    byte: Array
    latency: Array
    room: Array
    line: Array
    closes: Array
    ported: Array


def die_net_links(level: DieNetworkLevel, source: Array, target: Array) -> DieNetLinks:
    """Links of a network, then those between nodes, and the routes of messages."""
    inner = die_routes(level.rows, level.cols, level.topology, level.box)
    wide, links = level.ports if level.topology == "switch" else 1.0, len(inner.ends)
    line, closes = _lines(level, inner)
    room = level.credits * wide if level.credits > 0 else np.inf
    ported = 1 / min(level.bandwidth * level.ports, level.inject)
    byte, latency, rooms = (np.full(links, float(setting)) for setting in (1 / (level.bandwidth * wide), level.latency, room))
    found_links = DieNetLinks(
        source, target, np.zeros(1), np.zeros(0), byte, latency, rooms, line, closes, np.full(level.dies, ported)
    )
    if level.outer is None:
        over, far = links_of_pairs(inner, source * level.dies + target)
        return found_links._replace(first=np.concatenate([[0], np.cumsum(far)]), over=over)
    between, beyond = level.outer, source // level.box != target // level.box
    outer = die_routes(between.rows, between.cols, between.topology)
    up = outer.ends[:, 0] < level.dies  # where an exchange over it starts
    pair = source * level.dies + target
    far = np.where(beyond, outer.hops[pair], inner.hops[pair])
    over, away = np.zeros(int(far.sum()), np.int64), np.repeat(beyond, far)
    over[~away], over[away] = links_of_pairs(inner, pair[~beyond])[0], links + links_of_pairs(outer, pair[beyond])[0]
    more = len(outer.ends)
    return DieNetLinks(
        source + level.dies * beyond,
        target + level.dies * beyond,
        np.concatenate([[0], np.cumsum(far)]),
        over,
        np.append(byte, np.full(more, 1 / between.bandwidth)),
        np.append(latency, between.latency + between.start * up),
        np.append(rooms, np.full(more, np.inf)),
        np.append(line, line.max(initial=0) + 1 + np.arange(more)),
        np.append(closes, np.zeros(more, np.int64)),
        np.repeat([ported, 1 / between.bandwidth], level.dies),
    )


def _messages(net: DieNetLinks, nbytes: Array, then: Array, chunk: float) -> ChunkedMessages:
    count = len(nbytes)
    chunks = np.maximum(np.ceil(nbytes / chunk * (1 - 1e-12)), PIECES).astype(np.int64)
    waits = np.zeros(count, np.uint8)
    waits[then[then >= 0]] = 1
    total = int(chunks.sum())
    none = np.full(total, -1, np.int32)
    return ChunkedMessages(
        source=net.source.astype(np.int64),
        target=net.target.astype(np.int64),
        pair=np.arange(count),
        size=nbytes / chunks,
        chunks=chunks,
        begin=np.cumsum(chunks) - chunks,
        sent=np.zeros(count, np.int64),
        left=chunks.copy(),
        then=then.astype(np.int64),
        waits=waits,
        behind=np.full(count, -1),
        done=np.zeros(count),
        message=none.copy(),
        at=none.copy(),
        vc=np.zeros(total, np.int32),
        next=none,
    )


def _floor(level: DieNetworkLevel, net: DieNetLinks, sent: ChunkedMessages, held: bool) -> LinkTables:
    links, ports = len(net.byte), len(net.ported)
    back = int(sent.chunks @ np.diff(net.first)) if level.credits > 0 else 0
    most = int(sent.chunks.sum()) + back + links + len(sent.chunks) + 2 * ports
    return LinkTables(
        first=net.first.astype(np.int64),
        over=net.over.astype(np.int64),
        line=net.line,
        closes=net.closes,
        byte=net.byte,
        ported=net.ported,
        latency=net.latency,
        held=held,
        room=np.stack([net.room, net.room], axis=1),
        free=np.zeros(links),
        pending=np.zeros(links, np.uint8),
        turn=np.zeros(links, np.int64),
        queue=np.full((links, 3, 2), -1),
        port=np.stack([np.full(ports, -1.0), np.zeros(ports)], axis=1),
        sending=np.full((ports, 2), -1),
        when=np.zeros(most),
        what=np.zeros(most, np.int64),
        counts=np.zeros(1, np.int64),
    )


def _lines(level: DieNetworkLevel, routes: DieRoutes) -> tuple[Array, Array]:
    """Which line each link is of, and whether it closes that; shape (links,)."""
    box = level.box or level.dies
    cols = node_grid(level.cols, box)[1] if level.box else level.cols
    apart, which = np.abs(routes.ends[:, 0] - routes.ends[:, 1]), routes.ends[:, 0] // box
    if level.topology == "ring":
        return which.astype(np.int64), (apart > 1).astype(np.int64)
    (row, to_row), (col, to_col) = (axis.T for axis in np.divmod(routes.ends % box, cols))
    line = np.where(row == to_row, row, box + col) + 2 * box * which
    far = np.abs(row - to_row) + np.abs(col - to_col) > 1
    return line.astype(np.int64), (far & (level.topology == "torus")).astype(np.int64)
