"""Deadlock-free routes on a mesh with faults.

Packets go dimension by dimension, as on a whole mesh, from wherever nothing on the rest of their way is broken. Others first go
round. A way round may turn as it does only if no links of all ways then wait for one another in a circle: links, and which one
packets take after which, are a graph that is kept free of circles, as in [domke2016]. Of the ways that may be, those that hops
and what links carry make cheapest are taken.

Where links have virtual channels to spare, packets that go round have some of their own until the rest of their way is whole,
and the graph is of these alone. Otherwise it is of all packets; then there is no way round some faults, a router in the middle
among them, and with a single channel all packets take up*/down* ways (`evaluators.machine.updown_routing`).
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine import updown_routing as updown
from dse.evaluators.machine.mesh_link_loads import pairs_with_faults, uniform_link_loads
from dse.evaluators.machine.router_state import RouterTables
from dse.evaluators.machine.turn_model import TURN_MODELS, dimension_order_ports, extend_routes, has_cycle
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.noc_router import MeshFaults

MAX_NODES = 10_000
"""Routers of a mesh with faults: ports and distances of all pairs of them are kept."""

MIN_CHANNELS = 3
"""Virtual channels of a link of which one is kept for packets that go round: of two, the other one would be too few."""

CLOSED = 1 << 4
"""Of `FaultRoutes.after`: a link that is broken, or leads over the edge."""


class NoRouteError(Exception):
    """Error: no tree leads to all members without a cycle among the existing routes."""


class FaultRoutes(NamedTuple):
    """Routes on a mesh with faults, by router and target.

    Attributes:
        table: the port that packets take, by router and target, shape (nodes, nodes): east 0, west 1, south 2, north 3.
        far: links from router to target, likewise.
        around: whether the way is another one than on a whole mesh, likewise.
        after: ports that packets may take after each link, bits of a number; links are node 4 + port.
        above: the router above each one where ways are up*/down*, -1 at the top; empty else.
        apart: virtual channels of a link that are for packets that go round alone; where there are, `after` is of these.
        cols: of the mesh.
    """

    table: Array
    far: Array
    around: Array
    after: Array
    above: dict[int, int]
    apart: int
    cols: int

    def find_tree(self, root: int, members: list[int], adds: bool = False) -> list[tuple[int, int]]:
        """Links of a tree between a root and members, as routers and ports, from the root on.

        Addends go to the root as packets do. Copies go as packets would from where their way leaves those before it, or by
        fewer links from anywhere; a tree that goes round has the channels for that all the way.

        Raises:
            StuckError: any such tree would close a circle; none does of up*/down* ways.

        >>> fault_routes(2, 2, MeshFaults(links=((0, 1),))).find_tree(0, [1, 3])
        [(0, 2), (2, 0), (3, 3)]
        """
        round_ = self.goes_round(root, members, adds)
        if not adds:
            return self._copies(root, members, round_)
        links: dict[int, tuple[int, int]] = {}
        for member in members:
            way = self.find_route(member, root)
            if round_ and not self._joins(-1, way):
                raise NoRouteError
            links |= {router: (next_router, self._port(next_router, router)) for router, next_router in pairwise(way)}
        return list(links.values())

    def goes_round(self, root: int, members: list[int], adds: bool) -> bool:
        """Whether a route between a root and its members has a fault."""
        return bool((self.around[members, root] if adds else self.around[root, members]).any())

    def find_route(self, at: int, target: int) -> list[int]:
        """Routers on the route from one router to another."""
        way = [at]
        while way[-1] != target:
            way.append(way[-1] + self._steps[self.table[way[-1], target]])
        return way

    def _copies(self, root: int, members: list[int], round_: bool) -> list[tuple[int, int]]:
        came: dict[int, int] = {root: -1}
        copies: list[tuple[int, int]] = []
        for member in members:
            if member in came:
                continue
            way = self.find_route(root, member)
            way = way[max(place for place, node in enumerate(way) if node in came) :]
            if round_:
                joins = self._joins(came[way[0]], way)
                other = self._joined(came, member)
                way = way if joins and not 0 < len(other) < len(way) else other
            if not way and self.above:
                return self._spanning(root, members)
            if not way:
                raise NoRouteError
            for router, next_router in pairwise(way):
                came[next_router] = self._port(router, next_router)
                copies.append((router, came[next_router]))
        return copies

    def _joins(self, before: int, way: list[int]) -> bool:
        """Whether packets that came to a way's first router by a port may go on along it; then they may from now on."""
        for router, next_router in pairwise(way):
            port = self._port(router, next_router)
            if before >= 0 and not self._may(router, before, port):
                return False
            before = port
        return True

    def _may(self, at: int, before: int, port: int) -> bool:
        link = (at - self._steps[before]) * 4 + before
        if not self.after[link] >> port & 1:
            if port == before ^ 1 or self.above or has_cycle(self.after, np.array(self._steps), link, at * 4 + port):
                return False
            self.after[link] |= 1 << port
        return True

    def _joined(self, came: dict[int, int], member: int) -> list[int]:
        """The shortest way from a tree to a member that may be; none where there is none."""
        ahead = [[node] for node in came]
        seen: set[tuple[int, int]] = set()
        for way in ahead:
            before = came.get(way[-1], -1) if len(way) == 1 else self._port(way[-2], way[-1])
            for port in np.flatnonzero(self._open(way[-1])).tolist():
                step = way[-1] + self._steps[port]
                if step in came or step in way or (way[-1], port) in seen:
                    continue
                if before < 0 or self._may(way[-1], before, port):
                    seen.add((way[-1], port))
                    ahead.append([*way, step])
                    if step == member:
                        return ahead[-1]
        return []

    def _open(self, node: int) -> Array:
        """Ports of a router whose links work."""
        return np.asarray(self.after[node * 4 : node * 4 + 4] < CLOSED)

    def _spanning(self, root: int, members: Iterable[int]) -> list[tuple[int, int]]:
        up = self._to_the_top(root)
        links: dict[tuple[int, int], None] = {}
        for member in members:
            down = self._to_the_top(member)
            meet = next(node for node in down if node in up)
            way = [*up[: up.index(meet)], *down[down.index(meet) :: -1]]
            links |= {(router, self._port(router, next_router)): None for router, next_router in pairwise(way)}
        return list(links)

    def _to_the_top(self, node: int) -> list[int]:
        way = [node]
        while self.above[way[-1]] >= 0:
            way.append(self.above[way[-1]])
        return way

    @property
    def _steps(self) -> tuple[int, int, int, int]:
        return 1, -1, self.cols, -self.cols

    def _port(self, router: int, next_router: int) -> int:
        return {1: 0, -1: 1, self.cols: 2, -self.cols: 3}[next_router - router]


def fault_routes(
    rows: int, cols: int, faults: MeshFaults, order: str = "xy", *, vcs: int = 1, trees: bool = False, plain: bool = False
) -> FaultRoutes:
    """Routes of a mesh around its faults.

    Args:
        rows, cols: sides of the mesh.
        faults: broken cores and links.
        order: in which dimensions follow one another on a whole mesh, xy or yx.
        vcs: virtual channels of a link, of which one may be kept for packets that go round.
        trees: whether packets are copied and added as well; then all share channels if they can, and half are kept if not,
            since trees that cross need more than one.
        plain: whether all ways are to be up*/down*, on which every tree has its place.

    Raises:
        DesignError: two routers that work have no way between them, or the mesh has more than `MAX_NODES`.

    >>> fault_routes(2, 2, MeshFaults(links=((0, 1),))).table[0].tolist()
    [0, 2, 2, 2]
    """
    routes = _found(rows, cols, faults, order, vcs, trees, plain)
    return routes._replace(after=routes.after.copy())  # trees add to it


@lru_cache(maxsize=4)
def _found(rows: int, cols: int, faults: MeshFaults, order: str, vcs: int, trees: bool, plain: bool) -> FaultRoutes:
    if rows * cols > MAX_NODES:
        have = f"routes around faults support {MAX_NODES:,} routers at most, got {rows * cols:,}"
        raise DesignError(f"chip.faults: {have}; use a smaller mesh or chip.faults=none")
    open_, works = working_links(rows, cols, faults), np.ones(rows * cols, bool)
    works[list(faults.routers)] = False
    ranked = updown.router_order(rows, cols, open_, works)
    straight, far = dimension_order_ports(rows, cols, order)
    around = pairs_with_faults(rows, cols, open_, order)
    around[~works], around[:, ~works] = False, False
    steps = np.array([1, -1, cols, -cols])
    closed = np.where(open_.ravel(), 0, CLOSED).astype(np.uint8)
    load = uniform_link_loads(np.ones((rows, cols)), np.ones((rows, cols)), order).reshape(4, -1).T.ravel()
    kept = vcs // 2 if trees else min(vcs - 1, 1)
    together, alone = [(model, 0) for model in TURN_MODELS[order]], [((0, 0, 0, 0), kept)] * (kept > 0)
    for model, apart in () if plain else alone + together if vcs >= MIN_CHANNELS and not trees else together + alone:
        table, distance = straight.copy(), far.copy()
        after = closed | np.tile(np.array(model, np.uint8), rows * cols)
        if extend_routes(table, distance, around, apart > 0, open_, steps, after, load / load.max()):
            return FaultRoutes(table, distance, around, after, {}, apart, cols)
    table, distance, after = updown.updown_routes(ranked, open_, steps, rows * cols)
    if kept > 0 and not plain:
        table, distance = _until_whole(np.where(around, table, straight), far, around, steps)
        return FaultRoutes(table, distance, around, closed | after, ranked.above, kept, cols)
    changed = (table != straight) & (far > 0) & works & works[:, None]
    return FaultRoutes(table, distance, _behind(changed, table, steps, distance), closed | after, ranked.above, 0, cols)


def _until_whole(table: Array, far: Array, around: Array, steps: Array) -> tuple[Array, Array]:
    """Ways that leave those of a table where the rest of the way is whole, and their links."""
    distance = far.copy()
    for source, target in zip(*np.nonzero(around), strict=True):
        at, links = source, 0
        while around[at, target]:
            at, links = at + steps[table[at, target]], links + 1
        distance[source, target] = links + far[at, target]
    return table, distance


def _behind(changed: Array, table: Array, steps: Array, far: Array) -> Array:
    """Pairs whose way leads through a router from which it goes on as it would not on a whole mesh."""
    around = changed.copy()
    for distance in range(1, int(far.max()) + 1):
        at, target = np.nonzero((far == distance) & ~around)
        around[at, target] = around[at + steps[table[at, target]], target]
    return around


def working_links(rows: int, cols: int, faults: MeshFaults) -> Array:
    """Whether each link works, by router and port, shape (nodes, 4)."""
    row, col = np.divmod(np.arange(rows * cols), cols)
    links = np.stack([col < cols - 1, col > 0, row < rows - 1, row > 0], axis=1)
    for low, high in faults.links:
        port = 0 if high == low + 1 and (cols > 1) else 2
        links[low, port] = links[high, port ^ 1] = False
    for node in faults.routers:
        for port, step in enumerate((1, -1, cols, -cols)):
            if links[node, port]:
                links[node + step, port ^ 1] = False
        links[node] = False
    return links


def add_fault_routes(net: RouterTables, ways: FaultRoutes) -> RouterTables:
    """Routers whose packets take routes around faults."""
    return net._replace(table=ways.table, around=ways.around, apart=ways.apart)


def detoured_pairs(routes: FaultRoutes, source: Array, target: Array) -> tuple[Array, Any]:
    """Pairs whose route differs from that of a whole mesh, and the extra links of each. [-]"""
    row, col = np.divmod(source, routes.cols)
    to_row, to_col = np.divmod(target, routes.cols)
    around = routes.around[source, target]
    return around, np.where(around, routes.far[source, target] - np.abs(row - to_row) - np.abs(col - to_col), 0)
