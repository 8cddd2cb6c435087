"""Softmax along the rows of the mesh.

The GEMV's allreduce finds the largest score and adds up the exponentials.
"""

from math import ceil

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import extra_deliveries, find_gemv
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.vector.elementwise_kernels import core_block_shape, instruction_seconds
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, Program, Round, VectorInstruction
from dse.space.array_math import ceil_div


def cost(
    shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, allreduce: str, phases: int = 2, replicated: bool = False
) -> KernelCost:
    """Time [s] and activity of a softmax; leaves broadcast over designs.

        t = largest + allreduce + exponentials + total + allreduce + quotients

    Args:
        shape: m queries, k positions each.
        mesh, fabric: positions lie over the rows.
        allreduce: a key of `GEMV`.
        phases: phases of its K-tree.
        replicated: whether every column of cores has all queries.
    """
    k, m = core_block_shape(shape, mesh, replicated)
    words = ceil_div(4.0 * m, fabric.word_bytes)
    line = find_gemv(allreduce).line_seconds(mesh.rows, words, fabric, phases=phases)
    over = sum(instruction_seconds(name, k * m, fabric) for name in ("largest", "exponentials", "total", "divide"))
    sent, hops = find_gemv(allreduce).message_counts(mesh.rows, phases=phases)
    words_all = 2 * 4.0 * m * mesh.cols
    spread = extra_deliveries(allreduce, mesh.rows) * words_all
    elements = mesh.rows * mesh.cols * 4.0 * k * m
    activity = Activity(0.0, sent * words_all, hops * words_all, elements, spread_bytes=spread)
    return KernelCost(over + 2 * line, activity)


def build_program(
    shape: GemmShape,
    mesh: CoreMesh,
    dtype: str = "float32",
    *,
    allreduce: str,
    phases: int = 2,
    replicated: bool = False,
) -> Program:
    """Program: ``x`` of every core becomes its share of the softmax.

    Padding of ``x`` must be minus infinity.
    """
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = (Buffer("x", (k, m), dtype), Buffer("y", (1, m), depth=2), Buffer("out", (1, m), depth=2))
    kernel = find_gemv(allreduce)
    rounds = (
        Round((VectorInstruction("largest", ("x",), "y"),)),
        *kernel.reduction_rounds(mesh, 1, phases=phases, combine="max"),
        Round((VectorInstruction("exponentials", ("x", "out"), "x"),)),
        Round((VectorInstruction("total", ("x",), "y"),)),
        *kernel.reduction_rounds(mesh, 1, phases=phases),
        Round((VectorInstruction("divide", ("x", "out"), "x"),)),
    )
    return Program(mesh.rows, mesh.cols, slots, (rounds,))
