"""Recurrent states on numbers, as one device of a tensor-parallel group has them: a convolution, then tokens or chunks.

A chunk of a prompt is worked out by the products that `graph.operators.shapes` lists, and these are counted: a call that says
fewer or more is refused. Heads of states have decays and rates of their own; what makes these of projections is no operator.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dse.evaluators.graph.operators import Recur
from dse.evaluators.passes.call import Call
from dse.space.elementwise import Array


class State(NamedTuple):
    """What a recurrent layer has beside the weights of its products.

    Attributes:
        matrices: of heads before the step, shape (sequences, heads, key_dim, value_dim).
        rows: queries with keys, and values, before their convolution of as many tokens as it looks back, each of shape
            (sequences, tokens, columns); of prompts, zeros.
        taps: of the convolution of both, shape (tokens, columns), the newest token last.
        rate, bias: of each head's decay exp(-rate softplus(a + bias)) for a projected `a`, shape (heads,).
    """

    matrices: Array
    rows: tuple[Array, Array]
    taps: tuple[Array, Array]
    rate: Array
    bias: Array


def convolved(inputs: list[Array], state: State, first: tuple[int, int]) -> Array:
    """Causal convolution by channels, and SiLU, of a device's queries with keys, and values; shape (tokens, columns).

    Args:
        inputs: of the convolution, each of which has the layer's columns from its `first` on.
        state: of the layer.
        first: columns.
    """
    found = []
    for x, start, rows, taps in zip(inputs, first, state.rows, state.taps, strict=True):
        sequences, columns = len(rows), x.shape[1]
        whole = np.concatenate([cut(rows, start, columns, 2), x.reshape(sequences, -1, columns)], axis=1)
        new = whole.shape[1] - len(taps) + 1
        total = sum(whole[:, tap : tap + new] * weights for tap, weights in enumerate(cut(taps, start, columns, 1)))
        found.append((total / (1 + np.exp(-total))).reshape(len(x), -1))
    return np.concatenate(found, axis=1)


def recurred(call: Call, of: Recur, inputs: list[Array], state: State, first: int) -> Array:
    """What queries read of a device's states, shape (tokens, heads x value_dim).

    Args:
        call, of: what is asked for.
        inputs: queries and keys of each head of keys and then values of each head, and what decays and rates are made of.
        state: of the layer.
        first: head of values that the device has.

    Raises:
        ValueError: the rule has no numbers, the device has not the keys of all its heads of values, or products are others.
    """
    if of.rule not in RULES:
        raise ValueError(f"call {call.name!r}: rule {of.rule!r} has no numbers; {', '.join(RULES)} have")
    x, projected = inputs
    tokens, sequences, heads = len(x), len(state.matrices), projected.shape[1] // RULES[of.rule]
    keys, left = divmod(x.shape[1] - heads * of.value_dim, 2 * of.key_dim)
    own = (first + np.arange(heads)) // of.shared - first // of.shared
    real = first + np.arange(heads) < state.matrices.shape[1]
    if left or (own[real] >= keys).any():
        raise ValueError(f"call {call.name!r}: {keys} heads of keys are not those of all its {heads} heads of values")
    by_head = x[:, : 2 * keys * of.key_dim].reshape(sequences, -1, keys, 2, of.key_dim)
    q, k = (by_head[..., np.where(real, own, 0), which, :] for which in range(2))
    v = x[:, 2 * keys * of.key_dim :].reshape(sequences, -1, heads, of.value_dim)
    gates = projected.reshape(sequences, -1, heads, RULES[of.rule])
    step = np.log1p(np.exp(gates[..., 0] + cut(state.bias, first, heads, 0)))
    decay, rate = -cut(state.rate, first, heads, 0) * step, step
    matrices = cut(state.matrices, first, heads, 1)
    if of.rule == "delta":
        q, k = (some / np.maximum(np.linalg.norm(some, axis=-1, keepdims=True), 1e-30) for some in (q, k))
        q, rate = q * of.key_dim**-0.5, 1 / (1 + np.exp(-gates[..., 1]))
    (said,) = call.products
    found = np.empty_like(v)
    for sequence in range(sequences):
        for head in range(heads):
            matrix = matrices[sequence, head]
            for start in range(0, v.shape[1], of.chunk):
                at = sequence, slice(start, start + of.chunk), head
                done = _Products()
                found[at], matrix = _chunk(of, q[at], k[at], v[at], decay[at], rate[at], matrix, done)
                macs = said.m * said.k * said.n
                if len(q[at]) == of.chunk and abs(done.macs(of) - macs) > 1e-9 * macs:
                    raise ValueError(f"call {call.name!r}: {macs} multiply-adds of a head, has {done.macs(of)}")
    if abs(said.count * of.chunk - tokens * heads) > 1e-9 * tokens * heads:
        raise ValueError(f"call {call.name!r}: {said.count} chunks of heads, has {tokens * heads / of.chunk}")
    return found.reshape(tokens, -1)


def cut(x: Array, start: int, count: int, axis: int) -> Array:
    """A range along an axis, of zeros where it goes beyond the end."""
    kept = np.take(x, np.arange(min(start, x.shape[axis]), min(start + count, x.shape[axis])), axis)
    more = [(0, 0)] * x.ndim
    more[axis] = (0, count - kept.shape[axis])
    return np.pad(kept, more)


RULES = {"delta": 2, "ssd": 1}
"""Rules that have numbers, and projected values of a head that its decay, and its rate of learning, are made of."""


class _Products:
    """Products that are counted."""

    def __init__(self) -> None:
        self.own = self.shared = 0.0

    def __call__(self, a: Array, b: Array, *, shared: bool = False) -> Array:
        """Their product; one of heads that share queries and keys is done once for these."""
        macs = float(a.size * b.shape[1])
        self.own, self.shared = self.own + macs * (not shared), self.shared + macs * shared
        return np.asarray(a @ b)

    def macs(self, of: Recur) -> float:
        """Multiply-adds of a head."""
        return self.own + self.shared / of.shared


def _chunk(
    of: Recur, q: Array, k: Array, v: Array, decay: Array, rate: Array, matrix: Array, product: Callable[..., Array]
) -> tuple[Array, Array]:
    """What tokens of a head read, and its state behind them; a token by itself needs no scores.

    Source:
        [yang2024] section 3.3 with gates, [dao2024] section 6; `decay` are logarithms, `rate` is beta, or the step of ssd.
    """
    if of.chunk == 1:
        matrix = np.exp(decay[0]) * matrix
        value = v - product(k, matrix) if of.rule == "delta" else v
        matrix = matrix + product(k.T, rate[:, None] * value)
        return product(q, matrix), matrix
    until = np.cumsum(decay)
    between = np.exp(np.minimum(until[:, None] - until, 0.0))
    value = rate[:, None] * v
    if of.rule == "delta":
        lower = np.tril(product(k, k.T) * between * rate[:, None], -1)
        inverse = np.linalg.inv(np.eye(len(k)) + lower)
        corrected = product(inverse, k * (rate * np.exp(until))[:, None])
        value = product(inverse, value) - product(corrected, matrix)
    scores = np.tril(product(q, k.T, shared=of.rule != "delta") * between)
    read = product(q * np.exp(until)[:, None], matrix) + product(scores, value)
    added = product((k * np.exp(until[-1] - until)[:, None]).T, value)
    return read, np.exp(until[-1]) * matrix + added
