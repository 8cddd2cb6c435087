"""Memory of the cores of a region: weights of its layers, KV caches, and activations.

A table of embeddings is not on the chip: the host looks them up.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from dse.evaluators.graph.operators import MatMulOp, MatrixDim, Segment
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts.region_attention import window_segments
from dse.evaluators.layouts.region_calls import compressed_entries, dequantize_piece, head_columns, kv_widths, product_columns
from dse.evaluators.layouts.region_states import conv_bytes, state_bytes, working_bytes
from dse.evaluators.layouts.regions import Region
from dse.evaluators.layouts.residency import dim_width
from dse.evaluators.layouts.tensor_formats import index_format, mixed_format_extra_bytes, piece_bytes, weight_format
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.layers import layers, value_at_reach
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, Mapping
from dse.space.model import Model
from dse.space.number_formats import FORMATS
from dse.space.parameter_counts import SequenceMemory, parameter_count, sequence_memory

VALUE = 2.0
"""Bytes of an activation, and of all that is multiplied: 16 bits."""


@dataclass(frozen=True, slots=True)
class CoreMemory:
    """Bytes in the local memory of one core, by use; leaves broadcast over designs. [B]

    Attributes:
        weights: tiles of its layers.
        kv: of the tokens that are cached.
        activations: the residual stream, scores, and the widest intermediate.
        buffers: second versions of what travels, what is expanded, and sums in single precision.
        per_token: of K and V for each token that a core holds.
        largest: of the tiles that one product multiplies with.
        away: share of all weights that comes from main memory each time. [1]
        ahead: of what is there as weights, room for what is read ahead.
        states: recurrent ones of all sequences, with what convolutions keep.
        per_sequence: of these, those of one.
    """

    weights: Any
    kv: Any
    activations: Any
    buffers: Any
    per_token: Any = field(default=0.0)
    largest: Any = field(default=0.0)
    away: Any = field(default=0.0)
    ahead: Any = field(default=0.0)
    states: Any = field(default=0.0)
    per_sequence: Any = field(default=0.0)

    @property
    def total(self) -> Any:
        """Bytes that must fit a core's local memory. [B]"""
        return self.weights + self.kv + self.activations + self.buffers + self.states


def region_core_memory(
    model: Model, place: Region, mapping: Mapping, *, tokens: Any, cached: Any, scores: bool, across: Any = None,
    sequences: Any = 1.0, past: Any = 0.0,
) -> tuple[CoreMemory, CoreMemory]:  # fmt: skip
    """Memory of a core in a full region, and in the last one, which has the other layers and the head.

    The embedding is a look-up that the host makes; its table is not on the chip.

    Args:
        model: of which a region has its share of layers.
        place: the regions.
        mapping: for the width of K and V.
        tokens: whose activations are there at a time.
        cached: tokens of the KV cache that the fullest row of cores has, by reach of the model.
        scores: whether whole score matrices are there (prefill), or one row of them.
        across: tokens of the cache that the fullest column has, where positions lie over the columns; None for `cached`.
        sequences: that have states.
        past: tokens cached before a prompt, by reach of the model.
    """
    mesh = place.mesh
    layer, last, widest = _stored(model, mapping.kv_heads, not scores, mapping.precision)
    tiles = [(_tile(one, mesh), count) for one, count in layer.items()]
    weights = sum(of.nbytes * count for of, count in tiles)
    rest = maximum(place.all_layers - (place.count - 1) * place.layers, 0.0)
    rows = ceil_div(tokens, mesh.rows) if scores else tokens
    stream, wide = ceil_div(model.hidden, mesh.cols), ceil_div(widest, mesh.cols)
    matrix: Any = 0.0
    passing: Any = 0.0
    for kind in layers(model).mixings:
        seen = 0.0 if scores or across is None else value_at_reach(across, kind.reach) / sequences
        matrix = maximum(matrix, _scores(kind.of, tokens, mesh) if scores else tokens * _scores_of_one(kind.of, seen, mesh))
        passing = maximum(passing, working_bytes(kind.of, tokens, mesh) if scores else 0.0)
    second = reduce(maximum, (of.values for of, _ in tiles)) if scores else 0.0
    head_tile = _tile(last, mesh)
    packed = [of for of in (*(of for of, _ in tiles), head_tile) if of.packed]
    first = reduce(maximum, (of.values if scores else minimum(of.values, dequantize_piece(of.each)) for of in packed), 0.0)
    first = maximum(first, _expanded(model, mapping, mesh, past, vectors=not scores))
    activations = VALUE * (rows * (2 * stream + wide) + matrix)
    buffers = VALUE * (second + first) + 4.0 * rows * maximum(wide, stream) + passing

    wide_tile = reduce(maximum, (of.nbytes for of, _ in tiles))

    lines = cached, cached if scores or across is None else across
    each, kv = _cached(model, mapping, mesh, *lines, vectors=not scores)
    mixings = layers(model).mixings
    states = sum((state_bytes(of.of, mesh) + conv_bytes(of.of, mesh, VALUE)) * of.times for of in mixings) / model.layers

    def core(layers: Any, weights: Any, largest: Any) -> CoreMemory:
        one = layers * states
        return CoreMemory(
            weights, layers * kv, activations, buffers, each * layers, largest, states=sequences * one,
            per_sequence=one,
        )  # fmt: skip

    return (
        core(place.layers, place.layers * weights, wide_tile),
        core(rest, rest * weights + head_tile.nbytes, maximum(wide_tile, head_tile.nbytes)),
    )


class _Piece(NamedTuple):
    """A core's tile of a matrix of weights: its values, their bytes, whether it becomes a wide one before it is used, and its
    values along the inner dimension.
    """

    values: Any
    nbytes: Any
    packed: bool
    each: Any


def _tile(of: "_Matrix", mesh: CoreMesh) -> _Piece:
    k, n = ceil_div(of.over_rows, mesh.rows), ceil_div(of.over_cols, mesh.cols)
    nbytes = piece_bytes(of.word, k, n) if of.along_rows else piece_bytes(of.word, n, k)
    return _Piece(k * n, nbytes, FORMATS[of.word].expand > 0, k if of.along_rows else n)


def _scores(of: Model, tokens: Any, mesh: CoreMesh) -> Any:
    """Values of scores of a prompt that a core has at a time."""
    if of.recurrence is not None:
        return 0.0
    heads = [MatrixDim(of.heads, _qk_dim(of)), *(() if of.indexer is None else (MatrixDim(of.indexer.heads, of.indexer.dim),))]
    _, own, queries, keys = window_segments(tokens, 0.0, of.window or of.chunk, mesh.rows, alone=bool(of.chunk))
    keys = keys + compressed_entries(of, tokens)
    groups = [head_columns(one, mesh.cols) for one in heads]
    return reduce(maximum, (head.turns * (ceil_div(queries, own) * ceil_div(keys, head.cols)) for head in groups))


def _scores_of_one(of: Model, seen: Any, mesh: CoreMesh) -> Any:
    """Values of 16 bits that a core has of the scores of a vector; where all heads have one key, as many sums of each of them,
    twice as long, and their queries.

    Args:
        of: a model of one kind of layers.
        seen: positions of a request that the fullest column has.
        mesh: of a region.
    """
    if of.recurrence is not None:
        return 0.0
    most, index = head_columns(MatrixDim(of.heads, _qk_dim(of)), mesh.cols).turns, of.indexer
    if of.latent is not None or of.compressed is not None:
        positions = seen if index is None else minimum(seen, ceil_div(index.top + of.window, mesh.cols))
        most = of.heads * (2 * positions + ceil_div(sum(kv_widths(of, "grouped")), mesh.rows))
    if index is not None and not index.reused:
        most = maximum(most, index.heads * (2 * seen + ceil_div(index.dim, mesh.rows)))
    return most


def _qk_dim(of: Model) -> int:
    return of.head_dim if of.latent is None else of.latent.nope_dim + of.latent.rope_dim


def _cached(model: Model, mapping: Mapping, mesh: CoreMesh, rows: Any, cols: Any, *, vectors: bool) -> tuple[Any, Any]:
    """Bytes of a cached token, and of all of them, that a core has in a layer on average. [B]

    Args:
        model, mapping, mesh: what lies where.
        rows, cols: tokens that the fullest row of cores has, and the fullest column, by reach of the model.
        vectors: whether latents and keys of indexers lie over the rows, and their positions over the columns.
    """
    each: Any = 0.0
    kv: Any = 0.0
    for of in sequence_memory(model):
        share = of.layer.times / model.layers
        for widths, reach, word, turned in _lying(of, mapping, vectors=vectors):
            lines = mesh.rows if turned else mesh.cols
            nbytes = sum(piece_bytes(word, ceil_div(values, lines)) for values in widths) * share
            # of what is turned as many for each row as there are for each column
            each = each + (nbytes * mesh.rows / mesh.cols if turned else nbytes)
            kv = kv + nbytes * value_at_reach(cols if turned else rows, reach)
    return each, kv


def _lying(of: SequenceMemory, mapping: Mapping, *, vectors: bool) -> list[tuple[tuple[int, ...], int, str, bool]]:
    """What is cached of a kind of layers: values of a position, how many are kept, the format, and whether values lie over the
    rows of a region and positions over its columns.
    """
    layer, said = of.layer, mapping.precision
    kv, index = kv_widths(layer.of, mapping.kv_heads), ((of.scores,), layer.indexed, index_format(said), vectors)
    latent = vectors and (layer.of.latent is not None or layer.of.compressed is not None)
    return [((of.kv,) if latent else kv, layer.reach, str(said.kv), latent), *((index,) if of.scores else ())]


def _expanded(model: Model, mapping: Mapping, mesh: CoreMesh, past: Any, *, vectors: bool) -> Any:
    """Values of the cache of a layer that a core has as they are multiplied, where their format is another: a piece of what
    vectors meet, or all keys and values that there are before a prompt.

    Args:
        model, mapping, mesh: what lies where.
        past: cached tokens before a prompt, by reach of the model.
        vectors: whether these are of decode.
    """
    most: Any = 0.0
    for of in sequence_memory(model):
        for widths, reach, word, turned in _lying(of, mapping, vectors=vectors):
            if FORMATS[word].expand:
                here = [ceil_div(values, mesh.rows if turned else mesh.cols) for values in widths]
                found = sum(here) * ceil_div(value_at_reach(past, reach), mesh.rows)
                most = maximum(most, reduce(maximum, (dequantize_piece(maximum(one, 1)) for one in here)) if vectors else found)
    return most


def with_streamed_weights(of: CoreMemory, sram: Any, cap: Any) -> CoreMemory:
    """Memory of a core whose weights lie in main memory: as many stay resident as fit. [B]

    All of them, if they fit beside caches, activations and buffers. Else the tile of the product that runs has to be there, a
    share `cap` of what is left is for tiles that are read ahead, and the rest for weights that stay.
    """
    room = sram - of.kv - of.activations - of.buffers - of.states
    whole, left = of.weights <= room, maximum(room - of.largest, 0.0)
    ahead = where(whole, 0.0, cap * left)
    stays = where(whole, of.weights, minimum(left - ahead, of.weights))
    away = 1 - stays / maximum(of.weights, 1e-9)
    return replace(of, weights=where(whole, of.weights, stays + of.largest + ahead), away=away, ahead=ahead)


class _Matrix(NamedTuple):
    """A matrix of weights: its sides over rows and columns of a region, its format, and whether blocks of it lie along rows."""

    over_rows: int
    over_cols: int
    word: str
    along_rows: bool


@lru_cache(maxsize=256)
def _stored(model: Model, heads: str, vectors: bool, precision: FormatPlan) -> tuple[dict[_Matrix, float], _Matrix, float]:
    """Weight matrices, and how many of each a layer has on average.

    Also the head's, and the most values of a token that a product in a layer leaves.
    """
    *parts, head = transformer_segments(model, ONE_TOKEN_STEP)

    def lying(part: Segment, of: MatMulOp) -> _Matrix:
        k, n, word = (
            dim_width(of.k),
            dim_width(product_columns(of, part.of or model, heads)),
            weight_format(part, of, precision),
        )
        if of.name == "q_absorb":  # lies with the latent over the rows
            return _Matrix(n // of.apart, k * of.apart, word, False)
        return _Matrix(n, k, word, False) if vectors and of.k.split else _Matrix(k, n, word, True)

    layer: dict[_Matrix, float] = {}
    products = [(part, of) for part in parts for of in part.operators if isinstance(of, MatMulOp)]
    for part, of in products:
        one = lying(part, of)
        layer[one] = layer.get(one, 0.0) + of.stored * part.times / model.layers
    (last,) = (lying(head, of) for of in head.operators if isinstance(of, MatMulOp))
    return layer, last, max(of.m * dim_width(of.n) for _, of in products)


ONE_TOKEN_STEP = StepCounts("decode", 1.0, 1.0, 1.0, 1.0)
"""A token of a request."""


@lru_cache(maxsize=256)
def model_weight_bytes(model: Model, precision: FormatPlan) -> float:
    """Bytes of all weights of a model, in their number formats. [B]"""
    return float(
        parameter_count(model) * BYTES_BY_FORMAT[precision.weights]
        + mixed_format_extra_bytes(transformer_segments(model, ONE_TOKEN_STEP), precision)
    )
