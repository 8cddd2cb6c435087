"""MeshGEMV: K-tree allreduce, in K phases of groups of about N^(1/K) cores.

[he2025] section 6.2 and figure 8 (3): in each phase every group adds up at a root in its middle, from both sides at once; the
roots are the members of the next phase, reached by paths that pass straight through the cores between. About (K / 2) N^(1/K)
routing stages; K + 1 paths at the root. With K = 1 the whole column is one group.
"""

from math import ceil

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import partial
from evaluators.kernels.gemv.partial import place, result
from evaluators.machine.fabric import Fabric
from evaluators.rounds import Program, Round

__all__ = ["cost", "groups", "paths", "place", "result", "root", "stages", "steps"]


def paths(mesh: Mesh, phases: int = 2) -> int:
    """Routing paths of a core: a phase each, and the broadcast."""
    return phases + 1


def stages(side: int, phases: int = 2) -> int:
    """Software stages on the critical path: the longer arm of the largest group of each phase."""
    return sum(max(max(place, len(group) - 1 - place) for group, place in phase) for phase in groups(side, phases))


def root(mesh: Mesh, phases: int = 2) -> int:
    """The row that holds the sums."""
    return _root(mesh.rows, phases)


def groups(side: int, phases: int) -> list[list[tuple[np.ndarray, int]]]:
    """For each phase, its groups as (rows in order, place of the root among them).

    The last phase takes all roots that are left, so that there is one group whatever N^(1/K) rounds to.

    >>> [[(group.tolist(), int(group[place])) for group, place in phase] for phase in groups(9, 2)]
    [[([0, 1, 2], 1), ([3, 4, 5], 4), ([6, 7, 8], 7)], [([1, 4, 7], 4)]]
    """
    members = np.arange(side)
    found = []
    for phase in range(phases):
        left = phases - phase
        size = len(members) if left == 1 else max(1, round(len(members) ** (1 / left)))
        parts = np.array_split(members, max(1, ceil(len(members) / size)))
        level = [(part, len(part) // 2) for part in parts]
        found.append(level)
        members = np.array([part[place] for part, place in level])
    return found


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, broadcast: bool = True, phases: int = 2) -> Cost:
    """Time until the root (or with `broadcast` every row) has the product.

    Phase by phase the longer arm of its largest group, whose members are `gap` rows apart, through which the words stream:

        t = sum over phases of launch + arm (2 ramp + gap hop + stage) + words

    Exact where groups of a phase are equal; elsewhere groups that end early wait less, by less than a stage a phase.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        broadcast: whether the sums go back to all rows.
        phases: K, one for the whole batch.

    Source:
        [he2025] section 6.2.
    """
    rows = mesh.rows
    stages_ = partial.by_side(lambda side: float(stages(side, phases)), rows)
    hops = partial.by_side(lambda side: _arm_hops(side, phases), rows)
    active = partial.by_side(lambda side: float(sum(any(len(g) > 1 for g, _ in level) for level in groups(side, phases))), rows)
    words = partial.stream(shape, mesh, fabric)
    reduction = active * (fabric.launch + words) + stages_ * (2 * fabric.ramp + fabric.stage) + hops * fabric.hop
    middle = partial.by_side(lambda side: float(_root(side, phases)), rows)
    seconds = partial.seconds(shape, mesh, fabric, reduction, broadcast=broadcast, root=middle)
    spread = broadcast * (rows > 1)
    legs = partial.by_side(lambda side: _all_hops(side, phases), rows)
    return Cost(seconds, partial.counted(shape, mesh, rows - 1.0 + spread, legs + spread * (rows - 1.0)))


def _root(side: int, phases: int) -> int:
    ((group, place),) = groups(side, phases)[-1]
    return int(group[place])


def _arm_hops(side: int, phases: int) -> float:
    """Links along the longer arm of a group, the most of each phase."""
    return float(
        sum(max(max(group[-1] - group[p], group[p] - group[0]) for group, p in level) for level in groups(side, phases))
    )


def _all_hops(side: int, phases: int) -> float:
    """Links that all partial sums of a column cross."""
    return float(sum(int(group[-1] - group[0]) for level in groups(side, phases) for group, _ in level))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2) -> Program:
    """The program; without `broadcast` the sums stay at the root."""
    length = ceil(shape.n / mesh.cols)
    tree = groups(mesh.rows, phases)
    rounds = [partial.product()]
    for phase, level in enumerate(tree):
        into = "out" if phase == phases - 1 and not broadcast else "y"
        reductions = []
        for group, middle in level:
            if len(group) > 1 or into == "out":
                ordered = np.concatenate(([group[middle]], np.delete(group, middle)))
                reductions.append(partial.reduction(mesh, ordered, length, into))
        if reductions:
            rounds.append(Round(tuple(reductions)))
    if broadcast:
        rounds.append(partial.spread(mesh, root(mesh, phases), length))
    return Program(mesh.rows, mesh.cols, partial.slots(shape, mesh, dtype), (tuple(rounds),))
