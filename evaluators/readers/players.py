"""The readers that play programs, by name and imported when they first play: their loops are compiled, and numba with them is
what a closed question does without.
"""

from collections.abc import Callable
from typing import Any

from dse.evaluators.readers.timing import Timing


def events(*given: Any, **named: Any) -> Timing:
    """The time of a program by links, engines and channels: `evaluators.events.play`."""
    from dse.evaluators.readers.events import play

    return play(*given, **named)


def cycles(*given: Any, **named: Any) -> Timing:
    """The time of a program flit by flit: `evaluators.cycles.play`."""
    from dse.evaluators.readers.cycles import play

    return play(*given, **named)


PLAYERS: dict[str, Callable[..., Timing]] = {"events": events, "cycles": cycles}
"""By fidelity: readers of a program and a fabric."""
