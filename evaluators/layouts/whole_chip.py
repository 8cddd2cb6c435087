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
from dse.evaluators.cost_models.analytical_indexer import indexer_jobs
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
from dse.evaluators.layouts.residency import dim_width
from dse.evaluators.layouts.tensor_formats import (
    activation_bytes,
    dequantize_operations_per_value,
    index_key_storage,
    kv_storage,
    weight_format,
)
from dse.space.array_math import ceil_div, maximum
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.mapping import BYTES_BY_FORMAT, AttentionPlan, FormatPlan, Mapping, TileGemmPlan, WholeChipPlan
from dse.space.model import Model
from dse.space.parameter_counts import STATE_BYTES, sequence_memory
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
    on = ChipContext(case.model, chip, mapping.prefill, precision, {}, _wrapped(mapping.prefill, keep.get("prefill")))
    prompts = [(1.0, chip_blocks(first, equal_prompts(case), on))]
    kept, (share, stay) = keep.get("decode"), resident_state_shares(case, chip, mapping.decode)
    room = chip if not share else replace_leaves(chip, {"tile.sram": chip.tile.sram * (1 - share)})
    on = ChipContext(case.model, room, mapping.decode, precision, {}, _wrapped(mapping.decode, kept), stay)
    tokens = []
    for count, at in decode_steps(case, decode_context):
        tokens.append((count, chip_blocks(at, decode_requests(at), on)))
    return {"prefill": prompts, "decode": tokens}


def resident_state_shares(case: BatchCase, chip: Chip, plan: "WholeChipPlan | KernelPlan") -> tuple[float, float]:
    """Share of local memory set aside for states, and share of all states that stays there. [-], [-]"""
    share = 0.0 if plan.state_share is None else float(plan.state_share)
    needed = case.batch * sum(of.layer.times * of.state for of in sequence_memory(case.model)) * STATE_BYTES
    if not share or not needed:
        return 0.0, 0.0
    return share, min(share * float(chip.tile.sram * chip.mesh.rows * chip.mesh.cols) / needed, 1.0)


def _wrapped(plan: WholeChipPlan, of: CachedShares | None) -> CachedShares | None:
    """Cached shares of a phase; a record without shares if jobs have to report prefetchable bytes."""
    return NOTHING if of is None and has_read_ahead(plan) else of


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


def chip_blocks(at: StepCounts, attending: RequestsOfReach, on: ChipContext) -> tuple[CallBlock, ...]:
    """Calls of the operators of a step in sequence, by segment.

    Args:
        at: what is computed.
        attending: its requests, as they attend.
        on: by which model, and where.
    """
    parts = [with_router_operators(on.model, part) for part in transformer_segments(on.model, at)]
    found = [segment_calls(part, attending if part.kind == MIXING else no_requests, on) for part in parts]
    return chain_blocks(found, segment_order(on.model, at), 1.0) if has_read_ahead(on.plan) else tuple(found)


def attention_calls(parts: Sequence[Segment], attending: RequestsOfReach, on: ChipContext) -> list[tuple[float, KernelCall]]:
    """Attention and indexer calls with their repetitions; other calls depend on token counts alone."""
    found: list[tuple[float, KernelCall]] = []
    for part in parts:
        for of in part.operators if part.kind == MIXING else ():
            found += [(float(part.times), call) for call in _of_requests(part, of, attending, on)]
    return found


def phase_only_blocks(at: StepCounts, on: ChipContext) -> tuple[CallBlock, ...]:
    """Calls of a step that only prompts or only decodes have besides attention."""
    found = []
    for part in transformer_segments(on.model, at):
        some = tuple(of for of in part.operators if of.alone and not isinstance(of, AttentionOp))
        if some:
            found.append(segment_calls(replace(part, operators=some), _somebody, on))
    return tuple(found)


def _somebody(reach: int) -> Sequence[AttentionRequests]:
    """Requests of a segment whose attention is not evaluated."""
    return ()


def segment_calls(part: Segment, attend: RequestsOfReach, on: ChipContext) -> CallBlock:
    """Calls of a segment of a model on all tiles, one after the other.

    Without attending requests, operators of prompts alone or of decodes alone are left out.
    """
    calls: list[KernelCall] = []
    for of in (common_segment(part) if attend is no_requests else part).operators:
        if isinstance(of, AttentionOp | IndexerOp):
            calls += _in_turn(_of_requests(part, of, attend, on))
        elif isinstance(of, RecurrenceOp):
            calls.append(_recur(part, of, on))
        else:
            calls += [_product(part, of, on)] if isinstance(of, MatMulOp) else _rows(part, of, on)
    same = tuple(calls)
    return CallBlock(part.name, same, equal_call_index(same), tuple(range(len(same))), float(part.times))


def _of_requests(part: Segment, of: Operator, attend: RequestsOfReach, on: ChipContext) -> list[KernelCall]:
    if isinstance(of, AttentionOp):
        some = attend(part.reach)
        if any(one.name == DECODES for one in part.operators):  # prompts and decodes are operators of their own
            some = [one for one in some if one.prompts == (of.name != DECODES)]
        return [_attention(part, of, one, on) for one in some]
    return [_index(part, of, some, on) for some in attend(part.indexed)] if isinstance(of, IndexerOp) else []


def _in_turn(several: list[KernelCall]) -> list[KernelCall]:
    """Requests that are not alike, one after the other; the last one ends the operator."""
    return [*(one._replace(operators=()) for one in several[:-1]), *several[-1:]]


def _call(part: Segment, of: Operator, shape: tuple[Any, Any, Any], job: Any, flop: float) -> KernelCall:
    """Call of an operator's job; operations are the model's, without padding and masked pairs."""
    return KernelCall(part.name, of.name, of.needs, part.rows, shape, job=job, flop=flop, operators=(of.name,))


def weight_storage(name: str, precision: FormatPlan) -> WeightStorage | None:
    """Storage of weights in a number format where all tiles work on one operator.

    None if it is that of activations.

    >>> weight_storage("mxfp4", FormatPlan(weights="mxfp4", activations="bf16", kv="bf16"))
    WeightStorage(nbytes=0.53125, expand=3.0)
    """
    found = WeightStorage(BYTES_BY_FORMAT[name], dequantize_operations_per_value(name))
    return None if found == WeightStorage(BYTES_BY_FORMAT[precision.activations]) else found


def _product(part: Segment, of: MatMulOp, on: ChipContext) -> KernelCall:
    """Products of experts or of heads are of as many rows each; what an expert has is the mean over those that have any."""
    k, n = dim_width(of.k), dim_width(of.n)
    copies = of.apart if of.apart > 1 else ceil_div(of.copies, 1)
    shape = GemmShape(ceil_div(of.m, 1 if of.apart > 1 else copies), k, n // of.apart)
    weights = weight_storage(weight_format(part, of, on.precision), on.precision)
    key = shape, copies, weights, of.name in KEYS_AND_VALUES
    if key not in on.known:
        on.known[key] = _in_pieces(shape, copies, weights, on, cached=key[3])
    return _call(part, of, (of.m, k, n), on.known[key], useful_flop(of))._replace(repeated=repeated_flop(of))


def _in_pieces(shape: GemmShape, copies: Any, weights: WeightStorage | None, on: ChipContext, *, cached: bool) -> Any:
    """Products on the chip, whose rows may be cut in two where the plan leaves their sizes open."""
    plan = on.plan.gemm

    def proposed(first: Any, end: Any) -> closed_summa.SummaJob | ThroughCache:
        some = GemmShape(end - first, shape.k, shape.n)

        def job(chip: Chip) -> closed_summa.SummaJob:
            return closed_summa.propose_summa_job(some, chip, plan, copies, on.itemsize, weights)

        return (
            idle_columns.fastest_with_idle_columns(job, on.chip)
            if on.kept is None
            else through_cache.cached_product(job, on.chip, on.kept, cached=cached)
        )

    def least(first: Any, end: Any) -> Any:
        if on.kept is not None:  # which may be as fast as any
            return 0.0
        return closed_summa.min_product_seconds(GemmShape(end - first, shape.k, shape.n), on.chip, copies, on.itemsize, weights)

    whole = proposed(0, shape.m)
    left = _left(plan.rows, plan.m, plan.k, plan.n)
    if np.size(shape.m) > 1 or not np.any(left):
        return whole
    return row_pieces.fastest_row_pieces(whole, int(shape.m), Pieces(proposed, least, left=left))


def _attention(part: Segment, of: AttentionOp, some: AttentionRequests, on: ChipContext) -> KernelCall:
    """Attention of requests alike: of prompts, or of one token to what is cached."""
    shape = attention_shape(part.of, of, some.requests, some.queries, some.keys, prefilling=some.prompts)
    if of.picked and some.keys >= of.picked:  # less is not picked from
        row = of.together * of.kv_heads.units * of.kv_dim * on.kv.of(on.itemsize)
        shape = per_query_attention(shape, max(ceil_div(some.pairs, some.queries), 1), row)
    dataflow = find_dataflow(on.plan.attention.dataflow)

    def proposed(of_these: AttentionShape) -> closed_attention.AttentionJob | ThroughCache:
        def job(chip: Chip) -> closed_attention.AttentionJob:
            return closed_attention.resolve_job(dataflow, of_these, chip, on.plan.attention, on.itemsize, on.kv)

        known = 1 - of_these.queries / maximum(some.keys, 1)
        return (
            idle_columns.fastest_with_idle_columns(job, on.chip)
            if on.kept is None
            else through_cache.cached_attention(job, on.chip, on.kept, known)
        )

    job: Any = proposed(shape)
    if part.of.compressed is None and some.prompts and not shape.selected:
        job = _queries_in_pieces(job, shape, proposed, on)
    flop = 2.0 * some.requests * some.pairs * of.heads.units * (of.qk_dim + of.v_dim)
    sizes = (some.requests * some.queries, of.qk_dim, some.keys)
    return _call(part, of, sizes, job, flop)


def _left(*said: Any) -> Any:
    """Whether all of some sizes are left open, design by design."""
    return np.logical_and.reduce(np.broadcast_arrays(*(np.asarray(size) == 0 for size in said)))


def _queries_in_pieces(
    whole: closed_attention.AttentionJob | ThroughCache,
    shape: AttentionShape,
    proposed: Callable[[AttentionShape], closed_attention.AttentionJob | ThroughCache],
    on: ChipContext,
) -> Any:
    """Prompts, whose queries may be cut in two."""

    def least(first: int, end: int) -> Any:
        if on.kept is not None:
            return 0.0
        return closed_attention.min_attention_seconds(queries_of(shape, first, end), on.chip, on.itemsize, on.kv)

    plan = on.plan.attention
    left = _left(plan.rows, plan.cols, plan.queries, plan.keys)
    if not np.any(left):
        return whole
    pieces = Pieces(lambda first, end: proposed(queries_of(shape, first, end)), least, row_pieces.MANY_QUERIES, left)
    return row_pieces.fastest_row_pieces(whole, int(shape.queries), pieces)


def _index(part: Segment, of: IndexerOp, some: AttentionRequests, on: ChipContext) -> KernelCall:
    """Scores of an indexer, and what it picks."""
    said = index_key_storage(on.precision, of.dim)
    keys, causal = some.keys, some.queries > 1
    if part.of.compressed is not None:  # entries are fewer than queries: as many for each as on average
        keys, causal = max(ceil_div(some.pairs, some.queries), 1), False
    job = indexer_jobs(
        index.IndexerShape(
            of.heads, of.dim, some.requests, some.queries, keys, causal=causal, block=of.block, scale=said.scale,
            packed=said.packed, expand=said.expand,
        ),
        of.top, on.chip, said.itemsize,
    )  # fmt: skip
    flop = 2.0 * some.requests * some.pairs * of.heads * of.dim
    return _call(part, of, (some.requests * some.queries, of.dim, some.keys), job, flop)


def _recur(part: Segment, of: RecurrenceOp, on: ChipContext) -> KernelCall:
    """States, a token of each sequence at a time or chunk by chunk."""
    refuse_selective(of)
    heads, sequences = of.heads.units, ceil_div(of.sequences, 1)
    shape = RecurrenceShape(
        of.rule, heads, max(heads // of.shared, 1), of.key_dim, of.value_dim, sequences, ceil_div(of.tokens, 1), of.chunk
    )
    if of.chunk > 1:
        job: Any = prefill_state_job(shape, on.chip, on.itemsize)
    else:
        job = decode_state_job(shape, _beside(on, float(shape.state_bytes)), on.itemsize, on.states)
    return _call(part, of, (of.tokens, of.key_dim, of.value_dim), job, useful_flop(of))


def _beside(on: ChipContext, nbytes: float) -> Chip:
    """The chip with those states of a layer that stay in local memories."""
    if not on.states:
        return on.chip
    each = on.states * nbytes / (on.chip.mesh.rows * on.chip.mesh.cols)
    return replace_leaves(on.chip, {"tile.sram": on.chip.tile.sram + each})


def _rows(part: Segment, of: ElementwiseOp, on: ChipContext) -> list[KernelCall]:
    """An operator on elements; norms of whole heads of which only a part is turned are a kernel of their own before that."""
    if of.rotated == of.dim.width:
        return [_by_rows(part, of, on, _recipe(of, part.of or on.model, on.precision))]
    normed = replace(of, name="heads_norm", turned=0)
    turned = replace(of, needs=(normed.name,), dim=replace(of.dim, width=of.rotated), turned=0)
    first = _by_rows(part, normed, on, streamed.norm_kernel())._replace(operators=())
    return [first, _by_rows(part, turned, on, streamed.rotary_kernel(normed=False))]


def _by_rows(part: Segment, of: ElementwiseOp, on: ChipContext, recipe: RowKernel) -> KernelCall:
    rows, columns = of.rows, dim_width(of.dim)
    if of.name == "rope":  # head by head, halves apart
        rows, columns = of.rows * of.dim.units, max(of.dim.width // 2, 1)
    if of.name in ("state_norm", "heads_norm"):  # head by head
        rows, columns = of.rows * of.dim.units, of.dim.width
    rows = ceil_div(rows, 1)
    key = recipe, rows, columns, of.name in TABLES
    if key not in on.known:

        def proposed(chip: Chip) -> closed_streamed.RowJob:
            return closed_streamed.propose_row_job(recipe, rows, columns, chip, on.itemsize)

        on.known[key] = (
            idle_columns.fastest_with_idle_columns(proposed, on.chip)
            if on.kept is None
            else through_cache.cached_rows(proposed, on.chip, on.kept, table=key[3])
        )
    return _call(part, of, (of.rows, 1, dim_width(of.dim)), on.known[key], 0.0)


@lru_cache(maxsize=256)
def _known(kind: str, top: int, normed: bool) -> RowKernel:
    """A recipe by the end of an operator's name, by a count and a statement that some kinds need."""
    recipes: dict[str, Callable[[], RowKernel]] = {
        "embedding": streamed.copy_kernel,
        "tanh": streamed.softcap_kernel,
        "conv": lambda: streamed.convolution_kernel(top, alone=normed),
        "norm": streamed.norm_kernel,
        "rope": lambda: streamed.rotary_kernel(normed=normed),
        "activation": streamed.gate_kernel,
        "choice": lambda: streamed.expert_choice_kernel(top),
        "combination": lambda: streamed.expert_combine_kernel(top),
    }
    return recipes[kind]()


def _recipe(of: ElementwiseOp, model: Model, precision: FormatPlan) -> RowKernel:
    kind, table = of.name.split("_")[-1], weight_storage(precision.weights, precision)
    if of.name in TABLES and table is not None:
        return streamed.embedding_kernel(*table)
    if kind == "conv":
        assert model.recurrence is not None
        return _known(kind, model.recurrence.conv, of.passes > LEFT_PASSES)
    return _known(kind, model.experts.top_k if model.experts else 1, model.qk_norm)
