"""SUMMA from memory computes the product on any mesh, moves what its formulas say, and takes what its closed form says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models.event_simulator import simulate_events as timed
from dse.evaluators.cost_models.simulated_job import remove_instructions
from dse.evaluators.cost_models.simulated_summa import EVENTS
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels.gemm.summa_diagonal import (
    SummaTiling,
    WeightStorage,
    buffers,
    build_program,
    cost,
    gather_result,
    memory_bytes,
    scatter_operands,
)
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.layouts.whole_chip import weight_storage
from dse.evaluators.machine.memory_channels import ColumnMemory, mesh_channels
from dse.evaluators.program.activity import COUNTS
from dse.evaluators.program.kernel_ir import Loop, MulticastInstruction, Program, Round, VectorInstruction
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import FormatPlan
from dse.space.number_formats import BYTES_BY_FORMAT, UNSCALED_FORMATS, formats_of_tensor
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.samples import asked

sizes = st.builds(GemmShape, *[st.integers(1, 20)] * 3)
slices = st.tuples(*[st.integers(1, 5)] * 3)
meshes = st.builds(CoreMesh, st.integers(1, 6), st.integers(1, 5))
stored = st.none() | st.builds(
    WeightStorage,
    st.sampled_from([BYTES_BY_FORMAT[name] for name in formats_of_tensor("weights")]),
    st.sampled_from([0.0, 1.0, 2.0, 3.0]),
)
"""Formats of B, expanded by as many operations."""


@st.composite
def cuts(draw: Any) -> tuple[SummaTiling, CoreMesh]:
    mesh = draw(meshes)
    sides = st.integers(1, mesh.rows)  # rows that are left over are idle
    rows = draw(sides)
    return SummaTiling(*draw(slices), rows, draw(sides) if rows == 1 else 1), mesh


def wrong(
    shape: GemmShape,
    part: SummaTiling,
    mesh: CoreMesh,
    copies: int = 1,
    written: Program | None = None,
    weights: WeightStorage | None = None,
) -> float:
    rng = np.random.default_rng(shape.m)
    a, b = rng.normal(size=(copies, shape.m, shape.k)), rng.normal(size=(copies, shape.k, shape.n))
    program = written or build_program(shape, part, mesh, "float32", channels=mesh.cols, copies=copies, weights=weights)
    out = run_program(program, {}, scatter_operands(a.astype("f4"), b.astype("f4"), part, mesh))
    # slot and stream have one name; the stream is what was stored
    return float(np.abs(gather_result(out["c"], shape, part, mesh, copies) - a @ b).max())


@given(sizes, cuts(), st.integers(1, 4), stored)
@settings(max_examples=40, deadline=None)
def test_the_products_come_out(
    shape: GemmShape, cut: tuple[SummaTiling, CoreMesh], copies: int, weights: WeightStorage | None
) -> None:
    assert wrong(shape, *cut, copies, weights=weights) < 1e-4


@pytest.mark.parametrize("slot", ["a_in", "b_in"])
def test_one_block_astray_is_noticed(slot: str) -> None:
    shape, part, mesh = GemmShape(12, 9, 12), SummaTiling(2, 3, 2, 3), CoreMesh(3, 3)

    def turned(turn: Round) -> Round:
        return replace(turn, steps=tuple(astray(step) for step in turn.steps))

    def astray(step: Any) -> Any:
        if not isinstance(step, MulticastInstruction) or step.slot != slot:
            return step
        row, col = (np.array(np.broadcast_to(axis, step.path.shape)) for axis in (step.path.row, step.path.col))
        row[0], row[1], col[0], col[1] = row[1].copy(), row[0].copy(), col[1].copy(), col[0].copy()
        return replace(step, path=replace(step.path, row=row[:2], col=col[:2]))

    program = build_program(shape, part, mesh, "float32", channels=3)
    strand = tuple(
        replace(node, body=tuple(map(turned, node.body))) if isinstance(node, Loop) else turned(node)
        for node in program.strands[0]
    )
    assert wrong(shape, part, mesh) < 1e-4
    assert wrong(shape, part, mesh, written=replace(program, strands=(strand,))) > 1e-2


def test_weights_that_nobody_expands_are_noticed() -> None:
    shape, part, mesh, weights = GemmShape(12, 9, 12), SummaTiling(2, 3, 2, 3), CoreMesh(3, 3), WeightStorage(0.53125, 3.0)
    program = build_program(shape, part, mesh, "float32", channels=3, weights=weights)
    assert wrong(shape, part, mesh, written=program) < 1e-4
    last = remove_instructions(program, lambda step: isinstance(step, VectorInstruction) and step.inputs == ("b",))
    assert wrong(shape, part, mesh, written=last) > 1e-2


@given(sizes, cuts(), st.integers(1, 4), stored)
@settings(max_examples=25, deadline=None)
def test_the_closed_form_counts_what_is_played(
    shape: GemmShape, cut: tuple[SummaTiling, CoreMesh], copies: int, weights: WeightStorage | None
) -> None:
    (part, mesh), kept = cut, {"copies": copies, "weights": weights}
    program = build_program(shape, part, mesh, channels=mesh.cols, **kept)  # type: ignore[arg-type]
    memory = mesh_channels("south", mesh.cols, program.rows, mesh.cols, 100.0, 1.0)
    played = timed(program, CYCLES, engines=ENGINES, memory=memory).activity
    closed = cost(shape, part, mesh, CYCLES, ENGINES, ColumnMemory(mesh.cols, 100.0, 1.0, 1.0), **kept).activity  # type: ignore
    for count in COUNTS:
        assert getattr(closed, count) == pytest.approx(getattr(played, count)), count
    assert played.memory_bytes == memory_bytes(shape, part, mesh, 2, copies, weights)
    values = part.k * part.n * (4 * (weights.nbytes if weights else 2) + 4 * bool(weights and weights.expand))
    a = part.m * part.k * 2 * (5 if weights and weights.expand else 4)
    c = 2 * part.m * part.n * (3 if part.split > 1 else 2)
    assert program.core_bytes == values + a + c == sum(buffer.nbytes for buffer in buffers(part, "float16", weights))


products = st.builds(GemmShape, st.integers(1, 2000), st.integers(256, 4096), st.integers(256, 4096))


@given(products, st.integers(1, 3), st.sampled_from(formats_of_tensor("weights")))
@example(GemmShape(262, 289, 425), 2, "nvfp4")
@example(GemmShape(322, 295, 2539), 1, "fp16")
@example(GemmShape(11, 2077, 306), 3, "nvfp4")
@settings(max_examples=8, deadline=None)
def test_events_agree_with_the_closed_form_in_all_formats_of_weights(shape: GemmShape, copies: int, name: str) -> None:
    question = asked("chip=tile32", "workload=gemm", "mapping=summa")
    chip = replace_leaves(question.base.chip, {"mesh.rows": 8, "mesh.cols": 8, "hbm.channels": 8})
    weights = weight_storage(name, FormatPlan(weights=name, activations="bf16", kv="bf16"))
    job = closed_summa.propose_summa_job(shape, chip, question.base.mapping.kernel, copies, 2.0, weights)
    closed, played = closed_summa.time_by_resource(job), EVENTS.time_by_resource(job)
    assert list(closed) == list(played)
    assert ("vector" in closed) == (name not in UNSCALED_FORMATS)
    assert sum(closed.values()) == pytest.approx(sum(played.values()), rel=0.12)
    assert closed["matrix"] == pytest.approx(played["matrix"])


def test_random_parts_on_random_chips_take_what_is_played() -> None:
    rng, question, ratios = np.random.default_rng(7), asked("chip=tile32", "workload=gemm", "mapping=summa"), []
    for _ in range(30):
        rows, cols = (int(side) for side in rng.choice([4, 8, 16], 2))
        leaves = {"mesh.rows": rows, "mesh.cols": cols, "hbm.channels": int(rng.choice([2, 4])), "tile.matrix.rows": 32}
        chip = replace_leaves(question.base.chip, leaves | {"hbm.channel_bandwidth": float(rng.uniform(2e10, 2e11))})
        shape = GemmShape(*(int(2**power) for power in rng.uniform((0, 7, 7), (10, 12, 12))))
        slices = {"m": 0, "k": 0, "n": 0} if rng.random() < 0.5 else {"m": 32, "k": int(rng.choice([128, 512, 4096])), "n": 32}
        plan = replace_leaves(question.base.mapping.kernel, slices | {"split_k": int(rng.choice([0, 1, 2, 4]))})
        job = closed_summa.propose_summa_job(shape, chip, plan, int(rng.choice([1, 3])))
        ratios.append(closed_summa.job_seconds(job) / sum(EVENTS.time_by_resource(job).values()))
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.03
    assert np.percentile(ratios, [5, 95]) == pytest.approx([1, 1], abs=0.2)


SHAPES = ("4096x1024x4096", "4096x4096x8192", "256x2048x2112", "16x4096x12288", "1x4096x4096")


@pytest.mark.parametrize("shape", SHAPES)
def test_events_agree_with_the_closed_form(shape: str) -> None:
    question = asked("chip=tile32", "workload=gemm", "mapping=summa", f"workload.shapes=[{shape}]")
    closed, played = (
        evaluate(stack_designs([question.base]), question.workload, fidelity=name).columns for name in ("analytical", "events")
    )
    assert closed["latency"] == pytest.approx(played["latency"], rel=0.05)
    assert closed["hbm_bytes"] == played["hbm_bytes"]
    assert 0 < closed["mfu"][0] <= closed["engine_utilisation"][0] <= 1
    assert 0 < closed["hbm_utilisation"][0] <= 1


def test_many_designs_and_products_are_each_as_if_alone() -> None:
    question = asked("chip=tile32", "workload=gemm", "mapping=summa", f"workload.shapes=[{','.join(SHAPES)}]")
    knobs = {
        "mapping.m": (0, 32, 128, 512),
        "mapping.rows": (0, 3, 4),
        "chip.tile.sram": (1e5, 4e5),
        "chip.mesh.rows": (8, 32),
        "chip.hbm.channels": (16, 64),
    }
    rng = np.random.default_rng(2)
    designs = [
        replace_leaves(question.base, {name: float(rng.choice(values)) for name, values in knobs.items()}) for _ in range(8)
    ]
    together = evaluate(stack_designs(designs), question.workload)
    for place_, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload)
        for name, column in together.columns.items():
            assert column[place_] == pytest.approx(alone.columns[name][0], nan_ok=True), name
        assert together.limit[place_] == alone.limit[0]


def test_what_does_not_fit_is_said_with_what_would() -> None:
    question = asked("chip=tile32", "workload=gemm", "mapping=summa", "mapping.m=512", "mapping.k=512")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.tile.sram"
    assert sum(value for _, value in verdict.parts) == pytest.approx(verdict.need)
    advice = dict(word.split("=") for word in str(verdict).split() if word.startswith("mapping."))
    assert set(advice) == {"mapping.rows", "mapping.m", "mapping.k", "mapping.n", "mapping.split_k"}
    fits = replace_leaves(question.base, {name: float(value) for name, value in advice.items()})
    assert explain_infeasibility(fits, question.workload) is None
    with pytest.raises(DesignError, match="choose mapping=summa"):
        asked("chip=tile32", "workload=gemm", "mapping=attention")


def test_a_depth_that_is_divided_is_chosen_where_it_is_sooner() -> None:
    """A split said is one of those among which the product chooses, and none is quicker than its choice."""
    rng, question = np.random.default_rng(11), asked("chip=tile32", "workload=gemm", "mapping=summa")
    divided = 0
    for _ in range(12):
        side = int(rng.choice([8, 16, 32]))
        leaves = {"mesh.rows": side, "hbm.channel_bandwidth": float(rng.uniform(2e10, 2e11))}
        chip = replace_leaves(question.base.chip, leaves)
        shape = GemmShape(*(int(2**power) for power in rng.uniform((0, 8, 8), (9, 13, 12))))
        times = {}
        for split in (0, *(share for share in (1, 2, 4, 8, 16, 32) if side % share == 0)):
            job = closed_summa.propose_summa_job(shape, chip, replace_leaves(question.base.mapping.kernel, {"split_k": split}))
            times[split] = float(closed_summa.job_seconds(job))
            assert job.part.split == split or not split
            assert job.part.split == 1 or job.part.rows == 1
        assert times[0] == pytest.approx(min(times.values()), rel=1e-12)
        divided += times[0] < times[1] * (1 - 1e-9)
    assert divided > 3


@pytest.mark.parametrize(
    ("overrides", "limit", "words"),
    [
        (("mapping.split_k=3",), "mapping.split_k", "groups of 3 rows do not divide the mesh's 32; 2 do"),
        (
            ("mapping.split_k=4", "mapping.rows=8"),
            "mapping.split_k",
            "groups of 8 rows cannot divide the depth: use rows=1 or 0, or split_k=1",
        ),
    ],
)
def test_a_split_that_cannot_be_says_what_would_do(overrides: tuple[str, ...], limit: str, words: str) -> None:
    question = asked("chip=tile32", "workload=gemm", "mapping=summa", *overrides)
    infeasibility = explain_infeasibility(question.base, question.workload)
    assert infeasibility is not None
    assert (infeasibility.limit, infeasibility.remedy) == (limit, words)
