"""What one of many dies holds of a model that they share: weights of each unit, and caches."""

from typing import Any

from dse.evaluators.layouts.devices import kv_local
from dse.evaluators.layouts.dies import DRAFT, EMBEDDING, HEAD, Split, named, physical, runs
from dse.evaluators.layouts.formats import Sizes
from dse.space.elementwise import ceil_div
from dse.space.layers import MOE, at_reach, layers
from dse.space.model import Model
from dse.space.parameters import STATE_BYTES, attention_parameters, drafting, ffn_parameters, growths, shared_width


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
            total = total + sequences * (growth.state * STATE_BYTES + growth.conv * sizes.kv) / of.tp
    return total


def weights(unit: str, names: tuple[str, str], model: Model, of: Split, sizes: Sizes) -> float:
    """Bytes of a unit on one die; of a layer, by the names of its mixing and its FFN. [B]"""
    usual = sizes.weights
    table, h = model.vocab * model.hidden / of.tp * usual, model.hidden * usual
    if unit in (EMBEDDING, HEAD):
        return float(table + (h if unit == HEAD else 0))
    mixes, feeds = names
    found, total = layers(model), 0.0
    for layer in found.mixings:
        total += (attention_parameters(layer.of) / of.tp * sizes.attention + h) if layer.name == mixes else 0.0
    for layer in (one for one in found.ffns if one.name == feeds):
        dense = ffn_parameters(layer.of, layer.of.ffn_intermediate) / of.tp * usual
        total += (_sparse(layer.of, of, sizes) if feeds.startswith(MOE) else dense) + h
    # the table of the head is on a module's own stage, that of the embedding on another where there are several
    return float(total + (2 * model.hidden * h + 3 * h + (table if of.pp > 1 else 0.0) if unit == DRAFT else 0.0))


def _sparse(model: Model, of: Split, sizes: Sizes) -> float:
    """Bytes of a layer's experts on one die: some of them whole, or a share of each."""
    experts = model.experts
    assert experts is not None
    one = ffn_parameters(model, experts.intermediate, experts.latent) * sizes.experts
    whole = experts.shared * ffn_parameters(model, shared_width(experts)) * sizes.experts
    shared = 0.0 if of.shared and of.ep > 1 else whole
    around = (experts.count + 2 * experts.latent) * model.hidden * sizes.weights
    stored = ceil_div(physical(experts, of.redundant, of.shared), of.ep) * one
    return float(stored + shared + around if of.ep > 1 else (stored + shared) / of.tp + around)
