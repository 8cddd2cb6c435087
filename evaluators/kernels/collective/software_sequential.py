"""Multicasts and reductions one message after the other ([zhang2026] section V-A, SW.Seq).

The root sends to each member in sequence. In a reduction it receives from each in sequence; it buffers one message, so it
adds a message before the next one may come.

Sending needs no synchronisation; in a reduction, a member waits for a message of the root before it sends.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from dse.evaluators.kernels.collective import core_groups as team
from dse.evaluators.kernels.collective.core_groups import BufferRows, CoreGroup, MeshGroups, MessageChain, Rounds, Stages
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, Program
from dse.space.array_math import maximum, minimum


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, pattern: str, combine: str = "sum", **cut: Any) -> KernelCost:
    """Time until all groups have finished [s], and activity; leaves broadcast over designs.

    For p members

        multicast   post + (p - 2) max(words, post) + 2 ramp + hops hop + words, of the last one, or of one whose way is longer
        reduce      post + (p - 1) (2 ramp + words + stage + sum) + all hops hop

    >>> on = MeshFabric(1, 0, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> [
    ...     cost(GemmShape(20, 1, 1), CoreMesh(1, 8), on, pattern=name, rows=1, cols=8).seconds
    ...     for name in ("multicast", "reduce")
    ... ]
    [86.0, 131.0]
    """
    return team.collective_cost(shape, mesh, fabric, pattern, MeshGroups(**cut), critical_chains, message_counts, circuits)


def seconds(shape: GemmShape, fabric: MeshFabric, *, pattern: str, **cut: Any) -> Any:
    """Time until all groups have finished; leaves broadcast over designs. [s]"""
    return team.collective_seconds(shape, fabric, pattern, MeshGroups(**cut), critical_chains, circuits)


def multicast_lead_time(shape: GemmShape, fabric: MeshFabric, turn: Callable[[], Any], **cut: Any) -> Any:
    """Time that a multicast adds to each round of groups that cross, whose sums take turns. [s]

    Member i of a column hears i intervals d after its root and has its turn in its row i turns t after the first one. So
    columns whose roots are p places apart are in step with each other after two rounds that take (1 + p) d - (p - 1) t longer
    than the rest: the nearest ones decide, one interval a round, unless an interval is longer than a turn.

    Args:
        shape, fabric, cut: as of `core_groups.multicast_lead_time`.
        turn: function that gives the time of a message of the sums. [s]
    """
    last = team.multicast_lead_time(shape, fabric, MeshGroups(**cut), ways)
    first = team.multicast_lead_time(shape, fabric, MeshGroups(**cut), _first_way)
    between = minimum(cut["rows"], cut["cols"]) - 2.0
    return minimum(first + maximum(last - first - maximum(between, 0.0) * turn(), 0.0) / 2, last)


def multicast_send_time(shape: GemmShape, fabric: MeshFabric, **cut: Any) -> Any:
    """Time for which the root of a multicast sends. [s]"""
    return team.multicast_send_time(shape, fabric, MeshGroups(**cut), ways)


def activity(shape: GemmShape, mesh: CoreMesh, *, pattern: str, **cut: Any) -> Activity:
    """Activity of a sequential collective: bytes sent, and bytes times hops."""
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
    """Rounds of a multicast: the root's block goes to each member in sequence."""
    return team.group_rounds(groups, mesh, lambda group: [_pairs(group)] if group.members > 1 else [], tile, "set", "router")


def reduction_rounds(groups: MeshGroups, mesh: CoreMesh, tile: BufferRows, combine: str) -> Rounds:
    """Rounds of a reduction: blocks of a group are combined at its root in sequence."""

    def list_turns(group: CoreGroup) -> Stages:
        return [[(target, source)] for source, target in _pairs(group)]

    return team.group_rounds(groups, mesh, list_turns, tile, team.check_reduction(combine), "core")


def critical_chains(pattern: str, group: CoreGroup) -> list[MessageChain]:
    """Chains that may end last: to each member after those before it, or from each in sequence."""
    messages = _messages(group)
    if pattern == "multicast":
        return team.find_longest_chains(_turns(group)) or [MessageChain()]
    if pattern == team.AGAIN:  # members that have heard first are the first to be heard
        return team.find_longest_chains(
            turn.followed_by(_heard(messages[number:])) for number, turn in enumerate(_turns(group))
        ) or [MessageChain()]
    return [_heard(messages)]


def circuits(pattern: str, group: CoreGroup) -> list[MessageChain]:
    """Critical chains where each message to a member waits until the one before has arrived."""
    messages = _messages(group)
    if pattern == team.AGAIN:
        return team.find_longest_chains(
            _called(messages[: turn + 1]).followed_by(_heard(messages[turn:])) for turn in range(len(messages))
        ) or [MessageChain()]
    return [_called(messages)] if pattern == "multicast" and messages else critical_chains(pattern, group)


def _called(messages: list[MessageChain]) -> MessageChain:
    """To some members, one after the other."""
    return _in_turn(messages)._replace(posts=1)


def ways(group: CoreGroup) -> dict[int, list[MessageChain]]:
    """Chains to each member in sequence; the root has started all of them."""
    pairs = _pairs(group)
    turns = {place: [turn] for (_, place), turn in zip(pairs, _turns(group), strict=True)}
    return turns | {group.root: [MessageChain(posts=len(pairs))]}


def _messages(group: CoreGroup) -> list[MessageChain]:
    """Messages between the root and every other member in turn."""
    return [group.message(*pair) for pair in _pairs(group)]


def _turns(group: CoreGroup) -> list[MessageChain]:
    """Chain to each member: the messages that the root starts before, and its own."""
    turns, before = [], MessageChain(posts=1)
    for pair in _pairs(group):
        turns.append(before.followed_by(group.message(*pair)))
        before = before.followed_by(group.interval(*pair))
    return turns


def _heard(messages: list[MessageChain]) -> MessageChain:
    """From some members, each after the other."""
    count = len(messages)
    return _in_turn(messages)._replace(posts=min(count, 1), stages=count, sums=count)


def _in_turn(messages: list[MessageChain]) -> MessageChain:
    return reduce(MessageChain.followed_by, messages, MessageChain())


def _first_way(group: CoreGroup) -> dict[int, list[MessageChain]]:
    """Chain to the member that hears first, for each."""
    return dict.fromkeys(range(group.members), _turns(group)[:1] or [MessageChain()])


def message_counts(pattern: str, group: CoreGroup) -> tuple[int, int, int]:
    """Messages sent, links crossed, and messages received: each goes to one core. [-]"""
    return group.members - 1, sum(group.count_hops(*pair) for pair in _pairs(group)), group.members - 1


def _pairs(group: CoreGroup) -> list[tuple[int, int]]:
    """The root, and every other member in turn."""
    return [(group.root, place) for place in range(group.members) if place != group.root]
