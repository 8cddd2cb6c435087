"""Functional simulation of recurrent states on one tensor-parallel device.

A convolution comes first, then tokens one by one, or chunks.

A chunk of a prompt is worked out by the products that `graph.operators.recurrence_shapes` lists, and these are counted: a call
that says fewer or more is refused. Heads of states have decays and rates of their own; what makes these of projections is no
operator.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dse.evaluators.calls.call import KernelCall
from dse.evaluators.graph.operators import RecurrenceOp
from dse.space.array_math import Array


class RecurrentState(NamedTuple):
    """State of a recurrent layer, and its parameters besides the weights of products.

    Attributes:
        matrices: of heads before the step, shape (sequences, heads, key_dim, value_dim).
        rows: queries with keys, and values, before their convolution of as many tokens as it looks back, each of shape
            (sequences, tokens, columns); of prompts, zeros.
        taps: of the convolution of both, shape (tokens, columns), the newest token last.
        rate, bias: of each head's decay exp(-rate softplus(a + bias)) for a projected `a`, shape (heads,), with a bias of each
            key where these decay by themselves; or of a decay exp(-rate).
    """

    matrices: Array
    rows: tuple[Array, Array]
    taps: tuple[Array, Array]
    rate: Array
    bias: Array


def convolution_windows(inputs: list[Array], state: RecurrentState, first: tuple[int, int]) -> tuple[Array, Array]:
    """Rows that a device's convolution sees, and its taps, with the newest token's tap last.

    Args:
        inputs: of the convolution, each of which has the layer's columns from its `first` on.
        state: of the layer.
        first: columns.

    Returns:
        Rows of each sequence and the earlier ones before them, shape (sequences, earlier + tokens, columns), and taps, shape
        (earlier + 1, columns).
    """
    rows, taps = [], []
    for x, start, before, weights in zip(inputs, first, state.rows, state.taps, strict=True):
        columns = x.shape[1]
        rows.append(np.concatenate([padded_slice(before, start, columns, 2), x.reshape(len(before), -1, columns)], axis=1))
        taps.append(padded_slice(weights, start, columns, 1))
    return np.concatenate(rows, axis=2), np.concatenate(taps, axis=1)


def convolve(rows: Array, taps: Array) -> Array:
    """Causal convolution by channels, with SiLU, shape (tokens, columns)."""
    new = rows.shape[1] - len(taps) + 1
    total = sum(rows[:, tap : tap + new] * weights for tap, weights in enumerate(taps))
    return np.asarray(total / (1 + np.exp(-total))).reshape(-1, rows.shape[2])


def read_states(call: KernelCall, operator: RecurrenceOp, inputs: list[Array], state: RecurrentState, own: range) -> Array:
    """Result that queries read from a device's states, shape (tokens, heads x value_dim).

    Args:
        call, of: call and its operator.
        inputs: queries and keys of each head of keys and then values of each head, side by side or one after the other, and
            what decays and rates are made of.
        state: of the layer.
        own: heads of values that the device has; some may be nobody's.

    Raises:
        ValueError: the device has not the keys of all its heads of values, or products are others.
    """
    heads, sequences = len(own), len(state.matrices)
    done = state_inputs(call, operator, inputs, state, own)
    (gemm,) = call.products
    outputs, matrices = np.empty_like(done.v), padded_slice(state.matrices, own.start, heads, 1)
    for sequence in range(sequences):
        for head in range(heads):
            matrix = matrices[sequence, head]
            for start in range(0, outputs.shape[1], operator.chunk):
                at = sequence, slice(start, start + operator.chunk), head
                counted = _Products()
                q, k, v, decay, rate = (tensor[at] for tensor in done)
                outputs[at], matrix = _chunk(operator, q, k, v, decay, rate, matrix, counted)
                macs = gemm.m * gemm.k * gemm.n
                if len(outputs[at]) == operator.chunk and abs(counted.macs(operator) - macs) > 1e-9 * macs:
                    raise ValueError(f"call {call.name!r}: {macs} multiply-adds of a head, has {counted.macs(operator)}")
    tokens = sequences * outputs.shape[1]
    if abs(gemm.count * operator.chunk - tokens * heads) > 1e-9 * tokens * heads:
        raise ValueError(f"call {call.name!r}: {gemm.count} chunks of heads, has {tokens * heads / operator.chunk}")
    return outputs.reshape(tokens, -1)


class StateInputs(NamedTuple):
    """Inputs of a state update by value head; shape (sequences, tokens, heads, of a head).

    Attributes:
        q, k, v: of each head, those of keys as often as heads share them.
        decay: logarithms, one a head or one for each key.
        rate: what is learned of a value.
    """

    q: Array
    k: Array
    v: Array
    decay: Array
    rate: Array


def state_inputs(
    call: KernelCall, operator: RecurrenceOp, inputs: list[Array], state: RecurrentState, own: range
) -> StateInputs:
    """Inputs of a state update from the projections of a layer; errors as in `read_states`."""
    gates = len([name for name in operator.needs if name in ("state_decay", "decay_up")])
    x, projected = np.concatenate(inputs[: len(inputs) - gates], axis=1), inputs[len(inputs) - gates :]
    heads, sequences = len(own), len(state.matrices)
    keys, left = divmod(x.shape[1] - heads * operator.value_dim, 2 * operator.key_dim)
    owner = np.array(own) // operator.shared - own.start // operator.shared
    real = np.array(own) < state.matrices.shape[1]
    if left or (owner[real] >= keys).any():
        raise ValueError(f"call {call.name!r}: {keys} heads of keys are not those of all its {heads} heads of values")
    owner = np.where(real, owner, 0)
    x = x if operator.rule != "linear" else x / (1 + np.exp(-x))
    by_head = x[:, : 2 * keys * operator.key_dim].reshape(sequences, -1, keys, 2, operator.key_dim)
    q, k = by_head[..., owner, 0, :], by_head[..., owner, 1, :]
    v = x[:, 2 * keys * operator.key_dim :].reshape(sequences, -1, heads, operator.value_dim)
    rate = np.ones((*v.shape[:3], 1))
    step = rate  # of a time that goes on evenly
    tensors = [tensor.reshape(*v.shape[:2], -1) for tensor in projected]
    if operator.rule == "channel_delta":
        channels = tensors[1] + padded_slice(
            state.bias, own.start // operator.shared * operator.key_dim, keys * operator.key_dim, 0
        )
        step = np.log1p(np.exp(channels)).reshape(*v.shape[:2], keys, operator.key_dim)[..., owner, :]
    elif operator.rule != "linear":
        step = np.log1p(
            np.exp(tensors[0].reshape(*v.shape[:3], -1)[..., :1] + padded_slice(state.bias, own.start, heads, 0)[:, None])
        )
    if operator.rule in CORRECTED_RULES:
        q, k = (vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30) for vectors in (q, k))
        q, rate = q * operator.key_dim**-0.5, 1 / (1 + np.exp(-tensors[0].reshape(*v.shape[:3], -1)[..., -1:]))
    elif operator.rule == "ssd":
        rate = step
    return StateInputs(q, k, v, -padded_slice(state.rate, own.start, heads, 0)[:, None] * step, rate)


def padded_slice(x: Array, start: int, count: int, axis: int) -> Array:
    """Range along an axis, with zeros beyond its end."""
    kept = np.take(x, np.arange(min(start, x.shape[axis]), min(start + count, x.shape[axis])), axis)
    more = [(0, 0)] * x.ndim
    more[axis] = (0, count - kept.shape[axis])
    return np.pad(kept, more)


CORRECTED_RULES = ("delta", "channel_delta")
"""Rules that read what is there before they add to it."""


class _Products:
    """Products that are counted."""

    def __init__(self) -> None:
        self.own = self.shared = 0.0

    def __call__(self, a: Array, b: Array, *, shared: bool = False) -> Array:
        """Their product; one of heads that share queries and keys is done once for these."""
        macs = float(a.size * b.shape[1])
        self.own, self.shared = self.own + macs * (not shared), self.shared + macs * shared
        return np.asarray(a @ b)

    def macs(self, operator: RecurrenceOp) -> float:
        """Multiply-adds of a head."""
        return self.own + self.shared / operator.shared


def _chunk(
    operator: RecurrenceOp,
    q: Array,
    k: Array,
    v: Array,
    decay: Array,
    rate: Array,
    matrix: Array,
    product: Callable[..., Array],
) -> tuple[Array, Array]:
    """What tokens of a head read, and its state behind them; a token by itself needs no scores.

    Source:
        [yang2024] section 3.3 with gates, [kimi2025] with those of each key, [dao2024] section 6; `decay` are logarithms, and
        `rate` is beta, the step of ssd, or 1.
    """
    corrected, by_key = operator.rule in CORRECTED_RULES, operator.rule == "channel_delta"
    if operator.chunk == 1:
        matrix = np.exp(decay[0])[:, None] * matrix
        value = v - product(k, matrix) if corrected else v
        matrix = matrix + product(k.T, rate * value)
        return product(q, matrix), matrix
    until = np.cumsum(decay, axis=0)
    between = 1.0 if by_key else np.exp(np.minimum(until - until.T, 0.0))
    near, far = (np.exp(until), np.exp(-until)) if by_key else (1.0, 1.0)
    value = rate * v
    if corrected:
        lower = np.tril(product(k * near, (k * far).T) * between * rate, -1)
        inverse = np.linalg.inv(np.eye(len(k)) + lower)
        read = product(inverse, k * (rate * np.exp(until)))
        value = product(inverse, value) - product(read, matrix)
    scores = np.tril(product(q * near, (k * far).T, shared=not corrected) * between)
    read = product(q * np.exp(until), matrix) + product(scores, value)
    added = product((k * np.exp(until[-1] - until)).T, value)
    return read, np.exp(until[-1])[:, None] * matrix + added
