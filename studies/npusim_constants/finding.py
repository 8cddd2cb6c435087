"""Findings on the constants that move NpuSim's figures, from ``moves.csv``."""

from pathlib import Path

import numpy as np
import pandas as pd

from dse.studies.markdown_table import table

HERE = Path(__file__).parent

SHOWN = 0.01
"""Constants that move no figure by so much are counted, and not listed."""


def finding() -> str:
    """One row per constant: the figure that it moves most, and the mean error with the change."""
    frame = pd.read_csv(HERE / "moves.csv", keep_default_na=False)
    as_is = frame[frame["constant"] == ""].set_index("row")
    frame["moved"] = frame["simulated"] / frame["row"].map(as_is["simulated"]) - 1
    changed = frame[frame["constant"] != ""]
    rows = []
    for constant in changed["constant"].unique():
        part = changed[changed["constant"] == constant]
        cells = []
        for value, given_frame in part.groupby("value", sort=False):
            most = given_frame.loc[given_frame["moved"].abs().idxmax()]
            cells.append((str(value), most["row"], float(most["moved"]), _error(as_is, given_frame)))
        rows.append((constant, cells))
    rows.sort(key=lambda row: -max(abs(cell[2]) for cell in row[1]))
    shown = [row for row in rows if max(abs(cell[2]) for cell in row[1]) >= SHOWN]
    listed = [
        [constant if number == 0 else "", value, f"{row} {moved:+.0%}", f"{error:.1%}"]
        for constant, cells in shown
        for number, (value, row, moved, error) in enumerate(cells)
    ]
    text = (
        f"{len(as_is)} figures, of which {int(_scored(as_is).sum())} are scored: their mean error is "
        f"{_error(as_is, as_is.reset_index().iloc[:0]):.1%}. {len(rows)} constants are assumed that times may depend on; "
        f"{len(rows) - len(shown)} move no figure by {SHOWN:.0%}."
    )
    return f"{text}\n\n" + table(["constant", "changed to", "the figure that moves most", "mean error"], listed)


def _scored(rows: pd.DataFrame) -> pd.Series:
    return rows["role"] != "report"


def _error(as_is: pd.DataFrame, changed: pd.DataFrame) -> float:
    """The mean error of scored figures, of which some are changed."""
    simulated = as_is["simulated"].astype(float).copy()
    simulated.update(changed.set_index("row")["simulated"].astype(float))
    low, high = simulated / as_is["low"] - 1, simulated / as_is["high"] - 1
    errors = np.minimum(low, 0.0).abs() + np.maximum(high, 0.0)
    return float(errors[_scored(as_is)].mean())
