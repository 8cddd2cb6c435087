"""Kernels by themselves: what cases ask of a machine, what that takes, and which limits hold; a module a kind of software.

Each module has

    FIDELITIES                                  readers that price its cases
    STACKED                                     whether cases that are alike are worked out together, else one after the other
    WHOLE                                       whether all of the chip is at work, whose area counts then
    asked(design, cases)                        cases alike, as the machine is asked for them; refuses what it has no way for
    limits(design, asked)                       itemised; of what is held where comes first
    spent(design, asked, fidelity)              what it takes, a `Spent`
    explained(design, case, asked, fidelity)    of numbers: rows that follow one another, and their bars

and, where there is something to say,

    one_by_one(design, fidelity)                whether a reader takes numbers, where not only those that play do, or not all
    remedy(worst, design, cases)                in words, what would do
    part(design, case, side), SMALLER           a design and a case on at most so many cores a side; what becomes of the case,
                                                for people
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow, TimelineBar
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.silicon.energy import WORD, dynamic_energy
from dse.space.chip import Chip
from dse.space.errors import DesignError
from dse.space.workload import ProductCase, product_text

TimelineSpans = dict[str, dict[str, list[TimelineBar]]]
"""By phase and segment, bars."""


class KernelOutcome(NamedTuple):
    """What cases take; leaves of shape (cases, designs), or numbers.

    Attributes:
        metrics: with the latency, where there is energy.
        dynamic: energy of what is done on all dies, worked out when somebody asks; None where nothing is made. [J]
        dies: that work.
        held: the metric that is what the first limit needs; "" where none is.
        tokens: that are put out, where energy is said for each; None where not.
    """

    metrics: dict[str, Any]
    dynamic: Callable[[], Any] | None = None
    dies: Any = 1.0
    held: str = ""
    tokens: Any = None


def mesh_outcome(chip: Chip, cost: KernelCost, own: dict[str, Any], itemsize: float = WORD) -> KernelOutcome:
    """What a kernel on all of a mesh takes.

    Args:
        chip, cost: where, and what a reader says of it.
        own: further metrics.
        itemsize: of values. [B]
    """
    times = {"latency": cost.seconds, "cycles": cost.seconds * chip.clock}
    return KernelOutcome(times | own, lambda: dynamic_energy(cost.activity, chip, itemsize), held="sram_used")


def merge_items(parts: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Bytes by what they are for, those of one name together. [B]"""
    found: dict[str, Any] = {}
    for name, nbytes in parts:
        found[name] = found.get(name, 0.0) + nbytes * 1.0
    return found


def sequential_bars(rows: Sequence[BreakdownRow], streams: Sequence[str], line: str = "") -> TimelineSpans:
    """Bars of rows that follow one another, each on a stream; `line` is the segment, where it is not that of the rows."""
    ends = np.cumsum([0.0, *(row.seconds for row in rows)])
    each = zip(streams, rows, ends[:-1], ends[1:], strict=True)
    bars = [(stream, row.operator, float(start), float(end)) for stream, row, start, end in each]
    return {rows[0].phase: {line or rows[0].segment: bars}}


def largest_item(parts: dict[str, float]) -> str:
    """What most of the time goes into."""
    return max(parts, key=lambda name: parts[name])


def refuse_grouped_products(cases: tuple[ProductCase, ...]) -> None:
    """Products by one call are a die's."""
    for case in cases:
        if case.groups > 1:
            raise DesignError(
                f"workload.shapes: {product_text(case)} is {case.groups} products by one call, which cores of a mesh "
                f"do not take; "
                "say m x k x n, or ask dies, as chip=h100 mapping=tensor_parallel"
            )
