"""Routers of dies flit by flit: that none wait for one another, what few credits cost, and which links packets take."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import cycle_die_network as cycles_dies
from dse.evaluators.cost_models import die_exchange_model as closed
from dse.evaluators.cost_models import event_die_network as events
from dse.evaluators.machine.die_network import DieNetworkLevel, max_ports
from dse.space.chip import D2D_TOPOLOGIES
from dse.space.errors import DesignError


@pytest.mark.sampled
@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(D2D_TOPOLOGIES), st.floats(0.3, 3.0), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_packets_never_wait_in_a_circle(rows: int, cols: int, topology: str, trips: float, deep: bool, held: bool) -> None:
    """Nor is anything quicker than the busiest link; of a few flits of room, as of as many as there are."""
    dies, links = rows * cols, (1e12, 100e-9)
    level = DieNetworkLevel(rows, cols, topology, max(int(max_ports(rows, cols, topology)), 1), *links)
    at, floor = np.arange(dies)[None], closed.all_to_all_cost(level, np.arange(dies)[None], 1e5 * dies)
    few = level if deep else level._replace(credits=trips * 2e-7 * 1e12)
    seconds = events.simulate_all_to_all(few, at, 1e5 * dies, held=held, play=cycles_dies.simulate_messages).seconds
    assert seconds >= max(floor.links, floor.hops * level.latency) * 0.97  # flits are whole


def test_links_with_few_credits_take_what_routers_with_as_many_take() -> None:
    """From a third of a round trip's credits to three, where memory takes what comes: nobody waits behind another there."""
    rng, apart = np.random.default_rng(3), []
    for number in range(60):
        topology = D2D_TOPOLOGIES[number % 5]
        rows, cols = int(rng.integers(1, 7)), int(rng.integers(2, 7))
        dies, trips, each = rows * cols, rng.uniform(0.3, 3.0), 10 ** rng.uniform(3.5, 4.7)
        ports = int(rng.integers(1, 5)) if topology == "switch" else int(max_ports(rows, cols, topology))
        level = DieNetworkLevel(rows, cols, topology, ports, 1e12, 1e-7, credits=trips * 2e-7 * 1e12)
        played, routed = (
            events.simulate_all_to_all(level, np.arange(dies)[None], each * dies, play=play).seconds
            for play in (events.simulate_messages, cycles_dies.simulate_messages)
        )
        apart.append(abs(played / routed - 1))
    assert np.median(apart) < 0.01
    assert np.percentile(apart, 95) < 0.05
    assert np.max(apart) < 0.1


@pytest.mark.parametrize("topology", D2D_TOPOLOGIES)
def test_one_message_takes_its_links_one_after_the_other(topology: str) -> None:
    """Nothing else is there: bytes at the slowest of the links, and each hop's latency."""
    level = DieNetworkLevel(3, 4, topology, max(int(max_ports(3, 4, topology)), 1), 1e11, 3e-7)
    for target in range(1, 12):
        messages = events.simulate_messages(level, np.array([0]), np.array([target]), np.array([1e6]))
        routed = cycles_dies.simulate_messages(level, np.array([0]), np.array([target]), np.array([1e6]))
        hops = np.count_nonzero(messages.links)
        assert routed.links == pytest.approx(messages.links)
        assert routed.seconds == pytest.approx(
            1e6 / level.line + hops * level.latency, rel=0.1
        )  # 32 flits, each whole at a hop


def test_more_flits_than_can_be_played_are_refused_in_one_line() -> None:
    level = DieNetworkLevel(2, 2, "mesh", 4, 1e12, 256e-9, credits=64.0)
    with pytest.raises(DesignError, match=r"cycles can simulate 40,000,000 flits over links, got [0-9,]+; use fidelity=events"):
        events.simulate_all_to_all(level, np.arange(4)[None], 1e8, play=cycles_dies.simulate_messages)
