"""Allreduce along a tree of dies: vectors are added level by level at one die, and the sum returns."""

import numpy as np

from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.device_links import DeviceGroupLinks, transfer_seconds
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Number, where


def ports_needed(peers: Number) -> Number:
    """Links of the root die: one per level of the tree. [-]"""
    levels: Number = _levels(peers)
    return levels


def cost(nbytes: Number, links: DeviceGroupLinks) -> KernelCost:
    """Time until every die holds the sum of all vectors [s], and the bytes sent.

    The die of number i sends to that whose number has the lowest one of i cleared, so that it is as many messages from the root
    as i has ones. A die that waits for nobody sends at once, over a link of its own, and so the way to the furthest die counts,
    floor(log2 p) messages up and as many down, not the ceil(log2 p) levels, of which the last is short:

        t = 2 floor(log2 p) (latency + n / b)

    Between nodes, with one port each, the root's takes a vector of each level one after the other, at most

        t = 2 (floor(log2 p) latency + ceil(log2 p) n / b)

    Fewer steps than a ring and more bytes a link: for short vectors where each step has its latency.

    Args:
        nbytes: vector on each peer. [B], broadcasts over designs
        links: one for each pair of dies that are a power of two apart and exchange. Two ports serve as well as many: what comes
            from whole subtrees comes one after the other, and of a die's subtrees one alone can be less than whole.

    Returns:
        Seconds, exactly 0 for one peer, and the bytes that all links carry.

    Source:
        [thakur2005] binomial trees of reductions and broadcasts, one after the other.

    >>> cost(8e6, DeviceGroupLinks(4, bandwidth=1e9, latency=0.0, latency_per="hop")).seconds
    0.032
    >>> [round(cost(8e6, DeviceGroupLinks(5, 1e9, 1e-3, "hop", ports=ports)).seconds, 6) for ports in (1, 2)]
    [0.052, 0.036]
    """
    turns, levels = 2 * _furthest(links.peers), 2 * _levels(links.peers)
    return KernelCost(
        transfer_seconds(links, turns, where(links.ports < 2, levels, turns) * nbytes),
        Activity(sent_bytes=2 * (links.peers - 1) * nbytes),
    )


def build_program(rows: int, peers: int) -> Program:
    """Program of `peers` cores with a link per pair.

    Buffer ``x`` has `rows` rows on each core.
    """
    die = np.arange(peers)
    up = []
    for apart in (1 << level for level in range(int(_levels(peers)))):
        senders = die[die % (2 * apart) == apart]
        up.append((senders, senders - apart))
    turns = [_turn(*pair, rows, "sum") for pair in up]
    turns += [_turn(to, at, rows, "set") for at, to in reversed(up)]
    return Program(1, peers, (Buffer("x", (rows, 1), depth=2),), (tuple(turns),), "full")


def _turn(source: np.ndarray, target: np.ndarray, rows: int, combine: str) -> Round:
    row, all_ = np.zeros(len(source), int), np.full(len(source), rows)
    return Round((SendInstruction("x", CoreIndex(row, source), CoreIndex(row, target), 0 * all_, all_, combine=combine),))


@tabulate
def _levels(peers: int) -> float:
    return float((peers - 1).bit_length())


@tabulate
def _furthest(peers: int) -> float:
    """The most ones of any number below `peers`."""
    return float(peers.bit_length() - 1)
