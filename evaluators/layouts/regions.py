"""A model on a mesh of cores: what each region computes, kernel by kernel.

Prefill lays tokens over the rows and widths over the columns (BL_y E_x, [he2025] figure 3); scores are Q K^T without a
transpose, head by head on the columns that hold it. Decode lays the width over one side and repeats the token along the other
(B E_y L^x, figure 4); weights lie so that each product leaves its result where the next one wants it, on the other side. A
model whose layers do not fit one region is laid over several, in order. Experts that some token goes to take turns, each
on all cores of a region. Latent attention (MLA) has no layout here.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from dse.evaluators.graph.operators import Attention, Dim, Elementwise, MatMul, Part
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.gemm import gemm
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.kv import kv
from dse.evaluators.layouts.residency import width
from dse.evaluators.machine.fabric import VALUE
from dse.evaluators.passes.call import ONCE, Block, Call, Kernel, alike
from dse.space.elementwise import ceil_div, maximum, minimum, where
from dse.space.mapping import Mapping, MeshPlan, ProductPlan
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


def square(plan: MeshPlan | ProductPlan) -> Mesh:
    """Cores of one region or product."""
    return Mesh(plan.rows, where(plan.cols == 0, plan.rows, plan.cols))


def gemm_of(plan: MeshPlan, part: str) -> str:
    """The algorithm of matrix products of a part of a layer."""
    said = plan.gemm_attention if part == "attention" else plan.gemm_ffn
    return str(plan.gemm if said is None else said)


def blocks(model: Model, at: Step, place: Region, mapping: Mapping, generated: Any = 0.0) -> tuple[Block, ...]:
    """One prompt, or one token of each of some requests, by parts of a layer, with the way between regions and the head.

    Args:
        model, at: what is computed.
        place, mapping: where, and how.
        generated: of the tokens that each request has cached.
    """
    vectors = at.phase == "decode"
    on = _On(model, place.mesh, mapping.decode if vectors else mapping.prefill, mapping, vectors, generated)
    *parts, head = [part for part in transformer(model, at) if part.name not in HOST]
    h = Dim(model.hidden)
    shape = Shape(at.tokens, h.units, 1)
    way = _call(Kernel("region", "to the next region", "move", "transfer", shape, on.over(h), on.same))
    return (
        *(_block(part.name, _calls(part, on._replace(model=part.of or model)), float(part.times)) for part in parts),
        _block("region", [way], (place.count - 1) * scale(model, mapping.resident_layers)),
        _block("head", _calls(head, on._replace(vectors=True)), 1.0),  # only the last token of a prompt gets a successor
    )


class _On(NamedTuple):
    """Cores of a region and the plan of a phase.

    As `vectors`, every line of cores has all tokens; else they lie over the rows. `generated` are of a request's cached tokens.
    """

    model: Model
    mesh: Mesh
    plan: MeshPlan
    mapping: Mapping
    vectors: bool
    generated: Any

    @property
    def same(self) -> dict[str, Any]:
        """Options of kernels of vectors."""
        return {"replicated": True} if self.vectors else {}

    @property
    def line(self) -> dict[str, Any]:
        """Options of those that add up along lines of cores."""
        return {"allreduce": self.plan.gemv, "phases": self.plan.ktree_k, **self.same}

    def over(self, dim: Dim) -> Mesh:
        """The region, turned so that a width of activations lies over its rows.

        It lies over the columns beside tokens. Of vectors, the residual stream lies over the rows, and what products of it
        leave over the columns, from where the next ones bring it back.
        """
        return self.mesh.turned if dim.split or not self.vectors else self.mesh

    def columns(self, of: MatMul) -> Dim:
        """Columns of a product as they are computed."""
        return columns(of, self.model, self.mapping.kv_projection)


def _block(name: str, calls: list[Call], times: Any) -> Block:
    return Block(name, tuple(calls), alike(tuple(calls)), tuple(range(len(calls))), times)


def _call(of: Kernel, operators: tuple[str, ...] = (), flop: Any = 0.0, weights: Any = None) -> Call:
    shape = (of.shape.m, of.shape.k, of.shape.n)
    reads = "" if weights is None else "weights"
    fetch = 0.0 if weights is None else weights * VALUE
    return Call(of.part, of.name, (), of.shape.m, shape, kernel=of, flop=flop, operators=operators, reads=reads, fetch=fetch)


def _calls(part: Part, on: _On) -> list[Call]:
    """Operators of a part in turn, those that decode folds together; at the end of a layer's part the residual sum."""
    each = next((of.m / of.copies for of in part.operators if isinstance(of, MatMul) and of.stored > 1), None)
    found: list[Call] = []
    for name, together in groupby(part.operators, lambda of: FOLDS.get(of.name, of.name) if on.vectors else of.name):
        of, *others = together
        if isinstance(of, Attention):
            found += _cached(part, of, on) if on.vectors else _fresh(part, of, on)
        elif isinstance(of, Elementwise):
            found += _vector(part, of, on)
        else:
            found += _product(part, str(name), (of, *others), on, each)
    if part.name != "head":
        h, total, add = Dim(on.model.hidden), part.operators[0].name.replace("norm", "sum"), {"function": "add", **on.same}
        found.append(_call(Kernel(part.name, total, "vector", "elementwise", Shape(part.rows, h.units, 1), on.over(h), add)))
    return found


def _product(part: Part, name: str, together: tuple[Any, ...], on: _On, each: Any) -> list[Call]:
    """Products of the same activations; those of experts, of `each` rows, take turns between tokens' way to them and back."""
    of, k = together[0], together[0].k
    m, times = (of.m, ONCE) if of.stored == 1 else (each, of.copies)
    shape = Shape(m, width(k), sum(width(on.columns(one)) for one in together))
    how: tuple[Any, ...] = ("gemm", gemm_of(on.plan, part.name), shape, on.mesh, {})
    if on.vectors:
        how = ("gemv", on.plan.gemv, shape, on.over(k), {"phases": on.plan.ktree_k})
    flop = of.m * (2.0 * width(k) * sum(width(one.n) for one in together))
    weights = width(k) * sum(width(columns(one, on.model, on.mapping.kv_heads)) for one in together) * times
    call = _call(Kernel(part.name, name, *how)._replace(times=times), tuple(one.name for one in together), flop, weights)
    if of.name not in ("experts_gate", "experts_down"):
        return [call]
    h, what = Dim(on.model.hidden), "combine" if k.split else "dispatch"
    moved = _call(Kernel(part.name, what, "move", "dispatch", Shape(of.m, h.units, 1), on.over(h).turned, {}))
    return [call, moved] if k.split else [moved, call]


def _vector(part: Part, of: Elementwise, on: _On) -> list[Call]:
    """Norms, activations, and rotations of queries and keys, after norms of each head on the columns that hold it."""
    kind, k, found = of.name.split("_")[-1], width(of.dim), []
    if kind == "rope":
        products = [one for one in part.operators if isinstance(one, MatMul) and one.name in of.needs]
        k = sum(width(on.columns(one)) for one in products)
        for one in products if on.model.qk_norm else ():
            head, name = attention_group(on.columns(one), on.mesh.cols), one.name.replace("proj", "norm")
            shape, on_head = Shape(of.rows * head.turns, head.width, 1), Mesh(head.cols, on.mesh.rows)
            found.append(_call(Kernel(part.name, name, "vector", "norm", shape, on_head, on.line, ONCE, head.copies)))
    algorithm, options = ("norm", on.line) if kind == "norm" else ("elementwise", {"function": FUNCTIONS[kind], **on.same})
    kernel = Kernel(part.name, of.name, "vector", algorithm, Shape(of.rows, k, 1), on.over(of.dim), options)
    return [*found, _call(kernel, (of.name,))]


def _fresh(part: Part, of: Attention, on: _On) -> list[Call]:
    """Attention of a prompt to itself, head by head on the columns that hold it, those of a column in turn."""
    head, pairs = attention_group(of.heads, on.mesh.cols), 2.0 * of.heads.units * of.pairs
    window = on.model.window or on.model.chunk
    count, rows, queries, keys = stretches(of.tokens, of.positions, window, on.mesh.rows, alone=bool(on.model.chunk))
    on_head, ring, side = Mesh(rows, head.cols), {"gemm": gemm_of(on.plan, part.name)}, head.copies * count
    before = Shape(maximum(keys - queries, ONCE), 2 * width(kv_dim(on.model, on.mapping.kv_projection)), 1)
    way: tuple[Any, ...] = (before, Mesh(on.mesh.cols, rows), {}, where(count > 1, ONCE, 0.0), count)
    scores, values = Shape(queries, head.width, keys), Shape(queries, keys, head.width)
    first = Kernel(part.name, "scores", "gemm", "meshgemm_t", scores, on_head, ring, head.turns, side)
    last = Kernel(part.name, "values", "gemm", "meshgemm_v", values, on_head, ring, head.turns, side)
    softmax = Shape(queries * head.turns, keys, 1)
    return [
        *([_call(Kernel(part.name, "kv_window", "move", "transfer", *way))] if window else ()),
        _call(first, (), pairs * of.qk_dim),
        _call(Kernel(part.name, "softmax", "vector", "softmax", softmax, on_head.turned, on.line, ONCE, side)),
        _call(last, (of.name,), pairs * of.v_dim),
    ]


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


def _cached(part: Part, of: Attention, on: _On) -> list[Call]:
    """Attention of vectors to the cache, which waits for the row of cores that has most of it."""
    head, m, pairs = attention_group(of.heads, on.mesh.cols), of.tokens, 2.0 * of.heads.units * of.pairs
    context = of.positions / m
    generated = minimum(on.generated, context) if on.model.window or on.model.chunk else on.generated
    positions = kv(on.mapping.kv).fullest(context, generated, on.mesh.rows) * on.mesh.rows
    new, softmax = Shape(m, 2 * width(kv_dim(on.model, on.mapping.kv_heads)), 1), Shape(m * head.turns, positions, 1)
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
    wide = group * local / turns
    return Group(group, wide, turns, heads.units / turns * maximum(heads.width / wide, 1.0))


def columns(of: MatMul, model: Model, heads: str) -> Dim:
    """Columns of a product; those of K and V by a word of `KV_HEADS`."""
    return kv_dim(model, heads) if of.name in ("k_proj", "v_proj") else of.n


def kv_dim(model: Model, heads: str) -> Dim:
    """Columns of K, and of V, by a word of `KV_HEADS`."""
    return Dim(model.heads if heads == "full" else model.kv_heads, model.head_dim)


def scale(model: Model, resident_layers: Any) -> Any:
    """How many times the regions of the chip there are, where some layers stand for all."""
    return where(resident_layers == 0, 1.0, model.layers / maximum(resident_layers, 1.0))
