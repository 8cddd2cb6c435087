"""K-tree allreduce in a group of cores that send whole messages: sums go to a root in K phases, and come back the same way.

The tree is that of [he2025] section 6.2 (`kernels.gemv.ktree`), laid along the line that goes through the cores row by row,
there and back. On a wafer words stream through the cores of an arm; here each core stores what comes, adds, and sends it on, a
message at a time, so that both arms of a group reach their root one after the other, the longer one last.
"""

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemv.ktree import groups
from dse.evaluators.kernels.partition.placement import meeting, sides
from dse.evaluators.kernels.table import tabulated
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Cores, Round, Send
from dse.evaluators.program.routes import way
from dse.space.elementwise import ceil_div, option, where
from dse.space.mapping import PLACEMENTS

Turn = list[tuple[int, int]]
"""Messages that go at the same time, as places on the line: from, to."""


def ktree(placement: str, cores: int, phases: int, slot: str, rows: int) -> tuple[Round, ...]:
    """Every core ends with the sum of the slot's first `rows` rows over the whole group."""
    line = _line(placement, cores)

    def sent(turn: Turn, combine: str) -> Round:
        here, there = (Cores(*np.array([line[pair[end]] for pair in turn]).T) for end in (0, 1))
        size = np.full(len(turn), rows)
        return Round((Send(slot, here, there, 0 * size, size, combine=combine),))

    down = _turns(cores, phases)
    up = [[(to, at) for at, to in turn] for turn in reversed(down)]
    return (*(sent(turn, "sum") for turn in up), *(sent(turn, "set") for turn in down))


def ktree_seconds(placement: str, cores: Any, phases: Any, nbytes: Any, fabric: Fabric) -> Any:
    """Time of the tree, there and back; leaves broadcast over designs. [s]

    Turn after turn, each as long as its busiest channel is held (or, of a wormhole, as its longest message takes):

        t = 2 (turns post + sum over turns of [2 ramp + hops hop + messages words pace])

    with three times the way where it is locked, whose messages share channels both ways. Groups of a phase that are smaller
    than the largest end early and go on, which this does not count.

    Args:
        placement, cores, phases: of the group, and its tree.
        nbytes: of the vector that each core has. [B]
        fabric: the network.
    """
    key = option(placement, PLACEMENTS), cores, phases
    stream = ceil_div(nbytes, fabric.word_bytes) * fabric.pace
    locked = 6 * _circuits(*key) * fabric.ramp + 3 * _ways(*key) * fabric.hop + _circuits(*key) * stream
    free = 2 * _count(*key) * fabric.ramp + _hops(*key) * fabric.hop + _messages(*key) * stream
    return 2 * (_count(*key) * fabric.post + where(fabric.locked > 0, locked, free))


@lru_cache(maxsize=1024)
def _turns(cores: int, phases: int) -> list[Turn]:
    """The way back, from the last phase's root to everyone: of each group the longer arm first, then both.

    >>> _turns(4, 1), _turns(4, 2)
    ([[(2, 1)], [(1, 0), (2, 3)]], [[(3, 1)], [(1, 0), (3, 2)]])
    """
    found: list[Turn] = []
    for level in reversed(groups(cores, phases)):
        turns: list[Turn] = []
        for group, middle in level:
            members = [int(place) for place in group]
            arms = members[middle::-1], members[middle:]
            for late, arm in enumerate(sorted(arms, key=len, reverse=True)):
                for turn, pair in enumerate(pairwise(arm), late):
                    turns += [[] for _ in range(turn + 1 - len(turns))]
                    turns[turn].append(pair)
        found += turns
    return found


def _line(placement: str, cores: int) -> list[tuple[int, int]]:
    """Rows and columns of a group's cores along the line."""
    rows, cols = sides(placement, cores)
    return [(row, col) for row in range(rows) for col in (range(cols) if row % 2 == 0 else range(cols - 1, -1, -1))]


@lru_cache(maxsize=4096)
def _routed(which: int, cores: int, phases: int) -> list[list[list[Any]]]:
    """Links of each message of each turn."""
    line = _line(PLACEMENTS[which], cores)
    return [[list(pairwise(way(line[at], line[to]))) for at, to in turn] for turn in _turns(cores, phases)]


@tabulated
def _count(which: int, cores: int, phases: int) -> float:
    """Turns."""
    return float(len(_routed(which, cores, phases)))


@tabulated
def _hops(which: int, cores: int, phases: int) -> float:
    """Links of the longest message of each turn."""
    return float(sum(max(map(len, turn)) for turn in _routed(which, cores, phases)))


@tabulated
def _messages(which: int, cores: int, phases: int) -> float:
    """Messages of the busiest link of each turn."""
    return float(sum(max(Counter(link for links in turn for link in links).values()) for turn in _routed(which, cores, phases)))


@tabulated
def _circuits(which: int, cores: int, phases: int) -> float:
    """Messages of the busiest channel, a link both ways, of each turn."""
    return float(sum(max(map(len, meeting(turn))) for turn in _routed(which, cores, phases)))


@tabulated
def _ways(which: int, cores: int, phases: int) -> float:
    """Links, end to end, of all messages of that channel, of each turn."""
    return float(sum(max((len(ways), sum(ways)) for ways in meeting(turn))[1] for turn in _routed(which, cores, phases)))
