"""A model on a mesh of cores: what each region computes, kernel by kernel, and what it holds.

Prefill lays tokens over the rows and widths over the columns (BL_y E_x, [he2025] figure 3); scores are Q K^T without a
transpose, head by head on the columns that hold it. Decode lays the width over one side and repeats the token along the other
(B E_y L^x, figure 4); weights lie so that each product leaves its result where the next one wants it, on the other side. A
model whose layers do not fit one region is laid over several, in order. Experts that some token goes to take turns, each
on all cores of a region. Latent attention (MLA) has no layout here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dse.evaluators.graph.experts import touched
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.kv import kv
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


def prefill(model: Model, tokens: Any, mesh: Mesh, plan: MeshPlan, mapping: Mapping) -> list[Kernel]:
    """The kernels of one prompt of some tokens."""
    over, across = mesh, Mesh(mesh.cols, mesh.rows)  # widths lie over the columns: lines of an allreduce run along the rows
    head = attention_group(model, mesh.cols)
    group, along = Mesh(mesh.rows, head.cols), Mesh(head.cols, mesh.rows)
    side = model.heads / head.turns
    h, q, kv_width = model.hidden, model.heads * model.head_dim, width(model, mapping.kv_projection)
    line = {"allreduce": plan.gemv, "phases": plan.ktree_k}
    gemm, ring = plan.gemm, {"gemm": plan.gemm}

    def product(part: str, name: str, k: Any, n: Any, m: Any = tokens, times: Any = ONCE) -> Kernel:
        return Kernel(part, name, "gemm", gemm, Shape(m, k, n), over, {}, times)

    def vector(part: str, name: str, algorithm: str, k: Any, options: dict[str, Any], m: Any = tokens) -> Kernel:
        return Kernel(part, name, "vector", algorithm, Shape(m, k, 1), across, options)

    kernels = [
        vector("attention", "attention_norm", "norm", h, line),
        product("attention", "q_proj", h, q),
        product("attention", "k_proj", h, kv_width),
        product("attention", "v_proj", h, kv_width),
        vector("attention", "rope", "elementwise", q + kv_width, {"function": "rotate"}),
        Kernel("attention", "scores", "gemm", "meshgemm_t", Shape(tokens, head.width, tokens), group, ring, head.turns, side),
        Kernel("attention", "softmax", "vector", "softmax", Shape(tokens * head.turns, tokens, 1), along, line, ONCE, side),
        Kernel("attention", "values", "gemm", "meshgemm_v", Shape(tokens, tokens, head.width), group, ring, head.turns, side),
        product("attention", "o_proj", q, h),
        vector("attention", "attention_sum", "elementwise", h, {"function": "add"}),
    ]
    if dense_layers(model):
        f = model.ffn_intermediate
        kernels.append(vector("ffn", "ffn_norm", "norm", h, line))
        kernels += [product("ffn", name, h, f) for name in (("gate", "up") if model.gated_ffn else ("up",))]
        kernels += [vector("ffn", "activation", "elementwise", f, {"function": "gate"}), product("ffn", "down", f, h)]
        kernels.append(vector("ffn", "ffn_sum", "elementwise", h, {"function": "add"}))
    if model.experts is not None:
        e = model.experts
        used = touched(e, tokens)
        each = tokens * e.top_k / used
        kernels += [vector("moe", "ffn_norm", "norm", h, line), product("moe", "router", h, e.count)]
        kernels += [Kernel("moe", "dispatch", "move", "dispatch", Shape(tokens * e.top_k, h, 1), mesh, {})]
        kernels += [product("moe", name, h, e.intermediate, each, used) for name in ("experts_gate", "experts_up")]
        kernels += [
            vector("moe", "experts_activation", "elementwise", e.intermediate, {"function": "gate"}, tokens * e.top_k),
            product("moe", "experts_down", e.intermediate, h, each, used),
            Kernel("moe", "combine", "move", "dispatch", Shape(tokens * e.top_k, h, 1), mesh, {}),
        ]
        if e.shared:
            f = e.shared * e.intermediate
            kernels += [product("moe", name, h, f) for name in ("shared_gate", "shared_up")]
            kernels += [
                vector("moe", "shared_activation", "elementwise", f, {"function": "gate"}),
                product("moe", "shared_down", f, h),
            ]
        kernels.append(vector("moe", "ffn_sum", "elementwise", h, {"function": "add"}))
    kernels.append(Kernel("region", "to the next region", "move", "transfer", Shape(tokens, h, 1), across, {}))
    kernels += head_kernels(model, 1.0, mesh, plan)
    return kernels


def decode(
    model: Model, requests: Any, context: Any, generated: Any, mesh: Mesh, plan: MeshPlan, mapping: Mapping
) -> list[Kernel]:
    """The kernels of one token of each of some requests that run together, with `context` tokens cached each.

    Products of the same vector are one product, so that they share an allreduce: Q, K and V, and gate and up.
    """
    down, back = mesh, Mesh(mesh.cols, mesh.rows)  # results alternate between the columns and the rows
    head = attention_group(model, mesh.cols)
    h, q, kv_width = model.hidden, model.heads * model.head_dim, width(model, mapping.kv_projection)
    line = {"allreduce": plan.gemv, "phases": plan.ktree_k, "replicated": True}
    tree, same = {"phases": plan.ktree_k}, {"replicated": True}
    m, gates = requests, 2 if model.gated_ffn else 1
    # tokens on the fullest row of cores; the others wait for it
    held = kv(mapping.kv).fullest(context, generated, mesh.rows)
    positions = held * mesh.rows

    def product(part: str, name: str, k: Any, n: Any, on: Mesh, m: Any = m, times: Any = ONCE) -> Kernel:
        return Kernel(part, name, "gemv", plan.gemv, Shape(m, k, n), on, tree, times)

    def vector(part: str, name: str, algorithm: str, k: Any, on: Mesh, options: dict[str, Any], m: Any = m) -> Kernel:
        return Kernel(part, name, "vector", algorithm, Shape(m, k, 1), on, options)

    rows = Mesh(head.cols, mesh.rows)
    scores = Shape(m * head.turns, head.cols * head.local / head.turns, positions)
    kernels = [
        vector("attention", "attention_norm", "norm", h, down, line),
        product("attention", "qkv_proj", h, q + 2 * kv_width, down),
        vector("attention", "rope", "elementwise", q + kv_width, back, {"function": "rotate"} | same),
        Kernel("attention", "kv_cache", "kv", mapping.kv, Shape(m, 2 * width(model, mapping.kv_heads), 1), mesh, {}),
        Kernel("attention", "scores", "gemv", plan.gemv, scores, rows, tree, ONCE, model.heads / head.turns),
        vector("attention", "softmax", "softmax", positions, down, line, m * head.turns),
        product("attention", "values", positions, q, down),
        product("attention", "o_proj", q, h, back),
        vector("attention", "attention_sum", "elementwise", h, down, {"function": "add"} | same),
    ]
    if dense_layers(model):
        f = model.ffn_intermediate
        kernels.append(vector("ffn", "ffn_norm", "norm", h, down, line))
        kernels += [
            product("ffn", "gate_up", h, gates * f, down),
            vector("ffn", "activation", "elementwise", f, back, {"function": "gate"} | same),
            product("ffn", "down", f, h, back),
            vector("ffn", "ffn_sum", "elementwise", h, down, {"function": "add"} | same),
        ]
    if model.experts is not None:
        e = model.experts
        used = touched(e, m)
        each = maximum(m * e.top_k / used, 1.0)
        kernels += [vector("moe", "ffn_norm", "norm", h, down, line), product("moe", "router", h, e.count, down)]
        kernels.append(Kernel("moe", "dispatch", "move", "dispatch", Shape(m * e.top_k, h, 1), back, {}))
        kernels += [
            product("moe", "experts_gate_up", h, gates * e.intermediate, down, each, used),
            vector("moe", "experts_activation", "elementwise", e.intermediate, back, {"function": "gate"} | same, m * e.top_k),
            product("moe", "experts_down", e.intermediate, h, back, each, used),
            Kernel("moe", "combine", "move", "dispatch", Shape(m * e.top_k, h, 1), down, {}),
        ]
        if e.shared:
            f = e.shared * e.intermediate
            kernels += [
                product("moe", "shared_gate_up", h, gates * f, down),
                vector("moe", "shared_activation", "elementwise", f, back, {"function": "gate"} | same),
                product("moe", "shared_down", f, h, back),
            ]
        kernels.append(vector("moe", "ffn_sum", "elementwise", h, down, {"function": "add"} | same))
    kernels.append(Kernel("region", "to the next region", "move", "transfer", Shape(m, h, 1), down, same))
    kernels += head_kernels(model, m, mesh, plan)
    return kernels


def head_kernels(model: Model, m: Any, mesh: Mesh, plan: MeshPlan) -> list[Kernel]:
    """Final norm and head, for the tokens that get a successor; a product of vectors in both phases."""
    line = {"allreduce": plan.gemv, "phases": plan.ktree_k, "replicated": True}
    return [
        Kernel("head", "final_norm", "vector", "norm", Shape(m, model.hidden, 1), mesh, line),
        Kernel("head", "head", "gemv", plan.gemv, Shape(m, model.hidden, model.vocab), mesh, {"phases": plan.ktree_k}),
    ]


class Group(NamedTuple):
    """Columns that hold one head: how many, how wide their slices are, and how many heads a column has in turn."""

    cols: Any
    local: Any
    width: Any
    turns: Any


def attention_group(model: Model, cols: Any) -> Group:
    """The columns of a head where query heads lie side by side over the columns."""
    local = ceil_div(model.heads * model.head_dim, cols)
    turns = maximum(ceil_div(model.heads, cols), 1.0)
    group = maximum(ceil_div(model.head_dim, local), 1.0)
    return Group(group, local, group * local / turns, turns)


def width(model: Model, heads: str) -> float:
    """Width of K, and of V, by a word of `KV_HEADS`."""
    return float((model.heads if heads == "full" else model.kv_heads) * model.head_dim)


def dense_layers(model: Model) -> int:
    """Layers with a dense FFN."""
    return model.layers if model.experts is None else model.experts.dense_layers


def held(model: Model, place: Region, mapping: Mapping, *, tokens: Any, cached: Any, scores: bool) -> tuple[Held, Held]:
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
    h, q, kv_width, f = model.hidden, model.heads * model.head_dim, width(model, mapping.kv_heads), model.ffn_intermediate

    def tile(k: Any, n: Any) -> Any:
        return ceil_div(k, mesh.rows) * ceil_div(n, mesh.cols)

    layer = tile(h, q) + 2 * tile(h, kv_width) + tile(q, h)
    dense: Any = (3 if model.gated_ffn else 2) * tile(h, f)
    experts = model.experts
    if experts is not None:
        sparse = (3 * experts.count) * tile(h, experts.intermediate) + tile(h, experts.count)
        sparse = sparse + (3 * tile(h, experts.shared * experts.intermediate) if experts.shared else 0.0)
        dense = dense * (experts.dense_layers / model.layers) + sparse * (1 - experts.dense_layers / model.layers)
    layer = layer + dense
    ends = tile(h, model.vocab)
    rest = maximum(place.all_layers - (place.count - 1) * place.layers, 0.0)
    rows = ceil_div(tokens, mesh.rows) if scores else tokens
    stream = rows * (2 * ceil_div(h, mesh.cols) + ceil_div(f, mesh.cols))
    head = attention_group(model, mesh.cols)
    matrix = rows * head.turns * (ceil_div(tokens, head.cols) if scores else 1.0)
    widest = maximum(tile(h, f), tile(h, q)) if scores else 0.0
    sums = rows * maximum(ceil_div(f, mesh.cols), ceil_div(h, mesh.cols))
    activations, buffers = VALUE * (stream + matrix), VALUE * widest + 4.0 * sums
    each = VALUE * 2 * ceil_div(kv_width, mesh.cols)

    def core(layers: Any, weights: Any) -> Held:
        return Held(VALUE * weights, each * layers * cached, activations, buffers, each * layers)

    return core(place.layers, place.layers * layer), core(rest, rest * layer + ends)


def blocks(kernels: Sequence[Kernel], model: Model, place: Region, resident_layers: Any) -> tuple[Block, ...]:
    """Kernels by the part of a layer that they are in, and how often each part runs in a pass."""
    dense = dense_layers(model)
    times = {
        "attention": float(model.layers),
        "ffn": float(dense),
        "moe": float(model.layers - dense),
        "region": (place.count - 1) * scale(model, resident_layers),
        "head": 1.0,
    }
    found = []
    for part, often in times.items():
        calls = tuple(
            Call(part, one.name, (), one.shape.m, (one.shape.m, one.shape.k, one.shape.n), kernel=one)
            for one in kernels
            if one.part == part
        )
        if calls:
            found.append(Block(part, calls, alike(calls), tuple(range(len(calls))), often))
    return tuple(found)


def scale(model: Model, resident_layers: Any) -> Any:
    """How many times the regions of the chip there are, where some layers stand for all."""
    return where(resident_layers == 0, 1.0, model.layers / maximum(resident_layers, 1.0))
