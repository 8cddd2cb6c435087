"""Dies and links between them: ways, loads and placements on random shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.die_allreduce_model import RING_PASSES, ReductionAlgorithm, reduction_cost
from dse.evaluators.cost_models.die_exchange_model import all_to_all_cost, hierarchical_cost, stage_transfer_cost
from dse.evaluators.machine.die_network import DieNetworkLevel, die_routes, group_rectangle, link_loads, max_ports, place_groups
from dse.space.chip import D2D_TOPOLOGIES
from dse.space.errors import DesignError
from dse.space.mapping import DIE_PLACEMENTS

SIDES = st.integers(1, 7)
TOPOLOGY = st.sampled_from(D2D_TOPOLOGIES)
PLACEMENT = st.sampled_from(DIE_PLACEMENTS)


def network(rows: int, cols: int, topology: str = "mesh", **other: float) -> DieNetworkLevel:
    return DieNetworkLevel(rows, cols, topology, 4, 1e12, 256e-9, barrier=2e-6)._replace(**other)


@given(SIDES, SIDES, TOPOLOGY)
@settings(max_examples=60)
def test_ways_lead_from_each_die_to_each_other_one_and_are_shortest(rows: int, cols: int, topology: str) -> None:
    routes, dies = die_routes(rows, cols, topology), rows * cols
    links: dict[int, set[int]] = {}
    for source, target in routes.ends.tolist():
        links.setdefault(source, set()).add(target)
    for source in range(dies):
        apart, ring = {source: 0}, [source]
        while ring:
            ring = [to for at in ring for to in links.get(at, ()) if apart.setdefault(to, apart[at] + 1) == apart[at] + 1]
            ring = sorted(set(ring))
        for target in range(dies):
            pair = source * dies + target
            way = routes.ends[routes.over[routes.first[pair] : routes.first[pair + 1]]]
            assert len(way) == apart[target]
            assert [source, *way[:, 1].tolist()] == [*way[:, 0].tolist(), target]


@given(SIDES, SIDES, TOPOLOGY)
@settings(max_examples=30)
def test_no_die_has_more_links_than_the_ports_that_are_asked_for(rows: int, cols: int, topology: str) -> None:
    routes = die_routes(rows, cols, topology)
    dies = rows * cols
    if dies > 1:
        assert max(np.bincount(routes.ends[:, 0], minlength=dies)[:dies]) == max_ports(rows, cols, topology)


@given(SIDES, SIDES, PLACEMENT, st.integers(1, 6), st.integers(1, 12))
@settings(max_examples=100)
def test_a_placement_uses_no_die_twice(rows: int, cols: int, placement: str, groups: int, members: int) -> None:
    if groups * members > rows * cols or (placement == "blocks" and not all(group_rectangle(rows, cols, groups, members))):
        with pytest.raises(DesignError):
            place_groups(placement, rows, cols, groups, members)
        return
    at = place_groups(placement, rows, cols, groups, members)
    assert at.shape == (groups, members)
    assert sorted(set(at.ravel().tolist())) == sorted(at.ravel().tolist())
    assert at.min() >= 0
    assert at.max() < rows * cols
    if placement == "blocks":
        down, across = group_rectangle(rows, cols, groups, members)
        assert (np.ptp(at // cols, axis=1) == down - 1).all()
        assert (np.ptp(at % cols, axis=1) == across - 1).all()


def test_a_block_that_does_not_fit_names_the_nearest_that_does() -> None:
    with pytest.raises(DesignError, match="nearest size of a group is 10"):
        place_groups("blocks", 8, 8, 2, 11)


@given(st.integers(1, 8), st.integers(1, 8), st.floats(1.0, 1e9))
@settings(max_examples=50)
def test_the_busiest_link_of_a_block_carries_what_its_longer_side_says(rows: int, cols: int, nbytes: float) -> None:
    def line(side: int) -> float:
        return side / 4 if side % 2 == 0 else (side - 1 / side) / 4

    cost = all_to_all_cost(network(rows, cols), place_groups("linear", rows, cols, 1, rows * cols), nbytes)
    assert cost.busiest == pytest.approx(nbytes * max(line(rows), line(cols)), rel=1e-12, abs=1e-12)
    assert cost.hops == rows + cols - 2
    assert cost.sent_bytes == pytest.approx(nbytes * (rows * cols - 1))
    within = nbytes * (1 - 1 / (rows * cols)) / cost.injection if rows * cols > 1 else 4e12
    assert within == pytest.approx(4e12)
    busy, ways = max(cost.busiest / 1e12, cost.injection), (rows + cols - 2) * 256e-9
    parts = busy + ways + 2e-6 if rows * cols > 1 else 0.0
    assert parts - min(busy, ways) - 1e-12 <= cost.seconds <= parts * (1 + 1e-9)  # a link pauses until late messages come


def test_injection_binds_on_four_dies_whose_own_network_is_as_wide_as_a_link() -> None:
    cost = all_to_all_cost(network(2, 2, inject=1e12), place_groups("blocks", 2, 2, 1, 4), 1e9)
    assert (cost.binds, cost.seconds) == ("injection", pytest.approx(0.75e-3 + 2 * 256e-9 + 2e-6))
    assert all_to_all_cost(network(2, 2), place_groups("blocks", 2, 2, 1, 4), 1e9).binds == "link"


@given(SIDES, SIDES, TOPOLOGY, st.integers(0, 2**31))
@settings(max_examples=60)
def test_loads_are_bytes_times_hops(rows: int, cols: int, topology: str, seed: int) -> None:
    rng, dies = np.random.default_rng(seed), rows * cols
    source, target = rng.integers(0, dies, (2, 40))
    weight = rng.random(40) * rng.integers(0, 2, 40)
    routes = die_routes(rows, cols, topology)
    loads = link_loads(routes, dies, source, target, weight)
    assert loads.links.sum() == pytest.approx(weight @ routes.hops[source * dies + target])
    assert [loads.out.sum(), loads.into.sum()] == pytest.approx(2 * [weight[source != target].sum()])


@pytest.mark.sampled
@given(SIDES, SIDES, TOPOLOGY, st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=40)
def test_an_array_over_designs_is_one_by_one_and_more_bandwidth_is_never_slower(
    rows: int, cols: int, topology: str, groups: int, seed: int
) -> None:
    members = rows * cols // groups
    if not members:
        return
    rng = np.random.default_rng(seed)
    at, shares = place_groups("snake", rows, cols, groups, members), rng.dirichlet(np.ones(members), members)
    nbytes, bandwidth = rng.random(3) * 1e8, np.sort(rng.random(3) * 1e12 + 1e9)
    credits, latency = rng.random(3) * 1e6 * rng.integers(0, 2, 3), rng.random(3) * 1e-6

    def each(level: DieNetworkLevel, size: object) -> list:
        half = len(at[0]) // 2 or 1
        return [
            all_to_all_cost(level, at, size),
            all_to_all_cost(level, at, size, shares),
            *(
                reduction_cost(pattern, level, at, size, by)
                for pattern in RING_PASSES
                for by in (ReductionAlgorithm(), ReductionAlgorithm("ktree", phases=2))
            ),
            reduction_cost("allreduce", level, at[:, : half * (members // half)], size, ReductionAlgorithm("two_level", half)),
            *hierarchical_cost(level, at[:, : half * (members // half)], size, half, 2.0, 4.0),
            stage_transfer_cost(level, at[:, 0], at[:, -1], size),
        ]

    given_network = network(rows, cols, topology)
    many = each(given_network._replace(bandwidth=bandwidth, credits=credits, latency=latency), nbytes)
    for place in range(3):
        single = each(
            given_network._replace(bandwidth=bandwidth[place], credits=credits[place], latency=latency[place]), nbytes[place]
        )
        for a, b in zip(many, single, strict=True):
            assert np.broadcast_to(a.seconds, 3)[place] == pytest.approx(b.seconds, rel=1e-12)
            assert np.broadcast_to(a.binds, 3)[place] == b.binds
    for cost in each(given_network._replace(bandwidth=bandwidth), 1e8):
        assert (np.diff(np.broadcast_to(cost.seconds, 3)) <= 0).all()


@pytest.mark.parametrize("topology", ["mesh", "full", "switch"])
@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_groups_that_are_alike_do_not_slow_each_other(side: int, topology: str) -> None:
    """Blocks of a mesh keep to themselves."""
    members = side * side
    many = all_to_all_cost(network(2 * side, 2 * side, topology), place_groups("blocks", 2 * side, 2 * side, 4, members), 1e8)
    cost = all_to_all_cost(network(side, side, topology), place_groups("blocks", side, side, 1, members), 1e8)
    assert many.seconds == pytest.approx(cost.seconds)
    assert many.sent_bytes == pytest.approx(4 * cost.sent_bytes)


def test_equal_shares_are_even_and_a_wanted_member_is_slower() -> None:
    given_network, at = network(4, 4), place_groups("linear", 4, 4, 1, 16)
    even = all_to_all_cost(given_network, at, 1e8)
    assert all_to_all_cost(given_network, at, 1e8, np.full(16, 1 / 16)) == even
    shares = np.full(16, 1 / 20)
    shares[0] = 5 / 20
    assert all_to_all_cost(given_network, at, 1e8, shares).seconds > 1.2 * even.seconds


def test_few_credits_bound_a_link_by_its_round_trip() -> None:
    at = place_groups("linear", 4, 4, 1, 16)
    cost = all_to_all_cost(network(4, 4, credits=128e3), at, 1e8)
    assert cost.links == pytest.approx(cost.busiest / (128e3 / 512e-9))


def test_a_copy_for_a_node_saves_the_links_between_nodes() -> None:
    """Eight copies, to four nodes of four dies: direct against at most four copies, passed on inside."""
    given_network, at = network(4, 4), place_groups("blocks", 4, 4, 4, 4).reshape(1, 16)
    direct = all_to_all_cost(given_network, at, 8e7)
    between, within = hierarchical_cost(given_network, at, 1e7, 4, between=3.6, within=8.0)
    assert between.busiest < 0.5 * direct.busiest
    assert within.busiest == pytest.approx(0.5 * 8e7)
