"""Every registered GEMM computes the product, on square, non-square and prime meshes, whatever divides."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.meshgemm import interleaved_order, ring_neighbours
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import (
    MulticastInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    iterate_rounds,
)
from dse.evaluators.program.routes import routing_paths
from dse.testing.functional_simulator import run_program
from dse.testing.message_hops import longest_hop

MESHES = (
    CoreMesh(3, 3),
    CoreMesh(4, 4),
    CoreMesh(5, 5),
    CoreMesh(8, 8),
    CoreMesh(3, 6),
    CoreMesh(6, 4),
    CoreMesh(3, 5),
    CoreMesh(7, 7),
)


def multiplied(
    kernel: ModuleType, shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", program: Program | None = None
) -> tuple:
    rng = np.random.default_rng(shape.m * 7 + mesh.cols)
    a, b = rng.normal(size=(shape.m, shape.k)), rng.normal(size=(shape.k, shape.n))
    given_b = b.T if getattr(kernel, "TRANSPOSED", False) else b
    tiles = kernel.scatter_operands(shape, mesh, a.astype(dtype), given_b.astype(dtype))
    out = kernel.gather_result(shape, mesh, run_program(program or kernel.build_program(shape, mesh, dtype), tiles))
    exact = a.astype(dtype).astype(float) @ b.astype(dtype).astype(float)
    return out, exact


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMM)
def test_the_product_comes_out(name: str, mesh: CoreMesh) -> None:
    out, exact = multiplied(GEMM[name], GemmShape(24, 36, 30), mesh)
    assert np.allclose(out, exact, atol=1e-4)


@pytest.mark.slow
@given(st.sampled_from(sorted(GEMM)), st.integers(3, 6), st.integers(3, 6), *[st.integers(1, 20)] * 3)
@settings(max_examples=60)
def test_matrices_that_do_not_divide_are_padded(name: str, rows: int, cols: int, m: int, k: int, n: int) -> None:
    out, exact = multiplied(GEMM[name], GemmShape(m, k, n), CoreMesh(rows, cols))
    assert out.shape == (m, n)
    assert np.allclose(out, exact, atol=1e-4)


@pytest.mark.parametrize("name", GEMM)
def test_half_precision_operands_accumulate_in_single(name: str) -> None:
    out, exact = multiplied(GEMM[name], GemmShape(40, 64, 40), CoreMesh(4, 4), "float16")
    assert np.allclose(out, exact, atol=1e-3)  # operands are rounded before both; sums of 64 products in float32


@pytest.mark.parametrize("name", GEMM)
def test_a_wrong_destination_is_noticed(name: str) -> None:
    kernel, shape, mesh = GEMM[name], GemmShape(20, 20, 20), CoreMesh(5, 5)
    program = kernel.build_program(shape, mesh)
    (strand,) = program.strands
    rounds = list(iterate_rounds(strand))
    for place, turn in enumerate(rounds):
        wrong = tuple(corrupted(step) for step in turn.steps)
        if any(new is not old for new, old in zip(wrong, turn.steps, strict=True)):
            rounds[place] = Round(wrong, turn.wait)
            break
    out, exact = multiplied(kernel, shape, mesh, program=replace(program, strands=(tuple(rounds),)))
    assert not np.allclose(out, exact, atol=1e-2)


def corrupted(step: object) -> object:
    if isinstance(step, SendInstruction) and step.into != "p":
        return replace(
            step, target=replace(step.target, row=np.roll(np.broadcast_to(step.target.row, step.target.shape), 1, 0))
        )
    if isinstance(step, MulticastInstruction | ReduceInstruction):
        return replace(step, path=replace(step.path, row=(step.path.row + 1) % 5))
    return step


@given(st.integers(3, 200))
def test_interleave_is_a_ring_of_two_hops(places: int) -> None:
    send, receive = ring_neighbours(places)
    assert sorted(interleaved_order(places)) == list(range(places))
    assert np.max(np.abs(send - np.arange(places))) == 2
    assert (receive[send] == np.arange(places)).all()


@pytest.mark.parametrize("side", [3, 4, 5, 8, 16])
def test_each_algorithm_reaches_as_far_as_the_paper_says(side: int) -> None:
    """[he2025] section 5.1: the longest message of a step, alignment apart."""
    shape, mesh = GemmShape(side, side, side), CoreMesh(side, side)
    reach = {name: longest_hop(after_alignment(kernel.build_program(shape, mesh))) for name, kernel in GEMM.items()}
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
    shape, mesh, tile = GemmShape(size, size, size), CoreMesh(side, side), 4 * 4 * 4
    used = {name: kernel.build_program(shape, mesh).core_bytes for name, kernel in GEMM.items()}
    assert used["meshgemm"] == used["cannon"] == 5 * tile
    assert used["summa"] == (2 + 4 + 1) * tile
    assert used["allgather"] == (4 * side + 1) * tile


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", GEMM)
def test_products_are_counted_with_their_padding(name: str, mesh: CoreMesh) -> None:
    shape = GemmShape(3 * mesh.chunks, 2 * mesh.chunks, 4 * mesh.chunks)
    exact = count_activity(GEMM[name].build_program(shape, mesh)).macs
    assert exact == shape.m * shape.k * shape.n
    padded = count_activity(GEMM[name].build_program(replace(shape, m=shape.m - 1), mesh)).macs
    assert padded == exact


@pytest.mark.parametrize("name", GEMM)
def test_constant_paths_are_constant(name: str) -> None:
    few = GEMM[name].routing_paths(CoreMesh(64, 64)) == GEMM[name].routing_paths(CoreMesh(8, 8))
    assert few == (name in ("cannon", "meshgemm", "meshgemm_t", "t10"))


@pytest.mark.parametrize("mesh", [CoreMesh(8, 8), CoreMesh(9, 9), CoreMesh(16, 16)], ids=str)
@pytest.mark.parametrize("name", ["cannon", "meshgemm", "meshgemm_t", "meshgemm_v", "summa", "t10"])
def test_paths_are_those_of_the_program(name: str, mesh: CoreMesh) -> None:
    """[he2025] section 5.1: N for SUMMA, constant for compute-and-shift; the alignment, done once, has routes of its own."""
    kernel, shape = GEMM[name], GemmShape(mesh.rows, mesh.rows, mesh.rows)
    program = after_alignment(kernel.build_program(shape, mesh))
    assert routing_paths(program) == kernel.routing_paths(mesh)
    assert routing_paths(program, at_once=name in ("summa", "meshgemm_v")) == kernel.concurrent_paths(mesh)


def test_allgather_forwards_to_neighbours_where_routes_are_too_few() -> None:
    """The paper's N paths become software stages."""
    mesh = CoreMesh(8, 8)
    program = GEMM["allgather"].build_program(GemmShape(8, 8, 8), mesh)
    assert routing_paths(program) == GEMM["allgather"].concurrent_paths(mesh) < GEMM["allgather"].routing_paths(mesh)
