"""Findings on differences between fidelities, from ``gaps.csv`` and ``divided.csv``.

The first file compares events with cycles, the second the analytical model with events.
"""

from pathlib import Path

import pandas as pd

from dse.studies.fidelity_gap.divided import NEAR
from dse.studies.markdown_table import table

SHOWN = 0.02
"""Kernels whose largest gap is below it are counted, and not listed."""

HERE = Path(__file__).parent


def finding() -> str:
    """One row per kernel family, then kernels with differences; the same for divided products."""
    frame = pd.read_csv(HERE / "gaps.csv")
    families = [(family, frame[frame["family"] == family]) for family in frame["family"].unique()]
    rows = [
        [name, str(len(part)), str(int(part["sizes"].sum())), f"{part['median'].abs().median():.1%}", _worst(part)]
        for name, part in (*families, ("all", frame))
    ]
    listed = [
        [row.family, row.kernel, row.chip, f"{row.median:+.1%}", f"{row.worst:+.1%}", row.at]
        for row in frame[frame["worst"].abs() >= SHOWN].sort_values("worst").itertuples()
    ]
    return "\n\n".join((
        table(["family", "kernels", "sizes", "median gap", "largest gap"], rows),
        table(["family", "kernel", "chip", "median", "largest", "at"], listed),
        _divided(),
    ))  # fmt: skip


def _divided() -> str:
    """What share of divided products is near, and the kinds that have others."""
    frame = pd.read_csv(HERE / "divided.csv")
    near = float((frame["near"] * frame["sizes"]).sum() / frame["sizes"].sum())
    count = f"Of {frame['sizes'].sum():,} divided products, closed forms say of {near:.1%}"
    text = f"{count} within {NEAR:.0%} what events do. Kinds with others:"
    others = [
        [row.partition, row.placement, row.routing, f"{row.near:.0%}", f"{row.median:+.1%}", f"{row.worst:+.1%}", row.at]
        for row in frame[frame["near"] < 1].sort_values("near").itertuples()
    ]
    return text + "\n\n" + table(["partition", "placement", "routing", "near", "median", "largest", "at"], others)


def _worst(part: pd.DataFrame) -> str:
    return f"{part['worst'].loc[part['worst'].abs().idxmax()]:+.1%}"
