"""History of a search: hypervolume of what it found, or best value of a single objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse.execution.result_frame import SEARCH_ORDER
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.report.reported_study import ReportedStudy
from dse.search.pareto import convert_to_minimisation, front_mask, hypervolume
from dse.space.array_math import Array

MAX_HISTORY_POINTS = 60
"""Most points of a history of a search that a page draws."""


@dataclass(frozen=True)
class HypervolumeBox:
    """Reference box of hypervolume histories: its corners, and the share that the final front dominates.

    Corners are in the form of `convert_to_minimisation`.
    """

    low: Array
    high: Array
    whole: float


def common_box(parts: Sequence[ReportedStudy]) -> HypervolumeBox | None:
    """The box of all fronts together where all studies want the same, None where they do not."""
    if len({tuple(part.study.objectives.items()) for part in parts}) > 1:
        return None
    rows = [part.frame.loc[part.frame["front"], list(part.study.objectives)].to_numpy(dtype=float) for part in parts]
    return _shared_box(np.concatenate(rows), parts[0].study.directions)


def _shared_box(values: Array, directions: list[str]) -> HypervolumeBox | None:
    """From the best corner of some fronts to a tenth beyond the worst."""
    if not len(values):
        return None
    small = convert_to_minimisation(values, directions)
    low, high = small.min(axis=0), small.max(axis=0)
    high = high + 0.1 * np.where(high > low, high - low, np.abs(high) + 1e-12)
    return HypervolumeBox(low, high, hypervolume(values[front_mask(values, directions)], directions, low, high))


def search_history(
    study: Study, frame: pd.DataFrame, screened: ScreenResult | None, common: HypervolumeBox | None
) -> dict[str, Any]:
    """Share of the front's hypervolume found by designs asked, or best value of a single objective."""
    names, directions = list(study.objectives), study.directions
    best = frame.loc[frame["front"], names].to_numpy(dtype=float)
    box = common or _shared_box(best, directions)

    def measure_front(rows: Array) -> float | None:
        if not len(rows) or box is None:
            return None
        if len(names) == 1:
            return float(rows.max() if directions[0] == "max" else rows.min())
        return hypervolume(rows[front_mask(rows, directions)], directions, box.low, box.high) / box.whole

    searched = frame[frame[SEARCH_ORDER].notna()].sort_values(SEARCH_ORDER)
    values, usable = searched[names].to_numpy(dtype=float), searched["feasible"].to_numpy(dtype=bool)
    marks = (
        np.unique(np.geomspace(1, len(searched), MAX_HISTORY_POINTS).round().astype(int))
        if len(searched)
        else np.zeros(0, dtype=int)
    )
    asks = searched[SEARCH_ORDER].to_numpy(dtype=float)[marks - 1] + 1
    return {
        "asks": [int(ask) for ask in asks],
        "values": [measure_front(values[:n][usable[:n]]) for n in marks],
        "screened": measure_front(screened.front[names].to_numpy(dtype=float))
        if screened and study.fidelity == study.screen_fidelity
        else None,
        "all": measure_front(best),
    }
