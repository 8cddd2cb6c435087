"""Every registered attention computes softmax attention, on any group of any mesh, and moves what the paper's formula says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.kernels.attention import ATTENTION
from evaluators.kernels.attention.dataflow import Dataflow, kept, steps
from evaluators.kernels.attention.operands import place, result
from evaluators.kernels.attention.shape import Heads, Tiling, cut, memory_bytes
from evaluators.kernels.gemm.tiling import Mesh
from evaluators.numeric import play
from evaluators.rounds import Loop, Multicast, Multiply, Program, Reduce, Round, Send, Vector, activity
from space.elementwise import Array

VARIANTS = {
    "mha": Heads(2, 3, 3, 12, 12, 4, 5),
    "mqa": Heads(2, 4, 1, 6, 10, 4, 4),
    "gqa": Heads(1, 6, 2, 5, 9, 3, 4),
    "mla": Heads(2, 4, 1, 3, 11, 6, 4, latent=True),
    "decode": Heads(3, 2, 2, 1, 17, 4, 4),
    "gqa decode": Heads(2, 8, 2, 1, 13, 4, 4),
    "causal": Heads(1, 2, 2, 13, 13, 4, 4, causal=True),
    "speculative": Heads(2, 4, 2, 3, 15, 4, 4, causal=True),
    "mla speculative": Heads(2, 4, 1, 2, 14, 6, 4, causal=True, latent=True),
}


def operands(shape: Heads, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(shape.batch, shape.heads, shape.queries, shape.qk)).astype(np.float32)
    k = rng.normal(size=(shape.batch, shape.kv_heads, shape.keys, shape.qk)).astype(np.float32)
    v = rng.normal(size=(shape.batch, shape.kv_heads, shape.keys, shape.v)).astype(np.float32)
    return q, k, k[..., -shape.v :] if shape.latent else v


def plain(q: Array, k: Array, v: Array, shape: Heads) -> Array:
    """Softmax attention as it is defined, in double precision."""
    k, v = (np.repeat(x, shape.shared, axis=1).astype(float) for x in (k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k) / np.sqrt(shape.qk)
    if shape.causal:
        later = np.arange(shape.keys) > np.arange(shape.queries)[:, None] + shape.keys - shape.queries
        scores = np.where(later, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bhkv->bhqv", weights / weights.sum(axis=-1, keepdims=True), v)


def program(name: str, shape: Heads, tiling: Tiling, mesh: Mesh) -> Program:
    return steps(ATTENTION[name], shape, tiling, mesh, "float32", channels=mesh.cols)


def wrong(name: str, shape: Heads, tiling: Tiling, mesh: Mesh, played: Program | None = None) -> float:
    """Largest error of a program's outputs."""
    q, k, v = operands(shape)
    of = ATTENTION[name]
    out = play(played or program(name, shape, tiling, mesh), {}, place(q, k, v, of, shape, tiling, mesh))
    return float(np.abs(result(out, of, shape, tiling, mesh) - plain(q, k, v, shape)).max())


@st.composite
def tilings(draw: Any, grouped: bool) -> tuple[Tiling, Mesh]:
    rows, cols = (draw(st.integers(1, 4)), draw(st.integers(1, 4))) if grouped else (1, 1)
    mesh = Mesh(rows * draw(st.integers(1, 2)), cols * draw(st.integers(1, 2)))
    return Tiling(rows, cols, draw(st.integers(1, 4)), draw(st.integers(1, 4))), mesh


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=6, deadline=None)
def test_every_attention_is_softmax_attention(name: str, variant: str, data: Any) -> None:
    tiling, mesh = data.draw(tilings(ATTENTION[name].grouped))
    assert wrong(name, VARIANTS[variant], tiling, mesh) < 1e-4
