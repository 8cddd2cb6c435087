"""Memory of the cores of a region: weights of its layers, KV caches, and activations.

A table of embeddings is not on the chip: the host looks them up.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from dse.evaluators.graph.operators import MatMulOp, MatrixDim, Segment, dim_width
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts.cache_memory import KeptValues, layer_caches, sum_layer_caches
from dse.evaluators.layouts.model_weights import ONE_TOKEN_STEP, unquantized_bytes
from dse.evaluators.layouts.region_attention import window_segments
from dse.evaluators.layouts.region_calls import compressed_entries, dequantize_piece, head_columns, kv_widths, product_columns
from dse.evaluators.layouts.region_states import conv_bytes, state_bytes, working_bytes
from dse.evaluators.layouts.regions import Region
from dse.evaluators.layouts.tensor_formats import index_format, piece_bytes, value_bytes, weight_format
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.layers import layers, value_at_reach
from dse.space.mapping import FormatPlan, Mapping
from dse.space.model import Model
from dse.space.number_formats import FORMATS
from dse.space.parameter_counts import SequenceMemory, sequence_memory

VALUE = 2.0
"""Bytes of an activation, and of all that is multiplied: 16 bits."""


def region_cache_bytes(model: Model, mapping: Mapping, cached: Any, sequences: Any) -> tuple[Any, Any]:
    """Bytes of KV caches and of recurrent states of all layers, each value once. [B], [B]

    Args:
        model, mapping: what is cached, with K and V of the heads that the mapping says.
        cached: positions by reach of the model.
        sequences: that have states.
    """
    sizes = value_bytes(mapping.precision)
    caches = layer_caches(
        model,
        sizes,
        cached,
        sequences,
        lambda memory: KeptValues(sum(kv_widths(memory.layer.of, mapping.kv_heads)), memory.state, memory.conv),
    )
    return sum_layer_caches(caches)


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
    layer, last, widest, *spread = _stored(model, mapping.kv_heads, not scores, mapping.precision)
    tiles = [(_tile(matrix, mesh), count) for matrix, count in layer.items()]
    beside, beside_head = (nbytes / mesh.cols for nbytes in spread)
    weights = sum(matrix.nbytes * count for matrix, count in tiles) + beside
    rest = place.last_layers
    rows = ceil_div(tokens, mesh.rows) if scores else tokens
    stream, wide = ceil_div(model.hidden, mesh.cols), ceil_div(widest, mesh.cols)
    matrix: Any = 0.0
    passing: Any = 0.0
    for kind in layers(model).mixings:
        seen = 0.0 if scores or across is None else value_at_reach(across, kind.reach) / sequences
        matrix = maximum(matrix, _scores(kind.of, tokens, mesh) if scores else tokens * _scores_of_one(kind.of, seen, mesh))
        passing = maximum(passing, working_bytes(kind.of, tokens, mesh) if scores else 0.0)
    second = reduce(maximum, (matrix.values for matrix, _ in tiles)) if scores else 0.0
    head_tile = _tile(last, mesh)
    packed = [matrix for matrix in (*(matrix for matrix, _ in tiles), head_tile) if matrix.packed]
    first = reduce(
        maximum, (matrix.values if scores else minimum(matrix.values, dequantize_piece(matrix.each)) for matrix in packed), 0.0
    )
    first = maximum(first, _expanded(model, mapping, mesh, past, vectors=not scores))
    activations = VALUE * (rows * (2 * stream + wide) + matrix)
    buffers = VALUE * (second + first) + 4.0 * rows * maximum(wide, stream) + passing

    wide_tile = reduce(maximum, (matrix.nbytes for matrix, _ in tiles))

    lines = cached, cached if scores or across is None else across
    each, kv = _cached(model, mapping, mesh, *lines, vectors=not scores)
    mixings = layers(model).mixings
    states = (
        sum((state_bytes(mixing.of, mesh) + conv_bytes(mixing.of, mesh, VALUE)) * mixing.times for mixing in mixings)
        / model.layers
    )

    def core(layers: Any, weights: Any, largest: Any) -> CoreMemory:
        per_sequence = layers * states
        return CoreMemory(
            weights, layers * kv, activations, buffers, each * layers, largest, states=sequences * per_sequence,
            per_sequence=per_sequence,
        )  # fmt: skip

    return (
        core(place.layers, place.layers * weights, wide_tile),
        core(rest, rest * weights + head_tile.nbytes + beside_head, maximum(wide_tile, head_tile.nbytes)),
    )


class _Piece(NamedTuple):
    """A core's tile of a matrix of weights: its values, their bytes, whether it becomes a wide one before it is used, and its
    values along the inner dimension.
    """

    values: Any
    nbytes: Any
    packed: bool
    each: Any


def _tile(matrix: "_Matrix", mesh: CoreMesh) -> _Piece:
    k, n = ceil_div(matrix.over_rows, mesh.rows), ceil_div(matrix.over_cols, mesh.cols)
    nbytes = piece_bytes(matrix.word, k, n) if matrix.along_rows else piece_bytes(matrix.word, n, k)
    return _Piece(k * n, nbytes, FORMATS[matrix.word].expand > 0, k if matrix.along_rows else n)


def _scores(model: Model, tokens: Any, mesh: CoreMesh) -> Any:
    """Values of scores of a prompt that a core has at a time."""
    if model.recurrence is not None:
        return 0.0
    heads = [
        MatrixDim(model.heads, _qk_dim(model)),
        *(() if model.indexer is None else (MatrixDim(model.indexer.heads, model.indexer.dim),)),
    ]
    _, own, queries, keys = window_segments(tokens, 0.0, model.window or model.chunk, mesh.rows, alone=bool(model.chunk))
    keys = keys + compressed_entries(model, tokens)
    groups = [head_columns(head, mesh.cols) for head in heads]
    return reduce(maximum, (head.turns * (ceil_div(queries, own) * ceil_div(keys, head.cols)) for head in groups))


def _scores_of_one(model: Model, seen: Any, mesh: CoreMesh) -> Any:
    """Values of 16 bits that a core has of the scores of a vector; where all heads have one key, as many sums of each of them,
    twice as long, and their queries.

    Args:
        model: a model of one kind of layers.
        seen: positions of a request that the fullest column has.
        mesh: of a region.
    """
    if model.recurrence is not None:
        return 0.0
    most, index = head_columns(MatrixDim(model.heads, _qk_dim(model)), mesh.cols).turns, model.indexer
    if model.latent is not None or model.compressed is not None:
        positions = seen if index is None else minimum(seen, ceil_div(index.top + model.window, mesh.cols))
        most = model.heads * (2 * positions + ceil_div(sum(kv_widths(model, "grouped")), mesh.rows))
    if index is not None and not index.reused:
        most = maximum(most, index.heads * (2 * seen + ceil_div(index.dim, mesh.rows)))
    return most


def _qk_dim(model: Model) -> int:
    return model.head_dim if model.latent is None else model.latent.nope_dim + model.latent.rope_dim


def _cached(model: Model, mapping: Mapping, mesh: CoreMesh, rows: Any, cols: Any, *, vectors: bool) -> tuple[Any, Any]:
    """Bytes of a cached token, and of all of them, that a core has in a layer on average. [B]

    Args:
        model, mapping, mesh: what lies where.
        rows, cols: tokens that the fullest row of cores has, and the fullest column, by reach of the model.
        vectors: whether latents and keys of indexers lie over the rows, and their positions over the columns.
    """
    each: Any = 0.0
    kv: Any = 0.0
    for memory in sequence_memory(model):
        share = memory.layer.times / model.layers
        for widths, reach, word, turned in _lying(memory, mapping, vectors=vectors):
            lines = mesh.rows if turned else mesh.cols
            nbytes = sum(piece_bytes(word, ceil_div(values, lines)) for values in widths) * share
            # of what is turned as many for each row as there are for each column
            each = each + (nbytes * mesh.rows / mesh.cols if turned else nbytes)
            kv = kv + nbytes * value_at_reach(cols if turned else rows, reach)
    return each, kv


def _lying(memory: SequenceMemory, mapping: Mapping, *, vectors: bool) -> list[tuple[tuple[int, ...], int, str, bool]]:
    """What is cached of a kind of layers: values of a position, how many are kept, the format, and whether values lie over the
    rows of a region and positions over its columns.
    """
    layer, precision = memory.layer, mapping.precision
    kv, index = kv_widths(layer.of, mapping.kv_heads), ((memory.scores,), layer.indexed, index_format(precision), vectors)
    latent = vectors and (layer.of.latent is not None or layer.of.compressed is not None)
    return [((memory.kv,) if latent else kv, layer.reach, str(precision.kv), latent), *((index,) if memory.scores else ())]


def _expanded(model: Model, mapping: Mapping, mesh: CoreMesh, past: Any, *, vectors: bool) -> Any:
    """Values of the cache of a layer that a core has as they are multiplied, where their format is another: a piece of what
    vectors meet, or all keys and values that there are before a prompt.

    Args:
        model, mapping, mesh: what lies where.
        past: cached tokens before a prompt, by reach of the model.
        vectors: whether these are of decode.
    """
    most: Any = 0.0
    for memory in sequence_memory(model):
        for widths, reach, word, turned in _lying(memory, mapping, vectors=vectors):
            if FORMATS[word].expand:
                pieces = [ceil_div(values, mesh.rows if turned else mesh.cols) for values in widths]
                value_count = sum(pieces) * ceil_div(value_at_reach(past, reach), mesh.rows)
                most = maximum(
                    most, reduce(maximum, (dequantize_piece(maximum(piece, 1)) for piece in pieces)) if vectors else value_count
                )
    return most


def with_streamed_weights(memory: CoreMemory, sram: Any, cap: Any) -> CoreMemory:
    """Memory of a core whose weights lie in main memory: as many stay resident as fit. [B]

    All of them, if they fit beside caches, activations and buffers. Else the tile of the product that runs has to be there, a
    share `cap` of what is left is for tiles that are read ahead, and the rest for weights that stay.
    """
    room = sram - memory.kv - memory.activations - memory.buffers - memory.states
    whole, left = memory.weights <= room, maximum(room - memory.largest, 0.0)
    ahead = where(whole, 0.0, cap * left)
    stays = where(whole, memory.weights, minimum(left - ahead, memory.weights))
    away = 1 - stays / maximum(memory.weights, 1e-9)
    return replace(memory, weights=where(whole, memory.weights, stays + memory.largest + ahead), away=away, ahead=ahead)


class _Matrix(NamedTuple):
    """A matrix of weights: its sides over rows and columns of a region, its format, and whether blocks of it lie along rows."""

    over_rows: int
    over_cols: int
    word: str
    along_rows: bool


@lru_cache(maxsize=256)
def _stored(
    model: Model, heads: str, vectors: bool, precision: FormatPlan
) -> tuple[dict[_Matrix, float], _Matrix, float, float, float]:
    """Weight matrices, and how many of each a layer has on average.

    Also the head's, the most values of a token that a product in a layer leaves, and bytes of norms and biases of a layer and
    of the head, which lie over the columns of a region like the vectors that they are of, on each row.
    """
    *parts, head = transformer_segments(model, ONE_TOKEN_STEP)

    def weight_matrix(part: Segment, operator: MatMulOp) -> _Matrix:
        k, n, word = (
            dim_width(operator.k),
            dim_width(product_columns(operator, part.of or model, heads)),
            weight_format(part, operator, precision),
        )
        if operator.name == "q_absorb":  # lies with the latent over the rows
            return _Matrix(n // operator.apart, k * operator.apart, word, False)
        return _Matrix(n, k, word, False) if vectors and operator.k.split else _Matrix(k, n, word, True)

    layer: dict[_Matrix, float] = {}
    products = [(part, operator) for part in parts for operator in part.operators if isinstance(operator, MatMulOp)]
    for part, operator in products:
        matrix = weight_matrix(part, operator)
        layer[matrix] = layer.get(matrix, 0.0) + operator.stored * part.times / model.layers
    (last,) = (weight_matrix(head, operator) for operator in head.operators if isinstance(operator, MatMulOp))
    beside = sum(unquantized_bytes(part, model, precision) * part.times for part in parts) / model.layers
    widest = max(product.m * dim_width(product.n) for _, product in products)
    return layer, last, widest, beside, unquantized_bytes(head, model, precision)
