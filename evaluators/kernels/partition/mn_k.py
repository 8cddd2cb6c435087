"""Two dimensions: a row of the group divides the inner dimension, a column rows of the input and columns of the weights.

In each turn a core multiplies what it has, its row sums the partial outputs, and the weights go on to the next row.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import Shape, blocks
from dse.evaluators.kernels.partition.input_only import gathered, spread
from dse.evaluators.kernels.partition.placement import grid, occupied, placed, sides, step
from dse.evaluators.kernels.partition.sums import along_rings
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.rounds import Multiply, Program, Round, Send, Slot
from dse.space.elementwise import Array, ceil_div, maximum, remainder, where

DIVIDED = True


def held(shape: Shape, rings: Any, members: Any) -> tuple[Any, Any, Any]:
    """Values of input, weights and output on one core; the next weights come in beside those in use."""
    m, k = ceil_div(shape.m, rings), ceil_div(shape.k, members)
    return m * k, 2 * k * ceil_div(shape.n, rings), m * shape.n


def moved(shape: Shape, rings: Any, members: Any) -> Any:
    """R x 2 (C - 1) / C x M N / R^2 for the sums, (R - 1) x K N / (C R) for the weights.

    [zhu2025] table 2 prints (R - 1) in front of both, and C^2 in the place of R^2: it counts a turn's sums fewer, and is for
    squares.
    """
    sums = 2 * (members - 1) / members * shape.m * shape.n / rings
    return sums + (rings - 1) * shape.k * shape.n / (members * rings)


def cost(shape: Shape, placement: str, cores: Any, fabric: Fabric, engines: Engines, nbytes: float) -> tuple[Any, Any]:
    """Turns whose product runs beside the allreduce of the one before; weights come first, through the same ramps.

    The first product waits for nothing, its sums for the weights that come beside it. From then on a turn takes its weights and
    sums, or its product; at the end the last product and the sums before it are side by side, then come its own.
    """
    rings, members = grid(placement, cores, divided=True)
    m, k, n = ceil_div(shape.m, rings), ceil_div(shape.k, members), ceil_div(shape.n, rings)
    product = engines.started(m, k, n, nbytes)
    slice_, mean = m * ceil_div(n, members) * nbytes, m * n * nbytes / members
    ragged = {"rest": remainder(n, members), "row": m * nbytes, "halves": 2 * rings}
    sums = 2 * (members - 1) * step(placement, cores, 1, slice_, fabric, divided=True, mean=mean, **ragged)
    if isinstance(rings, float) and rings == 1:
        return product + sums, product
    tile = k * n * nbytes
    weights = step(placement, cores, 0, tile, fabric, divided=True, halves=1)
    behind = (weights if fabric.locked else occupied(placement, cores, 0, tile, fabric, divided=True)) + sums
    first, turn, last = maximum(product, weights), maximum(product, maximum(weights, behind)), maximum(product, sums)
    return where(rings > 1, first + maximum(rings - 2, 0) * turn + last, product) + sums, rings * product


def steps(shape: Shape, placement: str, cores: int, dtype: str = "float32") -> Program:
    """Turns of a product beside a shift of the weights, the allreduce of the row, and the output put in its place."""
    of = placed(placement, cores, divided=True)
    m, k, n = ceil_div(shape.m, of.rings), ceil_div(shape.k, of.members), ceil_div(shape.n, of.rings)
    slots = (
        Slot("a", (m, k), dtype), Slot("w", (k, n), dtype, depth=2), Slot("p", (n, m), dtype, depth=2),
        Slot("c", (n * of.rings, m), dtype),
    )  # fmt: skip
    rounds: list[Round] = []
    for turn in range(of.rings):
        whole = np.zeros(of.row.shape, int), np.full(of.row.shape, k)
        moving = (of.shift("w", 0, *whole),) if turn + 1 < of.rings else ()
        rounds.append(Round((Multiply("a", "w", "p", "mk,kn->nm", combine="set"), *moving)))
        rounds += along_rings(of, "p", n)
        part = (np.indices(of.row.shape)[0] - turn) % of.rings
        keep = Send("p", of.cores, of.cores, np.zeros(of.row.shape, int), np.full(of.row.shape, n), at=part * n, into="c")
        rounds.append(Round((keep,)))
    return Program(*sides(placement, cores), slots, (tuple(rounds),))


def place(a: Array, w: Array, placement: str, cores: int) -> dict[str, Array]:
    """Tiles of the cores, shape (rows, cols, ...): blocks of input by row and depth, of weights by depth and row."""
    of = placed(placement, cores, divided=True)
    inputs = blocks(a, of.rings, of.members)
    weights = blocks(w, of.members, of.rings).swapaxes(0, 1)
    return {name: spread(tiles.reshape(-1, *tiles.shape[2:]), of, placement) for name, tiles in (("a", inputs), ("w", weights))}


def result(tiles: dict[str, Array], placement: str, cores: int, shape: Shape) -> Array:
    """The product: rows of the group have its rows, all members of a row the same."""
    of = placed(placement, cores, divided=True)
    outputs = gathered(tiles["c"], of).reshape(*of.row.shape, *tiles["c"].shape[2:]).swapaxes(2, 3)
    if not np.allclose(outputs, outputs[:, :1], rtol=1e-4, atol=1e-4):
        raise ValueError("members of a row differ in what the allreduce left")
    return outputs[:, 0].reshape(-1, outputs.shape[-1])[: shape.m, : shape.n]
