"""Output of ``dse explain``: tables for the terminal, and JSON values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from dse.analysis.evaluation import metric_records
from dse.commands.study_output import print_sample
from dse.config.setting_effects import no_effect_records
from dse.documents.explain_document import ExplainDocument, LooserBoundRecord, NextDesignRecord, NextMetricRecord
from dse.documents.front_document import FrontDesignRecord, FrontDocument, MarginRecord
from dse.documents.records import Scalar
from dse.documents.shared_records import MeasuredRecord
from dse.documents.study_records import (
    ChangedKnobRecord,
    KindBandRecord,
    KindOrderRecord,
    ShadowPriceRecord,
    StepRecord,
    TiedLeafRecord,
)
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.study import Study
from dse.explanations.bound_relaxations import SLO_UNITS, judged_goal
from dse.explanations.elasticities import KnobEffect
from dse.explanations.explanation import Explanation, FrontMember, NearestDesign, study_goal
from dse.explanations.neighbours import DesignOutcome, StudyGoal, analytical_goal, format_knob_value, judged_metrics
from dse.explanations.sample_noise import FrontSample
from dse.explanations.shadow_prices import ShadowPrice
from dse.report.caveats import Caveat, caveat_records
from dse.report.kind_order import KindOrder
from dse.space.design import Design
from dse.space.fields import addresses, field_at, leaf_at
from dse.space.knobs import TiedLeaf
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.progress import SafeConsole

SMALL = 5e-4
"""Share of the time from which on what takes it is printed."""

WIDTH = 160


def print_explanation_stage(stage: str, explanation: Explanation) -> None:
    """Print what a stage of `STAGES` adds to the explanation of one design."""
    PRINTERS[stage](SafeConsole(WIDTH), explanation)


def _print_known(console: SafeConsole, explanation: Explanation) -> None:
    """Print what the store says: metrics, limits and constraints, and what beats the design."""
    knobs = f"  {escape(format_knobs(explanation.space, explanation.values))}" if explanation.name == explanation.id else ""
    console.print(f"[bold]{escape(explanation.name)}[/]{knobs}")
    if explanation.name != explanation.id:
        console.print(f"design    {explanation.id}")
    console.print(f"metrics   {escape(format_metrics(explanation.goal, explanation.point))}, by {explanation.goal.fidelity}")
    console.print(f"feasible  {'yes' if explanation.point.feasible else f'no: {escape(explanation.point.violations_text)}'}")
    print_tied_leaves(console, explanation.space, explanation.values, explanation.design)
    if explanation.beaten_by is not None and explanation.point.metrics:
        beats = explanation.beaten_by
        ids = f": {', '.join(beats[:SHOWN_RIVALS])}{' ...' if len(beats) > SHOWN_RIVALS else ''}" if beats else ""
        many = count_text(len(beats), "design") if beats else "no design"
        console.print(f"beaten by {many} of the front{ids}")
    if margins := explanation.margins():
        console.print(f"margins   {escape('  '.join(f'{text} by {margin:.1%}' for text, margin in margins.items()))}")


def _print_time(console: SafeConsole, explanation: Explanation) -> None:
    """Print where the time goes, and how full the fullest limits are."""
    console.print(f"time      {format_shares(explanation.shares) or 'not evaluated: the design violates a limit'}")
    machine = {address: share for address, share in explanation.limits.items() if address.startswith("chip.")}
    if full := [f"{address} {share:.0%}" for address, share in machine.items() if share >= FULL][:SHOWN_LIMITS]:
        console.print(f"fullest   {escape(', '.join(full))} used of the limit")


def _print_steps(console: SafeConsole, explanation: Explanation) -> None:
    """Print the steps of all knobs but the chip."""
    own = [change for change in explanation.changes if change.step.knob != CHIP_KNOB]
    if own:
        console.print(_changes_table(explanation, own, STEPS_TITLE))
    if explanation.idle:
        console.print(f"knobs without effect:  {escape(', '.join(explanation.idle))}")


def _print_chips(console: SafeConsole, explanation: Explanation) -> None:
    """Print the steps of the chip, and the knobs that were left."""
    if others := [change for change in explanation.changes if change.step.knob == CHIP_KNOB]:
        console.print(_changes_table(explanation, others, CHIPS_TITLE))
    if explanation.left:
        console.print(
            f"not evaluated, for lack of time: {escape(', '.join(explanation.left))}"
            f"{'; the same command goes on from here' if explanation.kept.place else ''}"
        )


def _print_constraints(console: SafeConsole, explanation: Explanation) -> None:
    """Print what constraints and bounds cost, the next designs, and the optimality gap, which takes longest."""
    if explanation.prices:
        title = "shadow prices: of each constraint the smallest relaxation with which a known design would beat this one"
        console.print(build_shadow_price_table(explanation.space, explanation.prices, title, explanation.values))
    elif explanation.point.feasible:
        console.print(f"constraints: no design that violates only one of them would beat this one ({explanation.known})")
    if explanation.bounds:
        console.print(_changes_table(explanation, explanation.bounds, BOUNDS_TITLE, judged_goal(explanation.goal)))
    for near, how in ((explanation.cheaper, "cheaper and slower"), (explanation.faster, "more expensive and faster")):
        console.print(f"{how}: {escape(describe_nearest_design(explanation.space, near)) if near else 'none is known'}")
    if explanation.certificate is not None:
        console.print(f"gap       to a bound: {escape(str(explanation.certificate))}")


PRINTERS: Mapping[str, Callable[[SafeConsole, Explanation], None]] = {
    "known": _print_known,
    "time": _print_time,
    "steps": _print_steps,
    "chips": _print_chips,
    "constraints": _print_constraints,
}
"""What prints each stage of `STAGES`."""

SHOWN_RIVALS, SHOWN_LIMITS = 5, 3
"""Designs that beat one, and limits, that are named."""

FULL = 0.5
"""Share of a limit from which on it is printed."""

STEPS_TITLE = "one step of each knob: change of each objective, and its elasticity (change of its logarithm over the knob's)"
CHIPS_TITLE = "another chip, with its knobs as they are here or at their first value: change of each objective"
BOUNDS_TITLE = "one SLO bound of the workload a tenth looser: change of each objective and constraint, and its elasticity"


def print_tied_leaves(console: SafeConsole, space: AnySpace, values: Mapping[str, Any], design: Design) -> None:
    """Print tied settings with the knobs that they follow; nothing if there are none."""
    several = [f"{leaf} {_leaf_text(design, leaf)} ({tied.text})" for tied, leaf in _tied_leaves(space, values)]
    if several:
        console.print(f"tied      {escape(', '.join(several))}")


def tied_leaves_record(space: AnySpace, values: Mapping[str, Any], design: Design) -> dict[str, TiedLeafRecord]:
    """Tied settings as a record of documents."""
    leaves_record = {}
    for tied, leaf in _tied_leaves(space, values):
        unit = field_at(design, leaf).metadata["unit"] or "1"
        leaves_record[leaf] = TiedLeafRecord(value=float(leaf_at(design, leaf)), unit=unit, follows=tied.text)
    return leaves_record


def _tied_leaves(space: AnySpace, values: Mapping[str, Any]) -> list[tuple[TiedLeaf, str]]:
    """What is tied in the space of a design's chip, and its leaves."""
    given_space = next(member for chosen, member in space.base_spaces if chosen.get(CHIP_KNOB) in (None, values.get(CHIP_KNOB)))
    return [(tied, leaf) for tied in given_space.tied for leaf in addresses(given_space.base, tied.address)]


def _leaf_text(design: Design, leaf: str) -> str:
    return format_quantity(float(leaf_at(design, leaf)), field_at(design, leaf).metadata["unit"] or "1")


def format_metric(value: float, unit: str) -> str:
    """A metric as text; money from ten thousand on without an exponent.

    >>> format_metric(21730.4, "USD"), format_metric(0.013, "s")
    ('21,730 USD', '13 ms')
    """
    return f"{value:,.0f} {unit}" if unit == "USD" and abs(value) >= 1e4 else format_quantity(value, unit)


def format_shares(shares: Mapping[str, float]) -> str:
    """Shares of time in one line, largest first."""
    return "  ".join(f"{name} {share:.1%}" for name, share in shares.items() if share > SMALL)


def format_metrics(goal: StudyGoal, point: DesignOutcome) -> str:
    """Objectives and metrics of constraints, with units."""
    known = [name for name in judged_metrics(goal) if name in point.metrics]
    return ", ".join(f"{name} {format_metric(point.metrics[name], METRICS[name].unit)}" for name in known) or "none"


def format_knobs(space: AnySpace, values: Mapping[str, Any]) -> str:
    """Knobs and their values, with units."""
    return ", ".join(f"{address} {format_knob_value(space, address, value)}" for address, value in values.items())


def format_changed_knobs(space: AnySpace, knobs: Mapping[str, tuple[Any, Any]]) -> str:
    """Knobs that differ, from which value to which."""

    def format_side(address: str, value: Any) -> str:
        return "-" if value is None else format_knob_value(space, address, value)

    return ", ".join(
        f"{address} {format_side(address, old)} to {format_side(address, new)}" for address, (old, new) in knobs.items()
    )


def describe_nearest_design(space: AnySpace, near: NearestDesign) -> str:
    """The next design in one line: price, speed, and the knobs that differ."""
    texts = [
        f"{name} {format_metric(new, METRICS[name].unit)} ({new / old - 1:+.1%})" for name, old, new in (near.cost, near.pace)
    ]
    return f"{f'{near.name}, ' if near.name else ''}{', '.join(texts)}: {format_changed_knobs(space, near.knobs)}"


def _changes_table(explanation: Explanation, changes: Sequence[KnobEffect], title: str, goal: StudyGoal | None = None) -> Table:
    goal = goal or explanation.goal
    table = Table(title=title, title_justify="left")
    table.add_column("knob", overflow="fold")
    for name in ("from", "to", *goal.objectives):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("then", overflow="fold")
    idle, last = set(explanation.idle), ""
    for change in changes:
        if change.step.knob in idle:
            continue
        first, last = change.step.knob != last, change.step.knob
        table.add_row(
            change.step.knob if first else "",
            _step_value(explanation.space, change.step.knob, change.step.old) if first else "",
            _step_value(explanation.space, change.step.knob, change.step.new),
            *(describe_knob_effect(change, name) for name in goal.objectives),
            escape(change.point.violations_text),
        )
    return table


def _step_value(space: AnySpace, address: str, value: Any) -> str:
    """A knob's value, or that of an SLO bound, with its unit."""
    unit = SLO_UNITS.get(address)
    return format_knob_value(space, address, value) if unit is None else format_quantity(value, unit or "1")


def describe_knob_effect(effect: KnobEffect, name: str) -> str:
    """Effect of a knob step on an objective: the change, and the elasticity if there is one."""
    if name not in effect.change:
        return "-"
    elastic = f" ({effect.elasticity[name]:+.2f})" if name in effect.elasticity else ""
    return f"{effect.change[name]:+.2%}{elastic}" if effect.change[name] else "0"


def build_shadow_price_table(
    space: AnySpace, prices: Sequence[ShadowPrice], title: str, base_values: Mapping[str, Any]
) -> Table:
    """Table of shadow prices, one row each, with the knobs that differ in the admitted design."""
    table = Table(title=title, title_justify="left", show_lines=len(prices) > 1)
    for name in ("constraint", "shadow price", "with the design"):
        table.add_column(name, overflow="fold")
    for price in prices:
        differ = {address: value for address, value in price.known.at.items() if base_values.get(address) != value}
        table.add_row(escape(price.what), escape(price.text), f"{price.design}: {escape(format_knobs(space, differ))}")
    return table


SHOWN = 15
"""Designs of a front that are printed."""


def print_front_explanation(
    study: Study,
    members: Sequence[FrontMember],
    shares: Mapping[str, Mapping[str, float]],
    prices: Sequence[ShadowPrice],
    remarks: Sequence[Caveat],
    sample: FrontSample,
    order: KindOrder,
) -> None:
    """Print each front design with time shares and best step; load, noise, shadow prices and caveats."""
    console, space = SafeConsole(WIDTH), study.question.space
    most = [members[round(i * (len(members) - 1) / (SHOWN - 1))] for i in range(SHOWN)] if len(members) > SHOWN else members
    more = f", {SHOWN} shown" if len(members) > SHOWN else ""
    by = (
        f"; the knob step with the largest gain, at fidelity {analytical_goal(study_goal(study), space.base).fidelity}"
        if members
        else ""
    )
    table = Table(title=f"front of {study.name}: {count_text(len(members), 'design')}{more}{by}", title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("design", no_wrap=True)
    if order.undecided:
        table.add_column("not distinguished from", overflow="fold")
    table.add_column("time by resource", overflow="fold")
    for name in study.objectives:
        table.add_column(name, justify="right", overflow="fold")
        table.add_column("best step", overflow="fold")
    ranks = {member.name: rank for rank, member in enumerate(members, 1)}
    for member in most:
        cells = [f"{ranks[member.name]:,}", member.name]
        cells += [escape(", ".join(order.undecided.get(member.name, ())))] if order.undecided else []
        cells += [largest_shares_text(shares.get(member.name))]
        for name in study.objectives:
            cells += [
                format_metric(member.point.metrics[name], METRICS[name].unit),
                escape(best_step_text(study, member, name)),
            ]
        table.add_row(*cells)
    console.print(table if members else f"front of {study.name}: no design meets every limit and constraint")
    print_sample(sample)
    if prices:
        console.print(
            build_shadow_price_table(
                space, prices, "shadow prices: of each constraint the smallest relaxation that moves the front", {}
            )
        )
    else:
        console.print("constraints: no known design violates only one of them and would move the front")
    for note in remarks:
        console.print(f"[yellow]note[/]  {escape(note.text)}")
    if members:
        console.print(f"one design: dse explain {escape(study.name)} --design {members[0].name}")
        console.print(f"does it hang on assumptions: dse robust {escape(study.name)}")


LARGEST = 3
"""Parts of the machine that are named where time goes."""


def largest_shares_text(shares: Mapping[str, float] | None) -> str:
    """The largest shares of the time, from a hundredth on."""
    if shares is None:
        return "no time left"
    return ", ".join(f"{name} {share:.0%}" for name, share in list(shares.items())[:LARGEST] if share >= 0.01)


def best_step_text(study: Study, member: FrontMember, name: str) -> str:
    """The feasible step that gains most in an objective."""
    if member.changes is None:
        return "no time left"
    sign = 1 if study.objectives[name] == "max" else -1
    good = [change for change in member.changes if change.point.feasible and sign * change.change.get(name, 0.0) > SMALL]
    if not good:
        return "none"
    best = max(good, key=lambda step: sign * step.change[name])
    knob, space = best.step.knob, study.question.space
    return (
        f"{knob} {format_knob_value(space, knob, best.step.old)} to "
        f"{format_knob_value(space, knob, best.step.new)}: {describe_knob_effect(best, name)}"
    )


def front_explanation_record(
    study: Study,
    members: Sequence[FrontMember],
    shares: Mapping[str, Mapping[str, float]],
    prices: Sequence[ShadowPrice],
    remarks: Sequence[Caveat],
    distinct: Sequence[str],
    sample: FrontSample,
    order: KindOrder,
) -> FrontDocument:
    """The front of a study with its explanation, as its document."""
    space = study.question.space

    def margin_records(name: str) -> list[MarginRecord] | None:
        known = sample.designs.get(name)
        return [margin.record() for margin in known.margins] if known is not None and known.is_evaluated else None

    return FrontDocument(
        study=study.name,
        objectives=study.objectives,
        designs=[
            FrontDesignRecord(
                design=member.name,
                rank=rank,
                knobs={address: knob_record(space, address, value) for address, value in member.values.items()},
                metrics=metric_records(member.point.metrics),
                shares_of_time=shares.get(member.name),
                steps=None if member.changes is None else [knob_effect_record(space, step) for step in member.changes],
                margins=margin_records(member.name),
            )
            for rank, member in enumerate(members, 1)
        ],
        prices_of_constraints=[shadow_price_record(space, price) for price in prices],
        remarks=caveat_records(remarks),
        distinct=distinct,
        sample=sample.record(),
        order=kind_order_record(order),
    )


def kind_order_record(order: KindOrder) -> KindOrderRecord:
    """Order between kinds of chips as a record of documents."""
    return KindOrderRecord(
        text=order.text,
        bands=[
            KindBandRecord(chip=band.chip, kind=band.kind, low=band.low, high=band.high, source=band.source)
            for band in order.bands
        ],
        carried=order.carried,
        not_distinguished=order.undecided,
    )


def explanation_record(explanation: Explanation) -> ExplainDocument:
    """The explanation of one design, metrics in SI with their units, as its document."""
    return ExplainDocument(
        design=explanation.id,
        name=explanation.name,
        knobs={address: knob_record(explanation.space, address, value) for address, value in explanation.values.items()},
        tied=tied_leaves_record(explanation.space, explanation.values, explanation.design),
        fidelity=explanation.goal.fidelity,
        objectives=explanation.goal.objectives,
        metrics=metric_records(explanation.point.metrics),
        feasible=explanation.point.feasible,
        breaks=explanation.point.violations_text or None,
        shares_of_time=explanation.shares,
        steps=[knob_effect_record(explanation.space, change) for change in explanation.changes],
        knobs_that_change_nothing=explanation.idle,
        knobs_not_looked_at=explanation.left,
        prices_of_constraints=[shadow_price_record(explanation.space, price) for price in explanation.prices],
        cheaper_and_slower=nearest_design_record(explanation.space, explanation.cheaper),
        dearer_and_faster=nearest_design_record(explanation.space, explanation.faster),
        looked_among=explanation.known,
        beaten_by=explanation.beaten_by,
        margins_of_constraints=explanation.margins(),
        shares_of_limits=explanation.limits,
        looser_bounds=[bound_record(change) for change in explanation.bounds],
        without_effect=no_effect_records(explanation.without_effect),
    )


def knob_effect_record(space: AnySpace, effect: KnobEffect) -> StepRecord:
    """Effect of one knob step as a record of documents."""
    return StepRecord(
        knob=effect.step.knob,
        from_=knob_record(space, effect.step.knob, effect.step.old),
        to=knob_record(space, effect.step.knob, effect.step.new),
        change=effect.change,
        elasticity=effect.elasticity,
        feasible=effect.point.feasible,
        breaks=effect.point.violations_text or None,
    )


def bound_record(effect: KnobEffect) -> LooserBoundRecord:
    """Effect of a looser SLO bound as a record of documents."""
    unit = SLO_UNITS[effect.step.knob]
    old, new = (_value_record(value, unit) for value in (effect.step.old, effect.step.new))
    return LooserBoundRecord(
        bound=effect.step.knob,
        from_=old,
        to=new,
        change=effect.change,
        elasticity=effect.elasticity,
        feasible=effect.point.feasible,
    )


def shadow_price_record(space: AnySpace, price: ShadowPrice) -> ShadowPriceRecord:
    """Shadow price of one constraint as a record of documents."""
    return ShadowPriceRecord(
        constraint=price.what,
        unit=price.unit,
        is_=price.now,
        would_have_to_be=price.then,
        relaxation=price.relaxation,
        text=str(price),
        buys=metric_records(price.gains),
        design=price.design,
        for_each={
            name: MeasuredRecord(value=rate, unit=f"{METRICS[name].unit} per {price.unit}")
            for name, rate in price.rates.items()
        },
        knobs={address: knob_record(space, address, value) for address, value in price.known.at.items()},
    )


def nearest_design_record(space: AnySpace, near: NearestDesign | None) -> NextDesignRecord | None:
    """The next design as a record of documents."""
    if near is None:
        return None
    pairs = {name: NextMetricRecord(here=old, there=new, unit=METRICS[name].unit) for name, old, new in (near.cost, near.pace)}
    return NextDesignRecord(design=near.name or None, metrics=pairs, knobs=changed_knob_records(space, near.knobs))


def changed_knob_records(space: AnySpace, changes: Mapping[str, tuple[Any, Any]]) -> dict[str, ChangedKnobRecord]:
    """Changes of knobs by address, each from which value to which."""
    return {
        address: ChangedKnobRecord(from_=knob_record(space, address, old), to=knob_record(space, address, new))
        for address, (old, new) in changes.items()
    }


def knob_record(space: AnySpace, address: str, value: Any) -> Scalar | MeasuredRecord:
    """A knob's value with its unit; options, and numbers without a unit, as they are."""
    if value is None or isinstance(value, str):
        return value
    unit = space.spec(address).metadata["unit"]
    return _value_record(value, unit)


def _value_record(value: Any, unit: str) -> Scalar | MeasuredRecord:
    """A number with its unit; one without a unit as it is."""
    return MeasuredRecord(value=value, unit=unit) if unit not in ("", "1") else value
