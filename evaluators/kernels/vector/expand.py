"""Packed values that a core's engine does not multiply become wide ones: unpacked, converted, rescaled; no core needs another.

A core has the scales of all blocks that its tile has a share of (`layouts.formats.piece_bytes`).
"""

from math import ceil

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.vector.elementwise import instruction, tile
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import EXPANSIONS, Program, Round, Slot, expansion


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, operations: float) -> Cost:
    """Time of the instructions over a core's tile of m vectors, k wide; leaves broadcast over designs.

    Args:
        shape, mesh: the width lies over the rows, vectors over the columns.
        fabric: of a core.
        operations: on each value, as of a format (`space.numbers.Format.expand`).
    """
    k, m = tile(shape, mesh, replicated=False)
    functions = EXPANSIONS[int(operations)]
    seconds = sum(instruction(function, k * m, fabric) for function in functions)
    return Cost(seconds, Activity(elements=1.0 * len(functions) * k * m * mesh.rows * mesh.cols))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, operations: float) -> Program:
    """The program: ``wide`` becomes what ``x`` has packed."""
    side = ceil(shape.k / mesh.rows), ceil(shape.m / mesh.cols)
    rounds = tuple(Round((step,)) for step in expansion("x", "wide", operations))
    return Program(mesh.rows, mesh.cols, (Slot("x", side, dtype), Slot("wide", side, dtype)), (rounds,))
