"""Encoding of designs as rows of numbers, one per knob, for vectorised moves and comparisons."""

from typing import Any

import numpy as np

from dse.search.samplers import SearchSpace, Values, value_at_unit
from dse.space.array_math import Array
from dse.space.knobs import ChoiceKnob, IntervalKnob, Knob, active_rows

INACTIVE = np.sqrt(0.5)
"""Coordinate of a number that is inactive: as far from one in the middle as an option is from having none."""


class DesignEncoder:
    """Encoder of a space's designs: the index of a choice, a number from 0 to 1 of an interval.

    NaN where a knob is inactive.

    Args:
        space: whose designs they are.

    Attributes:
        groups: the knob that a feature is of, shape (features,).
        chips: how many chips the space has.
        numbers: features of numbers, in which a trend may be linear, shape (features,).
    """

    def __init__(self, space: SearchSpace) -> None:
        self._knobs = space.knobs
        self._index = {knob.address: i for i, knob in enumerate(space.knobs)}
        self._counts = np.array([len(knob.values) if isinstance(knob, ChoiceKnob) else 0 for knob in space.knobs])
        self._words = np.array([isinstance(knob, ChoiceKnob) and knob.words for knob in space.knobs])
        self._codes = [
            {value: i for i, value in enumerate(knob.values)} if isinstance(knob, ChoiceKnob) else {} for knob in space.knobs
        ]
        self._base_spaces = [
            ([(self._index[address], self._codes[self._index[address]][value]) for address, value in selected.items()], member)
            for selected, member in space.base_spaces
        ]
        self.chips = len(self._base_spaces)
        self._may_rest = np.array([bool(knob.when or knob.read) for knob in space.knobs])
        each = zip(self._counts, self._words, self._may_rest, strict=True)
        wide = [int(count) if words and count > 1 else 1 + may_rest for count, words, may_rest in each]
        self._scales = [_scale(knob) for knob in space.knobs]
        self.groups = np.repeat(np.arange(len(wide)), wide)
        first = np.diff(self.groups, prepend=-1) > 0
        self.numbers = first & ~(self._words | (self._counts == 1))[self.groups]

    def encode_design(self, values: Values) -> Array:
        """Encoded row of a design, shape (knobs,)."""
        row = np.full(len(self._knobs), np.nan)
        for address, value in values.items():
            i = self._index[address]
            knob = self._knobs[i]
            row[i] = knob.unit(value) if isinstance(knob, IntervalKnob) else self._codes[i][value]
        return row

    def decode_row(self, row: Array) -> Values:
        """Knob values of an encoded row."""
        return {
            knob.address: knob.values[int(place)] if isinstance(knob, ChoiceKnob) else value_at_unit(knob, float(place))
            for knob, place in zip(self._knobs, row, strict=True)
            if place == place
        }

    def rows_at(self, unit: Array) -> Array:
        """Rows from points of the unit cube, shape (designs, knobs), every knob active."""
        return np.where(self._counts > 0, np.minimum(np.floor(unit * self._counts), self._counts - 1), unit)

    def clear_inactive(self, rows: Array) -> Array:
        """The same rows with NaN where a knob is inactive."""
        return np.where(self.find_active(rows), rows, np.nan)

    def chip_codes(self, rows: Array) -> Array:
        """Which of the space's chips each row is of, from 0, shape (designs,)."""
        return rows[:, 0].astype(int) if self.chips > 1 else np.zeros(len(rows), dtype=int)

    def spread_over_chips(self, rows: Array) -> Array:
        """The same rows with one of each chip in turn; unchanged in a space of one chip."""
        if self.chips > 1:
            rows = rows.copy()
            rows[:, 0] = np.arange(len(rows)) % self.chips
        return rows

    def find_active(self, rows: Array) -> Array:
        """Whether each knob is active in rows with a value for every knob, shape (designs, knobs).

        The conditions are those of a row's own chip, as chips may differ in what they read.
        """
        if not self._may_rest.any():
            return np.ones(rows.shape, dtype=bool)
        active = np.zeros(rows.shape, dtype=bool)
        for selected, space in self._base_spaces:
            own = np.ones(len(rows), dtype=bool)
            for i, code in selected:
                own &= rows[:, i] == code
                active[own, i] = True
            part = rows[own]

            def match_allowed_rows(knob: Knob, allowed: tuple[Any, ...], part: Array = part) -> Array:
                i = self._index[knob.address]
                return np.isin(part[:, i], [self._codes[i][value] for value in allowed])

            if len(part):
                for address, is_active in active_rows(space.knobs, match_allowed_rows).items():
                    active[own, self._index[address]] = is_active
        return active

    def mutated_rows(self, rows: Array, share: Array, rng: np.random.Generator) -> Array:
        """Rows with one or more knobs at another value: any other option, or a number some steps away.

        Args:
            rows: a value for every knob, shape (designs, knobs); only active knobs move.
            share: of the knobs that move beside the first, shape (designs,). A step beyond a knob's values is turned
                round, and cut off where it is beyond them there too, so that a few rows stay as they are.
            rng: of this ask.
        """
        shape = rows.shape
        movable = self.find_active(rows) & (self._counts != 1)
        move = rng.random(shape) < share[:, None]
        first = rng.integers(0, np.maximum(movable.sum(axis=1), 1))
        move |= movable.cumsum(axis=1) == first[:, None] + 1
        by = rng.geometric(0.5, shape) * rng.choice((-1, 1), shape)
        top = self._counts - 1
        other_rows = rows + by
        other_rows = np.clip(np.where((other_rows < 0) | (other_rows > top), rows - by, other_rows), 0, np.maximum(top, 0))
        if self._words.any():
            other = (rows + 1 + np.floor(rng.random(shape) * np.maximum(top, 1))) % np.maximum(self._counts, 1)
            other_rows = np.where(self._words, other, other_rows)
        if not self._counts.all():
            near = np.clip(rows + rng.normal(size=shape) * 10 ** rng.uniform(-3, -0.5, shape), 0, 1)
            other_rows = np.where(self._counts == 0, near, other_rows)
        return np.where(move & movable, other_rows, rows)

    def differential_rows(self, rows: Array, two: Array, three: Array, rng: np.random.Generator) -> Array:
        """Rows moved by the difference of two other rows, or by half of it; options stay.

        Every knob is active.
        """
        by = (two - three) * rng.choice((0.5, 1.0), (len(rows), 1))
        moved_rows = np.where(self._counts > 0, np.floor(rows + by + 0.5), rows + by)
        return np.where(self._words, rows, np.clip(moved_rows, 0, np.where(self._counts > 0, self._counts - 1, 1)))

    def shifted_rows(self, rows: Array, rng: np.random.Generator) -> Array:
        """Rows with several numbers moved by one share of their ranges; options stay. Every knob active.

        Some knobs only help together, such as a region and the mesh below it.
        """
        by = 10 ** rng.uniform(-1.3, -0.3, (len(rows), 1)) * rng.choice((-1, 1), (len(rows), 1))
        top = np.maximum(self._counts - 1, 0)
        steps = np.sign(by) * np.floor(np.abs(by) * top + rng.random(rows.shape))
        moved_rows = np.where(self._counts > 0, np.clip(rows + steps, 0, top), np.clip(rows + by, 0, 1))
        return np.where((rng.random(rows.shape) < 0.6) & ~self._words, moved_rows, rows)

    def compute_features(self, rows: Array) -> Array:
        """Features of rows from 0 to 1, one coordinate per option; shape (designs, features).

        See `_scale`. Designs where a knob is inactive do not differ in it; they are as far from those where it is active as
        the ends of its values are from the middle, and farther: a number that may be inactive has a coordinate for that.
        """
        columns = []
        each = zip(rows.T, self._counts, self._words, self._scales, self._may_rest, strict=True)
        for column, count, words, scale, may_rest in each:
            if words and count > 1:
                columns += [(column == place) * np.sqrt(0.5) for place in range(count)]
                continue
            known, rests = np.nan_to_num(column), np.isnan(column)
            columns.append(np.where(rests, 0.5, scale[known.astype(int)] if count else known))
            if may_rest:
                columns.append(rests * INACTIVE)
        return np.column_stack(columns)


def _scale(knob: Knob) -> Array:
    """Where the values of a choice are between the least and the largest, logs over logs where all are above 0."""
    if isinstance(knob, IntervalKnob) or knob.words:
        return np.zeros(1)
    values = np.asarray(knob.values, dtype=float)
    values = np.log(values) if (values > 0).all() else np.argsort(np.argsort(values)).astype(float)
    scale: Array = (values - values.min()) / (np.ptp(values) or 1.0)
    return scale
