"""Attention within a window computes the blocks of keys that the band of a block of queries meets, and no others."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention import block_schedule as blocks
from dse.evaluators.kernels.attention.attention_cost import AttentionTask, TileMachine, attention_cost
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, block_counts, key_blocks
from dse.evaluators.kernels.attention.block_counts import count_many
from dse.evaluators.kernels.attention.block_schedule import causal_band, key_blocks_loaded, key_blocks_passed, list_waves
from dse.evaluators.kernels.attention.dataflow import attention_program, tiling_of_pairs
from dse.evaluators.kernels.attention.operand_blocks import scatter_qkv
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.program.activity_counts import count_activity
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.evaluators.test_attention import GROUPED, changed, gather_output, operands, plain, program, tilings, wrong
from tests.marks import slow_if

SHAPE = AttentionShape(1, 4, 2, 21, 24, 4, 4, causal=True, window=6)


@st.composite
def shapes(draw: Any) -> AttentionShape:
    """Prompts, or the last positions of some, with any window."""
    kv_heads, queries = draw(st.integers(1, 3)), draw(st.integers(2, 24))
    keys = queries + draw(st.integers(0, 10))
    latent = draw(st.booleans())
    return AttentionShape(
        draw(st.integers(1, 2)), kv_heads * draw(st.integers(1, 3)), kv_heads, queries, keys, 6 if latent else 4, 4,
        causal=True, latent=latent, window=draw(st.integers(1, keys + 3)),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["flat_async", "flash_split"])
@given(st.data())
@settings(deadline=None)
def test_compiled_counts_are_those_of_the_turns_one_by_one(name: str, data: Any) -> None:
    keys = [blocks._keys(data.draw(shapes()), *data.draw(tilings(name))) for _ in range(3)]
    counts = np.empty((len(keys), 3))
    count_many(np.array(keys), counts)
    assert counts.tolist() == [list(blocks.count_by_waves(*entry)) for entry in keys]


def seconds(name: str, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> Any:
    machine = TileMachine(CYCLES, ENGINES, ColumnMemory(mesh.cols, 100.0, 1.0, 1.0))
    return attention_cost(AttentionTask(ATTENTION[name], shape, tiling, mesh), machine)


@slow_if(lambda name: name != "flash2")
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_any_window_is_softmax_attention_to_the_keys_in_it(name: str, data: Any) -> None:
    assert wrong(name, data.draw(shapes()), *data.draw(tilings(name))) < 1e-4


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_the_closed_form_counts_what_the_steps_of_any_window_count(name: str, data: Any) -> None:
    shape, (tiling, mesh) = data.draw(shapes()), data.draw(tilings(name))
    if block_counts(shape, tiling, mesh).parts > 1:
        tiling = replace(tiling, kv_splits=1)
    counted = count_activity(attention_program(ATTENTION[name], shape, tiling, mesh, channels=mesh.cols))
    closed = seconds(name, shape, tiling, mesh).activity
    for count in ("macs", "elements", "sent_bytes", "memory_bytes", "spread_bytes"):
        assert getattr(closed, count) == pytest.approx(getattr(counted, count)), count


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_a_window_of_the_whole_prompt_is_none(name: str, data: Any) -> None:
    shape, (tiling, mesh) = data.draw(shapes()), data.draw(tilings(name))
    wide, none = replace(shape, window=shape.keys + data.draw(st.integers(0, 9))), replace(shape, window=0)
    written = [attention_program(ATTENTION[name], shape, tiling, mesh, channels=mesh.cols) for shape in (wide, none)]
    assert written[0].slots == written[1].slots
    assert count_activity(written[0]) == count_activity(written[1])
    assert seconds(name, wide, tiling, mesh) == seconds(name, none, tiling, mesh)
    assert wide.macs == none.macs


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_computed_is_the_blocks_that_the_band_meets(data: Any) -> None:
    """Of one group, whose items are each in a turn of their own; they are counted pair by pair here."""
    shape, (tiling, _) = data.draw(shapes()), data.draw(tilings("flat_hw"))
    mesh = CoreMesh(tiling.rows, tiling.cols)
    m, n = tiling.rows * tiling.queries, tiling.cols * tiling.keys
    places = np.arange(shape.rows) // shape.heads_per_kv + shape.keys - shape.queries
    seen = (np.arange(shape.keys) <= places[:, None]) & (np.arange(shape.keys) > places[:, None] - shape.window)
    met = []
    for first in range(0, shape.rows, m):
        columns = np.flatnonzero(seen[first : first + m].any(axis=0))
        met.append(-(-(columns[-1] + 1 - columns[0]) // n))
        assert columns[0] == causal_band(shape, tiling, np.array([first // m])).first[0]
    blocks, masked = key_blocks_passed(shape, tiling, mesh)
    assert blocks == shape.problems * sum(met) == key_blocks_loaded(shape, tiling, mesh)
    assert max(met) <= key_blocks(shape, tiling)
    assert blocks * m * n >= shape.problems * seen.sum()
    assert blocks * m * n <= shape.problems * sum((span + 1) * m * n for span in met)
    assert masked <= 2 * blocks


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_no_item_of_a_turn_goes_through_more_blocks_than_the_one_that_has_most(data: Any) -> None:
    shape, (tiling, mesh) = data.draw(shapes()), data.draw(tilings("flat_hw"))
    for wave in list_waves(shape, tiling, mesh):
        assert wave.inner == max(-(-int(causal_band(shape, tiling, np.array([block])).every[0]) // (tiling.cols * tiling.keys))
                                 for block in wave.blocks)  # fmt: skip
        assert 0 <= wave.plain <= wave.inner
        assert 0 <= wave.low <= wave.inner


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_less_is_done_the_smaller_the_window_is(name: str, data: Any) -> None:
    """Products and bytes; of time, all but what masks of the lower edge take, which nobody needs who sees all keys."""
    shape, (tiling, mesh) = data.draw(shapes()), data.draw(tilings(name))
    tiling = replace(tiling, kv_splits=1)
    narrow = replace(shape, window=data.draw(st.integers(1, shape.window)))
    few, many = (seconds(name, shape_of_run, tiling, mesh) for shape_of_run in (narrow, shape))
    assert few.activity.macs <= many.activity.macs
    assert few.activity.memory_bytes <= many.activity.memory_bytes
    turned = tiling_of_pairs(ATTENTION[name], shape, tiling)
    more = max(key_blocks_passed(narrow, turned, mesh)[1] - key_blocks_passed(shape, turned, mesh)[1], 0)
    mask = ENGINES.instruction(tiling.queries * tiling.keys, 0, 4 * tiling.queries * tiling.keys)
    mask += ENGINES.vector.start / ENGINES.clock
    assert few.seconds <= (many.seconds + 2 * more * mask) * (1 + 1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("slot", ["q", "k", "v", "total", "o"])
@pytest.mark.parametrize("name", GROUPED)
def test_one_message_astray_within_a_window_is_noticed(name: str, slot: str) -> None:
    tiling, mesh = AttentionTiling(3, 3, 2, 2), CoreMesh(3, 3)

    def to_a_neighbour(step: Any) -> Any:
        row, col = (np.array(np.broadcast_to(axis, step.path.shape)) for axis in (step.path.row, step.path.col))
        across = row if (row[0] == row[0, 0]).all() else col
        across[0, -1] = (across[0, -1] + 1) % 3
        return replace(step, path=replace(step.path, row=row, col=col))

    assert wrong(name, SHAPE, tiling, mesh) < 1e-4
    assert not wrong(name, SHAPE, tiling, mesh, changed(program(name, SHAPE, tiling, mesh), slot, to_a_neighbour)) < 1e-3


@pytest.mark.parametrize("name", ATTENTION)
def test_a_block_that_begins_a_key_too_late_is_noticed(name: str) -> None:
    tiling, mesh, dataflow = AttentionTiling(1, 1, 6, 4), CoreMesh(2, 2), ATTENTION[name]
    streams = scatter_qkv(*operands(SHAPE), dataflow, SHAPE, tiling, mesh)
    key = next(key for key in streams if key.endswith("k"))
    streams[key] = np.concatenate([np.roll(streams[key][:1], 1, axis=3), streams[key][1:]])
    out = run_program(program(name, SHAPE, tiling, mesh), {}, streams)
    assert np.abs(gather_output(out, dataflow, SHAPE, tiling, mesh) - plain(SHAPE)).max() > 1e-2
