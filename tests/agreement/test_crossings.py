"""Crossings between the dies of a mesh: closed forms are their programs played, and links without cost change nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.mesh_fabric import ONE_DIE, MeshFabric, die_period
from dse.space.workload import DIAGONAL, GROUP_AXES, TILE_PATTERNS
from tests.agreement.test_collectives import ADDING
from tests.agreement.test_events import CYCLES, DMA, places, sends

FABRICS = st.sampled_from([CYCLES, DMA, ADDING])


def divided(fabric: MeshFabric, mesh: CoreMesh, die_rows: float, die_cols: float, crossing: float, word: float) -> MeshFabric:
    """A fabric whose mesh is divided into dies of some sides."""
    return fabric._replace(
        die_rows=float(die_rows) if die_rows < mesh.rows else ONE_DIE,
        die_cols=float(die_cols) if die_cols < mesh.cols else ONE_DIE,
        crossing=crossing,
        crossing_word=word,
    )


@st.composite
def divided_cuts(draw: Any) -> tuple[CoreMesh, dict[str, Any], tuple[int, int]]:
    """A mesh, groups on it, and the sides of its dies: along each line one length divides the other."""
    small = [draw(st.integers(1, 4)) for _ in range(2)]
    large = [side * draw(st.integers(1, 3)) for side in small]
    mesh = CoreMesh(*(side * draw(st.integers(1, 3)) for side in large))
    swapped = draw(st.tuples(st.booleans(), st.booleans()))
    rows, cols = (side if swap else other for side, other, swap in zip(small, large, swapped, strict=True))
    dies = tuple(other if swap else side for side, other, swap in zip(small, large, swapped, strict=True))
    along = draw(st.sampled_from(GROUP_AXES))
    members = (1 if along == "row" else rows) * (1 if along == "column" else cols)
    inside = st.integers(0, members - 1)
    root = draw(inside if along == "rectangle" else inside | st.just(DIAGONAL))
    return mesh, {"along": along, "rows": rows, "cols": cols, "root": root}, dies


@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
@given(divided_cuts(), st.integers(1, 200), FABRICS, st.integers(0, 40), st.floats(1.0, 9.0))
@settings(max_examples=60)
def test_the_closed_form_of_a_collective_over_dies_is_its_program_played(
    name: str, pattern: str, cut: tuple, elements: int, fabric: MeshFabric, crossing: int, word: float
) -> None:
    mesh, how, dies = cut
    shape, on = GemmShape(elements, 1, 1), divided(fabric, mesh, *dies, float(crossing), word)
    program = TEAMS[name].build_program(shape, mesh, "float16", pattern=pattern, **how)
    closed = TEAMS[name].cost(shape, mesh, on, pattern=pattern, **how).seconds
    assert closed == pytest.approx(simulate_events(program, on).seconds, rel=1e-9)


@given(places, places, st.integers(1, 64), st.sampled_from([1, 7]), st.sampled_from([1, 7]))
def test_a_lone_message_takes_its_crossings_and_the_words_of_its_slowest_link(
    source: tuple[int, int], target: tuple[int, int], words: int, die_rows: int, die_cols: int
) -> None:
    mesh = CoreMesh(7, 7)
    on = divided(DMA, mesh, die_rows, die_cols, 11.0, 2.5)
    down, across = abs(source[0] - target[0]), abs(source[1] - target[1])
    crossings = down * (die_rows < 7) + across * (die_cols < 7)
    word = 2.5 if crossings else DMA.word
    expected = DMA.post + 2 * DMA.ramp + (down + across) * DMA.hop + crossings * 11.0 + words * word if down + across else 0.0
    assert simulate_events(sends(mesh, (source, target, words)), on).seconds == pytest.approx(expected)


@pytest.mark.parametrize("name", TEAMS)
@given(divided_cuts(), st.integers(1, 200), FABRICS)
@settings(max_examples=30)
def test_crossings_without_cost_change_no_digit(name: str, cut: tuple, elements: int, fabric: MeshFabric) -> None:
    mesh, how, dies = cut
    shape, free = GemmShape(elements, 1, 1), divided(fabric, mesh, *dies, 0.0, float(fabric.word))
    program = TEAMS[name].build_program(shape, mesh, "float16", pattern="allreduce", **how)
    assert simulate_events(program, free).seconds == simulate_events(program, fabric).seconds
    seconds = [TEAMS[name].cost(shape, mesh, on, pattern="allreduce", **how).seconds for on in (free, fabric)]
    assert seconds[0] == seconds[1]


@pytest.mark.parametrize("name", TEAMS)
@given(divided_cuts(), st.integers(1, 200), FABRICS, st.floats(1.0, 9.0), st.floats(1.0, 9.0))
@settings(max_examples=30)
def test_more_bandwidth_between_dies_never_hurts(
    name: str, cut: tuple, elements: int, fabric: MeshFabric, word: float, other: float
) -> None:
    mesh, how, dies = cut
    shape = GemmShape(elements, 1, 1)
    program = TEAMS[name].build_program(shape, mesh, "float16", pattern="allreduce", **how)
    slow, fast = (divided(fabric, mesh, *dies, 5.0, each) for each in (max(word, other), min(word, other)))
    assert simulate_events(program, fast).seconds <= simulate_events(program, slow).seconds * (1 + 1e-12)
    faster, slower = (TEAMS[name].cost(shape, mesh, on, pattern="allreduce", **how).seconds for on in (fast, slow))
    assert faster <= slower * (1 + 1e-12)


@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
@given(st.integers(2, 7), st.integers(2, 7), st.integers(1, 3), st.integers(1, 60), FABRICS)
@settings(max_examples=30)
def test_the_closed_form_bounds_groups_that_no_die_divides(
    name: str, pattern: str, cols: int, die_cols: int, times: int, elements: int, fabric: MeshFabric
) -> None:
    """Groups of one length on dies of another one: some cross at more places than others, and the form takes the closest."""
    mesh = CoreMesh(2, int(np.lcm(cols, die_cols)) * times)
    how, shape = {"along": "row", "rows": 1, "cols": cols, "root": 0}, GemmShape(elements, 1, 1)
    on = divided(fabric, mesh, 2, die_cols, 7.0, 3.0)
    closed = TEAMS[name].cost(shape, mesh, on, pattern=pattern, **how).seconds
    program = TEAMS[name].build_program(shape, mesh, "float16", pattern=pattern, **how)
    assert closed >= simulate_events(program, on).seconds * (1 - 1e-9)


@pytest.mark.parametrize("name", TEAMS)
def test_a_batch_of_collectives_over_dies_is_its_singles(name: str) -> None:
    sides, dies = np.array([1.0, 2.0, 8.0, 8.0, 32.0, 32.0]), np.array([16.0, 1.0, 2.0, 16.0, 16.0, ONE_DIE])
    on, shape = ADDING._replace(crossing=9.0, crossing_word=3.5), GemmShape(4096, 1, 1)
    many = (
        TEAMS[name]
        .cost(shape, CoreMesh(32, 32), on._replace(die_rows=dies, die_cols=dies), pattern="allreduce", rows=sides, cols=sides)
        .seconds
    )
    for place, (side, die) in enumerate(zip(sides.tolist(), dies.tolist(), strict=True)):
        single = on._replace(die_rows=die, die_cols=die)
        cut = {"rows": int(side), "cols": int(side)}
        assert many[place] == TEAMS[name].cost(shape, CoreMesh(32, 32), single, pattern="allreduce", **cut).seconds


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_group_crosses_where_it_is_longer_than_a_die(cores: int, die: int) -> None:
    period = die_period(cores, float(die))
    assert (period == ONE_DIE) == (die % cores == 0)
    assert period == ONE_DIE or (die % period == 0 and cores % period == 0)
