"""Multicasts and reductions by software trees ([zhang2026] section V-A, SW.Tree).

A collective takes a logarithmic number of software stages, which synchronise one after the other.

The core that holds the data of a part of a line sends it to the nearest core of the other half, and both go on with their
halves: messages of a stage never share a link. A rectangle does so along the root's row, and then along all columns. A
reduction is the same tree backwards, with a sum at each step.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from dse.evaluators.kernels.collective import core_groups as team
from dse.evaluators.kernels.collective.core_groups import BufferRows, CoreGroup, MeshGroups, MessageChain, Rounds, Stages
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, Program


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, pattern: str, combine: str = "sum", **cut: Any) -> KernelCost:
    """Time until all groups have finished [s], and activity; leaves broadcast over designs.

    For a line of p = 2^s members with the root at its end

        multicast   s (post + 2 ramp + words + stage) + (p - 1) hop
        reduce      s (post + 2 ramp + words + stage + sum) + (p - 1) hop

    >>> on = MeshFabric(1, 7, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> [
    ...     cost(GemmShape(20, 1, 1), CoreMesh(1, 8), on, pattern=name, rows=1, cols=8).seconds
    ...     for name in ("multicast", "reduce")
    ... ]
    [85.0, 85.0]
    """
    return team.collective_cost(shape, mesh, fabric, pattern, MeshGroups(**cut), critical_chains, message_counts, circuits)


def seconds(shape: GemmShape, fabric: MeshFabric, *, pattern: str, **cut: Any) -> Any:
    """Time until all groups have finished; leaves broadcast over designs. [s]"""
    return team.collective_seconds(shape, fabric, pattern, MeshGroups(**cut), critical_chains, circuits)


def multicast_lead_time(shape: GemmShape, fabric: MeshFabric, turn: Callable[[], Any], **cut: Any) -> Any:
    """Time until a multicast reaches members that are roots of other groups. [s]"""
    return team.multicast_lead_time(shape, fabric, MeshGroups(**cut), ways)


def multicast_send_time(shape: GemmShape, fabric: MeshFabric, **cut: Any) -> Any:
    """Time for which the root of a multicast sends. [s]"""
    return team.multicast_send_time(shape, fabric, MeshGroups(**cut), ways)


def activity(shape: GemmShape, mesh: CoreMesh, *, pattern: str, **cut: Any) -> Activity:
    """Activity of a tree collective: bytes sent, and bytes times hops."""
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
    """Buffers of a core: its data, and one received message."""
    return team.collective_buffers(shape, dtype, arriving="reduce" in team.pattern_stages(pattern))


def multicast_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows) -> Rounds:
    """Rounds of a multicast: the root's block goes to its group along a tree."""
    return team.group_rounds(groups, mesh, tree_stages, tile, "set", "core")


def reduction_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows, combine: str) -> Rounds:
    """Rounds of a reduction: blocks of a group are combined along a tree to its root."""
    return team.group_rounds(groups, mesh, _backwards, tile, team.check_reduction(combine), "core")


@lru_cache(maxsize=4096)
def tree_stages(group: CoreGroup) -> Stages:
    """Messages of a multicast tree, stage by stage.

    >>> tree_stages(CoreGroup(1, 5, 1))
    [[(1, 3)], [(1, 2), (3, 4)], [(1, 0)]]
    """
    height, width = divmod(group.root, group.cols)
    across = [[(height * group.cols + a, height * group.cols + b) for a, b in step] for step in _halved(0, group.cols, width)]
    down = [
        [(a * group.cols + col, b * group.cols + col) for a, b in step for col in range(group.cols)]
        for step in _halved(0, group.rows, height)
    ]
    return across + down


def critical_chains(pattern: str, group: CoreGroup) -> list[MessageChain]:
    """Chains that may end last: for each member the messages before its own, over the whole tree."""
    return _chains(pattern, group, locked=False)


def circuits(pattern: str, group: CoreGroup) -> list[MessageChain]:
    """Critical chains where a core's next message waits until the one before has arrived."""
    return _chains(pattern, group, locked=True)


def _chains(pattern: str, group: CoreGroup, *, locked: bool) -> list[MessageChain]:
    if pattern == "multicast":
        return team.find_longest_chains(chain for chains in _late(group, locked=locked).values() for chain in chains) or [
            MessageChain()
        ]
    late = _late(group, locked=locked) if pattern == team.AGAIN else {}
    for source, target in (pair for pairs in _backwards(group) for pair in pairs):
        source_chains, target_chains = late.get(source, [MessageChain()]), late.get(target, [MessageChain()])
        message = group.message(source, target, stages=1, sums=1)
        posted = message._replace(posts=1)
        late[target] = team.find_longest_chains(
            [*(chain.followed_by(message) for chain in target_chains), *(chain.followed_by(posted) for chain in source_chains)]
        )
    return late.get(group.root) or [MessageChain()]


def ways(group: CoreGroup) -> dict[int, list[MessageChain]]:
    """Chains to each member; the root starts one message per halving."""
    sent = sum(source == group.root for pairs in tree_stages(group) for source, _ in pairs)
    return _late(group) | {group.root: [MessageChain(posts=sent)]}


def _late(group: CoreGroup, *, locked: bool = False) -> dict[int, list[MessageChain]]:
    """What comes before a multicast is at each member."""
    late: dict[int, list[MessageChain]] = {}
    for source, target in (pair for pairs in tree_stages(group) for pair in pairs):
        chains = late.get(source, [MessageChain()])
        posted = group.message(source, target, posts=1, stages=1)
        late[target] = [chain.followed_by(posted) for chain in chains]
        after = posted._replace(stages=0, posts=0) if locked else group.interval(source, target)
        late[source] = team.find_longest_chains(chain.followed_by(after) for chain in chains)
    return late


def message_counts(pattern: str, group: CoreGroup) -> tuple[int, int, int]:
    """Messages sent, links crossed, and messages received: each goes to one core. [-]"""
    return group.members - 1, sum(group.count_hops(*pair) for pairs in tree_stages(group) for pair in pairs), group.members - 1


def _backwards(group: CoreGroup) -> Stages:
    return [[(target, source) for source, target in pairs] for pairs in reversed(tree_stages(group))]


def _halved(start: int, stop: int, root: int) -> Stages:
    """Of places `start` to `stop` of a line."""
    if stop - start < 2:
        return []
    middle = start + (stop - start + 1) // 2
    other = middle if root < middle else middle - 1
    halves = _halved(start, middle, min(root, other)), _halved(middle, stop, max(root, other))
    return [[(root, other)], *([*first, *second] for first, second in zip_longest(*halves, fillvalue=()))]
