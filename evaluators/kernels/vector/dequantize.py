"""Dequantisation of packed weights on each core.

Values are unpacked, converted and rescaled; no core needs another one.

A core has the scales of all blocks that its tile has a share of (`layouts.tensor_formats.piece_bytes`).
"""

from math import ceil

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.vector.elementwise_kernels import core_block_shape, instruction_seconds
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import DEQUANTIZE_FUNCTIONS, Buffer, Program, Round, dequantize_instructions


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, operations: float) -> KernelCost:
    """Time [s] and activity of dequantising a core's block of m vectors, k wide, over designs.

    Args:
        shape, mesh: the width lies over the rows, vectors over the columns.
        fabric: of a core.
        operations: on each value, as of a format (`space.number_formats.NumberFormat.expand`).
    """
    k, m = core_block_shape(shape, mesh, replicated=False)
    functions = DEQUANTIZE_FUNCTIONS[int(operations)]
    seconds = sum(instruction_seconds(function, k * m, fabric) for function in functions)
    return KernelCost(seconds, Activity(elements=1.0 * len(functions) * k * m * mesh.rows * mesh.cols))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, operations: float) -> Program:
    """Program: ``wide`` becomes the dequantised values of ``x``."""
    side = ceil(shape.k / mesh.rows), ceil(shape.m / mesh.cols)
    rounds = tuple(Round((step,)) for step in dequantize_instructions("x", "wide", operations))
    return Program(mesh.rows, mesh.cols, (Buffer("x", side, dtype), Buffer("wide", side, dtype)), (rounds,))
