"""Multicasts and reductions in the network ([zhang2026] section II-D).

Routers copy words where routes part, and add or compare them where routes meet. Each link of a group's tree is crossed once,
and no software is in between.
"""

from collections.abc import Callable
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
    """Time until all groups have finished [s], and activity; leaves broadcast over designs.

    The farthest member's way, and then the words one after the other, for a multicast as for a reduction:

        t = post + 2 ramp + reach hop + words

    >>> on = MeshFabric(1, 0, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> cost(GemmShape(20, 1, 1), CoreMesh(8, 8), on, pattern="multicast", rows=8, cols=8).seconds
    26.0
    """
    return team.collective_cost(shape, mesh, fabric, pattern, MeshGroups(**cut), critical_chains, message_counts)


def seconds(shape: GemmShape, fabric: MeshFabric, *, pattern: str, **cut: Any) -> Any:
    """Time until all groups have finished; leaves broadcast over designs. [s]"""
    return team.collective_seconds(shape, fabric, pattern, MeshGroups(**cut), critical_chains)


def multicast_lead_time(shape: GemmShape, fabric: MeshFabric, turn: Callable[[], Any], **cut: Any) -> Any:
    """Time until a multicast reaches members that are roots of other groups. [s]"""
    return team.multicast_lead_time(shape, fabric, MeshGroups(**cut), ways)


def multicast_send_time(shape: GemmShape, fabric: MeshFabric, **cut: Any) -> Any:
    """Time for which the root of a multicast sends. [s]"""
    return team.multicast_send_time(shape, fabric, MeshGroups(**cut), ways)


def activity(shape: GemmShape, mesh: CoreMesh, *, pattern: str, **cut: Any) -> Activity:
    """Activity of a collective in the network: bytes sent, and bytes times hops."""
    return team.collective_activity(shape, mesh, pattern, MeshGroups(**cut), message_counts)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str, combine: str = "sum", **cut: Any) -> Program:
    """Program of a multicast of ``x`` from each root, a reduction to each root, or both."""
    groups, tile = MeshGroups(**cut), BufferRows("x", 0, shape.m)
    return team.collective_program(
        mesh,
        buffers(shape, mesh, dtype, pattern=pattern),
        pattern,
        lambda: multicast_rounds(groups, mesh, tile),
        lambda: reduction_rounds(groups, mesh, tile, combine),
    )


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str, *, pattern: str) -> tuple[Buffer, ...]:
    """Buffers of a core: its data only, since routers store nothing."""
    return team.collective_buffers(shape, dtype, arriving=False)


def multicast_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows) -> Rounds:
    """Rounds of a multicast: the root's block goes to its group."""
    ends = np.asarray(tile.start), np.asarray(tile.stop)
    return (Round((MulticastInstruction(tile.slot, team.group_members(groups, mesh), *ends, tile.slot, at=ends[0]),)),)


def reduction_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows, combine: str, into: str = "") -> Rounds:
    """Rounds of a reduction: blocks of a group are combined in a buffer of its root."""
    ends = np.asarray(tile.start), np.asarray(tile.stop)
    path, how = team.group_members(groups, mesh), team.check_reduction(combine)
    return (Round((ReduceInstruction(tile.slot, path, *ends, into or tile.slot, at=ends[0], combine=how, via="router"),)),)


def critical_chains(pattern: str, group: CoreGroup) -> list[MessageChain]:
    """Critical chain of a collective: one message over the route of the farthest member."""
    if group.members == 1:
        return [MessageChain()]
    chains = [MessageChain(posts=1, messages=1, hops=group.reach)]
    if group.is_divided:
        last = group.members - 1
        chains = [_message(group, corner) for corner in (0, group.cols - 1, last - group.cols + 1, last)]
    return team.find_longest_chains(chain.followed_by(chain) if pattern == team.AGAIN else chain for chain in chains)


def _message(group: CoreGroup, place: int) -> MessageChain:
    """From the root to a place, on a tree whose links all wait for the slowest one."""
    return group.message(group.root, place, posts=1)._replace(crossed=int(group.is_divided))


def ways(group: CoreGroup) -> dict[int, list[MessageChain]]:
    """Chains to each place of a group: one message over its route, started by the root."""
    chains = {place: [_message(group, place)] for place in range(group.members)}
    return chains | {group.root: [MessageChain(posts=min(group.members - 1, 1))]}


def message_counts(pattern: str, group: CoreGroup) -> tuple[int, int, int]:
    """Messages sent, links crossed, and messages received: a tree has a link per member but the root. [-]"""
    member, others = min(group.members - 1, 1), group.members - 1
    return (member, others, others) if pattern == "multicast" else (others, others, member)
