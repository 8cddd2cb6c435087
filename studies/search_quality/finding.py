"""Findings on samplers: evaluations to 99 % of the exact hypervolume, from ``shares.csv``."""

from pathlib import Path

import numpy as np
import pandas as pd

from dse.studies.write import table

TARGET = 0.99


def finding() -> str:
    """One row per sampler, and the share held by the front of the screen's fidelity alone."""
    frame = pd.read_csv(Path(__file__).with_name("shares.csv"))
    names = list(frame["space"].unique())
    searches, closed = frame[frame["sampler"] != "closed front"], frame[frame["sampler"] == "closed front"].set_index("space")
    head = ["sampler"]
    for name in names:
        search = searches[searches["space"] == name]
        head.append(f"{name}: {search['evaluations'].max():,} of {search['designs'].max():,}")
    rows = [
        [sampler, *(_cell(searches[searches["space"] == name], sampler) for name in names)]
        for sampler in searches["sampler"].unique()
    ]
    seeds = ["front of the screen by itself"]
    seeds += [f"{closed['share'][name]:.1%} ({closed['evaluations'][name]} designs)" for name in names]
    return table(head, [*rows, seeds])


def _cell(frame: pd.DataFrame, sampler: str) -> str:
    """How many seeds have the target within the budget, the median evaluations to it, and the mean share at the end."""
    rows = frame[frame["sampler"] == sampler]
    if not len(rows):
        return ""
    evaluations = rows[rows["share"] >= TARGET].groupby("seed")["evaluations"].min()
    seeds, end = rows["seed"].nunique(), rows[rows["evaluations"] == rows["evaluations"].max()]["share"]
    counts = np.sort([*evaluations, *[np.inf] * (seeds - len(evaluations))])
    middle = float(counts[(seeds - 1) // 2])
    return f"{len(evaluations)} of {seeds}; {f'{middle:,.0f}' if np.isfinite(middle) else '-'}; {end.mean():.1%}"
