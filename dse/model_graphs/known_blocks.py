"""Blocks of known models, as fields: attention of groups or latents, dense FFNs and experts.

A block is a known one if all of its kernels have a role in it, and its weights are as many as those of the model's record.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from dse.model_graphs.blocks import Block
from dse.model_graphs.flow import START, Flow
from dse.model_graphs.operations import ROTATION, UNKNOWN, operation_of
from dse.model_graphs.steps import KernelStep
from dse.space.layers import FFN, MOE
from dse.space.model import ExpertLayers, LatentAttention, Model
from dse.space.parameter_counts import feeding_parameter_count, mixing_parameter_count, norms_of_half_layer

Fields = dict[str, Any]


class KnownBlock(NamedTuple):
    """Fields of a known block: those that a kind of layers may have, and those of the whole model.

    Attributes:
        own, common: the fields.
        uncounted: names of elements in the block that the record does not count; operators describe a block with such.
    """

    own: Fields
    common: Fields
    uncounted: tuple[str, ...] = ()


ACTIVATION_OPERATIONS = 3.0
"""Vector operations on an element from which an operator is taken for an activation; sums, products and masks take fewer."""

PLAIN_OPERATIONS = 8
"""Operations of sums, products and masks on each result of the products of a block, as for a rotation or a written-out GELU.

Assumed: the exported layers of the tests have 5 at most.
"""


def known_mixing(flow: Flow, block: Block) -> KnownBlock | None:
    """Attention of groups of heads or of latents; None if a block is neither."""
    attends = block.of_kind("attention")
    if len(attends) != 1 or not _is_plain(block) or any(step.chosen for step in block.steps):
        return None
    for own, common in (*_grouped(flow, block, attends[0]), *_latent(flow, block, attends[0])):
        model = _model(flow, own | common | {"ffn_intermediate": 1})
        if mixing_parameter_count(model) + norms_of_half_layer(model) == stored_values(flow, block.steps):
            return KnownBlock(own, common, _uncounted_elements(flow, block, _gate_values(model, attends[0])))
    return None


def known_feeding(flow: Flow, block: Block) -> KnownBlock | None:
    """A dense FFN or experts; None if a block is neither."""
    if block.attends or not _is_plain(block):
        return None
    routed = any(step.chosen for step in block.steps)
    for own, common in _experts(flow, block) if routed else _dense(flow, block):
        sizes = {"heads": 1, "kv_heads": 1, "head_dim": 1} | ({"ffn_intermediate": 1} if routed else {})
        model = _model(flow, sizes | own | common)
        if feeding_parameter_count(MOE if routed else FFN, model) == stored_values(flow, block.steps):
            experts = model.experts.count if routed and model.experts is not None else 0
            return KnownBlock(own, common, _uncounted_elements(flow, block, _inner_values(flow, block), experts))
    return None


def known_parallel(flow: Flow, block: Block) -> KnownBlock | None:
    """Attention and a dense FFN beside it with one norm for both; None if a block is not these."""
    attends = block.of_kind("attention")
    if len(attends) != 1 or not _is_plain(block):
        return None
    place = block.steps.index(attends[0])
    first = {place, *kernels_before(block, place)}
    outputs = [
        after for after, step in enumerate(block.steps) if step.kind == "product" and place in kernels_before(block, after)
    ]
    first |= {outputs[0], *(kernels_before(block, outputs[0]))} if outputs else set()
    steps = [[step for each, step in enumerate(block.steps) if (each in first) == inside] for inside in (True, False)]
    mixing = known_mixing(flow, Block(steps[0]))
    norms = [step for step in steps[0] if step.kind == "norm" and step.width == flow.hidden]
    if mixing is None or len(norms) != 1:
        return None
    for own, common in _dense(flow, Block([*norms, *steps[1]])):
        model = _model(flow, mixing.own | mixing.common | own | common | {"parallel": True})
        if feeding_parameter_count(FFN, model) == stored_values(flow, steps[1]):
            activated = _gate_values(model, attends[0]) + _inner_values(flow, Block(steps[1]))
            uncounted = _uncounted_elements(flow, block, activated)
            return KnownBlock(mixing.own | own, mixing.common | common | {"parallel": True}, uncounted)
    return None


def kernels_before(block: Block, place: int) -> set[int]:
    """Places of the kernels of a block that one needs, over others or at once."""
    before, stack = set[int](), [*block.steps[place].needs]
    while stack:
        need = stack.pop()
        if need != START and need not in before:
            before.add(need)
            stack += block.steps[need].needs
    return before


def stored_values(flow: Flow, steps: list[KernelStep]) -> int:
    """Weights that some kernels are the first to use."""
    return sum(_values(flow, name) for step in steps for name in step.weights)


def _values(flow: Flow, name: str) -> int:
    count = flow.count(name)
    return 0 if count is None else count.number or 0


def _is_plain(block: Block) -> bool:
    """Whether kernels run once a token, none of them unknown, and products have weights."""
    alike = all(step.size.grows_with == "token" and not step.unknown for step in block.steps)
    return alike and all(step.matrices and step.apart == 1 for step in block.of_kind("product"))


def _uncounted_elements(flow: Flow, block: Block, activated: int, experts: int = 0) -> tuple[str, ...]:
    """Names of elements of a block that the record of a known one does not count; empty where it counts all.

    Args:
        flow: of the graph.
        block: with the kernels of a known one.
        activated: values of a token that the record has activations for.
        experts: scores of a token, on which a router has what it needs.
    """
    strange, activations, values, plain = list[str](), list[str](), 0, 0.0
    for place in (place for step in block.of_kind("elements") for place in step.members):
        meaning, usual = flow.meanings[place], operation_of(flow.nodes[place].target)
        results = flow.result_size(place).coefficient
        if usual.kind == UNKNOWN or meaning.operations != usual.operations:
            strange.append(meaning.name)
        elif meaning.operations < ACTIVATION_OPERATIONS or meaning.name == ROTATION:
            plain += meaning.operations * results
        elif results > experts:
            activations.append(meaning.name)
            values += results
    products = sum(step.size.coefficient for step in block.of_kind("product"))
    many = ["sums and products"] if plain > PLAIN_OPERATIONS * products else []
    return tuple(strange + (activations if values > activated else []) + many)


def _gate_values(model: Model, attention: KernelStep) -> int:
    """Values of a token that the activation of a gate after attention has."""
    return {"none": 0, "head": attention.heads}.get(model.gate, attention.heads * attention.v_dim)


def _inner_values(flow: Flow, block: Block) -> int:
    """Values of a token that the last products of an FFN sum over, and the activation before them has."""
    lasts = [step for step in block.of_kind("product") if step.width == flow.hidden]
    return sum(step.inner * max(step.size.coefficient // step.width, 1) for step in lasts)


def _model(flow: Flow, fields: Fields) -> Model:
    values: Fields = {"name": "", "layers": 1, "hidden": flow.hidden, "vocab": 1, "max_position": 1 << 30} | fields
    if isinstance(values.get("latent"), dict):
        values["latent"] = LatentAttention(**values["latent"])
    if isinstance(values.get("experts"), dict):
        values["experts"] = ExpertLayers(**values["experts"])
    return Model(**values)


def _norm_fields(flow: Flow, block: Block) -> tuple[Fields, list[KernelStep]] | None:
    """Fields of the norms of hidden vectors, and other norms; None if there are none, or more than two."""
    whole = [step for step in block.of_kind("norm") if step.width == flow.hidden == step.size.coefficient]
    others = [step for step in block.of_kind("norm") if step not in whole]
    if len(whole) not in (1, 2):
        return None
    two = all(len(step.weights) == 2 for step in whole)
    fields: Fields = ({"norm": "layernorm"} if two else {}) | ({"post_norms": True} if len(whole) == 2 else {})
    return fields, others


def _has_bias(flow: Flow, step: KernelStep) -> bool:
    return any(len(flow.tensor(name).shape or ()) == 1 for name in step.weights)


def _grouped(flow: Flow, block: Block, attention: KernelStep) -> Iterator[tuple[Fields, Fields]]:
    """Fields of attention with projections of queries, keys and values from the hidden states."""
    norms, products, a = _norm_fields(flow, block), block.of_kind("product"), attention
    into = [step for step in products if step.inner == flow.hidden and step is not products[-1]]
    out = products[-1] if products else a
    if norms is None or len(into) != len(products) - 1 or (out.inner, out.width) != (a.heads * a.v_dim, flow.hidden):
        return
    left = sum(step.width for step in into) - a.heads * a.qk_dim - a.kv_heads * (a.qk_dim + a.v_dim)
    gates = {0: "none", a.heads * a.v_dim: "element", a.heads: "head"}
    if left not in gates:
        return
    own: Fields = {"heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.qk_dim, "rope": _rotated_share(block, a)}
    own |= ({"v_dim": a.v_dim} if a.v_dim != a.qk_dim else {}) | ({"window": a.window} if a.window else {})
    own |= {"sinks": True} if sum(_values(flow, name) for name in a.weights) == a.heads else {}
    own |= {"qk_norm": True} if any(step.width == a.qk_dim for step in norms[1]) else {}
    common = norms[0] | ({"gate": gates[left]} if left else {})
    common |= {"qkv_bias": True} if any(_has_bias(flow, step) for step in into) else {}
    common |= {"out_bias": True} if _has_bias(flow, out) else {}
    yield own, common | ({"softcap": True} if has_tanh(flow, a) else {})


def has_tanh(flow: Flow, step: KernelStep) -> bool:
    """Whether values pass through a tanh in a kernel, as scores with a softcap do."""
    return any(flow.meanings[place].name == "tanh" for place in step.members)


def _rotated_share(block: Block, attention: KernelStep) -> float:
    """Share of a head that tables of positions multiply."""
    turned = max((step.turned for step in block.of_kind("elements")), default=0)
    return min(turned / attention.qk_dim, 1.0)


def _latent(flow: Flow, block: Block, a: KernelStep) -> Iterator[tuple[Fields, Fields]]:
    """Fields of attention with keys and values from a latent vector of each token."""
    norms, products = _norm_fields(flow, block), block.of_kind("product")
    if norms is None or len(products) not in (4, 5):
        return
    for up in products:
        nope = up.width // a.heads - a.v_dim
        rope = a.qk_dim - nope
        if up.width % a.heads or nope < 1 or rope < 0:
            continue
        others = sorted((step.inner, step.width) for step in products if step is not up)
        ends = [(flow.hidden, up.inner + rope), (a.heads * a.v_dim, flow.hidden)]
        queries = _query_rank(flow, a, others, ends)
        if queries is None:
            continue
        latent = {"q_rank": queries, "kv_rank": up.inner, "nope_dim": nope, "rope_dim": rope, "v_dim": a.v_dim}
        own = {"heads": a.heads, "kv_heads": a.heads, "head_dim": a.qk_dim, "latent": latent}
        yield own | ({"window": a.window} if a.window else {}), norms[0]


def _query_rank(flow: Flow, a: KernelStep, others: list[tuple[int, int]], ends: list[tuple[int, int]]) -> int | None:
    """Rank of the projection of queries, 0 for a full one; None if products are others."""
    if others == sorted([*ends, (flow.hidden, a.heads * a.qk_dim)]):
        return 0
    ranks = [inner for inner, width in others if width == a.heads * a.qk_dim]
    return next((rank for rank in ranks if others == sorted([*ends, (flow.hidden, rank), (rank, a.heads * a.qk_dim)])), None)


def _dense(flow: Flow, block: Block) -> Iterator[tuple[Fields, Fields]]:
    """Fields of a dense FFN, with or without a gate."""
    norms, products = _norm_fields(flow, block), block.of_kind("product")
    if norms is None or norms[1] or len(products) < 2:
        return
    *into, down = products
    ratio = _ratio(into, down, flow.hidden)
    if ratio and down.width == flow.hidden:
        bias = {"ffn_bias": True} if any(_has_bias(flow, step) for step in products) else {}
        yield {"ffn_intermediate": down.inner}, norms[0] | bias | ({} if ratio == 2 else {"gated_ffn": False})


def _ratio(into: list[KernelStep], down: KernelStep, inner: int) -> int:
    """Columns of the first products of an FFN over rows of the last: 2 with a gate, else 1; 0 if it is none."""
    ratio, rest = divmod(sum(step.width for step in into), down.inner)
    return ratio if not rest and ratio in (1, 2) and all(step.inner == inner for step in into) else 0


def _experts(flow: Flow, block: Block) -> Iterator[tuple[Fields, Fields]]:
    """Fields of routed experts, with shared ones beside them."""
    norms, products = _norm_fields(flow, block), block.of_kind("product")
    routed, rest = [step for step in products if step.chosen], [step for step in products if not step.chosen]
    if norms is None or norms[1] or len(routed) < 2:
        return
    *into, down = routed
    count, top_k = down.matrices, down.chosen
    ratio = _ratio(into, down, flow.hidden)
    routers = [step for step in rest if (step.inner, step.width) == (flow.hidden, count)]
    if not ratio or len(routers) != 1 or any((step.matrices, step.chosen) != (count, top_k) for step in routed):
        return
    shared = _shared_fields(flow, [step for step in rest if step is not routers[0]], down.inner, ratio)
    if shared is None:
        return
    scored = [name for step in block.of_kind("elements") for name in step.weights if _values(flow, name) == count]
    experts: Fields = {"count": count, "top_k": top_k, "intermediate": down.inner} | shared
    experts |= ({"score_bias": True} if scored else {}) | ({"route_bias": True} if _has_bias(flow, routers[0]) else {})
    experts |= _choice_groups(block, count)
    yield {"experts": experts}, norms[0] | ({} if ratio == 2 else {"gated_ffn": False})


def _shared_fields(flow: Flow, rest: list[KernelStep], width: int, ratio: int) -> Fields | None:
    """Fields of shared experts; None if some products have no role."""
    gates = [step for step in rest if (step.inner, step.width) == (flow.hidden, 1)]
    rest = [step for step in rest if step not in gates]
    if not rest:
        return None if gates else {}
    *into, down = rest
    if _ratio(into, down, flow.hidden) != ratio or down.width != flow.hidden or len(gates) > 1:
        return None
    fields: Fields = (
        {"shared": down.inner // width} if down.inner % width == 0 else {"shared": 1, "shared_intermediate": down.inner}
    )
    return fields | ({"shared_gate": True} if gates else {})


def _choice_groups(block: Block, count: int) -> Fields:
    """Groups of experts among which a router chooses first: a choice in each group, and one among the groups."""
    choices = [pair for step in block.of_kind("elements") for pair in zip(step.topk[::2], step.topk[1::2], strict=True)]
    for (inside, _), (groups, kept) in pairwise(choices):
        if inside * groups == count and groups > 1:
            return {"groups": groups, "groups_kept": kept}
    return {}
