"""Rings whose messages lock their ways: how many circuits follow one another until all steps are done, and over how many links.

A message asks for the channels of its way when its core has what it sends; of those that ask, who asked first has its channels
first, but nobody keeps a channel while it waits for others. So a core that is ahead takes channels from neighbours that wait
for two, and cores get out of step: an interleaved line, whose channels two messages share, takes up to two and a half circuits
a step in place of two, and so does a line whose slices differ. Which message is when depends on whose circuit is longer, not
by how much: a circuit takes a time, a row that only some slices have a little more, and each link a little more than nothing;
where other slices have no rows, a row takes most. Times are counted so, and every fabric puts its own in their place.
"""

from collections import Counter
from heapq import heappop, heappush
from typing import Any, NamedTuple

Channels = list[tuple[Any, ...]]
"""Of each message of a step, in the order in which they are written: the channels that it holds."""

BITS = 30
"""Of a number that holds the counts of a chain, what takes longest first, so that times are compared at once."""


class Chain(NamedTuple):
    """Messages that follow one another.

    Attributes:
        circuits: of them.
        rows: that they have beyond those that all slices have.
        links: of all of them.
    """

    circuits: int
    rows: int
    links: int


def longest_chain(
    channels: Channels, hops: list[int], then: list[tuple[int, ...]], more: list[list[int]], *, empty: bool = False
) -> Chain:
    """The messages that follow one another until the last step of a ring is done.

    Args:
        channels, hops: of the message of each place of the ring.
        then: the places whose message of the next step waits for the one of each place: that of its target, which sends it on,
            and where what comes overwrites what was there, that of its source, too.
        more: rows of each step's messages beyond those that all slices have, by place.
        empty: whether all slices have none.

    Two places that share a channel, and two that have one each:

    >>> tuple(longest_chain([("c",), ("c",)], [1, 1], [(1,), (0,)], [[0, 0]] * 3))
    (6, 0, 6)
    >>> tuple(longest_chain([("a",), ("b",)], [1, 2], [(1,), (0,)], [[0, 1], [1, 0]]))
    (2, 2, 3)
    """
    members, needs = len(channels), Counter(place for places in then for place in places)
    held: set[Any] = set()
    waiting: dict[Any, list[tuple[int, int]]] = {}
    missing: dict[int, int] = {}
    asks = [(0, place) for place in range(members)]  # since when, and by its place in what is written
    ends: list[tuple[int, int]] = []
    now = moment = 0
    while asks or ends:
        for ask in sorted(asks):
            step, place = divmod(ask[1], members)
            taken = next((channel for channel in channels[place] if channel in held), None)
            if taken is None:
                held.update(channels[place])
                heappush(ends, (now + _counted(more[step][place], hops[place], empty), ask[1]))
            else:
                waiting.setdefault(taken, []).append(ask)
        asks, moment, now = [], moment + 1, ends[0][0]
        while ends and ends[0][0] == now:
            message = heappop(ends)[1]
            step, place = divmod(message, members)
            for channel in channels[place]:
                held.discard(channel)
                asks += waiting.pop(channel, [])
            for other in then[place] if step + 1 < len(more) else ():
                number = (step + 1) * members + other
                missing[number] = missing.get(number, needs[other]) - 1
                if not missing[number]:
                    asks.append((moment, number))
    first, second, links = (now >> BITS * place & (1 << BITS) - 1 for place in (2, 1, 0))
    return Chain(second, first, links) if empty else Chain(first, second, links)


def _counted(rows: int, links: int, empty: bool) -> int:
    """One circuit, some rows and some links, in a number."""
    return (1 << BITS + BITS * (not empty)) + (rows << BITS + BITS * empty) + links
