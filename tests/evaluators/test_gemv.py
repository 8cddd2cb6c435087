"""Every registered GEMV computes the product and ends with it where it says, and takes the stages the paper says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import GEMV, ktree
from dse.evaluators.program.counts import activity
from dse.evaluators.program.rounds import Multicast, Reduce, Round, Send, rounds_of
from dse.evaluators.program.routes import longest_hop, paths
from dse.evaluators.readers.numeric import play

MESHES = (Mesh(3, 3), Mesh(4, 4), Mesh(9, 9), Mesh(16, 5), Mesh(5, 16), Mesh(20, 3), Mesh(7, 7))


def multiplied(name: str, shape: Shape, mesh: Mesh, program: object = None, **options: object) -> tuple:
    kernel = GEMV[name]
    rng = np.random.default_rng(shape.k)
    x, w = rng.normal(size=(shape.m, shape.k)).astype("float32"), rng.normal(size=(shape.k, shape.n)).astype("float32")
    tiles = kernel.place(shape, mesh, x, w)
    return kernel.result(shape, mesh, play(program or kernel.steps(shape, mesh, **options), tiles)), x @ w  # type: ignore[arg-type]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMV)
def test_every_row_of_cores_ends_with_the_product(name: str, mesh: Mesh) -> None:
    out, exact = multiplied(name, Shape(1, 50, 41), mesh)
    assert np.allclose(out, exact, atol=1e-3)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMV)
def test_without_a_broadcast_the_root_has_the_product(name: str, mesh: Mesh) -> None:
    out, exact = multiplied(name, Shape(1, 50, 41), mesh, broadcast=False)
    assert np.allclose(out[GEMV[name].root(mesh)], exact, atol=1e-3)


@given(st.integers(2, 60), st.integers(1, 5))
@settings(max_examples=40)
def test_a_tree_of_any_depth_adds_everything_once(side: int, phases: int) -> None:
    mesh = Mesh(side, 3)
    out, exact = multiplied("ktree", Shape(1, 30, 9), mesh, phases=phases)
    assert np.allclose(out, exact, atol=1e-3)


@pytest.mark.parametrize(("phases", "side"), [(1, 16), (2, 16), (2, 64), (2, 625), (3, 64), (3, 729), (4, 256)])
def test_a_tree_has_the_stages_of_the_paper(phases: int, side: int) -> None:
    """(K / 2) N^(1/K), where N is a K-th power: half a group on each side of its root."""
    width = round(side ** (1 / phases))
    assert ktree.stages(side, phases) == phases * (width // 2)


@given(st.sampled_from(["ktree", "pipeline", "ring"]), st.integers(3, 40))
@settings(max_examples=40)
def test_stages_are_what_the_program_has(name: str, side: int) -> None:
    program = GEMV[name].steps(Shape(1, side, side * 2), Mesh(side, 2))
    assert critical_stages(program) == GEMV[name].stages(side)


def critical_stages(program: object) -> int:
    """Software stages one after the other: a reduction's longer arm, or one for each round of core-to-core sends."""
    total = 0
    for turn in rounds_of(program.strands[0]):  # type: ignore[attr-defined]
        arms = [0]
        for step in turn.steps:
            if isinstance(step, Reduce):
                row = np.broadcast_to(step.path.row, step.path.shape)
                arms.append(int(max((row > row[:, :1]).sum(1).max(), (row < row[:, :1]).sum(1).max())))
            elif isinstance(step, Send) and step.via == "core":
                arms.append(1)
        total += max(arms)
    return total


@pytest.mark.parametrize("name", GEMV)
def test_a_wrong_member_is_noticed(name: str) -> None:
    shape, mesh = Shape(1, 50, 41), Mesh(7, 7)
    program = GEMV[name].steps(shape, mesh)
    rounds = list(rounds_of(program.strands[0]))
    first = next(place for place, turn in enumerate(rounds) if isinstance(turn.steps[0], Send | Reduce | Multicast))
    step = rounds[first].steps[0]
    if isinstance(step, Send):
        wrong: object = replace(step, target=replace(step.target, row=np.roll(step.target.row, 1, axis=0)))
    else:
        wrong = replace(step, path=replace(step.path, row=np.where(step.path.row == step.path.row[:, -1:], 6, step.path.row)))
        if (wrong.path.row == step.path.row).all():  # type: ignore[attr-defined]
            wrong = replace(step, path=replace(step.path, row=np.roll(step.path.row, 1, axis=1)))
    rounds[first] = Round((wrong, *rounds[first].steps[1:]))  # type: ignore[arg-type]
    out, exact = multiplied(name, shape, mesh, replace(program, strands=(tuple(rounds),)))
    assert not np.allclose(out, exact, atol=1e-2)


def test_a_ring_wraps_over_the_whole_line() -> None:
    assert longest_hop(GEMV["ring"].steps(Shape(1, 9, 9), Mesh(9, 9))) == 8


def test_a_tree_sends_no_more_than_a_pipeline() -> None:
    shape, mesh = Shape(1, 64, 64), Mesh(16, 16)
    sent = {name: activity(GEMV[name].steps(shape, mesh)).sent_bytes for name in GEMV}
    assert sent["ktree"] == sent["pipeline"] < sent["ring"]


@pytest.mark.parametrize("side", [9, 16, 27])
def test_paths_are_those_of_the_program(side: int) -> None:
    """[he2025] section 6.1: constant for pipeline and ring, K + 1 for the tree."""
    shape, mesh = Shape(1, side, side), Mesh(side, 2)
    assert paths(GEMV["pipeline"].steps(shape, mesh)) == GEMV["pipeline"].paths(mesh)
    assert paths(GEMV["ring"].steps(shape, mesh)) == GEMV["ring"].paths(mesh)
    for phases in (1, 2, 3):
        assert paths(GEMV["ktree"].steps(shape, mesh, phases=phases)) == GEMV["ktree"].paths(mesh, phases) == phases + 1
