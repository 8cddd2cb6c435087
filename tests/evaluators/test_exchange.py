"""Every registered exchange among all cores moves what it says, on meshes, tori and full meshes of any sides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.collective import EXCHANGES
from dse.evaluators.kernels.collective.core_slices import slice_elements
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.program.kernel_ir import CoreIndex, Program, Round
from dse.space.array_math import Array
from dse.space.chip import TOPOLOGIES
from dse.space.errors import DesignError
from dse.space.workload import DIE_EXCHANGES as PATTERNS
from dse.testing.functional_simulator import run_program
from dse.testing.message_hops import longest_hop

SIDES = st.integers(1, 6)


def in_slices(x: Array, mesh: CoreMesh, each: int) -> Array:
    """Vectors of all cores, shape (cores, cores, slice)."""
    cores = mesh.rows * mesh.cols
    padded = np.zeros((cores, cores * each), x.dtype)
    padded[:, : x.shape[-1]] = x.reshape(cores, -1)
    return padded.reshape(cores, cores, each)


def right(name: str, mesh: CoreMesh, elements: int, pattern: str, topology: str, program: Program | None = None) -> bool:
    kernel, shape, how = EXCHANGES[name], GemmShape(elements, 1, 1), {"pattern": pattern, "topology": topology}
    x = np.random.default_rng(elements).integers(-99, 99, (mesh.rows, mesh.cols, elements)).astype(np.float32)
    tiles = run_program(
        program or kernel.build_program(shape, mesh, "float16", **how), kernel.scatter_operands(shape, mesh, x, **how)
    )
    out = kernel.gather_result(shape, mesh, tiles, **how)
    each, cores = slice_elements(shape, mesh), np.arange(mesh.rows * mesh.cols)
    slices, got = in_slices(x, mesh, each), in_slices(out, mesh, each)
    if pattern == "allgather":
        return bool((got == slices[cores, cores]).all())
    if pattern == "all_to_all":
        exact = slices.swapaxes(0, 1).reshape(len(cores), -1)[:, :elements]
        return bool((got == in_slices(exact, mesh, each)).all())
    sums = slices.sum(axis=0)
    return bool((got[cores, cores] == sums).all() if pattern == "reduce_scatter" else (got == sums).all())


@pytest.mark.sampled
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", EXCHANGES)
@given(SIDES, SIDES, st.integers(1, 90))
@settings(max_examples=15)
def test_every_core_ends_with_what_its_pattern_says(
    name: str, pattern: str, topology: str, rows: int, cols: int, elements: int
) -> None:
    assert right(name, CoreMesh(rows, cols), elements, pattern, topology)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_wrong_destination_is_noticed(name: str, pattern: str) -> None:
    mesh = CoreMesh(3, 4)
    program = EXCHANGES[name].build_program(GemmShape(60, 1, 1), mesh, "float16", pattern=pattern)
    (rounds,) = program.strands
    step: Any = rounds[-1].steps[0]  # a sum that went astray before would still be passed on to where it belongs
    moved_one = np.arange(len(step.target.row)) == len(step.target.row) // 2
    astray = CoreIndex((step.target.row + moved_one) % 3, (step.target.col + moved_one) % 4)
    wrong = Round((replace(step, target=astray),))
    changed = replace(program, strands=((*rounds[:-1], wrong),))
    assert right(name, mesh, 60, pattern, "mesh", program)
    assert not right(name, mesh, 60, pattern, "mesh", changed)


@pytest.mark.parametrize(("topology", "most"), [("mesh", 2), ("torus", 1), ("full", 1)])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_neighbours_on_a_ring_are_near(pattern: str, topology: str, most: int) -> None:
    program = EXCHANGES["rings"].build_program(
        GemmShape(90, 1, 1), CoreMesh(5, 6), "float16", pattern=pattern, topology=topology
    )
    assert longest_hop(program) == most


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", EXCHANGES)
@given(SIDES, SIDES)
@settings(max_examples=10)
def test_slots_are_those_of_the_program(name: str, pattern: str, rows: int, cols: int) -> None:
    shape, mesh = GemmShape(100, 1, 1), CoreMesh(rows, cols)
    slots = EXCHANGES[name].buffers(shape, mesh, "float16", pattern=pattern)
    assert slots == EXCHANGES[name].build_program(shape, mesh, "float16", pattern=pattern).slots


@pytest.mark.parametrize("name", EXCHANGES)
def test_unknown_words_are_refused_by_name(name: str) -> None:
    for change, message in (
        ({"pattern": "all_gather"}, "pattern: .*'allgather'"),
        ({"topology": "tours"}, "topology: .*'torus'"),
    ):
        how = {"pattern": "allgather", "topology": "mesh"} | change
        with pytest.raises(DesignError, match=message):
            EXCHANGES[name].build_program(GemmShape(9, 1, 1), CoreMesh(3, 3), "float16", **how)
