"""What designs promise that a lower fidelity has priced: the front that is expected of them all says what hypervolume counts.

Few results say little of where a front ends. A design that is the cheapest of all, or the fastest, lies beyond the worst of
those that are known in some other objective, and would gain nothing there.
"""

import numpy as np

from dse.search.acquisition import Known, Promise, box
from dse.search.pareto import front
from dse.space.elementwise import Array

ROUNDS = ((96, 100), (2_048, 0))
"""Directions for a gain of all candidates, and how many of them go on to many more: a late gain is a thousandth of the whole,
and candidates are near one another."""

BEYOND = 0.1
"""Of its extent that the expected front's hypervolume counts beyond its worst values, so that its ends count."""


class Expected(Promise):
    """A promise within the front that is expected of the designs that are looked at, together with the one that is known."""

    _rounds = ROUNDS

    def _reach(self, known: Known, expected: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        both = np.concatenate([known.objectives[known.front], expected])
        held = both[front(both, ["min"] * both.shape[1])]
        low, high = held.min(axis=0), held.max(axis=0)
        extent = np.where(high > low, high - low, box(known)[1])
        return low, low + extent * (1 + BEYOND)
