"""Cluster processes that stay during a screen and get the kinds of chips that they already know.

A task of Ray goes to whatever process is idle, which would repeat what another process has computed for a kind of chip: most of
the work, if few designs of a kind are left. So each process is an actor and gets kinds that it knows, the longest parts first;
an idle process takes parts from others that they would begin too late.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from dse.execution.ray_cluster import RayCluster
from dse.space.errors import DesignError

T = TypeVar("T")
R = TypeVar("R")

MAX_TRIES = 4
"""Times that something is given to a worker until its deaths are an error of what is asked."""

UNFAMILIAR_FACTOR = 1.4
"""Times as long as who knows a kind somebody else takes for a part of it: of mesh_llm, two halves of one take so much more."""

MAX_STARTS = 3
"""Processes that may end in a row before they answer, likewise."""


class WorkerInterval(NamedTuple):
    """Time that one worker took for one part of the work.

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


class RemoteWorker:
    """Actor that evaluates parts in a process of its own."""

    def answer_ready(self) -> None:
        """Return once the process runs and has loaded the evaluators."""
        import_module("dse.execution.screen_block")

    def call(self, work: Callable[[T], R], item: T) -> tuple[R, float]:
        """Result of a function for one item, and the CPU time it took. [s]"""
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


class AffinityPool:
    """Pool of workers that stay, each with the kinds of chips that it has worked on.

    Args:
        cluster: where.
        count: of workers; 0 for all CPUs that there are.
    """

    def __init__(self, cluster: RayCluster, count: int) -> None:
        self._cluster, self._ray, self._count = cluster, cluster.ray, count
        self._workers, self._hire_bench, self._false_starts, self._stage = list[_Worker](), 0, 0, 0
        self._known: dict[int, list[int]] = {}  # by kind, workers who have had some of it, the last one at the end
        self._actor: Any = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RemoteWorker)

    def wait(self) -> None:
        """Wait until all workers have started."""
        while not self._workers or not all(worker.ready for worker in self._workers):
            self._hire_workers()
            for _ in self._listen_answers([]):
                pass

    def map_items(
        self, work: Callable[[T], R], items: Sequence[T], kinds: Sequence[int], takes: Sequence[float], *, apart: bool = False
    ) -> Iterator[tuple[int, R, WorkerInterval]]:
        """Map a function over items on the workers; yields index, result and interval as they finish.

        Args:
            work: may be pickled, and changes nothing.
            items: likewise, those that take longest first.
            kinds: of each; what is worked out for one serves others of its kind.
            takes: of each, what it takes, as far as one knows; in any unit, one for all.
            apart: whether a worker never takes a kind that another one knows, however idle.

        Raises:
            DesignError: the cluster is lost, workers that die again and again, or what `work` raises.
        """
        self._stage += 1
        try:
            yield from self._map_items(work, items, kinds, takes, apart=apart)
        finally:  # whoever asked may have had enough, while some are still at it
            if any(worker.place is not None for worker in self._workers):
                self.close()

    def close(self) -> None:
        """End all worker processes of the pool."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers, self._known = [], {}

    def _map_items(
        self, work: Callable[[T], R], items: Sequence[T], kinds: Sequence[int], takes: Sequence[float], *, apart: bool
    ) -> Iterator[tuple[int, R, WorkerInterval]]:
        known, waiting, tries = self._cluster.share_value(work), list(range(len(items))), [0] * len(items)
        while waiting or any(worker.place is not None for worker in self._workers):
            self._hire_workers()
            for worker in self._workers:
                if waiting and worker.ready and worker.place is None:
                    place = self._next_item(worker, waiting, kinds, takes, apart=apart)
                    if place is None:
                        continue
                    waiting.remove(place)
                    tries[place] += 1
                    worker.place, worker.since = place, time.monotonic()
                    worker.answer = worker.actor.call.remote(known, items[place])
            for worker, outcome in self._listen_answers(waiting):
                if tries[worker.place or 0] >= MAX_TRIES and outcome is None:
                    raise DesignError(
                        "workers: processes died at the same designs again and again; workers=serial shows the error"
                    )
                if outcome is not None:
                    made, cpu = outcome
                    place, worker.place = worker.place or 0, None
                    yield place, made, WorkerInterval(self._stage, worker.number, cpu, worker.since, time.monotonic())

    def _hire_workers(self) -> None:
        """As many as are wanted, or as there are CPUs now; who is on a machine that went is replaced."""
        most = self._count or int(self._ray.cluster_resources().get("CPU", 1))
        while len(self._workers) < most:
            actor = self._actor.remote()
            self._workers.append(_Worker(actor, self._hire_bench, actor.answer_ready.remote()))
            self._hire_bench += 1

    def _next_item(
        self, worker: _Worker, waiting: Sequence[int], kinds: Sequence[int], takes: Sequence[float], *, apart: bool
    ) -> int | None:
        """What a worker takes of what waits, as if all were given out now: the longest of kinds that it is the last to know, or
        that nobody knows and that fall to it; else what another one has not begun by the time that this one is done with it.
        """
        ends = {worker.number: 0.0 if worker.place is None else takes[worker.place] for worker in self._workers}
        known = {kinds[place]: [number for number in self._known.get(kinds[place], ()) if number in ends] for place in waiting}
        total = dict.fromkeys(known, 0.0)
        for place in waiting:
            total[kinds[place]] += takes[place]
        falls = dict[int, int]()
        for kind in sorted(known, key=lambda kind: (not known[kind], -total[kind])):
            idlest = min(ends, key=lambda number: (ends[number], number != worker.number))
            falls[kind] = known[kind][-1] if known[kind] else idlest
            ends[falls[kind]] += total[kind]

        def can_take(place: int) -> bool:
            """From another one."""
            kind = kinds[place]
            strange = bool(known[kind]) and worker.number not in known[kind]
            return not (apart and known[kind]) and takes[place] * (UNFAMILIAR_FACTOR if strange else 1) <= ends[falls[kind]]

        mine = (place for place in waiting if falls[kinds[place]] == worker.number)
        item = next(mine, next(filter(can_take, waiting), None))
        if item is not None:
            knows = self._known.setdefault(kinds[item], [])
            knows[:] = [*(number for number in knows if number != worker.number), worker.number]
        return item

    def _listen_answers(self, waiting: Any) -> Iterator[tuple[_Worker, Any]]:
        """Answers that are there, None of workers that died, whose work waits again."""
        busy = {worker.answer: worker for worker in self._workers if not worker.ready or worker.place is not None}
        ready, _ = self._ray.wait(list(busy), num_returns=1, timeout=1.0)
        self._cluster.check()
        errors = self._ray.exceptions
        for answer in ready:
            worker = busy[answer]
            try:
                outcome = self._ray.get(answer)
            except errors.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except (errors.RayActorError, errors.OutOfMemoryError, errors.ObjectLostError):
                self._workers.remove(worker)
                self._cluster.check_after_death()
                if worker.place is not None:
                    waiting.append(worker.place)
                    yield worker, None
                    continue
                self._false_starts += 1
                if self._false_starts >= MAX_STARTS:
                    words = self._cluster.last_words()
                    raise DesignError(
                        f"workers: processes end as they start{words}; workers=serial works without them"
                    ) from None
                continue
            if not worker.ready:
                worker.ready, self._false_starts = True, 0
                continue
            yield worker, outcome
