"""Provenance of a run: its versions, commit, host, settings, and the time it took."""

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from dse.evaluators import PHYSICS_VERSION
from dse.execution.study import Study
from dse.execution.workers import WorkerPool
from dse.space.safe_text import mask_passwords_in
from dse.terminal.package_version import version


class RunClock:
    """Wall time and CPU time since the clock was made. [s]

    Attributes:
        workers: CPU time of workers. [s]
        elsewhere: of it, that of processes that are no children of this one. [s]
    """

    def __init__(self) -> None:
        self.workers = self.elsewhere = 0.0
        self._wall, self._cpu = time.monotonic(), self._spent_seconds()

    def __call__(self) -> dict[str, float]:
        """Of all processes, and of the workers' among them."""
        cpu = self._spent_seconds() - self._cpu + self.elsewhere
        return {"wall_seconds": time.monotonic() - self._wall, "cpu_seconds": cpu, "worker_cpu_seconds": self.workers}

    @contextlib.contextmanager
    def closing_workers(self, workers: WorkerPool) -> Iterator[WorkerPool]:
        """Context that closes workers at its end and counts their CPU time."""
        try:
            yield workers
        finally:
            workers.close()
            self.workers += workers.cpu
            self.elsewhere += 0.0 if workers.children else workers.cpu

    def _spent_seconds(self) -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


def run_provenance(study: Study) -> dict[str, Any]:
    """Provenance of a run at its start, without passwords."""
    known = {
        "version": version(),
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in LIBRARIES}},
        "physics": PHYSICS_VERSION,
        "git": _git_commit(),
        "overrides": study.overrides,
        "config": {**study.config, "store": study.store, "overrides": []},
        "seed": study.seed,
        "command": " ".join(sys.argv),
    }
    return dict(mask_passwords_in(known))


LIBRARIES = ("optuna", "ray", "numpy")
"""Whose versions a run notes beside the project's own."""


def _git_commit() -> str:
    """The commit of this code, with "-dirty" where files differ from it; "" where it is not in a checkout of its own."""
    path = Path(__file__)

    def run_git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=path.parent, capture_output=True, text=True, check=True).stdout.strip()

    try:
        run_git("ls-files", "--error-unmatch", path.name)  # an environment inside somebody's repository is not of it
        return run_git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return ""
