"""Energy, power and price of chips from the activity of phases."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dse.evaluators.silicon import area, energy, price
from dse.space.array_math import maximum, sum_nonzero
from dse.space.chip import Chip
from dse.space.lazy_metrics import make_lazy_metrics

EnergyIntervals = Sequence[tuple[Any, Any]]
"""Of each phase, the energy of what is done on all chips, and its time. [J], [s]"""


def power_metrics(
    chip: Chip,
    spent: Callable[[], EnergyIntervals],
    tokens: Any,
    *,
    chips: Any = 1.0,
    decode_cores: Any = 0,
    peak: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Energy, power and price metrics of consecutive phases; leaves broadcast over cases and designs.

    Args:
        chip, chips: that work, and how many.
        spent: energy and time of phases, computed on demand.
        tokens: output tokens of all phases.
        decode_cores: tiles that only decode.
        peak: power of what is done where that is most within a phase, likewise; None where a phase does the same throughout.
            A mean above it counts instead. [W]
    """
    rented = chip.economics is not None and chip.economics.rent is not None
    return make_lazy_metrics(
        (*PHASE_POWER_METRICS, *RENT_METRICS) if rented else PHASE_POWER_METRICS,
        lambda: _of_phases(chip, spent(), tokens, chips, decode_cores, 0.0 if peak is None else peak()),
    )


NOTHING = 1e-300
"""Time of phases without duration, in which nothing is done. [s]"""

PHASE_POWER_METRICS = (
    "energy",
    "energy_per_token",
    "power",
    "peak_power",
    "tdp",
    "power_density",
    "wall_power",
    "system_price",
    "price_per_mtoken",
    "capital_per_mtoken",
    "electricity_per_mtoken",
)
"""Metrics of phases that are computed on demand."""

RENT_METRICS = ("rent_per_mtoken",)
"""The same of chips whose rent is known."""

KERNEL_POWER_METRICS = ("energy", "power", "peak_power")
"""Metrics of a single kernel that are computed on demand."""

RATED_POWER_METRICS = ("tdp", "power_density")
"""Further metrics of a kernel on a whole chip, not on a memory or a network alone."""


def _of_phases(chip: Chip, spent: EnergyIntervals, tokens: Any, chips: Any, decode_cores: Any, peak: Any) -> dict[str, Any]:
    """Metrics of phases, with functions for the expensive ones."""
    idle = energy.static_power(chip, decode_cores)
    seconds, dynamic = [phase_energy[1] for phase_energy in spent], [phase_energy[0] for phase_energy in spent]
    for joules, took in spent:
        peak = maximum(peak, joules / maximum(took, NOTHING))
    latency = sum_nonzero(seconds)
    joules = sum_nonzero(dynamic) + chips * idle * latency
    rated = partial(energy.peak_design_power, chip, decode_cores)
    prices: dict[str, Any] = {}

    def priced() -> dict[str, Any]:
        if not prices:
            prices.update(price.token_price_by_part(chip, chips, latency, joules, tokens, decode_cores))
        return prices

    return {
        "energy": joules,
        "energy_per_token": lambda: joules / tokens,
        "power": lambda: joules / maximum(latency, NOTHING),
        "peak_power": lambda: peak + chips * idle,
        "tdp": rated,
        "power_density": lambda: rated() / area.total_area(chip, decode_cores),
        "wall_power": lambda: price.wall_power(chip, decode_cores),
        "system_price": lambda: chips * price.system_price(chip, decode_cores),
        "price_per_mtoken": lambda: priced()["chips"] + priced()["electricity"],
        "capital_per_mtoken": lambda: priced()["chips"],
        "electricity_per_mtoken": lambda: priced()["electricity"],
        "rent_per_mtoken": lambda: chip.economics.rent * (chips * latency) * (1e6 / tokens),
    }


def kernel_power_metrics(chip: Chip, dynamic: Callable[[], Any], seconds: Any, *, chips: Any = 1.0) -> dict[str, Any]:
    """Energy and power metrics of a single kernel, whose mean power is also its peak.

    Args:
        chip, chips: that work, and how many.
        dynamic: dynamic energy on all chips, computed on demand. [J]
        seconds: time of the kernel.
    """
    whole = chip.die is not None

    def work() -> dict[str, Any]:
        joules = dynamic() + chips * energy.static_power(chip) * seconds
        mean = joules / maximum(seconds, NOTHING)
        work = {"energy": joules, "power": mean, "peak_power": mean}
        if not whole:
            return work
        rated = energy.peak_design_power(chip)
        return work | {"tdp": rated, "power_density": rated / area.total_area(chip)}

    return make_lazy_metrics((*KERNEL_POWER_METRICS, *RATED_POWER_METRICS) if whole else KERNEL_POWER_METRICS, work)
