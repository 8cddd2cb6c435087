"""What the pool asks of a kind of workers, and what a pool that cannot start says."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from dse.execution.pool.worker_calls import Reply
from dse.execution.pool.worker_settings import cpu_count
from dse.space.errors import DesignError
from dse.space.safe_text import mask_passwords, strip_control_codes

H = TypeVar("H")


class WorkerHandle(Protocol):
    """One worker, as the pool sees it."""

    def send(self, name: str, *args: Any) -> None:
        """Send a call of a method of `Worker`, behind earlier ones, without waiting."""

    def take(self) -> Reply:
        """Reply to the oldest call that has none yet, once `WorkerKind.wait` has given this worker.

        Raises:
            WorkerLostError: the worker died, or could not read the call.
        """

    def kill(self) -> None:
        """End the worker, whatever it does; it may have ended already."""


class WorkerKind(Generic[H]):
    """Kind of workers: how they start, answer and end; by default they are in this process.

    Attributes:
        children: whether workers are children of this process, whose CPU time the kernel adds to its own.
        works_ahead: whether workers work while this process does something else; if not, they are sent what there is only
            when their answers are waited for, in batches that are as large as can be.
    """

    children = False
    works_ahead = True

    def count(self) -> int:
        """Number of workers that there should be now."""
        raise NotImplementedError

    def start(self) -> H:
        """Start a worker, without waiting until it runs.

        Raises:
            PoolNotStartedError: the machine has no room for it.
        """
        raise NotImplementedError

    def wait(self, handles: Sequence[H], timeout: float) -> list[H]:
        """Workers that have a reply or have died, as soon as there are any, or after a time. [s]"""
        raise NotImplementedError

    def encode(self, value: Any) -> Any:
        """A function or values, as workers of this kind get them."""
        return value

    def check(self, *, after_death: bool = False) -> None:
        """Refuse to go on where all workers are lost; after the death of one, end what it left.

        Raises:
            DesignError: workers are lost, and none can be started.
        """

    def last_words(self) -> str:
        """Last line that a worker wrote to standard error, after a colon; empty string if none."""
        return ""

    def describe_room(self) -> str:
        """What there is for more workers, as text."""
        return f"the machine has {cpu_count()} CPUs and is too busy"

    def close(self) -> None:
        """End what was started beside the workers."""


class WorkerLostError(Exception):
    """A worker died, or could not read what it was sent; the text says which."""


class PoolNotStartedError(DesignError):
    """Workers do not start; work can go on without them."""


def refuse_start(what: str, why: BaseException | str) -> PoolNotStartedError:
    """Error that workers do not start, in one line: the only place where a `PoolNotStartedError` is made.

    Args:
        what: does not go, without a full stop.
        why: as text, or the error, of which the first line counts.

    >>> print(refuse_start("Ray does not start on this machine", OSError("no room.")))
    workers: Ray does not start on this machine: no room; workers=serial works without it
    """
    reason = next(iter(str(why).strip().splitlines()), type(why).__name__).rstrip(".")
    return PoolNotStartedError(f"workers: {what}: {reason}; workers=serial works without it")


def go_on_alone(kind: str, error: PoolNotStartedError, say: Callable[[str], None]) -> None:
    """Tell that work goes on in this process, where nobody asked for other workers.

    Args:
        kind: of workers that is wanted, as a study's settings name it.
        error: why others do not start.
        say: tells the user.

    Raises:
        PoolNotStartedError: the kind was asked for by its name.
    """
    if kind != "auto":
        raise error
    say(f"{error}, as now")


DIED = "died: the process that evaluated it ended"
"""Why an item has no result, where nobody knows more."""

MOST_OF_A_LOG = 10_000
"""Characters at the end of what a worker wrote that are looked at."""


def last_line(text: str) -> str:
    r"""Last line of a text, after a colon and without passwords; empty string if none.

    >>> last_line(":job_id:1\nMemoryError\n\n")
    ': MemoryError'
    """
    lines = [line.strip() for line in text[-MOST_OF_A_LOG:].split("\n")]
    lines = [line for line in lines if line and not line.startswith(":")]  # Ray's own marks begin so
    return f": {strip_control_codes(mask_passwords(lines[-1]))[:200]}" if lines else ""
