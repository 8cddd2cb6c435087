"""Workers that are actors of Ray, on this machine or on a cluster; `ray_cluster.py` has the cluster.

Every process is an actor and nothing is a plain task, so workers that hold all CPUs do not block each other. Ray restarts and
retries nothing; the pool does.
"""

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from dse.execution.pool.ray_cluster import RayCluster
from dse.execution.pool.worker_calls import ProcessWorker, Reply
from dse.execution.pool.worker_kind import DIED, WorkerKind, WorkerLostError


class RayWorker:
    """Worker that is an actor of Ray.

    Args:
        ray: the library.
        actor: handle of it.
    """

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self.actor, self.answers = ray, actor, deque[Any]()

    def send(self, name: str, *args: Any) -> None:
        """Send a call behind earlier ones."""
        self.answers.append(getattr(self.actor, name).remote(*args))

    def take(self) -> Reply:
        """Reply to the oldest call that has none yet."""
        try:
            return Reply(*self._ray.get(self.answers.popleft()))
        except Exception as error:  # it died, or its answer could not be carried
            raise WorkerLostError(_reason_text(self._ray, error)) from None

    def kill(self) -> None:
        """End the actor, which may be dead."""
        with contextlib.suppress(Exception):
            self._ray.kill(self.actor)


class RayActors(WorkerKind[RayWorker]):
    """Kind of workers that are actors.

    Args:
        cluster: where.
        count: of actors; 0 for one for each CPU that the cluster has, also while machines join and leave.
    """

    def __init__(self, cluster: RayCluster, count: int = 0) -> None:
        self._cluster, self._ray, self._count = cluster, cluster.ray, count
        self._actor: Any = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(ProcessWorker)

    def count(self) -> int:
        """Number of actors that there should be."""
        return self._count or int(self._ray.cluster_resources().get("CPU", 1))

    def encode(self, value: Any) -> bytes:
        """A pickle of a value, which may be a function of a script."""
        return bytes(self._ray.cloudpickle.dumps(value))

    def start(self) -> RayWorker:
        """Start an actor, once a CPU is free."""
        return RayWorker(self._ray, self._actor.remote())

    def wait(self, handles: Sequence[RayWorker], timeout: float) -> list[RayWorker]:
        """Workers that have a reply or have died."""
        awaited = {handle.answers[0]: handle for handle in handles}
        if not awaited:
            time.sleep(timeout)
            return []
        ready, _ = self._ray.wait(list(awaited), num_returns=1, timeout=timeout)
        if ready:
            ready, _ = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        return [awaited[answer] for answer in ready]

    def check(self, *, after_death: bool = False) -> None:
        """Refuse to go on if the cluster is lost; after a death, end what the worker left."""
        if after_death:
            self._cluster.check_after_death()
            self._cluster.sweep()
        else:
            self._cluster.check()

    def last_words(self) -> str:
        """Last line that a worker here wrote to standard error."""
        return self._cluster.last_words()

    def describe_room(self) -> str:
        """CPUs that the cluster has, and free ones."""
        free, total = (resources().get("CPU", 0) for resources in (self._ray.available_resources, self._ray.cluster_resources))
        return f"the cluster has {total:g} CPUs, {free:g} of them free; free some"

    def close(self) -> None:
        """End Ray if it was started here."""
        self._cluster.close()


def _reason_text(ray: Any, error: Exception) -> str:
    """Why there is no answer, in one line."""
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "killed: its node ran out of memory"
    creation = str(error).partition("creation task")[2].strip().splitlines()
    if isinstance(error, ray.exceptions.ActorDiedError) and creation:  # what it was made of could not be loaded
        return f"its worker: {creation[-1].strip()}"
    if isinstance(error, ray.exceptions.ActorDiedError | ray.exceptions.ActorUnavailableError):
        return DIED
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, ray.exceptions.RayTaskError):  # the worker's own traceback: where it was first, what it was last
        return f"its worker: {lines[-1]}"
    return f"{type(error).__name__}: {lines[0]}"
