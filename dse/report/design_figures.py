"""Figures of single designs: latency against load, rooflines, and area, power and price by block."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.analysis.load_curve import LoadCurve
from dse.evaluators.accounting.usage import PeakRates
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
from dse.space.errors import DesignError
from dse.space.units import format_quantity
from dse.terminal.plain_names import part_name

MAX_BLOCKS = 7
"""Blocks with a colour of their own; smaller ones are one."""

SHARE_OF = "share of"
"""What begins the title of an axis of shares."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""Marks of a roofline, by phase."""

MAX_NAMES, NAME_ROOM = 8, (0.35, 0.12)
"""Names of operators in a roofline at most, and decades across and up between two of them."""

MARK_RANGE = (7.0, 26.0)
"""Least and largest mark of a roofline. [px]"""


def load_figure(name: str, curve: LoadCurve) -> FigureSpec:
    """Figure of a latency curve: TTFT, time per token and SLO attainment against the rate."""
    x = make_scale("arrival rate", "Hz", curve.rates, logarithmic=False)
    panels, latencies = [], []
    for title, prefixes, place in (("time to first token", ("ttft",), 0), ("time per token", ("tpot", "tbt"), 1)):
        known = {key: values for key, values in curve.metrics.items() if key.split("_")[0] in prefixes}
        limits = [(name, bound[place]) for name, *bound in curve.bounds if np.isfinite(bound[place])]
        every = np.concatenate([*known.values(), [limit for _, limit in limits]]) if known else np.zeros(0)
        latencies.append((title, known, limits, every[np.isfinite(every)]))
    shared = min((float(every.max()) for *_, every in latencies if len(every)), default=0.0)  # one unit for all latencies
    for title, known, limits, every in latencies:
        y = make_scale(title, "s", every, largest=shared)
        traces = [
            {
                "type": "scatter", "mode": "lines+markers", "name": plain(_latency_name(key)),
                "x": x.axis_values(curve.rates), "y": y.axis_values(values),
                "line": {"color": SERIES[number % len(SERIES)], "width": 1.8}, "marker": {"size": 5},
                "hovertemplate": f"{plain(_latency_name(key))} %{{y:.4~g}} {y.unit} at %{{x:.4~g}} {x.unit}<extra></extra>",
            }
            for number, (key, values) in enumerate(known.items())
        ]  # fmt: skip
        for class_name, limit in limits:
            label = f"bound{f' of {class_name}' * bool(class_name)}: {format_quantity(limit, 's')}"
            traces.append(
                line_trace([0.0, x.axis_values(curve.rates)[-1]], y.axis_values([limit] * 2), "--bad", label, dash="dash")
            )
        panels.append(
            _with_marks(
                Panel(tuple(traces), dict(x.axis), y.axis),
                curve,
                x,
                y.axis_values([every.min(initial=0.0), every.max(initial=0.0)]),
            )
        )
    share = 100 * curve.metrics["slo_attainment"]
    kept = {
        "type": "scatter", "mode": "lines+markers", "name": "within the SLO",
        "x": x.axis_values(curve.rates), "y": share.tolist(),
        "line": {"color": "--s3", "width": 1.8}, "marker": {"size": 5},
        "hovertemplate": f"%{{y:.4~g}} % at %{{x:.4~g}} {x.unit}<extra></extra>",
    }  # fmt: skip
    bound = line_trace(
        [0.0, x.axis_values(curve.rates)[-1]], [100 * curve.share] * 2, "--bad", f"asked: {100 * curve.share:g} %", dash="dash"
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
        marks.append(line_trace(x.axis_values([curve.max_rate] * 2), ends, "--accent", label, dash="dot", width=2))
    if curve.saturated <= curve.rates[-1] * (1 + 1e-9) and curve.saturated > curve.max_rate:
        label = f"saturated: {format_quantity(curve.saturated, 'Hz')}"
        marks.append(line_trace(x.axis_values([curve.saturated] * 2), ends, "--faint", label, dash="dot"))
    return Panel((*panel.traces, *marks), panel.x, panel.y, panel.layout)


def _load_caption(curve: LoadCurve) -> str:
    condition = f"{100 * curve.share:g} % of requests within their SLO"
    if curve.is_known:
        largest = f"The largest rate is the design's metric max_rate ({condition})."
    elif curve.max_rate:
        most = ", and saturation ends it" if curve.max_rate >= curve.saturated else ""
        largest = f"The largest rate is that of these requests ({condition}{most}); few requests overstate it."
    else:
        largest = f"No rate down to {2.0**-6:.3g} of saturation has {condition}."
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
            x.axis_values([ridge if ridge > 0 else ends[0], ends[1]]),
            y.axis_values([flops] * 2),
            "--ink",
            f"engines: {format_quantity(flops, 'op/s')}",
        )
    ]
    if memory > 0:
        slope = line_trace(
            x.axis_values([ends[0], ridge]),
            y.axis_values([memory * ends[0], flops]),
            "--s2",
            f"main memory: {format_quantity(memory, 'B/s')}",
        )
        roofs.insert(0, slope)
    marks, labels = _operator_marks(shown, total, x.axis_values(intensity), y.axis_values(speed)), _key_traces(shown)
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
        places = [number for number, operator in enumerate(shown) if operator[0] == phase]
        traces.append(
            {
                "type": "scatter", "mode": "markers+text", "showlegend": False, "cliponaxis": False,
                "x": [x[number] for number in places], "y": [y[number] for number in places],
                "marker": {
                    "symbol": SYMBOLS[place % len(SYMBOLS)], "opacity": 0.85,
                    "size": [_mark_size(shown[number][8] / total) for number in places],
                    "color": [RESOURCE_COLOURS.get(shown[number][4], "--s8") for number in places],
                },
                "text": [plain(shown[number][2]) if number in named else "" for number in places],
                "textposition": "bottom center", "textfont": {"size": 10, "color": "--soft"},
                "hovertext": [_operator_text(shown[number], total) for number in places],
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
    keys += [(f"bound by {part_name(bound)}", "line-ew", RESOURCE_COLOURS.get(bound, "--s8"), 4) for bound in bounds]
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
        f"{format_quantity(seconds, 's')}, {100 * seconds / total:.3g} % of the time, bound by {part_name(bound)}",
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
        unit = next(unit for record in records.values() for other, unit, _ in record if other == title)
        blocks = {
            name: next((dict(values) for other, _, values in record if other == title), {}) for name, record in records.items()
        }
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
                "type": "bar", "name": plain(part_name(block)), "x": names, "text": texts, "textposition": "none",
                "y": [short_number(part) for part in parts] if are_shares else scale.axis_values(values),
                "marker": {"color": SERIES[place % len(SERIES)], "line": {"width": 0}},
                "hovertemplate": f"{plain(part_name(block))}: %{{text}}<extra>%{{x}}</extra>",
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
