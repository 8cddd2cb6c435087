"""The tree of wake times finds what a look at every instance finds."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dse.evaluators.serving.iteration_time import constant_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.evaluators.serving.simulator_state import POOL, REQUEST, ServingState, make_initial_state, make_records
from dse.evaluators.serving.wake_times import earliest_before, earliest_wake, next_awake, set_wake_time
from dse.space.requests import make_requests


def _initial_state(instances: int) -> ServingState:
    pools = make_records(POOL, 1, instances=instances, batch=4, block=16)
    windows = np.zeros((1, 0))
    return make_initial_state(make_records(REQUEST, 3), np.zeros(0, np.int64), pools, windows, [(1.0,)], 1, 1, 0)


@pytest.mark.parametrize("instances", [1, 2, 3, 4, 5, 8, 13, 64])
def test_instances_that_are_awake_are_those_of_a_look_at_each(instances: int) -> None:
    rng, state = np.random.default_rng(instances), SimpleNamespace(wakes=_initial_state(instances).wakes)
    times = np.full(instances, math.inf)
    for _ in range(100):
        i, t = int(rng.integers(instances)), float(rng.choice([-math.inf, math.inf, *rng.integers(0, 9, 6)]))
        times[i] = t
        set_wake_time.py_func(state, i, t)
        assert earliest_wake.py_func(state) == times.min()
        first = int(rng.integers(instances + 1))
        assert earliest_before.py_func(state, first) == min(times[:first], default=math.inf)
        for instant in (-1.0, 4.0, 20.0):
            awake = [number for number in range(first, instances) if times[number] <= instant]
            at = next_awake.py_func(state, first, instant)
            assert (at == awake[0]) if awake else (at >= instances)


def test_many_instances_serve_as_in_runs_of_one_each() -> None:
    """Requests in turn over instances, so that none hears of another: each is as if it were alone."""
    many, count = 37, 400
    rng = np.random.default_rng(0)
    lengths = [(int(prompt), int(output)) for prompt, output in rng.integers(1, 60, (count, 2))]
    arrivals = np.sort(rng.uniform(0, 2, count))

    def pool(instances: int) -> InstancePool:
        return InstancePool(constant_time(0.01), make_policy("prefill_first"), KvMemory(12), instances=instances, batch=3)

    together = simulate_serving(make_requests(lengths, list(arrivals)), [pool(many)], routing="round_robin")
    for number in range(many):
        mine = slice(number, None, many)
        alone = simulate_serving(make_requests(lengths[mine], list(arrivals[mine])), [pool(1)])
        for name in ("scheduled", "first", "completed", "preempted"):
            assert np.array_equal(together[name][mine], alone[name]), name
