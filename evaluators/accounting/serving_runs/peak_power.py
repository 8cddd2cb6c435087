"""Peak power of a serving run: its busiest iterations, as many at once as the run had.

An iteration takes the mean power of its activity over its iteration time. Where several run at once, on instances or as
micro-batches of a pipeline (no more than its stages), each is taken as the most demanding one of its kind, with prompts
or decodes only; and pools are taken to have the most iterations at the same time. This bounds the power of the fullest
state from above, and equals it for one instance with one stage. Iterations are those kept by
`serving/busiest_iterations.py`: their maximum is within 2 % of the maximum of all, in runs of dense, mixed and latent
models on dies whose iterations were all evaluated; other layouts were not examined. In the steady state, they are the
mean iterations of both kinds, of all instances at once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration
from dse.evaluators.serving.simulator import InstancePool, ServingRun
from dse.space.array_math import Array, minimum, where

Counts = tuple[Any, ...]
"""Of iterations, in the order of `iteration_time.AXES`; arrays that broadcast to (iterations, designs)."""


class IterationKind(NamedTuple):
    """Iterations of a pool with prompts, or with decodes only, and how many run at once.

    Attributes:
        made_of: counts of iterations, none where there are no such iterations.
        most: of them under way at once; a number, or of shape (designs,).
    """

    made_of: Counts
    most: Any


class PoolConcurrency(NamedTuple):
    """Iterations that a pool runs at once: those of each kind, and the most of both together."""

    prompts: IterationKind
    decodes: IterationKind
    most: Any


PowerFunction = Callable[[int, Counts], Any]
"""Power of iterations of a pool, shape (iterations, designs). [W]"""


def concurrency_of_run(run: ServingRun) -> list[PoolConcurrency]:
    """Concurrency of each pool in a serving run."""
    found = []
    for pool, at_once, kept in zip(run.pools, run.state.at_once, run.state.busiest, strict=True):
        decodes, prompts = (composition_columns(some[some["prompt"] + some["requests"] > 0]) for some in kept)
        kinds = IterationKind(prompts, float(at_once["most_prompts"])), IterationKind(decodes, float(at_once["most_decodes"]))
        stages = pool.instances * np.count_nonzero(pool.shares)
        found.append(PoolConcurrency(*kinds, min(float(at_once["most"]), float(stages))))
    return found


def concurrency_of_pools(
    means: Sequence[Sequence[MeanIteration]], pools: Sequence[InstancePool], requests: int
) -> list[PoolConcurrency]:
    """Concurrency of each pool of one design in the steady state."""
    return concurrency_of_means(means, [pool.shares for pool in pools], [pool.instances for pool in pools], requests)


def concurrency_of_means(
    means: Sequence[Sequence[MeanIteration]], shares: Sequence[Sequence[Any]], instances: Sequence[Any], requests: int
) -> list[PoolConcurrency]:
    """Concurrency of each pool in the steady state: mean iterations on all instances at once.

    Args:
        means: of each pool.
        shares: of an iteration's time, by stage; those of a pool.
        instances: of a pool; numbers, or of shape (designs,).
        requests: of the load.
    """
    found = []
    for some, stages, many in zip(means, shares, instances, strict=True):
        # an instance has as many at a time as it does at its own pace: fewer than stages where the slowest holds up the others
        most = minimum(many / max(stages), float(requests))
        kinds = {
            of.prompts: IterationKind(tuple(np.atleast_2d(one) for one in of.composition), where(of.times > 0, most, 0.0))
            for of in some
        }
        found.append(PoolConcurrency(kinds.get(True, NO_ITERATIONS), kinds.get(False, NO_ITERATIONS), most))
    return found


def peak_power(pools: Sequence[PoolConcurrency], watts: PowerFunction) -> Any:
    """Peak power of all pools together, shape (designs,). [W]"""

    def most(number: int, of: IterationKind) -> Any:
        if not of.made_of:
            return 0.0
        return where(of.most > 0, np.max(watts(number, of.made_of), axis=0), 0.0)

    total: Any = 0.0
    for number, of in enumerate(pools):
        total = total + _together(of, most(number, of.prompts), most(number, of.decodes))
    return total


def composition_columns(some: Array) -> Counts:
    """Composition counts of records of `simulator_state.STEP`, each of shape (iterations, 1)."""
    if not len(some):
        return ()
    tokens, requests = np.maximum(some["prompt"], 1.0), np.maximum(some["requests"], 1.0)
    read = np.maximum(some["positions"] + some["past"], 1.0)
    counts = (some["prompt"], some["pairs"] / tokens, some["requests"], some["positions"] / requests, some["far"] / read)
    return tuple(count[:, None] for count in counts)


NO_ITERATIONS = IterationKind((), 0.0)


def _together(of: PoolConcurrency, prompts: Any, decodes: Any) -> Any:
    """Power of a pool's concurrent iterations: as many as possible of the more demanding kind, and the others."""
    first = where(prompts >= decodes, minimum(of.prompts.most, of.most), of.most - minimum(of.decodes.most, of.most))
    return first * prompts + (of.most - first) * decodes
