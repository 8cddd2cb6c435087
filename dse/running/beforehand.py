"""The serving loop compiled by a process of its own, beside what a command does before it first plays.

numba compiles in one thread of a process at a time. The other process keeps what it makes in the cache of compiled loops, where
this one finds it, or waits for it as for that of any process (`machine.compile_cache`); should it fail, this one compiles.
"""

import os
import subprocess
from functools import lru_cache

import numpy as np

from dse.evaluators.machine.compile_cache import missing
from dse.evaluators.serving.compiled import play
from dse.evaluators.serving.kvcache import Memory
from dse.evaluators.serving.loop import Pool, serve
from dse.evaluators.serving.policy import policy
from dse.evaluators.serving.price import constant
from dse.space.requests import Requests
from dse.terminal.child_python import child_environment, python_command

COMMAND = "import gc; gc.disable(); from dse.running.beforehand import compiled; compiled()"
"""Compiling makes millions of objects, and the process ends when it is done."""


@lru_cache(maxsize=1)
def begun() -> "subprocess.Popen[bytes] | None":
    """The process that compiles the loop, once; none where the cache has it or cannot be written, or there is one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or not missing(play):
        return None
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        python_command("-c", COMMAND), env=child_environment(), stdin=nothing, stdout=nothing, stderr=nothing
    )


def compiled() -> None:
    """Compiles the loop by serving one request."""
    one = np.ones(1, np.int64)
    serve(Requests(np.zeros(1), one, one), [Pool(constant(1.0), policy("chunked", tokens=1), Memory(1))])
