"""Output of ``dse whynot``: tables for the terminal, and JSON values."""

from typing import Any

from rich.markup import escape
from rich.table import Table

from dse.commands.explain_output import (
    WIDTH,
    changed_knobs_text,
    knob_record,
    metric_text,
    metrics_record,
    metrics_text,
    print_tied_leaves,
    tied_leaves_record,
)
from dse.config.setting_effects import no_effect_records
from dse.evaluators.accounting.metrics import METRICS
from dse.explanations.dominance import OUTSIDE, DominanceReport, DominatingDesign, PathChange, changes_to_domination
from dse.explanations.neighbours import DesignOutcome, knob_value_text
from dse.schemas import stamp_document
from dse.space.fields import field_at
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.progress import SafeConsole

SHOWN = 10
"""Designs of the front that are printed."""

LEAST = 5e-5
"""Distance that is printed as a number: below, as where a rival is equal in an objective, any gain would do."""


def print_dominance(found: DominanceReport) -> None:
    """Print the position of a design in a study."""
    console = SafeConsole(WIDTH)
    console.print(f"[bold]{escape(found.name)}[/]")
    if found.name != found.id:
        console.print(f"design    {found.id}")
    console.print(f"metrics   {escape(metrics_text(found.goal, found.point))}, by {found.goal.fidelity}")
    console.print(f"feasible  {'yes' if found.point.feasible else f'no: {escape(found.point.why)}'}")
    print_tied_leaves(console, found.space, found.values, found.space.base)
    if found.outside:
        pairs = {
            address: (_leaf(found, address, old), _leaf(found, address, new)) for address, (old, new) in found.outside.items()
        }
        differ = [f"{address} {new} (study: {old})" for address, (old, new) in pairs.items()]
        differ[SHOWN:] = [f"and {len(differ) - SHOWN} more with --json"] if len(differ) > SHOWN else []
        console.print(f"outside   no knob of the study moves: {escape(', '.join(differ))}")
    console.print(f"distance  {escape(_distance_text(found))}")
    if found.beats:
        some = ", ".join(found.beats[:SHOWN]) + (" ..." if len(found.beats) > SHOWN else "")
        console.print(f"beats     {count_text(len(found.beats), 'design')} of the front: {some}")
    if found.rivals:
        console.print(_rivals_table(found))
    if found.path:
        console.print(_path_table(found))
    elif found.rivals:
        console.print("no stored design of the same chip beats it")
    if found.left:
        console.print(f"order not searched, for lack of time: {escape(', '.join(found.left))}")


def _leaf(found: DominanceReport, address: str, value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str | bool):
        return str(value)
    try:
        unit = field_at(found.space.base, address).metadata["unit"]
    except (AttributeError, StopIteration):  # a part that this design has not
        unit = ""
    return format_quantity(float(value), unit or "1")


def _distance_text(found: DominanceReport) -> str:
    """How far it is from the front, in words."""
    if not found.point.metrics:
        return "unknown: a design that violates a limit is not evaluated"
    if not found.rivals:
        if not found.looked:
            return "no stored design of this study meets every limit and constraint, so there is no front"
        return f"no design of the front beats it ({found.looked:,} stored designs)"
    alone = [
        f"{name} alone {metric_text(value, METRICS[name].unit)} instead of "
        f"{metric_text(found.point.metrics[name], METRICS[name].unit)}"
        for name, value in found.alone.items()
    ]
    by = f"by {found.distance:.2%}" if found.distance >= LEAST else "a little"
    return f"better {by} in every objective, nothing would beat it; or {', or '.join(alone)}"


def _rivals_table(found: DominanceReport) -> Table:
    many = sum(1 + len(one.alike) for one in found.rivals)
    apart = f", {len(found.rivals):,} of them distinct" if many > len(found.rivals) else ""
    more = f", {SHOWN} shown" if len(found.rivals) > SHOWN else ""
    table = Table(
        title=f"{count_text(many, 'design')} of the front beat{'s' * (many == 1)} it{apart}, fewest changes first{more}",
        title_justify="left",
    )
    table.add_column("design", no_wrap=True)
    for name in found.goal.objectives:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("changes", justify="right")
    table.add_column("knobs", overflow="fold")
    for one in found.rivals[:SHOWN]:
        cells = [_beside(found, one.point, name) for name in found.goal.objectives]
        table.add_row(one.name, *cells, "-" if CHIP_KNOB in one.knobs else str(len(one.knobs)), escape(_rival_text(found, one)))
    return table


def _rival_text(found: DominanceReport, one: DominatingDesign) -> str:
    differ = (
        f"another chip: {one.knobs[CHIP_KNOB][1]}" if CHIP_KNOB in one.knobs else changed_knobs_text(found.space, one.knobs)
    )
    some = ", ".join(one.alike[:SHOWN]) + (" ..." if len(one.alike) > SHOWN else "")
    return f"{differ}; the same objectives: {some}" if some else differ


def _beside(found: DominanceReport, point: DesignOutcome, name: str) -> str:
    """An objective of another design, and how far it is from this one's."""
    if name not in point.metrics:
        return "-"
    old, new = found.point.metrics.get(name), point.metrics[name]
    return metric_text(new, METRICS[name].unit) + (f" ({new / old - 1:+.1%})" if old else "")


def _path_table(found: DominanceReport) -> Table:
    assert found.target is not None
    needed, many = changes_to_domination(found.path, feasible=found.point.feasible), len(found.path)
    better = "beats it" if found.target.gains and min(found.target.gains.values()) >= 0 else "is feasible"
    then = "it is beaten" if found.point.feasible else "one is feasible"
    soon = f"; after {needed} of {many} changes {then}" if needed and needed < many else ""
    title = f"the stored design that {better} with fewest changes: {found.target.name}, each time the best change next{soon}"
    table = Table(title=title, title_justify="left")
    for name in ("", "change", "from", "to", *found.goal.objectives, "then"):
        table.add_column(name, justify="left" if name in ("change", "then") else "right", overflow="fold")
    for place, hop in enumerate(found.path):
        cells = [_beside(found, hop.point, name) for name in found.goal.objectives]
        good = "" if found.point.feasible else "feasible"
        then = "beats it" if hop.beats else escape(hop.point.why) or good
        table.add_row(str(place + 1), escape(hop.knob), *_ends(found, hop), *cells, then)
    return table


def _ends(found: DominanceReport, hop: PathChange) -> tuple[str, str]:
    if hop.old is None or hop.new is None:
        return "as typed", "as the study has it"
    return knob_value_text(found.space, hop.knob, hop.old), knob_value_text(found.space, hop.knob, hop.new)


def dominance_record(found: DominanceReport) -> dict[str, Any]:
    """Position of a design in a study as JSON values; metrics in SI with their units."""
    space = found.space

    def pairs(one: DominatingDesign) -> dict[str, Any]:
        if CHIP_KNOB in one.knobs:
            return {CHIP_KNOB: {"from": one.knobs[CHIP_KNOB][0], "to": one.knobs[CHIP_KNOB][1]}}
        return {
            knob: {"from": knob_record(space, knob, old), "to": knob_record(space, knob, new)}
            for knob, (old, new) in one.knobs.items()
        }

    def rival(one: DominatingDesign) -> dict[str, Any]:
        return {
            "design": one.name,
            "metrics": metrics_record(one.point),
            "better_by": dict(one.gains),
            "knobs": pairs(one),
            "alike": list(one.alike),
        }

    data = {
        "design": found.id,
        "name": found.name,
        "knobs": {address: knob_record(space, address, value) for address, value in found.values.items()},
        "tied": tied_leaves_record(space, found.values, space.base),
        "fidelity": found.goal.fidelity,
        "objectives": dict(found.goal.objectives),
        "metrics": metrics_record(found.point),
        "feasible": found.point.feasible,
        "breaks": found.point.why or None,
        "outside_the_study": {address: {"study": old, "here": new} for address, (old, new) in found.outside.items()},
        "front_designs_that_beat_it": [rival(one) for one in found.rivals],
        "front_designs_that_it_beats": list(found.beats),
        "distance": found.distance,
        "alone": {name: {"value": value, "unit": METRICS[name].unit} for name, value in found.alone.items()},
        "fewest_changes": rival(found.target) if found.target else None,
        "path": [
            {
                "change": hop.knob,
                "from": None if hop.knob == OUTSIDE else knob_record(space, hop.knob, hop.old),
                "to": None if hop.knob == OUTSIDE else knob_record(space, hop.knob, hop.new),
                "metrics": metrics_record(hop.point),
                "feasible": hop.point.feasible,
                "breaks": hop.point.why or None,
                "beats_it": hop.beats,
            }
            for hop in found.path
        ],
        "not_ordered": list(found.left),
        "stored_designs": found.looked,
        "without_effect": no_effect_records(found.without_effect),
    }
    return stamp_document("whynot", data)
