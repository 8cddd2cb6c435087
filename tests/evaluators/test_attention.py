"""Every registered attention computes softmax attention, on any group of any mesh, and moves what the paper's formula says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.analytical_attention import AttentionJob, job_buffers
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention import block_schedule as blocks
from dse.evaluators.kernels.attention import split_kv_merge as merge
from dse.evaluators.kernels.attention.attention_cost import AttentionTask, TileMachine, attention_cost
from dse.evaluators.kernels.attention.attention_shape import (
    SAME_AS_ACTIVATIONS,
    AttentionShape,
    AttentionTiling,
    KvStorage,
    block_counts,
    memory_bytes,
)
from dse.evaluators.kernels.attention.block_counts import count_key_blocks
from dse.evaluators.kernels.attention.dataflow import PARTIAL_OUTPUTS, Dataflow, attention_program, is_paired, tiling_of_pairs
from dse.evaluators.kernels.attention.operand_blocks import gather_output, rows_stored, rows_to_heads, scatter_qkv
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import (
    Instruction,
    Loop,
    MulticastInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    VectorInstruction,
)
from dse.space.array_math import Array
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.marks import slow_if
from tests.samples import asked

VARIANTS = {
    "mha": AttentionShape(2, 3, 3, 12, 12, 4, 5),
    "mqa": AttentionShape(2, 4, 1, 6, 10, 4, 4),
    "gqa": AttentionShape(1, 6, 2, 5, 9, 3, 4),
    "mla": AttentionShape(2, 4, 1, 3, 11, 6, 4, latent=True),
    "mla naive": AttentionShape(1, 3, 3, 7, 7, 6, 4, causal=True),
    "decode": AttentionShape(3, 2, 2, 1, 17, 4, 4),
    "gqa decode": AttentionShape(2, 8, 2, 1, 13, 4, 4),
    "causal": AttentionShape(1, 2, 2, 13, 13, 4, 4, causal=True),
    "speculative": AttentionShape(2, 4, 2, 3, 15, 4, 4, causal=True),
    "mla speculative": AttentionShape(2, 4, 1, 2, 14, 6, 4, causal=True, latent=True),
    "window": AttentionShape(1, 2, 2, 23, 23, 4, 4, causal=True, window=5),
    "gqa window": AttentionShape(1, 6, 2, 9, 9, 3, 4, causal=True, window=3),
    "window of a chunk": AttentionShape(2, 4, 2, 7, 18, 4, 4, causal=True, window=6),
    "mla window": AttentionShape(1, 3, 1, 9, 11, 6, 4, causal=True, latent=True, window=4),
    "rows": AttentionShape(2, 4, 1, 3, 11, 4, 4, latent=True),
    "rows of a prompt": AttentionShape(1, 4, 1, 9, 9, 4, 4, causal=True, latent=True),
    "capped": AttentionShape(1, 4, 2, 9, 13, 4, 4, capped=True),
    "capped window": AttentionShape(1, 4, 2, 9, 12, 4, 4, causal=True, window=5, capped=True),
}
CAP = 2.5
"""Of scores that are capped, less than many of them are."""

GROUPED = [name for name, dataflow in ATTENTION.items() if dataflow.grouped]


def operands(shape: AttentionShape) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(shape.keys)
    q = 3 * rng.normal(size=(shape.batch, shape.heads, shape.queries, shape.qk)).astype(np.float32)
    k = rng.normal(size=(shape.batch, shape.kv_heads, shape.keys, shape.qk)).astype(np.float32)
    v = rng.normal(size=(shape.batch, shape.kv_heads, shape.keys, shape.v)).astype(np.float32)
    return q, k, k[..., -shape.v :] if shape.latent else v


def plain(shape: AttentionShape) -> Array:
    """Softmax attention as it is defined, in double precision."""
    q, *kv = operands(shape)
    k, v = (np.repeat(x, shape.heads_per_kv, axis=1).astype(float) for x in kv)
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k) / np.sqrt(shape.qk)
    scores = CAP * np.tanh(scores / CAP) if shape.capped else scores
    if shape.causal:
        later = np.arange(shape.keys) > np.arange(shape.queries)[:, None] + shape.keys - shape.queries
        scores = np.where(later, -np.inf, scores)
    if shape.window:
        past = np.arange(shape.keys) + shape.window <= np.arange(shape.queries)[:, None] + shape.keys - shape.queries
        scores = np.where(past, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(np.einsum("bhqk,bhkv->bhqv", weights / weights.sum(axis=-1, keepdims=True), v))


def program(
    name: str, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh, kv: KvStorage = SAME_AS_ACTIVATIONS
) -> Program:
    return attention_program(ATTENTION[name], shape, tiling, mesh, "float32", channels=mesh.cols, cap=CAP, kv=kv)


def wrong(name: str, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh, written: Program | None = None) -> float:
    """Largest error of a program's outputs."""
    dataflow = ATTENTION[name]
    out = run_program(
        written or program(name, shape, tiling, mesh), {}, scatter_qkv(*operands(shape), dataflow, shape, tiling, mesh)
    )
    outputs = (
        gather_output(out, dataflow, shape, tiling, mesh)
        if block_counts(shape, tiling, mesh).parts == 1
        else merged(out, dataflow, shape, tiling, mesh)
    )
    return float(np.abs(outputs - plain(shape)).max())


def merged(out: dict[str, Array], dataflow: Dataflow, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> Array:
    """Outputs that the second pass makes of partial ones."""
    partial = {slot: rows_stored(out, slot, dataflow, shape, tiling, mesh) for slot in PARTIAL_OUTPUTS}
    left = merge.plan_merge(shape, tiling, mesh)
    written = merge.merge_program(left, mesh, "float32", channels=mesh.cols)
    idle = {"totals": np.ones((mesh.rows, mesh.cols, left.parts, left.each), np.float32)}  # what tiles without rows divide by
    return rows_to_heads(
        merge.gather_merged(run_program(written, idle, merge.scatter_partials(partial, left, mesh)), left, mesh), shape
    )


@st.composite
def tilings(draw: Any, name: str) -> tuple[AttentionTiling, CoreMesh]:
    rows, cols = (draw(st.integers(1, 4)), draw(st.integers(1, 4))) if ATTENTION[name].grouped else (1, 1)
    mesh = CoreMesh(rows * draw(st.integers(1, 2)), cols * draw(st.integers(1, 2)))
    splits = draw(st.integers(1, 5)) if ATTENTION[name].split else 1
    return AttentionTiling(rows, cols, draw(st.integers(1, 4)), draw(st.integers(1, 4)), splits), mesh


@slow_if(lambda name, variant: (name, variant) == ("flat_async", "speculative"))
@pytest.mark.sampled
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_every_attention_is_softmax_attention(name: str, variant: str, data: Any) -> None:
    assert wrong(name, VARIANTS[variant], *data.draw(tilings(name))) < 1e-4


def test_rows_of_large_scores_do_not_overflow() -> None:
    """Scores are compared with the running maximum of their row, which blocks of keys raise."""
    shape = AttentionShape(1, 1, 1, 6, 12, 4, 4)
    q, k, v = operands(shape)
    dataflow, tiling, mesh = ATTENTION["flat_hw"], AttentionTiling(2, 2, 3, 2), CoreMesh(2, 2)
    rising = k * np.linspace(0, 500, 12, dtype=np.float32)[:, None]
    out = run_program(program("flat_hw", shape, tiling, mesh), {}, scatter_qkv(q, rising, v, dataflow, shape, tiling, mesh))
    outputs = gather_output(out, dataflow, shape, tiling, mesh)
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), rising) / 2
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("bhqk,bhkv->bhqv", weights / weights.sum(axis=-1, keepdims=True), v)
    assert np.isfinite(outputs).all()
    assert np.allclose(outputs, expected, atol=1e-3)


def changed(written: Program, slot: str, pick: Any) -> Program:
    """The program with the steps that move a slot, statistics or operands, done to the wrong tile."""

    def step_of(step: Instruction) -> Instruction:
        if not isinstance(step, SendInstruction | MulticastInstruction | ReduceInstruction) or step.slot.split(".")[-1] != slot:
            return step
        if isinstance(step, SendInstruction):
            return step if step.source is step.target else replace(step, target=step.source)
        return pick(step)

    def turn_of(turn: Round) -> Round:
        return replace(turn, steps=tuple(step_of(step) for step in turn.steps))

    def part_of(part: Round | Loop) -> Round | Loop:
        return replace(part, body=tuple(map(turn_of, part.body))) if isinstance(part, Loop) else turn_of(part)

    return replace(written, strands=tuple(tuple(map(part_of, strand)) for strand in written.strands))


@pytest.mark.sampled
@pytest.mark.parametrize("slot", ["q", "k", "v", "top", "total", "o"])
@pytest.mark.parametrize("name", GROUPED)
def test_one_message_astray_is_noticed(name: str, slot: str) -> None:
    """A tile that is left out of what goes along its row or column, for its neighbour."""
    shape, tiling, mesh = VARIANTS["mha"], AttentionTiling(3, 3, 2, 2), CoreMesh(3, 3)

    def to_a_neighbour(step: MulticastInstruction | ReduceInstruction) -> Instruction:
        if slot == "top" and isinstance(step, ReduceInstruction):
            return step  # any number that a row agrees upon would do as its maximum
        row, col = (np.array(np.broadcast_to(axis, step.path.shape)) for axis in (step.path.row, step.path.col))
        across = row if (row[0] == row[0, 0]).all() else col
        across[0, -1] = (across[0, -1] + 1) % 3
        return replace(step, path=replace(step.path, row=row, col=col))

    assert wrong(name, shape, tiling, mesh) < 1e-4
    assert not wrong(name, shape, tiling, mesh, changed(program(name, shape, tiling, mesh), slot, to_a_neighbour)) < 1e-3


@pytest.mark.parametrize("name", [name for name in ATTENTION if name not in GROUPED])
def test_a_block_of_another_problem_is_noticed(name: str) -> None:
    shape, tiling, mesh, dataflow = VARIANTS["mha"], AttentionTiling(1, 1, 4, 4), CoreMesh(2, 2), ATTENTION[name]
    streams = scatter_qkv(*operands(shape), dataflow, shape, tiling, mesh)
    key = next(key for key in streams if key.endswith("k"))
    streams[key] = np.concatenate([np.roll(streams[key][:1], 1, axis=1), streams[key][1:]])
    out = run_program(program(name, shape, tiling, mesh), {}, streams)
    assert np.abs(gather_output(out, dataflow, shape, tiling, mesh) - plain(shape)).max() > 1e-2


PAIRED = [name for name, dataflow in ATTENTION.items() if dataflow.paired]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PAIRED)
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_blocks_of_queries_that_share_keys_are_softmax_attention(name: str, variant: str, data: Any) -> None:
    """Of any even number of them, on groups of any shape."""
    shape = replace(VARIANTS[variant], queries=2 * VARIANTS[variant].queries, keys=2 * VARIANTS[variant].keys)
    tiling, mesh = data.draw(tilings(name).filter(lambda drawn: bool(is_paired(ATTENTION[name], shape, drawn[0]))))
    assert wrong(name, shape, tiling, mesh) < 1e-4
    assert wrong(name, shape, tiling, mesh, program(name, shape, tiling, mesh, KvStorage(0.53125, 3.0))) < 1e-4


@pytest.mark.parametrize("name", PAIRED)
def test_an_odd_number_of_blocks_of_queries_is_two_heads_in_flight(name: str) -> None:
    shape, mesh = VARIANTS["mha"], CoreMesh(2, 2)
    odd, even = AttentionTiling(2, 2, 2, 2), AttentionTiling(2, 2, 3, 2)  # three blocks of four queries, two of six
    assert [bool(is_paired(ATTENTION[name], shape, tiling)) for tiling in (odd, even)] == [False, True]
    written = [
        attention_program(ATTENTION[name_of_flow], shape, odd, mesh, channels=2) for name_of_flow in (name, "flat_async")
    ]
    assert written[0].slots == written[1].slots
    assert count_activity(written[0]) == count_activity(written[1])


SPLIT = [name for name, dataflow in ATTENTION.items() if dataflow.split]


@pytest.mark.parametrize("name", SPLIT)
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_keys_that_are_split_give_the_outputs_of_whole_ones_whatever_their_scores(name: str, data: Any) -> None:
    """Of latent heads as they are: maxima of parts are far apart, since scores grow along the keys."""
    shape = AttentionShape(1, data.draw(st.integers(1, 4)), 1, 2, data.draw(st.integers(20, 60)), 576, 512, latent=True)
    tiling, mesh = (
        AttentionTiling(1, 1, data.draw(st.integers(1, 5)), data.draw(st.integers(4, 9)), data.draw(st.integers(2, 9))),
        CoreMesh(2, 2),
    )
    q, k, _ = operands(shape)
    rising = k * np.linspace(0, 50, shape.keys, dtype=np.float32)[:, None]
    outputs = []
    for dataflow, cut_ in ((ATTENTION[name], tiling), (ATTENTION["flash2"], replace(tiling, kv_splits=1))):
        written = attention_program(dataflow, shape, cut_, mesh, "float32", channels=2)
        out = run_program(written, {}, scatter_qkv(q, rising, rising[..., -shape.v :], dataflow, shape, cut_, mesh))
        parts = block_counts(shape, cut_, mesh).parts
        outputs.append(
            gather_output(out, dataflow, shape, cut_, mesh) if parts == 1 else merged(out, dataflow, shape, cut_, mesh)
        )
    assert np.allclose(*outputs, atol=1e-3)


@pytest.mark.parametrize("name", SPLIT)
def test_keys_in_one_part_are_what_flash2_does(name: str) -> None:
    shape, tiling, mesh = VARIANTS["gqa decode"], AttentionTiling(1, 1, 3, 4, 1), CoreMesh(2, 2)
    written = [attention_program(ATTENTION[name_of_flow], shape, tiling, mesh, channels=2) for name_of_flow in (name, "flash2")]
    assert written[0].slots == written[1].slots
    assert count_activity(written[0]) == count_activity(written[1])


@pytest.mark.parametrize("name", SPLIT)
@given(st.integers(1, 3), st.integers(1, 300), st.integers(1, 600), st.integers(4, 64), st.integers(4, 64), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_local_memory_is_enough_for_both_passes(
    name: str, batch: int, rows: int, keys: int, m: int, n: int, splits: int
) -> None:
    shape, tiling, mesh = AttentionShape(batch, 1, 1, rows, keys, 64, 64), AttentionTiling(1, 1, m, n, splits), CoreMesh(2, 2)
    chip = asked("chip=tile32", "workload=attention").base.chip
    room = sum(slot.nbytes for slot in job_buffers(AttentionJob(ATTENTION[name], shape, tiling, chip)))
    need = [attention_program(ATTENTION[name], shape, tiling, mesh, channels=2).core_bytes]
    if block_counts(shape, tiling, mesh).parts > 1:
        need.append(merge.merge_program(merge.plan_merge(shape, tiling, mesh), mesh, channels=2).core_bytes)
    assert max(need) <= room


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_what_comes_from_memory_is_what_the_formula_says(name: str, data: Any) -> None:
    """[zhang2026] section III: 2 B H D S (1 + S / (N M)) values, padded, in the program and in the closed form."""
    tiling, mesh = data.draw(tilings(name))
    tiling = replace(tiling, kv_splits=1)
    shape = data.draw(st.sampled_from([shape for shape in VARIANTS.values() if not shape.causal]))
    counted = count_activity(program(name, shape, tiling, mesh)).memory_bytes
    assert counted == memory_bytes(shape, tiling_of_pairs(ATTENTION[name], shape, tiling), mesh, 4)
    square = AttentionShape(2, 3, 3, 16, 16, 8, 8)
    cut = AttentionTiling(2, 2, 4, 4)
    assert memory_bytes(square, cut, CoreMesh(2, 2), 1) == 2 * 2 * 3 * 8 * 16 * (1 + 16 // (2 * 4))


PACKED = [KvStorage(1.03125, 2.0), KvStorage(0.53125, 3.0)]
"""As MXFP8 and MXFP4."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=30, deadline=None)
def test_keys_and_values_that_are_expanded_are_what_is_multiplied(name: str, data: Any) -> None:
    """What tiles make of packed keys and values gives softmax attention, and the closed form counts what the steps do."""
    (tiling, mesh), kv = data.draw(tilings(name)), data.draw(st.sampled_from(PACKED))
    shape = data.draw(st.sampled_from(list(VARIANTS.values())))
    written = program(name, shape, tiling, mesh, kv)
    assert wrong(name, shape, tiling, mesh, written) < 1e-4
    counted = count_activity(attention_program(ATTENTION[name], shape, tiling, mesh, channels=mesh.cols, kv=kv))
    if block_counts(shape, tiling, mesh).parts > 1:
        counted += count_activity(merge.merge_program(merge.plan_merge(shape, tiling, mesh), mesh, channels=mesh.cols))
    task = AttentionTask(ATTENTION[name], shape, tiling, mesh, kv=kv)
    closed = attention_cost(task, TileMachine(CYCLES, ENGINES, ColumnMemory(mesh.cols, 100.0, 1.0, 1.0))).activity
    for count in ("macs", "elements", "sent_bytes", "memory_bytes", "spread_bytes"):
        assert getattr(closed, count) == pytest.approx(getattr(counted, count)), count
    plain_ = count_activity(attention_program(ATTENTION[name], shape, tiling, mesh, channels=mesh.cols))
    assert counted.elements > plain_.elements


@pytest.mark.sampled
@pytest.mark.parametrize("slot", ["wk", "wv"])
@pytest.mark.parametrize("name", ATTENTION)
def test_keys_or_values_that_nobody_expands_are_noticed(name: str, slot: str) -> None:
    (tiling, mesh), shape = (
        (AttentionTiling(2, 2, 2, 2) if name in GROUPED else AttentionTiling(1, 1, 2, 2), CoreMesh(2, 2)),
        VARIANTS["mha"],
    )
    written = program(name, shape, tiling, mesh, PACKED[1])

    def kept_of(turn: Round) -> Round:
        return replace(
            turn, steps=tuple(s for s in turn.steps if not (isinstance(s, VectorInstruction) and s.out.endswith(slot)))
        )

    def part_of(part: Round | Loop) -> Round | Loop:
        return replace(part, body=tuple(map(kept_of, part.body))) if isinstance(part, Loop) else kept_of(part)

    left = replace(written, strands=tuple(tuple(map(part_of, strand)) for strand in written.strands))
    assert wrong(name, shape, tiling, mesh, written) < 1e-4
    try:
        assert wrong(name, shape, tiling, mesh, left) > 1e-2
    except KeyError:
        return  # what was never made cannot be multiplied


@pytest.mark.sampled
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_the_closed_form_counts_what_the_steps_count(name: str, variant: str, data: Any) -> None:
    """Links between memory and tiles apart, which only who knows their places can count."""
    (tiling, mesh), shape = data.draw(tilings(name)), VARIANTS[variant]
    counted = count_activity(attention_program(ATTENTION[name], shape, tiling, mesh, channels=mesh.cols))
    if block_counts(shape, tiling, mesh).parts > 1:
        counted += count_activity(merge.merge_program(merge.plan_merge(shape, tiling, mesh), mesh, channels=mesh.cols))
    memory = ColumnMemory(mesh.cols, 100.0, 1.0, 1.0)
    closed = attention_cost(AttentionTask(ATTENTION[name], shape, tiling, mesh), TileMachine(CYCLES, ENGINES, memory)).activity
    for count in ("macs", "elements", "sent_bytes", "memory_bytes", "spread_bytes"):
        assert getattr(closed, count) == pytest.approx(getattr(counted, count)), count


def test_the_numeric_reader_refuses_exponentials_of_whole_numbers() -> None:
    """What NumPy has of one byte are whole numbers: FP8 is priced, and proved by the same steps in float32."""
    shape, tiling, mesh, dataflow = VARIANTS["mha"], AttentionTiling(1, 1, 4, 4), CoreMesh(2, 2), ATTENTION["flash2"]
    written = attention_program(dataflow, shape, tiling, mesh, "int8", channels=2)
    with pytest.raises(ValueError, match="slot 's': NumPy has no int8 exponentials; use float16 or float32"):
        run_program(written, {}, scatter_qkv(*operands(shape), dataflow, shape, tiling, mesh))


def test_memory_of_a_tile_is_the_sum_of_its_slots() -> None:
    """Q, K, V, scores and O of 128 x 128 halves and five statistics; twice that with two heads in flight."""
    shape, tiling, mesh = AttentionShape(2, 2, 2, 512, 512, 128, 128), AttentionTiling(2, 2, 128, 128), CoreMesh(2, 2)
    need = 5 * 128 * 128 * 2 + 5 * 128 * 4
    held = {name: attention_program(ATTENTION[name], shape, tiling, mesh, channels=2).core_bytes for name in GROUPED}
    assert held["flat_hw"] == need
    assert held["flat_async"] == 2 * need
    assert held["flat_rows"] == 2 * need - 2 * 128 * 128 * 2  # two blocks of queries, one set of keys and values
    assert held["flat_tree"] == held["flat_seq"] == need + 128 * 128 * 2


@slow_if(lambda name, variant: (name, variant) == ("flat_tree", "mqa"))
@pytest.mark.sampled
@pytest.mark.parametrize("variant", ["mqa", "gqa", "mla", "gqa decode", "mla speculative"])
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_rows_that_are_selected_are_what_queries_attend_to(name: str, variant: str, data: Any) -> None:
    """As attention to all rows of which the others are masked; rows are in any order, since a softmax has none."""
    shape = replace(VARIANTS[variant], causal=False, piece=64)
    tiling, mesh = data.draw(tilings(name))
    rng, rows = np.random.default_rng(data.draw(st.integers(0, 99))), shape.keys + 9
    q, k, v = operands(replace(shape, keys=rows))
    chosen = rng.permuted(np.tile(np.arange(rows), (shape.batch, shape.kv_heads, 1)), axis=-1)[..., : shape.keys]
    assert gathered(name, shape, tiling, mesh, (q, k, v), chosen) == pytest.approx(of_rows(q, k, v, chosen, shape), abs=1e-4)


def gathered(
    name: str, shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh, of_all: tuple[Array, Array, Array], chosen: Array
) -> Array:
    dataflow = ATTENTION[name]
    out = run_program(program(name, shape, tiling, mesh), {}, scatter_qkv(*of_all, dataflow, shape, tiling, mesh, chosen))
    return (
        gather_output(out, dataflow, shape, tiling, mesh)
        if block_counts(shape, tiling, mesh).parts == 1
        else merged(out, dataflow, shape, tiling, mesh)
    )


def of_rows(q: Array, k: Array, v: Array, chosen: Array, shape: AttentionShape) -> Array:
    """Attention to all rows, those masked that are not chosen."""
    k, v = (np.repeat(x, shape.heads_per_kv, axis=1).astype(float) for x in (k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k) / np.sqrt(shape.qk)
    seen = np.zeros((shape.batch, shape.kv_heads, k.shape[2]), bool)
    np.put_along_axis(seen, chosen, True, axis=-1)
    scores = np.where(np.repeat(seen, shape.heads_per_kv, axis=1)[:, :, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(np.einsum("bhqk,bhkv->bhqv", weights / weights.sum(axis=-1, keepdims=True), v))


@pytest.mark.parametrize("name", ATTENTION)
def test_rows_of_another_number_are_noticed(name: str) -> None:
    shape, tiling, mesh = replace(VARIANTS["mqa"], piece=64), AttentionTiling(1, 1, 8, 4), CoreMesh(2, 2)
    q, k, v = operands(replace(shape, keys=19))
    chosen = np.tile(np.arange(shape.keys), (shape.batch, shape.kv_heads, 1))
    wanted = of_rows(q, k, v, chosen, shape)
    assert np.abs(gathered(name, shape, tiling, mesh, (q, k, v), chosen) - wanted).max() < 1e-4
    chosen[0, 0, 3] = 18
    assert np.abs(gathered(name, shape, tiling, mesh, (q, k, v), chosen) - wanted).max() > 1e-2


@pytest.mark.sampled
@pytest.mark.parametrize("variant", ["mqa", "gqa", "mla", "gqa decode"])
@pytest.mark.parametrize("name", ATTENTION)
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_the_closed_form_counts_rows_that_are_selected(name: str, variant: str, data: Any) -> None:
    shape, (tiling, mesh) = replace(VARIANTS[variant], piece=64), data.draw(tilings(name))
    if block_counts(shape, tiling, mesh).parts > 1:
        return
    counted = count_activity(attention_program(ATTENTION[name], shape, tiling, mesh, channels=mesh.cols))
    machine = TileMachine(CYCLES, ENGINES, ColumnMemory(mesh.cols, 100.0, 1.0, 1.0))
    activity = attention_cost(AttentionTask(ATTENTION[name], shape, tiling, mesh), machine).activity
    for count in ("macs", "elements", "memory_bytes", "sent_bytes", "spread_bytes"):
        assert getattr(activity, count) == pytest.approx(getattr(counted, count)), count


@pytest.mark.sampled
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_compiled_counts_are_those_of_all_turns(data: st.DataObject) -> None:
    """Of random shapes, masks, windows, cuts and meshes."""

    def pick(*values: int) -> int:
        return data.draw(st.sampled_from(values))

    queries = data.draw(st.integers(1, 700))
    keys, causal, splits = queries + pick(0, 0, 10, 500), pick(0, 1), pick(1, 1, 2, 3, 8)
    window, sides = causal * pick(0, 0, 64, 300), (pick(1, 4, 8, 16), pick(1, 4, 8, 16))
    group = [data.draw(st.sampled_from([divisor for divisor in range(1, side + 1) if side % divisor == 0])) for side in sides]
    part = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 200))
    problems, shared = data.draw(st.integers(1, 40)), pick(1, 2, 4, 7)
    arguments, out = (problems, shared, queries, keys, causal, window, *group, *part, splits, *sides), np.empty(3)
    count_key_blocks(*arguments, out)
    assert tuple(out.tolist()) == blocks.count_by_waves(*arguments)


@given(st.integers(1, 4), st.integers(2, 8), st.integers(1, 64), st.integers(1, 300), st.integers(1, 4), st.integers(1, 16))
@settings(max_examples=60, deadline=None)
def test_heads_share_what_is_loaded_where_a_block_has_queries_of_several(
    kv_heads: int, shared: int, block: int, keys: int, blocks: int, slice_: int
) -> None:
    """Each block of queries loads all keys: GQA has fewer of them where they are longer than a head's queries, else as many."""
    mesh, tiling = CoreMesh(4, 4), AttentionTiling(1, 2, block, slice_)

    def loaded(queries: int) -> tuple[float, float]:
        shape = AttentionShape(1, kv_heads * shared, kv_heads, queries, keys, 8, 8)
        alone, together = (memory_bytes(shape, tiling, mesh, 2.0) for shape in (replace(shape, kv_heads=shape.heads), shape))
        return alone, together

    alone, together = loaded(block * blocks)
    assert together == alone
    if block % shared == 0:  # a block has one query of each head, or a few
        alone, together = loaded(block // shared)
        assert together * shared == alone
