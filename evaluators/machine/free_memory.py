"""Free memory of this host process (not of a chip), to refuse allocations before they are made."""

import os
import resource
from pathlib import Path

from dse.space.errors import DesignError

KEPT = 0.9
"""Share of the free memory that one thing may take: the process has others."""

GROUP = Path("/sys/fs/cgroup")
"""Folder in which Linux reports the memory limit of a container."""


def free_memory() -> float:
    """Memory that this process can still allocate; infinite if the system does not report it. [B]"""
    limits = [float("inf")]
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(float(line.split()[1]) * 1024)
    limit, used = (_text(GROUP / name).strip() for name in ("memory.max", "memory.current"))
    if limit.isdigit() and used.isdigit():
        limits.append(float(limit) - float(used))
    if len(limits) == 1 and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        limits.append(float(soft))
    return min(limits)


def hold_memory(nbytes: float, address: str, what: str, remedy: str) -> None:
    """Refuse an allocation that needs more memory than is free.

    Raises:
        DesignError: it does.
    """
    free = free_memory()
    if nbytes > KEPT * free:
        have = f"{what} need {nbytes / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free"
        raise DesignError(f"{address}: {have}; {remedy}")


def _text(path: Path) -> str:
    """Contents of a file; the empty string where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
