"""Blocks of no known model as operators of a layer, and how devices divide these."""

import re
from typing import Any

from dse.model_graphs.blocks import Block
from dse.model_graphs.flow import START, Flow
from dse.model_graphs.known_blocks import kernels_before, stored_values
from dse.model_graphs.steps import KernelStep

Fields = dict[str, Any]

RESERVED_NAMES = (
    "embedding",
    "head",
    "mtp_head",
    "router",
    "shared_score",
    "k_proj",
    "v_proj",
    "state_qk",
    "decay_up",
    "expert_rows",
)
"""Names of operators by which layouts know what is of known blocks."""


def described_operators(flow: Flow, blocks: list[Block]) -> dict[str, Fields]:
    """Operators of the blocks of a layer by name, in order, as the fields of a model have them."""
    divisions: dict[int, Fields] = {}
    base = 0
    for block in blocks:
        divisions |= {place + base: division for place, division in _divisions(block).items()}
        base += len(block.steps)
    layer = _joined(blocks)
    names = _names(flow, layer)
    operators = {}
    caches: set[tuple[frozenset[int], frozenset[int]]] = set()
    for place, step in enumerate(layer.steps):
        fields = _fields(flow, step)
        fields["needs"] = [names[need] for need in step.needs if need != START]
        if step.kind == "attention":
            cache = flow.sources(step.keys), flow.sources(step.values)
            fields |= {"cached": False} if cache in caches else {}
            caches.add(cache)
        operators[names[place]] = fields | divisions.get(place, {})
    return operators


def _joined(blocks: list[Block]) -> Block:
    """Blocks as one: what begins a block needs the last kernel of the block before."""
    steps: list[KernelStep] = []
    for block in blocks:
        base = len(steps)
        for step in block.steps:
            step.needs = [need + base if need != START else base - 1 for need in step.needs]
        steps += block.steps
    return Block(steps)


def _names(flow: Flow, block: Block) -> list[str]:
    """Name of each kernel: that of its last operator in the file, without the number that exporters add.

    Equal layers have equal names so. Norms and experts have the ending or beginning by which costs know them.
    """
    names: list[str] = []
    for step in block.steps:
        own = re.sub(r"\W+", "_", step.unknown[0] if step.unknown else flow.nodes[step.last_member].name)
        own = re.sub(r"^node_|(_\d+)+$|^_+|_+$", "", own.lower()) or step.kind
        own = f"{own}_norm" if step.kind == "norm" and not own.endswith("norm") else own
        own = f"experts_{own}" if step.chosen else own
        if own in RESERVED_NAMES or (not step.chosen and own.startswith(("experts_", "shared_"))):
            own = f"graph_{own}"
        names.append(own if own not in names else _numbered(own, names))
    return names


def _numbered(name: str, names: list[str]) -> str:
    """A name with the first number that no other name has; the ending of norms stays."""
    stem, ending = (name.removesuffix("_norm"), "_norm") if name.endswith("_norm") else (name, "")
    return next(f"{stem}_{number}{ending}" for number in range(2, len(names) + 3) if f"{stem}_{number}{ending}" not in names)


def _fields(flow: Flow, step: KernelStep) -> Fields:
    fields: Fields = {"kind": step.kind}
    if step.kind == "attention":
        return fields | {
            "heads": step.heads, "kv_heads": step.kv_heads, "qk_dim": step.qk_dim, "v_dim": step.v_dim, "window": step.window,
        }  # fmt: skip
    fields |= {"per": step.size.grows_with, "outputs": step.width}
    rows = max(step.size.coefficient / step.width, 0.0)
    if step.kind == "product":
        rows = rows if step.matrices else 1.0
        fields |= {"inputs": step.inner, "matrices": step.matrices, "chosen": step.chosen, "apart": step.apart}
    else:
        fields |= {"operations": step.operations, "passes": step.passes}
    stored = stored_values(flow, [step])
    products = step.matrices * step.inner * step.width if step.kind == "product" else 0
    shared = step.kind == "product" and step.matrices > 0 and not step.weights
    if shared:  # weights of an earlier product, which is read again but stored once
        products = 0
    return fields | {"rows": rows or 1.0} | ({"values": stored - products} if stored > products else {})


def _divisions(block: Block) -> dict[int, Fields]:
    """What devices divide: the results of first products and what is between them and the last products of a block.

    A last product is one after which the block has elements alone. What leads to it over attention and elements is divided by
    heads, or by columns, if nothing else needs it.
    """
    takers: dict[int, list[int]] = {}
    for place, step in enumerate(block.steps):
        for need in step.needs:
            takers.setdefault(need, []).append(place)
    divisions: dict[int, Fields] = {}
    for place, step in enumerate(block.steps):
        if step.kind == "product" and step.matrices and _is_last(block, takers, place):
            way = _way_to(block, takers, place)
            if way is not None and not divisions.keys() & {place, *way[0], *way[1]}:
                divisions |= _division(block, place, *way)
    return divisions


def _is_last(block: Block, takers: dict[int, list[int]], place: int) -> bool:
    stack = list(takers.get(place, ()))
    while stack:
        after = stack.pop()
        if block.steps[after].kind != "elements":
            return False
        stack += takers.get(after, ())
    return True


def _way_to(block: Block, takers: dict[int, list[int]], last: int) -> tuple[set[int], set[int]] | None:
    """First products and what is between them and a last one; None if others need that, or norms are between."""
    first, between, stack = set[int](), set[int](), [*block.steps[last].needs]
    while stack:
        place = stack.pop()
        if place == START or place in first or place in between:
            if place == START:
                return None
            continue
        step = block.steps[place]
        if step.kind == "product" and step.matrices:
            first.add(place)
        elif step.kind in ("attention", "elements") or (step.kind == "norm" and step.size.coefficient > step.width):
            between.add(place)
            stack += step.needs
        else:
            return None
    inside = between | {last}
    if not first or any(taker not in inside for place in first | between for taker in takers[place]):
        return None
    return first, between


def _division(block: Block, last: int, first: set[int], between: set[int]) -> dict[int, Fields]:
    """Groups of what is divided: heads where there is attention, else columns.

    Queries, keys and values of one product are divided by KV heads, so that no device has fewer keys than its queries need.
    """
    attends = {place: block.steps[place] for place in between if block.steps[place].kind == "attention"}
    heads = {step.heads for step in attends.values()}
    inner = block.steps[last].inner
    if len(heads) > 1 or any(inner != step.heads * step.v_dim for step in attends.values()):
        return {}
    whole = heads.pop() if heads else inner
    division: dict[int, Fields] = {last: {"divided": "inputs", "input_groups": whole}}
    for place in first | between:
        step = block.steps[place]
        after = [attends[each] for each in attends if place in kernels_before(block, each)]
        groups = min((each.kv_heads for each in after if step.width != each.heads * each.qk_dim), default=whole)
        if step.kind == "attention":
            division[place] = {"divided": "outputs"}
        elif step.width % groups == 0 and groups > 1:
            division[place] = {"divided": "outputs", "output_groups": groups}
    return division
