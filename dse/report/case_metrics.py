"""Metrics of a study's designs in each case, kept in its store beside their results."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.config.metric_expressions import derive_metrics, input_metrics
from dse.evaluators import evaluate
from dse.evaluators.evaluation import is_simulated
from dse.execution.result_frame import SEARCH_ORDER, compute_design_keys
from dse.execution.screen import encode_rows
from dse.execution.study import Study
from dse.explanations.kept_answers import CASES, KeptAnswers
from dse.space.array_math import Array

CaseValues = Mapping[str, Sequence[float | None]]
"""Metrics of one design in each case, by name; None for no value."""


def rows_by_case(study: Study, frame: pd.DataFrame, *metrics: str) -> dict[str, pd.DataFrame]:
    """Feasible designs once for each case of the workload, with the values of some metrics in that case.

    Designs with stored results that took a simulation are evaluated once: their cases are kept beside the results. Others are
    evaluated each time, together, as a formula takes less time than a store.

    Args:
        study: the study.
        frame: its designs, as `dse.execution.result_frame.combine_with_front` has them.
        metrics: by name; NaN where a design has no value.
    """
    workload = study.question.workload
    rows = frame[frame["feasible"]]
    if not len(rows):
        return {}
    values = _values_by_case(study, rows, input_metrics(metrics, study.question.defined))
    values |= derive_metrics(values, study.question.defined)
    return {
        case.label: rows.assign(**{metric: values[metric][place] for metric in metrics})
        for place, case in enumerate(workload.cases)
    }


def _values_by_case(study: Study, rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Array]:
    """Metrics of some designs by name, shape (cases, designs) each; NaN where there is no value."""
    question, kept = study.question, KeptAnswers(study.store)
    cases = len(question.workload.cases)
    simulated = any(is_simulated(space.base, question.workload, study.fidelity) for _, space in question.space.base_spaces)
    stored = np.flatnonzero(rows[SEARCH_ORDER].notna()) if simulated else np.zeros(0, dtype=int)
    keys = dict(zip(stored.tolist(), compute_design_keys(study, rows.iloc[stored]), strict=True))
    known: Mapping[str, Any] = kept.find_each(study.context, CASES, list(keys.values())) if keys else {}
    sound = {row: known[key] for row, key in keys.items() if _is_sound(known.get(key), cases)}
    values = {name: np.full((cases, len(rows)), np.nan) for name in names}
    for row, answer in sound.items():
        for name in names:
            values[name][:, row] = np.array(answer.get(name, [None] * cases), dtype=float)
    left = np.array([row for row in range(len(rows)) if row not in sound], dtype=int)
    if not len(left):
        return values
    designs = question.space.stack(encode_rows(question.space, rows.iloc[left]))
    columns = evaluate(designs, question.workload, fidelity=study.fidelity, cases=True).cases
    for name in names:
        if name in columns:
            values[name][:, left] = columns[name]
    new = {keys[row]: _case_record(columns, place) for place, row in enumerate(left.tolist()) if row in keys}
    kept.keep_each({(study.context, CASES): {key: record for key, record in new.items() if record is not None}})
    return values


def _is_sound(answer: Any, cases: int) -> bool:
    """Whether a kept answer has as many values of each metric as there are cases."""
    return isinstance(answer, dict) and all(isinstance(values, list) and len(values) == cases for values in answer.values())


def _case_record(columns: Mapping[str, Any], place: int) -> CaseValues | None:
    """Metrics of one design in each case, of those that have a value in any; None for infinities, which JSON does not have."""
    record = {}
    for name, column in columns.items():
        values = np.asarray(column)[:, place].astype(float)
        if np.isinf(values).any():
            return None
        if not np.isnan(values).all():
            record[name] = [None if np.isnan(value) else float(value) for value in values]
    return record
