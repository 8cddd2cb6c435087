"""Collectives: closed forms are their programs played where nothing is contended, and other traffic makes nothing faster."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.collective import ALLREDUCE, EXCHANGES, TEAMS
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.device_links import DeviceGroupLinks
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    MulticastInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
)
from dse.space.chip import TOPOLOGIES
from dse.space.workload import DIE_EXCHANGES as EXCHANGED
from dse.space.workload import TILE_PATTERNS
from dse.testing.functional_simulator import run_program as computed
from tests.agreement.test_closed import same
from tests.agreement.test_events import CYCLES, DMA, SLOW
from tests.agreement.test_strands import ENGINES
from tests.evaluators.test_teams import cuts
from tests.marks import slow_if

ADDING = DMA._replace(combine=0.5, operation=1 / 16, call=3.0)
"""Where the engine adds what arrives, and takes what `ENGINES` does to turn a tile."""

FABRICS = st.sampled_from([CYCLES, SLOW, DMA, ADDING])


@slow_if(
    lambda name, pattern: (pattern == "reduce" and name != "sequential") or (pattern == "allreduce" and name != "hardware")
)
@pytest.mark.sampled
@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
@given(cuts(), st.integers(1, 200), FABRICS)
@settings(max_examples=40)
def test_the_closed_form_of_a_team_is_its_program_played(
    name: str, pattern: str, cut: tuple, elements: int, fabric: MeshFabric
) -> None:
    mesh, how = cut
    shape, kernel = GemmShape(elements, 1, 1), TEAMS[name]
    closed = kernel.cost(shape, mesh, fabric, pattern=pattern, **how)
    program = kernel.build_program(shape, mesh, "float16", pattern=pattern, **how)
    assert closed.seconds == pytest.approx(simulate_events(program, fabric).seconds, rel=1e-9)
    same(closed.activity, count_activity(program))


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", EXCHANGED)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 400), FABRICS)
@settings(max_examples=20)
def test_the_closed_form_of_rings_is_their_program_played(
    topology: str, pattern: str, rows: int, cols: int, elements: int, fabric: MeshFabric
) -> None:
    shape, mesh, how = GemmShape(elements, 1, 1), CoreMesh(rows, cols), {"pattern": pattern, "topology": topology}
    closed = EXCHANGES["rings"].cost(shape, mesh, fabric, **how)
    program = EXCHANGES["rings"].build_program(shape, mesh, "float16", **how)
    assert closed.seconds == pytest.approx(simulate_events(program, fabric).seconds, rel=1e-9)
    same(closed.activity, count_activity(program))


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", EXCHANGED)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 400), st.sampled_from([DMA, ADDING]))
@settings(max_examples=20)
def test_direct_exchange_is_its_closed_form_where_all_are_linked_and_at_least_that_elsewhere(
    topology: str, pattern: str, rows: int, cols: int, elements: int, fabric: MeshFabric
) -> None:
    shape, mesh, how = GemmShape(elements, 1, 1), CoreMesh(rows, cols), {"pattern": pattern, "topology": topology}
    closed = EXCHANGES["direct"].cost(shape, mesh, fabric, **how)
    program = EXCHANGES["direct"].build_program(shape, mesh, "float16", **how)
    played = simulate_events(program, fabric, engines=ENGINES).seconds
    assert closed.seconds == pytest.approx(played, rel=1e-9) if topology == "full" else closed.seconds <= played * (1 + 1e-9)
    same(closed.activity, count_activity(program))


@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
def test_a_batch_of_teams_is_its_singles(name: str, pattern: str) -> None:
    sides, stage = np.array([1.0, 2.0, 8.0, 8.0, 32.0]), np.array([10.0, 20.0, 30.0, 40.0, 50.0])
    sizes = np.array([[16.0], [4096.0]])
    kernel, fabric = TEAMS[name], ADDING
    many = kernel.cost(
        GemmShape(sizes, 1, 1), CoreMesh(32, 32), fabric._replace(stage=stage), pattern=pattern, rows=sides, cols=sides
    )
    for place in np.ndindex(2, 5):
        side = int(sides[place[1]])
        cost = kernel.cost(
            GemmShape(sizes[place[0], 0], 1, 1),
            CoreMesh(32, 32),
            fabric._replace(stage=stage[place[1]]),
            pattern=pattern,
            rows=side,
            cols=side,
        )
        assert many.seconds[place] == pytest.approx(cost.seconds, rel=1e-12)
        assert np.broadcast_to(many.activity.hop_bytes, (2, 5))[place] == cost.activity.hop_bytes


@pytest.mark.parametrize("pattern", EXCHANGED)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_batch_of_exchanges_is_its_singles(name: str, pattern: str) -> None:
    rows, cols = np.array([1.0, 2.0, 5.0, 8.0]), np.array([7.0, 2.0, 4.0, 1.0])
    for topology in TOPOLOGIES:
        how = {"pattern": pattern, "topology": topology}
        many = EXCHANGES[name].cost(GemmShape(1000, 1, 1), CoreMesh(rows, cols), ADDING, **how)
        ones = [
            EXCHANGES[name].cost(GemmShape(1000, 1, 1), CoreMesh(int(r), int(c)), ADDING, **how)
            for r, c in zip(rows, cols, strict=True)
        ]
        assert many.seconds.tolist() == [cost.seconds for cost in ones]
        assert many.activity.hop_bytes.tolist() == [cost.activity.hop_bytes for cost in ones]


def links(peers: int) -> tuple[DeviceGroupLinks, MeshFabric]:
    """Of dies, and the same as a network of cores."""
    free = dict.fromkeys(("stage", "copy", "post", "ramp", "launch", "call", "mac", "operation", "special"), 0.0)
    return DeviceGroupLinks(float(peers), 1e9, 1e-6, "hop"), MeshFabric(hop=1e-6, word=4e-9, word_bytes=4, **free)


@pytest.mark.parametrize("name", sorted(set(ALLREDUCE) - {"bidirectional_ring"}))
@pytest.mark.parametrize("peers", [1, 2, 3, 5, 6, 8, 12, 15, 16])
def test_an_allreduce_between_dies_is_its_program_played(name: str, peers: int) -> None:
    """But of two directions: halves of one slot, which has one time at which it is ready, are played one after the other."""
    between, fabric = links(peers)
    kernel = ALLREDUCE[name]
    assert kernel.cost(4.0 * 240, between).seconds == pytest.approx(
        simulate_events(kernel.build_program(240, peers), fabric).seconds, rel=1e-9
    )


def test_a_line_that_closes_is_gone_along_the_shorter_way() -> None:
    for topology, hops in (("mesh", 6), ("torus", 1)):
        slots = (Buffer("x", (20, 1), depth=2),)
        step = SendInstruction(
            "x", CoreIndex(np.array([0]), np.array([0])), CoreIndex(np.array([0]), np.array([6])), np.asarray(0), np.asarray(20)
        )
        program = Program(1, 7, slots, ((Round((step,)),),), topology)
        assert simulate_events(program, CYCLES).seconds == 2 * CYCLES.ramp + hops * CYCLES.hop + 20
        assert count_activity(program).hop_bytes == 80 * hops


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 35), st.booleans())
def test_a_tree_on_a_torus_reaches_all_by_the_shorter_ways(rows: int, cols: int, root: int, back: bool) -> None:
    """As far as half of each side, and every link once: a tree has as many as members beside its root."""
    root %= rows * cols
    places = np.array([root, *(place for place in range(rows * cols) if place != root)])
    path = CoreIndex(places[None] // cols, places[None] % cols)
    ends = np.asarray(0), np.asarray(20)
    step: Any = ReduceInstruction("x", path, *ends, "x", via="router") if back else MulticastInstruction("x", path, *ends, "x")
    program = Program(rows, cols, (Buffer("x", (20, 1)),), ((Round((step,)),),), "torus")
    expected = 2 * CYCLES.ramp + (rows // 2 + cols // 2) * CYCLES.hop + 20 if rows * cols > 1 else 0
    assert simulate_events(program, CYCLES).seconds == expected
    assert count_activity(program).hop_bytes == 80 * (rows * cols - 1)


@pytest.mark.parametrize("step", ["multicast", "reduce", "relay"])
def test_what_a_full_mesh_cannot_carry_is_refused(step: str) -> None:
    program = TEAMS["tree" if step == "relay" else "hardware"].build_program(
        GemmShape(4, 1, 1), CoreMesh(2, 2), "float16", pattern="reduce" if step == "reduce" else "multicast", rows=2, cols=2
    )
    if step == "relay":
        (turn, *rest) = program.strands[0]
        program = replace(program, strands=((Round((replace(turn.steps[0], via="relay"),)), *rest),))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every pair is linked"):
        simulate_events(replace(program, topology="full"), CYCLES)


COLLECTIVES = [*((name, pattern) for name in TEAMS for pattern in TILE_PATTERNS)]
COLLECTIVES += [(name, pattern) for name in EXCHANGES for pattern in EXCHANGED]
LONG_TRAFFIC = {
    "tree": {"allreduce"},
    "sequential": {"reduce", "allreduce"},
    "rings": {"reduce_scatter", "allreduce", "all_to_all"},
    "direct": {"all_to_all"},
}
"""Patterns that take long beside other traffic, by algorithm."""

Pairs = list[tuple[int, int, int, int, int]]


def alone(name: str, pattern: str, mesh: CoreMesh) -> Program:
    """A collective on a whole mesh."""
    shape = GemmShape(240, 1, 1)
    if name in TEAMS:
        return TEAMS[name].build_program(shape, mesh, "float16", pattern=pattern, rows=mesh.rows, cols=mesh.cols)
    return EXCHANGES[name].build_program(shape, mesh, "float16", pattern=pattern)


def background(mesh: CoreMesh, pairs: Pairs) -> tuple[tuple[Buffer, ...], tuple[Round, ...]]:
    """Messages between other tiles of the same cores, one round each."""
    slots = Buffer("from", (200, 1), "float16"), Buffer("to", (200, 1), "float16")
    rounds = []
    for r, c, to_r, to_c, length in pairs:
        source, other = (CoreIndex(np.array([a % mesh.rows]), np.array([b % mesh.cols])) for a, b in ((r, c), (to_r, to_c)))
        rounds.append(Round((SendInstruction("from", source, other, np.asarray(0), np.asarray(length), into="to"),)))
    return slots, tuple(rounds)


traffic = st.lists(st.tuples(*[st.integers(0, 11)] * 4, st.integers(1, 200)), min_size=1, max_size=12)
meshes = st.builds(CoreMesh, st.integers(2, 5), st.integers(2, 6))


@slow_if(lambda name, pattern: pattern in LONG_TRAFFIC.get(name, ()))
@pytest.mark.sampled
@pytest.mark.parametrize(("name", "pattern"), COLLECTIVES)
@given(meshes, traffic, st.booleans())
@settings(max_examples=15)
def test_other_traffic_makes_nothing_faster_and_changes_no_result(
    name: str, pattern: str, mesh: CoreMesh, pairs: Pairs, first: bool
) -> None:
    program = alone(name, pattern, mesh)
    slots, rounds = background(mesh, pairs)
    strands = (rounds, *program.strands) if first else (*program.strands, rounds)
    together = replace(program, slots=program.slots + slots, strands=strands)
    other = Program(mesh.rows, mesh.cols, slots, (rounds,))
    fabric = ADDING

    crowded, free, others = simulate_events(together, fabric), simulate_events(program, fabric), simulate_events(other, fabric)
    assert all((crowded.ready[slot.name] >= free.ready[slot.name] - 1e-9).all() for slot in program.slots)
    assert crowded.seconds >= max(free.seconds, others.seconds) - 1e-9
    counted = count_activity(program) + count_activity(other)
    same(
        crowded.activity,
        Activity(**{name: getattr(counted, name) for name in ("macs", "sent_bytes", "hop_bytes", "elements", "spread_bytes")}),
    )
    rng = np.random.default_rng(len(pairs))
    x = {slot.name: rng.integers(-9, 9, (mesh.rows, mesh.cols, *slot.shape)).astype(np.float32) for slot in program.slots}
    assert all((computed(together, x)[slot.name] == computed(program, x)[slot.name]).all() for slot in program.slots)


@pytest.mark.sampled
@pytest.mark.parametrize("pattern", TILE_PATTERNS)
@pytest.mark.parametrize("name", TEAMS)
@given(meshes, traffic, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_whatever_the_order_no_link_carries_more_than_it_can(
    name: str, pattern: str, mesh: CoreMesh, pairs: Pairs, random: Any
) -> None:
    program = alone(name, pattern, mesh)
    busiest = 0
    for _ in range(3):
        random.shuffle(pairs)
        slots, rounds = background(mesh, pairs)
        together = replace(program, slots=program.slots + slots, strands=(*program.strands, rounds))
        load = Counter[tuple[tuple[int, int], tuple[int, int]]]()
        for r, c, to_r, to_c, length in pairs:
            load.update(dict.fromkeys(crossed((r, c), (to_r, to_c), mesh), -(-2 * length // 4)))
        busiest = max(load.values(), default=0)
        assert simulate_events(together, ADDING).seconds >= max(busiest, simulate_events(program, ADDING).seconds)


def crossed(source: tuple[int, int], target: tuple[int, int], mesh: CoreMesh) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Links of a way: to the target's column first."""
    (r, c), (to_r, to_c) = ((a % mesh.rows, b % mesh.cols) for a, b in (source, target))
    across = [(r, col) for col in range(c, to_c, 1 if to_c > c else -1)]
    down = [(row, to_c) for row in range(r, to_r, 1 if to_r > r else -1)]
    return list(pairwise([*across, *down, (to_r, to_c)]))
