"""Places of prefill and decode pipelines on a mesh, and the time of KV transfers between them.

Transfers and activations slow each other down on shared links.

Pipelines take cores in turn along a line through the chip, each group as many as it has; where a group's placement puts them
inside it is left out here. A core of a group sends the keys and values that it has of its layers to the cores that read them in
decode, and activations to the core at its place in the next group.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import near_square
from dse.evaluators.layouts import transfer_link_loads as loaded
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.space.array_math import Array

Core = tuple[int, int]


class PipelineFleet(NamedTuple):
    """Pipelines of one phase on a mesh, and the bytes that they send.

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


class TransferCost(NamedTuple):
    """Time of KV transfers, and the slowdown of the pipelines' own messages.

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

    def design_cost(self, row: int) -> "TransferCost":
        """Transfer cost of the design at a row."""
        return TransferCost(*(values[row].item() for values in self)) if np.ndim(self.per_token) else self


class FleetLayout(NamedTuple):
    """Places of the prefill and decode pipelines on a mesh.

    Attributes:
        rows, cols: sides of the mesh.
        arrangement: an option of `ARRANGEMENTS`.
        prefill, decode: pipelines of each phase.
    """

    rows: int
    cols: int
    arrangement: str
    prefill: PipelineFleet
    decode: PipelineFleet

    @property
    def blocks(self) -> int:
        """Blocks of the chip that have pipelines of both kinds and exchange nothing with other blocks. [-]"""
        return min(self.prefill.dp, self.decode.dp) if self.arrangement == "dp_first" else 1

    @property
    def shape(self) -> "FleetLayout":
        """The same layout without the sizes of messages."""
        fleets = (fleet._replace(position=0.0, activations=0.0) for fleet in (self.prefill, self.decode))
        return FleetLayout(self.rows, self.cols, self.arrangement, *fleets)

    @property
    def partners(self) -> list[range]:
        """Decode pipelines to which each prefill pipeline transfers KV caches: those of its block."""
        blocks, count = self.blocks, self.decode.dp
        block_of = [p * blocks // self.prefill.dp for p in range(self.prefill.dp)]
        return [range(-(-block * count // blocks), -(-(block + 1) * count // blocks)) for block in block_of]


def core_order(rows: int, cols: int, arrangement: str, blocks: int) -> list[Core]:
    """All cores in the order in which pipelines take them.

    One way down and the next up through the columns; or block by block, in each one along its rows.

    >>> core_order(2, 2, "pp_first", 1)
    [(0, 0), (1, 0), (1, 1), (0, 1)]
    >>> core_order(2, 4, "dp_first", 2)
    [(0, 0), (0, 1), (1, 1), (1, 0), (0, 2), (0, 3), (1, 3), (1, 2)]
    """
    if arrangement == "pp_first":
        return [(r if c % 2 == 0 else rows - 1 - r, c) for c in range(cols) for r in range(rows)]
    order: list[Core] = []
    high, wide = near_square(blocks)
    for band in np.array_split(np.arange(rows), high):
        for others in np.array_split(np.arange(cols), wide):
            order += [(int(r), int(c)) for at, r in enumerate(band) for c in (others if at % 2 == 0 else others[::-1])]
    return order


def place_fleets(layout: FleetLayout) -> tuple[Array, Array]:
    """Cores of both fleets as rows and columns, shape (dp, pp, tp, 2)."""
    sizes = [(fleet.tp, fleet.pp, fleet.dp) for fleet in (layout.prefill, layout.decode)]
    return _laid(layout.rows, layout.cols, layout.arrangement, layout.blocks, *sizes)


@lru_cache(maxsize=1024)
def _laid(rows: int, cols: int, arrangement: str, blocks: int, *fleets: tuple[int, int, int]) -> tuple[Array, Array]:
    cores, taken = np.array(core_order(rows, cols, arrangement, blocks)), 0
    places: tuple[list[Array], list[Array]] = ([], [])
    for which, count in _turns(arrangement, blocks, fleets[0][2], fleets[1][2]):
        tp, pp, _ = fleets[which]
        for _ in range(count):
            places[which].append(cores[taken : taken + pp * tp].reshape(pp, tp, 2))
            taken += pp * tp
    return np.array(places[0]), np.array(places[1])


@lru_cache(maxsize=4096)
def transfer_cost(layout: FleetLayout, fabric: MeshFabric, block: int, prefilled: float, decoded: float) -> TransferCost:
    """Cost of KV transfers from each prefill pipeline to all decode pipelines of its block, equally often.

    A message holds all links of its way at once, by its words, and where routes are locked by its handshake. Of the links that
    a cache goes over, the slowest says how long it takes: the seconds c that its messages hold the link, beside others that
    hold it for a share u of the time, or for o seconds in the time of as many tokens where they would take all of it:

        t = max over links of min(c / (1 - u), c + o)

    Others are all pipelines, whose links a cache crosses on its way. Of random fleets in event-driven simulation
    (`simulated_kv_transfer`, tests/agreement/test_pools.py), half are within 5 % of this and nine in ten within 25 %, of locked
    routes, and 15 % of a wormhole's; the farthest of 60 were four fifths off. A burst of all messages at once, flit by flit,
    lets caches through in 0.8 to 1.25 times this, since what waits for one link keeps others from being used. How much longer
    pipelines' own messages take is at most said: half are within 15 %, some twice.

    Args:
        layout: of pipelines.
        fabric: network of the mesh.
        block: tokens in a message of a layer's keys and values.
        prefilled, decoded: tokens that pass through all pipelines of a kind. [1/s]

    Source:
        [zhu2025] section 4.3.1, figure 6, for where pipelines are.
    """
    messages, prefill, decode = pipeline_messages(layout.shape, block), layout.prefill, layout.decode
    links, ramps, hop = loaded.link_count(layout.rows, layout.cols), 2 * float(fabric.ramp), float(fabric.hop)
    byte = float(fabric.pace) / float(fabric.word_bytes)
    net = loaded.MeshNet(layout.rows, layout.cols, bool(fabric.locked), ramps, hop, byte)
    nbytes = prefill.activations / prefill.tp, decode.activations / decode.tp, block * decode.position
    room, own, totals = np.zeros((6, links)), np.zeros((prefill.dp + decode.dp, links)), np.zeros(4)
    rates = float(prefilled), float(decoded)
    loaded.mutual_slowdown(messages.messages, nbytes, messages.times, messages.weights, rates, net, room, own, totals)
    per_token, carried, before, after = totals.tolist()
    latency = 3 * (ramps + hop * messages.most)
    return TransferCost(per_token, latency, max(1, int(per_token * carried)), layout.blocks, before, after, messages.hops)


class PipelineMessages(NamedTuple):
    """Messages of pipelines with their repetitions, without sizes.

    Attributes:
        messages: of the pipelines of each phase from group to group, and of caches from each prefilling pipeline to each
            decoding one of its block: records of `transfer_link_loads.MESSAGE`, shapes (dp, messages) twice, and (pairs,
            messages).
        times: how often a token's go, shape (messages,) of each; those of caches once a block.
        weights: share of all caches that goes between each pair, shape (pairs,).
        most, hops: links of the longest way of a cache, and on average.
    """

    messages: tuple[Array, Array, Array]
    times: tuple[Array, Array, Array]
    weights: Array
    most: int
    hops: float


@lru_cache(maxsize=1024)
def pipeline_messages(layout: FleetLayout, block: int) -> PipelineMessages:
    """Messages of a layout's `shape`, for a number of tokens per message of a layer's keys and values."""
    (sources, targets), prefill, decode = place_fleets(layout), layout.prefill, layout.decode
    layers = Counter(zip(prefill.layers, decode.layers, strict=True))
    a, b = np.array(list(layers)).T
    pairs = [(p, d, 1 / (prefill.dp * len(partners))) for p, partners in enumerate(layout.partners) for d in partners]
    source_index, target_index, weights = (np.array(column) for column in zip(*pairs, strict=True))
    ends = sources[source_index][:, a][:, :, np.arange(decode.tp) * prefill.tp // decode.tp], targets[target_index][:, b]
    messages = _messages(sources[:, :-1], sources[:, 1:]), _messages(targets[:, :-1], targets[:, 1:]), _messages(*ends)
    caches = messages[2]
    hops = abs(caches["row"] - caches["to_row"]) + abs(caches["col"] - caches["to_col"])
    once, blocks = [np.ones(message.shape[1]) for message in messages[:2]], np.repeat(list(layers.values()), decode.tp) / block
    times = once[0], once[1], blocks
    return PipelineMessages(messages, times, weights, int(hops.max()), float(hops.mean()))


def _messages(sources: Array, targets: Array) -> Array:
    """From some cores to others, shape (pipelines or pairs, groups, cores, 2)."""
    messages = np.zeros((len(sources), sources.shape[1] * sources.shape[2]), loaded.MESSAGE)
    for names, ends in ((("row", "col"), sources), (("to_row", "to_col"), targets)):
        for axis, name in enumerate(names):
            messages[name] = ends[..., axis].reshape(messages.shape)
    return messages


def _turns(arrangement: str, blocks: int, prefill: int, decode: int) -> Iterator[tuple[int, int]]:
    """Which kind of pipelines comes next along the line, and how many of them."""
    if arrangement == "pp_first":
        yield from ((0, prefill - prefill // 2), (1, decode), (0, prefill // 2))
        return
    for block in range(blocks):
        for which, count in ((0, prefill), (1, decode)):
            yield which, sum(at * blocks // count == block for at in range(count))
