"""Designs that violate one constraint or limit only and would improve the front without it."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd

from dse.execution.result_frame import knob_values
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.explanations.neighbours import DesignOutcome
from dse.explanations.shadow_prices import KnownDesign
from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array
from dse.space.knobs import ChoiceKnob

AT_ONCE = 64
"""Rivals after which rows that one of them equals are left out for good."""


def collect_known_tables(study: Study, frame: pd.DataFrame, screened: ScreenResult | None) -> Iterator[pd.DataFrame]:
    """All known designs of a study in tables, each design once: searched ones, then screened ones.

    Of the screened ones a frame has only a sample.
    """
    if screened is None or study.fidelity != study.screen_fidelity:
        yield frame
        return
    searched = frame[frame["stage"] == "search"]
    yield searched
    metrics = [*study.objectives, *(bound.metric for bound in study.bounds)]
    wanted = dict.fromkeys([*(knob.address for knob in study.question.space.knobs), *metrics, "limit", "excess"])
    for file in screened.blocks:
        yield _unknown_rows(study, file.read_table(list(wanted)).to_pandas().assign(error=None), searched)


def _unknown_rows(study: Study, rows: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Rows without those of which the design is known."""

    def build_keys(frame: pd.DataFrame) -> pd.DataFrame:
        words = [isinstance(knob, ChoiceKnob) and knob.words for knob in study.question.space.knobs]
        columns = [frame[knob.address] for knob in study.question.space.knobs]
        return pd.DataFrame(
            {
                place: column.astype(object).fillna("") if word else pd.to_numeric(column).astype(float)
                for place, (column, word) in enumerate(zip(columns, words, strict=True))
            }
        )

    if not len(known) or not study.question.space.knobs:
        return rows
    beside = build_keys(rows).merge(build_keys(known).drop_duplicates(), how="left", indicator=True)
    return rows[(beside["_merge"] == "left_only").to_numpy()]


def constraint_excesses(study: Study, rows: pd.DataFrame) -> Array:
    """Relative excess of rows over limits and each constraint, shape (1 + constraints, rows). [-]

    Infinite where a metric is not known.
    """
    over = [np.where(rows["limit"].notna().to_numpy(), rows["excess"].to_numpy(dtype=float), 0.0)]
    for bound in study.bounds:
        values = rows[bound.metric].to_numpy(dtype=float) if bound.metric in rows else np.full(len(rows), np.nan)
        over.append(np.asarray(bound.excess(values), dtype=float))
    return np.asarray(np.nan_to_num(np.array(over), nan=np.inf))


def find_near_feasible_rows(
    study: Study, rows: pd.DataFrame, rivals: Sequence[DesignOutcome], most: float
) -> tuple[pd.DataFrame, Array]:
    """Rows that violate one constraint or limit by up to `most` and that no rival dominates.

    Nor does a rival equal them in all objectives.

    Returns:
        The rows, and their `excesses`.
    """
    names = list(study.objectives)
    if any(name not in rows for name in names):  # designs that are not evaluated have no metrics
        return rows.iloc[:0], np.zeros((1 + len(study.bounds), 0))
    excess = constraint_excesses(study, rows)
    alone = ((excess > 0).sum(axis=0) == 1) & (excess.max(axis=0) <= most) & rows["error"].isna().to_numpy()
    places = np.flatnonzero(alone)
    values = convert_to_minimisation(rows[names].to_numpy(dtype=float).reshape(-1, len(names))[places], study.directions)
    finite = np.isfinite(values).all(axis=1)
    places, values = places[finite], values[finite]
    theirs = np.array([[rival.metrics.get(name, np.nan) for name in names] for rival in rivals]).reshape(-1, len(names))
    theirs = convert_to_minimisation(theirs, study.directions)
    for start in range(0, len(theirs), AT_ONCE):
        better = np.ones(len(values), dtype=bool)
        for mine in theirs[start : start + AT_ONCE]:
            better &= ~(mine <= values).all(axis=1)
        places, values = places[better], values[better]
    return rows.iloc[places], excess[:, places]


def find_near_feasible_designs(
    study: Study, frame: pd.DataFrame, screened: ScreenResult | None, rivals: Sequence[DesignOutcome], most: float
) -> list[KnownDesign]:
    """Known designs of a study that violate one constraint or limit only, and are worth a relaxation.

    Args:
        frame: of its designs.
        screened: what its screen looked at, where it has one.
        rivals: the front, or the design that is to be beaten.
        most: the largest excess that counts.
    """
    space, designs = study.question.space, {}
    metrics = dict.fromkeys((*study.objectives, *(bound.metric for bound in study.bounds)))
    for table in collect_known_tables(study, frame, screened):
        rows, excess = find_near_feasible_rows(study, table, rivals, most)
        for place, row in enumerate(rows.to_dict("records")):
            at = knob_values(study, row)
            over = zip(study.bounds, excess[1:, place], strict=True)
            broken = tuple((str(bound), float(by)) for bound, by in over if by > 0)
            values = {name: float(row[name]) for name in metrics}
            limited = DesignOutcome(values, str(row["limit"]), 1.0 + float(excess[0, place]), 1.0)  # itemised when it is priced
            designs[tuple(at.items())] = KnownDesign(
                at, partial(space.design_at, at), DesignOutcome(values, broken=broken) if broken else limited
            )
    return list(designs.values())
