"""Analytical model of reductions between dies, by the loads of links.

They go around one ring, in two levels of rings, or along a tree of K phases.

Vectors of all members of a group are added up (reduce_scatter, allreduce), or slices come to all of them (allgather), in all
groups at the same time. A ring sends least over any link and has most steps; two levels have few steps where nodes are small,
and send between nodes only a node's share of each vector; a tree has fewest steps, each of whole vectors.

What goes when, `ring_phases` and `tree_phases` say, of which `event_die_network` simulates the messages.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models.die_exchange_model import ExchangeCost, add_in_sequence, messages_cost, ring_cost
from dse.evaluators.kernels.gemv.ktree import phase_groups
from dse.evaluators.machine.die_network import DieNetworkLevel
from dse.space.array_math import Array, where
from dse.space.errors import DesignError

RING_PASSES = {"reduce_scatter": 1, "allgather": 1, "allreduce": 2}
"""Times round that slices of a collective go, by a ring, one member short each."""


class ReductionAlgorithm(NamedTuple):
    """Algorithm of a reduction between dies: a ring, two levels of rings, or a tree.

    Attributes:
        algorithm: an option of `space.mapping.GROUP_SUMS`.
        size: of two levels, members of a node, which follow one another.
        phases: of a tree.
    """

    algorithm: str = "ring"
    size: int = 0
    phases: int = 0


class RingPhase(NamedTuple):
    """A phase of a reduction in which slices go around rings at the same time.

    Attributes:
        at: dies of each ring in their order, shape (rings, members).
        share: of the vector, what each ring adds up or collects.
        steps: that each member sends.
    """

    at: Array
    share: float
    steps: int


class TreePhase(NamedTuple):
    """A phase of a reduction: messages of a tree that go at the same time, shape (messages,) each.

    Attributes:
        source, target: members.
        share: of the vector, what goes.
    """

    source: Array
    target: Array
    share: Array


def reduction_cost(pattern: str, level: DieNetworkLevel, at: Array, nbytes: Any, by: ReductionAlgorithm) -> ExchangeCost:
    """Time and link loads of a reduction of each member's vector, or of an allgather of slices.

    Args:
        pattern: reduce_scatter, allgather or allreduce.
        level: network of the dies.
        at: dies of the members, shape (groups, members).
        nbytes: the vector, of an allgather the whole one. [B], () or (designs,)
        by: whom.

    >>> on = DieNetworkLevel(4, 4, "mesh", 4, 1e12, 250e-9)
    >>> for by in (ReductionAlgorithm(), ReductionAlgorithm("two_level", size=4), ReductionAlgorithm("ktree", phases=2)):
    ...     found = reduction_cost("allreduce", on, np.arange(16)[None], 4096.0, by)
    ...     print(by.algorithm, round(1e6 * found.seconds, 2), "us,", round(found.sent_bytes), "B")
    ring 14.51 us, 122880 B
    two_level 5.01 us, 122880 B
    ktree 2.02 us, 122880 B
    """
    given_level = level.without_barrier
    if is_tree(at, by):
        parts = [
            messages_cost(given_level, at[:, tree_phase.source], at[:, tree_phase.target], _of_all(tree_phase, at), nbytes)
            for tree_phase in tree_phases(pattern, at, by)
        ]
    else:
        parts = [
            ring_cost(given_level, ring_phase.at, nbytes * ring_phase.share, ring_phase.steps)
            for ring_phase in ring_phases(pattern, at, by)
        ]
    found_part = parts[0]
    for part in parts[1:]:
        found_part = add_in_sequence(found_part, part)
    end = where(found_part.seconds > 0, level.barrier, 0.0)
    return found_part._replace(seconds=found_part.seconds + end, barrier=end)


def is_tree(at: Array, by: ReductionAlgorithm) -> bool:
    """Whether messages go along a tree; a single die sends none."""
    return by.algorithm == "ktree" and at.shape[1] > 1


def _of_all(phase: TreePhase, at: Array) -> Array:
    """Shares of the members of all groups."""
    return np.broadcast_to(phase.share, (len(at), len(phase.share)))


def ring_phases(pattern: str, at: Array, by: ReductionAlgorithm) -> tuple[RingPhase, ...]:
    """Ring phases of a reduction in sequence; levels of one member or one node have none.

    Two levels add up inside nodes, then between the dies of the same place in each; slices come to all the other way round.

    Args:
        pattern, at, by: as in `reduction_cost`.
    """
    members, size = at.shape[1], by.size
    if by.algorithm != "two_level" or size in (1, members):
        return (RingPhase(at, 1.0, RING_PASSES[pattern] * (members - 1)),)
    if not size or members % size:
        raise DesignError(f"nodes of {size} dies do not divide groups of {members}")
    nodes = np.sort(at.reshape(len(at), -1, size), axis=2)  # rows that turn round have dies above each other
    count = nodes.shape[1]
    inside = RingPhase(nodes.reshape(-1, size), 1.0, size - 1)
    across = RingPhase(nodes.transpose(0, 2, 1).reshape(-1, count), 1 / size, RING_PASSES[pattern] * (count - 1))
    return {
        "reduce_scatter": (inside, across),
        "allgather": (across, inside),
        "allreduce": (inside, across, inside),
    }[pattern]


def tree_phases(pattern: str, at: Array, by: ReductionAlgorithm) -> tuple[TreePhase, ...]:
    """Phases of a tree in sequence: up to the roots of groups, then back.

    Each phase begins when all of the one before has arrived.

    Of a reduce_scatter only slices go back, of an allgather only slices come: those of all members below. A reduction, and a
    multicast, is one half; `tree_root` is where it ends, or begins.

    Args:
        pattern, at, by: as in `reduction_cost`.

    Source:
        [he2025] section 6.2 for groups and their roots (`kernels.gemv.ktree`); all members send to their root at once.
    """
    up = _up(at.shape[1], by.phases)
    phases = [phase if pattern != "allgather" else phase._replace(share=below) for phase, below in up]
    back = [
        TreePhase(phase.target, phase.source, below if pattern == "reduce_scatter" else np.ones(len(below)))
        for phase, below in reversed(up)
    ]
    return (*(phases if pattern != "multicast" else ()), *(back if pattern != "reduce" else ()))


def tree_root(members: int, phases: int) -> int:
    """Member at which the sums of a tree end.

    >>> tree_root(9, 2), tree_root(4, 1)
    (4, 2)
    """
    (group, place) = phase_groups(members, phases)[-1][0]
    return int(group[place])


@lru_cache(maxsize=256)
def _up(members: int, phases: int) -> list[tuple[TreePhase, Array]]:
    """Phases of whole vectors to the roots, and which share of the members each sender stands for; those that move any."""
    below, found_phases = np.ones(members) / members, []
    for level in phase_groups(members, phases):
        target = np.concatenate([np.full(len(group), group[place]) for group, place in level])
        source = np.concatenate([group for group, _ in level])
        apart = source != target
        source, target = source[apart], target[apart]
        if len(source):
            found_phases.append((TreePhase(source, target, np.ones(len(source))), below[source].copy()))
        np.add.at(below, target, below[source])
    return found_phases
