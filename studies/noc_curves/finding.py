"""Findings on loads of a mesh: latencies and saturation by pattern, from ``curves.csv``."""

from pathlib import Path

import pandas as pd

from dse.studies.markdown_table import table

SHOWN = (0, 2, 4, 5)
"""Which of the loads have a column."""


def finding() -> str:
    """One row per pattern, packet length and kind of routers."""
    frame = pd.read_csv(Path(__file__).with_name("curves.csv"))
    rows = []
    for (routers, pattern, flits), current_rows in frame.groupby(["routers", "pattern", "flits"], sort=False):
        latencies = [f"{current_rows['latency'].iloc[at]:.1f}{_mark(int(current_rows['verdict'].iloc[at]))}" for at in SHOWN]
        bound, most = float(current_rows["bound"].iloc[0]), float(current_rows["accepted"].max())
        rows.append([routers, pattern, str(flits), *latencies, f"{bound:.3f}", f"{most:.3f} ({most / bound:.0%})"])
    shares = (frame["rate"] / frame["bound"]).round(2).unique()
    head = ["routers", "pattern", "flits", *(f"at {shares[at]:.0%}" for at in SHOWN), "bound", "most accepted"]
    return table(head, rows)


def _mark(verdict: int) -> str:
    return ("", " (not settled)", " (saturated)")[verdict]
