"""Detection of repetition of whole waves in a simulated program.

Loops come again with all that stands between them, as items of attention one after the other.

A loop inside is jumped over in each of them; this looks from one beginning of such a loop to the next one. Where two of these
stretches moved every time alike, and each strand has the same parts before it as behind it, so will those that follow.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dse.evaluators.cost_models.loop_repetition import has_moved_uniformly
from dse.evaluators.program.kernel_ir import Loop, Round
from dse.space.array_math import Array

MIN_REPETITIONS = 4
"""Stretches left that are worth looking at everything."""


class StrandPosition(Protocol):
    """Position of a strand in its program, and numbers of its parts."""

    part: int
    place: int
    turn: int
    keys: Array


def part_keys(parts: Sequence[Round | Loop]) -> Array:
    """Numbers of parts, equal for parts that do the same, shape (parts,)."""
    numbers: dict[Any, int] = {}
    words = [(part.times, *map(id, part.body)) if isinstance(part, Loop) else id(part) for part in parts]
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], int)


class WaveRepetition:
    """Detector of repetition where the first strand begins a loop like an earlier one."""

    def __init__(self) -> None:
        self._point_values = -1
        self._held: list[tuple[tuple[Any, ...], list[tuple[int, int, int]], list[Array]]] = []

    def repeated_waves(
        self,
        alive: Sequence[StrandPosition],
        arrays: Callable[[], list[Array]],
        beside: Callable[[], tuple[Any, ...]],
    ) -> tuple[int, list[Array], list[int]]:
        """Waves that can be jumped, how much one moves all times, and parts per wave of each strand.

        Args:
            alive: strands that are not done; the first one begins a loop.
            arrays: everything that rounds move.
            beside: what else has to be the same.
        """
        first = alive[0]
        if first.part == self._point_values:
            return 0, [], []
        self._point_values = first.part
        before = np.flatnonzero(first.keys[: first.part] == first.keys[first.part])
        if not len(before) or repetitions_ahead(first.keys, first.part, first.part - int(before[-1])) < (
            MIN_REPETITIONS - len(self._held)
        ):
            return 0, [], []
        names = (*map(id, alive), *beside())
        places = [(strand.part, strand.place, strand.turn) for strand in alive]
        self._held = [state for state in self._held if state[0] == names][-2:]
        self._held.append((names, places, [times.copy() for times in arrays()]))
        if len(self._held) < 3:
            return 0, [], []
        (_, oldest, first_ends), (_, older, two), (_, _, now) = self._held
        steps = [place[0] - older_place[0] for place, older_place in zip(places, older, strict=True)]
        if steps != [place[0] - older_place[0] for place, older_place in zip(older, oldest, strict=True)] or min(steps) < 1:
            return 0, [], []
        if [place[1:] for place in places] != [place[1:] for place in older]:
            return 0, [], []
        left = min(repetitions_ahead(strand.keys, strand.part, step) for strand, step in zip(alive, steps, strict=True))
        moved = [newer_end - older_end for newer_end, older_end in zip(now, two, strict=True)]
        if left < 1 or not has_moved_uniformly(
            moved, [newer_end - older_end for newer_end, older_end in zip(two, first_ends, strict=True)]
        ):
            return 0, [], []
        self._held, self._point_values = [], first.part + left * steps[0]
        return left, moved, steps


def repetitions_ahead(keys: Array, at: int, step: int) -> int:
    """Repetitions of the `step` parts before `at` in the rest of a strand, without a last partial one. [-]

    >>> repetitions_ahead(np.array([7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 9]), 4, 3)
    2
    """
    same = keys[at:] == keys[at - step : len(keys) - step]
    end = int(np.argmin(same)) if not same.all() else len(same)
    return max(end - 1, 0) // step if end else 0
