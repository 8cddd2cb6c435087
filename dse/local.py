"""Pareto local search: designs next to the front, never the same twice.

An archive keeps the designs that no other beats. Every ask moves a few knobs of the member that was tried least, or of a cross
of two members, to values nearby. There is no model and no generation: an ask uses whatever has been told.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.pareto import minimised
from dse.samplers import Ask, Told, Values, at_unit, sobol
from space.elementwise import Array
from space.knobs import Interval, Knob, Space

CROSS = 0.5
"""Share of asks that mix two members of the archive."""

ATTEMPTS = 60
"""Moves, ever wider, to find a design that was not asked before."""


class Local:
    """A Pareto local search, with crosses.

    A design that breaks limits or constraints is in the archive only while none breaks them by less in sum.

    Args:
        space: what is searched.
        directions: "max" or "min" for each objective.
        seed: of the study.
        start: asks of a Sobol sequence to begin with.
    """

    designs = None

    def __init__(self, space: Space, directions: Sequence[str], seed: int, start: int) -> None:
        self._space = space
        self._directions = directions
        self._seed = seed
        self._points = sobol(len(space.knobs), 0, 1 << (start - 1).bit_length(), seed)[:start]
        self._asked: set[tuple[tuple[str, Any], ...]] = set()
        self._members: list[Values] = []
        self._tries: list[int] = []
        self._objectives = np.zeros((0, len(directions)))
        self._excess = np.inf

    def ask(self, number: int, forced: Values | None) -> Ask:
        """A design that was not asked before, where there is one within reach."""
        rng = np.random.Generator(np.random.PCG64([self._seed, number]))
        parent = -1
        if forced is not None:
            values = forced
        elif number < len(self._points) or not self._members:
            unit = self._points[number] if number < len(self._points) else rng.random(len(self._space.knobs))
            values = self._new(self._all(unit), rng, as_is=True)
        else:
            least = np.flatnonzero(np.array(self._tries) == min(self._tries))
            parent = int(rng.choice(least))
            values = self._child(parent, rng)
        ask = Ask(number, values, {"parent": self._members[parent]} if parent >= 0 else {})
        self._note(ask)
        return ask

    def tell(self, ask: Ask, told: Told) -> None:
        """Into the archive, if nothing there is at least as good in everything."""
        if told.objectives is None:
            return
        excess = sum(max(0.0, value) for value in told.constraints.values())
        new = minimised(np.array([told.objectives]), self._directions)
        if excess > self._excess or (excess == self._excess and (self._objectives <= new).all(axis=1).any()):
            return
        kept = ~(new <= self._objectives).all(axis=1) if excess == self._excess else np.zeros(len(self._members), dtype=bool)
        places = np.flatnonzero(kept)
        self._members = [*(self._members[place] for place in places), ask.values]
        self._tries = [*(self._tries[place] for place in places), 0]
        self._objectives = np.vstack([self._objectives[places], new])
        self._excess = excess

    def restore(self, ask: Ask, told: Told | None) -> None:
        """As it was asked, and told."""
        self._note(ask)
        if told is not None:
            self.tell(ask, told)

    def _note(self, ask: Ask) -> None:
        self._asked.add(tuple(ask.values.items()))
        parent = ask.marks.get("parent")
        if parent in self._members:
            self._tries[self._members.index(parent)] += 1

    def _child(self, parent: int, rng: np.random.Generator) -> Values:
        values = self._filled(self._members[parent], rng)
        crossed = len(self._members) > 1 and rng.random() < CROSS
        if crossed:
            other = self._filled(self._members[int(rng.integers(len(self._members)))], rng)
            values = {address: (values if rng.random() < 0.5 else other)[address] for address in values}
        return self._new(values, rng, as_is=crossed and rng.random() < 0.5)

    def _new(self, values: Values, rng: np.random.Generator, *, as_is: bool) -> Values:
        """Values near others that were not asked before; after many attempts, ones that were."""
        knobs = self._space.knobs
        near = self._space.canonical(values)
        if as_is and tuple(near.items()) not in self._asked:
            return near
        for attempt in range(ATTEMPTS):
            share = min(0.9, (0.5 + attempt / 20) / len(knobs))
            moved = rng.choice(len(knobs), min(len(knobs), 1 + rng.binomial(len(knobs), share)), replace=False)
            near = dict(values)
            for knob in (knobs[place] for place in moved):
                near[knob.address] = step(knob, near[knob.address], rng)
            near = self._space.canonical(near)
            if tuple(near.items()) not in self._asked:
                return near
        anywhere = self._space.canonical(self._all(rng.random(len(knobs))))
        return near if tuple(anywhere.items()) in self._asked else anywhere

    def _filled(self, values: Values, rng: np.random.Generator) -> Values:
        """Every knob, those that do not count at random, so that a move that makes them count has a value for them."""
        return self._all(rng.random(len(self._space.knobs))) | values

    def _all(self, unit: Array) -> Values:
        return {knob.address: at_unit(knob, float(u)) for knob, u in zip(self._space.knobs, unit, strict=True)}


def step(knob: Knob, value: Any, rng: np.random.Generator) -> Any:
    """Another value of a knob: any other word, a number a few places on, in an interval a step of any scale."""
    if isinstance(knob, Interval):
        unit = knob.unit(value) + rng.normal() * 10 ** rng.uniform(-3, -0.5)
        return at_unit(knob, min(max(unit, 0.0), 1.0))
    count, place = len(knob.values), knob.values.index(value)
    if count == 1:
        return value
    if knob.words:
        return knob.values[(place + 1 + int(rng.integers(count - 1))) % count]
    by = int(rng.geometric(0.5)) * int(rng.choice((-1, 1)))
    moved = place + by if 0 <= place + by < count else place - by
    return knob.values[min(max(moved, 0), count - 1)]
