"""Workers that evaluate designs: this process or separate ones. A failing design costs only itself.

Workers take designs as they are asked and hand results back as they are ready, in any order. What they do not do: decide
what is evaluated, or in which order a sampler hears of it.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import computed_field, integer_field, option_field, quantity_field
from dse.space.workload import Workload
from dse.store.store import DesignResult

Entry = tuple[str, dict[str, Any], Design]
"""(key, values, design) of a design to evaluate."""

Batch = Sequence[Entry]

Evaluate = Callable[[Batch], list[DesignResult]]
"""What a worker does with a batch: results in its order. It is sent to other processes, so it must be picklable."""

BATCH_S = 0.1
"""Work that is worth a message of its own; also what a worker can lose when it dies."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of the workers of a study."""

    kind: str = option_field("processes that evaluate designs", ("auto", "ray", "serial"), default="serial")
    count: int = integer_field("processes, or all for one per CPU (0 in the program)", words={"all": 0}, default=0)
    retries: int = integer_field("how many times more a design is tried, alone, once it failed alone", low=0, default=1)
    time_limit: float = quantity_field("s", "time of a worker for a design before it is stopped", positive=True, default=600.0)
    memory_limit: float = quantity_field(
        "B", "memory of a worker beyond what it holds when warm", positive=True, default=4 * 2.0**30
    )
    start_time: float = quantity_field("s", "start of Ray; `auto` starts it when it saves more", positive=True, default=4.0)
    address: str = computed_field('address of a running Ray cluster; "" starts one on this machine', "")


class WorkerPool(Protocol):
    """Interface of worker pools: submit batches of designs, collect their results."""

    @property
    def cpu(self) -> float:
        """CPU time of the pool's separate processes. [s]"""

    def submit(self, batch: Batch) -> None:
        """Queue designs for evaluation, in the order of submission."""

    def collect(self) -> list[DesignResult]:
        """Wait for at least one result and return those that are ready; only while some are pending."""

    def close(self) -> None:
        """End every process of the pool, whatever it does."""


class SerialWorkers:
    """Worker pool that evaluates batches in this process; a design that hangs cannot be stopped."""

    def __init__(self, evaluate: Evaluate, retries: int = 0) -> None:
        self._evaluate = evaluate
        self._retries = retries
        self._queue: deque[Entry] = deque()
        self.pace = DesignDuration()
        self.cpu = 0.0  # it has no process of its own

    def submit(self, batch: Batch) -> None:
        """Queue designs; evaluation happens when results are collected."""
        self._queue.extend(batch)

    def collect(self) -> list[DesignResult]:
        """Evaluate one batch and return its results."""
        results = evaluate_with_retries(
            self._evaluate, [self._queue.popleft() for _ in range(self.pace.choose_batch_size(len(self._queue)))], self._retries
        )
        self.pace.learn(results)
        return results

    def close(self) -> None:
        """Do nothing: there is no other process."""

    def take_rest(self) -> list[Entry]:
        """Remove and return the designs that are not evaluated."""
        left = list(self._queue)
        self._queue.clear()
        return left


class RayNotStartedError(DesignError):
    """Ray does not start on this machine; work can go on without it."""


class AutoWorkers:
    """Worker pool that is serial until the remaining work repays the start of Ray.

    If Ray does not start, it stays serial.
    """

    def __init__(
        self,
        serial: SerialWorkers,
        ray: Callable[[], WorkerPool],
        crew: WorkerSettings,
        designs: int,
        say: Callable[[str], None],
    ) -> None:
        self._serial = serial
        self._ray = ray
        self._crew = crew
        self._left = designs
        self._say = say
        self._rounds = 0
        self._hire_bench: WorkerPool | None = None
        self._alone = False

    @property
    def cpu(self) -> float:
        """CPU time of Ray workers, if there are any. [s]"""
        return self._hire_bench.cpu if self._hire_bench is not None else 0.0

    def submit(self, batch: Batch) -> None:
        """Queue designs with the present pool."""
        (self._hire_bench or self._serial).submit(batch)

    def collect(self) -> list[DesignResult]:
        """Collect results from the present pool; then decide whether to start Ray."""
        if self._hire_bench is not None:
            return self._hire_bench.collect()
        results = self._serial.collect()
        self._left -= len(results)
        self._rounds += 1
        if self._alone:
            return results
        count = self._crew.count or cpu_count()
        work = self._serial.pace.seconds * self._left
        # the first round pays for imports and compilation, and tells nothing of those to come
        if self._rounds > 1 and work * (1 - 1 / count) > self._crew.start_time:
            each = f"{self._serial.pace.seconds * 1e3:.3g} ms"
            self._say(f"workers: ray, {count} (auto: some {work:.0f} s of work left at {each} a design repay its start)")
            try:
                self._hire_bench = self._ray()
            except RayNotStartedError as error:
                self._say(f"{error}, as now")
                self._alone = True
            else:
                self._hire_bench.submit(self._serial.take_rest())
        return results

    def close(self) -> None:
        """End Ray, if it was started."""
        if self._hire_bench is not None:
            self._hire_bench.close()


class DesignDuration:
    """Recent time per design, which sets the size of a batch."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._known = False

    def learn(self, results: Iterable[DesignResult]) -> None:
        """Update the time per design: at once if it falls, by half if it rises."""
        spent = [result.seconds for result in results]
        mean = sum(spent) / len(spent)
        self.seconds = min(mean, (self.seconds + mean) / 2) if self._known else mean
        self._known = True

    def choose_batch_size(self, most: int) -> int:
        """Number of designs in a batch; one while the time per design is unknown."""
        return max(1, min(most, int(BATCH_S / max(self.seconds, 1e-9)))) if self._known else 1


def make_evaluator(workload: Workload, fidelity: str) -> Evaluate:
    """Function that evaluates batches of a study's designs."""
    return partial(evaluate_batch, workload=workload, fidelity=fidelity)


def evaluate_with_retries(evaluate: Evaluate, batch: Batch, retries: int) -> list[DesignResult]:
    """Results of a batch; if the batch fails as a whole, its designs are tried one by one."""
    if len(batch) > 1:
        try:
            return evaluate(batch)
        except Exception:  # any fault of one design must not cost the others
            return [evaluate_with_retries(evaluate, [entry], retries)[0] for entry in batch]
    start = time.perf_counter()
    reason = ""
    for _ in range(1 + retries):
        try:
            return evaluate(batch)
        except Exception as error:
            lines = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return [failure_result(batch[0], reason, 1 + retries, time.perf_counter() - start)]


def failure_result(entry: Entry, reason: str, tries: int, seconds: float) -> DesignResult:
    """Result of a design whose evaluation failed."""
    times = f" (tried {tries} times)" if tries > 1 else ""
    return DesignResult(entry[0], entry[1], error=reason + times, seconds=seconds)


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


def cpu_count() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
