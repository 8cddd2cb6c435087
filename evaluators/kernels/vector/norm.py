"""RMSNorm on a mesh of cores ([he2025] section 2.3).

The GEMV's allreduce adds up squares along every column.
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
    """Time [s] and activity of RMSNorm; leaves broadcast over designs.

        t = squares + allreduce of a word a token + roots + scaling

    Args:
        shape: m tokens, k wide.
        mesh, fabric: the width lies over the rows.
        allreduce: a key of `GEMV`.
        phases: phases of its K-tree.
        replicated: whether every column of cores has all tokens.
    """
    k, m = core_block_shape(shape, mesh, replicated)
    words = ceil_div(4.0 * m, fabric.word_bytes)
    line = find_gemv(allreduce).line_seconds(mesh.rows, words, fabric, phases=phases)
    seconds = (
        instruction_seconds("squares", k * m, fabric)
        + line
        + instruction_seconds("roots", m, fabric)
        + instruction_seconds("scale", k * m, fabric)
    )
    sent, hops = find_gemv(allreduce).message_counts(mesh.rows, phases=phases)
    cores = mesh.rows * mesh.cols
    sums, spread = 4.0 * m * mesh.cols, extra_deliveries(allreduce, mesh.rows)
    done = Activity(0.0, sent * sums, hops * sums, cores * (2.0 * k * m + m), spread_bytes=spread * sums)
    return KernelCost(seconds, done)


def build_program(
    shape: GemmShape,
    mesh: CoreMesh,
    dtype: str = "float32",
    *,
    allreduce: str,
    phases: int = 2,
    replicated: bool = False,
) -> Program:
    """Program: ``x`` of every core is divided by the root of its tokens' sums of squares."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = (Buffer("x", (k, m), dtype), Buffer("y", (1, m), depth=2), Buffer("out", (1, m), depth=2), Buffer("root", (1, m)))
    rounds = (
        Round((VectorInstruction("squares", ("x",), "y"),)),
        *find_gemv(allreduce).reduction_rounds(mesh, 1, phases=phases),
        Round((VectorInstruction("roots", ("out",), "root"),)),
        Round((VectorInstruction("scale", ("x", "root"), "x"),)),
    )
    return Program(mesh.rows, mesh.cols, slots, (rounds,))
