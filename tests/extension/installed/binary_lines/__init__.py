"""GEMV whose partial sums are added up by a binary tree: in round i between cores that are 2^i apart.

The closed form is exact where the cores of a line are a power of two; elsewhere pairs without a partner wait less.
"""

from functools import partial as bound
from math import ceil

import numpy as np

from dse.evaluators.kernels.gemv import partial
from dse.evaluators.kernels.gemv.partial import place, result, slots
from dse.evaluators.kernels.table import tabulated
from dse.evaluators.program.rounds import Round

__all__ = ["at_once", "cost", "line", "moved", "paths", "place", "reduction", "result", "root", "slots", "stages", "steps"]


@tabulated
def stages(side):
    return ceil(np.log2(side))


def root(mesh):
    return 0


def paths(mesh, phases=2):
    return stages(mesh.rows) + 1


at_once = paths


def line(side, words, fabric, *, broadcast=True, phases=2):
    rounds = stages(side)
    hops = 2.0**rounds - 1  # 1 + 2 + 4 + ..
    sums = rounds * (2 * fabric.ramp + fabric.stage + words * fabric.pace) + hops * fabric.hop
    return sums + partial.spread_seconds(side, 0, words, fabric) if broadcast else sums


@tabulated
def _links(side):
    return sum(end - start for pairs in _pairs(side) for start, end in pairs)


def moved(side, *, broadcast=True, phases=2):
    spread = broadcast * (side > 1)
    return side - 1.0 + spread, _links(side) + spread * (side - 1.0)


def cost(shape, mesh, fabric, *, broadcast=True, phases=2):
    return partial.cost(shape, mesh, fabric, bound(line, broadcast=broadcast), bound(moved, broadcast=broadcast))


def _pairs(side):
    apart = 1
    while apart < side:
        yield [(row, row + apart) for row in range(0, side - apart, 2 * apart)]
        apart *= 2


def reduction(mesh, length, *, broadcast=True, phases=2, combine="sum"):
    rounds = list(_pairs(mesh.rows))
    found = []
    for number, pairs in enumerate(rounds):
        into = "out" if number == len(rounds) - 1 and not broadcast else "y"
        found.append(Round(tuple(partial.reduced(mesh, np.array(pair), length, into, combine) for pair in pairs)))
    return (*found, partial.spread(mesh, 0, length)) if broadcast else tuple(found)


def steps(shape, mesh, dtype="float32", *, broadcast=True, phases=2):
    return partial.program(shape, mesh, dtype, reduction(mesh, ceil(shape.n / mesh.cols), broadcast=broadcast))
