"""Dispatch of tokens to experts on a mesh.

Each column multicasts its part of the tokens to the rows that hold their experts.

[he2025] section 8: "the all-to-all communication between attention and expert layers, which we implement using WSE-2's NoC
multi-cast operations". Every core of a column gets every token's slice, and uses those of its experts.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MulticastInstruction, Program, Round
from dse.space.array_math import ceil_div


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity until every core has its column's slice of m tokens, k wide.

    Each token is held by one row; leaves broadcast over designs.

    All tiles but a core's own come to it, between the words that its engine paces those of others':

        t = post + 2 ramp + rows hop + (rows - 1) words word + words pace
    """
    k, m = ceil_div(shape.k, mesh.cols), ceil_div(shape.m, mesh.rows)
    words = link_words(k * m, fabric)
    sent = 2.0 * k * m * mesh.rows * mesh.cols
    seconds = (
        fabric.post + 2 * fabric.ramp + mesh.rows * fabric.hop + (mesh.rows - 1) * words * fabric.word + words * fabric.pace
    )
    return KernelCost(seconds, Activity(sent_bytes=sent, hop_bytes=sent * (mesh.rows - 1), spread_bytes=sent * (mesh.rows - 2)))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program: ``x`` of every row goes to its place in ``all`` on every core of the column."""
    k, m = ceil(shape.k / mesh.cols), ceil(shape.m / mesh.rows)
    col = np.arange(mesh.cols)[:, None]
    sends = []
    for row in range(mesh.rows):
        members = np.concatenate(([row], np.delete(np.arange(mesh.rows), row)))[None, :]
        sends.append(
            MulticastInstruction("x", CoreIndex(members, col), np.asarray(0), np.asarray(m), "all", at=np.asarray(row * m))
        )
    slots = (Buffer("x", (m, k), dtype), Buffer("all", (m * mesh.rows, k), dtype, depth=2))
    return Program(mesh.rows, mesh.cols, slots, ((Round(tuple(sends)),),))
