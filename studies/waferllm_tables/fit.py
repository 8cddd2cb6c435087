"""Fits the six constants of ``chip=wse2`` that no document gives, on the rows of ``published.csv`` whose role is calibration.

    python -m studies.waferllm_tables.fit

One set for WaferLLM, T10 and Ladder, prefill and decode, all models and meshes. WaferLLM's rows weigh most, since they are
what the chip can do; T10's fix the cost of relaying, Ladder's, whose program is a reading, weigh least.
"""

import csv
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dse.build import question
from dse.compose import compose, folder_of
from dse.validate import KERNEL, kernel_of
from evaluators import evaluate
from evaluators.mesh import kernel_seconds
from space.chip import MeshChip
from space.design import Design, stacked
from space.fields import replaced
from space.units import parse

ADDRESSES = tuple(f"chip.core.{name}" for name in ("launch", "post", "copy", "stage", "call", "mac"))
START = (138.0, 84.0, 3.0, 14.0, 3.0, 0.48)
WEIGHTS = {"waferllm": 1.0, "t10": 0.3, "ladder": 0.15}
HOLDS = (("meshgemm", 0.70, 1.0), ("cannon", 0.0, 0.50), ("summa", 0.0, 0.50))
"""Section 7.2: shares of the time that products take in an 8K GEMM on 720 x 720 cores."""


def rows(chip: str) -> list[tuple[str, float, Callable[[dict[str, float]], float]]]:
    """(id, weight, logarithm of simulated over published for some constants) of each calibration row of a chip."""
    found = []
    with Path(__file__).with_name("published.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["role"] == "calibration" and f"chip={chip}" in row["overrides"].split():
                config = compose(shlex.split(row["overrides"]))
                asked = question(config, folder_of(config))
                system = next((name for name in ("t10", "ladder") if row["id"].endswith(name)), "waferllm")
                weight = WEIGHTS[system] * (0.5 if row["where"] == "table 2" else 1.0)
                kernel = KERNEL.fullmatch(row["metric"])

                def error(values: dict[str, float], asked=asked, row=row, kernel=kernel) -> float:  # type: ignore
                    design: Design = replaced(asked.base, values)
                    if kernel is not None:
                        return float(np.log(kernel_of(kernel, design) / parse(f"{row['value']} {row['unit']}", "s")))
                    simulated = evaluate(stacked([design]), asked.workload).columns[row["metric"]][0]
                    return float(np.log(simulated / float(row["value"])))

                found.append((row["id"], weight, error))
    return found


def efficiencies(chip: MeshChip) -> list[float]:
    """By how much the statements of section 7.2 are missed."""
    missed = []
    for name, low, high in HOLDS:
        value = kernel_seconds(chip, "gemm", name, (8192, 8192, 8192), (720, 720), part="efficiency")
        missed.append(min(0.0, value - low) + max(0.0, value - high))
    return missed


def main() -> None:
    """Prints the constants and the residuals, system by system."""
    from scipy.optimize import least_squares

    known = rows("wse2")
    base = question(compose(["chip=wse2"]), Path()).base

    def residuals(scaled: np.ndarray) -> list[float]:
        values = {a: float(start * scale) for a, start, scale in zip(ADDRESSES, START, scaled, strict=True)}
        chip = replaced(base, values).chip
        assert isinstance(chip, MeshChip)
        return [weight * error(values) for _, weight, error in known] + efficiencies(chip)

    fit = least_squares(residuals, np.ones(len(START)), bounds=(0.05, 5.0), diff_step=1e-3)
    for address, start, scale in zip(ADDRESSES, START, fit.x, strict=True):
        print(f"{address:18} {start * scale:.4g} cycle")
    values = {a: float(start * scale) for a, start, scale in zip(ADDRESSES, START, fit.x, strict=True)}
    for name, _, error in known:
        print(f"{name:28} {np.expm1(error(values)):+.1%}")


if __name__ == "__main__":
    main()
