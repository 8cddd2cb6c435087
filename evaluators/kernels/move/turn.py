"""What lies over the columns, and is on every row, comes to lie over the rows: each row's part goes to all cores of the row.

What a product of vectors leaves on columns is so ready for one whose operand lies over the rows: a transpose of a vector, for
which no column of cores has to do anything.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.shift import words_of
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Cores, Multicast, Program, Round, Slot
from dse.space.elementwise import ceil_div, where


def cost(shape: Shape, mesh: Mesh, fabric: Fabric) -> Cost:
    """Time until the cores of each row have its part of m vectors, k wide; leaves broadcast over designs.

    The core that has the part multicasts it along its row, at most from one end to the other:

        t = post + 2 ramp + (columns - 1) hop + words pace

    Assumes that one core has all of a row's part; where several do, they post at the same time.
    """
    part = ceil_div(shape.k, mesh.rows) * shape.m
    moves = where(mesh.cols > 1, 1.0, 0.0)
    seconds = fabric.post + 2 * fabric.ramp + (mesh.cols - 1.0) * fabric.hop + words_of(part, fabric) * fabric.pace
    sent = 2.0 * shape.m * shape.k * moves
    hops = sent * (mesh.cols - 1.0)
    return Cost(moves * seconds, Activity(sent_bytes=sent, hop_bytes=hops, spread_bytes=hops - sent))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program: ``x``, tiles [k over the columns, m], becomes ``out``, tiles [k over the rows, m]."""
    wide, high = ceil(shape.k / mesh.cols), ceil(shape.k / mesh.rows)
    slots = (Slot("x", (wide, shape.m), dtype), Slot("out", (high, shape.m), dtype, depth=2))
    if mesh.cols == 1:
        return Program(mesh.rows, 1, slots, ((),))
    cuts = np.unique(np.concatenate([np.arange(0, shape.k, wide), np.arange(0, shape.k, high), [shape.k]]))
    low, stop = cuts[:-1], cuts[1:]
    row, col = low // high, low // wide
    turn = np.array([np.sum(row[:i] == row[i]) for i in range(len(row))])
    sends = []
    for place in range(int(turn.max()) + 1):
        p = turn == place
        members = np.stack([np.concatenate(([c], np.delete(np.arange(mesh.cols), c))) for c in col[p]])
        path = Cores(row[p][:, None], members)
        start, end, at = ((value)[p] for value in (low - col * wide, stop - col * wide, low - row * high))
        sends.append(Multicast("x", path, start, end, "out", at=at))
    return Program(mesh.rows, mesh.cols, slots, ((Round(tuple(sends)),),))
