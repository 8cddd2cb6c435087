"""RMSNorm: squares are added up along every column of cores, by the GEMV's allreduce ([he2025] section 2.3)."""

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

        t = squares + allreduce of a word a token + roots + scaling

    Args:
        shape: m tokens, k wide.
        mesh, fabric: the width lies over the rows.
        allreduce: a name of `GEMV`.
        phases: of its tree.
        replicated: whether every column of cores has all tokens.
    """
    k, m = tile(shape, mesh, replicated)
    words = ceil_div(4.0 * m, fabric.word_bytes)
    line = gemv(allreduce).line(mesh.rows, words, fabric, phases=phases)
    seconds = (
        instruction("squares", k * m, fabric) + line + instruction("roots", m, fabric) + instruction("scale", k * m, fabric)
    )
    sent, hops = gemv(allreduce).moved(mesh.rows, phases=phases)
    cores = mesh.rows * mesh.cols
    sums, spread = 4.0 * m * mesh.cols, copies(allreduce, mesh.rows)
    done = Activity(0.0, sent * sums, hops * sums, cores * (2.0 * k * m + m), spread_bytes=spread * sums)
    return Cost(seconds, done)


def steps(
    shape: Shape,
    mesh: Mesh,
    dtype: str = "float32",
    *,
    allreduce: str,
    phases: int = 2,
    replicated: bool = False,
) -> Program:
    """The program: slot ``x`` of every core is divided by the root of the sum of squares of its tokens."""
    k, m = ceil(shape.k / mesh.rows), shape.m if replicated else ceil(shape.m / mesh.cols)
    slots = (Slot("x", (k, m), dtype), Slot("y", (1, m), depth=2), Slot("out", (1, m), depth=2), Slot("root", (1, m)))
    rounds = (
        Round((Vector("squares", ("x",), "y"),)),
        *gemv(allreduce).reduction(mesh, 1, phases=phases),
        Round((Vector("roots", ("out",), "root"),)),
        Round((Vector("scale", ("x", "root"), "x"),)),
    )
    return Program(mesh.rows, mesh.cols, slots, (rounds,))
