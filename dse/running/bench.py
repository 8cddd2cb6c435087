"""Processes on a cluster that stay while a screen lasts, each of which gets the kinds of chips that it knows.

A task of Ray goes to whatever process is idle, which would work out again what another one has for a kind of chip: most of the
work, where few designs of a kind are left. So each process is an actor, and gets its own kinds, unless somebody else would be
done sooner all the same.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from dse.running.cluster import Cluster
from dse.space.errors import DesignError

T = TypeVar("T")
R = TypeVar("R")

TRIES = 4
"""Times that something is given to a worker until its deaths are an error of what is asked."""

STRANGE = 1.4
"""Times as long as its owner somebody else takes for a part of a kind: of mesh_llm, two halves of a part take so much more."""

STARTS = 3
"""Processes that may end in a row before they answer, likewise."""


class Turn(NamedTuple):
    """What one worker took for one thing.

    Attributes:
        stage: of the work, from 1; what is of a stage is given when all of the one before is answered.
        worker: which, from 0.
        cpu: of the processor. [s]
        start, end: by the clock of the process that asks, when it was given and answered. [s]
    """

    stage: int
    worker: int
    cpu: float
    start: float
    end: float


class Called:
    """What runs in a process of its own."""

    def here(self) -> None:
        """Answers once the process runs."""

    def made(self, work: Callable[[T], R], item: T) -> tuple[R, float]:
        """What a function makes of something, and what that took of the processor. [s]"""
        start = time.process_time()
        return work(item), time.process_time() - start


@dataclass
class _Worker:
    actor: Any
    number: int
    answer: Any
    ready: bool = False
    place: int | None = None  # of what it is at
    since: float = 0.0


class Bench:
    """Workers who stay.

    Args:
        cluster: where.
        count: of workers; 0 for all CPUs that there are.
    """

    def __init__(self, cluster: Cluster, count: int) -> None:
        self._cluster, self._ray, self._count = cluster, cluster.ray, count
        self._workers, self._hired, self._false_starts, self._stage = list[_Worker](), 0, 0, 0
        self._owner: dict[int, int] = {}
        self._actor: Any = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Called)

    def wait(self) -> None:
        """Until all of them are there."""
        while not self._workers or not all(worker.ready for worker in self._workers):
            self._hire()
            for _ in self._listen([]):
                pass

    def mapped(
        self, work: Callable[[T], R], items: Sequence[T], kinds: Sequence[int], takes: Sequence[float]
    ) -> Iterator[tuple[int, R, Turn]]:
        """What a function makes of each of many things: which, what, and who took how long, as they are done.

        Args:
            work: may be pickled, and changes nothing.
            items: likewise, those that take longest first.
            kinds: of each; what is worked out for one serves others of its kind.
            takes: of each, what it takes, as far as one knows; in any unit, one for all.

        Raises:
            DesignError: the cluster is lost, workers that die again and again, or what `work` raises.
        """
        self._stage += 1
        try:
            yield from self._mapped(work, items, kinds, takes)
        finally:  # whoever asked may have had enough, while some are still at it
            if any(worker.place is not None for worker in self._workers):
                self.close()

    def close(self) -> None:
        """Ends them."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers, self._owner = [], {}

    def _mapped(
        self, work: Callable[[T], R], items: Sequence[T], kinds: Sequence[int], takes: Sequence[float]
    ) -> Iterator[tuple[int, R, Turn]]:
        known, waiting, tries = self._ray.put(work), list(range(len(items))), [0] * len(items)
        while waiting or any(worker.place is not None for worker in self._workers):
            self._hire()
            for worker in self._workers:
                if waiting and worker.ready and worker.place is None:
                    place = self._next(worker, waiting, kinds, takes)
                    waiting.remove(place)
                    tries[place] += 1
                    worker.place, worker.since = place, time.monotonic()
                    worker.answer = worker.actor.made.remote(known, items[place])
            for worker, found in self._listen(waiting):
                if tries[worker.place or 0] >= TRIES and found is None:
                    raise DesignError("workers: processes died at the same designs again and again; workers=serial says why")
                if found is not None:
                    made, cpu = found
                    place, worker.place = worker.place or 0, None
                    yield place, made, Turn(self._stage, worker.number, cpu, worker.since, time.monotonic())

    def _hire(self) -> None:
        """As many as are wanted, or as there are CPUs now; who is on a machine that went is replaced."""
        most = self._count or int(self._ray.cluster_resources().get("CPU", 1))
        while len(self._workers) < most:
            actor = self._actor.remote()
            self._workers.append(_Worker(actor, self._hired, actor.here.remote()))
            self._hired += 1

    def _next(self, worker: _Worker, waiting: Sequence[int], kinds: Sequence[int], takes: Sequence[float]) -> int:
        """What a worker takes of what waits: the longest that is its own, as if all were given out now; else the shortest."""
        ends = {one.number: 0.0 if one.place is None else takes[one.place] for one in self._workers}
        mine = waiting[-1]
        for place in waiting:
            owner = self._owner.get(kinds[place])
            costs = {number: end + takes[place] * (1 if owner in (None, number) else STRANGE) for number, end in ends.items()}
            soonest = min(costs.values())
            number = worker.number if costs[worker.number] == soonest else min(costs, key=costs.__getitem__)
            if number == worker.number:
                mine = place
                break
            ends[number] = soonest
        self._owner.setdefault(kinds[mine], worker.number)
        return mine

    def _listen(self, waiting: Any) -> Iterator[tuple[_Worker, Any]]:
        """Answers that are there, None of workers that died, whose work waits again."""
        busy = {worker.answer: worker for worker in self._workers if not worker.ready or worker.place is not None}
        ready, _ = self._ray.wait(list(busy), num_returns=1, timeout=1.0)
        self._cluster.check()
        errors = self._ray.exceptions
        for answer in ready:
            worker = busy[answer]
            try:
                found = self._ray.get(answer)
            except errors.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except (errors.RayActorError, errors.OutOfMemoryError, errors.ObjectLostError):
                self._workers.remove(worker)
                self._owner = {kind: number for kind, number in self._owner.items() if number != worker.number}
                if worker.place is not None:
                    waiting.append(worker.place)
                    yield worker, None
                    continue
                self._false_starts += 1
                if self._false_starts >= STARTS:
                    raise DesignError("workers: processes end as they start; workers=serial goes without them") from None
                continue
            if not worker.ready:
                worker.ready, self._false_starts = True, 0
                continue
            yield worker, found
