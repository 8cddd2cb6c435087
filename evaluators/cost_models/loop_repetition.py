"""Detection of repetition in loops of a simulated program.

Where some iterations moved every time as those before them did, so do those that follow, since times are only ever added
and compared.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dse.evaluators.program.kernel_ir import Loop
from dse.space.array_math import Array

SLACK = 1e-9
"""By which share of it a movement may differ and be called the same: rounding of sums."""

SAMPLED = 61
"""One time in so many is looked at first: where it moved by another amount than engines did, nothing repeats."""

LOOP_PERIODS = (1, 2, 3, 4)
"""Turns after which everything may have moved alike: buffers that take turns, and bands that share channels, alternate."""


class StrandState(Protocol):
    """Position of a strand in its program."""

    turn: int
    place: int

    @property
    def loop(self) -> Loop | None:
        """Loop in which the strand is; None outside of loops."""
        ...

    @property
    def phase_key(self) -> tuple[int, int]:
        """Part of the position that two moments of a repetition share."""
        ...


class SimulatorTimes(Protocol):
    """Times of the simulator that repetition compares."""

    engine: Array

    def arrays(self) -> list[Array]:
        """All arrays of times that a round may move."""
        ...

    def pending_key(self) -> tuple[Any, ...]:
        """Other state that must be equal in a repetition."""
        ...


class _Moment(NamedTuple):
    """Everything after a turn of a loop, and where strands are."""

    places: list[Any]
    arrays: list[Array]


class LoopRepetition:
    """Detector of repetition at the end of the first strand's loop iterations.

    To look at everything costs as much as to simulate, so it is looked at when engines move alike, and ever more seldom.
    """

    def __init__(self) -> None:
        self._loop: Loop | None = None

    def repeated_turns(self, alive: Sequence[StrandState], state: SimulatorTimes) -> tuple[int, list[Array]]:
        """Iterations after which all times moved as in as many before, and by how much; 0 if not."""
        first = alive[0]
        if first.loop is None or first.place or not first.turn:
            return 0, []
        if first.loop is not self._loop or first.turn == 1:
            self._loop, self._look, self._gap = first.loop, 1, 1
            self._held: list[_Moment] = []
            self._engines: list[Array] = []
        self._engines = [*self._engines[-2 * LOOP_PERIODS[-1] :], state.engine.copy()]
        periods = [turns for turns in LOOP_PERIODS if self._alike(turns)]
        if not periods:
            self._held = []
        elif first.turn >= self._look:
            places = [(id(strand), strand.phase_key, strand.turn - first.turn) for strand in alive]
            now = _Moment([*places, *state.pending_key()], [times.copy() for times in state.arrays()])
            self._held = [*self._held[-2 * LOOP_PERIODS[-1] :], now]
            for turns in periods:
                moved = self._moved(turns)
                if moved:
                    return turns, moved
            if len(self._held) > 2 * periods[-1]:
                self._held, self._look, self._gap = [], first.turn + self._gap, 2 * self._gap
        return 0, []

    def _moved(self, turns: int) -> list[Array]:
        """By how much everything has moved in the last turns, where it was as much in those before."""
        if len(self._held) <= 2 * turns:
            return []
        oldest, older, now = (self._held[-1 - back * turns] for back in (2, 1, 0))
        if not oldest.places == older.places == now.places:
            return []
        largest = float((self._engines[-1] - self._engines[-1 - turns]).max())
        ends = (end.ravel()[::SAMPLED] - start.ravel()[::SAMPLED] for end, start in zip(now.arrays, older.arrays, strict=True))
        if largest > 0 and not all(has_moved_equally(moves, largest, 4 * SLACK) for moves in ends):
            return []
        moved, before = (
            [end - start for end, start in zip(newer_ends.arrays, two.arrays, strict=True)]
            for newer_ends, two in ((now, older), (older, oldest))
        )
        return moved if has_moved_uniformly(moved, before) else []

    def _alike(self, turns: int) -> bool:
        """Whether engines moved alike in the last turns, and as much as in those before."""
        if len(self._engines) <= 2 * turns:
            return False
        oldest, older, now = (self._engines[-1 - back * turns] for back in (2, 1, 0))
        return has_moved_uniformly([now - older], [older - oldest])


def has_moved_uniformly(now: list[Array], before: list[Array]) -> bool:
    """Whether two consecutive bodies moved every time by the same amount, or not at all."""
    largest = max(float(times.max()) for times in now)
    return all(
        float(np.abs(a - b).max()) <= SLACK * largest and has_moved_equally(a, largest)
        for a, b in zip(now, before, strict=True)
    )


def has_moved_equally(moves: Array, largest: float, slack: float = SLACK) -> bool:
    """Whether times moved by the largest amount or not at all."""
    return bool(((np.abs(moves - largest) <= slack * largest) | (moves == 0)).all())
