"""Findings on figure 9: mean prefetch speedup of twelve models by matrix and L2 throughput."""

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.studies.markdown_table import table


def finding() -> str:
    """Table of speedups by matrix throughput (rows) and L2 bandwidth (columns)."""
    question = find_study("preserve_fig9").question
    space = question.space
    matrix, bandwidth = (space.knob(address).values for address in ("chip.core.matrix", "chip.l2.bandwidth"))  # type: ignore[union-attr]
    columns = space.grid(0, space.combinations or 0)
    latency = evaluate(space.stack(columns), question.workload, cases=True).cases["latency"]
    seconds = {}
    for row in range(latency.shape[1]):
        values = space.row(columns, row)
        seconds[tuple(values.values())] = latency[:, row]
    cores = question.base.chip.cores
    rows = [
        [f"{m * cores / 1e12:.0f}", *(f"{(seconds[m, b, 'none'] / seconds[m, b, 'whole']).mean():.3f}" for b in bandwidth)]
        for m in matrix
    ]
    return table(["matrix throughput [Top/s]", *(f"L2 {b / 1e12:.0f} TB/s" for b in bandwidth)], rows)
