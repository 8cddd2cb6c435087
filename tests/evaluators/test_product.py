"""One product by itself: batch = one by one, breakdown = total, memory = the program's, limits as values, readers agree."""

import numpy as np
import pytest

from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.cost_models import READERS
from dse.evaluators.evaluation import explain_infeasibility, limits
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.machine.machine import mesh_program_machine
from dse.evaluators.program.kernel_ir import MultiplyInstruction, iterate_rounds
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

GEMM_ = ("chip=wse2", "workload=gemm", "workload.shapes=[512x512x512,2048x1024x4096]")
GEMV_ = ("chip=wse2", "workload=gemv", "workload.shapes=[1x2048x2048,4x1024x4096]")
KINDS = [(GEMM_, "gemm", name) for name in GEMM] + [(GEMV_, "gemv", name) for name in GEMV]


def varied(base: Design, kind: str, name: str) -> list[Design]:
    rng = np.random.default_rng(5)
    changes = [
        {
            "mapping.rows": int(rng.integers(4, 400)),
            "mapping.cols": int(rng.choice([0, 40, 360])),
            "mapping.ktree_k": int(rng.integers(1, 4)),
            "chip.noc.hop_cycles": float(rng.choice([1, 3])),
            f"mapping.{kind}": name,
        }
        for _ in range(10)
    ]
    return [replace_leaves(base, change) for change in changes]


@pytest.mark.sampled
@pytest.mark.parametrize(("overrides", "kind", "name"), KINDS)
def test_a_batch_is_its_singles(overrides: tuple[str, ...], kind: str, name: str) -> None:
    asked_ = asked(*overrides)
    designs = varied(asked_.base, kind, name)
    many = evaluate(stack_designs(designs), asked_.workload, cases=True)
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), asked_.workload, cases=True)
        for metric in METRICS:
            assert many.columns[metric][row] == pytest.approx(evaluation.columns[metric][0], rel=1e-12, nan_ok=True), metric
            assert many.cases[metric][:, row] == pytest.approx(evaluation.cases[metric][:, 0], rel=1e-12, nan_ok=True), metric
        assert many.limit[row] == evaluation.limit[0]


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize(("overrides", "kind", "name"), KINDS)
def test_the_breakdown_sums_to_the_total(overrides: tuple[str, ...], kind: str, name: str, fidelity: str) -> None:
    asked_ = asked(*overrides[:2], f"workload.shapes=[{'48x48x48' if kind == 'gemm' else '1x200x200'}]")
    design = replace_leaves(asked_.base, {"mapping.rows": 12, f"mapping.{kind}": name})
    columns = evaluate(stack_designs([design]), asked_.workload, fidelity=fidelity).columns
    parts = explain(design, asked_.workload.cases[0], fidelity=fidelity)
    assert parts.seconds == pytest.approx(columns["latency"][0], rel=1e-9)
    assert sum(parts.by_bound().values()) == pytest.approx(parts.seconds, rel=1e-9)
    local, moving = parts.rows
    assert local.seconds / parts.seconds == pytest.approx(columns["compute_share"][0], rel=1e-9)
    assert moving.seconds * design.chip.clock == pytest.approx(columns["communication_cycles"][0], rel=1e-9)
    assert 0 < columns["mfu"][0] <= columns["compute_share"][0] < 1


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_many_designs_and_cases_are_played_as_one_by_one(fidelity: str) -> None:
    asked_ = asked(*GEMV_[:2], "workload.shapes=[1x64x64,1x90x70]")
    designs = [replace_leaves(asked_.base, {"mapping.rows": rows, "mapping.ktree_k": k}) for rows in (8, 9, 12) for k in (1, 2)]
    many = evaluate(stack_designs(designs), asked_.workload, fidelity=fidelity).columns
    for row, design in enumerate(designs):
        columns = evaluate(stack_designs([design]), asked_.workload, fidelity=fidelity).columns
        assert many["latency"][row] == pytest.approx(columns["latency"][0])
        assert many["energy"][row] == pytest.approx(columns["energy"][0])


def test_a_play_over_arrays_has_their_shape() -> None:
    program_machine = mesh_program_machine(asked(*GEMM_).base.chip)
    shape = GemmShape(np.array([[16.0], [32.0]]), 16.0, 16.0)
    cost = READERS["events"].kernel(
        MeshKernel("", "", "gemm", "cannon", shape, CoreMesh(np.array([4, 5, 8]), np.array([4, 5, 8])), {}), program_machine
    )
    assert cost.seconds.shape == cost.activity.macs.shape == (2, 3)
    assert (np.diff(cost.seconds, axis=0) > 0).all()


@pytest.mark.parametrize("mesh", [CoreMesh(6, 6), CoreMesh(4, 6), CoreMesh(6, 3)], ids=str)
@pytest.mark.parametrize("name", GEMM)
def test_tiles_and_products_are_those_of_the_program(name: str, mesh: CoreMesh) -> None:
    shape = GemmShape(50, 60, 70)
    program = GEMM[name].build_program(shape, mesh, "float16")
    assert sum(slot.nbytes for slot in GEMM[name].buffers(shape, mesh, "float16")) == program.core_bytes
    (strand,) = program.strands
    started = sum(isinstance(step, MultiplyInstruction) for turn in iterate_rounds(strand) for step in turn.steps)
    assert started == GEMM[name].local_product_count(mesh)


@pytest.mark.parametrize("name", GEMV)
def test_tiles_of_a_gemv_are_those_of_the_program(name: str) -> None:
    shape, mesh = GemmShape(2, 50, 70), CoreMesh(6, 4)
    held = sum(slot.nbytes for slot in GEMV[name].buffers(shape, mesh, "float16"))
    assert held == GEMV[name].build_program(shape, mesh, "float16").core_bytes


@pytest.mark.parametrize(
    ("overrides", "limit", "message"),
    [
        (("mapping.gemm=allgather",), "chip.core.sram", "tile a"),
        (("mapping.rows=40",), "chip.core.sram", "fits on"),
        (("mapping.rows=900",), "chip.mesh.rows", "fits on"),
        (("mapping.rows=2", "workload.shapes=[8x8x8]"), "mapping.rows", "fits on 3 x 3 cores"),
        (("mapping.rows=661", "mapping.cols=660"), "mapping.cols", "fits on"),
    ],
)
def test_what_cannot_be_says_what_would_do(overrides: tuple[str, ...], limit: str, message: str) -> None:
    asked_ = asked("chip=wse2", "workload=gemm", *overrides)
    verdict = explain_infeasibility(asked_.base, asked_.workload)
    assert verdict is not None
    assert verdict.limit == limit
    assert message in str(verdict)
    assert verdict.need > verdict.have


def test_the_mesh_that_would_do_does() -> None:
    asked_ = asked("chip=wse2", "workload=gemm", "mapping.rows=40")
    side = int(str(explain_infeasibility(asked_.base, asked_.workload)).split("fits on ")[1].split()[0])
    for rows, fits in ((side, True), (side - 1, False)):
        found_limits = limits(replace_leaves(asked_.base, {"mapping.rows": rows}), asked_.workload)
        assert all(np.all(limit.need <= limit.have) for limit in found_limits) is fits


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("workload=gemm", "mapping=product"), "choose mapping="),
        (("chip=wse2", "workload=gemm", "mapping=waferllm"), "choose mapping=product"),
        (
            ("chip=wse2", "mapping=product"),
            "for models on a mesh of cores choose mapping=waferllm, waferllm_dojo, waferllm_prefetch, t10 or ladder",
        ),
        (("chip=wse2", "workload=gemm", "workload.shapes=[8192]"), "is not m x k x n"),
        (("chip=wse2", "workload=gemm", "workload.shapes=[]"), "not a list of sizes"),
        (("chip=wse2", "workload=gemm", "workload.kernel=gem"), "valid: gemm, gemv"),
        (("chip=wse2", "workload=gemm", "+workload.batch=1"), "no field 'workload.batch'"),
    ],
)
def test_what_makes_no_question_is_refused_by_name(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message.replace("[", r"\[")):
        asked(*overrides)


def test_an_unknown_algorithm_is_answered_with_the_address() -> None:
    asked_ = asked("chip=wse2", "workload=gemm", "mapping.gemm=meshgem")
    with pytest.raises(DesignError, match="did you mean 'meshgemm'"):
        evaluate(stack_designs([asked_.base]), asked_.workload)
