"""Workers that are threads of this process, for compiled loops that release the interpreter's lock.

What they work on is not copied. A thread cannot be killed: one that hangs is asked to stop, and another takes its place.
"""

from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Condition, Event, Thread
from typing import Any

from dse.execution.pool.worker_calls import Reply, Worker
from dse.execution.pool.worker_kind import WorkerKind, WorkerLostError


class ThreadWorker:
    """Worker that is a thread of this process.

    Args:
        begin: first thing that the thread does, with the event that asks it to stop.
        answered: to tell when there is a reply.
    """

    def __init__(self, begin: Callable[[Event], object], answered: Condition) -> None:
        self._begin, self._answered, self._over = begin, answered, Event()
        self._calls, self.replies = SimpleQueue[tuple[str, tuple[Any, ...]] | None](), deque[Reply | BaseException]()
        Thread(target=self._run, daemon=True).start()

    def send(self, name: str, *args: Any) -> None:
        """Queue a call behind earlier ones."""
        self._calls.put((name, args))

    def take(self) -> Reply:
        """Reply to the oldest call that has none yet."""
        reply = self.replies.popleft()
        if isinstance(reply, BaseException):
            raise WorkerLostError(f"{type(reply).__name__}: {reply}")
        return reply

    def kill(self) -> None:
        """Ask the thread to stop, without waiting."""
        self._over.set()
        self._calls.put(None)

    def _run(self) -> None:
        self._begin(self._over)
        worker = Worker()
        while (call := self._calls.get()) is not None and not self._over.is_set():
            reply: Reply | BaseException
            try:
                reply = getattr(worker, call[0])(*call[1])
            except BaseException as error:  # the thread of the pool is told
                reply = error
            with self._answered:
                self.replies.append(reply)
                self._answered.notify()


class Threads(WorkerKind[ThreadWorker]):
    """Kind of workers that are threads of this process.

    Args:
        count: of them.
        begin: first thing that each does, with the event that asks it to stop.
    """

    def __init__(self, count: int, begin: Callable[[Event], object] = bool) -> None:
        self._count, self._begin, self._answered = count, begin, Condition()

    def count(self) -> int:
        """Number of threads that there should be."""
        return self._count

    def start(self) -> ThreadWorker:
        """Start a thread, which waits for calls."""
        return ThreadWorker(self._begin, self._answered)

    def wait(self, handles: Sequence[ThreadWorker], timeout: float) -> list[ThreadWorker]:
        """Threads that have a reply, as soon as there are any."""
        with self._answered:
            self._answered.wait_for(lambda: any(handle.replies for handle in handles), timeout)
            return [handle for handle in handles if handle.replies]
