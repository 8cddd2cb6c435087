"""Instances of one stage are played as those of any number of stages are, to the bit."""

from typing import Any

import numpy as np
import pytest
from numba import njit

from dse.evaluators.serving import prefill_replay as arrivals
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.lane_clocks import replay_pool
from dse.evaluators.serving.pool_balance import STATION
from dse.evaluators.serving.steady_state import request_mix
from dse.space.requests import Requests


@njit(error_model="numpy")  # type: ignore[untyped-decorator]
def of_any(price: Any, pool: Any, shares: Any, nearest: Any, load: Any, steady: Any, spilled: Any, room: Any) -> None:
    """Of as many stages as the record says, which the compiler does not know."""
    arrivals._played(price, replay_pool(pool, int(pool.stages)), shares, nearest, load, steady, spilled, room)


def fresh(room: arrivals.ReplayWorkspace) -> arrivals.ReplayWorkspace:
    """A room as `played` hands it on."""
    room.paces[:] = -1.0
    room.prices["tokens"] = -1.0
    return room


@pytest.mark.parametrize("rule", ["chunked", "whole", "first", "apart", "units"])
@pytest.mark.parametrize("alike", [True, False])
def test_one_stage_is_played_as_any_number_of_stages(rule: str, alike: bool) -> None:
    rng, price = np.random.default_rng(7), linear_time(2e-3, 1e-5, 1e-9, 3e-5, 1e-8)
    left = 0
    for instances in (1, 3):
        for nearest in (True, False):
            for batch in (1.0, 5.0, 40.0):
                prompt = np.full(300, 700) if alike else rng.integers(1, 3000, 300)
                output = np.full(300, 40) if alike else rng.integers(1, 120, 300)
                at = np.cumsum(rng.exponential(rng.choice([0.005, 0.05, 0.3]) / instances, 300)).round(3)
                requests = Requests(at, prompt, output)
                tokens, unit, chunk = {"chunked": (48.0, 0.0, 0.0), "units": (48.0, 16.0, 256.0)}.get(rule, (4096.0, 0.0, 0.0))
                mixed, cut, decodes = rule not in ("first", "apart"), rule in ("chunked", "units"), rule != "apart"
                row = (instances, 1, 1.0, batch, np.inf, mixed, cut, tokens, unit, chunk, True, decodes)
                stations, rooms = np.array([row], STATION), []
                for play in (arrivals.replay_prefill, of_any):
                    room = fresh(arrivals.make_replay_workspace(stations, 300))
                    play(
                        price,
                        stations[0],
                        np.ones(1),
                        nearest,
                        arrivals.arrival_arrays(requests),
                        request_mix(requests),
                        0.0,
                        room,
                    )
                    rooms.append(room)
                for name in ("first", "begun", "last"):
                    assert getattr(rooms[0], name).tobytes() == getattr(rooms[1], name).tobytes(), (instances, nearest, batch)
                assert rooms[0].gaps.tobytes() == rooms[1].gaps.tobytes()
                left += int(np.isfinite(rooms[0].last).sum())
    assert left == 12 * 300  # all have left
