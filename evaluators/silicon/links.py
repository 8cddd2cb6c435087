"""Links between dies, and between tiles, of a topology: how many there are, how far they reach, and what a switch adds.

Lengths are counted in links to a neighbour, along rows and columns. A link that passes dies, or tiles, is driven again at each,
so that it takes as many interfaces and as much energy as the links to neighbours along its way.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.space.chip import Chip, box_sides
from dse.space.elementwise import logarithm, maximum


class Wiring(NamedTuple):
    """Links of a rectangle of places; leaves broadcast over designs.

    Attributes:
        links: of all places, each counted once. [1]
        length: of all links together. [links to a neighbour]
    """

    links: Any
    length: Any

    @property
    def mean(self) -> Any:
        """Length of a link, at least that to a neighbour."""
        return maximum(self.length / maximum(self.links, 1.0), 1.0)


def wiring(rows: Any, cols: Any, topology: str) -> Wiring:
    """Links of a topology between places that are numbered row after row; those to a switch reach to the middle.

    >>> wiring(8, 8, "mesh"), wiring(8, 8, "torus").mean
    (Wiring(links=112, length=112), 1.75)
    >>> wiring(1, 8, "ring").mean, wiring(2, 2, "full"), round(wiring(8, 8, "full").mean, 2), wiring(8, 8, "switch").mean
    (1.75, Wiring(links=6.0, length=8.0), 5.33, 4.0)
    """
    places, neighbours = rows * cols, rows * (cols - 1) + cols * (rows - 1)
    if topology == "mesh":
        return Wiring(neighbours, neighbours)
    if topology == "torus":
        return Wiring(
            neighbours + rows * (cols > 2) + cols * (rows > 2),
            neighbours + rows * (cols - 1) * (cols > 2) + cols * (rows - 1) * (rows > 2),
        )
    if topology == "ring":
        way = rows * (cols - 1) + (rows - 1) * cols
        return Wiring(places - 1 + (places > 2), way + (places > 2) * (rows + cols - 2))
    if topology == "full":
        apart = (cols**2 * rows * (rows**2 - 1) + rows**2 * cols * (cols**2 - 1)) / 6
        return Wiring(places * (places - 1) / 2, apart)
    return Wiring(places, cols * (rows**2 // 4) + rows * (cols**2 // 4))


PORTS = 5
"""Of a router of a mesh: four neighbours and its core."""


def ports(rows: Any, cols: Any, topology: str) -> Any:
    """Ports of a router, its core's included; as in a mesh where there are no more. [1]

    >>> ports(8, 8, "mesh"), ports(8, 8, "torus"), ports(8, 8, "full")
    (5, 5.0, 64.0)
    """
    if topology == "mesh":
        return PORTS
    return maximum(2 * wiring(rows, cols, topology).links / (rows * cols), PORTS - 1.0) + 1


def routed(rows: Any, cols: Any, topology: str) -> Any:
    """Ports of a router with their links, over those of a mesh; a link that is n times as long counts n times. [1]

    >>> routed(8, 8, "mesh"), routed(8, 8, "torus")
    (1.0, 1.6)
    """
    if topology == "mesh":
        return 1.0
    of = wiring(rows, cols, topology)
    return (ports(rows, cols, topology) + 2 * (of.length - of.links) / (rows * cols)) / PORTS


def between(chip: Chip) -> Wiring:
    """Links between the dies of a chip of many; of one box, where they are in boxes."""
    sides = (chip.dies.rows, chip.dies.cols) if chip.boxes is None else box_sides(chip.dies.cols, chip.boxes.size)
    return wiring(*sides, chip.d2d.topology)


def interfaces(chip: Chip) -> Any:
    """Interfaces of links for each die: its ports, those that drive longer links again, and those of a switch. [1]

    Of a switch, each port of a die has one at either end of every part of the way there.
    """
    of, d2d = between(chip), chip.d2d
    if d2d.topology == "mesh":
        return d2d.ports
    if d2d.topology == "switch":
        return 2 * d2d.ports * of.mean
    return d2d.ports + 2 * (of.length - of.links) / _members(chip)


def doublings(chip: Chip) -> Any:
    """Stages of the switch between dies: one a doubling of those that it joins, as in a butterfly ([dally2004] chapter 4)."""
    return stages(_members(chip))


def stages(members: Any) -> Any:
    """Of a switch that joins so many. [1]

    >>> stages(8), stages(1), stages(np.array([4.0, 64.0])).tolist()
    (3.0, 1.0, [2.0, 6.0])
    """
    return logarithm(maximum(members, 2.0)) / float(np.log(2))


def port(chip: Chip) -> Any:
    """What one die sends to the network between servers, one direction. [B/s], broadcasts over designs."""
    if chip.boxes is not None:
        return chip.boxes.bandwidth
    nodes = None if chip.network is None else chip.network.nodes
    return 0.0 if nodes is None else nodes.bandwidth / nodes.size


def _members(chip: Chip) -> Any:
    """Dies that have links to one another."""
    return chip.dies.rows * chip.dies.cols if chip.boxes is None else chip.boxes.size
