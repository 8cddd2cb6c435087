"""Calls of a worker: it runs a batch, and tells a failing item from the others.

A worker imports this module first, so nothing heavy is imported here.
"""

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dse.terminal import orphan_processes as left

Work = Callable[[Sequence[Any]], Sequence[Any]]
"""Function from the values of a batch to their results, in the same order. Other processes import it by its name."""


@dataclass(frozen=True)
class Failure:
    """Why an item has no result.

    Attributes:
        reason: in one line.
        tries: how often it was tried.
        seconds: the last tries took. [s]
        died: whether its worker died or hung, and not its function raised.
        error: what the function raised; None where that cannot be sent.
    """

    reason: str
    tries: int
    seconds: float
    died: bool = False
    error: BaseException | None = None

    def __reduce__(self) -> Any:
        try:
            error = pickle.dumps(self.error)
        except Exception:  # whatever an exception holds that no other process can read
            error = b""
        return _read_failure, (self.reason, self.tries, self.seconds, self.died, error)


def _read_failure(reason: str, tries: int, seconds: float, died: bool, error: bytes) -> Failure:
    raised = None
    with contextlib.suppress(Exception):
        raised = pickle.loads(error)
    return Failure(reason, tries, seconds, died, raised)


class Reply(NamedTuple):
    """Answer of a worker to one call.

    Attributes:
        outcomes: of each value, its result or `Failure`.
        fresh: whether the process is as before the call; one that still holds what a failed item left is replaced.
        took: CPU time of the call. [s]
        cpu: CPU time of the process so far. [s]
        seconds: wall time of the call. [s]
    """

    outcomes: list[Any]
    fresh: bool = True
    took: float = 0.0
    cpu: float = 0.0
    seconds: float = 0.0


def run_batch(work: Work, values: Sequence[Any], tries: int) -> list[Any]:
    """Results of a batch; if it fails as a whole, its items are tried one by one, each so many times."""
    if len(values) > 1:
        try:
            return list(work(values))
        except Exception:  # any fault of one item must not cost the others
            return [run_batch(work, [value], tries)[0] for value in values]
    start = time.perf_counter()
    for _ in range(tries):
        try:
            return list(work(values))
        except Exception as error:
            raised = error
    lines = str(raised).strip().splitlines()
    reason = f"{type(raised).__name__}: {lines[0]}" if lines else type(raised).__name__
    return [Failure(reason, tries, time.perf_counter() - start, error=raised)]


@dataclass(frozen=True)
class OneByOne:
    """Function of a batch that applies a function to each of its values."""

    function: Callable[[Any], Any]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Results of the values."""
        return [self.function(value) for value in values]


class Worker:
    """Worker in this process, where nothing is cleaned up after a failure.

    Args:
        pickled: whether functions and values come pickled.
    """

    def __init__(self, *, pickled: bool = False) -> None:
        self._work: Work | None = None
        self._pickled = pickled

    def answer_ready(self) -> Reply:
        """Return once the worker runs."""
        return Reply([])

    def warm(self, work: Any, values: Any, memory: float) -> Reply:
        """Do nothing: this process is warm."""
        return Reply([])

    def call(self, work: Any, values: Any, tries: int) -> Reply:
        """Results of a batch, with what it took.

        Args:
            work: the function; None for that of the last call.
            values: of the batch.
            tries: how often an item that raises is tried alone.
        """
        if work is not None:
            self._work = self._load(work)
        assert self._work is not None
        start, cpu = time.perf_counter(), time.thread_time()
        outcomes = run_batch(self._work, self._load(values), tries)
        return Reply(outcomes, took=time.thread_time() - cpu, seconds=time.perf_counter() - start)

    def _load(self, sent: Any) -> Any:
        return pickle.loads(sent) if self._pickled else sent


class ProcessWorker(Worker):
    """Worker in a process of its own, with limited memory, which ends what a failed item left."""

    def __init__(self) -> None:
        super().__init__(pickled=True)

    def answer_ready(self) -> Reply:
        """Return once the process runs, with its CPU time."""
        return Reply([], cpu=time.process_time())

    def warm(self, work: Any, values: Any, memory: float) -> Reply:
        """Import and compile by an example, which may fail; memory counts from here.

        Args:
            work: a function, pickled; None for no example.
            values: of the example, pickled.
            memory: what the process may hold beyond what it holds now. [B]
        """
        if work is not None:
            run_batch(self._load(work), self._load(values), 1)
        left.adopt_orphans()
        if memory < float("inf"):
            left.limit_memory(memory)
        return Reply([], cpu=time.process_time())

    def call(self, work: Any, values: Any, tries: int) -> Reply:
        """Results of a batch; processes that a failed item left are ended."""
        before, since, cpu = _held_memory(), left.seconds_since_boot(), time.process_time()
        reply = super().call(work, values, tries)
        fresh = not any(isinstance(outcome, Failure) for outcome in reply.outcomes)
        if not fresh:
            left.end_children(since)
            fresh = left.resident_memory() - before < left.MEMORY
        now = time.process_time()
        return reply._replace(fresh=fresh, took=now - cpu, cpu=now)


def _held_memory() -> int:
    """Memory that this process holds, as the kernel has it at once. [B]"""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
