"""A model on a mesh of cores: what each region computes, kernel by kernel, and what it holds.

Prefill lays tokens over the rows and widths over the columns (BL_y E_x, [he2025] figure 3); scores are Q K^T without a
transpose, head by head on the columns that hold it. Decode lays the width over one side and repeats the token along the other
(B E_y L^x, figure 4); weights lie so that each product leaves its result where the next one wants it, on the other side. A
model whose layers do not fit one region is laid over several, in order. Experts that some token goes to take turns, each
on all cores of a region. Latent attention (MLA) has no layout here.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from dse.evaluators.graph.operators import Attention, Dim, Elementwise, MatMul, Operator, Part
from dse.evaluators.graph.step import Step, causal_pairs
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.kv import kv
from dse.evaluators.passes.call import ONCE, Block, Call, Kernel, alike
from dse.space.elementwise import ceil_div, maximum, minimum, where
from dse.space.mapping import MeshMapping, MeshPlan, ProductMapping
from dse.space.model import Model


@dataclass(frozen=True, slots=True)
class Region:
    """Where a phase runs; leaves broadcast over designs.

    Attributes:
        mesh: cores of one region.
        count: regions.
        layers: of a full region; the last one has what is left.
        all_layers: of all regions.
    """

    mesh: Mesh
    count: Any
    layers: Any
    all_layers: Any


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one core; leaves broadcast over designs.

    Attributes:
        weights: tiles of its layers.
        kv: of the tokens that are cached.
        activations: the residual stream, scores, and the widest intermediate.
        buffers: second versions of what travels, and sums in single precision.
        per_token: of K and V for each token that a core holds.
    """

    weights: Any
    kv: Any
    activations: Any
    buffers: Any
    per_token: Any = field(default=0.0)

    @property
    def total(self) -> Any:
        """All that must fit a core's memory."""
        return self.weights + self.kv + self.activations + self.buffers


VALUE = 2.0
"""Bytes of a weight, an activation or a cached value: 16 bits."""

HOST = ("embedding",)
"""Parts that are not on the chip: a look-up that the host makes."""

FOLDS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **{f"{kind}{side}": f"{kind}gate_up" for kind in ("", "experts_", "shared_") for side in ("gate", "up")},
}
"""Products of one vector that are one product in decode, so that they share an allreduce, and its name."""

FUNCTIONS = {"rope": "rotate", "activation": "gate"}
"""Vector instructions of operators on elements, by the end of their names; norms are kernels of their own."""


def region(plan: MeshPlan, rows: Any, cols: Any, layers: float) -> Region:
    """The regions of a phase on a chip of `rows` x `cols` cores, that share `layers` layers evenly."""
    mesh = square(plan)
    room = maximum(rows // mesh.rows, 1) * maximum(cols // mesh.cols, 1)
    count = minimum(where(plan.regions == 0, room, plan.regions * 1.0), layers)
    share = ceil_div(layers, count)
    return Region(mesh, ceil_div(layers, share), share, layers)


def square(plan: MeshPlan | ProductMapping) -> Mesh:
    """Cores of one region or product."""
    return Mesh(plan.rows, where(plan.cols == 0, plan.rows, plan.cols))


def prefill(model: Model, tokens: Any, place: Region, mapping: MeshMapping) -> tuple[Block, ...]:
    """One prompt of some tokens: parts of a layer, the way from region to region, and the head."""
    at = Step("prefill", tokens, ONCE, causal_pairs(tokens, model.window), 0.0)
    return _blocks(_On(model, at, place.mesh, mapping.prefill, mapping, vectors=False), place)


def decode(model: Model, requests: Any, context: Any, generated: Any, place: Region, mapping: MeshMapping) -> tuple[Block, ...]:
    """One token of each of some requests that run together, with `context` tokens cached each."""
    positions = requests * context
    at = Step("decode", requests, requests, positions, positions)
    return _blocks(_On(model, at, place.mesh, mapping.decode, mapping, vectors=True, generated=generated), place)


class _On(NamedTuple):
    """A step, and how its operators are divided.

    Attributes:
        model, at: what is computed.
        mesh: cores of a region.
        plan, mapping: of the phase, and of both.
        vectors: whether every line of cores has all tokens; else they lie over the rows.
        generated: of the tokens that a request has cached.
    """

    model: Model
    at: Step
    mesh: Mesh
    plan: MeshPlan
    mapping: MeshMapping
    vectors: bool
    generated: Any = 0.0

    @property
    def same(self) -> dict[str, Any]:
        """Options of kernels of vectors."""
        return {"replicated": True} if self.vectors else {}

    @property
    def line(self) -> dict[str, Any]:
        """Options of those that add up along lines of cores."""
        return {"allreduce": self.plan.gemv, "phases": self.plan.ktree_k, **self.same}

    def named(self, of: Operator) -> str:
        """The name of the call that does an operator."""
        return FOLDS.get(of.name, of.name) if self.vectors else of.name

    def over(self, dim: Dim) -> Mesh:
        """The region, turned so that a width of activations lies over its rows.

        It lies over the columns beside tokens. Of vectors, the residual stream lies over the rows, and what products of it
        leave over the columns, from where the next ones bring it back.
        """
        return _turned(self.mesh) if dim.split or not self.vectors else self.mesh


def _turned(mesh: Mesh) -> Mesh:
    return Mesh(mesh.cols, mesh.rows)


def _blocks(on: _On, place: Region) -> tuple[Block, ...]:
    found = []
    for part in transformer(on.model, on.at):
        if part.name == "head":
            h = Dim(on.model.hidden)
            shape = Shape(on.at.tokens, h.units, 1)
            way = Kernel("region", "to the next region", "move", "transfer", shape, on.over(h), on.same)
            found.append(_block("region", [_call(way)], (place.count - 1) * scale(on.model, on.mapping.resident_layers)))
            on = on._replace(vectors=True)  # only the last token of a prompt gets a successor
        if part.name not in HOST:
            found.append(_block(part.name, _calls(part, on), float(part.times)))
    return tuple(found)


def _block(name: str, found: list[Call], times: Any) -> Block:
    calls = tuple(found)
    return Block(name, calls, alike(calls), tuple(range(len(calls))), times)


def _call(kernel: Kernel, operators: tuple[str, ...] = (), flop: Any = 0.0) -> Call:
    shape = (kernel.shape.m, kernel.shape.k, kernel.shape.n)
    return Call(kernel.part, kernel.name, (), kernel.shape.m, shape, kernel=kernel, flop=flop, operators=operators)


def _calls(part: Part, on: _On) -> list[Call]:
    """Operators of a part in turn, those that decode folds together; at the end of a layer's part the residual sum."""
    each = next((of.m / of.copies for of in part.operators if isinstance(of, MatMul) and of.stored > 1), None)
    found: list[Call] = []
    for _, together in groupby(part.operators, on.named):
        of, *others = together
        if isinstance(of, Attention):
            found += _cached(part, of, on) if on.vectors else _fresh(part, of, on)
        elif isinstance(of, Elementwise):
            found.append(_vector(part, of, on))
        else:
            found += _product(part, (of, *others), on, each)
    if part.name != "head":
        h, name, add = Dim(on.model.hidden), part.operators[0].name.replace("norm", "sum"), {"function": "add", **on.same}
        found.append(_call(Kernel(part.name, name, "vector", "elementwise", Shape(part.rows, h.units, 1), on.over(h), add)))
    return found


def _product(part: Part, together: tuple[Any, ...], on: _On, each: Any) -> list[Call]:
    """Products of the same activations as one; those of experts take turns, after tokens went to them and before these go back.

    Args:
        part, on: where they are, and how they are divided.
        together: products.
        each: rows of activations of an expert.
    """
    of, k = together[0], together[0].k
    n = sum(columns(one, on.model, on.mapping.kv_projection) for one in together)
    m, times = (of.m, ONCE) if of.stored == 1 else (each, of.copies)
    shape, names = Shape(m, width(k), n), tuple(one.name for one in together)
    name = on.named(of)
    if on.vectors:
        tree = {"phases": on.plan.ktree_k}
        kernel = Kernel(part.name, name, "gemv", on.plan.gemv, shape, on.over(k), tree, times)
    else:
        kernel = Kernel(part.name, name, "gemm", on.plan.gemm, shape, on.mesh, {}, times)
    call = _call(kernel, names, of.m * (2.0 * width(k) * sum(width(one.n) for one in together)))
    if of.name not in ("experts_gate", "experts_down"):
        return [call]
    back = k.split
    mesh = _turned(on.mesh) if on.vectors and not back else on.mesh
    rows = Shape(of.m, on.model.hidden, 1)
    moved = _call(Kernel(part.name, "combine" if back else "dispatch", "move", "dispatch", rows, mesh, {}))
    return [call, moved] if back else [moved, call]


def _vector(part: Part, of: Elementwise, on: _On) -> Call:
    """Norms, activations, and rotations of queries and keys."""
    kind, k = of.name.split("_")[-1], float(width(of.dim))
    if kind == "rope":
        products = (one for one in part.operators if isinstance(one, MatMul) and one.name in of.needs)
        k = sum(columns(one, on.model, on.mapping.kv_projection) for one in products)
    algorithm, options = ("norm", on.line) if kind == "norm" else ("elementwise", {"function": FUNCTIONS[kind], **on.same})
    return _call(Kernel(part.name, of.name, "vector", algorithm, Shape(of.rows, k, 1), on.over(of.dim), options), (of.name,))


def _fresh(part: Part, of: Attention, on: _On) -> list[Call]:
    """Attention of a prompt to itself, head by head on the columns that hold it, those of a column in turn."""
    head, t, pairs = attention_group(of.heads, on.mesh.cols), of.tokens, 2.0 * of.heads.units * of.pairs
    on_head, ring, times = Mesh(on.mesh.rows, head.cols), {"gemm": on.plan.gemm}, (head.turns, head.copies)
    scores = Kernel(part.name, "scores", "gemm", "meshgemm_t", Shape(t, head.width, t), on_head, ring, *times)
    softmax = Shape(t * head.turns, t, 1)
    values = Kernel(part.name, "values", "gemm", "meshgemm_v", Shape(t, t, head.width), on_head, ring, *times)
    return [
        _call(scores, (), pairs * of.qk_dim),
        _call(Kernel(part.name, "softmax", "vector", "softmax", softmax, _turned(on_head), on.line, ONCE, head.copies)),
        _call(values, (of.name,), pairs * of.v_dim),
    ]


def _cached(part: Part, of: Attention, on: _On) -> list[Call]:
    """Attention of vectors to the cache, which waits for the row of cores that has most of it."""
    head, m, pairs = attention_group(of.heads, on.mesh.cols), of.tokens, 2.0 * of.heads.units * of.pairs
    positions = kv(on.mapping.kv).fullest(of.positions / m, on.generated, on.mesh.rows) * on.mesh.rows
    new, softmax = Shape(m, 2 * kv_width(on.model, on.mapping.kv_heads), 1), Shape(m * head.turns, positions, 1)
    on_head, word, tree = Mesh(head.cols, on.mesh.rows), on.plan.gemv, {"phases": on.plan.ktree_k}
    queries, values = Shape(m * head.turns, head.width, positions), Shape(m, positions, width(of.heads))
    return [
        _call(Kernel(part.name, "kv_cache", "kv", on.mapping.kv, new, on.mesh, {})),
        _call(Kernel(part.name, "scores", "gemv", word, queries, on_head, tree, ONCE, head.copies), (), pairs * of.qk_dim),
        _call(Kernel(part.name, "softmax", "vector", "softmax", softmax, on.mesh, on.line)),
        _call(Kernel(part.name, "values", "gemv", word, values, on.mesh, tree), (of.name,), pairs * of.v_dim),
    ]


class Group(NamedTuple):
    """Columns that hold a head: how many, how wide it is on them all, heads of a column in turn, and groups side by side."""

    cols: Any
    width: Any
    turns: Any
    copies: Any


def attention_group(heads: Dim, cols: Any) -> Group:
    """The columns of a head where heads lie side by side over the columns."""
    local = ceil_div(width(heads), cols)
    turns = maximum(ceil_div(heads.units, cols), 1.0)
    group = maximum(ceil_div(heads.width, local), 1.0)
    return Group(group, group * local / turns, turns, heads.units / turns)


def width(dim: Dim) -> int:
    """Columns of a dimension, all of it."""
    return dim.units * dim.width


def columns(of: MatMul, model: Model, heads: str) -> float:
    """Columns of a product; those of K and V by a word of `KV_HEADS`."""
    return kv_width(model, heads) if of.name in ("k_proj", "v_proj") else float(width(of.n))


def kv_width(model: Model, heads: str) -> float:
    """Width of K, and of V, by a word of `KV_HEADS`."""
    return float((model.heads if heads == "full" else model.kv_heads) * model.head_dim)


@lru_cache(maxsize=256)
def stored(model: Model, heads: str) -> tuple[tuple[tuple[tuple[float, float], float], ...], tuple[float, float]]:
    """Weight matrices by their sides over rows and columns: how many a layer has on average, and the head's."""
    found: dict[tuple[float, float], float] = {}
    *parts, head = transformer(model, Step("decode", 1.0, 1.0, 1.0, 1.0))
    for part in parts:
        for of in part.operators:
            if isinstance(of, MatMul):
                sides = float(width(of.k)), columns(of, model, heads)
                sides = sides[::-1] if of.name.endswith("down") else sides
                found[sides] = found.get(sides, 0.0) + of.stored * part.times / model.layers
    (ends,) = (of for of in head.operators if isinstance(of, MatMul))
    return tuple(found.items()), (width(ends.k), width(ends.n))


def held(model: Model, place: Region, mapping: MeshMapping, *, tokens: Any, cached: Any, scores: bool) -> tuple[Held, Held]:
    """What a core holds in a full region, and in the last one, which has what is left of the layers, and the head.

    The embedding is a look-up that the host makes; its table is not on the chip.

    Args:
        model: of which a region has its share of layers.
        place: the regions.
        mapping: for the width of K and V.
        tokens: whose activations are there at a time.
        cached: tokens of the KV cache that the fullest row of cores has.
        scores: whether whole score matrices are there (prefill), or one row of them.
    """
    mesh = place.mesh
    h, f, q = model.hidden, model.ffn_intermediate, Dim(model.heads, model.head_dim)

    def tile(k: Any, n: Any) -> Any:
        return ceil_div(k, mesh.rows) * ceil_div(n, mesh.cols)

    matrices, ends = stored(model, mapping.kv_heads)
    layer = sum(tile(*sides) * count for sides, count in matrices)
    rest = maximum(place.all_layers - (place.count - 1) * place.layers, 0.0)
    rows = ceil_div(tokens, mesh.rows) if scores else tokens
    stream = rows * (2 * ceil_div(h, mesh.cols) + ceil_div(f, mesh.cols))
    head = attention_group(q, mesh.cols)
    matrix = rows * head.turns * (ceil_div(tokens, head.cols) if scores else 1.0)
    widest = maximum(tile(h, f), tile(h, width(q))) if scores else 0.0
    sums = rows * maximum(ceil_div(f, mesh.cols), ceil_div(h, mesh.cols))
    activations, buffers = VALUE * (stream + matrix), VALUE * widest + 4.0 * sums
    each = VALUE * 2 * ceil_div(kv_width(model, mapping.kv_heads), mesh.cols)

    def core(layers: Any, weights: Any) -> Held:
        return Held(VALUE * weights, each * layers * cached, activations, buffers, each * layers)

    return core(place.layers, place.layers * layer), core(rest, rest * layer + tile(*ends))


def scale(model: Model, resident_layers: Any) -> Any:
    """How many times the regions of the chip there are, where some layers stand for all."""
    return where(resident_layers == 0, 1.0, model.layers / maximum(resident_layers, 1.0))
