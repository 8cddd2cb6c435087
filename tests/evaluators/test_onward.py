"""What goes from stage to stage and around a group: it arrives where it should, and takes what its closed form says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.cycle_simulator import simulate_cycles as by_cycles
from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.partition import ring_collectives as ring
from dse.evaluators.kernels.partition import stage_transfer as onward
from dse.evaluators.kernels.partition.group_placement import GroupRings, group_sides, place_group
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement, stage_arrivals, stage_cores
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Buffer, Program, Round, SendInstruction
from dse.space.mapping import PLACEMENTS
from dse.testing.functional_simulator import run_program as by_numbers
from tests.evaluators.test_partition import LOCKED, WORMHOLE

CORES = (1, 2, 3, 4, 6, 8, 9, 16)
ROUTED = {"locked": LOCKED, "wormhole": WORMHOLE}


def drawn(rng: np.random.Generator) -> PipelinePlacement:
    """A pipeline that fits on its mesh, with others beside it."""
    placement, cores, stages = str(rng.choice(PLACEMENTS)), int(rng.choice(CORES)), int(rng.choice([2, 3, 4, 6, 8, 16]))
    high = max(int(rng.choice([4, 8, 16])), group_sides(placement, cores)[0])
    return PipelinePlacement(placement, cores, stages, int(rng.integers(1, 9)), high)


def arrived(way: PipelinePlacement, program: Program) -> bool:
    """Whether each stage has what the one before it had, core by core."""
    at, _ = stage_cores(way)
    x = np.random.default_rng(way.stages).integers(-99, 99, (program.rows, program.cols, *program.slots[0].shape), np.int8)
    received = by_numbers(program, {"x": x})["x"]
    before, after = (x[at[span, :, 0], at[span, :, 1]] for span in (slice(None, -1), slice(1, None)))
    blocks = received[at[1:, :, 0], at[1:, :, 1]]
    return bool((blocks == before).all()) and bool(
        (received[tuple(at[0].T)] == x[tuple(at[0].T)]).all() and blocks.shape == after.shape
    )


@pytest.mark.parametrize("seed", range(12))
def test_each_stage_gets_what_the_one_before_it_had(seed: int) -> None:
    way = drawn(np.random.default_rng(seed))
    program = onward.stage_transfer_program(way, 5)
    assert arrived(way, program)
    (turn,) = program.strands[0]
    assert isinstance(turn, Round)
    (send,) = turn.steps
    assert isinstance(send, SendInstruction)
    wrong = replace(send, target=replace(send.target, row=(send.target.row + 1) % program.rows))
    if program.rows > 1:
        assert not arrived(way, replace(program, strands=((Round((wrong,)),),)))


def test_stages_are_apart_and_next_to_one_another() -> None:
    for seed in range(20):
        way = drawn(np.random.default_rng(seed))
        at, beside = stage_cores(way)
        assert len(np.unique(at.reshape(-1, 2), axis=0)) == way.stages * way.cores
        high, wide = group_sides(way.placement, way.cores)
        moved = np.abs(np.diff(at, axis=0))
        assert (moved == np.where(np.array(beside)[:, None, None], (0, wide), (high, 0))).all()
        assert at[..., 0].max() < way.high


@pytest.mark.parametrize("routing", ROUTED)
def test_a_way_from_stage_to_stage_takes_its_closed_form(routing: str) -> None:
    """Locked routes take it exactly; of a wormhole's, short ones overlap a little. Both on random shapes."""
    fabric, gaps, rng = ROUTED[routing], list[float](), np.random.default_rng(3)
    for _ in range(60):
        way, words = drawn(rng), int(rng.integers(1, 400))
        nbytes = words * way.cores * int(fabric.word_bytes)
        closed = onward.stage_transfer_time(way, float(nbytes), fabric)
        played = stage_arrivals(
            way, simulate_events(onward.stage_transfer_program(way, nbytes // way.cores), fabric).ready["x"]
        )
        gaps += [abs(float(closed.mean) / played.mean - 1), abs(float(closed.slowest) / played.slowest - 1)]
    assert np.quantile(gaps, 0.9) < 0.15
    assert np.median(gaps) < (1e-9 if routing == "locked" else 0.05)


def test_routers_take_what_links_do() -> None:
    for seed in range(4):
        way, fabric = drawn(np.random.default_rng(seed)), WORMHOLE._replace(cycle=1.0, vcs=4, depth=8)
        program = onward.stage_transfer_program(way, 300)
        flits, links = (stage_arrivals(way, simulate(program, fabric).ready["x"]) for simulate in (by_cycles, simulate_events))
        assert flits.slowest == pytest.approx(links.slowest, rel=0.15)


def gathering(rings: GroupRings, placement: str, rows: int, program: Program | None = None) -> bool:
    """Whether all cores end with all slices."""
    slots = (Buffer("x", (rings.row.size * rows, 2), depth=2),)
    program = program or Program(*group_sides(placement, rings.row.size), slots, (ring.allgather_rounds(rings, "x", rows),))
    x = np.random.default_rng(rows).normal(size=(rings.row.size, rows, 2)).astype(np.float32)
    tiles = np.zeros((program.rows, program.cols, *slots[0].shape), np.float32)
    for place, (row, col) in enumerate(zip(rings.row.ravel(), rings.col.ravel(), strict=True)):
        tiles[row, col, place * rows : (place + 1) * rows] = x[place]
    received = by_numbers(program, {"x": tiles})["x"][rings.row.ravel(), rings.col.ravel()]
    return bool((received == x.reshape(1, -1, 2)).all())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("cores", CORES[1:])
def test_slices_and_sums_go_around(placement: str, cores: int) -> None:
    group, rows = place_group(placement, cores), 3
    assert gathering(group, placement, rows)
    slots = (Buffer("x", (cores * rows, 2), depth=2),)
    program = Program(*group_sides(placement, cores), slots, (ring.reduce_scatter_rounds(group, "x", rows),))
    x = np.random.default_rng(cores).normal(size=(program.rows, program.cols, cores * rows, 2)).astype(np.float32)
    received = by_numbers(program, {"x": x})["x"][group.row.ravel(), group.col.ravel()].reshape(cores, cores, rows, 2)
    sums = x[group.row.ravel(), group.col.ravel()].sum(axis=0).reshape(cores, rows, 2)
    assert np.allclose(received[np.arange(cores), np.arange(cores)], sums, atol=1e-4)


def test_a_slice_to_another_core_is_noticed() -> None:
    group = place_group("ring", 8)
    first, *others = ring.allgather_rounds(group, "x", 3)
    (send,) = first.steps
    assert isinstance(send, SendInstruction)
    wrong = Round((replace(send, target=replace(send.target, row=1 - send.target.row)),))
    program = Program(2, 4, (Buffer("x", (24, 2), depth=2),), ((wrong, *others),))
    assert not gathering(group, "ring", 3, program)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PLACEMENTS), st.sampled_from(CORES[1:]), st.integers(1, 4000), st.sampled_from(sorted(ROUTED)), st.data()
)
def test_a_way_around_a_group_takes_its_closed_form(placement: str, cores: int, words: int, routing: str, data: Any) -> None:
    fabric: MeshFabric = ROUTED[routing]
    times, nbytes = data.draw(st.sampled_from([1, 2])), words * int(fabric.word_bytes)
    closed = times * ring.ring_seconds(placement, cores, float(nbytes), fabric)
    assert closed == pytest.approx(
        simulate_events(ring.ring_program(placement, cores, nbytes, times), fabric).seconds, rel=0.15
    )
