"""Answers of `dse.commands.python_questions`, with tables, figures and a screen of text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pandas as pd

from dse.accuracy.validate import ValidationRow, error_summary
from dse.analysis.compare import ChipComparison
from dse.analysis.evaluation import Evaluation
from dse.analysis.load_curve import LoadCurve, latency_against_load
from dse.analysis.metric_text import format_metric
from dse.analysis.sweep import Sweep
from dse.analysis.withheld_metrics import nan_metrics
from dse.commands.compare_output import comparison_lines
from dse.commands.explanation_screen import dominance_lines, explanation_lines
from dse.documents.capacity_document import ChipCapacityRecord
from dse.documents.records import record_values
from dse.evaluators import METRICS
from dse.evaluators.evaluation import peak_rates
from dse.explanations.dominance import DominanceReport
from dse.explanations.explanation import Explanation
from dse.space.errors import DesignError, suggest_nearest
from dse.space.workload import ServingLoad
from dse.terminal.screen_lines import format_columns, format_screen

if TYPE_CHECKING:
    from dse.analysis.capacity import ChipCapacity  # which compiles loops
    from dse.report.figure_style import FigureSpec

SHOWN_METRICS = ("throughput", "ttft", "tpot", "energy_per_token", "price_per_mtoken")
"""Metrics of chips side by side on a screen, after the objective."""

SHOWN_ROWS = 14
"""Rows of a sweep or a validation on a screen."""

CAPACITY_UNITS = {
    "max_rate": "Hz",
    "ttft": "s",
    "tpot": "s",
    "tokens_per_s_device": "token/s",
    "tokens_per_s_user": "token/s",
    "system_price": "USD",
    "price_per_mtoken": "USD",
}
"""Units of the columns of a capacity table that have one."""


@dataclass(frozen=True, repr=False)
class EvaluationAnswer(Evaluation):
    """An evaluated design as Python gets it: with figures.

    ``metrics`` has its values in SI, ``frame()`` its operators, ``by_case()`` its cases. The metrics of an infeasible design
    are withheld: reading one raises a `DesignError` that says why.
    """

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation) -> "EvaluationAnswer":
        """The same evaluation, with figures."""
        return cls(**{spec.name: getattr(evaluation, spec.name) for spec in fields(Evaluation)})

    def figure(self, name: str = "roofline") -> Any:
        """A figure of the design as a `plotly.graph_objects.Figure`, in SI units with prefixes.

        Args:
            name: roofline (operators of the first case), load (latency against the arrival rate) or cost (area, power and
                price by block).

        Raises:
            DesignError: no such figure, an infeasible design, or a workload that does not have it.
        """
        figures = {"roofline": self._roofline, "load": self._load, "cost": self._cost}
        _check_figure(name, figures)
        if self.infeasible is not None:
            raise DesignError(f"figure {name}: infeasible designs have no figures: {self.infeasible}")
        return _plot(figures[name]())

    def _roofline(self) -> "FigureSpec":
        from dse.report.design_figures import roofline_figure
        from dse.report.time_breakdown import breakdown_record

        rates = peak_rates(self.design, self.workload.cases[0])
        if rates is None:
            raise DesignError("figure roofline: needs operators of a model, got a single kernel")
        operators = breakdown_record(self.fidelity, self.breakdown)["operators"]
        return roofline_figure(self.id, operators, rates, self.cases[0].label)

    def _load(self) -> "FigureSpec":
        from dse.report.design_figures import load_figure

        load = self.workload.cases[0]
        if not isinstance(load, ServingLoad):
            raise DesignError("figure load: needs requests that arrive; evaluate with workload='serving'")
        return load_figure(self.id, latency_against_load(self.design, load, self.fidelity))

    def _cost(self) -> "FigureSpec":
        from dse.report.design_figures import cost_figure

        return cost_figure({self.names["chip"]: _cost_blocks(self)}, self.names["chip"])


@dataclass(frozen=True, repr=False)
class ExplanationAnswer(Explanation):
    """Explanation of one design as Python gets it: time shares, effect of each knob, next designs."""

    @classmethod
    def from_explanation(cls, explanation: Explanation) -> "ExplanationAnswer":
        """The same explanation, on a screen of text."""
        return cls(**{spec.name: getattr(explanation, spec.name) for spec in fields(Explanation)})

    def __repr__(self) -> str:
        return "\n".join(explanation_lines(self))


@dataclass(frozen=True, repr=False)
class DominanceAnswer(DominanceReport):
    """Position of one design in a study as Python gets it: what beats it, and changes to a better one."""

    @classmethod
    def from_dominance(cls, dominance: DominanceReport) -> "DominanceAnswer":
        """The same position, on a screen of text."""
        return cls(**{spec.name: getattr(dominance, spec.name) for spec in fields(DominanceReport)})

    def __repr__(self) -> str:
        return "\n".join(dominance_lines(self))


@dataclass(frozen=True, repr=False)
class Comparison:
    """Chips side by side for one workload, each with its best mapping.

    It iterates over chips; ``[NAME]`` is one of them.

    Attributes:
        sides: one a chip, in the order that was typed.
        objective: the metric that each best mapping is best in.
        typed: overrides of the question, without chips.
    """

    sides: tuple[ChipComparison, ...]
    objective: str
    typed: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sides)

    def __iter__(self) -> Iterator[ChipComparison]:
        return iter(self.sides)

    def __getitem__(self, which: int | str) -> ChipComparison:
        """A chip by its number or its name."""
        return self.sides[which] if isinstance(which, int) else _side_of(self.sides, which)

    def frame(self) -> pd.DataFrame:
        """One row a chip: mapping, software, formats and metrics in SI; NaN for a chip without a design."""
        rows = [
            {
                "chip": side.chip,
                "design": EvaluationAnswer.from_evaluation(side.found).id if side.found else "",
                "feasible": side.found is not None,
                "chips": side.chips,
                "mapping": side.mapping,
                "software": side.software,
                "formats": side.formats,
                **(nan_metrics(side.found.metrics) if side.found else {}),
            }
            for side in self.sides
        ]
        return _with_units(pd.DataFrame(rows).astype({"chips": "Int64"}))

    def figure(self, name: str = "cost") -> Any:
        """A figure of all chips as a `plotly.graph_objects.Figure`.

        Args:
            name: cost (area, power and price by block). Figures of one chip: ``dse.evaluate(...).figure()``.

        Raises:
            DesignError: no such figure, or no chip has a design.
        """
        from dse.report.design_figures import cost_figure

        _check_figure(name, {"cost": cost_figure})
        blocks = {side.chip: _cost_blocks(side.found) for side in self.sides if side.found}
        return _plot(cost_figure(blocks, " and ".join(blocks)))

    def __repr__(self) -> str:
        return "\n".join(comparison_lines(self.sides, self.objective))

    def _repr_html_(self) -> str:
        """Chips in columns, as a table for notebooks."""
        names = list(dict.fromkeys((self.objective, *SHOWN_METRICS)))
        table = {
            side.chip: [side.mapping or side.why, *(_metric_text(side.found, name) for name in names)] for side in self.sides
        }
        return str(pd.DataFrame(table, index=["mapping", *names]).to_html())


@dataclass(frozen=True, repr=False)
class Capacity:
    """Capacity of each chip by its best deployment.

    It iterates over chips; ``[NAME]`` is one of them.

    Attributes:
        sides: one a chip, with its deployments, load curve and the reason why there is none.
    """

    sides: "tuple[ChipCapacity, ...]"

    def __len__(self) -> int:
        return len(self.sides)

    def __iter__(self) -> "Iterator[ChipCapacity]":
        return iter(self.sides)

    def __getitem__(self, which: int | str) -> "ChipCapacity":
        """A chip by its number or its name."""
        return self.sides[which] if isinstance(which, int) else _side_of(self.sides, which)

    def frame(self) -> pd.DataFrame:
        """Deployments whose maximum rate is known, best first: rate, latencies, tokens/s and price."""
        rows = [
            {
                "chip": record.chip,
                "deployment": deployment.deployment,
                "devices": deployment.devices,
                "cells": record.cells,
                "max_rate": deployment.max_rate_hz,
                "ttft": deployment.ttft_s,
                "tpot": deployment.tpot_s,
                "tokens_per_s_device": deployment.tokens_per_s_device,
                "tokens_per_s_user": deployment.tokens_per_s_user,
                "system_price": deployment.system_price_usd,
                "price_per_mtoken": deployment.price_per_mtoken_usd,
                "overrides": " ".join(deployment.overrides),
            }
            for record in self._records()
            for deployment in record.deployments
        ]
        return _with_units(pd.DataFrame(rows), CAPACITY_UNITS)

    def figure(self, name: str = "load", *, chip: str = "") -> Any:
        """Latency of the best deployment against the arrival rate, as a `plotly.graph_objects.Figure`.

        Args:
            name: load.
            chip: of several; empty string for the first that has a deployment.

        Raises:
            DesignError: no such figure or chip, or no deployment.
        """
        from dse.report.design_figures import load_figure

        _check_figure(name, {"load": load_figure})
        sides = [side for side in self.sides if side.best is not None]
        side = _side_of(self.sides, chip) if chip else sides[0]
        return _plot(load_figure(side.chip, self.load_curve(side.chip)))

    def load_curve(self, chip: str) -> LoadCurve:
        """Latency of the best deployment of a chip at rates up to beyond its largest.

        Raises:
            DesignError: no such chip, or it has no deployment.
        """
        side = _side_of(self.sides, chip)
        if side.best is None:
            raise DesignError(f"figure load: {side.why}")
        return latency_against_load(side.best.candidate.design, side.load, "analytical", side.bounds.share, side.best.rate)

    def __repr__(self) -> str:
        from dse.commands.capacity_output import capacity_lines

        return "\n".join(capacity_lines(self.sides))

    def _repr_html_(self) -> str:
        """Deployments as a table for notebooks."""
        return str(self.frame().to_html())

    def _records(self) -> Sequence[ChipCapacityRecord]:
        from dse.commands.capacity_output import capacity_record

        return capacity_record(self.sides).chips


@dataclass(frozen=True, repr=False)
class SweepAnswer(Sweep):
    """Every combination of some settings as Python gets it, the best first: with a figure."""

    @classmethod
    def from_sweep(cls, sweep: Sweep) -> "SweepAnswer":
        """The same sweep, with a figure."""
        return cls(**{spec.name: getattr(sweep, spec.name) for spec in fields(Sweep)})

    def figure(self, name: str = "sweep") -> Any:
        """The objective over the swept setting with the most values, as a `plotly.graph_objects.Figure`.

        Args:
            name: sweep.

        Raises:
            DesignError: no such figure, or no combination is feasible.
        """
        from dse.report.sweep_figure import build_sweep_figure

        _check_figure(name, {"sweep": build_sweep_figure})
        return _plot(build_sweep_figure(self))

    def __repr__(self) -> str:
        from dse.commands.sweep_output import sweep_lines

        return "\n".join(sweep_lines(self))

    def _repr_html_(self) -> str:
        """The best designs as a table for notebooks."""
        names = [name for name in dict.fromkeys((self.objective, *SHOWN_METRICS)) if name in self.metrics]
        return str(self.frame()[[*self.axes, *names]].head(SHOWN_ROWS).to_html())


@dataclass(frozen=True, repr=False)
class Validation:
    """Published figures against simulated ones, row by row.

    Attributes:
        rows: one a published figure.
    """

    rows: tuple[ValidationRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ValidationRow]:
        return iter(self.rows)

    def frame(self) -> pd.DataFrame:
        """One row a published figure: where it stands, both values in its unit, and the relative error."""
        records = [record_values(row.record()) for row in self.rows]
        return pd.DataFrame([{name: value for name, value in record.items() if name != "kind"} for record in records])

    def __repr__(self) -> str:
        worst = sorted(self.rows, key=lambda row: -abs(row.error or 0.0))[:SHOWN_ROWS]
        cells = [
            [
                *(row.id, row.published, "-" if row.simulated is None else f"{row.simulated:.4g}", row.unit),
                "-" if row.error is None else f"{row.error:+.1%}",
            ]
            for row in worst
        ]
        head = ["largest errors", "published", "simulated", "unit", "error"]
        return "\n".join(format_screen(error_summary(self.rows), [format_columns(head, cells)]))


def _side_of(sides: Sequence[Any], chip: str) -> Any:
    """The side of a chip by its name."""
    by_name = {side.chip: side for side in sides}
    if chip not in by_name:
        raise DesignError(f"chip: no {chip!r} in this answer; {suggest_nearest(chip, by_name)}", address="chip")
    return by_name[chip]


def _check_figure(name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise DesignError(f"figure: no figure {name!r} of this answer; {suggest_nearest(name, known)}")


def _plot(spec: "FigureSpec") -> Any:
    from dse.report.plotly_library import make_plotly_figure

    return make_plotly_figure(spec)


def _cost_blocks(evaluation: Evaluation) -> Sequence[Sequence[Any]]:
    """Area, power and price of one chip by block, as figures take them."""
    from dse.report.time_breakdown import breakdown_record

    blocks: Sequence[Sequence[Any]] = breakdown_record(evaluation.fidelity, evaluation.breakdown)["chip"]
    return blocks


def _metric_text(evaluation: Evaluation | None, name: str) -> str:
    return format_metric(name, evaluation.metrics[name]) if evaluation and name in evaluation.metrics else "-"


def _with_units(table: pd.DataFrame, others: Mapping[str, str] | None = None) -> pd.DataFrame:
    """A table with the units of its columns in ``attrs["units"]``."""
    units = {name: METRICS[name].unit for name in map(str, table.columns) if name in METRICS} | dict(others or {})
    table.attrs["units"] = units
    return table
