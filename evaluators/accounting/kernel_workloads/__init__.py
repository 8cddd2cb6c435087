"""Single kernels as workloads: one module per kind of software, each with a `KernelWorkload`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow, TimelineBar
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.silicon.energy import WORD, dynamic_energy
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.limits import Infeasibility, Limit
from dse.space.workload import ProductCase, product_text

TimelineSpans = dict[str, dict[str, list[TimelineBar]]]
"""By phase and segment, bars."""


def if_simulated(design: Design, fidelity: str) -> bool:
    """Whether a fidelity simulates, and so takes one design after another."""
    return fidelity != "analytical"


def no_obstacle(design: Design) -> str:
    """No text: nothing keeps a simulator from running a design."""
    return ""


def no_levers(worst: Infeasibility, design: Design, cases: Any) -> tuple[Lever, ...]:
    """No levers: nothing is known that would help."""
    return ()


def no_submesh(design: Design, case: Any, side: int) -> None:
    """Cases do not shrink to a submesh."""


@dataclass(frozen=True, kw_only=True)
class KernelWorkload:
    """Functions that evaluate single kernels on one kind of software, each module's `WORKLOAD`.

    Attributes:
        fidelities: that evaluate its cases, lowest first.
        stacked: whether equal cases are evaluated together, else one after the other.
        whole: whether the whole chip works, whose area then counts.
        prepare_case: equal cases as a job for the machine; refuses unsupported ones.
        limits: of a job, itemised; that of memory comes first.
        kernel_outcome: cost of a job at a fidelity.
        kernel_breakdown: consecutive breakdown rows of one design, and their bars.
        needs_single_designs: whether a fidelity takes one design after another.
        simulation_obstacle: why simulators cannot run a design; empty string if they can.
        levers: what may be changed so that a violated limit holds.
        shrink_to_submesh: a design and a case on at most `side` cores per side; None where cases do not shrink.
        submesh_text: how a case shrinks, as text.
        unsimulated_cases: types of case that only formulas evaluate.
    """

    fidelities: tuple[str, ...]
    stacked: bool
    whole: bool
    prepare_case: Callable[[Design, Any], Any]
    limits: Callable[[Design, Any], list[Limit]]
    kernel_outcome: Callable[[Design, Any, str], "KernelOutcome"]
    kernel_breakdown: Callable[[Design, Any, Any, str], tuple[Sequence[BreakdownRow], TimelineSpans]]
    needs_single_designs: Callable[[Design, str], bool] = if_simulated
    simulation_obstacle: Callable[[Design], str] = no_obstacle
    levers: Callable[[Infeasibility, Design, Any], Iterable[Lever]] = no_levers
    shrink_to_submesh: Callable[[Design, Any, int], tuple[Design, Any] | None] = no_submesh
    submesh_text: str = ""
    unsimulated_cases: tuple[type, ...] = ()


class KernelOutcome(NamedTuple):
    """Cost of cases of a single kernel; leaves of shape (cases, designs), or numbers.

    Attributes:
        metrics: with the latency, where there is energy.
        dynamic: dynamic energy on all dies, computed on demand; None without energy constants. [J]
        dies: that work.
        held: metric that equals the need of the first limit; empty string if none does.
        tokens: output tokens, where energy is given per token; None otherwise.
    """

    metrics: dict[str, Any]
    dynamic: Callable[[], Any] | None = None
    dies: Any = 1.0
    held: str = ""
    tokens: Any = None


def mesh_outcome(chip: Chip, cost: KernelCost, own: dict[str, Any], itemsize: float = WORD) -> KernelOutcome:
    """Time, cycles and energy of a kernel that occupies a whole mesh.

    Args:
        chip, cost: the chip, and the cost of the kernel on it.
        own: further metrics.
        itemsize: of values. [B]
    """
    times = {"latency": cost.seconds, "cycles": cost.seconds * chip.clock}
    return KernelOutcome(times | own, lambda: dynamic_energy(cost.activity, chip, itemsize), held="sram_used")


def merge_items(parts: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Bytes by name, those of equal names added. [B]"""
    items: dict[str, Any] = {}
    for name, nbytes in parts:
        items[name] = items.get(name, 0.0) + nbytes * 1.0
    return items


def sequential_bars(rows: Sequence[BreakdownRow], streams: Sequence[str], line: str = "") -> TimelineSpans:
    """Timeline bars of consecutive rows, each on its stream; `line` replaces the rows' segment."""
    ends = np.cumsum([0.0, *(row.seconds for row in rows)])
    each = zip(streams, rows, ends[:-1], ends[1:], strict=True)
    bars = [(stream, row.operator, float(start), float(end)) for stream, row, start, end in each]
    return {rows[0].phase: {line or rows[0].segment: bars}}


def largest_item(parts: dict[str, float]) -> str:
    """Name of the item that takes most of the time."""
    return max(parts, key=lambda name: parts[name])


def refuse_grouped_products(cases: tuple[ProductCase, ...]) -> None:
    """Refuse cases with several products in one kernel, which only shared-cache dies support."""
    for case in cases:
        if case.groups > 1:
            raise DesignError(
                f"workload.shapes: {product_text(case)} has {case.groups} products in one kernel, which "
                "meshes do not support; use m x k x n, or a shared-cache die, as chip=h100 "
                "mapping=tensor_parallel"
            )
