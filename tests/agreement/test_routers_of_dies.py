"""Routers of dies whose ends are joined: which ways packets take, that none wait for one another, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.machine.d2d import Level, ports_needed, routes
from dse.evaluators.readers import cycles_dies
from dse.evaluators.readers import die_exchange as closed
from dse.evaluators.readers import events_dies as events
from dse.space.errors import DesignError


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(["torus", "ring"]), st.floats(0.3, 3.0), st.booleans())
@settings(max_examples=30, deadline=None)
def test_routers_whose_ends_are_joined_never_wait_in_a_circle(
    rows: int, cols: int, topology: str, trips: float, deep: bool
) -> None:
    """Nor is anything quicker than the busiest link; of a few flits of room, as of as many as there are."""
    dies, links = rows * cols, (1e12, 100e-9)
    on = Level(rows, cols, topology, max(int(ports_needed(rows, cols, topology)), 1), *links)
    at, floor = np.arange(dies)[None], closed.all_to_all(on, np.arange(dies)[None], 1e5 * dies, barrier=0.0)
    few = on if deep else on._replace(credits=trips * 2e-7 * 1e12)
    found = events.all_to_all(few, at, 1e5 * dies, barrier=0.0, play=cycles_dies.messages).seconds
    assert found >= max(floor.links, floor.hops * on.latency) * 0.97  # flits are whole


def test_links_with_few_credits_take_what_routers_with_as_many_take() -> None:
    """From a third of a round trip's credits to three, whether memory or routers hold what waits.

    Routers are slower where a packet in front of a channel holds those behind it, and where a burst just passes its credits.
    """
    rng, apart = np.random.default_rng(3), []
    for number in range(45):
        topology, held = cycles_dies.LINES[number % 3], bool(rng.integers(2))
        rows, cols = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        dies, trips, each = rows * cols, rng.uniform(0.3, 3.0), 10 ** rng.uniform(3.5, 4.7)
        on = Level(rows, cols, topology, int(ports_needed(rows, cols, topology)), 1e12, 1e-7, credits=trips * 2e-7 * 1e12)
        played, routed = (
            events.all_to_all(on, np.arange(dies)[None], each * dies, barrier=0.0, held=held, play=play).seconds
            for play in (events.messages, cycles_dies.messages)
        )
        apart.append(abs(played / routed - 1))
    assert np.median(apart) < 0.02
    assert np.percentile(apart, 95) < 0.1


@given(st.integers(1, 7), st.integers(1, 7), st.sampled_from(["torus", "ring"]))
@settings(max_examples=20, deadline=None)
def test_routers_send_packets_over_the_links_of_the_ways_of_dies(rows: int, cols: int, topology: str) -> None:
    ways, dies = routes(rows, cols, topology), rows * cols
    rows, cols = (1, dies) if topology == "ring" else (rows, cols)
    port, joint = cycles_dies.ways(rows, cols)
    for source in range(dies):
        for target in range(dies):
            at, found, turned = source, [], []
            while at != target:
                row, col = divmod(at, cols)
                down, across = ((0, 1), (0, -1), (1, 0), (-1, 0))[port[at, target]]
                to = (row + down) % rows * cols + (col + across) % cols
                found.append([at, to])
                turned.append((port[at, target] // 2, joint[at, target]))
                at = to
            over = ways.over[ways.first[source * dies + target] : ways.first[source * dies + target + 1]]
            assert ways.ends[over].tolist() == found
            assert turned == sorted(turned, key=lambda one: (one[0], not one[1]))  # before a joint, then after it, line by line


@pytest.mark.parametrize("topology", ["full", "switch"])
def test_routers_of_four_links_refuse_what_needs_more(topology: str) -> None:
    on = Level(4, 4, topology, 15, 1e12, 256e-9)
    with pytest.raises(DesignError, match=f"not a {topology}; events"):
        events.all_to_all(on, np.arange(16)[None], 1e6, play=cycles_dies.messages)
