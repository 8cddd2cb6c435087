"""Findings on the best cores, algorithms and K per phase, against the paper's choice."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.studies.markdown_table import table

PAPER = {"mapping.prefill.rows": 660.0, "mapping.decode.rows": 360.0}


def finding() -> str:
    """Rows of the front, and the paper's choice."""
    question = find_study("waferllm_autotune").question
    size = question.space.combinations
    assert size is not None
    columns = question.space.grid(0, size)
    outcomes = evaluate(question.space.stack(columns), question.workload)
    rows = []
    for phase, metric in (("prefill", "prefill_throughput"), ("decode", "tokens_per_s_per_user")):
        algorithm = f"mapping.{phase}.{'gemm' if phase == 'prefill' else 'gemv'}"
        for code, name in enumerate(question.space.knob(algorithm).values):  # type: ignore[union-attr]
            feasible = outcomes.feasible & (np.asarray(columns[algorithm]) == code)
            if not feasible.any():
                rows.append([phase, str(name), "-", "-", "-", "-"])
                continue
            best = np.flatnonzero(feasible)[np.argmax(outcomes.columns[metric][feasible])]
            at = feasible & (np.asarray(columns[f"mapping.{phase}.rows"], dtype=float) == PAPER[f"mapping.{phase}.rows"])
            paper = f"{outcomes.columns[metric][at].max():.0f}" if at.any() else "does not fit"
            k = str(columns["mapping.decode.ktree_k"][best]) if name == "ktree" else ""
            side = int(columns[f"mapping.{phase}.rows"][best])
            rows.append([phase, f"{name} {k}".strip(), f"{side} x {side}", f"{outcomes.columns[metric][best]:.0f}", paper, ""])
    head = ["phase", "algorithm (and K)", "best cores", "token/s", "token/s on the paper's 660 x 660 or 360 x 360"]
    return table(head, [row[:5] for row in rows])
