"""Figures of a sweep: the objective over a swept setting, by the others or at its best."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dse.analysis.sweep import Sweep, SweptDesign
from dse.evaluators import METRICS
from dse.report.figure_style import SERIES, FigureSpec, Panel, Scale, hover_lines, make_scale, plain
from dse.space.units import format_quantity
from dse.terminal.plain_names import plain_name, setting_name

MAX_LINES = 16
"""Combinations of other settings that have a line of their own; of more, all designs of one setting share a colour."""

MAX_MARKED = 40
"""Designs of a line up to which each has a mark."""

MAX_POINTS = 1000
"""Designs that are drawn one by one; of more, an even choice from best to worst, with the best at each value."""

Place = Callable[[SweptDesign], Any]


class _Across(NamedTuple):
    """The axis across a figure: its address, its form in Plotly's terms, and the place of a design on it."""

    address: str
    axis: dict[str, Any]
    place: Place


def build_sweep_figure(sweep: Sweep) -> FigureSpec:
    """The objective of feasible designs over the swept setting with the most values.

    Args:
        sweep: with a feasible design.
    """
    numeric = _numeric_axes(sweep)
    across = _across(sweep, max(numeric or sweep.axes, key=lambda address: len(sweep.axes[address])), numeric)
    others = [address for address in sweep.axes if address != across.address]
    lines: dict[str, list[SweptDesign]] = defaultdict(list)
    for design in sweep.feasible:
        lines[", ".join(_value_text(sweep, design, address) for address in others)].append(design)
    objective, up = plain_name(sweep.objective), _objective_scale(sweep)
    total, feasible = len(sweep.designs), len(sweep.feasible)
    caption = f"{feasible:,} of {total:,} combinations are feasible."
    if len(lines) > MAX_LINES:
        step = -(-feasible // MAX_POINTS)
        chosen = sweep.feasible[::step]
        traces = [_points(sweep, chosen, across, up, f"designs ({len(chosen):,})", 7, mode="markers")]
        traces.append(_points(sweep, _best_at_values(sweep, across), across, up, "best at each value", 1, mode="lines+markers"))
        caption += (
            f" Points: {f'an even choice of {len(chosen):,}' if step > 1 else 'all of them'}. Line: the best at each value."
        )
    else:
        traces = [
            _points(sweep, designs, across, up, name or objective, number, mode="lines+markers", in_legend=len(lines) > 1)
            for number, (name, designs) in enumerate(lines.items())
        ]
        caption += f" Lines: {', '.join(map(setting_name, others))}." if others else ""
    traces += _band_trace(sweep, across, up)
    title = f"Sweep: {objective} over {setting_name(across.address)}"
    return FigureSpec(title, caption, (Panel(tuple(traces), across.axis, up.axis),))


def build_setting_figures(sweep: Sweep) -> list[FigureSpec]:
    """A figure a swept setting with the best objective at each value; none for a single setting.

    Args:
        sweep: with a feasible design.
    """
    numeric, up = _numeric_axes(sweep), _objective_scale(sweep)
    word = "highest" if sweep.better == "max" else "lowest"
    figures = []
    for number, address in enumerate(sweep.axes if len(sweep.axes) > 1 else ()):
        across = _across(sweep, address, numeric)
        mode = "lines+markers" if address in numeric else "markers"  # nothing lies between two words
        trace = _points(sweep, _best_at_values(sweep, across), across, up, "", number, mode=mode, in_legend=False)
        title = f"The {word} {plain_name(sweep.objective)} at each value of {setting_name(address)}"
        figures.append(FigureSpec(title, "", (Panel((trace,), across.axis, up.axis),)))
    return figures


def _numeric_axes(sweep: Sweep) -> list[str]:
    return [address for address in sweep.axes if all(_is_number(design, address) for design in sweep.feasible)]


def _is_number(design: SweptDesign, address: str) -> bool:
    return isinstance(design.values.get(address, 0.0), int | float)


def _objective_scale(sweep: Sweep) -> Scale:
    unit = METRICS[sweep.objective].unit
    return make_scale(plain_name(sweep.objective), unit, [design.metrics[sweep.objective] for design in sweep.feasible])


def _across(sweep: Sweep, address: str, numeric: Sequence[str]) -> _Across:
    """Axis across, and the place of a design on it."""
    if address not in numeric:
        axis = {"title": plain(setting_name(address)), "type": "category"}
        return _Across(address, axis, lambda design: str(design.values.get(address, "-")))
    values = [float(design.values.get(address, 0.0)) for design in sweep.feasible]
    scale = make_scale(setting_name(address), sweep.units[address].replace("1", ""), values)
    axis = {name: value for name, value in scale.axis.items() if name != "rangemode"}  # settings have a range of their own
    return _Across(address, axis, lambda design: scale.axis_values([design.values.get(address, 0.0)])[0])


def _best_at_values(sweep: Sweep, across: _Across) -> list[SweptDesign]:
    """The best feasible design at each place of an axis."""
    best: dict[Any, SweptDesign] = {}
    for design in sweep.feasible:  # the best first
        best.setdefault(across.place(design), design)
    return list(best.values())


def _points(
    sweep: Sweep, designs: Sequence[SweptDesign], across: _Across, up: Scale, name: str, colour: int, *, mode: str,
    in_legend: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Designs as one trace, in the order of the axis across."""
    ordered = designs if across.axis.get("type") == "category" else sorted(designs, key=across.place)
    return {
        "type": "scatter", "mode": "lines" if mode != "markers" and len(ordered) > MAX_MARKED else mode,
        "name": plain(name), "showlegend": in_legend,
        "x": [across.place(design) for design in ordered],
        "y": up.axis_values([design.metrics[sweep.objective] for design in ordered]),
        "text": [_hover_text(sweep, design) for design in ordered], "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 5 if mode == "markers" and len(ordered) > MAX_LINES else 7, "color": SERIES[colour % len(SERIES)]},
        "line": {"color": SERIES[colour % len(SERIES)], "width": 1.6},
    }  # fmt: skip


def _band_trace(sweep: Sweep, across: _Across, up: Scale) -> list[dict[str, Any]]:
    """The best design with the range of its measured objective; nothing if no row tells."""
    ends = sweep.best.measured_range(sweep.objective) if sweep.best is not None else None
    if ends is None:
        return []
    best = sweep.feasible[0]
    value = best.metrics[sweep.objective]
    above, below = ([max(end, 0.0) / up.divisor] for end in (ends[1] - value, value - ends[0]))
    return [
        {
            "type": "scatter", "mode": "markers", "name": "best, and where measurements lie", "x": [across.place(best)],
            "y": up.axis_values([value]), "text": [_hover_text(sweep, best)], "hovertemplate": "%{text}<extra></extra>",
            "marker": {"size": 11, "symbol": "circle-open", "color": "--ink", "line": {"width": 2}},
            "error_y": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "color": "--ink"},
        }
    ]  # fmt: skip


def _value_text(sweep: Sweep, design: SweptDesign, address: str) -> str:
    """A swept setting and its value as text."""
    return f"{setting_name(address)} {format_swept_value(sweep, address, design.values.get(address))}"


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
    return hover_lines(*(_value_text(sweep, design, address) for address in sweep.axes), *metrics)
