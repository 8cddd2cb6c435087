"""Stop rules of a search: time and stagnation; the budget is in the ask/tell loop."""

import time
from collections.abc import Sequence

import numpy as np

from dse.search.pareto import convert_to_minimisation, front_mask, hypervolume
from dse.search.samplers import Feedback


class StopRules:
    """Rules that may end a search before its budget is spent.

    Args:
        directions: of the objectives.
        seconds: of this run; None for any time.
        designs: over which the front must have grown; None for no such rule.
        growth: the least growth of the hypervolume over them, as a share of what it is now.
        every: designs between two looks at it, so that where it stops depends on the designs alone.
    """

    def __init__(
        self, directions: Sequence[str], *, seconds: float | None, designs: int | None, growth: float, every: int
    ) -> None:
        self._directions = directions
        self._end = None if seconds is None else time.monotonic() + seconds
        self._seconds = seconds
        self._growth = growth
        self._every = every
        self._looks = 0 if designs is None else -(-designs // every)
        self._fresh: list[tuple[float, ...]] = []
        self._fronts: list[np.ndarray] = []
        self._told = 0

    def note_result(self, feedback: Feedback) -> None:
        """Take a design's result, in the order of asks."""
        if not self._looks:
            return
        self._told += 1
        if feedback.objectives is not None and all(excess <= 0 for excess in feedback.constraints.values()):
            self._fresh.append(feedback.objectives)
        if self._told % self._every == 0:
            held = self._fronts[-1] if self._fronts else np.zeros((0, len(self._directions)))
            rows = np.vstack([held, np.array(self._fresh)]) if self._fresh else held
            self._fronts.append(rows[front_mask(rows, self._directions)])
            self._fresh = []

    def check_time(self) -> str:
        """Reason to end the search now, for time; empty string if none. Designs in flight are left."""
        return f"{self._seconds:g} s have passed" if self._end is not None and time.monotonic() > self._end else ""

    def check_stagnation(self) -> str:
        """Reason to ask no more, for stagnation; empty string if none. Designs in flight are finished."""
        if not self._looks or self._told % self._every or len(self._fronts) <= self._looks:
            return ""
        before, now = self._fronts[-1 - self._looks], self._fronts[-1]
        grown = hypervolume_growth(before, now, self._directions) if len(before) else 1.0
        if grown >= self._growth:
            return ""
        return f"the hypervolume grew by {grown:.2%} over the last {self._looks * self._every:,} designs"


def hypervolume_growth(before: np.ndarray, now: np.ndarray, directions: Sequence[str]) -> float:
    """Growth of hypervolume between two fronts, as a share of the second. [-]

    Measured in the box from the best value of each objective to a tenth beyond the worst on either front.

    Args:
        before, now: shape (designs, objectives).
        directions: "max" or "min" for each objective.

    >>> hypervolume_growth(np.array([[2.0, 2.0]]), np.array([[2.0, 2.0]]), ["min", "min"])
    0.0
    >>> round(hypervolume_growth(np.array([[2.0, 2.0]]), np.array([[1.0, 1.0]]), ["min", "min"]), 3)
    0.992
    """
    both = convert_to_minimisation(np.vstack([before, now]), directions)
    low, high = both.min(axis=0), both.max(axis=0)
    high = high + 0.1 * (high - low)
    held = hypervolume(now, directions, low, high)
    return 1 - hypervolume(before, directions, low, high) / held if held else 0.0
