"""Energy, power and money of what chips do, phase by phase."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dse.evaluators.silicon import area, energy, price
from dse.space.chip import Chip
from dse.space.elementwise import maximum, total
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
    """Metrics, and what works them out of those that take the most."""
    idle = energy.static(chip, decode_cores)
    seconds, dynamic = [of[1] for of in spent], [of[0] for of in spent]
    for joules, took in spent:
        peak = maximum(peak, joules / maximum(took, NOTHING))
    latency = total(seconds)
    joules = total(dynamic) + chips * idle * latency
    rated = partial(energy.design_power, chip, decode_cores)
    prices: dict[str, Any] = {}

    def priced() -> dict[str, Any]:
        if not prices:
            prices.update(price.of_tokens(chip, chips, latency, joules, tokens, decode_cores))
        return prices

    return {
        "energy": joules,
        "energy_per_token": lambda: joules / tokens,
        "power": lambda: joules / maximum(latency, NOTHING),
        "peak_power": lambda: peak + chips * idle,
        "tdp": rated,
        "power_density": lambda: rated() / area.total(chip, decode_cores),
        "plug_power": lambda: price.plugged(chip, decode_cores),
        "system_price": lambda: chips * price.system(chip, decode_cores),
        "price_per_mtoken": lambda: priced()["chips"] + priced()["electricity"],
        "chips_per_mtoken": lambda: priced()["chips"],
        "electricity_per_mtoken": lambda: priced()["electricity"],
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
