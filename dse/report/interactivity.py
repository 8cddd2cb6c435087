"""Throughput over a resource against tokens/s of a user: a curve a chip, and real machines.

Each point is a mapping and a load: a design in one case of the workload. The curve of a chip has its points that no
other point of the chip beats in both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dse.accuracy.measured_machines import MeasuredPoint, measured_points
from dse.evaluators import METRICS
from dse.execution.result_frame import DESIGN
from dse.execution.study import Study
from dse.report.case_metrics import rows_by_case
from dse.report.figure_style import SERIES, FigureSpec, Panel, hover_lines, make_scale, plain
from dse.search.pareto import front_mask, nondominated_layers
from dse.space.errors import DesignError, suggest_nearest
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.units import format_quantity
from dse.terminal.plain_names import plain_name

TOKEN_TIME = "tpot"


class ResourceMetric(NamedTuple):
    """A metric that tells how much throughput a unit of a resource gives.

    Attributes:
        name: of the metric.
        unit: of throughput over the resource.
        inverse: factor over the metric where it is the resource over throughput; 0 where it is throughput over the resource.
    """

    name: str
    unit: str
    inverse: float = 0.0

    def value(self, metric: Any) -> Any:
        """Throughput over the resource, from the metric's values."""
        return self.inverse / metric if self.inverse else metric * 1.0


RESOURCES = {
    "mm2": (
        ResourceMetric("capacity_per_mm2", "token/s/mm2"),
        ResourceMetric("throughput_per_system_mm2", "token/s/mm2"),
    ),
    "dollar": (
        ResourceMetric("capacity_per_dollar", "token/USD"),
        ResourceMetric("price_per_mtoken", "token/USD", 1e6),
    ),
    "watt": (
        ResourceMetric("capacity_per_watt", "token/s/W"),
        ResourceMetric("energy_per_token", "token/s/W", 1.0),
    ),
}
"""Metrics by resource: at the largest rate, which goes before, and at the rate of the workload, as static batches have it."""

SIMULATED = frozenset(metrics[-1].name for metrics in RESOURCES.values())
"""Metrics of real machines, as simulated, by which their throughput is divided."""

MAX_CASE_ROWS = 200
"""Designs of a chip whose cases are evaluated one by one, where a workload has several: the best in both."""

MAX_NAMED = 12
"""Measured points from which on only the first of each chip has its name beside it."""

MAX_OTHERS = 1500
"""Points off the curves; of more, an even choice."""


def interactivity_rows(study: Study, frame: pd.DataFrame, metric: ResourceMetric) -> pd.DataFrame:
    """Feasible designs in each case, with the speed of a user and the throughput over a resource.

    Args:
        study: the study.
        frame: of its designs.
        metric: of the study.

    Returns:
        A row a design and case: ``user`` [token/s], ``gain`` (throughput over the resource), ``chip``, ``case`` (its label) and
        ``best`` (whether it is on the curve of its chip).
    """
    rows = frame[frame["feasible"]]
    rows = rows[np.isfinite(rows[[TOKEN_TIME, metric.name]].to_numpy(dtype=float)).all(axis=1)]
    cases = study.question.workload.cases
    if len(cases) > 1 and len(rows):
        means = _with_speeds(study, rows, metric)
        chosen = [
            part.index[nondominated_layers(_speeds(part), ["max"] * 2, MAX_CASE_ROWS)] for _, part in means.groupby("chip")
        ]
        by_case = rows_by_case(study, rows.loc[np.concatenate(chosen)], TOKEN_TIME, metric.name)
        rows = pd.concat([part.assign(case=label) for label, part in by_case.items()], ignore_index=True)
    else:
        rows = rows.assign(case=cases[0].label)
    rows = _with_speeds(study, rows, metric)
    best = np.zeros(len(rows), dtype=bool)
    for chip in rows["chip"].unique():
        places = np.flatnonzero(rows["chip"] == chip)
        best[places] = front_mask(_speeds(rows.iloc[places]), ["max", "max"])
    return rows.assign(best=best).sort_values("user", kind="stable")


def find_resource_metric(frame: pd.DataFrame, per: str, name: str) -> ResourceMetric:
    """Metric of a study for throughput over a resource.

    Args:
        frame: of the study's designs.
        per: the resource; empty string for the first that the study has.
        name: of the study, for messages.

    Raises:
        DesignError: no such resource, or the study has no such metric.
    """
    known = {
        resource: next((metric for metric in metrics if _has_values(frame, metric.name)), None)
        for resource, metrics in RESOURCES.items()
    }
    valid = [resource for resource, metric in known.items() if metric is not None]
    if per and per not in RESOURCES:
        raise DesignError(f"figure throughput_per_user: per: no resource {per!r}; {suggest_nearest(per, RESOURCES)}")
    if not _has_values(frame, TOKEN_TIME) or not valid:
        raise DesignError(
            f"figure throughput_per_user: needs feasible designs with {TOKEN_TIME} and throughput; study {name!r} has none"
        )
    metric = known[per or valid[0]]
    if metric is None:
        wanted = " or ".join(option.name for option in RESOURCES[per])
        raise DesignError(f"figure throughput_per_user: study {name!r} has no {wanted}; valid for per: {', '.join(valid)}")
    return metric


def throughput_per_user(study: Study, frame: pd.DataFrame, per: str = "") -> FigureSpec:
    """Throughput over a resource against tokens/s of a user.

    Args:
        study: the study.
        frame: of its designs.
        per: mm2, dollar or watt; empty string for the first that the study has.

    Raises:
        DesignError: the study has no such metric.
    """
    metric = find_resource_metric(frame, per, study.name)
    rows = interactivity_rows(study, frame, metric)
    measured = _comparable_points(study, metric)
    gains = [gain for _, gain in measured]
    x = make_scale("tokens/s of a user (1 / TPOT)", "", [*rows["user"], *(point.user_rate for point, _ in measured)])
    of_capacity = metric.name.startswith("capacity")
    title = "capacity" if of_capacity else "throughput"
    y = make_scale(f"{title} [{metric.unit.replace('mm2', 'mm²')}]", "", [*rows["gain"], *gains])
    several, traces = len(tuple(study.question.space.base_spaces)) > 1, []
    others = rows[~rows["best"]]
    others = others.iloc[:: max(1, -(-len(others) // MAX_OTHERS))]
    if len(others):
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": "other designs", "hoverinfo": "skip",
                "x": x.axis_values(others["user"]), "y": y.axis_values(others["gain"]),
                "marker": {"size": 4, "color": "--ghost"},
            }
        )  # fmt: skip
    for chip, curve in rows[rows["best"]].groupby("chip", sort=False):
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": plain(chip),
                "x": x.axis_values(curve["user"]), "y": y.axis_values(curve["gain"]),
                "line": {"color": chip_colour(study, str(chip)), "width": 1.8}, "marker": {"size": 7},
                "text": [_point_text(row, metric, several=several) for row in curve.to_dict("records")],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )  # fmt: skip
    if measured:
        traces.append(_measured_trace(measured, metric, x, y))
    return FigureSpec(
        f"{title.capitalize()} per {_resource_of(metric).replace('mm2', 'mm²')} against tokens/s of a user",
        _caption(study, metric, measured),
        (Panel(tuple(traces), x.axis, y.axis),),
    )


def chip_colour(study: Study, chip: str) -> str:
    """Colour of a chip of a study in all its figures, by its place among them."""
    chips = [chosen.get(CHIP_KNOB) for chosen, _ in study.question.space.base_spaces]
    return SERIES[chips.index(chip) % len(SERIES)] if chip in chips else SERIES[0]


def _has_values(frame: pd.DataFrame, name: str) -> bool:
    return name in frame and bool(np.isfinite(frame.loc[frame["feasible"], name].to_numpy(dtype=float)).any())


def _with_speeds(study: Study, rows: pd.DataFrame, metric: ResourceMetric) -> pd.DataFrame:
    chip = rows[CHIP_KNOB] if CHIP_KNOB in rows else str(study.config["choices"].get("chip", study.name))
    return rows.assign(user=1.0 / rows[TOKEN_TIME].astype(float), gain=metric.value(rows[metric.name].astype(float)), chip=chip)


def _speeds(rows: pd.DataFrame) -> Any:
    """Speed of a user and throughput over the resource, shape (rows, 2)."""
    return rows[["user", "gain"]].to_numpy(dtype=float)


def _point_text(row: Mapping[Any, Any], metric: ResourceMetric, *, several: bool) -> str:
    rate = row.get("max_rate")
    largest = f"largest rate {format_quantity(rate, 'Hz')}" if rate is not None and np.isfinite(rate) else ""
    knobs = f"chip {row['chip']}" if several else ""
    return hover_lines(
        f"design {row[DESIGN]}",
        knobs,
        str(row["case"]),
        f"{row['user']:.4g} token/s of a user (TPOT {format_quantity(row[TOKEN_TIME], 's')})",
        f"{row['gain']:.4g} {metric.unit}",
        largest,
    )


def _comparable_points(study: Study, metric: ResourceMetric) -> list[tuple[MeasuredPoint, float]]:
    """Real machines that serve a model of the study, with their throughput over the resource; of each chip the best in both."""
    kept = RESOURCES[_resource_of(metric)][-1]
    models = {str(name) for key, name in study.config["choices"].items() if key.partition("@")[0] == "model"}
    points = [(point, point.throughput_per(kept.name, kept.inverse)) for point in measured_points(frozenset(models), SIMULATED)]
    points = [(point, gain) for point, gain in points if np.isfinite(gain)]
    best = []
    for chip in dict.fromkeys(point.chip for point, _ in points):
        own = [(point, gain) for point, gain in points if point.chip == chip]
        mask = front_mask(np.array([(point.user_rate, gain) for point, gain in own]), ["max", "max"])
        best += [pair for pair, keep in zip(own, mask, strict=True) if keep]
    return best


def measured_chips(study: Study) -> list[dict[str, Any]]:
    """Real machines with a model of the study, and metrics of their published speeds, as JSON values."""
    models = {str(name) for key, name in study.config["choices"].items() if key.partition("@")[0] == "model"}
    chips = []
    for point in measured_points(frozenset(models), SIMULATED):
        metrics = {TOKEN_TIME: 1.0 / point.user_rate, "tokens_per_s_per_user": point.user_rate, "throughput": point.rate}
        for kept in (resource_metrics[-1] for resource_metrics in RESOURCES.values()):
            gain = point.throughput_per(kept.name, kept.inverse)
            metrics[kept.name] = kept.inverse / gain if kept.inverse else gain
        known = {name: float(value) for name, value in metrics.items() if np.isfinite(value)}
        text = f"measured: {point.where}; {point.text}; dollars, watts and unpublished areas are the model's"
        chips.append({"id": point.id, "name": point.chip, "text": text, "metrics": known})
    return chips


def _resource_of(metric: ResourceMetric) -> str:
    return next(resource for resource, metrics in RESOURCES.items() if metric in metrics)


def _measured_trace(measured: Sequence[tuple[MeasuredPoint, float]], metric: ResourceMetric, x: Any, y: Any) -> dict[str, Any]:
    """Marks of real machines, with their names beside them."""
    texts = [
        hover_lines(
            f"{point.chip}, measured: {point.where}",
            point.text,
            f"{point.user_rate:.4g} token/s of a user" + (", with the time of its prompt" if point.has_prompt else ""),
            f"{gain:.4g} {metric.unit}",
            ("published die area" if point.has_published_area else "die area by the silicon model")
            if "mm2" in metric.unit
            else "",
        )
        for point, gain in measured
    ]
    return {
        "type": "scatter", "mode": "markers+text", "name": "measured",
        "x": x.axis_values([point.user_rate for point, _ in measured]), "y": y.axis_values([gain for _, gain in measured]),
        "text": _labels([point.chip for point, _ in measured]), "textposition": "top center",
        "textfont": {"size": 10, "color": "--soft"}, "hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"size": 9, "symbol": "diamond-open", "color": "--warm", "line": {"width": 1.6}}, "cliponaxis": False,
    }  # fmt: skip


def _labels(chips: Sequence[str]) -> list[str]:
    """Name of each chip at each of its points, or at its first one where there are many points.

    >>> _labels(["a100", "a100", "wse2"]), _labels(["a100"] * MAX_NAMED)[-2:]
    (['a100', 'a100', 'wse2'], ['', ''])
    """
    many = len(chips) >= MAX_NAMED
    return ["" if many and chip in chips[:place] else plain(chip) for place, chip in enumerate(chips)]


def _caption(study: Study, metric: ResourceMetric, measured: Sequence[tuple[MeasuredPoint, float]]) -> str:
    """What the figure shows, and on what its measured points rest."""
    words = plain_name(metric.name)
    text = (
        f"One curve a chip: its points that no other beats in both; each is a mapping and a load. "
        f"{words[0].upper()}{words[1:]}: {METRICS[metric.name].definition}."
    )
    if not measured:
        return text + " No shipped row states both speeds of a real machine with this model."
    modelled = "" if all(point.has_published_area for point, _ in measured) and "mm2" in metric.unit else _modelled_text(metric)
    others = "in other batches, lengths and formats"
    return f"{text} Diamonds: the best of real machines as measured with this model, {others}{modelled}."


def _modelled_text(metric: ResourceMetric) -> str:
    """What of the measured points is not measured."""
    if "mm2" in metric.unit:
        return "; where no die area is published it is the silicon model's"
    return "; their dollars and watts are the model's"
