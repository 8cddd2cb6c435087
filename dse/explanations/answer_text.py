"""Explanations of a design as plain text of one screen, as Python shows them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dse.evaluators.accounting.metrics import METRICS
from dse.explanations.neighbours import DesignOutcome, StudyGoal, format_knob_value, judged_metrics
from dse.space.knobs import Value
from dse.space.multi_chip_space import AnySpace
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.screen_lines import ScreenRow, format_columns, format_screen, stack_headers

if TYPE_CHECKING:
    from dse.explanations.dominance import DominanceReport
    from dse.explanations.explanation import Explanation, NearestDesign

SHOWN_STEPS, SHOWN_RIVALS, SHOWN_CHANGES = 8, 4, 4
"""Knob steps, designs that beat one, and changes of a path that are shown."""

MIN_SHARE = 0.005
"""Share of the time from which on what takes it is shown."""


def describe_explanation(why: "Explanation") -> str:
    """An explanation: metrics, time shares, the knob steps that change most, and the next designs."""
    beaten = "" if why.beaten_by is None else f"{count_text(len(why.beaten_by), 'design')} of the front"
    rows = [
        _row("metrics", _metrics_text(why.goal, why.point)),
        _row("feasible", _feasible_text(why.point), needed=True),
        _row("time", ", ".join(f"{name} {share:.0%}" for name, share in why.shares.items() if share >= MIN_SHARE)),
        _row("beaten by", beaten),
    ]
    steps = sorted((step for step in why.changes if step.change), key=lambda step: -step.largest_change)[:SHOWN_STEPS]
    names = list(why.goal.objectives)
    cells = [
        [
            step.step.knob,
            *(_value_text(why.space, step.step.knob, value) for value in (step.step.old, step.step.new)),
            *(f"{step.change[name]:+.1%}" if name in step.change else "-" for name in names),
        ]
        for step in steps
    ]
    table = format_columns(*stack_headers(["step of a knob", "from", "to", *names], cells)) if cells else []
    nearest = [_row("cheaper", _nearest_text(why.space, why.cheaper)), _row("faster", _nearest_text(why.space, why.faster))]
    return _screen(why.name, [*rows, table, *nearest])


def describe_dominance(position: "DominanceReport") -> str:
    """Position of a design in a study: what beats it, and the changes to a better design."""
    names, space = list(position.goal.objectives), position.space
    rows = [
        _row("metrics", _metrics_text(position.goal, position.point)),
        _row("feasible", _feasible_text(position.point), needed=True),
        _row("distance", f"{position.distance:.2%} in every objective" if position.rivals else "no stored design beats it"),
        _row("beats", f"{count_text(len(position.beats), 'design')} of the front" if position.beats else ""),
        _row("beaten by", f"{count_text(len(position.rivals), 'design')} of the front" if position.rivals else ""),
    ]
    rivals = [
        [rival.name, *(_metric_text(name, rival.point) for name in names), f"{len(rival.knobs)}"]
        for rival in position.rivals[:SHOWN_RIVALS]
    ]
    changes = [
        [
            change.knob,
            *(_value_text(space, change.knob, value) for value in (change.old, change.new)),
            *(_metric_text(name, change.point) for name in names),
        ]
        for change in position.path[:SHOWN_CHANGES]
    ]
    tables = [(["design", *names, "changes"], rivals), (["then change", "from", "to", *names], changes)]
    return _screen(position.name, [*rows, *(format_columns(*stack_headers(head, cells)) for head, cells in tables if cells)])


def _row(name: str, text: str, *, needed: bool = False) -> ScreenRow | None:
    """A named text; None without one."""
    return ScreenRow(name, text, needed) if text else None


def _screen(title: str, rows: Sequence[ScreenRow | list[str] | None]) -> str:
    return "\n".join(format_screen(title, [row for row in rows if row]))


def _feasible_text(point: DesignOutcome) -> str:
    return "yes" if point.feasible else f"no: {point.violations_text}"


def _metrics_text(goal: StudyGoal, point: DesignOutcome) -> str:
    known = [name for name in judged_metrics(goal) if name in point.metrics]
    return ", ".join(f"{name} {_metric_text(name, point)}" for name in known) + (f", by {goal.fidelity}" if known else "none")


def _metric_text(name: str, point: DesignOutcome) -> str:
    return format_quantity(point.metrics[name], METRICS[name].unit) if name in point.metrics else "-"


def _value_text(space: AnySpace, knob: str, value: Value | None) -> str:
    """A value of a knob with its unit; of what is no knob of the space, as it is."""
    if value is None:
        return "-"
    if knob in space.targets:
        return format_knob_value(space, knob, value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _nearest_text(space: AnySpace, near: "NearestDesign | None") -> str:
    """Cost and speed of the next design, and the knobs that differ."""
    if near is None:
        return ""
    sides: Sequence[tuple[str, float, float]] = (near.cost, near.pace)
    metrics = [f"{name} {format_quantity(new, METRICS[name].unit)} ({new / old - 1:+.0%})" for name, old, new in sides]
    return f"{', '.join(metrics)} with {_changes_text(space, near.knobs)}"


def _changes_text(space: AnySpace, knobs: Mapping[str, tuple[Value | None, Value | None]]) -> str:
    return ", ".join(f"{knob} {_value_text(space, knob, new)}" for knob, (_, new) in knobs.items())
