"""Analytical model of exchanges between dies, by the loads of links.

Exchanges are all-to-all, rings, and transfers from stage to stage.

All groups of dies do the same at the same time, and a barrier ends it. Links carry messages side by side. What has crossed so
many links comes to a link, or to a way into a die, so many latencies later; a link works without a pause until what has come by
then is through, and a message goes on when that is so. The slowest counts:

    t = max over links and their busy times (end + links left x latency) + barrier
    end = links crossed before x latency + what comes before the link has a pause / rate

Where links take long beside latencies they have no pause: t is what the busiest link takes, and the longest way of what crosses
it. Simulated chunk by chunk this is met where sources rotate the order of their targets (`event_die_network`, tests/agreement).
Loads are linear in bytes: those of a structure are computed once, for all designs. Credits bound a link by their number each
round trip; what buffers do that are full while others wait only `event_die_network` says.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.die_network import DieNetworkLevel, LinkLoads, LinkQueues, die_routes, link_loads
from dse.space.array_math import Array, maximum, where
from dse.space.errors import DesignError


class ExchangeCost(NamedTuple):
    """Time of an exchange and its parts by resource; arrays over designs where sizes or rates are.

    Attributes:
        seconds: all of it.
        links, injection, latency, barrier: what the busiest link takes, a die's ports, ways beside that, and the end. [s]
        busiest: bytes over the busiest link. [B]
        link: dies that it goes from and to; the number of dies stands for the switch.
        hops: links of the longest way.
        sent_bytes, hop_bytes: that leave their dies, and times the links that they cross. [B]
        boxed_bytes: of these, over links of the network between nodes. [B]
        busy: longest time that a link or port works without a pause, of messages that go at once. [s]
    """

    seconds: Any
    links: Any
    injection: Any
    latency: Any
    barrier: Any
    busiest: Any
    link: tuple[int, int]
    hops: int
    sent_bytes: Any
    hop_bytes: Any
    boxed_bytes: Any = 0.0
    busy: Any = 0.0

    @property
    def binds(self) -> Any:
        """Resource that takes most of the time: link, injection, latency or barrier."""
        names = np.array(["link", "injection", "latency", "barrier"])
        parts = np.stack(np.broadcast_arrays(self.links, self.injection, self.latency, self.barrier))
        name = names[np.argmax(parts, axis=0)]
        return name if name.shape else str(name)


def all_to_all_cost(level: DieNetworkLevel, at: Array, nbytes: Any, shares: Array | None = None) -> ExchangeCost:
    """Time and link loads of an all-to-all inside every group of dies.

    On a block of r x c dies of a mesh with even sides the busiest link carries nbytes x max(r, c) / 4, with odd sides
    nbytes (s - 1/s) / 4 for the longer one.

    Args:
        level: network of the dies.
        at: dies of the members, shape (groups, members), each in one place at most.
        nbytes: what a member sends in all, its own share, which stays, included. [B], () or (designs,)
        shares: which part goes to each member, the same for all who send, shape (members,); or by who sends, shape (members,
            members), and by group, shape (groups, members, members); None for evenly. Copies beyond one make sums above 1.

    Source:
        [zhang2026] section III-F; loads by fixed routes, [dally2004] section 3.3.1.

    >>> on = DieNetworkLevel(4, 8, "mesh", 4, 1e12, 256e-9)
    >>> from dse.evaluators.machine.die_network import place_groups
    >>> found = all_to_all_cost(on, place_groups("linear", 4, 8, 1, 32), 64e6)
    >>> round(found.busiest), found.hops, found.binds
    (128000000, 10, 'link')
    """
    groups, members = at.shape
    if shares is None:
        shares = np.full(members, 1 / members)
    if shares.shape not in ((members,), (members, members), (groups, members, members)):
        raise DesignError(f"shares of shape {shares.shape}: expected ({members},) or ({members}, {members})")
    whole = np.asarray(shares, float)
    source = np.broadcast_to(at[:, :, None], (groups, members, members))
    target = np.broadcast_to(at[:, None, :], (groups, members, members))
    return messages_cost(level, source, target, np.broadcast_to(whole, source.shape), nbytes)


def hierarchical_cost(
    level: DieNetworkLevel,
    at: Array,
    nbytes: Any,
    size: int,
    between: float,
    within: float,
    shares: Array | None = None,
    *,
    back: bool = False,
) -> tuple[ExchangeCost, ExchangeCost]:
    """Time and link loads of an all-to-all in two legs, by nodes of `size` consecutive members.

    One copy goes to each node, to the member of the same place, then on inside the node.

    Args:
        level, at: as of `all_to_all_cost`; `size` divides the members.
        nbytes: one copy of all that a member sends. [B], () or (designs,)
        size: members of a node.
        between: copies that a token makes to nodes, its own included. [-]
        within: copies that are made of it inside nodes, those that stay on their die included. [-]
        shares: as of `all_to_all_cost`, the same in all groups; a node gets copies as its members do together.
        back: whether results come back: summed inside their node by the member of the same place as who takes them, which
            sends one sum on.

    Returns:
        What goes between nodes, and what inside of them, one after the other; back, the other way round.
    """
    across, inside = hierarchical_legs(at, nbytes, size, between, within, shares, back=back)
    return all_to_all_cost(level, *across), all_to_all_cost(level, *inside)


ExchangeLeg = tuple[Array, Any, Array | None]
"""Members of groups, what each sends in all [B], and shares: as of `all_to_all_cost`."""


def hierarchical_legs(
    at: Array, nbytes: Any, size: int, between: float, within: float, shares: Array | None, *, back: bool
) -> tuple[ExchangeLeg, ExchangeLeg]:
    """Messages between nodes and inside nodes of a hierarchical all-to-all."""
    cut = _cut(at, size)
    groups, count, _ = cut.shape
    across, inside = cut.transpose(0, 2, 1).reshape(-1, count), cut.reshape(-1, size)
    if shares is None:
        return (across, nbytes * between, None), (inside, nbytes * within, None)
    whole = np.broadcast_to(np.asarray(shares, float), (at.shape[1], at.shape[1])).reshape(count, size, count, size)
    if back:
        outer, inner = whole.sum(axis=1).transpose(2, 0, 1), whole.sum(axis=2)
    else:
        outer, inner = whole.sum(axis=3).transpose(1, 0, 2), whole.sum(axis=0).transpose(1, 0, 2)
    tiled = np.tile(outer, (groups, 1, 1)), np.tile(inner, (groups, 1, 1))
    return (across, nbytes * between, tiled[0]), (inside, nbytes * within, tiled[1])


def stage_transfer_cost(level: DieNetworkLevel, start: Array, end: Array, nbytes: Any) -> ExchangeCost:
    """Time and link loads of each die of a stage sending to one of the next, all pairs at once.

    Args:
        level: network of the dies.
        start, end: dies of equal shape.
        nbytes: of each message. [B], () or (designs,)
    """
    start, end = np.asarray(start), np.asarray(end)
    return messages_cost(level, start, end, np.ones(start.shape), nbytes)


def ring_cost(level: DieNetworkLevel, at: Array, nbytes: Any, steps: int) -> ExchangeCost:
    """Time and link loads of slices that go around rings of dies.

    Each step's messages share links as if all began at once, and a slice waits for those that come to a link while that is
    busy; edges inside nodes all take as long as the slowest of them, as do those between nodes, and each has its own way.
    Members send slice after slice, of which a link has all. A reduce-scatter or an allgather is members - 1 steps, an
    allreduce both, without a barrier between them (`die_allreduce_model`).

    Args:
        level, at: as of `all_to_all_cost`.
        nbytes: the vector that each member has, of which a slice goes on at a time. [B], () or (designs,)
        steps: that each member sends.

    Source:
        [thakur2005] ring algorithms; sums hide under sends.

    >>> on = DieNetworkLevel(1, 4, "ring", 2, 1e9, 0.0)
    >>> ring_cost(on, np.arange(4)[None], 8e6, 6).seconds
    0.012
    """
    inside, between = _split(level, at, np.roll(at, -1, axis=1), np.ones(at.shape), nbytes / at.shape[1])
    step = inside if between is None else _beside(inside, between)
    if not steps or not step.hops:
        return step
    edges = _edges((level.rows, level.cols, level.topology, level.box), at.shape, np.asarray(at, np.int64).tobytes(), steps)
    slowest = maximum(step.links, step.injection)
    near, far = ((0.0, 0.0) if cost is None else (cost.busy, maximum(cost.links, cost.injection)) for cost in (inside, between))
    between_ways = 0.0 if level.outer is None else 2 * level.outer.latency + level.outer.start
    longest = _longest(edges, steps, (near, far), (level.latency, between_ways))
    moved = where(step.seconds > 0, maximum(longest, steps * slowest), 0.0)
    end = where(step.seconds > 0, level.barrier, 0.0)
    return step._replace(
        seconds=moved + end,
        latency=moved - steps * slowest,
        barrier=end,
        **{name: getattr(step, name) * steps for name in SCALED_FIELDS},
    )


SCALED_FIELDS = ("links", "injection", "busiest", "sent_bytes", "hop_bytes", "boxed_bytes")
"""What as many steps have as many times."""


class RingEdges(NamedTuple):
    """Consecutive edges of rings over which a slice may go; one row per alternative, shape (ways,).

    Attributes:
        inside, between: how many are inside nodes, and between them.
        hops: links of those inside.
    """

    inside: Array
    between: Array
    hops: Array


def _longest(edges: RingEdges, steps: int, each: tuple[tuple[Any, Any], tuple[Any, Any]], way: tuple[Any, Any]) -> Any:
    """Until the last slice has come, where one that waits for its link and one that waits for a slice are equally late.

    A link has a slice at each step, and a slice goes on to the next edge when it has come. So each step is behind the one
    before it at the same edge, or at the edge before; all steps beside those of a way are at the slowest edge of it.

    Args:
        edges: ways.
        steps: that each member sends.
        each: how long links are busy for a slice, and for all that cross them in a step, inside nodes and between them. [s],
            () or (designs,)
        way: of a link inside, and of all between. [s], likewise
    """
    near, near_all, far, far_all, hop, beyond = (np.asarray(value, float)[..., None] for value in (*each[0], *each[1], *way))
    held = np.maximum(near_all * (edges.inside > 0), far_all * (edges.between > 0))
    taken = edges.inside * near + edges.between * (far + beyond) + edges.hops * hop
    slowest = np.max(taken + (steps - edges.inside - edges.between) * held, axis=-1)
    return slowest if slowest.shape else float(slowest)


@lru_cache(maxsize=1024)
def _edges(net: tuple[int, int, str, int], shape: tuple[int, int], places: bytes, steps: int) -> RingEdges:
    """Ways of one step to all of them round rings of dies; of ways over as many edges of both kinds the one with most links."""
    rows, cols, topology, box = net
    at = np.frombuffer(places, np.int64).reshape(shape)
    onward = np.roll(at, -1, axis=1)
    apart = at // box != onward // box if box else np.zeros(shape, bool)
    hops = np.where(apart, 0, np.asarray(die_routes(rows, cols, topology, box).hops)[at * rows * cols + onward])
    most: dict[tuple[int, int], int] = {}
    counts = np.zeros((2, *shape), np.int64)
    for step in range(steps):
        counts += np.roll([apart, hops], -step, axis=2)
        for beyond in np.unique(counts[0]).tolist():
            most[step + 1 - beyond, beyond] = int(counts[1][counts[0] == beyond].max())
    inside, between = np.array(list(most)).T
    kept = slice(None) if inside.any() and between.any() else slice(-1, None)  # of one kind the longest is latest
    return RingEdges(inside[kept], between[kept], np.array(list(most.values()))[kept])


def messages_cost(level: DieNetworkLevel, source: Array, target: Array, weight: Array, nbytes: Any) -> ExchangeCost:
    """Time and link loads of messages that go at once, inside nodes and between them.

    Args:
        level: network of the dies.
        source, target, weight: dies, and how much of `nbytes` goes, of equal shape.
        nbytes: [B], () or (designs,)
    """
    inside, between = _split(level, source, target, weight, nbytes)
    return inside if between is None else _beside(inside, between)


def _split(
    level: DieNetworkLevel, source: Array, target: Array, weight: Array, nbytes: Any
) -> tuple[ExchangeCost, ExchangeCost | None]:
    """Cost of messages inside nodes, and between nodes if there are any."""
    if level.outer is None:
        return _timed(level, _unit(level, source, target, weight), nbytes), None
    near = source // level.box == target // level.box
    inside = _timed(level, _unit(level, source, target, weight * near), nbytes)
    between = _timed(level.outer, _unit(level.outer, source, target, weight * ~near), nbytes)
    return inside, between._replace(boxed_bytes=between.hop_bytes)


def add_in_sequence(cost: ExchangeCost, other: ExchangeCost) -> ExchangeCost:
    """Cost of two exchanges in sequence; the busiest link is that of the one that uses links longer."""
    first = np.all(np.asarray(cost.links) >= np.asarray(other.links))
    longer = cost if first else other
    summed = ("seconds", "links", "injection", "latency", "barrier", "sent_bytes", "hop_bytes", "boxed_bytes")
    sums = {name: getattr(cost, name) + getattr(other, name) for name in summed}
    return longer._replace(hops=max(cost.hops, other.hops), **sums)


def _beside(cost: ExchangeCost, other: ExchangeCost) -> ExchangeCost:
    """Both at once, over links of their own."""
    first = np.asarray(cost.seconds) >= np.asarray(other.seconds)
    slower = {name: where(first, getattr(cost, name), getattr(other, name)) for name in ("latency", "barrier")}
    most = {name: maximum(getattr(cost, name), getattr(other, name)) for name in ("seconds", "links", "injection")}
    sums = {name: getattr(cost, name) + getattr(other, name) for name in ("sent_bytes", "hop_bytes", "boxed_bytes")}
    longer = cost if first.all() else other
    return longer._replace(hops=max(cost.hops, other.hops), **slower, **most, **sums)


def _timed(level: DieNetworkLevel, link_loads: LinkLoads, nbytes: Any) -> ExchangeCost:
    """Seconds of loads for each byte."""
    if not len(link_loads.hops):
        return ExchangeCost(*(nbytes * 0.0,) * 6, link=(0, 0), hops=0, sent_bytes=nbytes * 0.0, hop_bytes=nbytes * 0.0)
    line, injection = 1 / level.line, 1 / level.injection
    through = maximum(
        nbytes * float(link_loads.most[:, 0].max()) * line, nbytes * float(link_loads.most[:, 1].max()) * injection
    )
    latest, busy = _busy(level, link_loads.queues, nbytes)
    busiest = int(np.argmax(link_loads.links))
    ends = die_routes(level.rows, level.cols, level.topology, level.box).ends
    end = where(nbytes > 0, level.barrier, 0.0)
    moved = where(nbytes > 0, latest + level.start, 0.0)
    return ExchangeCost(
        moved + end,
        nbytes * float(link_loads.links[busiest]) * line,
        nbytes * float(link_loads.most[:, 1].max()) * injection,
        where(nbytes > 0, latest - through + level.start, 0.0),
        end,
        busiest=nbytes * float(link_loads.links[busiest]),
        link=(int(ends[busiest, 0]), int(ends[busiest, 1])),
        hops=int(link_loads.hops[-1]),
        sent_bytes=nbytes * float(link_loads.out.sum()),
        hop_bytes=nbytes * float(link_loads.links.sum()),
        busy=busy,
    )


def _busy(level: DieNetworkLevel, queues: LinkQueues, nbytes: Any) -> tuple[Any, Any]:
    """When the last message has come, and how long a link or port works without a pause at most. [s]"""
    nbytes, latency = (np.asarray(value, float)[..., None] for value in (nbytes, level.latency))
    each = np.where(
        queues.ports, 1 / np.asarray(level.injection, float)[..., None], 1 / np.asarray(level.line, float)[..., None]
    )
    start = end = np.zeros(np.broadcast_shapes(nbytes.shape, latency.shape, each.shape))
    rest, latest, longest = np.zeros(end.shape), np.zeros(end.shape), np.zeros(end.shape)
    for before in range(queues.work.shape[1]):
        comes, loads = before * latency, queues.work[:, before] > 0
        pauses = loads & (comes > end)
        start = np.where(pauses, comes, start)
        end = np.where(loads, np.maximum(end, comes) + queues.work[:, before] * nbytes * each, end)
        rest = np.where(loads, np.where(pauses, queues.rest[:, before], np.maximum(rest, queues.rest[:, before])), rest)
        latest = np.maximum(latest, np.where(loads, end + rest * latency, 0.0))
        longest = np.maximum(longest, end - start)
    last, most = latest.max(axis=-1), longest.max(axis=-1)
    return (last, most) if last.shape else (float(last), float(most))


def _unit(level: DieNetworkLevel, source: Array, target: Array, weight: Array) -> LinkLoads:
    """Loads of messages; remembered."""
    start, end = (np.ascontiguousarray(place, np.int64).tobytes() for place in (source, target))
    return _kept(level.rows, level.cols, level.topology, level.box, start, end, np.ascontiguousarray(weight, float).tobytes())


@lru_cache(maxsize=256)
def _kept(rows: int, cols: int, topology: str, box: int, source: bytes, target: bytes, weight: bytes) -> LinkLoads:
    start, end = (np.frombuffer(place, np.int64) for place in (source, target))
    return link_loads(die_routes(rows, cols, topology, box), rows * cols, start, end, np.frombuffer(weight))


def _cut(at: Array, size: int) -> Array:
    """Members by nodes, shape (groups, nodes, size)."""
    if at.shape[1] % size:
        raise DesignError(f"nodes of {size} dies do not divide groups of {at.shape[1]}")
    return at.reshape(len(at), -1, size)
