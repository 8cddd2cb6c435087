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
    concurrency = []
    for pool, at_once, kept in zip(run.pools, run.state.at_once, run.state.busiest, strict=True):
        decodes, prompts = (composition_columns(log[log["prompt"] + log["requests"] > 0]) for log in kept)
        kinds = IterationKind(prompts, float(at_once["most_prompts"])), IterationKind(decodes, float(at_once["most_decodes"]))
        stages = pool.instances * np.count_nonzero(pool.shares)
        concurrency.append(PoolConcurrency(*kinds, min(float(at_once["most"]), float(stages))))
    return concurrency


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
    concurrency = []
    for mean, stages, many in zip(means, shares, instances, strict=True):
        # an instance has as many at a time as it does at its own pace: fewer than stages where the slowest holds up the others
        most = minimum(many / max(stages), float(requests))
        kinds = {
            iteration.prompts: IterationKind(
                tuple(np.atleast_2d(count) for count in iteration.composition), where(iteration.times > 0, most, 0.0)
            )
            for iteration in mean
        }
        concurrency.append(PoolConcurrency(kinds.get(True, NO_ITERATIONS), kinds.get(False, NO_ITERATIONS), most))
    return concurrency


def peak_power(pools: Sequence[PoolConcurrency], watts: PowerFunction) -> Any:
    """Peak power of all pools together, shape (designs,). [W]"""

    def most(number: int, kind: IterationKind) -> Any:
        if not kind.made_of:
            return 0.0
        return where(kind.most > 0, np.max(watts(number, kind.made_of), axis=0), 0.0)

    total: Any = 0.0
    for number, pool in enumerate(pools):
        total = total + _together(pool, most(number, pool.prompts), most(number, pool.decodes))
    return total


def composition_columns(log: Array) -> Counts:
    """Composition counts of records of `simulator_state.STEP`, each of shape (iterations, 1)."""
    if not len(log):
        return ()
    tokens, requests = np.maximum(log["prompt"], 1.0), np.maximum(log["requests"], 1.0)
    read = np.maximum(log["positions"] + log["past"], 1.0)
    counts = (log["prompt"], log["pairs"] / tokens, log["requests"], log["positions"] / requests, log["far"] / read)
    return tuple(count[:, None] for count in counts)


NO_ITERATIONS = IterationKind((), 0.0)


def _together(concurrency: PoolConcurrency, prompts: Any, decodes: Any) -> Any:
    """Power of a pool's concurrent iterations: as many as possible of the more demanding kind, and the others."""
    first = where(
        prompts >= decodes,
        minimum(concurrency.prompts.most, concurrency.most),
        concurrency.most - minimum(concurrency.decodes.most, concurrency.most),
    )
    return first * prompts + (concurrency.most - first) * decodes
