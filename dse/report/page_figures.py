"""Figures in the page of a study: those of the whole study, and those of designs of its front."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from dse.evaluators.evaluation import peak_rates
from dse.execution.result_frame import DESIGN, knob_values
from dse.report.design_figures import cost_figure, load_figure, roofline_figure
from dse.report.figure_style import FigureSpec
from dse.report.figures import build_throughput_per_user, even_choice, find_load_curve, keep_load_curve, load_question
from dse.report.interactivity import RESOURCES, measured_chips
from dse.report.page_cache import PageCache, PageQuestion, choice_parts, table_key
from dse.report.reported_study import ReportedStudy
from dse.space.errors import DesignError
from dse.space.workload import ServingLoad

LOAD_BUDGET_S = 6.0
"""What the load curves of a page may take; ``dse figure`` draws those of other designs."""


def collect_page_figures(
    part: ReportedStudy, frame: pd.DataFrame, start: int, records: Mapping[int, Mapping[str, Any]], kept: PageCache
) -> dict[str, Any]:
    """Figures of a study as JSON values for its page.

    Args:
        part: the study.
        frame: its designs in the order of the page.
        start: number of the first in the page.
        records: of rows of the frame, their breakdown (`breakdown_record`).
        kept: where figures may be known already.

    Returns:
        ``throughput_per_user``: by resource; ``measured``: real machines with the same model; ``cost``: a figure, None where no
        block is known; ``roofline`` and ``load``: by row of the page.
    """
    front = {row: record for row, record in records.items() if frame["front"].iloc[row]}
    names = {row: str(frame[DESIGN].iloc[row]) for row in front}
    return {
        "throughput_per_user": kept.answer(
            PageQuestion(
                "throughput per user",
                follows=[
                    ("space", part.study.question.space.key),
                    ("rows", table_key(frame)),
                    ("start", start),
                    *choice_parts(part.study),
                ],
            ),
            lambda: _speed_figures(part),
            bool,
        ),
        "measured": kept.answer(
            PageQuestion("measured chips", follows=choice_parts(part.study)), lambda: measured_chips(part.study), bool
        ),
        "cost": _record_or_none(
            lambda: cost_figure({names[row]: front[row]["chip"] for row in even_choice(list(front))}, part.study.name)
        ),
        "roofline": _rooflines(part, frame, start, front),
        "load": _load_curves(part, frame, start, front, kept),
    }


def _speed_figures(part: ReportedStudy) -> dict[str, Any]:
    """Throughput per user over each resource that the study has a metric for."""
    figures = {per: _record_or_none(partial(build_throughput_per_user, part, per)) for per in RESOURCES}
    return {per: figure for per, figure in figures.items() if figure is not None}


def _rooflines(part: ReportedStudy, frame: pd.DataFrame, start: int, front: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    study, case, figures = part.study, part.study.question.workload.cases[0], {}
    for row, record in front.items():
        values = knob_values(study, frame.iloc[row].to_dict())
        rates = peak_rates(study.question.space.design_at(values), case)
        if rates is None:
            break
        name = str(frame[DESIGN].iloc[row])
        figures[str(start + row)] = _record_or_none(partial(roofline_figure, name, record["operators"], rates, case.label))
    return {row: figure for row, figure in figures.items() if figure is not None}


def _load_curves(
    part: ReportedStudy, frame: pd.DataFrame, start: int, front: Mapping[int, Any], kept: PageCache
) -> dict[str, Any]:
    """Latency against load of front designs, as long as `LOAD_BUDGET_S` allows; known ones are always there.

    None of requests that have no rate.
    """
    study, figures, began = part.study, {}, time.monotonic()
    if not isinstance(study.question.workload.cases[0], ServingLoad):
        return {}
    for row in front:
        values, name = knob_values(study, frame.iloc[row].to_dict()), str(frame[DESIGN].iloc[row])
        curve = find_load_curve(part, values, kept)
        question = load_question(part, values)
        if curve is None and time.monotonic() - began < LOAD_BUDGET_S and not kept.is_late(question):
            try:
                curve = keep_load_curve(part, values, kept)
            except DesignError:  # users or requests at once in place of a rate
                continue
        if curve is not None:
            figures[str(start + row)] = load_figure(name, curve).record()
        else:
            kept.note_late(question)
    return figures


def _record_or_none(build: Callable[[], FigureSpec]) -> dict[str, Any] | None:
    """A figure as JSON values; None where the study has nothing to draw it from."""
    try:
        return build().record()
    except DesignError:
        return None
