"""What a run notes of itself: with what it was run, on which commit, and what it took."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from dse import version
from dse.database import masked
from dse.study import Study
from evaluators import PHYSICS


def clock() -> Callable[[], dict[str, float]]:
    """Seconds since now: by the wall, and of the processors for this process and those it waited for."""

    def cpu() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    wall, spent = time.monotonic(), cpu()
    return lambda: {"wall_seconds": time.monotonic() - wall, "cpu_seconds": cpu() - spent}


def facts(asked: Study) -> dict[str, Any]:
    """What is known of a run when it starts; without passwords."""
    return {
        "version": version(),
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in LIBRARIES}},
        "physics": PHYSICS,
        "git": _git(),
        "overrides": [masked(word) for word in asked.overrides],
        "config": {**asked.config, "store": masked(asked.store), "overrides": []},
        "seed": asked.seed,
        "command": masked(" ".join(sys.argv)),
    }


LIBRARIES = ("optuna", "ray", "numpy")
"""Whose versions a run notes beside the project's own."""


def _git() -> str:
    """The commit of this code, with "-dirty" where files differ from it; "" where it is not in a checkout of its own."""
    here = Path(__file__)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here.parent, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # an environment inside somebody's repository is not of it
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return ""
