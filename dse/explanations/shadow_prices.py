"""Shadow prices of constraints: the smallest relaxation that moves a front, and the gain it brings.

Candidates are the known designs that violate only this constraint or limit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import limits_by_design
from dse.explanations.neighbours import DesignOutcome, StudyGoal
from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array
from dse.space.design import Design, design_key, make_ids
from dse.space.limits import Limit
from dse.space.units import choose_display_unit, format_quantity
from dse.space.workload import Workload

MIN_GAIN = 1e-3
"""By how much a design must be better than all that are feasible to move the front, relative to them."""

MAX_RELAXATION = 1.0
"""The largest relaxation that is looked at, relative to the constraint: what must more than double is another question."""

TIE = 1e-9
"""Relative difference up to which two relaxations are the same; of such the one that buys most counts."""

ITEMISED = 64
"""Designs a limit whose limits are looked at one by one, those that break it least first."""


@dataclass(frozen=True, slots=True)
class KnownDesign:
    """One design that was evaluated before.

    Attributes:
        at: what tells it from others: values of knobs.
        design: builds it.
        point: how it came out.
    """

    at: Mapping[str, Any]
    design: Callable[[], Design]
    point: DesignOutcome


Gains = Callable[[DesignOutcome], Mapping[str, float] | None]
"""By objective, what a design would add if it were feasible, above 0; None where it adds nothing."""


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """Smallest relaxation of one constraint or limit that moves the front, and its gain.

    Attributes:
        what: the constraint as it is written, or the limit's address.
        address: the metric, or the limit.
        now, then: what is allowed, and what would have to be, in `unit`.
        known: the design that this admits.
        gains: by objective, how much better it is than what is feasible and as good in all others, in the objective's unit,
            above 0; none where nothing feasible is as good in all others.
        directions: of the objectives, max or min.
        together: whether it gains all of this over one design that it beats, and not each over another.
    """

    what: str
    address: str
    unit: str
    now: float
    then: float
    known: KnownDesign
    gains: Mapping[str, float]
    directions: Mapping[str, str]
    together: bool

    @property
    def design(self) -> str:
        """Id of the design that the relaxation admits."""
        return make_ids([design_key(self.known.design())])[0]

    @property
    def relaxation(self) -> float:
        """Size of the relaxation. [unit]"""
        return abs(self.then - self.now)

    @property
    def rates(self) -> dict[str, float]:
        """Gain of each objective per unit of relaxation, in the objective's unit over `unit`."""
        return {name: gain / self.relaxation for name, gain in self.gains.items() if self.relaxation}

    @property
    def worth(self) -> float:
        """Sum of the relative gains of all objectives. [-]"""
        return sum(gain / abs(self.known.point.metrics[name]) for name, gain in self.gains.items() if gain)

    @property
    def relaxation_unit(self) -> tuple[float, str]:
        """Unit per which a gain is stated, that of the constraint: its size in `unit`, and its name."""
        scale, name = choose_display_unit(self.now, self.unit)
        return scale, name or "1"

    @property
    def text(self) -> str:
        """Size of the relaxation and its gain, as text."""
        moves = "admits a design that beats this one" if self.together else "moves the front"
        by = (
            f"{format_quantity(self.relaxation, self.unit)}, from {format_quantity(self.now, self.unit)} to "
            f"{format_quantity(self.then, self.unit, 6)}"
        )
        relative = f" ({self.then / self.now - 1:+.2%})" if self.now else ""
        bought = (" and " if self.together else ", or ").join(map(self.gain_text, self.gains))
        if not bought:
            bought = "a design in an empty region of the front: no other is as good in all objectives but one"
        return f"the smallest relaxation that {moves} is {by}{relative}; gain: {bought}"

    def gain_text(self, name: str) -> str:
        """Gain of an objective, in all and per unit of relaxation, as text."""
        unit, (scale, each) = METRICS[name].unit, self.relaxation_unit
        more = "more" if self.directions[name] == "max" else "less"
        rate = f" ({format_quantity(self.rates[name] * scale, unit)} for each {each})" if name in self.rates else ""
        return f"{format_quantity(self.gains[name], unit)} {more} {name}{rate}"

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


class ItemisedLimits:
    """Itemised limits of designs under one workload, each computed once, and many at a time."""

    def __init__(self, workload: Workload) -> None:
        self._load_workload = workload
        self._known: dict[Design, list[Limit]] = {}

    def add(self, designs: Iterable[Design]) -> None:
        """Work out the limits of designs that are not known yet."""
        new = [design for design in dict.fromkeys(designs) if design not in self._known]
        self._known.update(zip(new, limits_by_design(new, self._load_workload), strict=True))

    def limits_of(self, design: Design) -> list[Limit]:
        """Every limit of one design."""
        self.add([design])
        return self._known[design]


def find_shadow_prices(
    goal: StudyGoal,
    known: Sequence[KnownDesign],
    gains: Gains,
    *,
    together: bool = False,
    itemised: ItemisedLimits | None = None,
) -> list[ShadowPrice]:
    """The smallest relaxation of each constraint and limit that is worth something.

    Args:
        goal: whose objectives and constraints count.
        known: designs, of which those that break one constraint or limit alone count.
        gains: what a design would add.
        together: whether it would add all of that to one design, and not to another for each objective.
        itemised: limits of designs as far as they are known.

    Returns:
        One a constraint or limit, smallest relative relaxation first.
    """
    itemised = itemised or ItemisedLimits(goal.workload)
    groups: dict[str, list[KnownDesign]] = {}
    for design in known:
        broken = ([design.point.limit] if design.point.limit else []) + [text for text, _ in design.point.broken]
        if len(broken) == 1 and not design.point.refused and design.point.excess <= MAX_RELAXATION:
            groups.setdefault(broken[0], []).append(design)
    prices = []
    for group in groups.values():
        worth = (
            (design, more)
            for design in sorted(group, key=lambda design: design.point.excess)
            if (more := gains(design.point)) is not None
        )
        least: ShadowPrice | None = None
        candidates = list(islice(worth, ITEMISED))
        for place, (design, more) in enumerate(candidates):
            if least is not None and design.point.excess > least.known.point.excess * (1 + TIE):
                break
            if place & (place - 1) == 0:  # many at a time take little longer than one: as many as came before
                itemised.add(other.design() for other, _ in candidates[place : max(2 * place, 1)] if other.point.limit)
            price = _price_of_design(goal, design, more, together, itemised)
            if price is not None and (least is None or price.worth > least.worth):
                least = price
        prices += [least] if least is not None else []
    return sorted(prices, key=lambda price: price.known.point.excess)


def gain_over_rivals(goal: StudyGoal, point: DesignOutcome, rivals: Sequence[DesignOutcome]) -> dict[str, float] | None:
    """Gain by objective over the best rival that is as good in all other objectives.

    Returns:
        Above 0, in the objectives' units; empty where no rival is as good in any; None where a rival is as good in all but
        for `MOVES`, or an objective is missing.
    """
    names = list(goal.objectives)
    if any(name not in outcome.metrics for outcome in (point, *rivals) for name in names):
        return None
    directions = list(goal.objectives.values())
    mine = convert_to_minimisation(np.array([[point.metrics[name] for name in names]]), directions)[0]
    theirs = convert_to_minimisation(
        np.array([[rival.metrics[name] for name in names] for rival in rivals]).reshape(-1, len(names)), directions
    )
    if (theirs <= mine + MIN_GAIN * np.abs(mine)).all(axis=1).any():
        return None
    gain = {}
    for place, name in enumerate(names):
        others: Array = np.delete(theirs, place, axis=1) <= np.delete(mine, place)
        near = theirs[others.all(axis=1), place]
        if len(near) and near.min() > mine[place]:
            gain[name] = float(near.min() - mine[place])
    return gain


def gain_over_beaten(goal: StudyGoal, point: DesignOutcome, outcome: DesignOutcome) -> dict[str, float] | None:
    """Gain by objective over a design that this one dominates; None if it does not by `MIN_GAIN`.

    Returns:
        Above 0, in the objectives' units.
    """
    if any(name not in outcome.metrics for outcome in (point, outcome) for name in goal.objectives):
        return None
    gains = {}
    for name, direction in goal.objectives.items():
        more = (point.metrics[name] - outcome.metrics[name]) * (1 if direction == "max" else -1)
        if more < 0:
            return None
        if more > MIN_GAIN * abs(outcome.metrics[name]):
            gains[name] = more
    return gains or None


def _price_of_design(
    goal: StudyGoal, design: KnownDesign, gains: Mapping[str, float], together: bool, itemised: ItemisedLimits
) -> ShadowPrice | None:
    """The price of what a design breaks; None where it breaks other limits as well, which only itemised limits say."""
    if not design.point.limit:
        ((what, _),) = design.point.broken
        bound = next(bound for bound in goal.bounds if str(bound) == what)
        then = design.point.metrics[bound.metric]
        return ShadowPrice(
            what, bound.metric, METRICS[bound.metric].unit, bound.value, then, design, gains, goal.objectives, together
        )
    worst: dict[str, tuple[float, float]] = {}
    for limit in itemised.limits_of(design.design()):
        need, have = float(np.max(limit.need)), float(np.min(limit.have))
        if need > have and need > worst.get(limit.address, (0.0, 0.0))[0]:
            worst[limit.address] = need, have
    if set(worst) != {design.point.limit}:
        return None
    need, have = worst[design.point.limit]
    address = design.point.limit
    return ShadowPrice(address, address, SILICON_LIMITS[address], have, need, design, gains, goal.objectives, together)
