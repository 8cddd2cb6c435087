"""Ring allreduce in both directions at once: each half of the vector goes round its own way."""

import numpy as np

from dse.evaluators.kernels.collective.ring import ports, rounds
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.machine.link import Links, seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Program, Slot
from dse.space.elementwise import Number, maximum

__all__ = ["cost", "ports", "steps"]


def cost(nbytes: Number, links: Links) -> Cost:
    """Time until every peer holds the sum of all vectors, with both directions of every link in use.

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

    >>> cost(8e6, Links(4, bandwidth=1e9, latency=0.0, latency_per="hop")).seconds
    0.006
    >>> cost(8e6, Links(4, 1e9, 0.0, "hop", ports=1)).seconds
    0.012
    """
    p = links.peers
    turns = 2 * (p - 1)
    return Cost(
        seconds(links, turns, turns / (2 * p) * maximum(1.0, 2 / links.ports) * nbytes), Activity(sent_bytes=turns * nbytes)
    )


def steps(rows: int, peers: int) -> Program:
    """The program on a ring, a torus of one row: a strand a direction."""
    ring = np.arange(peers)
    strands = (rounds(ring, 0, rows // 2), rounds(ring[::-1], rows // 2, rows))
    return Program(1, peers, (Slot("x", (rows, 1), depth=2),), strands, "torus")
