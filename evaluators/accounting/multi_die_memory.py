"""Memory of one die among many that share a model: weights of each unit, and caches."""

from functools import lru_cache
from typing import Any

import numpy as np

from dse.evaluators.graph.expert_loads import placed_experts
from dse.evaluators.graph.operators import MIXING, Segment
from dse.evaluators.graph.token_mixing import mixing_operators
from dse.evaluators.layouts.cache_memory import layer_caches
from dse.evaluators.layouts.model_weights import ONE_TOKEN_STEP, unquantized_values
from dse.evaluators.layouts.multi_die import (
    DRAFT,
    EMBEDDING,
    HEAD,
    DieSplit,
    equal_layer_runs,
    largest_replica_share,
    layer_label,
)
from dse.evaluators.layouts.tensor_formats import ValueBytes
from dse.evaluators.layouts.tensor_parallel import device_values, weights_per_device
from dse.space.array_math import Array, ceil_div
from dse.space.layers import MOE, layers, per_reach
from dse.space.memoize import memoize
from dse.space.model import Model
from dse.space.parameter_counts import (
    ffn_bias_values,
    ffn_parameter_count,
    head_bias_values,
    mtp_layers,
    norm_values,
    norms_before_feeding,
    position_values,
    shared_expert_width,
)
from dse.space.workload import BatchCase


def layers_of_units(model: Model) -> dict[str, tuple[str, str]]:
    """Mixing and FFN names of each unit that is or contains a layer."""
    names = {layer_label(model, *names): names for names, _ in equal_layer_runs(model)}
    mixing, ffn = mtp_layers(model)
    return names | {DRAFT: (mixing.name, ffn.name)}


def cache_bytes(mixes: str, model: Model, cached: Any, sequences: float, die_split: DieSplit, sizes: ValueBytes) -> Any:
    """KV cache and states of one unit's mixing on one die. [B]

    Args:
        mixes, model: the mixing's name, and whose.
        cached: positions that caches of each reach of the model have of all requests (`space.layers.per_reach`).
        sequences: that have states.
        of, sizes: as they are.
    """
    caches = layer_caches(model, sizes, cached, sequences, lambda memory: device_values(memory.layer.of, die_split.tp))
    return sum(cache.nbytes for cache in caches if cache.layer.name == mixes)


TABLES, ATTENTION, FFN, ROUTED = "embedding and head", "attention", "dense FFNs", "routed experts"
COPIES, SHARED, ROUTERS, MODULES = "copies of experts", "shared experts", "routers", "MTP modules"
WEIGHTS = (TABLES, ATTENTION, FFN, ROUTED, COPIES, SHARED, ROUTERS, MODULES)
"""What weights are of."""


def unit_weight_bytes(unit: str, names: tuple[str, str], model: Model, die_split: DieSplit, sizes: ValueBytes) -> float:
    """Weights of one unit on one die, given the names of its mixing and FFN. [B]

    Where attention and FFN are on different dies, the weights of an attention die.
    """
    return float(sum(weight_bytes_by_kind(unit, names, model, die_split, sizes).values()))


def weight_bytes_by_kind(
    unit: str, names: tuple[str, str], model: Model, die_split: DieSplit, sizes: ValueBytes
) -> dict[str, float]:
    """Weights of one unit on one die by the kinds in `WEIGHTS`. [B]

    Norms count with the operator that they precede.
    """
    rows = ceil_div(model.vocab, die_split.tp) * model.hidden
    head, norm = rows * sizes.head, norm_values(model) * sizes.unquantized
    table = head if model.tied_embeddings else rows * sizes.embedding
    if unit == EMBEDDING:
        return {TABLES: table + position_values(model) * sizes.embedding}
    if unit == HEAD:  # a tied table is where the embedding is, and on a last stage of its own once more
        bias = head_bias_values(model) / die_split.tp * sizes.unquantized
        return {TABLES: norm + bias + (0.0 if model.tied_embeddings and die_split.pp == 1 else head)}
    mixes, feeds = names
    kinds, weight_bytes = layers(model), dict[str, float]()
    for layer in (mixing for mixing in kinds.mixings if mixing.name == mixes):
        weight_bytes[ATTENTION] = _mixing_bytes(layer.of, die_split.tp, sizes)
    for layer in (ffn for ffn in kinds.ffns if ffn.name == feeds):
        norms = norms_before_feeding(layer.of) * sizes.unquantized
        if die_split.attention:  # the norm, and what chooses experts
            weight_bytes[ROUTERS if feeds.startswith(MOE) else FFN] = norms + (
                _surrounding_bytes(layer.of, sizes) if feeds.startswith(MOE) else 0.0
            )
            continue
        dense = _ffn_bytes(layer.of, layer.of.ffn_intermediate, die_split.tp, sizes.weights, sizes) + norms
        weight_bytes |= _sparse_bytes(layer.of, die_split, sizes, norms) if feeds.startswith(MOE) else {FFN: dense}
    if unit != DRAFT:
        return weight_bytes
    # the table of the head is on a module's own stage, that of the embedding on another where there are several
    embedding = 0.0 if model.tied_embeddings or die_split.pp == 1 else table
    joined = 2 * model.hidden * model.hidden * sizes.weights
    return {MODULES: sum(weight_bytes.values()) + joined + 3 * norm + embedding}


def _mixing_bytes(model: Model, tp: int, sizes: ValueBytes) -> float:
    """Bytes of a layer's mixing of tokens on one of `tp` dies: those of its heads, and all that are of no head, as what makes
    latents and keys of indexers, with norms and biases.
    """
    products, others = _mixing_values(model, tp)
    return products * sizes.attention + others * sizes.unquantized


@lru_cache(maxsize=256)
def _mixing_values(model: Model, tp: int) -> tuple[float, float]:
    """Weights of products and other weights of a layer's mixing of tokens on one of `tp` dies."""
    part = Segment("", 1.0, mixing_operators(model, ONE_TOKEN_STEP, ONE_TOKEN_STEP), 1, MIXING, model)
    return float(weights_per_device(part, tp)), float(unquantized_values(part, model).per_device(tp))


def _ffn_bytes(model: Model, width: int, tp: int, value: float, sizes: ValueBytes, hidden: int = 0) -> float:
    """Bytes of an FFN or expert of some width on one of `tp` dies, whose matrices have `value` bytes a weight. [B]"""
    own = ceil_div(width, tp)
    matrices = ffn_parameter_count(model, own, hidden) - ffn_bias_values(model, own, hidden)
    return matrices * value + ffn_bias_values(model, width, hidden) / tp * sizes.unquantized


def ffn_weight_bytes(names: tuple[str, str], model: Model, die_split: DieSplit, sizes: ValueBytes) -> float:
    """Weights of one unit's FFN or experts on an FFN die. [B]"""
    total = 0.0
    for layer in (ffn for ffn in layers(model).ffns if ffn.name == names[1]):
        if layer.name.startswith(MOE):
            total += sum(_sparse_bytes(layer.of, die_split, sizes, 0.0).values()) - _surrounding_bytes(layer.of, sizes)
        else:
            total += _ffn_bytes(layer.of, layer.of.ffn_intermediate, 1, sizes.weights, sizes)
    return float(total)


def _surrounding_bytes(model: Model, sizes: ValueBytes) -> float:
    """Bytes of a layer's router and what is around its experts. [B]"""
    experts = model.experts
    assert experts is not None
    routing = experts.count * (model.hidden + experts.score_bias + experts.route_bias) + experts.shared_gate * model.hidden
    return float(routing * sizes.unquantized + 2 * experts.latent * model.hidden * sizes.weights)


def _sparse_bytes(model: Model, die_split: DieSplit, sizes: ValueBytes, norm: float) -> dict[str, float]:
    """Bytes of a layer's experts on one die, some of them whole, or a share of each; with the norm before them.

    What dies share out is itemised as all of them together have it.
    """
    experts = model.experts
    assert experts is not None
    every, tp = (
        placed_experts(experts, die_split.redundant, die_split.shared),
        1 if die_split.ep > 1 or die_split.attention else die_split.tp,
    )
    expert_bytes = _ffn_bytes(model, experts.intermediate, tp, sizes.experts, sizes, experts.latent)
    width = shared_expert_width(experts)
    own = _ffn_bytes(model, experts.shared * width, tp, sizes.experts, sizes) if experts.shared else 0.0
    among = experts.shared * die_split.shared if die_split.ep > 1 else 0
    each = float(ceil_div(every, die_split.ep)) * expert_bytes / every
    shared = among * each if among else own
    return {
        ROUTED: experts.count * each,
        COPIES: die_split.redundant * each,
        SHARED: shared,
        ROUTERS: _surrounding_bytes(model, sizes) + norm,
    }


@memoize
def bytes_by_unit(case: BatchCase, phase: str, die_split: DieSplit, sizes: ValueBytes, names: tuple[str, ...]) -> Array:
    """Bytes of each unit on one die: of its caches, and of its weights by kind. [B]

    Returns:
        Shape (1 + kinds, units).
    """
    model, units, mine = case.model, layers_of_units(case.model), largest_replica_share(case, die_split.slots)
    many = die_split.batches * die_split.halves
    cached, sequences = many * _kept_positions(mine, phase), float(many * mine.batch)
    caches = [cache_bytes(units.get(name, ("", ""))[0], model, cached, sequences, die_split, sizes) for name in names]
    kinds = [weight_bytes_by_kind(name, units.get(name, ("", "")), model, die_split, sizes) for name in names]
    return np.array([caches, *([kind.get(name, 0.0) for kind in kinds] for name in WEIGHTS)], float)


def _kept_positions(case: BatchCase, phase: str) -> Any:
    """Positions that caches of each reach of a model have of a case's requests at the end of a phase."""
    ends = [(n, prompt + (decoded if phase == "decode" else 0)) for n, prompt, decoded in case.decode_lengths]
    return per_reach(case.model, lambda reach: float(sum(n * reach.kept_positions(end) for n, end in ends)))
