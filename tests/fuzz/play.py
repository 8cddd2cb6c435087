"""A command played in this process: how it ended, what it printed, and what it did that no answer needs."""

import contextlib
import io
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sql

import dse.main

LIMIT = 10.0
"""Most that an answer or a refusal may take. [s]"""

FORBIDDEN = {
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "pickle.find_class",
    "socket.connect",
    "shutil.rmtree",
}
PLAIN = [
    *(("builtins", name) for name in ("dict", "int", "list", "object")),
    *(("collections", "defaultdict"), ("typing", "Any"), ("dse.config.hydra_sources", "ParsedConfig")),
]
"""Types of values that run nothing."""

PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*sesame|[?&]password=[^&\s]*sesame")
"""That of the samples, where a reader of URLs finds one."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit status; -1 where it raised.
        did: what it ran, sent or wrote elsewhere.
    """

    code: int
    out: str
    error: str
    seconds: float
    did: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """In one line that says why."""
        return self.code == 2

    @property
    def fault(self) -> str:
        """What is wrong with it, nothing where it is an answer or a refusal."""
        lines = [line for line in self.error.splitlines() if line.strip()]
        if self.did:
            return f"did {self.did[0]}"
        if self.code not in (0, 1, 2, 3):  # 3 of an infeasible design
            return f"status {self.code}: {lines[-1] if lines else ''}"
        if "Traceback" in self.error or "Traceback" in self.out:
            return "a traceback"
        if self.code == 2 and (not lines or not lines[-1].startswith("dse: ")):
            return f"refused without a line: {lines[-1:]}"
        if not self.out.strip() and not lines:
            return "neither answered nor refused"
        if "\x1b" in self.out + self.error or PASSWORD.search(self.out + self.error):
            return "an escape or a password on the terminal"
        if self.seconds > LIMIT:
            return f"took {self.seconds:.0f} s"
        return ""


@dataclass
class _Watch:
    """What the process does while a command is played; an audit hook cannot be taken away, so it is switched."""

    folder: str = ""
    did: list[str] = field(default_factory=list)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.folder:
            return
        if event in FORBIDDEN and not _ours(event, args):
            self.did.append(f"{event} {args!r:.200}")
        elif event == "open" and isinstance(args[2], int) and args[2] & WRITES and self._elsewhere(args[0]):
            self.did.append(f"open for writing {args[0]!r}")

    def _elsewhere(self, path: Any) -> bool:
        if not isinstance(path, str | bytes):
            return False
        place = os.path.realpath(os.fsdecode(path))
        return not place.startswith((self.folder, "/dev/", "/proc/")) and "__pycache__" not in place and "numba" not in place


def _ours(event: str, args: tuple[Any, ...]) -> bool:
    """What an answer needs: the commit of the checkout, compiled loops that are kept, and our own files as they were parsed."""
    if event == "pickle.find_class":
        return str(args[0]).startswith(("numba.", "numpy.", "copyreg", "omegaconf.", "hydra.plugins.")) or args in PLAIN
    command = args[1] if event == "subprocess.Popen" and len(args) > 1 else None
    return bool(command and os.path.basename(str(command[0])) == "git")


_watch = _Watch()
_hooked: list[bool] = []


def played(line: list[str], limit: float = LIMIT) -> Ended:
    """Plays a command in the working folder."""
    if not _hooked:
        sys.addaudithook(_watch)
        sql.event.listen(sql.Engine, "do_connect", _no_server)
        _hooked.append(True)
    out, error = io.StringIO(), io.StringIO()
    started, code, saved = time.monotonic(), 0, sys.argv
    sys.argv = ["dse", *line]
    _watch.did, _watch.folder = [], str(Path.cwd().resolve())
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), _within(2 * limit):
            dse.main.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):
            raise
        code = -1
        error.write(traceback.format_exc())
    finally:
        sys.argv, _watch.folder = saved, ""
    return Ended(code, out.getvalue(), error.getvalue(), time.monotonic() - started, list(_watch.did))


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _no_server(dialect: Any, record: Any, args: Any, parameters: Any) -> None:
    """No mutated URL reaches a machine: servers refuse at once, while a command is played."""
    if _watch.folder and dialect.name != "sqlite":
        raise dialect.dbapi.OperationalError("connection refused")
