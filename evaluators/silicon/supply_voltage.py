"""Supply voltage that the transistors of a process node need for a clock."""

from typing import Any

import numpy as np

from dse.evaluators.silicon.chip_batches import computed_per_batch
from dse.space.array_math import exponential, extremes, logarithm, map_distinct, maximum, minimum, option_index, where
from dse.space.chip import DATAFLOWS, Chip, MatrixEngine
from dse.space.memoize import memoize
from dse.space.published import given_part, is_near, is_said, remove_published_facts
from dse.space.technology import ProcessNode

EXPONENT = 1.3
"""Of the alpha-power law: clock ~ (V - threshold)^EXPONENT / V [sakurai1990]."""

STEPS = 12
"""Of Newton's method at most, over the supply's logarithm. That of the law is concave in it, so that no step goes too far from
below; it is nearly a straight line where supplies are high."""

NEAR = 1e-8
"""Share of the supply that a step may change for it to be the last: what is left then is as the square of that."""

ABOVE = 1e-3
"""Supply above the threshold from which on transistors switch. [V]"""


STAGES = 4.0
"""Of a multiply-add of 16 bits in a pipelined element that keeps up with a usual design of its node: three pipeline registers
and that of the result, as RedMulE's elements have them [tortorella2023]."""

REGISTER = 0.2
"""Share of a usual cycle that a register takes: clock to output, setup and skew (assumed: 4 to 5 of some 20 to 25 inverter
delays). [1]"""


LEAST_HOP = 1e-6
"""Cycles of a hop below which nothing is told apart: a router is passed in a usual cycle at least, so that a hop of fewer has
longer ones. [cycle]"""


def supply_voltage(chip: Chip) -> Any:
    """Supply voltage at a chip's clock, at least that of memories; broadcasts over designs. [V]"""
    return map_distinct(_supply, chip.clock / nominal_clock(chip), chip.technology)


POINTS, UPTO = 4096, 2.0
"""Of a table from which many supplies begin, and the supply that it goes up to, over the highest that lasts."""


@memoize
def _supply(faster: Any, tech: ProcessNode) -> Any:
    """Supply at which a node's transistors are so many times as fast as at its own. [V]

    One clock begins at the node's own supply; many begin from a table, so near that a step will do.
    """
    least = maximum(tech.min_voltage, tech.threshold_voltage + ABOVE)
    wanted = maximum(logarithm(faster) + _law(tech.nominal_voltage, tech), _law(least, tech))
    supply, near = maximum(tech.nominal_voltage, least), False
    if isinstance(wanted, np.ndarray) and not any(
        isinstance(voltage, np.ndarray) for voltage in (least, tech.threshold_voltage, tech.max_voltage)
    ):
        lowest, step, supplies = _table(float(least), float(tech.threshold_voltage), float(tech.max_voltage))
        place = (wanted - lowest) / step
        near = float(place.max()) <= POINTS
        below = minimum(place, POINTS - 1.0).astype(np.intp)
        place = place if near else minimum(place, 1.0 * POINTS)
        supply = supplies[below] + (place - below) * (supplies[below + 1] - supplies[below])
    for _ in range(STEPS):
        over = supply - tech.threshold_voltage
        grows = (wanted - EXPONENT * logarithm(over) + logarithm(supply)) / (EXPONENT * supply / over - 1)
        supply = maximum(supply + supply * grows if near else supply * exponential(grows), least)
        low, high = extremes(grows)
        if max(-low, high) <= NEAR:
            break
    return supply


@memoize
def _table(least: float, threshold: float, most: float) -> tuple[float, float, Any]:
    """The lowest logarithm of the law, its even steps, and supplies there, shape (POINTS + 1,). [1], [1], [V]"""
    supplies = np.linspace(least, max(UPTO * most, 2 * least), 4 * POINTS)
    logarithms = EXPONENT * np.log(supplies - threshold) - np.log(supplies)
    lowest, step = float(logarithms[0]), float(logarithms[-1] - logarithms[0]) / POINTS
    return lowest, step, np.interp(lowest + step * np.arange(POINTS + 1), logarithms, supplies)


def nominal_clock(chip: Chip) -> Any:
    """Clock at the process node's nominal supply, of the chip as built or of a usual design. [Hz]

    Elements with too few pipeline registers, or routers with too few cycles, slow all cores, which share a clock. A
    chip with a data sheet reaches the data sheet's clock at its usual supply.
    """
    if is_said(chip, "clock"):
        return where(is_as_clocked(chip), chip.published.clock, nominal_clock(remove_published_facts(chip)))
    if chip.die is None:  # of a network by itself
        return chip.technology.nominal_clock
    built = where(chip.die.nominal_clock > 0, chip.die.nominal_clock, chip.technology.nominal_clock)
    if chip.noc is None:
        return built
    routed = 1 / minimum(maximum(chip.noc.hop_cycles, LEAST_HOP), 1.0)
    return built / (routed if chip.tile is None else maximum(stage_time(chip.tile.matrix), routed))


@computed_per_batch
def is_as_clocked(chip: Chip) -> Any:
    """Whether a chip is built as the published one and clocked no faster; broadcasts over designs."""
    alike = is_near(nominal_clock(remove_published_facts(chip)), nominal_clock(given_part(chip, "clock")))
    return alike & ((chip.clock <= chip.published.clock) | is_near(chip.clock, chip.published.clock))


def stage_time(matrix: MatrixEngine) -> Any:
    """Pipeline stage time of a matrix engine's elements over a usual cycle, at least 1. [1]

    The logic of `STAGES` stages is cut into depth + 1, each with a register: STAGES / (depth + 1) (1 - REGISTER) +
    REGISTER. Systolic arrays have no pipelines in their elements, and keep up with a usual cycle. Broadcasts over
    designs.
    """
    pipelined = option_index(matrix.dataflow, DATAFLOWS) == DATAFLOWS.index("ce")
    return where(pipelined, maximum(STAGES / (matrix.depth + 1.0), 1.0) * (1 - REGISTER) + REGISTER, 1.0)


def is_shallow(chip: Chip) -> bool:
    """Whether one chip's matrix engines have too few pipeline registers for the usual clock."""
    return chip.tile is not None and bool(stage_time(chip.tile.matrix) > 1)


def maximum_clock(chip: Chip) -> Any:
    """Clock at the highest lasting supply voltage. [Hz]"""
    tech = chip.technology
    law = _power(tech.max_voltage, tech) / _power(tech.nominal_voltage, tech)
    return nominal_clock(chip) * law


@computed_per_batch
def relative_energy(chip: Chip) -> Any:
    """Energy of an operation relative to the nominal supply voltage; broadcasts over designs. [1]"""
    return map_distinct(_squared, chip.clock / nominal_clock(chip), chip.technology)


def _squared(faster: Any, tech: ProcessNode) -> Any:
    return (_supply(faster, tech) / tech.nominal_voltage) ** 2


def _law(supply: Any, tech: ProcessNode) -> Any:
    """Logarithm of the law."""
    return EXPONENT * logarithm(maximum(supply - tech.threshold_voltage, ABOVE)) - logarithm(supply)


def _power(supply: Any, tech: ProcessNode) -> Any:
    return maximum(supply - tech.threshold_voltage, ABOVE) ** EXPONENT / supply
