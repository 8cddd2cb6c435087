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
from dse.evaluators.graph.operators import AttentionOp, IndexerOp, MatMulOp, MatrixDim, Segment
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
from dse.evaluators.layouts.residency import dim_width
from dse.evaluators.layouts.tensor_formats import index_format, weight_format
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.model import Model


def prefill_attention_calls(part: Segment, of: AttentionOp, on: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    """Calls of a prompt's attention to itself, head by head on the columns that hold it.

    Args:
        part, of, on: what, and where.
        ring: the algorithm by which blocks of keys and values go round, an option of their products.
    """
    found = _shared(part, of, on) if _one_for_all(on.model) else []
    head, pairs = head_columns(_wide(of.heads, of.qk_dim), on.mesh.cols), 2.0 * of.heads.units * of.pairs
    window = on.model.window or on.model.chunk
    count, rows, queries, keys = window_segments(of.tokens, of.positions, window, on.mesh.rows, alone=bool(on.model.chunk))
    keys = keys + compressed_entries(on.model, of.tokens)
    on_head, side = CoreMesh(rows, head.cols), head.copies * count
    before = GemmShape(maximum(keys - queries, ONCE), sum(kv_widths(on.model, on.mapping.kv_projection)), 1)
    way: tuple[Any, ...] = (before, CoreMesh(on.mesh.cols, rows), {}, where(count > 1, ONCE, 0.0), count)
    scores, values = GemmShape(queries, head.width, keys), GemmShape(queries, keys, _beside(head, of, on.mesh.cols))
    first = MeshKernel(part.name, "scores", "gemm", "meshgemm_t", scores, on_head, ring, head.turns, side)
    last = MeshKernel(part.name, "values", "gemm", "meshgemm_v", values, on_head, ring, head.turns, side)
    softmax = GemmShape(queries * head.turns, keys, 1)
    masked = 2.0 * of.heads.units * maximum(of.tokens * keys - of.pairs, 0.0)
    return [
        *found,
        *_past(part, of, on),
        *([kernel_call(MeshKernel(part.name, "kv_window", "move", "transfer", *way))] if window else ()),
        kernel_call(first, (), pairs * of.qk_dim, masked=masked * of.qk_dim),
        *(
            [elementwise_call(part.name, "scores_tanh", "cap", softmax, on_head.turned, same=False, copies=side)]
            if of.capped
            else ()
        ),
        kernel_call(MeshKernel(part.name, "softmax", "vector", "softmax", softmax, on_head.turned, on.line, ONCE, side)),
        kernel_call(last, (of.name,), pairs * of.v_dim, masked=masked * of.v_dim),
    ]


def _past(part: Segment, of: AttentionOp, on: RegionContext) -> list[KernelCall]:
    """What is cached before a prompt becomes what cores multiply, where it is none: keys and values, or the latent."""
    wide = sum(kv_widths(on.model, "full")) if _one_for_all(on.model) else sum(_kv_sides(of, on))
    shape = GemmShape(of.positions, wide, 1)
    there = where(of.positions > 0, ONCE, 0.0)
    return dequantize_calls(part.name, "kv_past", on.precision.kv, shape, on.mesh.turned, times=there, pieces=False)


def _kv_sides(of: AttentionOp, on: RegionContext) -> tuple[Any, Any]:
    """Values of K, and of V, of a position that attention reads, as they are cached."""
    heads = of.heads.units if on.mapping.kv_heads == "full" else of.kv_heads.units
    return heads * of.qk_dim, heads * of.v_dim


def _one_for_all(model: Model) -> bool:
    """Whether what is cached of a position is one row, for all heads."""
    return model.latent is not None or model.compressed is not None


def _shared(part: Segment, of: AttentionOp, on: RegionContext) -> list[KernelCall]:
    """What all heads have of a position goes from its columns to all of its row: a latent, its rotated part, or a row."""
    apart = on.model.latent is not None and of.kv_heads.units == of.heads.units
    values = on.model.latent.rope_dim if on.model.latent is not None and apart else of.kv_dim
    whole, count = CoreMesh(on.mesh.cols, on.mesh.rows), of.tokens + compressed_entries(on.model, of.tokens)
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


def decode_attention_calls(part: Segment, of: AttentionOp, on: RegionContext) -> list[KernelCall]:
    """Calls of attention of vectors to the KV cache; the fullest line of cores decides the time."""
    if _one_for_all(on.model):
        return _latent(part, of, on)
    head, m, pairs = head_columns(_wide(of.heads, of.qk_dim), on.mesh.cols), of.tokens, 2.0 * of.heads.units * of.pairs
    positions = _positions(of, on, on.mesh.rows)
    new = stored_shape(on.precision.kv, m, sum(kv_widths(on.model, on.mapping.kv_heads)), on.mesh.cols)
    softmax = GemmShape(m * head.turns, positions, 1)
    on_head, word = CoreMesh(head.cols, on.mesh.rows), on.plan.gemv
    queries, values = GemmShape(m * head.turns, head.width, positions), GemmShape(m, positions, of.heads.units * of.v_dim)
    shifted = (
        []
        if on.model.kv_reused
        else [kernel_call(MeshKernel(part.name, "kv_cache", "kv", on.mapping.kv_placement, new, on.mesh, {}))]
    )
    k, v = (GemmShape(m * positions, wide, 1) for wide in _kv_sides(of, on))
    said, over = on.precision.kv, on.mesh.turned
    return [
        *shifted,
        *dequantize_calls(part.name, "scores", said, k, over),
        kernel_call(
            MeshKernel(part.name, "scores", "gemv", word, queries, on_head, on.tree, ONCE, head.copies), (), pairs * of.qk_dim
        ),
        *([elementwise_call(part.name, "scores_tanh", "cap", softmax, on.mesh)] if of.capped else ()),
        kernel_call(MeshKernel(part.name, "softmax", "vector", "softmax", softmax, on.mesh, on.line)),
        *dequantize_calls(part.name, "values", said, v, over),
        kernel_call(MeshKernel(part.name, "values", "gemv", word, values, on.mesh, on.tree), (of.name,), pairs * of.v_dim),
    ]


def _latent(part: Segment, of: AttentionOp, on: RegionContext) -> list[KernelCall]:
    """Absorbed queries of all heads meet the latent, positions of which lie over the columns.

    Every row has all scores of its positions, and takes the softmax of its share of the heads; the others' come back to it.
    """
    m, heads, pairs = of.tokens, of.heads.units, 2.0 * of.heads.units * of.pairs
    positions, word, rows = _positions(of, on, on.mesh.cols), on.plan.gemv, of.tokens * of.heads.units
    queries, values = GemmShape(rows, of.qk_dim, positions), GemmShape(rows, positions, of.v_dim)
    softmax, back, line = GemmShape(rows, positions, 1), on.mesh.turned, {**on.line, "replicated": False}
    return [
        columns_to_rows_call(part.name, "kv_turn", of.kv_dim, m, on),
        kernel_call(
            MeshKernel(
                part.name,
                "kv_cache",
                "kv",
                on.mapping.kv_placement,
                stored_shape(on.precision.kv, m, of.kv_dim, on.mesh.rows),
                back,
                {},
            )
        ),
        *_entry(part, "kv", of.kv_dim, m, on.precision.kv, on),
        kernel_call(MeshKernel(part.name, "q_all", "move", "dispatch", GemmShape(m * heads, of.qk_dim, 1), back, {})),
        *dequantize_calls(part.name, "scores", on.precision.kv, GemmShape(m * positions, of.kv_dim, 1), on.mesh),
        kernel_call(MeshKernel(part.name, "scores", "gemv", word, queries, on.mesh, on.tree), (), pairs * of.qk_dim),
        *([elementwise_call(part.name, "scores_tanh", "cap", softmax, back, same=False)] if of.capped else ()),
        kernel_call(MeshKernel(part.name, "softmax", "vector", "softmax", softmax, back, line)),
        kernel_call(MeshKernel(part.name, "shares_all", "move", "dispatch", softmax, on.mesh, {})),
        *dequantize_calls(part.name, "values", on.precision.kv, GemmShape(m * positions, of.v_dim, 1), on.mesh),
        kernel_call(MeshKernel(part.name, "values", "gemv", word, values, back, on.tree), (of.name,), pairs * of.v_dim),
    ]


def _entry(part: Segment, name: str, values: Any, rows: Any, word: str, on: RegionContext) -> list[KernelCall]:
    """A compressed entry of each of some vectors' positions is kept, once in as many tokens as it stands for."""
    said = on.model.compressed
    if said is None or not said.ratio:
        return []
    shape, often = GemmShape(rows, values, 1), 1.0 / said.ratio
    return [
        kernel_call(MeshKernel(part.name, f"{name}_entry_turn", "move", "turn", shape, on.mesh, {}, often)),
        kernel_call(
            MeshKernel(
                part.name,
                f"{name}_entry",
                "kv",
                on.mapping.kv_placement,
                stored_shape(word, rows, values, on.mesh.rows),
                on.mesh.turned,
                {},
                often,
            )
        ),
    ]


def per_head_product_calls(part: Segment, of: MatMulOp, on: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    """Calls of the products of heads with a matrix of each, on the columns that hold it.

    Of vectors, what is absorbed lies over the columns before and over the rows behind, for all heads at once where they come
    back. Of a prompt, weights lie as keys do, which takes no more steps than there are rows.
    """
    one, flop, word = (
        dim_width(of.n) // of.apart,
        2.0 * of.m * dim_width(of.k) * dim_width(of.n),
        weight_format(part, of, on.precision),
    )
    weights = dim_width(of.k) * dim_width(of.n) * BYTES_BY_FORMAT[word]
    if on.vectors and "attention" in of.needs:
        shape = GemmShape(of.m, dim_width(of.k), dim_width(of.n))
        kernel = MeshKernel(part.name, of.name, "gemv", on.plan.gemv, shape, on.mesh, on.tree)
        return product_with_dequantize(word, (dim_width(of.n), dim_width(of.k)), kernel_call(kernel, (of.name,), flop, weights))
    head = head_columns(MatrixDim(of.apart, dim_width(of.k)), on.mesh.cols)
    over = CoreMesh(head.cols, on.mesh.rows)
    if on.vectors:
        shape = GemmShape(of.m * head.turns, head.width, one)
        kernel = MeshKernel(part.name, of.name, "gemv", on.plan.gemv, shape, over, on.tree, ONCE, head.copies)
    else:
        shape = GemmShape(of.m, head.width, one)
        kernel = MeshKernel(part.name, of.name, "gemm", "meshgemm_t", shape, over.turned, ring, head.turns, head.copies)
    each, made = GemmShape(one, head.width, 1), kernel_call(kernel, (of.name,), flop, weights)
    how: dict[str, Any] = {"times": head.turns, "copies": head.copies, "pieces": on.vectors}
    return fetch_before_product(dequantize_calls(part.name, of.name, word, each, over, weights=weights, **how), made)


def indexer_calls(part: Segment, of: IndexerOp, on: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    """Calls of an indexer: scores, their sum over its heads, and the choice of the best positions."""
    flop, past, word = 2.0 * of.pairs * of.heads * of.dim, of.positions, index_format(on.precision)
    if on.vectors:
        m = of.tokens
        key = stored_shape(word, m, of.dim, on.mesh.rows)
        own = on.model.compressed is None  # else keys are those of compressed entries
        generated = on.generated if on.model.compressed is None else on.generated / maximum(on.model.compressed.ratio, 1)
        positions = (
            find_kv_method(on.mapping.kv_placement).fullest_row_tokens(of.pairs / m, generated, on.mesh.cols) * on.mesh.cols
        )
        queries, back, sums = GemmShape(m * of.heads, of.dim, positions), on.mesh.turned, GemmShape(m, positions, 1)
        return [
            columns_to_rows_call(part.name, "index_turn", of.dim, m * (of.heads + own), on),
            *([kernel_call(MeshKernel(part.name, "index_cache", "kv", on.mapping.kv_placement, key, back, {}))] if own else ()),
            *_entry(part, "index", of.dim, m, word, on),
            *dequantize_calls(part.name, "index_scores", word, GemmShape(m * positions, of.dim, 1), on.mesh),
            kernel_call(MeshKernel(part.name, "index_scores", "gemv", on.plan.gemv, queries, on.mesh, on.tree), (), flop),
            elementwise_call(part.name, "index_sums", "rectify", GemmShape(m * of.heads, positions, 1), back),
            kernel_call(MeshKernel(part.name, "choice", "vector", "choice", sums, back, on.line), (of.name,)),
            *([] if _one_for_all(on.model) else [columns_to_rows_call(part.name, "picks_turn", positions, m, on)]),
        ]
    m, own = of.tokens, of.tokens if on.model.compressed is None else compressed_entries(on.model, of.tokens)
    keys = own + past
    head = head_columns(MatrixDim(of.heads, of.dim), on.mesh.cols)
    on_head, whole = CoreMesh(on.mesh.rows, head.cols), CoreMesh(on.mesh.cols, on.mesh.rows)
    each, sums = GemmShape(m * head.turns, keys, 1), GemmShape(1, of.heads, m * keys)
    across = CoreMesh(head.copies, on.mesh.rows * head.cols)
    queries = GemmShape(m, of.dim, keys)
    kernel = MeshKernel(part.name, "index_scores", "gemm", "meshgemm_t", queries, on_head, ring, head.turns, head.copies)
    there = where(past > 0, ONCE, 0.0)
    return [
        *dequantize_calls(part.name, "index_past", word, GemmShape(past, of.dim, 1), on.mesh.turned, times=there, pieces=False),
        kernel_call(MeshKernel(part.name, "index_all", "move", "dispatch", GemmShape(of.dim, own, 1), whole, {})),
        kernel_call(kernel, (), flop, masked=2.0 * of.heads * of.dim * (m * keys - of.pairs)),
        elementwise_call(part.name, "index_rectified", "rectify", each, on_head.turned, same=False, copies=head.copies),
        kernel_call(MeshKernel(part.name, "index_sums", "gemv", on.plan.gemv, sums, across, on.tree)),
        kernel_call(
            MeshKernel(part.name, "choice", "vector", "choice", GemmShape(m, keys, 1), on_head.turned, on.line), (of.name,)
        ),
    ]


def _positions(of: AttentionOp, on: RegionContext, lines: Any) -> Any:
    """Positions that each query looks at, were all lines of cores as full as the one that has most; picks lie evenly."""
    context = of.pairs / of.tokens
    if of.picked:
        return ceil_div(context, lines) * lines
    generated, said = on.generated, on.model.compressed
    if on.model.window or on.model.chunk:
        within = on.model.window if said is not None else context
        generated = minimum(
            minimum(generated, within) + (generated / said.ratio if said is not None and said.ratio else 0.0), context
        )
    return find_kv_method(on.mapping.kv_placement).fullest_row_tokens(context, generated, lines) * lines


def _wide(heads: MatrixDim, wide: int) -> MatrixDim:
    return MatrixDim(heads.units, wide, heads.split)


def _beside(head: HeadColumns, of: AttentionOp, cols: Any) -> Any:
    """Width of a head's values on the columns of its keys."""
    return head.cols * ceil_div(of.heads.units * of.v_dim, cols) / head.turns
