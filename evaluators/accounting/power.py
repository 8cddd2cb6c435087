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
    others: Sequence[tuple[Chip, Any]] = (),
) -> dict[str, Any]:
    """Energy, power and price metrics of consecutive phases; leaves broadcast over cases and designs.

    Args:
        chip, chips: that work, and how many.
        spent: energy and time of phases, computed on demand.
        tokens: output tokens of all phases.
        decode_cores: tiles that only decode.
        peak: power of what is done where that is most within a phase, likewise; None where a phase does the same throughout.
            A mean above it counts instead. [W]
        others: chips of other kinds that work beside these, and how many of each.
    """
    rented = all(kind.economics is not None and kind.economics.rent is not None for kind, _ in ((chip, chips), *others))
    names = (*PHASE_POWER_METRICS, *RENT_METRICS) if rented else PHASE_POWER_METRICS
    kinds = ((chip, chips), *others)
    return make_lazy_metrics(
        tuple(name for name in names if name not in RATED_POWER_METRICS) if others else names,
        lambda: _of_phases(kinds, spent(), tokens, decode_cores, 0.0 if peak is None else peak()),
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


def _of_phases(
    kinds: Sequence[tuple[Chip, Any]], spent: EnergyIntervals, tokens: Any, decode_cores: Any, peak: Any
) -> dict[str, Any]:
    """Metrics of phases on one kind of chip or on several, with functions for the expensive ones.

    Dynamic energy of several kinds is drawn at the place of the first.
    """
    chip, chips = kinds[0]
    idle = [count * energy.static_power(kind, decode_cores) for kind, count in kinds]
    seconds, dynamic = [phase_energy[1] for phase_energy in spent], [phase_energy[0] for phase_energy in spent]
    for joules, took in spent:
        peak = maximum(peak, joules / maximum(took, NOTHING))
    latency = sum_nonzero(seconds)
    static = [watts * latency for watts in idle]
    first = sum_nonzero(dynamic) + static[0]
    joules = first + sum(static[1:]) if len(kinds) > 1 else first
    rated = partial(energy.peak_design_power, chip, decode_cores)
    prices: dict[str, Any] = {}

    def priced() -> dict[str, Any]:
        if not prices:
            prices.update(price.token_price_by_part(chip, chips, latency, first, tokens, decode_cores))
            for (kind, count), drawn in zip(kinds[1:], static[1:], strict=True):
                for name, worth in price.token_price_by_part(kind, count, latency, drawn, tokens, decode_cores).items():
                    prices[name] = prices[name] + worth
        return prices

    def over_kinds(worth: Callable[[Chip], Any]) -> Any:
        total: Any = chips * worth(chip)
        for kind, count in kinds[1:]:
            total = total + count * worth(kind)
        return total

    def wall_power() -> Any:
        if len(kinds) == 1:
            return price.wall_power(chip, decode_cores)
        return over_kinds(lambda kind: price.wall_power(kind, decode_cores)) / sum(count for _, count in kinds)

    return {
        "energy": joules,
        "energy_per_token": lambda: joules / tokens,
        "power": lambda: joules / maximum(latency, NOTHING),
        "peak_power": lambda: peak + sum(idle) if len(idle) > 1 else peak + idle[0],
        "tdp": rated,
        "power_density": lambda: rated() / area.total_area(chip, decode_cores),
        "wall_power": wall_power,
        "system_price": lambda: over_kinds(lambda kind: price.system_price(kind, decode_cores)),
        "price_per_mtoken": lambda: priced()["chips"] + priced()["electricity"],
        "capital_per_mtoken": lambda: priced()["chips"],
        "electricity_per_mtoken": lambda: priced()["electricity"],
        "rent_per_mtoken": lambda: over_kinds(lambda kind: kind.economics.rent) * latency * (1e6 / tokens),
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
