"""MeshGEMV: K-tree allreduce, in K phases of groups of about N^(1/K) cores.

[he2025] section 6.2 and figure 8 (3): in each phase every group adds up at a root in its middle, from both sides at once; the
roots are the members of the next phase, reached by paths that pass straight through the cores between. About (K / 2) N^(1/K)
routing stages; K + 1 paths at the root. With K = 1 the whole column is one group.
"""

from functools import lru_cache
from functools import partial as bound
from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import local_product as partial
from dse.evaluators.kernels.gemv.local_product import buffers, extra_deliveries, gather_result, scatter_operands
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Program, Round

__all__ = [
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "extra_deliveries",
    "gather_result",
    "line_seconds",
    "message_counts",
    "phase_groups",
    "reduction_rounds",
    "root_row",
    "routing_paths",
    "scatter_operands",
    "software_stages",
]


def routing_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core: one per phase, and the broadcast. [-]"""
    return phases + 1


def concurrent_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh, phases)


@tabulate
def software_stages(side: int, phases: int = 2) -> int:
    """Software stages on the critical path: the longer arm of the largest group of each phase. [-]"""
    return sum(max(max(place, len(group) - 1 - place) for group, place in phase) for phase in phase_groups(side, phases))


def root_row(mesh: CoreMesh, phases: int = 2) -> int:
    """Row of cores that holds the sums."""
    return int(_root(mesh.rows, phases))


@lru_cache(maxsize=4096)
def phase_groups(side: int, phases: int) -> list[list[tuple[np.ndarray, int]]]:
    """Groups of each phase, as (rows in order, place of the root among them).

    The last phase takes all roots that are left, so that there is one group whatever N^(1/K) rounds to.

    >>> [[(group.tolist(), int(group[scatter_operands])) for group, scatter_operands in phase] for phase in phase_groups(9, 2)]
    [[([0, 1, 2], 1), ([3, 4, 5], 4), ([6, 7, 8], 7)], [([1, 4, 7], 4)]]
    """
    members = np.arange(side)
    groups = []
    for phase in range(phases):
        left = phases - phase
        size = len(members) if left == 1 else max(1, round(len(members) ** (1 / left)))
        parts = np.array_split(members, max(1, ceil(len(members) / size)))
        level = [(part, len(part) // 2) for part in parts]
        groups.append(level)
        members = np.array([part[place] for part, place in level])
    return groups


def line_seconds(side: Any, words: Any, fabric: MeshFabric, *, broadcast: bool = True, phases: Any = 2) -> Any:
    """Time until the root of a line, or with `broadcast` all its cores, hold the sums. [s]

    Phase by phase the longer arm of its largest group, whose members are `gap` rows apart, through which the words stream:

        t = sum over phases of arm (2 ramp + gap hop + stage) + words

    Exact where groups of a phase are equal; elsewhere groups that end early wait less, by less than a stage a phase.

    Args:
        side, words, fabric, phases: broadcast over designs.
        broadcast: whether the sums go back to all cores.

    Source:
        [he2025] section 6.2.
    """
    stages_, hops = software_stages(side, phases), _arm_hops(side, phases)
    active = _active(side, phases)
    reduction = active * (words * fabric.pace) + stages_ * (2 * fabric.ramp + fabric.stage) + hops * fabric.hop
    if not broadcast:
        return reduction
    return reduction + partial.broadcast_seconds(side, _root(side, phases), words, fabric)


def message_counts(side: Any, *, broadcast: bool = True, phases: Any = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross. [-]"""
    spread = broadcast * (side > 1)
    return side - 1.0 + spread, _all_hops(side, phases) + spread * (side - 1.0)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, broadcast: bool = True, phases: Any = 2) -> KernelCost:
    """Time until the root (or with `broadcast` every row) has the product [s], and activity."""
    options = {"broadcast": broadcast, "phases": phases}
    way = bound(line_seconds, **options), bound(message_counts, **options), bound(extra_deliveries, broadcast=broadcast)
    return partial.gemv_cost(shape, mesh, fabric, *way)


@tabulate
def _root(side: int, phases: int) -> int:
    ((group, place),) = phase_groups(side, phases)[-1]
    return int(group[place])


@tabulate
def _arm_hops(side: int, phases: int) -> float:
    """Links along the longer arm of a group, the most of each phase."""
    return float(
        sum(max(max(group[-1] - group[p], group[p] - group[0]) for group, p in level) for level in phase_groups(side, phases))
    )


@tabulate
def _all_hops(side: int, phases: int) -> float:
    """Links that all partial sums of a column cross."""
    return float(sum(int(group[-1] - group[0]) for level in phase_groups(side, phases) for group, _ in level))


@tabulate
def _active(side: int, phases: int) -> float:
    """Phases in which some group has more than one member."""
    return float(sum(any(len(group) > 1 for group, _ in level) for level in phase_groups(side, phases)))


def reduction_rounds(
    mesh: CoreMesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum"
) -> tuple[Round, ...]:
    """Rounds that combine ``y`` of every column into ``out``."""
    rounds = []
    for phase, level in enumerate(phase_groups(mesh.rows, phases)):
        into = "out" if phase == phases - 1 and not broadcast else "y"
        reductions = []
        for group, middle in level:
            if len(group) > 1 or into == "out":
                ordered = np.concatenate(([group[middle]], np.delete(group, middle)))
                reductions.append(partial.column_reduction(mesh, ordered, length, into, combine))
        if reductions:
            rounds.append(Round(tuple(reductions)))
    if broadcast:
        rounds.append(partial.column_broadcast(mesh, root_row(mesh, phases), length))
    return tuple(rounds)


def build_program(
    shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2
) -> Program:
    """Program of the product; without `broadcast` the sums stay at the root."""
    sums = reduction_rounds(mesh, ceil(shape.n / mesh.cols), broadcast=broadcast, phases=phases)
    return partial.gemv_program(shape, mesh, dtype, sums)
