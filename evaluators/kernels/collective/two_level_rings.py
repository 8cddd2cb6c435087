"""Allreduce in two levels of rings on a grid of dies.

Rings run along the rows of the grid, and across them for the slice that each die then holds.

The grid is as square as can be, wide rather than high. Fewer steps than one ring and as many bytes, over links of two rings.
Across nodes the nodes are the rows, and this is what a ring does there (`two_level`).
"""

from dataclasses import replace
from typing import Any

from dse.evaluators.kernels.collective import hierarchical as two_level
from dse.evaluators.kernels.collective import ring_allreduce as ring
from dse.evaluators.kernels.gemm.tiling import near_square
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.device_links import DeviceGroupLinks, transfer_seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import CoreIndex, Program, Round
from dse.space.array_math import Number


def ports_needed(peers: Number) -> Number:
    """Links that a die needs: those of its ring in each level that has one. [-]"""
    rows = _rows(peers)
    return ring.ports_needed(rows) + ring.ports_needed(peers / rows)


def cost(nbytes: Number, links: DeviceGroupLinks) -> KernelCost:
    """Time until every die holds the sum of all vectors [s], and the bytes sent.

    With r rows of c dies, a reduce-scatter and at last an allgather along rows, an allreduce of n / c between them:

        t = 2 (r + c - 2) latency + 2 (p - 1) n / (p b)

    A ring's where p is prime, whose grid is one row.

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: the rings.

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    Source:
        [thakur2005] reduce-scatter and allgather as the halves of an allreduce, of rows and then of columns.

    >>> [round(cost(8e6, DeviceGroupLinks(peers, 1e9, latency=1e-3, latency_per="hop")).seconds, 4) for peers in (7, 8)]
    [0.0257, 0.022]
    """
    p, rows = links.peers, _rows(links.peers)
    steps_ = 2 * (rows + p / rows - 2)
    return KernelCost(transfer_seconds(links, steps_, 2 * (p - 1) / p * nbytes), Activity(sent_bytes=2 * (p - 1) * nbytes))


def build_program(rows: int, peers: int) -> Program:
    """Program of `peers` cores with a link per pair.

    Buffer ``x`` has `rows` rows on each core.
    """
    high, wide = near_square(peers)
    program = two_level.build_program(ring, rows, high, wide)

    def number_cores(at: CoreIndex) -> CoreIndex:
        return CoreIndex(0 * at.row, at.row * wide + at.col)

    def in_line(turn: Any) -> Round:
        return Round(
            tuple(
                replace(send, source=number_cores(send.source), target=number_cores(send.target))
                for send in two_level.list_sends_of_round(turn)
            )
        )

    return Program(1, peers, program.slots, tuple(tuple(map(in_line, strand)) for strand in program.strands), "full")


@tabulate
def _rows(peers: int) -> float:
    return float(near_square(peers)[0])
