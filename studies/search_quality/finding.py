"""Findings on samplers from ``shares.csv``: evaluations to 99 % of hypervolume, and designs matched."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from dse.studies.markdown_table import table

TARGET = 0.99

FEW = 10
"""Designs of a front up to which its hypervolume says little: one design may hold most of it, or a search none."""


def finding() -> str:
    """Tables with a row per sampler: of hypervolume, and of the front's designs."""
    return summarise(pd.read_csv(Path(__file__).with_name("shares.csv")))


def summarise(frame: pd.DataFrame) -> str:
    """The two tables of a frame with the columns of ``shares.csv``."""
    names = list(frame["space"].unique())
    searches, closed = frame[frame["sampler"] != "closed front"], frame[frame["sampler"] == "closed front"].set_index("space")
    samplers = list(searches["sampler"].unique())

    def rows(cell: Callable[[pd.DataFrame], str]) -> list[list[str]]:
        return [
            [sampler, *(cell(searches[(searches["space"] == name) & (searches["sampler"] == sampler)]) for name in names)]
            for sampler in samplers
        ]

    screen = ["front of the screen by itself"]
    screen += [
        f"{closed['share'][name]:.1%} ({closed['budget'][name]} designs)" if name in closed.index else "" for name in names
    ]
    heads = [_head(frame[frame["space"] == name]) for name in names]
    fronts = ["designs of the exact front", *(_front(frame[frame["space"] == name]) for name in names)]
    coverage = rows(lambda own: "" if own["coverage"].isna().all() else f"{own['coverage'].mean():.0%}")
    return "\n".join(
        (
            table(["sampler", *heads], [*rows(_rate), screen]),
            "",
            "Share of the exact front's designs that a search has to 1 % in each objective, at the end of the budget:",
            "",
            table(["sampler", *names], [fronts, *coverage]),
        )
    )


def _front(own: pd.DataFrame) -> str:
    """How many designs are on the exact front of a grid."""
    return f"{own['front'].max():,.0f}" if own["front"].notna().any() else ""


def _head(own: pd.DataFrame) -> str:
    """Grid, budget and designs, and a warning where the front has few."""
    searches, front = own[own["sampler"] != "closed front"], own["front"].max()
    few = f"; a front of {front:.0f}, of which hypervolume says little" if front <= FEW else ""
    return f"{own['space'].iloc[0]}: {searches['budget'].max():,} of {searches['designs'].max():,}{few}"


def _rate(own: pd.DataFrame) -> str:
    """How many seeds have the target within the budget, the median evaluations to it, and the mean share at the end."""
    if not len(own):
        return ""
    counts = np.sort(own["found"].fillna(np.inf))
    middle = float(counts[(len(own) - 1) // 2])
    rate = f"{np.isfinite(counts).sum()} of {len(own)}"
    return f"{rate}; {f'{middle:,.0f}' if np.isfinite(middle) else '-'}; {own['share'].mean():.1%}"
