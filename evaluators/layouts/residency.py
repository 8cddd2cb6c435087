"""Residency of weights, KV cache and states in the local memories of a group of tiles.

Activations and buffers first, then recurrent states up to their share, where they have one, and else as a part of the KV
cache; then the KV cache up to its share, then weights, as much as fits; what weights leave is the KV cache's again ([zhu2025]
section 4.2, which has no states).
"""

from functools import partial
from typing import Any, NamedTuple

from dse.evaluators.graph.operators import MatMulOp, Segment, dim_width
from dse.evaluators.graph.transformer import END_SEGMENTS
from dse.evaluators.layouts.cache_memory import KeptValues, layer_caches, sum_layer_caches
from dse.evaluators.layouts.model_weights import (
    embedding_bytes,
    product_bytes,
    product_values,
    unquantized_bytes,
)
from dse.evaluators.layouts.tensor_formats import refuse_scaled_activations, value_bytes
from dse.evaluators.serving.kv_memory import sram_shares
from dse.space.array_math import ceil_div, maximum, minimum
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, Mapping, PipelinePlan
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model
from dse.space.parameter_counts import SequenceMemory, kv_values_per_token, value_head_dim

BLOCK = 512
"""Tokens of activations that a core holds at a time at most: products run block by block, and weights that are not here
stream by for each block."""

MIN_SHARES = 16
"""Tokens of the smallest block: with fewer, an array mostly fills and drains."""

SHARE = 0.5
"""Of the local memory that a block may take beyond the smallest one: what is left is for the KV cache and weights."""


class StageShares(NamedTuple):
    """Shares of the model's layer weights, embedding and head tables, and caches on the fullest stage. [-]"""

    layers: Any
    tables: Any
    caches: Any


class CoreResidency(NamedTuple):
    """Bytes of one core, and shares of them in its local memory; over entries and designs.

    Attributes:
        activations: input, output and widest intermediate of a block of tokens, and the buffer of a transfer. [B]
        kv: of all layers of its stage, at the longest, with states that have no share of their own. [B]
        weights: of all layers of its stage. [B]
        kv_here, weights_here: share of each that stays. [1]
        block: tokens of activations that it holds at a time.
        buffer: set aside for what is prefetched. [B]
        slices: of attention on the whole group, beyond the room of activations that are not there meanwhile. [B]
        weights_near, kv_near: share of each that stays in the cache in front of main memory. [1]
        states: of all layers of its stage, where they have a share of their own. [B]
        states_here, states_near: share of them that stays, and that is in that cache. [1]
    """

    activations: Any
    kv: Any
    weights: Any
    kv_here: Any
    weights_here: Any
    block: Any
    buffer: Any = 0.0
    slices: Any = 0.0
    weights_near: Any = 0.0
    kv_near: Any = 0.0
    states: Any = 0.0
    states_here: Any = 0.0
    states_near: Any = 0.0

    @property
    def sram(self) -> Any:
        """Bytes of local memory in use. [B]"""
        resident = self.kv_here * self.kv + self.weights_here * self.weights + self.states_here * self.states
        return self.activations + resident + self.buffer + self.slices

    @property
    def hbm(self) -> Any:
        """Bytes that lie in main memory. [B]"""
        return self.cached_share + (1 - self.weights_here) * self.weights

    @property
    def cached_share(self) -> Any:
        """Bytes of KV caches and states in main memory. [B]"""
        return (1 - self.kv_here) * self.kv + (1 - self.states_here) * self.states


def core_residency(
    parts: tuple[Segment, ...], model: Model, plan: PipelinePlan, mapping: Mapping, sram: Any, *, tokens: Any, cached: Any,
    sequences: Any = 0.0, share: StageShares | None = None, slices: Any = 0.0, near: Any = None, everywhere: Any = 0.0,
) -> CoreResidency:  # fmt: skip
    """Residency on the fullest core of a stage.

    Args:
        parts: of a step of the phase.
        model: what is served.
        plan: of the phase.
        mapping: formats, and the share of the KV cache.
        sram: local memory of a core. [B]
        tokens: of a step.
        cached: positions that caches have of all requests of an instance, at the longest, by reach of the model.
        sequences: requests that have states.
        slices: of attention on the whole group, whose keys and values are in main memory. [B]
        share: of the fullest stage; None where stages have whole layers and an even share of the tables.
        near: room of a core in the cache in front of main memory; None where there is none. [B]
        everywhere: of weights that the plan's partition divides over the cores of a group, those of which each core of a stage
            has all. [B]

    Raises:
        DesignError: activations with scales of blocks.
    """
    precision = mapping.precision
    refuse_scaled_activations(precision)
    act = BYTES_BY_FORMAT[precision.activations]
    copies = plan.tp if plan.partition != "input_only" else 1.0
    layers, of_experts, outside, widest = _sizes(parts, model, precision)
    routed = of_experts if plan.experts == "whole" else 0.0
    whole = ceil_div(model.layers * 1.0, plan.pp) / model.layers
    given_share = share or StageShares(whole, 1 / plan.pp, whole)
    weights = ((layers - routed) * given_share.layers + outside * given_share.tables) / copies
    if model.experts is not None:  # the fullest core has whole ones
        weights = weights + routed * given_share.layers * (ceil_div(model.experts.count, plan.tp) / model.experts.count)
    weights = weights + everywhere * (1 - 1 / plan.tp)
    divided = plan.tp if plan.partition in ("input_only", "mn") else 1.0
    row = (2 * model.hidden + widest) * act / divided
    block = minimum(minimum(tokens, BLOCK), maximum(SHARE * sram // row, MIN_SHARES))
    activations = block * row
    kv, states = (nbytes * given_share.caches for nbytes in core_cache_bytes(model, plan, cached, sequences, precision))
    if plan.state_share is None:
        kv, states = kv + states, 0.0
    if plan.attention is not None:  # nothing is there with it but the block's input and output
        slices = maximum(slices + block * (row - widest * act / divided) - activations, 0.0)
    room = maximum(sram - activations - slices, 0.0)
    buffer = 0.0 if plan.prefetch is None or plan.prefetch.policy == "none" else plan.prefetch.share * room
    stays = kv if plan.attention is None else 0.0
    kept = 0.0 if plan.state_share is None else minimum(states, plan.state_share * (room - buffer))
    current_shares = sram_shares(room - buffer - kept, stays, weights, kv_share=mapping.sram_kv_share)
    shares = current_shares.kv / maximum(kv, 1.0), current_shares.weights / maximum(weights, 1.0)
    held = CoreResidency(
        activations, kv, weights, *shares, block, buffer, slices, states=states, states_here=kept / maximum(states, 1.0)
    )
    return held if near is None else _nearer(held, stays, near)


@partial(memoize_by_identity, few=64)
def _sizes(parts: tuple[Segment, ...], model: Model, formats: FormatPlan) -> tuple[float, float, float, Any]:
    """Bytes of the weights of all layers, of their routed experts, and of embedding and head; columns of the widest product."""

    def nbytes(part: Segment) -> Any:
        return product_bytes(part, formats) + unquantized_bytes(part, model, formats)

    def routed_values(operator: MatMulOp) -> float:
        return product_values(operator) if operator.stored > 1 else 0.0

    layers = sum(nbytes(part) * part.times for part in parts if part.name not in END_SEGMENTS)
    outside = sum(nbytes(part) for part in parts if part.name in END_SEGMENTS) + embedding_bytes(model, formats)
    routed = sum(product_bytes(part, formats, routed_values) * part.times for part in parts)
    of_products = (op for part in parts if part.name != "head" for op in part.operators if isinstance(op, MatMulOp))
    return layers, routed, outside, max(dim_width(op.n) for op in of_products)


def _nearer(held: CoreResidency, stays: Any, near: Any) -> CoreResidency:
    """With what stays in the cache in front of main memory: weights first, which each block of tokens reads again, then caches.

    What is read in every step is there from the step before. That is so for as much as the cache has room for, and no more:
    a cache that took all that comes by would have lost it again when it is read next.

    Args:
        held: in local memory.
        stays: of the KV cache, what may be there. [B]
        near: room. [B]
    """
    weights = minimum(1 - held.weights_here, near / maximum(held.weights, 1.0))
    left = maximum(near - weights * held.weights, 0.0)
    kv = minimum((1 - held.kv_here) * (stays > 0), left / maximum(held.kv, 1.0))
    states = minimum(1 - held.states_here, maximum(left - kv * held.kv, 0.0) / maximum(held.states, 1.0))
    return held._replace(weights_near=weights, kv_near=kv, states_near=states)


def heads_per_core(model: Model, plan: PipelinePlan) -> tuple[Any, Any]:
    """Query heads per core, and the cores that divide rows instead of heads. [-]"""
    if plan.partition == "k":
        return ceil_div(model.heads, plan.tp), 1.0
    return float(model.heads), plan.tp


def core_cache_bytes(model: Model, plan: PipelinePlan, cached: Any, sequences: Any, precision: FormatPlan) -> tuple[Any, Any]:
    """Bytes per core of KV caches and of recurrent states of all layers. [B], [B]

    Args:
        model, plan: what is divided, and how.
        cached: positions by reach of the model.
        sequences: that have states.
        precision: formats; a convolution keeps activations.
    """
    caches = layer_caches(model, value_bytes(precision), cached, sequences, lambda memory: _core_values(memory, plan))
    return sum_layer_caches(caches)


def _core_values(memory: SequenceMemory, plan: PipelinePlan) -> KeptValues:
    """Values that a core keeps of a layer."""
    layer = memory.layer.of
    if layer.recurrence is None:
        return KeptValues(kv_values_per_core(layer, plan), 0.0, 0.0)
    heads = layer.recurrence.heads
    share = ceil_div(heads, plan.tp) / heads if plan.partition == "k" else 1.0 / plan.tp
    return KeptValues(0.0, share * memory.state, share * memory.conv)


def kv_values_per_core(model: Model, plan: PipelinePlan) -> Any:
    """Values that a core caches per token in a layer of one kind, mean over tokens. [-]

    A core never holds less than one whole KV head, but for attention of the whole group, which has everything once. Where rows
    are divided, it has all heads of its share of the tokens; a
    latent cache has no heads, and where heads are divided every core has all of it.
    """
    if plan.partition != "k" or plan.attention is not None:
        return kv_values_per_token(model) / plan.tp
    if model.latent is not None or model.compressed is not None or model.kv_reused:
        return kv_values_per_token(model) * 1.0
    return maximum(ceil_div(model.kv_heads, plan.tp), 1.0) * (model.head_dim + value_head_dim(model))
