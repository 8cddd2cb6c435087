"""Time of two blocks of queries that share keys and values ([zhang2026] section III-C, footnote).

Products of one go beside what makes weights of the other's scores. In a block of keys, both multiply keys, then both values:

    matrix   S_a  S_b            O_a  O_b
    vector        softmax_a      softmax_b
    memory   V . . . .  (spread) K . . .  (spread)

so that keys of the next block come while values are multiplied, and values while keys are. Latent ones have a second buffer,
and come during all of the block before.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.attention.channel_contention import AHEAD, overlapped_seconds
from dse.space.array_math import ceil_div, maximum, minimum, where


class PairedBlockTimes(NamedTuple):
    """Times of the parts of two paired blocks of queries; leaves broadcast over designs. [s]

    Attributes:
        product, result: Q K^T and P V of a block of queries and one of keys.
        softmax: vector instructions between them.
        expand_keys, expand_values: vector instructions that make what is multiplied of a block of either.
        scaled, divided: of a block of queries, and of outputs.
        statistics: a maximum and a sum combined along rows, and on their way back.
        outputs: summed along rows.
        spread_queries, spread_keys, spread_values: along rows and columns.
        load_queries, load_keys, load_values: until they have come, queries of both blocks.
        channel: that the busiest channel works for as many items as it serves at a time.
        stored: until outputs of both have gone, where no others are stored before.
        queued: that a channel stores those of other groups.
        way: to memory and back, and of what is stored.
        idle: of a load of no bytes.
        last_values: that channels move the last values, which come after the last keys.
    """

    product: Any
    result: Any
    softmax: Any
    scaled: Any
    divided: Any
    statistics: Any
    outputs: Any
    spread_queries: Any
    spread_keys: Any
    spread_values: Any
    load_queries: Any
    load_keys: Any
    load_values: Any
    channel: Any
    stored: Any
    queued: Any
    way: Any
    idle: Any
    last_values: Any
    expand_keys: Any = 0.0
    expand_values: Any = 0.0


PAIRED: dict[str, tuple[str, ...]] = {
    "combined": ("statistics", "outputs"),
    "spread": ("spread_queries", "spread_keys", "spread_values"),
    "hbm": ("load_queries", "load_keys", "load_values", "channel", "stored", "queued", "way", "idle", "last_values"),
    "vector": ("softmax", "scaled", "divided", "expand_keys", "expand_values"),
}
"""What is free where fields of `time_parts.ItemTimes` are."""


def queued_seconds(waited: Any, nbytes: Any, rows: Any, byte: Any, *, of_box: bool) -> Any:
    """Time that a channel stores outputs of other groups, of what all outputs wait. [s]

    Args:
        waited: that all outputs of a channel take. [s]
        nbytes: of a group. [B]
        rows: of a group per column of the busiest channel. [-]
        byte: of a block alone. [s/B]
        of_box: for a lower bound. It is endless where the channel's own time is not of blocks that wait: it is subtracted from.
    """
    queued = waited - nbytes * byte
    return where((rows < 1) & (queued > 0), np.inf, queued) if of_box else queued


def paired_seconds(times: PairedBlockTimes, waves: Any, blocks: Any, *, latent: bool) -> Any:
    """Time of all items of a group with two blocks of queries each; leaves broadcast over designs. [s]

        first  = max(2 S, S + X)          O_a begins, X being softmax and statistics
        second = max(first + O, S + 2 X)  O_b begins
        block  = second + O

    where values, and the next keys, have come in time. Values of the very first block are asked for with its keys, and no keys
    come beside the very last one. An item ends with divisions and sums of outputs, beside which the next one multiplies keys.

    Args:
        times: what it costs.
        waves: items of a group.
        blocks: of keys of an item, on average.
        latent: whether values are columns of keys.
    """
    x = times.softmax + times.statistics
    weights = maximum(2 * times.product, times.product + x) + x + (0.0 if latent else times.expand_values)
    spread_values = times.spread_values + times.expand_values
    arrived = times.load_keys + times.spread_keys + times.expand_keys
    # products of keys begin when these are there, of values when those are, where they have rooms of their own
    arrived = arrived + (times.load_values + spread_values if latent else 2 * times.product)
    beside = weights + times.expand_keys + (times.expand_values if latent else 0.0)

    def time_block(values: Any) -> Any:
        """Of a block after which no other comes, whose values come so late."""
        first = maximum(2 * times.product, times.product + x)
        if not latent:
            first = maximum(first, maximum(values, 2 * times.product) + spread_values)
        return maximum(first + times.result, weights) + times.result

    last = time_block(times.load_values)
    block = maximum(last, maximum(arrived, beside))
    # the next item's queries are there, or its keys wait
    begun = maximum(2 * times.product + times.load_queries, weights) + 2 * (times.spread_queries + times.scaled)
    between = maximum(begun - block, 0.0)
    if latent:  # of an odd number of blocks, the last one's values are in the buffer that the next item's go to
        between = between + where(
            ceil_div(blocks, 1) % 2 == 1, times.load_values + times.spread_values + times.expand_values, 0.0
        )
    prepared = 2 * times.spread_queries + times.scaled + times.spread_keys + times.expand_keys
    opening = times.load_queries + times.load_keys + prepared
    opening = opening + (maximum(times.load_values - times.load_keys, 0.0) + spread_values if latent else 0.0)
    ends = 2 * times.divided + times.outputs + times.stored
    # the first values are asked for with the first keys, and nothing comes beside the last block
    early = maximum(times.load_values - times.idle - prepared, 0.0)
    alone, opened = time_block(early), maximum(time_block(early), maximum(arrived, beside))
    count = maximum(waves * blocks, 1.0)
    work = maximum(2 - count, 0.0) * alone + minimum(count - 1, 1.0) * (opened + last) + maximum(count - 2, 0.0) * block
    work = work + (waves - 1) * between
    vectors = waves * (
        blocks * (2 * times.softmax + times.expand_keys + times.expand_values) + 2 * (times.scaled + times.divided)
    )
    # when the last values have come there are both products of them, or what the last keys have left
    left = maximum(spread_values + 2 * times.result, weights + 2 * times.result - times.last_values)
    left = maximum(left + 2 * times.divided + times.outputs - times.queued, 0.0)
    return overlapped_seconds(opening + maximum(work, vectors) + ends, times.way + waves * times.channel + left, AHEAD)
