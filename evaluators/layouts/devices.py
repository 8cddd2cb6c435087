"""Tensor parallelism over devices: what is left of each operator on one of them, and where they must meet.

Heads and FFN columns are divided, the last device's share padded to the others'; a device never holds less than one whole
KV head, so these are replicated when there are fewer than devices. Partial sums arise where a product contracts over a
divided dimension; the part that has one ends in an allreduce (Megatron-LM, [shoeybi2019] section 3).
"""

from dataclasses import dataclass
from typing import Any

from dse.evaluators.graph.operators import Attention, Dim, Elementwise, MatMul, Operator, Part
from dse.evaluators.layouts.formats import multiplied, stored_bytes, weights_of
from dse.evaluators.passes.call import ONCE, Block, Call, Opener, Product, alike, breadth_first
from dse.space.elementwise import ceil_div, maximum
from dse.space.mapping import BYTES, Precision
from dse.space.model import Model, kv_values
from dse.space.numbers import Rates

SOFTMAX = 4.0
"""Vector operations a score: subtract the maximum, exponential, add to the sum, rescale."""


def local(dim: Dim, tp: Any) -> Any:
    """Columns of a dimension on one device.

    >>> local(Dim(28, 128, split=True), 8), local(Dim(8, 128, split=True), 32), local(Dim(4096), 8)
    (512, 128, 4096)
    """
    return (ceil_div(dim.units, tp) if dim.split else dim.units) * dim.width


def blocks(
    parts: tuple[Part, ...], tp: Any, precision: Precision, algorithm: str, *, rates: Rates | None = None, recorded: bool = True
) -> tuple[Block, ...]:
    """The parts on one of `tp` devices, cut at the allreduces between them.

    An allreduce belongs to the block that waits for it, so that what can be prefetched beside it is in one place.

    Args:
        parts: of a step.
        tp, precision: devices, and formats.
        algorithm: of the allreduces.
        rates: formats that the engines multiply, where the chip says them.
        recorded: whether a recorded graph of launches holds them; else the host starts each.
    """
    hidden_bytes = BYTES[precision.activations]
    made: dict[str, Block] = {}
    for part in parts:
        calls = tuple(call(part, operator, tp, precision, rates) for operator in part.operators)
        made[part.name] = Block(part.name, calls, alike(calls), breadth_first(calls), part.times)
    payload = {part.name: _payload(part, hidden_bytes) for part in parts}
    layers = [part for part in parts if part.name not in ("embedding", "attention", "head")]
    attention = next(part for part in parts if part.name == "attention")
    reduced = payload[layers[0].name]

    def block(name: str, part: Part, before: Any, times: float) -> Block:
        opener = None if before is None else Opener(algorithm, tp, before, recorded)
        return made[part.name]._replace(name=name, times=times, opener=opener)

    cut = (
        block("embedding", parts[0], None, 1),
        block("first attention", attention, None, 1),
        *(block(part.name, part, None if part.name == "mtp" else payload["attention"], part.times) for part in layers),
        block("attention", attention, reduced, attention.times - 1),
        block("head", parts[-1], reduced, 1),
    )
    return tuple(entry for entry in cut if entry.times)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that one device holds; leaves broadcast over designs.

    Attributes:
        weights, kv, activations: of the whole model.
        attention_layer: weights and KV cache of one attention layer.
        ffn_layer: weights of the largest FFN or MoE layer.
    """

    weights: Any
    kv: Any
    activations: Any
    attention_layer: Any
    ffn_layer: Any

    @property
    def total(self) -> Any:
        """All that must fit in off-die memory."""
        return self.weights + self.kv + self.activations


def footprint(
    parts: tuple[Part, ...], model: Model, tp: Any, precision: Precision, *, positions: Any, tokens: Any
) -> Footprint:
    """What one device must hold: its share of weights, the KV cache of `positions` tokens, and activations of `tokens`.

    The embedding table is divided by rows like the head; a tied table is stored once. Activations are counted for one
    request at a time: the residual stream, twice, and the widest intermediate.
    """
    per_value = BYTES[precision.weights]
    layer = {part.name: stored_bytes(part, precision, lambda of: _stored(of, tp)) for part in parts}
    table = 0.0 if model.tied_embeddings else local(Dim(model.vocab, split=True), tp) * model.hidden * per_value
    weights = sum(layer[part.name] * part.times for part in parts) + table
    cached = kv_values(model) if model.latent is not None else local(Dim(model.kv_heads, 2 * model.head_dim, True), tp)
    kv = positions * (cached * float(BYTES[precision.kv]))
    ffn: Any = 0.0
    for part in parts:
        if part.name not in ("embedding", "attention", "head"):
            ffn = maximum(ffn, layer[part.name])
    width = local(Dim(model.ffn_intermediate, split=True), tp)
    activations = tokens * (2 * model.hidden + width) * float(BYTES[precision.activations])
    return Footprint(weights, model.layers * kv, activations, layer["attention"] + kv, ffn)


def stored(part: Part, tp: Any) -> Any:
    """Weights of one instance of a part that one device holds."""
    return sum(_stored(operator, tp) for operator in part.operators if isinstance(operator, MatMul))


def _stored(of: MatMul, tp: Any) -> Any:
    return of.stored * local(of.k, tp) * local(of.n, tp)


def _payload(part: Part, nbytes: float) -> Any:
    """Bytes to reduce after a part; None where no product contracts over a divided dimension."""
    partial = [operator for operator in part.operators if isinstance(operator, MatMul) and operator.k.split]
    if not partial:
        return None
    return part.rows * partial[-1].n.units * float(nbytes)


def call(part: Part, operator: Operator, tp: Any, precision: Precision, rates: Rates | None) -> Call:
    """What one of `tp` devices does of an operator."""
    act, name, needs = BYTES[precision.activations], operator.name, operator.needs
    if isinstance(operator, MatMul):
        m, k, n = operator.m, local(operator.k, tp), local(operator.n, tp)
        stored_as = weights_of(part, operator, precision)
        of = multiplied(precision.activations, stored_as, rates)
        fetch = (operator.copies * BYTES[stored_as]) * (k * n)
        # each value is expanded once, however many rows or columns it meets
        made = of.first * (m * k) + of.second * (operator.copies * (k * n)) if of.first or of.second else None
        return Call(
            part.name, name, needs, part.rows, (m, k, n), (Product(ONCE, m, k, n),), width=of.width, pace=of.pace,
            operations=made, reads="weights", fetch=fetch, local=(m * act) * (k + n), flop=(2.0 * m) * (k * n), nbytes=fetch,
            operators=(name,),
        )  # fmt: skip
    if isinstance(operator, Elementwise):
        elements = operator.rows * local(operator.dim, tp)
        return Call(
            part.name, name, needs, part.rows, (operator.rows, 1, local(operator.dim, tp)),
            operations=elements * float(operator.operations), local=elements * float(operator.passes * act), operators=(name,),
        )  # fmt: skip
    return _attention(part, operator, tp, precision, rates)


def _attention(part: Part, of: Attention, tp: Any, precision: Precision, rates: Rates | None) -> Call:
    act, kv = BYTES[precision.activations], BYTES[precision.kv]
    heads = ceil_div(of.heads.units, tp) if of.heads.split else of.heads.units
    kv_heads = ceil_div(of.kv_heads.units, tp) if of.kv_heads.split else of.kv_heads.units
    dims = of.qk_dim + of.v_dim
    scores = of.pairs * heads
    cached = of.positions * kv_heads * float(of.kv_dim)
    fetch = cached * kv
    met = multiplied(precision.activations, precision.kv, rates)
    made = met.first * (of.tokens * (heads * of.qk_dim)) + met.second * cached if met.first or met.second else 0.0
    return Call(
        part.name, of.name, of.needs, part.rows, (of.tokens, of.pairs, heads),
        # cores of a pool are priced by operations alone, so that scores and values are one product a pair
        (Product(ONCE, scores, dims, 1.0),),
        width=met.width,
        pace=met.pace,
        operations=scores * SOFTMAX + made,
        streamed=of.positions * (heads * float(dims)),
        reads="kv",
        fetch=fetch,
        piece=float(of.layout_dim * kv),
        stride=kv_heads * float(of.layout_dim * kv),
        local=of.tokens * (act * (heads * dims + kv_heads * of.kv_dim)),
        flop=scores * (2.0 * dims),
        nbytes=fetch,
        operators=(of.name,),
    )  # fmt: skip
