"""What one of many dies holds of a model that they share: weights of each unit, and caches."""

from functools import lru_cache
from typing import Any

from dse.evaluators.graph.mixing import mixing
from dse.evaluators.graph.operators import MIXING, Part
from dse.evaluators.graph.step import Step
from dse.evaluators.layouts.devices import kv_local, state_local, stored
from dse.evaluators.layouts.dies import DRAFT, EMBEDDING, HEAD, Split, named, physical, runs
from dse.evaluators.layouts.formats import Sizes
from dse.space.elementwise import ceil_div
from dse.space.layers import MOE, at_reach, layers
from dse.space.model import Model
from dse.space.parameters import attention_parameters, drafting, ffn_parameters, growths, position_values, shared_width


def units_of(model: Model) -> dict[str, tuple[str, str]]:
    """Mixing and FFN of each unit that is a layer, or has one."""
    found = {named(model, *names): names for names, _ in runs(model)}
    mixing, ffn = drafting(model)
    return found | {DRAFT: (mixing.name, ffn.name)}


def caches(mixes: str, model: Model, cached: Any, sequences: float, of: Split, sizes: Sizes) -> Any:
    """Bytes of caches and states of a unit of a mixing on one die. [B]

    Args:
        mixes, model: the mixing's name, and whose.
        cached: positions that caches of each reach of the model have of all requests (`space.layers.by_reach`).
        sequences: that have states.
        of, sizes: as they are.
    """
    total: Any = 0.0
    for growth in growths(model):
        if growth.layer.name == mixes:
            kept, scored = (at_reach(cached, reach) for reach in (growth.layer.reach, growth.layer.indexed))
            total = total + kept * kv_local(growth.layer.of, of.tp) * sizes.kv + scored * growth.scores * sizes.indexed
            state = growth.layer.of.recurrence
            total = total if state is None else total + sequences * state_local(state, of.tp, sizes.conv)
    return total


TABLES, ATTENTION, FFN, ROUTED = "embedding and head", "attention", "dense FFNs", "routed experts"
COPIES, SHARED, ROUTERS, MODULES = "copies of experts", "shared experts", "routers", "MTP modules"
WEIGHTS = (TABLES, ATTENTION, FFN, ROUTED, COPIES, SHARED, ROUTERS, MODULES)
"""What weights are of."""


def weights(unit: str, names: tuple[str, str], model: Model, of: Split, sizes: Sizes) -> float:
    """Bytes of a unit on one die; of a layer, by the names of its mixing and its FFN. [B]

    Where attention and FFN are on dies of their own, those on one of attention.
    """
    return float(sum(by_kind(unit, names, model, of, sizes).values()))


def by_kind(unit: str, names: tuple[str, str], model: Model, of: Split, sizes: Sizes) -> dict[str, float]:
    """The same by what weights are of, words of `WEIGHTS`; norms are with what they are before. [B]"""
    usual = sizes.weights
    table, h = ceil_div(model.vocab, of.tp) * model.hidden * usual, model.hidden * usual
    if unit == EMBEDDING:
        return {TABLES: table + position_values(model) * usual}
    if unit == HEAD:  # a tied table is where the embedding is, and on a last stage of its own once more
        return {TABLES: h + (0.0 if model.tied_embeddings and of.pp == 1 else table)}
    mixes, feeds = names
    kinds, found = layers(model), dict[str, float]()
    for layer in (one for one in kinds.mixings if one.name == mixes):
        found[ATTENTION] = _mixing(layer.of, of.tp) * sizes.attention + h
    for layer in (one for one in kinds.ffns if one.name == feeds):
        if of.attention:  # the norm, and what chooses experts
            found[ROUTERS if feeds.startswith(MOE) else FFN] = h + (_around(layer.of, sizes) if feeds.startswith(MOE) else 0.0)
            continue
        dense = ffn_parameters(layer.of, ceil_div(layer.of.ffn_intermediate, of.tp)) * usual + h
        found |= _sparse(layer.of, of, sizes, h) if feeds.startswith(MOE) else {FFN: dense}
    if unit != DRAFT:
        return found
    # the table of the head is on a module's own stage, that of the embedding on another where there are several
    embedding = 0.0 if model.tied_embeddings or of.pp == 1 else table
    return {MODULES: sum(found.values()) + 2 * model.hidden * h + 3 * h + embedding}


ONE = Step("decode", 1.0, 1.0, 1.0, 1.0)
"""A token of a request: operators that have weights are the same of any."""


@lru_cache(maxsize=256)
def _mixing(of: Model, tp: int) -> float:
    """Weights of a layer's mixing of tokens on one of `tp` dies: those of its heads, and all that are of no head, as what makes
    latents and keys of indexers; biases and inner norms are shared out evenly.
    """
    part = Part("", 1.0, mixing(of, ONE, ONE), 1, MIXING)
    return float(stored(part, tp) + (attention_parameters(of) - stored(part, 1)) / tp)


def fed_weights(names: tuple[str, str], model: Model, of: Split, sizes: Sizes) -> float:
    """Bytes of a unit's FFN, whole, or of its experts, on one die of FFNs alone. [B]"""
    total = 0.0
    for layer in (one for one in layers(model).ffns if one.name == names[1]):
        if layer.name.startswith(MOE):
            total += sum(_sparse(layer.of, of, sizes, 0.0).values()) - _around(layer.of, sizes)
        else:
            total += ffn_parameters(layer.of, layer.of.ffn_intermediate) * sizes.weights
    return float(total)


def _around(model: Model, sizes: Sizes) -> float:
    """Bytes of a layer's router and what is around its experts. [B]"""
    experts = model.experts
    assert experts is not None
    return float((experts.count + 2 * experts.latent) * model.hidden * sizes.weights)


def _sparse(model: Model, of: Split, sizes: Sizes, norm: float) -> dict[str, float]:
    """Bytes of a layer's experts on one die, some of them whole, or a share of each; with the norm before them.

    What dies share out is itemised as all of them together have it.
    """
    experts = model.experts
    assert experts is not None
    every, tp = physical(experts, of.redundant, of.shared), 1 if of.ep > 1 or of.attention else of.tp
    one = ffn_parameters(model, ceil_div(experts.intermediate, tp), experts.latent) * sizes.experts
    own = ffn_parameters(model, ceil_div(experts.shared * shared_width(experts), tp)) * sizes.experts
    among = experts.shared * of.shared if of.ep > 1 else 0
    each = float(ceil_div(every, of.ep)) * one / every
    shared = among * each if among else own
    return {ROUTED: experts.count * each, COPIES: of.redundant * each, SHARED: shared, ROUTERS: _around(model, sizes) + norm}
