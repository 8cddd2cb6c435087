"""Softmax along the rows of the mesh: the largest, exponentials, their sum, by the GEMV's allreduce."""

from math import ceil

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import copies, gemv
from dse.evaluators.kernels.vector.elementwise import instruction, tile
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Program, Round, Slot, Vector
from dse.space.elementwise import ceil_div


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, allreduce: str, phases: int = 2, replicated: bool = False) -> Cost:
    """Time of the program; leaves broadcast over designs.

        t = largest + allreduce + exponentials + total + allreduce + quotients

    Args:
        shape: m queries, k positions each.
        mesh, fabric: positions lie over the rows.
        allreduce: a name of `GEMV`.
        phases: of its tree.
        replicated: whether every column of cores has all queries.
    """
    k, m = tile(shape, mesh, replicated)
    words = ceil_div(4.0 * m, fabric.word_bytes)
    line = gemv(allreduce).line(mesh.rows, words, fabric, phases=phases)
    over = sum(instruction(name, k * m, fabric) for name in ("largest", "exponentials", "total", "divide"))
    sent, hops = gemv(allreduce).moved(mesh.rows, phases=phases)
    words_all = 2 * 4.0 * m * mesh.cols
    spread = copies(allreduce, mesh.rows) * words_all
    elements = mesh.rows * mesh.cols * 4.0 * k * m
    activity = Activity(0.0, sent * words_all, hops * words_all, elements, spread_bytes=spread)
    return Cost(over + 2 * line, activity)


def steps(
    shape: Shape,
    mesh: Mesh,
    dtype: str = "float32",
    *,
    allreduce: str,
    phases: int = 2,
    replicated: bool = False,
) -> Program:
    """The program: slot ``x`` of every core becomes its share of the softmax; padding must be minus infinity."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = (Slot("x", (k, m), dtype), Slot("y", (1, m), depth=2), Slot("out", (1, m), depth=2))
    kernel = gemv(allreduce)
    rounds = (
        Round((Vector("largest", ("x",), "y"),)),
        *kernel.reduction(mesh, 1, phases=phases, combine="max"),
        Round((Vector("exponentials", ("x", "out"), "x"),)),
        Round((Vector("total", ("x",), "y"),)),
        *kernel.reduction(mesh, 1, phases=phases),
        Round((Vector("divide", ("x", "out"), "x"),)),
    )
    return Program(mesh.rows, mesh.cols, slots, (rounds,))
