"""Transfer from one region of a mesh to the next one.

Every core sends its block to its counterpart, as many columns away as a region has.

What is replicated over the columns goes out once a row, and the network copies it to the columns of the next region.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MulticastInstruction, Program, Round, SendInstruction
from dse.space.array_math import ceil_div, maximum


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, replicated: bool = False) -> KernelCost:
    """Time [s] and activity until the next region has the [m tokens, k wide] of this one.

    All regions have this mesh; leaves broadcast over designs.

    The links between the two carry the tiles of all columns, one after the other:

        t = post + 2 ramp + columns hop + max(words pace, columns words word)

    A replicated tile crosses once: t = post + 2 ramp + columns hop + words pace.
    """
    tile = ceil_div(shape.k, mesh.rows) * (shape.m if replicated else ceil_div(shape.m, mesh.cols))
    words = link_words(tile, fabric)
    through = words * fabric.pace if replicated else maximum(words * fabric.pace, mesh.cols * words * fabric.word)
    sent = 2.0 * tile * mesh.rows * (1.0 if replicated else mesh.cols)
    seconds = fabric.post + 2 * fabric.ramp + mesh.cols * fabric.hop + through
    spread = sent * (mesh.cols - 1.0) if replicated else 0.0
    return KernelCost(seconds, Activity(sent_bytes=sent, hop_bytes=sent * mesh.cols, spread_bytes=spread))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, replicated: bool = False) -> Program:
    """Program on two neighbouring regions: ``x`` of the left one goes to the right one."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slot = Buffer("x", (k, m), dtype, depth=2)
    row = np.arange(mesh.rows)[:, None]
    if replicated:
        spread = MulticastInstruction(
            "x", CoreIndex(row, np.arange(mesh.cols - 1, 2 * mesh.cols)[None, :]), np.asarray(0), np.asarray(k), "x"
        )
        return Program(mesh.rows, 2 * mesh.cols, (slot,), ((Round((spread,)),),))
    col = np.arange(mesh.cols)[::-1][None, :]
    send = SendInstruction("x", CoreIndex(row, col), CoreIndex(row, col + mesh.cols), np.asarray(0), np.asarray(k))
    return Program(mesh.rows, 2 * mesh.cols, (slot,), ((Round((send,)),),))
