"""Fit the few numbers of inference engines' stacks on measured rates, by least squares of log ratios.

    python -m dse.studies.engines.fit STACK [...]

A stack's numbers are leaves of `mapping.stack`, and are fitted on all rows of its engines at once. The simulator is called
where a point is new; between points, logs of rates are taken as quadratic in the log of each number (`RateSurface`).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.studies.engines.rows import EngineRow, measured_rows, simulate_rows

STEP = 1.5
"""Factor by which each number is moved to see what it does."""


class FittedNumber(NamedTuple):
    """A number of a stack with its start value and bounds, in SI.

    Attributes:
        stacks: names of the stacks that have it; empty for all of a fit.
        kind: beginning of the kinds of rows that it touches; empty string for all.
        unit: of its values; empty string for a share or a count.
    """

    address: str
    start: float
    low: float
    high: float
    stacks: tuple[str, ...] = ()
    kind: str = ""
    unit: str = ""

    def touches(self, row: EngineRow) -> bool:
        """Whether the number has an effect on the rate of a row; one chip has no links."""
        linked = row.tp > 1 or not self.address.startswith("network_")
        return linked and (not self.stacks or row.stack in self.stacks) and row.kind.startswith(self.kind)


VENDOR = (
    FittedNumber("matrix_efficiency", 0.5, 0.02, 1.0),
    FittedNumber("hbm_efficiency", 0.8, 0.2, 0.95),
    FittedNumber("network_efficiency", 0.3, 0.02, 1.0),
    FittedNumber("iteration.host_time", 2e-3, 1e-5, 2e-2, unit="s"),
)
"""Numbers of a vendor's stack: what libraries and links reach, and the time of the host."""

FITS: dict[str, tuple[FittedNumber, ...]] = {
    "trtllm": (
        FittedNumber("matrix_efficiency", 0.738, 0.3, 1.0),
        FittedNumber("matrix_energy", 1.266e-13, 2e-14, 6e-13, unit="J"),
        FittedNumber("network_half_size", 17e6, 1e6, 1e8, ("trtllm_v0",), unit="B"),
        FittedNumber("iteration.eager_launch", 28e-6, 5e-6, 2e-4, ("trtllm_v1",), unit="s"),
        FittedNumber("moe.row_passes", 10.2, 1.0, 60.0, kind="experts"),
        FittedNumber("moe.expanded_pace", 2.1, 1.0, 6.0, ("trtllm_v1",), kind="experts, TP 1"),
        FittedNumber("moe.imbalance", 0.95, 0.05, 4.0, kind="experts, EP"),
    ),
    "gaudi2": VENDOR,
    "gaudi3": VENDOR,
    "mi300x_vllm": VENDOR,
    "tt_metal": VENDOR,
    "groq": (FittedNumber("operator_launch", 1e-6, 1e-8, 1e-5, unit="s"),),
}
"""Fitted numbers of each stack, or of several that share them."""


def rows_of_fit(name: str) -> tuple[EngineRow, ...]:
    """Rows of the stacks of a fit."""
    return tuple(row for row in measured_rows() if row.stack == name or row.stack.startswith(f"{name}_v"))


def overrides_of(row: EngineRow, numbers: Sequence[FittedNumber], values: Sequence[float] | Array) -> list[str]:
    """Overrides of the stack of a row by fitted numbers."""
    own = ((number, value) for number, value in zip(numbers, values, strict=True) if number.touches(row))
    return [f"mapping.stack.{number.address}={value:.6g} {number.unit}".strip() for number, value in own]


def simulate_logs(
    rows: Sequence[EngineRow], numbers: Sequence[FittedNumber], values: Sequence[float] | Array, stack: str = ""
) -> Array:
    """Log of simulated over measured speed of each row, shape (rows,).

    Args:
        rows: measured.
        numbers, values: of the stack, and what they are.
        stack: its name; empty string for that of each row's engine.
    """
    ratios = (simulate_rows([row], *overrides_of(row, numbers, values), stack=stack)[0] for row in rows)
    logs: Array = np.log(np.fromiter(ratios, float, len(rows)))
    return logs


@dataclass(frozen=True, slots=True)
class RateSurface:
    """Logs of ratios around a point, quadratic in the log of each number and additive over numbers.

    Attributes:
        centre: logs of the numbers, shape (numbers,).
        at_centre: logs of ratios there, shape (rows,).
        slope, bend: first and half the second derivative, shape (rows, numbers).
    """

    centre: Array
    at_centre: Array
    slope: Array
    bend: Array

    def __call__(self, logs: Array, rows: Any = slice(None)) -> Array:
        """Logs of ratios of some rows at logs of numbers."""
        step: Array = np.clip(logs - self.centre, -4 * np.log(STEP), 4 * np.log(STEP))
        logs_of_rows: Array = self.at_centre[rows] + self.slope[rows] @ step + self.bend[rows] @ step**2
        return logs_of_rows


def rate_surface(
    rows: Sequence[EngineRow], numbers: Sequence[FittedNumber], values: Sequence[float] | Array, stack: str = ""
) -> RateSurface:
    """Surface around a point, from one simulation there and two for each number.

    Args:
        rows, numbers, values, stack: as of `simulate_logs`.
    """
    centre = np.array(values, float)
    at_centre = simulate_logs(rows, numbers, centre, stack)
    slope, bend = (np.zeros((len(rows), len(numbers))) for _ in range(2))
    for place, number in enumerate(numbers):
        high = centre.copy()
        high[place] = min(centre[place] * STEP, number.high)
        low = centre.copy()
        low[place] = max(centre[place] / STEP, number.low)
        steps = np.log(high[place] / centre[place]), np.log(low[place] / centre[place])
        touched = [i for i, row in enumerate(rows) if number.touches(row)]
        own = [rows[i] for i in touched]
        rises = [
            simulate_logs(own, numbers, end, stack) - at_centre[touched] if step else 0.0
            for end, step in zip((high, low), steps, strict=True)
        ]
        # a number at its bound has one side only, and no bend
        if not all(steps):
            slope[touched, place] = sum(rises) / sum(steps)
            continue
        (up, down), (rise, fall) = steps, rises
        bend[touched, place] = (rise / up - fall / down) / (up - down)
        slope[touched, place] = rise / up - bend[touched, place] * up
    return RateSurface(np.log(centre), at_centre, slope, bend)


def fit_on(surface: RateSurface, numbers: Sequence[FittedNumber], rows: Any = slice(None), reach: float = np.inf) -> Array:
    """Numbers that fit some rows of a surface best, in SI, by soft least squares of log ratios.

    Args:
        surface: of all rows.
        numbers: with their bounds.
        rows: places of those that are fitted.
        reach: most that the log of a number may move.
    """
    from scipy.optimize import least_squares

    low = np.maximum(np.log([number.low for number in numbers]), surface.centre - reach)
    high = np.minimum(np.log([number.high for number in numbers]), surface.centre + reach)
    pull = 0.02 * np.sqrt(len(surface.at_centre))

    def off(logs: Array) -> Array:
        # numbers that no row tells stay where they are
        return np.concatenate([surface(logs, rows), pull * (logs - surface.centre)])

    start = np.clip(surface.centre, low + 1e-9, high - 1e-9)
    values: Array = np.exp(least_squares(off, start, bounds=(low, high), loss="soft_l1", f_scale=0.15).x)
    return values


def fit_stack(name: str, rounds: int = 2, start: Sequence[float] = ()) -> tuple[Array, RateSurface]:
    """Fitted numbers of a stack, and the surface around the last point."""
    numbers, rows = FITS[name], rows_of_fit(name)
    values = np.array(start if len(start) else [number.start for number in numbers])
    surface = rate_surface(rows, numbers, values)
    for _ in range(rounds - 1):
        values = fit_on(surface, numbers, reach=1.0)
        surface = rate_surface(rows, numbers, values)
    return fit_on(surface, numbers, reach=1.0), surface


def scores(logs: Array) -> dict[str, float]:
    """Bias, median error, share within 20 % and percentiles, from logs of simulated over measured."""
    errors = np.exp(logs) - 1
    low, high = np.exp(-np.percentile(logs, (90, 10)))
    return {
        "bias": float(np.median(errors)),
        "median": float(np.median(np.abs(errors))),
        "within": float(np.mean(np.abs(errors) <= 0.2)),
        "low": float(low),
        "high": float(high),
    }


def describe(scored: Mapping[str, float]) -> list[str]:
    """Scores as cells of a table."""
    return [
        f"{scored['bias']:+.0%}",
        f"{scored['median']:.1%}",
        f"{scored['within']:.0%}",
        f"{scored['low']:.2f}..{scored['high']:.2f}",
    ]


def main(names: Sequence[str]) -> None:
    """Fit stacks and print their numbers."""
    for name in names or FITS:
        numbers, rows = FITS[name], rows_of_fit(name)
        values, surface = fit_stack(name)
        print(name, f"{len(rows)} rows", "before:", *describe(scores(surface.at_centre)))
        for number, value in zip(numbers, values, strict=True):
            print(f"  {number.address:28} {value:.4g}")
        print("  fitted:", *describe(scores(simulate_logs(rows, numbers, values))))


if __name__ == "__main__":
    main(sys.argv[1:])
