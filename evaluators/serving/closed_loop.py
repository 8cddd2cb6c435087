"""Rate of a closed loop with the same requests, where some always wait; the base of offered load."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import numpy as np

from dse.evaluators.serving.simulator import Deployment
from dse.space.array_math import Array
from dse.space.requests import Requests

CLEAR_LOAD = 0.5
"""Load by the steady state's estimate up to which no closed loop is simulated."""

ROUNDS = 4
"""Requests for each that runs at a time, for the middle of a closed loop to be of a long one (within 10 % of random ones)."""

MORE = 1.05
"""Rate of random arrivals over the rate for simultaneous arrivals, which no deployment exceeds: some always wait."""

MIN_REQUESTS = 100
"""Requests below which the first and the last ones of a closed loop count as well."""


CompletionFunction = Callable[[Deployment, Requests], Array]
"""Function from a deployment and requests to the time of each request's last token, in any order. [s]"""


def completion_times(deployment: Deployment, requests: Requests) -> Array:
    """Completion times of requests in a serving simulation, shape (requests,). [s]"""
    return deployment.serve(requests)["completed"]


def saturated_rate(deployment: Deployment, requests: Requests, ends: CompletionFunction = completion_times) -> float:
    """Rate served while some requests always wait: all at once, middle four fifths. [1/s]

    Where requests are fewer than `ROUNDS` for each that runs at a time, those that end together distort the rate:
    one instance of several equal ones is simulated, and the requests are repeated. This is not done where caches or
    sessions tie requests together. Pipeline stages that take requests of equal lengths at once keep them in step,
    prompts with prompts, which no real load does: there requests arrive at random, at `MORE` times the rate that is
    served at once.

    Args:
        deployment: a deployment.
        requests: at any times.
        ends: function that gives the completion times.
    """
    times, (deployment, requests) = 1, (deployment, requests.at_once())
    if len(requests) < ROUNDS * concurrent_requests(deployment, requests) and not (
        len(requests.before) or _reuses(deployment, requests)
    ):
        if len(deployment.pools) == 1:
            times, deployment = (
                deployment.pools[0].instances,
                deployment._replace(pools=(replace(deployment.pools[0], instances=1),)),
            )
        requests = requests.repeated_requests(ceil(ROUNDS * concurrent_requests(deployment, requests) / len(requests)))
    rate = steady_rate(ends(deployment, requests))
    if len(requests) >= MIN_REQUESTS and not len(requests.before) and any(pool.stages > 1 for pool in deployment.pools):
        gaps = np.random.default_rng(0).exponential(1 / (MORE * rate), len(requests))
        rate = min(rate, steady_rate(ends(deployment, replace(requests, arrival=np.cumsum(gaps)))))
    return times * rate


def steady_rate(ends: Array) -> float:
    """Rate of completions, without the first and last tenth of `MIN_REQUESTS` or more. [1/s]"""
    completed = np.sort(ends)
    count = len(completed)
    first, last = (count // 10, count - 1 - count // 10) if count >= MIN_REQUESTS else (0, count - 1)
    begin = float(completed[first]) if count >= MIN_REQUESTS else 0.0
    over = float(completed[last]) - begin
    return float((last - first) / over if over > 0 and last > first else count / completed[-1])


def concurrent_requests(deployment: Deployment, requests: Requests) -> int:
    """Requests of mean length that run at a time, as batch size and memory allow."""
    last = deployment.pools[-1]
    needed = last.memory.blocks_needed(ceil(float(requests.prompt.mean() + requests.output.mean() / 2)))
    room = last.memory.buffers or (last.memory.blocks + last.memory.pages) // max(1, needed)
    return last.instances * max(1, min(last.batch, room))


def _reuses(deployment: Deployment, requests: Requests) -> bool:
    """Whether prompts may be reused from caches, so that repeated requests would differ."""
    return bool(len(requests.starts)) and any(pool.prefix or pool.pooled for pool in deployment.pools)
