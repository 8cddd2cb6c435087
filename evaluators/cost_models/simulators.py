"""Simulators of programs by name, imported on first use.

Their loops are compiled with numba, which the analytical model does not need.
"""

from collections.abc import Callable
from typing import Any

from dse.evaluators.cost_models.simulation_timing import SimulationResult


def run_event_simulator(*given: Any, **named: Any) -> SimulationResult:
    """Run the event-driven simulator: `event_simulator.simulate_events`."""
    from dse.evaluators.cost_models.event_simulator import simulate_events

    return simulate_events(*given, **named)


def run_cycle_simulator(*given: Any, **named: Any) -> SimulationResult:
    """Run the cycle-level simulator: `cycle_simulator.simulate_cycles`."""
    from dse.evaluators.cost_models.cycle_simulator import simulate_cycles

    return simulate_cycles(*given, **named)


PLAYERS: dict[str, Callable[..., SimulationResult]] = {"events": run_event_simulator, "cycles": run_cycle_simulator}
"""Simulators of a program on a network, by fidelity."""
