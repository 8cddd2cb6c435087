"""Cost of one phase of all cases that share a model."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.program.activity import Activity


class PhaseCost(NamedTuple):
    """Prefill or decode of the cases that share a model; leaves broadcast over entries and designs.

    Attributes:
        name: prefill or decode.
        machine: that it runs on.
        timed: blocks of one step of each entry; none where nobody asked for details.
        away: of each call of each block, what it reads from main memory over `fetch`; None for all of it, once.
        runs: steps of each entry, on all instances.
        between: of a step, from stage to stage; None where there is one stage. [s]
        seconds: of each case. [s]
        held: what the fullest device or core holds, as its layout says it.
        done: its activity, of each case, on all instances, or what counts it; None where nobody does.
        flop: useful operations, where somebody asks for them.
        dies: that each do what calls and costs say of one.
        asked: of the requests that runs have room for, the share that there is.
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
