"""Order and time of a verification: a study's first statements depend on a few designs."""

from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from dse.execution.pool.worker_settings import WorkerSettings, cpu_count
from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.store.store import DesignResult

LEADING_ROWS = 2
"""Designs of each objective that come first: the best, and the one that it has to be told from."""

MIN_CHANGE_S = 5.0
"""By how much a time has to be wrong to be said again. [s]"""


def order_for_verification(values: Array, directions: Sequence[str]) -> Array:
    """Rows with the best and the second best of each objective first; the others in their order.

    Args:
        values: shape (designs, objectives), finite.
        directions: "max" or "min" for each objective.

    Returns:
        Row numbers, shape (designs,), each once.

    >>> order_for_verification(np.array([[1.0, 5.0], [4.0, 2.0], [3.0, 3.0], [2.0, 4.0]]), ["max", "min"]).tolist()
    [1, 2, 0, 3]
    """
    ranked = np.argsort(convert_to_minimisation(values, directions), axis=0, kind="stable")[:LEADING_ROWS]
    first = dict.fromkeys(int(row) for row in ranked.ravel())
    return np.array([*first, *(row for row in range(len(values)) if row not in first)], dtype=int)


def seconds_per_design(results: Iterable[DesignResult]) -> float:
    """Median time of the evaluated designs; 0 if none was evaluated. [s]"""
    taken = [result.seconds for result in results if not result.error and result.seconds > 0]
    return median(taken) if taken else 0.0


def estimate_seconds(crew: WorkerSettings, each: float, many: int) -> float:
    """Expected time of workers for some designs; automatic workers at their best. [s]

    >>> auto = WorkerSettings("auto", 2, start_time=4.0)
    >>> estimate_seconds(WorkerSettings("serial"), 3.0, 10), estimate_seconds(auto, 3.0, 10)
    (30.0, 19.0)
    """
    alone = each * many
    if crew.kind == "serial":
        return alone
    together = alone / min(crew.count or cpu_count(), max(many, 1)) + (crew.start_time if crew.kind == "auto" else 0.0)
    return min(alone, together) if crew.kind == "auto" else together


def format_remaining_time(crew: WorkerSettings, fidelity: str, each: float, left: int, total: int) -> str:
    """Expected time of the remaining designs, as text.

    >>> format_remaining_time(WorkerSettings("serial"), "events", 3.0, 4, 4)
    'verify: 4 designs at events, 3 s each: some 12 s; decisive ones come first'
    >>> format_remaining_time(WorkerSettings("serial"), "events", 3.0, 3, 4)
    'verify: 1 of 4 designs done at events, 3 s each: some 9 s for the other 3'
    """
    about = format_quantity(estimate_seconds(crew, each, left), "s", 3)
    if left == total:
        designs = count_text(total, "design")
        return f"verify: {designs} at {fidelity}, {format_quantity(each, 's', 3)} each: some {about}; decisive ones come first"
    done = f"{total - left:,} of {count_text(total, 'design')} done"
    return f"verify: {done} at {fidelity}, {format_quantity(each, 's', 3)} each: some {about} for the other {left:,}"


def has_estimate_changed(crew: WorkerSettings, estimate: float, each: float, left: int) -> bool:
    """Whether the remaining time differs enough from the last statement to state it again.

    The first designs of a machine wait for loops to be compiled, and tell far too much of those to come.

    >>> (
    ...     has_estimate_changed(WorkerSettings("serial"), 120.0, 1.0, 8),
    ...     has_estimate_changed(WorkerSettings("serial"), 12.0, 8.0, 8),
    ...     has_estimate_changed(WorkerSettings("serial"), 0.1, 0.01, 8),
    ... )
    (True, False, False)
    """
    was, now = estimate_seconds(crew, estimate, left), estimate_seconds(crew, each, left)
    return abs(was - now) > MIN_CHANGE_S and not was / 2 < now < was * 2


def unknown_time_text(fidelity: str, first: int, total: int) -> str:
    """Message that the time per design is not known yet.

    >>> unknown_time_text("events", 2, 4)
    'verify: 4 designs at events, decisive ones first; the first 2 show how long the others take'
    >>> unknown_time_text("events", 2, 2)
    'verify: 2 designs at events, all at once; the time per design is not known yet'
    """
    if first >= total:
        return f"verify: {count_text(total, 'design')} at {fidelity}, all at once; the time per design is not known yet"
    tells = f"the first {first} show" if first > 1 else "the first shows"
    return f"verify: {total:,} designs at {fidelity}, decisive ones first; {tells} how long the others take"
