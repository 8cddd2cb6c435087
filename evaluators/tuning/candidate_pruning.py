"""Compiled loops that find, among ordered candidates, those faster than all earlier ones."""

from typing import Any

from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function


@compiled_loop
def mark_faster(seconds: Any, order: Any, starts: Any, worth: float, better: Any) -> None:
    """Mark pairs that take less than a share of the least earlier time of their structure.

    Args:
        seconds: at each rate, shape (rates, pairs). [s]
        order: pairs of a structure, one structure after the other, shape (pairs,).
        starts: where those of each begin in it, shape (structures + 1,).
        worth: the share.
        better: to be written, shape (rates, pairs).
    """
    for number in range(len(starts) - 1):
        for rate in range(seconds.shape[0]):
            least = float("inf")
            for place in range(starts[number], starts[number + 1]):
                candidate_seconds = seconds[rate, order[place]]
                better[rate, order[place]] = candidate_seconds < least * worth
                least = min(least, candidate_seconds)


@inlined_function
def _least(turns: Any, nbytes: Any, slices: Any, busy: Any, byte: Any, candidate: int, rate: int, structure: int) -> Any:
    """A bound, as of `fastest_candidate.CandidateBounds`. [s]"""
    return max(turns[candidate] * busy[slices[candidate], structure], nbytes[candidate] * byte[rate, structure])


@compiled_loop
def mark_faster_by_bounds(
    turns: Any, nbytes: Any, slices: Any, busy: Any, byte: Any, candidates: Any, order: Any, starts: Any, worth: float,
    before: Any, better: Any,
) -> None:  # fmt: skip
    """Mark pairs with bounds below a share of all earlier bounds of their structure, at some rate.

    Args:
        turns, nbytes, slices, busy, byte: as of `fastest_candidate.CandidateBounds`.
        candidates: of each pair, shape (pairs,).
        order, starts, worth: as of `mark_faster`.
        before: to be written over, shape (rates,).
        better: to be written, shape (pairs,).
    """
    for number in range(len(starts) - 1):
        before[:] = float("inf")
        for place in range(starts[number], starts[number + 1]):
            pair, is_faster = order[place], False
            for rate in range(len(before)):
                seconds = _least(turns, nbytes, slices, busy, byte, candidates[pair], rate, number)
                is_faster = is_faster or seconds < before[rate] * worth
                before[rate] = min(before[rate], seconds)
            better[pair] = is_faster


@compiled_loop
def mark_possibly_faster(
    turns: Any, nbytes: Any, slices: Any, busy: Any, byte: Any, seconds: Any, places: Any, candidates: Any, order: Any,
    starts: Any, before: Any, may: Any,
) -> None:  # fmt: skip
    """Mark pairs that may beat all earlier ones of their structure, by bounds and known times.

    Args:
        turns, nbytes, slices, busy, byte, candidates, order, starts, before: as of `mark_faster_by_bounds`.
        seconds: times that are known at each rate, shape (rates, known pairs). [s]
        places: of each pair among these, -1 where it is not, shape (pairs,).
        may: to be written, shape (pairs,).
    """
    for number in range(len(starts) - 1):
        before[:] = float("inf")
        for place in range(starts[number], starts[number + 1]):
            pair, known = order[place], places[order[place]]
            may_win = place == starts[number]
            for rate in range(len(before)):
                may_win = may_win or _least(turns, nbytes, slices, busy, byte, candidates[pair], rate, number) < before[rate]
                if known >= 0:
                    before[rate] = min(before[rate], seconds[rate, known])
            may[pair] = may_win
