"""Cost of one phase of all cases that share a model."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.program.activity import Activity


class PhaseCost(NamedTuple):
    """Cost of prefill or decode of the cases that share a model; leaves broadcast.

    Attributes:
        name: prefill or decode.
        machine: that it runs on.
        timed: blocks of one step of each entry; empty without details.
        away: of each call of each block, what it reads from main memory over `fetch`; None for all of it, once.
        runs: steps of each entry, on all instances.
        between: of a step, from stage to stage; None where there is one stage. [s]
        seconds: of each case. [s]
        held: memory of the fullest device or core, as its layout defines it.
        done: activity of each case on all instances, or a function that counts it; None if nothing counts it.
        flop: useful operations, where they are computed.
        dies: number of dies that each do what calls and costs describe for one.
        asked: share of the requests of the runs that exist.
    """

    name: str
    machine: HardwareModel
    timed: tuple[TimedBlock, ...]
    away: tuple[tuple[Any, ...], ...] | None
    runs: Any
    between: Any
    seconds: Any
    held: Any
    done: Activity | Callable[[], Activity] | None
    flop: float = 0.0
    dies: Any = 1.0
    asked: Any = 1.0

    @property
    def activity(self) -> Activity | None:
        """Activity of each case over all instances; None if it is not counted."""
        return self.done() if callable(self.done) else self.done
