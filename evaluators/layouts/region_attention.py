"""Attention on a region of cores.

It covers prompts attending to themselves, vectors attending to a cache, latents (MLA), and rows selected by an indexer.

Heads lie over the columns. Keys and values of a cache lie over the rows by positions, head by head, so that scores lie over the
rows and add up along the columns of a head. A latent has no heads: vectors meet it as one product with all of them. It lies the
other way, its values over the rows and positions over the columns, since queries that are absorbed head by head, on the columns
of each, leave what the latent is multiplied with over the rows, and what attention leaves goes back to the columns of heads. So
do rows that are key and value of all heads, and compressed entries (CSA, HCA), which are rows of several positions: each row of
cores takes its part of all queries, which lie on every row. A prompt's stretches get all entries beside their window. An
indexer's key, which is one for all heads that score, lies like a latent. Who scores knows its positions and their scores, so
that the choice needs the lowest one chosen; keys that lie over the rows are told. What is picked is read where it lies, picks
being taken to lie evenly. Of a prompt, what an indexer does not pick is scored with the rest and left out of the softmax.
"""

from typing import Any

from dse.evaluators.calls.call import ONCE, KernelCall, MeshKernel
from dse.evaluators.graph.operators import AttentionOp, IndexerOp, MatMulOp, MatrixDim, Segment, dim_width
from dse.evaluators.kernels.gemm import find_gemm
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kv import find_kv_method
from dse.evaluators.layouts.region_calls import (
    HeadColumns,
    RegionContext,
    columns_to_rows_call,
    compressed_entries,
    dequantize_calls,
    elementwise_call,
    fetch_before_product,
    head_columns,
    kernel_call,
    kv_widths,
    product_with_dequantize,
    stored_shape,
)
from dse.evaluators.layouts.tensor_formats import index_format, weight_format
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.model import Model


def prefill_attention_calls(
    part: Segment, operator: AttentionOp, context: RegionContext, ring: dict[str, Any]
) -> list[KernelCall]:
    """Calls of a prompt's attention to itself, head by head on the columns that hold it.

    Args:
        part, of, on: what, and where.
        ring: the algorithm by which blocks of keys and values go round, an option of their products.
    """
    calls = _shared(part, operator, context) if _one_for_all(context.model) else []
    head, pairs = (
        head_columns(_wide(operator.heads, operator.qk_dim), context.mesh.cols),
        2.0 * operator.heads.units * operator.pairs,
    )
    window = context.model.window or context.model.chunk
    count, rows, queries, keys = window_segments(
        operator.tokens, operator.positions, window, context.mesh.rows, alone=bool(context.model.chunk)
    )
    keys = keys + compressed_entries(context.model, operator.tokens)
    on_head, side = CoreMesh(rows, head.cols), head.copies * count
    before = GemmShape(maximum(keys - queries, ONCE), sum(kv_widths(context.model, context.mapping.kv_projection)), 1)
    way: tuple[Any, ...] = (before, CoreMesh(context.mesh.cols, rows), {}, where(count > 1, ONCE, 0.0), count)
    scores, values = GemmShape(queries, head.width, keys), GemmShape(queries, keys, _beside(head, operator, context.mesh.cols))
    first = MeshKernel(part.name, "scores", "gemm", "meshgemm_t", scores, on_head, ring, head.turns, side)
    last = MeshKernel(part.name, "values", "gemm", "meshgemm_v", values, on_head, ring, head.turns, side)
    softmax = GemmShape(queries * head.turns, keys, 1)
    masked = 2.0 * operator.heads.units * maximum(operator.tokens * keys - operator.pairs, 0.0)
    return [
        *calls,
        *_past(part, operator, context),
        *([kernel_call(MeshKernel(part.name, "kv_window", "move", "transfer", *way))] if window else ()),
        kernel_call(first, (), pairs * operator.qk_dim, masked=masked * operator.qk_dim),
        *(
            [elementwise_call(part.name, "scores_tanh", "cap", softmax, on_head.transposed_mesh, same=False, copies=side)]
            if operator.capped
            else ()
        ),
        kernel_call(
            MeshKernel(part.name, "softmax", "vector", "softmax", softmax, on_head.transposed_mesh, context.line, ONCE, side)
        ),
        kernel_call(last, (operator.name,), pairs * operator.v_dim, masked=masked * operator.v_dim),
    ]


def _past(part: Segment, operator: AttentionOp, context: RegionContext) -> list[KernelCall]:
    """What is cached before a prompt becomes what cores multiply, where it is none: keys and values, or the latent."""
    wide = sum(kv_widths(context.model, "full")) if _one_for_all(context.model) else sum(_kv_sides(operator, context))
    shape = GemmShape(operator.positions, wide, 1)
    times = where(operator.positions > 0, ONCE, 0.0)
    return dequantize_calls(
        part.name, "kv_past", context.precision.kv, shape, context.mesh.transposed_mesh, times=times, pieces=False
    )


def _kv_sides(operator: AttentionOp, context: RegionContext) -> tuple[Any, Any]:
    """Values of K, and of V, of a position that attention reads, as they are cached."""
    heads = operator.heads.units if context.mapping.kv_heads == "full" else operator.kv_heads.units
    return heads * operator.qk_dim, heads * operator.v_dim


def _one_for_all(model: Model) -> bool:
    """Whether what is cached of a position is one row, for all heads."""
    return model.latent is not None or model.compressed is not None


def _shared(part: Segment, operator: AttentionOp, context: RegionContext) -> list[KernelCall]:
    """What all heads have of a position goes from its columns to all of its row: a latent, its rotated part, or a row."""
    apart = context.model.latent is not None and operator.kv_heads.units == operator.heads.units
    values = context.model.latent.rope_dim if context.model.latent is not None and apart else operator.kv_dim
    whole, count = (
        CoreMesh(context.mesh.cols, context.mesh.rows),
        operator.tokens + compressed_entries(context.model, operator.tokens),
    )
    return (
        [kernel_call(MeshKernel(part.name, "kv_all", "move", "dispatch", GemmShape(values, count, 1), whole, {}))]
        if values
        else []
    )


def window_segments(tokens: Any, past: Any, window: int, rows: Any, *, alone: bool = False) -> tuple[Any, Any, Any, Any]:
    """Segments of a prompt as long as its window, and the rows that hold each of them.

    Each gets the keys that it sees of those before; chunks that attend to themselves `alone` get none.

    Before all of them `past` positions are cached, evenly over the rows.

    Returns:
        How many there are, and rows, queries and keys of each.
    """
    if not window:
        return ONCE, rows, tokens, tokens + past
    count = maximum(minimum(ceil_div(tokens, window), rows // find_gemm("meshgemm_t").MIN_SIDE), 1)
    queries = ceil_div(tokens, count)
    return count, rows // count, queries, minimum(tokens + past, queries + (0 if alone else window))


def decode_attention_calls(part: Segment, operator: AttentionOp, context: RegionContext) -> list[KernelCall]:
    """Calls of attention of vectors to the KV cache; the fullest line of cores decides the time."""
    if _one_for_all(context.model):
        return _latent(part, operator, context)
    head, m, pairs = (
        head_columns(_wide(operator.heads, operator.qk_dim), context.mesh.cols),
        operator.tokens,
        2.0 * operator.heads.units * operator.pairs,
    )
    positions = _positions(operator, context, context.mesh.rows)
    new = stored_shape(context.precision.kv, m, sum(kv_widths(context.model, context.mapping.kv_heads)), context.mesh.cols)
    softmax = GemmShape(m * head.turns, positions, 1)
    on_head, word = CoreMesh(head.cols, context.mesh.rows), context.plan.gemv
    queries, values = (
        GemmShape(m * head.turns, head.width, positions),
        GemmShape(m, positions, operator.heads.units * operator.v_dim),
    )
    shifted = (
        []
        if context.model.kv_reused
        else [kernel_call(MeshKernel(part.name, "kv_cache", "kv", context.mapping.kv_placement, new, context.mesh, {}))]
    )
    k, v = (GemmShape(m * positions, wide, 1) for wide in _kv_sides(operator, context))
    kv, over = context.precision.kv, context.mesh.transposed_mesh
    return [
        *shifted,
        *dequantize_calls(part.name, "scores", kv, k, over),
        kernel_call(
            MeshKernel(part.name, "scores", "gemv", word, queries, on_head, context.tree, ONCE, head.copies),
            (),
            pairs * operator.qk_dim,
        ),
        *([elementwise_call(part.name, "scores_tanh", "cap", softmax, context.mesh)] if operator.capped else ()),
        kernel_call(MeshKernel(part.name, "softmax", "vector", "softmax", softmax, context.mesh, context.line)),
        *dequantize_calls(part.name, "values", kv, v, over),
        kernel_call(
            MeshKernel(part.name, "values", "gemv", word, values, context.mesh, context.tree),
            (operator.name,),
            pairs * operator.v_dim,
        ),
    ]


def _latent(part: Segment, operator: AttentionOp, context: RegionContext) -> list[KernelCall]:
    """Absorbed queries of all heads meet the latent, positions of which lie over the columns.

    Every row has all scores of its positions, and takes the softmax of its share of the heads; the others' come back to it.
    """
    m, heads, pairs = operator.tokens, operator.heads.units, 2.0 * operator.heads.units * operator.pairs
    positions, word, rows = (
        _positions(operator, context, context.mesh.cols),
        context.plan.gemv,
        operator.tokens * operator.heads.units,
    )
    queries, values = GemmShape(rows, operator.qk_dim, positions), GemmShape(rows, positions, operator.v_dim)
    softmax, back, line = GemmShape(rows, positions, 1), context.mesh.transposed_mesh, {**context.line, "replicated": False}
    return [
        columns_to_rows_call(part.name, "kv_turn", operator.kv_dim, m, context),
        kernel_call(
            MeshKernel(
                part.name,
                "kv_cache",
                "kv",
                context.mapping.kv_placement,
                stored_shape(context.precision.kv, m, operator.kv_dim, context.mesh.rows),
                back,
                {},
            )
        ),
        *_entry(part, "kv", operator.kv_dim, m, context.precision.kv, context),
        kernel_call(MeshKernel(part.name, "q_all", "move", "dispatch", GemmShape(m * heads, operator.qk_dim, 1), back, {})),
        *dequantize_calls(
            part.name, "scores", context.precision.kv, GemmShape(m * positions, operator.kv_dim, 1), context.mesh
        ),
        kernel_call(
            MeshKernel(part.name, "scores", "gemv", word, queries, context.mesh, context.tree), (), pairs * operator.qk_dim
        ),
        *([elementwise_call(part.name, "scores_tanh", "cap", softmax, back, same=False)] if operator.capped else ()),
        kernel_call(MeshKernel(part.name, "softmax", "vector", "softmax", softmax, back, line)),
        kernel_call(MeshKernel(part.name, "shares_all", "move", "dispatch", softmax, context.mesh, {})),
        *dequantize_calls(part.name, "values", context.precision.kv, GemmShape(m * positions, operator.v_dim, 1), context.mesh),
        kernel_call(
            MeshKernel(part.name, "values", "gemv", word, values, back, context.tree), (operator.name,), pairs * operator.v_dim
        ),
    ]


def _entry(part: Segment, name: str, values: Any, rows: Any, word: str, context: RegionContext) -> list[KernelCall]:
    """A compressed entry of each of some vectors' positions is kept, once in as many tokens as it stands for."""
    attention = context.model.compressed
    if attention is None or not attention.ratio:
        return []
    shape, often = GemmShape(rows, values, 1), 1.0 / attention.ratio
    return [
        kernel_call(MeshKernel(part.name, f"{name}_entry_turn", "move", "turn", shape, context.mesh, {}, often)),
        kernel_call(
            MeshKernel(
                part.name,
                f"{name}_entry",
                "kv",
                context.mapping.kv_placement,
                stored_shape(word, rows, values, context.mesh.rows),
                context.mesh.transposed_mesh,
                {},
                often,
            )
        ),
    ]


def per_head_product_calls(part: Segment, operator: MatMulOp, context: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    """Calls of the products of heads with a matrix of each, on the columns that hold it.

    Of vectors, what is absorbed lies over the columns before and over the rows behind, for all heads at once where they come
    back. Of a prompt, weights lie as keys do, which takes no more steps than there are rows.
    """
    width, flop, word = (
        dim_width(operator.n) // operator.apart,
        2.0 * operator.m * dim_width(operator.k) * dim_width(operator.n),
        weight_format(part, operator, context.precision),
    )
    weights = dim_width(operator.k) * dim_width(operator.n) * BYTES_BY_FORMAT[word]
    if context.vectors and "attention" in operator.needs:
        shape = GemmShape(operator.m, dim_width(operator.k), dim_width(operator.n))
        kernel = MeshKernel(part.name, operator.name, "gemv", context.plan.gemv, shape, context.mesh, context.tree)
        return product_with_dequantize(
            word, (dim_width(operator.n), dim_width(operator.k)), kernel_call(kernel, (operator.name,), flop, weights)
        )
    head = head_columns(MatrixDim(operator.apart, dim_width(operator.k)), context.mesh.cols)
    over = CoreMesh(head.cols, context.mesh.rows)
    if context.vectors:
        shape = GemmShape(operator.m * head.turns, head.width, width)
        kernel = MeshKernel(part.name, operator.name, "gemv", context.plan.gemv, shape, over, context.tree, ONCE, head.copies)
    else:
        shape = GemmShape(operator.m, head.width, width)
        kernel = MeshKernel(
            part.name, operator.name, "gemm", "meshgemm_t", shape, over.transposed_mesh, ring, head.turns, head.copies
        )
    each, made = GemmShape(width, head.width, 1), kernel_call(kernel, (operator.name,), flop, weights)
    how: dict[str, Any] = {"times": head.turns, "copies": head.copies, "pieces": context.vectors}
    return fetch_before_product(dequantize_calls(part.name, operator.name, word, each, over, weights=weights, **how), made)


def indexer_calls(part: Segment, operator: IndexerOp, context: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    """Calls of an indexer: scores, their sum over its heads, and the choice of the best positions."""
    flop, past, word = 2.0 * operator.pairs * operator.heads * operator.dim, operator.positions, index_format(context.precision)
    if context.vectors:
        m = operator.tokens
        key = stored_shape(word, m, operator.dim, context.mesh.rows)
        own = context.model.compressed is None  # else keys are those of compressed entries
        generated = (
            context.generated
            if context.model.compressed is None
            else context.generated / maximum(context.model.compressed.ratio, 1)
        )
        positions = (
            find_kv_method(context.mapping.kv_placement).fullest_row_tokens(operator.pairs / m, generated, context.mesh.cols)
            * context.mesh.cols
        )
        queries, back, sums = (
            GemmShape(m * operator.heads, operator.dim, positions),
            context.mesh.transposed_mesh,
            GemmShape(m, positions, 1),
        )
        return [
            columns_to_rows_call(part.name, "index_turn", operator.dim, m * (operator.heads + own), context),
            *(
                [kernel_call(MeshKernel(part.name, "index_cache", "kv", context.mapping.kv_placement, key, back, {}))]
                if own
                else ()
            ),
            *_entry(part, "index", operator.dim, m, word, context),
            *dequantize_calls(part.name, "index_scores", word, GemmShape(m * positions, operator.dim, 1), context.mesh),
            kernel_call(
                MeshKernel(part.name, "index_scores", "gemv", context.plan.gemv, queries, context.mesh, context.tree), (), flop
            ),
            elementwise_call(part.name, "index_sums", "rectify", GemmShape(m * operator.heads, positions, 1), back),
            kernel_call(MeshKernel(part.name, "choice", "vector", "choice", sums, back, context.line), (operator.name,)),
            *([] if _one_for_all(context.model) else [columns_to_rows_call(part.name, "picks_turn", positions, m, context)]),
        ]
    m, own = (
        operator.tokens,
        operator.tokens if context.model.compressed is None else compressed_entries(context.model, operator.tokens),
    )
    keys = own + past
    head = head_columns(MatrixDim(operator.heads, operator.dim), context.mesh.cols)
    on_head, whole = CoreMesh(context.mesh.rows, head.cols), CoreMesh(context.mesh.cols, context.mesh.rows)
    each, sums = GemmShape(m * head.turns, keys, 1), GemmShape(1, operator.heads, m * keys)
    across = CoreMesh(head.copies, context.mesh.rows * head.cols)
    queries = GemmShape(m, operator.dim, keys)
    kernel = MeshKernel(part.name, "index_scores", "gemm", "meshgemm_t", queries, on_head, ring, head.turns, head.copies)
    times = where(past > 0, ONCE, 0.0)
    return [
        *dequantize_calls(
            part.name,
            "index_past",
            word,
            GemmShape(past, operator.dim, 1),
            context.mesh.transposed_mesh,
            times=times,
            pieces=False,
        ),
        kernel_call(MeshKernel(part.name, "index_all", "move", "dispatch", GemmShape(operator.dim, own, 1), whole, {})),
        kernel_call(kernel, (), flop, masked=2.0 * operator.heads * operator.dim * (m * keys - operator.pairs)),
        elementwise_call(
            part.name, "index_rectified", "rectify", each, on_head.transposed_mesh, same=False, copies=head.copies
        ),
        kernel_call(MeshKernel(part.name, "index_sums", "gemv", context.plan.gemv, sums, across, context.tree)),
        kernel_call(
            MeshKernel(part.name, "choice", "vector", "choice", GemmShape(m, keys, 1), on_head.transposed_mesh, context.line),
            (operator.name,),
        ),
    ]


def _positions(operator: AttentionOp, given_context: RegionContext, lines: Any) -> Any:
    """Positions that each query looks at, were all lines of cores as full as the one that has most; picks lie evenly."""
    context = operator.pairs / operator.tokens
    if operator.picked:
        return ceil_div(context, lines) * lines
    generated, attention = given_context.generated, given_context.model.compressed
    if given_context.model.window or given_context.model.chunk:
        within = given_context.model.window if attention is not None else context
        generated = minimum(
            minimum(generated, within) + (generated / attention.ratio if attention is not None and attention.ratio else 0.0),
            context,
        )
    return find_kv_method(given_context.mapping.kv_placement).fullest_row_tokens(context, generated, lines) * lines


def _wide(heads: MatrixDim, wide: int) -> MatrixDim:
    return MatrixDim(heads.units, wide, heads.split)


def _beside(head: HeadColumns, operator: AttentionOp, cols: Any) -> Any:
    """Width of a head's values on the columns of its keys."""
    return head.cols * ceil_div(operator.heads.units * operator.v_dim, cols) / head.turns
