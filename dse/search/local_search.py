"""Pareto local search with a surrogate model: neighbours of the front, most promising first.

No design is asked twice. An archive keeps the nondominated designs. Its members are moved, crossed and continued along the
lines between them; a model (`dse/search/acquisition.py`) chooses among such neighbours. There is no generation: an ask uses all
results so far.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dse.search.acquisition import HypervolumeAcquisition, KnownResults, LowFidelityPredictions
from dse.search.composed_objectives import PART_ASKS, PartResults
from dse.search.design_encoding import DesignEncoder
from dse.search.pareto import convert_to_minimisation
from dse.search.samplers import (
    Ask,
    Feedback,
    ObjectiveStructure,
    PossibleFilter,
    SearchSpace,
    Values,
    allow_all,
    count_active_knobs,
    generate_sobol_points,
)
from dse.space.array_math import Array

MAX_STEPS = 32
"""Times as far that the Sobol sequence of the first asks is looked through for possible designs."""

NEIGHBOURS = 200
"""Designs that the model chooses from."""

RANDOM_SHARE = 0.15
"""Share of them that come from the whole space."""

UNMODELLED_SHARE = 0.3
"""Share of plans that take any neighbour: what a model is wrong of it would not ask for."""

UNMODELLED_SHARE_OF_CHIPS = 0.15
"""The same of a space of several chips, where a neighbour is often of another chip."""

CANDIDATES_AHEAD = 32
"""The model is asked anew when it has learned one more result in so many: what it costs grows with the log of the asks."""


class LocalSearch:
    """A Pareto local search with a surrogate model.

    A design that breaks limits or constraints is in the archive only while none breaks them by less in sum.

    Args:
        space: what is searched.
        directions: "max" or "min" for each objective.
        seed: of the study.
        start: the most asks of a Sobol sequence to begin with; two and two for each knob that can be active at once do. Of
            several chips as many as a model needs do, and one of each chip: more would go to chips that are not worth it.
        possible: designs that are worth an ask.
        structure: what objectives are composed of; None where nothing is known of that.
    """

    designs = None
    _blind = UNMODELLED_SHARE

    def __init__(
        self,
        space: SearchSpace,
        directions: Sequence[str],
        seed: int,
        start: int,
        possible: PossibleFilter = allow_all,
        structure: ObjectiveStructure | None = None,
    ) -> None:
        knobs, self._active = len(space.knobs), count_active_knobs(space)
        self._possible = possible
        self._places = DesignEncoder(space)
        self._promise = HypervolumeAcquisition(self._places)
        self._directions = directions
        self._seed = seed
        self._structure = structure
        self._parts_of: list[Mapping[str, float]] = []
        self._factors_of: dict[str, list[float]] = {}
        enough = 2 * self._active + 2 if self._places.chips == 1 else max(self._active, self._places.chips)
        self._knobs, self._start_worker = knobs, min(start, enough)
        if self._places.chips > 1:
            self._blind = min(self._blind, UNMODELLED_SHARE_OF_CHIPS)
        self._asked: set[bytes] = set()
        self._waiting: dict[int, Array] = {}
        self._rows: list[Array] = []
        self._objectives_of: list[Array] = []
        self._excess: list[float] = []
        self._front: list[int] = []
        self._out: list[tuple[Array, float, int]] = []
        self._ahead: list[Values] = []

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Next design that was not asked before, if one is within reach."""
        marks: dict[str, Any] = {}
        if forced is not None:
            values = forced
        elif number < self._start_worker and number < len(self._first_points):
            values = self._places.decode_row(self._places.clear_inactive(self._first_points[number : number + 1])[0])
        else:
            if not self._ahead:
                self._ahead = [self._places.decode_row(row) for row in self._plan_rows(number)]
                marks = {"ahead": self._ahead[1:]} if len(self._ahead) > 1 else {}
            values = self._ahead.pop(0)
        ask = Ask(number, values, marks)
        self._note_ask(ask)
        return ask

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Add a result to the known ones, and to the archive if it is nondominated there."""
        row = self._waiting.pop(ask.number)
        excess = sum(max(0.0, value) for value in feedback.constraints.values())
        if feedback.objectives is None:
            if excess > 0:
                self._out.append((row, excess, len(self._rows)))
            return
        new = convert_to_minimisation(np.array([feedback.objectives]), self._directions)[0]
        least = self._excess[self._front[0]] if self._front else np.inf
        front = self._front if excess == least else []
        held = np.array([self._objectives_of[place] for place in front]).reshape(-1, len(new))
        if excess <= least and not (held <= new).all(axis=1).any():
            beaten = (new <= held).all(axis=1)
            self._front = [*(place for place, out in zip(front, beaten, strict=True) if not out), len(self._rows)]
        self._rows.append(row)
        self._parts_of.append(feedback.parts if np.isfinite([*feedback.parts.values()]).all() else {})
        self._objectives_of.append(new)
        self._excess.append(excess)

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Restore an ask of an earlier run with its result."""
        if "ahead" in ask.marks:
            self._ahead = list(ask.marks["ahead"])
        elif self._ahead and self._ahead[0] == ask.values:
            self._ahead.pop(0)
        self._note_ask(ask)
        if feedback is not None:
            self.tell(ask, feedback)

    def _note_ask(self, ask: Ask) -> None:
        self._waiting[ask.number] = row = self._places.encode_design(ask.values)
        self._asked.add(row.tobytes())

    def _plan_rows(self, number: int) -> Array:
        """Rows of the next asks."""
        rng = np.random.Generator(np.random.PCG64([self._seed, number]))
        near = self._neighbour_rows(rng)
        if self._has_few_results() or rng.random() < self._blind:
            return near[rng.integers(len(near), size=1)]
        known = KnownResults(
            np.array(self._rows),
            np.array(self._objectives_of),
            np.array(self._excess),
            self._front,
            np.array([row for row, _, _ in self._out]).reshape(-1, near.shape[1]),
            np.array([excess for _, excess, _ in self._out]),
            np.array([count for _, _, count in self._out]),
        )
        waiting = np.array(list(self._waiting.values())).reshape(-1, near.shape[1])
        at = np.concatenate([near, waiting])
        below = self._predict_below(known.rows, at)
        count = max(1, len(self._rows) // CANDIDATES_AHEAD)
        parts = self._part_results(known.rows, at) if number <= PART_ASKS else None
        return self._promise.choose_best(near, waiting, known, count, rng, below, parts)

    def _part_results(self, known: Array, at: Array) -> PartResults | None:
        """Parts of known results, and what is known without an evaluation; None where objectives have no composition."""
        structure = self._structure
        if structure is None or not any(structure.compositions):
            return None
        first = len(next(iter(self._factors_of.values()), []))
        for name, column in self._free_metrics(known[first:]).items():
            self._factors_of.setdefault(name, []).extend(column.tolist())
        names = dict.fromkeys(name for parts in self._parts_of for name in parts)
        return PartResults(
            structure.compositions,
            {name: np.array([parts.get(name, 0.0) for parts in self._parts_of]) for name in names},
            {name: np.array(column) for name, column in self._factors_of.items()},
            self._free_metrics(at),
            complete=all(self._parts_of),
        )

    def _free_metrics(self, rows: Array) -> Mapping[str, Array]:
        """Metrics of rows that are known without an evaluation, of those that compositions need."""
        structure = self._structure
        if structure is None or not len(rows) or not any(made and made.factors for made in structure.compositions):
            return {}
        return structure.free_metrics([self._places.decode_row(row) for row in rows])

    def _has_few_results(self) -> bool:
        """Whether there are too few results for a model of them: as many as active knobs, or fewer."""
        return len(self._rows) <= self._active

    def _predict_below(self, known: Array, at: Array) -> LowFidelityPredictions | None:
        """What a lower fidelity says of rows that are known, and of those that are looked at; None where there is none."""
        return None

    def _parent_rows(self) -> Array:
        """Rows that others are bred from."""
        return np.array([self._rows[place] for place in self._front])

    def _neighbour_rows(self, rng: np.random.Generator) -> Array:
        """Designs that were not asked, moved ever farther while there are few; where there is none, ones that were."""
        neighbours: dict[bytes, Array] = {}
        for attempt in range(8):
            rows = self._places.rows_at(rng.random((NEIGHBOURS, self._knobs)))
            if self._front:
                rows = np.where(
                    rng.random((NEIGHBOURS, 1)) < RANDOM_SHARE,
                    rows,
                    self._breed_rows(rows, 0.5 + attempt / 2, rng),
                )
            rows = self._places.clear_inactive(rows)
            names = [row.tobytes() for row in rows]
            new = {
                name: row for name, row in zip(names, rows, strict=True) if name not in self._asked and name not in neighbours
            }
            can = self._possible([self._places.decode_row(row) for row in new.values()])
            neighbours |= {name: row for (name, row), keeps in zip(new.items(), can, strict=True) if keeps}
            if len(neighbours) >= NEIGHBOURS // 4:
                break
        return np.array(list(neighbours.values()) or rows[:1])

    @cached_property
    def _first_points(self) -> Array:
        """The first asks, where nothing is forced; a search that goes on may need none."""
        return self._possible_first(self._knobs, self._start_worker)

    def _possible_first(self, knobs: int, start: int) -> Array:
        """The first possible designs of a Sobol sequence, as many of each chip; those of its beginning where none is."""
        size = 1 << (start - 1).bit_length()
        rows = self._places.spread_over_chips(self._places.rows_at(generate_sobol_points(knobs, 0, size, self._seed)))
        if self._possible is allow_all:
            return rows[:start]
        rows = self._places.rows_at(generate_sobol_points(knobs, 0, size * MAX_STEPS, self._seed))
        rows = self._places.spread_over_chips(rows)
        chips = self._places.chip_codes(rows)
        kept = np.zeros(0, dtype=int)
        for chunk in np.split(np.arange(len(rows)), range(size, len(rows), size)):
            can = self._possible([self._places.decode_row(row) for row in self._places.clear_inactive(rows[chunk])])
            kept = np.append(kept, chunk[np.array(can, dtype=bool)])
            if (np.bincount(chips[kept], minlength=self._places.chips) * self._places.chips >= start).all():
                break
        turns = np.array([np.count_nonzero(chips[kept[:place]] == chips[row]) for place, row in enumerate(kept)], dtype=int)
        kept = kept[np.argsort(turns, kind="stable")]
        return np.asarray(rows[kept[:start]] if len(kept) else rows[:start])

    def _breed_rows(self, rows: Array, moves: float, rng: np.random.Generator) -> Array:
        """Members moved in a knob, or in several together, crosses of two, and members continued along a line: each a quarter.

        Half of those that are no single moves are moved in a knob beside. `moves` is how many knobs more move, where more do.
        """
        count = len(rows)
        members = self._parent_rows()
        # knobs that do not count in a member take any value, so that a move that makes them count has one
        parents, two, three = (
            np.where(np.isnan(member), rows, member)
            for member in (members[rng.integers(len(members), size=count)] for _ in range(3))
        )
        kind = rng.integers(4, size=(count, 1))
        crossed = np.where(rng.random(rows.shape) < 0.5, two, parents)
        bred = np.where(
            kind == 1, crossed, np.where(kind == 2, self._places.differential_rows(parents, two, three, rng), parents)
        )
        bred = np.where(kind == 3, self._places.shifted_rows(parents, rng), bred)
        shares = moves / self._places.find_active(bred).sum(axis=1)
        shares = np.minimum(shares * rng.choice((0, 1, 3), count), 0.9)
        still = (kind > 0) & (rng.random((count, 1)) < 0.5)
        return np.where(still, bred, self._places.mutated_rows(bred, shares, rng))
