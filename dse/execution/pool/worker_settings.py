"""Settings of workers, and CPUs for them."""

import os
from dataclasses import dataclass

from dse.space.errors import DesignError
from dse.space.fields import computed_field, integer_field, option_field, quantity_field

MOST_PER_CPU = 16
"""Processes for each CPU of this machine, at most; more of them only take its memory."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of the workers of a study."""

    kind: str = option_field("processes that evaluate designs", ("auto", "processes", "ray", "serial"), default="serial")
    count: int = integer_field(
        "processes, or all for one per CPU (0 in the program)",
        words={"all": 0},
        default=0,
        unread={"workers.kind": ("serial",)},
    )
    retries: int = integer_field("how many times more a design is tried, alone, once it failed alone", low=0, default=1)
    time_limit: float = quantity_field(
        "s",
        "time of a worker for a design before it is stopped",
        positive=True,
        default=600.0,
        unread={"workers.kind": ("serial",)},
    )
    memory_limit: float = quantity_field(
        "B",
        "memory of a worker beyond what it holds when warm",
        positive=True,
        default=4 * 2.0**30,
        unread={"workers.kind": ("serial",)},
    )
    start_time: float = quantity_field(
        "s",
        "start of worker processes; `auto` starts them when they save more",
        positive=True,
        default=4.0,
        unread={"workers.kind": ("serial", "processes", "ray")},
    )
    address: str = computed_field('address of a running Ray cluster; "" for this machine', "")

    @property
    def parallel_kind(self) -> str:
        """Kind of workers once started: `auto` takes processes here, or the cluster at an address."""
        return self.kind if self.kind != "auto" else "ray" if self.address else "processes"

    @property
    def expected_count(self) -> int:
        """Number of workers, where all that there are on this machine are meant by 0."""
        return 1 if self.kind == "serial" else self.count or cpu_count()

    def check_count(self) -> None:
        """Refuse more processes than this machine could ever keep busy.

        Raises:
            DesignError: `count` is too high, and the workers are not those of a cluster.
        """
        most = MOST_PER_CPU * cpu_count()
        if self.kind != "serial" and not self.address and self.count > most:
            raise DesignError(
                f"workers.count: {self.count:,} processes for {cpu_count()} CPUs; at most {most} here; all takes one per CPU"
            )


def cpu_count() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
