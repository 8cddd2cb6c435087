"""GEMM by allgather: every core collects its row of A and its column of B, then multiplies once.

[he2025] section 5.1 (1): chunks are stored and forwarded from neighbour to neighbour, both ways at once, so the critical
path has as many software stages as hops; and every core holds 1 / N of both operands.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm import summa
from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, core_indices, join_blocks
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MultiplyInstruction, Program, Round, SendInstruction, Tiles
from dse.space.array_math import Array, ceil_div, maximum, minimum, where

__all__ = [
    "BARRIER",
    "MIN_SIDE",
    "buffers",
    "build_program",
    "concurrent_paths",
    "gather_result",
    "local_product_count",
    "routing_paths",
    "scatter_operands",
]

BARRIER = "slots"
"""Nothing to overlap: the product starts when everything is there."""

MIN_SIDE = 1
"""Cores of a line that it needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: one from every core of its row and of its column. [-]"""
    return int(mesh.rows + mesh.cols)


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: to and from four neighbours; the other hops are relayed. [-]"""
    return 8


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of a product by allgather, and the analytical model of its program.

    The program has as many rounds as the longer side has hops. In each of them a core forwards in both directions. A product
    follows:

        t = rounds (messages (launch + words pace) + stage + 2 ramp + hop) + product

    with 2.5 messages a round, and 3 at the start, on a square mesh: measured with the event-driven simulator, 2 to 4 being what
    a core has. Where a DMA engine moves words, messages of a round are started while words of others leave: they take their
    starts and the last one's words, or one start and all words.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.

    Source:
        [he2025] section 5.1 (1).
    """
    chunks = mesh.chunks * 1.0
    m_, k_, n_ = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, chunks), ceil_div(shape.n, mesh.cols)
    a_words, b_words = link_words(mesh.per_col * m_ * k_, fabric), link_words(mesh.per_row * k_ * n_, fabric)
    across, down = mesh.cols - 1.0, mesh.rows - 1.0
    each = 2 * fabric.ramp + fabric.hop + fabric.stage
    # cores forward both ways until the nearer end has everything, then one way; where they stand decides how that adds up
    both = minimum(across, down)
    rest = maximum(across, down) - both
    longer = where(across > down, a_words, b_words)

    def time_messages(messages: Any, words: Any, last: Any) -> Any:
        """So many messages of a core, of so many words, the last of them those of one."""
        started = messages * fabric.launch + words * fabric.copy + last * (fabric.pace - fabric.copy)
        return maximum(started, fabric.launch + words * fabric.pace)

    first = maximum(3 * fabric.launch + 1.5 * (a_words + b_words) * fabric.copy, 1.5 * (a_words + b_words) * fabric.pace)
    forwarded = both * time_messages(2.5, 1.25 * (a_words + b_words), b_words) + rest * time_messages(
        1.25, 1.25 * longer, longer
    )
    macs = chunks * m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    seconds = first + forwarded + (both + rest) * each + product
    a_bytes, b_bytes = 2.0 * mesh.per_col * m_ * k_ * mesh.rows, 2.0 * mesh.per_row * k_ * n_ * mesh.cols
    hops = a_bytes * mesh.cols * across + b_bytes * mesh.rows * down
    return KernelCost(seconds, Activity(macs * mesh.rows * mesh.cols, hops, hops))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program: as many rounds as the longer side has hops, then one product."""
    rounds = []
    for hop in range(max(mesh.rows, mesh.cols) - 1):
        sends = [_forward(mesh, slot, hop, way) for slot in ("a", "b") for way in (1, -1)]
        rounds.append(Round(tuple(send for send in sends if send is not None), BARRIER))
    multiply = Round((MultiplyInstruction("a", "b", "c", "lmk,lkn->mn"),), BARRIER)
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), ((*rounds, multiply),))


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: all chunks of both operands, double buffered, and the product."""
    m, k, n = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, mesh.chunks), ceil_div(shape.n, mesh.cols)
    return (
        Buffer("a", (mesh.chunks, m, k), dtype, depth=2),
        Buffer("b", (mesh.chunks, k, n), dtype, depth=2),
        Buffer("c", (m, n), "float32"),
    )


def local_product_count(mesh: CoreMesh) -> int:
    """Products that each core starts: one, after all chunks have arrived. [-]"""
    return 1


def scatter_operands(shape: GemmShape, mesh: CoreMesh, a: Array, b: Array) -> Tiles:
    """Operands in the natural layout, each at its place among the chunks that will arrive."""
    own = summa.scatter_operands(shape, mesh, a, b)
    tiles = {name: np.zeros((mesh.rows, mesh.cols, mesh.chunks, *tile.shape[3:]), tile.dtype) for name, tile in own.items()}
    for col in range(mesh.cols):
        tiles["a"][:, col, col * mesh.per_col : (col + 1) * mesh.per_col] = own["a"][:, col]
    for row in range(mesh.rows):
        tiles["b"][row, :, row * mesh.per_row : (row + 1) * mesh.per_row] = own["b"][row]
    return tiles


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles) -> Array:
    """Product, shape (m, n), from blocks in the natural layout."""
    return join_blocks(tiles["c"], shape.m, shape.n)


def _forward(mesh: CoreMesh, slot: str, hop: int, way: int) -> SendInstruction | None:
    """Every core passes on the chunks that came from `hop` hops away."""
    row, col = core_indices(mesh)
    side, line, width = (mesh.cols, col, mesh.per_col) if slot == "a" else (mesh.rows, row, mesh.per_row)
    line = line.ravel()
    origin, target = line - way * hop, line + way
    able = (origin >= 0) & (origin < side) & (target >= 0) & (target < side)
    if not able.any():
        return None
    origin, source, target = origin[able], line[able], target[able]
    if slot == "a":
        pair = CoreIndex(row, source[None, :]), CoreIndex(row, target[None, :])
        start = origin[None, :] * width
    else:
        pair = CoreIndex(source[:, None], col), CoreIndex(target[:, None], col)
        start = origin[:, None] * width
    return SendInstruction(slot, *pair, start, start + width, via="relay")
