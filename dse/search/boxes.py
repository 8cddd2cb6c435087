"""Boxes of a design space: each fixes all options and gives some numbers ranges.

These numbers are the ones whose effect on time and silicon has a known direction (`dse.evaluators.accounting.leaf_effects`).
All other knobs are options: a box has one value of each. The range of a choice knob is given by places among its ascending
values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, Columns, IntervalKnob, Knob, Space, Value

MAX_OPTIONS = 2_000_000
"""Combinations of options of a space at most: each is a box to begin with."""

LEAST_RATE = 0.02
"""Least rate (change of the bound by logarithm of a range) of a number, over the largest rate of its box.

A split of a wide range may change nothing although later ones do, so that no number is left unsplit for ever.
"""

LEAST_SHARE = 1e-6
"""Share of the upper end of a range below which a lower end counts as this share, where a range is measured by logarithms."""


CORNERS = ("fastest", "smallest", "largest")
"""Corners of a box: where times are least, and where area, power and price are least and most."""


@dataclass(frozen=True)
class Direction:
    """Directions in which a number of a box has its corners.

    Attributes:
        fastest, smallest: 1 where the upper end is that of the fastest or of the smallest corner, -1 where the lower end is.
    """

    fastest: int
    smallest: int


@dataclass
class Boxes:
    """Boxes of a design space as arrays, one row a box.

    Attributes:
        option: combination of options, shape (boxes,).
        low, high: ends of ranges, values of intervals and places of choices, shape (boxes, numbers).
        bound: no design of the box is better in an objective; logarithms of objectives to be made small,
            shape (boxes, objectives).
        rate: change of the bound by logarithm of the range, as earlier splits had it; NaN unknown, shape (boxes, numbers).
        dropped: 0, or the place of the reason why no design of the box is feasible, and one; shape (boxes,).
        gap: by which the front may be beaten in the box, as a logarithm, shape (boxes,).
    """

    option: Array
    low: Array
    high: Array
    bound: Array
    rate: Array
    dropped: Array
    gap: Array

    def __len__(self) -> int:
        return len(self.option)

    def take(self, rows: Array) -> "Boxes":
        """Boxes of some rows, or of a mask."""
        return Boxes(*(getattr(self, spec.name)[rows] for spec in fields(self)))

    @staticmethod
    def concatenate(several: Sequence["Boxes"]) -> "Boxes":
        """Boxes of several arrays, one after the other."""
        return Boxes(*(np.concatenate([getattr(boxes, spec.name) for boxes in several]) for spec in fields(Boxes)))

    @property
    def is_point(self) -> Array:
        """Mask of boxes with one design, shape (boxes,)."""
        return np.asarray((self.low == self.high).all(axis=1))


class BoxSpace:
    """A design space that is divided into boxes.

    Args:
        space: of one chip.
        directions: by address of a leaf, for numbers with a known direction.
        objectives: number of objectives.

    Raises:
        DesignError: an interval without a direction, or too many combinations of options.
    """

    def __init__(self, space: Space, directions: Mapping[str, Direction], objectives: int) -> None:
        self.space, self.objectives = space, objectives
        named = {other for knob in space.knobs for other, _ in knob.when} | {
            other for knob in space.knobs for other, *_ in knob.read
        }
        tied = {leaf for expression in space.tied for leaf in expression.inputs}
        self.ranged: list[Knob] = []
        self.directions: list[Direction] = []
        for knob in space.knobs:
            leaves = space.targets[knob.address]
            effects = {directions.get(leaf) for leaf in leaves}
            direction = effects.pop() if len(effects) == 1 else None
            positive = isinstance(knob, IntervalKnob) or (not knob.words and min(knob.values) > 0 and len(knob.values) > 1)
            if direction is not None and positive and knob.address not in named and not tied & set(leaves):
                self.ranged.append(knob)
                self.directions.append(direction)
            elif isinstance(knob, IntervalKnob):
                why = "another setting is computed from it" if tied & set(leaves) else "its effect has no declared direction"
                raise DesignError(
                    f"space.{knob.address}: no bounds over an interval of it, as {why}; use choice(...) or range(...), or "
                    "another search"
                )
        self.values = [
            np.sort(np.asarray(knob.values, dtype=float)) if isinstance(knob, ChoiceKnob) else None for knob in self.ranged
        ]
        self.options, self.active = self._combine_options()
        self.thresholds: list[list[Array]] = [[np.zeros(0)] * len(self.ranged) for _ in range(len(self.active))]

    def _combine_options(self) -> tuple[Columns, Array]:
        """Different combinations of options: columns of their knobs, and which numbers count there."""
        others = [knob for knob in self.space.knobs if knob not in self.ranged]
        choices = [knob for knob in others if isinstance(knob, ChoiceKnob)]
        count = int(np.prod([len(knob.values) for knob in choices], dtype=float))
        if count > MAX_OPTIONS:
            raise DesignError(
                f"space: {count:,} combinations of options, of which each is a box to begin with; at most {MAX_OPTIONS:,} "
                "are bounded: fix some of them, or use another search"
            )
        index, codes = np.arange(count), dict[str, Array]()
        for knob in reversed(choices):
            index, codes[knob.address] = np.divmod(index, len(knob.values))
        for number in self.ranged:
            codes[number.address] = np.zeros(count, int) if isinstance(number, ChoiceKnob) else np.full(count, number.low)
        columns = self.space.columns_of_codes(codes)
        active = np.array([~np.isnan(columns[knob.address]) for knob in self.ranged], bool).reshape(len(self.ranged), count).T
        kept = {knob.address: columns[knob.address] for knob in choices}
        table = np.column_stack([*(np.nan_to_num(column, nan=-np.inf) for column in kept.values()), *active.T, np.zeros(count)])
        _, first = np.unique(table, axis=0, return_index=True)
        first = np.sort(first)
        return {address: column[first] for address, column in kept.items()}, active[first]

    @cached_property
    def numbers(self) -> int:
        """Number of knobs that have ranges."""
        return len(self.ranged)

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper end of each number in the whole space, shape (numbers,) each."""
        low = [0.0 if isinstance(knob, ChoiceKnob) else knob.low for knob in self.ranged]
        high = [len(knob.values) - 1.0 if isinstance(knob, ChoiceKnob) else knob.high for knob in self.ranged]
        return np.array(low, float), np.array(high, float)

    def whole_boxes(self) -> Boxes:
        """A box for each combination of options, with all numbers in their whole ranges."""
        count, (low, high) = len(self.active), self.ends
        lows = np.broadcast_to(low, (count, self.numbers)).copy()
        highs = np.where(self.active, high, low)
        return self.make(np.arange(count, dtype=np.int32), lows, highs, np.full((count, self.numbers), np.nan))

    def make(self, option: Array, low: Array, high: Array, rate: Array) -> Boxes:
        """Boxes of which no bound is known."""
        count = len(option)
        return Boxes(
            option,
            low,
            high,
            np.full((count, self.objectives), -np.inf),
            rate,
            np.zeros(count, np.int16),
            np.full(count, np.inf),
        )

    def corner(self, boxes: Boxes, which: str) -> Array:
        """Ends of ranges at one of `CORNERS`, shape (boxes, numbers)."""
        place, sign = (0, 1) if which == "fastest" else (1, 1 if which == "smallest" else -1)
        upper = np.array([sign * (direction.fastest, direction.smallest)[place] > 0 for direction in self.directions], bool)
        return np.where(upper, boxes.high, boxes.low)

    def columns(self, option: Array, places: Array) -> Columns:
        """Columns of designs that are given by options and places.

        Args:
            option: combination of options of each, shape (designs,).
            places: values of intervals and places of choices, shape (designs, numbers).
        """
        columns = {address: column[option] for address, column in self.options.items()}
        for place, knob in enumerate(self.ranged):
            columns[knob.address] = np.where(self.active[option, place], self._numbers(place, places[:, place]), np.nan)
        return {knob.address: columns[knob.address] for knob in self.space.knobs}

    def _numbers(self, place: int, at: Array) -> Array:
        values = self.values[place]
        return at if values is None else values[at.astype(int)]

    def locate(self, values: Mapping[str, Value]) -> tuple[int, Array] | None:
        """Options and places of a design given by its active knobs; None if it is not in the space."""
        matches = np.ones(len(self.active), bool)
        for address, column in self.options.items():
            knob = self.space.knob(address)
            assert isinstance(knob, ChoiceKnob)
            if address not in values:
                matches &= column < 0 if knob.words else np.isnan(column)
            elif values[address] not in knob.values:
                return None
            else:
                matches &= column == (knob.values.index(values[address]) if knob.words else float(values[address]))
        low, _ = self.ends
        places = low.copy()
        for place, knob in enumerate(self.ranged):
            present = knob.address in values
            matches &= self.active[:, place] == present
            if not present:
                continue
            value, own = float(values[knob.address]), self.values[place]
            if own is None:
                assert isinstance(knob, IntervalKnob)
                if not knob.low <= value <= knob.high:
                    return None
                places[place] = value
            elif value not in own:
                return None
            else:
                places[place] = float(np.searchsorted(own, value))
        rows = np.flatnonzero(matches)
        return (int(rows[0]), places) if len(rows) else None

    def log_ranges(self, boxes: Boxes) -> Array:
        """Logarithms of upper over lower ends of ranges, shape (boxes, numbers); 0 of a point."""
        ranges = np.zeros((len(boxes), self.numbers))
        for place in range(self.numbers):
            low, high = (self._numbers(place, side[:, place]) for side in (boxes.low, boxes.high))
            ranges[:, place] = np.log(high / np.maximum(low, LEAST_SHARE * high))
        return ranges

    def split(self, boxes: Boxes) -> tuple[Boxes, Array, Array]:
        """Both halves of boxes that have more than one design: lower halves, then upper ones.

        The number that is split is the one with most change of the bound, as splits of boxes around had it; one that was not
        split yet comes first, by its range. Where times jump at a value within the range, the upper half begins there.

        Returns:
            The halves, the number that was split, and the logarithm of its range, shape (boxes,) each.
        """
        ranges = self.log_ranges(boxes)
        unknown = np.isnan(boxes.rate)
        floor = LEAST_RATE * np.max(np.where(unknown, 0.0, boxes.rate), axis=1, keepdims=True, initial=0.0) + 1e-12
        score = np.where(unknown, 1e9 + ranges, np.maximum(boxes.rate, floor) * ranges)
        score[boxes.low == boxes.high] = -np.inf
        chosen = score.argmax(axis=1)
        rows = np.arange(len(boxes))
        ends, begins = boxes.high.copy(), boxes.low.copy()
        for place in range(self.numbers):
            mine = np.flatnonzero(chosen == place)
            if len(mine):
                ends[mine, place], begins[mine, place] = self._halves(boxes.take(mine), place)
        low = self.make(boxes.option, boxes.low, ends, boxes.rate)
        high = self.make(boxes.option, begins, boxes.high, boxes.rate)
        return Boxes.concatenate([low, high]), chosen, ranges[rows, chosen]

    def _halves(self, boxes: Boxes, place: int) -> tuple[Array, Array]:
        """Upper ends of the lower halves, and lower ends of the upper halves, of one number."""
        low, high, values = boxes.low[:, place], boxes.high[:, place], self.values[place]
        if values is not None:
            middle = np.sqrt(values[low.astype(int)] * values[high.astype(int)])
            last = np.clip(np.searchsorted(values, middle, side="right") - 1.0, low, high - 1)
            return last, last + 1
        middle = np.where(low > 0, np.sqrt(np.maximum(low, 0.0) * high), (low + high) / 2)
        ends, begins = middle, middle
        outside = (middle <= low) | (middle >= high)  # of neighbouring numbers each is a box
        ends, begins = np.where(outside, low, ends), np.where(outside, np.nextafter(low, np.inf), begins)
        for option in np.unique(boxes.option):
            jumps = self.thresholds[option][place]
            if not len(jumps):
                continue
            mine = np.flatnonzero(boxes.option == option)
            first, last = np.searchsorted(jumps, low[mine], side="right"), np.searchsorted(jumps, high[mine], side="right")
            mine, first, last = mine[first < last], first[first < last], last[first < last]
            near = np.clip(np.searchsorted(jumps, middle[mine]), first, last - 1)
            before = np.maximum(near - 1, first)
            nearer = abs(np.log(jumps[before] / middle[mine])) < abs(np.log(jumps[near] / middle[mine]))
            jump = jumps[np.where(nearer, before, near)]
            begins[mine], ends[mine] = jump, np.nextafter(jump, 0.0)
        return ends, begins
