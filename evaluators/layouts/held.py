"""What the cores of a region hold: weights of its layers, caches, and activations.

A table of embeddings is not on the chip: the host looks them up.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any

from dse.evaluators.graph.operators import Dim, MatMul
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.layouts.regions import Region, attention_group, columns, kv_dim, stretches
from dse.evaluators.layouts.residency import width
from dse.space.elementwise import ceil_div, maximum, minimum, where
from dse.space.layers import at_reach, layers
from dse.space.mapping import Mapping
from dse.space.model import Model

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
    """

    weights: Any
    kv: Any
    activations: Any
    buffers: Any
    per_token: Any = field(default=0.0)
    largest: Any = field(default=0.0)
    away: Any = field(default=0.0)
    ahead: Any = field(default=0.0)

    @property
    def total(self) -> Any:
        """All that must fit a core's memory."""
        return self.weights + self.kv + self.activations + self.buffers


def held(model: Model, place: Region, mapping: Mapping, *, tokens: Any, cached: Any, scores: bool) -> tuple[Held, Held]:
    """What a core holds in a full region, and in the last one, which has what is left of the layers, and the head.

    The embedding is a look-up that the host makes; its table is not on the chip.

    Args:
        model: of which a region has its share of layers.
        place: the regions.
        mapping: for the width of K and V.
        tokens: whose activations are there at a time.
        cached: tokens of the KV cache that the fullest row of cores has, by reach of the model.
        scores: whether whole score matrices are there (prefill), or one row of them.
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
    for kind in layers(model).mixings:
        head = attention_group(Dim(kind.of.heads, kind.of.head_dim), mesh.cols)
        window = kind.of.window or kind.of.chunk
        _, own, queries, keys = stretches(tokens, 0.0, window, mesh.rows, alone=bool(kind.of.chunk))
        matrix = maximum(matrix, head.turns * (ceil_div(queries, own) * ceil_div(keys, head.cols) if scores else tokens))
    second = reduce(maximum, (of for of, _ in tiles)) if scores else 0.0
    activations, buffers = VALUE * (rows * (2 * stream + wide) + matrix), VALUE * second + 4.0 * rows * maximum(wide, stream)

    wide_tile = VALUE * reduce(maximum, (of for of, _ in tiles))

    each: Any = 0.0
    kv: Any = 0.0
    for kind in layers(model).mixings:
        share = kind.times / sum(of.times for of in layers(model).mixings)
        values = VALUE * 2 * ceil_div(width(kv_dim(kind.of, mapping.kv_heads)), mesh.cols) * share
        each, kv = each + values, kv + values * at_reach(cached, kind.reach)

    def core(layers: Any, weights: Any, largest: Any) -> Held:
        return Held(VALUE * weights, layers * kv, activations, buffers, each * layers, largest)

    head_tile = tile(*last)
    return (
        core(place.layers, place.layers * weights, wide_tile),
        core(rest, rest * weights + head_tile, maximum(wide_tile, VALUE * head_tile)),
    )


def streaming(of: Held, sram: Any, cap: Any) -> Held:
    """What a core holds where main memory has all weights: as many as there is room for.

    All of them, if they fit beside caches, activations and buffers. Else the tile of the product that runs has to be there, a
    share `cap` of what is left is for tiles that are read ahead, and the rest for weights that stay.
    """
    room = sram - of.kv - of.activations - of.buffers
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

    def sides(of: MatMul) -> tuple[int, int]:
        k, n = width(of.k), width(columns(of, model, heads))
        return (n, k) if vectors and of.k.split else (k, n)

    layer: dict[tuple[int, int], float] = {}
    products = [(part.times, of) for part in parts for of in part.operators if isinstance(of, MatMul)]
    for times, of in products:
        layer[sides(of)] = layer.get(sides(of), 0.0) + of.stored * times / model.layers
    (last,) = (sides(of) for of in head.operators if isinstance(of, MatMul))
    return layer, last, max(of.m * width(of.n) for _, of in products)
