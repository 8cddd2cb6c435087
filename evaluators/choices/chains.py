"""Of candidates in an order, which are faster than all before: a loop over structures."""

from typing import Any

from dse.evaluators.machine.compile_cache import loop


@loop
def faster(seconds: Any, order: Any, starts: Any, worth: float, better: Any) -> None:
    """Writes which pairs take less than a share of the time of all of their structure before.

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
                one = seconds[rate, order[place]]
                better[rate, order[place]] = one < least * worth
                least = min(least, one)


@loop
def promising(least: Any, seconds: Any, order: Any, starts: Any, may: Any) -> None:
    """Writes which pairs may take less than all of their structure before, by bounds and by times of some; the first may.

    Args:
        least, seconds: bounds and times at each rate, infinite where they are not known, shape (rates, pairs). [s]
        order, starts: as of `faster`.
        may: to be written, shape (pairs,).
    """
    may[:] = False
    for number in range(len(starts) - 1):
        may[order[starts[number]]] = True
        for rate in range(seconds.shape[0]):
            before = float("inf")
            for place in range(starts[number], starts[number + 1]):
                pair = order[place]
                may[pair] = may[pair] or least[rate, pair] < before
                before = min(before, seconds[rate, pair])
