"""Share of the exact hypervolume at the end of the budget, by space and sampler, from ``shares.csv``."""

from pathlib import Path

import pandas as pd

from dse.studies.write import table

TARGET = 0.99


def finding() -> str:
    """One row a sampler, and what the closed form's front holds by itself."""
    frame = pd.read_csv(Path(__file__).with_name("shares.csv"))
    names = list(frame["space"].unique())
    searches, closed = frame[frame["sampler"] != "closed front"], frame[frame["sampler"] == "closed front"].set_index("space")
    head = ["sampler"]
    for name in names:
        budget = searches[searches["space"] == name]["evaluations"].max()
        head += [f"{name}: half of {budget:,}", f"{budget:,}", f"least of {frame['seed'].nunique()}", "99 % at"]
    rows = [
        [sampler, *(cell for name in names for cell in _cells(searches, name, sampler))]
        for sampler in searches["sampler"].unique()
    ]
    seeds = ["front of the closed form by itself"]
    for name in names:
        seeds += ["", f"{closed['share'][name]:.1%} ({closed['evaluations'][name]} designs)", "", ""]
    return table(head, [*rows, seeds])


def _cells(frame: pd.DataFrame, name: str, sampler: str) -> list[str]:
    here = frame[(frame["space"] == name) & (frame["sampler"] == sampler)]
    mean, least = (here.groupby("evaluations")["share"].agg(how) for how in ("mean", "min"))
    if not len(mean):
        return ["", "", "", ""]
    there = mean[mean >= TARGET]
    return [
        f"{mean[mean.index <= mean.index.max() // 2].iloc[-1]:.1%}",
        f"{mean.iloc[-1]:.1%}",
        f"{least.iloc[-1]:.1%}",
        f"{there.index[0]:,}" if len(there) else "-",
    ]
