"""Problems of library kernels for operators on one device: merged products, and number formats."""

from typing import Any

from dse.evaluators.graph.operators import AttentionOp, ElementwiseOp, MatMulOp, Segment, local_width
from dse.evaluators.kernels.library import decode_attention as generation
from dse.evaluators.kernels.library import mla_decode_attention as latent_generation
from dse.evaluators.kernels.library.elementwise import ElementwiseKernel
from dse.evaluators.kernels.library.gemm import Gemm
from dse.evaluators.kernels.library.grouped_gemm import GroupedGemm
from dse.evaluators.kernels.library.prefill_attention import MixedBatchAttention, PrefillAttention
from dse.evaluators.layouts.tensor_formats import weight_format
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan
from dse.space.number_formats import FORMATS

FUSED_PRODUCTS = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate", "up"),
    ("shared_gate", "shared_up"),
    ("experts_gate", "experts_up"),
    ("q_down", "kv_down"),
)
"""Products of the same rows whose weights libraries keep side by side, as one kernel."""


def gemm_problem(part: Segment, operator: MatMulOp, tp: Any, precision: FormatPlan, pace: Any) -> Gemm | GroupedGemm:
    """Problem of a library's matrix product for an operator on one of `tp` devices.

    Args:
        part: of a step.
        operator: its operator.
        tp: devices that share it.
        precision: number formats.
        pace: time of an operation over that of one on 16 bits.
    """
    single_weights, act = weight_format(part, operator, precision), float(BYTES_BY_FORMAT[precision.activations])
    m, k, n = operator.m, local_width(operator.k, tp), local_width(operator.n, tp)
    beside = next((names for names in FUSED_PRODUCTS if operator.name in names), (operator.name,))
    columns = sum(
        local_width(other.n, tp)
        for other in part.operators
        if isinstance(other, MatMulOp) and other.name in beside and weight_format(part, other, precision) == single_weights
    )
    kind = scale_kind(precision.activations, single_weights)
    if operator.name.startswith("experts_"):
        near, far = (k, columns) if operator.name == "experts_down" else (columns, k)
        weights = operator.copies * k * columns * BYTES_BY_FORMAT[single_weights]
        held = maximum(operator.stored, operator.copies)
        return GroupedGemm(
            m, k, columns, operator.copies, held, weights, near, far, kind, pace, n / columns, part.rows, operator.unequal
        )
    apart = ceil_div(operator.apart, tp) if operator.apart > 1 and operator.n.split else operator.apart
    return Gemm(m, k, columns, k * columns * BYTES_BY_FORMAT[single_weights], act, kind, pace, n / columns, apart)


def elementwise_problem(operator: ElementwiseOp, tp: Any, precision: FormatPlan) -> ElementwiseKernel | GroupedGemm:
    """Problem of a library's elementwise kernel for an operator on one of `tp` devices.

    Args:
        operator: the operator.
        tp: devices that share it.
        precision: number formats.
    """
    width = local_width(operator.dim, tp) * operator.passes
    if operator.name.startswith("experts_"):
        return GroupedGemm(operator.rows, 0.0, width, 0.0, 0.0, 0.0, width, 0.0)
    return ElementwiseKernel(
        operator.rows, width * float(BYTES_BY_FORMAT[precision.activations]), elementwise_kind(operator.name)
    )


def elementwise_kind(name: str) -> str:
    """Sort of an elementwise operator, by its name.

    >>> (
    ...     elementwise_kind("attention_norm"),
    ...     elementwise_kind("shared_activation"),
    ...     elementwise_kind("rope"),
    ...     elementwise_kind("embedding"),
    ... )
    ('norm', 'gate', 'rotate', 'gather')
    """
    ends = {"norm": "norm", "activation": "gate", "rope": "rotate", "embedding": "gather", "softmax": "softmax"}
    return next((found_end for end, found_end in ends.items() if name.endswith(end)), "copy")


HALF = 2.0
"""Bytes of queries, and of keys, values and results that are not cached: attention works on 16 bits."""


def attention_problem(operator: AttentionOp, heads: Any, kv_heads: Any, precision: FormatPlan) -> Any:
    """Problem of a library's attention kernel for an operator on one device.

    None if an indexer selects what queries see, which no library kernel supports.

    Requests are alike: each has the mean of new tokens, and of positions before these. The last new token of a prompt sees all
    of them, or within a window twice what tokens see on average, at most.

    Args:
        operator: attention.
        heads, kv_heads: on one device.
        precision: number formats.
    """
    if operator.picked:
        return None
    each, dims = float(BYTES_BY_FORMAT[precision.kv]), operator.qk_dim + operator.v_dim
    cached = operator.positions * (operator.cached_values(kv_heads) * each)
    if not operator.prompts:
        sequences = where(operator.sequences > 0, operator.sequences, 1.0)  # beside prompts there may be none
        queries, near, keys = (
            operator.tokens / sequences,
            operator.tokens * heads * (dims * HALF),
            operator.positions / sequences,
        )
        if operator.latent:
            converted = operator.tokens * heads * (operator.qk_dim * (HALF + each)) if each < HALF else 0.0
            return latent_generation.MlaDecodeAttention(
                operator.sequences, keys, heads, queries, dims, operator.v_dim, cached, near, converted
            )
        return generation.DecodeAttention(operator.sequences, keys, heads, kv_heads, queries, dims, cached, near)
    prompts, tokens = operator.sequences - operator.decodes, operator.tokens - operator.decodes * operator.queries
    new, seen, past = (
        tokens / prompts,
        (operator.pairs - operator.scored) / tokens,
        (operator.positions - operator.decoded) / prompts,
    )
    alone = operator.decoded / where(operator.decodes > 0, operator.decodes, 1.0)
    moved = operator.tokens * (dims * (heads + kv_heads) * HALF)
    wider = operator.latent or operator.qk_dim != operator.v_dim
    converted = operator.tokens * (heads * operator.qk_dim + kv_heads * dims) * (HALF + each) if each < HALF else 0.0
    keys = minimum(new + past, 2.0 * seen)
    both = PrefillAttention(new, prompts, seen, keys, operator.decodes, alone, heads, dims, moved + cached, converted, wider)
    if wider or (isinstance(operator.decodes, float) and not operator.decodes):
        return both
    share, bytes_of = tokens / operator.tokens, cached / where(operator.positions > 0, operator.positions, 1.0)
    apart = both._replace(
        decodes=0.0,
        cached=0.0,
        nbytes=moved * share + (operator.positions - operator.decoded) * bytes_of,
        converted=converted * share,
    )
    near = operator.decodes * operator.queries * heads * (dims * HALF)
    decodes = generation.DecodeAttention(
        operator.decodes, alone, heads, kv_heads, operator.queries, dims, operator.decoded * bytes_of, near
    )
    return MixedBatchAttention(both, apart, decodes)


def scale_kind(activations: str, weights: str) -> str:
    """Scaling of operands of 8 bits or less: tensor or block; empty string for wider ones.

    >>> scale_kind("fp8", "fp8"), scale_kind("fp8_1x128", "fp8_128x128"), scale_kind("bf16", "fp8")
    ('tensor', 'block', '')
    """
    number_format, other = FORMATS[activations], FORMATS[weights]
    if number_format.bits > 8 or other.bits > 8:
        return ""
    return "block" if number_format.scale else "tensor"
