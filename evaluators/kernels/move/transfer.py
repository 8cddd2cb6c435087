"""From one region to the next: every core sends its tile to its counterpart, as many columns away as a region has.

What is replicated over the columns goes out once a row, and the network copies it to the columns of the next region.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.shift import words_of
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Cores, Multicast, Program, Round, Send, Slot
from dse.space.elementwise import ceil_div, maximum


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, replicated: bool = False) -> Cost:
    """Time until the next region has [m tokens, k wide] of one whose mesh this is; leaves broadcast over designs.

    The links between the two carry the tiles of all columns, one after the other:

        t = post + 2 ramp + columns hop + max(words pace, columns words word)

    A replicated tile crosses once: t = post + 2 ramp + columns hop + words pace.
    """
    tile = ceil_div(shape.k, mesh.rows) * (shape.m if replicated else ceil_div(shape.m, mesh.cols))
    words = words_of(tile, fabric)
    through = words * fabric.pace if replicated else maximum(words * fabric.pace, mesh.cols * words * fabric.word)
    sent = 2.0 * tile * mesh.rows * (1.0 if replicated else mesh.cols)
    seconds = fabric.post + 2 * fabric.ramp + mesh.cols * fabric.hop + through
    spread = sent * (mesh.cols - 1.0) if replicated else 0.0
    return Cost(seconds, Activity(sent_bytes=sent, hop_bytes=sent * mesh.cols, spread_bytes=spread))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32", *, replicated: bool = False) -> Program:
    """The program, on two regions side by side: ``x`` of the left one goes to the right one."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slot = Slot("x", (k, m), dtype, depth=2)
    row = np.arange(mesh.rows)[:, None]
    if replicated:
        spread = Multicast("x", Cores(row, np.arange(mesh.cols - 1, 2 * mesh.cols)[None, :]), np.asarray(0), np.asarray(k), "x")
        return Program(mesh.rows, 2 * mesh.cols, (slot,), ((Round((spread,)),),))
    col = np.arange(mesh.cols)[::-1][None, :]
    send = Send("x", Cores(row, col), Cores(row, col + mesh.cols), np.asarray(0), np.asarray(k))
    return Program(mesh.rows, 2 * mesh.cols, (slot,), ((Round((send,)),),))
