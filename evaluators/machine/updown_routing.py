"""Up*/down* routes on a mesh with faults [schroeder1991].

Routers are ordered by their distance from one in the middle; a link goes up towards it, or down. Packets go up as long as they
have to, and then only down, so that links never wait for one another in a circle, whatever is broken.
"""

from typing import NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.space.errors import DesignError


class RouterOrder(NamedTuple):
    """Order of working routers from a middle one down, and the router from which each was reached."""

    order: list[int]
    place: dict[int, int]
    above: dict[int, int]


def router_order(rows: int, cols: int, open_: Array, works: Array) -> RouterOrder:
    """Order of a mesh's working routers by their distance from a router in the middle.

    Args:
        open_: which links work, by router and port, shape (nodes, 4).
        works: which routers do, shape (nodes,).

    Raises:
        DesignError: two routers that work have no way between them, or none works.
    """
    alive = np.flatnonzero(works).tolist()
    if not alive:
        raise DesignError("chip.faults: no router works; remove a fault")
    middle = min(alive, key=lambda node: abs(2 * (node // cols) - rows + 1) + abs(2 * (node % cols) - cols + 1))
    level, above = {middle: 0}, {middle: -1}
    for node in (queue := [middle]):
        for port, step in enumerate((1, -1, cols, -cols)):
            if open_[node, port] and node + step not in level:
                level[node + step], above[node + step] = level[node] + 1, node
                queue.append(node + step)
    for node in alive:
        if node not in level:
            a, b = (f"router {at} ({at // cols}, {at % cols})" for at in (middle, node))
            raise DesignError(
                f"chip.faults: no route from {a} to {b} is left; remove a fault, or add that router to the faults"
            )
    order = sorted(alive, key=lambda node: (level[node], node))
    return RouterOrder(order, {node: at for at, node in enumerate(order)}, above)


def updown_routes(order: RouterOrder, open_: Array, steps: Array, count: int) -> tuple[Array, Array, Array]:
    """Ports and hops by router and target, shape (nodes, nodes), and allowed next ports of each link."""
    place = order.place
    near = {node: [(port, int(node + steps[port])) for port in range(4) if open_[node, port]] for node in order.order}
    ports, links = np.zeros((count, count), np.uint8), np.zeros((count, count), np.int16)
    for target in order.order:
        far = {target: 0}
        for node in (queue := [target]):  # backwards, down to the target
            for port, other in near[node]:
                if place[other] < place[node] and other not in far:
                    far[other] = far[node] + 1
                    ports[other, target] = port ^ 1
                    queue.append(other)
        for node in order.order:
            if node not in far:
                far[node], ports[node, target] = min(
                    (far[other] + 1, port) for port, other in near[node] if place[other] < place[node]
                )
        links[list(far), target] = list(far.values())
    after = np.zeros(count * 4, np.uint8)
    for node in order.order:
        for port, neighbour in near[node]:
            falls = place[neighbour] > place[node]
            for onward, last in near[neighbour]:
                if onward != port ^ 1 and (not falls or place[last] > place[neighbour]):
                    after[node * 4 + port] |= 1 << onward
    return ports, links, after
