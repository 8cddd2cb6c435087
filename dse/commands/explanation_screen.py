"""First screens of ``dse explain`` and ``dse whynot``: at most 25 lines, the rest with --full."""

from collections.abc import Mapping, Sequence

from dse.commands.explain_output import (
    SHOWN_RIVALS,
    SMALL,
    best_step_text,
    describe_knob_effect,
    describe_nearest_design,
    format_changed_knobs,
    format_knobs,
    format_metric,
    format_metrics,
    format_shares,
    largest_shares_text,
)
from dse.commands.whynot_output import distance_text, outside_text
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.study import Study
from dse.explanations.data_sheet_bases import facts_in_use
from dse.explanations.dominance import DominanceReport, count_changes_to_domination
from dse.explanations.explanation import Explanation, FrontMember
from dse.explanations.neighbours import format_knob_value
from dse.explanations.sample_noise import FrontSample
from dse.explanations.shadow_prices import ShadowPrice
from dse.report.caveats import Caveat
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.published import FACTS
from dse.space.safe_text import count_text
from dse.terminal.plain_names import plain_name, setting_name
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen, stack_headers

MAX_STEPS, MAX_MEMBERS, MAX_RIVALS, MAX_HOPS = 6, 6, 4, 4
"""Steps, designs of a front, rivals and changes of a first screen at most."""


IN_WORDS = "in words"
"""Column of plain names of settings, the last one, so that it goes first where a line is short."""

UNREACHED = "if its limits held, "
"""What precedes the metrics of a design that violates a limit."""

LIMITED = "holds for the chip as sold; steps of the chip also replace its figures by the model's, which finds a limit violated"
"""What part of changes is, where the chip as sold violates a limit by the model, so that there is nothing to compare with."""


def explanation_lines(explanation: Explanation, width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of an explained design: figures, limits, strongest knobs, next designs.

    Args:
        explanation: of one design.
        width: characters of a line at most.
    """
    point, goal, space = explanation.point, explanation.goal, explanation.space
    named = explanation.name != explanation.id
    reached = "" if point.feasible or explanation.shares else UNREACHED
    rows: list[ScreenRow | list[str]] = [
        ScreenRow("design", explanation.id if named else format_knobs(space, explanation.values)),
        ScreenRow("metrics", f"{reached}{format_metrics(goal, point)}, by {goal.fidelity}", needed=True),
        ScreenRow("feasible", "yes" if point.feasible else f"no: {point.violations_text}", needed=True),
    ]
    if explanation.beaten_by is not None and point.metrics:
        ids = ", ".join(explanation.beaten_by[:SHOWN_RIVALS])
        rows.append(ScreenRow("beaten by", f"{len(explanation.beaten_by)} of the front{f': {ids}' if ids else ''}"))
    shares = format_shares(explanation.shares).replace("  ", ", ")
    rows.append(ScreenRow("bound by", shares or "not evaluated: the design violates a limit", needed=True))
    rows += _step_rows(explanation, width)
    if text := describe_data_sheet(explanation):
        rows.append(ScreenRow("data sheet", text))
    if explanation.left:
        rows.append(ScreenRow("not tried", f"for lack of time: {', '.join(explanation.left)}"))
    rows += [ScreenRow("constraint", f"{price.what}: {price.text}") for price in explanation.prices[:2]]
    for near, how in ((explanation.cheaper, "cheaper"), (explanation.faster, "faster")):
        rows += [ScreenRow(how, describe_nearest_design(space, near))] if near else []
    rows.append(ScreenRow("more", "--full every step, constraint, bound and the gap to an optimum; --json", needed=True))
    return format_screen(explanation.name, rows, width)


def describe_data_sheet(explanation: Explanation) -> str:
    """Which figures are the data sheet's and which the model's; empty string without a data sheet."""
    facts = facts_in_use(explanation.design.chip)
    if not facts:
        return ""
    names = " and ".join(plain_name(name) for name in FACTS if name in facts)
    if not any(effect.modelled for effect in explanation.changes):
        moved = any(facts - facts_in_use(effect.step.design.chip) for effect in explanation.changes)
        return LIMITED if moved else ""
    return f"the metrics above have its {names}; steps of the chip and their designs are compared by the model's figures alone"


def _step_rows(explanation: Explanation, width: int) -> list[ScreenRow | list[str]]:
    """The steps of knobs that change objectives most, a line each: the better direction of each knob."""
    objectives, space = explanation.goal.objectives, explanation.space

    def gain(change_by: Mapping[str, float]) -> float:
        signs = {name: 1 if direction == "max" else -1 for name, direction in objectives.items()}
        return max((signs[name] * change for name, change in change_by.items()), default=0.0)

    feasible = [effect for effect in explanation.changes if effect.point.feasible and gain(effect.change) > SMALL]
    best: dict[str, float] = {}
    steps = {}
    for effect in sorted(feasible, key=lambda effect: -gain(effect.change)):
        if effect.step.knob not in best:
            best[effect.step.knob], steps[effect.step.knob] = gain(effect.change), effect
    if not steps:
        return [ScreenRow("knobs", "no step of a single knob betters an objective")] if explanation.changes else []
    cells = [
        [
            effect.step.knob,
            str(effect.step.new) if knob == CHIP_KNOB else format_knob_value(space, knob, effect.step.new),
            *(describe_knob_effect(effect, name).partition(" (")[0] for name in objectives),
            setting_name(knob),
        ]
        for knob, effect in list(steps.items())[:MAX_STEPS]
    ]
    head, cells = stack_headers(["knob", "one step to", *objectives, IN_WORDS], cells)
    more = len(steps) - len(cells)
    rest = [f"and {count_text(more, 'more knob')} that better an objective"] if more > 0 else []
    return [[*format_columns(head, cells, width, left=(0, len(objectives) + 2)), *rest]]


def front_explanation_lines(
    study: Study,
    members: Sequence[FrontMember],
    shares: Mapping[str, Mapping[str, float]],
    prices: Sequence[ShadowPrice],
    remarks: Sequence[Caveat],
    sample: FrontSample,
    width: int = SCREEN_WIDTH,
) -> list[str]:
    """Lines of the first screen of an explained front: limits of its designs, and the best step of each.

    Args:
        study: whose front it is.
        members: designs of the front in order.
        shares: of the time of each by resource.
        prices: what constraints cost.
        remarks: notes on the front.
        sample: its load and noise.
        width: characters of a line at most.
    """
    if not members:
        return format_screen(f"Front of {study.name}: no design meets every limit and constraint", [], width)
    places = sorted({round(place * (len(members) - 1) / (MAX_MEMBERS - 1)) for place in range(MAX_MEMBERS)})
    rows: list[ScreenRow | list[str]] = []
    for member in (members[place] for place in places):
        figures = ", ".join(
            format_metric(member.point.metrics[name], METRICS[name].unit)
            + (f" [{step}]" if (step := best_step_text(study, member, name)) not in ("none", "no time left") else "")
            for name in study.objectives
        )
        rows.append(ScreenRow(member.name, f"{figures}; {largest_shares_text(shares.get(member.name))}"))
    rows += [ScreenRow(name, text) for name, text in (("load", sample.load_text), ("noise", sample.noise_text)) if text]
    rows += [ScreenRow("constraint", f"{price.what}: {price.text}") for price in prices[:2]]
    rows += [ScreenRow("note", note.text) for note in remarks[:2]]
    first = members[0].name
    more = f"dse explain {study.name} --design {first} one design; dse robust {study.name} assumptions; --full; --json"
    rows.append(ScreenRow("more", more, needed=True))
    shown = f", {len(places)} shown" if len(places) < len(members) else ""
    goals = ", ".join(study.objectives)
    title = (
        f"Front of {study.name}: {count_text(len(members), 'design')}{shown}; {goals} [best step of a knob]; time by resource"
    )
    return format_screen(title, rows, width)


def dominance_lines(dominance: DominanceReport, width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of a design's position: distance, what beats it, and the way there.

    Args:
        dominance: of one design.
        width: characters of a line at most.
    """
    point, space = dominance.point, dominance.space
    rows: list[ScreenRow | list[str]] = (
        [ScreenRow("design", dominance.id, spare=True)] if dominance.name != dominance.id else []
    )
    rows += [
        ScreenRow("metrics", f"{format_metrics(dominance.goal, point)}, by {dominance.goal.fidelity}", needed=True),
        ScreenRow("feasible", "yes" if point.feasible else f"no: {point.violations_text}", needed=True),
        ScreenRow("distance", distance_text(dominance), needed=True),
    ]
    rows += [ScreenRow("outside", outside)] if (outside := outside_text(dominance)) else []
    if dominance.beats:
        rows.append(ScreenRow("beats", f"{count_text(len(dominance.beats), 'design')} of the front"))
    if dominance.rivals:
        rows.append(_rival_lines(dominance, width))
    rows += _path_rows(dominance, width)
    if dominance.left:
        rows.append(ScreenRow("not tried", f"for lack of time: {', '.join(dominance.left)}; run the command again"))
    example = dominance.rivals[0] if dominance.rivals else None
    if example and CHIP_KNOB not in example.knobs:
        rows.append(ScreenRow(example.name, format_changed_knobs(space, example.knobs), spare=True))
    rows.append(ScreenRow("more", "--full every design that beats it with its knobs; --json", needed=True))
    return format_screen(dominance.name, rows, width)


def _rival_lines(dominance: DominanceReport, width: int) -> list[str]:
    """The designs of the front that beat it, a line each, with their objectives and the number of changed knobs."""
    many = sum(1 + len(rival.alike) for rival in dominance.rivals)
    names = list(dominance.goal.objectives)
    cells = [
        [rival.name, *(_objective_text(dominance, rival.point.metrics, name) for name in names), str(len(rival.knobs))]
        for rival in dominance.rivals[:MAX_RIVALS]
    ]
    shown = f", {len(cells)} shown" if many > len(cells) else ""
    title = f"{count_text(many, 'design')} of the front beat{'s' * (many == 1)} it{shown}"
    head, cells = stack_headers(["design", *names, "changes"], cells)
    return [title, *format_columns(head, cells, width)]


def _path_rows(dominance: DominanceReport, width: int) -> list[ScreenRow | list[str]]:
    """The changes to the stored design that beats it with fewest of them, the best one first."""
    if not dominance.path or dominance.target is None:
        return []
    needed, many = count_changes_to_domination(dominance.path, feasible=dominance.point.feasible), len(dominance.path)
    then = "it is beaten" if dominance.point.feasible else "it is feasible"
    soon = f"; after {needed} of {many} {then}" if needed and needed < many else ""
    names = list(dominance.goal.objectives)
    cells = []
    for hop in dominance.path[:MAX_HOPS]:
        new = "as the study" if hop.new is None else format_knob_value(dominance.space, hop.knob, hop.new)
        changed = [_objective_text(dominance, hop.point.metrics, name) for name in names]
        cells.append([hop.knob, new, *changed, setting_name(hop.knob)])
    title = f"changes to {dominance.target.name}, the best one first{soon}"
    head, cells = stack_headers(["change", "to", *names, IN_WORDS], cells)
    return [[title, *format_columns(head, cells, width, left=(0, len(names) + 2))]]


def _objective_text(dominance: DominanceReport, metrics: Mapping[str, float], name: str) -> str:
    """An objective of another design relative to this one's; its value if this one has none."""
    if name not in metrics:
        return "-"
    old = dominance.point.metrics.get(name)
    return f"{metrics[name] / old - 1:+.1%}" if old else format_metric(metrics[name], METRICS[name].unit)
