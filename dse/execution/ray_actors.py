"""Workers in separate processes, here or on a cluster; `dse/execution/ray_cluster.py` has the cluster.

Every process is an actor and nothing is a plain task, so workers that hold all CPUs do not block each other. Ray restarts and
retries nothing: the batch of a worker that died, hung or failed is tried alone in another worker, so that the failing design is
told from the others of its batch.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dse.execution.ray_cluster import RayCluster
from dse.execution.workers import (
    BATCH_S,
    AutoWorkers,
    Batch,
    DesignDuration,
    Entry,
    Evaluate,
    SerialWorkers,
    WorkerPool,
    WorkerSettings,
    evaluate_with_retries,
    failure_result,
)
from dse.space.errors import DesignError
from dse.space.units import format_quantity
from dse.store.store import DesignResult
from dse.terminal import orphan_processes as left

START_LIMIT_S = 60.0
"""What an actor may take to start and warm up. [s]"""

POLL_S = 2.0
"""How long to wait for an answer between two looks at the cluster. [s]"""

MAX_STARTS = 3
"""Actors that may die in a row while they start, before that is an error of the machine and not of a design."""


@dataclass
class _Task:
    answer: Any
    batch: Batch


@dataclass
class _Worker:
    """One actor.

    Attributes:
        starting: answers to coming up and to warming up, that are still to come.
        tasks: what it was sent and has not answered, oldest first.
        since: when it began with what it does.
        company: whether something was sent behind another since it was last idle; then a death accuses nobody.
        cpu: what its process had taken of the processors when it last answered. [s]
    """

    actor: Any
    starting: deque[Any]
    warmed: bool
    tasks: deque[_Task] = field(default_factory=deque)
    since: float = field(default_factory=time.monotonic)
    company: bool = False
    cpu: float = 0.0

    @property
    def awaited(self) -> Any:
        return self.starting[0] if self.starting else self.tasks[0].answer if self.tasks else None


def make_workers(
    crew: WorkerSettings, evaluate: Evaluate, *, window: int, designs: int, example: Batch, say: Callable[[str], None]
) -> WorkerPool:
    """Workers of a study as its settings choose: serial, Ray or automatic.

    Args:
        crew: who is wanted.
        evaluate: what they do.
        window: designs under way at most.
        designs: how many will be submitted, at most.
        example: a batch to warm new processes with, so that no design pays for imports and compilation.
        say: tells the user.
    """

    def start_ray_workers() -> WorkerPool:
        return RayWorkers(crew, evaluate, window=window, example=example, say=say)

    if crew.kind == "ray":
        return start_ray_workers()
    serial = SerialWorkers(evaluate, crew.retries)
    return serial if crew.kind == "serial" else AutoWorkers(serial, start_ray_workers, crew, designs, say)


class RayWorkers:
    """Workers that evaluate designs in actors of Ray.

    Args:
        crew: how many, with which limits, and where.
        evaluate: what they do.
        window: designs under way at most; a batch never holds more than a fair share of it.
        example: a batch that a new actor evaluates before it counts as ready, so that imports and compiled code are paid for.
        say: tells the user.

    Raises:
        DesignError: no cluster at the address.
    """

    def __init__(
        self, crew: WorkerSettings, evaluate: Evaluate, *, window: int, example: Batch, say: Callable[[str], None]
    ) -> None:
        self._crew = crew
        self._example = list(example)
        self._say = say
        self._queue: deque[Entry] = deque()
        self._suspects: deque[Entry] = deque()
        self._tries: dict[str, int] = {}
        self._failed: list[DesignResult] = []
        self._pace = DesignDuration()
        self._workers: list[_Worker] = []
        self._gone = 0.0
        self._false_starts = 0
        self._cluster = RayCluster(crew)
        self._ray = self._cluster.ray
        self._count = crew.count or int(self._ray.cluster_resources().get("CPU", 1))
        self._share = max(1, -(-window // (2 * self._count)))
        self._evaluate = self._cluster.share_value(evaluate)
        self._actor: Any = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(EvaluationActor)
        for _ in range(self._count):
            self._start_worker(warm=True)

    def submit(self, batch: Batch) -> None:
        """Queue designs, and send what workers can take now."""
        self._queue.extend(batch)
        self._assign_batches()

    def collect(self) -> list[DesignResult]:
        """Results as soon as there are any; workers that died or hang are replaced meanwhile."""
        results: list[DesignResult] = []
        while not results:
            self._assign_batches()
            awaited = {worker.awaited: worker for worker in self._workers if worker.awaited is not None}
            patience = min(self._task_deadline(worker) for worker in awaited.values()) - time.monotonic()
            self._ray.wait(list(awaited), num_returns=1, timeout=min(max(0.0, patience), POLL_S))
            self._cluster.check()
            ready, _ = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
            for answer in ready:
                results += self._take_answer(awaited[answer], answer)
            for worker in [worker for answer, worker in awaited.items() if answer not in set(ready)]:
                if time.monotonic() > self._task_deadline(worker):
                    self._expire_worker(worker)
            results += self._failed
            self._failed = []
        return results

    @property
    def cpu(self) -> float:
        """CPU time of the workers up to their last results. [s]"""
        return self._gone + sum(worker.cpu for worker in self._workers)

    def close(self) -> None:
        """Kill the actors, and end Ray if it was started here."""
        self._gone = self.cpu
        if not self._cluster.owned:
            for worker in self._workers:
                self._ray.kill(worker.actor)
        self._workers = []
        self._cluster.close()

    def _start_worker(self, warm: bool) -> None:
        actor = self._actor.remote(self._evaluate, self._crew.retries, self._crew.memory_limit)
        self._workers.append(
            _Worker(actor, deque((actor.answer_ready.remote(), actor.warm.remote(self._example if warm else []))), warm)
        )

    def _assign_batches(self) -> None:
        """Fills workers: those under suspicion alone, the others by batches; cheap batches two deep, to hide their travel."""
        depth = 2 if self._pace.seconds * self._pace.choose_batch_size(self._share) < BATCH_S / 2 else 1
        for level in range(depth):
            for worker in self._workers:
                if worker.starting or len(worker.tasks) != level:
                    continue
                if self._suspects:
                    if not level:
                        self._send_batch(worker, [self._suspects.popleft()])
                elif self._queue and not (level and worker.tasks[0].batch[0][0] in self._tries):
                    size = self._pace.choose_batch_size(min(self._share, len(self._queue)))
                    self._send_batch(worker, [self._queue.popleft() for _ in range(size)])

    def _send_batch(self, worker: _Worker, batch: Batch) -> None:
        if worker.tasks:
            worker.company = True
        else:
            worker.company, worker.since = False, time.monotonic()
        worker.tasks.append(_Task(worker.actor.evaluate.remote(batch), batch))

    def _take_answer(self, worker: _Worker, answer: Any) -> list[DesignResult]:
        """The answer of a worker."""
        try:
            given, fresh, worker.cpu = self._ray.get(answer)
        except Exception as error:  # it died, or its answer could not be carried
            self._lose_worker(worker, _reason_text(error))
            return []
        worker.since = time.monotonic()
        if worker.starting:
            worker.starting.popleft()
            if not worker.starting:
                self._false_starts = 0
            return []
        for entry in worker.tasks.popleft().batch:
            self._tries.pop(entry[0], None)
        self._pace.learn(given)
        if not fresh:  # what it holds is given back when it ends; what it was sent behind is tried by another
            entries = [entry for task in worker.tasks for entry in task.batch]
            self._drop_worker(worker)
            self._queue.extendleft(reversed(entries))
            self._start_worker(warm=True)
        return list(given)

    def _task_deadline(self, worker: _Worker) -> float:
        return worker.since + (START_LIMIT_S if worker.starting else self._crew.time_limit)

    def _expire_worker(self, worker: _Worker) -> None:
        if len(worker.starting) < 2:
            self._lose_worker(worker, f"hung: no answer in {format_quantity(self._crew.time_limit, 's')} (workers.time_limit)")
            return
        self._drop_worker(worker)
        free, total = (resources().get("CPU", 0) for resources in (self._ray.available_resources, self._ray.cluster_resources))
        if not self._workers:
            raise DesignError(
                f"workers: none started in {format_quantity(START_LIMIT_S, 's')}; the cluster has {total:g} CPUs, "
                f"{free:g} of them free; "
                "free some, or run with workers=serial"
            )
        self._say(f"[yellow]workers[/]: {len(self._workers)} of {self._count} run; the cluster has {free:g} CPUs free")

    def _lose_worker(self, worker: _Worker, reason: str) -> None:
        """Replaces a worker; its designs are tried alone, and one that was alone already is tried again or has failed."""
        self._drop_worker(worker)
        self._cluster.check_after_death()
        self._cluster.sweep()
        if worker.starting:
            self._false_starts += not worker.warmed
            if self._false_starts > MAX_STARTS:
                why = f"{reason}{self._cluster.last_words()}; workers=serial evaluates in this process"
                raise DesignError(f"workers: {self._false_starts} in a row ended during their start; the last one: {why}")
            self._start_worker(warm=False)  # the example itself may be what kills
            return
        entries = [entry for task in worker.tasks for entry in task.batch]
        if len(entries) == 1 and not worker.company:
            key = entries[0][0]
            self._tries[key] = self._tries.get(key, 0) + 1
            if self._tries[key] > self._crew.retries:
                self._failed.append(failure_result(entries[0], reason, self._tries.pop(key), time.monotonic() - worker.since))
                entries = []
        for entry in entries:
            self._tries.setdefault(entry[0], 0)
        self._suspects.extend(entries)
        self._start_worker(worker.warmed)

    def _drop_worker(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._gone += worker.cpu
        with contextlib.suppress(Exception):  # it may be dead
            self._ray.kill(worker.actor)


Answer = tuple[list[DesignResult], bool, float]
"""Results; whether the process is as fresh as it was, or holds what failed; what it has taken of the processors. [s]"""


class EvaluationActor:
    """Actor that evaluates batches of designs in a process of its own."""

    def __init__(self, evaluate: Evaluate, retries: int, memory: float) -> None:
        self._evaluate = evaluate
        self._retries = retries
        self._memory = memory

    def answer_ready(self) -> Answer:
        """Return once the process runs, with its CPU time. [s]"""
        return [], True, time.process_time()

    def warm(self, example: Batch) -> Answer:
        """Import and compile by an example batch; memory counts from here."""
        if example:
            evaluate_with_retries(self._evaluate, example, 0)
        left.adopt_orphans()
        left.limit_memory(self._memory)
        return [], True, time.process_time()

    def evaluate(self, batch: Batch) -> Answer:
        """Results of a batch; an exception becomes a failed result."""
        before, since = _held_memory(), left.seconds_since_boot()
        results = evaluate_with_retries(self._evaluate, batch, self._retries)
        if not any(result.error for result in results):
            return results, True, time.process_time()
        left.end_children(since)
        return results, left.resident_memory() - before < left.MEMORY, time.process_time()


def _held_memory() -> int:
    """Memory that this process holds, as the kernel has it at once. [B]"""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


def _reason_text(error: Exception) -> str:
    """Why there is no answer, in one line."""
    import ray

    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "killed: its node ran out of memory"
    creation = str(error).partition("creation task")[2].strip().splitlines()
    if isinstance(error, ray.exceptions.ActorDiedError) and creation:  # what it was made of could not be loaded
        return f"its worker: {creation[-1].strip()}"
    if isinstance(error, ray.exceptions.ActorDiedError | ray.exceptions.ActorUnavailableError):
        return "died: the process that evaluated it ended"
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, ray.exceptions.RayTaskError):  # the worker's own traceback: where it was first, what it was last
        return f"its worker: {lines[-1]}"
    return f"{type(error).__name__}: {lines[0]}"
