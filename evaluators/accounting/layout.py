"""What a layout answers about a batch: costs of phases, structural limits, peak rates and levers.

A layout is the division of a model over devices, dies, regions or tiles. It prices iterations; all that follows from them
alike on every layout (limits of memories, utilisation, energy, power, rates) is in `accounting.batch_account`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.decode_segments import BatchArrays, arrays_by_model
from dse.evaluators.accounting.layout_registry import BATCH_LAYOUTS, load_layout
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.usage import PeakRates
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.software import software_of
from dse.space.workload import BatchCase, Workload

STAGE_WAITS = "waits for the slowest stage"
"""Breakdown operator of time beyond the mean work of a stage: stages that fill, drain, or have less to do."""


class Layout(ABC):
    """A model on the workers of designs of one structure, for prefill and decode of a batch.

    Values broadcast over the cases of a job and over designs. An object has no state.
    """

    FIDELITIES: ClassVar[tuple[str, ...]]
    """Fidelities that the whole chip has."""

    SUBMESH_FIDELITIES: ClassVar[tuple[str, ...]] = ()
    """Fidelities that a submesh has."""

    ANALYTICAL_FIDELITIES: ClassVar[tuple[str, ...]] = ("analytical",)
    """Fidelities of a design that nothing can simulate."""

    SINGLE_DESIGN_FIDELITIES: ClassVar[tuple[str, ...]] = ()
    """Fidelities that take one design after another."""

    SUBMESH_TEXT: ClassVar[str] = ""
    """How a model shrinks on a submesh, as text; empty where it does not."""

    WAIT_LABEL: ClassVar[str] = "stages"
    """Breakdown segment of waits and overlap between requests."""

    GAP_LABEL: ClassVar[str] = "overlap of requests"
    """Breakdown operator of time beyond the blocks' own."""

    HIDDEN_LABEL: ClassVar[str] = "overlap of requests"
    """Breakdown operator of time that overlap saves."""

    batch_arrays: Callable[[Workload], tuple[BatchArrays, ...]] = staticmethod(arrays_by_model)
    """Cases that are evaluated together."""

    @abstractmethod
    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs of prefill and decode, and of the transition between them where their layouts differ.

        Only detailed phases keep their blocks.

        Raises:
            DesignError: an algorithm or a number format that the layout has no kernels for.
        """

    def least_phases(self, fastest: Design, smallest: Design, job: BatchArrays) -> tuple[PhaseCost, ...]:
        """Costs of phases of which no design of a box takes less time or does less work.

        Args:
            fastest, smallest: corners of boxes, as of `accounting.box_bounds`.
            job: the batch.
        """
        return self.phases(fastest, job, "analytical")

    def size_thresholds(self, design: Design, job: BatchArrays) -> dict[str, Array]:
        """First values after jumps of times, by address, as where an operand begins to fit."""
        return {}

    @abstractmethod
    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits beside those of memories: ports, parallelism, groups that divide a mesh."""

    @abstractmethod
    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one chip; idle cores have theirs."""

    @abstractmethod
    def phase_energy(self, design: Design, job: BatchArrays, phase: PhaseCost) -> Any:
        """Dynamic energy of a phase on all chips; NaN where its activity is not counted. [J]"""

    @abstractmethod
    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> Iterable[Lever]:
        """What may be changed so that a violated limit holds, the mildest first; nothing if nothing is known."""

    @abstractmethod
    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase."""

    def own_metrics(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> dict[str, Any]:
        """Metrics that only this layout has."""
        return {}

    def die_count(self, design: Design) -> Any:
        """Number of chips that serve a batch, each with the area of one."""
        return 1.0

    def layout_limits(self, design: Design, job: BatchArrays) -> list[Limit]:
        """Violated limits without which nothing can be laid out, and so nothing has a cost."""
        return []

    def early_limits(self, design: Design, job: BatchArrays) -> list[Limit]:
        """Limits of one design that are known before any cost is computed."""
        return []

    def simulation_obstacle(self, design: Design) -> str:
        """Why a design cannot be simulated, and the setting to change; empty string if it can."""
        return ""

    def submesh_obstacle(self, design: Design) -> str:
        """Why no submesh can represent a design, and the setting to change; empty string if one can."""
        return ""

    def is_evaluated_alone(self, design: Design) -> bool:
        """Whether a design is evaluated apart from others of its structure."""
        return False

    def settle_open_choices(self, design: Design, job: BatchArrays) -> None:
        """Choose together what designs leave open, so that each keeps its choice."""
        return

    def memory_by_use(self, phases: Sequence[PhaseCost]) -> dict[str, float]:
        """Main memory of the fullest of many dies by use, for one design; empty for other layouts. [B]"""
        return {}


def layout_of(design: Design) -> Layout:
    """Layout of a design's mapping."""
    return layout_of_software(software_of(design.mapping))


@cache
def layout_of_software(software: str) -> Layout:
    """Layout that some software runs on.

    Raises:
        TypeError: a layout that lacks a method, with its name.
    """
    return load_layout(BATCH_LAYOUTS[software], Layout)  # type: ignore[type-abstract]


def only_case(job: BatchArrays) -> BatchCase:
    """The case of a job of one case."""
    (case,) = job.cases
    return case
