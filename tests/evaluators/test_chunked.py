"""Chunks of prompts leave the states and outputs of the recurrences as they are published, token by token."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events as timed
from dse.evaluators.cost_models.functional_simulator import run_program
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector import block_loop_kernels as walked
from dse.evaluators.kernels.vector.recurrent_decode import RULE_OPERATIONS, RecurrenceShape
from dse.evaluators.kernels.vector.recurrent_prefill import prefill_chunks
from dse.evaluators.machine.memory_channels import ColumnMemory, mesh_channels
from dse.evaluators.program.activity import COUNTS
from dse.space.array_math import Array
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.evaluators.test_index import elsewhere

MESH = CoreMesh(2, 3)


def drawn(of: RecurrenceShape, seed: int) -> dict[str, Array]:
    """Of each state its start, and of each of its tokens what updates it; keys are those of its key head."""
    rng, n, tokens = np.random.default_rng(seed), of.sequences, of.tokens // of.sequences
    shared = of.heads // of.key_heads
    k = rng.normal(size=(n, of.key_heads, tokens, of.key_dim))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q = rng.normal(size=(n, of.key_heads, tokens, of.key_dim))
    wide = of.key_dim if of.rule == "channel_delta" else 1
    return {
        "k": np.repeat(k, shared, axis=1),
        "q": np.repeat(q, shared, axis=1),
        "v": rng.normal(size=(n, of.heads, tokens, of.value_dim)),
        "g": np.log(rng.uniform(0.7, 1, (n, of.heads, tokens, wide))),
        "beta": rng.uniform(0, 1, (n, of.heads, tokens, 1)),
        "start": rng.normal(size=(n, of.heads, of.key_dim, of.value_dim)),
    }


def told(of: RecurrenceShape, v: dict[str, Array]) -> tuple[Array, Array]:
    """Outputs and states, token by token, as the recurrence is published."""
    out, states = np.zeros(v["v"].shape), v["start"].copy()
    for s, h in np.ndindex(of.sequences, of.heads):
        for t in range(out.shape[2]):
            k, q, value, beta = v["k"][s, h, t], v["q"][s, h, t], v["v"][s, h, t], float(v["beta"][s, h, t, 0])
            faded = np.exp(v["g"][s, h, t])[:, None] * states[s, h]
            if of.rule.endswith("delta"):
                states[s, h] = (np.eye(of.key_dim) - beta * np.outer(k, k)) @ faded + beta * np.outer(k, value)
            else:
                states[s, h] = faded + (beta if of.rule == "ssd" else 1.0) * np.outer(k, value)
            out[s, h, t] = states[s, h].T @ q
    return out, states


def played(of: RecurrenceShape, v: dict[str, Array], heads: int, values: int, slot: str = "") -> tuple[Array, Array]:
    walk, blocks = prefill_chunks(of, heads, values, "float32"), -(-int(of.prompt) // of.chunk)
    parts, slices = of.heads // heads, of.value_dim // values

    def cut(x: Array, each: int, *, wide: bool = False) -> Array:
        """By item and chunk, heads last."""
        x = np.pad(x, ((0, 0), (0, 0), (0, blocks * of.chunk - x.shape[2]), (0, 0)))
        x = x.reshape(of.sequences, parts, each, blocks, of.chunk, x.shape[-1])
        x = np.moveaxis(x, 2, -1)
        x = x.reshape(*x.shape[:-2], slices, values, each) if wide else np.repeat(x[..., None, :, :], slices, axis=-3)
        return np.moveaxis(x, -3, 2).reshape(-1, blocks, of.chunk, x.shape[-2], each)

    given = {name: cut(v[name][:, ::heads], 1) for name in "qk"} | {name: cut(v[name], heads) for name in ("g", "beta")}
    given["v"] = cut(v["v"], heads, wide=True)
    start = v["start"].reshape(of.sequences, parts, heads, of.key_dim, slices, values)
    given["start"] = start.transpose(0, 1, 4, 3, 5, 2).reshape(-1, 1, of.key_dim, values, heads)
    items = of.sequences * parts * slices
    counts = (blocks,) * -(-items // 6)
    program = walked.build_program(walk, items, counts, MESH, channels=3)
    program = elsewhere(program, slot) if slot else program
    tiles = walked.scatter_operands(
        {name: x for name, x in given.items() if name in walk.opening + walk.loads}, walk, counts, MESH
    )
    stored = run_program(program, {}, tiles)
    out, states = (walked.gather_result(stored, name, walk, counts) for name in ("out", "state"))
    out = out.reshape(of.sequences, parts, slices, blocks * of.chunk, values, heads).transpose(0, 1, 5, 3, 2, 4)
    out = out.reshape(of.sequences, of.heads, -1, of.value_dim)[:, :, : v["v"].shape[2]]
    states = states.reshape(of.sequences, parts, slices, of.key_dim, values, heads).transpose(0, 1, 5, 3, 2, 4)
    return out, states.reshape(of.sequences, of.heads, of.key_dim, of.value_dim)


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_chunks_are_the_recurrence_token_by_token(rule: str, data: Any) -> None:
    def one(*values: int) -> int:
        return int(data.draw(st.sampled_from(values)))

    keys, together, values, sequences = one(1, 2), one(1, 2), one(2, 3), one(1, 2)
    heads = keys * together * one(1, 2)
    of = RecurrenceShape(
        rule, heads, keys, one(3, 5), values * one(1, 2), sequences, sequences * one(3, 8, 13), one(1, 2, 4, 8)
    )
    v = drawn(of, data.draw(st.integers(0, 99)))
    for found, wanted in zip(played(of, v, together, values), told(of, v), strict=True):
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("slot", ["q", "k", "v", "g", "beta", "start"])
def test_what_comes_to_another_tile_is_noticed(slot: str) -> None:
    of = RecurrenceShape("delta", 4, 2, 3, 4, 3, 24, 4)
    v = drawn(of, 3)
    errors = []
    for wrong in ("", slot):
        pairs = zip(played(of, v, 2, 4, wrong), told(of, v), strict=True)
        errors.append(max(float(np.abs(found - wanted).max()) for found, wanted in pairs))
    assert errors[0] < 1e-4
    assert errors[1] > 1e-2


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
@pytest.mark.parametrize("items", [1, 6, 15])
def test_the_closed_form_counts_what_is_played(rule: str, items: int) -> None:
    of = RecurrenceShape(rule, 4, 2, 5, 4, 3, 24, 4)
    walk = prefill_chunks(of, 2, 4, "float16")
    program = walked.build_program(walk, items, (2,) * -(-items // 6), MESH, channels=3)
    memory = mesh_channels("south", 3, program.rows, 3, 100.0, 1.0)
    found = timed(program, CYCLES, engines=ENGINES, memory=memory).activity
    on: Any = (MESH, CYCLES, ENGINES, ColumnMemory(3, 100.0, 1.0, 1.0))
    closed = walked.cost(walk, items, 2, *on, items * 2).activity
    for count in COUNTS:
        assert getattr(closed, count) == pytest.approx(getattr(found, count)), count
    assert replace(of, tokens=48).chunked == 2 * of.chunked
