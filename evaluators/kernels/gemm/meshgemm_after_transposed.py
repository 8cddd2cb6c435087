"""Product C = A B where A lies as `meshgemm_t` leaves it.

Each block of A goes along its row to meet the block of B that passes.

What attention does with its scores: A's chunks of K stay with the columns that own them, and no alignment is needed; in each
of N steps B shifts by one place of the ring in its column, each row multicasts the block of A that belongs to the block of B
which is there, and every core adds the product for its own columns of C. `gemm` says how B moves.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm import column_ring as column
from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, join_blocks, matrix_blocks
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MulticastInstruction, MultiplyInstruction, Program, Round, Tiles
from dse.space.array_math import Array, ceil_div, maximum, where

BARRIER = "slots"

MIN_SIDE = 3
"""Cores of a line that INTERLEAVE needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: the interleaved ring in its column, one from every core of its row. [-]"""
    return 3 + int(mesh.cols)


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: the ring, and one multicast with a new route for each owner. [-]"""
    return 3 + 1


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, gemm: str = "meshgemm") -> KernelCost:
    """Time [s] and activity of a product of the blocks that `meshgemm_t` leaves.

    A block's owner multicasts it after setting its route, a task, before it sends B on and multiplies. It may as soon as it is
    through with the product before the last one, and members with the one before that. So a step is as long as the slowest of:
    the engine; B on its way; a multicast every other step; one behind the product of an owner, every fourth; and B behind a
    multicast, every third:

        own   = launch + post + A copy
        way   = A pace + 2 ramp + (columns - 1) hop
        send  = post + B copy
        step  = max(product + send, shift, (product + launch + post + way) / 2, (2 product + own + send + way) / 4,
                    (A pace + shift - post + product) / 3)
        t     = first multicast + (N - 1) step + product, or what the last owner takes longer

    The owner of several blocks that follow one another on the ring takes product + send + own for each but the first. Where B
    does not move beside the product, t = N (product + its shift + multicast).

    Args:
        shape, mesh, fabric: leaves broadcast over designs.
        gemm: the algorithm whose way B moves.
    """
    rows = mesh.rows * 1.0
    m_, k_, n_ = ceil_div(shape.m, rows), ceil_div(shape.k, rows), ceil_div(shape.n, mesh.cols)
    macs = m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    a_words, b_words = link_words(m_ * k_, fabric), link_words(k_ * n_, fabric)
    arm = mesh.cols - 1.0
    spread = where(arm > 0, fabric.launch + fabric.post + a_words * fabric.pace + 2 * fabric.ramp + arm * fabric.hop, 0.0)
    way = column.column_shift(gemm, rows, b_words, k_ * n_, fabric)
    if way.overlapped:
        engine, has_arm = (1 - fabric.apart) * way.engine, where(arm > 0, 1.0, 0.0)
        begins = has_arm * (fabric.launch + fabric.post)
        owner = begins + has_arm * (1 - fabric.apart) * a_words * fabric.copy
        travel = has_arm * (a_words * fabric.pace + 2 * fabric.ramp + arm * fabric.hop)
        arrival, late = (product + begins + travel) / 2, (2 * product + owner + engine + travel) / 4
        sent = (has_arm * a_words * fabric.pace + way.shift - fabric.post + product) / 3
        step = maximum(maximum(product + engine, way.shift), maximum(maximum(arrival, late), sent))
        # a core that owns several blocks of the ring in turn holds up its row
        again, least = _again(mesh.rows, ceil_div(mesh.rows, mesh.cols)), maximum(product + engine, way.shift)
        longer = product + engine + owner
        held = maximum(again * longer + (1 - again) * least - step, again * (longer + least - 2 * step))
        step = step + maximum(held, 0.0)
        last = maximum(2 * product + owner + engine - 2 * step, 0.0)
        seconds = spread + (rows - 1) * step + product + last
    else:
        seconds = rows * (product + spread) + (rows - column.free_shifts(gemm)) * way.shift
    messages, links = column.column_messages(gemm, rows)
    a_bytes, b_bytes = 2.0 * m_ * k_ * rows * rows * where(arm > 0, 1.0, 0.0), 2.0 * k_ * n_ * mesh.cols
    sent, hops = b_bytes * messages + a_bytes, b_bytes * links + a_bytes * arm
    activity = Activity(macs * rows * rows * mesh.cols, sent, hops, spread_bytes=a_bytes * (arm - 1))
    return KernelCost(seconds, activity)


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, gemm: str = "meshgemm") -> Program:
    """Program: a product overlaps the movement of the blocks of A and B that the next one needs."""
    ring = column.ring_order(gemm, mesh.rows)
    position = np.argsort(ring)
    multiply = MultiplyInstruction("a_in", "b", "c", "imk,ikn->mn")
    wait = "slots" if gemm == "meshgemm" else "mesh"
    spreads = tuple(_spread(mesh, column.block_of_row(gemm, ring, position, step)) for step in range(mesh.rows))
    overlapped = gemm == "meshgemm"
    rounds = [Round(spreads[:1], wait)] if overlapped else []
    for step in range(mesh.rows):
        before, beside, after = column.shift_messages(gemm, mesh, step, position, ring)
        if overlapped:
            rounds.append(Round((*spreads[step + 1 : step + 2], *beside, multiply), wait))
        else:
            rounds += [Round((spreads[step], *before), wait), Round((multiply,), wait)]
            rounds += [Round((send,), wait) for send in after]
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), (tuple(rounds),))


def scatter_operands(shape: GemmShape, mesh: CoreMesh, a: Array, b: Array) -> Tiles:
    """A as the blocks of `meshgemm_t`'s product, B in the natural layout."""
    column_of, place_of = column.block_owners(mesh)
    cut = matrix_blocks(a, mesh.rows, mesh.rows)
    tiles = np.zeros((mesh.rows, mesh.cols, ceil_div(mesh.rows, mesh.cols), *cut.shape[2:]), a.dtype)
    tiles[:, column_of, place_of] = cut
    tile = matrix_blocks(b, mesh.rows, mesh.cols)[:, :, None]
    return {"a": tiles, "b": tile, "own": tile}


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles) -> Array:
    """Product, shape (m, n), from blocks in the natural layout."""
    return join_blocks(tiles["c"], shape.m, shape.n)


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: both operands, the block of A in use, and the product."""
    m, k, n = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, mesh.rows), ceil_div(shape.n, mesh.cols)
    return (
        Buffer("a", (ceil_div(mesh.rows, mesh.cols), m, k), dtype),
        Buffer("a_in", (1, m, k), dtype, depth=2),
        Buffer("b", (1, k, n), dtype, depth=2),
        Buffer("c", (m, n), "float32"),
        Buffer("own", (1, k, n), dtype),
    )


def local_product_count(mesh: CoreMesh) -> Any:
    """Products that each core starts: one per block of A. [-]"""
    return mesh.rows


def _spread(mesh: CoreMesh, held: Array) -> MulticastInstruction:
    """Each row gets the block of A that belongs to the block of B which it holds."""
    column_of, place_of = column.block_owners(mesh)
    roots = column_of[held]
    start = place_of[held]
    return MulticastInstruction(
        "a", CoreIndex(np.arange(mesh.rows)[:, None], column.members(mesh, roots)), start, start + 1, "a_in", via="core"
    )


@tabulate
def _again(rows: int, per: int) -> float:
    """Share of the steps round the ring whose block has the owner of the block before it, where each owns so many."""
    owner = column.ring_order("meshgemm", rows) // per
    return float((owner == np.roll(owner, 1)).mean()) if per < rows else 0.0
