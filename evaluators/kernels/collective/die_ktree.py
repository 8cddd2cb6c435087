"""Allreduce along a K-tree of dies: whole vectors go to the roots of groups in K phases, and the sum comes back the same way.

The tree is that of [he2025] section 6.2 (`kernels.gemv.ktree`), as wafers, groups of cores and dies in boxes have it. Here each
pair that exchanges has a link, so that all members of a group send to its root at once. One phase is a star; as many phases as
a binary tree has levels, and more, take what `die_tree` does.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemv.ktree import groups
from dse.evaluators.kernels.table import tabulated
from dse.evaluators.machine.link import Links, seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Cores, Program, Round, Send, Slot
from dse.space.elementwise import Array, Number

PHASES = 2
"""Where a plan says no other number."""


class Phased(NamedTuple):
    """The tree of some phases, with what a module of the allreduce table has."""

    ports: Callable[[Number], Number]
    cost: Callable[[Number, Links], Cost]
    steps: Callable[[int, int], Program]


def of(phases: Any) -> Phased:
    """The tree of some phases; `PHASES` of None."""
    said = PHASES if phases is None else phases
    return Phased(partial(ports, phases=said), partial(cost, phases=said), partial(steps, phases=int(said)))


def ports(peers: Number, phases: Any = PHASES) -> Number:
    """Links that the die with most of them needs: one for each other die that it exchanges with."""
    found: Number = _partners(peers, phases)
    return found


def cost(nbytes: Number, links: Links, phases: Any = PHASES) -> Cost:
    """Time until every peer holds the sum of all vectors.

    Up and down a phase at a time, in which whole vectors go over links of their own:

        t = 2 P (latency + n / b)

    with P the phases in which some group has more than one member: K, or fewer where groups of two leave nothing to do.

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: one for each pair of dies that exchange.
        phases: of the tree (K).

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    Source:
        [he2025] section 6.2 for groups and their roots; all members send to their root at once.

    >>> [cost(8e6, Links(8, bandwidth=1e9, latency=0.0, latency_per="hop"), phases).seconds for phases in (1, 2, 3, 4)]
    [0.016, 0.032, 0.048, 0.048]
    """
    turns = 2 * _active(links.peers, phases)
    return Cost(seconds(links, turns, turns * nbytes), Activity(sent_bytes=2 * (links.peers - 1) * nbytes))


def steps(rows: int, peers: int, phases: int = PHASES) -> Program:
    """The program on `peers` cores with a link for each pair, some of which it uses; slot ``x`` has `rows` rows a core."""
    up = _up(peers, phases)
    turns = [_turn(*pair, rows, "sum") for pair in up]
    turns += [_turn(to, at, rows, "set") for at, to in reversed(up)]
    return Program(1, peers, (Slot("x", (rows, 1), depth=2),), (tuple(turns),), "full")


def _turn(source: Array, target: Array, rows: int, combine: str) -> Round:
    row, all_ = np.zeros(len(source), int), np.full(len(source), rows)
    return Round((Send("x", Cores(row, source), Cores(row, target), 0 * all_, all_, combine=combine),))


@lru_cache(maxsize=1024)
def _up(peers: int, phases: int) -> list[tuple[Array, Array]]:
    """Members and their roots, phase by phase; of phases in which some send."""
    found = []
    for level in groups(peers, phases):
        source = np.concatenate([group for group, _ in level])
        target = np.concatenate([np.full(len(group), group[place]) for group, place in level])
        apart = source != target
        if apart.any():
            found.append((source[apart], target[apart]))
    return found


@tabulated
def _active(peers: int, phases: int) -> float:
    """Phases in which some send."""
    return float(len(_up(peers, phases)))


@tabulated
def _partners(peers: int, phases: int) -> float:
    """Other dies that one exchanges with, of the die that has most."""
    ends = [die for pair in _up(peers, phases) for die in pair]
    return float(np.bincount(np.concatenate(ends)).max()) if ends else 0.0
