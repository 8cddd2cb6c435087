"""Ring allreduce in one direction: a reduce-scatter, then an allgather, around the ring."""

import numpy as np

from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.device_links import DeviceGroupLinks, transfer_seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Array, Number


def ports_needed(peers: Number) -> Number:
    """Links that a die needs: two, or none for a single die. [-]"""
    return 2.0 - (peers == 1) * 2.0


def cost(nbytes: Number, links: DeviceGroupLinks) -> KernelCost:
    """Time until every die holds the sum of all vectors [s], and the bytes sent.

    2 (p - 1) rounds, in each of which every link carries one slice of n / p to the next peer:

        t = 2 (p - 1) (latency + n / (p b))

    with the latency charged once where ``links.latency_per`` says so.

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: the ring.

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    Source:
        [thakur2005] ring algorithms for reduce-scatter and allgather, added; latency once: [yuzuguler2025] section 5.

    >>> cost(8e6, DeviceGroupLinks(4, bandwidth=1e9, latency=0.0, latency_per="hop")).seconds
    0.012
    """
    p = links.peers
    rounds = 2 * (p - 1)
    return KernelCost(transfer_seconds(links, rounds, rounds / p * nbytes), Activity(sent_bytes=rounds * nbytes))


def build_program(rows: int, peers: int) -> Program:
    """Program on a ring (a torus of one row); buffer ``x`` has `rows` rows on each core."""
    return Program(1, peers, (Buffer("x", (rows, 1), depth=2),), (ring_rounds(np.arange(peers), 0, rows),), "torus")


def ring_rounds(ring: Array, start: int, stop: int) -> tuple[Round, ...]:
    """Rounds of one strand: rows `start` to `stop` of ``x`` travel along `ring`, one slice per die."""
    p = len(ring)
    bounds = np.linspace(start, stop, p + 1).round().astype(int)
    source, target = CoreIndex(np.zeros(p, int), ring), CoreIndex(np.zeros(p, int), np.roll(ring, -1))
    place = np.arange(p)
    turns = []
    for combine, lag in (("sum", 0), ("set", -1)):
        for turn in range(p - 1):
            part = (place - turn - lag) % p
            turns.append(Round((SendInstruction("x", source, target, bounds[part], bounds[part + 1], combine=combine),)))
    return tuple(turns)
