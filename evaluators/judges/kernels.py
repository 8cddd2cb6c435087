"""Designs that run kernels by themselves: metrics, limits and the breakdown, whatever the kernel and the machine.

Products, attention, collectives, experts, operators on elements, streams of memory requests and packets on a network. What they
ask of a machine, what that takes and which limits hold, a module of `account/alone` says. How cases and designs go together,
energy, area, power and what a breakdown has beside rows are here.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from dse.evaluators.account.breakdown import Breakdown
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.power import alone
from dse.evaluators.choices.per_design import one_by_one
from dse.evaluators.silicon import area
from dse.space.design import Design
from dse.space.later import later
from dse.space.limits import Infeasible, Limit
from dse.space.remember import has
from dse.space.software import ATTENTION, COLLECTIVE, DEVICES, DIE_COLLECTIVE, PRODUCT, STREAM, SUMMA, TRAFFIC, software_of
from dse.space.workload import Asked, Workload

KERNELS = {
    DEVICES: "dies",
    PRODUCT: "product",
    SUMMA: "summa",
    COLLECTIVE: "collective",
    DIE_COLLECTIVE: "die_collective",
    ATTENTION: "attention",
    STREAM: "stream",
    TRAFFIC: "traffic",
}
"""What runs them, by software: modules of `account/alone`, imported when they are asked."""


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Readers that price what some software runs; the same ones on a part of the mesh."""
    of = kernel_of(design)
    if has(of, "unplayed") and of.unplayed(design):
        return (of.FORMULA,)
    return said(software_of(design.mapping))


def in_the_way(design: Design, fidelity: str) -> str:
    """The part that keeps a reader from playing anything, and what to say instead; "" where there is none."""
    of = kernel_of(design)
    found: str = of.unplayed(design) if has(of, "unplayed") and fidelity in of.FIDELITIES else ""
    return found


def said(software: str) -> tuple[str, ...]:
    """Readers that price what some software runs, on whatever chip."""
    found: tuple[str, ...] = kernel_for(software).FIDELITIES
    return found


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of cases that go together; leaves of shape (cases, designs), or floats for one of each."""
    of, found = kernel_of(design), []
    for rows, cases in _together(of, workload.cases):
        asked = of.asked(design, cases)
        limits = of.limits(design, asked)
        if of.one_by_one(design, fidelity) if hasattr(of, "one_by_one") else fidelity != "closed":
            metrics = one_by_one(design, cases, lambda one, case: _of_one(of, one, case, fidelity))
        else:
            metrics = _metrics(of, design, asked, limits, fidelity)
        found.append(Judged(rows, metrics, limits))
    return found


def bounds(design: Design, workload: Workload) -> list[Limit]:
    """Limits alone, which need no closed form."""
    of = kernel_of(design)
    return [limit for _, cases in _together(of, workload.cases) for limit in of.limits(design, of.asked(design, cases))]


def explain(design: Design, case: Asked, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one design goes."""
    of = kernel_of(design)
    rows, spans = of.explained(design, case, of.asked(design, (case,)), fidelity)
    blocks = {name: float(value) for name, value in area.parts(design.chip).items()} if of.WHOLE else {}
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), blocks, spans)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict, with what would do where that is known."""
    of = kernel_of(design)
    return replace(worst, remedy=of.remedy(worst, design, workload.cases)) if hasattr(of, "remedy") else worst


def in_part(design: Design) -> str:
    """What becomes of a case on a part of the mesh, for people; "" where it does not get smaller."""
    return getattr(kernel_of(design), "SMALLER", "")


def part(design: Design, case: Asked, side: int) -> tuple[Design, Asked] | None:
    """One design and a case of it on at most `side` x `side` cores; None where that kind of case does not get smaller.

    Cores keep their tiles and the mapping. A workload becomes as much smaller as that takes, and memory channels as many fewer
    as leaves each its bytes.
    """
    of = kernel_of(design)
    return of.part(design, case, side) if hasattr(of, "part") else None


def kernel_of(design: Design) -> ModuleType:
    """What runs the kernels that a mapping is for."""
    return kernel_for(software_of(design.mapping))


@cache
def kernel_for(software: str) -> ModuleType:
    """What runs the kernels of some software."""
    return import_module(f"dse.evaluators.account.alone.{KERNELS[software]}")


def _together(of: ModuleType, cases: Sequence[Asked]) -> list[tuple[tuple[int, ...], tuple[Asked, ...]]]:
    """Cases that are worked out together, and their rows."""
    places: dict[Any, list[int]] = {}
    for row, case in enumerate(cases):
        places.setdefault(case.subject if of.STACKED else row, []).append(row)
    return [(tuple(rows), tuple(cases[row] for row in rows)) for rows in places.values()]


def _of_one(of: ModuleType, design: Design, case: Asked, fidelity: str) -> dict[str, Any]:
    """Metrics of one design, whose leaves are numbers, and one case."""
    asked = of.asked(design, (case,))
    return _metrics(of, design, asked, of.limits(design, asked), fidelity)


def _metrics(of: ModuleType, design: Design, asked: Any, limits: list[Limit], fidelity: str) -> dict[str, Any]:
    spent, chip = of.spent(design, asked, fidelity), design.chip
    found: dict[str, Any] = dict(spent.metrics)
    if of.WHOLE:
        found |= {"die_mm2": area.die(chip), "system_mm2": area.total(chip) * spent.dies}
    if spent.held:
        found[spent.held] = limits[0].need
    if spent.dynamic is None:
        return found
    found |= alone(chip, spent.dynamic, found["latency"], chips=spent.dies)
    if spent.tokens is None:
        return found
    return found | later(("energy_per_token",), lambda: {"energy_per_token": found["energy"].of("energy") / spent.tokens})
