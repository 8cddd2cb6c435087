"""The KV cache keeps its tokens in order, balanced by shifting and skewed by concatenation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.kv import KV
from dse.testing.functional_simulator import run_program
from dse.testing.message_hops import longest_hop


def generated(name: str, rows: int, tokens: int) -> tuple[np.ndarray, list[int]]:
    """The cache of one column of cores after some tokens, numbered from 1, and how many each row holds."""
    method, mesh, per_core = KV[name], CoreMesh(rows, 2), tokens + 1
    cache = np.zeros((rows, 2, per_core, 1), "float32")
    for token in range(tokens):
        new = np.full((rows, 2, 1, 1), token + 1, "float32")
        cache = run_program(method.append_program(mesh, token, 1, per_core), {"cache": cache, "new": new})["cache"]
    return cache[:, 1, :, 0], method.tokens_per_row(tokens, rows)


@given(st.sampled_from(sorted(KV)), st.integers(1, 9), st.integers(0, 40))
def test_tokens_stay_in_order(name: str, rows: int, tokens: int) -> None:
    cache, held = generated(name, rows, tokens)
    read = np.concatenate([cache[row, : held[row]] for row in range(rows)])
    assert read.tolist() == list(range(1, tokens + 1))


@given(st.integers(1, 9), st.integers(0, 200))
def test_shifting_keeps_rows_within_one_token(rows: int, tokens: int) -> None:
    held = KV["shift"].tokens_per_row(tokens, rows)
    assert sum(held) == tokens
    assert max(held) - min(held) <= 1


@pytest.mark.parametrize("rows", [3, 8, 360])
def test_shifting_holds_as_many_times_more_as_there_are_rows(rows: int) -> None:
    assert KV["shift"].token_capacity(rows, 382) == rows * KV["concat"].token_capacity(rows, 382)


@given(st.integers(2, 9), st.integers(0, 40))
def test_shifts_are_between_neighbours(rows: int, tokens: int) -> None:
    mesh = CoreMesh(rows, 2)
    full = tokens >= rows
    assert longest_hop(KV["shift"].append_program(mesh, tokens, 1, tokens + 1)) <= (1 if full else rows - 1)
