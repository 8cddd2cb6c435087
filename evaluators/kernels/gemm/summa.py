"""SUMMA: multicasts of chunks of A along rows and of B along columns.

In step p, the column that holds chunk p of A and the row that holds chunk p of B send.

[he2025] section 5.1 (2): a working set of two tiles beside the operands' own doubles the memory; every core needs a path from
each core of its row and column, more than a fabric has, so that each broadcast sets its routes in software, a task of every
core.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, join_blocks, matrix_blocks
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MulticastInstruction, MultiplyInstruction, Program, Round, Tiles
from dse.space.array_math import Array, ceil_div, maximum, where

BARRIER = "line"
"""[he2025] section 7.2: "pipeline broadcast in SUMMA" is not overlapped with computation as MeshGEMM's shifts are."""

MIN_SIDE = 1
"""Cores of a line that it needs."""


def routing_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core: one from every core of its row and of its column. [-]"""
    return int(mesh.rows + mesh.cols)


def concurrent_paths(mesh: CoreMesh) -> int:
    """Routing paths of a core at a time: one per line of cores, set for each chunk. [-]"""
    return 2


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of SUMMA on a mesh of cores.

    Each chunk: a multicast of A, then of B by the core that roots both, to the farthest core, then the product; on one line of
    cores one operand stays where it is:

        t = chunks (product + 2 (launch + post) + words A copy + words B pace + 2 ramp) + hop * sum over chunks of the farthest
        core

    or, where starts are short, as long as one of A and, behind it at a core, one of B take over both ways.

    Args:
        shape, mesh, fabric: leaves broadcast over designs.

    Source:
        [he2025] section 5.1 (2).
    """
    chunks = mesh.chunks * 1.0
    m_, k_, n_ = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, chunks), ceil_div(shape.n, mesh.cols)
    a_words, b_words = link_words(m_ * k_, fabric), link_words(k_ * n_, fabric)
    macs = m_ * k_ * n_
    product = fabric.launch + macs / maximum(m_, n_) * fabric.call + macs * fabric.mac
    across, down = where(mesh.cols > 1, 1.0, 0.0), where(mesh.rows > 1, 1.0, 0.0)
    a_words, b_words, both = a_words * across, b_words * down, across + down
    start = fabric.launch + fabric.post
    sending = maximum(both * start + a_words * fabric.copy + b_words * fabric.pace, start + (a_words + b_words) * fabric.pace)
    sending = where(both > 0, sending + 2 * fabric.ramp, 0.0)
    sending = chunks * sending + _farthest(mesh.rows, mesh.cols) * fabric.hop
    # B comes to a core behind A
    behind = chunks * (start + (a_words + b_words) * fabric.pace + 2 * fabric.ramp) + _around(mesh.rows, mesh.cols) * fabric.hop
    a_bytes, b_bytes = 2.0 * m_ * k_ * chunks * mesh.rows, 2.0 * k_ * n_ * chunks * mesh.cols
    sent = a_bytes * across + b_bytes * down
    hops = a_bytes * (mesh.cols - 1) + b_bytes * (mesh.rows - 1)
    seconds = chunks * product + maximum(sending, where(both > 1, behind, 0.0))
    # what comes to cores crosses a link for each of them
    return KernelCost(seconds, Activity(macs * chunks * mesh.rows * mesh.cols, sent, hops, spread_bytes=hops - sent))


@tabulate
def _farthest(rows: int, cols: int) -> float:
    """Hops to the farthest core from the roots of each chunk, all chunks together."""
    mesh = CoreMesh(rows, cols)
    chunk = np.arange(mesh.chunks)
    col, row = chunk // mesh.per_col, chunk // mesh.per_row
    return float(np.maximum.reduce([col, cols - 1 - col, row, rows - 1 - row]).sum())


@tabulate
def _around(rows: int, cols: int) -> float:
    """Hops along the row of the one root and the column of the other, but for the one that words of A are ahead, likewise."""
    mesh = CoreMesh(rows, cols)
    chunk = np.arange(mesh.chunks)
    col, row = chunk // mesh.per_col, chunk // mesh.per_row
    return float((np.maximum(col, cols - 1 - col) + np.maximum(row, rows - 1 - row) - 1).sum())


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program: a multicast of each chunk, then its product."""
    multiply = MultiplyInstruction("a_in", "b_in", "c", "imk,ikn->imn")
    strand = []
    for chunk in range(mesh.chunks):
        strand += [Round((_along_rows(mesh, chunk), _along_cols(mesh, chunk)), BARRIER), Round((multiply,), BARRIER)]
    return Program(mesh.rows, mesh.cols, buffers(shape, mesh, dtype), (tuple(strand),))


def buffers(shape: GemmShape, mesh: CoreMesh, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a core: both operands, the chunks of them in use, and the product."""
    m, k, n = ceil_div(shape.m, mesh.rows), ceil_div(shape.k, mesh.chunks), ceil_div(shape.n, mesh.cols)
    return (
        Buffer("a", (mesh.per_col, m, k), dtype),
        Buffer("b", (mesh.per_row, k, n), dtype),
        Buffer("a_in", (1, m, k), dtype, depth=2),
        Buffer("b_in", (1, k, n), dtype, depth=2),
        Buffer("c", (1, m, n), "float32"),
    )


def local_product_count(mesh: CoreMesh) -> Any:
    """Products that each core starts: one per chunk. [-]"""
    return mesh.chunks


def scatter_operands(shape: GemmShape, mesh: CoreMesh, a: Array, b: Array) -> Tiles:
    """Operands in the natural layout, with chunks of K stacked."""
    cut_a, cut_b = matrix_blocks(a, mesh.rows, mesh.chunks), matrix_blocks(b, mesh.chunks, mesh.cols)
    return {
        "a": cut_a.reshape(mesh.rows, mesh.cols, mesh.per_col, *cut_a.shape[2:]),
        "b": cut_b.reshape(mesh.rows, mesh.per_row, mesh.cols, *cut_b.shape[2:]).swapaxes(1, 2),
    }


def gather_result(shape: GemmShape, mesh: CoreMesh, tiles: Tiles) -> Array:
    """Product, shape (m, n), from blocks in the natural layout."""
    return join_blocks(tiles["c"][:, :, 0], shape.m, shape.n)


def _along_rows(mesh: CoreMesh, chunk: int) -> MulticastInstruction:
    root, part = divmod(chunk, mesh.per_col)
    others = np.array([root, *(col for col in range(mesh.cols) if col != root)])
    path = CoreIndex(np.arange(mesh.rows)[:, None], others[None, :])
    return MulticastInstruction("a", path, np.asarray(part), np.asarray(part + 1), "a_in", via="core")


def _along_cols(mesh: CoreMesh, chunk: int) -> MulticastInstruction:
    root, part = divmod(chunk, mesh.per_row)
    others = np.array([root, *(row for row in range(mesh.rows) if row != root)])
    path = CoreIndex(others[None, :], np.arange(mesh.cols)[:, None])
    return MulticastInstruction("b", path, np.asarray(part), np.asarray(part + 1), "b_in", via="core")
