"""Time of one attention item on a tile, by resource; leaves broadcast over designs."""

from typing import Any, NamedTuple

from dse.evaluators.kernels.attention.paired_queries import PairedBlockTimes
from dse.space.array_math import maximum, minimum, where


class SplitKvTimes(NamedTuple):
    """Times of the busiest channel for waves of items with split keys. [s]

    Attributes:
        full, last: of a turn in which all tiles have an item, and of the last one.
        ends: for the outputs of the last one, or for the first blocks of the first one: who waits for these stores later.
        away: until an output that is stored is there.
    """

    full: Any = 0.0
    last: Any = 0.0
    ends: Any = 0.0
    away: Any = 0.0


class ItemTimes(NamedTuple):
    """Times of one item on the critical path of a blocking tile, by resource. [s]

    Attributes:
        hbm: waiting for blocks, of which `opening` is for the first ones.
        spread, combined: multicasts of operands; sums, maxima and their way back.
        vector, matrix: that engines work.
        channel: that the busiest channel works for as many items as it serves at a time.
        ends: after the last item.
        turns: that channels work, where keys are split.
        apart: of the pass that puts parts together.
        late: that the last of the groups which ask a channel at the same time has its first blocks after the first one.
        away: until an output that is stored is there.
        behind: that the last tile of a group is behind those that others wait for.
        sent: that roots of multicasts send keys and values.
        queued: that a channel stores outputs of other groups than the last one.
        pair: of two blocks of queries that share keys and values.
        of_box: whether these are the least of all tiles of a box.
        first_word: from a request to the first word of its block, where nothing is before it.
        last_values: that channels move the last values, which come after the last keys.
        softmax, statistics: of `vector` and `combined`, what is between both products of a block of keys.
        divided, outputs: of `vector` and `combined`, what is after the last product.
        hidden: of `spread`, multicasts of keys that are beside those of the values before.
    """

    hbm: Any
    opening: Any
    spread: Any
    combined: Any
    vector: Any
    matrix: Any
    channel: Any
    ends: Any
    turns: SplitKvTimes
    apart: Any = 0.0
    late: Any = 0.0
    away: Any = 0.0
    behind: Any = 0.0
    sent: Any = 0.0
    queued: Any = 0.0
    pair: PairedBlockTimes | None = None
    of_box: bool = False
    first_word: Any = 0.0
    last_values: Any = 0.0
    softmax: Any = 0.0
    divided: Any = 0.0
    statistics: Any = 0.0
    outputs: Any = 0.0
    hidden: Any = 0.0

    @property
    def seconds(self) -> Any:
        """Time of one item: memory, collectives, and both engines. [s]"""
        return self.hbm + (self.spread - self.hidden) + self.combined + self.vector + self.matrix


def split_kv_seconds(spent: ItemTimes, waves_: Any, left: Any) -> Any:
    """Time of all waves of items with split keys, including stores and a partial last wave. [s]

    Args:
        spent: what an item costs.
        waves_: items of a group.
        left: that the busiest channel has no part in, before its first word and after its last one.
    """
    before = (waves_ - 1) * maximum(spent.seconds, spent.turns.full)
    return before + maximum(spent.seconds + spent.turns.ends, spent.turns.last + left) + spent.turns.away


def work_left(spent: ItemTimes, product: Any, result: Any, *, latent: bool, blocking: bool) -> Any:
    """Work that is left of an item when its last values have come, which channels have no part in. [s]

    Its keys came before these, at the latest as long as a channel moves them. A tile that blocks has waited for both.

    Args:
        spent: what an item costs.
        product, result: Q K^T and P V of a block of keys. [s]
        latent: whether values are columns of keys.
        blocking: whether tiles do one thing after the other.
    """
    weights = spent.softmax + spent.statistics
    if latent:
        before = product + weights
    elif blocking:
        before = weights + maximum(product - spent.last_values, 0.0)
    else:
        before = maximum(product + weights - spent.last_values, 0.0)
    return before + result + spent.divided + spent.outputs


def first_values_wait(burst: Any, values: Any, others: Any, product: Any) -> Any:
    """Time by which a group's first values wait for what other groups store and load, in every wave. [s]

    A group stores, loads what an item begins with, in a time A, and then values, in a time v. Of n groups that ask at once, the
    first one's values come behind what n - 1 others load, by (n - 1) A - S beside its product S. The groups end the item one
    after the other, over a time max(S - v, (n - 1) v). Where that is longer than A, others ask when the first one's values
    have come, and groups drift apart until none waits; else the next item is as this one.

    Args:
        burst: that all others store and load, (n - 1) A. [s]
        values: v. [s]
        others: n - 1. [-]
        product: S. [s]
    """
    alike = maximum(product - values, others * values) * others <= burst
    return where(alike, maximum(burst - product, 0.0), 0.0)


class LoadWaits(NamedTuple):
    """Times that waits for keys and values depend on, beside those of their loads. [s]

    Attributes:
        blocks: of keys of an item, on average. [-]
        product, weights, result: of a block: Q K^T, what makes weights of scores, and P V.
        spread_queries, spread_keys: multicasts of queries, and of a block of keys.
        idle: of a load of no bytes.
        meanwhile: that keys of other tiles of a group come by the same channel.
    """

    blocks: Any
    product: Any
    weights: Any
    result: Any
    spread_queries: Any
    spread_keys: Any
    idle: Any
    meanwhile: Any

    def hidden_spread(self, keys: Any, spread_values: Any) -> Any:
        """Time of multicasts of keys beside those of values, where a tile blocks. [s]

        The tile that loads both multiplies values while the others hear of them, and has the next keys before they do:

            max(spread(V), wait(K) + spread(K)) = spread(V) + wait(K) + spread(K) - min(spread(V), wait(K) + spread(K))

        Args:
            keys: of the load of a block, of all tiles of a group that share a channel.
            spread_values: of the multicast of a block of values.
        """
        waited = maximum(keys - self.result, 0.0)
        return (self.blocks - 1) * minimum(spread_values, waited + self.spread_keys)

    def seconds(self, keys: Any, values: Any, *, blocking: bool, of_box: bool) -> Any:
        """Time for which a tile's products wait for the keys and values of an item after its first keys. [s]

        Values are asked for when keys have come, while those of other tiles still come and these are spread. A tile that blocks
        waits for both before it computes weights. Where another head is in flight, it asks for the next keys when it has
        multiplied keys and got values, and for the next values when it has got keys and multiplied values:

            block = max(product + weights + result, keys + max(values, product), values + max(keys, result))

        Queries come first then, and are spread while keys come.

        Args:
            keys, values: of the load of a block, of all tiles of a group that share a channel.
            blocking: whether tiles do one thing after the other.
            of_box: for a lower bound that grows with all times.
        """
        begun = -self.spread_keys if of_box else maximum(self.idle - self.meanwhile, -self.spread_keys)
        values = values - self.idle + begun
        if blocking:
            return self.blocks * maximum(values - self.product, 0.0) + (self.blocks - 1) * maximum(keys - self.result, 0.0)
        before = self.product + self.weights
        block = maximum(keys + maximum(values, self.product), values + maximum(keys, self.result))
        waited = maximum(values - before, 0.0) + (self.blocks - 1) * maximum(block - before - self.result, 0.0)
        return waited - (self.spread_queries if of_box else minimum(self.spread_queries, keys - self.idle))
