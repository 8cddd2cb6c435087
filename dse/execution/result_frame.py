"""Results as tables: one row a design, with its id, knobs and metrics in SI, and front membership."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.config import format_policy as formats
from dse.config.metric_expressions import extend_with_derived_metrics
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.screen import ScreenResult, complete_metrics, encode_rows
from dse.execution.screen_block import SCREEN_ROWS, refusals
from dse.execution.study import Study
from dse.search.pareto import front_mask
from dse.search.samplers import Ask
from dse.space.array_math import Array
from dse.space.design import make_ids
from dse.space.errors import DesignError
from dse.space.fields import addresses, leaf_at
from dse.space.former_words import FORMER_METRICS, read_metric
from dse.space.multi_chip_space import CHIP_KNOB
from dse.store.store import DesignResult

DESIGN = "design"
"""Column of ids: the beginning of the key of each design, as long as tells it apart in the table."""

SEARCH_ORDER = "search_order"
"""Column of the place of a design among those that a search asked for, from 0; none of one that was screened only."""

KEY = "key"
"""Column of the keys of designs, whole."""


class MetricFrame(pd.DataFrame):
    """Table of designs whose metrics answer to their former names as well.

    Its columns have the present names.

    >>> MetricFrame({"mfu": [0.5]})["utilisation"].tolist()
    [0.5]
    """

    @property
    def _constructor(self) -> type["MetricFrame"]:
        return MetricFrame

    def __getitem__(self, key: Any) -> Any:
        """A column by name, or what else pandas takes."""
        if isinstance(key, str):
            key = self._present(key)
        elif isinstance(key, list) and all(isinstance(name, str) for name in key):
            key = [self._present(name) for name in key]
        return super().__getitem__(key)

    def _present(self, name: str) -> str:
        present = FORMER_METRICS.get(name, name)
        return read_metric(name) if name not in self.columns and present in self.columns else name


def search_frame(study: Study, results: dict[int, tuple[Ask, DesignResult]]) -> pd.DataFrame:
    """Searched designs in the order of asks, each once: key, order, knobs, metrics and failures.

    The last columns are ``limit``, ``excess``, ``error``.
    """
    firsts: dict[str, tuple[int, Ask, DesignResult]] = {}
    for number in sorted(results):
        ask, result = results[number]
        firsts.setdefault(result.key, (number, ask, result))
    knobs = [knob.address for knob in study.question.space.knobs]
    rows = [
        {
            KEY: key,
            SEARCH_ORDER: number,
            **ask.values,
            "limit": result.limit or None,
            "excess": result.need / result.have - 1 if result.limit and result.have else 0.0,
            "error": result.error or None,
        }
        for key, (number, ask, result) in firsts.items()
    ]
    frame = pd.DataFrame(rows, columns=[KEY, SEARCH_ORDER, *knobs, "limit", "excess", "error"])
    metrics = _metric_columns(study, [result for _, _, result in firsts.values()])
    about, ends = [KEY, SEARCH_ORDER, *knobs], ["limit", "excess", "error"]
    return pd.concat([frame[about], metrics, frame[ends]], axis=1)


def _metric_columns(study: Study, results: Sequence[DesignResult]) -> pd.DataFrame:
    """Metrics of results in columns, NaN where there is no value; a table of dictionaries would take ten times the memory."""
    columns: dict[str, Array] = {}
    for row, result in enumerate(results):
        for name, value in extend_with_derived_metrics(result.metrics, study.question.defined).items():
            if name in METRICS:
                if name not in columns:
                    columns[name] = np.full(len(results), np.nan)
                columns[name][row] = np.nan if value is None else value
    absent = np.full(len(results), np.nan)
    return pd.DataFrame({name: columns.get(name, absent) for name in METRICS}, columns=list(METRICS))


def search_refusals(study: Study, frame: pd.DataFrame) -> dict[str, int]:
    """Number of searched designs that each limit or constraint rules out, and failed evaluations."""
    failed = int(frame["error"].notna().sum())
    frame = frame[frame["error"].isna()]
    codes, names = pd.factorize(frame["limit"])
    columns = {bound.metric: frame[bound.metric].to_numpy(dtype=float) for bound in study.bounds}
    return refusals(study, codes, list(names), columns) | ({"failed evaluations": failed} if failed else {})


def combine_with_front(study: Study, searched: pd.DataFrame, screened: ScreenResult | None) -> pd.DataFrame:
    """Searched and screened designs together, with id, ``stage``, ``feasible`` and ``front``.

    Screened ones count only at the fidelity of the screen; of very many, the front and an even sample. `DESIGN`, the id, is the
    first column.
    """
    parts = [searched.assign(stage="search")] if len(searched) else []
    if screened is not None and study.fidelity == study.screen_fidelity:
        parts += [screened.front.assign(stage="screen"), _sample_rows(study, screened).assign(stage="screen")]
    if not parts:
        return pd.DataFrame()
    frame = pd.concat([part.drop(columns=_empty_columns(part)) for part in parts if len(part)], ignore_index=True)
    del parts  # of all metrics of tens of thousands of designs, one table is enough
    knobs = [knob.address for knob in study.question.space.knobs]
    for column in (KEY, "limit", "error", SEARCH_ORDER, *knobs):
        if column not in frame:
            frame[column] = None
    frame = frame.astype({k: object for k in knobs if frame[k].dtype.name == "category"})
    frame = frame.drop_duplicates(subset=knobs) if knobs else frame.head(1)  # a space without a knob is one design
    frame = frame.reset_index(drop=True)
    ids = make_ids(_stored_keys(study, frame))
    frame = frame.drop(columns=KEY)
    frame.insert(0, DESIGN, ids)
    wanted = {bound.metric: "constraints" for bound in study.bounds} | dict.fromkeys(study.objectives, "objectives")
    absent = [name for name in wanted if name not in frame]
    if absent and frame["limit"].notna().all():  # designs that are not evaluated have no metrics
        return mark_feasibility_and_front(study, frame.assign(**dict.fromkeys(absent, np.nan)))
    if absent:
        raise DesignError(f"{wanted[absent[0]]}.{absent[0]}: this kind of chip has no {absent[0]}")
    return mark_feasibility_and_front(study, frame)


def _empty_columns(frame: pd.DataFrame) -> list[str]:
    """Columns without any value."""
    return [str(name) for name in frame if frame[name].isna().all()]


def compute_design_keys(study: Study, rows: pd.DataFrame) -> list[str]:
    """Content keys of designs, from their knobs."""
    space = study.question.space
    if not len(rows) or not space.knobs:
        return [space.key_at({})] * len(rows)
    return space.keys(encode_rows(space, rows))


def _stored_keys(study: Study, frame: pd.DataFrame) -> list[str]:
    """The keys of searched designs as they are stored, and those of others."""
    keys = frame[KEY].astype(object)
    absent = keys.isna().to_numpy()
    keys[absent] = compute_design_keys(study, frame[absent])
    return [str(key) for key in keys]


def mark_feasibility_and_front(study: Study, frame: pd.DataFrame, digits: int | None = None) -> pd.DataFrame:
    """The same designs with columns ``feasible`` and ``front``.

    Args:
        study: the study.
        frame: with objectives, metrics of constraints, ``limit`` and ``error``.
        digits: of the objectives that count for the front; None for all.
    """
    if study.config.get("formats") == "own":
        frame = frame.assign(formats=formats.formats_column(study.question.space, frame))
    feasible = frame["limit"].isna() & frame["error"].isna()
    for bound in study.bounds:
        feasible &= bound.excess(frame[bound.metric].to_numpy(dtype=float)) <= 0
    on_front = np.zeros(len(frame), dtype=bool)
    rows = np.flatnonzero(feasible.to_numpy())
    values = frame[list(study.objectives)].to_numpy(dtype=float)[rows]
    on_front[rows] = front_mask(values if digits is None else round_significant(values, digits), study.directions)
    return frame.assign(feasible=feasible, front=on_front)


def report_order(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """Designs in the order of the report: the front first, sorted by the first objective.

    ``place`` is the row's place before.
    """
    if "place" in frame:
        return frame
    first, direction = next(iter(study.objectives.items()))
    rows = frame.sort_values(first, ascending=direction == "min", kind="stable")
    return pd.concat([rows[rows["front"]], rows[~rows["front"]]]).reset_index(names="place")


def round_significant(values: Array, digits: int) -> Array:
    """Values rounded to a number of significant digits.

    >>> round_significant(np.array([3.14159, -27182.8, 0.0]), 3).tolist()
    [3.14, -27200.0, 0.0]
    """
    return np.array([float(f"{value:.{digits - 1}e}") for value in values.ravel()]).reshape(values.shape)


def knob_values(study: Study, row: Mapping[Any, Any]) -> dict[str, Any]:
    """Knob values of a row of a frame, as its space has them."""
    values = {}
    for knob in study.question.space.knobs:
        value = row[knob.address]
        if value is None or value != value:
            continue
        values[knob.address] = value if isinstance(value, str) else study.question.space.number(knob, float(value))
    return study.question.space.canonical(values)


def tied_columns(study: Study, frame: pd.DataFrame) -> dict[str, Array]:
    """Values of tied settings in each row, by address; NaN where a row's chip lacks the setting.

    NaN as well where the setting follows nothing.
    """
    found_columns: dict[str, Array] = {}
    for chosen, space in study.question.space.base_spaces:
        rows = np.flatnonzero(frame[CHIP_KNOB] == chosen[CHIP_KNOB]) if chosen else np.arange(len(frame))
        columns = [found_columns.setdefault(tied.address, np.full(len(frame), np.nan)) for tied in space.tied]
        if not columns or not len(rows):
            continue
        for places, design in space.stack(encode_rows(space, frame.iloc[rows])).groups:
            for tied, column in zip(space.tied, columns, strict=True):
                column[rows[places]] = leaf_at(design, addresses(design, tied.address)[0])
    return found_columns


def _sample_rows(study: Study, screened: ScreenResult) -> pd.DataFrame:
    stride = max(1, -(-screened.kept // SCREEN_ROWS))
    parts = [file.read_table(stride=stride).to_pandas() for file in screened.blocks]
    return complete_metrics(study, pd.concat(parts, ignore_index=True), screened.left)
