"""Reads of contents that main memory and memory tiers share.

Each memory has controllers of its own, so that the parts of a content that are in several memories are read as concurrent
streams, and a read ends with the slowest of them:

    t = max over memories of s_i r_i B / b + l

B are the bytes of the read, s_i the share of them in memory i, b the bandwidth of main memory as software reaches it, r_i the
bandwidth of main memory over that of memory i, and l the largest latency of a memory with a share. Reads of different calls
follow each other, whichever memory they are in. Software reaches the same share of each memory's peak.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from dse.evaluators.calls.call import KernelCall
from dse.space.array_math import maximum, where

WEIGHTS, KV, EXPERTS = "weights", "kv", "experts"

ROUTED = ("experts_gate", "experts_up", "experts_down")
"""Products of routed experts, by the name of their operator."""

TIERED = {"weights": WEIGHTS, "kv": KV, "states": KV}
"""Content by the name of what a call reads (`KernelCall.reads`); what a step writes is in main memory."""

Shares = tuple[Any, ...]
"""Share of a content in each memory, main memory first. [1]"""


def content_of(call: KernelCall) -> str:
    """Content that a call reads, or an empty string for what is in main memory only."""
    return EXPERTS if call.reads == "weights" and call.name in ROUTED else TIERED.get(call.reads, "")


class TieredReads(NamedTuple):
    """Memories of a chip and the shares of contents in them; leaves broadcast over designs.

    Attributes:
        ratios: bandwidth of main memory over that of each memory; main memory first. [1]
        latencies: of each memory beyond main memory's. [s]
        energies: of a byte of each memory. [J/B]
        shares: of each content, as pairs of its name and its shares by memory.
        expert_reads: function of tokens and the shares of bytes that gives the shares of reads of experts; None where reads
            have the shares of the bytes.
    """

    ratios: Shares
    latencies: Shares
    energies: Shares
    shares: tuple[tuple[str, Shares], ...]
    expert_reads: Callable[[Any, Shares], Shares] | None = None

    def read_shares(self, call: KernelCall) -> Shares | None:
        """Share of a call's read in each memory; None for what is in main memory only."""
        content = content_of(call)
        shares = next((shares for name, shares in self.shares if name == content), None)
        if shares is None or content != EXPERTS or self.expert_reads is None:
            return shares
        return self.expert_reads(call.rows, shares)

    def slowdown(self, call: KernelCall) -> tuple[Any, Any]:
        """Time of a call's read over that from main memory alone [1], and the latency beside it [s]."""
        shares = self.read_shares(call)
        if shares is None:
            return 1.0, 0.0
        slowest = reduce(maximum, (share * ratio for share, ratio in zip(shares, self.ratios, strict=True)))
        return slowest, reduce(maximum, (where(s > 0, late, 0.0) for s, late in zip(shares, self.latencies, strict=True)))
