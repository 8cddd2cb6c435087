"""How far events are from cycles, by family and by kernel, from ``gaps.csv``."""

from pathlib import Path

import pandas as pd

from studies.write import table

SHOWN = 0.005
"""Gaps below it are counted, and not listed."""


def finding() -> str:
    """A row a family, then the kernels that differ."""
    frame = pd.read_csv(Path(__file__).with_name("gaps.csv"))
    frame["gap"] = frame["events"] / frame["cycles"] - 1
    families = [(family, frame[frame["family"] == family]["gap"]) for family in frame["family"].unique()]
    rows = [
        [name, str(len(gap)), f"{gap.abs().median():.1%}", f"{gap[gap.abs().idxmax()]:+.1%}"]
        for name, gap in (*families, ("all", frame["gap"]))
    ]
    listed = [
        [row.family, row.kernel, row.chip, f"{1e6 * row.events:.2f}", f"{1e6 * row.cycles:.2f}", f"{row.gap:+.1%}"]
        for row in frame[frame["gap"].abs() >= SHOWN].sort_values("gap").itertuples()
    ]
    by_family = table(["family", "kernels", "median gap", "largest gap"], rows)
    return by_family + "\n\n" + table(["family", "kernel", "chip", "events, us", "cycles, us", "gap"], listed)
