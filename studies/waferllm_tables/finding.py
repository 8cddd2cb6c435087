"""Published against simulated, table by table: mean and worst error of each system."""

from pathlib import Path

import numpy as np

from dse.validate import compare
from studies.write import table

GROUPS = (
    ("WaferLLM, end to end (table 2)", lambda row: row.where.startswith("table 2") and row.note.startswith("LLaMA")),
    ("WaferLLM, prefill (table 3)", lambda row: row.where.startswith("table 3") and row.note.startswith("waferllm")),
    ("WaferLLM, decode (table 4)", lambda row: row.where.startswith("table 4") and row.note.startswith("waferllm")),
    ("T10 (tables 2 to 4)", lambda row: row.note.startswith("t10")),
    ("Ladder (tables 2 to 4)", lambda row: row.note.startswith("ladder")),
    ("KV cache capacity (table 5)", lambda row: row.where.startswith("table 5")),
    ("GEMV (table 6)", lambda row: row.where.startswith("table 6")),
    ("energy (table 8)", lambda row: row.where.startswith("table 8")),
)


def finding() -> str:
    """One row a group of figures."""
    rows = compare(Path(__file__).with_name("published.csv"))
    lines = []
    for name, belongs in GROUPS:
        errors = [row.error for row in rows if belongs(row) and row.error is not None]
        worst = max(errors, key=abs)
        lines.append([name, str(len(errors)), f"{np.mean(np.abs(errors)):.1%}", f"{worst:+.1%}"])
    return table(["figures", "rows", "mean error", "worst"], lines)
