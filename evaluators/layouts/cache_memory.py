"""Bytes of KV caches and recurrent states, by one formula for all layouts.

A layout says which values of a layer its fullest worker keeps; positions, sequences, formats and layers are counted here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dse.evaluators.layouts.tensor_formats import ValueBytes
from dse.evaluators.serving.kv_memory import RequestMemory, request_memory
from dse.space.layers import LayerGroup, value_at_reach
from dse.space.model import Model
from dse.space.parameter_counts import STATE_BYTES, SequenceMemory, sequence_memory


class KeptValues(NamedTuple):
    """Values that one worker keeps of a layer; leaves broadcast over designs.

    Keys of an indexer have no heads, so that each worker has all of them.

    Attributes:
        kv: keys and values of a position. [1]
        state, conv: of a sequence, whatever its length: a recurrent state, and earlier tokens of a convolution. [1]
    """

    kv: Any
    state: Any
    conv: Any


class LayerCache(NamedTuple):
    """Bytes of one layer's caches and of its recurrent states on one worker.

    Leaves broadcast over designs.

    Attributes:
        layer: the kind of layers.
        kv: of keys and values, with keys of an indexer. [B]
        states: of recurrent states and convolutions. [B]
    """

    layer: LayerGroup
    kv: Any
    states: Any

    @property
    def nbytes(self) -> Any:
        """Bytes of caches and states together. [B]"""
        return self.kv + self.states


def whole_values(memory: SequenceMemory) -> KeptValues:
    """Values of a layer on a worker that has all of it."""
    return KeptValues(memory.kv, memory.state, memory.conv)


def layer_caches(
    model: Model,
    sizes: ValueBytes,
    cached: Any,
    sequences: Any,
    kept: Callable[[SequenceMemory], KeptValues] = whole_values,
) -> list[LayerCache]:
    """Bytes of caches and states of one layer of each kind.

    Args:
        model: whose layers.
        sizes: bytes of a value of caches, of keys of an indexer and of convolutions.
        cached: positions that caches of each reach of the model have of all sequences (`space.layers.per_reach`).
        sequences: that have states.
        kept: values of a layer that the worker keeps; by default all of them.

    Returns:
        One entry for each kind of layers, and for each cache of described layers.
    """
    caches = []
    for memory in sequence_memory(model):
        layer, own = memory.layer, kept(memory)
        if layer.of.recurrence is not None:
            caches.append(LayerCache(layer, 0.0, sequences * (own.state * STATE_BYTES + own.conv * sizes.conv)))
            continue
        kv = value_at_reach(cached, layer.reach) * (own.kv * sizes.kv)
        if memory.scores:
            kv = kv + value_at_reach(cached, layer.indexed) * (memory.scores * sizes.indexed)
        caches.append(LayerCache(layer, kv, 0.0))
    return caches


def layer_times(layer: LayerGroup) -> float:
    """Layers of a kind in a whole model. [1]"""
    return float(layer.times)


def sum_layer_caches(caches: list[LayerCache], times: Callable[[LayerGroup], Any] = layer_times) -> tuple[Any, Any]:
    """Bytes of caches, and bytes of states, over all layers. [B], [B]

    Args:
        caches: of one layer of each kind.
        times: layers of a kind; by default those of the model.
    """
    kv: Any = 0.0
    states: Any = 0.0
    for cache in caches:
        kv, states = kv + times(cache.layer) * cache.kv, states + times(cache.layer) * cache.states
    return kv, states


def whole_request_memory(model: Model, sizes: ValueBytes) -> RequestMemory:
    """KV memory of a request over all layers, each value once. [B]

    Args:
        model: what is served.
        sizes: bytes of values by format.
    """

    def nbytes(cached: Any, sequences: float) -> float:
        return float(sum(sum_layer_caches(layer_caches(model, sizes, cached, sequences))))

    return request_memory(model, nbytes)


def resident_state_bytes(model: Model) -> tuple[float, float]:
    """Bytes of a sequence's recurrent states alone: over all layers, and of the largest layer. [B], [B]"""
    states = [(memory.layer.times, memory.state * STATE_BYTES) for memory in sequence_memory(model)]
    return float(sum(times * nbytes for times, nbytes in states)), float(max((nbytes for _, nbytes in states), default=0.0))
