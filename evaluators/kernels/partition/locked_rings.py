"""Ring collectives whose messages lock their routes.

The module counts the circuits that follow one another until all steps have finished, and the links that they cross.

A message asks for the channels of its way when its core has what it sends; of those that ask, who asked first has its channels
first, but nobody keeps a channel while it waits for others. So a core that is ahead takes channels from neighbours that wait
for two, and cores get out of step: an interleaved line, whose channels two messages share, takes up to two and a half circuits
a step in place of two, and so does a line whose slices differ. Which message is when depends on whose circuit is longer: a
circuit takes a time, a row that only some slices have a share of it or little, and each link a little more than nothing.
Messages are counted in that order, and every fabric puts its own times in their place.
"""

from collections import Counter
from heapq import heappop, heappush
from typing import Any, NamedTuple

Channels = list[tuple[Any, ...]]
"""Of each message of a step, in the order in which they are written: the channels that it holds."""

LINK, ROW, SHARE = 1, 1 << 24, 1 << 48
"""Of a circuit's length: a link, a row where it takes next to nothing, and a sixteenth of a circuit."""

CIRCUIT = 16 * SHARE
"""Length of a circuit of a slice that has no row more, and no links."""


Route = list[tuple[tuple[int, int], tuple[int, int]]]
"""Links of a message, each from a core to the next."""


class Chain(NamedTuple):
    """Chain of messages that follow one another until a ring has finished.

    Attributes:
        circuits: of them.
        rows: that they have beyond those that all slices have.
        links: of all of them.
    """

    circuits: int
    rows: int
    links: int


def circuit(route: Route) -> tuple[Any, ...]:
    """Channels of a message that locks its route: ramps at both ends, and its links in both directions.

    >>> circuit([((0, 0), (0, 1))])
    (('out', (0, 0)), ('in', (0, 1)), ((0, 0), (0, 1)))
    """
    both = [(next_core, core) for core, next_core in route] if len(route) > 1 else []
    return ("out", route[0][0]), ("in", route[-1][1]), *route, *both


def longest_chain(
    channels: Channels, hops: list[int], then: list[tuple[int, ...]], more: list[list[int]], share: int = 0, anew: int = 0
) -> Chain:
    """Longest chain of messages until the last step of a ring has finished.

    Args:
        channels, hops: of the message of each place of the ring.
        then: the places whose message of the next step waits for the one of each place: that of its target, which sends it on,
            and where what comes overwrites what was there, that of its source, too.
        more: rows of each step's messages beyond those that all slices have, by place.
        share: sixteenths of a circuit that a row takes.
        anew: steps after which places begin with slices of their own again, that nobody brings them; 0 for never.

    Two places that share a channel, and two that have one each:

    >>> tuple(longest_chain([("c",), ("c",)], [1, 1], [(1,), (0,)], [[0, 0]] * 3))
    (6, 0, 6)
    >>> tuple(longest_chain([("a",), ("b",)], [1, 2], [(1,), (0,)], [[0, 1], [1, 0]]))
    (2, 2, 3)
    """
    members, alone = len(channels), [(place,) for place in range(len(channels))]
    needs = Counter(place for places in then for place in places)
    held: set[Any] = set()
    waiting: dict[Any, list[tuple[int, int]]] = {}
    missing: dict[int, int] = {}
    asks = [(0, place) for place in range(members)]  # since when, and by its place in what is written
    ends: list[tuple[int, int, Chain]] = []
    so_far = Chain(0, 0, 0)
    now = moment = 0
    while asks or ends:
        for ask in sorted(asks):
            step, place = divmod(ask[1], members)
            taken = next((channel for channel in channels[place] if channel in held), None)
            if taken is not None:
                waiting.setdefault(taken, []).append(ask)
                continue
            held.update(channels[place])
            rows, links = more[step][place], hops[place]
            chain = Chain(so_far.circuits + 1, so_far.rows + rows, so_far.links + links)
            heappush(ends, (now + CIRCUIT + rows * (share * SHARE + ROW) + links * LINK, ask[1], chain))
        asks, moment, (now, _, so_far) = [], moment + 1, ends[0]
        while ends and ends[0][0] == now:
            message = heappop(ends)[1]
            step, place = divmod(message, members)
            for channel in channels[place]:
                held.discard(channel)
                asks += waiting.pop(channel, [])
            begins = anew > 0 and (step + 1) % anew == 0
            for other in (alone if begins else then)[place] if step + 1 < len(more) else ():
                number = (step + 1) * members + other
                missing[number] = missing.get(number, 1 if begins else needs[other]) - 1
                if not missing[number]:
                    asks.append((moment, number))
    return so_far
