"""Fit the six undocumented constants of ``chip=wse2`` on the calibration rows of ``published.csv``.

    python -m dse.studies.waferllm_tables.fit

One set holds for WaferLLM, T10 and Ladder, prefill and decode, all models and meshes. WaferLLM's rows weigh most, since
they show what the chip can do. T10's rows fix the cost of relaying. Ladder's program is inferred, so its rows weigh
least.
"""

import csv
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves

ADDRESSES = tuple(
    f"chip.core.{name}" for name in ("launch", "message_start", "word_copy", "software_stage", "vector_start", "mac")
)
START = (138.0, 84.0, 3.0, 14.0, 3.0, 0.48)
WEIGHTS = {"waferllm": 1.0, "t10": 0.3, "ladder": 0.15}
HOLDS = (("meshgemm", 0.70, 1.0), ("cannon", 0.0, 0.50), ("summa", 0.0, 0.50))
"""Section 7.2: shares of products in the time of an 8K GEMM on 720 x 720 cores."""


def rows(chip: str) -> list[tuple[str, float, Callable[[dict[str, float]], float]]]:
    """Id, weight and log error function of each calibration row of a chip."""
    rows = []
    with Path(__file__).with_name("published.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["role"] == "calibration" and f"chip={chip}" in row["overrides"].split():
                config = compose(shlex.split(row["overrides"]))
                question = build_question(config, find_study_folder(config))
                system = next((name for name in ("t10", "ladder") if row["id"].endswith(name)), "waferllm")
                weight = WEIGHTS[system] * (0.5 if row["where"] == "table 2" else 1.0)

                def error(values: dict[str, float], row_question=question, row=row) -> float:  # type: ignore
                    return float(np.log(simulate_metric(row_question, values, row["metric"]) / float(row["value"])))

                rows.append((row["id"], weight, error))
    return rows


def simulate_metric(question: Question, values: dict[str, float], metric: str) -> float:
    """Metric of a question's design with some constants changed."""
    design = replace_leaves(question.base, values)
    return float(evaluate(stack_designs([design]), question.workload).columns[metric][0])


def statements() -> list[tuple[Question, float, float]]:
    """Questions with the efficiency ranges that section 7.2 of the paper states."""
    statements = []
    for name, low, high in HOLDS:
        overrides = [
            "chip=wse2",
            "workload=gemm",
            "workload.shapes=[8192x8192x8192]",
            "mapping.rows=720",
            f"mapping.gemm={name}",
        ]
        statements.append((build_question(compose(overrides), Path()), low, high))
    return statements


def main() -> None:
    """Print the constants and the residuals, system by system."""
    from scipy.optimize import least_squares

    known, given_statements = rows("wse2"), statements()

    def residuals(scaled: np.ndarray) -> list[float]:
        values = {a: float(start * scale) for a, start, scale in zip(ADDRESSES, START, scaled, strict=True)}
        shares = [
            (simulate_metric(row_question, values, "compute_share"), low, high) for row_question, low, high in given_statements
        ]
        missed = [min(0.0, share - low) + max(0.0, share - high) for share, low, high in shares]
        return [weight * error(values) for _, weight, error in known] + missed

    fit = least_squares(residuals, np.ones(len(START)), bounds=(0.05, 5.0), diff_step=1e-3)
    for address, start, scale in zip(ADDRESSES, START, fit.x, strict=True):
        print(f"{address:18} {start * scale:.4g} cycle")
    values = {a: float(start * scale) for a, start, scale in zip(ADDRESSES, START, fit.x, strict=True)}
    for name, _, error in known:
        print(f"{name:28} {np.expm1(error(values)):+.1%}")


if __name__ == "__main__":
    main()
