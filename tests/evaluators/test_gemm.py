"""Every registered GEMM computes the product, on square, non-square and prime meshes, whatever divides."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.meshgemm import interleave, interleaved
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.program.counts import activity
from dse.evaluators.program.rounds import Multicast, Program, Reduce, Round, Send, rounds_of
from dse.evaluators.program.routes import longest_hop, paths
from dse.evaluators.readers.numeric import play

MESHES = (Mesh(3, 3), Mesh(4, 4), Mesh(5, 5), Mesh(8, 8), Mesh(3, 6), Mesh(6, 4), Mesh(3, 5), Mesh(7, 7))


def multiplied(kernel: ModuleType, shape: Shape, mesh: Mesh, dtype: str = "float32", program: Program | None = None) -> tuple:
    rng = np.random.default_rng(shape.m * 7 + mesh.cols)
    a, b = rng.normal(size=(shape.m, shape.k)), rng.normal(size=(shape.k, shape.n))
    given_b = b.T if getattr(kernel, "TRANSPOSED", False) else b
    tiles = kernel.place(shape, mesh, a.astype(dtype), given_b.astype(dtype))
    out = kernel.result(shape, mesh, play(program or kernel.steps(shape, mesh, dtype), tiles))
    exact = a.astype(dtype).astype(float) @ b.astype(dtype).astype(float)
    return out, exact


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMM)
def test_the_product_comes_out(name: str, mesh: Mesh) -> None:
    out, exact = multiplied(GEMM[name], Shape(24, 36, 30), mesh)
    assert np.allclose(out, exact, atol=1e-4)


@given(st.sampled_from(sorted(GEMM)), st.integers(3, 6), st.integers(3, 6), *[st.integers(1, 20)] * 3)
@settings(max_examples=60)
def test_matrices_that_do_not_divide_are_padded(name: str, rows: int, cols: int, m: int, k: int, n: int) -> None:
    out, exact = multiplied(GEMM[name], Shape(m, k, n), Mesh(rows, cols))
    assert out.shape == (m, n)
    assert np.allclose(out, exact, atol=1e-4)


@pytest.mark.parametrize("name", GEMM)
def test_half_precision_operands_accumulate_in_single(name: str) -> None:
    out, exact = multiplied(GEMM[name], Shape(40, 64, 40), Mesh(4, 4), "float16")
    assert np.allclose(out, exact, atol=1e-3)  # operands are rounded before both; sums of 64 products in float32


@pytest.mark.parametrize("name", GEMM)
def test_a_wrong_destination_is_noticed(name: str) -> None:
    kernel, shape, mesh = GEMM[name], Shape(20, 20, 20), Mesh(5, 5)
    program = kernel.steps(shape, mesh)
    (strand,) = program.strands
    rounds = list(rounds_of(strand))
    for place, turn in enumerate(rounds):
        wrong = tuple(corrupted(step) for step in turn.steps)
        if any(new is not old for new, old in zip(wrong, turn.steps, strict=True)):
            rounds[place] = Round(wrong, turn.wait)
            break
    out, exact = multiplied(kernel, shape, mesh, program=replace(program, strands=(tuple(rounds),)))
    assert not np.allclose(out, exact, atol=1e-2)


def corrupted(step: object) -> object:
    if isinstance(step, Send) and step.into != "p":
        return replace(
            step, target=replace(step.target, row=np.roll(np.broadcast_to(step.target.row, step.target.shape), 1, 0))
        )
    if isinstance(step, Multicast | Reduce):
        return replace(step, path=replace(step.path, row=(step.path.row + 1) % 5))
    return step


@given(st.integers(3, 200))
def test_interleave_is_a_ring_of_two_hops(places: int) -> None:
    send, receive = interleave(places)
    assert sorted(interleaved(places)) == list(range(places))
    assert np.max(np.abs(send - np.arange(places))) == 2
    assert (receive[send] == np.arange(places)).all()


@pytest.mark.parametrize("side", [3, 4, 5, 8, 16])
def test_each_algorithm_reaches_as_far_as_the_paper_says(side: int) -> None:
    """[he2025] section 5.1: the longest message of a step, alignment apart."""
    shape, mesh = Shape(side, side, side), Mesh(side, side)
    reach = {name: longest_hop(after_alignment(kernel.steps(shape, mesh))) for name, kernel in GEMM.items()}
    assert reach["meshgemm"] == 2
    assert reach["cannon"] == reach["summa"] == side - 1
    assert reach["allgather"] == 1


def after_alignment(program: Program) -> Program:
    (strand,) = program.strands
    return replace(program, strands=(strand[1:] if program.slots[0].depth == 2 and len(strand) == 3 else strand,))


@pytest.mark.parametrize("side", [4, 8, 16])
def test_memory_is_what_the_paper_says(side: int) -> None:
    """Tiles are 1/N^2 of a matrix; compute-shift and SUMMA hold each operand twice, allgather N times and double-buffered."""
    size = side * 4
    shape, mesh, tile = Shape(size, size, size), Mesh(side, side), 4 * 4 * 4
    used = {name: kernel.steps(shape, mesh).core_bytes for name, kernel in GEMM.items()}
    assert used["meshgemm"] == used["cannon"] == 5 * tile
    assert used["summa"] == (2 + 4 + 1) * tile
    assert used["allgather"] == (4 * side + 1) * tile


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMM)
def test_products_are_counted_with_their_padding(name: str, mesh: Mesh) -> None:
    shape = Shape(3 * mesh.chunks, 2 * mesh.chunks, 4 * mesh.chunks)
    exact = activity(GEMM[name].steps(shape, mesh)).macs
    assert exact == shape.m * shape.k * shape.n
    padded = activity(GEMM[name].steps(replace(shape, m=shape.m - 1), mesh)).macs
    assert padded == exact


@pytest.mark.parametrize("name", GEMM)
def test_constant_paths_are_constant(name: str) -> None:
    few = GEMM[name].paths(Mesh(64, 64)) == GEMM[name].paths(Mesh(8, 8))
    assert few == (name in ("cannon", "meshgemm", "meshgemm_t", "t10"))


@pytest.mark.parametrize("mesh", [Mesh(8, 8), Mesh(9, 9), Mesh(16, 16)], ids=str)
@pytest.mark.parametrize("name", ["cannon", "meshgemm", "meshgemm_t", "meshgemm_v", "summa", "t10"])
def test_paths_are_those_of_the_program(name: str, mesh: Mesh) -> None:
    """[he2025] section 5.1: N for SUMMA, constant for compute-and-shift; the alignment, done once, has routes of its own."""
    kernel, shape = GEMM[name], Shape(mesh.rows, mesh.rows, mesh.rows)
    program = after_alignment(kernel.steps(shape, mesh))
    assert paths(program) == kernel.paths(mesh)
    assert paths(program, at_once=name in ("summa", "meshgemm_v")) == kernel.at_once(mesh)


def test_allgather_forwards_to_neighbours_where_routes_are_too_few() -> None:
    """The paper's N paths become software stages."""
    mesh = Mesh(8, 8)
    program = GEMM["allgather"].steps(Shape(8, 8, 8), mesh)
    assert paths(program) == GEMM["allgather"].at_once(mesh) < GEMM["allgather"].paths(mesh)
