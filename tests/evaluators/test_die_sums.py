"""Sums of dies by a ring, in two levels or along a K-tree: who has what at the end, bytes, and what is refused."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import event_die_network as events_dies
from dse.evaluators.cost_models.die_allreduce_model import (
    RING_PASSES,
    ReductionAlgorithm,
    reduction_cost,
    ring_phases,
    tree_phases,
)
from dse.evaluators.cost_models.die_exchange_jobs import make_die_groups
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.machine.die_network import DieNetworkLevel, place_groups
from dse.space.chip import D2D_TOPOLOGIES
from dse.space.errors import DesignError
from dse.space.mapping import GROUP_SUMS
from tests.samples import asked, metrics

SIDES = st.integers(1, 5)
PATTERN = st.sampled_from(list(RING_PASSES))
BOXES = ("chip=h800_ep", "chip.dies.rows=2", "mapping.both.ep=1")
DENSE = ("model=qwen3_1b7", "workload.batch=[64]", "workload.prompt=128", "workload.output=8")


def network(rows: int, cols: int, topology: str = "mesh") -> DieNetworkLevel:
    return DieNetworkLevel(rows, cols, topology, 4, 1e12, 256e-9)


@given(SIDES, SIDES, st.sampled_from(D2D_TOPOLOGIES), PATTERN, st.floats(0.0, 1e8))
@settings(max_examples=40)
def test_levels_of_all_or_of_one_are_the_ring(rows: int, cols: int, topology: str, pattern: str, nbytes: float) -> None:
    given_network, at = network(rows, cols, topology), place_groups("snake", rows, cols, 1, rows * cols)
    ring = reduction_cost(pattern, given_network, at, nbytes, ReductionAlgorithm())
    for size in (1, rows * cols):
        assert reduction_cost(pattern, given_network, at, nbytes, ReductionAlgorithm("two_level", size)) == ring


@given(SIDES, SIDES, st.integers(1, 4), st.integers(1, 3), PATTERN)
@settings(max_examples=40)
def test_all_send_the_same_bytes(rows: int, cols: int, phases: int, groups: int, pattern: str) -> None:
    """But for a tree, of which whole vectors go one way even where slices do the other."""
    given_network, at = network(rows * groups, cols), place_groups("linear", rows * groups, cols, groups, rows * cols)
    each = [
        reduction_cost(pattern, given_network, at, 1e6, ReductionAlgorithm(name, cols, phases)).sent_bytes / 1e6 / groups
        for name in GROUP_SUMS
    ]
    ring, ktree, levels = each
    assert ring == pytest.approx(RING_PASSES[pattern] * (rows * cols - 1))
    assert levels == pytest.approx(ring)
    assert ktree == pytest.approx(ring) if pattern == "allreduce" else ktree >= ring * (1 - 1e-9)


@given(SIDES, SIDES, st.sampled_from(["snake", "linear"]), st.integers(0, 2**31))
@settings(max_examples=40)
def test_two_levels_add_up_all_slices(rows: int, cols: int, placement: str, seed: int) -> None:
    """Each die has the slice of its place in its row, then that of all rows, then the others of its row."""
    dies = rows * cols
    x = np.random.default_rng(seed).normal(size=(dies, cols))
    whole = x.sum(axis=0)
    phases = ring_phases("allreduce", place_groups(placement, rows, cols, 1, dies), ReductionAlgorithm("two_level", cols))
    if len(phases) == 1:
        assert phases[0].at.shape == (1, dies)
        return
    inside, across, again = phases
    place = {die: number for ring in inside.at.tolist() for number, die in enumerate(ring)}
    held = {die: x[ring, place[die]].sum() for ring in inside.at.tolist() for die in ring}
    assert all(len({place[die] for die in ring}) == 1 for ring in across.at.tolist())
    held = {die: sum(held[other] for other in ring) for ring in across.at.tolist() for die in ring}
    held_values = [[held[die] for die in ring] for ring in again.at.tolist()]
    np.testing.assert_allclose(held_values, np.tile(whole, (rows, 1)), atol=1e-12)
    assert (across.share, inside.steps, across.steps) == (1 / cols, cols - 1, 2 * (rows - 1))
    assert all(len(set(np.ravel(ring) % cols)) == 1 for ring in across.at)  # straight up and down


@given(st.integers(2, 30), st.integers(1, 5), PATTERN, st.integers(0, 2**31))
@settings(max_examples=60)
def test_a_tree_adds_up_all_vectors(members: int, phases: int, pattern: str, seed: int) -> None:
    """And slices go where they belong: each message has those of all dies below it, and of no others."""
    at, x = np.arange(members)[None], np.random.default_rng(seed).normal(size=members)
    selected_phases = tree_phases(pattern, at, ReductionAlgorithm("ktree", phases=phases))
    up, back = selected_phases[: len(selected_phases) // 2], selected_phases[len(selected_phases) // 2 :]
    held, below = x.copy(), [{die} for die in range(members)]
    for phase in up:
        assert not set(phase.source) & set(phase.target)
        for source, target, share in zip(phase.source, phase.target, phase.share, strict=True):
            held[target] += held[source]
            assert share == pytest.approx(len(below[source]) / members if pattern == "allgather" else 1.0)
            below[target] |= below[source]
    for phase in back:
        for source, target, share in zip(phase.source, phase.target, phase.share, strict=True):
            held[target] = held[source]
            assert share == pytest.approx(len(below[target]) / members if pattern == "reduce_scatter" else 1.0)
    np.testing.assert_allclose(held, np.full(members, x.sum()), atol=1e-12)


def test_a_message_that_does_not_wait_is_noticed() -> None:
    """A ring across rows that began before those along them were through would be done sooner: the sum of both is met."""
    given_network, at = network(4, 4), place_groups("linear", 4, 4, 1, 16)
    inside, across, again = ring_phases("allreduce", at, ReductionAlgorithm("two_level", 4))
    whole = events_dies.simulate_reduction("allreduce", given_network, at, 1e8, ReductionAlgorithm("two_level", 4)).seconds
    alone = [
        events_dies.simulate_reduction("allreduce", given_network, phase.at, 1e8 * phase.share, ReductionAlgorithm()).seconds
        for phase in (inside, across)
    ]
    assert len(again.at) == 4
    assert whole == pytest.approx(sum(alone), rel=0.01)


def test_levels_are_boxes_or_else_rows() -> None:
    def levels(*words: str) -> ReductionAlgorithm:
        design = asked(*BOXES, *DENSE, "mapping.both.tp=16", "mapping.both.allreduce=two_level", *words).base
        return make_die_groups(design.chip, "linear", 1, 16, 16, 1, sums=("two_level", 2)).sums

    assert levels("chip.nodes.size=4") == ReductionAlgorithm("two_level", 4)
    assert levels("chip.nodes=null", "chip.dies.rows=8", "chip.dies.cols=2") == ReductionAlgorithm("two_level", 2)


def test_levels_spare_the_slow_network_its_steps() -> None:
    """Sixteen dies of two boxes: a ring waits for the network between boxes at every step, two levels at two of them."""
    times = {name: metrics(*BOXES, *DENSE, "mapping.both.tp=16", f"mapping.both.allreduce={name}") for name in GROUP_SUMS}
    assert times["two_level"]["tpot"] < 0.8 * times["ring"]["tpot"]
    assert times["ktree"]["tpot"] < times["two_level"]["tpot"]


def test_phases_may_differ() -> None:
    words = (*BOXES, *DENSE, "mapping.both.tp=16")
    ring, tree_ = (metrics(*words, f"mapping.both.allreduce={name}") for name in ("ring", "ktree"))
    mixed = metrics(*words, "mapping.prefill.allreduce=ring", "mapping.decode.allreduce=ktree")
    assert (mixed["ttft"], mixed["tpot"]) == (ring["ttft"], tree_["tpot"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("mapping.both.tp=1", "mapping.both.allreduce=ktree"), r"allreduce: has no effect with mapping\.prefill\.tp=1"),
        (("mapping.both.tp=4", "mapping.both.ktree_k=3"), r"ktree_k: has no effect with mapping\.prefill\.allreduce=ring"),
        (("mapping.both.tp=1", "+space.mapping.both.allreduce=choice(ring,ktree)"), r"space\..*allreduce: has no effect with"),
        (("mapping.both.tp=4", "mapping.both.allreduce=tree"), "no option 'tree'"),
    ],
)
def test_sums_that_nobody_adds_up_are_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        asked(*BOXES, *DENSE, *words)


@pytest.mark.parametrize(("tp", "batch"), [(12, 60), (4, 64), (8, 64)])
def test_boxes_that_share_a_copy_unevenly_or_have_it_whole_have_no_levels(tp: int, batch: int) -> None:
    """A copy inside one box would be one ring by another name."""
    words = (
        *BOXES,
        "model=qwen3_1b7",
        f"workload.batch=[{batch}]",
        "workload.prompt=128",
        "workload.output=8",
        f"mapping.both.tp={tp}",
    )
    question = asked(*words, "mapping.both.allreduce=two_level")
    infeasibility = explain_infeasibility(question.base, question.workload)
    assert infeasibility is not None
    assert infeasibility.limit == "mapping.prefill.allreduce"
    assert "allreduce=ring or ktree" in str(infeasibility)


def test_a_space_has_no_sums_without_tensor_parallelism() -> None:
    """Of tp = 1 one design, of 2 a ring, two levels, and trees of two depths."""
    question = asked(
        *BOXES, *DENSE, "mapping.both.tp=2", "+space.mapping.both.tp=choice(1,2)",
        "+space.mapping.both.allreduce=choice(ring,two_level,ktree)", "+space.mapping.both.ktree_k=choice(1,2)",
    )  # fmt: skip
    columns = question.space.grid(0, question.space.combinations or 0)
    rows = [question.space.row(columns, place) for place in range(len(columns["mapping.both.tp"]))]
    assert len(rows) == len({question.space.key_at(row) for row in rows}) == 1 + 4
    assert all(question.space.canonical(row) == row for row in rows)


@given(
    st.integers(2, 5),
    st.integers(1, 4),
    st.randoms(),
    st.floats(1e9, 1e12),
    st.floats(1e9, 1e12),
    st.sampled_from(list(RING_PASSES)),
)
@settings(max_examples=60, deadline=None)
def test_a_ring_over_links_of_two_kinds_is_its_slices_one_by_one(
    boxes: int, size: int, draw: random.Random, inside: float, outside: float, pattern: str
) -> None:
    """Each edge sends a slice when it has sent the one before it and has the next; of switches, where no two share a link."""
    order = list(range(boxes * size))
    draw.shuffle(order)
    near, far = (np.array([inside, 2 * inside]), 3e-7), (np.array([outside, outside / 3]), 2e-6)
    outer = DieNetworkLevel(boxes, size, "switch", 1, *far, start=1e-6)
    level = DieNetworkLevel(boxes, size, "switch", 1, *near, box=size, outer=outer)
    seconds = reduction_cost(pattern, level, np.array([order]), 4e6, ReductionAlgorithm()).seconds
    for design in range(2):
        slices, dies = 4e6 / len(order), zip(order, [*order[1:], order[0]], strict=True)
        apart = np.array([a // size != b // size for a, b in dies])
        taken = np.where(apart, slices / far[0][design], slices / near[0][design])
        way = np.where(apart, 2 * far[1] + 1e-6, 2 * near[1])
        begun = np.zeros(len(order))
        for _ in range(RING_PASSES[pattern] * (len(order) - 1) - 1):
            begun = np.maximum(begun + taken, np.roll(begun + taken + way, 1))
        assert seconds[design] == pytest.approx((begun + taken + way).max(), rel=1e-9)
