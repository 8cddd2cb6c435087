"""Systems that are up in each hour of a load that repeats, where a system takes a time to start.

A system that starts at t serves from t plus the cold start on. So the systems that are up at t are at least those that
are needed at any time until the cold start later, and as many are enough. One that is not needed for less than its cold
start stays up, since it could not start again in time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dse.space.errors import DesignError


@dataclass(frozen=True)
class SystemSchedule:
    """Number of systems that serve and that are up in each hour.

    Attributes:
        needed: that the hour's rate takes, spare ones included.
        ready: that serve: those needed, and those that stay up since they could not start again in time.
        up: mean number of systems that are up: those that serve or start. Over hours of 1 h these are system-hours.
    """

    needed: tuple[int, ...]
    ready: tuple[int, ...]
    up: tuple[float, ...]

    @property
    def peak(self) -> int:
        """The most systems that are up at a time, which the fleet owns."""
        return max(self.needed)

    @property
    def system_hours(self) -> float:
        """Hours that systems are up, all hours together. [h]"""
        return sum(self.up)


def count_systems(rate: float, max_rate: float, spare: int) -> int:
    """Systems that a rate takes, spare ones included.

    A rate that is a multiple of the largest takes no system more for the rounding of either.

    >>> count_systems(10.0, 5.0, 0), count_systems(10.1, 5.0, 1), count_systems(0.0, 5.0, 1)
    (2, 4, 1)
    """
    return math.ceil(rate / max_rate * (1 - 1e-12)) + spare


def schedule_systems(needed: Sequence[int], cold_start: float) -> SystemSchedule:
    """Fewest systems that are up in each hour so that those needed serve.

    Args:
        needed: systems that serve, by hour; after the last hour the first one comes again.
        cold_start: time from the start of a system until it serves. [h]

    Raises:
        DesignError: a cold start as long as the load, during which all systems stay up.

    >>> schedule_systems([1, 3, 1], 0.5).up
    (2.0, 3.0, 1.0)
    >>> schedule_systems([1, 3, 1], 0.0).up, schedule_systems([1, 3, 1, 3, 1, 1], 1.0).ready
    ((1.0, 3.0, 1.0), (1, 3, 3, 3, 1, 1))
    """
    hours = len(needed)
    if not 0 <= cold_start < hours:
        raise DesignError(f"--cold-start: {cold_start:g} h is not 0 or more and less than the {hours} h of the load")
    whole, part = math.floor(cold_start), cold_start - math.floor(cold_start)
    early, late = _largest_until(needed, whole), _largest_until(needed, whole + 1)
    ready = tuple(min(early[hour - back] for back in range(whole + 1)) for hour in range(hours))
    up = tuple((1 - part) * float(first) + part * float(then) for first, then in zip(early, late, strict=True))
    return SystemSchedule(tuple(needed), ready, up)


def _largest_until(needed: Sequence[int], ahead: int) -> list[int]:
    """Most systems needed from each hour until some hours later, cyclic."""
    hours = len(needed)
    return [max(needed[(hour + step) % hours] for step in range(min(ahead, hours - 1) + 1)) for hour in range(hours)]
