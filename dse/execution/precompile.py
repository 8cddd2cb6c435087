"""Compilation of the serving simulator in a separate process, while a command prepares its first run.

numba compiles in one thread of a process at a time. The other process keeps what it makes in the cache of compiled loops, where
this one finds it, or waits for it as for that of any process (`machine.compile_cache`); should it fail, this one compiles.
"""

import subprocess
from functools import lru_cache

import numpy as np

from dse.evaluators.machine.compile_cache import needs_compiling
from dse.evaluators.serving.event_loop import run_event_loop
from dse.evaluators.serving.iteration_time import constant_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.execution.pool.worker_settings import cpu_count
from dse.space.requests import Requests
from dse.terminal.child_python import build_child_environment, build_python_command

COMMAND = "import gc; gc.disable(); from dse.execution.precompile import compile_simulator; compile_simulator()"
"""Compiling makes millions of objects, and the process ends when it is done."""


@lru_cache(maxsize=1)
def start_precompile() -> "subprocess.Popen[bytes] | None":
    """Start the process that compiles the serving simulator; None if that is not useful.

    The cache may have it already or may not be writable, or there is one core.
    """
    if cpu_count() < 2 or not needs_compiling(run_event_loop):
        return None
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        build_python_command("-c", COMMAND), env=build_child_environment(), stdin=nothing, stdout=nothing, stderr=nothing
    )


def compile_simulator() -> None:
    """Compile the serving simulator by serving one request."""
    ones = np.ones(1, np.int64)
    simulate_serving(
        Requests(np.zeros(1), ones, ones),
        [InstancePool(constant_time(1.0), make_policy("chunked_prefill", tokens=1), KvMemory(1))],
    )
