"""Figures of a study: fronts, throughput per user, latency against load, rooflines and costs by block.

Each is built here once, from stored results and evaluations of single designs; the page of a study, Python and files
draw the same panels.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse.analysis.load_curve import LoadCurve, latency_against_load
from dse.evaluators import METRICS
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.evaluation import peak_rates
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.study import Study
from dse.explanations.stored_design import find_stored_design
from dse.report.figure_style import (
    DECADE_AND_A_HALF,
    RESOURCE_COLOURS,
    SERIES,
    FigureSpec,
    Panel,
    hover_lines,
    line_trace,
    make_scale,
    plain,
    short_number,
)
from dse.report.interactivity import chip_colour, throughput_per_user
from dse.report.metric_names import plain_name
from dse.report.reported_study import ReportedStudy
from dse.report.time_breakdown import breakdown_record, cached_breakdown
from dse.search.pareto import convert_to_minimisation
from dse.space.errors import DesignError, suggest_nearest
from dse.space.knobs import Value
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad

MAX_OTHERS = 4000
"""Designs off the front in a figure; of more, an even choice."""

MAX_BARS = 12
"""Designs of a figure of bars; of a larger front, an even choice with both ends."""

MAX_BLOCKS = 7
"""Blocks with a colour of their own; smaller ones are one."""

SHARE_OF = "share of"
"""What begins the title of an axis of shares."""

CLOUD, MARK_RANGE = "other designs", (7.0, 26.0)
"""Name of designs off the front; least and largest mark of a roofline. [px]"""


SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""Marks of a roofline, by phase."""

MAX_NAMES, NAME_ROOM = 8, (0.35, 0.12)
"""Names of operators in a roofline at most, and decades across and up between two of them."""


@dataclass(frozen=True)
class Figure:
    """One kind of figure.

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
        make_scale(plain_name(name) if name in METRICS else name, _unit(study, name), _numbers(rows[name])) for name in names
    ]
    at = [
        lambda part, scale=scale, name=name: scale.at(_numbers(part[name])) for scale, name in zip(scales, names, strict=True)
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
    """Throughput per mm², dollar or watt against tokens/s of a user; `dse.report.interactivity` has the details."""
    return throughput_per_user(part.study, part.frame, per)


def build_load(part: ReportedStudy, design: str = "") -> FigureSpec:
    """Latency of one design against the arrival rate, at the study's fidelity.

    Raises:
        DesignError: the workload has no arriving requests, or no such design.
    """
    name, values = _chosen_design(part, design)
    return design_load_figure(part, name, values)


def build_roofline(part: ReportedStudy, design: str = "") -> FigureSpec:
    """Roofline of one design with its operators, in the first case of the workload.

    Raises:
        DesignError: the workload has no model, or no such design.
    """
    name, values = _chosen_design(part, design)
    study, case = part.study, part.study.question.workload.cases[0]
    built = study.question.space.design_at(values)
    rates = peak_rates(built, case)
    if rates is None:
        raise DesignError(f"figure roofline: needs operators of a model, got single kernels in study {study.name!r}")
    parts = cached_breakdown(built, case, study.question.workload.decode_context, study.fidelity)
    return roofline_figure(name, breakdown_record(study.fidelity, parts)["operators"], rates, case.label)


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
    study, case = part.study, part.study.question.workload.cases[0]
    records = {}
    for name, values in chosen:
        parts = cached_breakdown(
            study.question.space.design_at(values), case, study.question.workload.decode_context, study.screen_fidelity
        )
        records[name] = breakdown_record(study.fidelity, parts)["chip"]
    return cost_figure(records, study.name)


def design_load_figure(part: ReportedStudy, name: str, values: Mapping[str, Value]) -> FigureSpec:
    """Latency against load of a design by its id and knob values.

    Raises:
        DesignError: the workload has no arriving requests.
    """
    return load_figure(name, design_load_curve(part, values))


def design_load_curve(part: ReportedStudy, values: Mapping[str, Value]) -> LoadCurve:
    """Latency against load of a design by its knob values; the largest rate is its stored metric if it has one.

    Raises:
        DesignError: the workload has no arriving requests.
    """
    study, load = part.study, part.study.question.workload.cases[0]
    if not isinstance(load, ServingLoad):
        raise DesignError(f"figure load: needs requests that arrive (workload=serving), study {study.name!r} has batches")
    share = next((bound.value for bound in study.bounds if bound.metric == "slo_attainment"), 0.0)
    design = study.question.space.design_at(values)
    return latency_against_load(design, load, study.fidelity, share, _stored_max_rate(part, values))


FIGURES = {
    "pareto": Figure(build_pareto, ("x", "y"), "designs over two objectives, with the front"),
    "throughput_per_user": Figure(
        build_throughput_per_user, ("per",), "throughput per mm², dollar or watt against tokens/s of a user, a curve a chip"
    ),
    "load": Figure(build_load, ("design",), "TTFT and TPOT of a design against the rate, with bounds and the largest rate"),
    "roofline": Figure(build_roofline, ("design",), "operators of a design under the roofs of its chips"),
    "cost": Figure(build_cost, ("design",), "area, power and price by block, front designs side by side"),
}
"""Figures by name."""


def load_figure(name: str, curve: LoadCurve) -> FigureSpec:
    """Figure of a latency curve: TTFT, time per token and SLO attainment against the rate."""
    x = make_scale("arrival rate", "Hz", curve.rates, logarithmic=False)
    panels = []
    for title, prefixes, place in (("time to first token", ("ttft",), 0), ("time per token", ("tpot", "tbt"), 1)):
        known = {key: values for key, values in curve.metrics.items() if key.split("_")[0] in prefixes}
        limits = [(name, bound[place]) for name, *bound in curve.bounds if np.isfinite(bound[place])]
        every = np.concatenate([*known.values(), [limit for _, limit in limits]]) if known else np.zeros(0)
        y = make_scale(title, "s", every)
        traces = [
            {
                "type": "scatter", "mode": "lines+markers", "name": plain(_latency_name(key)),
                "x": x.at(curve.rates), "y": y.at(values),
                "line": {"color": SERIES[number % len(SERIES)], "width": 1.8}, "marker": {"size": 5},
                "hovertemplate": f"{plain(_latency_name(key))} %{{y:.4~g}} {y.unit} at %{{x:.4~g}} {x.unit}<extra></extra>",
            }
            for number, (key, values) in enumerate(known.items())
        ]  # fmt: skip
        for class_name, limit in limits:
            label = f"bound{f' of {class_name}' * bool(class_name)}: {format_quantity(limit, 's')}"
            traces.append(line_trace([0.0, x.at(curve.rates)[-1]], y.at([limit] * 2), "--bad", label, dash="dash"))
        panels.append(
            _with_marks(
                Panel(tuple(traces), dict(x.axis), y.axis), curve, x, y.at([every.min(initial=0.0), every.max(initial=0.0)])
            )
        )
    share = 100 * curve.metrics["slo_attainment"]
    kept = {
        "type": "scatter", "mode": "lines+markers", "name": "within the SLO", "x": x.at(curve.rates), "y": share.tolist(),
        "line": {"color": "--s3", "width": 1.8}, "marker": {"size": 5},
        "hovertemplate": f"%{{y:.4~g}} % at %{{x:.4~g}} {x.unit}<extra></extra>",
    }  # fmt: skip
    bound = line_trace(
        [0.0, x.at(curve.rates)[-1]], [100 * curve.share] * 2, "--bad", f"asked: {100 * curve.share:g} %", dash="dash"
    )
    axis = {"title": "requests within SLO [%]", "range": [0, 105]}
    panels.append(_with_marks(Panel((kept, bound), x.axis, axis), curve, x, [0, 105]))
    return FigureSpec(f"Latency against load of design {name}", _load_caption(curve), tuple(panels))


def _latency_name(key: str) -> str:
    """Name of a latency in a legend.

    >>> _latency_name("ttft_p99"), _latency_name("tpot")
    ('TTFT, p99', 'TPOT, mean')
    """
    metric, _, percentile = key.partition("_")
    return f"{metric.upper()}, {percentile or 'mean'}"


def _with_marks(panel: Panel, curve: LoadCurve, x: Any, ends: Sequence[float]) -> Panel:
    """A panel with lines at the largest rate and at saturation."""
    marks = []
    if curve.max_rate:
        label = f"largest rate: {format_quantity(curve.max_rate, 'Hz')}"
        marks.append(line_trace(x.at([curve.max_rate] * 2), ends, "--accent", label, dash="dot", width=2))
    if curve.saturated <= curve.rates[-1] * (1 + 1e-9) and curve.saturated > curve.max_rate:
        label = f"saturated: {format_quantity(curve.saturated, 'Hz')}"
        marks.append(line_trace(x.at([curve.saturated] * 2), ends, "--faint", label, dash="dot"))
    return Panel((*panel.traces, *marks), panel.x, panel.y, panel.layout)


def _load_caption(curve: LoadCurve) -> str:
    asked = f"{100 * curve.share:g} % of requests within their SLO"
    if curve.is_known:
        largest = f"The largest rate is the design's metric max_rate ({asked})."
    elif curve.max_rate:
        most = ", and saturation ends it" if curve.max_rate >= curve.saturated else ""
        largest = f"The largest rate is that of these requests ({asked}{most}); few requests overstate it."
    else:
        largest = f"No rate down to {2.0**-6:.3g} of saturation has {asked}."
    return f"By {curve.fidelity}, {curve.requests:,} requests at the largest rate. {largest}"


def roofline_figure(name: str, operators: Sequence[Sequence[Any]], rates: PeakRates, case: str) -> FigureSpec:
    """Figure of operators under the roofs of all chips of a design.

    Args:
        name: of the design.
        operators: as `breakdown_record` has them.
        rates: of all chips.
        case: label of the case.
    """
    total = sum(max(operator[8], 0.0) for operator in operators)
    shown = [operator for operator in operators if min(operator[5], operator[6], operator[8]) > 0]
    if not shown:
        raise DesignError(f"figure roofline: no operator of design {name} has both operations and bytes of main memory")
    flops, memory = float(np.squeeze(rates.flops)), float(np.squeeze(rates.memory))
    intensity = np.array([operator[5] / operator[6] for operator in shown])
    speed = np.array([operator[5] / operator[8] for operator in shown])
    ridge = flops / memory if memory > 0 else float("nan")
    ends = [0.5 * min(intensity.min(), ridge if ridge > 0 else np.inf), 2 * max(intensity.max(), ridge if ridge > 0 else 0.0)]
    x = make_scale("operations per byte", "op/B", ends, logarithmic=True)
    y = make_scale("operations per second", "op/s", [*speed, flops], logarithmic=True)
    roofs = [
        line_trace(
            x.at([ridge if ridge > 0 else ends[0], ends[1]]),
            y.at([flops] * 2),
            "--ink",
            f"engines: {format_quantity(flops, 'op/s')}",
        )
    ]
    if memory > 0:
        slope = line_trace(
            x.at([ends[0], ridge]), y.at([memory * ends[0], flops]), "--s2", f"main memory: {format_quantity(memory, 'B/s')}"
        )
        roofs.insert(0, slope)
    marks, labels = _operator_marks(shown, total, x.at(intensity), y.at(speed)), _key_traces(shown)
    outside = 1 - sum(operator[8] for operator in shown) / total if total else 0.0
    caption = (
        f"{case}. A mark an operator, as large as its share of the time, coloured by what bounds it; roofs are those of "
        f"all chips together. Bytes count between cores and main memory or the cache before it: marks above the roof read from "
        f"the cache. "
        f"{100 * outside:.3g} % of the time is in operators without operations or bytes, such as collectives."
    )
    return FigureSpec(f"Roofline of design {name}", caption, (Panel((*roofs, *labels, *marks), x.axis, y.axis),))


def _operator_marks(
    shown: Sequence[Sequence[Any]], total: float, x: Sequence[float], y: Sequence[float]
) -> list[dict[str, Any]]:
    """A trace a phase, in which the operators of the largest shares have their names beside them."""
    named, phases = _named_marks(shown, x, y), list(dict.fromkeys(operator[0] for operator in shown))
    traces = []
    for place, phase in enumerate(phases):
        of = [number for number, operator in enumerate(shown) if operator[0] == phase]
        traces.append(
            {
                "type": "scatter", "mode": "markers+text", "showlegend": False, "cliponaxis": False,
                "x": [x[number] for number in of], "y": [y[number] for number in of],
                "marker": {
                    "symbol": SYMBOLS[place % len(SYMBOLS)], "size": [_mark_size(shown[number][8] / total) for number in of],
                    "opacity": 0.85, "color": [RESOURCE_COLOURS.get(shown[number][4], "--s8") for number in of],
                },
                "text": [plain(shown[number][2]) if number in named else "" for number in of],
                "textposition": "bottom center", "textfont": {"size": 10, "color": "--soft"},
                "hovertext": [_operator_text(shown[number], total) for number in of],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )  # fmt: skip
    return traces


def _named_marks(shown: Sequence[Sequence[Any]], x: Sequence[float], y: Sequence[float]) -> set[int]:
    """Operators that have room for a name: from the largest share of the time, none near another with a name."""
    named: list[int] = []
    for number in sorted(range(len(shown)), key=lambda number: -shown[number][8]):
        apart = all(
            abs(np.log10(x[number] / x[other])) > NAME_ROOM[0] or abs(np.log10(y[number] / y[other])) > NAME_ROOM[1]
            for other in named
        )
        if apart and len(named) < MAX_NAMES:
            named.append(number)
    return set(named)


def _key_traces(shown: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Entries of the legend: a symbol for each phase, a colour for each resource that bounds an operator."""
    phases, bounds = (list(dict.fromkeys(operator[column] for operator in shown)) for column in (0, 4))
    keys = [(phase, SYMBOLS[place % len(SYMBOLS)], "--dot", 0) for place, phase in enumerate(phases)]
    keys += [(f"bound by {bound}", "line-ew", RESOURCE_COLOURS.get(bound, "--s8"), 4) for bound in bounds]
    return [
        {
            "type": "scatter", "mode": "markers", "name": plain(name), "x": [None], "y": [None], "hoverinfo": "skip",
            "marker": {"symbol": symbol, "size": 9, "color": colour, "line": {"width": width, "color": colour}},
        }
        for name, symbol, colour, width in keys
    ]  # fmt: skip


def _mark_size(share: float) -> float:
    """Diameter of an operator's mark, whose area grows with its share of the time. [px]"""
    low, high = MARK_RANGE
    return round(low + (high - low) * math.sqrt(min(1.0, max(share, 0.0))), 1)


def _operator_text(operator: Sequence[Any], total: float) -> str:
    phase, segment, name, shape, bound, flop, nbytes, _, seconds, *_ = operator
    return hover_lines(
        f"{phase}, {segment}: {name}",
        str(shape),
        f"{format_quantity(seconds, 's')}, {100 * seconds / total:.3g} % of the time, bound by {bound}",
        f"{format_quantity(flop, 'op')}, {format_quantity(nbytes, 'B')}, {flop / nbytes:.4g} op/B",
        f"{format_quantity(flop / seconds, 'op/s')}",
    )


def cost_figure(records: Mapping[str, Sequence[Sequence[Any]]], study: str) -> FigureSpec:
    """Figure of stacked bars: area, power and price of one chip by block, a bar a design.

    Args:
        records: of each design, as ``chip`` of `breakdown_record`.
        study: name of the study.

    Raises:
        DesignError: no design has a part.
    """
    titles = list(dict.fromkeys(title for record in records.values() for title, _, _ in record))
    if not titles:
        raise DesignError(f"figure cost: no front design of study {study!r} has an area, a power or a price by block")
    panels = []
    for title in titles:
        unit = next(unit for record in records.values() for of, unit, _ in record if of == title)
        blocks = {name: next((dict(values) for of, _, values in record if of == title), {}) for name, record in records.items()}
        panels.append(_bars_panel(title, unit, blocks))
    shares = (
        " Where chips differ much in size, bars are shares of the total, which stands below." if _are_shares(panels) else ""
    )
    caption = f"Of one chip of each design, {len(records)} of the front from the best first objective on the left.{shares}"
    return FigureSpec(f"{study}: area, power and price by block", caption, tuple(panels), side_by_side=True)


def _bars_panel(title: str, unit: str, blocks: Mapping[str, Mapping[str, float]]) -> Panel:
    """Stacked bars, one a design: amounts by block, or shares of the total where totals differ by `DECADE_AND_A_HALF`."""
    totals = [sum(parts.values()) for parts in blocks.values()]
    are_shares = max(totals) > DECADE_AND_A_HALF * min(total for total in totals if total)
    scale = make_scale(title, unit, totals, logarithmic=False)
    axis = {"title": f"{SHARE_OF} {title} [%]", "range": [0, 100]} if are_shares else scale.axis
    names = [
        f"{name}, {format_quantity(total, unit, 3)}" if are_shares else name for name, total in zip(blocks, totals, strict=True)
    ]
    bars = []
    for place, (block, values) in enumerate(_largest_blocks(blocks).items()):
        parts = [100 * value / total if total else 0.0 for value, total in zip(values, totals, strict=True)]
        texts = [format_quantity(value, unit) for value in values]
        bars.append(
            {
                "type": "bar", "name": plain(block), "x": names, "text": texts, "textposition": "none",
                "y": [short_number(part) for part in parts] if are_shares else scale.at(values),
                "marker": {"color": SERIES[place % len(SERIES)], "line": {"width": 0}},
                "hovertemplate": f"{plain(block)}: %{{text}}<extra>%{{x}}</extra>",
            }
        )  # fmt: skip
    x = {"title": "", "type": "category", "showgrid": False, "tickangle": -60}
    return Panel(tuple(bars), x, axis, {"barmode": "stack", "bargap": 0.25})


def _are_shares(panels: Sequence[Panel]) -> bool:
    return any(panel.y["title"].startswith(SHARE_OF) for panel in panels)


def _largest_blocks(blocks: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    """Values of each block over designs, the largest first; those beyond `MAX_BLOCKS` are one."""
    sums: dict[str, float] = {}
    for parts in blocks.values():
        for block, value in parts.items():
            sums[block] = sums.get(block, 0.0) + value
    ranked = sorted((block for block in sums if sums[block]), key=lambda block: -sums[block])
    own = ranked if len(ranked) <= MAX_BLOCKS + 1 else ranked[:MAX_BLOCKS]
    rest = [block for block in ranked if block not in own]
    stacks = {block: [parts.get(block, 0.0) for parts in blocks.values()] for block in own}
    if rest:
        stacks[f"{len(rest)} smaller blocks"] = [sum(parts.get(block, 0.0) for block in rest) for parts in blocks.values()]
    return stacks


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
        found = find_stored_design(study, part.frame, part.screened, design)
        return found.id, found.values
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
    knobs = [f"{address} {value}" for address, value in knob_values(study, row).items()]
    return hover_lines(f"design {row[DESIGN]}", *metrics, *knobs)
