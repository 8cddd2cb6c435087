"""Elementwise kernels on each core: rotations, activations, residual sums."""

from math import ceil
from typing import Any

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import FUNCTIONS, Buffer, Program, Round, VectorInstruction
from dse.space.array_math import ceil_div

FUNCTION_INPUTS = {
    "add": ("x", "y"),
    "gate": ("x", "y"),
    "rotate": ("x", "y", "u", "v"),
    "tapped": ("x", "y", "u"),
    "silu": ("x",),
    "cap": ("x",),
    "correct": ("x", "y", "u", "v"),
    "learn": ("x", "y", "u", "v"),
    "decayed": ("x", "y", "u"),
    "rectify": ("x", "y", "u"),
}
"""Functions of whole tiles, and the slots that they read."""


def core_block_shape(shape: GemmShape, mesh: CoreMesh, replicated: bool) -> tuple[Any, Any]:
    """Width and tokens on one core. [-]"""
    return ceil_div(shape.k, mesh.rows), shape.m if replicated else ceil_div(shape.m, mesh.cols)


def instruction_seconds(function: str, elements: Any, fabric: MeshFabric) -> Any:
    """Time of a vector instruction over some elements. [s]"""
    known = FUNCTIONS[function]
    return fabric.call + elements * (known.operations * fabric.operation + known.specials * fabric.special)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, function: str, replicated: bool = False) -> KernelCost:
    """Time [s] and activity of one instruction over a core's block of [m tokens, k wide]."""
    k, m = core_block_shape(shape, mesh, replicated)
    return KernelCost(instruction_seconds(function, k * m, fabric), Activity(elements=1.0 * k * m * mesh.rows * mesh.cols))


def build_program(
    shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, function: str, replicated: bool = False
) -> Program:
    """Program: ``x`` becomes an elementwise function of the blocks."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = tuple(Buffer(name, (k, m), dtype) for name in FUNCTION_INPUTS[function])
    return Program(mesh.rows, mesh.cols, slots, ((Round((VectorInstruction(function, FUNCTION_INPUTS[function], "x"),)),),))
