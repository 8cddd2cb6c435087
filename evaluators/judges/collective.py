"""Designs of meshes of tiles on multicasts and reductions by themselves: metrics, limits and the breakdown of a workload."""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.power import alone
from dse.evaluators.kernels.collective import EXCHANGES, TEAMS, collective
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.broken import broken_of
from dse.evaluators.machine.fabric import VALUE
from dse.evaluators.machine.machine import of_links
from dse.evaluators.passes.call import Kernel
from dse.evaluators.readers import READERS
from dse.evaluators.readers.attribution import spent
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.elementwise import ceil_div, column, where
from dse.space.errors import DesignError
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import CollectivePlan
from dse.space.workload import EXCHANGES as EXCHANGED
from dse.space.workload import PATTERNS, Collective, Workload

__all__ = ["FIDELITIES", "explain", "judged", "remedied"]

FIDELITIES = tuple(READERS)

SPENT = (
    ("words", ("word",)),
    ("sums", ("combine", "call")),
    ("synchronisation", ("stage",)),
    ("starts", ("post",)),
    ("hops", ("hop", "ramp")),
)
"""What takes time, with the constants that say how much."""

HELD = {"x": "data", "y": "data turned round"}


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of all collectives of a kind; leaves of shape (cases, designs), or floats for one of each."""
    cases = cast(tuple[Collective, ...], workload.cases)
    kinds = dict.fromkeys(case.subject for case in cases)
    places = [tuple(row for row, case in enumerate(cases) if case.subject == kind) for kind in kinds]
    return [_judged(design, rows, tuple(cases[row] for row in rows), fidelity) for rows in places]


def explain(design: Design, case: Collective, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of a collective goes."""
    kernel, on = _kernel(design, (case,)), of_links(_chip(design))
    parts = {name: float(value) for name, value in spent(kernel, on, fidelity, SPENT).items()}
    seconds = float(READERS[fidelity].kernel(kernel, on).seconds)
    nbytes = float(READERS[fidelity].kernel(kernel, on).activity.sent_bytes)
    mesh = kernel.mesh
    group = (kernel.options.get("rows", mesh.rows), kernel.options.get("cols", mesh.cols))
    groups = f"{group[0]:.0f} x {group[1]:.0f} of {mesh.rows:.0f} x {mesh.cols:.0f} tiles"
    bound = max(parts, key=lambda name: parts[name])
    row = Row(case.pattern, case.along, kernel.algorithm, groups, 0.0, 0.0, 0.0, bound, seconds, parts, nbytes)
    bars = {case.pattern: {case.along: [("communication", kernel.algorithm, 0.0, seconds)]}}
    blocks = {name: float(value) for name, value in area.parts(_chip(design)).items()}
    return Breakdown((row,), seconds, blocks, bars)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict with what would do."""
    chip, case = _chip(design), cast(Collective, workload.cases[0])
    if worst.limit == "workload.group":
        sides = f"{case.rows} x {case.cols} tiles do not divide {chip.mesh.rows:.0f} x {chip.mesh.cols:.0f}"
        return replace(worst, remedy=f"{sides}; workload.group=mesh takes all of them")
    if worst.limit == "workload.root":
        return replace(worst, remedy=f"the last place of a team is {worst.have - 1:.0f}")
    tiles = ceil_div(worst.need, worst.have)
    return replace(worst, remedy=f"data that are moved in {tiles:.0f} parts would do")


def _judged(design: Design, rows: tuple[int, ...], cases: tuple[Collective, ...], fidelity: str) -> Judged:
    chip, kernel = _chip(design), _kernel(design, cases)
    cost = READERS[fidelity].kernel(kernel, of_links(chip))
    seconds = cost.seconds
    limits = _limits(design, cases[0], kernel)
    metrics = {
        "latency": seconds,
        "cycles": seconds * chip.clock,
        "sram_used": limits[0].need,
        **alone(chip, lambda: dynamic(cost.activity, chip), seconds),
        "die_mm2": area.die(chip),
        "system_mm2": area.total(chip),
    }
    return Judged(rows, metrics, limits)


def _kernel(design: Design, cases: tuple[Collective, ...]) -> Kernel:
    """What is priced; groups that do not divide the mesh, and roots beyond a team (both limits) count as the mesh and as 0."""
    chip, case = _chip(design), cases[0]
    if not case.recorded:
        raise DesignError("workload.recorded: no host starts collectives of tiles; leave it out, or ask dies, as chip=h100")
    name, topology = _mapping(design).collective, chip.noc.topology
    collective(name)
    mesh = Mesh(chip.mesh.rows, chip.mesh.cols)
    broken = broken_of(chip, mesh.rows, mesh.cols)
    shape = Shape(column([float(-(-one.nbytes // VALUE)) for one in cases]), 1, 1)
    if name in EXCHANGES:
        _refuse_exchange(name, case)
        across = {"pattern": case.pattern, "topology": topology}
        return Kernel("collective", case.pattern, "collective", name, shape, mesh, across, faults=broken)
    if case.pattern not in PATTERNS:
        raise DesignError(f"mapping.collective: {name} does not carry {case.pattern}; choose one of {', '.join(EXCHANGES)}")
    if topology != "mesh":
        others = ", ".join(EXCHANGES)
        raise DesignError(f"chip.noc.topology: {name} works on a mesh, not {topology}; mapping.collective may be {others}")
    rows, cols = _sides(chip, case)
    fits = _covered(chip, case) == mesh.rows * mesh.cols
    rows, cols = where(fits, rows, mesh.rows), where(fits, cols, mesh.cols)
    root, members = case.root, _members(case, rows, cols)
    if not isinstance(root, str) and not isinstance(members, np.ndarray):  # of many designs the closed form asks each team
        root = root if root < members else 0
    options = {
        "pattern": case.pattern,
        "combine": case.combine,
        "along": case.along,
        "rows": rows,
        "cols": cols,
        "root": root,
    }
    return Kernel("collective", case.pattern, "collective", name, shape, mesh, options, faults=broken)


def _refuse_exchange(name: str, case: Collective) -> None:
    """Raises where a collective is not one of all tiles with each other."""
    if case.pattern not in EXCHANGED:
        raise DesignError(f"mapping.collective: {name} does not carry {case.pattern}; choose one of {', '.join(TEAMS)}")
    if case.rows or case.cols or case.along != "rectangle":
        raise DesignError(f"mapping.collective: {name} is for all tiles; add workload.group=mesh workload.along=rectangle")
    if case.combine != "sum":
        raise DesignError(f"workload.combine: {name} sums; {case.combine} is carried by one of {', '.join(TEAMS)}")


def _limits(design: Design, case: Collective, kernel: Kernel) -> list[Limit]:
    chip = _chip(design)
    slots = collective(kernel.algorithm).slots(kernel.shape, kernel.mesh, "float16", pattern=case.pattern)
    parts = tuple((HELD.get(slot.name, slot.name), slot.nbytes * 1.0) for slot in slots)
    found = [
        Limit("chip.tile.sram", sum((value for _, value in parts), 0.0), chip.tile.sram, "B", parts),
        Limit("workload.group", _covered(chip, case), chip.mesh.rows * chip.mesh.cols * 1.0, "1"),
    ]
    if not isinstance(case.root, str):
        found.append(Limit("workload.root", case.root + 1.0, _members(case, *_sides(chip, case)) * 1.0, "1"))
    return found


def _sides(chip: Chip, case: Collective) -> tuple[Any, Any]:
    return case.rows or chip.mesh.rows, case.cols or chip.mesh.cols


def _covered(chip: Chip, case: Collective) -> Any:
    """Tiles of as many groups as cover the mesh: more than it has where groups do not divide it."""
    rows, cols = _sides(chip, case)
    return ceil_div(chip.mesh.rows, rows) * rows * ceil_div(chip.mesh.cols, cols) * cols * 1.0


def _members(case: Collective, rows: Any, cols: Any) -> Any:
    """Tiles of a team."""
    return (1 if case.along == "row" else rows) * (1 if case.along == "column" else cols)


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> CollectivePlan:
    plan: CollectivePlan = design.mapping.kernel
    return plan
