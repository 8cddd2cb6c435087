"""Compute and shift on a logical ring: what Cannon and MeshGEMM have in common, all but the order of the ring.

Chunks of A travel along the rows and chunks of B along the columns. At step t the core at logical position (i, j) holds the
chunks of A and B with number (i + j + t) mod N and adds their product; `order` says which place on the line is which logical
position. Tiles of one core: slice y * per_col + x is the product of the core's virtual row y and virtual column x; on a
square mesh there is one.
"""

from math import ceil
from typing import Any

import numpy as np

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh, Shape, all_cores, blocks, joined
from evaluators.machine.fabric import Fabric
from evaluators.numeric import Tiles
from evaluators.rounds import Activity, Cores, Loop, Multiply, Program, Round, Send, Slot
from space.elementwise import Array, ceil_div, maximum


def steps(shape: Shape, mesh: Mesh, *, order: Array, wait: str, dtype: str) -> Program:
    """Align, then multiply and shift as often as there are chunks; the last time only multiply.

    With ``wait="slots"`` a shift runs beside the product of the chunks that it takes away; else after it.
    """
    chunks, slices = mesh.chunks, mesh.per_row * mesh.per_col
    m, k, n = (ceil(size / chunks) for size in (shape.m, shape.k, shape.n))
    slots = (
        Slot("a", (slices, m, k), dtype, depth=2),
        Slot("b", (slices, k, n), dtype, depth=2),
        Slot("c", (slices, m, n), "float32"),
    )
    position = np.argsort(order)
    follower = order[(position - 1) % chunks]
    multiply = Multiply("a", "b", "c", "imk,ikn->imn")
    sends = (*_sends("a", mesh, follower, None), *_sends("b", mesh, follower, None))
    body = (Round((multiply, *sends), wait),) if wait == "slots" else (Round((multiply,), wait), Round(sends, wait))
    align = Round((*_sends("a", mesh, order, position), *_sends("b", mesh, order, position)), wait)
    strand = (align, Loop(body, chunks - 1), Round((multiply,), wait))
    return Program(mesh.rows, mesh.cols, slots, (strand,))


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, reach: Any, overlapped: bool, crowd: float, word_bytes: int) -> Cost:
    """Time of the program on a square mesh of N x N cores.

    A shift sends A, then B through the same ramp; the farthest message decides where a line waits for all of its own:

        shift   = 2 launch + words A + words B + 2 ramp + reach hop
        step    = product + shift, or the larger of the two where they overlap
        t       = align + (N - 1) step + product
        align   = 2 launch + 2 ramp + N hop + crowd N words

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        reach: links that the longest message of a shift crosses.
        overlapped: whether a shift runs beside the product.
        crowd: slices through the busiest link of the alignment, over N; measured with the events reader.
        word_bytes: bytes of one value of A and B.
    """
    n = mesh.rows * 1.0
    m_, k_, n_ = ceil_div(shape.m, n), ceil_div(shape.k, n), ceil_div(shape.n, n)
    a_words = ceil_div(m_ * k_ * word_bytes, fabric.word_bytes) * fabric.word
    b_words = ceil_div(k_ * n_ * word_bytes, fabric.word_bytes) * fabric.word
    product = fabric.launch + m_ * k_ * n_ * fabric.mac
    ends = 2 * fabric.launch + 2 * fabric.ramp
    shift = ends + a_words + b_words + reach * fabric.hop
    step = maximum(product, shift) if overlapped else product + shift
    align = ends + n * fabric.hop + crowd * n * maximum(a_words, b_words)
    return Cost(align + (n - 1) * step + product, Activity(macs=m_ * k_ * n_ * n * n * n))


def place(shape: Shape, mesh: Mesh, a: Array, b: Array) -> Tiles:
    """Operands in the natural layout: chunk number = virtual column for A, virtual row for B."""
    return {"a": _tiles(a, mesh), "b": _tiles(b, mesh)}


def result(shape: Shape, mesh: Mesh, tiles: Tiles) -> Array:
    """The product, from the natural layout."""
    rows, cols, _, m, n = tiles["c"].shape
    virtual = tiles["c"].reshape(rows, cols, mesh.per_row, mesh.per_col, m, n)
    return joined(virtual.transpose(0, 2, 1, 3, 4, 5).reshape(mesh.chunks, mesh.chunks, m, n), shape.m, shape.n)


def _tiles(matrix: Array, mesh: Mesh) -> Array:
    cut = blocks(matrix, mesh.chunks, mesh.chunks)
    height, width = cut.shape[2:]
    virtual = cut.reshape(mesh.rows, mesh.per_row, mesh.cols, mesh.per_col, height, width).transpose(0, 2, 1, 3, 4, 5)
    return virtual.reshape(mesh.rows, mesh.cols, mesh.per_row * mesh.per_col, height, width)


def _sends(slot: str, mesh: Mesh, follower: Array, position: Array | None) -> list[Send]:
    """A move of every slice along its line: to the follower on the ring, or (with positions) to where its chunk starts.

    Args:
        slot: ``a`` moves along rows, ``b`` along columns.
        mesh: the cores.
        follower: for a shift, by virtual place, the next one; for the alignment, the order of the ring.
        position: for the alignment, logical positions by virtual place.
    """
    row, col = all_cores(mesh)
    sends = []
    for y in range(mesh.per_row):
        for x in range(mesh.per_col):
            across, down = col * mesh.per_col + x, row * mesh.per_row + y
            along, fixed = (across, down) if slot == "a" else (down, across)
            target = follower[along] if position is None else follower[(along - position[fixed]) % mesh.chunks]
            here = np.asarray(y * mesh.per_col + x)
            if slot == "a":
                there, at = Cores(row, target // mesh.per_col), y * mesh.per_col + target % mesh.per_col
            else:
                there, at = Cores(target // mesh.per_row, col), (target % mesh.per_row) * mesh.per_col + x
            sends.append(Send(slot, Cores(row, col), there, here, here + 1, at=at))
    return sends
