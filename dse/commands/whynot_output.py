"""Output of ``dse whynot``: tables for the terminal, and JSON values."""

from typing import Any

from rich.markup import escape
from rich.table import Table

from dse.analysis.evaluation import metric_records
from dse.commands.explain_output import (
    WIDTH,
    changed_knob_records,
    format_changed_knobs,
    format_metric,
    format_metrics,
    knob_record,
    print_tied_leaves,
    tied_leaves_record,
)
from dse.config.setting_effects import no_effect_records
from dse.documents.study_records import ChangedKnobRecord
from dse.documents.whynot_document import (
    CertifiedBoxRecord,
    OutsideSettingRecord,
    PathChangeRecord,
    RivalRecord,
    WhynotDocument,
)
from dse.evaluators.accounting.metrics import METRICS
from dse.explanations.dominance import OUTSIDE, DominanceReport, DominatingDesign, PathChange, count_changes_to_domination
from dse.explanations.neighbours import DesignOutcome, format_knob_value
from dse.space.design import make_ids
from dse.space.fields import field_at
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.progress import SafeConsole

SHOWN = 10
"""Designs of the front that are printed."""

LEAST = 5e-5
"""Distance that is printed as a number: below, as where a rival is equal in an objective, any gain would do."""


def print_position(dominance: DominanceReport) -> None:
    """Print the position of a design in a study, which needs no evaluation but its own."""
    console = SafeConsole(WIDTH)
    console.print(f"[bold]{escape(dominance.name)}[/]")
    if dominance.name != dominance.id:
        console.print(f"design    {dominance.id}")
    console.print(f"metrics   {escape(format_metrics(dominance.goal, dominance.point))}, by {dominance.goal.fidelity}")
    console.print(f"feasible  {'yes' if dominance.point.feasible else f'no: {escape(dominance.point.violations_text)}'}")
    print_tied_leaves(console, dominance.space, dominance.values, dominance.space.base)
    if outside := outside_text(dominance):
        console.print(f"outside   {escape(outside)}")
    console.print(f"distance  {escape(distance_text(dominance))}")
    if dominance.box is not None:
        member = f"the front's {make_ids([dominance.space.key_at(dominance.box.member)])[0]}" if dominance.box.member else ""
        console.print(f"certified {escape(dominance.box.describe(member))}")
    if dominance.beats:
        beaten_text = ", ".join(dominance.beats[:SHOWN]) + (" ..." if len(dominance.beats) > SHOWN else "")
        console.print(f"beats     {count_text(len(dominance.beats), 'design')} of the front: {beaten_text}")
    if dominance.rivals:
        console.print(_rivals_table(dominance))


def print_path(dominance: DominanceReport) -> None:
    """Print the changes to a stored design that beats the design, or that is feasible."""
    console = SafeConsole(WIDTH)
    if dominance.path:
        console.print(_path_table(dominance))
    elif dominance.rivals and not dominance.left:
        console.print("no stored design of the same chip beats it")
    if dominance.left:
        console.print(
            f"order not searched, for lack of time: {escape(', '.join(dominance.left))}; the same command goes on from here"
        )


def outside_text(dominance: DominanceReport) -> str:
    """Settings in which a design differs from its study and that no knob moves; empty if none."""
    if not dominance.outside:
        return ""
    pairs = {
        address: (_leaf_text(dominance, address, old), _leaf_text(dominance, address, new))
        for address, (old, new) in dominance.outside.items()
    }
    differ = [f"{address} {new} (study: {old})" for address, (old, new) in pairs.items()]
    differ[SHOWN:] = [f"and {len(differ) - SHOWN} more with --json"] if len(differ) > SHOWN else []
    return f"no knob of the study moves: {', '.join(differ)}"


def _leaf_text(dominance: DominanceReport, address: str, value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str | bool):
        return str(value)
    try:
        unit = field_at(dominance.space.base, address).metadata["unit"]
    except (AttributeError, StopIteration):  # a part that this design has not
        unit = ""
    return format_quantity(float(value), unit or "1")


def distance_text(dominance: DominanceReport) -> str:
    """How far it is from the front, in words."""
    if not dominance.point.metrics:
        return "unknown: a design that violates a limit is not evaluated"
    if not dominance.rivals:
        if not dominance.looked:
            return "no stored design of this study meets every limit and constraint, so there is no front"
        return f"no design of the front beats it ({dominance.looked:,} stored designs)"
    alone = [
        f"{name} alone {format_metric(value, METRICS[name].unit)} instead of "
        f"{format_metric(dominance.point.metrics[name], METRICS[name].unit)}"
        for name, value in dominance.alone.items()
    ]
    by = f"by {dominance.distance:.2%}" if dominance.distance >= LEAST else "a little"
    return f"better {by} in every objective, nothing would beat it; or {', or '.join(alone)}"


def _rivals_table(dominance: DominanceReport) -> Table:
    many = sum(1 + len(rival.alike) for rival in dominance.rivals)
    apart = f", {len(dominance.rivals):,} of them distinct" if many > len(dominance.rivals) else ""
    more = f", {SHOWN} shown" if len(dominance.rivals) > SHOWN else ""
    table = Table(
        title=f"{count_text(many, 'design')} of the front beat{'s' * (many == 1)} it{apart}, fewest changes first{more}",
        title_justify="left",
    )
    table.add_column("design", no_wrap=True)
    for name in dominance.goal.objectives:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("changes", justify="right")
    table.add_column("knobs", overflow="fold")
    for rival in dominance.rivals[:SHOWN]:
        cells = [_objective_text(dominance, rival.point, name) for name in dominance.goal.objectives]
        table.add_row(
            rival.name,
            *cells,
            "-" if CHIP_KNOB in rival.knobs else str(len(rival.knobs)),
            escape(_rival_text(dominance, rival)),
        )
    return table


def _rival_text(dominance: DominanceReport, design: DominatingDesign) -> str:
    differ = (
        f"another chip: {design.knobs[CHIP_KNOB][1]}"
        if CHIP_KNOB in design.knobs
        else format_changed_knobs(dominance.space, design.knobs)
    )
    equal_text = ", ".join(design.alike[:SHOWN]) + (" ..." if len(design.alike) > SHOWN else "")
    return f"{differ}; the same objectives: {equal_text}" if equal_text else differ


def _objective_text(dominance: DominanceReport, point: DesignOutcome, name: str) -> str:
    """An objective of another design, and how far it is from this one's."""
    if name not in point.metrics:
        return "-"
    old, new = dominance.point.metrics.get(name), point.metrics[name]
    return format_metric(new, METRICS[name].unit) + (f" ({new / old - 1:+.1%})" if old else "")


def _path_table(dominance: DominanceReport) -> Table:
    assert dominance.target is not None
    needed, many = count_changes_to_domination(dominance.path, feasible=dominance.point.feasible), len(dominance.path)
    better = "beats it" if dominance.target.gains and min(dominance.target.gains.values()) >= 0 else "is feasible"
    then = "it is beaten" if dominance.point.feasible else "one is feasible"
    soon = f"; after {needed} of {many} changes {then}" if needed and needed < many else ""
    title = (
        f"the stored design that {better} with fewest changes: {dominance.target.name}, each time the best change next{soon}"
    )
    table = Table(title=title, title_justify="left")
    for name in ("", "change", "from", "to", *dominance.goal.objectives, "then"):
        table.add_column(name, justify="left" if name in ("change", "then") else "right", overflow="fold")
    for place, hop in enumerate(dominance.path):
        cells = [_objective_text(dominance, hop.point, name) for name in dominance.goal.objectives]
        good = "" if dominance.point.feasible else "feasible"
        then = "beats it" if hop.beats else escape(hop.point.violations_text) or good
        table.add_row(str(place + 1), escape(hop.knob), *_hop_ends(dominance, hop), *cells, then)
    return table


def _hop_ends(dominance: DominanceReport, hop: PathChange) -> tuple[str, str]:
    if hop.old is None or hop.new is None:
        return "as typed", "as the study has it"
    return format_knob_value(dominance.space, hop.knob, hop.old), format_knob_value(dominance.space, hop.knob, hop.new)


def box_record(dominance: DominanceReport) -> CertifiedBoxRecord | None:
    """What a certificate proves of a design, as a record of documents; None without a certificate."""
    box = dominance.box
    if box is None:
        return None

    return CertifiedBoxRecord(
        ranges=changed_knob_records(dominance.space, box.ranges),
        infeasible=box.reason or None,
        bound=metric_records(box.bound),
        front_design=make_ids([dominance.space.key_at(box.member)])[0] if box.member else None,
        front_metrics=metric_records(box.metrics),
        lead=box.lead,
    )


def dominance_record(dominance: DominanceReport) -> WhynotDocument:
    """Position of a design in a study: its document, with metrics in SI and their units."""
    space = dominance.space

    def list_changed_knobs(design: DominatingDesign) -> dict[str, ChangedKnobRecord]:
        if CHIP_KNOB in design.knobs:
            return {CHIP_KNOB: ChangedKnobRecord(from_=design.knobs[CHIP_KNOB][0], to=design.knobs[CHIP_KNOB][1])}
        return changed_knob_records(space, design.knobs)

    def describe_rival(design: DominatingDesign) -> RivalRecord:
        return RivalRecord(
            design=design.name,
            metrics=metric_records(design.point.metrics),
            better_by=design.gains,
            knobs=list_changed_knobs(design),
            alike=design.alike,
        )

    return WhynotDocument(
        design=dominance.id,
        name=dominance.name,
        knobs={address: knob_record(space, address, value) for address, value in dominance.values.items()},
        tied=tied_leaves_record(space, dominance.values, space.base),
        fidelity=dominance.goal.fidelity,
        objectives=dominance.goal.objectives,
        metrics=metric_records(dominance.point.metrics),
        feasible=dominance.point.feasible,
        breaks=dominance.point.violations_text or None,
        outside_the_study={
            address: OutsideSettingRecord(study=old, here=new) for address, (old, new) in dominance.outside.items()
        },
        front_designs_that_beat_it=[describe_rival(single_rival) for single_rival in dominance.rivals],
        front_designs_that_it_beats=dominance.beats,
        distance=dominance.distance,
        alone=metric_records(dominance.alone),
        fewest_changes=describe_rival(dominance.target) if dominance.target else None,
        path=[
            PathChangeRecord(
                change=hop.knob,
                from_=None if hop.knob == OUTSIDE else knob_record(space, hop.knob, hop.old),
                to=None if hop.knob == OUTSIDE else knob_record(space, hop.knob, hop.new),
                metrics=metric_records(hop.point.metrics),
                feasible=hop.point.feasible,
                breaks=hop.point.violations_text or None,
                beats_it=hop.beats,
            )
            for hop in dominance.path
        ],
        not_ordered=dominance.left,
        stored_designs=dominance.looked,
        certified=box_record(dominance),
        without_effect=no_effect_records(dominance.without_effect),
    )
