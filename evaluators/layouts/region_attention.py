"""Attention on a region of cores: of a prompt to itself, of vectors to a cache, latent (MLA), and to what an indexer picks.

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

from dse.evaluators.graph.operators import Attention, Dim, Index, MatMul, Part
from dse.evaluators.kernels.gemm import gemm
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.kv import kv
from dse.evaluators.layouts.formats import index_of, weights_of
from dse.evaluators.layouts.region_calls import (
    Group,
    On,
    attention_group,
    call,
    element,
    entries,
    expanded,
    fetched_first,
    kv_widths,
    stored,
    turned,
    with_weights,
)
from dse.evaluators.layouts.residency import width
from dse.evaluators.passes.call import ONCE, Call, Kernel
from dse.space.elementwise import ceil_div, maximum, minimum, where
from dse.space.mapping import BYTES
from dse.space.model import Model


def fresh(part: Part, of: Attention, on: On, ring: dict[str, Any]) -> list[Call]:
    """Attention of a prompt to itself, head by head on the columns that hold it, those of a column in turn.

    Args:
        part, of, on: what, and where.
        ring: the algorithm by which blocks of keys and values go round, an option of their products.
    """
    found = _shared(part, of, on) if _one_for_all(on.model) else []
    head, pairs = attention_group(_wide(of.heads, of.qk_dim), on.mesh.cols), 2.0 * of.heads.units * of.pairs
    window = on.model.window or on.model.chunk
    count, rows, queries, keys = stretches(of.tokens, of.positions, window, on.mesh.rows, alone=bool(on.model.chunk))
    keys = keys + entries(on.model, of.tokens)
    on_head, side = Mesh(rows, head.cols), head.copies * count
    before = Shape(maximum(keys - queries, ONCE), sum(kv_widths(on.model, on.mapping.kv_projection)), 1)
    way: tuple[Any, ...] = (before, Mesh(on.mesh.cols, rows), {}, where(count > 1, ONCE, 0.0), count)
    scores, values = Shape(queries, head.width, keys), Shape(queries, keys, _beside(head, of, on.mesh.cols))
    first = Kernel(part.name, "scores", "gemm", "meshgemm_t", scores, on_head, ring, head.turns, side)
    last = Kernel(part.name, "values", "gemm", "meshgemm_v", values, on_head, ring, head.turns, side)
    softmax = Shape(queries * head.turns, keys, 1)
    masked = 2.0 * of.heads.units * maximum(of.tokens * keys - of.pairs, 0.0)
    return [
        *found,
        *_past(part, of, on),
        *([call(Kernel(part.name, "kv_window", "move", "transfer", *way))] if window else ()),
        call(first, (), pairs * of.qk_dim, masked=masked * of.qk_dim),
        *([element(part.name, "scores_tanh", "cap", softmax, on_head.turned, same=False, copies=side)] if of.capped else ()),
        call(Kernel(part.name, "softmax", "vector", "softmax", softmax, on_head.turned, on.line, ONCE, side)),
        call(last, (of.name,), pairs * of.v_dim, masked=masked * of.v_dim),
    ]


def _past(part: Part, of: Attention, on: On) -> list[Call]:
    """What is cached before a prompt becomes what cores multiply, where it is none: keys and values, or the latent."""
    wide = sum(kv_widths(on.model, "full")) if _one_for_all(on.model) else sum(_kv_sides(of, on))
    shape = Shape(of.positions, wide, 1)
    there = where(of.positions > 0, ONCE, 0.0)
    return expanded(part.name, "kv_past", on.precision.kv, shape, on.mesh.turned, times=there, pieces=False)


def _kv_sides(of: Attention, on: On) -> tuple[Any, Any]:
    """Values of K, and of V, of a position that attention reads, as they are cached."""
    heads = of.heads.units if on.mapping.kv_heads == "full" else of.kv_heads.units
    return heads * of.qk_dim, heads * of.v_dim


def _one_for_all(model: Model) -> bool:
    """Whether what is cached of a position is one row, for all heads."""
    return model.latent is not None or model.compressed is not None


def _shared(part: Part, of: Attention, on: On) -> list[Call]:
    """What all heads have of a position goes from its columns to all of its row: a latent, its rotated part, or a row."""
    apart = on.model.latent is not None and of.kv_heads.units == of.heads.units
    values = on.model.latent.rope_dim if on.model.latent is not None and apart else of.kv_dim
    whole, count = Mesh(on.mesh.cols, on.mesh.rows), of.tokens + entries(on.model, of.tokens)
    return [call(Kernel(part.name, "kv_all", "move", "dispatch", Shape(values, count, 1), whole, {}))] if values else []


def stretches(tokens: Any, past: Any, window: int, rows: Any, *, alone: bool = False) -> tuple[Any, Any, Any, Any]:
    """Stretches of a prompt, as long as its window, on the rows that hold them; each gets what it sees of those before,
    which is nothing where they are chunks that attend to themselves `alone`.

    Before all of them `past` positions are cached, evenly over the rows.

    Returns:
        How many there are, and rows, queries and keys of each.
    """
    if not window:
        return ONCE, rows, tokens, tokens + past
    count = maximum(minimum(ceil_div(tokens, window), rows // gemm("meshgemm_t").LEAST), 1)
    queries = ceil_div(tokens, count)
    return count, rows // count, queries, minimum(tokens + past, queries + (0 if alone else window))


def cached(part: Part, of: Attention, on: On) -> list[Call]:
    """Attention of vectors to the cache, which waits for the line of cores that has most of it."""
    if _one_for_all(on.model):
        return _latent(part, of, on)
    head, m, pairs = attention_group(_wide(of.heads, of.qk_dim), on.mesh.cols), of.tokens, 2.0 * of.heads.units * of.pairs
    positions = _positions(of, on, on.mesh.rows)
    new = stored(on.precision.kv, m, sum(kv_widths(on.model, on.mapping.kv_heads)), on.mesh.cols)
    softmax = Shape(m * head.turns, positions, 1)
    on_head, word = Mesh(head.cols, on.mesh.rows), on.plan.gemv
    queries, values = Shape(m * head.turns, head.width, positions), Shape(m, positions, of.heads.units * of.v_dim)
    shifted = [] if on.model.kv_reused else [call(Kernel(part.name, "kv_cache", "kv", on.mapping.kv, new, on.mesh, {}))]
    k, v = (Shape(m * positions, wide, 1) for wide in _kv_sides(of, on))
    said, over = on.precision.kv, on.mesh.turned
    return [
        *shifted,
        *expanded(part.name, "scores", said, k, over),
        call(Kernel(part.name, "scores", "gemv", word, queries, on_head, on.tree, ONCE, head.copies), (), pairs * of.qk_dim),
        *([element(part.name, "scores_tanh", "cap", softmax, on.mesh)] if of.capped else ()),
        call(Kernel(part.name, "softmax", "vector", "softmax", softmax, on.mesh, on.line)),
        *expanded(part.name, "values", said, v, over),
        call(Kernel(part.name, "values", "gemv", word, values, on.mesh, on.tree), (of.name,), pairs * of.v_dim),
    ]


def _latent(part: Part, of: Attention, on: On) -> list[Call]:
    """Absorbed queries of all heads meet the latent, positions of which lie over the columns.

    Every row has all scores of its positions, and takes the softmax of its share of the heads; the others' come back to it.
    """
    m, heads, pairs = of.tokens, of.heads.units, 2.0 * of.heads.units * of.pairs
    positions, word, rows = _positions(of, on, on.mesh.cols), on.plan.gemv, of.tokens * of.heads.units
    queries, values = Shape(rows, of.qk_dim, positions), Shape(rows, positions, of.v_dim)
    softmax, back, line = Shape(rows, positions, 1), on.mesh.turned, {**on.line, "replicated": False}
    return [
        turned(part.name, "kv_turn", of.kv_dim, m, on),
        call(Kernel(part.name, "kv_cache", "kv", on.mapping.kv, stored(on.precision.kv, m, of.kv_dim, on.mesh.rows), back, {})),
        *_entry(part, "kv", of.kv_dim, m, on.precision.kv, on),
        call(Kernel(part.name, "q_all", "move", "dispatch", Shape(m * heads, of.qk_dim, 1), back, {})),
        *expanded(part.name, "scores", on.precision.kv, Shape(m * positions, of.kv_dim, 1), on.mesh),
        call(Kernel(part.name, "scores", "gemv", word, queries, on.mesh, on.tree), (), pairs * of.qk_dim),
        *([element(part.name, "scores_tanh", "cap", softmax, back, same=False)] if of.capped else ()),
        call(Kernel(part.name, "softmax", "vector", "softmax", softmax, back, line)),
        call(Kernel(part.name, "shares_all", "move", "dispatch", softmax, on.mesh, {})),
        *expanded(part.name, "values", on.precision.kv, Shape(m * positions, of.v_dim, 1), on.mesh),
        call(Kernel(part.name, "values", "gemv", word, values, back, on.tree), (of.name,), pairs * of.v_dim),
    ]


def _entry(part: Part, name: str, values: Any, rows: Any, word: str, on: On) -> list[Call]:
    """A compressed entry of each of some vectors' positions is kept, once in as many tokens as it stands for."""
    said = on.model.compressed
    if said is None or not said.ratio:
        return []
    shape, often = Shape(rows, values, 1), 1.0 / said.ratio
    return [
        call(Kernel(part.name, f"{name}_entry_turn", "move", "turn", shape, on.mesh, {}, often)),
        call(
            Kernel(
                part.name,
                f"{name}_entry",
                "kv",
                on.mapping.kv,
                stored(word, rows, values, on.mesh.rows),
                on.mesh.turned,
                {},
                often,
            )
        ),
    ]


def apart(part: Part, of: MatMul, on: On, ring: dict[str, Any]) -> list[Call]:
    """Products of the heads with a matrix of each, on the columns that hold it.

    Of vectors, what is absorbed lies over the columns before and over the rows behind, for all heads at once where they come
    back. Of a prompt, weights lie as keys do, which takes no more steps than there are rows.
    """
    one, flop, word = width(of.n) // of.apart, 2.0 * of.m * width(of.k) * width(of.n), weights_of(part, of, on.precision)
    weights = width(of.k) * width(of.n) * BYTES[word]
    if on.vectors and "attention" in of.needs:
        shape = Shape(of.m, width(of.k), width(of.n))
        kernel = Kernel(part.name, of.name, "gemv", on.plan.gemv, shape, on.mesh, on.tree)
        return with_weights(word, (width(of.n), width(of.k)), call(kernel, (of.name,), flop, weights))
    head = attention_group(Dim(of.apart, width(of.k)), on.mesh.cols)
    over = Mesh(head.cols, on.mesh.rows)
    if on.vectors:
        shape = Shape(of.m * head.turns, head.width, one)
        kernel = Kernel(part.name, of.name, "gemv", on.plan.gemv, shape, over, on.tree, ONCE, head.copies)
    else:
        shape = Shape(of.m, head.width, one)
        kernel = Kernel(part.name, of.name, "gemm", "meshgemm_t", shape, over.turned, ring, head.turns, head.copies)
    each, made = Shape(one, head.width, 1), call(kernel, (of.name,), flop, weights)
    how: dict[str, Any] = {"times": head.turns, "copies": head.copies, "pieces": on.vectors}
    return fetched_first(expanded(part.name, of.name, word, each, over, weights=weights, **how), made)


def scored(part: Part, of: Index, on: On, ring: dict[str, Any]) -> list[Call]:
    """Scores of an indexer, their sum over its heads, and the choice of the best positions."""
    flop, past, word = 2.0 * of.pairs * of.heads * of.dim, of.positions, index_of(on.precision)
    if on.vectors:
        m = of.tokens
        key = stored(word, m, of.dim, on.mesh.rows)
        own = on.model.compressed is None  # else keys are those of compressed entries
        generated = on.generated if on.model.compressed is None else on.generated / maximum(on.model.compressed.ratio, 1)
        positions = kv(on.mapping.kv).fullest(of.pairs / m, generated, on.mesh.cols) * on.mesh.cols
        queries, back, sums = Shape(m * of.heads, of.dim, positions), on.mesh.turned, Shape(m, positions, 1)
        return [
            turned(part.name, "index_turn", of.dim, m * (of.heads + own), on),
            *([call(Kernel(part.name, "index_cache", "kv", on.mapping.kv, key, back, {}))] if own else ()),
            *_entry(part, "index", of.dim, m, word, on),
            *expanded(part.name, "index_scores", word, Shape(m * positions, of.dim, 1), on.mesh),
            call(Kernel(part.name, "index_scores", "gemv", on.plan.gemv, queries, on.mesh, on.tree), (), flop),
            element(part.name, "index_sums", "rectify", Shape(m * of.heads, positions, 1), back),
            call(Kernel(part.name, "choice", "vector", "choice", sums, back, on.line), (of.name,)),
            *([] if _one_for_all(on.model) else [turned(part.name, "picks_turn", positions, m, on)]),
        ]
    m, own = of.tokens, of.tokens if on.model.compressed is None else entries(on.model, of.tokens)
    keys = own + past
    head = attention_group(Dim(of.heads, of.dim), on.mesh.cols)
    on_head, whole = Mesh(on.mesh.rows, head.cols), Mesh(on.mesh.cols, on.mesh.rows)
    each, sums = Shape(m * head.turns, keys, 1), Shape(1, of.heads, m * keys)
    across = Mesh(head.copies, on.mesh.rows * head.cols)
    queries = Shape(m, of.dim, keys)
    kernel = Kernel(part.name, "index_scores", "gemm", "meshgemm_t", queries, on_head, ring, head.turns, head.copies)
    there = where(past > 0, ONCE, 0.0)
    return [
        *expanded(part.name, "index_past", word, Shape(past, of.dim, 1), on.mesh.turned, times=there, pieces=False),
        call(Kernel(part.name, "index_all", "move", "dispatch", Shape(of.dim, own, 1), whole, {})),
        call(kernel, (), flop, masked=2.0 * of.heads * of.dim * (m * keys - of.pairs)),
        element(part.name, "index_rectified", "rectify", each, on_head.turned, same=False, copies=head.copies),
        call(Kernel(part.name, "index_sums", "gemv", on.plan.gemv, sums, across, on.tree)),
        call(Kernel(part.name, "choice", "vector", "choice", Shape(m, keys, 1), on_head.turned, on.line), (of.name,)),
    ]


def _positions(of: Attention, on: On, lines: Any) -> Any:
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
    return kv(on.mapping.kv).fullest(context, generated, lines) * lines


def _wide(heads: Dim, wide: int) -> Dim:
    return Dim(heads.units, wide, heads.split)


def _beside(head: Group, of: Attention, cols: Any) -> Any:
    """Width of a head's values on the columns of its keys."""
    return head.cols * ceil_div(of.heads.units * of.v_dim, cols) / head.turns
