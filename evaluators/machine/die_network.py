"""Network between dies: links of a topology, routes between all dies, and link loads.

Dies are numbered row after row; the switch of a switched network is numbered after all of them. Ways are fixed and shortest
([zhang2026] section III-F for the mesh of dies; along the row, then along the column: [dally2004] section 8.4.1).
Nothing here knows time; `evaluators.cost_models.die_exchange_model` makes seconds of loads, and `event_die_network` simulates
messages.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Array, maximum, minimum, where
from dse.space.chip import D2D_TOPOLOGIES, Chip, node_grid
from dse.space.errors import DesignError, suggest_nearest


class DieNetworkLevel(NamedTuple):
    """Dies of one package, wafer or cluster, and the links between them.

    Attributes:
        rows, cols: dies, as a rectangle; whole numbers.
        topology: an option of `space.chip.D2D_TOPOLOGIES`.
        ports: links that a die has room for; a switched die spreads its traffic over all of them. [-], () or (designs,)
        bandwidth: one link, one direction. [B/s], () or (designs,)
        latency: of a hop. [s], () or (designs,)
        credits: on their way over a link at a time; 0 for bandwidth x round trip. [B], () or (designs,)
        inject: what a die's own network brings to all its ports together, and takes from them. [B/s], () or (designs,)
        start: of an exchange. [s], () or (designs,)
        barrier: from when all have what is sent to them until all know that. [s], () or (designs,)
        box: consecutive dies of a node, which these links join; 0 for all.
        outer: the network between nodes, of all dies, each by one port; None where there are no nodes.
    """

    rows: int
    cols: int
    topology: str
    ports: Any
    bandwidth: Any
    latency: Any
    credits: Any = 0.0
    inject: Any = np.inf
    start: Any = 0.0
    barrier: Any = 0.0
    box: int = 0
    outer: "DieNetworkLevel | None" = None

    @property
    def dies(self) -> int:
        """Number of dies on this level. [-]"""
        return self.rows * self.cols

    @property
    def without_barrier(self) -> "DieNetworkLevel":
        """The same network without barriers at the end of exchanges, inside nodes or between them."""
        outer = None if self.outer is None else self.outer._replace(barrier=0.0)
        return self._replace(barrier=0.0, outer=outer)

    @property
    def rate(self) -> Any:
        """Rate of one link in one direction: its bandwidth, or its credits per round trip. [B/s]"""
        trip = 2 * self.latency
        least = maximum(trip, 1e-30)  # without latency credits are back at once
        return where((self.credits > 0) & (trip > 0), minimum(self.bandwidth, self.credits / least), self.bandwidth)

    @property
    def line(self) -> Any:
        """Rate of a link of `DieRoutes`; with a switch, all ports of a die count as one. [B/s]"""
        return self.rate * self.ports if self.topology == "switch" else self.rate

    @property
    def injection(self) -> Any:
        """Rate of one die's traffic in one direction over all ports together. [B/s]"""
        return minimum(self.rate * self.ports, self.inject)


def die_network(chip: Chip, reached: Any = 1.0) -> DieNetworkLevel:
    """Network between the dies of a chip that has `dies` and `d2d`.

    Rows, cols and topology are those of one structure.

    Args:
        chip: of many dies.
        reached: share of the links' bandwidth that software reaches.
    """
    dies, d2d = chip.dies, chip.d2d
    rows, cols, boxes = int(dies.rows), int(dies.cols), chip.nodes
    links = d2d.ports, d2d.bandwidth * reached, d2d.latency, d2d.credits
    near = DieNetworkLevel(rows, cols, d2d.topology, *links, barrier=d2d.barrier)
    if boxes is None:
        return near
    # a die's port of its node and that of the network are apart, so that messages of both kinds meet nowhere
    way = boxes.bandwidth * reached, boxes.latency / 2
    outer = DieNetworkLevel(rows, cols, "switch", 1, *way, start=boxes.exchange_start, barrier=d2d.barrier)
    return near._replace(box=int(boxes.size), outer=outer)


def max_ports(rows: Any, cols: Any, topology: str) -> Any:
    """Links of the die with the most links; rows and cols broadcast. [-]

    >>> [max_ports(4, 8, of) for of in ("mesh", "torus", "ring", "full", "switch")], max_ports(1, 8, "mesh")
    ([4, 4, 2, 31, 1], 2)
    """
    _known(topology)
    others = rows * cols - 1
    if topology in ("mesh", "torus"):
        return minimum(rows - 1, 2) + minimum(cols - 1, 2)
    return {"ring": minimum(others, 2), "full": others, "switch": minimum(others, 1)}[topology]


class DieRoutes(NamedTuple):
    """Routes between all pairs of dies; pair `source * dies + target`.

    Attributes:
        ends: dies that each link goes from and to, shape (links, 2).
        first: where the way of each pair begins in `over`, shape (pairs + 1,).
        over: links, in the order in which they are crossed, shape (crossings,).
    """

    ends: Array
    first: Array
    over: Array

    @property
    def hops(self) -> Array:
        """Links of each route, shape (pairs,). [-]"""
        return np.diff(self.first)


@lru_cache(maxsize=32)
def die_routes(rows: int, cols: int, topology: str, box: int = 0) -> DieRoutes:
    """Links of a topology, and the routes between all pairs of dies.

    mesh: along the row, then along the column. torus: likewise, each the shorter way round; where both are as long, dies of
    even places go up and those of odd ones down, so that both directions are used. ring: dies row after row and back to the
    first. full: a link for every pair. switch: one link to a switch that never blocks, and one from there. With nodes, each of
    so many dies, which follow one another, has links of its own, and there are none between them.

    >>> found = die_routes(2, 2, "mesh")
    >>> found.ends[found.over[found.first[3] : found.first[4]]].tolist()
    [[0, 1], [1, 3]]
    """
    _known(topology)
    dies = rows * cols
    if box:
        return _boxed(dies, die_routes(*node_grid(cols, box), topology), box)
    if topology == "ring":
        return _walked(1, dies, True)
    if topology in ("mesh", "torus"):
        return _walked(rows, cols, topology == "torus")
    source, target = (place.ravel() for place in np.indices((dies, dies)))
    apart = source != target
    if topology == "full":
        ends = np.stack([source[apart], target[apart]], axis=1)
        return DieRoutes(ends, _starts(apart.astype(int)), np.arange(len(ends)))
    places = np.arange(dies)
    switch = np.full(dies, dies)
    ends = np.concatenate([np.stack([places, switch], axis=1), np.stack([switch, places], axis=1)])
    over = np.stack([source[apart], dies + target[apart]], axis=1).ravel()
    return DieRoutes(ends, _starts(2 * apart), over)


def _boxed(dies: int, inner: DieRoutes, size: int) -> DieRoutes:
    """Routes inside nodes, each like the first; routes to other nodes have no links here."""
    source, target = (place.ravel() for place in np.indices((dies, dies)))
    box = source // size
    near = box == target // size
    pair = source % size * size + target % size
    over, far = links_of_pairs(inner, pair[near])
    boxes, links = -(-dies // size), len(inner.ends)
    number = np.arange(boxes)[:, None, None]
    ends = np.where(inner.ends < size, inner.ends + number * size, dies + number).reshape(-1, 2)
    return DieRoutes(ends, _starts(np.where(near, inner.hops[pair], 0)), over + np.repeat(box[near], far) * links)


class LinkLoads(NamedTuple):
    """Traffic of a set of messages on links and dies, in the unit of their weights.

    Attributes:
        links: over each link, shape (links,).
        out, into: what leaves each die, and what comes to it, shape (dies,).
        hops: links of ways, each longer than the one before it, shape (ways,).
        most: on the busiest link of the ways of so many links, likewise at the busiest of their ports, shape (ways, 2). Of
            ways that are no longer and no busier than others only those are here.
        queues: what meets at each link or port, those of which any other one has as much only once.
    """

    links: Array
    out: Array
    into: Array
    hops: Array
    most: Array
    queues: "LinkQueues"


class LinkQueues(NamedTuple):
    """What comes to links and ports, by how many links it has crossed before.

    Attributes:
        ports: whether each is a die's way out or in, shape (queues,).
        work: what has crossed as many links before, shape (queues, links of the longest way + 1).
        rest: links that this has to cross from there on at most, likewise; -1 where nothing is.
    """

    ports: Array
    work: Array
    rest: Array


def link_loads(routes: DieRoutes, dies: int, source: Array, target: Array, weight: Array) -> LinkLoads:
    """Traffic on links and dies of messages from sources to targets.

    Args:
        routes: routes between dies.
        dies: number of dies.
        source, target: dies, shape (messages,); what stays on its die moves nothing.
        weight: of each message, in any unit, shape (messages,); of 0 it is not sent.
    """
    sent = (source != target) & (weight > 0)
    source, target, weight = source[sent], target[sent], weight[sent]
    pair = source * dies + target
    over, far = links_of_pairs(routes, pair)
    links = np.bincount(over, np.repeat(weight, far), len(routes.ends))
    out, into = np.bincount(source, weight, dies), np.bincount(target, weight, dies)
    if not len(pair):
        none = np.zeros((0, 1))
        return LinkLoads(links, out, into, np.zeros(0, np.int64), np.zeros((0, 2)), LinkQueues(none[:, 0] > 0, none, none))
    most = np.zeros((int(far.max()) + 1, 2))
    np.maximum.at(most[:, 0], far, np.maximum.reduceat(links[over], np.cumsum(far) - far))
    np.maximum.at(most[:, 1], far, np.maximum(out[source], into[target]))
    longer = np.maximum.accumulate(most[::-1], axis=0)[::-1]  # what ways of so many links or more meet
    kept = np.append((longer[:-1] > longer[1:]).any(axis=1), True)
    places = np.arange(len(over)) - np.repeat(np.cumsum(far) - far, far)
    queues = _queues((source, target, weight, far), (over, places), (dies, len(links)))
    return LinkLoads(links, out, into, np.flatnonzero(kept), longer[kept], queues)


def _queues(sent: tuple[Array, ...], ways: tuple[Array, Array], counts: tuple[int, int]) -> LinkQueues:
    """What comes to ways out of dies, to links and to ways into dies.

    Args:
        sent: sources, targets, weights of messages, and how many links they cross.
        ways: links, and how many are crossed before each, one message's after the other's.
        counts: dies and links.
    """
    (source, target, weight, far), (over, places), (dies, links) = sent, ways, counts
    at = np.concatenate([source, dies + over, dies + links + target])
    before = np.concatenate([np.zeros_like(far), places, far])
    rest = np.concatenate([far, np.repeat(far, far) - places, np.zeros_like(far)])
    shape = (2 * dies + links, int(far.max()) + 1)
    work, most = np.zeros(shape), np.full(shape, -1.0)
    np.add.at(work, (at, before), np.concatenate([weight, np.repeat(weight, far), weight]))
    np.maximum.at(most, (at, before), rest)
    number = np.arange(shape[0])
    ports = (number < dies) | (number >= dies + links)
    # sums in another order differ in their last digits
    rounded = np.round(work / work.max(), 12)
    _, first = np.unique(np.column_stack([ports, rounded, most])[work.any(axis=1)], axis=0, return_index=True)
    kept = np.flatnonzero(work.any(axis=1))[first]
    return LinkQueues(ports[kept], work[kept], most[kept])


def links_of_pairs(routes: DieRoutes, pair: Array) -> tuple[Array, Array]:
    """Links of the routes of some pairs in sequence, and the number of links of each, shape (pairs,)."""
    far = routes.hops[pair]
    ends = np.cumsum(far)
    place = np.arange(ends[-1] if len(ends) else 0) + np.repeat(routes.first[pair] - (ends - far), far)
    return routes.over[place], far


def place_groups(placement: str, rows: int, cols: int, groups: int, members: int, each: int = 1) -> Array:
    """Dies of each member of each group, shape (groups, members); some may be left, none is used twice.

    linear: row after row. snake: likewise, every second row from its other end. interleave: members are `groups` dies apart, so
    that those beside each other are of different groups. blocks: each group is a rectangle, of those with room for all groups
    the one that is nearest to a square, and wide rather than tall; members snake through it. entwine: in the same rectangles,
    which are cut into `each` parts alike; members that follow one another are at the same place of each part, part by part.

    Args:
        placement, rows, cols, groups, members: as they are.
        each: members that belong together, which follow one another and divide the members.

    Raises:
        DesignError: too few dies, or no rectangle of so many members leaves room for so many groups.

    >>> place_groups("blocks", 4, 4, 4, 4).tolist()[0], place_groups("interleave", 4, 4, 4, 4).tolist()[0]
    ([0, 1, 5, 4], [0, 4, 8, 12])
    >>> place_groups("entwine", 4, 4, 1, 16, 4).reshape(4, 4).tolist()
    [[0, 2, 10, 8], [1, 3, 11, 9], [4, 6, 14, 12], [5, 7, 15, 13]]
    """
    placements: dict[str, Callable[[int, int, int, int], Array]] = {
        "linear": _linear,
        "snake": _snake,
        "blocks": _blocks,
        "interleave": _interleave,
        "entwine": partial(_entwine, each=each),
    }
    if placement not in placements:
        raise DesignError(f"placement: no option {placement!r}; {suggest_nearest(placement, placements)}")
    if groups < 1 or members < 1 or groups * members > rows * cols:
        raise DesignError(f"chip.dies: {groups} groups of {members} dies need {groups * members} dies, got {rows} x {cols}")
    return placements[placement](rows, cols, groups, members)


def group_rectangle(rows: int, cols: int, groups: int, members: int) -> tuple[int, int]:
    """Sides of each group's rectangle of dies; (0, 0) if there is none. [-]"""
    sides = [(side, members // side) for side in range(1, members + 1) if members % side == 0]
    fit = [(r, c) for r, c in sides if (rows // r) * (cols // c) >= groups]
    return min(fit, key=lambda side: (max(side), side[0]), default=(0, 0))


def _linear(rows: int, cols: int, groups: int, members: int) -> Array:
    return np.arange(groups * members).reshape(groups, members)


def _snake(rows: int, cols: int, groups: int, members: int) -> Array:
    return _turning(rows, cols).ravel()[: groups * members].reshape(groups, members)


def _interleave(rows: int, cols: int, groups: int, members: int) -> Array:
    return np.arange(groups * members).reshape(members, groups).T.copy()


def _blocks(rows: int, cols: int, groups: int, members: int) -> Array:
    down, across = _cut(rows, cols, groups, members)
    inside = _turning(down, across)
    return _at_corners(cols, groups, (down, across), (inside // across * cols + inside % across).ravel())


def _entwine(rows: int, cols: int, groups: int, members: int, each: int) -> Array:
    down, across = _cut(rows, cols, groups, members)
    if members % each:
        raise DesignError(f"placement: entwine needs groups that {each} dies with shared attention divide, got {members} dies")
    copies = members // each  # dies of a part
    sides = [(a, copies // a) for a in range(1, down + 1) if down % a == 0 and copies % a == 0 and across % (copies // a) == 0]
    high, wide = min(sides, key=max)
    parts = _turning(down // high, across // wide).ravel()
    row, col = np.divmod(parts, across // wide)
    place = np.arange(copies)[:, None]
    return _at_corners(cols, groups, (down, across), ((row * high + place // wide) * cols + col * wide + place % wide).ravel())


def _cut(rows: int, cols: int, groups: int, members: int) -> tuple[int, int]:
    """The rectangle of each group.

    Raises:
        DesignError: there is none.
    """
    down, across = group_rectangle(rows, cols, groups, members)
    if not down:
        legal = [size for size in range(1, rows * cols // groups + 1) if all(group_rectangle(rows, cols, groups, size))]
        near = min(legal, key=lambda size: (abs(size - members), size))
        raise DesignError(
            f"placement: blocks needs {groups} rectangles of {members} dies in chip.dies, got {rows} x {cols} dies; "
            f"the nearest size of a group is {near}; use that, or linear, snake or interleave"
        )
    return down, across


def _at_corners(cols: int, groups: int, sides: tuple[int, int], where_: Array) -> Array:
    """Places inside a rectangle, of each group from the corner of its own."""
    (down, across), corner = sides, np.arange(groups)
    wide = cols // across
    return np.asarray((corner // wide * down * cols + corner % wide * across)[:, None] + where_)


def _turning(rows: int, cols: int) -> Array:
    """Numbers of a rectangle, every second row from its other end."""
    order = np.arange(rows * cols).reshape(rows, cols)
    order[1::2] = order[1::2, ::-1].copy()
    return order


def _walked(rows: int, cols: int, closed: bool) -> DieRoutes:
    """Of a mesh or torus: all pairs walk a link at a time, along the row first."""
    dies = rows * cols
    source, target = (place.ravel() for place in np.indices((dies, dies)))
    across = ring_distance(source % cols, target % cols, cols, closed)
    down = ring_distance(source // cols, target // cols, rows, closed)
    first = _starts(np.abs(across) + np.abs(down))
    over = np.zeros(first[-1], np.int32)
    row, col = source // cols, source % cols
    for step in range(int(np.max(np.abs(across) + np.abs(down), initial=0))):
        along = step < np.abs(across)
        going = step < np.abs(across) + np.abs(down)
        way = np.where(along, np.where(across > 0, 0, 1), np.where(down > 0, 2, 3))
        over[first[:-1][going] + step] = (4 * (row * cols + col) + way)[going]
        col = (col + np.where(along, np.sign(across), 0)) % cols
        row = (row + np.where(going & ~along, np.sign(down), 0)) % rows
    crossed = np.bincount(over, minlength=4 * dies) > 0
    at, way = np.divmod(np.flatnonzero(crossed), 4)
    to_row = (at // cols + np.array([0, 0, 1, -1])[way]) % rows
    to_col = (at % cols + np.array([1, -1, 0, 0])[way]) % cols
    return DieRoutes(np.stack([at, to_row * cols + to_col], axis=1), first, (np.cumsum(crossed, dtype=np.int32) - 1)[over])


def ring_distance(source: Array, target: Array, side: int, closed: bool) -> Array:
    """Signed hops from one place of a line to another, around the end if the line is closed. [-]"""
    far = target - source
    if not closed:
        return np.asarray(far)
    up = far % side
    back = (2 * up > side) | ((2 * up == side) & (source % 2 == 1) & (side > 2))
    return np.where(back, up - side, up)


def _starts(hops: Array) -> Array:
    return np.concatenate([[0], np.cumsum(hops)])


def _known(topology: str) -> None:
    if topology not in D2D_TOPOLOGIES:
        raise DesignError(f"chip.d2d.topology: no option {topology!r}; {suggest_nearest(topology, D2D_TOPOLOGIES)}")
