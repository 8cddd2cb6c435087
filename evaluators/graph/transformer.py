"""A model and a step as operators: what is computed, before anyone divides it between devices.

Not said here: how long anything takes, and who waits for whom across devices.
"""

from typing import Any

from dse.evaluators.graph.experts import touched
from dse.evaluators.graph.operators import Attention, Dim, Elementwise, MatMul, Operator, Part
from dse.evaluators.graph.step import Step
from dse.space.model import Experts, Latent, Model

NORM = (4, 2)
ROPE = (3, 2)
GATE = (5, 3)
"""Vector operations an element, and reads plus writes of it: square, sum, scale, multiply; two products and a sum; SiLU and
a product of two inputs."""


def transformer(model: Model, step: Step) -> tuple[Part, ...]:
    """The parts of one step: embedding, attention, FFN (dense and sparse layers apart) and head.

    The head runs on the rows that get a new token. Sampling is left out: it moves a few bytes a request. A module that predicts
    tokens (MTP) joins the last hidden state and the next token's embedding, and is one layer and one head more [deepseek2024].
    """
    h, guesses = Dim(model.hidden), step.guesses
    embedding = Elementwise("embedding", (), step.tokens, h, 0, 2)
    m = step.tokens
    parts = [Part("embedding", m, (embedding,), 1), Part("attention", m, _attention(model, step), model.layers + guesses)]
    experts = model.experts
    dense = model.layers if experts is None else experts.dense_layers
    if dense or (guesses and experts is None):
        ffn = _ffn(model, step, prefix="", width=model.ffn_intermediate, needs=("ffn_norm",))
        parts.append(Part("ffn", m, (_norm("ffn_norm", (), m, h), *ffn), dense + (guesses if experts is None else 0)))
    if experts is not None:
        parts.append(Part("moe", m, _moe(model, experts, step), model.layers - dense + guesses))
    if guesses:
        parts.append(Part("mtp", m, _predicted(model, step), guesses))
    head = MatMul("head", ("final_norm",), step.requests, h, Dim(model.vocab, split=True))
    parts.append(Part("head", step.requests, (_norm("final_norm", (), step.requests, h), head), 1))
    return tuple(parts)


def _predicted(model: Model, step: Step) -> tuple[Operator, ...]:
    """Of a module that predicts tokens what its layer is not: two hidden states made one, and the model's own head after it."""
    m, rows, h = step.tokens, step.requests, Dim(model.hidden)
    return (
        _norm("mtp_norm", (), m, h),
        _norm("mtp_embedding_norm", (), m, h),
        MatMul("mtp_proj", ("mtp_norm", "mtp_embedding_norm"), m, Dim(2 * model.hidden), h),
        _norm("mtp_final_norm", ("mtp_proj",), rows, h),
        MatMul("mtp_head", ("mtp_final_norm",), rows, h, Dim(model.vocab, split=True), stored=0.0),
    )


def _attention(model: Model, step: Step) -> tuple[Operator, ...]:
    if model.latent is not None:
        return _latent_attention(model, model.latent, step)
    m, h, d = step.tokens, Dim(model.hidden), model.head_dim
    q, kv = Dim(model.heads, d, split=True), Dim(model.kv_heads, d, split=True)
    # qk-norms run on the same elements just before the rotation, and are counted with it
    rotation = (ROPE[0] + (NORM[0] if model.qk_norm else 0), ROPE[1])
    return (
        _norm("attention_norm", (), m, h),
        MatMul("q_proj", ("attention_norm",), m, h, q),
        MatMul("k_proj", ("attention_norm",), m, h, kv),
        MatMul("v_proj", ("attention_norm",), m, h, kv),
        Elementwise("rope", ("q_proj", "k_proj"), m, q, *rotation),
        Attention("attention", ("rope", "v_proj"), q, kv, d, d, 2 * d, d, tokens=m, pairs=step.pairs, positions=step.positions),
        MatMul("o_proj", ("attention",), m, q, h),
    )


def _latent_attention(model: Model, latent: Latent, step: Step) -> tuple[Operator, ...]:
    """MLA: naive in prefill (keys and values are expanded), weight-absorbed in decode (attention over the latent)."""
    m, h = step.tokens, Dim(model.hidden)
    rank, rope = latent.kv_rank, latent.rope_dim
    qk = latent.nope_dim + rope
    q = Dim(model.heads, qk, split=True)
    values = Dim(model.heads, latent.v_dim, split=True)
    operators: list[Operator] = [_norm("attention_norm", (), m, h)]
    if latent.q_rank:
        operators += [
            MatMul("q_down", ("attention_norm",), m, h, Dim(latent.q_rank)),
            MatMul("q_up", ("q_down",), m, Dim(latent.q_rank), q),
        ]
    else:
        operators.append(MatMul("q_up", ("attention_norm",), m, h, q))
    operators.append(MatMul("kv_down", ("attention_norm",), m, h, Dim(rank + rope)))
    operators.append(Elementwise("rope", ("q_up", "kv_down"), m, Dim(model.heads, rope, split=True), *ROPE))
    if step.phase == "prefill":
        up = Dim(model.heads, latent.nope_dim + latent.v_dim, split=True)
        heads = Dim(model.heads, split=True)
        operators += [
            MatMul("kv_up", ("kv_down",), m, Dim(rank), up),
            Attention(
                "attention", ("rope", "kv_up"), heads, heads, qk, latent.v_dim, rank + rope, rank + rope,
                tokens=m, pairs=step.pairs, positions=step.positions,
            ),
        ]  # fmt: skip
    else:
        # one small product a head: [m, nope] x [nope, rank] and [m, rank] x [rank, v], weights shared with kv_up
        ranks, apart = Dim(model.heads, rank, split=True), model.heads
        into = MatMul("q_absorb", ("q_up",), m, Dim(latent.nope_dim), ranks, apart=apart)
        out_of = MatMul("v_absorb", ("attention",), m, Dim(rank), Dim(model.heads, latent.v_dim, split=True), apart=apart)
        operators += [
            into,
            Attention(
                "attention", ("rope", "q_absorb"), Dim(model.heads, split=True), Dim(1), rank + rope, rank, rank + rope,
                rank + rope, tokens=m, pairs=step.pairs, positions=step.positions,
            ),
            out_of,
        ]  # fmt: skip
    operators.append(MatMul("o_proj", (operators[-1].name,), m, values, h))
    return tuple(operators)


def _ffn(model: Model, step: Step, *, prefix: str, width: int, needs: tuple[str, ...]) -> list[Operator]:
    m, h, f = step.tokens, Dim(model.hidden), Dim(width, split=True)
    up = MatMul(f"{prefix}up", needs, m, h, f)
    gate = [MatMul(f"{prefix}gate", needs, m, h, f)] if model.gated_ffn else []
    inputs = tuple(operator.name for operator in (*gate, up))
    activation = Elementwise(f"{prefix}activation", inputs, m, f, *GATE)
    return [*gate, up, activation, MatMul(f"{prefix}down", (activation.name,), m, f, h)]


def _moe(model: Model, experts: Experts, step: Step) -> tuple[Operator, ...]:
    h, f = Dim(model.hidden), Dim(experts.intermediate, split=True)
    rows = step.tokens * experts.top_k
    read, stored = touched(experts, step.tokens), float(experts.count)
    operators: list[Operator] = [
        _norm("ffn_norm", (), step.tokens, h),
        MatMul("router", ("ffn_norm",), step.tokens, h, Dim(experts.count)),
        MatMul("experts_gate", ("router",), rows, h, f, read, stored),
        MatMul("experts_up", ("router",), rows, h, f, read, stored),
        Elementwise("experts_activation", ("experts_gate", "experts_up"), rows, f, *GATE),
        MatMul("experts_down", ("experts_activation",), rows, f, h, read, stored),
    ]
    if experts.shared:
        width = experts.shared * experts.intermediate
        operators += _ffn(model, step, prefix="shared_", width=width, needs=("ffn_norm",))
    return tuple(operators)


def _norm(name: str, needs: tuple[str, ...], rows: Any, dim: Dim) -> Elementwise:
    return Elementwise(name, needs, rows, dim, *NORM)
