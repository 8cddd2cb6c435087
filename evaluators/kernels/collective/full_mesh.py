"""Allreduce of fully connected dies: every die sends every other one a slice, twice."""

import numpy as np

from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.device_links import DeviceGroupLinks, transfer_seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Number, maximum


def ports_needed(peers: Number) -> Number:
    """Links that a die needs: one to every other die. [-]"""
    return peers - 1.0


def cost(nbytes: Number, links: DeviceGroupLinks) -> KernelCost:
    """Time until every die holds the sum of all vectors, with a link per pair [s], and the bytes sent.

    A direct reduce-scatter, then a direct allgather; in each, every link carries one slice:

        t = 2 (latency + n / (p b))

    Where a peer has fewer ports than others to send to, as a node on the network between nodes, its p - 1 slices share them:

        t = 2 (latency + max(1, (p - 1) / ports) n / (p b))

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: one link for each pair of peers, or their ports.

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    Source:
        [chan2007] section 5, direct exchange as the bandwidth-optimal algorithm of a fully connected network.

    >>> cost(8e6, DeviceGroupLinks(4, bandwidth=1e9, latency=0.0, latency_per="hop")).seconds
    0.004
    >>> cost(8e6, DeviceGroupLinks(4, 1e9, 0.0, "hop", ports=1)).seconds  # as much as a ring's
    0.012
    """
    p = links.peers
    return KernelCost(
        transfer_seconds(links, 2.0, 2.0 / p * maximum(1.0, (p - 1) / links.ports) * nbytes),
        Activity(sent_bytes=2 * (p - 1) * nbytes),
    )


def build_program(rows: int, peers: int) -> Program:
    """Program of `peers` cores with a link per pair; buffer ``x`` has `rows` rows on each core."""
    bounds = np.linspace(0, rows, peers + 1).round().astype(int)
    source, target = (grid[~np.eye(peers, dtype=bool)] for grid in np.indices((peers, peers)))
    row = np.zeros(len(source), int)
    pairs = CoreIndex(row, source), CoreIndex(row, target)
    reduce = SendInstruction("x", *pairs, bounds[target], bounds[target + 1], combine="sum")
    gather = SendInstruction("x", *pairs, bounds[source], bounds[source + 1])
    turns = (Round((reduce,)), Round((gather,))) if peers > 1 else ()
    return Program(1, peers, (Buffer("x", (rows, 1), depth=2),), (turns,), "full")
