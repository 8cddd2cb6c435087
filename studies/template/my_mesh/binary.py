"""GEMV whose partial sums are added up by a binary tree: in round i between cores that are 2^i apart.

The closed form is exact where the cores of a line are a power of two; elsewhere pairs without a partner wait less. Throughout:
side is the cores of a line, words the length of a core's partial sums, and fabric the times of links, routers and cores in
seconds, which broadcast over designs.
"""

from functools import partial as bound
from math import ceil

import numpy as np

from dse.evaluators.kernels.gemv import local_product as partial
from dse.evaluators.kernels.gemv.local_product import buffers, gather_result, scatter_operands
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.program.kernel_ir import Round

__all__ = [
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "gather_result",
    "line_seconds",
    "message_counts",
    "reduction_rounds",
    "root_row",
    "routing_paths",
    "scatter_operands",
    "software_stages",
]


@tabulate
def software_stages(side):
    """Rounds until one core has the sum."""
    return ceil(np.log2(side))


def root_row(mesh):
    """The row of the core that has the sum at the end."""
    return 0


def routing_paths(mesh, phases=2):
    """Routes that a router has to know."""
    return software_stages(mesh.rows) + 1


concurrent_paths = routing_paths


def line_seconds(side, words, fabric, *, broadcast=True, phases=2):
    """Seconds until the sum of a line is there, on all of its cores with `broadcast`."""
    rounds = software_stages(side)
    hops = 2.0**rounds - 1  # 1 + 2 + 4 + ..
    sums = rounds * (2 * fabric.ramp + fabric.stage + words * fabric.pace) + hops * fabric.hop
    return sums + partial.broadcast_seconds(side, 0, words, fabric) if broadcast else sums


@tabulate
def _links(side):
    return sum(end - start for pairs in _pairs(side) for start, end in pairs)


def message_counts(side, *, broadcast=True, phases=2):
    """How often partial sums are sent along a line, and over how many links in all."""
    spread = broadcast * (side > 1)
    return side - 1.0 + spread, _links(side) + spread * (side - 1.0)


def cost(shape, mesh, fabric, *, broadcast=True, phases=2):
    """Time and traffic of the product in closed form."""
    return partial.gemv_cost(
        shape, mesh, fabric, bound(line_seconds, broadcast=broadcast), bound(message_counts, broadcast=broadcast)
    )


def _pairs(side):
    apart = 1
    while apart < side:
        yield [(row, row + apart) for row in range(0, side - apart, 2 * apart)]
        apart *= 2


def reduction_rounds(mesh, length, *, broadcast=True, phases=2, combine="sum"):
    """The rounds as messages between rows, of `length` words each."""
    rounds = list(_pairs(mesh.rows))
    found_rounds = []
    for number, pairs in enumerate(rounds):
        into = "out" if number == len(rounds) - 1 and not broadcast else "y"
        found_rounds.append(
            Round(tuple(partial.column_reduction(mesh, np.array(pair), length, into, combine) for pair in pairs))
        )
    return (*found_rounds, partial.column_broadcast(mesh, 0, length)) if broadcast else tuple(found_rounds)


def build_program(shape, mesh, dtype="float32", *, broadcast=True, phases=2):
    """The program: local products, then the rounds. Whatever plays programs plays this one."""
    return partial.gemv_program(shape, mesh, dtype, reduction_rounds(mesh, ceil(shape.n / mesh.cols), broadcast=broadcast))
