"""Workers in processes of this machine, which start in the time of an import.

Messages go over a pair of sockets, which never make this process wait. A worker has a session of its own, so that Ctrl-C
reaches this process only, and it ends with this process.
"""

import contextlib
import itertools
import os
import pickle
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from dse.execution.pool.local_worker import HEADER, encode_message, pickle_value
from dse.execution.pool.this_process import ThisProcessWorker
from dse.execution.pool.worker_calls import Reply
from dse.execution.pool.worker_kind import DIED, WorkerKind, WorkerLostError, last_line, refuse_start
from dse.execution.pool.worker_settings import cpu_count
from dse.terminal import orphan_processes as left
from dse.terminal.child_python import build_child_environment, build_python_command

COMMAND = "import sys; from dse.execution.pool.local_worker import run_worker; run_worker(int(sys.argv[1]))"

MARK = "DSE_WORKER_OF"
"""Variable of workers and of what they start: the process that started them, and which of its pools, as 4711.2."""

NUMBERS = itertools.count(1)
"""Numbers of the pools of this process."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit the threads of numerical libraries; a worker has one CPU, unless they are set."""


class LocalWorker:
    """Worker that is a process of this machine.

    Args:
        errors: file for what it writes to standard error.
        mark: of its pool, by which what it starts is found when it has died.

    Raises:
        OSError: no process or socket can be made.
    """

    def __init__(self, errors: Any, mark: str) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._out, self._in, self._closed = bytearray(), bytearray(), False
        environment = {**dict.fromkeys(THREADS, "1"), **build_child_environment(), MARK: mark}
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(self.socket.close)
            self.process = subprocess.Popen(
                build_python_command("-c", COMMAND, str(theirs.fileno())),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            unless_started.pop_all()

    @property
    def ready(self) -> bool:
        """Whether there is a reply, or the process has ended."""
        return self._closed or (
            len(self._in) >= HEADER and len(self._in) >= HEADER + int.from_bytes(memoryview(self._in)[:HEADER])
        )

    @property
    def events(self) -> int:
        """What to wait for on its socket."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)

    def send(self, name: str, *args: Any) -> None:
        """Send a call, as far as the socket takes it now."""
        self._out += encode_message((name, args))
        self.write()

    def write(self) -> None:
        """Send what waits to be sent, as far as the socket takes it."""
        with contextlib.suppress(BlockingIOError, OSError):  # that it has ended is seen when it is read
            while self._out:
                del self._out[: self.socket.send(self._out)]

    def read(self) -> None:
        """Read what the worker has sent so far."""
        with contextlib.suppress(BlockingIOError):
            try:
                while part := self.socket.recv(1 << 20):
                    self._in += part
            except ConnectionError:
                pass
            self._closed = True

    def look(self) -> None:
        """Note whether the process has ended.

        Its socket does not say so while a process that it left holds it too.
        """
        if self.process.poll() is not None:
            self.read()
            self._closed = True

    def take(self) -> Reply:
        """Reply to the oldest call that has none yet."""
        if len(self._in) < HEADER or not self.ready:
            raise WorkerLostError(DIED)
        end = HEADER + int.from_bytes(memoryview(self._in)[:HEADER])
        if len(self._in) < end:
            raise WorkerLostError(DIED)
        message = bytes(memoryview(self._in)[HEADER:end])
        del self._in[:end]
        try:
            reply = pickle.loads(message)
        except Exception as error:  # a result that this process cannot read
            raise WorkerLostError(f"its result: {type(error).__name__}: {error}") from None
        if isinstance(reply, str):
            raise WorkerLostError(reply)
        return Reply(*reply)

    def kill(self) -> None:
        """End the process and wait for that."""
        self.process.kill()
        self.process.wait()
        self.socket.close()


class LocalProcesses(WorkerKind[Any]):
    """Kind of workers in processes of this machine.

    Args:
        count: of them; 0 for one per CPU.
    """

    children = True

    def __init__(self, count: int = 0) -> None:
        self._count = count or cpu_count()
        self._errors: Any = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the pool
        self._running: list[LocalWorker] = []
        self._mark = f"{os.getpid()}.{next(NUMBERS)}"  # other pools of this process end what their own workers left
        left.adopt_orphans()

    def count(self) -> int:
        """Number of processes that there should be."""
        return self._count

    def encode(self, value: Any) -> bytes:
        """A pickle of a function or of values."""
        pickled = pickle_value(value)
        if b"__main__" in pickled:  # pickles name functions and classes by their module
            raise pickle.PicklingError("it is of the script that runs, which other processes do not import")
        return pickled

    def start(self) -> LocalWorker:
        """Start a process, which then waits for calls.

        Raises:
            PoolNotStartedError: the machine has no room for one.
        """
        try:
            worker = LocalWorker(self._errors, self._mark)
        except OSError as error:
            raise refuse_start("processes do not start on this machine", error) from None
        self._running = [*(other for other in self._running if other.process.returncode is None), worker]
        return worker

    def wait(self, handles: Sequence[LocalWorker], timeout: float) -> list[LocalWorker]:
        """Workers that have a reply or have ended."""
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for handle in handles:
                selector.register(handle.socket, handle.events, handle)
            while not (ready := [handle for handle in handles if handle.ready]):
                events = selector.select(max(0.0, end - time.monotonic()))
                if not events:
                    for handle in handles:
                        handle.look()
                    ready = [handle for handle in handles if handle.ready]
                    break
                for key, event in events:
                    if event & selectors.EVENT_WRITE:
                        key.data.write()
                        selector.modify(key.fileobj, key.data.events, key.data)
                    if event & selectors.EVENT_READ:
                        key.data.read()
        return ready

    def check(self, *, after_death: bool = False) -> None:
        """End what dead workers left; processes themselves are never all lost."""
        if after_death:
            spared = {worker.process.pid for worker in self._running if worker.process.returncode is None}
            left.end_children(0.0, f"{MARK}={self._mark}", spared)

    def last_words(self) -> str:
        """Last line that a worker wrote to standard error, after a colon."""
        self._errors.seek(0)
        return last_line(self._errors.read().decode(errors="replace"))

    def close(self) -> None:
        """End the processes that workers have left."""
        self.check(after_death=True)
        self._errors.close()


class WithThisProcess(LocalProcesses):
    """Kind of workers of which the first is this process, and the others are processes of this machine.

    What others have answered waits while this process is at its own item. For few and long items.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._here: ThisProcessWorker | None = None

    def start(self) -> Any:
        """Start a process, but not for the first worker."""
        if self._here is None:
            self._here = ThisProcessWorker(pickled=True)
            return self._here
        return super().start()

    def wait(self, handles: Sequence[Any], timeout: float) -> list[Any]:
        """Workers that have a reply; this process's own works when its reply is taken."""
        own = [handle for handle in handles if handle is self._here]
        others = [handle for handle in handles if handle is not self._here]
        ready = super().wait(others, 0.0 if own else timeout)
        return ready or own
