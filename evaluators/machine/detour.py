"""Ways round what is broken in a mesh: up*/down* routes [schroeder1991].

Nodes are ordered by their distance from one in the middle; a link goes up towards it, or down. Packets go up as long as they
have to, and then only down, so that channels never wait for one another in a circle, whatever is broken.
"""

import numpy as np

from space.elementwise import Array
from space.errors import DesignError
from space.network import Faults


def table(rows: int, cols: int, faults: Faults) -> Array:
    """The port that packets take, by router and target, shape (nodes, nodes): east 0, west 1, south 2, north 3.

    Raises:
        DesignError: two routers that work have no way between them.

    >>> table(2, 2, Faults(links=((0, 1),)))[0].tolist()
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
    level = {middle: 0}
    for node in (queue := [middle]):
        for _, other in ways[node]:
            if other not in level:
                level[other] = level[node] + 1
                queue.append(other)
    for node in works:
        if node not in level:
            a, b = (f"router {at} ({at // cols}, {at % cols})" for at in (middle, node))
            raise DesignError(f"chip.faults: no way from {a} to {b} is left; take out a fault, or that router too")
    found = np.zeros((count, count), np.uint8)
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
    return found


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
