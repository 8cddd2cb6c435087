"""Where pipelines that prefill and that decode are on a mesh, and what KV caches and activations do to each other on its links.

Pipelines take cores in turn along a line through the chip, each group as many as it has; where a group's placement puts them
inside it is left out here. A core of a group sends the keys and values that it has of its layers to the cores that read them in
decode, and activations to the core at its place in the next group.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.partition.placement import square
from dse.evaluators.layouts import loaded
from dse.evaluators.machine.fabric import Fabric
from dse.space.elementwise import Array

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
        per_token: of a cache on its way from a prefilling pipeline to a decoding one, mean over pairs of them, while all
            pipelines go on. [s]
        latency: the longest way. [s]
        together: caches that can be on their way at a time at that pace.
        blocks: parts of the chip between which nothing is sent.
        prefill, decode: how many times as long the pipelines' own messages take beside caches, mean over pipelines. [1]
        hops: links that a byte of a cache takes, on average. [1]

    Numbers, or of several designs, shape (designs,).
    """

    per_token: Any
    latency: Any
    together: Any
    blocks: Any
    prefill: Any
    decode: Any
    hops: Any

    def at(self, row: int) -> "Ways":
        """Of one design."""
        return Ways(*(values[row].item() for values in self)) if np.ndim(self.per_token) else self


class Layout(NamedTuple):
    """Pipelines on a mesh.

    Attributes:
        rows, cols: of the mesh.
        arrangement: a word of `ARRANGEMENTS`.
        prefill, decode: pipelines of each phase.
    """

    rows: int
    cols: int
    arrangement: str
    prefill: Fleet
    decode: Fleet

    @property
    def blocks(self) -> int:
        """Parts of the chip that each have pipelines of both kinds, and send nothing to one another."""
        return min(self.prefill.dp, self.decode.dp) if self.arrangement == "dp_first" else 1

    @property
    def shape(self) -> "Layout":
        """Where pipelines are, whatever they send."""
        fleets = (of._replace(position=0.0, activations=0.0) for of in (self.prefill, self.decode))
        return Layout(self.rows, self.cols, self.arrangement, *fleets)

    @property
    def partners(self) -> list[range]:
        """The decoding pipelines that each prefilling one sends caches to: those of its block."""
        blocks, count = self.blocks, self.decode.dp
        block_of = [p * blocks // self.prefill.dp for p in range(self.prefill.dp)]
        return [range(-(-block * count // blocks), -(-(block + 1) * count // blocks)) for block in block_of]


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


def laid(layout: Layout) -> tuple[Array, Array]:
    """Cores of both fleets, shape (dp, pp, tp, 2): rows and columns."""
    sizes = [(of.tp, of.pp, of.dp) for of in (layout.prefill, layout.decode)]
    return _laid(layout.rows, layout.cols, layout.arrangement, layout.blocks, *sizes)


@lru_cache(maxsize=1024)
def _laid(rows: int, cols: int, arrangement: str, blocks: int, *fleets: tuple[int, int, int]) -> tuple[Array, Array]:
    cores, taken = np.array(line(rows, cols, arrangement, blocks)), 0
    places: tuple[list[Array], list[Array]] = ([], [])
    for which, count in _turns(arrangement, blocks, fleets[0][2], fleets[1][2]):
        tp, pp, _ = fleets[which]
        for _ in range(count):
            places[which].append(cores[taken : taken + pp * tp].reshape(pp, tp, 2))
            taken += pp * tp
    return np.array(places[0]), np.array(places[1])


@lru_cache(maxsize=4096)
def ways(layout: Layout, fabric: Fabric, block: int, prefilled: float, decoded: float) -> Ways:
    """Caches from all prefilling pipelines to all decoding ones of their block, all alike often.

    A message holds all links of its way at once, by its words, and where routes are locked by its handshake. Of the links that
    a cache goes over, the slowest says how long it takes: the seconds c that its messages hold the link, beside others that
    hold it for a share u of the time, or for o seconds in the time of as many tokens where they would take all of it:

        t = max over links of min(c / (1 - u), c + o)

    Others are all pipelines, whose links a cache crosses on its way. Of random fleets that events play (`played_transfer`,
    tests/agreement/test_pools.py), half are within 5 % of this and nine in ten within 25 %, of locked routes, and 15 % of a
    wormhole's; the farthest of 60 were four fifths off. A burst of all messages at once, flit by flit, lets caches through in
    0.8 to 1.25 times this, since what waits for one link keeps others from being used. How much longer pipelines' own
    messages take is at most said: half are within 15 %, some twice.

    Args:
        layout: of pipelines.
        fabric: the network.
        block: tokens in a message of a layer's keys and values.
        prefilled, decoded: tokens that pass through all pipelines of a kind. [1/s]

    Source:
        [zhu2025] section 4.3.1, figure 6, for where pipelines are.
    """
    prefill, decode, made = layout.prefill, layout.decode, decoded / max(prefilled, 1e-30)
    of_shape, mesh = traffic(layout.shape), (layout.rows, layout.cols)
    sent = [activations(of, some, fabric) for of, some in zip((prefill, decode), of_shape.streams, strict=True)]
    prefilling, decoding = (_held(messages, mesh) for messages in sent)
    cached = np.zeros(loaded.links(*mesh))
    # a cache crosses links of pipelines that it is not of; each of these does its share of the tokens
    others, busy = np.zeros((2, len(cached)))
    for links, tokens, share in (
        (prefilling, 1.0, prefilled / prefill.dp),
        (decoding, made * prefill.dp / decode.dp, decoded / decode.dp),
    ):
        loaded.added(others, links, np.full(len(links), tokens))
        loaded.added(busy, links, np.full(len(links), share))
    messages = caches(layout, fabric, block)
    mine, taken = np.zeros((len(messages), len(cached))), np.zeros(len(messages))
    loaded.sent(messages, *mesh, others, busy, mine, taken)
    loaded.added(cached, mine, of_shape.weights)
    per_token = float(taken.mean())
    latency = 3 * (2 * float(fabric.ramp) + float(fabric.hop) * of_shape.most)
    streams = prefilling.mean(axis=0), decoding.mean(axis=0)
    together = max(1, int(per_token * loaded.carried(cached, *streams, prefilled, decoded)))
    crowded = []
    for messages, own, times in zip(sent, (prefilling, decoding), (1.0 * prefill.dp, decode.dp / max(made, 1e-9)), strict=True):
        found = np.zeros(len(messages))
        loaded.crowded(messages, own, cached, times, prefilled, *mesh, found)
        crowded.append(float(found.mean()))
    before, after = crowded
    return Ways(per_token, latency, together, layout.blocks, before, after, of_shape.hops)


class Traffic(NamedTuple):
    """Messages of some pipelines, whatever is in them.

    Attributes:
        streams: of the pipelines of each phase from group to group: records of `loaded.MESSAGE`, shape (dp, messages).
        caches: from each prefilling pipeline to each decoding one of its block, shape (pairs, messages).
        layers: that each of the latter has keys and values of, shape (messages,).
        weights: share of all caches that goes each way, shape (pairs,).
        most, hops: links of the longest way of a cache, and on average.
    """

    streams: tuple[Array, Array]
    caches: Array
    layers: Array
    weights: Array
    most: int
    hops: float


@lru_cache(maxsize=1024)
def traffic(layout: Layout) -> Traffic:
    """Of a layout whose messages have no bytes."""
    (sources, targets), prefill, decode = laid(layout), layout.prefill, layout.decode
    pairs = Counter(zip(prefill.layers, decode.layers, strict=True))
    a, b = np.array(list(pairs)).T
    ends = [(p, d, 1 / (prefill.dp * len(partners))) for p, partners in enumerate(layout.partners) for d in partners]
    from_, to, weights = (np.array(column) for column in zip(*ends, strict=True))
    here = sources[from_][:, a][:, :, np.arange(decode.tp) * prefill.tp // decode.tp]
    there = targets[to][:, b]
    found = _messages(here.reshape(len(ends), -1, 2), there.reshape(len(ends), -1, 2))
    streams = (_messages(*(some.reshape(len(at), -1, 2) for some in (at[:, :-1], at[:, 1:]))) for at in (sources, targets))
    layers, hops = np.repeat(list(pairs.values()), decode.tp), _hops(found)
    return Traffic((next(streams), next(streams)), found, layers, weights, int(hops.max()), float(hops.mean()))


def activations(of: Fleet, messages: Array, fabric: Fabric) -> Array:
    """What each pipeline of a fleet sends from group to group, a token, in messages as of `Traffic`."""
    return _timed(messages, of.activations / of.tp, fabric)


def caches(layout: Layout, fabric: Fabric, block: int) -> Array:
    """Keys and values of a token and all layers, sent block by block, from each pipeline to its partners: as of `Traffic`."""
    of = traffic(layout.shape)
    found = _timed(of.caches, block * layout.decode.position, fabric)
    found["seconds"] = of.layers * found["seconds"] / block
    return found


def _messages(sources: Array, targets: Array) -> Array:
    """From some cores to others."""
    found = np.zeros(sources.shape[:-1], loaded.MESSAGE)
    found["row"], found["col"] = np.moveaxis(sources, -1, 0)
    found["to_row"], found["to_col"] = np.moveaxis(targets, -1, 0)
    return found


def _timed(messages: Array, nbytes: float, fabric: Fabric) -> Array:
    """Messages of some bytes, and where routes are locked the handshake before them and after."""
    found, pace = messages.copy(), float(fabric.pace) / float(fabric.word_bytes)
    if fabric.locked:
        hops = _hops(messages)
        found["seconds"] = 3 * (2 * float(fabric.ramp) + float(fabric.hop) * hops) + nbytes * pace
        found["both"] = hops > 1
    else:
        found["seconds"] = nbytes * pace
    return found


def _hops(messages: Array) -> Array:
    """Links of their ways."""
    found: Array = abs(messages["row"] - messages["to_row"]) + abs(messages["col"] - messages["to_col"])
    return found


def _held(messages: Array, mesh: tuple[int, int]) -> Array:
    """How long messages of each pipeline hold each link of a mesh, shape (pipelines, links). [s]"""
    found = np.zeros((len(messages), loaded.links(*mesh)))
    loaded.held(messages, *mesh, found)
    return found


def _turns(arrangement: str, blocks: int, prefill: int, decode: int) -> Iterator[tuple[int, int]]:
    """Which kind of pipelines comes next along the line, and how many of them."""
    if arrangement == "pp_first":
        yield from ((0, prefill - prefill // 2), (1, decode), (0, prefill // 2))
        return
    for block in range(blocks):
        for which, count in ((0, prefill), (1, decode)):
            yield which, sum(at * blocks // count == block for at in range(count))
