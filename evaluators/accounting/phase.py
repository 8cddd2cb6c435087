"""Cost of one phase of a batch: time, activity, useful operations and memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.decode_segments import reduce_per_case
from dse.evaluators.accounting.memory_contents import MemoryContents
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.layouts.engine_overheads import OverheadTimes
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import PooledActivity
from dse.space.array_math import maximum

WorkCounts = Activity | PooledActivity
"""What workers do, counted, on a mesh or on shared-cache dies."""


class IterationSchedule(NamedTuple):
    """How often the iterations of a phase run on an instance; leaves broadcast over designs.

    Attributes:
        in_flight: iterations that follow one another through the stages of an instance.
        steps: how often all of these run, one set after the other.
        starts: where cases begin among the iterations; None where each iteration is a case.
        is_ring: whether a step ends with its last iteration, as decode steps do, since tokens go round; else iterations fill
            and drain the stages once, as prompts do.
    """

    in_flight: Any = 1.0
    steps: Any = 1.0
    starts: Any = None
    is_ring: bool = True


def phase_seconds(seconds: Any, interval: Any, schedule: IterationSchedule) -> Any:
    """Time of all iterations of each case, through pipeline stages. [s]

    A decode step takes `max(seconds, in_flight * interval)`. Prompts take `in_flight * interval` each, and the stages are
    filled once, which takes the largest `seconds - interval`.

    Args:
        seconds: one iteration through all stages; leaves broadcast over iterations and designs. [s]
        interval: from one iteration to the next, which is the time of the slowest stage; None where there is one stage. [s]
        schedule: how often they run.

    >>> phase_seconds(4.0, 1.0, IterationSchedule(in_flight=2.0, steps=3.0))
    12.0
    >>> phase_seconds(4.0, 1.0, IterationSchedule(in_flight=6.0, steps=3.0))
    18.0
    >>> phase_seconds(4.0, 1.0, IterationSchedule(in_flight=6.0, is_ring=False))
    9.0
    >>> phase_seconds(4.0, None, IterationSchedule(steps=3.0))
    12.0
    """
    if interval is None:
        return reduce_per_case(np.add, schedule.steps * seconds, schedule.starts)
    if schedule.is_ring:
        slowest = maximum(seconds, schedule.in_flight * interval)
        return reduce_per_case(np.add, schedule.steps * slowest, schedule.starts)
    fill = reduce_per_case(np.maximum, seconds - interval, schedule.starts)
    return reduce_per_case(np.add, schedule.in_flight * interval, schedule.starts) + fill


@dataclass(frozen=True, kw_only=True)
class PhaseCost:
    """Cost of prefill, of decode, or of the transition between them; leaves broadcast over cases.

    Attributes:
        name: prefill, decode or transition.
        machine: hardware that runs it.
        seconds: time of each case. [s]
        work: activity of each case on all instances, or on one of `workers`, or a function that counts it; None if nothing
            counts it.
        workers: that each do this work. [1]
        flop: useful operations of each case, at the formats of `PeakRates.flops`, or a function that counts them: those in
            other formats count by the time that they take. [op]
        memory: contents of the memories of the fullest device or core.
        timed: blocks of one iteration of each entry; empty without details.
        away: for each call of each block, the share of its bytes that main memory delivers; None for all of them, once.
        runs: iterations of each entry, on all instances.
        between: transfers between stages in one iteration; None where there is one stage. [s]
        dies: number of dies that each do what calls and costs describe for one.
        useful_share: share of the requests in the iterations that exist; the rest is padding of micro-batches.
        padded: blocks of one iteration of each entry as recorded graphs run it, if its requests are padded; empty without
            details.
        overheads: time of one iteration of each entry beyond its kernels.
        stages: pipeline stages, each on `dies` dies of its own, where blocks are those of all stages; 1 elsewhere.
    """

    name: str
    machine: HardwareModel
    seconds: Any
    work: WorkCounts | Callable[[], WorkCounts] | None
    workers: Any = 1.0
    flop: Any | Callable[[], Any] = 0.0
    memory: tuple[MemoryContents, ...] = ()
    timed: tuple[TimedBlock, ...] = ()
    away: tuple[tuple[Any, ...], ...] | None = None
    runs: Any = 1.0
    between: Any = None
    dies: Any = 1.0
    useful_share: Any = 1.0
    padded: tuple[TimedBlock, ...] = ()
    overheads: OverheadTimes = OverheadTimes()
    stages: int = 1

    @cached_property
    def activity(self) -> WorkCounts | None:
        """Activity of each case over all instances, or of one of `workers`; None if it is not counted."""
        return self.work() if callable(self.work) else self.work

    @cached_property
    def useful_flop(self) -> Any:
        """Useful operations of each case, on all instances. [op]"""
        return self.flop() if callable(self.flop) else self.flop


def useful_operations(blocks: Sequence[CallBlock], runs: Any, starts: Any = None) -> Any:
    """Useful operations of the iterations of each case. [op]

    Args:
        blocks: of one iteration of each entry.
        runs: how often each entry runs, padding left out.
        starts: where cases begin among entries.
    """
    total: Any = 0.0
    for block in blocks:
        flop: Any = 0.0
        for call in block.calls:
            flop = flop + call.flop * call.pace
        total = total + block.times * flop
    return reduce_per_case(np.add, runs * total, starts)


def mesh_work(phase: PhaseCost) -> Activity:
    """Activity of a phase on a mesh; none where nothing counts it."""
    work = phase.activity
    return work if isinstance(work, Activity) else Activity()
