"""Closed forms against their programs played: equal where nothing is contended, near where it is, and the same activity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.data_movement import MOVE
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.kv import KV
from dse.evaluators.kernels.vector import VECTOR
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.machine.mesh_fabric import mesh_fabric as fabric
from dse.evaluators.program.activity import COUNTS, Activity
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import DEQUANTIZE_FUNCTIONS
from dse.studies.fidelity_gap.kernels import preset
from tests.agreement.test_events import DMA, SLOW

FABRICS = [SLOW, DMA]
MESHES = [CoreMesh(3, 3), CoreMesh(8, 8), CoreMesh(13, 13), CoreMesh(4, 6), CoreMesh(12, 8), CoreMesh(3, 7), CoreMesh(32, 32)]

NEAR = {"summa": 0.03, "cannon": 0.03, "meshgemm": 0.04, "meshgemm_t": 0.02, "meshgemm_v": 0.05, "allgather": 0.06, "t10": 0.01}
"""SUMMA and T10 wait for whole lines and are exact on squares; alignments, sums and forwarding both ways are contended."""


def same(closed: Activity, counted: Activity) -> None:
    for name in COUNTS:
        assert getattr(closed, name) == pytest.approx(getattr(counted, name), rel=1e-9, abs=1e-9), name


def cases(name: str, tile: int, mesh: CoreMesh) -> GemmShape:
    """A tile of some width on every core, whichever way the algorithm cuts."""
    if name == "meshgemm_t":
        return GemmShape(tile * mesh.rows, tile * mesh.cols, tile * mesh.rows)
    if name == "meshgemm_v":
        return GemmShape(tile * mesh.rows, tile * mesh.rows, tile * mesh.cols)
    return GemmShape(tile * mesh.chunks, tile * mesh.chunks, tile * mesh.chunks)


@pytest.mark.sampled
@pytest.mark.parametrize("fabric", FABRICS, ids=["engine copies", "dma"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", sorted(set(GEMM) - {"ladder"}))
def test_the_closed_form_of_a_gemm_is_near_its_program_played(name: str, mesh: CoreMesh, fabric: MeshFabric) -> None:
    for tile in (2, 6, 12) if mesh.chunks < 30 else (6,):
        shape = cases(name, tile, mesh)
        program = GEMM[name].build_program(shape, mesh, "float16")
        closed = GEMM[name].cost(shape, mesh, fabric)
        assert closed.seconds == pytest.approx(simulate_events(program, fabric).seconds, rel=NEAR[name])
        same(closed.activity, count_activity(program))


FAR = {"meshgemm_t": 0.03, "meshgemm_v": 0.12, "ladder": 1e-9}
"""How far products of random shapes are at most, whose tiles may be long one way and short the other."""


@pytest.mark.parametrize("name", FAR)
def test_products_of_any_shape_take_what_is_played(name: str) -> None:
    rng, ratios = np.random.default_rng(8), []
    for _ in range(20):
        given_fabric = fabric(preset(str(rng.choice(["wse2", "wse3", "dojo"])), "workload=gemm"))
        shape = GemmShape(*(int(size) for size in np.exp(rng.uniform(np.log(3), np.log(800), 3))))
        mesh = CoreMesh(*(int(side) for side in rng.integers(3, 15, 2)))
        played = simulate_events(GEMM[name].build_program(shape, mesh, "float16"), given_fabric).seconds
        ratios.append(GEMM[name].cost(shape, mesh, given_fabric).seconds / played)
    assert ratios == pytest.approx(np.ones(len(ratios)), rel=FAR[name])
    assert np.quantile(np.abs(np.array(ratios) - 1), 0.8) < 0.05


@pytest.mark.parametrize("side", [4, 8, 13])
@pytest.mark.parametrize("name", ["cannon", "meshgemm"])
def test_where_ways_are_all_a_ring_takes_its_hops_are_those_played(name: str, side: int) -> None:
    """Those of the alignment too, whose farthest chunk is said to go the length of a line, and at most two links more."""
    far, shape, mesh = SLOW._replace(hop=1e5), GemmShape(side, side, side), CoreMesh(side, side)
    played = simulate_events(GEMM[name].build_program(shape, mesh, "float16"), far).seconds / far.hop
    assert 0 <= GEMM[name].cost(shape, mesh, far).seconds / far.hop - played < 2.1


@pytest.mark.parametrize("side", [4, 9, 16, 33])
@pytest.mark.parametrize("name", ["summa", "t10"])
def test_where_lines_wait_the_closed_form_is_the_program_played(name: str, side: int) -> None:
    shape, mesh = cases(name, 5, CoreMesh(side, side)), CoreMesh(side, side)
    played = simulate_events(GEMM[name].build_program(shape, mesh, "float16"), SLOW).seconds
    assert GEMM[name].cost(shape, mesh, SLOW).seconds == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("mesh", [CoreMesh(3, 3), CoreMesh(8, 8), CoreMesh(6, 4), CoreMesh(32, 32)], ids=str)
def test_loads_from_shared_memory_cost_what_their_program_does(mesh: CoreMesh) -> None:
    """Whether tasks of the owner decide, as they do for small tiles, or ways of large ones do."""
    for tile in (1, 4, 40):
        shape = cases("ladder", tile, mesh)
        program = GEMM["ladder"].build_program(shape, mesh, "float16")
        closed = GEMM["ladder"].cost(shape, mesh, SLOW)
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=1e-9)
        same(closed.activity, count_activity(program))


@pytest.mark.parametrize("how", ["meshgemm", "cannon", "t10", "ladder"])
@pytest.mark.parametrize("name", ["meshgemm_t", "meshgemm_v"])
def test_attention_products_move_by_the_algorithm_of_the_gemm(name: str, how: str) -> None:
    for mesh in (CoreMesh(8, 8), CoreMesh(13, 5), CoreMesh(5, 13), CoreMesh(33, 4)):
        shape = cases(name, 4, mesh)
        program = GEMM[name].build_program(shape, mesh, "float16", gemm=how)
        closed = GEMM[name].cost(shape, mesh, SLOW, gemm=how)
        near = 0.12 if how == "meshgemm" else 0.025 if how == "ladder" else 1e-9
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=near)
        same(closed.activity, count_activity(program))


FORMS: list[tuple[str, dict[str, int]]] = [
    ("pipeline", {}), ("ktree", {"phases": 1}), ("ktree", {"phases": 2}), ("ktree", {"phases": 3})
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), FORMS, ids=str)
@pytest.mark.parametrize("side", [3, 9, 27, 49, 64, 81])
def test_the_closed_form_of_a_gemv_is_its_program_played(name: str, options: dict[str, int], side: int) -> None:
    for requests in (1, 3):
        shape, mesh = GemmShape(requests, 10 * side, 20 * side), CoreMesh(side, side)
        closed = GEMV[name].cost(shape, mesh, SLOW, **options).seconds
        assert closed == pytest.approx(
            simulate_events(GEMV[name].build_program(shape, mesh, **options), SLOW).seconds, rel=1e-9
        )


@pytest.mark.parametrize("side", [3, 9, 27, 49])
@pytest.mark.parametrize("name", ["ring", "ladder"])
def test_the_closed_form_of_other_gemvs_is_near_their_programs_played(name: str, side: int) -> None:
    """A ring's slices come to differ by a word; loads wait for one another."""
    shape, mesh = GemmShape(1, 10 * side, 4 * side * side), CoreMesh(side, side)
    closed = GEMV[name].cost(shape, mesh, SLOW).seconds
    assert closed == pytest.approx(simulate_events(GEMV[name].build_program(shape, mesh, "float16"), SLOW).seconds, rel=0.06)


@pytest.mark.sampled
@given(st.sampled_from(FORMS), st.integers(2, 120))
@settings(max_examples=60)
def test_unequal_groups_wait_less_than_the_closed_form_says(form: tuple, side: int) -> None:
    """By less than a stage, its ramps and its gap a phase, and never more."""
    name, options = form
    shape, mesh = GemmShape(1, side, side), CoreMesh(side, 1)
    closed = GEMV[name].cost(shape, mesh, SLOW, **options).seconds
    played = simulate_events(GEMV[name].build_program(shape, mesh, **options), SLOW).seconds
    slack = options.get("phases", 0) * (SLOW.stage + 2 * SLOW.ramp + side * SLOW.hop)
    assert closed - slack - 1e-6 <= played <= closed + 1e-6


@given(st.sampled_from([*FORMS, ("ladder", {})]), st.integers(1, 60), st.integers(1, 9), st.integers(1, 3), st.booleans())
@settings(max_examples=60)
def test_the_closed_form_of_a_gemv_counts_what_its_steps_count(
    form: tuple, rows: int, cols: int, requests: int, broadcast: bool
) -> None:
    name, options = form
    shape, mesh = GemmShape(requests, 3 * rows, 4 * cols), CoreMesh(rows, cols)
    closed = GEMV[name].cost(shape, mesh, SLOW, broadcast=broadcast, **options).activity
    same(closed, count_activity(GEMV[name].build_program(shape, mesh, "float16", broadcast=broadcast, **options)))


@pytest.mark.parametrize("side", [2, 5, 8])
def test_the_closed_form_of_a_ring_counts_what_its_steps_count(side: int) -> None:
    shape, mesh = GemmShape(1, 3 * side, 4 * side * side), CoreMesh(side, side)
    same(GEMV["ring"].cost(shape, mesh, SLOW).activity, count_activity(GEMV["ring"].build_program(shape, mesh)))


@pytest.mark.parametrize(("name", "options"), [*FORMS, ("ring", {}), ("ladder", {})], ids=str)
def test_closed_forms_of_a_batch_are_those_of_its_singles(name: str, options: dict[str, int]) -> None:
    sides = np.array([3.0, 16.0, 81.0, 81.0])
    many = GEMV[name].cost(GemmShape(1, 1000, 500), CoreMesh(sides, sides), SLOW, **options)
    ones = [GEMV[name].cost(GemmShape(1, 1000, 500), CoreMesh(int(s), int(s)), SLOW, **options) for s in sides]
    assert many.seconds.tolist() == [cost.seconds for cost in ones]
    assert many.activity.hop_bytes.tolist() == [cost.activity.hop_bytes for cost in ones]


@pytest.mark.parametrize("name", sorted(GEMM))
def test_closed_forms_of_many_gemms_are_those_of_each(name: str) -> None:
    rows, cols = np.array([3.0, 16.0, 12.0, 81.0]), np.array([3.0, 16.0, 8.0, 81.0])
    many = GEMM[name].cost(GemmShape(1000, 500, 700), CoreMesh(rows, cols), SLOW)
    ones = [GEMM[name].cost(GemmShape(1000, 500, 700), CoreMesh(int(r), int(c)), SLOW) for r, c in zip(rows, cols, strict=True)]
    assert many.seconds == pytest.approx([cost.seconds for cost in ones], rel=1e-12)
    assert many.activity.hop_bytes == pytest.approx([cost.activity.hop_bytes for cost in ones], rel=1e-12)


LINES = ["ktree", "pipeline", "ladder"]


@pytest.mark.parametrize("allreduce", LINES)
@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("name", ["norm", "softmax"])
def test_norm_and_softmax_cost_what_their_programs_do(name: str, replicated: bool, allreduce: str) -> None:
    for mesh in (CoreMesh(9, 4), CoreMesh(49, 5)):
        shape = GemmShape(3 if replicated else 3 * mesh.cols, 5 * mesh.rows, 1)
        program = VECTOR[name].build_program(shape, mesh, allreduce=allreduce, replicated=replicated)
        closed = VECTOR[name].cost(shape, mesh, SLOW, allreduce=allreduce, replicated=replicated)
        near = 0.03 if allreduce == "ladder" else 1e-9
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=near)
        same(closed.activity, count_activity(program))


def test_an_elementwise_instruction_costs_what_its_program_does() -> None:
    shape, mesh = GemmShape(12, 40, 1), CoreMesh(5, 4)
    for function in ("add", "gate", "rotate"):
        program = VECTOR["elementwise"].build_program(shape, mesh, function=function)
        closed = VECTOR["elementwise"].cost(shape, mesh, SLOW, function=function)
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=1e-12)
        same(closed.activity, count_activity(program))


@given(
    st.integers(1, 30), st.integers(1, 30), st.integers(1, 9), st.integers(1, 9), st.sampled_from(sorted(DEQUANTIZE_FUNCTIONS))
)
@settings(max_examples=20, deadline=None)
def test_values_of_any_format_become_wide_in_what_their_program_takes(m: int, k: int, rows: int, cols: int, each: int) -> None:
    shape, mesh = GemmShape(m, k, 1), CoreMesh(rows, cols)
    program = VECTOR["expand"].build_program(shape, mesh, operations=float(each))
    closed = VECTOR["expand"].cost(shape, mesh, SLOW, operations=float(each))
    assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=1e-12)
    same(closed.activity, count_activity(program))


@pytest.mark.parametrize(("name", "near"), [("transfer", 0.4), ("dispatch", 0.2)])
def test_moves_between_regions_and_to_experts_are_near_their_programs(name: str, near: float) -> None:
    """Links between two regions are the contended part."""
    for mesh in (CoreMesh(8, 8), CoreMesh(40, 40)):
        shape = GemmShape(4 * mesh.rows, 5 * mesh.cols, 1)
        program = MOVE[name].build_program(shape, mesh, "float16")
        closed = MOVE[name].cost(shape, mesh, SLOW)
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=near)
        same(closed.activity, count_activity(program))


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_turn_costs_what_its_program_does_where_one_core_has_all_of_a_row(rows: int, cols: int, m: int) -> None:
    for part in (1, 3):  # of each core, and whole parts of rows on it
        shape, mesh = GemmShape(m, part * rows * cols, 1), CoreMesh(rows * cols, cols)
        program = MOVE["turn"].build_program(shape, mesh, "float16")
        closed = MOVE["turn"].cost(shape, mesh, SLOW)
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=1e-9)
        same(closed.activity, count_activity(program))


@given(st.integers(2, 20), st.integers(2, 20), st.integers(1, 100), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_other_turns_are_near_their_programs(rows: int, cols: int, k: int, m: int) -> None:
    """Where several cores have parts of a row they post side by side, and wait for one another on its links."""
    shape, mesh = GemmShape(m, k, 1), CoreMesh(rows, cols)
    closed, played = (
        MOVE["turn"].cost(shape, mesh, SLOW),
        simulate_events(MOVE["turn"].build_program(shape, mesh, "float16"), SLOW).seconds,
    )
    words = -(-k // rows) * m
    assert played <= closed.seconds + (cols + words) * SLOW.pace + SLOW.post
    assert played >= closed.seconds - cols * SLOW.hop - words * SLOW.pace


@pytest.mark.parametrize("allreduce", ["pipeline", "ktree"])
def test_a_choice_costs_what_its_program_does(allreduce: str) -> None:
    for mesh, replicated in ((CoreMesh(9, 4), False), (CoreMesh(27, 3), True)):
        shape, options = GemmShape(8, 40 * mesh.rows, 1), {"allreduce": allreduce, "replicated": replicated}
        program = VECTOR["choice"].build_program(shape, mesh, **options)
        closed = VECTOR["choice"].cost(shape, mesh, SLOW, **options)
        assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=1e-9)
        same(closed.activity, count_activity(program))


def test_a_balancing_shift_costs_what_its_program_does() -> None:
    mesh, width = CoreMesh(12, 3), 6
    program = KV["shift"].build_program(GemmShape(1, width * mesh.cols, 1), mesh, "float16")
    closed = KV["shift"].cost(GemmShape(1, width * mesh.cols, 1), mesh, SLOW)
    assert closed.seconds == pytest.approx(simulate_events(program, SLOW).seconds, rel=0.01)
    same(closed.activity, count_activity(program))
