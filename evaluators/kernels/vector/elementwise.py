"""Rotations, activations, residual sums: no core needs another."""

from math import ceil
from typing import Any

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import FUNCTIONS, Program, Round, Slot, Vector
from dse.space.elementwise import ceil_div

INPUTS = {
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


def tile(shape: Shape, mesh: Mesh, replicated: bool) -> tuple[Any, Any]:
    """Width and tokens on one core."""
    return ceil_div(shape.k, mesh.rows), shape.m if replicated else ceil_div(shape.m, mesh.cols)


def instruction(function: str, elements: Any, fabric: Fabric) -> Any:
    """Time of a vector instruction over some elements."""
    known = FUNCTIONS[function]
    return fabric.call + elements * (known.operations * fabric.operation + known.specials * fabric.special)


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, function: str, replicated: bool = False) -> Cost:
    """Time of one instruction over a core's tile of [m tokens, k wide]; leaves broadcast over designs."""
    k, m = tile(shape, mesh, replicated)
    return Cost(instruction(function, k * m, fabric), Activity(elements=1.0 * k * m * mesh.rows * mesh.cols))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, function: str, replicated: bool = False) -> Program:
    """The program: ``x`` becomes the function of the tiles."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = tuple(Slot(name, (k, m), dtype) for name in INPUTS[function])
    return Program(mesh.rows, mesh.cols, slots, ((Round((Vector(function, INPUTS[function], "x"),)),),))
