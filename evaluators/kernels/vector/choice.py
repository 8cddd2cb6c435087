"""The best of scores along the rows of the mesh: a radix select finds the lowest score that is chosen, digit by digit.

Every core counts which digits its scores have, the counts are added up by the GEMV's allreduce, and all cores see at which
digit enough are found: what a core chooses of its own follows from that, and nothing else moves.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.gemv import copies, gemv
from dse.evaluators.kernels.vector.elementwise import instruction, tile
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import BINS, BITS, Program, Round, Slot, Vector
from dse.space.elementwise import ceil_div, maximum

DIGITS = 32 // BITS
"""Of a score in single precision."""


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, allreduce: str, phases: int = 2, replicated: bool = False) -> Cost:
    """Time of the program; leaves broadcast over designs.

        t = 8 (digits + allreduce of 16 counts a query + where enough are)

    Args:
        shape: m queries, k scores each.
        mesh, fabric: scores lie over the rows.
        allreduce: a name of `GEMV`.
        phases: of its tree.
        replicated: whether every column of cores has all queries.
    """
    k, m = tile(shape, mesh, replicated)
    counts = float(BINS) * m
    line = gemv(allreduce).line(mesh.rows, ceil_div(4.0 * counts, fabric.word_bytes), fabric, phases=phases)
    over = maximum(1.0 * k * m, counts)
    seconds = DIGITS * (instruction("digits", over, fabric) + line + instruction("enough", counts, fabric))
    sent, hops = gemv(allreduce).moved(mesh.rows, phases=phases)
    words = DIGITS * 4.0 * counts * mesh.cols
    elements, spread = DIGITS * mesh.rows * mesh.cols * (over + counts), copies(allreduce, mesh.rows) * words
    return Cost(seconds, Activity(0.0, sent * words, hops * words, elements, spread_bytes=spread))


def steps(
    shape: Shape,
    mesh: Mesh,
    dtype: str = "float32",
    *,
    allreduce: str,
    phases: int = 2,
    replicated: bool = False,
) -> Program:
    """The program: ``found`` of every core becomes the bits of the lowest score of ``x`` that is chosen.

    No score is below 0, but what does not fill a tile. ``found`` is, before, 0 and how many are chosen.
    """
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = (
        Slot("x", (k, m), dtype),
        Slot("y", (BINS, m), depth=2),
        Slot("out", (BINS, m), depth=2),
        Slot("found", (2, m), "float64"),
    )
    rounds: list[Round] = []
    for shift in range(32 - BITS, -1, -BITS):
        rounds += [
            Round((Vector("digits", ("x", "found"), "y", given=np.asarray(shift)),)),
            *gemv(allreduce).reduction(mesh, BINS, phases=phases),
            Round((Vector("enough", ("out", "found"), "found", given=np.asarray(shift)),)),
        ]
    return Program(mesh.rows, mesh.cols, slots, (tuple(rounds),))
