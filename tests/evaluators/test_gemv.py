"""Every registered GEMV computes the product and ends with it where it says, and takes the stages the paper says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV, ktree
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import MulticastInstruction, ReduceInstruction, Round, SendInstruction, iterate_rounds
from dse.evaluators.program.routes import routing_paths
from dse.testing.functional_simulator import run_program
from dse.testing.message_hops import longest_hop

MESHES = (CoreMesh(3, 3), CoreMesh(4, 4), CoreMesh(9, 9), CoreMesh(16, 5), CoreMesh(5, 16), CoreMesh(20, 3), CoreMesh(7, 7))


def multiplied(name: str, shape: GemmShape, mesh: CoreMesh, program: object = None, **options: object) -> tuple:
    kernel = GEMV[name]
    rng = np.random.default_rng(shape.k)
    x, w = rng.normal(size=(shape.m, shape.k)).astype("float32"), rng.normal(size=(shape.k, shape.n)).astype("float32")
    tiles = kernel.scatter_operands(shape, mesh, x, w)
    return kernel.gather_result(shape, mesh, run_program(program or kernel.build_program(shape, mesh, **options), tiles)), x @ w  # type: ignore[arg-type]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMV)
def test_every_row_of_cores_ends_with_the_product(name: str, mesh: CoreMesh) -> None:
    out, exact = multiplied(name, GemmShape(1, 50, 41), mesh)
    assert np.allclose(out, exact, atol=1e-3)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMV)
def test_without_a_broadcast_the_root_has_the_product(name: str, mesh: CoreMesh) -> None:
    out, exact = multiplied(name, GemmShape(1, 50, 41), mesh, broadcast=False)
    assert np.allclose(out[GEMV[name].root_row(mesh)], exact, atol=1e-3)


@given(st.integers(2, 60), st.integers(1, 5))
@settings(max_examples=40)
def test_a_tree_of_any_depth_adds_everything_once(side: int, phases: int) -> None:
    mesh = CoreMesh(side, 3)
    out, exact = multiplied("ktree", GemmShape(1, 30, 9), mesh, phases=phases)
    assert np.allclose(out, exact, atol=1e-3)


@pytest.mark.parametrize(("phases", "side"), [(1, 16), (2, 16), (2, 64), (2, 625), (3, 64), (3, 729), (4, 256)])
def test_a_tree_has_the_stages_of_the_paper(phases: int, side: int) -> None:
    """(K / 2) N^(1/K), where N is a K-th power: half a group on each side of its root."""
    width = round(side ** (1 / phases))
    assert ktree.software_stages(side, phases) == phases * (width // 2)


@given(st.sampled_from(["ktree", "pipeline", "ring"]), st.integers(3, 40))
@settings(max_examples=40)
def test_stages_are_what_the_program_has(name: str, side: int) -> None:
    program = GEMV[name].build_program(GemmShape(1, side, side * 2), CoreMesh(side, 2))
    assert critical_stages(program) == GEMV[name].software_stages(side)


def critical_stages(program: object) -> int:
    """Software stages one after the other: a reduction's longer arm, or one for each round of core-to-core sends."""
    total = 0
    for turn in iterate_rounds(program.strands[0]):  # type: ignore[attr-defined]
        arms = [0]
        for step in turn.steps:
            if isinstance(step, ReduceInstruction):
                row = np.broadcast_to(step.path.row, step.path.shape)
                arms.append(int(max((row > row[:, :1]).sum(1).max(), (row < row[:, :1]).sum(1).max())))
            elif isinstance(step, SendInstruction) and step.via == "core":
                arms.append(1)
        total += max(arms)
    return total


@pytest.mark.parametrize("name", GEMV)
def test_a_wrong_member_is_noticed(name: str) -> None:
    shape, mesh = GemmShape(1, 50, 41), CoreMesh(7, 7)
    program = GEMV[name].build_program(shape, mesh)
    rounds = list(iterate_rounds(program.strands[0]))
    first = next(
        place
        for place, turn in enumerate(rounds)
        if isinstance(turn.steps[0], SendInstruction | ReduceInstruction | MulticastInstruction)
    )
    step = rounds[first].steps[0]
    if isinstance(step, SendInstruction):
        wrong: object = replace(step, target=replace(step.target, row=np.roll(step.target.row, 1, axis=0)))
    else:
        wrong = replace(step, path=replace(step.path, row=np.where(step.path.row == step.path.row[:, -1:], 6, step.path.row)))
        if (wrong.path.row == step.path.row).all():  # type: ignore[attr-defined]
            wrong = replace(step, path=replace(step.path, row=np.roll(step.path.row, 1, axis=1)))
    rounds[first] = Round((wrong, *rounds[first].steps[1:]))  # type: ignore[arg-type]
    out, exact = multiplied(name, shape, mesh, replace(program, strands=(tuple(rounds),)))
    assert not np.allclose(out, exact, atol=1e-2)


def test_a_ring_wraps_over_the_whole_line() -> None:
    assert longest_hop(GEMV["ring"].build_program(GemmShape(1, 9, 9), CoreMesh(9, 9))) == 8


def test_a_tree_sends_no_more_than_a_pipeline() -> None:
    shape, mesh = GemmShape(1, 64, 64), CoreMesh(16, 16)
    sent = {name: count_activity(GEMV[name].build_program(shape, mesh)).sent_bytes for name in GEMV}
    assert sent["ktree"] == sent["pipeline"] < sent["ring"]


@pytest.mark.parametrize("side", [9, 16, 27])
def test_paths_are_those_of_the_program(side: int) -> None:
    """[he2025] section 6.1: constant for pipeline and ring, K + 1 for the tree."""
    shape, mesh = GemmShape(1, side, side), CoreMesh(side, 2)
    assert routing_paths(GEMV["pipeline"].build_program(shape, mesh)) == GEMV["pipeline"].routing_paths(mesh)
    assert routing_paths(GEMV["ring"].build_program(shape, mesh)) == GEMV["ring"].routing_paths(mesh)
    for phases in (1, 2, 3):
        assert (
            routing_paths(GEMV["ktree"].build_program(shape, mesh, phases=phases))
            == GEMV["ktree"].routing_paths(mesh, phases)
            == phases + 1
        )
