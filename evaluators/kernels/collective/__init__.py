"""Collectives by name: between dies, of teams of cores on a mesh, and among all cores of a mesh, a torus or a full mesh.

Each module of `ALLREDUCE`, between dies, has

    ports(peers)        links a die needs
    cost(nbytes, links) the closed form
    steps(rows, peers)  the program, on a slot ``x`` of `rows` rows a die

and installed packages add to them by entry points of the group dse.allreduce.

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
    die_tree,
    direct,
    full_mesh,
    hardware,
    ring,
    rings,
    sequential,
    tree,
)
from dse.space.elementwise import where
from dse.space.errors import chosen
from dse.space.registry import Registry

ALLREDUCE: Registry[ModuleType] = Registry(
    "dse.allreduce",
    {"ring": ring, "bidirectional_ring": bidirectional_ring, "full_mesh": full_mesh, "tree": die_tree},
    ("ports", "cost", "steps"),
)

LIBRARY = "library"
"""The allreduce that the stack of software has, instead of one of `ALLREDUCE`."""

TEAMS: dict[str, ModuleType] = {"hardware": hardware, "tree": tree, "sequential": sequential}

EXCHANGES: dict[str, ModuleType] = {"rings": rings, "direct": direct}


def ports(name: str, peers: Any) -> Any:
    """Links that a die needs for an allreduce of a name; a library's takes what there is."""
    return where(peers > 1, 1.0, 0.0) if name == LIBRARY else allreduce(name).ports(peers)


def allreduce(name: str) -> ModuleType:
    """The allreduce of a name."""
    return chosen(ALLREDUCE, name, "mapping.both.allreduce")


def collective(name: str) -> ModuleType:
    """The implementation of a name, of teams or of an exchange."""
    return chosen(TEAMS | EXCHANGES, name, "mapping.collective")
