"""What a closed form answers."""

from dataclasses import dataclass
from typing import Any

from dse.evaluators.program.activity import Activity


@dataclass(frozen=True, slots=True)
class Cost:
    """Time and activity of a kernel; leaves broadcast over designs.

    Attributes:
        seconds: from the first byte to the last result.
        activity: the same counts that the steps give.
    """

    seconds: Any
    activity: Activity
