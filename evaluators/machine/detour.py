"""Ways round what is broken in a mesh: up*/down* routes [schroeder1991].

Nodes are ordered by their distance from one in the middle; a link goes up towards it, or down. Packets go up as long as they
have to, and then only down, so that channels never wait for one another in a circle, whatever is broken.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from space.elementwise import Array
from space.errors import DesignError
from space.network import Faults


class Detours(NamedTuple):
    """Ways on a mesh of which something is broken.

    Attributes:
        table: the port that packets take, by router and target, shape (nodes, nodes): east 0, west 1, south 2, north 3.
        far: links from router to target, likewise.
        place: of each router in the order in which links go down; those that are broken have none.
        above: the router through which each was found first, on the way from the middle; -1 for that one.
        cols: of the mesh.
    """

    table: Array
    far: Array
    place: dict[int, int]
    above: dict[int, int]
    cols: int

    def tree(self, root: int, members: Iterable[int]) -> list[tuple[int, int]]:
        """Links of a tree from a root to members, as routers and ports, from the root on; all ways go up and then down.

        Members are reached as a packet would be, from where its way leaves those before it; where that would go up after it
        went down, all are reached through the routers above them.

        >>> detours(2, 2, Faults(links=((0, 1),))).tree(0, [1, 3])
        [(0, 2), (2, 0), (3, 3)]
        """
        found: list[tuple[int, int]] = []
        falls = {root: False}
        for member in members:
            way = self._way(root, member)
            known = max(place for place, node in enumerate(way) if node in falls)
            for here, there in pairwise(way[known:]):
                down = self.place[there] > self.place[here]
                if falls[here] and not down:
                    return self._spanning(root, members)
                falls[there] = down
                found.append((here, self._port(here, there)))
        return found

    def _way(self, at: int, target: int) -> list[int]:
        way = [at]
        while way[-1] != target:
            way.append(way[-1] + (1, -1, self.cols, -self.cols)[self.table[way[-1], target]])
        return way

    def _spanning(self, root: int, members: Iterable[int]) -> list[tuple[int, int]]:
        up = self._to_the_top(root)
        found: dict[tuple[int, int], None] = {}
        for member in members:
            down = self._to_the_top(member)
            meet = next(node for node in down if node in up)
            way = [*up[: up.index(meet)], *down[down.index(meet) :: -1]]
            found |= {(here, self._port(here, there)): None for here, there in pairwise(way)}
        return list(found)

    def _to_the_top(self, node: int) -> list[int]:
        way = [node]
        while self.above[way[-1]] >= 0:
            way.append(self.above[way[-1]])
        return way

    def _port(self, here: int, there: int) -> int:
        return {1: 0, -1: 1, self.cols: 2, -self.cols: 3}[there - here]


def detours(rows: int, cols: int, faults: Faults) -> Detours:
    """Ways round what is broken.

    Raises:
        DesignError: two routers that work have no way between them.

    >>> detours(2, 2, Faults(links=((0, 1),))).table[0].tolist()
    [0, 2, 2, 2]
    """
    count = rows * cols
    ways = [
        [(port, other) for port, other in _neighbours(node, rows, cols) if _whole(node, other, faults)] for node in range(count)
    ]
    works = [node for node in range(count) if node not in faults.routers]
    if not works:
        raise DesignError("chip.faults: no router is left that works")
    middle = min(works, key=lambda node: abs(2 * (node // cols) - rows + 1) + abs(2 * (node % cols) - cols + 1))
    level, above = {middle: 0}, {middle: -1}
    for node in (queue := [middle]):
        for _, other in ways[node]:
            if other not in level:
                level[other], above[other] = level[node] + 1, node
                queue.append(other)
    for node in works:
        if node not in level:
            a, b = (f"router {at} ({at // cols}, {at % cols})" for at in (middle, node))
            raise DesignError(f"chip.faults: no way from {a} to {b} is left; take out a fault, or that router too")
    found, links = np.zeros((count, count), np.uint8), np.zeros((count, count), int)
    order = sorted(works, key=lambda node: (level[node], node))
    place = {node: at for at, node in enumerate(order)}
    for target in works:
        far = {target: 0}
        for node in (queue := [target]):  # backwards, down to the target
            for port, other in ways[node]:
                if place[other] < place[node] and other not in far:
                    far[other] = far[node] + 1
                    found[other, target] = port ^ 1
                    queue.append(other)
        for node in order:
            if node not in far:
                far[node], found[node, target] = min(
                    (far[other] + 1, port) for port, other in ways[node] if place[other] < place[node]
                )
        links[list(far), target] = list(far.values())
    return Detours(found, links, place, above, cols)


def _neighbours(node: int, rows: int, cols: int) -> list[tuple[int, int]]:
    row, col = divmod(node, cols)
    sides = ((0, 0, 1), (1, 0, -1), (2, 1, 0), (3, -1, 0))
    return [
        (port, node + down * cols + across)
        for port, down, across in sides
        if 0 <= row + down < rows and 0 <= col + across < cols
    ]


def _whole(a: int, b: int, faults: Faults) -> bool:
    return (min(a, b), max(a, b)) not in faults.links and a not in faults.routers and b not in faults.routers
