"""Compiled search for the SUMMA candidate of each of many designs.

It loops over structures, candidates and designs.

What candidates are and what they cost is `analytical_summa`'s; times are those of `summa_diagonal.program_seconds`, compiled.
"""

from typing import Any

from dse.evaluators.kernels.gemm.summa_diagonal import SummaWork
from dse.evaluators.kernels.gemm.summa_diagonal import program_seconds as timed_
from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function
from dse.evaluators.machine.compiled_math import closed_form

timed = closed_form(timed_)

NEVER = float("inf")
"""More than any time. [s]"""


DESIGNS_PER_BATCH = 32
"""Designs of a structure that are looked at together: fewer leave more out, and look at candidates more often."""


LEAVES = len(SummaWork._fields)

HELD = LEAVES
"""Column of the memory that a candidate needs, behind the leaves of its work."""


@inlined_function
def _gathered(work: Any, held: Any, kind: int, order: Any, own: Any, anew: bool) -> None:
    """Writes what candidates are on a kind of machines, so that what is looked at together stands together.

    Args:
        work, kind, held: as of `take`.
        order: candidates.
        own: to be written, shape (candidates, LEAVES + 1).
        anew: whether there is nothing yet of the same candidates on another kind, of which what all kinds have stays.
    """
    for place in range(LEAVES):
        leaf = work[place]
        if not anew and leaf.shape[0] == 1:
            continue
        row, apart = kind if leaf.shape[0] > 1 else 0, leaf.shape[1] > 1
        for at in range(len(order)):
            own[at, place] = leaf[row, order[at] if apart else 0]
    for at in range(len(order) if anew else 0):
        own[at, HELD] = held[order[at]]


@inlined_function
def _seconds(own: Any, at: int, byte: float) -> Any:
    """Time of a candidate, with a channel's time for a byte."""
    return timed(
        SummaWork(
            own[at, 0],
            own[at, 1],
            own[at, 2],
            own[at, 3],
            own[at, 4],
            own[at, 5],
            own[at, 6],
            own[at, 7],
            own[at, 8],
            own[at, 9],
            own[at, 10],
            own[at, 11],
            own[at, 12],
            own[at, 13],
        ),
        byte,
    )


@inlined_function
def _over(held: float, room: float) -> Any:
    """By how much a candidate needs more than there is; 0 where it fits."""
    return max(held / room - 1, 0.0)


@inlined_function
def _narrow(
    own: Any, near_tokens: Any, count: int, designs: Any, low: int, high: int, room: Any, byte: Any, near: Any, fast: Any
) -> int:
    """Writes the candidates that some designs may take, in their order, with their least times, and returns how many there are.

    Args:
        own: of candidates, as of `_gathered`.
        some, count: places of those that are looked at, by memory, and how many.
        designs, low, high: as of `take`, and which of them.
        room, byte: as of `take`.
        near, fast: to be written; `near` may be `near_tokens`.
    """
    quick = slow = byte[designs[low]]
    small = large = room[designs[low]]
    for at in range(low + 1, high):
        design = designs[at]
        quick, slow = min(quick, byte[design]), max(slow, byte[design])
        small, large = min(small, room[design]), max(large, room[design])
    left, least, fitting = 0, NEVER, NEVER
    for at in range(count):
        candidate = near_tokens[at]
        seconds = _seconds(own, candidate, quick)
        if seconds > least:
            continue
        near[left], fast[left], left = candidate, seconds, left + 1
        other = _seconds(own, candidate, slow)
        least = min(least, other)
        if _over(own[candidate, HELD], small) == 0:
            fitting = min(fitting, other)
    few = 0
    for at in range(left):
        candidate = near[at]
        if fast[at] <= fitting and (fitting == NEVER or _over(own[candidate, HELD], large) == 0):
            near[few], fast[few], few = candidate, fast[at], few + 1
    return few


@compiled_loop
def choose_candidates(
    work: Any,
    held: Any,
    order: Any,
    sides: Any,
    structures: Any,
    designs: Any,
    ends: Any,
    room: Any,
    byte: Any,
    near: Any,
    nearer: Any,
    fast: Any,
    own: Any,
    best: Any,
    taken: Any,
) -> None:
    """Write the fastest candidate that fits each design to `best`.

    If none fits, take the one that needs the least memory; of equals, the first.

    More time for a byte never makes a candidate faster, and more memory never makes it fit less. So of a structure, a candidate
    is left out that takes longer with the fastest memory of its designs than another one, which needs no more or fits all of
    them, with the slowest. This is exact, rounding included. Of many designs, those whose memories are about as fast are looked
    at together, and leave more out.

    Args:
        work: leaves of `SummaWork`, each of shape (kinds or 1, candidates or 1).
        held: by candidates. [B], shape (candidates,)
        order: candidates of a side by memory, one side after the other, shape (candidates,).
        sides: where candidates of each side begin in it, shape (sides + 1,).
        structures: number, side and kind of each, shape (3, structures).
        designs: by structure, of each by `byte`, shape (designs,).
        ends: where those of each structure begin, shape (all structures + 1,).
        room, byte: of designs. [B], [s/B], shape (designs,)
        near, nearer, fast: for numbers of candidates, twice, and times, shape (candidates,).
        own: for what candidates are, shape (candidates, LEAVES + 1).
        best, taken: to be written, shape (designs,); the latter is its time. [s]
    """
    for place in range(structures.shape[1]):
        number, side, kind = structures[0, place], structures[1, place], structures[2, place]
        first, end, selected_order = ends[number], ends[number + 1], order[sides[side] : sides[side + 1]]
        _gathered(work, held, kind, selected_order, own, place == 0 or side != structures[1, place - 1])
        for at in range(len(selected_order)):
            near[at] = at
        few = _narrow(own, near, len(selected_order), designs, first, end, room, byte, near, fast)
        chosen = -1
        for low in range(first, end, DESIGNS_PER_BATCH):
            high = min(low + DESIGNS_PER_BATCH, end)
            left, count = near, few
            if end - first > DESIGNS_PER_BATCH and few > 2:  # two cost as much to look at as to leave out
                left = nearer
                count = _narrow(own, near, few, designs, low, high, room, byte, nearer, fast)
            for at in range(low, high):
                design = designs[at]
                excess, seconds = NEVER, NEVER
                if chosen >= 0:  # what the design before has taken leaves most others out
                    excess, seconds = _over(own[chosen, HELD], room[design]), _seconds(own, chosen, byte[design])
                for turn in range(count):
                    if excess == 0 and fast[turn] > seconds:
                        continue
                    candidate = left[turn]
                    over = _over(own[candidate, HELD], room[design])
                    if over > excess:
                        break  # those behind need as much or more
                    single_seconds = _seconds(own, candidate, byte[design])
                    if (
                        chosen < 0
                        or over < excess
                        or single_seconds < seconds
                        or (single_seconds == seconds and selected_order[candidate] < selected_order[chosen])
                    ):
                        chosen, excess, seconds = candidate, over, single_seconds
                best[design], taken[design] = selected_order[chosen], seconds
