"""Designs one step away from a design, and the outcomes of designs: the material of explanations.

A step is the next value of a knob in its space; of an interval a tenth up or down, within its ends; of a word each other word.
A design that is not in a study has a space of its own: the free settings of its chip, and those of its mapping.
"""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

from dse.config.metric_expressions import DefinedMetrics, evaluate_with_derived
from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import FIDELITIES, fidelities, is_simulated
from dse.execution.study import MetricConstraint
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import check_leaf, field_at, iterate_leaves, leaf_at, replace_leaves
from dse.space.fixed_leaves import is_design_choice
from dse.space.knobs import ChoiceKnob, Knob, Space, Value
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace
from dse.space.units import format_quantity
from dse.space.workload import Workload

STEP = 0.1
"""Of the value of a knob without listed values, up and down."""

FAR_FACTOR = 10.0
"""Relative excess over a constraint from which on its value says more than the excess."""

FIRST_BATCH = 256
"""Designs that the analytical model evaluates together first; of the next ones as many as there is time for."""

FEW_AT_ONCE, MOST_AT_ONCE = 64, 4096
"""The same of loads in the steady state, at least and at most: calls for each structure take most of it, as many for few
designs as for many, so that as many come at once as there is time for."""

DESIGNS_PER_S = 40
"""Designs of these that come first, for each second that there is: 800 around a front of mesh_llm took 22 s of CPU."""

GROWTH = 8
"""Times as many of these at most as came before: what the first have taken is little to go by."""

APART = ("mapping.precision.", "mapping.stack.")
"""Leaves of a mapping that are no step away: formats, which would compare unlike numbers, and measured software."""

WORDS = 8
"""Other words of a knob that are tried, at most."""


@dataclass(frozen=True)
class StudyGoal:
    """Workload, fidelity, objectives and constraints by which designs are compared.

    Attributes:
        objectives: metrics with their directions, max or min.
        bounds: constraints on metrics.
        metrics: requested ones that take extra work; None for all.
        defined: metrics that are made of others.
    """

    workload: Workload
    objectives: Mapping[str, str]
    bounds: tuple[MetricConstraint, ...]
    fidelity: str
    metrics: tuple[str, ...] | None = None
    defined: DefinedMetrics = field(default_factory=dict)

    def gain(self, name: str, old: float, new: float) -> float:
        """Relative improvement of an objective; below 0 if it is worse, NaN if undefined. [-]"""
        if old == new:
            return 0.0
        if not (old > 0 and new > 0):
            return float("nan")
        return new / old - 1 if self.objectives[name] == "max" else old / new - 1


@dataclass(frozen=True, slots=True)
class DesignOutcome:
    """Metrics of one evaluated design, or the limit and constraints that it violates.

    Attributes:
        metrics: by name, in SI; those that it has.
        limit, need, have: the limit that it breaks most, "" for none, in the limit's unit.
        broken: constraints that it does not keep, as they are written, with the excess relative to them.
        refused: why it does not support the workload; empty string if it does.
    """

    metrics: Mapping[str, float]
    limit: str = ""
    need: float = 0.0
    have: float = 0.0
    broken: tuple[tuple[str, float], ...] = ()
    refused: str = ""

    @property
    def feasible(self) -> bool:
        """Whether every limit and constraint holds."""
        return not (self.limit or self.broken or self.refused)

    @property
    def excess(self) -> float:
        """Largest relative excess over a limit or a constraint; 0 if all hold. [-]"""
        over = [self.need / self.have - 1 if self.have else inf] if self.limit else []
        return max([*over, *(excess for _, excess in self.broken)], default=inf if self.refused else 0.0)

    @property
    def violations_text(self) -> str:
        """Violated limit and constraints as text; empty string if it is feasible."""
        limit = []
        if self.limit:
            unit = SILICON_LIMITS[self.limit]
            limit = [f"needs {format_quantity(self.need, unit)} of {self.limit}, has {format_quantity(self.have, unit)}"]
        return "; ".join([*limit, *(self._violation_text(*bound) for bound in self.broken), *filter(None, [self.refused])])

    def _violation_text(self, text: str, excess: float) -> str:
        """In words, by how much a constraint is broken: relative to it, or what is there where that is next to nothing."""
        name = text.partition(" ")[0]
        if excess < FAR_FACTOR or name not in self.metrics:
            return f"violates {text} by {excess:.2%}"
        return f"violates {text}, is {format_quantity(self.metrics[name], METRICS[name].unit)}"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A design that differs from another one in one knob.

    Attributes:
        old, new: values of the knob, in the leaf's SI unit, or words.
    """

    knob: str
    old: Value
    new: Value
    design: Design

    @property
    def is_upward(self) -> bool | None:
        """Whether the knob's value grows; None for options."""
        return None if isinstance(self.old, str) or isinstance(self.new, str) else self.new > self.old


def evaluate_points(designs: Sequence[Design], goal: StudyGoal, *, seconds: float = inf) -> list[DesignOutcome | None]:
    """Outcomes of designs; equal designs are evaluated once.

    Args:
        designs: all of scalars.
        goal: the workload, the fidelity, objectives and constraints.
        seconds: after which no more are evaluated.

    Returns:
        One a design, in order; None of those that there was no time for.
    """
    different = list(dict.fromkeys(designs))
    outcomes: dict[Design, DesignOutcome] = {}
    end = time.monotonic() + seconds
    steady, start = goal.fidelity == FIDELITIES[0], 0
    few = MOST_AT_ONCE if seconds == inf else min(max(int(DESIGNS_PER_S * seconds), FEW_AT_ONCE), MOST_AT_ONCE)
    alone = bool(different) and is_evaluated_alone(different[0], goal)
    size = 1 if alone else few if steady else FIRST_BATCH
    while start < len(different) and (began := time.monotonic()) <= end:
        selected_different = different[start : start + size]
        outcomes.update(zip(selected_different, _evaluate_points_of(selected_different, goal), strict=True))
        start += size
        size = size if alone else batch_size(size, time.monotonic() - began, end - time.monotonic())
    return [outcomes.get(design) for design in designs]


def batch_size(before: int, taken: float, left: float) -> int:
    """Number of steady-state designs in the next batch, from the time of the last one.

    As many as are done in time if each takes as long. More take less time each, so that they mostly are done before.

    Args:
        before: how many came at once.
        taken: by them. [s]
        left: until no more are evaluated. [s]

    >>> batch_size(64, 2.0, 10.0), batch_size(64, 2.0, 100.0), batch_size(64, 2.0, 0.1), batch_size(64, 0.0, 1.0)
    (320, 512, 64, 512)
    """
    most = min(GROWTH * before, MOST_AT_ONCE)
    return max(FEW_AT_ONCE, int(min(most, before * left / taken)) if taken > 0 else most)


def is_evaluated_alone(design: Design, goal: StudyGoal) -> bool:
    """Whether designs are evaluated one by one, since requests or kernels are simulated."""
    return goal.fidelity != FIDELITIES[0] and is_simulated(design, goal.workload, goal.fidelity)


def _evaluate_points_of(designs: Sequence[Design], goal: StudyGoal) -> list[DesignOutcome]:
    try:
        outcomes = evaluate_with_derived(
            stack_designs(designs), goal.workload, goal.defined, fidelity=goal.fidelity, metrics=goal.metrics
        )
    except DesignError as error:
        if len(designs) == 1:
            return [DesignOutcome({}, refused=str(error))]
        middle = len(designs) // 2
        return [point for design in (designs[:middle], designs[middle:]) for point in _evaluate_points_of(design, goal)]
    found_outcomes, words = [], list(SILICON_LIMITS)
    for row in range(len(designs)):
        metrics = {name: float(column[row]) for name, column in outcomes.columns.items() if isfinite(column[row])}
        code = int(outcomes.limit[row])
        broken = tuple(
            (str(bound), excess)
            for bound in goal.bounds
            if bound.metric in metrics and (excess := float(bound.excess(metrics[bound.metric]))) > 0
        )
        refused = outcomes.refused.get(row, "")
        if refused:
            found_outcomes.append(DesignOutcome({}, refused=refused))
            continue
        limit, need, have = (words[code], float(outcomes.need[row]), float(outcomes.have[row])) if code >= 0 else ("", 0.0, 0.0)
        found_outcomes.append(DesignOutcome(metrics, limit, need, have, broken))
    return found_outcomes


def list_neighbours(space: AnySpace, values: Mapping[str, Value]) -> list[Neighbour]:
    """Every design one step of one active knob away from the design at some knob values."""
    neighbours = []
    for knob in space.knobs:
        if knob.address not in values or not space.active(knob.address, values):
            continue
        old = values[knob.address]
        for new in adjacent_values(knob, old):
            new = new if isinstance(new, str) else space.number(knob, new)
            moved = _complete_values(space, space.canonical({**values, knob.address: new}))
            neighbours.append(Neighbour(knob.address, old, new, space.design_at(moved)))
    return neighbours


def _complete_values(space: AnySpace, values: dict[str, Value]) -> dict[str, Value]:
    """Values, and of knobs that count only with these the first one where their base's is none of theirs."""
    for knob in space.knobs:
        if knob.address in values or not space.active(knob.address, values):
            continue
        known = leaf_at(space.design_at(values), space.targets[knob.address][0])
        if known not in knob.values if isinstance(knob, ChoiceKnob) else not knob.low <= known <= knob.high:
            values = {**values, knob.address: knob.values[0] if isinstance(knob, ChoiceKnob) else knob.low}
    return values


def list_base_neighbours(space: Space) -> list[Neighbour]:
    """Every design one step of one active knob away from the base of a space.

    The base's settings may have values that the knobs do not have.
    """
    values = knob_values_of(space, space.base)
    neighbours = []
    for knob in space.knobs:
        if not space.active(knob.address, values):
            continue
        for new in adjacent_values(knob, values[knob.address]):
            new = new if isinstance(new, str) else space.number(knob, new)
            moved = space.with_ties(replace_leaves(space.base, dict.fromkeys(space.targets[knob.address], new)))
            neighbours.append(Neighbour(knob.address, values[knob.address], new, moved))
    return neighbours


def knob_values_of(space: Space, design: Design) -> dict[str, Value]:
    """Values of a design at the knobs of a space; of several settings that of the first."""
    return {address: leaf_at(design, targets[0]) for address, targets in space.targets.items()}


def adjacent_values(knob: Knob, value: Value) -> list[Any]:
    """Values next to one: all other options, or the next numbers below and above.

    >>> (
    ...     adjacent_values(ChoiceKnob("a", (8, 2, 4)), 4),
    ...     adjacent_values(ChoiceKnob("a", (8, 2, 4)), 3),
    ...     adjacent_values(ChoiceKnob("a", ("x", "y")), "x"),
    ... )
    ([2, 8], [2, 4], ['y'])
    """
    if isinstance(knob, ChoiceKnob):
        if isinstance(value, str):
            return [other for other in knob.values if other != value][:WORDS]
        below, above = ([other for other in knob.values if sign * other > sign * value] for sign in (-1, 1))
        return ([max(below)] if below else []) + ([min(above)] if above else [])
    assert not isinstance(value, str)
    by = STEP * value if value else STEP * (knob.high - knob.low)
    ends = (max(value - by, knob.low), min(value + by, knob.high))
    return [end for end in ends if end != value and knob.low <= end <= knob.high]


def build_neighbourhood_space(
    design: Design, refused: Callable[[str, str], bool], idle: Callable[[Design], Container[str]] = lambda _: ()
) -> Space:
    """Space around a design: quantities a tenth down and up, counts halved and doubled, other options.

    Args:
        design: of scalars.
        refused: whether the chip with an option, by address and option, does not support the workload.
        idle: settings of a design without effect for the workload.
    """
    merged = _merge_leaves(design)
    knobs = []
    for address, targets in merged.items():
        spec, value = field_at(design, targets[0]), leaf_at(design, targets[0])
        tried: list[Any] = []
        if isinstance(value, str):
            tried = list(spec.metadata.get("options", ()))[: WORDS + 1]
        elif isinstance(value, bool) or not value:
            continue
        elif "whole" in spec.metadata:
            tried = [value // 2, value * 2] if value > 1 else [2]
        else:
            tried = [value * (1 - STEP), value * (1 + STEP)]
        fits = [other for other in tried if _is_allowed(other, spec, address)]
        if isinstance(value, str) and address.startswith("chip."):
            fits = [other for other in fits if other == value or not refused(address, other)]
        fits = [
            other
            for other in fits
            if other == value or not _is_idle(replace_leaves(design, dict.fromkeys(targets, other)), targets, idle)
        ]
        values = tuple(dict.fromkeys([value, *fits]))
        if len(values) > 1:
            knobs.append(ChoiceKnob(address, values))
    return Space(design, tuple(knobs))


def _is_idle(design: Design, targets: Sequence[str], idle: Callable[[Design], Container[str]]) -> bool:
    """Whether nothing reads some leaves of a design, which whoever types them is told."""
    unread = idle(design)
    return all(target in unread for target in targets)


def _merge_leaves(design: Design) -> dict[str, list[str]]:
    """The leaves that a step moves, by address; those of prefill and decode together where they are alike."""
    addresses: dict[str, list[str]] = {}
    values = {address: value for address, value, _ in iterate_leaves(design)}
    for address in values:
        if address.startswith("chip.") and not is_design_choice(address.removeprefix("chip.")):
            continue
        if address.startswith(APART):
            continue
        for phase, other in (("prefill", "decode"), ("decode", "prefill")):
            twin = address.replace(f"mapping.{phase}.", f"mapping.{other}.")
            if twin != address and values.get(twin) == values[address]:
                both = address.replace(f"mapping.{phase}.", "mapping.both.")
                addresses.setdefault(both, []).append(address)
                break
        else:
            addresses[address] = [address]
    return addresses


def _is_allowed(value: Any, spec: Any, address: str) -> bool:
    try:
        check_leaf(value, spec, address)
    except DesignError:
        return False
    return True


def format_knob_value(space: AnySpace, address: str, value: Value) -> str:
    """A knob's value with its unit, as text."""
    if isinstance(value, str) or address == CHIP_KNOB:
        return str(value)
    return format_quantity(float(value), space.spec(address).metadata["unit"] or "1")


def analytical_goal(goal: StudyGoal, base: Design) -> StudyGoal:
    """The goal at the lowest fidelity of a kind of chip, with the metrics of the goal only."""
    known = fidelities(base, goal.workload)
    wanted = tuple(dict.fromkeys((*goal.objectives, *(bound.metric for bound in goal.bounds))))
    return replace(goal, fidelity=known[0] if known else goal.fidelity, metrics=wanted)
