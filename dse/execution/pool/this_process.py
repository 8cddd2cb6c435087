"""Workers of this process: one at a time, which cannot be stopped where an item hangs."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from dse.execution.pool.worker_calls import Reply, Worker


class ThisProcessWorker:
    """Worker that does a call when its reply is taken.

    Args:
        pickled: whether functions and values come pickled.
    """

    def __init__(self, *, pickled: bool = False) -> None:
        self._worker, self._calls = Worker(pickled=pickled), deque[tuple[str, tuple[Any, ...]]]()

    def send(self, name: str, *args: Any) -> None:
        """Queue a call."""
        self._calls.append((name, args))

    def take(self) -> Reply:
        """Do the oldest call."""
        name, args = self._calls.popleft()
        reply: Reply = getattr(self._worker, name)(*args)
        return reply

    def kill(self) -> None:
        """Drop what it was sent."""
        self._calls.clear()


class ThisProcess:
    """Kind of one worker, in this process."""

    name, children = "serial", False

    def count(self) -> int:
        """One."""
        return 1

    def encode(self, value: Any) -> Any:
        """The value itself."""
        return value

    def start(self) -> ThisProcessWorker:
        """Make the worker."""
        return ThisProcessWorker()

    def wait(self, handles: Sequence[ThisProcessWorker], timeout: float) -> list[ThisProcessWorker]:
        """The worker: it works when its reply is taken."""
        return list(handles)

    def check(self, *, after_death: bool = False) -> None:
        """Do nothing: this process runs."""

    def last_words(self) -> str:
        """Empty: what it writes is seen."""
        return ""

    def describe_room(self) -> str:
        """Empty: there is always room."""
        return ""

    def close(self) -> None:
        """Do nothing: nothing was started."""
