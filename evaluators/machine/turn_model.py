"""Turns that packets may take on a mesh without a cycle of waiting links.

It also extends routes that keep to these turns.

Links are numbered node 4 + port, ports east, west, south, north; what may follow each is bits of a number.
"""

# mypy: disable-error-code="no-untyped-def"

from heapq import heappop, heappush

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_with_arrays
from dse.space.array_math import Array

TURN_MODELS = {
    "xy": ((13, 14, 4, 8), (13, 14, 4, 11), (13, 14, 7, 8), (13, 14, 5, 9), (13, 14, 6, 10)),
    "yx": ((1, 2, 7, 11), (13, 2, 7, 11), (1, 14, 7, 11), (5, 6, 7, 11), (9, 10, 7, 11)),
}
"""Ports that may follow each port: those of dimension by dimension, and with two more turns everywhere, of which there are four
pairs that close no circle: the turn models of [glass1992]."""

NEW = 0.01
"""What a turn costs that no packet has taken yet. [hop]"""

CROWDED_FACTOR = 4.0
"""What a link costs more for each time that it carries what the busiest link of a whole mesh does, beyond the first. [hop]"""


def dimension_order_ports(rows: int, cols: int, order: str) -> tuple[Array, Array]:
    """Ports of dimension-order routes, and their links, by router and target; shape (nodes, nodes)."""
    row, col = (axis.ravel() for axis in np.indices((rows, cols), dtype=np.int16))
    across, down = col - col[:, None], row - row[:, None]
    first, second = (across, down) if order == "xy" else (down, across)
    ports = (0, 2) if order == "xy" else (2, 0)
    table = np.where(first != 0, ports[0] + (first < 0), np.where(second != 0, ports[1] + (second < 0), 0))
    return table.astype(np.uint8), np.abs(across) + np.abs(down)


@compiled_with_arrays
def has_cycle(after, steps, link, onward):
    """Whether a turn from one link to another closes a cycle of waiting links."""
    if link == onward:
        return True
    seen = np.zeros(len(after), np.bool_)
    ahead = np.empty(len(after), np.int64)
    ahead[0], count = onward, 1
    seen[onward] = True
    while count:
        count -= 1
        node = ahead[count]
        at = node // 4 + steps[node & 3]
        for port in range(4):
            other_port = at * 4 + port
            if after[node] >> port & 1 and not seen[other_port] and after[other_port] < 16:
                if other_port == link:
                    return True
                seen[other_port] = True
                ahead[count] = other_port
                count += 1
    return False


@compiled_with_arrays
def extend_routes(table, far, around, apart, open_, steps, after, load):
    """Extend routes to each target to the routers without one; returns whether all could be joined.

    Of routers that have no way yet, that comes next whose way by one of its links costs least: hops, links that carry much, and
    turns that are new. Turns that would close a circle are refused.

    Args:
        table, far: ports, and links to go; filled in where `around`.
        around: pairs to join.
        apart: whether what follows a link counts only while packets go round.
        open_: links that work, shape (nodes, 4).
        steps: from a router to the next one by each port.
        after: what may follow each link; more, when this is done.
        load: what links carry, over the busiest; with what goes round, when this is done.
    """
    nodes = len(table)
    share = 1.0 / nodes
    refused = np.zeros(len(after), np.uint8)
    for target in range(nodes):
        left = around[:, target].sum()
        if left == 0:
            continue
        known = ~around[:, target]
        ahead = [(0.0, 0, 0)]
        ahead.clear()
        for node in range(nodes):
            if known[node]:
                _offer(ahead, float(far[node, target]), node, target, table, known, open_, steps, after, load)
        joined = np.empty(left, np.int64)
        count = 0
        while len(ahead) and count < left:
            cost, node, port = heappop(ahead)
            onward = node + steps[port]
            if known[node]:
                continue
            if onward != target and table[onward, target] == port ^ 1:
                continue
            if onward != target and (not apart or around[onward, target]):
                link, following = node * 4 + port, np.int64(table[onward, target])
                if refused[link] >> following & 1:
                    continue
                if not after[link] >> following & 1:
                    if has_cycle(after, steps, link, onward * 4 + following):
                        refused[link] |= np.uint8(1 << following)
                        continue
                    after[link] |= np.uint8(1 << following)
            known[node] = True
            table[node, target] = port
            far[node, target] = far[onward, target] + 1
            joined[count] = node
            count += 1
            _offer(ahead, cost, node, target, table, known, open_, steps, after, load)
        if count < left:
            return False
        for k in range(count):
            node = joined[k]
            while node != target:
                load[node * 4 + table[node, target]] += share
                node += steps[table[node, target]]
    return True


@compiled_with_arrays
def _offer(ahead, cost, node, target, table, known, open_, steps, after, load):
    """Neighbours that have no way yet may go by a router that has one."""
    for way in range(4):
        if not open_[node, way]:
            continue
        before, port = node + steps[way], way ^ 1
        if known[before] or not open_[before, port]:
            continue
        link = before * 4 + port
        more = 1.0 + CROWDED_FACTOR * max(load[link] - 1.0, 0.0)
        if node != target and not after[link] >> table[node, target] & 1:
            more += NEW
        heappush(ahead, (cost + more, before, port))
