"""The events reader against what is known of single messages, of published collectives, and of itself."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV, ktree
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Loop, MultiplyInstruction, Program, Round, SendInstruction

CYCLES = MeshFabric(
    hop=1.0, stage=1.0, word=1.0, copy=0.0, post=0.0, ramp=2.0, launch=0.0, call=0.0, mac=0.25, operation=0.5, special=16.0,
    word_bytes=4,
)  # fmt: skip
"""Cycles of WSE-2's fabric: one hop, one addition on the way, one word, and a ramp of 2 ([luczynski2024])."""

SLOW = CYCLES._replace(stage=14.0, copy=3.0, post=84.0, launch=138.0, call=3.0, mac=0.48)
"""With software that takes its time, about as `chip=wse2` has it; its engines move words themselves."""

DMA = SLOW._replace(copy=0.0, post=20.0)
"""Where words move beside the products."""


def core(row: int, col: int) -> CoreIndex:
    return CoreIndex(np.array([row]), np.array([col]))


def sends(mesh: CoreMesh, *pairs: tuple[tuple[int, int], tuple[int, int], int], via: str = "router") -> Program:
    """Messages of some words between cores, all at once."""
    slots = (Buffer("x", (64, 1), depth=2), Buffer("y", (64, 1), depth=2))
    steps = [
        SendInstruction("x", core(*source), core(*target), np.asarray(0), np.asarray(words), into="y", via=via)
        for source, target, words in pairs
    ]
    return Program(mesh.rows, mesh.cols, slots, ((Round(tuple(steps)),),))


places = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(places, places, st.integers(1, 64))
def test_a_lone_message_takes_ramps_hops_and_words(source: tuple[int, int], target: tuple[int, int], words: int) -> None:
    hops = abs(source[0] - target[0]) + abs(source[1] - target[1])
    expected = SLOW.post + 2 * SLOW.ramp + hops * SLOW.hop + words * SLOW.pace if hops else 0.0
    assert simulate_events(sends(CoreMesh(7, 7), (source, target, words)), SLOW).seconds == pytest.approx(expected)


@given(st.integers(3, 24), st.data())
@settings(max_examples=40)
def test_messages_that_cross_one_another_take_what_the_busiest_link_carries(cores: int, data: Any) -> None:
    """Everyone sends some places along a line: who comes to a link first takes it first, whoever is first in the arrays."""
    far, words = data.draw(st.integers(1, cores - 1)), data.draw(st.integers(20, 64))
    order = np.array(data.draw(st.permutations(range(cores - far))))
    line, slots = np.zeros_like(order), (Buffer("x", (64, 1)), Buffer("y", (64, 1)))
    send = SendInstruction(
        "x", CoreIndex(line, order), CoreIndex(line, order + far), np.asarray(0), np.asarray(words), into="y"
    )
    expected = 2 * CYCLES.ramp + far * CYCLES.hop + min(far, cores - far) * words * CYCLES.word
    assert simulate_events(Program(1, cores, slots, ((Round((send,)),),)), CYCLES).seconds == pytest.approx(expected, abs=cores)


@given(places, places, st.integers(1, 64))
def test_a_relay_pays_everything_at_each_hop(source: tuple[int, int], target: tuple[int, int], words: int) -> None:
    hops = abs(source[0] - target[0]) + abs(source[1] - target[1])
    launch = SLOW.launch + SLOW.stage + 2 * SLOW.ramp + SLOW.hop + words * SLOW.pace
    assert simulate_events(sends(CoreMesh(7, 7), (source, target, words), via="relay"), SLOW).seconds == pytest.approx(
        hops * launch
    )


def test_messages_that_share_a_link_take_turns() -> None:
    together = simulate_events(sends(CoreMesh(1, 4), ((0, 0), (0, 2), 40), ((0, 1), (0, 3), 40)), CYCLES).seconds
    apart = simulate_events(sends(CoreMesh(1, 4), ((0, 0), (0, 1), 40), ((0, 2), (0, 3), 40)), CYCLES).seconds
    assert together >= apart + 40 - 2
    assert apart == 40 + 1 + 4


def test_two_messages_from_one_core_share_its_ramp() -> None:
    seconds = simulate_events(sends(CoreMesh(1, 3), ((0, 1), (0, 0), 40)), CYCLES).seconds
    assert simulate_events(sends(CoreMesh(1, 3), ((0, 1), (0, 0), 40), ((0, 1), (0, 2), 40)), CYCLES).seconds == seconds + 40


def without_product(program: Program, rounds: slice) -> Program:
    return replace(program, strands=(program.strands[0][rounds],))


@pytest.mark.parametrize("words", [1, 20, 256])
@pytest.mark.parametrize("cores", [2, 4, 16, 64, 512])
def test_a_chain_takes_what_is_published_for_this_fabric(cores: int, words: int) -> None:
    """B + (2 T_R + 2)(P - 1) cycles, validated on hardware by [luczynski2024]."""
    program = GEMV["pipeline"].build_program(GemmShape(1, cores, words), CoreMesh(cores, 1), broadcast=False)
    assert simulate_events(without_product(program, slice(1, None)), CYCLES).seconds == words + 6 * (cores - 1)


@pytest.mark.parametrize("words", [1, 20, 256])
@pytest.mark.parametrize("cores", [4, 16, 64, 512])
def test_a_broadcast_takes_what_is_published_for_this_fabric(cores: int, words: int) -> None:
    """B + P + 2 T_R cycles; ours is one below, since P cores are P - 1 hops apart."""
    program = GEMV["pipeline"].build_program(GemmShape(1, cores, words), CoreMesh(cores, 1))
    assert simulate_events(without_product(program, slice(2, None)), CYCLES).seconds == words + cores + 4 - 1


@given(st.integers(2, 200), st.integers(1, 4), st.integers(1, 40))
@settings(max_examples=40)
def test_a_tree_is_its_stages_and_gaps(side: int, phases: int, words: int) -> None:
    """Phase by phase: the longer arm of each group, a stage and its gap at a time, then the words."""
    program = GEMV["ktree"].build_program(GemmShape(1, side, words), CoreMesh(side, 1), phases=phases, broadcast=False)
    ready = dict.fromkeys(range(side), 0.0)
    for level in ktree.phase_groups(side, phases):
        for group, middle in level:
            arms = [group[:middle], group[middle + 1 :][::-1]]
            ends = [ready[int(group[middle])]]
            for arm in arms:
                head, members = None, [*arm.tolist(), int(group[middle])]
                for first_member, after in pairwise(members):
                    start = ready[first_member] if head is None else max(ready[first_member], head)
                    head = start + 2 * SLOW.ramp + abs(after - first_member) * SLOW.hop + SLOW.stage
                if head is not None:
                    ends.append(head + words * SLOW.pace)
            ready[int(group[middle])] = max(ends)
    assert simulate_events(without_product(program, slice(1, None)), SLOW).seconds == pytest.approx(max(ready.values()))


@pytest.mark.parametrize("wait", ["slots", "line", "mesh"])
def test_products_alone_take_their_multiply_adds(wait: str) -> None:
    slots = (Buffer("a", (4, 5)), Buffer("b", (5, 6)), Buffer("c", (4, 6)))
    program = Program(3, 3, slots, ((Loop((Round((MultiplyInstruction("a", "b", "c"),), wait),), 10),),))
    timing = simulate_events(program, SLOW)
    assert timing.seconds == pytest.approx(10 * (SLOW.launch + 20 * SLOW.call + 120 * SLOW.mac))
    assert timing.utilisation == pytest.approx(1.0)


@pytest.mark.sampled
@pytest.mark.parametrize("mesh", [CoreMesh(4, 4), CoreMesh(7, 7), CoreMesh(4, 6), CoreMesh(12, 12)], ids=str)
@pytest.mark.parametrize("name", GEMM)
def test_jumping_over_repetition_changes_nothing(name: str, mesh: CoreMesh) -> None:
    for size in (mesh.chunks, 16 * mesh.chunks):
        program = GEMM[name].build_program(GemmShape(size, size, size), mesh)
        jumped, played = simulate_events(program, SLOW), simulate_events(program, SLOW, jump=False)
        assert jumped.seconds == pytest.approx(played.seconds, rel=1e-9)
        assert jumped.engine_seconds == pytest.approx(played.engine_seconds, rel=1e-9)
        assert jumped.played <= played.played


def test_repetition_is_jumped_where_products_decide() -> None:
    program = GEMM["meshgemm"].build_program(GemmShape(3200, 3200, 3200), CoreMesh(40, 40), "float16")
    assert simulate_events(program, SLOW).played < 20


@pytest.mark.parametrize("name", GEMM)
def test_no_engine_works_more_than_all_the_time(name: str) -> None:
    timing = simulate_events(GEMM[name].build_program(GemmShape(64, 64, 64), CoreMesh(8, 8)), SLOW)
    assert 0 < timing.utilisation <= 1


def test_activity_is_that_of_the_steps() -> None:
    program = GEMM["meshgemm"].build_program(GemmShape(30, 30, 30), CoreMesh(6, 6))
    assert simulate_events(program, SLOW).activity == count_activity(program)


def test_interleaving_beats_the_ring_in_line_on_a_large_mesh() -> None:
    """[he2025] section 7.2: MeshGEMM keeps its engines busy where Cannon and SUMMA wait for long messages."""
    shape, mesh = GemmShape(1200, 1200, 1200), CoreMesh(120, 120)
    used = {
        name: simulate_events(GEMM[name].build_program(shape, mesh, "float16"), SLOW).utilisation
        for name in ("meshgemm", "cannon", "summa")
    }
    assert used["meshgemm"] > 1.08 * max(used["cannon"], used["summa"])


FORMS: list[tuple[str, dict[str, int]]] = [
    ("pipeline", {}), ("ktree", {"phases": 1}), ("ktree", {"phases": 2}), ("ktree", {"phases": 3}), ("ring", {})
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), FORMS, ids=str)
@pytest.mark.parametrize("side", [3, 9, 27, 49, 64, 81])
def test_the_closed_form_of_a_gemv_is_its_program_played(name: str, options: dict[str, int], side: int) -> None:
    shape, mesh = GemmShape(1, 10 * side, 20 * side), CoreMesh(side, side)
    closed = GEMV[name].cost(shape, mesh, SLOW, **options).seconds
    assert closed == pytest.approx(simulate_events(GEMV[name].build_program(shape, mesh, **options), SLOW).seconds, rel=1e-9)


@pytest.mark.sampled
@given(st.sampled_from(FORMS), st.integers(2, 120))
@settings(max_examples=60)
def test_unequal_groups_wait_less_than_the_closed_form_says(form: tuple, side: int) -> None:
    """By less than a stage, its ramps and its gap a phase, and never more."""
    name, options = form
    shape, mesh = GemmShape(1, side, side), CoreMesh(side, 1)
    closed = GEMV[name].cost(shape, mesh, SLOW, **options).seconds
    played = simulate_events(GEMV[name].build_program(shape, mesh, **options), SLOW).seconds
    slack = options.get("phases", 0) * (SLOW.stage + 2 * SLOW.ramp + side * SLOW.hop)
    assert closed - slack - 1e-6 <= played <= closed + 1e-6


@given(st.sampled_from([form for form in FORMS if form[0] != "ring"]), st.integers(1, 60), st.integers(1, 9), st.booleans())
@settings(max_examples=60)
def test_the_closed_form_of_a_gemv_counts_what_its_steps_count(form: tuple, rows: int, cols: int, broadcast: bool) -> None:
    name, options = form
    shape, mesh = GemmShape(1, 3 * rows, 4 * cols), CoreMesh(rows, cols)
    closed = GEMV[name].cost(shape, mesh, SLOW, broadcast=broadcast, **options).activity
    counted = count_activity(GEMV[name].build_program(shape, mesh, broadcast=broadcast, **options))
    assert (closed.macs, closed.sent_bytes, closed.hop_bytes) == (counted.macs, counted.sent_bytes, counted.hop_bytes)


@pytest.mark.parametrize("side", [2, 5, 8])
def test_the_closed_form_of_a_ring_counts_what_its_steps_count(side: int) -> None:
    shape, mesh = GemmShape(1, 3 * side, 4 * side * side), CoreMesh(side, side)
    closed, counted = GEMV["ring"].cost(shape, mesh, SLOW).activity, count_activity(GEMV["ring"].build_program(shape, mesh))
    assert closed.sent_bytes == pytest.approx(counted.sent_bytes)
    assert closed.hop_bytes == pytest.approx(counted.hop_bytes)


@pytest.mark.parametrize(("name", "options"), FORMS, ids=str)
def test_closed_forms_of_a_batch_are_those_of_its_singles(name: str, options: dict[str, int]) -> None:
    sides = np.array([3.0, 16.0, 81.0, 81.0])
    many = GEMV[name].cost(GemmShape(1, 1000, 500), CoreMesh(sides, sides), SLOW, **options)  # type: ignore[arg-type]
    ones = [GEMV[name].cost(GemmShape(1, 1000, 500), CoreMesh(int(s), int(s)), SLOW, **options) for s in sides]
    assert many.seconds.tolist() == [cost.seconds for cost in ones]
    assert many.activity.hop_bytes.tolist() == [cost.activity.hop_bytes for cost in ones]


@given(st.integers(2, 7), st.integers(1, 60))
def test_a_lone_message_that_locks_its_route_on_a_torus_goes_the_short_way(cores: int, words: int) -> None:
    """A request crosses the route, a grant comes back, and the words follow; the last core is one hop away."""
    locked = SLOW._replace(locked=1.0)
    ring, pair = (
        simulate_events(replace(sends(CoreMesh(1, count), ((0, 0), (0, count - 1), words)), topology="torus"), locked).seconds
        for count in (cores, 2)
    )
    assert ring == pytest.approx(pair)
