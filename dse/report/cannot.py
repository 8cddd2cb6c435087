"""What a study cannot say: knobs that change nothing, constraints that never bind, objectives that tell nothing apart, fronts
with more designs than the model tells apart, and spaces in which nothing is feasible.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
import pandas as pd

from dse.config.records import Source
from dse.evaluators.account.metrics import METRICS
from dse.evaluators.silicon.published import facts
from dse.measured.elsewhere import elsewhere
from dse.measured.stack_basis import stack_basis
from dse.report.bands import of_study
from dse.running.frame import DESIGN, ordered, values_of
from dse.running.screen import Screened, left_out
from dse.running.study import Study
from dse.search.pareto import minimised
from dse.space.chips import CHIP
from dse.space.design import Design
from dse.space.elementwise import Array
from dse.space.fields import replaced
from dse.space.knobs import Choice
from dse.space.units import show
from dse.space.workload import Workload
from dse.why.advice import rejections, smallest_relaxation
from dse.why.elastic import SAME
from dse.why.moves import Point, Step, points, quick, steps, text
from dse.why.sifted import sifted, tables
from dse.why.why import goal_of, metrics_of

LOOKED = 32
"""Designs of a study, evenly over all, at which each knob is moved to see whether it changes anything."""

SECONDS = 10.0
"""What that may take."""

ASSUMED = 0.01
"""What tells designs apart in an objective of which no measured row says how far off it is, relative."""

MOST_FRONT = 4096
"""Designs of a front among which distinct ones are looked for."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a study cannot say, or that is not what it seems.

    Attributes:
        kind: knob, constraint, objective, feasible, front, screen, stack or chip.
        what: the knob's address, the constraint as written, the objective, the chip; "" of the others.
        text: in words, with what was looked at.
    """

    kind: str
    what: str
    text: str


def remarks(asked: Study, frame: pd.DataFrame, screened: Screened | None = None, *, seconds: float = SECONDS) -> list[Remark]:
    """What a study cannot say.

    Args:
        asked: the study.
        frame: its designs, as `dse.running.frame.with_front` has them.
        screened: what its screen looked at, of which the frame has a sample.
        seconds: what steps of its knobs may take.
    """
    return [
        *absent_knobs(asked, frame),
        *idle_knobs(asked, frame, seconds=seconds),
        *(idle_constraints(asked, frame, screened) if not (few := few_kept(asked, screened)) else few),
        *flat_objectives(asked, frame),
        *nothing_feasible(asked, frame),
        *crowded_front(asked, frame),
        *fitted_elsewhere(asked),
        *facts_dropped(asked),
    ]


def facts_dropped(asked: Study) -> list[Remark]:
    """Chips of which a data sheet says facts that designs of the study drop, with the knobs that move what they depend on."""
    found = []
    for chosen, space in asked.question.space.each:
        of_part = {fact.name for fact in facts(space.base.chip) if fact.holds}
        dropped: dict[str, None] = {}
        moving = []
        for knob in space.knobs if of_part else ():
            values = knob.values if isinstance(knob, Choice) else (knob.low, knob.high)
            chips = (replaced(space.base, dict.fromkeys(space.targets[knob.address], value)).chip for value in values)
            lost = {fact.name: None for chip in chips for fact in facts(chip) if fact.name in of_part and not fact.holds}
            moving += [knob.address] if lost else []
            dropped |= lost
        if dropped:
            name = str(chosen.get(CHIP, "")) or str(asked.config["choices"].get("chip", ""))
            names = ", ".join(fact.replace("_", " ") for fact in dropped)
            text = (
                f"{names} of the data sheet count for {name} as it is given; where {', '.join(moving)} move, the model counts"
            )
            found.append(Remark("chip", name, text))
    return found


def fitted_elsewhere(asked: Study) -> list[Remark]:
    """Chips whose software has constants that were fitted on others alone."""
    each = ((of[1]["chip"], elsewhere(*of)) for of in _software(asked))
    return [Remark("stack", chip, text) for chip, text in each if text]


def stack_texts(asked: Study) -> list[str]:
    """Which kernels of each chip's software stack were measured, a line a chip that has a stack."""
    found = ((of[1]["chip"], stack_basis(*of)) for of in _software(asked))
    return [f"{chip}: {basis.text}" if asked.chips else basis.text for chip, basis in found if basis]


def _software(asked: Study) -> Iterator[tuple[list[Source], dict[str, str], Design, Workload, set[str]]]:
    """Of each chip of a study its sources, the names that were chosen, its base design, the workload, and leaves that knobs
    move.
    """
    for chosen, space in asked.question.space.each:
        name = str(chosen.get(CHIP, ""))
        choices = (asked.config["chips"][name] if chosen else asked.config)["choices"]
        own = [of for of in asked.question.sources if not chosen or of.address.startswith(f"{name}: ")]
        moved = {address for targets in space.targets.values() for address in targets}
        names = {"chip": str(choices.get("chip", "")), "stack": str(choices.get("stack", ""))}
        yield own, names, space.base, asked.question.workload, moved


def absent_knobs(asked: Study, frame: pd.DataFrame) -> list[Remark]:
    """Knobs that count at no design, with the conditions that none of them meets."""
    found = []
    for knob in asked.question.space.knobs if len(frame) else ():
        if frame[knob.address].notna().any():
            continue
        space, read = asked.question.space, [(other, words) for other, words, _ in knob.read]
        ways = [f"{other} {' or '.join(text(space, other, one) for one in some)}" for other, some in [*knob.when] or read]
        where = f", as none has {(' and ' if knob.when else ' or ').join(ways)}" if ways else ""
        found.append(Remark("knob", knob.address, f"{knob.address} counts nowhere: at none of {len(frame):,} designs{where}"))
    return found


def idle_knobs(asked: Study, frame: pd.DataFrame, *, seconds: float = SECONDS) -> list[Remark]:
    """Knobs of which no step changes an objective, a constraint's metric or a limit, at designs evenly over all; by the closed
    form.
    """
    space = asked.question.space
    known = frame[frame["error"].isna()]
    goal = quick(goal_of(asked), space.base)
    if goal.fidelity != asked.fidelity:
        return _idle_pairs(asked, known)
    rows = known.iloc[np.unique(np.linspace(0, len(known) - 1, min(LOOKED, len(known))).round().astype(int))]
    around: list[list[Step]] = []
    designs = []
    for row in rows.to_dict("records"):
        values = values_of(asked, row)
        around.append(steps(space, values))
        designs += [space.at(values), *(step.design for step in around[-1])]
    found = points(designs, goal, seconds=seconds)
    tried: dict[str, int] = {}
    moved: set[str] = set()
    place = 0
    for some in around:
        here, *there = found[place : place + 1 + len(some)]
        place += 1 + len(some)
        for step, point in zip(some, there, strict=True):
            if here is None or point is None or here.refused:
                continue
            tried[step.knob] = tried.get(step.knob, 0) + 1
            if not _alike(here, point):
                moved.add(step.knob)
    kept = [knob.address for knob in space.knobs if knob.address in tried and knob.address not in moved]
    return [
        Remark("knob", knob, f"{knob} changes nothing: {tried[knob]:,} steps of it, at {len(rows):,} designs evenly over all")
        for knob in kept
    ]


def _idle_pairs(asked: Study, known: pd.DataFrame) -> list[Remark]:
    """Knobs in which stored designs differ alone, and come out the same whatever its value.

    Of designs that break a limit nothing is known but that.
    """
    knobs = [knob.address for knob in asked.question.space.knobs]
    judged_by = [name for name in metrics_of(goal_of(asked)) if name in known]
    known = known[known[judged_by].notna().any(axis=1)]
    found = []
    for knob in knobs:
        others = [other for other in knobs if other != knob]
        groups = known.groupby(others, dropna=False, sort=False) if others else [((), known)]
        alone = [group for _, group in groups if group[knob].nunique(dropna=False) > 1]
        if alone and all(_same(group, judged_by) for group in alone):
            text = (
                f"{knob} changes nothing by {asked.fidelity}: {sum(map(len, alone)):,} stored designs that differ in it alone"
            )
            found.append(Remark("knob", knob, text))
    return found


def _same(group: pd.DataFrame, names: Sequence[str]) -> bool:
    """Whether designs come out the same."""
    values = group[list(names)].to_numpy(dtype=float)
    alike = np.isclose(values, values[0], rtol=SAME, atol=0.0, equal_nan=True).all()
    return bool(alike) and group["limit"].nunique(dropna=False) == 1


def _alike(one: Point, other: Point) -> bool:
    """Whether two designs come out the same, in what is judged and what they break."""
    if (one.limit, set(one.metrics), one.refused) != (other.limit, set(other.metrics), other.refused):
        return False
    pairs = [(one.metrics[name], other.metrics[name]) for name in one.metrics] + [
        (one.need, other.need),
        (one.have, other.have),
    ]
    return all(abs(new - old) <= SAME * max(abs(old), abs(new)) for old, new in pairs)


@dataclass(slots=True)
class _Tally:
    """Of a constraint: designs whose metric is known, that break it, and that would move the front; the nearest value."""

    known: int = 0
    broken: int = 0
    moving: int = 0
    nearest: float = float("nan")


def idle_constraints(asked: Study, frame: pd.DataFrame, screened: Screened | None = None) -> list[Remark]:
    """Constraints that no design breaks, and those without which the front would be the same: nothing that breaks one alone
    is better than the whole front in anything.
    """
    front = [Point({name: float(row[name]) for name in asked.objectives}) for row in frame[frame["front"]].to_dict("records")]
    tallies = {bound: _Tally() for bound in asked.bounds}
    for rows in tables(asked, frame, screened):
        _, moving = sifted(asked, rows, front, inf)
        for bound, over in zip(asked.bounds, moving[1:], strict=True):
            values, tally = rows[bound.metric].to_numpy(dtype=float) if bound.metric in rows else np.zeros(0), tallies[bound]
            values = values[np.isfinite(values)]
            tally.known += len(values)
            tally.broken += int((np.asarray(bound.excess(values)) > 0).sum())
            tally.moving += int((over > 0).sum())
            if len(values):
                end = float(values.max() if bound.relation == "<=" else values.min())
                tally.nearest = end if not bound.excess(tally.nearest) > bound.excess(end) else tally.nearest
    found = []
    for bound, tally in tallies.items():
        if tally.known and not tally.broken:
            near = show(tally.nearest, METRICS[bound.metric].unit)
            text = f"{bound} never binds: of {tally.known:,} designs the nearest to it has {near}"
            found.append(Remark("constraint", str(bound), text))
        elif tally.broken and not tally.moving and front:
            how = f"{tally.broken:,} of {tally.known:,} designs break it, and without it the front is the same"
            found.append(Remark("constraint", str(bound), f"{bound} does not move the front: {how}"))
    return found


def few_kept(asked: Study, screened: Screened | None) -> list[Remark]:
    """That most of what was screened is not known any more, so that nothing is said of what constraints leave out."""
    if screened is None or screened.kept == screened.rows or asked.fidelity != asked.screening:
        return []
    text = (
        f"of {screened.rows:,} screened designs the front and an even sample are kept, {screened.kept:,} (screen.keep=front): "
        "which constraints never bind cannot be said, and what they cost is of these; screen.keep=all keeps every one"
    )
    text += f"; {left_out(screened)}" if screened.pruned else ""
    return [Remark("screen", "", text)]


def flat_objectives(asked: Study, frame: pd.DataFrame) -> list[Remark]:
    """Objectives that are the same for all feasible designs, or differ by less than they are told apart by."""
    good = frame[frame["feasible"]]
    found = []
    for name, (by, how) in resolution(asked).items():
        values = good[name].to_numpy(dtype=float) if len(good) else np.zeros(0)
        if len(values) < 2:
            continue
        low, high = float(values.min()), float(values.max())
        spread = high / low - 1 if low > 0 else (0.0 if low == high else inf)
        of = f"of all {len(good):,} feasible designs"
        if spread <= SAME:
            text = f"{name} is constant: {show(low, METRICS[name].unit)} {of}"
            found.append(Remark("objective", name, text))
        elif spread < by:
            text = f"{name} tells no designs apart: it differs by {spread:.2%} {of}, and {how} is {by:.2%}"
            found.append(Remark("objective", name, text))
    return found


def nothing_feasible(asked: Study, frame: pd.DataFrame) -> list[Remark]:
    """Where nothing is feasible, which limit rejects most, and the smallest relaxation that would admit a design."""
    if not len(frame) or frame["feasible"].any():
        return []
    counted = "; ".join(
        f"{one.what} rejects {one.designs:,}" + (f", the nearest by {one.least:.3g} of it" if one.least else "")
        for one in rejections(asked, frame)
    )
    found = [Remark("feasible", "", f"none of {len(frame):,} designs is feasible: {counted}")]
    values, gives = smallest_relaxation(asked, frame)
    if gives:
        space = asked.question.space
        knobs = ", ".join(f"{address} {text(space, address, value)}" for address, value in values.items())
        said = f"the smallest relaxation that would admit one: {', and '.join(gives)}; for the design {knobs}"
        found.append(Remark("feasible", "", said))
    return found


def crowded_front(asked: Study, frame: pd.DataFrame) -> list[Remark]:
    """That designs of the front are nearer to one another than the model is right."""
    kept, of = distinct_designs(asked, frame)
    if not of or len(kept) == len(of):
        return []
    found = resolution(asked)
    within = " and ".join(f"{by:.1%} of its {name}" for name, (by, _) in found.items())
    reasons: dict[str, list[str]] = {}
    for name, (_, how) in found.items():
        reasons.setdefault(how, []).append(name)
    why = "; ".join(f"{' and '.join(names)}: {how}" for how, names in reasons.items())
    ids = ordered(asked, frame)[DESIGN]
    names = ", ".join(ids.iloc[kept[:20]]) + (f" and {len(kept) - 20:,} more" if len(kept) > 20 else "")
    told = f"{len(kept):,} of the {len(of):,} designs of the front are told apart: {names}."
    told += f" Each other one is within {within} of one of them ({why})"
    return [Remark("front", "", told)]


def distinct_designs(asked: Study, frame: pd.DataFrame) -> tuple[list[int], list[int]]:
    """The front thinned to designs that the model tells apart.

    Returns:
        Rows of the front that stand for all, in the order of the report; and for each row of the front the one that stands
        for it. Both empty where there is no front.
    """
    rows = ordered(asked, frame)
    front = rows[rows["front"]].head(MOST_FRONT)
    by = [share for share, _ in resolution(asked).values()]
    kept, of = distinct(front[list(asked.objectives)].to_numpy(dtype=float).reshape(-1, len(by)), asked.directions, by)
    return sorted(kept), of


def resolution(asked: Study) -> dict[str, tuple[float, str]]:
    """What tells designs apart, by objective: half of the band of measured rows of this kind, and in words what that is.

    The band is from low to high, both simulated over measured less 1. What all rows have in common moves no order; half its
    width, sqrt((1 + high) / (1 + low)) - 1, is what is left. Of several chips or kernels the widest counts.
    """
    lines = of_study(asked)
    found = {}
    for name in asked.objectives:
        widths = [
            sqrt((1 + line["high"]) / (1 + line["low"])) - 1
            for line in lines
            if line["metric"] == name and line["rows"] > 1 and line["low"] is not None and line["low"] > -1
        ]
        if any(widths):
            found[name] = max(widths), "half the band of measured rows of this kind"
        else:
            found[name] = ASSUMED, "assumed, as no two measured rows are of this kind"
    return found


def distinct(values: Array, directions: Sequence[str], by: Sequence[float]) -> tuple[list[int], list[int]]:
    """Rows that stand for all: each other row is as good as one of them in all objectives, but for what tells rows apart.

    Greedy: the row that stands for most is taken first, of several the first (epsilon-dominance [laumanns2002]).

    Args:
        values: shape (rows, objectives).
        directions: "max" or "min" for each objective.
        by: what tells rows apart in each, relative; 0.05 is five per cent.

    Returns:
        The rows that stand for all, in the order in which they were taken; and for each row the one that stands for it.

    >>> distinct(np.array([[1.0, 5.0], [1.01, 5.02], [2.0, 9.0]]), ["max", "min"], [0.05, 0.05])
    ([0, 2], [0, 0, 2])
    """
    if not len(values):
        return [], []
    small = minimised(values, directions)
    slack = np.abs(small) * np.asarray(by, dtype=float)
    covers = np.array([(one <= small + slack).all(axis=1) for one in small])
    left = np.ones(len(values), dtype=bool)
    kept: list[int] = []
    of = np.zeros(len(values), dtype=int)
    while left.any():
        best = int(np.argmax((covers & left).sum(axis=1)))
        taken = covers[best] & left
        of[taken] = best
        left &= ~taken
        kept.append(best)
    return kept, [int(place) for place in of]


def said(found: Sequence[Remark]) -> list[Mapping[str, str]]:
    """Remarks as plain values."""
    return [{"kind": one.kind, "what": one.what, "text": one.text} for one in found]
