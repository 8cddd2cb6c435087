"""Norms, softmax and moves between layouts compute what NumPy does, on tiles."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.data_movement import MOVE
from dse.evaluators.kernels.data_movement import columns_to_rows as turn
from dse.evaluators.kernels.data_movement import expert_dispatch as dispatch
from dse.evaluators.kernels.data_movement import region_transfer as transfer
from dse.evaluators.kernels.data_movement import relayout as reshuffle
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, matrix_blocks
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.vector import VECTOR, norm, softmax
from dse.evaluators.kernels.vector import elementwise_kernels as elementwise
from dse.evaluators.kernels.vector import radix_select as choice
from dse.evaluators.program.kernel_ir import SendInstruction, iterate_rounds
from dse.testing.functional_simulator import Tiles, run_program

MESHES = [CoreMesh(3, 3), CoreMesh(9, 4), CoreMesh(4, 9), CoreMesh(7, 7)]


def spread(x: np.ndarray, mesh: CoreMesh) -> np.ndarray:
    """x[m, k] with k over the rows and m over the columns: tiles [k, m]."""
    return matrix_blocks(x.T, mesh.rows, mesh.cols)


def gathered(tiles: np.ndarray) -> np.ndarray:
    rows, cols, k, m = tiles.shape
    return tiles.swapaxes(1, 2).reshape(rows * k, cols * m).T


@pytest.mark.parametrize("allreduce", GEMV)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_norm_divides_by_the_root_of_the_sum_of_squares(mesh: CoreMesh, allreduce: str) -> None:
    shape = GemmShape(2 * mesh.cols, 5 * mesh.rows, 1)
    x = np.random.default_rng(0).normal(size=(shape.m, shape.k)).astype("float32")
    out = run_program(norm.build_program(shape, mesh, allreduce=allreduce), {"x": spread(x, mesh)})["x"]
    assert np.allclose(gathered(out), x / np.sqrt((x * x).sum(1, keepdims=True)), atol=1e-5)


@pytest.mark.parametrize("allreduce", GEMV)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_softmax_is_that_of_numpy(mesh: CoreMesh, allreduce: str) -> None:
    shape = GemmShape(2 * mesh.cols, 5 * mesh.rows, 1)
    x = np.random.default_rng(0).normal(size=(shape.m, shape.k)).astype("float32") * 3
    out = run_program(softmax.build_program(shape, mesh, allreduce=allreduce), {"x": spread(x, mesh)})["x"]
    exact = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(gathered(out), exact / exact.sum(1, keepdims=True), atol=1e-5)


def test_elementwise_functions_are_those_of_numpy() -> None:
    shape, mesh = GemmShape(6, 10, 1), CoreMesh(5, 3)
    rng = np.random.default_rng(0)
    a, b, c, s = (rng.normal(size=(shape.m, shape.k)).astype("float32") for _ in range(4))
    tiles = {name: spread(x, mesh) for name, x in zip("xyuv", (a, b, c, s), strict=True)}
    results = {
        "add": a + b, "gate": a / (1 + np.exp(-a)) * b, "rotate": a * c + b * s, "tapped": a + b * c,
        "silu": a / (1 + np.exp(-a)),
        "cap": np.tanh(a), "correct": (a - b * c) * s, "learn": a * b + c * s, "decayed": a * b + c,
        "rectify": c + b * np.maximum(a, 0),
    }  # fmt: skip
    assert results.keys() == elementwise.FUNCTION_INPUTS.keys()
    for function, exact in results.items():
        given: Tiles = {name: tiles[name] for name in elementwise.FUNCTION_INPUTS[function]}
        assert np.allclose(
            gathered(run_program(elementwise.build_program(shape, mesh, function=function), given)["x"]), exact, atol=1e-5
        )


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_region_hands_its_tiles_to_the_next(mesh: CoreMesh) -> None:
    shape = GemmShape(2 * mesh.cols, 3 * mesh.rows, 1)
    x = np.random.default_rng(0).normal(size=(shape.m, shape.k)).astype("float32")
    both = np.zeros((mesh.rows, 2 * mesh.cols, 3, 2), "float32")
    both[:, : mesh.cols] = spread(x, mesh)
    out = run_program(transfer.build_program(shape, mesh), {"x": both})["x"]
    assert np.array_equal(gathered(out[:, mesh.cols :]), x)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_every_core_gets_its_columns_part_of_all_tokens(mesh: CoreMesh) -> None:
    shape = GemmShape(2 * mesh.rows, 3 * mesh.cols, 1)
    x = np.random.default_rng(0).normal(size=(shape.m, shape.k)).astype("float32")
    out = run_program(dispatch.build_program(shape, mesh), {"x": matrix_blocks(x, mesh.rows, mesh.cols)})["all"]
    for col in range(mesh.cols):
        assert (out[:, col] == x[:, 3 * col : 3 * col + 3]).all()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_what_lies_over_the_columns_lies_over_the_rows_behind_a_turn(rows: int, cols: int, k: int, m: int) -> None:
    mesh, x = CoreMesh(rows, cols), np.arange(1.0, k * m + 1).reshape(k, m).astype("float32")
    program = turn.build_program(GemmShape(m, k, 1), mesh)
    out = run_program(
        program, {"x": np.broadcast_to(matrix_blocks(x, cols, 1)[None, :, 0], (rows, cols, *program.slots[0].shape))}
    )
    wanted = np.broadcast_to(matrix_blocks(x, rows, 1), out["out"].shape)
    assert cols == 1 or np.array_equal(out["out"], wanted)


@given(
    st.integers(1, 7), st.integers(1, 3), st.integers(1, 50), st.integers(1, 4), st.integers(0, 99), st.sampled_from(list(GEMV))
)
@settings(max_examples=25, deadline=None)
def test_the_choice_ends_at_the_lowest_score_that_is_among_the_best(
    rows: int, cols: int, k: int, top: int, seed: int, allreduce: str
) -> None:
    mesh, shape, top = CoreMesh(rows, cols), GemmShape(2 * cols, k, 1), min(top, k)
    x = np.random.default_rng(seed).choice([0.0, 0.25, 1.5, 1e-3, 7e8, 3.0], size=(shape.m, k)).astype("float32")
    program = choice.build_program(shape, mesh, allreduce=allreduce)
    padded = np.full((shape.m, program.slots[0].shape[0] * rows), -1.0, "float32")
    padded[:, :k] = x
    state = np.zeros((rows, cols, 2, 2))
    state[:, :, 1] = top
    bits = run_program(program, {"x": spread(padded, mesh), "found": state})["found"][:, :, 0]
    lowest = bits.astype(np.uint32).view(np.float32)
    assert (lowest == np.sort(x, axis=1)[:, -top].reshape(1, cols, 2)).all()


LAYOUTS = [
    (CoreMesh(6, 6), CoreMesh(3, 3)),
    (CoreMesh(6, 6), CoreMesh(4, 9)),
    (CoreMesh(3, 2), CoreMesh(7, 7)),
    (CoreMesh(5, 5), CoreMesh(5, 5)),
]


@pytest.mark.parametrize(("source", "into"), LAYOUTS, ids=str)
def test_a_reshuffle_is_the_same_matrix_in_other_blocks(source: CoreMesh, into: CoreMesh) -> None:
    shape = GemmShape(35, 1, 42)
    x = np.random.default_rng(0).normal(size=(shape.m, shape.n)).astype("float32")
    program = reshuffle.build_program(shape, source, into=into)
    before = np.zeros((program.rows, program.cols, *program.slots[0].shape), "float32")
    before[: source.rows, : source.cols] = matrix_blocks(x, source.rows, source.cols).swapaxes(2, 3)
    out = run_program(program, {"a": before})["out"]
    assert np.array_equal(out[: into.rows, : into.cols], matrix_blocks(x, into.rows, into.cols))


@pytest.mark.parametrize("name", [*VECTOR, *MOVE])
def test_a_wrong_destination_is_noticed(name: str) -> None:
    """A message astray changes the result; elementwise work sends none, a dispatch or turn only multicasts."""
    mesh, shape = CoreMesh(5, 5), GemmShape(10, 15, 10)
    options: dict[str, object] = {"into": CoreMesh(3, 3)} if name == "reshuffle" else {}
    options |= {"allreduce": "ring"} if name in ("norm", "softmax", "choice") else {}
    options |= {"elementwise": {"function": "add"}, "expand": {"operations": 2.0}}.get(name, {})
    kernel = {**VECTOR, **MOVE}[name]
    program = kernel.build_program(shape, mesh, **options)
    rng = np.random.default_rng(0)
    tiles = {
        slot.name: rng.normal(size=(program.rows, program.cols, *slot.shape)).astype("float32")
        for slot in program.slots
        if slot.name in ("a", "x")
    }
    if name == "choice":
        tiles["x"] = np.abs(tiles["x"]) ** 9
        tiles["found"] = np.ones((5, 5, 2, program.slots[0].shape[1])) * [[0.0], [7.0]]
    right = run_program(program, tiles)
    if name in ("elementwise", "expand", "dispatch", "turn"):
        return
    strand = list(iterate_rounds(program.strands[0]))
    place, number = next(
        (p, n) for p, turn in enumerate(strand) for n, step in enumerate(turn.steps) if isinstance(step, SendInstruction)
    )
    step = strand[place].steps[number]
    assert isinstance(step, SendInstruction)
    astray = replace(step, target=replace(step.target, row=np.roll(np.broadcast_to(step.target.row, step.target.shape), 1, 0)))
    steps = (*strand[place].steps[:number], astray, *strand[place].steps[number + 1 :])
    strand[place] = replace(strand[place], steps=steps)
    wrong = run_program(replace(program, strands=(tuple(strand),)), tiles)
    assert any(not np.allclose(right[slot], wrong[slot]) for slot in right)
