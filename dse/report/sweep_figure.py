"""Figure of a sweep: the objective over one swept setting, a line for each combination of the others."""

from collections import defaultdict
from typing import Any

from dse.analysis.sweep import Sweep, SweptDesign
from dse.evaluators import METRICS
from dse.report.figure_style import SERIES, FigureSpec, Panel, hover_lines, make_scale, plain
from dse.report.metric_names import plain_name
from dse.space.units import format_quantity

MAX_LINES = 16
"""Combinations of other settings that have a line of their own; of more, all designs of one setting share a colour."""


def build_sweep_figure(sweep: Sweep) -> FigureSpec:
    """The objective of feasible designs over the swept setting with the most values.

    Args:
        sweep: a sweep.
    """
    numeric = [address for address in sweep.axes if all(_is_number(design, address) for design in sweep.feasible)]
    across = max(numeric or sweep.axes, key=lambda address: len(sweep.axes[address]))
    others = [address for address in sweep.axes if address != across]
    lines: dict[str, list[SweptDesign]] = defaultdict(list)
    for design in sweep.feasible:
        lines[", ".join(_value_text(sweep, design, address) for address in others)].append(design)
    many = len(lines) > MAX_LINES
    objective = plain_name(sweep.objective)
    unit = METRICS[sweep.objective].unit
    up = make_scale(objective, unit, [design.metrics[sweep.objective] for design in sweep.feasible])
    axis, place = _across_axis(sweep, across, numeric)
    traces: list[dict[str, Any]] = []
    for number, (name, designs) in enumerate(lines.items()):
        ordered = sorted(designs, key=lambda design: place(design)) if numeric else designs
        traces.append(
            {
                "type": "scatter", "mode": "markers" if many else "lines+markers", "name": plain(name) or objective,
                "showlegend": not many and len(lines) > 1, "x": [place(design) for design in ordered],
                "y": up.axis_values([design.metrics[sweep.objective] for design in ordered]),
                "text": [_hover_text(sweep, design) for design in ordered], "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 7, "color": SERIES[0 if many else number % len(SERIES)]},
                "line": {"color": SERIES[0 if many else number % len(SERIES)], "width": 1.6},
            }
        )  # fmt: skip
    total, feasible = len(sweep.designs), len(sweep.feasible)
    caption = f"{feasible:,} of {total:,} combinations are feasible. Lines: {', '.join(others) or 'none'}."
    return FigureSpec(f"sweep: {objective} over {across}", caption, (Panel(tuple(traces), axis, up.axis),))


def _is_number(design: SweptDesign, address: str) -> bool:
    return isinstance(design.values.get(address, 0.0), int | float)


def _across_axis(sweep: Sweep, across: str, numeric: list[str]) -> tuple[dict[str, Any], Any]:
    """Axis across, and the place of a design on it."""
    if across not in numeric:
        return {"title": plain(across), "type": "category"}, lambda design: str(design.values.get(across, "-"))
    values = [float(design.values.get(across, 0.0)) for design in sweep.feasible]
    scale = make_scale(across, sweep.units[across].replace("1", ""), values)
    return scale.axis, lambda design: scale.axis_values([design.values.get(across, 0.0)])[0]


def _value_text(sweep: Sweep, design: SweptDesign, address: str) -> str:
    """A swept setting and its value as text."""
    return f"{address.rpartition('.')[2]} {format_swept_value(sweep, address, design.values.get(address))}"


def format_swept_value(sweep: Sweep, address: str, value: Any) -> str:
    """Value of a swept setting as text, with its unit; a dash where it has no effect."""
    if value is None:
        return "-"
    if isinstance(value, str) or not sweep.units[address]:
        return str(value)
    return format_quantity(float(value), sweep.units[address])


def _hover_text(sweep: Sweep, design: SweptDesign) -> str:
    metrics = [
        f"{plain_name(sweep.objective)} {format_quantity(design.metrics[sweep.objective], METRICS[sweep.objective].unit)}"
    ]
    return hover_lines(
        *(f"{address} {format_swept_value(sweep, address, design.values.get(address))}" for address in sweep.axes), *metrics
    )
