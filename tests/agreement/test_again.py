"""Waves that come again are jumped over, and times are those of all of them played."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.cost_models.row_bands import share_equal_rounds
from dse.evaluators.cost_models.wave_repetition import repetitions_ahead
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, KvStorage, block_counts
from dse.evaluators.kernels.attention.dataflow import attention_program
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.memory_channels import MeshChannels, mesh_channels
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Loop, Program, buffers_read, buffers_written, iterate_rounds
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES


def waves(name: str, heads: int, keys: int, *, latent: bool, kv: KvStorage, mesh: CoreMesh) -> Program:
    """Attention in turns with more blocks of keys than there are turns."""
    dataflow = ATTENTION[name]
    tiling = AttentionTiling(2, 2, 4, 4) if dataflow.grouped else AttentionTiling(1, 1, 4, 4)
    shape = (
        AttentionShape(1, heads, 1, 1, keys, 12, 8, latent=True) if latent else AttentionShape(1, heads, heads, 4, keys, 8, 8)
    )
    counts = block_counts(shape, tiling, mesh)
    assert counts.inner > counts.waves / (2 if dataflow.strands > 1 else 1)
    return attention_program(dataflow, shape, tiling, mesh, channels=mesh.cols, kv=kv)


def memory(program: Program) -> MeshChannels:
    """A channel below each column of the program's mesh."""
    return mesh_channels("south", program.cols, program.rows, program.cols, 100.0, 1.0)


def rounds(program: Program) -> int:
    return sum(part.times * len(part.body) if isinstance(part, Loop) else 1 for parts in program.strands for part in parts)


@pytest.mark.sampled
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_times_are_those_of_all_waves(data: Any) -> None:
    name, latent = data.draw(st.sampled_from(sorted(ATTENTION))), data.draw(st.booleans())
    mesh, kv = CoreMesh(2, 2), data.draw(st.sampled_from([KvStorage(), KvStorage(0.53125, 3.0)]))
    groups = 1 if ATTENTION[name].grouped else 4
    heads, keys = groups * data.draw(st.integers(1, 16)), data.draw(st.integers(160, 400))
    program = waves(name, heads, keys, latent=latent, kv=kv, mesh=mesh)
    jumped, every = (
        simulate_events(program, CYCLES, engines=ENGINES, memory=memory(program), jump=jump) for jump in (True, False)
    )
    assert jumped.seconds == pytest.approx(every.seconds, rel=1e-9)
    assert jumped.activity == every.activity
    for slot, times in every.ready.items():
        assert jumped.ready[slot] == pytest.approx(times, rel=1e-9)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_turns_that_take_turns_are_jumped_over(data: Any) -> None:
    side = data.draw(st.sampled_from([2, 4]))
    part = SummaTiling(*(data.draw(st.sampled_from([2, 4, 8])) for _ in range(3)), data.draw(st.sampled_from([1, side])))
    shape = GemmShape(side * part.m, part.k * data.draw(st.integers(30, 60)), side * part.n * data.draw(st.integers(1, 3)))
    program = summa_diagonal.build_program(shape, part, CoreMesh(side, side), "float16", channels=side)
    jumped, every = (
        simulate_events(program, CYCLES, engines=ENGINES, memory=memory(program), jump=jump) for jump in (True, False)
    )
    assert jumped.seconds == pytest.approx(every.seconds, rel=1e-9)
    assert jumped.activity == every.activity
    for slot, times in every.ready.items():
        assert jumped.ready[slot] == pytest.approx(times, rel=1e-9)


def test_buffers_that_take_turns_repeat_every_second_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    program = summa_diagonal.build_program(
        GemmShape(16, 1600, 224), SummaTiling(4, 16, 56, 1), CoreMesh(4, 4), "float16", channels=4
    )
    events = simulate_events(program, CYCLES, engines=ENGINES, memory=memory(program))
    monkeypatch.setattr(import_module("dse.evaluators.cost_models.loop_repetition"), "LOOP_PERIODS", (1,))
    one_by_one = simulate_events(program, CYCLES, engines=ENGINES, memory=memory(program))
    assert events.seconds == pytest.approx(one_by_one.seconds, rel=1e-9)
    assert events.played < 0.5 * one_by_one.played


def test_most_waves_are_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    program = waves("flat_hw", 24, 400, latent=False, kv=KvStorage(), mesh=CoreMesh(2, 2))
    events = simulate_events(program, CYCLES, engines=ENGINES, memory=memory(program))
    monkeypatch.setattr(import_module("dse.evaluators.cost_models.wave_repetition"), "MIN_REPETITIONS", 10**6)
    loops_alone = simulate_events(program, CYCLES, engines=ENGINES, memory=memory(program))
    assert events.seconds == pytest.approx(loops_alone.seconds, rel=1e-9)
    assert events.played < 0.5 * loops_alone.played < rounds(program)


def test_what_comes_again_ends_where_parts_differ() -> None:
    keys = np.array([0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 4])
    assert [repetitions_ahead(keys, at, 3) for at in (4, 5, 6, 7, 10)] == [2, 2, 1, 1, 0]
    assert repetitions_ahead(keys, 4, 2) == 0
    assert repetitions_ahead(np.array([5, 5, 5, 5]), 1, 1) == 2


def test_rounds_of_the_same_time_are_one_whatever_they_mask_or_load() -> None:
    """Masks of blocks of queries differ, and so do the tensors of waves that take turns; the time of a round is of neither."""
    dataflow, mesh = ATTENTION["flat_async"], CoreMesh(4, 4)
    program = attention_program(
        dataflow, AttentionShape(1, 8, 8, 64, 64, 8, 8, causal=True), AttentionTiling(2, 2, 4, 4), mesh, channels=4
    )
    alike = share_equal_rounds(program)
    several, few = ({id(turn) for parts in variant.strands for turn in iterate_rounds(parts)} for variant in (program, alike))
    assert len(few) < len(several) / 2
    assert [len(list(iterate_rounds(parts))) for parts in alike.strands] == [
        len(list(iterate_rounds(parts))) for parts in program.strands
    ]
    for round_, other in zip(*(iterate_rounds(parts) for parts in (program.strands[0], alike.strands[0])), strict=True):
        assert [(type(step), buffers_read(step), buffers_written(step)) for step in round_.steps] == [
            (type(step), buffers_read(step), buffers_written(step)) for step in other.steps
        ]
    assert count_activity(alike) == count_activity(program)
