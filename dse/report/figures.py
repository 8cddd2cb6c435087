"""Figures of a study: fronts, throughput per user, latency against load, rooflines and costs by block.

Each is built here once, from stored results and evaluations of single designs; the page of a study, Python and files
draw the same panels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse.analysis.load_curve import LoadCurve, latency_against_load
from dse.evaluators import METRICS
from dse.evaluators.evaluation import peak_rates
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.study import Study
from dse.explanations.stored_design import find_stored_design
from dse.report.design_figures import cost_figure, load_figure, roofline_figure
from dse.report.figure_style import (
    FigureSpec,
    Panel,
    hover_lines,
    line_trace,
    make_scale,
    plain,
)
from dse.report.interactivity import chip_colour, throughput_per_user
from dse.report.page_cache import PageCache, PageQuestion
from dse.report.reported_study import ReportedStudy
from dse.report.time_breakdown import kept_breakdown
from dse.search.pareto import convert_to_minimisation
from dse.space.errors import DesignError, suggest_nearest
from dse.space.knobs import Value
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad
from dse.terminal.plain_names import plain_name, setting_name

MAX_OTHERS = 4000
"""Designs off the front in a figure; of more, an even choice."""

MAX_BARS = 12
"""Designs of a figure of bars; of a larger front, an even choice with both ends."""

CLOUD = "other designs"
"""Name of designs off the front."""


@dataclass(frozen=True)
class Figure:
    """One kind of figure, with the options that it takes.

    Attributes:
        build: from a study and options.
        options: names of the options that it takes.
        shows: one line.
    """

    build: Callable[..., FigureSpec]
    options: tuple[str, ...]
    shows: str


def build_figure(part: ReportedStudy, name: str, **options: str) -> FigureSpec:
    """A figure of a study by its name.

    Args:
        part: the study with its results.
        name: an element of `FIGURES`.
        options: as the figure takes them; those that are empty do not count.

    Raises:
        DesignError: no such figure, an option that it does not take, or results that it needs are absent.
    """
    check_figure_name(name)
    figure, given = FIGURES[name], {option: value for option, value in options.items() if value}
    for option in given:
        if option not in figure.options:
            takes = ", ".join(figure.options) or "no options"
            raise DesignError(f"figure {name}: {option} has no effect; it takes {takes}")
    return figure.build(part, **given)


def check_figure_name(name: str) -> None:
    """Refuse a name of no figure.

    Raises:
        DesignError: with the names there are.
    """
    if name not in FIGURES:
        raise DesignError(f"figure: no figure {name!r}; {suggest_nearest(name, FIGURES)}")


def build_pareto(part: ReportedStudy, x: str = "", y: str = "") -> FigureSpec:
    """Designs over two metrics or knobs, with the front of the study.

    Args:
        part: the study.
        x, y: names of columns; empty strings for the first two objectives.

    Raises:
        DesignError: no such column, or an axis has no objective.
    """
    study, goals = part.study, list(part.study.objectives)
    frame = part.frame
    numeric = [str(name) for name in frame if name != DESIGN and _numbers(frame[name]) is not None]
    names = [x or goals[0], y or next((goal for goal in goals if goal != (x or goals[0])), "")]
    for axis, column in zip(("x", "y"), names, strict=True):
        if not column:
            raise DesignError(f"figure pareto: study {study.name!r} has one objective; name the other axis: y=METRIC")
        if column not in numeric:
            raise DesignError(f"figure pareto: {axis}: no numbers {column!r}; {suggest_nearest(column, numeric)}")
    rows = frame[frame["feasible"]]
    others, front = rows[~rows["front"]], rows[rows["front"]].sort_values(names[0], kind="stable")
    others = others.iloc[:: max(1, -(-len(others) // MAX_OTHERS))]
    scales = [
        make_scale(plain_name(name) if name in METRICS else setting_name(name), _unit(study, name), _numbers(rows[name]))
        for name in names
    ]
    at = [
        lambda part, scale=scale, name=name: scale.axis_values(_numbers(part[name]))
        for scale, name in zip(scales, names, strict=True)
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "markers", "name": f"{CLOUD} ({len(rows) - len(front):,})", "hoverinfo": "skip",
            "x": at[0](others), "y": at[1](others), "marker": {"size": 4, "color": "--ghost"},
        }
    ]  # fmt: skip
    for chip, part_of in _by_chip(front):
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": f"front{f', {plain(chip)}' * bool(chip)} ({len(part_of):,})",
                "x": at[0](part_of), "y": at[1](part_of), "marker": {"size": 8, "color": chip_colour(study, chip)},
                "text": [_design_text(study, row) for row in part_of.to_dict("records")],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )  # fmt: skip
    if names == goals and len(front) > 1:
        shape = "vh" if study.objectives[names[0]] == "max" else "hv"
        traces.insert(1, line_trace(at[0](front), at[1](front), "--strong", shape=shape, width=1.2))
    beside = "" if len(goals) <= 2 else f" The front is in {len(goals)} objectives: {', '.join(map(plain_name, goals))}."
    caption = f"{study.text} {len(front):,} of {len(rows):,} feasible designs are on the front.{beside}".strip()
    return FigureSpec(f"{study.name}: front", caption, (Panel(tuple(traces), scales[0].axis, scales[1].axis),))


def build_throughput_per_user(part: ReportedStudy, per: str = "") -> FigureSpec:
    """Throughput per mm², dollar or watt against tokens/s of a user (`dse.report.interactivity`)."""
    return throughput_per_user(part.study, part.frame, per)


def build_load(part: ReportedStudy, design: str = "") -> FigureSpec:
    """Latency of one design against the arrival rate, at the study's fidelity.

    Raises:
        DesignError: the workload has no arriving requests, or no such design.
    """
    name, values = _chosen_design(part, design)
    with PageCache(part.study) as kept:
        curve = find_load_curve(part, values, kept)
        return load_figure(name, keep_load_curve(part, values, kept) if curve is None else curve)


def build_roofline(part: ReportedStudy, design: str = "") -> FigureSpec:
    """Roofline of one design with its operators, in the first case of the workload.

    Raises:
        DesignError: the workload has no model, or no such design.
    """
    name, values = _chosen_design(part, design)
    study, case = part.study, part.study.question.workload.cases[0]
    rates = peak_rates(study.question.space.design_at(values), case)
    if rates is None:
        raise DesignError(f"figure roofline: needs operators of a model, got single kernels in study {study.name!r}")
    with PageCache(study) as kept:
        record = kept_breakdown(study, values, 0, study.fidelity, kept)
    return roofline_figure(name, record["operators"], rates, case.label)


def build_cost(part: ReportedStudy, design: str = "") -> FigureSpec:
    """Area, power and price of one chip by block, of the front's designs or of one, side by side.

    Raises:
        DesignError: no such design, or no chip is priced.
    """
    if design:
        chosen = [_chosen_design(part, design)]
    else:
        rows = report_order(part.study, part.frame)
        chosen = [_named_values(part.study, row) for row in even_choice(rows[rows["front"]].to_dict("records"))]
    study = part.study
    with PageCache(study) as kept:
        records = {name: kept_breakdown(study, values, 0, study.screen_fidelity, kept)["chip"] for name, values in chosen}
    return cost_figure(records, study.name)


def find_load_curve(part: ReportedStudy, values: Mapping[str, Value], kept: PageCache) -> LoadCurve | None:
    """Latency against load of a design by its knob values, if it is kept."""
    record = kept.find(load_question(part, values))
    if record is None:
        return None
    arrays = {"rates": np.array(record["rates"]), "metrics": {name: np.array(row) for name, row in record["metrics"].items()}}
    return LoadCurve(**{**record, **arrays, "bounds": tuple(map(tuple, record["bounds"]))})


def keep_load_curve(part: ReportedStudy, values: Mapping[str, Value], kept: PageCache) -> LoadCurve:
    """Latency against load of a design by its knob values, evaluated and kept.

    The largest rate is the design's stored metric, if it has one.

    Raises:
        DesignError: the workload has no arriving requests.
    """
    study, load = part.study, part.study.question.workload.cases[0]
    if not isinstance(load, ServingLoad):
        raise DesignError(f"figure load: needs requests that arrive (workload=serving), study {study.name!r} has batches")
    question, design = load_question(part, values), study.question.space.design_at(values)
    (_, share), (_, max_rate) = question.follows
    curve = latency_against_load(design, load, study.fidelity, share, max_rate)
    arrays = {"rates": curve.rates.tolist(), "metrics": {name: row.tolist() for name, row in curve.metrics.items()}}
    kept.keep(question, vars(curve) | arrays)
    return curve


def load_question(part: ReportedStudy, values: Mapping[str, Value]) -> PageQuestion:
    """Load curve of a design: it follows from the share of requests to keep, and the known largest rate."""
    study = part.study
    share = next((bound.value for bound in study.bounds if bound.metric == "slo_attainment"), 0.0)
    follows = [("share", share), ("max_rate", _stored_max_rate(part, values))]
    return PageQuestion("load curve", study.question.space.key_at(values), study.fidelity, follows)


FIGURES = {
    "pareto": Figure(build_pareto, ("x", "y"), "designs over two objectives, with the front"),
    "throughput_per_user": Figure(
        build_throughput_per_user, ("per",), "throughput per mm², dollar or watt against tokens/s of a user, a curve a chip"
    ),
    "load": Figure(build_load, ("design",), "TTFT and TPOT of a design against the rate, with bounds and the largest rate"),
    "roofline": Figure(build_roofline, ("design",), "operators of a design under the roofs of its chips"),
    "cost": Figure(build_cost, ("design",), "area, power and price by block, front designs side by side"),
}
"""Figures of a study, by the name that is typed."""


def even_choice(rows: Sequence[Any], most: int = MAX_BARS) -> list[Any]:
    """At most some of the rows, evenly spaced, with both ends.

    >>> even_choice(range(5), 3)
    [0, 2, 4]
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def _chosen_design(part: ReportedStudy, design: str) -> tuple[str, Mapping[str, Value]]:
    """Id and knob values of a design by its id; of the front's knee where none is named.

    Raises:
        DesignError: no such design, or the front is empty.
    """
    study = part.study
    if design:
        stored_design = find_stored_design(study, part.frame, part.screened, design)
        return stored_design.id, stored_design.values
    front = part.frame[part.frame["front"]]
    if not len(front):
        raise DesignError(
            f"figure: study {study.name!r} has no feasible design; name one with design=ID (dse show {study.name})"
        )
    values = convert_to_minimisation(front[list(study.objectives)].to_numpy(dtype=float), study.directions)
    span = np.ptp(values, axis=0)
    away = np.hypot.reduce((values - values.min(axis=0)) / np.where(span > 0, span, 1.0), axis=1)
    return _named_values(study, front.iloc[int(away.argmin())].to_dict())


def _named_values(study: Study, row: Mapping[Any, Any]) -> tuple[str, Mapping[str, Value]]:
    return str(row[DESIGN]), knob_values(study, row)


def _stored_max_rate(part: ReportedStudy, values: Mapping[str, Value]) -> float:
    """Largest rate of a design among the study's metrics; 0 where it has none. [1/s]"""
    if "max_rate" not in part.frame:
        return 0.0
    for row in part.frame[part.frame["max_rate"].notna()].to_dict("records"):
        if knob_values(part.study, row) == dict(values):
            return float(row["max_rate"])
    return 0.0


def _by_chip(front: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Parts of a front by chip; one without a name where all designs are of one."""
    if CHIP_KNOB not in front or front[CHIP_KNOB].nunique() < 2:
        return [("", front)]
    return [(str(chip), part) for chip, part in front.groupby(CHIP_KNOB, sort=False)]


def _numbers(column: pd.Series) -> Any:
    """A column as numbers; None for one without any."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    return values if np.isfinite(values).any() and column.dtype != bool else None


def _unit(study: Study, name: str) -> str:
    """Unit of a metric or a knob; empty string for a plain number."""
    if name in METRICS:
        return METRICS[name].unit
    return str(study.question.space.spec(name).metadata["unit"]) if name in study.question.space.targets else ""


def _design_text(study: Study, row: Mapping[Any, Any]) -> str:
    """Hover text of a design: objectives and knobs."""
    metrics = [f"{plain_name(name)} {format_quantity(row[name], METRICS[name].unit)}" for name in study.objectives]
    knobs = [f"{setting_name(address)} {value}" for address, value in knob_values(study, row).items()]
    return hover_lines(f"design {row[DESIGN]}", *metrics, *knobs)
