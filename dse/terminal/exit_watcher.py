"""Watcher process that prints a line if this process is killed or ended by a library."""

import contextlib
import subprocess

from dse.terminal.child_python import build_python_command

CODE = "import sys; sys.stdin.read() or print(sys.argv[1], file=sys.stderr, flush=True)"
"""The input ends when this process ends; `ExitWatcher.close` writes something first."""


class ExitWatcher:
    """Watcher of this process from its creation until `close`.

    Args:
        line: what to print on standard error where this process ends before `close`.
    """

    def __init__(self, line: str) -> None:
        self._process = subprocess.Popen(
            build_python_command("-I", "-S", "-c", CODE, line),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the watch: from here on this process prints its own messages."""
        with contextlib.suppress(OSError, ValueError):
            self._process.communicate(b"closed", timeout=10)
