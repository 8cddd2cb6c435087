"""Runs of the loop that nobody waits for any more, as after Ctrl-C: they end soon, not when they are done."""

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from threading import Event

import numpy as np
import pytest

from dse.analysis.deployment_search import thread_pool
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.evaluators.serving.simulator_state import StopBounds
from dse.execution.pool.affinity import Item
from dse.execution.pool.worker_calls import OneByOne
from dse.space.requests import make_requests

OF = Deployment(
    (InstancePool(linear_time(1e-3, 1e-6, 1e-9, 1e-5, 1e-8, 1e-9), make_policy("chunked_prefill"), KvMemory(4000)),),
    None,
    "least_loaded",
)


def _long(count: int) -> ServingRun:
    """A run that pauses after every iteration, and takes many."""
    requests = make_requests([(50, 200)] * count).with_arrivals("constant", rate=1.0)
    return OF.serve(requests, stop=StopBounds(work=1))


def test_a_command_that_is_told_to_end_waits_for_no_run() -> None:
    ended: list[BaseException] = []
    begun = Event()

    def run(count: int) -> None:
        begun.set()
        try:
            _long(count)
        except BaseException as error:
            ended.append(error)
            raise

    with pytest.raises(KeyboardInterrupt):
        _told_to_end(run, begun)
    for _ in range(100):
        if ended:
            break
        time.sleep(0.1)
    assert ended
    assert all(isinstance(error, CancelledError) for error in ended)


def test_runs_that_are_waited_for_are_whole() -> None:
    with thread_pool() as several:
        (result,) = several.map_in_order(_long, [3])
    assert np.array_equal(result["completed"], _long(3)["completed"])


def _told_to_end(run: Callable[[int], None], begun: Event) -> None:
    """Leaves runs, of which one goes on, as a command does after Ctrl-C."""
    with thread_pool() as several:
        several.wait()
        several.submit(OneByOne(run), [Item(place, 100_000) for place in range(20)])
        begun.wait()
        raise KeyboardInterrupt
