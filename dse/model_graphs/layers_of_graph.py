"""A model from the blocks of its graph: kinds of layers, their order, embedding and head."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.model_graphs.blocks import Block, GraphBlocks, graph_blocks
from dse.model_graphs.described_blocks import described_operators
from dse.model_graphs.flow import Flow
from dse.model_graphs.graph import ModelGraph
from dse.model_graphs.known_blocks import KnownBlock, has_tanh, kernels_before, known_feeding, known_mixing, known_parallel
from dse.model_graphs.steps import OF_PAIRS, KernelStep
from dse.space.safe_text import count_text

Fields = dict[str, Any]

MAX_NAMES = 4
"""Operators that a note on the graph names."""

MAX_KINDS = 64
"""Kinds of layers that differ in one graph."""

LONGEST = 1 << 20
"""Longest sequence of a model whose file has none: a million tokens."""

SHARED_FIELDS: Fields = {
    "norm": "rms", "post_norms": False, "gate": "none", "qkv_bias": False, "out_bias": False, "ffn_bias": False,
    "gated_ffn": True, "softcap": False, "parallel": False,
}  # fmt: skip
"""Fields that all layers of a model have in common, and their usual values."""


class GraphLayer(NamedTuple):
    """Fields of one layer of a graph: its own, and those of the whole model.

    Attributes:
        own, common: the fields.
        unknown: operators that no kernel does, which count as elements.
        described: whether operators describe it.
        uncounted: elements that keep it from being of known blocks.
        unturned: whether it has attention before which nothing rotates by positions.
    """

    own: Fields
    common: Fields
    unknown: tuple[str, ...]
    described: bool
    uncounted: tuple[str, ...] = ()
    unturned: bool = False


def graph_model(graph: ModelGraph) -> Fields:
    """Fields of the model in a graph, as in `conf/model/*.yaml`.

    Raises:
        DesignError: a graph that is no model or layer, with the file.
    """
    flow = Flow(graph)
    blocks = graph_blocks(flow)
    layers = _layers(flow, blocks.blocks)
    repeats = int(graph.declared.get("layers") or 0)
    if repeats and repeats % len(layers):
        raise graph.refuse(f"model.layers={repeats} is no multiple of the {len(layers)} layers in the graph")
    if repeats > len(layers):
        _check_width(flow, blocks)
    layers = layers * max(repeats // len(layers), 1)
    fields: Fields = {"name": graph.name, "layers": len(layers), "hidden": flow.hidden}
    ends, notes = _ends(flow, blocks, graph.declared)
    for layer in layers:
        fields |= layer.common
    fields |= _kinds(graph, layers) | ends
    if blocks.unused:
        names = sorted({flow.nodes[step.last_member].name for step in blocks.unused})
        rest = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        notes.append(f"not counted, as the first output does not need it: {', '.join(names[:MAX_NAMES])}{rest}")
    unturned = sum(layer.unturned for layer in layers)
    if unturned and not flow.positions:
        notes.append(f"attention without a rotation of positions (RoPE) in the graph: {count_text(unturned, 'layer')}")
    return fields | {"source": graph.source, "graph": "; ".join([_layer_note(layers), *notes])}


def _check_width(flow: Flow, blocks: GraphBlocks) -> None:
    """Refuse to repeat layers whose result another one cannot begin with.

    Raises:
        DesignError: with both widths.
    """
    name = next((name for name in flow.graph.outputs if flow.sources(name)), "")
    width, last = flow.last_size(name), blocks.after[-1] if blocks.after else None
    if (
        last is not None
        and (last.kind == "product" or has_tanh(flow, last))
        and flow.graph.declared.get("vocab") in (None, width)
    ):
        return  # logits of a head
    if width is not None and width != flow.hidden:
        raise flow.graph.refuse(
            f"the result {name!r} has {width} values a token, but hidden states {flow.hidden}; layers that repeat need the same"
        )


def _layers(flow: Flow, blocks: Sequence[Block]) -> list[GraphLayer]:
    """Layers as pairs of a mixing and an FFN, where blocks are such; others by their operators.

    A model mixes tokens in some layer, so that blocks of a graph without attention are described.
    """
    layers: list[GraphLayer] = []
    attends = any(block.attends for block in blocks)
    place = 0
    while place < len(blocks):
        mixing = blocks[place]
        known = known_mixing(flow, mixing)
        parallel = known_parallel(flow, mixing) if known is None else None
        if parallel is not None and not parallel.uncounted:
            layers.append(GraphLayer(parallel.own, parallel.common, (), False, unturned=_is_unturned(mixing)))
            place += 1
            continue
        after = blocks[place + 1] if place + 1 < len(blocks) and not blocks[place + 1].attends else None
        if attends and not mixing.attends and known_feeding(flow, mixing) is not None:
            layers.append(_layer(flow, None, None, mixing))
            place += 1
            continue
        layers.append(_layer(flow, mixing, known or parallel, after))
        place += 1 if after is None else 2
    return layers


def _layer(flow: Flow, mixing: Block | None, known: KnownBlock | None, after: Block | None) -> GraphLayer:
    feeding = None if after is None else known_feeding(flow, after)
    unknown = tuple(name for block in (mixing, after) if block is not None for step in block.steps for name in step.unknown)
    uncounted = tuple(name for block in (known, feeding) if block is not None for name in block.uncounted)
    known, feeding = (None if block is None or block.uncounted else block for block in (known, feeding))
    unturned = mixing is not None and _is_unturned(mixing)
    own: Fields = {}
    common: Fields = {}
    described: list[Block] = []
    if mixing is None:
        own["mixing"] = "none"
    elif known is not None and (after is None or feeding is not None):
        own |= known.own
        common |= known.common
    else:
        described.append(mixing)
    if after is None:
        own["ffn"] = "none"
    elif feeding is not None:
        own |= feeding.own
        common |= feeding.common
    else:
        described.append(after)
        own["ffn"] = "none"
    if described:
        own["operators"] = described_operators(flow, described)
        own |= _first_attention(described)
    return GraphLayer(own, common, unknown, bool(described), uncounted, unturned and "latent" not in own)


def _is_unturned(block: Block) -> bool:
    """Whether a block has attention before which nothing rotates by positions."""
    attends = (place for place, step in enumerate(block.steps) if step.kind == "attention")
    return any(not any(block.steps[each].turned for each in kernels_before(block, place)) for place in attends)


def _first_attention(blocks: list[Block]) -> Fields:
    """Fields of attention that each model has, from the first one of a layer."""
    attends = [step for block in blocks for step in block.of_kind("attention")]
    if not attends:
        return {}
    return {"heads": attends[0].heads, "kv_heads": attends[0].kv_heads, "head_dim": attends[0].qk_dim}


def _kinds(graph: ModelGraph, layers: list[GraphLayer]) -> Fields:
    """Fields of layers that are all equal, else kinds and their order; experts are the model's."""
    experts = [layer.own["experts"] for layer in layers if "experts" in layer.own]
    if any(each != experts[0] for each in experts):
        raise graph.refuse("experts differ between layers; export layers of one kind")
    commons = {
        key: {repr(layer.common.get(key, usual)) for layer in layers if not layer.described}
        for key, usual in SHARED_FIELDS.items()
    }
    apart = next((key for key, values in commons.items() if len(values) > 1), None)
    if apart is not None:
        raise graph.refuse(f"layers differ in {apart}, which a model has once; export layers of one kind")
    fields: Fields = {"heads": 1, "kv_heads": 1, "head_dim": 1, "ffn_intermediate": 1}
    fields |= {"experts": experts[0]} if experts else {}
    own = [{key: value for key, value in layer.own.items() if key != "experts"} for layer in layers]
    leading = next((place for place, layer in enumerate(layers) if "experts" in layer.own), 0)
    merged = _merged(own) if experts and all("experts" in layer.own for layer in layers[leading:]) else None
    if merged is not None and leading:
        fields["experts"] = experts[0] | {"dense_layers": leading}
        return fields | merged
    for layer, each in zip(layers, own, strict=True):
        if experts and "ffn" not in each:
            each["ffn"] = "experts" if "experts" in layer.own else "dense"
    if all(each == own[0] for each in own) and own[0].get("ffn") in (None, "experts") and "mixing" not in own[0]:
        return fields | {key: value for key, value in own[0].items() if key != "ffn"}
    return fields | _ordered(graph, own, fields)


def _merged(own: list[Fields]) -> Fields | None:
    """Fields of layers that differ in nothing but that some have a dense FFN; None if they differ in more."""
    merged: Fields = {}
    for each in own:
        if any(merged.get(key, value) != value for key, value in each.items()) or "operators" in each or "ffn" in each:
            return None
        merged |= each
    mixings = [{key: value for key, value in each.items() if key != "ffn_intermediate"} for each in own]
    return merged if all(each == mixings[0] for each in mixings) else None


def _ordered(graph: ModelGraph, own: list[Fields], fields: Fields) -> Fields:
    """Kinds by name and their order."""
    kinds: list[Fields] = []
    order: list[list[int]] = []
    for each in own:
        if each not in kinds:
            kinds.append(each)
        kind = kinds.index(each)
        if order and order[-1][0] == kind:
            order[-1][1] += 1
        else:
            order.append([kind, 1])
    if len(kinds) > MAX_KINDS:
        raise graph.refuse(f"over {MAX_KINDS} kinds of layers; export layers of fewer kinds")
    words = [f"{count} kind_{kind + 1}" if count > 1 else f"kind_{kind + 1}" for kind, count in order]
    first: Fields = next((each for each in own if "head_dim" in each), {})
    named = {f"kind_{place + 1}": kind for place, kind in enumerate(kinds)}
    sizes = {key: first[key] for key in ("heads", "kv_heads", "head_dim") if key in first}
    width = next((each["ffn_intermediate"] for each in own if "ffn_intermediate" in each), 1)
    return sizes | {"ffn_intermediate": width, "kinds": named, "order": ", ".join(words)}


def _ends(flow: Flow, blocks: GraphBlocks, declared: Fields) -> tuple[Fields, list[str]]:
    """Vocabulary, tied tables, positions and longest sequence, and notes on what a graph does not have."""
    heads = [step for step in blocks.after if step.kind == "product"]
    table = None if flow.embedding is None else flow.tensor(flow.embedding).shape
    rows = table[0].number if table and table[0] is not None else None
    vocab, notes = declared.get("vocab") or (heads[-1].width if heads else rows), []
    fields: Fields = {}
    if not vocab:
        vocab = 1
        notes.append("no embedding and no head in the graph; set model.vocab for them")
    elif flow.embedding is not None and (not heads or _is_tied(flow, heads[-1])):
        fields["tied_embeddings"] = True
    if heads and any(len(flow.tensor(name).shape or ()) == 1 for name in heads[-1].weights):
        fields["head_bias"] = True
    if any(has_tanh(flow, step) for step in blocks.after):
        fields["head_softcap"] = True
    if declared.get("tied"):
        fields["tied_embeddings"] = True
    if flow.positions:
        fields["learned_positions"] = flow.positions
    if any(len(step.weights) == 2 for step in blocks.after if step.kind == "norm"):
        fields["norm"] = "layernorm"
    fields |= {"vocab": vocab, "max_position": declared.get("max_position") or flow.positions or LONGEST}
    return fields, notes


def _is_tied(flow: Flow, head: KernelStep) -> bool:
    """Whether the head multiplies by the table of tokens."""
    if not head.weights:
        return True
    stored = flow.tensor(flow.embedding or "").stored
    return bool(stored) and any(flow.tensor(name).stored == stored for name in head.weights)


def _layer_note(layers: list[GraphLayer]) -> str:
    """What is known blocks, what is described by operators, and what no kernel does, in words."""
    described = sum(layer.described for layer in layers)
    names = sorted({name for layer in layers for name in layer.unknown})
    unknown, pairs = ([name for name in names if name.endswith(OF_PAIRS) == ends] for ends in (False, True))
    parts = [f"{count_text(len(layers) - described, 'layer')} of known blocks" if described < len(layers) else ""]
    parts.append(f"{count_text(described, 'layer')} by operators, on devices only" if described else "")
    text = ", ".join(filter(None, parts))
    text += f"; no kernel known, counted as elements: {', '.join(unknown)}" if unknown else ""
    uncounted = sorted({name for layer in layers for name in layer.uncounted})
    text += f"; in no known block, counted as elements: {', '.join(uncounted)}" if uncounted else ""
    return text + (f"; no attention matched, so that no KV cache is counted: {', '.join(pairs)}" if pairs else "")
