"""Product C = A B^T without a transpose.

Blocks of B travel along the columns; partial products are added along the rows.

[he2025] section 5.4: no alignment; in each of N steps B shifts by one place of the interleaved ring, every core multiplies its
tiles over its own chunk of K, and each row adds these up at the core that owns that block of C. B comes as [n, k].

Attention scores are made this way whatever the GEMM algorithm is; `gemm` says how B moves.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm import column_ring as column
from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, join_blocks, matrix_blocks
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    Tiles,
)
from dse.space.array_math import Array, ceil_div, maximum, minimum, where

TRANSPOSED = True
"""B is given as [n, k]."""

BARRIER = "slots"

MIN_SIDE = 3
"""Cores of a line that INTERLEAVE needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: the ring in its column, and the sums of its row between neighbours. [-]"""
    return 3 + 1


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, gemm: str = "meshgemm") -> KernelCost:
    """Time [s] and activity of a product with a transposed second operand.

    The next product overwrites sums that have left, which its partial sums are one version of; B is sent on through the ramp
    that sums leave by. So a step is as long as the slowest of: the engine, which multiplies, and sends B on while sums leave;
    B on its way; and the ramp, of which B has one use and sums the other in turn:

        product = launch + calls call + macs mac
        send    = post + B copy
        shift   = post + B pace + 2 ramp + 2 hop
        link    = 2 ramp + hop + stage
        sums    = words pace, or 2 words word less the links by which one of an owner's sides is longer than the other one
        step    = max(product + max(send, sums), shift, (shift - post + send + product + sums) / 2)
        t       = send + (N - 2) step + max(product + sums, step - send) + product
                  + max(2 ((owners - 4) link - idle), (owners - 3) link - idle, 0)
                  + max((columns - 1) link + words pace, inner link + 2 words word)

    Nothing is sent on beside the last product. The core that owns a block moves along the row and back; sums that pass from
    member to member follow it, later by its links each way, but for the few at which it turns, and for what a step leaves
    idle beside a product and its sums. The last sum ends it: of an owner at an end, or of the one farthest from both ends.

    Where B does not move beside the product, t = N (product + its shift) + sum.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        gemm: the algorithm whose way B moves.

    Source:
        [he2025] section 5.4.
    """
    rows = mesh.rows * 1.0
    m_, k_, n_ = ceil_div(shape.m, rows), ceil_div(shape.k, mesh.cols), ceil_div(shape.n, rows)
    macs = m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    b_words = link_words(n_ * k_, fabric)
    c_words = ceil_div(m_ * n_ * 4, fabric.word_bytes)
    arm, sums = mesh.cols - 1.0, c_words * fabric.pace
    link = 2 * fabric.ramp + fabric.hop + fabric.stage
    owners = ceil_div(rows, ceil_div(rows, mesh.cols))
    both = _sums_of_step(sums, c_words * fabric.word, link, owners, mesh.cols * 1.0)
    inner = minimum(owners - 1, np.floor(arm / 2))
    along = where(arm > 0, maximum(arm * link + sums, where(inner > 0, inner * link + 2 * c_words * fabric.word, 0.0)), 0.0)
    way = column.column_shift(gemm, rows, b_words, n_ * k_, fabric)
    if way.overlapped:
        moved, engine = where(arm > 0, both, 0.0), (1 - fabric.apart) * way.engine
        late = (way.shift - fabric.post + engine + product + moved) / 2
        step = maximum(product + maximum(engine, moved), maximum(way.shift, late))
        idle = step - product - moved
        waited = maximum(maximum(2 * ((owners - 4) * link - idle), (owners - 3) * link - idle), 0.0)
        last = maximum(product + moved, step - engine) + product
        seconds = engine + (rows - 2) * step + last + waited + along
    else:
        seconds = rows * (product + along) + (rows - column.free_shifts(gemm)) * way.shift
    messages, links = column.column_messages(gemm, rows)
    b_bytes, c_bytes = 2.0 * n_ * k_ * mesh.cols, 4.0 * m_ * n_ * rows * rows * arm
    activity = Activity(macs * rows * rows * mesh.cols, b_bytes * messages + c_bytes, b_bytes * links + c_bytes)
    return KernelCost(seconds, activity)


def _sums_of_step(alone: Any, word: Any, link: Any, owners: Any, cols: Any) -> Any:
    """Mean time of the sums of a step, over the owners of blocks, which the first columns are. [s]

    Words of both sides share the owner's way in, from when those of the longer side are there, too. At the ends of a row there
    is one side.

    Args:
        alone: time of the words of one side. [s]
        word: time for which they take a way in. [s]
        link: from member to member. [s]
        owners, cols: columns that own blocks, and all.
    """
    most = maximum(2 * word - alone, 0.0)  # that the other side costs at most
    sums = maximum(link, 1e-30)
    left = minimum(owners, ceil_div(cols, 2))

    def sum_spared_seconds(count: Any, least: Any) -> Any:
        """Sum over owners whose sides differ by `least` links, and by two more each."""
        short = minimum(maximum(np.ceil((most / sums - least) / 2), 0.0), count)
        return (short * least + short * (short - 1)) * link + (count - short) * most

    ends = where(owners == cols, 2.0, 1.0)
    right = owners - left
    inner = sum_spared_seconds(left - 1, cols + 1 - 2 * left) + sum_spared_seconds(
        maximum(right - (ends - 1), 0.0), 2 * left - cols + 1
    )
    return where(cols > 2, alone + most - (inner + ends * most) / owners, alone)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, gemm: str = "meshgemm") -> Program:
    """Program: product of the present block, then its sum along the row, while the next block comes."""
    ring = column.ring_order(gemm, mesh.rows)
    position = np.argsort(ring)
    source = CoreIndex(np.arange(mesh.rows)[:, None], np.arange(mesh.cols)[None, :])
    multiply = MultiplyInstruction("a", "b", "p", "mk,ink->imn")
    clear = SendInstruction("zero", source, source, np.asarray(0), np.asarray(1), into="p")
    wait = "slots" if gemm == "meshgemm" else "mesh"
    rounds = []
    for step in range(mesh.rows):
        before, beside, after = column.shift_messages(gemm, mesh, step, position, ring)
        rounds.append(Round((clear, *before), wait))
        rounds.append(Round((*beside, multiply), wait))
        rounds.append(Round((_sum(mesh, column.block_of_row(gemm, ring, position, step)),), wait))
        rounds += [Round((send,), wait) for send in after]
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), (tuple(rounds),))


def scatter_operands(shape: GemmShape, mesh: CoreMesh, a: Array, b: Array) -> Tiles:
    """A and B in the natural layout: rows over rows, K over columns."""
    tile = matrix_blocks(b, mesh.rows, mesh.cols)[:, :, None]
    return {"a": matrix_blocks(a, mesh.rows, mesh.cols), "b": tile, "own": tile}


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles) -> Array:
    """Product, shape (m, n); the blocks of a row of cores lie along that row."""
    rows, cols, per, m, n = tiles["c"].shape
    return join_blocks(tiles["c"].reshape(rows, cols * per, m, n)[:, :rows], shape.m, shape.n)


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: A, B double buffered, partial sums and the product."""
    m, k, n = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, mesh.cols), ceil_div(shape.n, mesh.rows)
    return (
        Buffer("a", (m, k), dtype),
        Buffer("b", (1, n, k), dtype, depth=2),
        Buffer("p", (1, m, n), "float32", depth=2),
        Buffer("zero", (1, m, n), "float32"),
        Buffer("c", (ceil_div(mesh.rows, mesh.cols), m, n), "float32"),
        Buffer("own", (1, n, k), dtype),
    )


def local_product_count(mesh: CoreMesh) -> Any:
    """Products that each core starts: one per block of B. [-]"""
    return mesh.rows


def _sum(mesh: CoreMesh, held: Array) -> ReduceInstruction:
    """Each row adds up the block of C that it works on, at the column that owns it."""
    column_of, place_of = column.block_owners(mesh)
    roots = column_of[held]
    path = CoreIndex(np.arange(mesh.rows)[:, None], column.members(mesh, roots))
    return ReduceInstruction("p", path, np.asarray(0), np.asarray(1), "c", at=place_of[held])
