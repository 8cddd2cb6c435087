"""Cleanup after a failed evaluation: processes that it started, and memory.

Processes are found as children, also those that went into a session of their own: the evaluating process adopts what their
parents leave. Where the kernel is not Linux, nothing is found.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

MEMORY = 64 * 2**20
"""What a process may hold more after a failed evaluation than before it, as allocators and caches keep some. [B]"""

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


def adopt_orphans() -> None:
    """Make this process the parent of orphaned processes below it, in place of the first process."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)


def list_child_processes(process_id: str = "self") -> set[int]:
    """Processes that this or another process has started or adopted and that have not ended."""
    processes: set[int] = set()
    for path in Path(f"/proc/{process_id}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            processes |= {int(word) for word in path.read_text().split()}
    return processes


def seconds_since_boot() -> float:
    """Time since the kernel started, by which it dates processes. [s]"""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0


def end_children(since: float, named: str = "", spared: Collection[int] = ()) -> None:
    """End children of this process, and all processes that those have started.

    Args:
        since: only those that began after this, by `seconds_since_boot`. [s]
        named: only those that were started with this variable, as NAME or NAME=VALUE.
        spared: processes that are not ended.
    """
    for _ in range(100):  # what is ended leaves its own children here
        left = {
            child_worker
            for child_worker in list_child_processes() - set(spared)
            if _start_time(child_worker) >= since - 0.05 and _has_name(child_worker, named)
        }
        if not left:
            return
        for child in left:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        for child in left:
            with contextlib.suppress(OSError):
                os.waitpid(child, 0)


def end_all() -> None:
    """End every process below this one."""
    ended, left = set[int](), list_child_processes()
    while left:
        ended |= left
        left = {below for child in left for below in list_child_processes(str(child))} - ended
    for child in ended:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)


def _start_time(child_worker: int) -> float:
    try:
        return int(Path(f"/proc/{child_worker}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return -1.0


def _has_name(child_worker: int, named: str) -> bool:
    try:
        variable = f"\0{named}\0" if "=" in named else f"\0{named}="
        return not named or variable.encode() in b"\0" + Path(f"/proc/{child_worker}/environ").read_bytes()
    except OSError:
        return False


def resident_memory() -> int:
    """Resident memory of this process after free memory is returned. [B]"""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def limit_memory(nbytes: float) -> None:
    """Make allocations beyond the present memory plus `nbytes` raise MemoryError, if supported."""
    import resource

    status = Path("/proc/self/status")
    if not status.exists():
        return
    held = next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmData"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + int(nbytes), hard))
