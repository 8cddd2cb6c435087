"""Functional simulation of a segment's calls on one worker (device, die, chip of tiles, core group).

Each operator is run by its call.

A call's shape says how much of a matrix its worker has, the graph which side of it may be divided, and the worker's number
which part it is. Nothing else says how a layer is divided.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dse.evaluators.calls.call import KernelCall
from dse.evaluators.graph.operators import AttentionOp, ElementwiseOp, IndexerOp, MatMulOp, Operator, RecurrenceOp, Segment
from dse.space.array_math import Array
from dse.testing.functional.layer import (
    LayerTensors,
    RoutedTokens,
    ScoreRules,
    as_integer,
    combine_experts,
    gated_silu,
    results_left,
    rms_norm,
    rotate_heads,
    route_tokens,
)
from dse.testing.functional.recurrent_states import RecurrentState, convolution_windows, convolve, padded_slice

HEADS_NORM = "heads_norm"
"""Norms of heads, by themselves or before a rotation of a part of each."""


class AttentionInputs(NamedTuple):
    """Queries, keys and values of an attention on one worker, with its rules.

    Attributes:
        q: shape (sequences, queries, heads, of a head).
        k, v: of the worker's KV heads, shape (sequences, keys, KV heads, of a head).
        own: KV head of each head, a place among the worker's.
        scored: what becomes of scores of these heads.
        picked: keys that each query has, shape (sequences, queries, keys); None where it has all that it sees.
    """

    q: Array
    k: Array
    v: Array
    own: Array
    scored: ScoreRules
    picked: Array | None = None


class LocalCopies(NamedTuple):
    """Token copies at the experts of one worker.

    Attributes:
        rows: the copies.
        experts: which ones are here.
        places: of the rows of each of them.
    """

    rows: Array
    experts: slice
    places: list[Array]


class KernelFunctions(NamedTuple):
    """Functions that compute the results of calls, by kind of operator.

    Attributes:
        product: of a call, rows and a matrix.
        experts: likewise of rows of several experts, by the rows of each, with their matrices.
        attention: of a call and what it attends to; shape (sequences, queries, heads, of a head).
        rows: of a call, an operator on elements, its inputs and the layer.
        apart: of a call, products side by side: rows of each head, shape (heads, m, k), and their matrices.
        states: of a call, an update of states, its inputs, the layer's states and heads of the worker; None where no
            walk follows them.
        picks: of a call, an indexer, its queries, shape (sequences, tokens, heads, of a head), weights of their heads, and
            keys, shape (sequences, keys, of a key): keys that each query takes, shape (sequences, tokens, keys); None likewise.
        norms_before: whether norms of heads of which a part is turned have a call of their own.
    """

    product: Callable[[KernelCall, Array, Array], Array]
    experts: Callable[[KernelCall, Array, Array, list[Array]], Array]
    attention: Callable[[KernelCall, AttentionInputs], Array]
    rows: Callable[[KernelCall, ElementwiseOp, list[Array], LayerTensors], Array]
    apart: Callable[[KernelCall, Array, Array], Array]
    states: Callable[[KernelCall, RecurrenceOp, list[Array], RecurrentState, range], Array] | None = None
    picks: Callable[[KernelCall, IndexerOp, Array, Array, Array], Array] | None = None
    norms_before: bool = False


class CallWorker:
    """State of one worker that runs the calls of a segment.

    Attributes:
        done: results, by operator.
        before: the call of norms of heads, where a rotation of a part of each has one before its own.
        routed: copies of tokens and their experts, once these are chosen.
        here: copies of tokens at experts that are here, once they are.
    """

    def __init__(
        self, layer: LayerTensors, part: Segment, calls: tuple[KernelCall, ...], place: int, kernels: KernelFunctions, x: Array
    ) -> None:
        self.layer, self.part, self.place, self.kernels, self.x = layer, part, place, kernels, x
        self.operators = {operator.name: operator for operator in part.operators}
        self.done: dict[str, Array] = {}
        self.before: KernelCall | None = None
        self.routed: RoutedTokens | None = None
        self.here: LocalCopies | None = None
        self.heads = _query_heads(layer, calls)

    def run(self, call: KernelCall) -> None:
        """Run the operators of a call, and keep their results.

        Raises:
            ValueError: what they need is not there, or has another shape than the call.
        """
        if call.name == HEADS_NORM and not call.operators:
            self.before = call
        for name in call.operators:
            operator = self.operators[name]
            if isinstance(operator, MatMulOp):
                self.done[name] = self._product(operator, call)
            elif isinstance(operator, AttentionOp):
                self.done[name] = self._attention(operator, call)
            elif isinstance(operator, ElementwiseOp):
                self._rows(operator, call)
            elif isinstance(operator, RecurrenceOp) and self.kernels.states is not None and self.layer.state is not None:
                self.done[name] = self.kernels.states(
                    call, operator, self.collect_inputs(operator), self.layer.state, self.states
                )
            elif isinstance(operator, IndexerOp) and self.kernels.picks is not None and self.layer.indexed is not None:
                self.done[name] = self._index(operator, call, self.layer.indexed)
            else:
                raise ValueError(f"call {name!r}: a {type(operator).__name__} has no numbers")

    def residual(self) -> Array:
        """Result of the segment that is added to the residual stream.

        Raises:
            ValueError: no call has made it.
        """
        return np.asarray(np.sum([self._back(name) for name in results_left(self.part)], axis=0))

    def _back(self, name: str) -> Array:
        """Result by token; the last product of experts adds them up if no call does."""
        value = self.get(name)
        if name != "experts_down":
            return value
        return combine_experts(value, self.routed_tokens, len(self.x))

    @property
    def routed_tokens(self) -> RoutedTokens:
        """Copies of tokens, and the experts that they go to."""
        if self.routed is None:
            raise ValueError(f"part {self.part.name!r}: experts are used before they are chosen")
        return self.routed

    def get(self, name: str) -> Array:
        """Result of an operator that has run."""
        if name not in self.done:
            raise ValueError(f"part {self.part.name!r}: {name!r} is needed and no call has made it")
        return self.done[name]

    def collect_inputs(self, operator: Operator) -> list[Array]:
        """Inputs of an operator: results that it needs, or the residual stream if it names none."""
        return [self.get(name) for name in operator.needs] or [self.x]

    def cut_matrix(self, operator: MatMulOp, call: KernelCall) -> Array:
        """Worker's part of a product's weights, with zeros beyond the last row or column."""
        weights, k, n = self.layer.weights[operator.name], as_integer(call.shape[1]), as_integer(call.shape[2])
        first = self.place * n * operator.n.split
        if operator.name in ("k_proj", "v_proj", "state_qk", "decay_up"):
            first = self.first_kv_head * operator.n.width
        return padded_slice(padded_slice(weights, self.place * k * operator.k.split, k, -2), first, n, -1)

    @property
    def states(self) -> range:
        """Value heads of the worker, as a range."""
        return range(self.place * self.heads, (self.place + 1) * self.heads)

    @property
    def first_kv_head(self) -> int:
        """KV head of the worker's first query head, or of its first state."""
        return self.place * self.heads // self.layer.heads_per_key

    def _product(self, operator: MatMulOp, call: KernelCall) -> Array:
        if operator.name in ("q_absorb", "v_absorb"):
            return self._apart(operator, call)
        weights = self.cut_matrix(operator, call)
        if weights.ndim == 3:
            return self._experts(operator, call, weights)
        (a,) = self.collect_inputs(operator)
        a = a[:, : -self.layer.rope] if operator.name == "kv_up" else a  # of the latent, which stands before what is rotated
        _expect(call, a, (as_integer(call.shape[0]), weights.shape[0]))
        product = self.kernels.product(call, a, weights)
        if f"{operator.name}_norm" in self.layer.weights:  # of latents, which no operator stands for
            product = _latent_normed(product, self.layer.weights[f"{operator.name}_norm"])
        if operator.name == "router" and "choice" not in self.operators:
            self.routed = route_tokens(product, self.layer.top)
        return product

    def _apart(self, operator: MatMulOp, call: KernelCall) -> Array:
        """Products of the rows of each head with a matrix of its own; of queries, what is not rotated."""
        heads, (x,) = as_integer(call.shape[2]) // (operator.n.width), self.collect_inputs(operator)
        weights = padded_slice(self.layer.weights[operator.name], self.place * heads * operator.n.split, heads, 0)
        a = x.reshape(len(x), heads, -1).swapaxes(0, 1)[:, :, : weights.shape[1]]
        _expect(call, a, (heads, as_integer(call.shape[0]), as_integer(call.shape[1])))
        return self.kernels.apart(call, a, weights).swapaxes(0, 1).reshape(len(x), -1)

    def _experts(self, operator: MatMulOp, call: KernelCall, weights: Array) -> Array:
        """Products of the copies of tokens that are here, with the matrix of the expert of each."""
        copies = self.here or self.dispatched_copies()
        self.here = copies
        a = copies.rows if "experts_activation" not in operator.needs else self.get("experts_activation")
        _expect(call, a, (as_integer(call.shape[0]), weights.shape[1]))
        return self.kernels.experts(call, a, weights[copies.experts], copies.places)

    def dispatched_copies(self) -> LocalCopies:
        """Token copies by their experts, all of which are on this worker."""
        (x,) = self.collect_inputs(self.operators["router"])
        count = len(self.layer.weights["experts_up"])
        places = [np.flatnonzero(self.routed_tokens.expert == index) for index in range(count)]
        return LocalCopies(x[self.routed_tokens.token], slice(0, count), places)

    def _attention(self, operator: AttentionOp, call: KernelCall) -> Array:
        for need in operator.needs:
            self.get(need)
        layer, heads, first = self.layer, self.heads, self.first_kv_head
        q, k, v = self._latent(operator) if layer.rope else self._grouped(operator)
        cached = (padded_slice(cache, first, k.shape[2], 2) for cache in (layer.keys, layer.values))
        k, v = (np.concatenate([old, new], axis=1) for old, new in zip(cached, (k, v), strict=True))
        own = (self.place * heads + np.arange(heads)) * operator.kv_heads.units // operator.heads.units - first
        real = own + first < operator.kv_heads.units
        if (own[real] >= k.shape[2]).any():
            raise ValueError(f"worker {self.place}: has {k.shape[2]} KV heads from {first} on, not those of all its heads")
        scored = layer.scored
        if scored.sinks is not None:  # a head of nobody has one too
            scored = scored._replace(sinks=padded_slice(scored.sinks, self.place * heads, heads, 0))
        picked = self.get("index") if operator.picked else None
        outputs = self._attended(call, AttentionInputs(q, k, v, np.where(real, own, 0), scored, picked))
        return outputs.reshape(len(self.x), -1)

    def _index(self, operator: IndexerOp, call: KernelCall, cached: Array) -> Array:
        """Keys of an indexer are normed; of these and of queries the first values are rotated, as those of attention are."""
        if operator.block > 1 or len(operator.needs) < 3:
            raise ValueError(f"call {call.name!r}: indexers of blocks, or of compressed entries, have no numbers")
        assert self.kernels.picks is not None
        layer, (q, k, weights) = self.layer, self.collect_inputs(operator)
        scale, bias = layer.weights["index_layernorm"]
        k = (k - k.mean(axis=1, keepdims=True)) / k.std(axis=1, keepdims=True) * scale + bias
        q, k = (rotate_heads(x.reshape(len(x), -1, operator.dim), layer.positions, layer.rope) for x in (q, k))
        by_sequence = (x.reshape(layer.sequences, -1, *x.shape[1:]) for x in (q, weights, k[:, 0]))
        q, weights, k = by_sequence
        return self.kernels.picks(call, operator, q, weights, np.concatenate([cached, k], axis=1))

    def _grouped(self, operator: AttentionOp) -> tuple[Array, Array, Array]:
        names = zip(("q_proj", "k_proj", "v_proj"), (operator.qk_dim, operator.qk_dim, operator.v_dim), strict=True)
        q, k, v = (self._by_head(self.get(name), wide) for name, wide in names)
        return q, k, v

    def _latent(self, operator: AttentionOp) -> tuple[Array, Array, Array]:
        """Rotated values first: of queries and of keys that are made of the latent, or of absorbed ones and of the latent."""
        rope, row, of_q = self.layer.rope, self.get("kv_down"), self.operators["q_up"]
        assert isinstance(of_q, MatMulOp)
        row, q = self._by_head(row, row.shape[1]), self._by_head(self.get("q_up"), of_q.n.width)
        q, turned = q[..., :-rope], q[..., -rope:]
        latent, key = row[..., :-rope], row[..., -rope:]
        if "kv_up" not in self.operators:
            absorbed = self._by_head(self.get("q_absorb"), latent.shape[-1])
            return np.concatenate([turned, absorbed], axis=-1), np.concatenate([key, latent], axis=-1), latent
        up = self._by_head(self.get("kv_up"), q.shape[-1] + operator.v_dim)
        k, v = up[..., : q.shape[-1]], up[..., q.shape[-1] :]
        same = np.broadcast_to(key, (*k.shape[:3], rope))
        return np.concatenate([turned, q], axis=-1), np.concatenate([same, k], axis=-1), v

    def _attended(self, call: KernelCall, inputs: AttentionInputs) -> Array:
        return self.kernels.attention(call, inputs)

    def _by_head(self, x: Array, wide: int) -> Array:
        return x.reshape(self.layer.sequences, len(x) // self.layer.sequences, -1, wide)

    def _normed(self, operator: ElementwiseOp, x: Array, weights: list[Array]) -> Array:
        """Norms of whole heads, by a call of their own before a rotation of a part of each."""
        if self.before is None:
            raise ValueError(f"part {self.part.name!r}: heads are turned before they are normed")
        return self.kernels.rows(self.before, replace(operator, name=HEADS_NORM, turned=0), [x, *weights], self.layer)

    def _rows(self, operator: ElementwiseOp, call: KernelCall) -> None:
        layer = self.layer
        if operator.name in ("rope", HEADS_NORM):
            for need in operator.needs:
                norm = need.replace("proj", "norm")
                x, part = self.get(need), None
                if layer.rope:  # the last values of each head, or of the row that all share
                    x = self._by_head(x, x.shape[1] if need == "kv_down" else x.shape[1] // self.heads)
                    part, x = x, x[..., -layer.rope :].reshape(len(self.x), -1)
                weights = _of_heads(layer, norm)
                if self.kernels.norms_before and weights and operator.rotated_columns < operator.dim.width:
                    x, weights = self._normed(operator, x, weights), []
                rows = self.kernels.rows(call, operator, [x, *weights], layer)
                if part is not None:
                    rows = np.concatenate([part[..., : -layer.rope], rows.reshape(*part.shape[:3], -1)], axis=-1)
                self.done[need] = rows.reshape(len(self.x), -1)
            self.done[operator.name] = self.done[operator.needs[0]]
            return
        if operator.name == "combination":
            self.done[operator.name] = self.kernels.rows(call, operator, [self.get("experts_down"), *self.routed_tokens], layer)
            return
        inputs = self.collect_inputs(operator)
        if operator.name == "state_conv" and layer.state is not None and operator.dim.beside is not None:
            first = self.first_kv_head * operator.dim.width, self.place * self.heads * operator.dim.beside.width
            inputs = [*convolution_windows(inputs, layer.state, first)]
        weights = [layer.weights[operator.name]] if operator.name.endswith("norm") else []
        rows = self.kernels.rows(call, operator, [*inputs, *weights], layer)
        if operator.name == "choice":
            self.routed = route_tokens(inputs[0], layer.top, rows)
        else:
            _expect(call, rows, (as_integer(call.shape[0]), as_integer(call.shape[2])))
        self.done[operator.name] = rows


def compute_elementwise(operator: ElementwiseOp, inputs: list[Array], layer: LayerTensors) -> Array:
    """Result of an elementwise operator on numbers."""
    if operator.name == "output_activation":
        read, gate = inputs
        smooth = isinstance(layer.mixing_operator, RecurrenceOp) and layer.mixing_operator.rule in ("delta", "ssd")
        return gated_silu(gate, read) if smooth else np.asarray(read / (1 + np.exp(-gate)))
    if operator.name.endswith("activation"):
        return gated_silu(*inputs)
    if operator.name in ("rope", HEADS_NORM):
        x, *weights = inputs
        heads = x.reshape(len(x), -1, layer.rotated_width)
        heads = rms_norm(heads, weights[0]) if weights else heads
        return (rotate_heads(heads, layer.positions, operator.rotated_columns) if operator.name == "rope" else heads).reshape(
            len(x), -1
        )
    if operator.name == "combination":
        rows, *copies = inputs
        return combine_experts(rows, RoutedTokens(*copies), len(layer.x))
    if operator.name == "choice":
        return np.asarray(np.exp(-np.sort(-inputs[0], axis=1)[:, : layer.top]))
    if operator.name == "state_conv":
        return convolve(*inputs)
    if operator.name == "state_norm":  # head by head
        x, weight = inputs
        return rms_norm(x.reshape(len(x), -1, len(weight)), weight).reshape(len(x), -1)
    if operator.name.endswith("norm"):
        return rms_norm(*inputs)
    raise ValueError(f"operator {operator.name!r} has no numbers")


def _latent_normed(x: Array, weight: Array) -> Array:
    """With a norm of as many first columns as there are weights."""
    return np.concatenate([rms_norm(x[:, : len(weight)], weight), x[:, len(weight) :]], axis=1)


def _of_heads(layer: LayerTensors, name: str) -> list[Array]:
    return [layer.weights[name]] if layer.normed else []


def _query_heads(layer: LayerTensors, calls: tuple[KernelCall, ...]) -> int:
    """Heads of queries, or states, of a worker, by the columns of their projection."""
    names = ("q_proj", "q_up", "state_v")
    head_counts = [call.shape[2] for call in calls if set(names) & set(call.operators)]
    every = sum(layer.weights[name].shape[-1] for name in names if name in layer.weights)
    heads = layer.mixing_operator.heads.units
    return as_integer(head_counts[0]) * heads // every if head_counts else heads


def _expect(call: KernelCall, x: Array, shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise ValueError(f"call {call.name!r}: has {x.shape}, says {shape}")
