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


def mixing_operators(model: Model, near: StepCounts, far: StepCounts) -> tuple[Operator, ...]:
    """Operators of one layer's mixing, from its norm to the projection into the residual stream.

    Args:
        model: a model all of whose layers are of one kind.
        near: the step, as attention of this kind sees it.
        far: the step, as its indexer sees it, if it has one.
    """
    if model.recurrence is not None:
        recurrent = _recurrent(model, model.recurrence, near)
    elif model.compressed is not None:
        recurrent = _compressed_attention(model, model.compressed, near, far)
    elif model.latent is not None:
        recurrent = _latent_attention(model, model.latent, near, far)
    else:
        recurrent = _attention(model, near, far)
    after = (
        [norm_operator("attention_post_norm", (recurrent[-1].name,), near.tokens, MatrixDim(model.hidden))]
        if model.post_norms
        else []
    )
    return (norm_operator("attention_norm", (), near.tokens, MatrixDim(model.hidden)), *recurrent, *after)


def _attention(model: Model, at: StepCounts, far: StepCounts) -> list[Operator]:
    m, h, d = at.tokens, MatrixDim(model.hidden), model.head_dim
    q, k, v = (
        MatrixDim(model.heads, d, split=True),
        MatrixDim(model.kv_heads, d, split=True),
        MatrixDim(model.kv_heads, value_head_dim(model), split=True),
    )
    operators: list[Operator] = [MatMulOp("q_proj", ("attention_norm",), m, h, q)]
    own = not model.kv_reused
    operators += [MatMulOp("k_proj", ("attention_norm",), m, h, k)] if own else []
    operators += [MatMulOp("v_proj", ("attention_norm",), m, h, v)] if own and model.v_proj else []
    turned: tuple[str, ...] = ("q_proj", "k_proj") if own else ("q_proj",)
    needs: tuple[str, ...] = ("v_proj",) if own and model.v_proj else ()
    rope = _rope(model, at, q, turned)
    index = _index(model, at, far, "attention_norm")
    operators += [*rope, *index]
    needs = ((rope[-1].name,) if rope else turned) + needs + ((index[-1].name,) if index else ())
    operators.append(
        AttentionOp(
            "attention", needs, q, k, d, value_head_dim(model), d + value_head_dim(model), d, **_seen(model, at),
        )
    )  # fmt: skip
    out = MatrixDim(model.heads, value_head_dim(model), split=True)
    return operators + _gated(model, at, out, ("attention",))


def _rope(model: Model, at: StepCounts, q: MatrixDim, needs: tuple[str, ...]) -> list[Operator]:
    """Rotations of queries and keys, of the first columns of each head alone where the model turns no more.

    Norms of heads run just before and are counted with them: they are of whole heads, all of which is then read and written.
    """
    turned = max(round(q.width * model.rope), 1)
    if not model.rope:
        return [ElementwiseOp("heads_norm", needs, at.tokens, q, *NORM_COST)] if model.qk_norm else []
    if not model.qk_norm:
        return [ElementwiseOp("rope", needs, at.tokens, replace(q, width=turned), *ROPE_COST)]
    return [ElementwiseOp("rope", needs, at.tokens, q, NORM_COST[0] + ROPE_COST[0] * turned / q.width, ROPE_COST[1], turned)]


def _seen(model: Model, at: StepCounts) -> dict[str, Any]:
    """Attention reach of the step's tokens, and further properties of its keys and scores."""
    counts = {"tokens": at.tokens, "pairs": at.pairs, "positions": at.positions, "sequences": at.sequences}
    if at.phase != "prefill":
        return counts | _picked(model)
    beside = {"decodes": at.decodes, "queries": 1.0 + at.guesses, "decoded": at.decoded, "scored": at.scored}
    return counts | {"prompts": True} | beside | _picked(model)


def _picked(model: Model) -> dict[str, Any]:
    """Properties of attention's keys and scores that differ from standard attention."""
    fields: dict[str, Any] = {"capped": True} if model.softcap else {}
    return fields | ({} if model.indexer is None else {"picked": model.indexer.top, "together": model.indexer.block})


def _gated(model: Model, at: StepCounts, out: MatrixDim, needs: tuple[str, ...]) -> list[Operator]:
    """What scales the output of attention, where something does, and its projection."""
    m, h = at.tokens, MatrixDim(model.hidden)
    operators: list[Operator] = []
    if model.gate != "none":
        columns = out if model.gate == "element" else MatrixDim(out.units, split=out.split)
        operators.append(MatMulOp("gate_proj", ("attention_norm",), m, h, columns))
        operators.append(ElementwiseOp("output_activation", (*needs, "gate_proj"), m, out, *GATE_COST))
        needs = ("output_activation",)
    return [*operators, MatMulOp("o_proj", needs, m, out, h)]


def _index(model: Model, at: StepCounts, far: StepCounts, needs: str) -> list[Operator]:
    """Indexer operators: queries, key, head weights and choice; empty if an earlier layer's choice is reused."""
    index = model.indexer
    if index is None or index.reused:
        return []
    m, h, rank = at.tokens, MatrixDim(model.hidden), query_rank(model)
    queries = ("q_down",) if rank else (needs,)
    operators: list[Operator] = [
        MatMulOp("index_q", queries, m, MatrixDim(rank or model.hidden), MatrixDim(index.heads * index.dim))
    ]
    if model.compressed is None:  # else keys are those of compressed entries
        operators.append(MatMulOp("index_k", (needs,), m, h, MatrixDim(index.dim)))
    if index.block == 1:
        operators.append(MatMulOp("index_weights", (needs,), m, h, MatrixDim(index.heads)))
    needed = tuple(operator.name for operator in operators)
    return [*operators, IndexerOp("index", needed, index.heads, index.dim, index.top, index.block, m, far.pairs, far.positions)]


def _latent_attention(model: Model, latent: LatentAttention, at: StepCounts, far: StepCounts) -> list[Operator]:
    """MLA: naive in prefill (keys and values are expanded), weight-absorbed in decode (attention over the latent).

    A further chunk of a prompt expands what is cached before it once more. Decodes beside prompts have the absorbed form. Where
    an indexer picks positions, queries of a prompt have keys of their own each, and attention is over the latent too.
    """
    m, h = at.tokens, MatrixDim(model.hidden)
    rank, rope = latent.kv_rank, latent.rope_dim
    qk = latent.nope_dim + rope
    q = MatrixDim(model.heads, qk, split=True)
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
    if rope and model.rope:
        operators.append(ElementwiseOp("rope", turned, m, MatrixDim(model.heads, rope, split=True), *ROPE_COST))
        turned = ("rope",)
    index = _index(model, at, far, "attention_norm")
    operators += index
    needs = turned + ((index[-1].name,) if index else ())
    last: tuple[str, ...] = ("v_absorb",)
    if at.phase == "prefill" and model.indexer is None:
        prompts, beside = _apart(at)
        up = MatrixDim(model.heads, latent.nope_dim + latent.v_dim, split=True)
        heads = MatrixDim(model.heads, split=True)
        operators += [
            MatMulOp(
                "kv_up", ("kv_down",), prompts.tokens + prompts.positions, MatrixDim(rank), up,
                alone=True, again=prompts.positions,
            ),
            AttentionOp(
                "attention", (*needs, "kv_up"), heads, heads, qk, latent.v_dim, rank + rope, rank + rope,
                **_seen(model, prompts), alone=True,
            ),
        ]  # fmt: skip
        operators += [] if beside is None else _absorbed(model, latent, beside, needs, DECODES, stored=0.0)
        last = ("attention",) if beside is None else ("attention", "v_absorb")
    else:
        operators += _absorbed(model, latent, at, needs, "attention", alone=model.indexer is None)
    return operators + _gated(model, at, MatrixDim(model.heads, latent.v_dim, split=True), last)


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
    return [state_pass for state_pass in ((at, None) if at.phase == "decode" else _apart(at)) if state_pass is not None]


def _absorbed(
    model: Model,
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
    m, rank, rope, apart = at.tokens, latent.kv_rank, latent.rope_dim, model.heads
    ranks, dims, read = (
        MatrixDim(model.heads, rank, split=True),
        (MatrixDim(model.heads, split=True), MatrixDim(1)),
        where(m > 0, 1.0, 0.0),
    )
    return [
        MatMulOp("q_absorb", ("q_up",), m, MatrixDim(latent.nope_dim), ranks, read, stored, apart, alone),
        AttentionOp(
            name,
            (*needs, "q_absorb"),
            *dims,
            rank + rope,
            rank,
            rank + rope,
            rank + rope,
            **_seen(model, at),
            alone=alone,
        ),
        MatMulOp(
            "v_absorb",
            (name,),
            m,
            MatrixDim(rank),
            MatrixDim(model.heads, latent.v_dim, split=True),
            read,
            stored,
            apart,
            alone,
        ),
    ]


def _compressed_attention(model: Model, attention: CompressedAttention, at: StepCounts, far: StepCounts) -> list[Operator]:
    """One row a position, key and value of all heads, for the last tokens and for compressed entries."""
    m, h, row = at.tokens, MatrixDim(model.hidden), model.head_dim
    q = MatrixDim(model.heads, row, split=True)
    operators: list[Operator] = []
    if attention.q_rank:
        operators.append(MatMulOp("q_down", ("attention_norm",), m, h, MatrixDim(attention.q_rank)))
    operators.append(
        MatMulOp(
            "q_up", ("q_down",) if attention.q_rank else ("attention_norm",), m, MatrixDim(attention.q_rank or model.hidden), q
        )
    )
    operators.append(MatMulOp("kv_down", ("attention_norm",), m, h, MatrixDim(row)))
    if attention.ratio:
        wide = 2 if model.indexer is not None else 1
        operators.append(MatMulOp("compress", ("attention_norm",), m, h, MatrixDim(2 * wide * row)))
        if model.indexer is not None:
            operators.append(MatMulOp("index_compress", ("attention_norm",), m, h, MatrixDim(2 * wide * model.indexer.dim)))
    rope = _rope(model, at, q, ("q_up", "kv_down"))
    index = _index(model, at, far, "attention_norm")
    operators += [*rope, *index]
    needs = ((rope[-1].name,) if rope else ("q_up", "kv_down")) + ((index[-1].name,) if index else ())
    operators.append(AttentionOp("attention", needs, q, MatrixDim(1), row, row, row, row, **_seen(model, at)))
    inner = MatrixDim(attention.groups, model.heads // attention.groups * row, split=True)
    ranks = MatrixDim(attention.groups, attention.o_rank, split=True)
    operators.append(MatMulOp("o_down", ("attention",), m, MatrixDim(inner.width), ranks, apart=attention.groups))
    return [*operators, MatMulOp("o_proj", ("o_down",), m, ranks, h)]


def _recurrent(model: Model, state: RecurrentMixing, at: StepCounts) -> list[Operator]:
    """Projections, a short convolution, the state, and a gated norm; prompts chunk by chunk, decodes token by token."""
    if state.rule == "selective":
        return _selective(model, state, at)
    m, h = at.tokens, MatrixDim(model.hidden)
    keys, values = MatrixDim(state.key_heads, state.key_dim, split=True), MatrixDim(state.heads, state.value_dim, split=True)
    pairs, first = MatrixDim(state.key_heads, 2 * state.key_dim, split=True), ("attention_norm",)
    operators: list[Operator] = [
        MatMulOp("state_qk", first, m, h, pairs),
        MatMulOp("state_v", first, m, h, values),
    ]
    decays = {"delta": 2, "ssd": 1, "channel_delta": 1}.get(state.rule, 0)
    if decays:
        operators.append(MatMulOp("state_decay", first, m, h, MatrixDim(state.heads, decays, split=True)))
    rank = MatrixDim(state.gate_rank)
    if state.rule == "channel_delta" and state.gate_rank:
        operators += [MatMulOp("decay_down", first, m, h, rank), MatMulOp("decay_up", ("decay_down",), m, rank, keys)]
    elif state.rule == "channel_delta":
        operators.append(MatMulOp("decay_up", first, m, h, keys))
    if state.rule == "channel_delta" and state.gate_rank and not state.full_gate:
        operators += [MatMulOp("gate_down", first, m, h, rank), MatMulOp("gate_up", ("gate_down",), m, rank, values)]
    else:
        operators.append(MatMulOp("gate_up", first, m, h, values))
    steps = _state_passes(at)
    channels = replace(pairs, beside=values)  # as their projections are divided
    rates = tuple(operator.name for operator in operators if operator.name in ("state_decay", "decay_up"))
    left = []
    for step, (conv, name) in zip(steps, (("state_conv", "state"), (NEWEST, DECODED)), strict=False):
        needs: tuple[str, ...] = ("state_qk", "state_v")
        if state.conv:
            passes = convolution_cost(state.conv, alone=step.phase == "decode")
            operators.append(ElementwiseOp(conv, needs, step.tokens, channels, *passes, alone=True))
            needs = (conv,)
        chunk = 1 if step.phase == "decode" else state.chunk
        operators.append(
            RecurrenceOp(
                name,
                needs + rates,
                state.rule,
                MatrixDim(state.heads, split=True),
                state.heads // state.key_heads,
                state.key_dim,
                state.value_dim,
                step.tokens,
                step.sequences,
                step.states,
                chunk,
            )
        )
        left.append(name)
    return [
        *operators,
        norm_operator("state_norm", tuple(left), m, values),
        ElementwiseOp("output_activation", ("state_norm", "gate_up"), m, values, *GATE_COST),
        MatMulOp("o_proj", ("output_activation",), m, values, h),
    ]


def _selective(model: Model, state: RecurrentMixing, at: StepCounts) -> list[Operator]:
    """Mamba-1 [gu2023]: inputs and gates, a short convolution of inputs, of which B, C and steps are made, and the state.

    Each entry of a state has a decay of its own, so that prompts go token by token as decodes do. Where inputs are divided
    between devices, the sum of their B, C and steps, of some hundred values a token, is not counted.
    """
    m, h, values = at.tokens, MatrixDim(model.hidden), MatrixDim(state.heads, state.value_dim, split=True)
    first, rank = ("attention_norm",), MatrixDim(state.gate_rank)
    operators: list[Operator] = [MatMulOp("state_v", first, m, h, values), MatMulOp("gate_up", first, m, h, values)]
    steps = _state_passes(at)
    names = list(zip(steps, (("state_conv", "state"), (NEWEST, DECODED)), strict=False))
    inputs: tuple[str, ...] = ("state_v",)
    if state.conv:
        for counts, (conv, _) in names:
            passes = convolution_cost(state.conv, alone=counts.phase == "decode")
            operators.append(ElementwiseOp(conv, ("state_v",), counts.tokens, values, *passes, alone=True))
        inputs = tuple(conv for _, (conv, _) in names)
    operators.append(MatMulOp("state_qk", inputs, m, values, MatrixDim(2 * state.key_dim)))
    if state.gate_rank:
        operators += [MatMulOp("decay_down", inputs, m, values, rank), MatMulOp("decay_up", ("decay_down",), m, rank, values)]
    needs = (*inputs, "state_qk", *(("decay_up",) if state.gate_rank else ()))
    for counts, (_, name) in names:
        operators.append(
            RecurrenceOp(
                name, needs, state.rule, MatrixDim(state.heads, split=True), state.heads // state.key_heads, state.key_dim,
                state.value_dim, counts.tokens, counts.sequences, counts.states, 1,
            )
        )  # fmt: skip
    left = tuple(name for _, (_, name) in names)
    return [
        *operators,
        ElementwiseOp("output_activation", (*left, "gate_up"), m, values, *GATE_COST),
        MatMulOp("o_proj", ("output_activation",), m, values, h),
    ]
