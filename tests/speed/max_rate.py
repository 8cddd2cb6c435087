"""What the maximum rate costs in the steady state, and how near it is to the simulation's.

python -m tests.speed.max_rate [CHIP ...] [--designs N] [--seed S] [--simulated N]

Random designs of the study `mesh_llm` that keep all limits known before times. CPU milliseconds a design of `max_rate`, of the
throughput at a fixed rate, and both again with known iteration times; then, of the first designs, the ratio of both rates.
"""

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.evaluators.evaluation import evaluate, find_worst_limits
from dse.space.knobs import Columns

CHIPS = ("tile_gh200", "npu_whole", "npu_dse", "wafer64", "wse2")

MOST = 8
"""Times as many designs are drawn as are wanted, since most break a limit."""


def question_of(chip: str, *more: str) -> Question:
    config = compose(("study=mesh_llm", f"chips=[{chip}]", *more))
    return build_question(config, find_study_folder(config), fewer=True)


def drawn(question: Question, count: int, rng: np.random.Generator) -> Columns:
    """Knobs of random designs that keep the limits."""
    columns = question.space.sample(rng.random((MOST * count, len(question.space.knobs))))
    kept = np.flatnonzero(find_worst_limits(question.space.stack(columns), question.workload).feasible)[:count]
    return {address: column[kept] for address, column in columns.items()}


def spent(question: Question, columns: Columns, metric: str) -> float:
    """CPU milliseconds a design of a metric in the steady state."""
    designs, start = question.space.stack(columns), time.process_time()
    evaluate(designs, question.workload, fidelity="steady_state", metrics=[metric])
    return 1e3 * (time.process_time() - start) / len(designs)


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.speed.max_rate", description=__doc__)
    words.add_argument("chips", nargs="*", default=CHIPS)
    words.add_argument("--designs", type=int, default=64)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--simulated", type=int, default=8, help="designs that are simulated as well")
    given = words.parse_args()
    table = Table(
        "chip",
        "designs",
        "max_rate, ms",
        "again",
        "fixed rate, ms",
        "again",
        "rates over the simulation's, least, median, most",
    )
    for chip in given.chips:
        largest, fixed = question_of(chip), question_of(chip, "workload.rate='1 Hz'", "workload.resample=false")
        rng = np.random.default_rng(given.seed)
        spent(largest, drawn(largest, 2, rng), "max_rate")  # compiles the loops
        columns, others = (drawn(largest, given.designs, rng) for _ in range(2))
        times = [spent(largest, columns, "max_rate"), spent(largest, columns, "max_rate")]
        times += [spent(fixed, others, "throughput"), spent(fixed, others, "throughput")]
        ratios = []
        few = {address: column[: given.simulated] for address, column in columns.items()}
        rates = evaluate(largest.space.stack(few), largest.workload, fidelity="steady_state", metrics=["max_rate"]).columns
        for row, rate in enumerate(rates["max_rate"].tolist()):
            one = largest.space.stack({address: column[[row]] for address, column in few.items()})
            (simulated,) = evaluate(one, largest.workload, fidelity="analytical", metrics=["max_rate"]).columns["max_rate"]
            ratios += [rate / simulated] if simulated > 0 else []
        spread = [f"{value:.3f}" for value in np.quantile(ratios, [0, 0.5, 1])] if ratios else ["none"]
        table.add_row(chip, str(len(next(iter(columns.values())))), *(f"{value:.1f}" for value in times), ", ".join(spread))
    Console(width=160, highlight=False).print(table)


if __name__ == "__main__":
    main()
