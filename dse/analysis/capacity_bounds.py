"""Upper bounds on the rate of a deployment, from its iteration times.

A deployment whose bound is below the best rate is not simulated.
"""

import math
from collections.abc import Sequence

import numpy as np

from dse.evaluators.serving.simulator import InstancePool
from dse.evaluators.serving.slo_bounds import SloBounds
from dse.evaluators.serving.sustained_rate import PoolPaces, sustained_rate_of_paces
from dse.evaluators.workloads.serving import instance_module
from dse.space.design import Design
from dse.space.workload import ServingLoad

MARGIN = 1.4
"""By how much the loop may serve more than the steady state says where nothing bounds a token's time, short loads apart. No
deployment of `studies/capacity` needs all of it: of 80 questions drawn there, the highest rate is 0.84 of the bound."""

ALONE = 1.05
"""By how much the loop may compute prompts faster than `Paces.full` says, which takes iterations as full and equal."""

ROUNDS = 2
"""Sessions of a user, at least, of a population that is bounded by Little's law."""


def bound_max_rate(pools: Sequence[InstancePool], taken: PoolPaces, load: ServingLoad, bounds: SloBounds) -> float:
    """Upper bound on the simulated maximum rate [1/s], or on users of a closed loop.

    By all that is computed, and by prompts alone. Infinite if prompts may be reused, since what is not computed again bounds
    nothing.

    Args:
        pools: of instances.
        taken: what one of each takes.
        load: what comes.
        bounds: what requests have to keep.
    """
    if len(load.requests.starts) and any(pool.prefix or pool.pooled for pool in pools):
        return math.inf
    unbound = sustained_rate_of_paces(pools, taken, tpot=math.inf).rate
    if load.requests.users:
        served = min(unbound * MARGIN, _of_prompts_alone(pools, taken))
        return bound_max_users(served, pools, load, bounds)
    if len(load.requests.before):  # who has to wait asks later
        return math.inf
    return min(unbound * MARGIN * short_load_factor(unbound, load, bounds), bound_prefill_rate(pools, taken, load, bounds))


def short_load_factor(rate: float, load: ServingLoad, bounds: SloBounds) -> float:
    """Factor by which a short load may arrive faster than it is served without missing SLOs. [-]

    Queues grow, and are gone before an SLO is missed. The last request that has to keep its SLO arrives when the backlog is as
    long as a request may take: `n p (1 / served - 1 / coming) = ttft + output tpot`.

    Args:
        rate: at which requests are served in the long run. [1/s]
        load: how many they are, and how long.
        bounds: what they have to keep.
    """
    may_take = bounds.ttft + float(load.requests.output.mean()) * bounds.tpot
    gained = rate * may_take / (len(load.requests) * bounds.share)
    return 1 / (1 - gained) if gained < 1 else math.inf


def bound_max_users(served: float, pools: Sequence[InstancePool], load: ServingLoad, bounds: SloBounds) -> float:
    """Upper bound on users of a closed loop within the SLOs, by Little's law. [users]

    Each user thinks, waits for the first token and reads the others: `users = served (think + ttft + further tpot)`. Of an
    instance that does both phases, at most a batch have a first token and not yet the last. Requests are served in order of
    arrival, so requests that miss an SLO wait while all other users are served once, at most: users may be more by their share.

    Args:
        served: the most requests over time. [1/s]
        pools: of instances.
        load: of a closed population.
        bounds: what requests have to keep.

    Returns:
        Infinite where requests have classes, whose order is another; and where users have less than `ROUNDS` sessions each, as
        such a run may be over before a queue is as long as it becomes.
    """
    requests, missed = load.requests, 1 - bounds.share
    if bounds.classes or 2 * missed >= 1:
        return math.inf
    waits = float(requests.think.mean()) + bounds.ttft
    bound = served * (waits + (float(requests.output.mean()) - 1) * bounds.tpot) / (1 - 2 * missed)
    if len(pools) == 1:
        bound = min(bound, (served * waits + pools[0].instances * pools[0].batch) / (1 - missed))
    return bound if ROUNDS * bound <= int((requests.turns == 0).sum()) else math.inf


def _of_prompts_alone(pools: Sequence[InstancePool], taken: PoolPaces) -> float:
    """Prompts over time, were there nothing to decode. [1/s]"""
    return ALONE * pools[0].instances * pools[0].stages / taken.full


def bound_prefill_rate(pools: Sequence[InstancePool], taken: PoolPaces, load: ServingLoad, bounds: SloBounds) -> float:
    """Arrival rate above which prefill alone is too slow for the SLOs. [1/s]

    As many prompts as must keep their bound are done when the last one may still have its first token, `ttft` after it comes.

    Args:
        pools: of which the first one has the prompts.
        taken: what an instance of each takes.
        load: what comes.
        bounds: what requests have to keep.
    """
    left = len(load.requests) * bounds.share / _of_prompts_alone(pools, taken) - bounds.ttft
    comes = load.requests.arrival[-1] * load.rate  # in which they come, at one a second
    return comes / left if left > 0 else math.inf


def compute_rate_bound(design: Design, load: ServingLoad, bounds: SloBounds, stages: int, *, apart: bool) -> float:
    """Arrival rate above which prefill misses the SLOs even on engines that never wait. [1/s]

    Only the shortest prompts count, and no iteration time is needed. Infinite if prompts may be reused, or arrive only when
    others are answered.

    Args:
        design: a deployment.
        load: what comes.
        bounds: what requests have to keep.
        stages: of an instance that has prompts, all of which have some at a time.
        apart: whether some instances only prefill.
    """
    requests, serving = load.requests, design.mapping.serving
    if len(requests.starts) or len(requests.before) or requests.users:
        return math.inf
    instances = int(serving.prefill_instances if apart else serving.instances)
    kept = np.sort(requests.prompt)[: math.floor(len(requests) * bounds.share)]
    token = float(instance_module(design).work_lower_bounds(design, load).prompt)
    left = float(kept.sum()) * token / (instances * stages) - bounds.ttft
    return requests.arrival[-1] * load.rate / left if left > 0 else math.inf
