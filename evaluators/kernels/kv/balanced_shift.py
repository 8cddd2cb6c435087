"""KV cache with a balanced upward shift, so that rows differ by one token at most.

A row as full as its neighbour passes its oldest token up.

[he2025] section 4.3 and figure 5 (3, 4): all rows shift at once, between neighbours only; tokens are in the order of rows.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.compute_shift import link_words
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Instruction, Program, Round, SendInstruction
from dse.space.array_math import Array, ceil_div, where


def token_capacity(rows: Any, per_core: Any) -> Any:
    """Tokens that can be generated: those that fit all rows. [-]"""
    return rows * per_core


def tokens_per_row(tokens: int, rows: int) -> list[int]:
    """Generated tokens on each row, oldest at the top; upper rows have one more. [-]

    >>> tokens_per_row(5, 3), tokens_per_row(6, 3)
    ([2, 2, 1], [2, 2, 2])
    """
    return [tokens // rows + (row < tokens % rows) for row in range(rows)]


def fullest_row_tokens(context: Any, generated: Any, rows: Any) -> Any:
    """Tokens of a request on the fullest row; rows differ by one. [-]"""
    return ceil_div(context, rows)


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of one balancing shift of m tokens' keys and values, all rows at once.

    Every row sends its oldest token up one hop:

        t = post + 2 ramp + hop + words pace

    Args:
        shape: m tokens, k wide over the columns.
        mesh, fabric: leaves broadcast over designs.

    Source:
        [he2025] section 4.3.
    """
    values = shape.m * ceil_div(shape.k, mesh.cols)
    moves = where(mesh.rows > 1, 1.0, 0.0)
    seconds = moves * (fabric.post + 2 * fabric.ramp + fabric.hop + link_words(values, fabric) * fabric.pace)
    sent = 2.0 * values * mesh.cols * (mesh.rows - 1)
    return KernelCost(seconds, Activity(sent_bytes=sent, hop_bytes=sent))


def append_program(mesh: CoreMesh, tokens: int, width: int, per_core: int, dtype: str = "float32") -> Program:
    """Program of one new token into a ``cache`` that holds `tokens`, oldest first in every core.

    The row that gains a token gets it from the row below, which gets one from below in turn, down to the last row, which stores
    the new one; a row that passes its oldest on moves the rest down a place.
    """
    slots = (Buffer("cache", (per_core, width), dtype, depth=2), Buffer("new", (1, width), dtype))
    before, gaining = np.array(tokens_per_row(tokens, mesh.rows)), tokens % mesh.rows
    last = mesh.rows - 1 if tokens >= mesh.rows else gaining
    end = before - (np.arange(mesh.rows) > gaining)
    cols = np.arange(mesh.cols)[None, :]

    def make_send(slot: str, source: Array, target: Array, start: int, stop: Array, at: Array) -> SendInstruction:
        pair = CoreIndex(source[:, None], cols), CoreIndex(target[:, None], cols)
        return SendInstruction(slot, *pair, np.asarray(start), stop[:, None], at=at[:, None], into="cache")

    gains, moves = np.arange(gaining, last), np.arange(gaining + 1, last + 1)
    moves = moves[before[moves] > 1]
    stop, bottom = np.ones(len(gains), int), np.array([last])
    sends: list[Instruction] = [make_send("new", np.array([mesh.rows - 1]), bottom, 0, np.array([1]), end[bottom])]
    if len(moves):
        sends.insert(0, make_send("cache", moves, moves, 1, before[moves], np.zeros(len(moves), int)))
    if len(gains):
        sends.append(make_send("cache", gains + 1, gains, 0, stop, end[gains]))
    return Program(mesh.rows, mesh.cols, slots, ((Round(tuple(sends)),),))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program of one token, m x k wide over the columns, where every row holds one already."""
    return append_program(mesh, mesh.rows, shape.m * ceil(shape.k / mesh.cols), 2, dtype)
