"""Energy, power and money of what chips do, phase by phase."""

from collections.abc import Callable, Sequence
from typing import Any

from dse.evaluators.silicon import area, energy, price
from dse.space.chip import Chip
from dse.space.elementwise import maximum
from dse.space.later import later

Spent = Sequence[tuple[Any, Any]]
"""Of each phase, the energy of what is done on all chips, and its time. [J], [s]"""


def of_phases(
    chip: Chip,
    spent: Callable[[], Spent],
    tokens: Any,
    *,
    chips: Any = 1.0,
    decode_cores: Any = 0,
    peak: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Energy, power and price of phases that follow one another; leaves broadcast over cases and designs.

    Args:
        chip, chips: that work, and how many.
        spent: what phases do, worked out when somebody asks.
        tokens: output tokens of all phases.
        decode_cores: tiles that only decode.
        peak: power of what is done where that is most within a phase, likewise; None where a phase does the same throughout.
            A mean above it counts instead. [W]
    """
    return later(OF_PHASES, lambda: _of_phases(chip, spent(), tokens, chips, decode_cores, 0.0 if peak is None else peak()))


NOTHING = 1e-300
"""Time of what takes none, in which nothing is done. [s]"""

OF_PHASES = (
    "energy",
    "energy_per_token",
    "power",
    "peak_power",
    "tdp",
    "power_density",
    "plug_power",
    "system_price",
    "price_per_mtoken",
    "chips_per_mtoken",
    "electricity_per_mtoken",
)
"""Metrics of phases, which are worked out when somebody asks."""

ALONE = ("energy", "power", "peak_power")
"""Metrics of a kernel by itself, likewise."""

RATED = ("tdp", "power_density")
"""Further ones of a kernel on a chip that is made as a whole, not on a memory or a network by itself."""


def _of_phases(chip: Chip, spent: Spent, tokens: Any, chips: Any, decode_cores: Any, peak: Any) -> dict[str, Any]:
    latency, joules, (idle, rated) = 0.0, 0.0, _watts(chip, decode_cores)
    for dynamic, seconds in spent:
        latency, joules = latency + seconds, joules + dynamic
        peak = maximum(peak, dynamic / maximum(seconds, NOTHING))
    joules = joules + chips * idle * latency
    parts = price.of_tokens(chip, chips, latency, joules, tokens, decode_cores)
    return {
        "energy": joules,
        "energy_per_token": joules / tokens,
        "power": joules / maximum(latency, NOTHING),
        "peak_power": peak + chips * idle,
        "tdp": rated,
        "power_density": rated / area.total(chip, decode_cores),
        "plug_power": price.plugged(chip, decode_cores),
        "system_price": chips * price.system(chip, decode_cores),
        "price_per_mtoken": parts["chips"] + parts["electricity"],
        "chips_per_mtoken": parts["chips"],
        "electricity_per_mtoken": parts["electricity"],
    }


def alone(chip: Chip, dynamic: Callable[[], Any], seconds: Any, *, chips: Any = 1.0) -> dict[str, Any]:
    """Energy and power of a kernel by itself, which does the same throughout: its mean power is its peak.

    Args:
        chip, chips: that work, and how many.
        dynamic: energy of what is done on all chips, worked out when somebody asks. [J]
        seconds: that it takes.
    """
    whole = chip.die is not None

    def work() -> dict[str, Any]:
        joules = dynamic() + chips * energy.static(chip) * seconds
        mean = joules / maximum(seconds, NOTHING)
        found = {"energy": joules, "power": mean, "peak_power": mean}
        if not whole:
            return found
        rated = energy.design_power(chip)
        return found | {"tdp": rated, "power_density": rated / area.total(chip)}

    return later((*ALONE, *RATED) if whole else ALONE, work)


def _watts(chip: Chip, decode_cores: Any) -> tuple[Any, Any]:
    return energy.static(chip, decode_cores), energy.design_power(chip, decode_cores)
