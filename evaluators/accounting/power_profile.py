"""Power of all chips over time, of consecutive phases or of overlapping intervals. [W]"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.power import EnergyIntervals
from dse.evaluators.silicon import energy
from dse.space.array_math import Array
from dse.space.chip import Chip


class PowerProfile(NamedTuple):
    """Piecewise constant power over time. [W]

    Attributes:
        instants: ascending, shape (n + 1,). [s]
        watts: between them, shape (n,). [W]
        names: of what is done between them, shape (n,); nothing where several things are.
    """

    instants: Array
    watts: Array
    names: tuple[str, ...] = ()

    @property
    def energy(self) -> float:
        """Energy from the first instant to the last. [J]"""
        return float(np.sum(self.watts * np.diff(self.instants)))

    @property
    def peak(self) -> float:
        """Largest power of any interval. [W]"""
        return float(self.watts[np.diff(self.instants) > 0].max(initial=0.0))

    @property
    def mean(self) -> float:
        """Mean power over the whole time. [W]"""
        return self.energy / max(float(self.instants[-1] - self.instants[0]), 1e-300)


def idle_power(chip: Chip, chips: Any = 1.0, decode_cores: Any = 0) -> float:
    """Static power of all idle chips. [W]"""
    return float(np.squeeze(chips * energy.static_power(chip, decode_cores)))


def profile_of_phases(spent: EnergyIntervals, names: Sequence[str], rest: float) -> PowerProfile:
    """Power profile of consecutive phases from time 0; phases of no duration are left out.

    Args:
        spent: of one design.
        names: of phases.
        rest: power while nothing is done. [W]

    >>> found = profile_of_phases([(6.0, 2.0), (0.0, 0.0), (3.0, 3.0)], ("prefill", "transition", "decode"), 1.0)
    >>> found.instants.tolist(), found.watts.tolist(), found.energy
    ([0.0, 2.0, 5.0], [4.0, 2.0], 14.0)
    """
    joules, seconds = (np.array([float(np.squeeze(phase_energy[kind])) for phase_energy in spent]) for kind in (0, 1))
    active_phases = np.flatnonzero(seconds > 0)
    watts = joules[active_phases] / seconds[active_phases] + rest
    return PowerProfile(np.cumsum([0.0, *seconds[active_phases]]), watts, tuple(names[int(place)] for place in active_phases))


def profile_of_intervals(starts: Array, ends: Array, watts: Array, rest: float, first: float, last: float) -> PowerProfile:
    """Power profile of overlapping intervals, each with its own power, cut to a time window.

    Args:
        starts, ends, watts: of each, shape (n,). [s], [W]
        rest: power while nothing is done. [W]
        first, last: instants. [s]

    >>> found = profile_of_intervals(np.array([1.0, 2.0]), np.array([3.0, 9.0]), np.array([4.0, 8.0]), 1.0, 0.0, 4.0)
    >>> found.instants.tolist(), found.watts.tolist()
    ([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 5.0, 13.0, 9.0])
    """
    starts, ends = np.clip(starts, first, last), np.clip(ends, first, last)
    instants, place = np.unique(np.concatenate([[first, last], starts, ends]), return_inverse=True)
    begun, size = place[2:], len(starts)
    change = np.zeros(len(instants))
    np.add.at(change, begun[:size], watts)
    np.add.at(change, begun[size:], -watts)
    level = np.cumsum(change)[:-1]
    # what differences of large numbers leave of nothing
    return PowerProfile(instants, np.maximum(level, 0.0) + rest)
