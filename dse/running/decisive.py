"""In which order designs are evaluated once more, and how long that takes: what a study says first depends on a few."""

from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from dse.running.workers import Crew, cpus
from dse.search.pareto import minimised
from dse.space.elementwise import Array
from dse.space.shown import number_of
from dse.space.units import show
from dse.store.store import Result

FIRST = 2
"""Designs of each objective that come first: the best, and the one that it has to be told from."""

MATTERS = 5.0
"""By how much a time has to be wrong to be said again. [s]"""


def decisive(values: Array, directions: Sequence[str]) -> Array:
    """Rows with the best and the second best of each objective first; the others as they are.

    Args:
        values: shape (designs, objectives), finite.
        directions: "max" or "min" for each objective.

    Returns:
        Row numbers, shape (designs,), each once.

    >>> decisive(np.array([[1.0, 5.0], [4.0, 2.0], [3.0, 3.0], [2.0, 4.0]]), ["max", "min"]).tolist()
    [1, 2, 0, 3]
    """
    ranked = np.argsort(minimised(values, directions), axis=0, kind="stable")[:FIRST]
    first = dict.fromkeys(int(row) for row in ranked.ravel())
    return np.array([*first, *(row for row in range(len(values)) if row not in first)], dtype=int)


def pace(results: Iterable[Result]) -> float:
    """What a design takes, of those that were evaluated; 0 where none was. [s]"""
    taken = [result.seconds for result in results if not result.error and result.seconds > 0]
    return median(taken) if taken else 0.0


def expected(crew: Crew, each: float, many: int) -> float:
    """What a crew takes for some designs; one that starts workers where that is worth it, at its best. [s]

    >>> expected(Crew("serial"), 3.0, 10), expected(Crew("auto", 2, start=4.0), 3.0, 10)
    (30.0, 19.0)
    """
    alone = each * many
    if crew.kind == "serial":
        return alone
    together = alone / min(crew.count or cpus(), max(many, 1)) + (crew.start if crew.kind == "auto" else 0.0)
    return min(alone, together) if crew.kind == "auto" else together


def time_said(crew: Crew, fidelity: str, each: float, left: int, total: int) -> str:
    """How long the designs that are left of all take, in words.

    >>> time_said(Crew("serial"), "events", 3.0, 4, 4)
    'verify: 4 designs at events, 3 s each: some 12 s; those that decide come first'
    >>> time_said(Crew("serial"), "events", 3.0, 3, 4)
    'verify: 1 of 4 designs done at events, 3 s each: some 9 s for the other 3'
    """
    about = show(expected(crew, each, left), "s", 3)
    if left == total:
        designs = number_of(total, "design")
        return f"verify: {designs} at {fidelity}, {show(each, 's', 3)} each: some {about}; those that decide come first"
    done = f"{total - left:,} of {number_of(total, 'design')} done"
    return f"verify: {done} at {fidelity}, {show(each, 's', 3)} each: some {about} for the other {left:,}"


def changed(crew: Crew, said: float, each: float, left: int) -> bool:
    """Whether designs that are left take so much less or more than was said that it is said again.

    The first designs of a machine wait for loops to be compiled, and tell far too much of those to come.

    >>> changed(Crew("serial"), 120.0, 1.0, 8), changed(Crew("serial"), 12.0, 8.0, 8), changed(Crew("serial"), 0.1, 0.01, 8)
    (True, False, False)
    """
    was, now = expected(crew, said, left), expected(crew, each, left)
    return abs(was - now) > MATTERS and not was / 2 < now < was * 2


def not_known(fidelity: str, first: int, total: int) -> str:
    """That nobody knows yet how long designs take, in words.

    >>> not_known("events", 2, 4)
    'verify: 4 designs at events, those that decide first; the first 2 tell how long the others take'
    >>> not_known("events", 2, 2)
    'verify: 2 designs at events, all at once; how long one takes is not known yet'
    """
    if first >= total:
        return f"verify: {number_of(total, 'design')} at {fidelity}, all at once; how long one takes is not known yet"
    tells = f"the first {first} tell" if first > 1 else "the first tells"
    return f"verify: {total:,} designs at {fidelity}, those that decide first; {tells} how long the others take"
