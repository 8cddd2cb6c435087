"""Every registered multicast and reduction moves what it says, on any group of any mesh, and refuses what makes no team."""

from dataclasses import replace
from math import ceil, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.kernels.collective import core_groups as team
from dse.evaluators.kernels.collective import software_tree as tree
from dse.evaluators.kernels.collective.core_groups import CoreGroup, MeshGroups
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.program.kernel_ir import Program, ReduceInstruction, Round, SendInstruction, iterate_rounds
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.workload import DIAGONAL, GROUP_AXES, REDUCTIONS, TILE_PATTERNS
from dse.testing.functional_simulator import run_program


@st.composite
def cuts(draw: Any, sides: int = 7, times: int = 3) -> tuple[CoreMesh, dict[str, Any]]:
    """A mesh and how it is cut; primes and single cores among them."""
    rows, cols = draw(st.integers(1, sides)), draw(st.integers(1, sides))
    mesh = CoreMesh(rows * draw(st.integers(1, times)), cols * draw(st.integers(1, times)))
    along = draw(st.sampled_from(GROUP_AXES))
    members = (1 if along == "row" else rows) * (1 if along == "column" else cols)
    places = st.integers(0, members - 1)
    root = draw(places if along == "rectangle" else places | st.just(DIAGONAL))
    return mesh, {"along": along, "rows": rows, "cols": cols, "root": root}


def wanted(mesh: CoreMesh, cut: dict[str, Any], pattern: str, combine: str, x: Array) -> list[tuple[Array, Array]]:
    """What each team should have where, as (mask of cores, value)."""
    expected = []
    for group, first in team.groups_of_mesh(MeshGroups(**cut), mesh).items():
        for r, c in zip(first.row, first.col, strict=True):
            inside = np.zeros((mesh.rows, mesh.cols), bool)
            inside[r : r + group.rows, c : c + group.cols] = True
            root = r + group.root // group.cols, c + group.root % group.cols
            at_root = np.zeros_like(inside)
            at_root[root] = True
            combined = x[inside].sum(axis=0) if combine == "sum" else x[inside].max(axis=0)
            expected.append((at_root if pattern == "reduce" else inside, x[root] if pattern == "multicast" else combined))
    return expected


def right(name: str, mesh: CoreMesh, cut: dict[str, Any], pattern: str, combine: str, program: Program | None = None) -> bool:
    program = program or TEAMS[name].build_program(GemmShape(3, 1, 1), mesh, "float16", pattern=pattern, combine=combine, **cut)
    x = np.random.default_rng(mesh.rows).integers(-99, 99, (mesh.rows, mesh.cols, 3, 1)).astype(np.float32)
    out = run_program(program, {"x": x})["x"]
    return all((out[mask] == value).all() for mask, value in wanted(mesh, cut, pattern, combine, x))


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
@given(cuts(), st.sampled_from(REDUCTIONS))
@settings(max_examples=40)
def test_every_team_ends_with_what_its_pattern_says(name: str, pattern: str, cut: tuple, combine: str) -> None:
    assert right(name, *cut, pattern, combine)


@pytest.mark.parametrize("along", GROUP_AXES)
@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
def test_a_wrong_core_is_noticed(name: str, pattern: str, along: str) -> None:
    mesh, cut = CoreMesh(6, 10), {"along": along, "rows": 3, "cols": 5, "root": 1}
    program = TEAMS[name].build_program(GemmShape(3, 1, 1), mesh, "float16", pattern=pattern, **cut)
    (rounds,) = program.strands
    step = rounds[0].steps[0]
    if isinstance(step, SendInstruction):
        wrong: Any = replace(step, source=replace(step.source, row=np.roll(step.source.row, 1) * 0 + 5))
    else:
        row = step.path.row.copy()
        row[0, -1] = (row[0, -1] + 3) % mesh.rows
        wrong = replace(step, path=replace(step.path, row=row))
    assert right(name, mesh, cut, pattern, "sum", program)
    assert not right(name, mesh, cut, pattern, "sum", replace(program, strands=((Round((wrong,)), *rounds[1:]),)))


def test_roots_of_a_diagonal_differ_from_row_to_row() -> None:
    path = team.group_members(MeshGroups(4, 4, "row", DIAGONAL), CoreMesh(8, 8))
    roots = {(int(r), int(c)) for r, c in zip(path.row[:, 0], path.col[:, 0], strict=True)}
    assert roots == {(4 * i + d, 4 * j + d) for i in range(2) for j in range(2) for d in range(4)}


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_a_tree_has_a_logarithmic_number_of_steps(rows: int, cols: int, data: st.DataObject) -> None:
    stages = tree.tree_stages(CoreGroup(rows, cols, data.draw(st.integers(0, rows * cols - 1))))
    assert len(stages) == ceil(log2(rows)) + ceil(log2(cols))
    assert sum(map(len, stages)) == rows * cols - 1


def test_hardware_has_no_software_on_the_way_and_others_do() -> None:
    cut = {"rows": 8, "cols": 8}
    for name in TEAMS:
        program = TEAMS[name].build_program(GemmShape(3, 1, 1), CoreMesh(8, 8), "float16", pattern="reduce", **cut)
        turns = [step for turn in iterate_rounds(program.strands[0]) for step in turn.steps]
        assert (name == "hardware") is all(isinstance(step, ReduceInstruction) and step.via == "router" for step in turns)
        assert len(turns) == {"hardware": 1, "tree": 3, "sequential": 7}[name]


@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
def test_slots_are_those_of_the_program(name: str, pattern: str) -> None:
    shape, mesh = GemmShape(100, 1, 1), CoreMesh(4, 8)
    program = TEAMS[name].build_program(shape, mesh, "float16", pattern=pattern, rows=4, cols=4)
    slots = TEAMS[name].buffers(shape, mesh, "float16", pattern=pattern)
    assert sum(slot.nbytes for slot in slots) == program.core_bytes
    assert program.core_bytes == (200 if name == "hardware" or pattern == "multicast" else 400)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 3}, "group: 3 rows do not divide the 8 rows of the mesh"),
        ({"cols": 0}, "group: 0 cols do not divide the 8 cols of the mesh"),
        ({"along": "rows"}, "along: no option 'rows'; did you mean 'row'"),
        ({"root": 4}, "root: a group of 1 x 4 cores has places 0 to 3, got 4"),
        ({"root": -1}, "places 0 to 3, got -1"),
        ({"root": "corner"}, "places 0 to 3, got 'corner'"),
        ({"along": "rectangle"}, "root: a 4 x 4 rectangle has one root, got diagonal; set its place"),
        ({"pattern": "scatter"}, "pattern: no option 'scatter'"),
        ({"pattern": "reduce", "combine": "mean"}, "combine: no option 'mean'"),
    ],
)
@pytest.mark.parametrize("name", TEAMS)
def test_what_makes_no_team_is_refused_by_name(name: str, change: dict[str, Any], message: str) -> None:
    cut = {"pattern": "multicast", "rows": 4, "cols": 4, "along": "row", "root": DIAGONAL} | change
    with pytest.raises(DesignError, match=message):
        TEAMS[name].build_program(GemmShape(3, 1, 1), CoreMesh(8, 8), "float16", **cut)
