"""Multicasts and reductions that the network carries: routers copy words where ways part, and add or compare them where they
meet ([zhang2026] section II-D). Each link of a team's tree is crossed once, and no software is in between.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.collective import core_groups as team
from dse.evaluators.kernels.collective.core_groups import BufferRows, CoreGroup, MeshGroups, MessageChain, Rounds
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, MulticastInstruction, Program, ReduceInstruction, Round


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, pattern: str, combine: str = "sum", **cut: Any) -> KernelCost:
    """Time until all teams are done; leaves broadcast over designs.

    The farthest member's way, and then the words one after the other, for a multicast as for a reduction:

        t = post + 2 ramp + reach hop + words

    >>> on = MeshFabric(1, 0, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> cost(GemmShape(20, 1, 1), CoreMesh(8, 8), on, pattern="multicast", rows=8, cols=8).seconds
    26.0
    """
    return team.collective_cost(shape, mesh, fabric, pattern, MeshGroups(**cut), critical_chains, message_counts)


def seconds(shape: GemmShape, fabric: MeshFabric, *, pattern: str, **cut: Any) -> Any:
    """Time alone."""
    return team.collective_seconds(shape, fabric, pattern, MeshGroups(**cut), critical_chains)


def multicast_lead_time(shape: GemmShape, fabric: MeshFabric, **cut: Any) -> Any:
    """Time until a multicast is at members that are roots of other teams (`team.leading`)."""
    return team.multicast_lead_time(shape, fabric, MeshGroups(**cut), ways)


def multicast_send_time(shape: GemmShape, fabric: MeshFabric, **cut: Any) -> Any:
    """Time that the root of a multicast sends (`team.held`)."""
    return team.multicast_send_time(shape, fabric, MeshGroups(**cut), ways)


def activity(shape: GemmShape, mesh: CoreMesh, *, pattern: str, **cut: Any) -> Activity:
    """What is moved alone."""
    return team.collective_activity(shape, mesh, pattern, MeshGroups(**cut), message_counts)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str, combine: str = "sum", **cut: Any) -> Program:
    """The program: ``x`` of the root to its team, of the team to its root, or both."""
    groups, tile = MeshGroups(**cut), BufferRows("x", 0, shape.m)
    return team.collective_program(
        mesh,
        buffers(shape, mesh, dtype, pattern=pattern),
        pattern,
        lambda: multicast_rounds(groups, mesh, tile),
        lambda: reduction_rounds(groups, mesh, tile, combine),
    )


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str) -> tuple[Buffer, ...]:
    """Data of a core; nothing is kept on the way."""
    return team.collective_buffers(shape, dtype, arriving=False)


def multicast_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows) -> Rounds:
    """The root's tile to its team."""
    ends = np.asarray(tile.start), np.asarray(tile.stop)
    return (Round((MulticastInstruction(tile.slot, team.group_members(groups, mesh), *ends, tile.slot, at=ends[0]),)),)


def reduction_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows, combine: str, into: str = "") -> Rounds:
    """The team's tiles, summed or compared, to the same slot of its root, or to another one from its first row on."""
    ends = np.asarray(tile.start), np.asarray(tile.stop)
    path, how = team.group_members(groups, mesh), team.check_reduction(combine)
    return (Round((ReduceInstruction(tile.slot, path, *ends, into or tile.slot, at=ends[0], combine=how, via="router"),)),)


def critical_chains(pattern: str, of: CoreGroup) -> list[MessageChain]:
    """One message, as long as the way of the farthest member."""
    if of.members == 1:
        return [MessageChain()]
    one = MessageChain(posts=1, messages=1, hops=of.reach)
    return [one.then(one) if pattern == team.AGAIN else one]


def ways(of: CoreGroup) -> dict[int, list[MessageChain]]:
    """A message, as long as the way of the member; its root has started it."""
    there = {place: [MessageChain(posts=1, messages=1, hops=of.hops(of.root, place))] for place in range(of.members)}
    return there | {of.root: [MessageChain(posts=min(of.members - 1, 1))]}


def message_counts(pattern: str, of: CoreGroup) -> tuple[int, int, int]:
    """Messages that leave a core, links, and messages that come: a tree has as many links as members beside its root."""
    one, others = min(of.members - 1, 1), of.members - 1
    return (one, others, others) if pattern == "multicast" else (others, others, one)
