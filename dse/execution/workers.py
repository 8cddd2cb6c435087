"""Workers of a study: designs go in and results come out, in any order.

A failing design costs only itself. Workers take designs as they are asked and hand results back as they are ready;
`dse/execution/pool` has the loop. What they do not do: decide what is evaluated, or in which order a sampler hears of it.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.execution.pool.affinity import Item
from dse.execution.pool.choice import make_worker_kind
from dse.execution.pool.dispatch import ItemDuration, Pool, PoolRules, repays_start
from dse.execution.pool.this_process import ThisProcess
from dse.execution.pool.worker_calls import Failure, run_batch
from dse.execution.pool.worker_kind import PoolNotStartedError, WorkerKind, go_on_alone
from dse.execution.pool.worker_settings import WorkerSettings
from dse.space.design import Design, stack_designs
from dse.space.workload import Workload
from dse.store.store import DesignResult

Entry = tuple[str, dict[str, Any], Design]
"""(key, values, design) of a design to evaluate."""

Batch = Sequence[Entry]

Evaluate = Callable[[Batch], list[DesignResult]]
"""What a worker does with a batch: results in its order. It is sent to other processes, so it must be picklable."""


class WorkerPool(Protocol):
    """Interface of workers: submit batches of designs, collect their results."""

    @property
    def cpu(self) -> float:
        """CPU time of separate processes. [s]"""

    @property
    def children(self) -> bool:
        """Whether these are children of this process, whose CPU time the kernel adds to its own."""

    def submit(self, batch: Batch) -> None:
        """Queue designs for evaluation, in the order of submission."""

    def collect(self) -> list[DesignResult]:
        """Wait for at least one result and return those that are ready; only while some are pending."""

    def close(self) -> None:
        """End every process, whatever it does."""


class StudyWorkers:
    """Workers of one kind that evaluate designs.

    Args:
        kind: of workers.
        evaluate: what they do.
        settings: their limits.
        window: designs under way at most; a batch never holds more than a fair share of it. 0 for no limit.
        example: a batch that a new process evaluates first, so that imports and compiled code are paid for.
        say: tells the user.

    Raises:
        PoolNotStartedError: workers do not start.
    """

    def __init__(
        self,
        kind: WorkerKind[Any],
        evaluate: Evaluate,
        settings: WorkerSettings,
        *,
        window: int = 0,
        example: Batch = (),
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        rules = PoolRules(
            settings.retries, 1 + settings.retries, settings.time_limit, settings.memory_limit, window, batches=True
        )
        self._evaluate = evaluate
        self._pool = Pool(kind, rules, example=(evaluate, list(example)) if example else None, say=say)

    @property
    def cpu(self) -> float:
        """CPU time of the workers up to their last results. [s]"""
        return self._pool.cpu

    @property
    def children(self) -> bool:
        """Whether the workers are children of this process."""
        return self._pool.children

    def submit(self, batch: Batch) -> None:
        """Queue designs, and send what workers can take now."""
        self._pool.submit(self._evaluate, [Item(entry[0], entry) for entry in batch])

    def collect(self) -> list[DesignResult]:
        """Results as soon as there are any."""
        return [
            answer.value if answer.failure is None else failure_result(answer.value, answer.failure)
            for answer in self._pool.collect()
        ]

    def withdraw(self) -> list[Entry]:
        """Remove and return the designs that have no result."""
        return [item.value for item in self._pool.withdraw()]

    def close(self) -> None:
        """End the workers, whatever they do."""
        self._pool.close()


class SerialWorkers(StudyWorkers):
    """The process itself as the only worker; a design that hangs cannot be stopped."""

    def __init__(self, evaluate: Evaluate, retries: int = 0, window: int = 0) -> None:
        super().__init__(ThisProcess(), evaluate, WorkerSettings("serial", retries=retries), window=window)


class AutoWorkers:
    """The process itself as the only worker until the remaining work repays the start of others.

    If these do not start, it goes on alone.

    Args:
        serial: this process.
        start: starts the others.
        settings: how many there are, of which kind, and what they take to start.
        designs: how many will be submitted, at most.
        say: tells the user.
    """

    def __init__(
        self,
        serial: SerialWorkers,
        start: Callable[[], StudyWorkers],
        settings: WorkerSettings,
        designs: int,
        say: Callable[[str], None],
    ) -> None:
        self._serial, self._start, self._settings, self._say = serial, start, settings, say
        self._left, self._rounds, self._pace, self._alone = designs, 0, ItemDuration(), False
        self._others: StudyWorkers | None = None

    @property
    def cpu(self) -> float:
        """CPU time of other workers, if there are any. [s]"""
        return self._others.cpu if self._others is not None else 0.0

    @property
    def children(self) -> bool:
        """Whether other workers are children of this process."""
        return self._others is not None and self._others.children

    def submit(self, batch: Batch) -> None:
        """Queue designs with the present workers."""
        (self._others or self._serial).submit(batch)

    def collect(self) -> list[DesignResult]:
        """Results of the present workers, after which it is decided whether to start others."""
        if self._others is not None:
            try:
                return self._others.collect()
            except PoolNotStartedError as error:
                self._go_on_alone(error, self._others)
        results = self._serial.collect()
        self._left -= len(results)
        self._rounds += 1
        self._pace.learn(sum(result.seconds for result in results) / len(results))
        work = self._pace.seconds * self._left
        # the first round pays for imports and compilation, and tells nothing of those to come
        if self._alone or self._rounds < 2 or not repays_start(work, self._settings.expected_count, self._settings.start_time):
            return results
        each = f"{self._pace.seconds * 1e3:.3g} ms"
        self._say(
            f"workers: {self._settings.parallel_kind}, {self._settings.expected_count} "
            f"(auto: some {work:.0f} s of work left at {each} a design repay their start)"
        )
        try:
            self._others = self._start()
        except PoolNotStartedError as error:
            self._go_on_alone(error, None)
            return results
        left = self._serial.withdraw()
        try:
            self._others.submit(left)
        except PoolNotStartedError as error:
            self._serial.submit(left)
            self._go_on_alone(error, self._others)
        return results

    def close(self) -> None:
        """End other workers, if they were started."""
        if self._others is not None:
            self._others.close()

    def _go_on_alone(self, error: PoolNotStartedError, others: StudyWorkers | None) -> None:
        go_on_alone(self._settings.kind, error, self._say)
        self._alone = True
        if others is not None:
            self._serial.submit(others.withdraw())
            others.close()
            self._others = None


def make_workers(
    settings: WorkerSettings, evaluate: Evaluate, *, window: int, designs: int, example: Batch, say: Callable[[str], None]
) -> WorkerPool:
    """Workers of a study as its settings choose.

    Args:
        settings: who is wanted.
        evaluate: what they do.
        window: designs under way at most.
        designs: how many will be submitted, at most.
        example: a batch to warm new processes with, so that no design pays for imports and compilation.
        say: tells the user.
    """

    def start_workers() -> StudyWorkers:
        return StudyWorkers(make_worker_kind(settings), evaluate, settings, window=window, example=example, say=say)

    if designs < 1:  # a search that has ended starts no process to find that out
        return SerialWorkers(evaluate, settings.retries)
    if settings.kind == "auto":
        return AutoWorkers(SerialWorkers(evaluate, settings.retries, window), start_workers, settings, designs, say)
    return start_workers()


def make_evaluator(workload: Workload, fidelity: str) -> Evaluate:
    """Function that evaluates batches of a study's designs."""
    return partial(evaluate_batch, workload=workload, fidelity=fidelity)


def evaluate_with_retries(evaluate: Evaluate, batch: Batch, retries: int) -> list[DesignResult]:
    """Results of a batch here; if the batch fails as a whole, its designs are tried one by one."""
    outcomes = run_batch(evaluate, batch, 1 + retries)
    return [
        failure_result(entry, outcome) if isinstance(outcome, Failure) else outcome
        for entry, outcome in zip(batch, outcomes, strict=True)
    ]


def failure_result(entry: Entry, failure: Failure) -> DesignResult:
    """Result of a design whose evaluation failed."""
    times = f" (tried {failure.tries} times)" if failure.tries > 1 else ""
    return DesignResult(entry[0], entry[1], error=failure.reason + times, seconds=failure.seconds)


def evaluate_batch(batch: Batch, workload: Workload, fidelity: str) -> list[DesignResult]:
    """Evaluate a batch in this process."""
    start = time.perf_counter()
    outcomes = evaluate(stack_designs([design for _, _, design in batch]), workload, fidelity=fidelity)
    seconds = (time.perf_counter() - start) / len(batch)
    columns = {name: column.tolist() for name, column in outcomes.columns.items()}
    found_batch = []
    for row, (key, values, _) in enumerate(batch):
        limit = int(outcomes.limit[row])
        metrics = {name: column[row] for name, column in columns.items() if column[row] == column[row]}
        binding = list(SILICON_LIMITS)[limit] if limit >= 0 else ""
        found_batch.append(
            DesignResult(key, values, metrics, binding, float(outcomes.need[row]), float(outcomes.have[row]), seconds)
        )
    return found_batch
