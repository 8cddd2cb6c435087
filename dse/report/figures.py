"""The pictures of a report, as Plotly figures of a study's frame."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dse.pareto import front, hypervolume, minimised
from dse.screen import Screened
from dse.show import knob_text
from dse.study import Study
from evaluators.breakdown import Breakdown
from evaluators.metrics import METRICS
from space.fields import spec_at
from space.units import display, show

INK, MUTED, ACCENT, SECOND = "#1f2933", "#9aa5b1", "#0b7285", "#e8590c"
SERIES = ["#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#1971c2"]
BOUNDS = {
    "matrix": "#0b7285",
    "vector": "#15aabf",
    "hbm": "#e8590c",
    "l2": "#fab005",
    "network": "#5f3dc4",
    "prefetch": "#c2255c",
    "overhead": "#868e96",
    "products": "#0b7285",
    "starts": "#868e96",
    "words": "#e8590c",
    "stages": "#5f3dc4",
    "hops": "#fab005",
    "overlap": "#ced4da",
}
"""What time can be spent on, on a die and on a mesh of cores."""
WEBGL = 3000
"""Points above which a scatter is drawn by WebGL."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A column scaled for reading."""

    values: Any
    title: str
    unit: str = ""


def axis(asked: Study, frame: pd.DataFrame, name: str) -> Axis:
    """A metric or a knob of a frame, in a unit that reads well."""
    if name in METRICS:
        unit = METRICS[name].unit
    else:
        unit = spec_at(asked.question.base, asked.question.space.targets[name][0]).metadata["unit"]
        if not unit:
            return Axis(frame[name].fillna("-"), name)
    values = frame[name].to_numpy(dtype=float)
    divisor, label = display(float(np.nanmax(np.abs(values))) if len(values) else 0.0, unit)
    return Axis(values / divisor, f"{name} [{label}]" if label else name, label)


def hover(asked: Study, frame: pd.DataFrame) -> list[str]:
    """Every knob and metric of each design, with units."""
    knobs = [knob.address for knob in asked.question.space.knobs]
    texts = []
    for row in frame.to_dict("records"):
        lines = [f"<b>{address}</b> {knob_text(asked, address, row[address])}" for address in knobs]
        known = {name: row.get(name, float("nan")) for name in METRICS}
        lines += [f"{name} {show(float(value), METRICS[name].unit)}" for name, value in known.items() if value == value]
        texts.append("<br>".join(lines))
    return texts


def pareto(asked: Study, frame: pd.DataFrame) -> go.Figure:
    """The first two objectives: every design that was looked at, and the front."""
    x, y = [*asked.objectives, *asked.objectives][:2]
    others, best = frame[frame["feasible"] & ~frame["front"]], frame[frame["front"]].sort_values(x)
    figure = go.Figure()
    every = pd.concat([others, best])
    scaled = {name: axis(asked, every, name) for name in (x, y)}
    cut = len(others)
    scatter = go.Scattergl if cut > WEBGL else go.Scatter
    figure.add_trace(
        scatter(
            x=scaled[x].values[:cut],
            y=scaled[y].values[:cut],
            mode="markers",
            name=f"other feasible designs ({cut:,})",
            marker={"size": 4, "color": MUTED, "opacity": 0.45},
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=scaled[x].values[cut:],
            y=scaled[y].values[cut:],
            mode="lines+markers",
            line={"color": ACCENT, "width": 1, "dash": "dot"},
            name=f"front ({len(best):,})",
            marker={"size": 9, "color": ACCENT, "line": {"width": 1, "color": "white"}},
            text=hover(asked, best),
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_layout(xaxis_title=_goal(asked, scaled[x].title, x), yaxis_title=_goal(asked, scaled[y].title, y))
    if len(best) > 1:
        figure.update_xaxes(range=_window(scaled[x].values, cut, asked.objectives[x]))
        figure.update_yaxes(range=_window(scaled[y].values, cut, asked.objectives[y]))
    return styled(figure)


def line(asked: Study, frame: pd.DataFrame, spec: dict[str, str]) -> go.Figure:
    """The best value of a metric at each value of a knob, one line a value of another knob."""
    by = spec.get("by") if spec.get("by") in asked.question.space.targets else None
    rows = frame[frame["feasible"]]
    x, y = axis(asked, rows, spec["x"]), axis(asked, rows, spec["y"])
    table = pd.DataFrame(
        {"x": x.values, "y": y.values, "by": rows[by].map(lambda value: knob_text(asked, by, value)) if by else spec["y"]}
    )
    better = METRICS[spec["y"]].better
    best = table.groupby(["by", "x"], as_index=False)["y"].agg(better)
    figure = go.Figure()
    ticks = sorted(set(best["x"]))
    doubling = len(ticks) > 3 and all(not isinstance(t, str) and abs(t / ticks[0] - 2.0**i) < 1e-9 for i, t in enumerate(ticks))
    for color, (name, group) in zip(SERIES * 9, best.groupby("by"), strict=False):
        peak = group.loc[group["y"].idxmax() if better == "max" else group["y"].idxmin()]
        label = f"{by} = {name}" if by else str(name)
        figure.add_trace(
            go.Scatter(x=group["x"], y=group["y"], mode="lines+markers", name=label, line={"color": color}, marker={"size": 5})
        )
        figure.add_annotation(
            x=np.log10(peak["x"]) if doubling else peak["x"],
            y=peak["y"],
            text=f"{peak['y']:.4g} {y.unit} at {peak['x']:.4g} {x.unit}".rstrip(),
            showarrow=True,
            arrowhead=0,
            arrowcolor=color,
            font={"color": color},
            ay=-28 if better == "max" else 28,
        )
    figure.update_layout(xaxis_title=x.title, yaxis_title=f"{y.title}, {'highest' if better == 'max' else 'lowest'}")
    if doubling:
        figure.update_xaxes(type="log", tickvals=ticks)
    return styled(figure)


def hypervolume_history(asked: Study, frame: pd.DataFrame, screened: Screened | None) -> go.Figure | None:
    """Share of the objective space between the front's best and worst corners that is dominated, by evaluations."""
    searched = frame[frame["number"].notna()].sort_values("number")
    feasible = frame[frame["feasible"]]
    if not len(searched) or not len(feasible):
        return None
    names, directions = list(asked.objectives), asked.directions
    low, high = _corners(feasible[feasible["front"]][names].to_numpy(dtype=float), directions)
    numbers = searched["number"].to_numpy(dtype=float) + 1
    values = searched[names].to_numpy(dtype=float)
    usable = searched["feasible"].to_numpy()
    marks = np.unique(np.geomspace(1, len(searched), 60).round().astype(int))
    shares = [hypervolume(_kept(values[:n], usable[:n], directions), directions, low, high) for n in marks]
    figure = go.Figure(
        go.Scatter(x=numbers[marks - 1], y=shares, mode="lines", line={"color": ACCENT, "shape": "hv"}, name="search")
    )
    if screened is not None and len(screened.front):
        share = hypervolume(screened.front[names].to_numpy(dtype=float), directions, low, high)
        figure.add_hline(y=share, line={"color": SECOND, "dash": "dash"}, annotation_text="screened front")
    figure.update_layout(xaxis_title="designs asked by the search", yaxis_title="hypervolume [share of the front's box]")
    return styled(figure)


def binding(labels: list[str], parts: list[Breakdown]) -> go.Figure:
    """What the time of each front design is spent on."""
    figure = go.Figure()
    for name, color in BOUNDS.items():
        shares = [100 * part.by_bound().get(name, 0.0) / part.seconds for part in parts]
        if any(abs(share) > 0.05 for share in shares):
            figure.add_trace(
                go.Bar(
                    y=labels,
                    x=shares,
                    name=name,
                    orientation="h",
                    marker_color=color,
                    hovertemplate=f"%{{y}}<br>{name} %{{x:.1f}} %<extra></extra>",
                )
            )
    figure.update_layout(barmode="stack", xaxis_title="share of the time [%]", yaxis={"autorange": "reversed"})
    styled(figure)
    figure.update_layout(height=max(240, 60 + 22 * len(labels)))
    return figure


def styled(figure: go.Figure) -> go.Figure:
    """The house's look: no frame, light grid, legend on top."""
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "Inter, system-ui, sans-serif", "size": 13, "color": INK},
        margin={"l": 70, "r": 20, "t": 70, "b": 55},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"align": "left", "bgcolor": "white", "font": {"color": INK}},
        height=460,
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": INK},
    )
    figure.update_xaxes(gridcolor="#dde3e9", zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor="#dde3e9", zeroline=False, automargin=True)
    return figure


def _goal(asked: Study, title: str, name: str) -> str:
    return f"{title}, {'more' if asked.objectives[name] == 'max' else 'less'} is better"


def _window(values: Any, cut: int, direction: str) -> list[float]:
    """The span of the front, from row `cut` on, and some more on its worse side; a double click shows the rest."""
    low, high = float(np.min(values[cut:])), float(np.max(values[cut:]))
    span = (high - low) or abs(high) or 1.0
    worst = float(np.min(values) if direction == "max" else np.max(values))
    if direction == "max":
        return [max(low - span * 0.6, worst - span * 0.04), high + span * 0.08]
    return [low - span * 0.08, min(high + span * 0.6, worst + span * 0.04)]


def _corners(values: Any, directions: list[str]) -> tuple[Any, Any]:
    small = minimised(values, directions)
    low, high = small.min(axis=0), small.max(axis=0)
    return low, high + 0.1 * np.where(high > low, high - low, np.abs(high) + 1e-12)


def _kept(values: Any, usable: Any, directions: list[str]) -> Any:
    rows = values[usable.astype(bool)]
    return rows[front(rows, directions)] if len(rows) else rows
