"""Findings on latency of one request by model, SRAM and HBM, and its breakdown."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate, explain
from dse.space.fields import replace_leaves
from dse.studies.designs import metrics
from dse.studies.markdown_table import table

FLOORS = {
    "as configured": (),
    "arrays only, each weight tile filled and drained": ("chip.tile.gemm_engine=matrix",),
    "one 16-bit weight a cycle and row of an array": ("chip.tile.sram_per_row=2 B/cycle",),
}
"""How fast weights reach what multiplies."""

RESOURCES = {"matrix": "array", "vector": "lanes", "hbm": "HBM", "network": "links"}


def finding() -> str:
    """One row per model and SRAM size; then one row per array size and bandwidth."""
    question = find_study("npusim_fig8").question
    size = question.space.combinations
    assert size is not None
    columns = question.space.grid(0, size)
    latency = evaluate(question.space.stack(columns), question.workload, cases=True).cases["latency"]
    square = (columns["chip.tile.matrix.rows"] == 128) & (columns["chip.tile.matrix.cols"] == 128)
    sram, hbm = columns["chip.tile.sram"], columns["chip.hbm.channel_bandwidth"]
    rows = []
    for case, seconds in zip(question.workload.cases, latency, strict=True):
        for held in np.unique(sram):
            row_seconds = [seconds[square & (sram == held) & (hbm == rate)][0] for rate in np.unique(hbm)]
            rows.append([str(case.label).split()[0], f"{held / 1e6:.0f}", *(f"{value:.3g}" for value in row_seconds)])
    first = table(["model", "SRAM [MB a core]", *(f"HBM {rate / 1e9:.0f} GB/s [s]" for rate in np.unique(hbm))], rows)
    return "\n\n".join([first, _largest(), _floors()])


def _largest() -> str:
    """Where the latency of Qwen3-32B goes, with half of array side and bandwidth and with all."""
    question = find_study("npusim_fig8", "model=qwen3_32b").question
    rows = []
    for side, bandwidth in ((64, 120e9), (128, 240e9)):
        array = {"chip.tile.matrix.rows": side, "chip.tile.matrix.cols": side}
        explanation = explain(
            replace_leaves(question.base, array | {"chip.hbm.channel_bandwidth": bandwidth}), question.workload.cases[0]
        )
        spent = [sum(row.parts.get(name, 0.0) for row in explanation.rows) for name in RESOURCES]
        rows.append([f"{side} x {side}, {bandwidth / 1e9:.0f} GB/s", *(f"{seconds:.3g}" for seconds in (*spent, sum(spent)))])
    return table(["Qwen3-32B", *(f"{name} [s]" for name in RESOURCES.values()), "all [s]"], rows)


def _floors() -> str:
    """Speedup of the largest model with array side and bandwidth doubled, by other bottlenecks of decode."""
    both = [
        {"chip.tile.matrix.rows": side, "chip.tile.matrix.cols": side, "chip.hbm.channel_bandwidth": bandwidth}
        for side, bandwidth in ((64, 120e9), (128, 240e9))
    ]
    rows = []
    for floor, overrides in FLOORS.items():
        half, whole = metrics("npusim_fig8", both, "model=qwen3_32b", *overrides)
        rows.append([floor, f"{half['latency'] / whole['latency']:.2f}"])
    return table(["floor of decode", "64 x 64, 120 GB/s over 128 x 128, 240 GB/s"], rows)
