"""Tensor parallelism: what is left of each operator on one device, and where devices must meet.

Heads and FFN columns are divided, the last device's share padded to the others'; a device never holds less than one whole
KV head, so these are replicated when there are fewer than devices. Partial sums arise where a product contracts over a
divided dimension; the part that has one ends in an allreduce (Megatron-LM, [shoeybi2019] section 3).
"""

from dataclasses import dataclass
from typing import Any

from evaluators.graph.operators import Attention, Dim, Elementwise, MatMul, Operator, Part, Segment, Work
from evaluators.graph.prefetch import breadth_first
from space.elementwise import ceil_div, maximum
from space.mapping import BYTES, Precision
from space.model import Model, kv_values

SOFTMAX = 4.0
"""Vector operations a score: subtract the maximum, exponential, add to the sum, rescale."""


def local(dim: Dim, tp: Any) -> Any:
    """Columns of a dimension on one device.

    >>> local(Dim(28, 128, split=True), 8), local(Dim(8, 128, split=True), 32), local(Dim(4096), 8)
    (512, 128, 4096)
    """
    return (ceil_div(dim.units, tp) if dim.split else dim.units) * dim.width


def segments(parts: tuple[Part, ...], tp: Any, precision: Precision) -> tuple[Segment, ...]:
    """The parts on one of `tp` devices, cut at the allreduces between them.

    An allreduce belongs to the segment that waits for it, so that what can be prefetched beside it is in one place.
    """
    hidden_bytes = BYTES[precision.activations]
    works = {part.name: tuple(work(operator, tp, precision) for operator in part.operators) for part in parts}
    payload = {part.name: _payload(part, hidden_bytes) for part in parts}
    layers = [part for part in parts if part.name not in ("embedding", "attention", "head")]
    attention = next(part for part in parts if part.name == "attention")
    reduced = payload[layers[0].name]
    order = {name: breadth_first(some) for name, some in works.items()}

    def segment(name: str, part: Part, before: Any, times: int) -> Segment:
        return Segment(name, before, works[part.name], order[part.name], times)

    cut = (
        segment("embedding", parts[0], None, 1),
        segment("first attention", attention, None, 1),
        *(segment(part.name, part, payload["attention"], part.times) for part in layers),
        segment("attention", attention, reduced, attention.times - 1),
        segment("head", parts[-1], reduced, 1),
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
    per_value = float(BYTES[precision.weights])
    layer = {part.name: per_value * stored(part, tp) for part in parts}
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
    total: Any = 0.0
    for operator in part.operators:
        if isinstance(operator, MatMul):
            total = total + operator.stored * local(operator.k, tp) * local(operator.n, tp)
    return total


def _payload(part: Part, nbytes: int) -> Any:
    """Bytes to reduce after a part; None where no product contracts over a divided dimension."""
    partial = [operator for operator in part.operators if isinstance(operator, MatMul) and operator.k.split]
    if not partial:
        return None
    return part.rows * partial[-1].n.units * float(nbytes)


def work(operator: Operator, tp: Any, precision: Precision) -> Work:
    """What one of `tp` devices does of an operator."""
    act, name, needs = BYTES[precision.activations], operator.name, operator.needs
    if isinstance(operator, MatMul):
        m, k, n = operator.m, local(operator.k, tp), local(operator.n, tp)
        weights = k * n
        return Work(
            name,
            needs,
            "matmul",
            (m, k, n),
            flop=(2.0 * m) * weights,
            weight_bytes=(operator.copies * float(BYTES[precision.weights])) * weights,
            activation_bytes=(m * act) * (k + n),
        )
    if isinstance(operator, Elementwise):
        elements = operator.rows * local(operator.dim, tp)
        return Work(
            name,
            needs,
            "elementwise",
            (operator.rows, 1, local(operator.dim, tp)),
            vector_op=elements * float(operator.operations),
            activation_bytes=elements * float(operator.passes * act),
        )
    return _attention_work(operator, tp, precision)


def _attention_work(operator: Attention, tp: Any, precision: Precision) -> Work:
    act, kv = BYTES[precision.activations], BYTES[precision.kv]
    heads = ceil_div(operator.heads.units, tp) if operator.heads.split else operator.heads.units
    kv_heads = ceil_div(operator.kv_heads.units, tp) if operator.kv_heads.split else operator.kv_heads.units
    dims = operator.qk_dim + operator.v_dim
    scores = operator.pairs * heads
    cached = operator.positions * kv_heads
    fresh = operator.tokens * (act * (heads * dims + kv_heads * operator.kv_dim))
    return Work(
        operator.name,
        operator.needs,
        "attention",
        (operator.tokens, operator.pairs, heads),
        flop=scores * (2.0 * dims),
        vector_op=scores * SOFTMAX,
        streamed_op=operator.positions * (heads * float(dims)),
        kv_bytes=cached * float(operator.kv_dim * kv),
        kv_piece=float(operator.layout_dim * kv),
        kv_stride=kv_heads * float(operator.layout_dim * kv),
        activation_bytes=fresh,
    )
