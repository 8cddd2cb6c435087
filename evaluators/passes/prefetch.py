"""PRESERVE's pass: what is prefetched into L2 while a collective runs.

[yuzuguler2025] algorithm 1: from each allreduce, breadth-first through the operators that follow, until the next allreduce
or the end of the graph. Weights of a MatMul and the KV cache of an attention are prefetched as long as their running sum
stays below the budget; the first operator that does not fit ends it ("whole"), or is prefetched in part ("partial", ours).
Experts are prefetched as if the router's choice were known, as algorithm 1 does with any MatMul.
"""

from typing import Any

from dse.evaluators.passes.call import Block
from dse.space.elementwise import maximum, where


def prefetched(block: Block, policy: str, budget: Any) -> list[Any]:
    """Bytes of each call that are in L2 when its prefetch is done.

    Args:
        block: calls in order of execution, and the breadth-first order from the collective before them.
        policy: a word of `space.mapping.PREFETCH`.
        budget: bytes of L2 that may be used; 0 where there is no collective to hide behind.

    Returns:
        Bytes for each call, in the order of the calls; None for those that the pass leaves alone.
    """
    bytes_in: list[Any] = [None] * len(block.calls)
    if policy == "none":
        return bytes_in
    used: Any = 0.0
    for position in block.order:
        call = block.calls[position]
        if not call.reads:
            continue
        need = call.fetch
        before, used = used, used + need
        # `used` grows past the budget too, so that nothing after the first misfit is taken
        if policy == "whole":
            bytes_in[position] = need * (used < budget)
        else:
            bytes_in[position] = where(used < budget, need, maximum(budget - before, 0.0))
    return bytes_in
