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


def gemm_problem(part: Segment, of: MatMulOp, tp: Any, precision: FormatPlan, pace: Any) -> Gemm | GroupedGemm:
    """Problem of a library's matrix product for an operator on one of `tp` devices.

    Args:
        part: of a step.
        of: its operator.
        tp: devices that share it.
        precision: number formats.
        pace: time of an operation over that of one on 16 bits.
    """
    one, act = weight_format(part, of, precision), float(BYTES_BY_FORMAT[precision.activations])
    m, k, n = of.m, local_width(of.k, tp), local_width(of.n, tp)
    beside = next((names for names in FUSED_PRODUCTS if of.name in names), (of.name,))
    columns = sum(
        local_width(other.n, tp)
        for other in part.operators
        if isinstance(other, MatMulOp) and other.name in beside and weight_format(part, other, precision) == one
    )
    said = scale_kind(precision.activations, one)
    if of.name.startswith("experts_"):
        near, far = (k, columns) if of.name == "experts_down" else (columns, k)
        weights = of.copies * k * columns * BYTES_BY_FORMAT[one]
        held = maximum(of.stored, of.copies)
        return GroupedGemm(m, k, columns, of.copies, held, weights, near, far, said, pace, n / columns)
    apart = ceil_div(of.apart, tp) if of.apart > 1 and of.n.split else of.apart
    return Gemm(m, k, columns, k * columns * BYTES_BY_FORMAT[one], act, said, pace, n / columns, apart)


def elementwise_problem(of: ElementwiseOp, tp: Any, precision: FormatPlan) -> ElementwiseKernel | GroupedGemm:
    """Problem of a library's elementwise kernel for an operator on one of `tp` devices.

    Args:
        of: the operator.
        tp: devices that share it.
        precision: number formats.
    """
    width = local_width(of.dim, tp) * of.passes
    if of.name.startswith("experts_"):
        return GroupedGemm(of.rows, 0.0, width, 0.0, 0.0, 0.0, width, 0.0)
    return ElementwiseKernel(of.rows, width * float(BYTES_BY_FORMAT[precision.activations]), elementwise_kind(of.name))


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
    return next((found for end, found in ends.items() if name.endswith(end)), "copy")


HALF = 2.0
"""Bytes of queries, and of keys, values and results that are not cached: attention works on 16 bits."""


def attention_problem(of: AttentionOp, heads: Any, kv_heads: Any, precision: FormatPlan) -> Any:
    """Problem of a library's attention kernel for an operator on one device.

    None if an indexer selects what queries see, which no library kernel supports.

    Requests are alike: each has the mean of new tokens, and of positions before these. The last new token of a prompt sees all
    of them, or within a window twice what tokens see on average, at most.

    Args:
        of: attention.
        heads, kv_heads: on one device.
        precision: number formats.
    """
    if of.picked:
        return None
    each, dims = float(BYTES_BY_FORMAT[precision.kv]), of.qk_dim + of.v_dim
    cached = of.positions * (of.cached(kv_heads) * each)
    if not of.prompts:
        some = where(of.sequences > 0, of.sequences, 1.0)  # beside prompts there may be none
        queries, near, keys = of.tokens / some, of.tokens * heads * (dims * HALF), of.positions / some
        if of.latent:
            converted = of.tokens * heads * (of.qk_dim * (HALF + each)) if each < HALF else 0.0
            return latent_generation.MlaDecodeAttention(
                of.sequences, keys, heads, queries, dims, of.v_dim, cached, near, converted
            )
        return generation.DecodeAttention(of.sequences, keys, heads, kv_heads, queries, dims, cached, near)
    prompts, tokens = of.sequences - of.decodes, of.tokens - of.decodes * of.queries
    new, seen, past = tokens / prompts, (of.pairs - of.scored) / tokens, (of.positions - of.decoded) / prompts
    alone = of.decoded / where(of.decodes > 0, of.decodes, 1.0)
    moved = of.tokens * (dims * (heads + kv_heads) * HALF)
    wider = of.latent or of.qk_dim != of.v_dim
    converted = of.tokens * (heads * of.qk_dim + kv_heads * dims) * (HALF + each) if each < HALF else 0.0
    keys = minimum(new + past, 2.0 * seen)
    both = PrefillAttention(new, prompts, seen, keys, of.decodes, alone, heads, dims, moved + cached, converted, wider)
    if wider or (isinstance(of.decodes, float) and not of.decodes):
        return both
    share, bytes_of = tokens / of.tokens, cached / where(of.positions > 0, of.positions, 1.0)
    apart = both._replace(
        decodes=0.0, cached=0.0, nbytes=moved * share + (of.positions - of.decoded) * bytes_of, converted=converted * share
    )
    near = of.decodes * of.queries * heads * (dims * HALF)
    decodes = generation.DecodeAttention(of.decodes, alone, heads, kv_heads, of.queries, dims, of.decoded * bytes_of, near)
    return MixedBatchAttention(both, apart, decodes)


def scale_kind(activations: str, weights: str) -> str:
    """Scaling of operands of 8 bits or less: tensor or block; empty string for wider ones.

    >>> scale_kind("fp8", "fp8"), scale_kind("fp8_1x128", "fp8_128x128"), scale_kind("bf16", "fp8")
    ('tensor', 'block', '')
    """
    one, other = FORMATS[activations], FORMATS[weights]
    if one.bits > 8 or other.bits > 8:
        return ""
    return "block" if one.scale else "tensor"
