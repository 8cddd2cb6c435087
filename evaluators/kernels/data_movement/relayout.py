"""Move of a matrix from the layout of one phase to that of the other.

Equal blocks lie over some cores before, and over more or fewer cores after.

[he2025] section 4.4: "we reshuffle KV cache and weights through the fast NoC". Blocks move along the rows of cores first, then
along the columns, each piece straight to the core that will hold it.
"""

from math import ceil

import numpy as np

from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction, VectorInstruction
from dse.space.array_math import Array, ceil_div, maximum, minimum


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, into: CoreMesh) -> KernelCost:
    """Time [s] and activity of moving an [m, n] matrix from `mesh` to `into`.

    Both meshes begin at the same corner; leaves broadcast over designs.

    Along a line of N cores whose content spreads over N' (or the other way round), the busiest link is the last of the shorter
    line: it carries the share 1 - min / max of all words of the line. Then the same along the columns:

        t = 2 (post + 2 ramp) + hop (N + M) + max(core's words pace, line's words share word), for both

    Args:
        shape, mesh, fabric: broadcast over designs.
        into: cores that will hold the matrix.
    """
    values = shape.m * shape.n * 1.0
    seconds, hops = 0.0, 0.0
    # rows of cores first: lines are those of `mesh`, then columns: lines are those of `into`
    for lines, source_side, target_side in ((mesh.rows, mesh.cols, into.cols), (into.cols, mesh.rows, into.rows)):
        longer, shorter = maximum(source_side, target_side), minimum(source_side, target_side)
        share = 1 - shorter / longer
        line = link_words(ceil_div(values, lines), fabric)
        core = ceil_div(line, shorter) * fabric.pace
        through = maximum(core, line * share * fabric.word)
        seconds = seconds + fabric.post + 2 * fabric.ramp + (longer - shorter) * fabric.hop + through
        # a value at the share x of the line moves x (N - N')
        hops = hops + values * 2.0 * (longer - shorter) / 2
    return KernelCost(seconds, Activity(sent_bytes=2 * 2.0 * values, hop_bytes=hops))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, into: CoreMesh) -> Program:
    """Program: ``a``, blocks [n, m] over `mesh`, becomes ``out``, blocks [m, n] over `into`.

    Both meshes begin at the first core.
    """
    rows, cols = max(mesh.rows, into.rows), max(mesh.cols, into.cols)
    m, n = ceil(shape.m / mesh.rows), ceil(shape.n / mesh.cols)
    to_m, to_n = ceil(shape.m / into.rows), ceil(shape.n / into.cols)
    slots = (
        Buffer("a", (n, m), dtype),
        Buffer("wide", (to_n, m), dtype, depth=2),
        Buffer("turned", (m, to_n), dtype),
        Buffer("out", (to_m, to_n), dtype, depth=2),
    )
    lines = np.arange(mesh.rows)[:, None]
    across = tuple(
        SendInstruction("a", CoreIndex(lines, s), CoreIndex(lines, t), start, stop, at=at, into="wide")
        for s, t, start, stop, at in _pieces(shape.n, n, to_n)
    )
    turn = VectorInstruction("turn", ("wide",), "turned")
    lines = np.arange(into.cols)[None, :]
    down = tuple(
        SendInstruction("turned", CoreIndex(s.T, lines), CoreIndex(t.T, lines), start.T, stop.T, at=at.T, into="out")
        for s, t, start, stop, at in _pieces(shape.m, m, to_m)
    )
    return Program(rows, cols, slots, ((Round(across), Round((turn,)), Round(down)),))


def _pieces(length: int, source_side: int, target_side: int) -> list[tuple[Array, ...]]:
    """Pieces of a line cut both ways: (source, target, start, stop, at) as rows; cut so that no core sends two at once."""
    cuts = np.unique(np.concatenate([np.arange(0, length, source_side), np.arange(0, length, target_side), [length]]))
    low, high = cuts[:-1], cuts[1:]
    source, target = low // source_side, low // target_side
    place = np.array([np.sum(source[:i] == source[i]) for i in range(len(source))])
    pieces = []
    for turn in range(int(place.max()) + 1):
        p = place == turn
        columns = (
            source[p],
            target[p],
            (low - source * source_side)[p],
            (high - source * source_side)[p],
            (low - target * target_side)[p],
        )
        pieces.append(tuple(column[None, :] for column in columns))
    return pieces
