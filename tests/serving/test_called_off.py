"""Runs of the loop that nobody waits for any more, as after Ctrl-C: they end soon, not when they are done."""

import time
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest

from dse.answers.race import at_a_time
from dse.evaluators.serving.kvcache import Memory
from dse.evaluators.serving.loop import Deployment, Pool, Served
from dse.evaluators.serving.policy import policy
from dse.evaluators.serving.price import linear
from dse.evaluators.serving.state import Stop
from dse.space.requests import requests

OF = Deployment((Pool(linear(1e-3, 1e-6, 1e-9, 1e-5, 1e-8, 1e-9), policy("chunked"), Memory(4000)),), None, "least_loaded")


def _long(count: int) -> Served:
    """A run that pauses after every iteration, and takes many."""
    asked = requests([(50, 200)] * count).arriving("fixed", rate=1.0)
    return OF.serve(asked, stop=Stop(work=1))


def test_a_command_that_is_told_to_end_waits_for_no_run() -> None:
    runs: list[Future[Served]] = []
    with pytest.raises(KeyboardInterrupt):
        _told_to_end(runs)
    assert all(isinstance(_error(run), CancelledError) for run in runs)


def test_runs_that_are_waited_for_are_whole() -> None:
    with at_a_time() as several:
        (found,) = several.map(_long, [3])
    assert np.array_equal(found["completed"], _long(3)["completed"])


def _told_to_end(runs: list[Future[Served]]) -> None:
    """Leaves runs, of which one goes on, as a command does after Ctrl-C."""
    with at_a_time() as several:
        runs += (several.submit(_long, 100_000) for _ in range(20))
        while not runs[0].running():
            time.sleep(0.01)
        raise KeyboardInterrupt


def _error(run: Future[Served]) -> BaseException | None:
    try:
        return run.exception()
    except CancelledError as error:
        return error
