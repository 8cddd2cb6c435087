"""K-tree allreduce in a group of cores that send whole messages.

Sums go to a root in K phases, and come back along the same routes.

The tree is that of [he2025] section 6.2 (`kernels.gemv.ktree`), laid along the line that goes through the cores row by row,
there and back. On a wafer words stream through the cores of an arm; here each core stores what comes, adds, and sends it on, a
message at a time, so that both arms of a group reach their root one after the other, the longer one last.
"""

from collections import defaultdict
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemv.ktree import phase_groups
from dse.evaluators.kernels.partition.group_placement import conflicting_routes, group_sides
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import CoreIndex, Round, SendInstruction
from dse.evaluators.program.routes import route_cores
from dse.space.array_math import ceil_div, maximum, option_index, where
from dse.space.mapping import PLACEMENTS

STREAM, MESSAGE = 1 << 48, 1 << 24
"""Of a number that holds three counts: what takes longest, and what comes next."""

TreeMessages = list[tuple[int, int]]
"""Messages that go at the same time, as places on the line: from, to."""


def ktree_rounds(placement: str, cores: int, phases: int, slot: str, rows: int) -> tuple[Round, ...]:
    """Rounds after which every core has the sum of the buffer's first `rows` rows over the group."""
    line = _line(placement, cores)

    def build_round(turn: TreeMessages, combine: str) -> Round:
        sources, targets = (CoreIndex(*np.array([line[pair[end]] for pair in turn]).T) for end in (0, 1))
        size = np.full(len(turn), rows)
        return Round((SendInstruction(slot, sources, targets, 0 * size, size, combine=combine),))

    down = _turns(cores, phases)
    up = [[(to, at) for at, to in turn] for turn in reversed(down)]
    return (*(build_round(turn, "sum") for turn in up), *(build_round(turn, "set") for turn in down))


def ktree_seconds(placement: str, cores: Any, phases: Any, nbytes: Any, fabric: MeshFabric) -> Any:
    """Time of a K-tree allreduce in a group, reduction and broadcast; leaves broadcast over designs. [s]

    Of a wormhole the longest chain of messages, that wait for what their core has to send, and for its ramp and their links:

        t = messages (post + 2 ramp) + hops hop + streams words pace

    which is looked for twice, as if words took longest and as if hops did. Where routes are locked, turn after turn, each as
    long as its busiest channel is held, with three times the way, whose messages share channels both ways; groups of a phase
    that are smaller than the largest end early and go on, which this does not count.

    Args:
        placement, cores, phases: of the group, and its tree.
        nbytes: of the vector that each core has. [B]
        fabric: network of the mesh.
    """
    key = option_index(placement, PLACEMENTS), cores, phases
    stream = ceil_div(nbytes, fabric.word_bytes) * fabric.pace
    locked = 6 * _circuits(*key) * fabric.ramp + 3 * _ways(*key) * fabric.hop + _circuits(*key) * stream
    locked = 2 * (_count(*key) * fabric.post + locked)

    def time_chain(first: int) -> Any:
        streams, messages, hops = (_chain(number, *key, first) for number in range(3))
        return messages * (fabric.post + 2 * fabric.ramp) + hops * fabric.hop + streams * stream

    return where(fabric.locked > 0, locked, maximum(time_chain(0), time_chain(1)))


@lru_cache(maxsize=1024)
def _turns(cores: int, phases: int) -> list[TreeMessages]:
    """The way back, from the last phase's root to everyone: of each group the longer arm first, then both.

    >>> _turns(4, 1), _turns(4, 2)
    ([[(2, 1)], [(1, 0), (2, 3)]], [[(3, 1)], [(1, 0), (3, 2)]])
    """
    found_turns: list[TreeMessages] = []
    for level in reversed(phase_groups(cores, phases)):
        turns: list[TreeMessages] = []
        for group, middle in level:
            members = [int(place) for place in group]
            arms = members[middle::-1], members[middle:]
            for late, arm in enumerate(sorted(arms, key=len, reverse=True)):
                for turn, pair in enumerate(pairwise(arm), late):
                    turns += [[] for _ in range(turn + 1 - len(turns))]
                    turns[turn].append(pair)
        found_turns += turns
    return found_turns


def _line(placement: str, cores: int) -> list[tuple[int, int]]:
    """Rows and columns of a group's cores along the line."""
    rows, cols = group_sides(placement, cores)
    return [(row, col) for row in range(rows) for col in (range(cols) if row % 2 == 0 else range(cols - 1, -1, -1))]


@lru_cache(maxsize=4096)
def _routed(which: int, cores: int, phases: int) -> list[list[list[Any]]]:
    """Links of each message of each turn."""
    line = _line(PLACEMENTS[which], cores)
    return [[list(pairwise(route_cores(line[at], line[to]))) for at, to in turn] for turn in _turns(cores, phases)]


@tabulate
def _count(which: int, cores: int, phases: int) -> float:
    """Number of messages in sequence. [-]"""
    return float(len(_routed(which, cores, phases)))


@tabulate
def _chain(number: int, which: int, cores: int, phases: int, first: int) -> float:
    """Streams, messages or hops of the longest chain there and back, as if streams took longest, or hops."""
    return _chains(which, cores, phases, first)[number]


@lru_cache(maxsize=1024)
def _chains(which: int, cores: int, phases: int, first: int) -> tuple[float, float, float]:
    stream, message, hop = (STREAM, MESSAGE, 1) if not first else (MESSAGE, 1, STREAM)
    down = _routed(which, cores, phases)
    up = [[[(to, at) for at, to in reversed(links)] for links in turn] for turn in reversed(down)]
    ready: defaultdict[Any, int] = defaultdict(int)  # at cores, and on links and ramps
    for turn in (*up, *down):
        before = dict(ready)
        for links in turn:
            source, target = links[0][0], links[-1][1]
            at = max(before.get(source, 0), ready["out", source])
            ready["out", source] = at + stream
            for link in links:
                at = max(at, ready[link])
                ready[link] = at + stream
                at += hop
            at = max(at, ready["in", target])
            ready["in", target] = at + stream
            ready[target] = max(ready[target], at + stream + message)
    time = max(ready.values(), default=0)
    counts = time // STREAM, time % STREAM // MESSAGE, time % MESSAGE
    streams, messages, hops = counts if not first else (counts[1], counts[2], counts[0])
    return float(streams), float(messages), float(hops)


@tabulate
def _circuits(which: int, cores: int, phases: int) -> float:
    """Messages of the busiest channel, a link both ways, of each turn."""
    return float(sum(max(map(len, conflicting_routes(turn))) for turn in _routed(which, cores, phases)))


@tabulate
def _ways(which: int, cores: int, phases: int) -> float:
    """Links, end to end, of all messages of that channel, of each turn."""
    return float(
        sum(max((len(ways), sum(ways)) for ways in conflicting_routes(turn))[1] for turn in _routed(which, cores, phases))
    )
