"""Measure latency against load of a router mesh by pattern, packet length and channels.

    python -m dse.studies.noc_curves

The command writes ``curves.csv``, ``curves.svg`` and this study's README.md.
"""

import csv
from pathlib import Path

from dse.config.question import Question
from dse.evaluators.workloads.kernels import evaluate_cases
from dse.studies.noc_curves.figure import draw_figure
from dse.studies.noc_curves.loads import CONFIGURATIONS, LOADS, PATTERNS, make_question
from dse.studies.write import main as write
from dse.terminal.progress import say

HERE = Path(__file__).parent
HEAD = ("pattern", "flits", "routers", "bound", "rate", "latency", "p99", "accepted", "verdict")


def main() -> None:
    """Measure the curves, and write the table, the figure and the README."""
    with (HERE / "curves.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(HEAD)
        for routers in CONFIGURATIONS:
            for pattern in PATTERNS:
                for flits in (1, 5):
                    bound = float(_metrics(make_question(routers, pattern, flits, 1.0), "analytical")["accepted_throughput"])
                    for load in LOADS:
                        metrics = _metrics(make_question(routers, pattern, flits, round(load * bound, 6)), "cycles")
                        values = (metrics["packet_latency"], metrics["packet_latency_p99"], metrics["accepted_throughput"])
                        row = (pattern, flits, routers, bound, load * bound, *values, int(metrics["traffic_status"]))
                        lines.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in row])
                    say(f"{routers}, {pattern}, packets of {flits}")
    (HERE / "curves.svg").write_text(draw_figure(HERE / "curves.csv"))
    write(["noc_curves"])


def _metrics(question: Question, fidelity: str) -> dict[str, float]:
    (outcome,) = evaluate_cases(question.base, question.workload, fidelity)
    return {name: float(value) for name, value in outcome.metrics.items()}


if __name__ == "__main__":
    main()
