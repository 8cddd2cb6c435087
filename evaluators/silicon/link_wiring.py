"""Wiring of link topologies between dies or tiles: number, length, and switch stages.

Lengths are counted in links to a neighbour, along rows and columns. A link that passes dies, or tiles, is driven again
at each, so that it needs as many interfaces and as much energy as the links to neighbours along its route.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import logarithm, maximum, where
from dse.space.chip import Chip, node_grid


class LinkWiring(NamedTuple):
    """Links of a topology on a grid: number and total length; leaves broadcast over designs.

    Attributes:
        links: of all places, each counted once. [1]
        length: of all links together. [links to a neighbour]
    """

    links: Any
    length: Any

    @property
    def mean(self) -> Any:
        """Mean length of a link, at least that to a neighbour."""
        return maximum(self.length / maximum(self.links, 1.0), 1.0)


def link_wiring(rows: Any, cols: Any, topology: str) -> LinkWiring:
    """Number and length of links of a topology on a grid; links to a switch reach to the middle.

    >>> link_wiring(8, 8, "mesh"), link_wiring(8, 8, "torus").mean
    (LinkWiring(links=112, length=112), 1.75)
    >>> (
    ...     link_wiring(1, 8, "ring").mean,
    ...     link_wiring(2, 2, "full"),
    ...     round(link_wiring(8, 8, "full").mean, 2),
    ...     link_wiring(8, 8, "switch").mean,
    ... )
    (1.75, LinkWiring(links=6.0, length=8.0), 5.33, 4.0)
    """
    places, neighbours = rows * cols, rows * (cols - 1) + cols * (rows - 1)
    if topology == "mesh":
        return LinkWiring(neighbours, neighbours)
    if topology == "torus":
        return LinkWiring(
            neighbours + rows * (cols > 2) + cols * (rows > 2),
            neighbours + rows * (cols - 1) * (cols > 2) + cols * (rows - 1) * (rows > 2),
        )
    if topology == "ring":
        way = rows * (cols - 1) + (rows - 1) * cols
        return LinkWiring(places - 1 + (places > 2), way + (places > 2) * (rows + cols - 2))
    if topology == "full":
        apart = (cols**2 * rows * (rows**2 - 1) + rows**2 * cols * (cols**2 - 1)) / 6
        return LinkWiring(places * (places - 1) / 2, apart)
    return LinkWiring(places, cols * (rows**2 // 4) + rows * (cols**2 // 4))


PORTS = 5
"""Of a router of a mesh: four neighbours and its core."""


def router_ports(rows: Any, cols: Any, topology: str) -> Any:
    """Ports of a router including its core's, at least those of a mesh router. [1]

    >>> router_ports(8, 8, "mesh"), router_ports(8, 8, "torus"), router_ports(8, 8, "full")
    (5, 5.0, 64.0)
    """
    if topology == "mesh":
        return PORTS
    return maximum(2 * link_wiring(rows, cols, topology).links / (rows * cols), PORTS - 1.0) + 1


def relative_router_ports(rows: Any, cols: Any, topology: str) -> Any:
    """Router ports with links relative to a mesh, where a link of length n counts n times. [1]

    >>> relative_router_ports(8, 8, "mesh"), relative_router_ports(8, 8, "torus")
    (1.0, 1.6)
    """
    if topology == "mesh":
        return 1.0
    wiring = link_wiring(rows, cols, topology)
    return (router_ports(rows, cols, topology) + 2 * (wiring.length - wiring.links) / (rows * cols)) / PORTS


def die_wiring(chip: Chip) -> LinkWiring:
    """Links between the dies of one node of a chip."""
    sides = (chip.dies.rows, chip.dies.cols) if chip.nodes is None else node_grid(chip.dies.cols, chip.nodes.size)
    return link_wiring(*sides, chip.d2d.topology)


def link_interfaces_per_die(chip: Chip) -> Any:
    """Link interfaces per die: ports, repeaters of longer links, and those of a switch. [1]

    With a switch, each port of a die has an interface at either end of every part of the route.
    """
    wiring, d2d = die_wiring(chip), chip.d2d
    if d2d.topology == "mesh":
        return d2d.ports
    if d2d.topology == "switch":
        return 2 * d2d.ports * wiring.mean
    return d2d.ports + 2 * (wiring.length - wiring.links) / _members(chip)


def switch_stages_between_dies(chip: Chip) -> Any:
    """Stages of the switch between dies: one per doubling of its members [dally2004] chapter 4."""
    return switch_stages(_members(chip))


def switch_stages(members: Any) -> Any:
    """Stages of a switch that joins a number of members. [1]

    >>> switch_stages(8), switch_stages(1), switch_stages(np.array([4.0, 64.0])).tolist()
    (3.0, 1.0, [2.0, 6.0])
    """
    return logarithm(maximum(members, 2.0)) / float(np.log(2))


def node_port_bandwidth(chip: Chip) -> Any:
    """Bandwidth of one die to the scale-out network, one direction; broadcasts over designs. [B/s]"""
    if chip.nodes is not None:
        return chip.nodes.bandwidth
    nodes = None if chip.network is None else chip.network.nodes
    return 0.0 if nodes is None else nodes.bandwidth / nodes.size


def chain_bandwidth(chip: Chip) -> Any:
    """Bandwidth from one chip of a chain to the next, one direction; 0 for a chip by itself. [B/s]"""
    return 0.0 if chip.chain is None else where(chip.chain.chips > 1, chip.chain.bandwidth, 0.0)


def _members(chip: Chip) -> Any:
    """Dies that have links to one another."""
    return chip.dies.rows * chip.dies.cols if chip.nodes is None else chip.nodes.size
