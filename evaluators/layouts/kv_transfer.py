"""Where pipelines that prefill and that decode are on a mesh, and what KV caches and activations do to each other on its links.

Pipelines take cores in turn along a line through the chip, each group as many as it has; where a group's placement puts them
inside it is left out here. A core of a group sends the keys and values that it has of its layers to the cores that read them in
decode, and activations to the core at its place in the next group.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.partition.placement import square
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
    def partners(self) -> list[range]:
        """The decoding pipelines that each prefilling one sends caches to: those of its block."""
        blocks, count = self.blocks, self.decode.dp
        block_of = [p * blocks // self.prefill.dp for p in range(self.prefill.dp)]
        return [range(-(-block * count // blocks), -(-(block + 1) * count // blocks)) for block in block_of]


class Message(NamedTuple):
    """From core to core; it holds the links of its way, or `both` ways of them, for some seconds, here of each token."""

    source: Core
    target: Core
    seconds: float
    both: bool = False

    @property
    def hops(self) -> int:
        """Links of its way."""
        return abs(self.source[0] - self.target[0]) + abs(self.source[1] - self.target[1])


@dataclass(frozen=True, slots=True)
class Links:
    """Seconds that messages hold the links of a mesh: along rows, shape (ways, rows, cols - 1), and along columns.

    A way is a direction; locked routes that routers pass on hold both at once.
    """

    across: Array
    down: Array

    @classmethod
    def held(cls, layout: Layout, messages: Iterable[Message]) -> "Links":
        """By some messages."""
        shapes = (2, layout.rows, layout.cols - 1), (2, layout.rows - 1, layout.cols)
        links = cls(*(np.zeros(shape) for shape in shapes))
        for message in messages:
            for part in links.along(message):
                part += message.seconds
        return links

    def along(self, message: Message) -> tuple[Array, Array]:
        """Those of a message's way: across to its column, then down or up."""
        (r, c), (to_r, to_c) = message.source, message.target
        east, south = (slice(None) if message.both else int(ahead) for ahead in (to_c > c, to_r > r))
        return self.across[east, r, min(c, to_c) : max(c, to_c)], self.down[south, min(r, to_r) : max(r, to_r), to_c]

    def plus(self, other: "Links", times: float = 1.0) -> "Links":
        """With some times what another holds."""
        return Links(self.across + times * other.across, self.down + times * other.down)

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


def laid(layout: Layout) -> tuple[Array, Array]:
    """Cores of both fleets, shape (dp, pp, tp, 2): rows and columns."""
    cores = iter(line(layout.rows, layout.cols, layout.arrangement, layout.blocks))
    fleets = (layout.prefill, layout.decode)
    places: tuple[list[Array], list[Array]] = ([], [])
    for which, count in _turns(layout.arrangement, layout.blocks, layout.prefill.dp, layout.decode.dp):
        of = fleets[which]
        for _ in range(count):
            places[which].append(np.array([next(cores) for _ in range(of.pp * of.tp)]).reshape(of.pp, of.tp, 2))
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
    sources, targets = laid(layout)
    sent = [
        [list(_activations(of, place, fabric)) for place in places] for of, places in ((prefill, sources), (decode, targets))
    ]
    prefilling, decoding = ([Links.held(layout, messages) for messages in each] for each in sent)
    nothing = Links.held(layout, ())
    slowest, hops, caches = [], list[int](), nothing
    # a cache crosses links of pipelines that it is not of; each of these does its share of the tokens
    others, busy = nothing, nothing
    for links in prefilling:
        others, busy = others.plus(links), busy.plus(links, prefilled / prefill.dp)
    for links in decoding:
        others, busy = others.plus(links, made * prefill.dp / decode.dp), busy.plus(links, decoded / decode.dp)
    for p, partners in enumerate(layout.partners):
        for d in partners:
            messages = list(_caches(sources[p], targets[d], layout, fabric, block))
            mine = Links.held(layout, messages)
            slowest.append(_slowest(mine, others, busy))
            hops += [message.hops for message in messages]
            caches = caches.plus(mine, 1 / (prefill.dp * len(partners)))
    per_token = float(np.mean(slowest))
    latency = 3 * (2 * float(fabric.ramp) + float(fabric.hop) * max(hops))
    streams = [np.mean([links.all for links in each], axis=0) for each in (prefilling, decoding)]
    together = max(1, int(per_token * _most(caches.all, streams[0], streams[1], prefilled, decoded)))
    crowded = nothing.plus(caches, prefilled)
    crowding = [
        np.mean(
            [_crowding(messages, own, nothing.plus(caches, times), crowded) for messages, own in zip(each, held, strict=True)]
        )
        for each, held, times in zip(sent, (prefilling, decoding), (prefill.dp, decode.dp / max(made, 1e-9)), strict=True)
    ]
    return Ways(per_token, latency, together, layout.blocks, float(crowding[0]), float(crowding[1]), float(np.mean(hops)))


def _activations(of: Fleet, place: Array, fabric: Fabric) -> Iterator[Message]:
    """What a pipeline sends from group to group."""
    for source, target in zip(place[:-1].reshape(-1, 2), place[1:].reshape(-1, 2), strict=True):
        yield _message(source, target, of.activations / of.tp, fabric)


def _caches(source: Array, target: Array, layout: Layout, fabric: Fabric, block: int) -> Iterator[Message]:
    """Keys and values of all layers from one pipeline to another, block by block."""
    prefill, decode = layout.prefill, layout.decode
    for (a, b), layers in Counter(zip(prefill.layers, decode.layers, strict=True)).items():
        for core in range(decode.tp):
            sent = _message(source[a][core * prefill.tp // decode.tp], target[b][core], block * decode.position, fabric)
            yield sent._replace(seconds=layers * sent.seconds / block)


def _message(source: Array, target: Array, nbytes: float, fabric: Fabric) -> Message:
    """Some bytes, and where routes are locked the handshake before them and after."""
    sent = Message((int(source[0]), int(source[1])), (int(target[0]), int(target[1])), 0.0)
    way = 2 * float(fabric.ramp) + float(fabric.hop) * sent.hops
    pace = float(fabric.pace) / float(fabric.word_bytes)
    both = bool(fabric.locked) and sent.hops > 1
    return sent._replace(seconds=(3 * way if fabric.locked else 0.0) + nbytes * pace, both=both)


def _most(caches: Array, prefilling: Array, decoding: Array, prefilled: float, decoded: float) -> float:
    """Tokens whose caches links can carry beside activations, which take what they need, or their turn. [1/s]

    Args:
        caches, prefilling, decoding: that a token of each kind holds each link, shape (links,). [s]
        prefilled, decoded: tokens. [1/s]
    """
    used = caches > 0
    turns = caches + prefilling + decoded / max(prefilled, 1e-30) * decoding
    left = 1 - prefilled * prefilling - decoded * decoding
    return float(np.maximum(left[used] / caches[used], 1 / turns[used]).min(initial=np.inf))


def _slowest(own: Links, others: Links, busy: Links) -> float:
    """Of the links of a cache, seconds of the one that is longest taken; arguments as of `_beside`."""
    used = own.all > 0
    mine, turns, shares = (links.all[used] for links in (own, others, busy))
    return float(np.minimum(mine / (1 - np.minimum(shares, 1 - 1e-9)), mine + turns).max(initial=0.0))


def _beside(messages: Iterable[Message], own: Links, others: Links, busy: Links) -> Iterator[Message]:
    """Messages as long as they take beside others.

    Args:
        messages: of a token.
        own: that all of those hold links.
        others: that others do for each such token.
        busy: share of the time that others do.
    """
    for message in messages:
        mine, turns, shares = (np.concatenate([part.ravel() for part in links.along(message)]) for links in (own, others, busy))
        longer = 1 / (1 - min(float(shares.max(initial=0.0)), 1 - 1e-9))
        yield message._replace(seconds=message.seconds * min(1 + float((turns / mine).max(initial=0.0)), longer))


def _crowding(messages: list[Message], own: Links, others: Links, busy: Links) -> float:
    """How many times as long a pipeline's messages take, at most."""
    taken = zip(messages, _beside(messages, own, others, busy), strict=True)
    return max((beside.seconds / alone.seconds for alone, beside in taken if alone.seconds), default=1.0)


def _turns(arrangement: str, blocks: int, prefill: int, decode: int) -> Iterator[tuple[int, int]]:
    """Which kind of pipelines comes next along the line, and how many of them."""
    if arrangement == "pp_first":
        yield from ((0, prefill - prefill // 2), (1, decode), (0, prefill // 2))
        return
    for block in range(blocks):
        for which, count in ((0, prefill), (1, decode)):
            yield which, sum(at * blocks // count == block for at in range(count))
