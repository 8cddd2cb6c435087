"""Samplers: their interface, those that learn nothing, and the choice of one for a study.

Ask number k is made when exactly the results of asks 0 to k - window have been told, with numbers seeded from (seed, k).
So a search is a function of its seed and window: not of timing, of the number of workers, or of where it was interrupted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, Knob, active_rows
from dse.space.metric_composition import MetricComposition
from dse.space.multi_chip_space import AnySpace

Values = dict[str, Any]

PossibleFilter = Callable[[Sequence[Values]], Sequence[bool]]
"""Whether designs keep the limits that are known before anything is played: many together cost little more than one."""


class SearchSpace(Protocol):
    """Interface of spaces for a search: the knobs. `Space` and `LearnedSpace` have it."""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Knobs with their values, and the values of other knobs under which each is active."""

    @property
    def base_spaces(self) -> Iterable[tuple[Mapping[str, Any], "SearchSpace"]]:
        """Spaces of one chip each, with the choices that are made in it; the space itself where there is one."""


MAX_TRIES = 400
"""Designs that a sampler looks at for one that is possible; then it asks the last of them, and is told what it breaks."""


def allow_all(several: Sequence[Values]) -> Sequence[bool]:
    """Allow all designs, without a check."""
    return [True] * len(several)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on one design for a sampler: objectives and constraint excesses.

    Attributes:
        objectives: in the order of the study's objectives; None where the evaluation failed, and where a limit ruled the
            design out, so that it was not evaluated.
        constraints: by name; above 0 means violated. Empty where the evaluation failed.
        parts: of the evaluation, by name, which objectives are composed of; empty where they are not known.
    """

    objectives: tuple[float, ...] | None
    constraints: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)


class ObjectiveStructure(Protocol):
    """Interface of what is known of a study's objectives before any result.

    Attributes:
        compositions: of each objective, of parts that feedback has; None for one that has none.
    """

    compositions: Sequence[MetricComposition | None]

    def free_metrics(self, designs: Sequence[Values]) -> Mapping[str, Array]:
        """Metrics that are known without an evaluation, shape (designs,) each; NaN where one is not known."""


class LowFidelitySource(Protocol):
    """Interface of a lower fidelity: results of designs on request.

    Attributes:
        fidelity: its word.
        pool: designs of a screen with their results; empty without a screen.
        all: whether these are all designs of the space, so that no others are to be looked at.
    """

    fidelity: str
    pool: Sequence[tuple[Values, Feedback]]
    all: bool

    def feedback_on(self, designs: Sequence[Values]) -> list[Feedback]:
        """Low-fidelity results of designs, as feedback for a sampler."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One design that a sampler proposes.

    Attributes:
        number: 0, 1, 2, ...
        values: by knob.
        marks: the sampler's own notes, to be kept with the ask and handed back on resume.
    """

    number: int
    values: Values
    marks: Mapping[str, Any] = field(default_factory=dict)


class Sampler(Protocol):
    """Interface of samplers, which propose designs.

    Attributes:
        designs: how many asks there are in all; None for any number.
    """

    @property
    def designs(self) -> int | None:
        """Number of asks in all; None for any number."""

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Next ask; with `forced`, at these values."""

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Take the result of an ask; called in the order of asks."""

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Take an ask of an earlier run, in order, with its result if it had one."""


FEW_A_KNOB = 4
"""Designs a knob below which a model has learned nothing yet."""

MANY = 4
"""Objectives from which crowding distance no longer spreads a front, so that reference points are used."""

MODELLED = 5_000
"""Budget up to which asks of `local`, 2 to 25 ms each by knobs and objectives, repay what they cost."""


COUNTED = 1_024
"""Designs in which active knobs are counted."""


def recommend_sampler(space: AnySpace, objectives: int, budget: int) -> tuple[str, str]:
    """Sampler for a space and a budget, and the reason; `studies/search_quality` has measurements.

    Args:
        space: what is searched.
        objectives: how many.
        budget: asks.
    """
    grid, knobs = space.combinations, count_active_knobs(space)
    if grid is not None and grid <= budget:
        return "exhaustive", f"all {grid:,} combinations fit in the budget of {budget:,}"
    if budget < FEW_A_KNOB * knobs:
        return (
            "qmc",
            f"{budget:,} designs for {knobs} knobs are too few for a model; a Sobol sequence covers the space evenly",
        )
    if budget > MODELLED:
        why = f"a budget of {budget:,} is enough for a genetic sampler, whose asks take less time than a model's"
        points = f"; reference points keep a front of {objectives} objectives spread"
        return ("nsga3", why + points) if objectives >= MANY else ("nsga2", why)
    return "local", f"{knobs} knobs and a budget of {budget:,}: a model chooses among the neighbours of the front"


def count_active_knobs(space: SearchSpace) -> int:
    """Most knobs that are active at once, the choice of the chip included.

    A study of several chips has the knobs of them all, and a design has those of its own chip. Where knobs are conditional
    the count is of `COUNTED` designs spread over the space.
    """
    most = 0
    for selected, part in space.base_spaces:
        places = np.zeros((COUNTED, 0))
        if part.knobs and any(knob.when or knob.read for knob in part.knobs):
            places = generate_sobol_points(len(part.knobs), 0, COUNTED, 0)
        columns = {knob.address: column for knob, column in zip(part.knobs, places.T, strict=False)}

        def match_rows(knob: Knob, allowed: tuple[Any, ...], columns: Mapping[str, Array] = columns) -> Array:
            assert isinstance(knob, ChoiceKnob)
            return np.isin(np.floor(columns[knob.address] * len(knob.values)), [knob.values.index(value) for value in allowed])

        counts = sum(np.broadcast_to(rows, COUNTED).astype(int) for rows in active_rows(part.knobs, match_rows).values())
        most = max(most, len(selected) + int(np.max(counts)))
    return most


class RandomSampler:
    """Sampler with every knob uniform over its values (logarithmic knobs over logarithms).

    Only designs that keep early limits; it learns nothing.
    """

    designs = None

    def __init__(self, space: AnySpace, seed: int, possible: PossibleFilter = allow_all) -> None:
        self._space = space
        self._seed = seed
        self._possible = possible

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Random design, independent of all other asks."""
        if forced is not None:
            return Ask(number, forced)
        rng = np.random.Generator(np.random.PCG64([self._seed, number]))
        for _ in range(MAX_TRIES):
            values = values_from_unit(self._space, rng.random(len(self._space.knobs)))
            if all(self._possible([values])):
                break
        return Ask(number, values)

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Ignore the result: random sampling learns nothing."""

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Ignore the earlier ask: random sampling has no state."""


class SobolSampler:
    """Sampler of a scrambled Sobol sequence, whose every first part covers the space evenly.

    Only designs that keep early limits; it learns nothing.
    """

    designs = None
    BLOCK = 256

    def __init__(self, space: AnySpace, seed: int, possible: PossibleFilter = allow_all) -> None:
        self._space = space
        self._seed = seed
        self._possible = possible
        self._start_worker = -1
        self._first_points = np.zeros((0, 0))
        self._next_item = 0

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Next point of the sequence that is an allowed design, from this number on."""
        if forced is not None:
            return Ask(number, forced)
        first = max(self._next_item, number)
        for place in range(first, first + MAX_TRIES):
            values = self._point_values(place)
            if all(self._possible([values])):
                break
        self._next_item = place + 1
        return Ask(number, values, {} if place == number else {"next": self._next_item})

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Ignore the result: a Sobol sequence learns nothing."""

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Restore the place at which the sequence goes on."""
        self._next_item = ask.marks.get("next", self._next_item)

    def _point_values(self, place: int) -> Values:
        start = place - place % self.BLOCK
        if start != self._start_worker:
            self._start_worker = start
            self._first_points = generate_sobol_points(len(self._space.knobs), start, start + self.BLOCK, self._seed)
        return values_from_unit(self._space, self._first_points[place - start])


class GridSampler:
    """Sampler of every design of a grid once, in an order that the seed shuffles.

    So a part of it is a fair sample.

    Raises:
        DesignError: a knob is an interval.
    """

    def __init__(self, space: AnySpace, seed: int) -> None:
        if space.combinations is None:
            raise DesignError("search.sampler: exhaustive needs a grid; a knob of this space is an interval")
        self._space = space
        self._columns = space.grid(0, space.combinations)
        self._order = np.random.default_rng(seed).permutation(len(next(iter(self._columns.values()))))
        self.designs = len(self._order)

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Design of this number; all come in the end, so none is forced."""
        return Ask(number, self._space.row(self._columns, int(self._order[number])))

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Ignore the result: grid sampling learns nothing."""

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Ignore the earlier ask: grid sampling has no state."""


class ListSampler:
    """Sampler of given designs, one after the other.

    Args:
        values: of the designs.
        before: asks that are there already.
    """

    def __init__(self, values: Sequence[Values], before: int) -> None:
        self._values, self._before = values, before
        self.designs = before + len(values)

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Design of this number, after those of earlier runs."""
        return Ask(number, self._values[number - self._before])

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Ignore the result: the designs are given."""

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Ignore the earlier ask: those that follow are given."""


def generate_sobol_points(dimensions: int, start: int, stop: int, seed: int) -> Array:
    """Points `start` to `stop` of a scrambled Sobol sequence in the unit cube.

    Shape (stop - start, dimensions).
    """
    from scipy.stats import qmc

    engine = qmc.Sobol(dimensions, scramble=True, seed=seed)
    if start:
        engine.fast_forward(start)
    return np.asarray(engine.random(stop - start))


def values_from_unit(space: AnySpace, unit: Array) -> Values:
    """Knob values at a point of the unit cube, shape (knobs,)."""
    return space.canonical({knob.address: value_at_unit(knob, float(u)) for knob, u in zip(space.knobs, unit, strict=True)})


def value_at_unit(knob: Knob, unit: float) -> Any:
    """Value of a knob at a place from 0 to 1."""
    if isinstance(knob, ChoiceKnob):
        return knob.values[min(int(unit * len(knob.values)), len(knob.values) - 1)]
    value = knob.low * (knob.high / knob.low) ** unit if knob.log else knob.low + (knob.high - knob.low) * unit
    return min(max(value, knob.low), knob.high)


def value_at_place(knob: Knob, place: Any) -> Any:
    """Value of a knob at a place.

    Of a number the place is among its values in ascending order; of others it is the value itself.

    >>> value_at_place(ChoiceKnob("mapping.both.tp", (16, 4, 8)), 0)
    4
    """
    return place if not isinstance(knob, ChoiceKnob) or knob.words else sorted(knob.values)[place]
