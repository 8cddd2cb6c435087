"""Compute and shift on a logical ring: common parts of Cannon and MeshGEMM.

The two differ in the order of the ring.

Chunks of A travel along the rows and chunks of B along the columns. At step t the core at logical position (i, j) holds the
chunks of A and B with number (i + j + t) mod N and adds their product; `order` says which place on the line is which logical
position. Tiles of one core: slice y * per_col + x is the product of the core's virtual row y and virtual column x; on a
square mesh there is one.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, core_indices, join_blocks, matrix_blocks
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    Loop,
    MultiplyInstruction,
    Program,
    Round,
    SendInstruction,
    Tiles,
)
from dse.space.array_math import Array, ceil_div, maximum, minimum, where


def build_program(shape: GemmShape, mesh: CoreMesh, *, order: Array, wait: str, dtype: str, via: str = "router") -> Program:
    """Program: align, then alternate products and shifts, one product per chunk.

    With ``wait="slots"`` a shift runs beside the product of the chunks that it takes away; else after it.
    """
    chunks = mesh.chunks
    position = np.argsort(order)
    follower = order[(position - 1) % chunks]
    multiply = MultiplyInstruction("a", "b", "c", "imk,ikn->imn")
    sends = (*_sends("a", mesh, follower, None, via), *_sends("b", mesh, follower, None, via))
    body = (Round((*sends, multiply), wait),) if wait == "slots" else (Round((multiply,), wait), Round(sends, wait))
    align = Round((*_sends("a", mesh, order, position, via), *_sends("b", mesh, order, position, via)), wait)
    strand = (align, Loop(body, chunks - 1), Round((multiply,), wait))
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), (strand,))


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: both operands, double buffered, and the product; leaves broadcast over designs."""
    slices = mesh.per_row * mesh.per_col
    m, k, n = (ceil_div(size, mesh.chunks) for size in (shape.m, shape.k, shape.n))
    return (
        Buffer("a", (slices, m, k), dtype, depth=2),
        Buffer("b", (slices, k, n), dtype, depth=2),
        Buffer("c", (slices, m, n), "float32"),
    )


def local_product_count(mesh: CoreMesh) -> Any:
    """Products that each core starts: one per chunk. [-]"""
    return mesh.chunks


def cost(
    shape: GemmShape,
    mesh: CoreMesh,
    fabric: MeshFabric,
    *,
    order: Callable[[int], Array],
    reach: Any,
    leave: int,
    overlapped: bool,
    via: str = "router",
) -> KernelCost:
    """Time [s] and activity of compute and shift on a logical ring.

    A shift sends the chunks of A that leave the core, then those of B through the same ramp; the farthest decides where a line
    waits for all of its own. The engine, which posts and copies what is sent unless a DMA engine does, also multiplies:

        product = launch + calls call + macs mac
        sending = messages post + words copy
        shift   = sending, or the words at their pace, + 2 ramp + reach hop
        step    = the larger of (sending + product) and shift where they overlap, else shift + product
        t       = align + (N - 1) step + product
        align   = as a shift, of all chunks, + N hop + (shorter side) / 2 words of the longer chunk

    Half a line's chunks cross its middle link in the alignment of the line whose chunks go farthest.

    With `via` relay each hop of the longest message costs launch + stage + 2 ramp + hop + its words at their pace, after the
    launch and words of those before it. Where routes are locked a request and a grant cross each hop before, and ramps are held
    meanwhile: in the alignment by all chunks of the line that goes half way, which the core in its middle hands on.

    Args:
        shape, mesh, fabric: leaves broadcast over designs; N is the number of chunks.
        order: of the ring, for a number of places.
        reach: links that the longest message of a shift crosses.
        leave: chunks of a line that leave a core at a time, where it has as many.
        overlapped: whether a shift runs beside the product.
        via: carrier of messages, an option of `TRANSPORTS`.
    """
    n, rows, cols = mesh.chunks * 1.0, mesh.per_row, mesh.per_col
    m_, k_, n_ = ceil_div(shape.m, n), ceil_div(shape.k, n), ceil_div(shape.n, n)
    slices = rows * cols
    a_words, b_words = link_words(m_ * k_, fabric), link_words(k_ * n_, fabric)
    # of the virtual places of a core, those at its border leave it
    a_sent, b_sent = rows * minimum(cols, leave), cols * minimum(rows, leave)
    macs = slices * m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    if via == "relay":
        shift = _relayed(mesh, fabric, a_words, b_words, a_sent, b_sent)
        align = maximum(_relayed(mesh, fabric, a_words, b_words, slices, slices), _handed_on(mesh, fabric, a_words, b_words))
        sending: Any = 0.0
    else:
        sending = (a_sent + b_sent) * fabric.post + (a_sent * a_words + b_sent * b_words) * fabric.copy
        paced = fabric.post + (a_sent * a_words + b_sent * b_words) * fabric.pace
        shift = maximum(sending, paced) + 2 * fabric.ramp + reach * fabric.hop
        words = slices * (a_words + b_words)
        align = maximum(2 * slices * fabric.post + words * fabric.copy, fabric.post + words * fabric.pace) + 2 * fabric.ramp
        through = slices * maximum(a_words, b_words) * fabric.word
        align = align + n * fabric.hop + minimum(mesh.rows, mesh.cols) / 2 * through
    step = maximum((1 - fabric.apart) * sending + product, shift) if overlapped else shift + product
    seconds = align + (n - 1) * step + product
    a_bytes, b_bytes = 2.0 * m_ * k_, 2.0 * k_ * n_
    sent, hops = (
        a_bytes * _counted(count, order)(n, cols) + b_bytes * _counted(count, order)(n, rows) for count in ("messages", "links")
    )
    return KernelCost(seconds, Activity(macs * mesh.rows * mesh.cols * n, sent, hops))


@lru_cache(maxsize=64)
def _counted(count: str, order: Callable[[int], Array]) -> Callable[..., Any]:
    return tabulate(partial(_along, count, order))


def _along(count: str, order: Callable[[int], Array], chunks: int, per_core: int) -> float:
    """Messages of an operand, or the links that they cross: its alignment, then its shifts, all lines together."""
    ring = order(chunks)
    position = np.argsort(ring)
    place = np.arange(chunks)
    follower = ring[(position - 1) % chunks]
    shift = np.abs(follower // per_core - place // per_core)
    aligned = ring[(place[:, None] - position[None, :]) % chunks]
    align = np.abs(aligned // per_core - place[:, None] // per_core)
    if count == "messages":
        shift, align = shift > 0, align > 0
    return float(align.sum() + (chunks - 1) * chunks * shift.sum())


def _relayed(mesh: CoreMesh, fabric: MeshFabric, a_words: Any, b_words: Any, a_sent: Any, b_sent: Any) -> Any:
    """Chunks of A, then of B through the same ramp; the last of each is handled by all cores of its line.

    A core starts a chunk while words of the one before leave, but for what its engine moves. Where routes are locked a chunk of
    A meets one of B on its way, as that of B does, which comes after A, behind its ramp.
    """
    handshake = _handshake(fabric)

    def time_start(a_chunks: Any, b_chunks: Any) -> Any:
        """Until a core has started some chunks and they have left."""
        count, words = a_chunks + b_chunks, a_chunks * a_words + b_chunks * b_words
        return maximum(count * fabric.launch + words * fabric.copy, words * fabric.pace + count * handshake)

    launch = fabric.launch + fabric.stage + 2 * fabric.ramp + fabric.hop + handshake * (2 / 3)
    met = where(handshake > 0, fabric.launch + b_words * fabric.pace + handshake, 0.0)
    a_way = time_start(a_sent - 1, 0) + (mesh.cols - 1) * (launch + a_words * fabric.pace) + met
    b_way = time_start(a_sent, b_sent - 1) + (mesh.rows - 1) * (launch + b_words * fabric.pace)
    return maximum(a_way, b_way)


def _handed_on(mesh: CoreMesh, fabric: MeshFabric, a_words: Any, b_words: Any) -> Any:
    """Locked chunks of a row and of a column that go half way, through the core in the middle, and how the first came there."""
    handshake, others = _handshake(fabric), mesh.chunks - 1  # but one that ends there
    a_time, b_time = (fabric.launch + words * fabric.pace + handshake for words in (a_words, b_words))
    through = others * (mesh.per_row * a_time + mesh.per_col * b_time)
    return where(handshake > 0, through + maximum((mesh.cols - 2) * a_time, (mesh.rows - 2) * b_time) / 2, 0.0)


def _handshake(fabric: MeshFabric) -> Any:
    """Time for which a locked channel between neighbours is held besides its words; 0 without locks. [s]"""
    return where(fabric.locked > 0, 3 * (2 * fabric.ramp + fabric.hop), 0.0)


def link_words(values: Any, fabric: MeshFabric) -> Any:
    """Words of a link that hold a number of 16-bit values. [-]"""
    return ceil_div(values * 2, fabric.word_bytes)


def scatter_operands(shape: GemmShape, mesh: CoreMesh, a: Array, b: Array) -> Tiles:
    """Operands in the natural layout: chunk number = virtual column for A, virtual row for B."""
    return {"a": _tiles(a, mesh), "b": _tiles(b, mesh)}


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles) -> Array:
    """Product, shape (m, n), from blocks in the natural layout."""
    rows, cols, _, m, n = tiles["c"].shape
    virtual = tiles["c"].reshape(rows, cols, mesh.per_row, mesh.per_col, m, n)
    return join_blocks(virtual.transpose(0, 2, 1, 3, 4, 5).reshape(mesh.chunks, mesh.chunks, m, n), shape.m, shape.n)


def _tiles(matrix: Array, mesh: CoreMesh) -> Array:
    cut = matrix_blocks(matrix, mesh.chunks, mesh.chunks)
    height, width = cut.shape[2:]
    virtual = cut.reshape(mesh.rows, mesh.per_row, mesh.cols, mesh.per_col, height, width).transpose(0, 2, 1, 3, 4, 5)
    return virtual.reshape(mesh.rows, mesh.cols, mesh.per_row * mesh.per_col, height, width)


def _sends(slot: str, mesh: CoreMesh, follower: Array, position: Array | None, via: str) -> list[SendInstruction]:
    """A move of every slice along its line: to the follower on the ring, or (with positions) to where its chunk starts.

    Args:
        slot: ``a`` moves along rows, ``b`` along columns.
        mesh: the cores.
        follower: for a shift, by virtual place, the next one; for the alignment, the order of the ring.
        position: for the alignment, logical positions by virtual place.
        via: carrier of messages, an option of `TRANSPORTS`.
    """
    row, col = core_indices(mesh)
    sends = []
    for y in range(mesh.per_row):
        for x in range(mesh.per_col):
            across, down = col * mesh.per_col + x, row * mesh.per_row + y
            along, fixed = (across, down) if slot == "a" else (down, across)
            target = follower[along] if position is None else follower[(along - position[fixed]) % mesh.chunks]
            block = np.asarray(y * mesh.per_col + x)
            if slot == "a":
                other_target, at = CoreIndex(row, target // mesh.per_col), y * mesh.per_col + target % mesh.per_col
            else:
                other_target, at = CoreIndex(target // mesh.per_row, col), (target % mesh.per_row) * mesh.per_col + x
            sends.append(SendInstruction(slot, CoreIndex(row, col), other_target, block, block + 1, at=at, via=via))
    return sends
