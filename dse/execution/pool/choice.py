"""Workers by the settings of a study: their kind, and maps on workers that end with the map."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

from dse.execution.pool.dispatch import Pool, PoolRules
from dse.execution.pool.local_processes import LocalProcesses, WithThisProcess
from dse.execution.pool.this_process import ThisProcess
from dse.execution.pool.worker_kind import PoolNotStartedError, WorkerKind
from dse.execution.pool.worker_settings import WorkerSettings

T = TypeVar("T")
R = TypeVar("R")


def make_worker_kind(settings: WorkerSettings) -> WorkerKind[Any]:
    """Kind of workers that some settings ask for.

    Raises:
        PoolNotStartedError: Ray does not start on this machine.
        DesignError: no cluster at the address.
    """
    if settings.parallel_kind == "serial":
        return ThisProcess()
    if settings.parallel_kind == "processes":
        return LocalProcesses(settings.count)
    from dse.execution.pool.ray_actors import RayActors
    from dse.execution.pool.ray_cluster import RayCluster

    return RayActors(RayCluster(settings), settings.count)


def map_on_workers(settings: WorkerSettings, work: Callable[[T], R], values: Sequence[T]) -> Iterator[tuple[int, R]]:
    """Apply a function to values on workers that end with it; yields places and results as they come.

    Raises:
        DesignError: as of `make_worker_kind` and `Pool.map`.
    """
    pool = Pool(make_worker_kind(settings))
    try:
        for answer in pool.map(work, values):
            yield answer.key, answer.value
    finally:
        pool.close()


RULES_BESIDE = PoolRules(retries=0, at_start=True)
"""Rules of a pool beside this process, which does what fails elsewhere."""


def map_beside_this_process(work: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """Results of a function for a few values: the first here, the others in processes.

    Args:
        work: found in a module by its name, or a `partial` of such a function; what fails elsewhere is done here.
        values: those that take longest first.
    """
    results: dict[int, R] = {}
    with suppress(PoolNotStartedError), closing(Pool(WithThisProcess(len(values)), RULES_BESIDE)) as pool:
        for answer in pool.map(work, values, failures=True):
            if answer.failure is None:
                results[answer.key] = answer.value
    return [results[place] if place in results else work(value) for place, value in enumerate(values)]
