"""Operators of token mixing in a layer: attention of all kinds, and recurrent states."""

from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.graph.elementwise_costs import GATE_COST, NORM_COST, ROPE_COST, convolution_cost, norm_operator
from dse.evaluators.graph.operators import AttentionOp, ElementwiseOp, IndexerOp, MatMulOp, MatrixDim, Operator, RecurrenceOp
from dse.evaluators.graph.step_counts import StepCounts
from dse.space.array_math import where
from dse.space.model import CompressedAttention, LatentAttention, Model, RecurrentMixing
from dse.space.parameter_counts import query_rank, value_head_dim

DECODES, DECODED, NEWEST = "decode_attention", "decode_state", "decode_conv"
"""Operators of decodes in a step with prompts: attention, states, and their convolution."""


def mixing_operators(of: Model, near: StepCounts, far: StepCounts) -> tuple[Operator, ...]:
    """Operators of one layer's mixing, from its norm to the projection into the residual stream.

    Args:
        of: a model all of whose layers are of one kind.
        near: the step, as attention of this kind sees it.
        far: the step, as its indexer sees it, if it has one.
    """
    if of.recurrence is not None:
        found = _recurrent(of, of.recurrence, near)
    elif of.compressed is not None:
        found = _compressed_attention(of, of.compressed, near, far)
    elif of.latent is not None:
        found = _latent_attention(of, of.latent, near, far)
    else:
        found = _attention(of, near, far)
    after = (
        [norm_operator("attention_post_norm", (found[-1].name,), near.tokens, MatrixDim(of.hidden))] if of.post_norms else []
    )
    return (norm_operator("attention_norm", (), near.tokens, MatrixDim(of.hidden)), *found, *after)


def _attention(of: Model, at: StepCounts, far: StepCounts) -> list[Operator]:
    m, h, d = at.tokens, MatrixDim(of.hidden), of.head_dim
    q, k, v = (
        MatrixDim(of.heads, d, split=True),
        MatrixDim(of.kv_heads, d, split=True),
        MatrixDim(of.kv_heads, value_head_dim(of), split=True),
    )
    found: list[Operator] = [MatMulOp("q_proj", ("attention_norm",), m, h, q)]
    own = not of.kv_reused
    found += [MatMulOp("k_proj", ("attention_norm",), m, h, k)] if own else []
    found += [MatMulOp("v_proj", ("attention_norm",), m, h, v)] if own and of.v_proj else []
    turned: tuple[str, ...] = ("q_proj", "k_proj") if own else ("q_proj",)
    needs: tuple[str, ...] = ("v_proj",) if own and of.v_proj else ()
    rope = _rope(of, at, q, turned)
    index = _index(of, at, far, "attention_norm")
    found += [*rope, *index]
    needs = ((rope[-1].name,) if rope else turned) + needs + ((index[-1].name,) if index else ())
    found.append(
        AttentionOp(
            "attention", needs, q, k, d, value_head_dim(of), d + value_head_dim(of), d, **_seen(of, at),
        )
    )  # fmt: skip
    out = MatrixDim(of.heads, value_head_dim(of), split=True)
    return found + _gated(of, at, out, ("attention",))


def _rope(of: Model, at: StepCounts, q: MatrixDim, needs: tuple[str, ...]) -> list[Operator]:
    """Rotations of queries and keys, of the first columns of each head alone where the model turns no more.

    Norms of heads run just before and are counted with them: they are of whole heads, all of which is then read and written.
    """
    turned = max(round(q.width * of.rope), 1)
    if not of.rope:
        return [ElementwiseOp("heads_norm", needs, at.tokens, q, *NORM_COST)] if of.qk_norm else []
    if not of.qk_norm:
        return [ElementwiseOp("rope", needs, at.tokens, replace(q, width=turned), *ROPE_COST)]
    return [ElementwiseOp("rope", needs, at.tokens, q, NORM_COST[0] + ROPE_COST[0] * turned / q.width, ROPE_COST[1], turned)]


def _seen(of: Model, at: StepCounts) -> dict[str, Any]:
    """Attention reach of the step's tokens, and further properties of its keys and scores."""
    counts = {"tokens": at.tokens, "pairs": at.pairs, "positions": at.positions, "sequences": at.sequences}
    if at.phase != "prefill":
        return counts | _picked(of)
    beside = {"decodes": at.decodes, "queries": 1.0 + at.guesses, "decoded": at.decoded, "scored": at.scored}
    return counts | {"prompts": True} | beside | _picked(of)


def _picked(of: Model) -> dict[str, Any]:
    """Properties of attention's keys and scores that differ from standard attention."""
    found: dict[str, Any] = {"capped": True} if of.softcap else {}
    return found | ({} if of.indexer is None else {"picked": of.indexer.top, "together": of.indexer.block})


def _gated(of: Model, at: StepCounts, out: MatrixDim, needs: tuple[str, ...]) -> list[Operator]:
    """What scales the output of attention, where something does, and its projection."""
    m, h = at.tokens, MatrixDim(of.hidden)
    found: list[Operator] = []
    if of.gate != "none":
        columns = out if of.gate == "element" else MatrixDim(out.units, split=out.split)
        found.append(MatMulOp("gate_proj", ("attention_norm",), m, h, columns))
        found.append(ElementwiseOp("output_activation", (*needs, "gate_proj"), m, out, *GATE_COST))
        needs = ("output_activation",)
    return [*found, MatMulOp("o_proj", needs, m, out, h)]


def _index(of: Model, at: StepCounts, far: StepCounts, needs: str) -> list[Operator]:
    """Indexer operators: queries, key, head weights and choice; empty if an earlier layer's choice is reused."""
    index = of.indexer
    if index is None or index.reused:
        return []
    m, h, rank = at.tokens, MatrixDim(of.hidden), query_rank(of)
    queries = ("q_down",) if rank else (needs,)
    found: list[Operator] = [MatMulOp("index_q", queries, m, MatrixDim(rank or of.hidden), MatrixDim(index.heads * index.dim))]
    if of.compressed is None:  # else keys are those of compressed entries
        found.append(MatMulOp("index_k", (needs,), m, h, MatrixDim(index.dim)))
    if index.block == 1:
        found.append(MatMulOp("index_weights", (needs,), m, h, MatrixDim(index.heads)))
    needed = tuple(one.name for one in found)
    return [*found, IndexerOp("index", needed, index.heads, index.dim, index.top, index.block, m, far.pairs, far.positions)]


def _latent_attention(of: Model, latent: LatentAttention, at: StepCounts, far: StepCounts) -> list[Operator]:
    """MLA: naive in prefill (keys and values are expanded), weight-absorbed in decode (attention over the latent).

    A further chunk of a prompt expands what is cached before it once more. Decodes beside prompts have the absorbed form. Where
    an indexer picks positions, queries of a prompt have keys of their own each, and attention is over the latent too.
    """
    m, h = at.tokens, MatrixDim(of.hidden)
    rank, rope = latent.kv_rank, latent.rope_dim
    qk = latent.nope_dim + rope
    q = MatrixDim(of.heads, qk, split=True)
    operators: list[Operator] = []
    if latent.q_rank:
        operators += [
            MatMulOp("q_down", ("attention_norm",), m, h, MatrixDim(latent.q_rank)),
            MatMulOp("q_up", ("q_down",), m, MatrixDim(latent.q_rank), q),
        ]
    else:
        operators.append(MatMulOp("q_up", ("attention_norm",), m, h, q))
    operators.append(MatMulOp("kv_down", ("attention_norm",), m, h, MatrixDim(rank + rope)))
    turned: tuple[str, ...] = ("q_up", "kv_down")
    if rope and of.rope:
        operators.append(ElementwiseOp("rope", turned, m, MatrixDim(of.heads, rope, split=True), *ROPE_COST))
        turned = ("rope",)
    index = _index(of, at, far, "attention_norm")
    operators += index
    needs = turned + ((index[-1].name,) if index else ())
    last: tuple[str, ...] = ("v_absorb",)
    if at.phase == "prefill" and of.indexer is None:
        prompts, beside = _apart(at)
        up = MatrixDim(of.heads, latent.nope_dim + latent.v_dim, split=True)
        heads = MatrixDim(of.heads, split=True)
        operators += [
            MatMulOp(
                "kv_up", ("kv_down",), prompts.tokens + prompts.positions, MatrixDim(rank), up,
                alone=True, again=prompts.positions,
            ),
            AttentionOp(
                "attention", (*needs, "kv_up"), heads, heads, qk, latent.v_dim, rank + rope, rank + rope,
                **_seen(of, prompts), alone=True,
            ),
        ]  # fmt: skip
        operators += [] if beside is None else _absorbed(of, latent, beside, needs, DECODES, stored=0.0)
        last = ("attention",) if beside is None else ("attention", "v_absorb")
    else:
        operators += _absorbed(of, latent, at, needs, "attention", alone=of.indexer is None)
    return operators + _gated(of, at, MatrixDim(of.heads, latent.v_dim, split=True), last)


def _apart(at: StepCounts) -> tuple[StepCounts, StepCounts | None]:
    """The prompts of a step, and its decodes; None where it has none."""
    if not np.any(at.decodes):
        return at, None
    rows = at.decodes * (1.0 + at.guesses)
    beside = StepCounts("decode", rows, rows, at.scored, at.decoded, at.guesses)
    tokens, requests, pairs, positions = at.tokens - rows, at.requests - rows, at.pairs - at.scored, at.positions - at.decoded
    return StepCounts("prefill", tokens, requests, pairs, positions, at.guesses, at.resumed - at.decodes), beside


def _state_passes(at: StepCounts) -> list[StepCounts]:
    """Parts of a step with separate recurrent states: prompts chunk by chunk, and decodes."""
    return [one for one in ((at, None) if at.phase == "decode" else _apart(at)) if one is not None]


def _absorbed(
    of: Model,
    latent: LatentAttention,
    at: StepCounts,
    needs: tuple[str, ...],
    name: str,
    *,
    stored: float = 1.0,
    alone: bool = True,
) -> list[Operator]:
    """Attention to latents between two small products of each head, [m, nope] x [nope, rank] and [m, rank] x [rank, v], whose
    weights are those of kv_up.
    """
    m, rank, rope, apart = at.tokens, latent.kv_rank, latent.rope_dim, of.heads
    ranks, one, read = (
        MatrixDim(of.heads, rank, split=True),
        (MatrixDim(of.heads, split=True), MatrixDim(1)),
        where(m > 0, 1.0, 0.0),
    )
    return [
        MatMulOp("q_absorb", ("q_up",), m, MatrixDim(latent.nope_dim), ranks, read, stored, apart, alone),
        AttentionOp(
            name,
            (*needs, "q_absorb"),
            *one,
            rank + rope,
            rank,
            rank + rope,
            rank + rope,
            **_seen(of, at),
            alone=alone,
        ),
        MatMulOp(
            "v_absorb", (name,), m, MatrixDim(rank), MatrixDim(of.heads, latent.v_dim, split=True), read, stored, apart, alone
        ),
    ]


def _compressed_attention(of: Model, said: CompressedAttention, at: StepCounts, far: StepCounts) -> list[Operator]:
    """One row a position, key and value of all heads, for the last tokens and for compressed entries."""
    m, h, row = at.tokens, MatrixDim(of.hidden), of.head_dim
    q = MatrixDim(of.heads, row, split=True)
    found: list[Operator] = []
    if said.q_rank:
        found.append(MatMulOp("q_down", ("attention_norm",), m, h, MatrixDim(said.q_rank)))
    found.append(
        MatMulOp("q_up", ("q_down",) if said.q_rank else ("attention_norm",), m, MatrixDim(said.q_rank or of.hidden), q)
    )
    found.append(MatMulOp("kv_down", ("attention_norm",), m, h, MatrixDim(row)))
    if said.ratio:
        wide = 2 if of.indexer is not None else 1
        found.append(MatMulOp("compress", ("attention_norm",), m, h, MatrixDim(2 * wide * row)))
        if of.indexer is not None:
            found.append(MatMulOp("index_compress", ("attention_norm",), m, h, MatrixDim(2 * wide * of.indexer.dim)))
    rope = _rope(of, at, q, ("q_up", "kv_down"))
    index = _index(of, at, far, "attention_norm")
    found += [*rope, *index]
    needs = ((rope[-1].name,) if rope else ("q_up", "kv_down")) + ((index[-1].name,) if index else ())
    found.append(AttentionOp("attention", needs, q, MatrixDim(1), row, row, row, row, **_seen(of, at)))
    inner = MatrixDim(said.groups, of.heads // said.groups * row, split=True)
    ranks = MatrixDim(said.groups, said.o_rank, split=True)
    found.append(MatMulOp("o_down", ("attention",), m, MatrixDim(inner.width), ranks, apart=said.groups))
    return [*found, MatMulOp("o_proj", ("o_down",), m, ranks, h)]


def _recurrent(of: Model, state: RecurrentMixing, at: StepCounts) -> list[Operator]:
    """Projections, a short convolution, the state, and a gated norm; prompts chunk by chunk, decodes token by token."""
    if state.rule == "selective":
        return _selective(of, state, at)
    m, h = at.tokens, MatrixDim(of.hidden)
    keys, values = MatrixDim(state.key_heads, state.key_dim, split=True), MatrixDim(state.heads, state.value_dim, split=True)
    pairs, first = MatrixDim(state.key_heads, 2 * state.key_dim, split=True), ("attention_norm",)
    found: list[Operator] = [
        MatMulOp("state_qk", first, m, h, pairs),
        MatMulOp("state_v", first, m, h, values),
    ]
    decays = {"delta": 2, "ssd": 1, "channel_delta": 1}.get(state.rule, 0)
    if decays:
        found.append(MatMulOp("state_decay", first, m, h, MatrixDim(state.heads, decays, split=True)))
    rank = MatrixDim(state.gate_rank)
    if state.rule == "channel_delta" and state.gate_rank:
        found += [MatMulOp("decay_down", first, m, h, rank), MatMulOp("decay_up", ("decay_down",), m, rank, keys)]
    elif state.rule == "channel_delta":
        found.append(MatMulOp("decay_up", first, m, h, keys))
    if state.rule == "channel_delta" and state.gate_rank and not state.full_gate:
        found += [MatMulOp("gate_down", first, m, h, rank), MatMulOp("gate_up", ("gate_down",), m, rank, values)]
    else:
        found.append(MatMulOp("gate_up", first, m, h, values))
    steps = _state_passes(at)
    channels = replace(pairs, beside=values)  # as their projections are divided
    rates = tuple(one.name for one in found if one.name in ("state_decay", "decay_up"))
    left = []
    for one, (conv, name) in zip(steps, (("state_conv", "state"), (NEWEST, DECODED)), strict=False):
        needs: tuple[str, ...] = ("state_qk", "state_v")
        if state.conv:
            passes = convolution_cost(state.conv, alone=one.phase == "decode")
            found.append(ElementwiseOp(conv, needs, one.tokens, channels, *passes, alone=True))
            needs = (conv,)
        chunk = 1 if one.phase == "decode" else state.chunk
        found.append(
            RecurrenceOp(
                name,
                needs + rates,
                state.rule,
                MatrixDim(state.heads, split=True),
                state.heads // state.key_heads,
                state.key_dim,
                state.value_dim,
                one.tokens,
                one.sequences,
                one.states,
                chunk,
            )
        )
        left.append(name)
    return [
        *found,
        norm_operator("state_norm", tuple(left), m, values),
        ElementwiseOp("output_activation", ("state_norm", "gate_up"), m, values, *GATE_COST),
        MatMulOp("o_proj", ("output_activation",), m, values, h),
    ]


def _selective(of: Model, state: RecurrentMixing, at: StepCounts) -> list[Operator]:
    """Mamba-1 [gu2023]: inputs and gates, a short convolution of inputs, of which B, C and steps are made, and the state.

    Each entry of a state has a decay of its own, so that prompts go token by token as decodes do. Where inputs are divided
    between devices, the sum of their B, C and steps, of some hundred values a token, is not counted.
    """
    m, h, values = at.tokens, MatrixDim(of.hidden), MatrixDim(state.heads, state.value_dim, split=True)
    first, rank = ("attention_norm",), MatrixDim(state.gate_rank)
    found: list[Operator] = [MatMulOp("state_v", first, m, h, values), MatMulOp("gate_up", first, m, h, values)]
    steps = _state_passes(at)
    names = list(zip(steps, (("state_conv", "state"), (NEWEST, DECODED)), strict=False))
    inputs: tuple[str, ...] = ("state_v",)
    if state.conv:
        for one, (conv, _) in names:
            passes = convolution_cost(state.conv, alone=one.phase == "decode")
            found.append(ElementwiseOp(conv, ("state_v",), one.tokens, values, *passes, alone=True))
        inputs = tuple(conv for _, (conv, _) in names)
    found.append(MatMulOp("state_qk", inputs, m, values, MatrixDim(2 * state.key_dim)))
    if state.gate_rank:
        found += [MatMulOp("decay_down", inputs, m, values, rank), MatMulOp("decay_up", ("decay_down",), m, rank, values)]
    needs = (*inputs, "state_qk", *(("decay_up",) if state.gate_rank else ()))
    for one, (_, name) in names:
        found.append(
            RecurrenceOp(
                name, needs, state.rule, MatrixDim(state.heads, split=True), state.heads // state.key_heads, state.key_dim,
                state.value_dim, one.tokens, one.sequences, one.states, 1,
            )
        )  # fmt: skip
    left = tuple(name for _, (_, name) in names)
    return [
        *found,
        ElementwiseOp("output_activation", (*left, "gate_up"), m, values, *GATE_COST),
        MatMulOp("o_proj", ("output_activation",), m, values, h),
    ]
