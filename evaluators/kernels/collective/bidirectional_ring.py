"""Ring allreduce in both directions: each half of the vector travels in one direction."""

import numpy as np

from dse.evaluators.kernels.collective.ring_allreduce import ports_needed, ring_rounds
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.device_links import DeviceGroupLinks, transfer_seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, Program
from dse.space.array_math import Number, maximum

__all__ = ["build_program", "cost", "ports_needed"]


def cost(nbytes: Number, links: DeviceGroupLinks) -> KernelCost:
    """Time [s] and activity of a ring allreduce that uses both directions of every link.

    The halves travel at the same time, so every link carries half of what a one-way ring does:

        t = 2 (p - 1) (latency + n / (2 p b))

    Between nodes, which have one port each, both halves share it, and it takes what a ring in one direction takes:

        t = 2 (p - 1) (latency + max(1, 2 / ports) n / (2 p b))

    For many peers and the latency charged once this tends to latency + n / b, the communication model of
    [yuzuguler2025] section 5.

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: the ring.

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    >>> cost(8e6, DeviceGroupLinks(4, bandwidth=1e9, latency=0.0, latency_per="hop")).seconds
    0.006
    >>> cost(8e6, DeviceGroupLinks(4, 1e9, 0.0, "hop", ports=1)).seconds
    0.012
    """
    p = links.peers
    turns = 2 * (p - 1)
    return KernelCost(
        transfer_seconds(links, turns, turns / (2 * p) * maximum(1.0, 2 / links.ports) * nbytes),
        Activity(sent_bytes=turns * nbytes),
    )


def build_program(rows: int, peers: int) -> Program:
    """Program on a ring (a torus of one row), with one strand per direction."""
    ring = np.arange(peers)
    strands = (ring_rounds(ring, 0, rows // 2), ring_rounds(ring[::-1], rows // 2, rows))
    return Program(1, peers, (Buffer("x", (rows, 1), depth=2),), strands, "torus")
