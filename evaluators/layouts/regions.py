"""A model on a mesh of cores by regions: the kernels that each region computes.

Prefill lays tokens over the rows and widths over the columns (BL_y E_x, [he2025] figure 3); scores are Q K^T without a
transpose, head by head on the columns that hold it. Decode lays the width over one side and repeats the token along the other
(B E_y L^x, figure 4); weights lie so that each product leaves its result where the next one wants it, on the other side. A
model whose layers do not fit one region is laid over several, in order, and over the regions of one chip after another.
Experts that some token goes to take turns, each on all cores of a region. Attention is in `region_attention.py`, states in
`region_states.py`.
"""

from dataclasses import dataclass
from typing import Any

from dse.evaluators.calls.call import ONCE, CallBlock, KernelCall, MeshKernel, equal_call_index
from dse.evaluators.graph.operators import (
    MIXING,
    AttentionOp,
    ElementwiseOp,
    IndexerOp,
    MatMulOp,
    MatrixDim,
    Operator,
    RecurrenceOp,
    Segment,
    dim_width,
    useful_flop,
)
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.layouts.region_attention import (
    decode_attention_calls,
    indexer_calls,
    per_head_product_calls,
    prefill_attention_calls,
)
from dse.evaluators.layouts.region_calls import (
    RegionContext,
    columns_to_rows_call,
    elementwise_call,
    gemm_algorithm,
    head_columns,
    kernel_call,
    product_columns,
    product_with_dequantize,
)
from dse.evaluators.layouts.region_states import convolution_calls, recurrence_calls
from dse.evaluators.layouts.tensor_formats import weight_format
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.mapping import BYTES_BY_FORMAT, Mapping, MeshProductPlan, RegionPlan
from dse.space.model import Model


@dataclass(frozen=True, slots=True)
class Region:
    """Regions of a phase, on the mesh of one chip or of several in a chain; leaves broadcast over designs.

    Layers are divided over chips first, so that those of a chip are the same ones in both phases, and then over its regions.

    Attributes:
        mesh: cores of one region.
        count: regions of a full chip.
        layers: of a full region; the last one of a chip has what is left.
        all_layers: of all regions.
        chips: that have layers.
        chip_layers: of a full chip; the last one has what is left.
    """

    mesh: CoreMesh
    count: Any
    layers: Any
    all_layers: Any
    chips: Any
    chip_layers: Any

    @property
    def last_chip_layers(self) -> Any:
        """Layers of the last chip of a chain, which has what others left."""
        return maximum(self.all_layers - (self.chips - 1) * self.chip_layers, 0.0)

    @property
    def last_count(self) -> Any:
        """Number of regions of the last chip of a chain."""
        return ceil_div(self.last_chip_layers, self.layers)

    @property
    def total(self) -> Any:
        """Number of regions of all chips together."""
        return (self.chips - 1) * self.count + self.last_count

    @property
    def last_layers(self) -> Any:
        """Layers of the last region, which has the head besides."""
        return maximum(self.last_chip_layers - (self.last_count - 1) * self.layers, 0.0)


HOST_OPERATORS = ("embedding",)
"""Parts that are not on the chip: a look-up that the host makes."""

FUSED_NAMES = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("q_down", "q_up", "kv_down", "compress", "index_compress"), "qkv_down"),
    **dict.fromkeys(("index_q", "index_k", "index_weights"), "index_in"),
    **dict.fromkeys(("state_qk", "state_v", "state_decay", "decay_down", "decay_up", "gate_down", "gate_up"), "state_in"),
    **{f"{kind}{side}": f"{kind}gate_up" for kind in ("", "experts_", "shared_") for side in ("gate", "up")},
}
"""Products of one vector that are one product in decode, so that they share an allreduce, and its name."""

FUNCTIONS = {"rope": "rotate", "activation": "gate", "tanh": "cap"}
"""Vector instructions of operators on elements, by the end of their names; norms are kernels of their own."""


def make_region(plan: RegionPlan, rows: Any, cols: Any, layers: Any, chips: Any = 1.0) -> Region:
    """Regions of a phase that share `layers` layers evenly, on `chips` chips of `rows` x `cols` cores."""
    mesh = core_mesh(plan)
    chip_layers = ceil_div(layers, chips)
    room = maximum(rows // mesh.rows, 1) * maximum(cols // mesh.cols, 1)
    count = minimum(where(plan.regions == 0, room, plan.regions * 1.0), chip_layers)
    share = ceil_div(chip_layers, count)
    return Region(mesh, ceil_div(chip_layers, share), share, layers, ceil_div(layers, chip_layers), chip_layers)


def core_mesh(plan: RegionPlan | MeshProductPlan) -> CoreMesh:
    """Cores of one region or product, as a mesh."""
    return CoreMesh(plan.rows, where(plan.cols == 0, plan.rows, plan.cols))


def region_blocks(model: Model, at: StepCounts, place: Region, mapping: Mapping, generated: Any = 0.0) -> tuple[CallBlock, ...]:
    """Calls of one prompt, or of one token of each request, by segment of a layer.

    They include the transfer between regions and the head.

    Args:
        model, at: model, and token counts of the step.
        place, mapping: where, and how.
        generated: of the tokens that each request has cached.
    """
    vectors = at.phase == "decode"
    context = RegionContext(model, place.mesh, mapping.decode if vectors else mapping.prefill, mapping, vectors, generated)
    *parts, head = [part for part in transformer_segments(model, at) if part.name not in HOST_OPERATORS]
    h = MatrixDim(model.hidden)
    shape = GemmShape(at.tokens, h.units, 1)
    way = kernel_call(
        MeshKernel("region", "to the next region", "move", "transfer", shape, context.mesh_over(h), context.is_same_layout)
    )
    return (
        *(_block(part.name, _calls(part, context._replace(model=part.of or model)), float(part.times)) for part in parts),
        _block("region", [way], (place.total - 1) * layer_scale(model, mapping.simulated_layers)),
        _block("head", _calls(head, context._replace(vectors=True)), 1.0),  # only the last token of a prompt gets a successor
    )


def _block(name: str, calls: list[KernelCall], times: Any) -> CallBlock:
    return CallBlock(name, tuple(calls), equal_call_index(tuple(calls)), tuple(range(len(calls))), times)


def _calls(part: Segment, context: RegionContext) -> list[KernelCall]:
    """Operators of a part in turn, those that decode folds together; at the end of a layer's part the residual sum."""
    each = next(
        (operator.m / operator.copies for operator in part.operators if isinstance(operator, MatMulOp) and operator.stored > 1),
        None,
    )
    ring = {"gemm": gemm_algorithm(context.plan, _half(part))}
    calls: list[KernelCall] = []
    folded: dict[str, list[Any]] = {}
    for operator in part.operators:
        folded.setdefault(_name(operator, context), []).append(operator)
    for name, (given_operator, *others) in folded.items():
        if isinstance(given_operator, AttentionOp):
            calls += (
                decode_attention_calls(part, given_operator, context)
                if context.vectors
                else prefill_attention_calls(part, given_operator, context, ring)
            )
        elif isinstance(given_operator, RecurrenceOp):
            calls += recurrence_calls(part, given_operator, context, ring)
        elif isinstance(given_operator, IndexerOp):
            calls += indexer_calls(part, given_operator, context, ring)
        elif isinstance(given_operator, ElementwiseOp):
            calls += _vector(part, given_operator, context)
        elif given_operator.apart > 1:
            calls += per_head_product_calls(part, given_operator, context, ring)
        else:
            calls += _product(part, name, (given_operator, *others), context, each)
    if part.name != "head":
        h, first = context.model.hidden, part.operators[0].name
        total = first.replace("norm", "sum") if first.endswith("norm") else f"{part.kind}_sum"
        calls.append(
            elementwise_call(
                part.name, total, "add", GemmShape(part.rows, h, 1), context.mesh_over(MatrixDim(h)), same=context.vectors
            )
        )
    return calls


def _name(operator: Operator, context: RegionContext) -> str:
    """Of the call that does an operator; those of projections of the residual stream have no second one before them."""
    inner = (
        isinstance(operator, MatMulOp)
        and FUSED_NAMES.get(operator.name) in ("qkv_down", "index_in", "state_in")
        and operator.k != MatrixDim(context.model.hidden)
    )
    return operator.name if inner or not context.vectors else FUSED_NAMES.get(operator.name, operator.name)


def _half(part: Segment) -> str:
    """Which algorithm of products a part has its own."""
    return "attention" if part.kind == MIXING else "ffn"


def _product(part: Segment, name: str, together: tuple[Any, ...], context: RegionContext, each: Any) -> list[KernelCall]:
    """Products of the same activations; those of experts, of `each` rows, take turns between tokens' way to them and back."""
    operator, k = together[0], together[0].k
    m, times = (operator.m, ONCE) if operator.stored <= 1 else (each, operator.copies)
    shape = GemmShape(m, dim_width(k), sum(dim_width(context.columns(operator)) for operator in together))
    how: tuple[Any, ...] = ("gemm", gemm_algorithm(context.plan, _half(part)), shape, context.mesh, {})
    if context.vectors:
        how = ("gemv", context.plan.gemv, shape, context.mesh_over(k), context.tree)
    flop = sum(useful_flop(operator) for operator in together)
    repeated = operator.m * (2.0 * dim_width(k) * sum(dim_width(context.columns(operator)) for operator in together)) - flop
    stored = sum(dim_width(product_columns(operator, context.model, context.mapping.kv_heads)) for operator in together)
    word = weight_format(part, operator, context.precision)
    weights = dim_width(k) * stored * times * BYTES_BY_FORMAT[word]
    kernel, names = MeshKernel(part.name, name, *how)._replace(times=times), tuple(operator.name for operator in together)
    made = product_with_dequantize(word, (stored, dim_width(k)), kernel_call(kernel, names, flop, weights, repeated=repeated))
    if operator.stored > 1:
        ways = {"experts_down": "combine", "experts_gate" if context.model.gated_ffn else "experts_up": "dispatch"}
        outer = (k if operator.name != "experts_down" else operator.n).units
        moved = MeshKernel(
            part.name,
            ways.get(operator.name, ""),
            "move",
            "dispatch",
            GemmShape(operator.m, outer, 1),
            context.mesh_over(MatrixDim(1)).transposed_mesh,
            {},
        )
        return [kernel_call(moved), *made] if moved.name == "dispatch" else [*made, kernel_call(moved)] if moved.name else made
    back = [operator for operator in together if context.vectors and _returns(part, operator)]
    return [
        *made,
        *(columns_to_rows_call(part.name, f"{operator.name}_turn", dim_width(operator.n), m, context) for operator in back),
    ]


def _returns(part: Segment, operator: MatMulOp) -> bool:
    """Whether what a product of vectors leaves over the columns is wanted over the rows, by another one or the residual sum."""
    if operator.k.split or operator.n.split or operator.name == "router":
        return False
    after = [
        single_operator
        for single_operator in part.operators
        if isinstance(single_operator, MatMulOp) and operator.name in single_operator.needs
    ]
    return any(single_operator.k == operator.n for single_operator in after) or operator.name in ("latent_up", "mtp_proj")


def _vector(part: Segment, operator: ElementwiseOp, context: RegionContext) -> list[KernelCall]:
    """Norms, activations, and rotations of queries and keys, after norms of each head on the columns that hold it."""
    kind, k, head_norms = operator.name.split("_")[-1], dim_width(operator.dim), []
    state = context.model.recurrence
    if kind == "conv" and state is not None:
        return convolution_calls(part, operator, context, state.conv)
    if operator.name == "state_norm":
        return [_head_norm(part, operator.name, operator.dim, operator.rows, context, (operator.name,))]
    if kind == "rope" or operator.name == "heads_norm":
        products = [
            single_operator
            for single_operator in part.operators
            if isinstance(single_operator, MatMulOp) and single_operator.name in operator.needs
        ]
        normed = [
            (product.name.replace("proj", "norm"), context.columns(product)) for product in products if context.model.qk_norm
        ]
        head_norms = [_head_norm(part, name, dim, operator.rows, context) for name, dim in normed]
        if kind == "norm":
            return [*head_norms[:-1], head_norms[-1]._replace(operators=(operator.name,))]
        k = _turned(operator, context, sum(dim_width(context.columns(product)) for product in products))
    algorithm, options = (
        ("norm", context.line) if kind == "norm" else ("elementwise", {"function": FUNCTIONS[kind], **context.is_same_layout})
    )
    kernel = MeshKernel(
        part.name, operator.name, "vector", algorithm, GemmShape(operator.rows, k, 1), context.mesh_over(operator.dim), options
    )
    return [*head_norms, kernel_call(kernel, (operator.name,))]


def _turned(operator: ElementwiseOp, context: RegionContext, columns: Any) -> Any:
    """Columns of queries and keys that are rotated: a share of each head, or of latent attention what is there for that."""
    if context.model.latent is not None:
        return (operator.dim.units + 1) * operator.dim.width
    return columns * operator.rotated_columns // context.model.head_dim


def _head_norm(
    part: Segment, name: str, heads: MatrixDim, rows: Any, context: RegionContext, operators: tuple[str, ...] = ()
) -> KernelCall:
    """Norms of each head by itself, on the columns that hold it."""
    head = head_columns(heads, context.mesh.cols)
    shape, on_head = GemmShape(rows * head.turns, head.width, 1), CoreMesh(head.cols, context.mesh.rows)
    return kernel_call(
        MeshKernel(part.name, name, "vector", "norm", shape, on_head, context.line, ONCE, head.copies), operators
    )


def layer_scale(model: Model, resident_layers: Any) -> Any:
    """Factor from the layers on the chip to all layers of the model, if some stand for all. [-]"""
    return where(resident_layers == 0, 1.0, model.layers / maximum(resident_layers, 1.0))
