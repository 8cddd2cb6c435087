"""A process that prints a line if this process ends without one: a library that ends it, or a kill that it cannot catch."""

import contextlib
import subprocess

from dse.terminal.child_python import python_command

CODE = "import sys; sys.stdin.read() or print(sys.argv[1], file=sys.stderr, flush=True)"
"""The input ends when this process ends; `ExitWatcher.close` writes something first."""


class ExitWatcher:
    """Watches this process from now until `close`.

    Args:
        line: what to print on standard error where this process ends before `close`.
    """

    def __init__(self, line: str) -> None:
        self._process = subprocess.Popen(
            python_command("-I", "-S", "-c", CODE, line),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the watch: from here on this process speaks for itself."""
        with contextlib.suppress(OSError, ValueError):
            self._process.communicate(b"closed", timeout=10)
