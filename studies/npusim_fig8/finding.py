"""Latency of one request by model, SRAM and HBM, with arrays of 128 x 128."""

import numpy as np

from dse.api import study_of
from evaluators import evaluate
from studies.write import table


def finding() -> str:
    """One row a model and size of SRAM."""
    asked = study_of("npusim_fig8").question
    size = asked.space.combinations
    assert size is not None
    columns = asked.space.grid(0, size)
    found = evaluate(asked.space.stack(columns), asked.workload, cases=True).cases["latency"]
    square = (columns["chip.tile.matrix.rows"] == 128) & (columns["chip.tile.matrix.cols"] == 128)
    sram, hbm = columns["chip.tile.sram"], columns["chip.hbm.bandwidth"]
    rows = []
    for case, seconds in zip(asked.workload.cases, found, strict=True):
        for held in np.unique(sram):
            here = [seconds[square & (sram == held) & (hbm == rate)][0] for rate in np.unique(hbm)]
            rows.append([str(case.label).split()[0], f"{held / 1e6:.0f}", *(f"{value:.3g}" for value in here)])
    return table(["model", "SRAM [MB a core]", *(f"HBM {rate / 1e9:.0f} GB/s [s]" for rate in np.unique(hbm))], rows)
