"""Collectives by name: between dies, of teams of cores on a mesh, and among all cores of a mesh, a torus or a full mesh.

Each module of `ALLREDUCE`, between dies, has

    ports(peers)        links a die needs
    cost(nbytes, links) the closed form
    steps(rows, peers)  the program, on a slot ``x`` of `rows` rows a die

(that of a K-tree has `phases` as well), and installed packages add to them by entry points of the group dse.allreduce.

Each of `TEAMS` (multicasts and reductions along rows, columns and rectangles) and of `EXCHANGES` (allgather, reduce-scatter,
allreduce, all-to-all) has

    cost(shape, mesh, fabric, pattern=.., ..)   the closed form; shape.m elements of 2 bytes on a core
    steps(shape, mesh, dtype, pattern=.., ..)   the program
    slots(shape, mesh, dtype, pattern=..)       tiles that a core holds meanwhile

with how the mesh is cut (`team.Groups`) or its topology as further options. Teams' modules also have

    multicast(groups, mesh, tile)               the rounds, for programs that need them in between
    reduction(groups, mesh, tile, combine)

and exchanges' ``place`` and ``result``, operands as tiles and back.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.collective import (
    bidirectional_ring,
    die_ktree,
    die_tree,
    direct,
    full_mesh,
    grid,
    hardware,
    ring,
    rings,
    sequential,
    tree,
    two_level,
)
from dse.evaluators.kernels.collective.two_level import Phased
from dse.evaluators.machine.link import Links
from dse.space.elementwise import where
from dse.space.errors import chosen
from dse.space.registry import Registry

Algorithm = ModuleType | Phased
"""An allreduce between dies: a module of `ALLREDUCE`, or one of those with numbers of its own."""

KTREE, TWO_LEVEL = "ktree", "two_level"

ALLREDUCE: Registry[ModuleType] = Registry(
    "dse.allreduce",
    {
        "ring": ring,
        "bidirectional_ring": bidirectional_ring,
        "full_mesh": full_mesh,
        "tree": die_tree,
        KTREE: die_ktree,
        TWO_LEVEL: grid,
    },
    ("ports", "cost", "steps"),
)

LIBRARY = "library"
"""The allreduce that the stack of software has, instead of one of `ALLREDUCE`."""

TEAMS: dict[str, ModuleType] = {"hardware": hardware, "tree": tree, "sequential": sequential}

EXCHANGES: dict[str, ModuleType] = {"rings": rings, "direct": direct}


def ports(name: str, peers: Any, nodes: Any = 1.0, phases: Any = None) -> Any:
    """Links that a die needs, in its node, for an allreduce of a name; a library's takes what there is.

    Args:
        name: of the allreduce.
        peers: dies of a node.
        nodes: that take part.
        phases: of a K-tree.
    """
    if name == LIBRARY:
        return where(peers > 1, 1.0, 0.0)
    found = allreduce(name, phases).ports(peers)
    return where(nodes > 1, ring.ports(peers), found) if name == TWO_LEVEL else found


def allreduce(name: str, phases: Any = None) -> Algorithm:
    """The allreduce of a name, of a K-tree that of some phases."""
    found = chosen(ALLREDUCE, name, "mapping.both.allreduce")
    return die_ktree.of(phases) if name == KTREE else found


def seconds(name: str, nbytes: Any, within: Links, between: Links, phases: Any = None) -> Any:
    """Time of an allreduce of a name, inside each node and between them. [s]

    Of two levels the nodes are one, where there are several.

    Args:
        name, phases: as of `allreduce`.
        nbytes: vector on each die. [B]
        within, between: as of `two_level.cost`.
    """
    found = two_level.cost(allreduce(name, phases), nbytes, within, between).seconds
    if name != TWO_LEVEL:
        return found
    return where(between.peers > 1, two_level.cost(ring, nbytes, within, between).seconds, found)


def moved(name: str, nbytes: Any, members: Any, nodes: Any = 1.0, phases: Any = None) -> tuple[Any, Any]:
    """Bytes that all dies of an allreduce send inside their nodes, and between these; a library's are a ring's. [B], [B]

    Args:
        name, phases: as of `allreduce`.
        nbytes: vector on each die. [B]
        members: dies of a node.
        nodes: that take part.

    >>> moved("ring", 8.0, 4), moved("tree", 8.0, 4, 2)
    ((48.0, 0.0), (96.0, 16.0))
    """
    algorithm = ring if name == LIBRARY else allreduce(name, phases)
    inside, between = (Links(peers, 1.0, 0.0, "hop") for peers in (members, nodes))
    inner, outer = algorithm.cost(nbytes, inside), algorithm.cost(nbytes / members, between)
    return inner.activity.sent_bytes * nodes, outer.activity.sent_bytes * members


def collective(name: str) -> ModuleType:
    """The implementation of a name, of teams or of an exchange."""
    return chosen(TEAMS | EXCHANGES, name, "mapping.collective")
