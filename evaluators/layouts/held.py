"""What the cores of a region hold: weights of its layers, caches, and activations.

A table of embeddings is not on the chip: the host looks them up.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any

from dse.evaluators.graph.operators import Dim, MatMul
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.layouts.region_attention import stretches
from dse.evaluators.layouts.region_calls import attention_group, columns, kv_widths
from dse.evaluators.layouts.region_states import conv_bytes, state_bytes, working_bytes
from dse.evaluators.layouts.regions import Region
from dse.evaluators.layouts.residency import width
from dse.space.elementwise import ceil_div, maximum, minimum, where
from dse.space.layers import at_reach, layers
from dse.space.mapping import Mapping
from dse.space.model import Model
from dse.space.parameters import growths

VALUE = 2.0
"""Bytes of a weight, an activation or a cached value: 16 bits."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one core; leaves broadcast over designs.

    Attributes:
        weights: tiles of its layers.
        kv: of the tokens that are cached.
        activations: the residual stream, scores, and the widest intermediate.
        buffers: second versions of what travels, and sums in single precision.
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
        """All that must fit a core's memory."""
        return self.weights + self.kv + self.activations + self.buffers + self.states


def held(
    model: Model, place: Region, mapping: Mapping, *, tokens: Any, cached: Any, scores: bool, across: Any = None,
    sequences: Any = 1.0,
) -> tuple[Held, Held]:  # fmt: skip
    """What a core holds in a full region, and in the last one, which has what is left of the layers, and the head.

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
    """
    mesh = place.mesh
    layer, last, widest = _stored(model, mapping.kv_heads, not scores)

    def tile(k: Any, n: Any) -> Any:
        return ceil_div(k, mesh.rows) * ceil_div(n, mesh.cols)

    tiles = [(tile(*sides), count) for sides, count in layer.items()]
    weights = sum(of * count for of, count in tiles)
    rest = maximum(place.all_layers - (place.count - 1) * place.layers, 0.0)
    rows = ceil_div(tokens, mesh.rows) if scores else tokens
    stream, wide = ceil_div(model.hidden, mesh.cols), ceil_div(widest, mesh.cols)
    matrix: Any = 0.0
    passing: Any = 0.0
    for kind in layers(model).mixings:
        seen = 0.0 if scores or across is None else at_reach(across, kind.reach) / sequences
        matrix = maximum(matrix, _scores(kind.of, tokens, mesh) if scores else tokens * _scores_of_one(kind.of, seen, mesh))
        passing = maximum(passing, working_bytes(kind.of, tokens, mesh) if scores else 0.0)
    second = reduce(maximum, (of for of, _ in tiles)) if scores else 0.0
    activations = VALUE * (rows * (2 * stream + wide) + matrix)
    buffers = VALUE * second + 4.0 * rows * maximum(wide, stream) + passing

    wide_tile = VALUE * reduce(maximum, (of for of, _ in tiles))

    each, kv = _cached(model, mapping, mesh, cached, cached if scores or across is None else across, vectors=not scores)
    mixings = layers(model).mixings
    states = sum((state_bytes(of.of, mesh) + conv_bytes(of.of, mesh, VALUE)) * of.times for of in mixings) / model.layers

    def core(layers: Any, weights: Any, largest: Any) -> Held:
        one = layers * states
        return Held(
            VALUE * weights, layers * kv, activations, buffers, each * layers, largest, states=sequences * one, per_sequence=one
        )

    head_tile = tile(*last)
    return (
        core(place.layers, place.layers * weights, wide_tile),
        core(rest, rest * weights + head_tile, maximum(wide_tile, VALUE * head_tile)),
    )


def _scores(of: Model, tokens: Any, mesh: Mesh) -> Any:
    """Values of scores of a prompt that a core has at a time."""
    if of.recurrence is not None:
        return 0.0
    heads = [Dim(of.heads, _qk_dim(of)), *(() if of.indexer is None else (Dim(of.indexer.heads, of.indexer.dim),))]
    _, own, queries, keys = stretches(tokens, 0.0, of.window or of.chunk, mesh.rows, alone=bool(of.chunk))
    groups = [attention_group(one, mesh.cols) for one in heads]
    return reduce(maximum, (head.turns * (ceil_div(queries, own) * ceil_div(keys, head.cols)) for head in groups))


def _scores_of_one(of: Model, seen: Any, mesh: Mesh) -> Any:
    """Values of 16 bits that a core has of the scores of a vector; where all heads have one key, as many sums of each of them,
    twice as long, and their queries.

    Args:
        of: a model of one kind of layers.
        seen: positions of a request that the fullest column has.
        mesh: of a region.
    """
    if of.recurrence is not None:
        return 0.0
    most, index = attention_group(Dim(of.heads, _qk_dim(of)), mesh.cols).turns, of.indexer
    if of.latent is not None:
        positions = seen if index is None else minimum(seen, ceil_div(index.top, mesh.cols))
        most = of.heads * (2 * positions + ceil_div(of.latent.kv_rank + of.latent.rope_dim, mesh.rows))
    if index is not None and not index.reused:
        most = maximum(most, index.heads * (2 * seen + ceil_div(index.dim, mesh.rows)))
    return most


def _qk_dim(of: Model) -> int:
    return of.head_dim if of.latent is None else of.latent.nope_dim + of.latent.rope_dim


def _cached(model: Model, mapping: Mapping, mesh: Mesh, rows: Any, cols: Any, *, vectors: bool) -> tuple[Any, Any]:
    """Bytes of a cached token, and of all of them, that a core has in a layer on average. [B]

    Args:
        model, mapping, mesh: what lies where.
        rows, cols: tokens that the fullest row of cores has, and the fullest column, by reach of the model.
        vectors: whether latents and keys of indexers lie over the rows, and their positions over the columns.
    """
    each: Any = 0.0
    kv: Any = 0.0
    for of in growths(model):
        layer, share = of.layer, of.layer.times / model.layers
        turned = (of.scores, layer.indexed), *(((of.kv, layer.reach),) if layer.of.latent is not None else ())
        for values, reach in turned if vectors else ():
            nbytes = VALUE * ceil_div(values, mesh.rows) * share
            # as many for each row as there are for each column
            each, kv = each + nbytes * mesh.rows / mesh.cols, kv + nbytes * at_reach(cols, reach)
        lying = [] if vectors and layer.of.latent is not None else [(kv_widths(layer.of, mapping.kv_heads), layer.reach)]
        for widths, reach in lying if vectors else [*lying, ((of.scores, 0), layer.indexed)]:
            nbytes = VALUE * sum(ceil_div(values, mesh.cols) for values in widths) * share
            each, kv = each + nbytes, kv + nbytes * at_reach(rows, reach)
    return each, kv


def streaming(of: Held, sram: Any, cap: Any) -> Held:
    """What a core holds where main memory has all weights: as many as there is room for.

    All of them, if they fit beside caches, activations and buffers. Else the tile of the product that runs has to be there, a
    share `cap` of what is left is for tiles that are read ahead, and the rest for weights that stay.
    """
    room = sram - of.kv - of.activations - of.buffers - of.states
    whole, left = of.weights <= room, maximum(room - of.largest, 0.0)
    ahead = where(whole, 0.0, cap * left)
    stays = where(whole, of.weights, minimum(left - ahead, of.weights))
    away = 1 - stays / maximum(of.weights, 1e-9)
    return replace(of, weights=where(whole, of.weights, stays + of.largest + ahead), away=away, ahead=ahead)


@lru_cache(maxsize=256)
def _stored(model: Model, heads: str, vectors: bool) -> tuple[dict[tuple[int, int], float], tuple[int, int], float]:
    """Weight matrices by their sides over rows and columns, and how many of each a layer has on average.

    Also the head's sides, and the most values of a token that a product in a layer leaves.
    """
    *parts, head = transformer(model, Step("decode", 1.0, 1.0, 1.0, 1.0))

    def sides(of: MatMul, kind: Model = model) -> tuple[int, int]:
        k, n = width(of.k), width(columns(of, kind, heads))
        if of.name == "q_absorb":  # lies with the latent over the rows
            return n // of.apart, k * of.apart
        return (n, k) if vectors and of.k.split else (k, n)

    layer: dict[tuple[int, int], float] = {}
    products = [(part, of) for part in parts for of in part.operators if isinstance(of, MatMul)]
    for part, of in products:
        lying = sides(of, part.of or model)
        layer[lying] = layer.get(lying, 0.0) + of.stored * part.times / model.layers
    (last,) = (sides(of) for of in head.operators if isinstance(of, MatMul))
    return layer, last, max(of.m * width(of.n) for _, of in products)
