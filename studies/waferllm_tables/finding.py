"""Findings on published tables: mean and worst error of each system."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dse.accuracy.validate import ValidationRow, compare_file
from dse.studies.markdown_table import table


def _of_gpus(*metrics: str, role: str = "") -> Callable[[ValidationRow], bool]:
    def belongs(row: ValidationRow) -> bool:
        return "GPU" in row.note and row.metric.startswith(metrics) and role in ("", row.role)

    return belongs


GROUPS: tuple[tuple[str, Callable[[ValidationRow], bool]], ...] = (
    ("WaferLLM, end to end (table 2)", lambda row: row.where.startswith("table 2") and row.note.startswith("LLaMA")),
    ("WaferLLM, prefill (table 3)", lambda row: row.where.startswith("table 3") and row.note.startswith("waferllm")),
    ("WaferLLM, decode (table 4)", lambda row: row.where.startswith("table 4") and row.note.startswith("waferllm")),
    ("T10 (tables 2 to 4)", lambda row: row.note.startswith("t10")),
    ("Ladder (tables 2 to 4)", lambda row: row.note.startswith("ladder")),
    ("KV cache capacity (table 5)", lambda row: row.where.startswith("table 5")),
    ("GEMV (table 6)", lambda row: row.where == "table 6" and "GPU" not in row.note),
    ("energy (table 8)", lambda row: row.where == "table 8" and "GPU" not in row.note),
    ("A100, prefill: 8B and 13B, fitted (tables 3 and 7)", _of_gpus("prefill_throughput", role="calibration")),
    ("A100, prefill: 34B on 8 and 16 (table 3)", _of_gpus("prefill_throughput", role="check")),
    ("A100, prefill: 34B on one (table 3)", _of_gpus("prefill_throughput", role="report")),
    ("A100, decode: 8B and 13B, fitted (tables 4 and 8)", _of_gpus("tokens_per_s_per_user", role="calibration")),
    ("A100, decode: 72B (table 4)", _of_gpus("tokens_per_s_per_user", role="check")),
    ("A100, GEMV on 1 and 8, fitted (table 6)", _of_gpus("latency", role="calibration")),
    ("A100, GEMV on 16 (table 6)", _of_gpus("latency", role="check")),
    ("A100 over WSE-2, energy (tables 6 to 8)", _of_gpus("rated_energy", "prefill_power", "decode_power")),
    ("A100, end to end (table 2)", _of_gpus("throughput")),
)


def finding() -> str:
    """One row per group of figures, then the paper's duplicate GPU figures."""
    rows = compare_file(Path(__file__).with_name("published.csv"))
    lines = []
    for name, belongs in GROUPS:
        errors = [row.error for row in rows if belongs(row) and row.error is not None and not row.is_range]
        worst = max(errors, key=abs)
        lines.append([name, str(len(errors)), f"{np.mean(np.abs(errors)):.1%}", f"{worst:+.1%}"])
    groups = table(["figures", "rows", "mean error", "worst"], lines)
    return groups + "\n\n" + table(["4096+128 tokens", "table 2", "from prefill and decode", "of it"], _twice(rows))


def _twice(rows: list[ValidationRow]) -> list[list[str]]:
    """Tokens/s of the GPUs in table 2, and those that follow from the rates of prefill and decode in tables 7 and 8."""
    published = {row.id: float(row.published) for row in rows if ".." not in row.published}
    lines = []
    for row in rows:
        model = re.fullmatch(r"w-t2-(\w+)-4096-128-(a100x\d+)", row.id)
        if model:
            prefill, decode = (published[f"w-{name}-{model[1]}-{model[2]}"] for name in ("t3", "t4"))
            implied = 128 / (4096 / prefill + 128 / decode)
            what = ",".join(row.note.split(",")[:2])
            lines.append([what, row.published, f"{implied:.1f}", f"{float(row.published) / implied:.2f}"])
    return lines
