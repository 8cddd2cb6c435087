"""Library collectives between dies of a node that reach each other through switches.

A die has all of its links, N bytes a second in one direction, whoever it sends to. Rings have p - 1 steps, allreduces twice as
many, in which a die sends V = (p - 1) / p n bytes, or twice that, by the fastest of three protocols:

    t = start + step S + min(V / (low N), middle_start + V / (middle N), bulk_start + V / (bulk N)) + copy

where what a die has for itself is copied, 2 n / p bytes of its memory, except in allreduces, which work in place. More than
four dies may have sums from the switch: t = start + n (1 + 1 / p) / (share N). Dies that read each other's memory do it at
once, or each a slice:

    t = start + peer p (1 - e^(-n / reach)) + min((p - 1) n / (one N), second + 2 (p - 1) / p n / (two N))

or as rings do, if that is faster. Exchanges with experts are a start and what a die sends, at a share of its links.

Exchanges of each with all are pairs that send and receive. Up to 16 KiB a pair its words carry their flags, through one lane
each; above, chunks go through buffers by as many lanes as there are bytes for, so that nothing is gained by few of them:

    t = start + copy + l,   s = n / p,   V = (p - 1) s,   l = s / lane up to 16 KiB, but no less, and above
    l = min((buffered^2 + (V / (low N))^2)^(1/2), bulk_start + V / (bulk N))
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.library.kernel_time import smooth_maximum
from dse.space.array_math import maximum, minimum, where
from dse.space.libraries.moe_all_to_all import MoeAllToAllConstants
from dse.space.libraries.node_collectives import AllToAll, OneShotAllreduce, RingCollectives

BUFFER_BYTES = 16 * 1024.0
"""Bytes for each peer above which exchanges go through buffers: `NCCL_P2P_LL_THRESHOLD` of NCCL. [B]"""

MIN_SWITCH_DIES = 4
"""Dies beyond which switches may sum."""


class NodeGroup(NamedTuple):
    """Dies of a node that take part in a collective; leaves broadcast over designs.

    Attributes:
        peers: how many.
        links: of all links of one, in one direction. [B/s]
        memory: bandwidth of its main memory. [B/s]
    """

    peers: Any
    links: Any
    memory: Any


def ring_seconds(pattern: str, nbytes: Any, group: NodeGroup, constants: RingCollectives) -> Any:
    """Time of an allreduce, allgather or reduce-scatter; 0 for one die. [s]

    Args:
        pattern: allreduce, allgather or reduce_scatter.
        nbytes: of the vector that is reduced, or of all slices together. [B]
        group: dies that take part.
        constants: fitted constants of the library.

    Source:
        [thakur2005] ring all-gather and reduce-scatter.

    >>> flat = RingCollectives(start=0.0, step=0.0, low=1.0, middle_start=0.0, middle=1.0, bulk_start=0.0, bulk=1.0)
    >>> (
    ...     ring_seconds("allreduce", 8e6, NodeGroup(4, 1e9, 1e12), flat),
    ...     ring_seconds("allgather", 8e6, NodeGroup(1, 1e9, 1e12), flat),
    ... )
    (0.012, 0.0)
    """
    p, c = group.peers, constants
    turns = 2.0 if pattern == "allreduce" else 1.0
    sent, link = turns * (p - 1) / p * nbytes, group.links
    moved = minimum(sent / (c.low * link), c.middle_start + sent / (c.middle * link))
    moved = minimum(moved, c.bulk_start + sent / (c.bulk * link))
    copied = 0.0 if pattern == "allreduce" else 2.0 * nbytes / p / group.memory
    seconds = c.start + c.step * turns * (p - 1) + moved + copied
    if c.switched is not None and pattern == "allreduce":
        summed = c.switched.start + nbytes * (1 + 1 / p) / (c.switched.share * link)
        seconds = where(p > MIN_SWITCH_DIES, minimum(seconds, summed), seconds)
    return where(p > 1, seconds, 0.0)


def all_to_all_seconds(nbytes: Any, group: NodeGroup, constants: AllToAll) -> Any:
    """Time until each die has its part from every other die; 0 for one die. [s]

    Args:
        nbytes: that a die has for all, itself included. [B]
        group: dies that take part.
        constants: fitted constants of the library.

    >>> flat = AllToAll(start=1e-6, lane=1e9, buffered=0.0, low=1.0, bulk_start=0.0, bulk=1.0)
    >>> all_to_all_seconds(8e6, NodeGroup(4, 1e9, 1e12), flat), all_to_all_seconds(4e3, NodeGroup(4, 1e9, 1e12), flat)
    (0.006005, 2.002e-06)
    """
    p, c = group.peers, constants
    each, sent, link = nbytes / p, (p - 1) / p * nbytes, group.links
    chunks = minimum(smooth_maximum(c.buffered, sent / (c.low * link), 2.0), c.bulk_start + sent / (c.bulk * link))
    moved = maximum(minimum(each, BUFFER_BYTES) / c.lane, where(each > BUFFER_BYTES, chunks, 0.0))
    return where(p > 1, c.start + moved + 2.0 * each / group.memory, 0.0)


def token_bytes(pattern: str, hidden: Any) -> Any:
    """Bytes of a token copy: dispatch in 8 bits with 4 bytes of scale per 128 values, combine in 16. [B]

    >>> token_bytes("dispatch", 7168), token_bytes("combine", 7168)
    (7392.0, 14336.0)
    """
    return hidden * (1 + 4 / 128) if pattern == "dispatch" else 2.0 * hidden


def dispatch_start_seconds(pattern: str, each: Any, constants: MoeAllToAllConstants) -> Any:
    """Start time of a dispatch or combine, with one token through the core that sends it. [s]

    Args:
        pattern: dispatch or combine.
        each: of a copy of a token. [B]
        constants: fitted constants of the library.

    >>> slow = MoeAllToAllConstants(
    ...     dispatch_start=1.0, dispatch=1.0, combine_start=2.0, combine=1.0, cores=20, dispatch_token=1e3
    ... )
    >>> dispatch_start_seconds("dispatch", 4e3, slow), dispatch_start_seconds("combine", 4e3, slow)
    (5.0, 2.0)
    """
    start, rate = (getattr(constants, f"{pattern}_{leaf}") for leaf in ("start", "token"))
    return start if rate is None else start + each / rate


def expert_exchange_seconds(pattern: str, nbytes: Any, each: Any, group: NodeGroup, constants: MoeAllToAllConstants) -> Any:
    """Time until each die has the tokens of its experts, or its own results; 0 for one die. [s]

        t = start + token / through + (p - 1) / p n / min(share N, cores core)

    with `through` and `core`, of one core that sends, only where they are said: a token is read, converted and sent by one.

    Args:
        pattern: dispatch or combine.
        nbytes: that a die has for all experts, those on itself included, all of which have as many. [B]
        each: of a copy of a token. [B]
        group: dies that take part.
        constants: fitted constants of the library.

    >>> flat = MoeAllToAllConstants(dispatch_start=1e-6, dispatch=1.0, combine_start=2e-6, combine=0.5, cores=20)
    >>> [expert_exchange_seconds(pattern, 8e6, 4e3, NodeGroup(4, 1e9, 1e12), flat) for pattern in ("dispatch", "combine")]
    [0.006001, 0.012002]
    """
    share, core = (getattr(constants, f"{pattern}{leaf}") for leaf in ("", "_core"))
    p, rate = group.peers, share * group.links
    if core is not None:
        rate = minimum(rate, constants.cores * core)
    return where(p > 1, dispatch_start_seconds(pattern, each, constants) + (p - 1) / p * nbytes / rate, 0.0)


def one_shot_seconds(nbytes: Any, group: NodeGroup, constants: OneShotAllreduce, otherwise: Any, *, recorded: bool) -> Any:
    """Time of an inference engine's one-shot allreduce; 0 for one die. [s]

    Args:
        nbytes: of the vector on each die. [B]
        group: dies that take part.
        constants: fitted constants of the library.
        otherwise: what rings take. [s]
        recorded: whether a recorded graph of launches holds it; else the host starts it.

    >>> own = OneShotAllreduce(start=2e-6, peer=0.0, reach=1e3, second=0.0, one=1.0, two=1.0, floor=20e-6, call=5e-6)
    >>> [float(one_shot_seconds(1e3, NodeGroup(2, 1e9, 1e12), own, 1.0, recorded=recorded)) for recorded in (True, False)]
    [3e-06, 2e-05]
    """
    p, c = group.peers, constants
    once, halves = (p - 1) * nbytes / (c.one * group.links), 2.0 * (p - 1) / p * nbytes / (c.two * group.links)
    met = c.peer * p * -np.expm1(-nbytes / c.reach)
    seconds = minimum(c.start + met + minimum(once, c.second + halves), otherwise)
    if not recorded:
        seconds = maximum(c.floor, seconds + c.call + 2.0 * nbytes / group.memory)
    return where(p > 1, seconds, 0.0)
