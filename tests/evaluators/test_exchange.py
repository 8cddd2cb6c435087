"""Every registered exchange among all cores moves what it says, on meshes, tori and full meshes of any sides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.collective import EXCHANGES
from dse.evaluators.kernels.collective.exchange import slice_of
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.program.rounds import Cores, Program, Round
from dse.evaluators.program.routes import longest_hop
from dse.evaluators.readers.numeric import play
from dse.space.chip import TOPOLOGIES
from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.workload import EXCHANGES as PATTERNS

SIDES = st.integers(1, 6)


def in_slices(x: Array, mesh: Mesh, each: int) -> Array:
    """Vectors of all cores, shape (cores, cores, slice)."""
    cores = mesh.rows * mesh.cols
    padded = np.zeros((cores, cores * each), x.dtype)
    padded[:, : x.shape[-1]] = x.reshape(cores, -1)
    return padded.reshape(cores, cores, each)


def right(name: str, mesh: Mesh, elements: int, pattern: str, topology: str, program: Program | None = None) -> bool:
    kernel, shape, how = EXCHANGES[name], Shape(elements, 1, 1), {"pattern": pattern, "topology": topology}
    x = np.random.default_rng(elements).integers(-99, 99, (mesh.rows, mesh.cols, elements)).astype(np.float32)
    tiles = play(program or kernel.steps(shape, mesh, "float16", **how), kernel.place(shape, mesh, x, **how))
    out = kernel.result(shape, mesh, tiles, **how)
    each, cores = slice_of(shape, mesh), np.arange(mesh.rows * mesh.cols)
    slices, got = in_slices(x, mesh, each), in_slices(out, mesh, each)
    if pattern == "allgather":
        return bool((got == slices[cores, cores]).all())
    if pattern == "all_to_all":
        exact = slices.swapaxes(0, 1).reshape(len(cores), -1)[:, :elements]
        return bool((got == in_slices(exact, mesh, each)).all())
    sums = slices.sum(axis=0)
    return bool((got[cores, cores] == sums).all() if pattern == "reduce_scatter" else (got == sums).all())


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", EXCHANGES)
@given(SIDES, SIDES, st.integers(1, 90))
@settings(max_examples=15)
def test_every_core_ends_with_what_its_pattern_says(
    name: str, pattern: str, topology: str, rows: int, cols: int, elements: int
) -> None:
    assert right(name, Mesh(rows, cols), elements, pattern, topology)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_wrong_destination_is_noticed(name: str, pattern: str) -> None:
    mesh = Mesh(3, 4)
    program = EXCHANGES[name].steps(Shape(60, 1, 1), mesh, "float16", pattern=pattern)
    (rounds,) = program.strands
    step: Any = rounds[-1].steps[0]  # a sum that went astray before would still be passed on to where it belongs
    one = np.arange(len(step.target.row)) == len(step.target.row) // 2
    astray = Cores((step.target.row + one) % 3, (step.target.col + one) % 4)
    wrong = Round((replace(step, target=astray),))
    changed = replace(program, strands=((*rounds[:-1], wrong),))
    assert right(name, mesh, 60, pattern, "mesh", program)
    assert not right(name, mesh, 60, pattern, "mesh", changed)


@pytest.mark.parametrize(("topology", "most"), [("mesh", 2), ("torus", 1), ("full", 1)])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_neighbours_on_a_ring_are_near(pattern: str, topology: str, most: int) -> None:
    program = EXCHANGES["rings"].steps(Shape(90, 1, 1), Mesh(5, 6), "float16", pattern=pattern, topology=topology)
    assert longest_hop(program) == most


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", EXCHANGES)
@given(SIDES, SIDES)
@settings(max_examples=10)
def test_slots_are_those_of_the_program(name: str, pattern: str, rows: int, cols: int) -> None:
    shape, mesh = Shape(100, 1, 1), Mesh(rows, cols)
    slots = EXCHANGES[name].slots(shape, mesh, "float16", pattern=pattern)
    assert slots == EXCHANGES[name].steps(shape, mesh, "float16", pattern=pattern).slots


@pytest.mark.parametrize("name", EXCHANGES)
def test_unknown_words_are_refused_by_name(name: str) -> None:
    for change, said in (({"pattern": "all_gather"}, "pattern: .*'allgather'"), ({"topology": "tours"}, "topology: .*'torus'")):
        how = {"pattern": "allgather", "topology": "mesh"} | change
        with pytest.raises(DesignError, match=said):
            EXCHANGES[name].steps(Shape(9, 1, 1), Mesh(3, 3), "float16", **how)
