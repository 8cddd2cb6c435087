"""Why a design is not on a front: dominating designs, differences, and single changes towards them."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf, isfinite, log
from typing import Any

import numpy as np
import pandas as pd

from dse.config.setting_effects import NoEffect
from dse.execution.certify import BoxVerdict, find_box
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.study import Study
from dse.explanations.explanation import Watch, study_goal, watch_nothing
from dse.explanations.kept_answers import KeptAnswers
from dse.explanations.neighbours import DesignOutcome, StudyGoal, evaluate_points
from dse.explanations.row_dominance import find_better_rows, find_worse_rows, objective_sides
from dse.explanations.shadow_prices import MIN_GAIN
from dse.space.array_math import Array
from dse.space.design import Design, design_key, make_ids
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.knobs import Space, Value
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.neighbourhood import knob_values_of

OUTSIDE = "settings outside of the knobs"
"""What the change is called of all leaves and parts that no knob of a study moves: it is one."""


EQUAL_TOLERANCE = MIN_GAIN
"""Relative difference of every objective up to which designs that beat one are named together."""


@dataclass(frozen=True, slots=True)
class DominatingDesign:
    """A stored design that is at least as good in all objectives, and better in one.

    Attributes:
        name: its id in the study.
        point: its objectives.
        gains: by objective, how much better it is than the design asked about, relative to that. [-]
        knobs: in which they differ, from the design asked about to this one; of another chip that alone.
        alike: others that beat it as well, in as many changes or more, with the same objectives up to `ALIKE`; their ids.
    """

    name: str
    point: DesignOutcome
    gains: Mapping[str, float]
    knobs: Mapping[str, tuple[Value | None, Value | None]]
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathChange:
    """One more change on the path to a stored design.

    Attributes:
        knob: its address, or `OUTSIDE`.
        old, new: its values; None of `OUTSIDE`.
        point: how the design with it, and all changes before it, comes out.
        beats: whether that is feasible, as good as the design asked about in all objectives, and better in one.
    """

    knob: str
    old: Value | None
    new: Value | None
    point: DesignOutcome
    beats: bool


@dataclass(frozen=True)
class DominanceReport:
    """Position of one design in a study: rivals, differences, and the path to a better design.

    Attributes:
        name: what was typed.
        space: the study's knobs over the design.
        point: how it came out.
        outside: leaves that no knob of the study moves, which differ from what the study has: (there, here).
        rivals: designs of the front that beat it, fewest changes first; of those that are alike the first.
        beats: ids of the designs of the front that it beats.
        target: the stored design that beats it and differs in fewest knobs; of those that differ in as many, the best. None
            where no stored design of its chip beats it.
        path: the changes to it, each time the one that is best next.
        left: changes whose order there was no time to find.
        distance: by how much every objective would have to be better for no front design to beat it; 0 where none does. [-]
        alone: by objective, the value from which on no front design would beat it, the others as they are.
        looked: stored designs that were compared.
        without_effect: settings that were typed and have no effect.
        box: what the certificate of the study's front proves of it; None without one.
    """

    name: str
    space: Space
    values: Mapping[str, Value]
    goal: StudyGoal
    point: DesignOutcome
    outside: Mapping[str, tuple[Any, Any]]
    rivals: tuple[DominatingDesign, ...]
    beats: tuple[str, ...]
    target: DominatingDesign | None
    path: tuple[PathChange, ...]
    left: tuple[str, ...]
    distance: float
    alone: Mapping[str, float]
    looked: int
    without_effect: tuple[NoEffect, ...] = ()
    box: BoxVerdict | None = None

    @property
    def id(self) -> str:
        """Id of the design: the beginning of its content key, with more digits if needed."""
        own = design_key(self.space.base)
        return self.name if own.startswith(self.name) else make_ids([own])[0]


PATH_BUDGET_S = 20.0
"""What the steps of the way to a better design may take where outcomes are kept: the next call goes on from there."""


def show_no_dominance(dominance: DominanceReport) -> None:
    """Wait for the whole report."""


def explain_dominance(
    study: Study,
    frame: pd.DataFrame,
    space: Space,
    chip: str,
    name: str,
    *,
    outcome: DesignOutcome | None = None,
    seconds: float = PATH_BUDGET_S,
    show: Callable[[DominanceReport], None] = show_no_dominance,
    watch: Watch = watch_nothing,
) -> DominanceReport:
    """Position of a design in a study, and how it would get better.

    Args:
        study: the study.
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        space: the study's knobs over the design, which is its base.
        chip: which of the study's chips it is of; "" of a study of one.
        name: of the design, for people.
        outcome: how it comes out; None where that is not known.
        seconds: what the steps of the way to a better design may take.
        show: takes the report without the way, as soon as it is known.
        watch: shows progress.
    """
    goal, own, kept = study_goal(study), knob_values_of(space, space.base), KeptAnswers(study.store)
    study_space = next(
        point_outcome for chosen, point_outcome in study.question.space.base_spaces if chosen.get(CHIP_KNOB, "") == chip
    )
    if outcome is None:
        (outcome,) = evaluate_points([space.base], goal, kept=kept)
    assert outcome is not None
    rows = report_order(study, frame)
    rows = rows[rows["feasible"].to_numpy(dtype=bool)]
    better = find_better_rows(goal, outcome, rows)
    rivals = [
        _make_rival(study, goal, outcome, rows, int(place), own, chip)
        for place in np.flatnonzero(better & rows["front"].to_numpy())
    ]
    same = rows[CHIP_KNOB].to_numpy() == chip if chip else np.ones(len(rows), dtype=bool)
    candidates = np.flatnonzero((better if outcome.feasible or better.any() else True) & same)
    nearest = _fewest_changes_row(study, goal, outcome, rows, candidates, own, chip)
    target = None if nearest is None else _make_rival(study, goal, outcome, rows, nearest, own, chip)
    distance, alone = _front_distance(goal, outcome, rows[rows["front"]])
    outside = _outside_leaves(space, study_space)
    dominance = DominanceReport(
        name,
        space,
        own,
        goal,
        outcome,
        outside,
        merge_equal_rivals(
            sorted(rivals, key=lambda chip_space: len(chip_space.knobs) if CHIP_KNOB not in chip_space.knobs else inf)
        ),
        tuple(
            _row_label(rows, int(place))
            for place in np.flatnonzero(find_worse_rows(goal, outcome, rows) & rows["front"].to_numpy())
        ),
        target,
        (),
        (),
        distance,
        alone,
        len(rows),
        box=None if outside else find_box(study, own),
    )
    show(dominance)
    if nearest is None:
        return dominance
    design = study.question.space.design_at(knob_values(study, rows.iloc[nearest].to_dict()))
    counts = _active_values(study, rows, nearest)
    path, left = _change_path(space, study_space, design, counts, goal, outcome, seconds, kept, watch)
    return replace(dominance, path=path, left=left)


def merge_equal_rivals(rivals: Sequence[DominatingDesign]) -> tuple[DominatingDesign, ...]:
    """Rivals with equal objectives (within `ALIKE`) merged into the first, with the other names."""
    kept: list[DominatingDesign] = []
    others: dict[str, list[str]] = {}
    for rival in rivals:
        near = next((other for other in kept if _has_equal_objectives(rival, other)), None)
        if near is None:
            kept.append(rival)
        else:
            others.setdefault(near.name, []).append(rival.name)
    return tuple(replace(rival, alike=tuple(others.get(rival.name, ()))) for rival in kept)


def _has_equal_objectives(design: DominatingDesign, other: DominatingDesign) -> bool:
    pairs = ((value, other.point.metrics[name]) for name, value in design.point.metrics.items())
    return all(abs(mine - theirs) <= EQUAL_TOLERANCE * max(abs(mine), abs(theirs)) for mine, theirs in pairs)


def _row_label(rows: pd.DataFrame, place: int) -> str:
    return str(rows[DESIGN].iloc[place])


def _make_rival(
    study: Study, goal: StudyGoal, outcome: DesignOutcome, rows: pd.DataFrame, place: int, own: Mapping[str, Value], chip: str
) -> DominatingDesign:
    row = rows.iloc[place]
    point = DesignOutcome({name: float(row[name]) for name in goal.objectives})
    known = [name for name in goal.objectives if name in outcome.metrics]
    gains = {name: goal.gain(name, outcome.metrics[name], point.metrics[name]) for name in known}
    if chip and row[CHIP_KNOB] != chip:
        return DominatingDesign(_row_label(rows, place), point, gains, {CHIP_KNOB: (chip, row[CHIP_KNOB])})
    return DominatingDesign(_row_label(rows, place), point, gains, _differing_knobs(study, rows, place, own))


def _active_values(study: Study, rows: pd.DataFrame, place: int) -> dict[str, Value]:
    """The values of the knobs that count in a row, the choice of chip apart."""
    return {knob: value for knob, value in knob_values(study, rows.iloc[place].to_dict()).items() if knob != CHIP_KNOB}


def _differing_knobs(study: Study, rows: pd.DataFrame, place: int, own: Mapping[str, Value]) -> dict[str, tuple[Value, Value]]:
    """Knobs that count in a row and have another value there: (own, there)."""
    active = _active_values(study, rows, place)
    return {knob: (own[knob], value) for knob, value in active.items() if own[knob] != value}


def _fewest_changes_row(
    study: Study,
    goal: StudyGoal,
    outcome: DesignOutcome,
    rows: pd.DataFrame,
    candidates: Array,
    own: Mapping[str, Value],
    chip: str,
) -> int | None:
    """The row that differs in fewest knobs, of those that differ in as many the one that gains most; None of none."""
    best: tuple[tuple[float, float], int] | None = None
    for place in map(int, candidates):
        many = len(_differing_knobs(study, rows, place, own))
        if best is not None and many > best[0][0]:
            continue
        gains = _make_rival(study, goal, outcome, rows, place, own, chip).gains.values()
        score = (float(many), -sum(log(1 + gain) for gain in gains if isfinite(gain) and gain > -1))
        if best is None or score < best[0]:
            best = score, place
    return None if best is None else best[1]


def _change_path(
    space: Space,
    study: Space,
    design: Design,
    counts: Mapping[str, Value],
    goal: StudyGoal,
    outcome: DesignOutcome,
    seconds: float,
    kept: KeptAnswers,
    watch: Watch,
) -> tuple[tuple[PathChange, ...], tuple[str, ...]]:
    """The changes from the base of a space to a design, each time the one after which the design is best; and those left.

    Best is what breaks limits and constraints least, then what gains most over all objectives, by the sum of logarithms. What
    is tied follows each change: as over the base, and once the rest is as the study has it, as in the study.
    """
    end = time.monotonic() + seconds
    mine, theirs = ({address: value for address, value, _ in iterate_leaves(design)} for design in (space.base, design))
    moved = [address for targets in space.targets.values() for address in targets] + space.follows
    waiting = {
        knob: {address: theirs[address] for address in targets}
        for knob, targets in space.targets.items()
        if knob in counts and any(mine[address] != theirs[address] for address in targets)
    }
    if {**mine, **dict.fromkeys(moved)} != {**theirs, **dict.fromkeys(moved)}:
        waiting[OUTSIDE] = {}
    now, ties, hops, total = space.base, space, list[PathChange](), len(waiting)
    with watch("changes") if waiting else nullcontext() as progress:
        while waiting:
            kept_leaves = {address: leaf_at(now, address) for address in moved}
            tried = {
                knob: study.with_ties(replace_leaves(design, kept_leaves))
                if knob == OUTSIDE
                else ties.with_ties(replace_leaves(now, to))
                for knob, to in waiting.items()
            }
            points = evaluate_points(list(tried.values()), goal, seconds=end - time.monotonic(), kept=kept)
            if None in points:
                break
            scored = {name: point for name, point in zip(tried, points, strict=True) if point is not None}
            best = max(scored, key=lambda name: _gain_score(goal, scored[name], outcome))
            first = next(iter(waiting[best]), "")
            old, new = (mine[first], theirs[first]) if first else (None, None)
            hops.append(PathChange(best, old, new, scored[best], _beats_design(goal, scored[best], outcome)))
            now, ties = tried[best], study if best == OUTSIDE else ties
            del waiting[best]
            if progress is not None:
                progress(total - len(waiting), total)
    return tuple(hops), tuple(waiting)


def _gain_score(goal: StudyGoal, point: DesignOutcome, outcome: DesignOutcome) -> tuple[float, float]:
    """How good a design is beside another: what it breaks least, then its gains."""
    gains = [
        goal.gain(name, outcome.metrics[name], point.metrics[name])
        for name in goal.objectives
        if name in outcome.metrics and name in point.metrics
    ]
    return -point.excess, sum(log(1 + gain) for gain in gains if isfinite(gain) and gain > -1)


def _beats_design(goal: StudyGoal, point: DesignOutcome, outcome: DesignOutcome) -> bool:
    if not point.feasible or any(name not in outcome.metrics for outcome in (point, outcome) for name in goal.objectives):
        return False
    row = pd.DataFrame([{name: point.metrics[name] for name in goal.objectives}])
    return bool(find_better_rows(goal, outcome, row)[0])


def _front_distance(goal: StudyGoal, outcome: DesignOutcome, front: pd.DataFrame) -> tuple[float, dict[str, float]]:
    """How far a design is from a front: all objectives together, relative; and each alone, the value that it would take."""
    sides = objective_sides(goal, outcome, front)
    if sides is None or not len(front):
        return 0.0, {}
    mine, theirs = sides
    names = list(goal.objectives)
    ratios = np.array(
        [[1 + goal.gain(name, outcome.metrics[name], float(row[name])) for name in names] for _, row in front.iterrows()]
    )
    behind = np.nanmin(np.where(np.isnan(ratios), np.where(theirs <= mine, 1.0, 0.0), ratios), axis=1)
    alone = {}
    for place, name in enumerate(names):
        others = (np.delete(theirs, place, axis=1) <= np.delete(mine, place)).all(axis=1)
        near = theirs[others, place]
        if len(near) and near.min() < mine[place]:
            alone[name] = abs(float(near.min()))
    return max(float(behind.max()) - 1, 0.0), alone


def _outside_leaves(space: Space, study: Space) -> dict[str, tuple[Any, Any]]:
    """Leaves that no knob moves and in which a design differs from a study's: (there, here); None of what is absent.

    What is tied in the study and was typed is there as its knobs at the design's values have it.
    """
    knobs = [target for targets in space.targets.values() for target in targets]
    moved = {*knobs, *space.follows}
    base = study.with_ties(replace_leaves(study.base, {target: leaf_at(space.base, target) for target in knobs}))
    mine, theirs = ({address: value for address, value, _ in iterate_leaves(design)} for design in (space.base, base))
    both = dict.fromkeys((*theirs, *mine))
    pairs = {address: (theirs.get(address), mine.get(address)) for address in both if address not in moved}
    return {address: pair for address, pair in pairs.items() if pair[0] != pair[1]}


def count_changes_to_domination(path: Sequence[PathChange], *, feasible: bool = True) -> int:
    """Number of changes on a path until the design is dominated first; 0 for never.

    Of an infeasible design, the number of changes until a feasible design appears.
    """
    good = (hop.beats or (hop.point.feasible and not feasible) for hop in path)
    return next((place + 1 for place, is_better in enumerate(good) if is_better), 0)
