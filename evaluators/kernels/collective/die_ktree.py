"""K-tree allreduce of dies: vectors are added at the roots of groups in K phases, and the sum returns.

The tree is that of [he2025] section 6.2 (`kernels.gemv.ktree`), as wafers, groups of cores and dies of nodes have it. Here each
pair that exchanges has a link, so that all members of a group send to its root at once; between nodes, which have one port
each, they share the root's. One phase is a star; of a power of two dies, as many phases as a binary tree has levels, or more,
take what `die_tree` does.
"""

from functools import lru_cache, partial
from typing import Any

import numpy as np

from dse.evaluators.kernels.collective.hierarchical import PhasedAllreduce
from dse.evaluators.kernels.gemv.ktree import phase_groups
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.device_links import DeviceGroupLinks, transfer_seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Array, Number, maximum, where

DEFAULT_PHASES = 2
"""Phases of the tree by default."""


def ktree_with_phases(phases: Any) -> PhasedAllreduce:
    """K-tree allreduce with a number of phases; the default `DEFAULT_PHASES` if None."""
    phase_count = DEFAULT_PHASES if phases is None else phases
    return PhasedAllreduce(
        partial(ports_needed, phases=phase_count),
        partial(cost, phases=phase_count),
        partial(build_program, phases=int(phase_count)),
    )


def ports_needed(peers: Number, phases: Any = DEFAULT_PHASES) -> Number:
    """Links of the die with the most exchanges in the tree: one per partner. [-]"""
    partners: Number = _partners(peers, phases)
    return partners


def cost(nbytes: Number, links: DeviceGroupLinks, phases: Any = DEFAULT_PHASES) -> KernelCost:
    """Time until every die holds the sum of all vectors [s], and the bytes sent.

    Up and down a phase at a time, in which whole vectors go between the root of each group and its other members:

        t = 2 sum over phases of (latency + max(1, (g - 1) / ports) n / b)

    with g members of the largest group, of phases in which there is one of more than one member: K, or fewer where groups of
    two leave nothing to do. All go at once where each pair has a link, and this is exact; else they share the root's ports, and
    that smaller groups of a phase end early and go on is not counted.

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: between them.
        phases: of the tree (K).

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    Source:
        [he2025] section 6.2 for groups and their roots; all members send to their root at once.

    >>> [
    ...     cost(8e6, DeviceGroupLinks(8, bandwidth=1e9, latency=0.0, latency_per="hop"), phases).seconds
    ...     for phases in (1, 2, 3, 4)
    ... ]
    [0.016, 0.032, 0.048, 0.048]
    >>> [cost(8e6, DeviceGroupLinks(8, 1e9, 0.0, "hop", ports=1), phases).seconds for phases in (1, 2, 3, 4)]
    [0.112, 0.064, 0.048, 0.048]
    """
    others = [_others(links.peers, phases, phase) for phase in range(int(phases))]
    loads = sum((where(sent > 0, maximum(1.0, sent / links.ports), 0.0) for sent in others), 0.0)
    turns = sum((where(sent > 0, 1.0, 0.0) for sent in others), 0.0)
    return KernelCost(
        transfer_seconds(links, 2 * turns, 2 * loads * nbytes), Activity(sent_bytes=2 * (links.peers - 1) * nbytes)
    )


def build_program(rows: int, peers: int, phases: int = DEFAULT_PHASES) -> Program:
    """Program of `peers` cores with a link per pair.

    Buffer ``x`` has `rows` rows on each core.
    """
    up = _up(peers, phases)
    turns = [_turn(*pair, rows, "sum") for pair in up]
    turns += [_turn(to, at, rows, "set") for at, to in reversed(up)]
    return Program(1, peers, (Buffer("x", (rows, 1), depth=2),), (tuple(turns),), "full")


def _turn(source: Array, target: Array, rows: int, combine: str) -> Round:
    row, all_ = np.zeros(len(source), int), np.full(len(source), rows)
    return Round((SendInstruction("x", CoreIndex(row, source), CoreIndex(row, target), 0 * all_, all_, combine=combine),))


@lru_cache(maxsize=1024)
def _up(peers: int, phases: int) -> list[tuple[Array, Array]]:
    """Members and their roots, phase by phase; of phases in which some send."""
    stages = []
    for level in phase_groups(peers, phases):
        source = np.concatenate([group for group, _ in level])
        target = np.concatenate([np.full(len(group), group[place]) for group, place in level])
        apart = source != target
        if apart.any():
            stages.append((source[apart], target[apart]))
    return stages


@tabulate
def _others(peers: int, phases: int, phase: int) -> float:
    """Members of the largest group of a phase without its root. [-]"""
    return float(max(len(group) for group, _ in phase_groups(peers, phases)[phase]) - 1)


@tabulate
def _partners(peers: int, phases: int) -> float:
    """Other dies that one exchanges with, of the die that has most."""
    ends = [die for pair in _up(peers, phases) for die in pair]
    return float(np.bincount(np.concatenate(ends)).max()) if ends else 0.0
