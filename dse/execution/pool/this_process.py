"""Workers of this process: one at a time, which cannot be stopped where an item hangs."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from dse.execution.pool.worker_calls import Reply, Worker
from dse.execution.pool.worker_kind import WorkerKind


class ThisProcessWorker:
    """Worker that does a call when its reply is taken.

    Args:
        pickled: whether functions and values come pickled.
    """

    def __init__(self, *, pickled: bool = False) -> None:
        self._worker, self._calls = Worker(pickled=pickled), deque[tuple[str, tuple[Any, ...]]]()

    def send(self, name: str, *args: Any) -> None:
        """Queue a call behind earlier ones."""
        self._calls.append((name, args))

    def take(self) -> Reply:
        """Do the oldest call, and return its reply."""
        name, args = self._calls.popleft()
        reply: Reply = getattr(self._worker, name)(*args)
        return reply

    def kill(self) -> None:
        """Drop the calls that it was sent."""
        self._calls.clear()


class ThisProcess(WorkerKind[ThisProcessWorker]):
    """Kind of one worker, which is this process."""

    works_ahead = False

    def count(self) -> int:
        """Number of workers, which is one."""
        return 1

    def start(self) -> ThisProcessWorker:
        """Make the worker, which needs no start."""
        return ThisProcessWorker()

    def wait(self, handles: Sequence[ThisProcessWorker], timeout: float) -> list[ThisProcessWorker]:
        """The worker: it works when its reply is taken."""
        return list(handles)
