"""Top-k selection of scores along the rows of the mesh by radix select.

It finds the lowest chosen score digit by digit.

Every core counts which digits its scores have, the counts are added up by the GEMV's allreduce, and all cores see at which
digit enough are found: what a core chooses of its own follows from that, and nothing else moves.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import extra_deliveries, find_gemv
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.vector.elementwise_kernels import core_block_shape, instruction_seconds
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import BINS, BITS, Buffer, Program, Round, VectorInstruction
from dse.space.array_math import ceil_div, maximum

DIGITS = 32 // BITS
"""Of a score in single precision."""


def cost(
    shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, allreduce: str, phases: int = 2, replicated: bool = False
) -> KernelCost:
    """Time [s] and activity of a radix select; leaves broadcast over designs.

        t = 8 (digits + allreduce of 16 counts a query + where enough are)

    Args:
        shape: m queries, k scores each.
        mesh, fabric: scores lie over the rows.
        allreduce: a key of `GEMV`.
        phases: phases of its K-tree.
        replicated: whether every column of cores has all queries.
    """
    k, m = core_block_shape(shape, mesh, replicated)
    counts = float(BINS) * m
    line = find_gemv(allreduce).line_seconds(mesh.rows, ceil_div(4.0 * counts, fabric.word_bytes), fabric, phases=phases)
    over = maximum(1.0 * k * m, counts)
    seconds = DIGITS * (instruction_seconds("digits", over, fabric) + line + instruction_seconds("enough", counts, fabric))
    sent, hops = find_gemv(allreduce).message_counts(mesh.rows, phases=phases)
    words = DIGITS * 4.0 * counts * mesh.cols
    elements, spread = DIGITS * mesh.rows * mesh.cols * (over + counts), extra_deliveries(allreduce, mesh.rows) * words
    return KernelCost(seconds, Activity(0.0, sent * words, hops * words, elements, spread_bytes=spread))


def build_program(
    shape: GemmShape,
    mesh: CoreMesh,
    dtype: str = "float32",
    *,
    allreduce: str,
    phases: int = 2,
    replicated: bool = False,
) -> Program:
    """Program: ``found`` of every core becomes the bits of the lowest chosen score of ``x``.

    No score is below 0, but what does not fill a tile. ``found`` is, before, 0 and how many are chosen.
    """
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = (
        Buffer("x", (k, m), dtype),
        Buffer("y", (BINS, m), depth=2),
        Buffer("out", (BINS, m), depth=2),
        Buffer("found", (2, m), "float64"),
    )
    rounds: list[Round] = []
    for shift in range(32 - BITS, -1, -BITS):
        rounds += [
            Round((VectorInstruction("digits", ("x", "found"), "y", given=np.asarray(shift)),)),
            *find_gemv(allreduce).reduction_rounds(mesh, BINS, phases=phases),
            Round((VectorInstruction("enough", ("out", "found"), "found", given=np.asarray(shift)),)),
        ]
    return Program(mesh.rows, mesh.cols, slots, (tuple(rounds),))
