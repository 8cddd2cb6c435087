"""Redistribution of vectors from columns of cores to rows.

The data lies over the columns and is replicated on every row. Each row's part goes to all cores of the row.

What a product of vectors leaves on columns is so ready for one whose operand lies over the rows: a transpose of a vector, for
which no column of cores has to do anything.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MulticastInstruction, Program, Round
from dse.space.array_math import ceil_div, where


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity until the cores of each row have their part of m vectors, k wide.

    The core that has the part multicasts it along its row, at most from one end to the other:

        t = post + 2 ramp + (columns - 1) hop + words pace

    Assumes that one core has all of a row's part; where several do, they post at the same time.
    """
    part = ceil_div(shape.k, mesh.rows) * shape.m
    moves = where(mesh.cols > 1, 1.0, 0.0)
    seconds = fabric.post + 2 * fabric.ramp + (mesh.cols - 1.0) * fabric.hop + link_words(part, fabric) * fabric.pace
    sent = 2.0 * shape.m * shape.k * moves
    hops = sent * (mesh.cols - 1.0)
    return KernelCost(moves * seconds, Activity(sent_bytes=sent, hop_bytes=hops, spread_bytes=hops - sent))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program: ``x``, blocks [k over the columns, m], becomes ``out``, blocks [k over the rows, m]."""
    wide, high = ceil(shape.k / mesh.cols), ceil(shape.k / mesh.rows)
    slots = (Buffer("x", (wide, shape.m), dtype), Buffer("out", (high, shape.m), dtype, depth=2))
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
        path = CoreIndex(row[p][:, None], members)
        start, end, at = ((value)[p] for value in (low - col * wide, stop - col * wide, low - row * high))
        sends.append(MulticastInstruction("x", path, start, end, "out", at=at))
    return Program(mesh.rows, mesh.cols, slots, ((Round(tuple(sends)),),))
