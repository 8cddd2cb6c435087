"""Caveats of a study: idle knobs and constraints, flat objectives, crowded or empty fronts.

A front is crowded if it has more designs than the model can distinguish, and empty if no design is feasible.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, sqrt

import numpy as np
import pandas as pd

from dse.accuracy.foreign_constants import describe_foreign_constants
from dse.accuracy.stack_basis import stack_basis
from dse.documents.front_document import RemarkRecord
from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.silicon.published import published_facts
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.screen import ScreenResult, screen_left_out_text
from dse.execution.study import Study
from dse.explanations.advice import count_rejections, find_smallest_relaxation
from dse.explanations.elasticities import SAME
from dse.explanations.explanation import study_goal
from dse.explanations.kept_answers import KeptAnswers
from dse.explanations.near_feasible import collect_known_tables, find_near_feasible_rows
from dse.explanations.neighbours import (
    DesignOutcome,
    analytical_goal,
    evaluate_points,
    format_knob_value,
    judged_metrics,
    list_neighbours,
)
from dse.report.error_bands import estimate_study_error_bands
from dse.report.kind_order import find_kind_order
from dse.report.study_software import list_study_software
from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array
from dse.space.fields import replace_leaves
from dse.space.knobs import ChoiceKnob
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.neighbourhood import Neighbour
from dse.space.units import format_quantity

SAMPLED_DESIGNS = 32
"""Designs of a study, evenly over all, at which each knob is moved to see whether it changes anything."""

BUDGET_S = 10.0
"""What that may take."""

ASSUMED_RESOLUTION = 0.01
"""What tells designs apart in an objective of which no measured row says how far off it is, relative."""

MAX_FRONT = 4096
"""Designs of a front among which distinct ones are looked for."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """One caveat of a study, with its kind and text.

    Attributes:
        kind: knob, constraint, objective, feasible, front, screen, stack, order or chip.
        what: the knob's address, the constraint as written, the objective, the chip; "" of the others.
        text: in words, with what was looked at.
    """

    kind: str
    what: str
    text: str


def collect_study_caveats(
    study: Study, frame: pd.DataFrame, screened: ScreenResult | None = None, *, seconds: float = BUDGET_S
) -> list[Caveat]:
    """Caveats of a study, from its designs and its screen.

    Args:
        study: the study.
        frame: its designs, as `dse.execution.result_frame.combine_with_front` has them.
        screened: what its screen looked at, of which the frame has a sample.
        seconds: what steps of its knobs may take.
    """
    return [
        *find_inactive_knob_caveats(study, frame),
        *find_idle_knob_caveats(study, frame, seconds=seconds),
        *(
            find_idle_constraint_caveats(study, frame, screened)
            if not (few := find_discarded_rows_caveats(study, screened))
            else few
        ),
        *find_flat_objective_caveats(study, frame),
        *find_infeasible_study_caveats(study, frame),
        *find_crowded_front_caveats(study, frame),
        *find_foreign_constant_caveats(study),
        *find_kind_order_caveats(study, frame),
        *find_dropped_facts(study),
    ]


def find_dropped_facts(study: Study) -> list[Caveat]:
    """Chips with data-sheet facts that do not hold for all designs, and the knobs that they depend on."""
    caveats = []
    for chosen, space in study.question.space.base_spaces:
        of_part = {fact.name for fact in published_facts(space.base.chip) if fact.holds}
        dropped: dict[str, None] = {}
        moving = []
        for knob in space.knobs if of_part else ():
            values = knob.values if isinstance(knob, ChoiceKnob) else (knob.low, knob.high)
            chips = (replace_leaves(space.base, dict.fromkeys(space.targets[knob.address], value)).chip for value in values)
            lost = {
                fact.name: None for chip in chips for fact in published_facts(chip) if fact.name in of_part and not fact.holds
            }
            moving += [knob.address] if lost else []
            dropped |= lost
        if dropped:
            name = str(chosen.get(CHIP_KNOB, "")) or str(study.config["choices"].get("chip", ""))
            names = ", ".join(fact.replace("_", " ") for fact in dropped)
            text = f"{names} of the data sheet hold for {name} as it ships"
            text += f"; where {', '.join(moving)} change, the model's values are used"
            caveats.append(Caveat("chip", name, text))
    return caveats


def find_foreign_constant_caveats(study: Study) -> list[Caveat]:
    """Chips whose software has constants that were fitted on other chips only."""
    each = ((software[1]["chip"], describe_foreign_constants(*software)) for software in list_study_software(study))
    return [Caveat("stack", chip, text) for chip, text in each if text]


def find_kind_order_caveats(study: Study, frame: pd.DataFrame) -> list[Caveat]:
    """Caveat that designs of the front are not distinguished from designs of other kinds of chips."""
    order = find_kind_order(study, frame)
    return [Caveat("order", "", order.text)] if order.undecided else []


def describe_stacks(study: Study) -> list[str]:
    """Measured and assumed kernels of each chip's software stack, one line per chip with a stack."""
    bases = ((software[1]["chip"], stack_basis(*software)) for software in list_study_software(study))
    lines = []
    for chip, basis in bases:
        if basis:
            accuracy = f"; measured over predicted rates {basis.accuracy.text}" if basis.accuracy else ""
            lines.append(f"{f'{chip}: ' if study.chips else ''}{basis.text}{accuracy}")
    return lines


def find_inactive_knob_caveats(study: Study, frame: pd.DataFrame) -> list[Caveat]:
    """Knobs that are inactive in all designs, with the conditions that none of them meets."""
    knob_caveats = []
    for knob in study.question.space.knobs if len(frame) else ():
        if frame[knob.address].notna().any():
            continue
        space, read = study.question.space, [(other, words) for other, words, _ in knob.read]
        ways = [
            f"{other} {' or '.join(format_knob_value(space, other, value) for value in values)}"
            for other, values in [*knob.when] or read
        ]
        where = f", as none has {(' and ' if knob.when else ' or ').join(ways)}" if ways else ""
        knob_caveats.append(
            Caveat("knob", knob.address, f"{knob.address} is inactive: at none of {len(frame):,} designs{where}")
        )
    return knob_caveats


def find_idle_knob_caveats(study: Study, frame: pd.DataFrame, *, seconds: float = BUDGET_S) -> list[Caveat]:
    """Knobs of which no step changes an objective, a constraint's metric or a limit.

    Tested with the analytical model at designs spread evenly over all.
    """
    space = study.question.space
    known = frame[frame["error"].isna()]
    goal = analytical_goal(study_goal(study), space.base)
    if goal.fidelity != study.fidelity:
        return _idle_pairs(study, known)
    moving = _moving_knobs(study, known)
    if all(knob.address in moving for knob in space.knobs):
        return []
    rows = known.iloc[np.unique(np.linspace(0, len(known) - 1, min(SAMPLED_DESIGNS, len(known))).round().astype(int))]
    around: list[list[Neighbour]] = []
    designs = []
    for row in rows.to_dict("records"):
        values = knob_values(study, row)
        around.append([step for step in list_neighbours(space, values) if step.knob not in moving])
        designs += [space.design_at(values), *(step.design for step in around[-1])]
    points = evaluate_points(designs, goal, seconds=seconds, kept=KeptAnswers(study.store))
    tried: dict[str, int] = {}
    moved: set[str] = set()
    place = 0
    for steps in around:
        base_outcome, *outcomes = points[place : place + 1 + len(steps)]
        place += 1 + len(steps)
        for step, point in zip(steps, outcomes, strict=True):
            if base_outcome is None or point is None or base_outcome.refused:
                continue
            tried[step.knob] = tried.get(step.knob, 0) + 1
            if not _is_alike(base_outcome, point):
                moved.add(step.knob)
    kept = [knob.address for knob in space.knobs if knob.address in tried and knob.address not in moved]
    return [
        Caveat("knob", knob, f"{knob} changes nothing: {tried[knob]:,} steps of it, at {len(rows):,} evenly spread designs")
        for knob in kept
    ]


def _moving_knobs(study: Study, known: pd.DataFrame) -> set[str]:
    """Knobs in which two stored designs differ alone, and do not come out the same: of some designs for each knob."""
    knobs = [knob.address for knob in study.question.space.knobs]
    judged_by = [name for name in judged_metrics(study_goal(study)) if name in known]
    known = known[known[judged_by].notna().all(axis=1)]
    moving = set()
    for knob in knobs:
        others = [other for other in knobs if other != knob]
        alike = known.duplicated(others, keep=False) if others else np.ones(len(known), bool)
        groups = known[alike].groupby(others, dropna=False, sort=False) if others else [((), known)]
        for _, group in islice(groups, SAMPLED_DESIGNS):
            if group[knob].nunique(dropna=False) > 1 and not _is_same_group(group, judged_by):
                moving.add(knob)
                break
    return moving


def _idle_pairs(study: Study, known: pd.DataFrame) -> list[Caveat]:
    """Knobs in which stored designs differ alone, and come out the same whatever its value.

    Of designs that break a limit nothing is known but that.
    """
    knobs = [knob.address for knob in study.question.space.knobs]
    judged_by = [name for name in judged_metrics(study_goal(study)) if name in known]
    known = known[known[judged_by].notna().any(axis=1)]
    pairs = []
    for knob in knobs:
        others = [other for other in knobs if other != knob]
        groups = known.groupby(others, dropna=False, sort=False) if others else [((), known)]
        alone = [group for _, group in groups if group[knob].nunique(dropna=False) > 1]
        if alone and all(_is_same_group(group, judged_by) for group in alone):
            designs = f"{sum(map(len, alone)):,} stored designs that differ only in it"
            text = f"{knob} changes nothing at fidelity {study.fidelity}: {designs}"
            pairs.append(Caveat("knob", knob, text))
    return pairs


def _is_same_group(group: pd.DataFrame, names: Sequence[str]) -> bool:
    """Whether designs come out the same."""
    values = group[list(names)].to_numpy(dtype=float)
    alike = np.isclose(values, values[0], rtol=SAME, atol=0.0, equal_nan=True).all()
    return bool(alike) and group["limit"].nunique(dropna=False) == 1


def _is_alike(outcome: DesignOutcome, other: DesignOutcome) -> bool:
    """Whether two designs come out the same, in what is judged and what they break."""
    if (outcome.limit, set(outcome.metrics), outcome.refused) != (other.limit, set(other.metrics), other.refused):
        return False
    pairs = [(outcome.metrics[name], other.metrics[name]) for name in outcome.metrics] + [
        (outcome.need, other.need),
        (outcome.have, other.have),
    ]
    return all(abs(new - old) <= SAME * max(abs(old), abs(new)) for old, new in pairs)


@dataclass(slots=True)
class _Tally:
    """Of a constraint: designs whose metric is known, that break it, and that would move the front; the nearest value."""

    known: int = 0
    broken: int = 0
    moving: int = 0
    nearest: float = float("nan")


def find_idle_constraint_caveats(study: Study, frame: pd.DataFrame, screened: ScreenResult | None = None) -> list[Caveat]:
    """Constraints that no design violates, and those that do not move the front.

    A constraint does not move the front if no design that violates it alone is better than the whole front in anything.
    """
    front = [
        DesignOutcome({name: float(row[name]) for name in study.objectives}) for row in frame[frame["front"]].to_dict("records")
    ]
    tallies = {bound: _Tally() for bound in study.bounds}
    for rows in collect_known_tables(study, frame, screened):
        _, moving = find_near_feasible_rows(study, rows, front, inf)
        for bound, over in zip(study.bounds, moving[1:], strict=True):
            values, tally = rows[bound.metric].to_numpy(dtype=float) if bound.metric in rows else np.zeros(0), tallies[bound]
            values = values[np.isfinite(values)]
            tally.known += len(values)
            tally.broken += int((np.asarray(bound.excess(values)) > 0).sum())
            tally.moving += int((over > 0).sum())
            if len(values):
                end = float(values.max() if bound.relation == "<=" else values.min())
                tally.nearest = end if not bound.excess(tally.nearest) > bound.excess(end) else tally.nearest
    constraint_caveats = []
    for bound, tally in tallies.items():
        if tally.known and not tally.broken:
            near = format_quantity(tally.nearest, METRICS[bound.metric].unit)
            text = f"{bound} is never violated: of {tally.known:,} designs the nearest to it has {near}"
            constraint_caveats.append(Caveat("constraint", str(bound), text))
        elif tally.broken and not tally.moving and front:
            how = f"{tally.broken:,} of {tally.known:,} designs violate it, and without it the front is the same"
            constraint_caveats.append(Caveat("constraint", str(bound), f"{bound} does not move the front: {how}"))
    return constraint_caveats


def find_discarded_rows_caveats(study: Study, screened: ScreenResult | None) -> list[Caveat]:
    """Caveat that most screened designs were not kept, so that constraints cannot be assessed."""
    if screened is None or screened.kept == screened.rows or study.fidelity != study.screen_fidelity:
        return []
    text = (
        f"of {screened.rows:,} screened designs the front and an even sample are kept, {screened.kept:,} (screen.keep=front): "
        "idle constraints are unknown, and shadow prices are of these designs; screen.keep=all keeps every design"
    )
    text += f"; {screen_left_out_text(screened)}" if screened.pruned else ""
    return [Caveat("screen", "", text)]


def find_flat_objective_caveats(study: Study, frame: pd.DataFrame) -> list[Caveat]:
    """Objectives that are equal for all feasible designs, or differ by less than their resolution."""
    good = frame[frame["feasible"]]
    objective_caveats = []
    for name, (by, how) in objective_resolution(study).items():
        values = good[name].to_numpy(dtype=float) if len(good) else np.zeros(0)
        if len(values) < 2:
            continue
        low, high = float(values.min()), float(values.max())
        spread = high / low - 1 if low > 0 else (0.0 if low == high else inf)
        designs_text = f"of all {len(good):,} feasible designs"
        if spread <= SAME:
            text = f"{name} is constant: {format_quantity(low, METRICS[name].unit)} {designs_text}"
            objective_caveats.append(Caveat("objective", name, text))
        elif spread < by:
            text = f"{name} does not distinguish designs: it differs by {spread:.2%} {designs_text}, and {how} is {by:.2%}"
            objective_caveats.append(Caveat("objective", name, text))
    return objective_caveats


def find_infeasible_study_caveats(study: Study, frame: pd.DataFrame) -> list[Caveat]:
    """Most violated limits of a study without feasible designs, and the smallest relaxation."""
    if not len(frame) or frame["feasible"].any():
        return []
    counted = "; ".join(
        f"{rejection.what} rejects {rejection.designs:,}"
        + (f", the nearest by {rejection.least:.3g} of it" if rejection.least else "")
        for rejection in count_rejections(study, frame)
    )
    study_caveats = [Caveat("feasible", "", f"none of {len(frame):,} designs is feasible: {counted}")]
    values, gives = find_smallest_relaxation(study, frame)
    if gives:
        space = study.question.space
        knobs = ", ".join(f"{address} {format_knob_value(space, address, value)}" for address, value in values.items())
        relaxation = f"smallest relaxation that admits a design: {', and '.join(gives)}; for the design {knobs}"
        study_caveats.append(Caveat("feasible", "", relaxation))
    return study_caveats


def find_crowded_front_caveats(study: Study, frame: pd.DataFrame) -> list[Caveat]:
    """Caveat that designs of the front differ by less than the model's error."""
    kept, representatives = select_distinct_front(study, frame)
    if not representatives or len(kept) == len(representatives):
        return []
    resolution = objective_resolution(study)
    within = " and ".join(f"{by:.1%} of its {name}" for name, (by, _) in resolution.items())
    reasons: dict[str, list[str]] = {}
    for name, (_, how) in resolution.items():
        reasons.setdefault(how, []).append(name)
    why = "; ".join(f"{' and '.join(names)}: {how}" for how, names in reasons.items())
    ids = report_order(study, frame)[DESIGN]
    names = ", ".join(ids.iloc[kept[:20]]) + (f" and {len(kept) - 20:,} more" if len(kept) > 20 else "")
    front_text = f"{len(kept):,} of the {len(representatives):,} designs of the front are distinguishable: {names}."
    front_text += f" Each other design is within {within} of one of them ({why})"
    return [Caveat("front", "", front_text)]


def select_distinct_front(study: Study, frame: pd.DataFrame) -> tuple[list[int], list[int]]:
    """Front thinned to designs that the model can distinguish.

    Returns:
        Rows of the front that stand for all, in the order of the report; and for each row of the front the one that stands
        for it. Both empty where there is no front.
    """
    rows = report_order(study, frame)
    front = rows[rows["front"]].head(MAX_FRONT)
    by = [share for share, _ in objective_resolution(study).values()]
    kept, representatives = thin_to_resolution(
        front[list(study.objectives)].to_numpy(dtype=float).reshape(-1, len(by)), study.directions, by
    )
    return sorted(kept), representatives


def objective_resolution(study: Study) -> dict[str, tuple[float, str]]:
    """Resolution of each objective: half of the error band of measured rows, with its source as text.

    The band is from low to high, both simulated over measured less 1. What all rows have in common moves no order; half its
    width, sqrt((1 + high) / (1 + low)) - 1, is what is left. Of several chips or kernels the widest counts.
    """
    lines = estimate_study_error_bands(study)
    resolution = {}
    for name in study.objectives:
        widths = [
            sqrt((1 + line["high"]) / (1 + line["low"])) - 1
            for line in lines
            if line["metric"] == name and line["rows"] > 1 and line["low"] is not None and line["low"] > -1
        ]
        if any(widths):
            resolution[name] = max(widths), "half the band of measured rows of this kind"
        else:
            resolution[name] = ASSUMED_RESOLUTION, "assumed, since fewer than two measured rows are of this kind"
    return resolution


def thin_to_resolution(values: Array, directions: Sequence[str], by: Sequence[float]) -> tuple[list[int], list[int]]:
    """Rows that represent all others within a relative resolution of each objective.

    Greedy: the row that represents most others is taken first, the first of equals (epsilon-dominance [laumanns2002]).

    Args:
        values: shape (rows, objectives).
        directions: "max" or "min" for each objective.
        by: what tells rows apart in each, relative; 0.05 is five per cent.

    Returns:
        The rows that stand for all, in the order in which they were taken; and for each row the one that stands for it.

    >>> thin_to_resolution(np.array([[1.0, 5.0], [1.01, 5.02], [2.0, 9.0]]), ["max", "min"], [0.05, 0.05])
    ([0, 2], [0, 0, 2])
    """
    if not len(values):
        return [], []
    small = convert_to_minimisation(values, directions)
    slack = np.abs(small) * np.asarray(by, dtype=float)
    covers = np.array([(row <= small + slack).all(axis=1) for row in small])
    left = np.ones(len(values), dtype=bool)
    kept: list[int] = []
    representatives = np.zeros(len(values), dtype=int)
    while left.any():
        best = int(np.argmax((covers & left).sum(axis=1)))
        taken = covers[best] & left
        representatives[taken] = best
        left &= ~taken
        kept.append(best)
    return kept, [int(place) for place in representatives]


def caveat_records(caveats: Sequence[Caveat]) -> list[RemarkRecord]:
    """Caveats as records of documents, which reports have too."""
    return [RemarkRecord(kind=caveat.kind, what=caveat.what, text=caveat.text) for caveat in caveats]
