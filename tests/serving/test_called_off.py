"""Runs of the loop that nobody waits for any more, as after Ctrl-C: they end soon, not when they are done."""

import time
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest

from dse.analysis.deployment_search import thread_pool
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.evaluators.serving.simulator_state import StopBounds
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
    runs: list[Future[ServingRun]] = []
    with pytest.raises(KeyboardInterrupt):
        _told_to_end(runs)
    assert all(isinstance(_error(run), CancelledError) for run in runs)


def test_runs_that_are_waited_for_are_whole() -> None:
    with thread_pool() as several:
        (result,) = several.map(_long, [3])
    assert np.array_equal(result["completed"], _long(3)["completed"])


def _told_to_end(runs: list[Future[ServingRun]]) -> None:
    """Leaves runs, of which one goes on, as a command does after Ctrl-C."""
    with thread_pool() as several:
        runs += (several.submit(_long, 100_000) for _ in range(20))
        while not runs[0].running():
            time.sleep(0.01)
        raise KeyboardInterrupt


def _error(run: Future[ServingRun]) -> BaseException | None:
    try:
        return run.exception()
    except CancelledError as error:
        return error
