"""Collectives by name: between dies, in groups of cores, and among all cores of a chip.

Each module of `ALLREDUCE`, between dies, has

    ports_needed(peers)          links that a die needs
    cost(nbytes, links)          time and activity by the analytical model
    build_program(rows, peers)   program, on a buffer ``x`` of `rows` rows per die

(that of a K-tree has `phases` as well). Installed packages add modules by entry points of the group dse.allreduce.

Each of `TEAMS` (multicasts and reductions along rows, columns and rectangles) and of `EXCHANGES` (allgather, reduce-scatter,
allreduce, all-to-all) has

    cost(shape, mesh, fabric, pattern=.., ..)            time and activity by the analytical model; shape.m elements of 2 B
    build_program(shape, mesh, dtype, pattern=.., ..)    program of the collective
    buffers(shape, mesh, dtype, pattern=..)              blocks that a core holds meanwhile

with the division of the mesh (`core_groups.MeshGroups`) or its topology as further options. Modules of `TEAMS` also have

    multicast_rounds(groups, mesh, tile)                 rounds, for programs that need them in between
    reduction_rounds(groups, mesh, tile, combine)

and those of `EXCHANGES` have `scatter_operands` and `gather_result`, from vectors to blocks and back.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.collective import bidirectional_ring, die_ktree, die_tree, full_mesh
from dse.evaluators.kernels.collective import direct_exchange as direct
from dse.evaluators.kernels.collective import hierarchical as two_level
from dse.evaluators.kernels.collective import in_network as hardware
from dse.evaluators.kernels.collective import mesh_rings as rings
from dse.evaluators.kernels.collective import ring_allreduce as ring
from dse.evaluators.kernels.collective import software_sequential as sequential
from dse.evaluators.kernels.collective import software_tree as tree
from dse.evaluators.kernels.collective import two_level_rings as grid
from dse.evaluators.kernels.collective.hierarchical import PhasedAllreduce
from dse.evaluators.machine.device_links import DeviceGroupLinks
from dse.space.array_math import where
from dse.space.errors import choose_option
from dse.space.registry import Registry

Algorithm = ModuleType | PhasedAllreduce
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
    ("ports_needed", "cost", "build_program"),
)

LIBRARY_OPTION = "library"
"""The allreduce that the stack of software has, instead of one of `ALLREDUCE`."""

TEAMS: dict[str, ModuleType] = {"hardware": hardware, "tree": tree, "sequential": sequential}

EXCHANGES: dict[str, ModuleType] = {"rings": rings, "direct": direct}


def ports_needed(name: str, peers: Any, nodes: Any = 1.0, phases: Any = None) -> Any:
    """Links of a node that a die needs for a named allreduce; a library's uses those that exist. [-]

    Args:
        name: of the allreduce.
        peers: dies of a node.
        nodes: nodes that take part.
        phases: phases of a K-tree.
    """
    if name == LIBRARY_OPTION:
        return where(peers > 1, 1.0, 0.0)
    ports = find_allreduce(name, phases).ports_needed(peers)
    return where(nodes > 1, ring.ports_needed(peers), ports) if name == TWO_LEVEL else ports


def find_allreduce(name: str, phases: Any = None) -> Algorithm:
    """Return the allreduce of a name; of a K-tree the one with so many phases."""
    option = choose_option(ALLREDUCE, name, "mapping.both.allreduce")
    return die_ktree.ktree_with_phases(phases) if name == KTREE else option


def allreduce_seconds(name: str, nbytes: Any, within: DeviceGroupLinks, between: DeviceGroupLinks, phases: Any = None) -> Any:
    """Time of a named allreduce, inside each node and between nodes. [s]

    Of two levels the nodes are one, where there are several.

    Args:
        name, phases: as of `allreduce_seconds`.
        nbytes: vector on each die. [B]
        within, between: as of `two_level.cost`.
    """
    seconds = two_level.cost(find_allreduce(name, phases), nbytes, within, between).seconds
    if name != TWO_LEVEL:
        return seconds
    return where(between.peers > 1, two_level.cost(ring, nbytes, within, between).seconds, seconds)


def allreduce_bytes(name: str, nbytes: Any, members: Any, nodes: Any = 1.0, phases: Any = None) -> tuple[Any, Any]:
    """Bytes that all dies of an allreduce send inside nodes and between them; a library's as a ring's. [B]

    Args:
        name, phases: as of `allreduce_seconds`.
        nbytes: vector on each die. [B]
        members: dies of a node.
        nodes: nodes that take part.

    >>> allreduce_bytes("ring", 8.0, 4), allreduce_bytes("tree", 8.0, 4, 2)
    ((48.0, 0.0), (96.0, 16.0))
    """
    algorithm = ring if name == LIBRARY_OPTION else find_allreduce(name, phases)
    inside, between = (DeviceGroupLinks(peers, 1.0, 0.0, "hop") for peers in (members, nodes))
    inner, outer = algorithm.cost(nbytes, inside), algorithm.cost(nbytes / members, between)
    return inner.activity.sent_bytes * nodes, outer.activity.sent_bytes * members


def find_collective(name: str) -> ModuleType:
    """Return the module of a named collective, of groups of cores or among all cores."""
    return choose_option(TEAMS | EXCHANGES, name, "mapping.collective")
