"""Certificates of fronts: by how much a design of the space may beat the front of a study, at most.

Boxes of the space are bounded and split (`dse.search.branch_and_bound`). The front begins with the stored designs of the study
and grows by what is found on the way. Front, boxes and physics are stored in the run folder: a later run goes on from there,
and `dse whynot` finds the box of any design.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil, expm1, floor, log1p, log10
from typing import Any

import numpy as np

from dse.config.metric_expressions import evaluate_with_derived
from dse.evaluators import PHYSICS_VERSION
from dse.evaluators.accounting.box_bounds import cache_is_faster, evaluate_box_bounds, size_thresholds
from dse.evaluators.accounting.leaf_effects import (
    SAMPLED,
    LeafEffect,
    bound_margin,
    bounds_obstacle,
    leaf_effects,
    metric_sides,
    unbounded_reason,
)
from dse.evaluators.accounting.serving_runs.steady_state_run import STEADY
from dse.execution.serving_box_bounds import evaluate_serving_box_bounds
from dse.execution.study import Study
from dse.search.boxes import CORNERS, Boxes, BoxSpace, Direction
from dse.search.branch_and_bound import CELLS, MANY_OBJECTIVES_CELLS, BoxSearch, IncumbentFront
from dse.search.samplers import Values
from dse.space.array_math import Array
from dse.space.design import Design, key_of_leaves
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.knobs import ChoiceKnob, Space
from dse.space.safe_text import count_text
from dse.space.workload import BatchCase, ServingLoad, WorkloadCase
from dse.terminal.atomic_files import write_atomically

BOUND_MARGIN = 1e-9
"""Share by which bounds are loosened, since a bound and an evaluation may round differently."""

STATE_FILE, CERTIFICATE_FILE = "certificate.npz", "certificate.json"

SAVE_PERIOD_S = 30.0
"""Seconds of work after which the boxes are stored: what a run that is killed loses. [s]"""

INFEASIBLE = "the only design violates a limit or a constraint"
LIMIT = "limits of memories, structure or silicon"


def single_space(study: Study) -> Space:
    """Space of a study that has bounds over boxes.

    Raises:
        DesignError: several chips, a workload or a layout without bounds, or an objective without one.
    """
    spaces = list(study.question.space.base_spaces)
    if len(spaces) > 1:
        names = ", ".join(str(next(iter(chosen.values()))) for chosen, _ in spaces)
        raise DesignError(f"search.sampler: certify bounds the space of one chip, got {names}; set chips=[NAME]")
    workload = study.question.workload
    if reason := _workload_obstacle(workload.cases, study):
        raise DesignError(f"search.sampler: certify bounds {reason}")
    (_, space) = spaces[0]
    for design in _designs_by_option(space):
        if reason := bounds_obstacle(design):
            raise DesignError(f"search.sampler: certify: {reason}; use another search")
        for name, way in study.objectives.items():
            if reason := unbounded_reason(name, way, design, workload):
                raise DesignError(f"objectives.{name}: {reason}")
    return space


def _workload_obstacle(cases: Sequence[WorkloadCase], study: Study) -> str:
    """What of a workload certify has bounds of instead, as text; empty string if it has bounds of this one."""
    if all(isinstance(case, BatchCase) for case in cases):
        wanted = "analytical"
        return "" if study.fidelity == wanted else f"static batches by the analytical model; set fidelity={wanted}"
    loads = [case for case in cases if isinstance(case, ServingLoad)]
    if len(loads) < len(cases):
        return "static batches and serving loads; kernels have no bounds: set workload=static, or use another search"
    if study.fidelity != STEADY:
        return f"serving loads in the steady state; set fidelity={STEADY}"
    if any(load.requests.users for load in loads):
        return "loads with a rate, not those of a number of users; set workload.rate"
    if len({bool(load.largest) for load in loads}) > 1:
        return "loads at fixed rates or at their maximum rate, not both in one study"
    bounded = any(limit.metric == "slo_attainment" and limit.relation == ">=" for limit in study.bounds)
    if not loads[0].largest and not bounded:
        return (
            "loads that designs keep up with: at an overloaded design a faster chip may be slower. Set "
            "constraints.slo_attainment='>= 0.9', or workload.rate=max"
        )
    return ""


def _designs_by_option(space: Space) -> Iterator[Design]:
    """The base of a space, and the base with each value of each knob that has no declared effect, one at a time.

    What has no bounds follows from single settings, so that combinations of options need not be looked at. Conditions of knobs
    do not count here.
    """
    yield space.base
    effects = leaf_effects(space.base)
    for knob in space.knobs:
        if isinstance(knob, ChoiceKnob) and not set(space.targets[knob.address]) <= effects.keys():
            for value in knob.values:
                yield space.with_ties(replace_leaves(space.base, dict.fromkeys(space.targets[knob.address], value)))


def make_box_space(study: Study) -> tuple[BoxSpace, dict[str, LeafEffect]]:
    """Boxes of the space of a study, and the declared effects of its numbers that have ranges, by knob."""
    space = single_space(study)
    effects = dict(leaf_effects(space.base))
    for design in _designs_by_option(space):
        effects = {address: effect for address, effect in effects.items() if address in leaf_effects(design)}
    boxes = _boxes_with(study, space, effects)
    whole = boxes.whole_boxes()
    slowest_cache = boxes.corner(whole, "smallest").copy()  # with the fastest memory: where the cache gains least
    addresses = [knob.address for knob in boxes.ranged]
    for address in ("chip.hbm.bandwidth",):
        if address in addresses:
            place = addresses.index(address)
            slowest_cache[:, place] = whole.high[:, place]
    designs = space.stack(boxes.columns(whole.option, slowest_cache))
    if "chip.l2.size" in effects and not all(cache_is_faster(design) for _, design in designs.groups):
        del effects["chip.l2.size"]
        boxes = _boxes_with(study, space, effects)
        whole = boxes.whole_boxes()
    if not _is_served(study):
        _set_thresholds(study, boxes, whole)
    return boxes, {knob.address: effects[space.targets[knob.address][0]] for knob in boxes.ranged}


def _is_served(study: Study) -> bool:
    """Whether the study asks serving loads."""
    return isinstance(study.question.workload.cases[0], ServingLoad)


def _boxes_with(study: Study, space: Space, effects: Mapping[str, LeafEffect]) -> BoxSpace:
    directions = {address: _direction(effect) for address, effect in effects.items()}
    return BoxSpace(space, directions, len(study.objectives))


def _direction(effect: LeafEffect) -> Direction:
    """Ends at which an effect has the fastest corner, with most room, and the smallest."""
    fastest = -effect.time or effect.room or 1
    return Direction(fastest, -1 if effect.silicon >= 0 else 1)


def _set_thresholds(study: Study, boxes: BoxSpace, whole: Boxes) -> None:
    """Values of intervals at which times jump, of each combination of options."""
    intervals = {knob.address: place for place, knob in enumerate(boxes.ranged) if not isinstance(knob, ChoiceKnob)}
    targets = {leaf: intervals[address] for address in intervals for leaf in boxes.space.targets[address]}
    if not targets:
        return
    places = boxes.corner(whole, "fastest")
    known: dict[Any, dict[str, Array]] = {}
    for option in range(len(whole)):
        columns = boxes.columns(whole.option[option : option + 1], places[option : option + 1])
        ((_, design),) = boxes.space.stack(columns).groups
        if design.mapping not in known:
            known[design.mapping] = size_thresholds(design, study.question.workload)
        for leaf, values in known[design.mapping].items():
            if leaf in targets:
                boxes.thresholds[option] = [*boxes.thresholds[option]]
                boxes.thresholds[option][targets[leaf]] = values


class BoxEvaluator:
    """Bounds of boxes and objectives of designs of a study, as logarithms that are made small.

    Args:
        study: whose objectives and constraints count.
        boxes: of its space.
    """

    def __init__(self, study: Study, boxes: BoxSpace) -> None:
        self._study, self._boxes = study, boxes
        self._signs = np.array([-1.0 if way == "max" else 1.0 for way in study.directions])
        named = [*study.objectives, *(bound.metric for bound in study.bounds)]
        self._sides = metric_sides(study.question.workload)
        self._bounded = tuple(name for name in dict.fromkeys(named) if name in (*self._sides[0], *self._sides[1]))
        self._margins = BOUND_MARGIN + np.log1p(list(self.margins.values()))
        self._bound = evaluate_serving_box_bounds if _is_served(study) else evaluate_box_bounds
        self._metrics = tuple(dict.fromkeys(named))

    @property
    def margins(self) -> dict[str, float]:
        """Share by which the bound of each objective is loosened, beyond rounding."""
        return {name: bound_margin(name, self._study.question.workload) for name in self._study.objectives}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why boxes are dropped, in the order of their places."""
        return (INFEASIBLE, LIMIT, *map(str, self._study.bounds))

    def bound_boxes(self, boxes: Boxes) -> tuple[Array, Array]:
        """Bounds of objectives, and why boxes have no feasible design, as `BoundFunction` has them."""
        space, question = self._boxes.space, self._study.question
        corners = [self._boxes.columns(boxes.option, self._boxes.corner(boxes, which)) for which in CORNERS]
        fastest, smallest, largest = map(space.stack, corners)
        outcomes = self._bound(fastest, smallest, largest, question.workload, self._bounded)
        dropped = np.where(outcomes.limit >= 0, 2, 0).astype(np.int16)
        for place, limit in enumerate(self._study.bounds):
            lenient = limit.metric in self._sides[limit.relation != "<="]
            if not lenient or limit.metric not in outcomes.columns:
                continue
            loosened = BOUND_MARGIN + bound_margin(limit.metric, question.workload)
            margin = 1 - loosened if limit.relation == "<=" else 1 + loosened
            broken = limit.excess(outcomes.columns[limit.metric] * margin) > 0
            dropped[broken & (dropped == 0)] = place + 3
        return self._logarithms(outcomes.columns, len(boxes)) - self._margins, dropped

    def evaluate_designs(self, option: Array, places: Array) -> tuple[Array, Array]:
        """Objectives of designs, and whether they keep limits and constraints, as `EvaluateFunction` has them."""
        question = self._study.question
        designs = self._boxes.space.stack(self._boxes.columns(option, places))
        outcomes = evaluate_with_derived(
            designs, question.workload, question.defined, fidelity=self._study.fidelity, metrics=self._metrics
        )
        feasible = outcomes.limit < 0
        for limit in self._study.bounds:
            feasible &= limit.excess(outcomes.columns[limit.metric]) <= 0
        values = self._logarithms(outcomes.columns, len(option))
        return values, feasible & np.isfinite(values).all(axis=1)

    def _logarithms(self, columns: Mapping[str, Array], count: int) -> Array:
        values = [columns.get(name, np.full(count, np.nan)) for name in self._study.objectives]
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = np.log(np.column_stack(values)) * self._signs
        return np.where(np.isnan(logarithms), -np.inf, logarithms)

    def metrics(self, values: Array) -> Array:
        """Objectives as metrics, from their logarithms."""
        return np.asarray(np.exp(values * self._signs))


@dataclass(frozen=True)
class Certificate:
    """What is proved of a study's front.

    Attributes:
        record: of the certificate as JSON values, as `certificate_record` has it.
        members: knob values of the front's designs.
        left: why it ended before the gap was reached: ``time``, ``boxes``, or empty.
    """

    record: dict[str, Any]
    members: list[dict[str, Any]]
    left: str

    @property
    def is_reached(self) -> bool:
        """Whether the gap that was asked for is reached."""
        return not self.left


class Certifier:
    """A certificate under way, and its state in the run folder.

    Args:
        study: whose front is proved.
        incumbents: knob values of designs that are known to be good.
    """

    def __init__(self, study: Study, incumbents: Sequence[Values] = ()) -> None:
        self.study = study
        self.boxes, self.effects = make_box_space(study)
        self.evaluator = BoxEvaluator(study, self.boxes)
        self.gap = log1p(study.search.gap or 0.0)
        self._refuse_small_gap()
        count, numbers = len(study.objectives), self.boxes.numbers
        cell = self.gap / CELLS.get(count, MANY_OBJECTIVES_CELLS)
        front = IncumbentFront(cell, np.zeros((0, count)), np.zeros(0, np.int32), np.zeros((0, numbers)))
        self.search = BoxSearch(self.boxes, self.evaluator.bound_boxes, self.evaluator.evaluate_designs, front, self.gap)
        self.seconds = 0.0
        self._resumed = self._load(incumbents)
        if not self._resumed:
            self._add(incumbents)
            self.search.begin()

    def _refuse_small_gap(self) -> None:
        """Refuse a gap that boxes with intervals never reach, as their bounds are loosened by more."""
        loosest = max(self.evaluator.margins.values())
        intervals = count_designs(self.boxes)[1]
        if intervals and expm1(self.gap) <= loosest:
            raise DesignError(
                f"search.gap: bounds of serving loads are loosened by {100 * loosest:.3g} %, so that boxes with intervals "
                f"({', '.join(intervals)}) close above that only; set search.gap above it, or steps for intervals (range)"
            )

    @property
    def resumed_boxes(self) -> int:
        """Boxes that earlier runs bounded; 0 if this begins."""
        return self.search.boxes if self._resumed else 0

    def _add(self, incumbents: Sequence[Values]) -> None:
        """Evaluate known designs, and add those that are feasible to the front."""
        located = [place for place in map(self.boxes.locate, incumbents) if place is not None]
        if located:
            option = np.array([option for option, _ in located], np.int32)
            places = np.array([places for _, places in located]).reshape(len(located), self.boxes.numbers)
            values, feasible = self.evaluator.evaluate_designs(option, places)
            self.search.designs += len(option)
            self.search.front.add(values[feasible], option[feasible], places[feasible])

    def run(self, progress: Callable[[float, int, int], None]) -> Certificate:
        """Split boxes until the gap, the time or the budget is reached, and store what is proved.

        Args:
            progress: called with the gap as a share, boxes so far, and open boxes.
        """
        start = saved = shown = time.monotonic()
        before = self.seconds

        def note() -> None:
            nonlocal saved, shown
            now = time.monotonic()
            self.seconds = before + now - start
            if now - shown > 0.2:
                progress(expm1(self.search.largest_gap), self.search.boxes, len(self.search.open))
                shown = now
            if now - saved > SAVE_PERIOD_S:
                self.save()
                saved = time.monotonic()

        left = "interrupted"
        try:
            left = self.search.run(note, seconds=self.study.search.stop.time, boxes=self.study.search.boxes)
        finally:
            self.seconds = before + time.monotonic() - start
            self.save(left)
        return Certificate(self.record(left), self.members(), left)

    def members(self) -> list[dict[str, Any]]:
        """Knob values of the front's designs."""
        front = self.search.front
        columns = self.boxes.columns(front.option, front.places)
        space = self.study.question.space
        return [space.canonical(self.boxes.space.row(columns, row)) for row in range(len(front.values))]

    def save(self, left: str = "interrupted") -> None:
        """Store front and boxes in the run folder."""
        place = self.study.run_dir / STATE_FILE
        place.parent.mkdir(parents=True, exist_ok=True)
        leaves, front = self.search.leaves, self.search.front
        arrays = {f"leaves_{spec.name}": getattr(leaves, spec.name) for spec in fields(Boxes) if spec.name != "gap"}
        arrays |= {"front_values": front.values, "front_option": front.option, "front_places": front.places}
        counts = np.array([self.search.boxes, self.search.designs, self.seconds])
        with write_atomically(place) as path, path.open("wb") as file:
            np.savez(file, counts=counts, **arrays)
        with write_atomically(self.study.run_dir / CERTIFICATE_FILE) as path:
            path.write_text(json.dumps(self.record(left), indent=1))

    def _load(self, incumbents: Sequence[Values]) -> bool:
        """Take up what earlier runs have proved; whether there was any."""
        if read_certificate(self.study) is None:
            return False
        leaves, front, (boxes, designs, self.seconds) = _read_state(self.study)
        front.cell = self.search.front.cell
        self.search.front, self.search.boxes, self.search.designs = front, int(boxes), int(designs)
        self._add(incumbents)
        self.search.resume(leaves)
        return True

    def record(self, left: str) -> dict[str, Any]:
        """The certificate as JSON values."""
        search, study = self.search, self.study
        leaves = search.leaves
        metrics = self.evaluator.metrics(search.front.values)
        counts = np.bincount(leaves.dropped, minlength=len(self.evaluator.reasons) + 1)[1:].tolist()
        designs, intervals = count_designs(self.boxes)
        gap = expm1(search.largest_gap)
        return {
            "key": certificate_key(study),
            "gap": gap if np.isfinite(gap) else None,
            "wanted_gap": study.search.gap or 0.0,
            "reached": not left,
            "ended_by": left or None,
            "designs": designs,
            "intervals": intervals,
            "boxes": search.boxes,
            "evaluated_designs": search.designs,
            "seconds": self.seconds,
            "leaves": len(leaves),
            "open": len(search.open),
            "dropped": {name: count for name, count in zip(self.evaluator.reasons, counts, strict=True) if count},
            "cell": expm1(search.front.cell),
            "margins": {name: margin for name, margin in self.evaluator.margins.items() if margin},
            "physics": PHYSICS_VERSION,
            "objectives": dict(study.objectives),
            "constraints": [str(bound) for bound in study.bounds],
            "rests_on": {address: {"basis": effect.basis, "proof": effect.proof} for address, effect in self.effects.items()},
            "front": [
                {"knobs": knobs, "metrics": dict(zip(study.objectives, row, strict=True))}
                for knobs, row in zip(self.members(), metrics.tolist(), strict=True)
            ],
        }


@dataclass(frozen=True)
class BoxVerdict:
    """What the box of a design proves of it.

    Attributes:
        ranges: lower and upper end of each number in the box, by knob.
        reason: why no design of the box is feasible; empty string if one may be.
        bound: best value of each objective in the box; empty without one.
        member: knob values of the design of the front that the bound beats least.
        metrics: objectives of that design.
        lead: share by which the bound is better than the member in the objective where that is most; below 0 where the member
            is better than the bound in every objective.
    """

    ranges: Mapping[str, tuple[float, float]]
    reason: str
    bound: Mapping[str, float]
    member: Mapping[str, Any]
    metrics: Mapping[str, float]
    lead: float

    def describe(self, member: str) -> str:
        """What the box proves, as text; `member` names the design of the front."""
        if self.reason:
            return f"no design of its box is feasible: {self.reason}"
        share = format_share(self.lead)
        if self.lead <= 0:
            return f"{member} is better than the bound of its box by {share} or more in every objective"
        return f"no design of its box is better than {member} by more than {share} in any objective"


def find_box(study: Study, values: Values) -> BoxVerdict | None:
    """Verdict of a study's stored boxes on one design, without its evaluation; None if they lack it.

    Args:
        study: whose certificate counts.
        values: knob values of the design.
    """
    if read_certificate(study) is None:
        return None
    boxes, _ = make_box_space(study)
    located = boxes.locate(values)
    if located is None:
        return None
    leaves, front, _ = _read_state(study)
    option, places = located
    inside = (leaves.option == option) & (leaves.low <= places).all(axis=1) & (places <= leaves.high).all(axis=1)
    row = int(np.flatnonzero(inside)[0])
    evaluator = BoxEvaluator(study, boxes)
    ends = [boxes.columns(leaves.option[row : row + 1], side[row : row + 1]) for side in (leaves.low, leaves.high)]
    ranges = {
        knob.address: (float(ends[0][knob.address][0]), float(ends[1][knob.address][0]))
        for knob in boxes.ranged
        if boxes.active[option, boxes.ranged.index(knob)]
    }
    if leaves.dropped[row]:
        return BoxVerdict(ranges, evaluator.reasons[leaves.dropped[row] - 1], {}, {}, {}, 0.0)
    member = front.nearest(leaves.bound[row])
    bound, metrics = evaluator.metrics(np.array([leaves.bound[row], front.values[member]])).tolist()
    columns = boxes.columns(front.option, front.places)
    names = list(study.objectives)
    return BoxVerdict(
        ranges,
        "",
        dict(zip(names, bound, strict=True)),
        study.question.space.canonical(boxes.space.row(columns, member)),
        dict(zip(names, metrics, strict=True)),
        expm1(float((front.values[member] - leaves.bound[row]).max())),
    )


def _read_state(study: Study) -> tuple[Boxes, IncumbentFront, list[float]]:
    """Stored leaves, front, and counts of boxes, designs and seconds."""
    with np.load(study.run_dir / STATE_FILE) as stored:
        arrays = {spec.name: stored[f"leaves_{spec.name}"] for spec in fields(Boxes) if spec.name != "gap"}
        front = IncumbentFront(0.0, *(stored[f"front_{name}"] for name in ("values", "option", "places")))
        return Boxes(**arrays, gap=np.zeros(len(arrays["option"]))), front, stored["counts"].tolist()


def certificate_key(study: Study) -> str:
    """Content key of what a certificate is about: space, workload, objectives, constraints and physics."""
    wanted = [*(f"{name} {way}" for name, way in study.objectives.items()), *map(str, study.bounds)]
    rows = [("space", study.question.space.key), ("workload", study.context.workload), ("physics", PHYSICS_VERSION)]
    return key_of_leaves([*rows, ("front", ", ".join(wanted))])


def read_certificate(study: Study) -> dict[str, Any] | None:
    """Stored record of a study's certificate; None if there is none of this space, workload and physics."""
    place = study.run_dir / CERTIFICATE_FILE
    if not place.is_file() or not (study.run_dir / STATE_FILE).is_file():
        return None
    record: dict[str, Any] = json.loads(place.read_text())
    return record if record.get("key") == certificate_key(study) else None


def format_share(lead: float) -> str:
    """A share in percent without its sign, rounded up if it is a lead, else down."""
    step = 10.0 ** (floor(log10(max(abs(lead), 1e-9))) - 1)
    return f"{100 * abs(ceil(lead / step) * step):.3g} %"


def describe_certificate(record: Mapping[str, Any]) -> list[str]:
    """What a certificate says, what it rests on, and what it took, as lines of text."""
    choices = count_text(record["designs"], "design")
    if record["intervals"]:
        choices = f"{count_text(record['designs'], 'combination')} with any {' and any '.join(record['intervals'])}"
    wanted = f"{record['wanted_gap']:.3g}" if record["wanted_gap"] == 0 else f"{100 * record['wanted_gap']:.3g} %"
    if not record["front"] and record["reached"]:
        first = f"no design among {choices} is feasible"
    elif record["reached"] and record["wanted_gap"] == 0:
        first = f"no design among {choices} beats this front, which is exact"
    elif record["reached"]:
        first = f"no design among {choices} beats this front by more than {wanted}"
    else:
        most = "an unknown share" if record["gap"] is None else format_share(record["gap"])
        why = {"time": "search.stop.time was over", "boxes": "search.boxes were spent"}.get(
            record["ended_by"], "it was stopped"
        )
        first = (
            f"no design among {choices} beats this front by more than {most}; {wanted} is not proved yet, as {why}: the same "
            "command goes on from here"
        )
    bases: dict[str, list[str]] = {}
    for address, effect in record["rests_on"].items():
        bases.setdefault(effect["basis"], []).append(address)
    if SAMPLED in bases:
        first = f"as far as sampled directions hold, {first}"
    rests = "; ".join(f"{basis} directions of {', '.join(addresses)}" for basis, addresses in bases.items())
    if margins := record.get("margins"):
        rests += f"; bounds are loosened by {100 * max(margins.values()):.3g} %, as a faster chip may gather other batches"
    bounded, evaluated = count_text(record["boxes"], "box"), count_text(record["evaluated_designs"], "design")
    effort = f"{bounded} bounded and {evaluated} evaluated in {record['seconds']:.3g} s"
    return [first, f"rests on {rests or 'no direction: each design is a box'}", effort]


def count_designs(boxes: BoxSpace) -> tuple[int, list[str]]:
    """Number of designs of a space, each interval counted as one value, and the intervals."""
    counts = np.array([1.0 if values is None else len(values) for values in boxes.values])
    designs = sum(int(np.prod(counts[active])) for active in boxes.active)
    return designs, [knob.address for knob in boxes.ranged if not isinstance(knob, ChoiceKnob)]
