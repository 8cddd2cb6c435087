"""A recurrent layer walked from the calls of devices is the layer as NumPy has it, token by token."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.vector.recurrent_decode import RULE_OPERATIONS
from dse.space.array_math import Array
from dse.space.model import Model, RecurrentMixing
from dse.space.workload import BatchCase
from dse.testing.functional.layer import LayerTensors
from dse.testing.functional.recurrent_states import RecurrentState, convolution_windows, convolve
from tests.agreement.layers import Drawn, fed, unit
from tests.agreement.walks import faulty, noticed, on_devices, on_tiles, right


def states(
    phase: str, rule: str, key_heads: int, shared: int, sequences: int, tokens: int, seed: int, *,
    conv: int = 3, chunk: int = 2, rank: int = 0, full: bool = False,
) -> Drawn:  # fmt: skip
    """A dense layer with a state in the place of a cache, behind `tokens` tokens in decode."""
    heads, key_dim, value_dim, hidden, wide = key_heads * shared, 3, 5, 9, 8
    conv, rank = conv if rule != "linear" else 0, rank if rule == "channel_delta" else 0
    recurrence = RecurrentMixing(
        rule=rule, heads=heads, key_heads=key_heads, key_dim=key_dim, value_dim=value_dim, conv=conv, chunk=chunk,
        gate_rank=rank, full_gate=full and rank > 0,
    )  # fmt: skip
    model = Model(
        name="random", layers=1, hidden=hidden, heads=heads, kv_heads=heads, head_dim=4, ffn_intermediate=wide, vocab=7,
        max_position=99, recurrence=recurrence,
    )  # fmt: skip
    case = BatchCase("", model, ((sequences, tokens, 1),))
    first, rng = phase == "prefill", np.random.default_rng(seed)
    at = prefill_step(case) if first else decode_steps(case, "last")[0][1]
    keys, v = key_heads * key_dim, heads * value_dim
    qk, gates = 2 * keys, {"delta": 2, "ssd": 1, "channel_delta": 1, "linear": 0}[rule]
    sizes: dict[str, tuple[int, ...]] = {
        "attention_norm": (hidden,), "ffn_norm": (hidden,), "state_norm": (value_dim,), "state_qk": (hidden, qk),
        "state_v": (hidden, v), "state_decay": (hidden, heads * gates), "gate_up": (hidden, v), "o_proj": (v, hidden),
        "gate": (hidden, wide), "up": (hidden, wide), "down": (wide, hidden), "decay_up": (rank or hidden, keys),
    }  # fmt: skip
    sizes |= {"decay_down": (hidden, rank)} if rank else {}
    sizes |= {"gate_down": (hidden, rank), "gate_up": (rank, v)} if rank and not full else {}
    w = {name: rng.normal(size=size) / (size[0] ** 0.5 if len(size) > 1 else 1) for name, size in sizes.items()}
    before = 0.0 if first else 1.0
    state = RecurrentState(
        before * rng.normal(size=(sequences, heads, key_dim, value_dim)),
        (
            before * rng.normal(size=(sequences, max(conv - 1, 0), qk)),
            before * rng.normal(size=(sequences, max(conv - 1, 0), v)),
        ),
        (rng.normal(size=(conv, qk)), rng.normal(size=(conv, v))),
        rng.uniform(0.1, 1.0, heads),
        rng.normal(size=keys if rule == "channel_delta" else heads),
    )
    parts = tuple(part for part in transformer_segments(model, at) if part.name not in ("embedding", "head"))
    none = np.zeros((sequences, 0, 0, 0))
    layer = LayerTensors(parts, w, rng.normal(size=(round(at.tokens), hidden)), none, none, state=state)
    return Drawn(layer, case, at, state_layer(layer, state, model, recurrence))


def state_layer(layer: LayerTensors, state: RecurrentState, model: Model, recurrence: RecurrentMixing) -> Array:
    """Gated DeltaNet, KDA, a state that forgets and adds as Mamba-2's, or lightning attention, token by token.

    Queries and keys of those that correct values are of length 1. Lightning has a SiLU in the place of a convolution.
    """
    w, new, out = layer.weights, len(layer.x) // layer.sequences, layer.x.copy()
    for sequence in range(layer.sequences):
        matrices = state.matrices[sequence].copy()
        queue = [list(rows[sequence]) for rows in state.rows]
        for row in range(sequence * new, (sequence + 1) * new):
            x = unit(layer.x[row]) * w["attention_norm"]
            after = []
            for kept, name, taps in zip(queue, ("state_qk", "state_v"), state.taps, strict=True):
                kept.append(x @ w[name])
                total = tapped(kept, taps) if recurrence.conv else kept[-1]
                after.append(total * sigmoid(total))
            pairs, values = (
                after[0].reshape(recurrence.key_heads, 2, recurrence.key_dim),
                after[1].reshape(recurrence.heads, recurrence.value_dim),
            )
            gates, read = (x @ w["state_decay"]).reshape(recurrence.heads, -1), []
            channels = ((x @ w["decay_down"] if recurrence.gate_rank else x) @ w["decay_up"]).reshape(
                recurrence.key_heads, recurrence.key_dim
            )
            for head, value in enumerate(values):
                group = head * recurrence.key_heads // recurrence.heads
                (q, k), rate, matrix = pairs[group], state.rate[head], matrices[head]
                if recurrence.rule == "linear":
                    matrices[head] = np.exp(-rate) * matrix + np.outer(k, value)
                elif recurrence.rule == "ssd":
                    step = np.log1p(np.exp(gates[head, 0] + state.bias[head]))
                    matrices[head] = np.exp(-rate * step) * matrix + step * np.outer(k, value)
                else:
                    q, k, beta = (
                        q / np.linalg.norm(q) / recurrence.key_dim**0.5,
                        k / np.linalg.norm(k),
                        sigmoid(gates[head, -1]),
                    )
                    forgets = gates[head, 0] + state.bias[head] if recurrence.rule == "delta" else (
                        channels[group] + state.bias.reshape(channels.shape)[group]
                    )  # fmt: skip
                    faded = np.diag(np.broadcast_to(np.exp(-rate * np.log1p(np.exp(forgets))), recurrence.key_dim)) @ matrix
                    matrices[head] = (np.eye(recurrence.key_dim) - beta * np.outer(k, k)) @ faded + beta * np.outer(k, value)
                read.append(unit(q @ matrices[head]) * w["state_norm"])
            gate = (x @ w["gate_down"] if "gate_down" in w else x) @ w["gate_up"]
            gate = sigmoid(gate) * (gate if recurrence.rule in ("delta", "ssd") else 1.0)
            out[row] += (gate * np.concatenate(read)) @ w["o_proj"]
    return out + np.array([fed(x, w, model) for x in out])


def tapped(kept: list[Array], taps: Array) -> Array:
    """What a causal convolution has for the newest of some rows, whose tap is the last."""
    return np.asarray(sum(tap * value for tap, value in zip(taps, kept[-len(taps) :], strict=True)))


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


SIZES: dict[str, Any] = {
    "phase": st.sampled_from(["prefill", "decode"]), "rule": st.sampled_from(sorted(RULE_OPERATIONS)),
    "key_heads": st.sampled_from([1, 2, 4]), "shared": st.integers(1, 3), "sequences": st.integers(1, 3),
    "tokens": st.integers(1, 7), "seed": st.integers(0, 10**6), "conv": st.integers(1, 4), "chunk": st.integers(2, 4),
    "rank": st.sampled_from([0, 4]), "full": st.booleans(),
}  # fmt: skip


@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("new", [1, 6])
def test_a_convolution_is_that_of_a_signal_and_the_taps_turned_round(taps: int, new: int) -> None:
    """What devices do, and what a layer is compared with, are each NumPy's own convolution of each column."""
    rng, first, before = np.random.default_rng(taps), (2, 1), taps - 1
    state = RecurrentState(
        np.zeros((2, 1, 1, 1)), (rng.normal(size=(2, before, 7)), rng.normal(size=(2, before, 5))),
        (rng.normal(size=(taps, 7)), rng.normal(size=(taps, 5))), np.ones(1), np.zeros(1),
    )  # fmt: skip
    inputs = [rng.normal(size=(2 * new, columns)) for columns in (3, 4)]
    done = convolve(*convolution_windows(inputs, state, first)).reshape(2, new, 7)
    places = [(index, start + column) for index, start in enumerate(first) for column in range((3, 4)[index])]
    for sequence in range(2):
        for column, (source_index, place) in enumerate(places):
            own = inputs[source_index].reshape(2, new, -1)[sequence, :, place - first[source_index]]
            signal = np.concatenate([state.rows[source_index][sequence, :, place], own])
            expected = np.convolve(signal, state.taps[source_index][::-1, place], "valid")
            assert done[sequence, :, column] == pytest.approx(expected * sigmoid(expected))
            for token in range(new):
                assert tapped(list(signal[: before + token + 1]), state.taps[source_index][:, place]) == pytest.approx(
                    expected[token]
                )


@given(st.fixed_dictionaries(SIZES), st.sampled_from([1, 2, 4]))
@settings(max_examples=15, deadline=None)
def test_devices_compute_the_layer_of_a_state(sizes: dict[str, Any], tp: int) -> None:
    assume(sizes["key_heads"] % tp == 0)
    given_states = states(**sizes)
    assert right(on_devices(given_states, tp), given_states)


@pytest.mark.sampled
@pytest.mark.parametrize("rule", RULE_OPERATIONS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_whatever_of_a_state_is_left_out_is_noticed(phase: str, rule: str) -> None:
    given_states = states(phase, rule, 2, 2, 2, 5, 0)
    for walk in (on_devices(given_states, 2), on_tiles(given_states, 2, 1, stay=0.5))[: 1 + (rule == "channel_delta")]:
        assert right(walk, given_states)
        assert not [name for name, fault in faulty(walk) if not noticed(fault, given_states)]


ONE_STATE: dict[str, Any] = {
    "phase": "decode", "rule": "delta", "key_heads": 1, "shared": 1, "sequences": 1, "tokens": 3, "seed": 0, "conv": 1,
    "chunk": 2, "rank": 0, "full": False,
}  # fmt: skip
"""Of a single state, whose five values tiles share unevenly."""


@pytest.mark.sampled
@given(st.fixed_dictionaries(SIZES), st.integers(1, 2), st.integers(1, 3), st.sampled_from([0.0, 0.4, 1.0]))
@example(ONE_STATE, 2, 2, 0.0)
@example(ONE_STATE | {"rule": "linear"}, 2, 3, 1.0)
@settings(max_examples=15, deadline=None)
def test_tiles_compute_the_layer_of_a_state(sizes: dict[str, Any], rows: int, cols: int, stay: float) -> None:
    """States that come from memory and go back, and those that stay with their tiles."""
    given_states = states(**sizes)
    assert right(on_tiles(given_states, rows, cols, stay=stay * (sizes["phase"] == "decode")), given_states)


@pytest.mark.parametrize(
    ("changed", "message"), [({"m": 3.0}, "multiply-adds of a head"), ({"count": 7.0}, "7.0 chunks of heads")]
)
def test_other_products_than_a_state_takes_are_refused(changed: dict[str, float], message: str) -> None:
    given_states = states("prefill", "delta", 2, 2, 2, 4, 0)
    walk = on_devices(given_states, 2)
    number, place = next(
        (n, p) for n, step in enumerate(walk.steps) for p, call in enumerate(step.calls) if call.name == "state"
    )
    block = walk.steps[number]
    call = block.calls[place]
    other = call._replace(products=(call.products[0]._replace(**changed),))
    calls = (*block.calls[:place], other, *block.calls[place + 1 :])
    with pytest.raises(ValueError, match=message):
        right(walk._replace(steps=(*walk.steps[:number], block._replace(calls=calls), *walk.steps[number + 1 :])), given_states)


@pytest.mark.sampled
@given(st.fixed_dictionaries(SIZES), st.sampled_from([2, 4, 8]))
@settings(max_examples=10, deadline=None)
def test_devices_beyond_heads_of_keys_share_these(sizes: dict[str, Any], times: int) -> None:
    """Each has the keys of its heads of values, which a convolution finds beside these; some have heads of nobody."""
    given_states = states(**sizes | {"shared": times})
    assert right(on_devices(given_states, sizes["key_heads"] * times), given_states)
    assert right(on_devices(given_states, sizes["key_heads"] * 2 * times), given_states)


def test_devices_that_lack_keys_of_some_states_are_refused() -> None:
    given_states = states("prefill", "delta", 2, 3, 1, 3, 0)
    with pytest.raises(ValueError, match="'state': 1 heads of keys are not those of all its 2 heads of values"):
        right(on_devices(given_states, 3), given_states)
