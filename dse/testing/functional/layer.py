"""Tensors of one decoder layer, and its operators that no kernel program covers, in NumPy.

A layer has the graph's parts for what it computes, and weights by the names of operators. How it is divided is said by calls
alone. Post-norms have no numbers here.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import FEEDING, MIXING, AttentionOp, ElementwiseOp, MatMulOp, RecurrenceOp, Segment
from dse.space.array_math import Array
from dse.testing.functional.recurrent_states import RecurrentState

ROPE_BASE = 10000.0
"""Of the wavelengths of rotations: any will do, as long as they differ."""


class ScoreRules(NamedTuple):
    """Rules for attention scores: scale, cap, window and sinks.

    Attributes:
        window: keys that a query sees at most, its own one included; 0 for all.
        cap: scores s become cap tanh(s / cap); 0 for none.
        sinks: a logit of each head that joins the softmax and has no value, shape (heads,); None for none.
        scale: of scores; 0 for one over the root of a head's width.
    """

    window: int = 0
    cap: float = 0.0
    sinks: Array | None = None
    scale: float = 0.0

    def of_heads(self, heads: slice) -> "ScoreRules":
        """Rules for a subset of the heads."""
        return self if self.sinks is None else self._replace(sinks=self.sinks[heads])


class LayerTensors(NamedTuple):
    """Weights, inputs and caches of one decoder layer.

    Attributes:
        parts: of the graph, in order: the mixing and the FFN, with the choice and the sum of experts where calls do these.
        weights: by operator: of products shape (k, n), of experts (experts, k, n), of norms (width,); those of the norms of
            heads are `q_norm` and `k_norm`.
        x: the residual stream, sequence after sequence, shape (tokens, hidden).
        keys, values: cached before, keys rotated already; shape (sequences, positions, KV heads, of a head). Of latent
            attention keys are rotated values and the latent, and values the latent.
        top: experts of a token; 0 where there are none.
        normed: whether queries and keys of each head are normed before they are rotated.
        packed: tensors (weights, kv) that have to become wide values before they are multiplied.
        scored: what becomes of scores.
        before: positions of a sequence that its cache has no more, as of a window.
        rope: rotated values of a head, where these are apart from the others, as of latent attention; 0 elsewhere.
        state: of a layer that is recurrent; None of others.
        indexed: cached keys of an indexer, normed and rotated, shape (sequences, positions, of a key); None where none is.
    """

    parts: tuple[Segment, ...]
    weights: dict[str, Array]
    x: Array
    keys: Array
    values: Array
    top: int = 0
    normed: bool = False
    packed: tuple[str, ...] = ()
    scored: ScoreRules = ScoreRules()
    before: int = 0
    rope: int = 0
    state: RecurrentState | None = None
    indexed: Array | None = None

    @property
    def sequences(self) -> int:
        """Number of sequences with equally many new tokens. [-]"""
        return len(self.keys)

    @property
    def positions(self) -> Array:
        """Position of each token in its sequence."""
        new = len(self.x) // self.sequences
        return np.tile(self.before + self.keys.shape[1] + np.arange(new), self.sequences)

    def find_part(self, name: str) -> Segment | None:
        """Segment of a name; None if the layer has no such segment."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def rotated_width(self) -> int:
        """Width of the rotated part of each head. [-]"""
        return self.rope or self.attention.qk_dim

    @property
    def attention(self) -> AttentionOp:
        """Attention operator of the layer."""
        return next(operator for part in self.parts for operator in part.operators if isinstance(operator, AttentionOp))

    @property
    def mixing_operator(self) -> AttentionOp | RecurrenceOp:
        """Operator of the layer that mixes tokens: attention or a recurrence."""
        return next(
            operator for part in self.parts for operator in part.operators if isinstance(operator, AttentionOp | RecurrenceOp)
        )

    @property
    def heads_per_key(self) -> int:
        """Query heads, or states, per key head. [-]"""
        shape = self.mixing_operator
        return shape.shared if isinstance(shape, RecurrenceOp) else shape.heads.units // shape.kv_heads.units


class RoutedTokens(NamedTuple):
    """Destinations of token copies, in the order of experts, then of tokens.

    Attributes:
        token, expert: of each copy.
        weight: what its result counts.
    """

    token: Array
    expert: Array
    weight: Array


def is_residual(part: Segment) -> bool:
    """Whether the result of a segment is added to the residual stream."""
    return part.kind in (MIXING, FEEDING)


def rms_norm(x: Array, weight: Array) -> Array:
    """Rows divided by the roots of their mean squares, times column weights; zero rows stay zero."""
    squares = (x * x).mean(axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt(np.where(squares > 0, squares, 1.0)) * weight)


def rotate_heads(x: Array, positions: Array, turned: int) -> Array:
    """Heads with their first `turned` values rotated in pairs by angles of positions.

    Args:
        x: shape (tokens, heads, of a head).
        positions: of tokens.
        turned: even.
    """
    half = turned // 2
    cos, sin = rotary_angles(positions, half)
    left, right, rest = x[..., :half], x[..., half:turned], x[..., turned:]
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin, rest], axis=-1)


def rotary_angles(positions: Array, half: int) -> tuple[Array, Array]:
    """Cosines and sines of the rotary angles of pairs, shape (tokens, half)."""
    angles = positions[:, None] * ROPE_BASE ** (-np.arange(half) / max(half, 1))
    return np.cos(angles), np.sin(angles)


def gated_silu(gate: Array, up: Array | None = None) -> Array:
    """SiLU of the gate times the other product, or of a single product."""
    activation = gate / (1 + np.exp(-gate))
    return np.asarray(activation if up is None else activation * up)


def softmax_attention(q: Array, k: Array, v: Array, how: ScoreRules, picked: Array | None = None) -> tuple[Array, int]:
    """Softmax attention where a sequence's last query sees its last key.

    Also returns the pairs of each head that were seen.

    Args:
        q: shape (sequences, queries, heads, of a head).
        k, v: of the KV head of each head, shape (sequences, keys, heads, of a head).
        how: of these heads.
        picked: keys that each query has, shape (sequences, queries, keys); None where it has all that it sees.
    """
    scores = np.einsum("sqhd,skhd->shqk", q, k) * (how.scale or q.shape[-1] ** -0.5)
    scores = how.cap * np.tanh(scores / how.cap) if how.cap else scores
    seen = np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1], dtype=bool)
    if how.window:
        seen &= ~np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1] - how.window, dtype=bool)
    seen = np.broadcast_to(seen if picked is None else seen & picked, (len(q), q.shape[1], k.shape[1]))
    largest = scores.max(axis=-1, keepdims=True)
    shares = np.where(seen[:, None], np.exp(scores - largest), 0.0)
    total = shares.sum(axis=-1, keepdims=True)
    total = total if how.sinks is None else total + np.exp(how.sinks[:, None, None] - largest)
    return np.einsum("shqk,skhd->sqhd", shares / total, v), int(seen.sum())


def topk_keys(scores: Array, top: int) -> Array:
    """Keys with the largest scores that each query sees, shape (sequences, queries, keys)."""
    queries, keys = scores.shape[1:]
    seen = np.broadcast_to(np.tri(queries, keys, keys - queries, dtype=bool), scores.shape)
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=2, kind="stable")[..., :top]
    mask = np.zeros(scores.shape, bool)
    np.put_along_axis(mask, best, np.array(True), axis=2)
    return np.asarray(mask & seen)


def route_tokens(logits: Array, top: int, weight: Array | None = None) -> RoutedTokens:
    """The `top` experts of each token by its scores, with a softmax among them.

    Args:
        logits: of the router, shape (tokens, experts).
        top: experts of a token.
        weight: exponentials of the largest ones, where a call has found these.
    """
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :top]
    if weight is None:
        weight = np.exp(np.take_along_axis(logits, chosen, axis=1))
    return token_copies(chosen, weight / weight.sum(axis=1, keepdims=True))


def token_copies(chosen: Array, weight: Array) -> RoutedTokens:
    """Copies of tokens by the experts of each, shape (tokens, experts of a token), with their weights."""
    order = np.argsort(chosen.ravel(), kind="stable")
    return RoutedTokens(order // chosen.shape[1], chosen.ravel()[order], weight.ravel()[order])


def combine_experts(rows: Array, given_tokens: RoutedTokens, tokens: int) -> Array:
    """Weighted sums of the expert results of each token."""
    experts = np.zeros((tokens, rows.shape[1]))
    np.add.at(experts, given_tokens.token, rows * given_tokens.weight[:, None])
    return experts


def results_left(part: Segment) -> list[str]:
    """Names of the operators whose results leave a segment: no other one needs them."""
    needed = {need for operator in part.operators for need in operator.needs} | {"router", "choice"}
    return [
        operator.name
        for operator in part.operators
        if operator.name not in needed and isinstance(operator, MatMulOp | ElementwiseOp)
    ]


def as_integer(value: Any) -> int:
    """Return a count as an integer; refuse a fraction.

    Raises:
        ValueError: it is none.
    """
    integer = round(float(value))
    if abs(integer - float(value)) > 1e-6:
        raise ValueError(f"{value} is no whole number")
    return integer
