"""Pipelines of groups of cores on a mesh: layers in stages, operators divided over a group's cores.

Calls are those of one group; a pass goes through all stages. Leaves broadcast over entries of a workload and over designs.
"""

from typing import Any

import numpy as np

from dse.evaluators.calls.call import (
    CallBlock,
    CallProduct,
    CoreGroupSplit,
    GroupExchange,
    KernelCall,
    chain_blocks,
    equal_call_index,
)
from dse.evaluators.graph.expert_loads import busiest_core_load
from dse.evaluators.graph.operators import (
    AttentionOp,
    ElementwiseOp,
    IndexerOp,
    MatMulOp,
    Operator,
    RecurrenceOp,
    Segment,
    dim_width,
    recurrence_shapes,
    refuse_selective,
    repeated_flop,
    useful_flop,
)
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.token_mixing import DECODES
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.partition import find_partition
from dse.evaluators.kernels.partition.group_placement import group_sides_by_design, ring_grid
from dse.evaluators.layouts.group_attention import GroupChip, group_attention_jobs
from dse.evaluators.layouts.operator_partitions import (
    PRODUCTS,
    gather_call,
    gather_exchange,
    offered_partitions,
    uniform_partition,
)
from dse.evaluators.layouts.residency import heads_per_core
from dse.evaluators.layouts.tensor_formats import (
    dequantize_operations,
    dequantize_operations_per_value,
    index_format,
    weight_bytes,
    weight_format,
)
from dse.evaluators.layouts.tensor_parallel import CAP_OPERATIONS, CHOICE, RECTIFIED, SOFTMAX_OPERATIONS
from dse.space.array_math import ceil_div, maximum, minimum
from dse.space.chip import Chip
from dse.space.errors import DesignError
from dse.space.limits import IncompatibleOptionsError
from dse.space.mapping import AUTO, BYTES_BY_FORMAT, PARTITIONS, FormatPlan, PipelinePlan
from dse.space.model import Model
from dse.space.parameter_counts import STATE_BYTES

BLOCK_TOKENS = 16
"""Tokens of the KV cache that are side by side in memory."""


def group_count(chip: Chip, plan: PipelinePlan) -> Any:
    """Number of groups of cores that fit on the chip. [-]"""
    rows, cols = group_sides_by_design(plan.placement, plan.tp)
    return (chip.mesh.rows // rows) * (chip.mesh.cols // cols)


def group_blocks(
    model: Model,
    at: StepCounts,
    plan: PipelinePlan,
    precision: FormatPlan,
    attending: tuple[StepCounts, ...] = (),
    chip: GroupChip | None = None,
    *,
    apart: bool = False,
) -> tuple[CallBlock, ...]:
    """Calls of the segments of a step on a group of cores.

    Args:
        model, at: model, and token counts of the step.
        plan, precision: how it is divided.
        attending: steps that share the pass, such as prompts and decodes, where attention is each one's own.
        chip: the group, where attention is of all its cores at a time.
        apart: whether what operators bring to all cores for one another is left out.

    Raises:
        ClashError: sums that nothing adds up so, or a product of a mesh on a group that is none.
        DesignError: sums by a tree of a depth that is missing.
    """
    if plan.allreduce is not None:
        _refuse_sums(plan)
    if plan.partition not in offered_partitions(plan):
        raise IncompatibleOptionsError(
            f"mapping.both.partition: {plan.partition} needs a group that is a mesh, got placement={plan.placement}; set "
            f"mapping.both.placement=mesh, or a partition of {', '.join(PARTITIONS)}",
            "partition", "placement",
        )  # fmt: skip
    parts, size = transformer_segments(model, at), float(BYTES_BY_FORMAT[precision.activations])
    # where products need no blocks, what one partition leaves it finds
    left = None if apart or PRODUCTS[plan.partition][0] != "block" else uniform_partition(parts, plan.partition, plan)
    blocks = []
    for part in parts:
        near = tuple(request.at_reach(part.reach) for request in attending or (at,))
        made, twins = list[KernelCall](), dict[Any, KernelCall]()
        for operator in part.operators:
            same = _of_product(part, operator, precision)
            twin = None if same is None else twins.get(same)
            if twin is None:
                made += _calls(part.of or model, part, operator, plan, precision, near, chip)
            else:  # numbers of many designs are alike where they are the very same
                made.append(twin._replace(name=operator.name, needs=operator.needs, operators=(operator.name,)))
            if same is not None:
                twins[same] = made[-1]
            name = part.name, operator.name
            if left is not None and left.gathered[name]:
                made.append(gather_call(made[-1], gather_exchange(part, operator, plan, size, left.cuts[name])))
        calls = tuple(made)
        blocks.append(CallBlock(part.name, calls, equal_call_index(calls), tuple(range(len(calls))), float(part.times)))
    return tuple(blocks) if plan.prefetch is None else chain_blocks(blocks, segment_order(model, at), plan.pp)


def _of_product(part: Segment, operator: Operator, precision: FormatPlan) -> Any:
    """Properties of a product besides its name, equal for equal products; None for other operators."""
    if not isinstance(operator, MatMulOp) or operator.stored > 1:
        return None
    sizes = (id(size) if isinstance(size, np.ndarray) else size for size in (operator.m, operator.copies))
    return *sizes, operator.k, operator.n, operator.apart, weight_format(part, operator, precision)


def _calls(
    model: Model,
    part: Segment,
    operator: Operator,
    plan: PipelinePlan,
    precision: FormatPlan,
    attending: tuple[StepCounts, ...],
    chip: GroupChip | None,
) -> list[KernelCall]:
    if isinstance(operator, AttentionOp):
        if any(
            operator.name == DECODES for operator in part.operators
        ):  # latents, whose prompts and decodes are operators of their own
            attending = tuple(at for at in attending if (at.phase == "decode") == (operator.name == DECODES))
        if chip is None:
            *others, last = (_attention(model, part, operator, plan, precision, at) for at in attending)
        else:
            *others, last = (_on_group(model, part, operator, plan, precision, at, chip) for at in attending)
        return [*others, last._replace(operators=(operator.name,))]
    if isinstance(operator, RecurrenceOp):
        return [_recur(part, operator, plan, precision)]
    if isinstance(operator, IndexerOp):
        return [_index(part, operator, plan, precision)]
    if not isinstance(operator, MatMulOp):
        return [_elementwise(part, operator, plan)]
    if operator.stored > 1 and plan.experts == "whole":
        return [_experts(model, part, operator, plan, precision)]
    return [_product(part, operator, plan, precision)]


def _elementwise(part: Segment, operator: ElementwiseOp, plan: PipelinePlan) -> KernelCall:
    operations = operator.rows * dim_width(operator.dim) * float(operator.operations)
    shape = (operator.rows, 1, dim_width(operator.dim))
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, shape,
        operations=operations / plan.tp, elements=operations, operators=(operator.name,),
    )  # fmt: skip


def _product(part: Segment, operator: MatMulOp, plan: PipelinePlan, precision: FormatPlan) -> KernelCall:
    k, n, copies = dim_width(operator.k), dim_width(operator.n), operator.copies
    act = float(BYTES_BY_FORMAT[precision.activations])
    product = CallProduct(copies, operator.m / maximum(copies, 1e-9), k, n)
    # everyone has all weights where only the input is divided
    weights = copies * k * n * (plan.tp if plan.partition == "input_only" else 1.0)
    nbytes, made = (
        weights * weight_bytes(part, operator, precision),
        dequantize_operations_per_value(weight_format(part, operator, precision)),
    )
    way = find_partition(plan.partition)
    moved = (
        way.values_sent(product, *ring_grid(plan.placement, plan.tp, divided=way.IS_TWO_DIMENSIONAL)) * plan.tp * copies * act
    )
    macs = operator.m * k * n
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.m, k, n), (product,),
        group=_group(plan), width=act, operations=dequantize_operations(made, weights / plan.tp), elements=made * weights,
        reads="weights", fetch=nbytes / plan.tp, piece=nbytes / plan.tp / maximum(copies, 1e-9),
        flop=useful_flop(operator), nbytes=nbytes, macs=macs, sent=moved, repeated=repeated_flop(operator),
        operators=(operator.name,),
    )  # fmt: skip


def _group(plan: PipelinePlan) -> CoreGroupSplit:
    if plan.partition != "k" or plan.allreduce is None or plan.allreduce.algorithm == "ring":
        return CoreGroupSplit(plan.partition, plan.placement, plan.tp)
    phases = plan.allreduce.ktree_k if plan.allreduce.algorithm in ("ktree", AUTO) else 1
    return CoreGroupSplit(plan.partition, plan.placement, plan.tp, plan.allreduce.algorithm, phases)


RING_REDUCTIONS = ("ring", "overlapped_ring")
"""Sums that go around a ring, of products of which there is no whole group's sum too."""


def _refuse_sums(plan: PipelinePlan) -> None:
    """Refuse sums that a plan's partition or experts do not support."""
    sums = plan.allreduce
    if plan.partition != "k" and sums.algorithm not in RING_REDUCTIONS:  # which is what there is where nothing is said
        raise IncompatibleOptionsError(
            f"mapping.both.allreduce: partition {plan.partition} has no sums over a whole group; remove sums, or set "
            "partition=k",
            "partition", "algorithm",
        )  # fmt: skip
    if plan.experts == "whole" and sums.algorithm not in (*RING_REDUCTIONS, AUTO):
        raise IncompatibleOptionsError(
            f"mapping.both.allreduce.algorithm: experts=whole supports {' and '.join(RING_REDUCTIONS)} only, "
            f"got {sums.algorithm}; set one of these, or experts=divided",
            "experts", "algorithm",
        )  # fmt: skip
    if sums.algorithm in ("ktree", AUTO) and sums.ktree_k is None:
        raise DesignError(
            "mapping.both.allreduce.ktree_k: missing, the K-tree needs a number of phases; set mapping.both.allreduce.ktree_k=2"
        )


def _experts(model: Model, part: Segment, operator: MatMulOp, plan: PipelinePlan, precision: FormatPlan) -> KernelCall:
    """A product of experts that are each on one core, as long as on the core that has most rows.

    Where rows are divided, all cores get all rows before the first product, and only their own back after the last; where the
    inner dimension is, all have them, and sum the outputs. Both go around the ring, slice by slice.
    """
    act = float(BYTES_BY_FORMAT[precision.activations])
    k, n, cores = dim_width(operator.k), dim_width(operator.n), plan.tp
    assert model.experts is not None
    rows, copies = busiest_core_load(model.experts, part.rows, cores)
    each, made = (
        k * n * weight_bytes(part, operator, precision),
        dequantize_operations_per_value(weight_format(part, operator, precision)),
    )
    last, inner = operator.k.split, plan.partition == "k"
    first = operator.name == ("experts_gate" if model.gated_ffn else "experts_up")
    times = last * (1 + inner) + (not inner) * first
    slice_ = ceil_div(part.rows, 1.0 if inner else cores) * ceil_div(n if last else k, cores if inner else 1.0) * act
    flop = 2.0 * operator.m * k * n
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.m, k, n),
        (CallProduct(copies, rows / maximum(copies, 1e-9), k, n),),
        width=act, operations=dequantize_operations(made, copies * (k * n)), elements=made * operator.copies * (k * n),
        reads="weights", fetch=copies * each, piece=each,
        exchange=GroupExchange(times * (part.rows > 0), plan.placement, cores, slice_),
        flop=flop, nbytes=operator.copies * each, macs=flop / 2, sent=times * (cores - 1) * slice_ * cores,
        operators=(operator.name,),
    )  # fmt: skip


def _attention(
    model: Model, part: Segment, operator: AttentionOp, plan: PipelinePlan, precision: FormatPlan, at: StepCounts
) -> KernelCall:
    heads, rows = heads_per_core(model, plan)
    requests, context = at.requests, at.pairs / maximum(at.tokens, 1.0)
    queries = ceil_div(at.tokens / maximum(requests, 1.0), rows) if at.phase == "prefill" else 1.0
    current_requests = requests if at.phase == "prefill" else ceil_div(requests, rows)
    group = operator.heads.units / operator.kv_heads.units
    together = maximum(heads / group, 1.0) * current_requests
    products = (
        CallProduct(together, group * queries, operator.qk_dim, context),
        CallProduct(together, group * queries, context, operator.v_dim),
    )
    count = together * group * queries * context
    values = operator.cached_values(operator.kv_heads.units)
    kv, each = values * BYTES_BY_FORMAT[precision.kv], 1 if operator.latent else operator.kv_heads.units
    # the cache is read, and what is new is written
    nbytes = (at.positions + at.tokens) * kv
    share = maximum(each / plan.tp, 1.0) / each if plan.partition == "k" else 1.0 / plan.tp
    pairs = at.pairs * operator.heads.units
    made = dequantize_operations_per_value(precision.kv) * at.positions * values
    flop = pairs * 2.0 * (operator.qk_dim + operator.v_dim)
    exchange, sent = None, 0.0
    if plan.partition != "k" and at.phase == "prefill":
        # rows are divided, and every row attends to all keys and values, those of the cache as well
        slice_ = ceil_div(at.tokens + at.positions, rows) * _around(operator, precision)
        exchange = GroupExchange(minimum(requests, 1.0), plan.placement, plan.tp, slice_, attended=True)
        sent = exchange.times * (plan.tp - 1) * slice_ * plan.tp
    return KernelCall(
        part.name,
        operator.name,
        operator.needs,
        part.rows,
        (at.tokens, at.pairs, operator.heads.units),
        products,
        width=float(BYTES_BY_FORMAT[precision.activations]),
        specials=count,
        operations=count * (SOFTMAX_OPERATIONS + CAP_OPERATIONS * operator.capped) + made * share,
        reads="kv",
        fetch=nbytes * share,
        piece=(operator.together if operator.picked else BLOCK_TOKENS) * share * kv,
        exchange=exchange,
        flop=flop,
        nbytes=nbytes,
        macs=flop / 2,
        elements=pairs * (SOFTMAX_OPERATIONS + CAP_OPERATIONS * operator.capped) + made,
        sent=sent,
        known=at.positions / maximum(at.positions + at.tokens, 1.0),
        wrote=minimum(at.tokens / maximum(requests, 1.0), float(BLOCK_TOKENS)) * share * kv,
    )


def _around(operator: AttentionOp, precision: FormatPlan) -> float:
    """Bytes of a position that goes around cores whose rows are divided: as cached, or keys and values made of a latent. [B]"""
    made, cached = operator.position_values(operator.kv_heads.units), operator.cached_values(operator.kv_heads.units)
    return float(made * BYTES_BY_FORMAT[precision.activations] if made > cached else cached * BYTES_BY_FORMAT[precision.kv])


def _recur(part: Segment, operator: RecurrenceOp, plan: PipelinePlan, precision: FormatPlan) -> KernelCall:
    """States of the heads of a core, or, where rows are divided, of the sequences of a core; read and written once."""
    refuse_selective(operator)
    heads = ceil_div(operator.heads.units, plan.tp) if plan.partition == "k" else operator.heads.units
    rows = 1.0 if plan.partition == "k" else plan.tp
    each = ceil_div(operator.tokens, rows) * heads / operator.chunk
    sizes = recurrence_shapes(operator)
    fetch = (operator.sequences + operator.resumed) * operator.heads.units * (STATE_BYTES * operator.state)
    elements = operator.tokens * operator.heads.units * float(operator.state) / (1 if operator.chunk == 1 else operator.chunk)
    flop = useful_flop(operator)
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.tokens, operator.key_dim, operator.value_dim),
        tuple(CallProduct(each, m, k, n) for m, k, n in sizes),
        width=float(BYTES_BY_FORMAT[precision.activations]), operations=elements / plan.tp,
        reads="kv" if plan.state_share is None else "states", fetch=fetch / plan.tp, piece=STATE_BYTES * operator.state,
        flop=flop, nbytes=fetch, macs=flop / 2, elements=elements, operators=(operator.name,),
    )  # fmt: skip


def _index(part: Segment, operator: IndexerOp, plan: PipelinePlan, precision: FormatPlan) -> KernelCall:
    """Scores of an indexer, of the queries of a core each; all have all keys, and tell the others what they picked."""
    act, name = float(BYTES_BY_FORMAT[precision.activations]), index_format(precision)
    kv = BYTES_BY_FORMAT[name]
    rows = ceil_div(operator.tokens, plan.tp)
    share = rows / maximum(operator.tokens, 1e-9)
    context = operator.pairs / maximum(operator.tokens, 1e-9)
    scores = operator.pairs * float(operator.heads)
    elements = (
        scores * RECTIFIED
        + operator.pairs * CHOICE
        + dequantize_operations_per_value(name) * operator.positions * float(operator.dim)
    )
    fetch = operator.positions * float(operator.dim * kv)
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.tokens, operator.pairs, operator.heads),
        (CallProduct(rows, operator.heads, operator.dim, context),),
        width=act, operations=elements * share, reads="kv", fetch=fetch * minimum(share * 1.0, 1.0),
        piece=BLOCK_TOKENS * float(operator.dim * kv), flop=scores * (2.0 * operator.dim), nbytes=fetch,
        macs=scores * float(operator.dim),
        elements=elements, operators=(operator.name,),
    )  # fmt: skip


def _on_group(
    model: Model,
    part: Segment,
    operator: AttentionOp,
    plan: PipelinePlan,
    precision: FormatPlan,
    at: StepCounts,
    chip: GroupChip,
) -> KernelCall:
    """Attention on all cores of the group; keys and values of the step are written to memory first, by all of them, beside a
    latent that they are made of.
    """
    made, cached = operator.position_values(operator.kv_heads.units), operator.cached_values(operator.kv_heads.units)
    each = float((made + cached if made > cached else cached) * BYTES_BY_FORMAT[precision.kv])
    written = at.tokens * each
    flop = at.pairs * operator.heads.units * 2.0 * (operator.qk_dim + operator.v_dim)
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (at.tokens, at.pairs, operator.heads.units),
        reads="kv", fetch=written / plan.tp, piece=BLOCK_TOKENS * each,
        job=group_attention_jobs(model, operator, at, plan, chip), flop=flop, nbytes=written, known=0.0,
        wrote=minimum(at.tokens / maximum(at.requests, 1.0), float(BLOCK_TOKENS)) * each,
    )  # fmt: skip
