"""One operator of a model after the other over all tiles of a mesh ([zhang2026] section III-E).

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

from dse.evaluators.graph.mixing import DECODES
from dse.evaluators.graph.operators import (
    MIXING,
    Attention,
    Elementwise,
    Index,
    MatMul,
    Operator,
    Part,
    Recur,
    common,
    refuse_selective,
    repeated,
    useful,
)
from dse.evaluators.graph.routing import routing
from dse.evaluators.graph.step import Step, decode, prefill
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.kernels.attention import attention
from dse.evaluators.kernels.attention.shape import Cached, Heads, queries_of, selected
from dse.evaluators.kernels.gemm.summa_diagonal import Weights
from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.kernels.vector import index, streamed
from dse.evaluators.kernels.vector.recurrent import Recurrence
from dse.evaluators.kernels.vector.streamed import Recipe
from dse.evaluators.layouts.attended import Attend, Attending, alike_prompts, attended, decoding, nobody
from dse.evaluators.layouts.formats import cached_as, expanding, index_keys, itemsize_of, weights_of
from dse.evaluators.layouts.residency import width
from dse.evaluators.passes.call import Block, Call, alike, one_after_another
from dse.evaluators.readers import closed_attention, closed_streamed, closed_summa, idle_columns, row_pieces, through_cache
from dse.evaluators.readers.cached import Cached as ThroughCache
from dse.evaluators.readers.closed_indexed import indexed
from dse.evaluators.readers.closed_recurrent import decoded, prefilled
from dse.evaluators.readers.row_pieces import Pieces
from dse.evaluators.readers.through_cache import NOTHING, Kept
from dse.space.chip import Chip
from dse.space.elementwise import ceil_div, maximum
from dse.space.fields import replaced
from dse.space.mapping import BYTES, AttentionPlan, FlatPlan, Mapping, Precision, SummaPlan
from dse.space.model import Model
from dse.space.parameters import STATE_BYTES, growths
from dse.space.workload import Case


def turns(
    case: Case, chip: Chip, mapping: Mapping, decode_at: str, keep: Dict[str, Kept | None] = MappingProxyType({})
) -> dict[str, list[tuple[float, tuple[Block, ...]]]]:
    """By phase, passes of some tokens through all layers, and how many there are alike.

    One prefill of all prompts, and the decode steps between two requests' ends. `keep` says what a cache has of each phase.
    """
    itemsize_of(mapping)  # refuses what tiles do not take
    precision, first = mapping.precision, prefill(case)
    on = On(case.model, chip, mapping.prefill, precision, {}, _wrapped(mapping.prefill, keep.get("prefill")))
    prompts = [(1.0, blocks(first, alike_prompts(case), on))]
    kept, (share, stay) = keep.get("decode"), resident(case, chip, mapping.decode)
    room = chip if not share else replaced(chip, {"tile.sram": chip.tile.sram * (1 - share)})
    on = On(case.model, room, mapping.decode, precision, {}, _wrapped(mapping.decode, kept), stay)
    tokens = []
    for count, at in decode(case, decode_at):
        tokens.append((count, blocks(at, decoding(at), on)))
    return {"prefill": prompts, "decode": tokens}


def resident(case: Case, chip: Chip, plan: "FlatPlan | Said") -> tuple[float, float]:
    """Share of local memories that is set aside for states, and of all sequences' states that stay there."""
    share = 0.0 if plan.states is None else float(plan.states)
    needed = case.batch * sum(of.layer.times * of.state for of in growths(case.model)) * STATE_BYTES
    if not share or not needed:
        return 0.0, 0.0
    return share, min(share * float(chip.tile.sram * chip.mesh.rows * chip.mesh.cols) / needed, 1.0)


def _wrapped(plan: FlatPlan, of: Kept | None) -> Kept | None:
    """What a cache has; nothing where there is none and jobs still have to say what can be read ahead."""
    return NOTHING if of is None and reads_ahead(plan) else of


def reads_ahead(plan: "FlatPlan | Said") -> bool:
    """Whether main memory does."""
    return plan.prefetch is not None and plan.prefetch.policy != "none"


KEYS_AND_VALUES = ("k_proj", "v_proj", "kv_down")
"""Products whose results later steps read as well."""

PASSED = 2
"""Reads and writes of an element by a convolution of tokens that follow one another; earlier steps that are read are more."""

TABLES = ("embedding",)
"""What looks rows of weights up."""


class Said(NamedTuple):
    """What a plan says of kernels."""

    attention: AttentionPlan
    gemm: SummaPlan
    prefetch: None = None
    states: None = None


class On(NamedTuple):
    """What is computed and where, how what has come up already is done, what a cache has of it, and what share of states stays
    in local memories, beside which the chip has less.
    """

    model: Model
    chip: Chip
    plan: FlatPlan | Said
    precision: Precision
    known: dict[Any, Any]
    kept: Kept | None = None
    states: float = 0.0

    @property
    def itemsize(self) -> float:
        """Bytes of a value that is no weight. [B]"""
        return BYTES[self.precision.activations]

    @property
    def kv(self) -> Cached:
        """How a cache is stored."""
        return cached_as(self.precision)


def blocks(at: Step, attending: Attend, on: On) -> tuple[Block, ...]:
    """Operators of a step in turn, by part.

    Args:
        at: what is computed.
        attending: its requests, as they attend.
        on: by which model, and where.
    """
    parts = [routing(on.model, part) for part in transformer(on.model, at)]
    found = [covered(part, attending if part.kind == MIXING else nobody, on) for part in parts]
    return one_after_another(found, line(on.model, at), 1.0) if reads_ahead(on.plan) else tuple(found)


def attending_calls(parts: Sequence[Part], attending: Attend, on: On) -> list[tuple[float, Call]]:
    """How often each call of attention and of indexers runs: all others depend on tokens and sequences alone."""
    found: list[tuple[float, Call]] = []
    for part in parts:
        for of in part.operators if part.kind == MIXING else ():
            found += [(float(part.times), call) for call in _of_requests(part, of, attending, on)]
    return found


def alone_blocks(at: Step, on: On) -> tuple[Block, ...]:
    """What prompts or decodes of a step have by themselves beside attention: products and states of another form."""
    found = []
    for part in transformer(on.model, at):
        some = tuple(of for of in part.operators if of.alone and not isinstance(of, Attention))
        if some:
            found.append(covered(replace(part, operators=some), _somebody, on))
    return tuple(found)


def _somebody(reach: int) -> Sequence[Attending]:
    """Requests whose attention is not asked for."""
    return ()


def covered(part: Part, attend: Attend, on: On) -> Block:
    """A part of a model as calls of a chip, one after the other; where nobody attends, without what is of prompts alone or of
    decodes alone.
    """
    calls: list[Call] = []
    for of in (common(part) if attend is nobody else part).operators:
        if isinstance(of, Attention | Index):
            calls += _in_turn(_of_requests(part, of, attend, on))
        elif isinstance(of, Recur):
            calls.append(_recur(part, of, on))
        else:
            calls += [_product(part, of, on)] if isinstance(of, MatMul) else _rows(part, of, on)
    same = tuple(calls)
    return Block(part.name, same, alike(same), tuple(range(len(same))), float(part.times))


def _of_requests(part: Part, of: Operator, attend: Attend, on: On) -> list[Call]:
    if isinstance(of, Attention):
        some = attend(part.reach)
        if any(one.name == DECODES for one in part.operators):  # prompts and decodes are operators of their own
            some = [one for one in some if one.prompts == (of.name != DECODES)]
        return [_attention(part, of, one, on) for one in some]
    return [_index(part, of, some, on) for some in attend(part.indexed)] if isinstance(of, Index) else []


def _in_turn(several: list[Call]) -> list[Call]:
    """Requests that are not alike, one after the other; the last one ends the operator."""
    return [*(one._replace(operators=()) for one in several[:-1]), *several[-1:]]


def _call(part: Part, of: Operator, shape: tuple[Any, Any, Any], job: Any, flop: float) -> Call:
    """An operator as the chip is asked for it; operations are the model's, padding and masked pairs apart."""
    return Call(part.name, of.name, of.needs, part.rows, shape, job=job, flop=flop, operators=(of.name,))


def kept_as(name: str, precision: Precision) -> Weights | None:
    """How weights of a format are stored and multiplied where all tiles work on one operator; None where as activations are.

    >>> kept_as("mxfp4", Precision(weights="mxfp4", activations="bf16", kv="bf16"))
    Weights(nbytes=0.53125, expand=3.0)
    """
    found = Weights(BYTES[name], expanding(name))
    return None if found == Weights(BYTES[precision.activations]) else found


def _product(part: Part, of: MatMul, on: On) -> Call:
    """Products of experts or of heads are of as many rows each; what an expert has is the mean over those that have any."""
    k, n = width(of.k), width(of.n)
    copies = of.apart if of.apart > 1 else ceil_div(of.copies, 1)
    shape = Shape(ceil_div(of.m, 1 if of.apart > 1 else copies), k, n // of.apart)
    weights = kept_as(weights_of(part, of, on.precision), on.precision)
    key = shape, copies, weights, of.name in KEYS_AND_VALUES
    if key not in on.known:
        on.known[key] = _in_pieces(shape, copies, weights, on, cached=key[3])
    return _call(part, of, (of.m, k, n), on.known[key], useful(of))._replace(repeated=repeated(of))


def _in_pieces(shape: Shape, copies: Any, weights: Weights | None, on: On, *, cached: bool) -> Any:
    """Products on the chip, whose rows may be cut in two where the plan leaves their sizes open."""
    plan = on.plan.gemm

    def proposed(first: Any, end: Any) -> closed_summa.Job | ThroughCache:
        some = Shape(end - first, shape.k, shape.n)

        def job(chip: Chip) -> closed_summa.Job:
            return closed_summa.proposed(some, chip, plan, copies, on.itemsize, weights)

        return (
            idle_columns.quickest(job, on.chip)
            if on.kept is None
            else through_cache.product(job, on.chip, on.kept, cached=cached)
        )

    def least(first: Any, end: Any) -> Any:
        if on.kept is not None:  # which may be as fast as any
            return 0.0
        return closed_summa.least(Shape(end - first, shape.k, shape.n), on.chip, copies, on.itemsize, weights)

    whole = proposed(0, shape.m)
    left = _left(plan.rows, plan.m, plan.k, plan.n)
    if np.size(shape.m) > 1 or not np.any(left):
        return whole
    return row_pieces.quickest(whole, int(shape.m), Pieces(proposed, least, left=left))


def _attention(part: Part, of: Attention, some: Attending, on: On) -> Call:
    """Attention of requests alike: of prompts, or of one token to what is cached."""
    shape = attended(part.of, of, some.requests, some.queries, some.keys, prefilling=some.prompts)
    if of.picked and some.keys >= of.picked:  # less is not picked from
        row = of.together * of.kv_heads.units * of.kv_dim * on.kv.of(on.itemsize)
        shape = selected(shape, max(ceil_div(some.pairs, some.queries), 1), row)
    dataflow = attention(on.plan.attention.dataflow)

    def proposed(of_these: Heads) -> closed_attention.Job | ThroughCache:
        def job(chip: Chip) -> closed_attention.Job:
            return closed_attention.suited(dataflow, of_these, chip, on.plan.attention, on.itemsize, on.kv)

        known = 1 - of_these.queries / maximum(some.keys, 1)
        return idle_columns.quickest(job, on.chip) if on.kept is None else through_cache.attention(job, on.chip, on.kept, known)

    job: Any = proposed(shape)
    if part.of.compressed is None and some.prompts and not shape.selected:
        job = _queries_in_pieces(job, shape, proposed, on)
    flop = 2.0 * some.requests * some.pairs * of.heads.units * (of.qk_dim + of.v_dim)
    sizes = (some.requests * some.queries, of.qk_dim, some.keys)
    return _call(part, of, sizes, job, flop)


def _left(*said: Any) -> Any:
    """Whether sizes are left open, all of them; design by design, whatever others say."""
    return np.logical_and.reduce(np.broadcast_arrays(*(np.asarray(size) == 0 for size in said)))


def _queries_in_pieces(
    whole: closed_attention.Job | ThroughCache,
    shape: Heads,
    proposed: Callable[[Heads], closed_attention.Job | ThroughCache],
    on: On,
) -> Any:
    """Prompts, whose queries may be cut in two."""

    def least(first: int, end: int) -> Any:
        if on.kept is not None:
            return 0.0
        return closed_attention.least(queries_of(shape, first, end), on.chip, on.itemsize, on.kv)

    plan = on.plan.attention
    left = _left(plan.rows, plan.cols, plan.queries, plan.keys)
    if not np.any(left):
        return whole
    pieces = Pieces(lambda first, end: proposed(queries_of(shape, first, end)), least, row_pieces.MANY_QUERIES, left)
    return row_pieces.quickest(whole, int(shape.queries), pieces)


def _index(part: Part, of: Index, some: Attending, on: On) -> Call:
    """Scores of an indexer, and what it picks."""
    said = index_keys(on.precision, of.dim)
    keys, causal = some.keys, some.queries > 1
    if part.of.compressed is not None:  # entries are fewer than queries: as many for each as on average
        keys, causal = max(ceil_div(some.pairs, some.queries), 1), False
    job = indexed(
        index.Index(
            of.heads, of.dim, some.requests, some.queries, keys, causal=causal, block=of.block, scale=said.scale,
            packed=said.packed, expand=said.expand,
        ),
        of.top, on.chip, said.itemsize,
    )  # fmt: skip
    flop = 2.0 * some.requests * some.pairs * of.heads * of.dim
    return _call(part, of, (some.requests * some.queries, of.dim, some.keys), job, flop)


def _recur(part: Part, of: Recur, on: On) -> Call:
    """States, a token of each sequence at a time or chunk by chunk."""
    refuse_selective(of)
    heads, sequences = of.heads.units, ceil_div(of.sequences, 1)
    shape = Recurrence(
        of.rule, heads, max(heads // of.shared, 1), of.key_dim, of.value_dim, sequences, ceil_div(of.tokens, 1), of.chunk
    )
    if of.chunk > 1:
        job: Any = prefilled(shape, on.chip, on.itemsize)
    else:
        job = decoded(shape, _beside(on, float(shape.state_bytes)), on.itemsize, on.states)
    return _call(part, of, (of.tokens, of.key_dim, of.value_dim), job, useful(of))


def _beside(on: On, nbytes: float) -> Chip:
    """The chip with those states of a layer that stay in local memories."""
    if not on.states:
        return on.chip
    each = on.states * nbytes / (on.chip.mesh.rows * on.chip.mesh.cols)
    return replaced(on.chip, {"tile.sram": on.chip.tile.sram + each})


def _rows(part: Part, of: Elementwise, on: On) -> list[Call]:
    """An operator on elements; norms of whole heads of which only a part is turned are a kernel of their own before that."""
    if of.rotated == of.dim.width:
        return [_by_rows(part, of, on, _recipe(of, part.of or on.model, on.precision))]
    normed = replace(of, name="heads_norm", turned=0)
    turned = replace(of, needs=(normed.name,), dim=replace(of.dim, width=of.rotated), turned=0)
    first = _by_rows(part, normed, on, streamed.norm())._replace(operators=())
    return [first, _by_rows(part, turned, on, streamed.rotation(normed=False))]


def _by_rows(part: Part, of: Elementwise, on: On, recipe: Recipe) -> Call:
    rows, columns = of.rows, width(of.dim)
    if of.name == "rope":  # head by head, halves apart
        rows, columns = of.rows * of.dim.units, max(of.dim.width // 2, 1)
    if of.name in ("state_norm", "heads_norm"):  # head by head
        rows, columns = of.rows * of.dim.units, of.dim.width
    rows = ceil_div(rows, 1)
    key = recipe, rows, columns, of.name in TABLES
    if key not in on.known:

        def proposed(chip: Chip) -> closed_streamed.Job:
            return closed_streamed.proposed(recipe, rows, columns, chip, on.itemsize)

        on.known[key] = (
            idle_columns.quickest(proposed, on.chip)
            if on.kept is None
            else through_cache.streamed(proposed, on.chip, on.kept, table=key[3])
        )
    return _call(part, of, (of.rows, 1, width(of.dim)), on.known[key], 0.0)


@lru_cache(maxsize=256)
def _known(kind: str, top: int, normed: bool) -> Recipe:
    """A recipe by the end of an operator's name, by a count and a statement that some kinds need."""
    recipes: dict[str, Callable[[], Recipe]] = {
        "embedding": streamed.copy,
        "tanh": streamed.cap,
        "conv": lambda: streamed.convolution(top, alone=normed),
        "norm": streamed.norm,
        "rope": lambda: streamed.rotation(normed=normed),
        "activation": streamed.gate,
        "choice": lambda: streamed.choice(top),
        "combination": lambda: streamed.combination(top),
    }
    return recipes[kind]()


def _recipe(of: Elementwise, model: Model, precision: Precision) -> Recipe:
    kind, table = of.name.split("_")[-1], kept_as(precision.weights, precision)
    if of.name in TABLES and table is not None:
        return streamed.looked_up(*table)
    if kind == "conv":
        assert model.recurrence is not None
        return _known(kind, model.recurrence.conv, of.passes > PASSED)
    return _known(kind, model.experts.top_k if model.experts else 1, model.qk_norm)
