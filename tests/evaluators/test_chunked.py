"""Chunks of prompts leave the states and outputs of the recurrences as they are published, token by token."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events as timed
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector import block_loop_kernels as walked
from dse.evaluators.kernels.vector.recurrent_decode import RULE_OPERATIONS, RecurrenceShape
from dse.evaluators.kernels.vector.recurrent_prefill import prefill_chunks
from dse.evaluators.machine.memory_channels import ColumnMemory, mesh_channels
from dse.evaluators.program.activity import COUNTS
from dse.space.array_math import Array
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.evaluators.test_index import elsewhere

MESH = CoreMesh(2, 3)


def drawn(shape: RecurrenceShape, seed: int) -> dict[str, Array]:
    """Of each state its start, and of each of its tokens what updates it; keys are those of its key head."""
    rng, n, tokens = np.random.default_rng(seed), shape.sequences, shape.tokens // shape.sequences
    shared = shape.heads // shape.key_heads
    k = rng.normal(size=(n, shape.key_heads, tokens, shape.key_dim))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q = rng.normal(size=(n, shape.key_heads, tokens, shape.key_dim))
    wide = shape.key_dim if shape.rule == "channel_delta" else 1
    return {
        "k": np.repeat(k, shared, axis=1),
        "q": np.repeat(q, shared, axis=1),
        "v": rng.normal(size=(n, shape.heads, tokens, shape.value_dim)),
        "g": np.log(rng.uniform(0.7, 1, (n, shape.heads, tokens, wide))),
        "beta": rng.uniform(0, 1, (n, shape.heads, tokens, 1)),
        "start": rng.normal(size=(n, shape.heads, shape.key_dim, shape.value_dim)),
    }


def told(shape: RecurrenceShape, v: dict[str, Array]) -> tuple[Array, Array]:
    """Outputs and states, token by token, as the recurrence is published."""
    out, states = np.zeros(v["v"].shape), v["start"].copy()
    for s, h in np.ndindex(shape.sequences, shape.heads):
        for t in range(out.shape[2]):
            k, q, value, beta = v["k"][s, h, t], v["q"][s, h, t], v["v"][s, h, t], float(v["beta"][s, h, t, 0])
            faded = np.exp(v["g"][s, h, t])[:, None] * states[s, h]
            if shape.rule.endswith("delta"):
                states[s, h] = (np.eye(shape.key_dim) - beta * np.outer(k, k)) @ faded + beta * np.outer(k, value)
            else:
                states[s, h] = faded + (beta if shape.rule == "ssd" else 1.0) * np.outer(k, value)
            out[s, h, t] = states[s, h].T @ q
    return out, states


def played(shape: RecurrenceShape, v: dict[str, Array], heads: int, values: int, slot: str = "") -> tuple[Array, Array]:
    walk, blocks = prefill_chunks(shape, heads, values, "float32"), -(-int(shape.prompt) // shape.chunk)
    parts, slices = shape.heads // heads, shape.value_dim // values

    def cut(x: Array, each: int, *, wide: bool = False) -> Array:
        """By item and chunk, heads last."""
        x = np.pad(x, ((0, 0), (0, 0), (0, blocks * shape.chunk - x.shape[2]), (0, 0)))
        x = x.reshape(shape.sequences, parts, each, blocks, shape.chunk, x.shape[-1])
        x = np.moveaxis(x, 2, -1)
        x = x.reshape(*x.shape[:-2], slices, values, each) if wide else np.repeat(x[..., None, :, :], slices, axis=-3)
        return np.moveaxis(x, -3, 2).reshape(-1, blocks, shape.chunk, x.shape[-2], each)

    given = {name: cut(v[name][:, ::heads], 1) for name in "qk"} | {name: cut(v[name], heads) for name in ("g", "beta")}
    given["v"] = cut(v["v"], heads, wide=True)
    start = v["start"].reshape(shape.sequences, parts, heads, shape.key_dim, slices, values)
    given["start"] = start.transpose(0, 1, 4, 3, 5, 2).reshape(-1, 1, shape.key_dim, values, heads)
    items = shape.sequences * parts * slices
    counts = (blocks,) * -(-items // 6)
    program = walked.build_program(walk, items, counts, MESH, channels=3)
    program = elsewhere(program, slot) if slot else program
    tiles = walked.scatter_operands(
        {name: x for name, x in given.items() if name in walk.opening + walk.loads}, walk, counts, MESH
    )
    stored = run_program(program, {}, tiles)
    out, states = (walked.gather_result(stored, name, walk, counts) for name in ("out", "state"))
    out = out.reshape(shape.sequences, parts, slices, blocks * shape.chunk, values, heads).transpose(0, 1, 5, 3, 2, 4)
    out = out.reshape(shape.sequences, shape.heads, -1, shape.value_dim)[:, :, : v["v"].shape[2]]
    states = states.reshape(shape.sequences, parts, slices, shape.key_dim, values, heads).transpose(0, 1, 5, 3, 2, 4)
    return out, states.reshape(shape.sequences, shape.heads, shape.key_dim, shape.value_dim)


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_chunks_are_the_recurrence_token_by_token(rule: str, data: Any) -> None:
    def pick(*values: int) -> int:
        return int(data.draw(st.sampled_from(values)))

    keys, together, values, sequences = pick(1, 2), pick(1, 2), pick(2, 3), pick(1, 2)
    heads = keys * together * pick(1, 2)
    shape = RecurrenceShape(
        rule, heads, keys, pick(3, 5), values * pick(1, 2), sequences, sequences * pick(3, 8, 13), pick(1, 2, 4, 8)
    )
    v = drawn(shape, data.draw(st.integers(0, 99)))
    for computed, wanted in zip(played(shape, v, together, values), told(shape, v), strict=True):
        assert computed == pytest.approx(wanted, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("slot", ["q", "k", "v", "g", "beta", "start"])
def test_what_comes_to_another_tile_is_noticed(slot: str) -> None:
    shape = RecurrenceShape("delta", 4, 2, 3, 4, 3, 24, 4)
    v = drawn(shape, 3)
    errors = []
    for wrong in ("", slot):
        pairs = zip(played(shape, v, 2, 4, wrong), told(shape, v), strict=True)
        errors.append(max(float(np.abs(computed - wanted).max()) for computed, wanted in pairs))
    assert errors[0] < 1e-4
    assert errors[1] > 1e-2


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
@pytest.mark.parametrize("items", [1, 6, 15])
def test_the_closed_form_counts_what_is_played(rule: str, items: int) -> None:
    shape = RecurrenceShape(rule, 4, 2, 5, 4, 3, 24, 4)
    walk = prefill_chunks(shape, 2, 4, "float16")
    program = walked.build_program(walk, items, (2,) * -(-items // 6), MESH, channels=3)
    memory = mesh_channels("south", 3, program.rows, 3, 100.0, 1.0)
    activity = timed(program, CYCLES, engines=ENGINES, memory=memory).activity
    hardware: Any = (MESH, CYCLES, ENGINES, ColumnMemory(3, 100.0, 1.0, 1.0))
    closed = walked.cost(walk, items, 2, *hardware, items * 2).activity
    for count in COUNTS:
        assert getattr(closed, count) == pytest.approx(getattr(activity, count)), count
    assert replace(shape, tokens=48).chunk_flop == 2 * shape.chunk_flop
