"""What serving asks about one die of a system of many."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.memory_contents import CACHE, MemoryContents
from dse.evaluators.accounting.multi_die import DieKind
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.layouts.micro_batches import BatchWork, IterationWork
from dse.evaluators.layouts.multi_die import DieSplit
from dse.evaluators.program.activity import Activity
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.model import Model


class ServedDie(NamedTuple):
    """What serving asks about one die of a system of dies of tiles, or with a shared cache each.

    Attributes:
        kind: work, machine and value sizes of a die.
        peak_rates: of a die.
        memory_capacity: of a die's main memory. [B]
        activity_energy: dynamic energy of an activity. [J]
        contents: of the memories of a die in a phase, from bytes by use, and from those of a tile by kind of operator.
        structural_limits: of the structure of a die.
        breakdown_rows: of a phase.
        levers: what may be changed so that a violated limit holds.
        request_work: records a die's work, so that equal work of designs is computed together; does nothing where dies have
            no such work.
        with_tiers: kind of a die whose memory tiers have shares of contents, for a model; None where dies have no tiers.
    """

    kind: DieKind
    peak_rates: Callable[[Design], PeakRates]
    memory_capacity: Callable[[Design], Any]
    activity_energy: Callable[[Design, Activity], Any]
    contents: Callable[[Design, str, tuple[tuple[str, Any], ...], Any], list[MemoryContents]]
    structural_limits: Callable[[Design], list[Limit]]
    breakdown_rows: Callable[[PhaseCost, str], list[BreakdownRow]]
    levers: Callable[[Infeasibility, Design, tuple[BatchArrays, ...]], tuple[Lever, ...]]
    request_work: Callable[[Design, BatchWork | IterationWork, DieSplit, str], None]
    with_tiers: Callable[[Design, Mapping[str, Any], Model], DieKind] | None = None


class TightestStage(NamedTuple):
    """The pipeline stage with least free memory, for one of its dies.

    Attributes:
        weights: [B]
        beside: activations and dispatched tokens of the largest iterations, by item. [B]
        kv: bytes of positions that are kept, by reach, and of states of sequences.
        shares: of the time of an iteration, by stage of all.
        fed: what a die of FFNs alone has on the stage that has most, by what it is; () where there are none. [B]
        experts: of `weights`, those of routed experts and their copies. [B]
    """

    weights: float
    beside: tuple[tuple[str, float], ...]
    kv: Callable[[Any, float], Any]
    shares: tuple[float, ...]
    fed: tuple[tuple[str, float], ...] = ()
    experts: float = 0.0

    def parts(self, cache: float) -> tuple[tuple[str, float], ...]:
        """Bytes of main memory by use, beside a KV cache of some bytes. [B]"""
        return (("weights", self.weights), (CACHE, cache), *self.beside)
