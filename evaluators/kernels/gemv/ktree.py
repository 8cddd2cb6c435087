"""MeshGEMV: K-tree allreduce, in K phases of groups of about N^(1/K) cores.

[he2025] section 6.2 and figure 8 (3): in each phase every group adds up at a root in its middle, from both sides at once; the
roots are the members of the next phase, reached by paths that pass straight through the cores between. About (K / 2) N^(1/K)
routing stages; K + 1 paths at the root. With K = 1 the whole column is one group.
"""

from math import ceil

import numpy as np

from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import partial
from evaluators.kernels.gemv.partial import place, result
from evaluators.rounds import Program, Round

__all__ = ["groups", "paths", "place", "result", "root", "stages", "steps"]


def paths(mesh: Mesh, phases: int = 2) -> int:
    """Routing paths of a core: a phase each, and the broadcast."""
    return phases + 1


def stages(side: int, phases: int = 2) -> int:
    """Software stages on the critical path: the longer arm of the largest group of each phase."""
    return sum(max(max(place, len(group) - 1 - place) for group, place in phase) for phase in groups(side, phases))


def root(mesh: Mesh, phases: int = 2) -> int:
    """The row that holds the sums."""
    ((group, place),) = groups(mesh.rows, phases)[-1]
    return int(group[place])


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
