"""PRESERVE's pass: what is prefetched into L2 while a collective runs.

[yuzuguler2025] algorithm 1: from each allreduce, breadth-first through the operators that follow, until the next allreduce
or the end of the graph. Weights of a MatMul and the KV cache of an attention are prefetched as long as their running sum
stays below the budget; the first operator that does not fit ends it ("whole"), or is prefetched in part ("partial", ours).
Experts are prefetched as if the router's choice were known, as algorithm 1 does with any MatMul.
"""

from functools import lru_cache
from typing import Any

from evaluators.graph.operators import Segment, Work
from space.elementwise import maximum, where


def prefetched(segment: Segment, policy: str, budget: Any) -> list[Any]:
    """Bytes of each work that are in L2 when its prefetch is done.

    Args:
        segment: works in order of execution, and the breadth-first order from the collective before them.
        policy: a word of `space.mapping.PREFETCH`.
        budget: bytes of L2 that may be used; 0 where there is no collective to hide behind.

    Returns:
        Bytes for each work, in the order of the works; None for works that the pass leaves alone.
    """
    bytes_in: list[Any] = [None] * len(segment.works)
    if policy == "none":
        return bytes_in
    used: Any = 0.0
    for position in segment.order:
        work = segment.works[position]
        if work.kind == "elementwise":
            continue
        need = work.weight_bytes if work.kind == "matmul" else work.kv_bytes
        before, used = used, used + need
        # `used` grows past the budget too, so that nothing after the first misfit is taken
        if policy == "whole":
            bytes_in[position] = need * (used < budget)
        else:
            bytes_in[position] = where(used < budget, need, maximum(budget - before, 0.0))
    return bytes_in


def breadth_first(works: tuple[Work, ...]) -> tuple[int, ...]:
    """Positions of the works in breadth-first order from the collective that they wait for.

    A work is reached when the last of its needs is; roots, which need nothing in this segment, are reached first.
    """
    return _order(tuple((work.name, work.needs) for work in works))


@lru_cache(maxsize=256)
def _order(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[int, ...]:
    place = {name: position for position, (name, _) in enumerate(edges)}
    waiting = {name: {need for need in needs if need in place} for name, needs in edges}
    frontier = [name for name, needs in waiting.items() if not needs]
    visited: list[str] = []
    while frontier:
        visited += frontier
        done = set(visited)
        frontier = [name for name, needs in waiting.items() if name not in done and needs <= done]
    return tuple(place[name] for name in visited)
