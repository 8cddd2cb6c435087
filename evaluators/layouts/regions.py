"""A model on a mesh of cores: what each region computes, kernel by kernel.

Prefill lays tokens over the rows and widths over the columns (BL_y E_x, [he2025] figure 3); scores are Q K^T without a
transpose, head by head on the columns that hold it. Decode lays the width over one side and repeats the token along the other
(B E_y L^x, figure 4); weights lie so that each product leaves its result where the next one wants it, on the other side. A
model whose layers do not fit one region is laid over several, in order. Experts that some token goes to take turns, each
on all cores of a region. Attention is in `region_attention.py`, states in `region_states.py`.
"""

from dataclasses import dataclass
from typing import Any

from dse.evaluators.graph.operators import MIXING, Attention, Dim, Elementwise, Index, MatMul, Operator, Part, Recur, useful
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.layouts.formats import weights_of
from dse.evaluators.layouts.region_attention import apart, cached, fresh, scored
from dse.evaluators.layouts.region_calls import On, attention_group, call, columns, element, gemm_of, turned, with_weights
from dse.evaluators.layouts.region_states import convolved, recurred
from dse.evaluators.layouts.residency import width
from dse.evaluators.passes.call import ONCE, Block, Call, Kernel, alike
from dse.space.elementwise import ceil_div, maximum, minimum, where
from dse.space.mapping import BYTES, Mapping, MeshPlan, ProductPlan
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
    **dict.fromkeys(("q_down", "q_up", "kv_down", "compress", "index_compress"), "qkv_down"),
    **dict.fromkeys(("index_q", "index_k", "index_weights"), "index_in"),
    **dict.fromkeys(("state_qk", "state_v", "state_decay", "decay_down", "decay_up", "gate_down", "gate_up"), "state_in"),
    **{f"{kind}{side}": f"{kind}gate_up" for kind in ("", "experts_", "shared_") for side in ("gate", "up")},
}
"""Products of one vector that are one product in decode, so that they share an allreduce, and its name."""

FUNCTIONS = {"rope": "rotate", "activation": "gate", "tanh": "cap"}
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


def blocks(model: Model, at: Step, place: Region, mapping: Mapping, generated: Any = 0.0) -> tuple[Block, ...]:
    """One prompt, or one token of each of some requests, by parts of a layer, with the way between regions and the head.

    Args:
        model, at: what is computed.
        place, mapping: where, and how.
        generated: of the tokens that each request has cached.
    """
    vectors = at.phase == "decode"
    on = On(model, place.mesh, mapping.decode if vectors else mapping.prefill, mapping, vectors, generated)
    *parts, head = [part for part in transformer(model, at) if part.name not in HOST]
    h = Dim(model.hidden)
    shape = Shape(at.tokens, h.units, 1)
    way = call(Kernel("region", "to the next region", "move", "transfer", shape, on.over(h), on.same))
    return (
        *(_block(part.name, _calls(part, on._replace(model=part.of or model)), float(part.times)) for part in parts),
        _block("region", [way], (place.count - 1) * scale(model, mapping.resident_layers)),
        _block("head", _calls(head, on._replace(vectors=True)), 1.0),  # only the last token of a prompt gets a successor
    )


def _block(name: str, calls: list[Call], times: Any) -> Block:
    return Block(name, tuple(calls), alike(tuple(calls)), tuple(range(len(calls))), times)


def _calls(part: Part, on: On) -> list[Call]:
    """Operators of a part in turn, those that decode folds together; at the end of a layer's part the residual sum."""
    each = next((of.m / of.copies for of in part.operators if isinstance(of, MatMul) and of.stored > 1), None)
    ring = {"gemm": gemm_of(on.plan, _half(part))}
    found: list[Call] = []
    folded: dict[str, list[Any]] = {}
    for one in part.operators:
        folded.setdefault(_name(one, on), []).append(one)
    for name, (of, *others) in folded.items():
        if isinstance(of, Attention):
            found += cached(part, of, on) if on.vectors else fresh(part, of, on, ring)
        elif isinstance(of, Recur):
            found += recurred(part, of, on, ring)
        elif isinstance(of, Index):
            found += scored(part, of, on, ring)
        elif isinstance(of, Elementwise):
            found += _vector(part, of, on)
        elif of.apart > 1:
            found += apart(part, of, on, ring)
        else:
            found += _product(part, name, (of, *others), on, each)
    if part.name != "head":
        h, first = on.model.hidden, part.operators[0].name
        total = first.replace("norm", "sum") if first.endswith("norm") else f"{part.kind}_sum"
        found.append(element(part.name, total, "add", Shape(part.rows, h, 1), on.over(Dim(h)), same=on.vectors))
    return found


def _name(of: Operator, on: On) -> str:
    """Of the call that does an operator; those of projections of the residual stream have no second one before them."""
    inner = (
        isinstance(of, MatMul) and FOLDS.get(of.name) in ("qkv_down", "index_in", "state_in") and of.k != Dim(on.model.hidden)
    )
    return of.name if inner or not on.vectors else FOLDS.get(of.name, of.name)


def _half(part: Part) -> str:
    """Which algorithm of products a part has its own."""
    return "attention" if part.kind == MIXING else "ffn"


def _product(part: Part, name: str, together: tuple[Any, ...], on: On, each: Any) -> list[Call]:
    """Products of the same activations; those of experts, of `each` rows, take turns between tokens' way to them and back."""
    of, k = together[0], together[0].k
    m, times = (of.m, ONCE) if of.stored <= 1 else (each, of.copies)
    shape = Shape(m, width(k), sum(width(on.columns(one)) for one in together))
    how: tuple[Any, ...] = ("gemm", gemm_of(on.plan, _half(part)), shape, on.mesh, {})
    if on.vectors:
        how = ("gemv", on.plan.gemv, shape, on.over(k), on.tree)
    flop = sum(useful(one) for one in together)
    repeated = of.m * (2.0 * width(k) * sum(width(on.columns(one)) for one in together)) - flop
    stored = sum(width(columns(one, on.model, on.mapping.kv_heads)) for one in together)
    word = weights_of(part, of, on.precision)
    weights = width(k) * stored * times * BYTES[word]
    kernel, names = Kernel(part.name, name, *how)._replace(times=times), tuple(one.name for one in together)
    made = with_weights(word, (stored, width(k)), call(kernel, names, flop, weights, repeated=repeated))
    if of.stored > 1:
        ways = {"experts_down": "combine", "experts_gate" if on.model.gated_ffn else "experts_up": "dispatch"}
        outer = (k if of.name != "experts_down" else of.n).units
        moved = Kernel(part.name, ways.get(of.name, ""), "move", "dispatch", Shape(of.m, outer, 1), on.over(Dim(1)).turned, {})
        return [call(moved), *made] if moved.name == "dispatch" else [*made, call(moved)] if moved.name else made
    back = [one for one in together if on.vectors and _returns(part, one)]
    return [*made, *(turned(part.name, f"{one.name}_turn", width(one.n), m, on) for one in back)]


def _returns(part: Part, of: MatMul) -> bool:
    """Whether what a product of vectors leaves over the columns is wanted over the rows, by another one or the residual sum."""
    if of.k.split or of.n.split or of.name == "router":
        return False
    after = [one for one in part.operators if isinstance(one, MatMul) and of.name in one.needs]
    return any(one.k == of.n for one in after) or of.name in ("latent_up", "mtp_proj")


def _vector(part: Part, of: Elementwise, on: On) -> list[Call]:
    """Norms, activations, and rotations of queries and keys, after norms of each head on the columns that hold it."""
    kind, k, found = of.name.split("_")[-1], width(of.dim), []
    state = on.model.recurrence
    if kind == "conv" and state is not None:
        return convolved(part, of, on, state.conv)
    if of.name == "state_norm":
        return [_head_norm(part, of.name, of.dim, of.rows, on, (of.name,))]
    if kind == "rope" or of.name == "heads_norm":
        products = [one for one in part.operators if isinstance(one, MatMul) and one.name in of.needs]
        normed = [(one.name.replace("proj", "norm"), on.columns(one)) for one in products if on.model.qk_norm]
        found = [_head_norm(part, name, dim, of.rows, on) for name, dim in normed]
        if kind == "norm":
            return [*found[:-1], found[-1]._replace(operators=(of.name,))]
        k = _turned(of, on, sum(width(on.columns(one)) for one in products))
    algorithm, options = ("norm", on.line) if kind == "norm" else ("elementwise", {"function": FUNCTIONS[kind], **on.same})
    kernel = Kernel(part.name, of.name, "vector", algorithm, Shape(of.rows, k, 1), on.over(of.dim), options)
    return [*found, call(kernel, (of.name,))]


def _turned(of: Elementwise, on: On, columns: Any) -> Any:
    """Columns of queries and keys that are rotated: a share of each head, or of latent attention what is there for that."""
    if on.model.latent is not None:
        return (of.dim.units + 1) * of.dim.width
    return columns * of.rotated // on.model.head_dim


def _head_norm(part: Part, name: str, heads: Dim, rows: Any, on: On, operators: tuple[str, ...] = ()) -> Call:
    """Norms of each head by itself, on the columns that hold it."""
    head = attention_group(heads, on.mesh.cols)
    shape, on_head = Shape(rows * head.turns, head.width, 1), Mesh(head.cols, on.mesh.rows)
    return call(Kernel(part.name, name, "vector", "norm", shape, on_head, on.line, ONCE, head.copies), operators)


def scale(model: Model, resident_layers: Any) -> Any:
    """How many times the regions of the chip there are, where some layers stand for all."""
    return where(resident_layers == 0, 1.0, model.layers / maximum(resident_layers, 1.0))
