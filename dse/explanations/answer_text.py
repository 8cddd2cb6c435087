"""Explanations of a design as plain text of one screen, as Python shows them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dse.evaluators.accounting.metrics import METRICS
from dse.explanations.neighbours import DesignOutcome, StudyGoal, format_knob_value, judged_metrics
from dse.space.knobs import Value
from dse.space.multi_chip_space import AnySpace
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.plain_table import align_rows, cut_text, fit_screen, label_lines

if TYPE_CHECKING:
    from dse.explanations.dominance import DominanceReport
    from dse.explanations.explanation import Explanation, NearestDesign

SHOWN_STEPS, SHOWN_RIVALS, SHOWN_CHANGES = 8, 6, 6
"""Knob steps, designs that beat one, and changes of a path that are shown."""


def describe_explanation(why: "Explanation") -> str:
    """An explanation: metrics, time shares, the knob steps that change most, and the next designs."""
    lines = label_lines(
        [
            ("design", why.name),
            ("metrics", _metrics_text(why.goal, why.point)),
            ("feasible", _feasible_text(why.point)),
            ("time", ", ".join(f"{name} {share:.0%}" for name, share in why.shares.items() if share >= 0.005)),
            ("beaten by", "" if why.beaten_by is None else count_text(len(why.beaten_by), "design") + " of the front"),
        ]
    )
    steps = sorted((step for step in why.changes if step.change), key=lambda step: -step.largest_change)[:SHOWN_STEPS]
    names = list(why.goal.objectives)
    if steps:
        head = ["step of a knob", "from", "to", *names]
        rows = [
            [
                step.step.knob,
                *(_value_text(why.space, step.step.knob, value) for value in (step.step.old, step.step.new)),
                *(f"{step.change[name]:+.1%}" if name in step.change else "-" for name in names),
            ]
            for step in steps
        ]
        lines += ["", *align_rows(head, rows)]
    nearest = label_lines(
        [("cheaper", _nearest_text(why.space, why.cheaper)), ("faster", _nearest_text(why.space, why.faster))]
    )
    return fit_screen([*lines, *(["", *nearest] if nearest else [])])


def describe_dominance(position: "DominanceReport") -> str:
    """Position of a design in a study: what beats it, and the changes to a better design."""
    beats = f"{count_text(len(position.beats), 'design')} of the front" if position.beats else ""
    lines = label_lines(
        [
            ("design", position.name),
            ("metrics", _metrics_text(position.goal, position.point)),
            ("feasible", _feasible_text(position.point)),
            ("distance", f"{position.distance:.2%} in every objective" if position.rivals else "no stored design beats it"),
            ("beats", beats),
        ]
    )
    names = list(position.goal.objectives)
    if position.rivals:
        rows = [
            [rival.name, *(_metric_text(name, rival.point) for name in names), f"{len(rival.knobs)}"]
            for rival in position.rivals[:SHOWN_RIVALS]
        ]
        left = len(position.rivals) - len(rows)
        lines += ["", *align_rows(["beaten by", *names, "changes"], rows), *([f"and {left} more"] if left else [])]
    if position.path:
        rows = [
            [
                change.knob,
                *(_value_text(position.space, change.knob, value) for value in (change.old, change.new)),
                *(_metric_text(name, change.point) for name in names),
            ]
            for change in position.path[:SHOWN_CHANGES]
        ]
        lines += ["", *align_rows(["then change", "from", "to", *names], rows)]
    return fit_screen(lines)


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
    return (
        format_knob_value(space, knob, value)
        if knob in space.targets
        else cut_text(f"{value:.4g}" if isinstance(value, float) else str(value), 16)
    )


def _nearest_text(space: AnySpace, near: "NearestDesign | None") -> str:
    """Cost and speed of the next design, and the knobs that differ."""
    if near is None:
        return ""
    sides: Sequence[tuple[str, float, float]] = (near.cost, near.pace)
    metrics = [f"{name} {format_quantity(new, METRICS[name].unit)} ({new / old - 1:+.0%})" for name, old, new in sides]
    return f"{', '.join(metrics)} with {_changes_text(space, near.knobs)}"


def _changes_text(space: AnySpace, knobs: Mapping[str, tuple[Value | None, Value | None]]) -> str:
    return ", ".join(f"{knob} {_value_text(space, knob, new)}" for knob, (_, new) in knobs.items())
