"""A model over all tiles of a mesh, one operator after the other ([zhang2026] section III-E).

Products are SUMMA's, attention is FlatAttention's, and the rest is done row by row on the vector engines; every operator takes
its operands from HBM and leaves its result there. A batch is prefilled as a whole, then decoded step by step. Caches are read
in a format of their own; what a step adds to them is written with as many bytes as activations have.
"""

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import CallBlock, KernelCall, chain_blocks, equal_call_index
from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models import cached_operators as through_cache
from dse.evaluators.cost_models import idle_columns, row_pieces
from dse.evaluators.cost_models.analytical_indexer import build_indexer_jobs
from dse.evaluators.cost_models.analytical_recurrent import decode_state_job, prefill_state_job
from dse.evaluators.cost_models.cached_job import CachedJob as ThroughCache
from dse.evaluators.cost_models.cached_operators import NOTHING, CachedShares
from dse.evaluators.cost_models.row_pieces import Pieces
from dse.evaluators.graph.operators import (
    MIXING,
    AttentionOp,
    ElementwiseOp,
    IndexerOp,
    MatMulOp,
    Operator,
    RecurrenceOp,
    Segment,
    common_segment,
    dim_width,
    refuse_selective,
    repeated_flop,
    useful_flop,
)
from dse.evaluators.graph.router_operators import with_router_operators
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.token_mixing import DECODES
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, KvStorage, per_query_attention, queries_of
from dse.evaluators.kernels.gemm.summa_diagonal import WeightStorage
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.vector import row_kernels as streamed
from dse.evaluators.kernels.vector import sparse_indexer as index
from dse.evaluators.kernels.vector.recurrent_decode import RecurrenceShape
from dse.evaluators.kernels.vector.row_kernels import RowKernel
from dse.evaluators.layouts.attention_requests import (
    AttentionRequests,
    RequestsOfReach,
    attention_shape,
    decode_requests,
    equal_prompts,
    no_requests,
)
from dse.evaluators.layouts.cache_memory import resident_state_bytes
from dse.evaluators.layouts.tensor_formats import (
    activation_bytes,
    dequantize_operations_per_value,
    embedding_format,
    index_key_storage,
    kv_storage,
    weight_format,
)
from dse.space.array_math import ceil_div, maximum
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.mapping import BYTES_BY_FORMAT, AttentionPlan, FormatPlan, Mapping, TileGemmPlan, WholeChipPlan
from dse.space.model import Model
from dse.space.workload import BatchCase


def passes_by_phase(
    case: BatchCase,
    chip: Chip,
    mapping: Mapping,
    decode_context: str,
    keep: Dict[str, CachedShares | None] = MappingProxyType({}),
) -> dict[str, list[tuple[float, tuple[CallBlock, ...]]]]:
    """Steps of tokens through all layers by phase, each with its number of repetitions.

    One prefill of all prompts, and the decode steps between two requests' ends. `keep` says what a cache has of each phase.
    """
    activation_bytes(mapping)  # refuses what tiles do not take
    precision, first = mapping.precision, prefill_step(case)
    context = ChipContext(case.model, chip, mapping.prefill, precision, {}, _wrapped(mapping.prefill, keep.get("prefill")))
    prompts = [(1.0, chip_blocks(first, equal_prompts(case), context))]
    kept, (share, stay) = keep.get("decode"), resident_state_shares(case, chip, mapping.decode)
    room = chip if not share else replace_leaves(chip, {"tile.sram": chip.tile.sram * (1 - share)})
    context = ChipContext(case.model, room, mapping.decode, precision, {}, _wrapped(mapping.decode, kept), stay)
    tokens = []
    for count, at in decode_steps(case, decode_context):
        tokens.append((count, chip_blocks(at, decode_requests(at), context)))
    return {"prefill": prompts, "decode": tokens}


def resident_state_shares(case: BatchCase, chip: Chip, plan: "WholeChipPlan | KernelPlan") -> tuple[float, float]:
    """Share of local memory set aside for states, and share of all states that stays there. [-], [-]"""
    share = 0.0 if plan.state_share is None else float(plan.state_share)
    needed = case.batch * resident_state_bytes(case.model)[0]
    if not share or not needed:
        return 0.0, 0.0
    return share, min(share * float(chip.tile.sram * chip.mesh.rows * chip.mesh.cols) / needed, 1.0)


def _wrapped(plan: WholeChipPlan, shares: CachedShares | None) -> CachedShares | None:
    """Cached shares of a phase; a record without shares if jobs have to report prefetchable bytes."""
    return NOTHING if shares is None and has_read_ahead(plan) else shares


def has_read_ahead(plan: "WholeChipPlan | KernelPlan") -> bool:
    """Whether main memory prefetches while it is idle."""
    return plan.prefetch is not None and plan.prefetch.policy != "none"


KEYS_AND_VALUES = ("k_proj", "v_proj", "kv_down")
"""Products whose results later steps read as well."""

LEFT_PASSES = 2
"""Reads and writes of an element by a convolution of tokens that follow one another; earlier steps that are read are more."""

TABLES = ("embedding",)
"""What looks rows of weights up."""


class KernelPlan(NamedTuple):
    """Plan of the kernels that run on all tiles: attention, products, prefetch and states."""

    attention: AttentionPlan
    gemm: TileGemmPlan
    prefetch: None = None
    state_share: None = None


class ChipContext(NamedTuple):
    """Model, chip and plan of a layout over all tiles, with calls that are known already.

    It also has the shares of data in the memory-side cache, and of states in local memories.
    """

    model: Model
    chip: Chip
    plan: WholeChipPlan | KernelPlan
    precision: FormatPlan
    known: dict[Any, Any]
    kept: CachedShares | None = None
    states: float = 0.0

    @property
    def itemsize(self) -> float:
        """Bytes of a value that is no weight. [B]"""
        return BYTES_BY_FORMAT[self.precision.activations]

    @property
    def kv(self) -> KvStorage:
        """Storage of the KV cache: its bytes per value and dequantisation."""
        return kv_storage(self.precision)


def chip_blocks(at: StepCounts, attending: RequestsOfReach, context: ChipContext) -> tuple[CallBlock, ...]:
    """Calls of the operators of a step in sequence, by segment.

    Args:
        at: what is computed.
        attending: its requests, as they attend.
        context: by which model, and where.
    """
    parts = [with_router_operators(context.model, part) for part in transformer_segments(context.model, at)]
    calls = [segment_calls(part, attending if part.kind == MIXING else no_requests, context) for part in parts]
    return chain_blocks(calls, segment_order(context.model, at), 1.0) if has_read_ahead(context.plan) else tuple(calls)


def attention_calls(
    parts: Sequence[Segment], attending: RequestsOfReach, context: ChipContext
) -> list[tuple[float, KernelCall]]:
    """Attention and indexer calls with their repetitions; other calls depend on token counts alone."""
    calls: list[tuple[float, KernelCall]] = []
    for part in parts:
        for operator in part.operators if part.kind == MIXING else ():
            calls += [(float(part.times), call) for call in _of_requests(part, operator, attending, context)]
    return calls


def phase_only_blocks(at: StepCounts, context: ChipContext) -> tuple[CallBlock, ...]:
    """Calls of a step that only prompts or only decodes have besides attention."""
    only_blocks = []
    for part in transformer_segments(context.model, at):
        operators = tuple(operator for operator in part.operators if operator.alone and not isinstance(operator, AttentionOp))
        if operators:
            only_blocks.append(segment_calls(replace(part, operators=operators), _somebody, context))
    return tuple(only_blocks)


def _somebody(reach: int) -> Sequence[AttentionRequests]:
    """Requests of a segment whose attention is not evaluated."""
    return ()


def segment_calls(part: Segment, attend: RequestsOfReach, context: ChipContext) -> CallBlock:
    """Calls of a segment of a model on all tiles, one after the other.

    Without attending requests, operators of prompts alone or of decodes alone are left out.
    """
    calls: list[KernelCall] = []
    for operator in (common_segment(part) if attend is no_requests else part).operators:
        if isinstance(operator, AttentionOp | IndexerOp):
            calls += _in_turn(_of_requests(part, operator, attend, context))
        elif isinstance(operator, RecurrenceOp):
            calls.append(_recur(part, operator, context))
        else:
            calls += [_product(part, operator, context)] if isinstance(operator, MatMulOp) else _rows(part, operator, context)
    same = tuple(calls)
    return CallBlock(part.name, same, equal_call_index(same), tuple(range(len(same))), float(part.times))


def _of_requests(part: Segment, operator: Operator, attend: RequestsOfReach, context: ChipContext) -> list[KernelCall]:
    if isinstance(operator, AttentionOp):
        selected_attend = attend(part.reach)
        if any(operator.name == DECODES for operator in part.operators):  # prompts and decodes are operators of their own
            selected_attend = [request for request in selected_attend if request.prompts == (operator.name != DECODES)]
        return [_attention(part, operator, request, context) for request in selected_attend]
    return (
        [_index(part, operator, requests, context) for requests in attend(part.indexed)]
        if isinstance(operator, IndexerOp)
        else []
    )


def _in_turn(several: list[KernelCall]) -> list[KernelCall]:
    """Requests that are not alike, one after the other; the last one ends the operator."""
    return [*(call._replace(operators=()) for call in several[:-1]), *several[-1:]]


def _call(part: Segment, operator: Operator, shape: tuple[Any, Any, Any], job: Any, flop: float) -> KernelCall:
    """Call of an operator's job; operations are the model's, without padding and masked pairs."""
    return KernelCall(
        part.name, operator.name, operator.needs, part.rows, shape, job=job, flop=flop, operators=(operator.name,)
    )


def weight_storage(name: str, precision: FormatPlan) -> WeightStorage | None:
    """Storage of weights in a number format where all tiles work on one operator.

    None if it is that of activations.

    >>> weight_storage("mxfp4", FormatPlan(weights="mxfp4", activations="bf16", kv="bf16"))
    WeightStorage(nbytes=0.53125, expand=3.0)
    """
    storage = WeightStorage(BYTES_BY_FORMAT[name], dequantize_operations_per_value(name))
    return None if storage == WeightStorage(BYTES_BY_FORMAT[precision.activations]) else storage


def _product(part: Segment, operator: MatMulOp, context: ChipContext) -> KernelCall:
    """Products of experts or of heads are of as many rows each; what an expert has is the mean over those that have any."""
    k, n = dim_width(operator.k), dim_width(operator.n)
    copies = operator.apart if operator.apart > 1 else ceil_div(operator.copies, 1)
    shape = GemmShape(ceil_div(operator.m, 1 if operator.apart > 1 else copies), k, n // operator.apart)
    weights = weight_storage(weight_format(part, operator, context.precision), context.precision)
    key = shape, copies, weights, operator.name in KEYS_AND_VALUES
    if key not in context.known:
        context.known[key] = _in_pieces(shape, copies, weights, context, cached=key[3])
    return _call(part, operator, (operator.m, k, n), context.known[key], useful_flop(operator))._replace(
        repeated=repeated_flop(operator)
    )


def _in_pieces(shape: GemmShape, copies: Any, weights: WeightStorage | None, context: ChipContext, *, cached: bool) -> Any:
    """Products on the chip, whose rows may be cut in two where the plan leaves their sizes open."""
    plan = context.plan.gemm

    def proposed(first: Any, end: Any) -> closed_summa.SummaJob | ThroughCache:
        selected_shape = GemmShape(end - first, shape.k, shape.n)

        def job(chip: Chip) -> closed_summa.SummaJob:
            return closed_summa.propose_summa_job(selected_shape, chip, plan, copies, context.itemsize, weights)

        return (
            idle_columns.choose_idle_columns(job, context.chip)
            if context.kept is None
            else through_cache.cached_product(job, context.chip, context.kept, cached=cached)
        )

    def least(first: Any, end: Any) -> Any:
        if context.kept is not None:  # which may be as fast as any
            return 0.0
        return closed_summa.min_product_seconds(
            GemmShape(end - first, shape.k, shape.n), context.chip, copies, context.itemsize, weights
        )

    whole = proposed(0, shape.m)
    left = _left(plan.rows, plan.m, plan.k, plan.n)
    if np.size(shape.m) > 1 or not np.any(left):
        return whole
    return row_pieces.choose_row_pieces(whole, int(shape.m), Pieces(proposed, least, left=left))


def _attention(part: Segment, operator: AttentionOp, requests: AttentionRequests, context: ChipContext) -> KernelCall:
    """Attention of requests alike: of prompts, or of one token to what is cached."""
    shape = attention_shape(part.of, operator, requests.requests, requests.queries, requests.keys, prefilling=requests.prompts)
    if operator.picked and requests.keys >= operator.picked:  # less is not picked from
        row = operator.together * operator.kv_heads.units * operator.kv_dim * context.kv.value_bytes(context.itemsize)
        shape = per_query_attention(shape, max(ceil_div(requests.pairs, requests.queries), 1), row)
    dataflow = find_dataflow(context.plan.attention.dataflow)

    def proposed(of_these: AttentionShape) -> closed_attention.AttentionJob | ThroughCache:
        def job(chip: Chip) -> closed_attention.AttentionJob:
            return closed_attention.resolve_job(dataflow, of_these, chip, context.plan.attention, context.itemsize, context.kv)

        known = 1 - of_these.queries / maximum(requests.keys, 1)
        return (
            idle_columns.choose_idle_columns(job, context.chip)
            if context.kept is None
            else through_cache.cached_attention(job, context.chip, context.kept, known)
        )

    job: Any = proposed(shape)
    if part.of.compressed is None and requests.prompts and not shape.has_selected_rows:
        job = _queries_in_pieces(job, shape, proposed, context)
    flop = 2.0 * requests.requests * requests.pairs * operator.heads.units * (operator.qk_dim + operator.v_dim)
    sizes = (requests.requests * requests.queries, operator.qk_dim, requests.keys)
    return _call(part, operator, sizes, job, flop)


def _left(*sizes: Any) -> Any:
    """Whether all of some sizes are left open, design by design."""
    return np.logical_and.reduce(np.broadcast_arrays(*(np.asarray(size) == 0 for size in sizes)))


def _queries_in_pieces(
    whole: closed_attention.AttentionJob | ThroughCache,
    shape: AttentionShape,
    proposed: Callable[[AttentionShape], closed_attention.AttentionJob | ThroughCache],
    context: ChipContext,
) -> Any:
    """Prompts, whose queries may be cut in two."""

    def least(first: int, end: int) -> Any:
        if context.kept is not None:
            return 0.0
        return closed_attention.min_attention_seconds(queries_of(shape, first, end), context.chip, context.itemsize, context.kv)

    plan = context.plan.attention
    left = _left(plan.rows, plan.cols, plan.queries, plan.keys)
    if not np.any(left):
        return whole
    pieces = Pieces(lambda first, end: proposed(queries_of(shape, first, end)), least, row_pieces.MANY_QUERIES, left)
    return row_pieces.choose_row_pieces(whole, int(shape.queries), pieces)


def _index(part: Segment, operator: IndexerOp, requests: AttentionRequests, context: ChipContext) -> KernelCall:
    """Scores of an indexer, and what it picks."""
    key_storage = index_key_storage(context.precision, operator.dim)
    keys, causal = requests.keys, requests.queries > 1
    if part.of.compressed is not None:  # entries are fewer than queries: as many for each as on average
        keys, causal = max(ceil_div(requests.pairs, requests.queries), 1), False
    job = build_indexer_jobs(
        index.IndexerShape(
            operator.heads, operator.dim, requests.requests, requests.queries, keys, causal=causal, block=operator.block,
            scale=key_storage.scale,
            packed=key_storage.packed, expand=key_storage.expand,
        ),
        operator.top, context.chip, key_storage.itemsize,
    )  # fmt: skip
    flop = 2.0 * requests.requests * requests.pairs * operator.heads * operator.dim
    return _call(part, operator, (requests.requests * requests.queries, operator.dim, requests.keys), job, flop)


def _recur(part: Segment, operator: RecurrenceOp, context: ChipContext) -> KernelCall:
    """States, a token of each sequence at a time or chunk by chunk."""
    refuse_selective(operator)
    heads, sequences = operator.heads.units, ceil_div(operator.sequences, 1)
    shape = RecurrenceShape(
        operator.rule,
        heads,
        max(heads // operator.shared, 1),
        operator.key_dim,
        operator.value_dim,
        sequences,
        ceil_div(operator.tokens, 1),
        operator.chunk,
    )
    if operator.chunk > 1:
        job: Any = prefill_state_job(shape, context.chip, context.itemsize)
    else:
        job = decode_state_job(shape, _beside(context, float(shape.state_bytes)), context.itemsize, context.states)
    return _call(part, operator, (operator.tokens, operator.key_dim, operator.value_dim), job, useful_flop(operator))


def _beside(context: ChipContext, nbytes: float) -> Chip:
    """The chip with those states of a layer that stay in local memories."""
    if not context.states:
        return context.chip
    each = context.states * nbytes / (context.chip.mesh.rows * context.chip.mesh.cols)
    return replace_leaves(context.chip, {"tile.sram": context.chip.tile.sram + each})


def _rows(part: Segment, operator: ElementwiseOp, context: ChipContext) -> list[KernelCall]:
    """An operator on elements; norms of whole heads of which only a part is turned are a kernel of their own before that."""
    if operator.rotated_columns == operator.dim.width:
        return [_by_rows(part, operator, context, _recipe(operator, part.of or context.model, context.precision))]
    normed = replace(operator, name="heads_norm", turned=0)
    turned = replace(operator, needs=(normed.name,), dim=replace(operator.dim, width=operator.rotated_columns), turned=0)
    first = _by_rows(part, normed, context, streamed.build_norm_kernel())._replace(operators=())
    return [first, _by_rows(part, turned, context, streamed.build_rotary_kernel(normed=False))]


def _by_rows(part: Segment, operator: ElementwiseOp, context: ChipContext, recipe: RowKernel) -> KernelCall:
    rows, columns = operator.rows, dim_width(operator.dim)
    if operator.name == "rope":  # head by head, halves apart
        rows, columns = operator.rows * operator.dim.units, max(operator.dim.width // 2, 1)
    if operator.name in ("state_norm", "heads_norm"):  # head by head
        rows, columns = operator.rows * operator.dim.units, operator.dim.width
    rows = ceil_div(rows, 1)
    key = recipe, rows, columns, operator.name in TABLES
    if key not in context.known:

        def proposed(chip: Chip) -> closed_streamed.RowJob:
            return closed_streamed.propose_row_job(recipe, rows, columns, chip, context.itemsize)

        context.known[key] = (
            idle_columns.choose_idle_columns(proposed, context.chip)
            if context.kept is None
            else through_cache.cached_rows(proposed, context.chip, context.kept, table=key[3])
        )
    return _call(part, operator, (operator.rows, 1, dim_width(operator.dim)), context.known[key], 0.0)


@lru_cache(maxsize=256)
def _known(kind: str, top: int, normed: bool) -> RowKernel:
    """A recipe by the end of an operator's name, by a count and a statement that some kinds need."""
    recipes: dict[str, Callable[[], RowKernel]] = {
        "embedding": streamed.copy_kernel,
        "tanh": streamed.build_softcap_kernel,
        "conv": lambda: streamed.build_convolution_kernel(top, alone=normed),
        "norm": streamed.build_norm_kernel,
        "rope": lambda: streamed.build_rotary_kernel(normed=normed),
        "activation": streamed.build_gate_kernel,
        "choice": lambda: streamed.build_expert_choice_kernel(top),
        "combination": lambda: streamed.build_expert_combine_kernel(top),
    }
    return recipes[kind]()


def _recipe(operator: ElementwiseOp, model: Model, precision: FormatPlan) -> RowKernel:
    kind, table = operator.name.split("_")[-1], weight_storage(embedding_format(precision), precision)
    if operator.name in TABLES and table is not None:
        return streamed.build_embedding_kernel(*table)
    if kind == "conv":
        assert model.recurrence is not None
        return _known(kind, model.recurrence.conv, operator.passes > LEFT_PASSES)
    return _known(kind, model.experts.top_k if model.experts else 1, model.qk_norm)
