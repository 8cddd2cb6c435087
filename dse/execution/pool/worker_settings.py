"""Settings of workers, and CPUs for them."""

import os
from dataclasses import dataclass

KINDS = ("auto", "processes", "ray", "serial")
"""Words of `workers=`."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of the workers of a study.

    Attributes:
        kind: serial, processes, ray or auto.
        count: processes; 0 for one per CPU.
        retries: how many times more a design is tried, alone, once it failed alone.
        time_limit: what a worker may take for a design before it is stopped. [s]
        memory_limit: what a worker may hold beyond what it holds when warm. [B]
        start_time: what processes take to start; `auto` starts them when they save more. [s]
        address: of a running Ray cluster; "" for this machine.
    """

    kind: str = "serial"
    count: int = 0
    retries: int = 1
    time_limit: float = 600.0
    memory_limit: float = 4 * 2.0**30
    start_time: float = 2.0
    address: str = ""

    @property
    def parallel_kind(self) -> str:
        """Kind of workers once started: `auto` takes processes here, or the cluster at an address."""
        return self.kind if self.kind != "auto" else "ray" if self.address else "processes"

    @property
    def expected_count(self) -> int:
        """Number of workers, where all that there are on this machine are meant by 0."""
        return 1 if self.kind == "serial" else self.count or cpu_count()


def cpu_count() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
