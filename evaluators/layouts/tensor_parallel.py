"""Tensor parallelism over devices: the share of each operator on one device, and the allreduces.

Heads and FFN columns are divided, the last device's share padded to the others'; a device never holds less than one whole
KV head, so these are replicated when there are fewer than devices; where they do not divide, a plan may say that each holds as
many as all can have (`space.mapping.UNEVEN_KV_HEADS`). Partial sums arise where a product contracts over a divided dimension;
the part that has one ends in an allreduce (Megatron-LM, [shoeybi2019] section 3).
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from math import inf
from typing import Any

from dse.evaluators.calls.call import (
    ACTIVATIONS,
    NOTHING,
    ONCE,
    CallBlock,
    CallProduct,
    KernelCall,
    LeadingCollective,
    equal_call_index,
    sort_breadth_first,
)
from dse.evaluators.graph.operators import (
    FEEDING,
    AttentionOp,
    ElementwiseOp,
    IndexerOp,
    MatMulOp,
    MatrixDim,
    Operator,
    RecurrenceOp,
    Segment,
    dim_width,
    local_width,
    recurrence_macs,
    repeated_flop,
    useful_flop,
)
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import END_SEGMENTS, transformer_segments
from dse.evaluators.layouts.cache_memory import KeptValues, layer_caches, sum_layer_caches
from dse.evaluators.layouts.engine_overheads import NO_TERMS, StepTerms, with_logits
from dse.evaluators.layouts.library_problems import attention_problem, elementwise_problem, gemm_problem
from dse.evaluators.layouts.live_activations import live_values
from dse.evaluators.layouts.model_weights import embedding_bytes, product_bytes, unquantized_bytes
from dse.evaluators.layouts.tensor_formats import format_product, index_format, value_bytes, weight_format
from dse.evaluators.machine.tiered_reads import ROUTED
from dse.space.array_math import ceil_div, maximum
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan
from dse.space.model import Model
from dse.space.number_formats import FormatRates
from dse.space.parameter_counts import (
    STATE_BYTES,
    convolved_keys,
    kv_values_per_token,
    value_head_dim,
)

SOFTMAX_OPERATIONS = 4.0
"""Vector operations a score: subtract the maximum, exponential, add to the sum, rescale."""

CAP_OPERATIONS = 4.0
"""Further operations where scores have a softcap: scale, exponential, quotient, scale."""

RECTIFIED, CHOICE, SCORE = 3.0, 4.0, 4.0
"""Of an indexer: operations on the score of each head (rectify, weigh, add up), and on each sum for the choice of the best
(four passes of a radix select over 8-bit digits of single precision; assumed), and bytes of such a sum."""


def kv_heads_per_device(dim: MatrixDim, tp: Any, heads: str | None) -> Any:
    """KV heads that one of `tp` devices holds, by an option of `space.mapping.UNEVEN_KV_HEADS`. [-]

    >>> [kv_heads_per_device(MatrixDim(10, 128, split=True), 8, heads) for heads in (None, "round_up", "round_down")]
    [2, 2, 1]
    """
    if not dim.split:
        return dim.units
    return maximum(dim.units // tp, 1) if heads == "round_down" else ceil_div(dim.units, tp)


def device_blocks(
    parts: tuple[Segment, ...], stages: tuple[tuple[str, ...], ...], tp: Any, precision: FormatPlan, algorithm: str, *,
    rates: FormatRates | None = None, recorded: bool = True, heads: str | None = None, phases: Any = None,
    terms: StepTerms = NO_TERMS,
) -> tuple[CallBlock, ...]:  # fmt: skip
    """Calls of the segments on one of `tp` devices, divided at the allreduces between them.

    An allreduce belongs to the block that waits for it, so that what can be prefetched beside it is in one place. The sum that
    ends a pipeline stage has a block without calls: the stage reduces and scatters before its devices send their parts to their
    peers, which gather them. That takes as long as the allreduce, and is charged to the stage that sends ([trtllmflags2025]).
    vLLM reduces to all devices, and gathers once more on the next stage ([vllmpp2025]).

    Args:
        parts: of a step.
        stages: their names, layer after layer, for each pipeline stage.
        tp, precision: devices, and formats.
        algorithm: of the allreduces.
        rates: formats that the engines multiply, where the chip says them.
        recorded: whether a recorded graph of launches holds them; else the host starts each.
        heads: KV heads that do not divide, as of `kv_heads_per_device`.
        phases: of allreduces along a K-tree.
        terms: terms of the stack; requests of the parts are padded already where it says so.
    """
    made: dict[str, CallBlock] = {}
    for part in parts:
        calls = segment_calls(part, tp, precision, rates, heads, terms)
        made[part.name] = CallBlock(part.name, calls, equal_call_index(calls), sort_breadth_first(calls), part.times)
    after: dict[str, tuple[LeadingCollective | None, Any]] = {"": (None, None)}
    sums: dict[tuple[int, Any], LeadingCollective] = {}
    for part in parts:
        columns = _summed(part)
        after[part.name] = None, columns
        if columns is not None:  # layers reduce alike, and what is alike is evaluated once
            nbytes = part.rows * columns * float(BYTES_BY_FORMAT[terms.reduction or precision.activations])
            summed = LeadingCollective(algorithm, tp, nbytes, recorded, phases)
            after[part.name] = sums.setdefault((id(part.rows), columns), summed), columns
    made[STAGE_END] = CallBlock(STAGE_END, (), (), (), 1.0)
    times: dict[tuple[str, bool, Any], int] = {}
    openers: dict[tuple[str, bool, Any], LeadingCollective | None] = {}
    for before, name in (pair for order in stages for pair in pairwise(_with_stage_end(order))):
        opener, columns = after[before]
        if name == STAGE_END and opener is None:
            continue
        key = name, before in ("", EMBEDDING) and name not in (EMBEDDING, STAGE_END), columns
        times[key] = times.get(key, 0) + 1
        openers.setdefault(key, opener)
    return tuple(
        made[name]._replace(name=f"first {name}" * first or name, times=times[name, first, width], opener=opener)
        for (name, first, width), opener in openers.items()
    )


EMBEDDING, HEAD = END_SEGMENTS

STAGE_END = "end of stage"
"""Name of the block with the sum that ends a pipeline stage, before its message to the next one."""


def _with_stage_end(order: tuple[str, ...]) -> tuple[str, ...]:
    """Segments of a pipeline stage, with what is before the first one, and its end where another stage follows."""
    return ("", *order) if order[-1] == HEAD else ("", *order, STAGE_END)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes that one device holds, by use; leaves broadcast over designs. [B]

    Attributes:
        weights, kv, activations: of the whole model.
        attention_layer: weights and KV cache of one attention layer.
        ffn_layer: weights of the largest FFN or MoE layer.
        reserved: what an inference engine keeps for itself; 0 without one.
        experts: of `weights`, those of routed experts.
    """

    weights: Any
    kv: Any
    activations: Any
    attention_layer: Any
    ffn_layer: Any
    reserved: Any = 0.0
    experts: Any = 0.0

    @property
    def total(self) -> Any:
        """Bytes that must fit in main memory. [B]"""
        return self.weights + self.kv + self.activations + self.reserved


def device_memory(
    parts: tuple[Segment, ...],
    model: Model,
    tp: Any,
    precision: FormatPlan,
    *,
    cached: Any,
    sequences: Any,
    tokens: Any,
    heads: str | None = None,
    stage: tuple[str, ...] | None = None,
    together: Any = None,
) -> DeviceMemory:
    """Memory of one device: its share of weights, caches and states, and activations of `tokens`. [B]

    The embedding table is divided by rows like the head; a tied table is stored once. Activations are the most that is alive at
    once. A batch has those of one prompt at a time, which is what the batches of [yuzuguler2025] have room for. Served requests
    have those of the largest iteration.

    Args:
        parts, model, tp, precision: of a step, and how it is divided.
        cached: positions that caches of each reach of the model have of all sequences (`space.layers.by_reach`).
        sequences: that have states.
        tokens: of the longest prompt, or of the largest iteration.
        heads: KV heads that do not divide, as of `kv_heads_per_device`.
        stage: names of the segments of the device's pipeline stage; None for all of them. A first stage without the head
            has a table of its own where this is tied.
        together: sequences whose next tokens are computed together; None for `sequences`.
    """
    layer = {
        part.name: product_bytes(part, precision, lambda operator: _stored(operator, tp, heads))
        + unquantized_bytes(part, model, precision, tp)
        for part in parts
    }
    # with modules that predict tokens, which have caches of their own
    times = {part.name: part.times if stage is None else stage.count(part.name) for part in parts}
    weights = sum(layer[part.name] * times[part.name] for part in parts)
    if times[EMBEDDING]:
        weights = weights + embedding_bytes(model, precision, tp)
        if model.tied_embeddings and not times[HEAD]:
            weights = weights + next(_table_bytes(part, precision, tp) for part in parts if part.name == HEAD)
    experts = sum(times[part.name] * _expert_bytes(part, precision, tp) for part in parts)
    caches = layer_caches(
        model, value_bytes(precision), cached, sequences, lambda memory: device_values(memory.layer.of, tp, heads)
    )
    kv, most, ffn = sum(sum_layer_caches(caches, lambda kind: times[kind.name])), 0.0, 0.0
    for cache in caches:
        most = maximum(most, layer[cache.layer.name] + cache.nbytes)
    for part in parts:
        if part.kind == FEEDING:
            ffn = maximum(ffn, layer[part.name])
    most_alive = tokens * _live(model, tp, ends=False)
    if times[HEAD]:
        most_alive = maximum(most_alive, (sequences if together is None else together) * _live(model, tp, ends=True))
    activations = most_alive * float(BYTES_BY_FORMAT[precision.activations])
    return DeviceMemory(weights, kv, activations, most, ffn, experts=experts)


def _expert_bytes(part: Segment, precision: FormatPlan, tp: Any) -> Any:
    """Bytes of the weights of a segment's routed experts on a device; 0 where it has none. [B]"""
    if not any(operator.name in ROUTED for operator in part.operators):
        return 0.0
    return product_bytes(part, precision, lambda operator: _stored(operator, tp) if operator.name in ROUTED else 0.0)


def _table_bytes(head: Segment, precision: FormatPlan, tp: Any) -> Any:
    """Bytes of a device's rows of the table of tokens, which a tied head multiplies by. [B]"""
    return product_bytes(head, precision, lambda operator: _stored(operator, tp))


def _live(model: Model, tp: Any, *, ends: bool) -> Any:
    """Most values of a token that are alive at once on a device, in layers, or in the head."""
    parts = (part for part in _prompt_segments(model) if (part.name in END_SEGMENTS) == ends)
    return reduce(maximum, (live_values(part, model.hidden, lambda dim: local_width(dim, tp)) for part in parts))


@lru_cache(maxsize=256)
def _prompt_segments(model: Model) -> tuple[Segment, ...]:
    """Segments for a token of a prompt."""
    return transformer_segments(model, StepCounts("prefill", 1.0, 1.0, 1.0, 0.0))


SELECTIVE = 6.0
"""Vector operations on each entry of a state of Mamba-1: the decay and what it is of, what stays and is added, what is read."""


def kv_values_per_device(model: Model, tp: Any, heads: str | None = None) -> Any:
    """Values that one device caches per position of a layer kind. [-]

    Values without heads are on each device. A recurrent layer caches none: it has states (`device_values`).
    """
    if model.recurrence is not None or model.latent is not None or model.compressed is not None or model.kv_reused:
        return kv_values_per_token(model)
    return kv_heads_per_device(MatrixDim(model.kv_heads, 1, True), tp, heads) * (model.head_dim + value_head_dim(model))


def device_values(layer: Model, tp: Any, heads: str | None = None) -> KeptValues:
    """Values that one device keeps of a layer: of a position's cache, and of a sequence's state.

    Heads of keys are on several devices where these are more, as their projection is.
    """
    state = layer.recurrence
    if state is None:
        return KeptValues(kv_values_per_device(layer, tp, heads), 0.0, 0.0)
    own, keys, before = ceil_div(state.heads, tp), ceil_div(state.key_heads, tp), max(state.conv - 1, 0)
    conv = own * (state.value_dim * before) + keys * (2 * convolved_keys(state) * before)
    return KeptValues(0.0, own * (state.key_dim * state.value_dim), conv)


def weights_per_device(part: Segment, tp: Any) -> Any:
    """Weights of one instance of a segment that one device holds. [-]"""
    return sum(_stored(operator, tp) for operator in part.operators if isinstance(operator, MatMulOp))


def _stored(operator: MatMulOp, tp: Any, heads: str | None = None) -> Any:
    return operator.stored * local_width(operator.k, tp) * _columns(operator, tp, heads)


def _columns(operator: MatMulOp, tp: Any, heads: str | None) -> Any:
    """Of a product on one device; those of K and V are its KV heads."""
    return (
        kv_heads_per_device(operator.n, tp, heads) * operator.n.width
        if operator.name in ("k_proj", "v_proj")
        else local_width(operator.n, tp)
    )


def _summed(part: Segment) -> Any:
    """Values of a token to reduce after a part; None where no product contracts over a divided dimension.

    Operators of a graph may have several such sums, which count as one of all their values.
    """
    partial = [operator for operator in part.operators if isinstance(operator, MatMulOp) and operator.k.split]
    if partial and part.of is not None and part.of.operators:
        takers = {
            tuple(other.name for other in part.operators if operator.name in other.needs): dim_width(operator.n)
            for operator in partial
        }
        return sum(takers.values())
    return None if not partial or part.joined else partial[-1].n.units * partial[-1].n.width


def segment_calls(
    part: Segment,
    tp: Any,
    precision: FormatPlan,
    rates: FormatRates | None,
    heads: str | None = None,
    terms: StepTerms = NO_TERMS,
) -> tuple[KernelCall, ...]:
    """Calls of a segment on one of `tp` devices, with what the engine does around experts and logits."""
    calls: list[KernelCall] = []
    for operator in part.operators:
        calls.append(device_call(part, operator, tp, precision, rates, heads, terms))
        if operator.name == LAST_OF_EXPERTS and isinstance(operator, MatMulOp) and terms.row_passes is not None:
            calls.append(_row_passes(part, operator, tp, terms.row_passes))
    return with_logits(part, tuple(calls), tp, terms.logit_bytes)


LAST_OF_EXPERTS = "experts_down"
"""Product of experts whose results are vectors of tokens again."""

EXPERT_ROWS = "expert_rows"
"""Name of the call that permutes, quantises and adds up rows of experts."""

ROW_BYTES = 2.0
"""Bytes of a value in passes over rows of experts: 16 bits, whatever products take. [B]"""


def _row_passes(part: Segment, last: MatMulOp, tp: Any, passes: Any) -> KernelCall:
    """Call that passes over rows of experts in main memory; each device has all rows of its experts."""
    width = local_width(last.n, tp)
    nbytes = last.m * width * (ROW_BYTES * passes)
    return KernelCall(
        part.name, EXPERT_ROWS, (last.name,), part.rows, (last.m, 1, width), reads=ACTIVATIONS, fetch=nbytes, nbytes=nbytes
    )


def device_call(
    part: Segment,
    operator: Operator,
    tp: Any,
    precision: FormatPlan,
    rates: FormatRates | None,
    heads: str | None = None,
    terms: StepTerms = NO_TERMS,
) -> KernelCall:
    """Call of an operator's share on one of `tp` devices."""
    act, name, needs = BYTES_BY_FORMAT[precision.activations], operator.name, operator.needs
    if isinstance(operator, MatMulOp):
        m, k, n = operator.m, local_width(operator.k, tp), _columns(operator, tp, heads)
        stored_as = weight_format(part, operator, precision)
        product = format_product(precision.activations, stored_as, rates)
        pace = product.pace
        if terms.expanded_pace is not None and product.second > 0 and name.startswith("experts_"):
            pace = pace * terms.expanded_pace
        fetch = (operator.copies * BYTES_BY_FORMAT[stored_as]) * (k * n)
        # each value is expanded once, however many rows or columns it meets
        made = (
            product.first * (m * k) + product.second * (operator.copies * (k * n)) if product.first or product.second else None
        )
        flop = useful_flop(operator)
        return KernelCall(
            part.name, name, needs, part.rows, (m, k, n), (CallProduct(ONCE, m, k, n),), width=product.width, pace=pace,
            operations=made, reads="weights", fetch=fetch, local=(m * act) * (k + n), flop=flop, nbytes=fetch,
            macs=m * (k * n), repeated=_repeated(operator, tp, flop), operators=(name,),
            asked=gemm_problem(part, operator, tp, precision, product.pace),
        )  # fmt: skip
    if isinstance(operator, IndexerOp):
        return _index(part, operator, tp, precision, rates)
    if isinstance(operator, RecurrenceOp):
        return _recur(part, operator, tp, precision, rates)
    if isinstance(operator, ElementwiseOp):
        elements = operator.rows * local_width(operator.dim, tp)
        call = KernelCall(
            part.name, name, needs, part.rows, (operator.rows, 1, local_width(operator.dim, tp)),
            operations=elements * float(operator.operations), local=elements * float(operator.passes * act), operators=(name,),
            asked=elementwise_problem(operator, tp, precision),
        )  # fmt: skip
        if terms.intermediate_passes is None or not name.startswith("experts_"):
            return call
        nbytes = elements * (ROW_BYTES * terms.intermediate_passes)
        return call._replace(local=NOTHING, reads=ACTIVATIONS, fetch=nbytes, nbytes=nbytes)
    call = _attention(part, operator, tp, precision, rates, heads)
    # of a latent all heads meet one cached row, as rows of a product do
    return call if terms.attention_pace is None or operator.latent else call._replace(pace=terms.attention_pace)


def _repeated(operator: MatMulOp, tp: Any, flop: Any) -> Any:
    """Operations of a product that several devices do: of columns not divided, and of heads of keys that each holds.

    What is of prompts alone is of heads, all of which are divided; some of it an earlier step has done.
    """
    if operator.alone:
        return repeated_flop(operator)
    if not (operator.k.split or operator.n.split):
        return flop * (tp - 1.0)
    if operator.name not in ("k_proj", "v_proj", "state_qk", "decay_up"):
        return NOTHING
    return flop * maximum(tp / operator.n.units - 1.0, 0.0)


def _attention(
    part: Segment, operator: AttentionOp, tp: Any, precision: FormatPlan, rates: FormatRates | None, held: str | None
) -> KernelCall:
    act, kv = BYTES_BY_FORMAT[precision.activations], BYTES_BY_FORMAT[precision.kv]
    heads = ceil_div(operator.heads.units, tp) if operator.heads.split else operator.heads.units
    kv_heads = kv_heads_per_device(operator.kv_heads, tp, held)
    dims = operator.qk_dim + operator.v_dim
    scores = operator.pairs * heads
    cached = operator.positions * operator.cached_values(kv_heads)
    fetch = cached * kv
    piece, stride = float(operator.layout_dim * kv), (1.0 if operator.latent else kv_heads) * float(operator.layout_dim * kv)
    if operator.picked:  # what is picked lies anywhere: a row with all its heads, or as many as are picked together
        piece, stride = operator.together * kv_heads * float(operator.kv_dim * kv), inf
    met = format_product(precision.activations, precision.kv, rates)
    made = met.first * (operator.tokens * (heads * operator.qk_dim)) + met.second * cached if met.first or met.second else 0.0
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.tokens, operator.pairs, heads),
        # cores of a pool are evaluated by operations alone, so that scores and values are one product a pair
        (CallProduct(ONCE, scores, dims, 1.0),),
        width=met.width,
        pace=met.pace,
        operations=scores * (SOFTMAX_OPERATIONS + CAP_OPERATIONS * operator.capped) + made,
        streamed=operator.positions * (heads * float(dims)),
        reads="kv",
        fetch=fetch,
        piece=piece,
        stride=stride,
        local=operator.tokens * (act * (heads * dims + operator.position_values(kv_heads))),
        flop=useful_flop(operator),
        macs=scores * dims,
        nbytes=fetch,
        operators=(operator.name,),
        asked=attention_problem(operator, heads, kv_heads, precision),
    )  # fmt: skip


def _index(part: Segment, operator: IndexerOp, tp: Any, precision: FormatPlan, rates: FormatRates | None) -> KernelCall:
    """Scores of an indexer, which every device has all of, and the choice: one more pass for each digit of a radix select."""
    act, seconds = BYTES_BY_FORMAT[precision.activations], index_format(precision)
    scores = operator.pairs * float(operator.heads)
    fetch = operator.positions * float(operator.dim * BYTES_BY_FORMAT[seconds])
    met = format_product(precision.activations, seconds, rates)
    made = met.first * (operator.tokens * float(operator.heads * operator.dim)) + met.second * (
        operator.positions * float(operator.dim)
    )
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.tokens, operator.pairs, operator.heads),
        (CallProduct(ONCE, scores, float(operator.dim), 1.0),),
        width=met.width, pace=met.pace, operations=scores * RECTIFIED + operator.pairs * CHOICE + made,
        reads="kv", fetch=fetch, local=operator.tokens * (act * float(operator.heads * operator.dim)) + operator.pairs * SCORE,
        flop=scores * (2.0 * operator.dim), macs=scores * operator.dim, repeated=scores * (2.0 * operator.dim) * (tp - 1.0),
        nbytes=fetch,
        operators=(operator.name,),
    )  # fmt: skip


def _recur(part: Segment, operator: RecurrenceOp, tp: Any, precision: FormatPlan, rates: FormatRates | None) -> KernelCall:
    """States are read and written once a step; of a prompt they stay with the cores meanwhile. What meets is activations.

    Decays of each entry leave no products: all is done on vector units, in one kernel that keeps states in registers.
    """
    heads = ceil_div(operator.heads.units, tp)
    each = operator.tokens * (heads * (1.0 / operator.chunk))
    macs = recurrence_macs(operator)
    if operator.rule == "selective":
        fetch = (operator.sequences + operator.resumed) * heads * (STATE_BYTES * operator.state)
        width = operator.tokens * (
            heads * float(3 * operator.value_dim) + 2.0 * operator.key_dim
        )  # what comes in, its steps, what is read
        return KernelCall(
            part.name,
            operator.name,
            operator.needs,
            part.rows,
            (operator.tokens, operator.key_dim, operator.value_dim),
            operations=each * (float(operator.state) * SELECTIVE),
            reads="kv",
            fetch=fetch,
            local=width * float(BYTES_BY_FORMAT[precision.activations]),
            flop=useful_flop(operator),
            nbytes=fetch,
            operators=(operator.name,),
        )
    decays = each * (float(operator.state) * operator.chunk if operator.chunk == 1 else float(operator.state))
    # a prompt starts from nothing
    fetch = (operator.sequences + operator.resumed) * heads * (STATE_BYTES * operator.state)
    act, met = BYTES_BY_FORMAT[precision.activations], format_product(precision.activations, precision.activations, rates)
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, (operator.tokens, operator.key_dim, operator.value_dim),
        (CallProduct(each, macs, 1.0, 1.0),),
        width=met.width, pace=met.pace, operations=decays, reads="kv", fetch=fetch,
        local=operator.tokens * heads * (act * float(2 * operator.key_dim + 2 * operator.value_dim)),
        flop=useful_flop(operator), macs=each * macs, nbytes=fetch, operators=(operator.name,),
    )  # fmt: skip
