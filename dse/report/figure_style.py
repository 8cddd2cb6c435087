"""Panels of figures in Plotly's terms, with one look for the page, Python and files.

Colours are names of variables of `page.css`. The page resolves them in its theme, `compose_panels` in a given one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dse.space.units import choose_display_unit

SERIES = tuple(f"--s{number}" for number in range(1, 9))
"""Colours of series, in order."""

RESOURCE_COLOURS = {
    "matrix": "--s1",
    "products": "--s1",
    "vector": "--s7",
    "hbm": "--s2",
    "l2": "--s6",
    "network": "--s4",
    "multicast": "--s4",
    "reduction": "--s3",
    "synchronisation": "--s6",
    "words": "--s4",
    "prefetch": "--s5",
    "hops": "--s3",
    "stages": "--s6",
    "starts": "--s8",
    "overhead": "--s8",
    "overlap": "--s5",
}
"""Colours of what takes time, in the order of stacks: engines at the bottom."""

DECADE_AND_A_HALF = 30.0
"""Largest over smallest value from which on an axis is logarithmic."""

PRETTY = (("mm2", "mm²"), ("us", "µs"))
"""Units as text, and as an axis shows them."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its traces.

    Attributes:
        traces: in Plotly's terms, without axes.
        x, y: axes in Plotly's terms, with ``title`` as text.
        layout: further keys of the layout, such as ``barmode``.
    """

    traces: tuple[dict[str, Any], ...]
    x: dict[str, Any]
    y: dict[str, Any]
    layout: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FigureSpec:
    """One figure: its panels with title and caption.

    Attributes:
        title, caption: as plain text.
        panels: one or several.
        side_by_side: whether panels stand in columns; else below each other with one x axis.
    """

    title: str
    caption: str
    panels: tuple[Panel, ...]
    side_by_side: bool = False

    def record(self) -> dict[str, Any]:
        """The figure as JSON values for the page."""
        panels = [{"traces": list(panel.traces), "x": panel.x, "y": panel.y, "layout": panel.layout} for panel in self.panels]
        return {"title": self.title, "caption": self.caption, "panels": panels, "columns": self.side_by_side}


@dataclass(frozen=True)
class Scale:
    """Values of an axis in a unit for reading.

    Attributes:
        divisor: of values in SI.
        unit: prefixed.
        axis: in Plotly's terms.
    """

    divisor: float
    unit: str
    axis: dict[str, Any]

    def axis_values(self, values: Any) -> list[float]:
        """Values of the axis, from values in SI."""
        return [short_number(value) for value in np.asarray(values, dtype=float) / self.divisor]


def make_scale(title: str, unit: str, values: Any, *, logarithmic: bool | None = None, largest: float | None = None) -> Scale:
    """Axis for some values: logarithmic where they span more than `DECADE_AND_A_HALF`, unless stated.

    Args:
        title, unit: of the axis, the unit without prefix.
        values: in SI.
        logarithmic: None to choose by the values.
        largest: value whose prefix the unit takes, for axes that share one; None for that of the values.

    >>> make_scale("TTFT", "s", [0.002, 0.005]).axis
    {'title': 'TTFT [ms]', 'rangemode': 'tozero'}
    """
    numbers = np.asarray(values, dtype=float)
    numbers = np.abs(numbers[np.isfinite(numbers)])
    divisor, shown = choose_display_unit(float(numbers.max(initial=0.0)) if largest is None else largest, unit)
    positive = numbers[numbers > 0]
    if logarithmic is None:
        logarithmic = len(positive) == len(numbers) > 0 and bool(positive.max() > DECADE_AND_A_HALF * positive.min())
    kind: dict[str, Any] = {"type": "log", "dtick": "D2", "exponentformat": "none"} if logarithmic else {"rangemode": "tozero"}
    return Scale(divisor, shown, {"title": f"{title} [{pretty_unit(shown)}]" if shown else title, **kind})


def pretty_unit(unit: str) -> str:
    """A unit as people read it, with raised digits.

    >>> pretty_unit("token/s/mm2"), pretty_unit("us")
    ('token/s/mm²', 'µs')
    """
    for plain, pretty in PRETTY:
        unit = unit if plain == "us" and unit != "us" else unit.replace(plain, pretty)
    return unit


def plain(text: object) -> str:
    """Text without tags for Plotly, which reads a few.

    >>> plain("a <b> & c")
    'a &lt;b&gt; &amp; c'
    """
    return escape(str(text), quote=False)


def short_number(value: float, digits: int = 6) -> float:
    """A number with few digits, for pages."""
    return float(f"{value:.{digits}g}")


def hover_lines(*lines: str) -> str:
    """Lines of a hover box, without tags of their own; empty ones are left out."""
    return "<br>".join(plain(line) for line in lines if line)


def line_trace(x: Sequence[float], y: Sequence[float], colour: str, name: str = "", **line: Any) -> dict[str, Any]:
    """A line without marks: a bound or a roof, in the legend if it has a name."""
    legend = {"name": plain(name)} if name else {"showlegend": False}
    return {
        "type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "hoverinfo": "skip", **legend,
        "line": {"color": colour, "width": 1.6, **line},
    }  # fmt: skip


@cache
def palette(scheme: str) -> Mapping[str, str]:
    """Variables of the page's style sheet in a colour scheme, by name.

    Args:
        scheme: light or dark.

    >>> palette("light")["--s1"] != palette("dark")["--s1"]
    True
    """
    text = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root[^{]*\{(.*?)\}", text, re.DOTALL)[:2]
    variables = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", light))
    return variables | (dict(re.findall(r"(--[\w-]+):\s*([^;]+);", dark)) if scheme == "dark" else {})


def resolve_colours(value: Any, colours: Mapping[str, str]) -> Any:
    """The same JSON value with names of variables replaced by their colours.

    >>> resolve_colours({"line": {"color": "--s1"}, "x": ["--"]}, {"--s1": "#0a7087"})
    {'line': {'color': '#0a7087'}, 'x': ['--']}
    """
    if isinstance(value, dict):
        return {name: resolve_colours(part, colours) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [resolve_colours(part, colours) for part in value]
    return colours.get(value, value) if isinstance(value, str) else value


COLUMN_GAP, ROW_GAP = 0.09, 0.07
"""Space between panels, as a share of the figure's width and height."""


def compose_panels(spec: FigureSpec, scheme: str = "light") -> dict[str, Any]:
    """One Plotly figure, as JSON values, with all panels of a figure and its title.

    Args:
        spec: the figure.
        scheme: light or dark.
    """
    count, traces = len(spec.panels), []
    layout: dict[str, Any] = _frame_layout(spec)
    for place, panel in enumerate(spec.panels):
        number = "" if not place else str(place + 1)
        across, up = _domains(place, count, side_by_side=spec.side_by_side)
        layout[f"xaxis{number}"] = _axis(panel.x) | {"domain": across, "anchor": f"y{number}"}
        layout[f"yaxis{number}"] = _axis(panel.y) | {"domain": up, "anchor": f"x{number}"}
        if place and not spec.side_by_side:
            layout[f"xaxis{number}"]["matches"] = "x"
        layout |= panel.layout
        layout[f"legend{number}"] = _legend(across, up, count, side_by_side=spec.side_by_side)
        for trace in panel.traces:
            traces.append({**trace, "xaxis": f"x{number}", "yaxis": f"y{number}", "legend": f"legend{number}"})
    figure = {"data": traces, "layout": layout}
    return dict(resolve_colours(figure, palette(scheme)))


def _frame_layout(spec: FigureSpec) -> dict[str, Any]:
    """What stands around the panels."""
    subtitle = {"text": "<br>".join(_wrapped(plain(spec.caption))), "font": {"size": 12, "color": "--soft"}}
    lines = len(_wrapped(spec.caption))
    return {
        "template": {},
        "title": {"text": plain(spec.title), "subtitle": subtitle, "x": 0.01, "xanchor": "left", "y": 0.985, "yanchor": "top"},
        "font": {"family": "--sans", "size": 12, "color": "--ink"},
        "paper_bgcolor": "--paper",
        "plot_bgcolor": "--paper",
        "hovermode": "closest",
        "margin": {"l": 70, "r": 24, "t": 100 + 16 * lines, "b": 56},
        "width": 1100 if spec.side_by_side else 900,
        "height": 760 if spec.side_by_side else 600 if len(spec.panels) == 1 else 260 * len(spec.panels) + 130,
    }


def _wrapped(text: str, width: int = 140) -> list[str]:
    """Text in lines of at most some letters."""
    import textwrap

    return textwrap.wrap(text, width)


def _domains(place: int, count: int, *, side_by_side: bool) -> tuple[list[float], list[float]]:
    """Place of a panel across and up, as shares of the figure; the first is on the left or at the top."""
    gap = COLUMN_GAP if side_by_side else ROW_GAP
    size = (1 - gap * (count - 1)) / count
    start = place * (size + gap)
    if side_by_side:
        return [start, min(1.0, start + size)], [0.0, 1.0]
    return [0.0, 1.0], [max(0.0, 1 - start - size), 1 - start]


def _axis(axis: Mapping[str, Any]) -> dict[str, Any]:
    """An axis in the look of the page."""
    return {
        "automargin": True, "zeroline": False, "gridcolor": "--line", "linecolor": "--line",
        "tickfont": {"size": 11, "color": "--soft"},
        **axis, "title": {"text": plain(axis["title"]), "font": {"size": 12, "color": "--soft"}, "standoff": 8},
    }  # fmt: skip


def _legend(across: list[float], up: list[float], count: int, *, side_by_side: bool) -> dict[str, Any]:
    """Legend of a panel: below its column, to the right of its row, or above a single panel."""
    font = {"size": 11, "color": "--soft"}
    if side_by_side:
        return {"x": across[0], "xanchor": "left", "y": -0.19, "yanchor": "top", "font": font, "traceorder": "normal"}
    if count > 1:
        return {"x": 1.01, "xanchor": "left", "y": up[1], "yanchor": "top", "font": font}
    return {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "font": font}
