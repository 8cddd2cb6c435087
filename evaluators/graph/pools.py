"""Where pipelines that prefill and that decode are on a mesh, and what KV caches and activations do to each other on its links.

Pipelines take cores in turn along a line through the chip, each group as many as it has; where a group's placement puts them
inside it is left out here. A core of a group sends the keys and values that it has of its layers to the cores that read them in
decode, and activations to the core at its place in the next group.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from evaluators.kernels.partition.placement import square
from evaluators.machine.fabric import Fabric
from space.elementwise import Array

Core = tuple[int, int]


class Fleet(NamedTuple):
    """Pipelines of one phase.

    Attributes:
        tp, pp, dp: cores of a group, groups of a pipeline, pipelines.
        layers: the group of a pipeline that has each layer's keys and values.
        position: keys and values of a token and layer on one core. [B]
        activations: of a token, from group to group. [B]
    """

    tp: int
    pp: int
    dp: int
    layers: tuple[int, ...]
    position: float
    activations: float


class Ways(NamedTuple):
    """What moving caches costs, and what it costs others.

    Attributes:
        per_token: of a cache on its way from a prefilling pipeline to a decoding one, mean over pairs of them, while both
            pipelines go on. [s]
        latency: the longest way. [s]
        together: caches that can be on their way at a time at that pace.
        blocks: parts of the chip between which nothing is sent.
        prefill, decode: how many times as long the pipelines' own messages take beside caches, mean over pipelines. [1]
        hops: links that a byte of a cache takes, on average. [1]
    """

    per_token: float
    latency: float
    together: int
    blocks: int
    prefill: float
    decode: float
    hops: float


@dataclass(frozen=True, slots=True)
class Links:
    """Seconds that messages hold the links of a mesh: along rows, shape (ways, rows, cols - 1), and along columns.

    A way is a direction; locked routes hold both at once, so there is one.
    """

    across: Array
    down: Array

    def add(self, source: Core, target: Core, seconds: float) -> None:
        """A message, across to its column first."""
        (r, c), (to_r, to_c) = source, target
        ways = len(self.across)
        self.across[(to_c > c) % ways, r, min(c, to_c) : max(c, to_c)] += seconds
        self.down[(to_r > r) % ways, min(r, to_r) : max(r, to_r), to_c] += seconds

    @property
    def all(self) -> Array:
        """All links, shape (links,)."""
        return np.concatenate([self.across.ravel(), self.down.ravel()])


def line(rows: int, cols: int, arrangement: str, blocks: int) -> list[Core]:
    """All cores in the order in which pipelines take them.

    One way down and the next up through the columns; or block by block, in each one along its rows.

    >>> line(2, 2, "pp_first", 1)
    [(0, 0), (1, 0), (1, 1), (0, 1)]
    >>> line(2, 4, "dp_first", 2)
    [(0, 0), (0, 1), (1, 1), (1, 0), (0, 2), (0, 3), (1, 3), (1, 2)]
    """
    if arrangement == "pp_first":
        return [(r if c % 2 == 0 else rows - 1 - r, c) for c in range(cols) for r in range(rows)]
    found: list[Core] = []
    high, wide = square(blocks)
    for some in np.array_split(np.arange(rows), high):
        for others in np.array_split(np.arange(cols), wide):
            found += [(int(r), int(c)) for at, r in enumerate(some) for c in (others if at % 2 == 0 else others[::-1])]
    return found


def laid(rows: int, cols: int, arrangement: str, prefill: Fleet, decode: Fleet) -> tuple[Array, Array]:
    """Cores of both fleets, shape (dp, pp, tp, 2): rows and columns."""
    blocks = blocks_of(arrangement, prefill, decode)
    cores = iter(line(rows, cols, arrangement, blocks))
    fleets = (prefill, decode)
    places: tuple[list[Array], list[Array]] = ([], [])
    for which, count in _turns(arrangement, blocks, prefill.dp, decode.dp):
        of = fleets[which]
        for _ in range(count):
            places[which].append(np.array([next(cores) for _ in range(of.pp * of.tp)]).reshape(of.pp, of.tp, 2))
    return np.array(places[0]), np.array(places[1])


def blocks_of(arrangement: str, prefill: Fleet, decode: Fleet) -> int:
    """Parts of the chip that each have pipelines of both kinds, and send nothing to one another."""
    return min(prefill.dp, decode.dp) if arrangement == "dp_first" else 1


@lru_cache(maxsize=4096)
def ways(
    rows: int,
    cols: int,
    arrangement: str,
    prefill: Fleet,
    decode: Fleet,
    fabric: Fabric,
    block: int,
    rate: float,
    made: float,
) -> Ways:
    """Caches from all prefilling pipelines to all decoding ones of their block, all alike often.

    A link is held by a message's words, and where routes are locked by its handshake. Others that hold it for a share u of the
    time make a message take 1 / (1 - u) times as long; where the load asks for more than a link can do, all slow down together,
    and each token's messages of all kinds take their turn. Messages that hold links while they wait for others are left out:
    played, a burst of all kinds takes up to three times as long (tests/agreement/test_pools.py), a cache by itself as long.

    Args:
        rows, cols: of the mesh.
        arrangement: a word of `ARRANGEMENTS`.
        prefill, decode: pipelines.
        fabric: the network.
        block: tokens in a message of a layer's keys and values.
        rate: tokens to prefill. [1/s]
        made: tokens that are decoded for each one that is prefilled.

    Source:
        [zhu2025] section 4.3.1, figure 6, for where pipelines are.
    """
    sources, targets = laid(rows, cols, arrangement, prefill, decode)
    blocks = blocks_of(arrangement, prefill, decode)
    pace = float(fabric.pace) / float(fabric.word_bytes)

    def fresh() -> Links:
        count = 1 if fabric.locked else 2
        return Links(np.zeros((count, rows, cols - 1)), np.zeros((count, rows - 1, cols)))

    def held(source: Array, target: Array, nbytes: float) -> tuple[Core, Core, float]:
        a, b = (int(source[0]), int(source[1])), (int(target[0]), int(target[1]))
        way = 2 * float(fabric.ramp) + float(fabric.hop) * (abs(a[0] - b[0]) + abs(a[1] - b[1]))
        return a, b, (3 * way if fabric.locked else 0.0) + nbytes * pace

    pipelines = []
    for of, places in ((prefill, sources), (decode, targets)):
        some = [fresh() for _ in range(of.dp)]
        for links, place in zip(some, places, strict=True):
            for core, following in zip(place[:-1].reshape(-1, 2), place[1:].reshape(-1, 2), strict=True):
                links.add(*held(core, following, of.activations / of.tp))
        pipelines.append([links.all for links in some])

    pairs, caches, hops = [], np.zeros(len(fresh().all)), []
    for p, source in enumerate(sources):
        partners = [d for d in range(decode.dp) if d * blocks // decode.dp == p * blocks // prefill.dp]
        for d in partners:
            links = fresh()
            for start, end, layers in _flows(source, targets[d], prefill, decode):
                a, b, seconds = held(start, end, block * decode.position)
                links.add(a, b, layers * seconds / block)
                hops.append(abs(a[0] - b[0]) + abs(a[1] - b[1]))
            mine, others = links.all, pipelines[0][p] + made * pipelines[1][d]
            busy = rate * (pipelines[0][p] / prefill.dp + made * pipelines[1][d] / decode.dp)
            pairs.append(float((mine * _stretched(mine, others, busy)).max()))
            caches += mine / (prefill.dp * len(partners))
    # of each token that is prefilled anywhere
    everything = caches + sum(pipelines[0]) / prefill.dp + made * sum(pipelines[1]) / decode.dp
    per_token, busiest = float(np.mean(pairs)), float(everything[caches > 0].max(initial=0.0))
    crowded = [
        np.mean([float(_stretched(own, caches * each, rate * caches)[own > 0].max(initial=1.0)) for own in some])
        for some, each in zip(pipelines, (prefill.dp, decode.dp / max(made, 1e-9)), strict=True)
    ]
    together = max(1, int(per_token / busiest)) if busiest else prefill.dp
    latency = 3 * (2 * float(fabric.ramp) + float(fabric.hop) * max(hops))
    return Ways(per_token, latency, together, blocks, float(crowded[0]), float(crowded[1]), float(np.mean(hops)))


def _turns(arrangement: str, blocks: int, prefill: int, decode: int) -> Iterator[tuple[int, int]]:
    """Which kind of pipelines comes next along the line, and how many of them."""
    if arrangement == "pp_first":
        yield from ((0, prefill - prefill // 2), (1, decode), (0, prefill // 2))
        return
    for block in range(blocks):
        for which, count in ((0, prefill), (1, decode)):
            yield which, sum(at * blocks // count == block for at in range(count))


def _flows(source: Array, target: Array, prefill: Fleet, decode: Fleet) -> Iterator[tuple[Array, Array, int]]:
    """Cores that send and that get keys and values, and of how many layers."""
    for (a, b), layers in Counter(zip(prefill.layers, decode.layers, strict=True)).items():
        for core in range(decode.tp):
            yield source[a][core * prefill.tp // decode.tp], target[b][core], layers


def _stretched(own: Array, others: Array, busy: Array) -> Array:
    """How many times as long messages hold links that others keep busy for a share of the time; at most as long as all."""
    together = 1 + others / np.where(own > 0, own, np.inf)
    return np.asarray(np.minimum(together, 1 / np.maximum(1 - busy, 1e-9)))
