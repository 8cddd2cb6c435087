"""The readers that play programs, by name and imported when they first play: their loops are compiled, and numba with them is
what a closed question does without.
"""

from collections.abc import Callable
from typing import Any

from dse.evaluators.cost_models.simulation_timing import SimulationResult


def run_event_simulator(*given: Any, **named: Any) -> SimulationResult:
    """The time of a program by links, engines and channels: `evaluators.events.play`."""
    from dse.evaluators.cost_models.event_simulator import simulate_events

    return simulate_events(*given, **named)


def run_cycle_simulator(*given: Any, **named: Any) -> SimulationResult:
    """The time of a program flit by flit: `evaluators.cycles.play`."""
    from dse.evaluators.cost_models.cycle_simulator import simulate_cycles

    return simulate_cycles(*given, **named)


PLAYERS: dict[str, Callable[..., SimulationResult]] = {"events": run_event_simulator, "cycles": run_cycle_simulator}
"""By fidelity: readers of a program and a fabric."""
