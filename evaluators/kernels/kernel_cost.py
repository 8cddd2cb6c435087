"""Result of a kernel's analytical model: its time and activity."""

from typing import Any, NamedTuple

from dse.evaluators.program.activity import Activity


class KernelCost(NamedTuple):
    """Time [s] and activity of one kernel; leaves broadcast over designs.

    Attributes:
        seconds: from the first byte to the last result.
        activity: the same counts that the steps give.
    """

    seconds: Any
    activity: Activity
