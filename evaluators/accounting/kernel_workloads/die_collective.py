"""Collectives between dies as single kernels: all groups of dies at once, over the dies' links."""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_workloads import (
    KernelOutcome,
    KernelWorkload,
    TimelineSpans,
    largest_item,
    merge_items,
    sequential_bars,
)
from dse.evaluators.accounting.memory_contents import core_memory_contents, main_memory_contents, memory_limits
from dse.evaluators.accounting.multi_die_limits import RECTANGULAR_PLACEMENTS, chip_die_count, port_limit, single_die_chip
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.die_allreduce_model import tree_root
from dse.evaluators.cost_models.die_exchange_jobs import (
    DieExchangeJob,
    has_two_levels,
    make_die_groups,
    members_per_node,
    sent_bytes,
)
from dse.evaluators.cost_models.jobs import job_cost, time_by_resource
from dse.evaluators.cost_models.kernel_attribution import time_by_cause as attributed
from dse.evaluators.kernels.collective import find_collective
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.die_network import group_rectangle, place_groups
from dse.evaluators.machine.machine import tile_network_machine
from dse.evaluators.machine.mesh_fabric import VALUE
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import WORD, PooledActivity, dynamic_energy, pooled_dynamic_energy
from dse.space.array_math import Array, ceil_div
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.limits import Infeasibility, Limit
from dse.space.workload import EXPERT_EXCHANGES, CollectiveCase

FIDELITIES = ("analytical", "events", "cycles")

PATTERNS_BY_ALGORITHM = {
    "direct": ("all_to_all", "allgather", "reduce_scatter", "allreduce"),
    "hierarchical": ("all_to_all",),
    "ring": ("allgather", "reduce_scatter", "allreduce"),
    "two_level": ("allgather", "reduce_scatter", "allreduce"),
    "ktree": ("allgather", "reduce_scatter", "allreduce", "multicast", "reduce"),
}
"""What each algorithm carries."""

IN_DIE_PATTERNS = {"multicast": ("", "multicast"), "reduce": ("reduce", ""), "allreduce": ("reduce", "multicast")}
"""What the tiles of a die do before dies exchange and after."""

TIME_PARTS = (
    ("words", ("word",)),
    ("sums", ("combine", "call")),
    ("synchronisation", ("stage",)),
    ("starts", ("post",)),
    ("hops", ("hop", "ramp")),
)
"""Parts of the time between tiles, with the constants that determine them."""


class DieCollective(NamedTuple):
    """A collective laid out on the dies of a system: legs, groups and limits.

    Attributes:
        case: the case.
        legs: what is done one after the other: its name, a job between dies or a kernel on the tiles of one, and how often.
        groups, members: of dies.
        limits: of the layout.
    """

    case: CollectiveCase
    legs: tuple[tuple[str, DieExchangeJob | MeshKernel, int], ...]
    groups: int
    members: int
    limits: list[Limit]


def prepare_case(design: Design, cases: tuple[CollectiveCase, ...]) -> DieCollective:
    """A case laid out on the dies; without legs if the layout is impossible.

    Raises:
        DesignError: teams of tiles, or what an algorithm does not carry.
    """
    (case,), plan, chip = cases, design.mapping.kernel, design.chip
    _refuse_case(case, plan, chip)
    dies = chip_die_count(chip)
    members = int(plan.members) or dies
    groups = max(dies // members, 1)
    limits = [
        Limit("mapping.members", float(ceil_div(dies, members) * members), dies * 1.0, "1"),
        Limit("workload.root", _root_index(case) + 1.0, members * 1.0, "1"),
        port_limit(chip),
    ]
    rows, cols = int(chip.dies.rows), int(chip.dies.cols)
    if chip.nodes is not None:
        limits.append(Limit("chip.nodes.size", float(ceil_div(dies, chip.nodes.size) * chip.nodes.size), dies * 1.0, "1"))
    fits = all(np.all(limit.need <= limit.have) for limit in limits)
    cut = fits and not (plan.placement in RECTANGULAR_PLACEMENTS and not group_rectangle(rows, cols, groups, members)[0])
    limits.append(Limit("mapping.placement", 2.0 if fits and not cut else 1.0, 1.0, "layout"))
    if not cut:
        return DieCollective(case, (), groups, members, limits)
    at = place_groups(plan.placement, rows, cols, groups, members)
    alike = _fits_nodes(plan.collective, chip, at)
    limits.append(Limit("mapping.collective", 1.0 if alike else 2.0, 1.0, "layout"))
    return DieCollective(case, _exchange_legs(design, case, at) if alike else (), groups, members, limits)


def limits(design: Design, kernel: DieCollective) -> list[Limit]:
    """Limits of main memory and local memory during the collective, and of its layout."""
    chip, case = design.chip, kernel.case
    parts = (("data", case.nbytes), ("what comes", case.nbytes))
    limits = [*memory_limits([main_memory_contents(chip, parts)]), *kernel.limits]
    for _, given_kernel, _ in kernel.legs:
        if isinstance(given_kernel, MeshKernel):
            slots = find_collective(given_kernel.algorithm).buffers(
                given_kernel.shape, given_kernel.mesh, "float16", pattern=given_kernel.options["pattern"]
            )
            held = merge_items([(slot.name, slot.nbytes) for slot in slots])
            limits += memory_limits([core_memory_contents(chip, tuple(held.items()))])
    return limits


def kernel_outcome(design: Design, kernel: DieCollective, fidelity: str) -> KernelOutcome:
    """Time and energy of a collective on all dies; NaN if the layout is impossible."""
    if not kernel.legs:
        return KernelOutcome({"latency": np.nan}, dies=chip_die_count(design.chip))
    costs = [(_job_cost_of(job, design.chip, fidelity), times) for _, job, times in kernel.legs]
    total = sum((cost.activity * times for cost, times in costs), Activity())
    seconds = sum(cost.seconds * times for cost, times in costs)
    ranks = kernel.groups * kernel.members
    return KernelOutcome(
        {"latency": seconds}, lambda: _exchange_joules(total, design.chip) * ranks, chip_die_count(design.chip)
    )


def kernel_breakdown(
    design: Design, case: CollectiveCase, kernel: DieCollective, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of each leg: links, ports, hops and barrier between dies, or work of tiles."""
    chip, plan, rows = design.chip, design.mapping.kernel, []
    where = f"{kernel.groups} of {kernel.members} of {chip.dies.rows:.0f} x {chip.dies.cols:.0f} dies"
    for name, job, times in kernel.legs:
        cost = _job_cost_of(job, chip, fidelity)
        if isinstance(job, MeshKernel):
            seconds_by_resource = attributed(job, tile_network_machine(single_die_chip(chip)), fidelity, TIME_PARTS)
            shape, carrier = f"{job.mesh.rows:.0f} x {job.mesh.cols:.0f} tiles", plan.within
        else:
            seconds_by_resource, shape, carrier = time_by_resource(fidelity, job), where, plan.collective
        parts = {part: float(value) * times for part, value in seconds_by_resource.items()}
        each = cost.activity.sent_bytes if isinstance(job, MeshKernel) else sent_bytes(job)
        sent = float(each) * kernel.groups * kernel.members * times
        seconds = float(cost.seconds) * times
        rows.append(BreakdownRow(case.pattern, name, carrier, shape, 0.0, 0.0, 0.0, largest_item(parts), seconds, parts, sent))
    return rows, sequential_bars(rows, ["communication"] * len(rows), plan.placement) if rows else {}


def levers(worst: Infeasibility, design: Design, cases: tuple[CollectiveCase, ...]) -> tuple[Lever, ...]:
    """What to change where a collective between dies violates a limit."""
    chip, plan = design.chip, design.mapping.kernel
    dies = chip_die_count(chip)
    if worst.limit == "mapping.members":
        legal = [size for size in range(1, dies + 1) if dies % size == 0]
        near = sorted(sorted(legal, key=lambda size: abs(size - plan.members))[:2])
        return advise(f"groups must divide {dies} dies evenly: the nearest sizes are {' and '.join(map(str, near))}")
    if worst.limit == "workload.root":
        return advise(f"the last member of a group is {worst.have - 1:.0f}; set workload.root to that or less")
    if worst.limit == "mapping.placement":
        return advise(f"no rectangle of {plan.members:.0f} dies fits: mapping.placement=linear, snake or interleave")
    if worst.limit == "mapping.collective" and plan.collective == "hierarchical":
        if chip.nodes is None:
            return advise(
                "hierarchical needs nodes (chip.nodes), and the chip has none: mapping.collective=direct, or set chip.nodes"
            )
        return advise(
            "groups need equally many dies in each of several nodes: change mapping.members or mapping.placement, or use direct"
        )
    if worst.limit == "mapping.collective":
        whose = "row of dies" if chip.nodes is None else "node"
        return advise(
            f"two_level needs groups with equally many dies, at least two, in each of several {whose}s: "
            + ("change mapping.members or mapping.placement, or use ring")
        )
    if worst.limit == "chip.d2d.ports":
        return advise(f"{chip.d2d.topology} of so many dies needs {worst.need:.0f} links per die")
    if worst.limit == "chip.nodes.size":
        return advise(f"{dies} dies do not fill whole nodes (chip.nodes.size): change the sides of chip.dies")
    return advise(f"move the data in {ceil_div(worst.need, worst.have):.0f} parts")


def _refuse_case(case: CollectiveCase, plan: Any, chip: Chip) -> None:
    if case.along != "rectangle" or case.rows or case.cols:
        raise DesignError(
            "workload.group_axis: groups of dies are set by mapping.members; use workload.group_axis=rectangle "
            "workload.root=0 "
            "workload.group=mesh"
        )
    if not case.recorded:
        raise DesignError(
            "workload.recorded: collectives of these dies start from their own programs, not from a host; remove it"
        )
    if case.pattern in EXPERT_EXCHANGES:
        raise DesignError(
            f"workload.pattern: {case.pattern} needs a library, on dies behind switches, as chip=h100; use all_to_all here"
        )
    if case.pattern not in PATTERNS_BY_ALGORITHM[plan.collective]:
        others = [name for name, patterns in PATTERNS_BY_ALGORITHM.items() if case.pattern in patterns]
        raise DesignError(
            f"mapping.collective: {plan.collective} does not support {case.pattern}; choose {' or '.join(others)}"
        )
    if case.root and case.pattern not in ("multicast", "reduce"):
        raise DesignError(f"workload.root: {case.pattern} between dies has no root; set 0")
    if case.combine != "sum" and plan.within == "none":
        raise DesignError(
            f"workload.combine: collectives between dies support sum only, got {case.combine}; set "
            "mapping.within to reduce within tiles"
        )
    if plan.within == "none":
        return
    if case.pattern not in IN_DIE_PATTERNS:
        raise DesignError(
            f"mapping.within: tiles of a die do not support {case.pattern}; set none, or choose "
            f"workload.pattern={', '.join(IN_DIE_PATTERNS)}"
        )
    if chip.mesh is None:
        raise DesignError("mapping.within: dies of this chip have no tiles; set none")


def _root_index(case: CollectiveCase) -> int:
    return case.root if isinstance(case.root, int) else 0


def _fits_nodes(algorithm: str, chip: Chip, at: Array) -> bool:
    """Whether groups have the nodes that an algorithm needs."""
    if algorithm == "two_level":
        return has_two_levels(chip, at, at.shape[1])
    if algorithm == "hierarchical":
        each = 0 if chip.nodes is None else members_per_node(at, int(chip.nodes.size))
        return bool(0 < each < at.shape[1])
    return True


def _exchange_legs(design: Design, case: CollectiveCase, at: Array) -> tuple[tuple[str, DieExchangeJob | MeshKernel, int], ...]:
    chip, plan, stack = design.chip, design.mapping.kernel, design.mapping.stack
    sums = plan.collective if plan.collective in ("two_level", "ktree") else "ring"
    where = make_die_groups(
        chip, plan.placement, len(at), at.shape[1], at.shape[1], 1,
        reached=1.0 if stack is None else stack.network_efficiency,
        copies=(lambda boxes: 1.0) if plan.collective == "hierarchical" else None,
        sums=(sums, int(plan.ktree_k)),
    )  # fmt: skip
    each = plan.collective in ("direct", "hierarchical")
    job = where.build_job("all_to_all" if each else case.pattern, case.nbytes)
    if case.pattern in ("multicast", "reduce"):
        job = job._replace(at=_with_root(at, tree_root(at.shape[1], int(plan.ktree_k)), _root_index(case)))
    before, after = IN_DIE_PATTERNS.get(case.pattern, ("", "")) if plan.within != "none" else ("", "")
    legs: list[tuple[str, DieExchangeJob | MeshKernel, int]] = (
        [("within a die", _inside_die(design, case, before), 1)] if before else []
    )
    legs.append(("between dies", job, 2 if each and case.pattern == "allreduce" else 1))
    return (*legs, *([("back in a die", _inside_die(design, case, after), 1)] if after else []))


def _with_root(at: Array, root: int, wanted: int) -> Array:
    """Members in another order, so that the wanted one is where a tree has its root."""
    order = np.arange(at.shape[1])
    order[[root, wanted]] = wanted, root
    return at[:, order]


def _inside_die(design: Design, case: CollectiveCase, pattern: str) -> MeshKernel:
    """What all tiles of a die do, with the first one as their root."""
    chip, name = design.chip, design.mapping.kernel.within
    mesh = CoreMesh(chip.mesh.rows, chip.mesh.cols)
    options = {"combine": case.combine, "along": "rectangle", "rows": mesh.rows, "cols": mesh.cols, "root": 0}
    shape = GemmShape(float(-(-case.nbytes // VALUE)), 1, 1)
    return MeshKernel("collective", pattern, "collective", name, shape, mesh, {"pattern": pattern, **options})


def _job_cost_of(job: DieExchangeJob | MeshKernel, chip: Chip, fidelity: str) -> KernelCost:
    """Of one die."""
    if isinstance(job, MeshKernel):
        return READERS[fidelity].kernel(job, tile_network_machine(single_die_chip(chip)))
    return job_cost(fidelity, job)


def _exchange_joules(activity: Activity, chip: Chip) -> Any:
    if chip.mesh is None:
        return pooled_dynamic_energy(PooledActivity(linked_bytes=activity.linked_bytes + activity.boxed_bytes), chip)
    return dynamic_energy(activity, chip, WORD)


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=False,
    whole=True,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    levers=levers,
)
