"""Collectives between tiles of a mesh as single kernels: multicasts, reductions and exchanges."""

from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_workloads import (
    KernelOutcome,
    KernelWorkload,
    TimelineSpans,
    largest_item,
    merge_items,
    mesh_outcome,
    sequential_bars,
)
from dse.evaluators.accounting.memory_contents import core_memory_contents, memory_limits
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.calls.submesh import submesh_sides
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.kernel_attribution import time_by_cause as attributed
from dse.evaluators.cost_models.submesh_jobs import chip_on_submesh, find_largest_divisor
from dse.evaluators.kernels.collective import EXCHANGES, TEAMS, find_collective
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.kernel_faults import faults_of_kernel
from dse.evaluators.machine.machine import tile_network_machine
from dse.evaluators.machine.mesh_fabric import VALUE
from dse.space.array_math import as_column, ceil_div, where
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.limits import Infeasibility, Limit
from dse.space.workload import DIE_EXCHANGES as EXCHANGED
from dse.space.workload import EXPERT_EXCHANGES, TILE_PATTERNS, CollectiveCase

FIDELITIES = tuple(READERS)

SUBMESH_TEXT = "groups shrink if the mesh is smaller; bytes per tile stay"

TIME_PARTS = (
    ("words", ("word",)),
    ("sums", ("combine", "call")),
    ("synchronisation", ("stage",)),
    ("starts", ("post",)),
    ("hops", ("hop", "ramp")),
)
"""Parts of the time, with the constants that determine them."""

BUFFER_NAMES = {"x": "data", "y": "data turned round"}

Cases = tuple[CollectiveCase, ...]


def needs_single_designs(design: Design, fidelity: str) -> bool:
    """Whether designs are evaluated one at a time: never, since simulators loop over batches themselves."""
    return False


def prepare_case(design: Design, cases: Cases) -> tuple[MeshKernel, CollectiveCase]:
    """The kernel and the first of equal cases.

    Groups that do not divide the mesh, and roots outside a group (both are limits), count as the whole mesh and as
    root 0.
    """
    chip, case = design.chip, cases[0]
    if not case.recorded:
        raise DesignError(
            "workload.recorded: no host starts collectives of tiles; remove it, or use a shared-cache die, as chip=h100"
        )
    if case.pattern in EXPERT_EXCHANGES:
        raise DesignError(f"workload.pattern: {case.pattern} needs a library, on dies behind switches, as chip=h100")
    name, topology = design.mapping.kernel.collective, chip.noc.topology
    find_collective(name)
    mesh = CoreMesh(chip.mesh.rows, chip.mesh.cols)
    broken = faults_of_kernel(chip, mesh.rows, mesh.cols)
    shape = GemmShape(as_column([float(-(-case.nbytes // VALUE)) for case in cases]), 1, 1)
    if name in EXCHANGES:
        _refuse_exchange(name, case)
        across = {"pattern": case.pattern, "topology": topology}
        return MeshKernel("collective", case.pattern, "collective", name, shape, mesh, across, faults=broken), case
    if case.pattern not in TILE_PATTERNS:
        raise DesignError(f"mapping.collective: {name} does not support {case.pattern}; choose one of {', '.join(EXCHANGES)}")
    if topology != "mesh":
        others = ", ".join(EXCHANGES)
        raise DesignError(
            f"chip.noc.topology: mapping.collective={name} supports mesh only, got {topology}; choose "
            f"mapping.collective from {others}"
        )
    rows, cols = _team_sides(chip, case)
    fits = _covered_tiles(chip, case) == mesh.rows * mesh.cols
    rows, cols = where(fits, rows, mesh.rows), where(fits, cols, mesh.cols)
    root, members = case.root, _team_members(case, rows, cols)
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
    return MeshKernel("collective", case.pattern, "collective", name, shape, mesh, options, faults=broken), case


def limits(design: Design, wanted_kernel: tuple[MeshKernel, CollectiveCase]) -> list[Limit]:
    """Limits of a tile's memory, of groups that divide the mesh, and of the root."""
    chip, (kernel, case) = design.chip, wanted_kernel
    slots = find_collective(kernel.algorithm).buffers(kernel.shape, kernel.mesh, "float16", pattern=case.pattern)
    held = merge_items([(BUFFER_NAMES.get(slot.name, slot.name), slot.nbytes) for slot in slots])
    limits = [
        *memory_limits([core_memory_contents(chip, tuple(held.items()))]),
        Limit("workload.group", _covered_tiles(chip, case), chip.mesh.rows * chip.mesh.cols * 1.0, "1"),
    ]
    if not isinstance(case.root, str):
        limits.append(Limit("workload.root", case.root + 1.0, _team_members(case, *_team_sides(chip, case)) * 1.0, "1"))
    return limits


def kernel_outcome(design: Design, kernel: tuple[MeshKernel, CollectiveCase], fidelity: str) -> KernelOutcome:
    """Time and energy of a collective on all tiles."""
    return mesh_outcome(design.chip, READERS[fidelity].kernel(kernel[0], tile_network_machine(design.chip)), {})


def kernel_breakdown(
    design: Design, case: CollectiveCase, wanted_kernel: tuple[MeshKernel, CollectiveCase], fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of a collective: words, sums, synchronisation, starts and hops."""
    (kernel, _), network_machine = wanted_kernel, tile_network_machine(design.chip)
    parts = {name: float(value) for name, value in attributed(kernel, network_machine, fidelity, TIME_PARTS).items()}
    cost, mesh = READERS[fidelity].kernel(kernel, network_machine), kernel.mesh
    group = (kernel.options.get("rows", mesh.rows), kernel.options.get("cols", mesh.cols))
    groups = f"{group[0]:.0f} x {group[1]:.0f} of {mesh.rows:.0f} x {mesh.cols:.0f} tiles"
    row = BreakdownRow(
        case.pattern, case.along, kernel.algorithm, groups, 0.0, 0.0, 0.0, largest_item(parts), float(cost.seconds), parts,
        float(cost.activity.sent_bytes),
    )  # fmt: skip
    return [row], sequential_bars([row], ["communication"])


def levers(worst: Infeasibility, design: Design, cases: Cases) -> tuple[Lever, ...]:
    """What to change where a collective between tiles violates a limit."""
    chip, case = design.chip, cases[0]
    if worst.limit == "workload.group":
        sides_ = f"{case.rows} x {case.cols} tiles do not divide {chip.mesh.rows:.0f} x {chip.mesh.cols:.0f}"
        return advise(f"{sides_}; use workload.group=mesh for all tiles")
    if worst.limit == "workload.root":
        return advise(f"the last member of a group is {worst.have - 1:.0f}; set workload.root to that or less")
    return advise(f"move the data in {ceil_div(worst.need, worst.have):.0f} parts")


def shrink_to_submesh(design: Design, case: CollectiveCase, side: int) -> tuple[Design, CollectiveCase]:
    """A collective scaled to a submesh, with equal bytes per tile; groups keep their sides if they fit."""
    chip = design.chip
    rows, cols = submesh_sides(int(chip.mesh.rows), int(chip.mesh.cols), side)
    high, wide = (
        find_largest_divisor(whole, wanted_side) if wanted_side else 0
        for whole, wanted_side in ((rows, case.rows), (cols, case.cols))
    )
    team = _team_members(case, high or rows, wide or cols)
    root = case.root if isinstance(case.root, str) else min(case.root, team - 1)
    smaller = replace(case, rows=high, cols=wide, root=root)
    return replace(design, chip=chip_on_submesh(chip, CoreMesh(rows, cols), cols / float(chip.mesh.cols))), smaller


def _refuse_exchange(name: str, case: CollectiveCase) -> None:
    """Raises where a collective is not one of all tiles with each other."""
    if case.pattern not in EXCHANGED:
        raise DesignError(f"mapping.collective: {name} does not support {case.pattern}; choose one of {', '.join(TEAMS)}")
    if case.rows or case.cols or case.along != "rectangle":
        raise DesignError(f"mapping.collective: {name} needs all tiles; add workload.group=mesh workload.group_axis=rectangle")
    if case.combine != "sum":
        raise DesignError(
            f"workload.combine: {name} supports sum only, got {case.combine}; for that choose "
            f"mapping.collective from {', '.join(TEAMS)}"
        )


def _team_sides(chip: Chip, case: CollectiveCase) -> tuple[Any, Any]:
    return case.rows or chip.mesh.rows, case.cols or chip.mesh.cols


def _covered_tiles(chip: Chip, case: CollectiveCase) -> Any:
    """Tiles of as many groups as cover the mesh: more than it has where groups do not divide it."""
    rows, cols = _team_sides(chip, case)
    return ceil_div(chip.mesh.rows, rows) * rows * ceil_div(chip.mesh.cols, cols) * cols * 1.0


def _team_members(case: CollectiveCase, rows: Any, cols: Any) -> Any:
    """Tiles of a team."""
    return (1 if case.along == "row" else rows) * (1 if case.along == "column" else cols)


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=True,
    whole=True,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    needs_single_designs=needs_single_designs,
    levers=levers,
    shrink_to_submesh=shrink_to_submesh,
    submesh_text=SUBMESH_TEXT,
)
