"""Packets of a traffic pattern on a mesh without contention.

The module gives link loads, distances and detours around faults, by formula where all nodes send to all.

Nothing is worked out pair by pair where all nodes send to all: that is a formula, and pairs that go round are put right.
"""

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.fault_routing import FaultRoutes, detoured_pairs
from dse.evaluators.machine.mesh_link_loads import hop_histogram, pair_link_loads, uniform_link_loads
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.noc_router import MeshFaults
from dse.space.workload import NocTrafficCase


class TrafficFlows(NamedTuple):
    """Link loads and distances of a traffic pattern on a mesh, per flit that a sender makes.

    Attributes:
        loads: flits over each link, towards east, west, south and north; shape (4, rows, cols).
        arriving: flits at the core that gets most.
        links: pairs by the links between them, shape (longest way + 1,).
        around: share of pairs that go round what is broken.
        extra: links that their way is longer than on a whole mesh: the mean over these.
    """

    loads: Array
    arriving: float
    links: Array
    around: float
    extra: float

    @property
    def hops(self) -> float:
        """Routers that a packet passes, both ends included, mean over packets. [-]"""
        return float(self.links @ np.arange(1, len(self.links) + 1) / self.links.sum())


def traffic_targets(case: NocTrafficCase, rows: int, cols: int) -> Array:
    """Equally likely targets of each node: shape (nodes, 1), or (1, choices), or none for any node.

    Nodes are numbered row after row. A transpose needs as many rows as columns, and spots have to be on the mesh.

    >>> at = lambda pattern: NocTrafficCase("", pattern, (), 4, 0.1, 1, 1000, 1, 0)
    >>> traffic_targets(at("tornado"), 4, 4)[:4].ravel().tolist(), traffic_targets(at("hotspot"), 8, 8)[0].tolist()
    ([5, 6, 7, 4], [27, 28, 35, 36])
    """
    nodes = np.arange(rows * cols)
    row, col = np.divmod(nodes, cols)
    if case.pattern == "uniform":
        return np.zeros((1, 0), np.int32)
    if case.pattern == "hotspot":
        at = (rows - 1) // 2 * cols + (cols - 1) // 2
        middle = {0: case.spots, 1: (at,), 4: (at, at + 1, at + cols, at + cols + 1)}[case.middle]
        return np.array([middle], np.int32)
    targets = {
        "transpose": col * cols + row,
        "bit_complement": len(nodes) - 1 - nodes,
        "tornado": (row + (rows + 1) // 2 - 1) % rows * cols + (col + (cols + 1) // 2 - 1) % cols,
        "neighbour": (row + 1) % rows * cols + (col + 1) % cols,
    }[case.pattern]
    return np.asarray(targets, np.int32)[:, None]


def working_targets(to: Array, nodes: int, faults: MeshFaults) -> tuple[Array, Array]:
    """Targets that work, in the same shape, and which nodes send."""
    works = np.ones(nodes, bool)
    works[list(faults.routers)] = False
    if not faults.routers:
        return to, works
    if not to.shape[1]:
        return np.flatnonzero(works)[None, :], works
    if len(to) == 1:
        to = to[:, works[to[0]]]
        return to, works if to.shape[1] else np.zeros(nodes, bool)
    return to, works & works[to[:, 0]]


def traffic_flows(
    case: NocTrafficCase, rows: int, cols: int, order: str, faults: MeshFaults, ways: FaultRoutes | None
) -> TrafficFlows:
    """Link loads and distances of a traffic pattern on a mesh.

    Args:
        case: the pattern.
        rows, cols: sides of the mesh.
        order: xy or yx.
        faults: what of it is broken.
        ways: round that; None where nothing is.

    Raises:
        DesignError: no node sends.
    """
    to, sends = working_targets(traffic_targets(case, rows, cols), rows * cols, faults)
    senders = np.flatnonzero(sends)
    if not len(senders):
        raise DesignError(f"chip.faults: no working node sends {case.pattern} packets to a working node; remove a fault")
    if case.pattern == "uniform":
        alive = sends.reshape(rows, cols).astype(float)
        weight, arriving = 1 / len(senders), 1.0
        loads, links = uniform_link_loads(alive, alive, order), hop_histogram(alive, alive)
        at, target = np.nonzero(ways.around) if ways else (senders[:0], senders[:0])
    else:
        weight = 1 / max(to.shape[1], 1)
        at = np.repeat(senders, to.shape[1])
        target = np.tile(to[0], len(senders)) if len(to) == 1 else to[sends].ravel()
        arriving = float(np.bincount(target, minlength=1).max() * weight)
        loads = pair_link_loads(at, target, (rows, cols), order) * weight
        links = _counted(_apart(at, target, cols), rows, cols)
    if ways is None:
        return TrafficFlows(loads, arriving, links, 0.0, 0.0)
    pairs = links.sum()
    around, extra = detoured_pairs(ways, at, target)
    at, target, extra = at[around], target[around], extra[around]
    straight = _apart(at, target, cols)
    links = np.concatenate([links, np.zeros(int(extra.max(initial=0)))])
    links += _counted(straight + extra, 1, len(links)) - _counted(straight, 1, len(links))
    loads = loads + weight * (_walked(ways, at, target, (rows, cols)) - pair_link_loads(at, target, (rows, cols), order))
    return TrafficFlows(loads, arriving, links, len(at) / pairs, float(extra.mean()) if len(at) else 0.0)


def _apart(at: Array, target: Array, cols: int) -> Array:
    (row, col), (to_row, to_col) = np.divmod(at, cols), np.divmod(target, cols)
    return np.asarray(np.abs(row - to_row) + np.abs(col - to_col))


def _counted(links: Array, rows: int, cols: int) -> Array:
    return np.bincount(links, minlength=rows + cols - 1).astype(float)


def _walked(ways: FaultRoutes, at: Array, target: Array, shape: tuple[int, int]) -> Array:
    """What each link carries, a unit of each pair."""
    loads = np.zeros((4, shape[0] * shape[1]))
    steps = np.array([1, -1, shape[1], -shape[1]])
    at = at.copy()
    while len(at):
        port = ways.table[at, target]
        np.add.at(loads, (port, at), 1.0)
        at = at + steps[port]
        going = at != target
        at, target = at[going], target[going]
    return loads.reshape(4, *shape)
