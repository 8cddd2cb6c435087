"""Branch and bound over boxes of a design space, until none may beat the front by more than a gap.

Objectives are logarithms of what is made small (of what is maximised, with the sign changed), so that a share by which a design
beats another one is a difference. The gap of a box is the least, over the members of the front, of the largest share over the
objectives by which the box's bound is better than the member. A box closes when its gap is at most the wanted one: each of its
designs then beats some member by no more than that in any objective. The box with the largest gap is split first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dse.search.boxes import Boxes, BoxSpace
from dse.search.pareto import front_mask
from dse.space.array_math import Array

BATCH_BOXES = 4_096
"""Boxes that are bounded at a time."""

CELLS = {1: 20.0, 2: 20.0}
MANY_OBJECTIVES_CELLS = 3.0
"""Cells of the front in a gap, by number of objectives: of members of the front in one cell, one is kept."""

ROUNDING = 1e-9
"""By which bounds may be off, as a share: designs that equal a member to so many digits do not beat it."""

CHUNK = 1 << 22
"""Numbers of an array at most, where boxes are compared with members one by one."""

BoundFunction = Callable[[Boxes], tuple[Array, Array]]
"""Bounds of boxes, shape (boxes, objectives), and why they have no feasible design, 0 where they may; shape (boxes,)."""

EvaluateFunction = Callable[[Array, Array], tuple[Array, Array]]
"""Objectives of designs given by options and places, shape (designs, objectives), and whether they are feasible."""


@dataclass
class IncumbentFront:
    """Feasible designs that no other of them beats.

    Attributes:
        cell: size of the cells in which one member is kept, as a logarithm; 0 for all.
        values: objectives, shape (members, objectives).
        option, places: of each member, as of `BoxSpace.columns`.
    """

    cell: float
    values: Array
    option: Array
    places: Array

    def add(self, values: Array, option: Array, places: Array) -> None:
        """Add designs that no member matches up to a cell; of designs of one cell, the one with the least sum."""
        left = self.gaps(values) > self.cell if len(self.values) else np.ones(len(values), bool)
        if not left.any():
            return
        rows = np.flatnonzero(left)
        if self.cell > 0:
            cells = np.floor(values[rows] / self.cell)
            order = np.lexsort((values[rows].sum(axis=1), *cells.T))
            keys = cells[order]
            first = np.ones(len(rows), bool)
            first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
            rows = rows[order[first]]
        every = np.concatenate([self.values, values[rows]])
        kept = front_mask(every, ["min"] * every.shape[1])
        self.values = every[kept]
        self.option = np.concatenate([self.option, option[rows]])[kept]
        self.places = np.concatenate([self.places, places[rows]])[kept]
        if self.values.shape[1] == 2:
            order = np.argsort(self.values[:, 0], kind="stable")
            self.values, self.option, self.places = self.values[order], self.option[order], self.places[order]

    def gaps(self, bounds: Array) -> Array:
        """Share by which bounds beat the member that they beat least, as a logarithm, shape (bounds,)."""
        if not len(self.values):
            return np.full(len(bounds), np.inf)
        if self.values.shape[1] == 2:
            # members by the first objective: what the second lacks shrinks, what the first lacks grows, and they cross once
            with np.errstate(invalid="ignore"):  # boxes without a bound in either: their gap is infinite with any member
                apart = bounds[:, 0] - bounds[:, 1]
            near = np.searchsorted(self.values[:, 0] - self.values[:, 1], apart)
            sides = (np.clip(near - 1, 0, None), np.clip(near, None, len(self.values) - 1))
            before, after = ((self.values[side] - bounds).max(axis=1) for side in sides)
            return np.asarray(np.minimum(before, after))
        gaps = np.empty(len(bounds))
        step = max(CHUNK // self.values.size, 1)
        for start in range(0, len(bounds), step):
            part = bounds[start : start + step]
            worst = self.values[:, 0] - part[:, :1]
            for objective in range(1, self.values.shape[1]):
                np.maximum(worst, self.values[:, objective] - part[:, objective : objective + 1], out=worst)
            gaps[start : start + step] = worst.min(axis=1)
        return gaps

    def nearest(self, bound: Array) -> int:
        """Member that a bound beats least."""
        return int((self.values - bound).max(axis=1).argmin())


@dataclass
class BoxSearch:
    """A branch and bound under way: its front, open boxes, and those that are closed or dropped.

    Attributes:
        space: of boxes.
        bound, evaluate: as of their types.
        front: the incumbents.
        gap: at which boxes close, as a logarithm.
        open: boxes that may have a design which beats the front by more.
        closed: all other boxes, which together with the open ones cover the space.
        boxes: number of those that were bounded.
        designs: number of those that were evaluated.
    """

    space: BoxSpace
    bound: BoundFunction
    evaluate: EvaluateFunction
    front: IncumbentFront
    gap: float
    open: Boxes = field(init=False)
    closed: list[Boxes] = field(default_factory=list)
    boxes: int = 0
    designs: int = 0

    def begin(self) -> None:
        """Bound the whole space, a box for each combination of options."""
        self.open = self.space.make(*self._nothing())
        whole = self.space.whole_boxes()
        for start in range(0, len(whole), BATCH_BOXES):
            boxes = whole.take(np.arange(start, min(start + BATCH_BOXES, len(whole))))
            self._evaluate_corners(boxes, np.ones((2, len(boxes)), bool))
            self._bound(boxes)
            self._sort(boxes)

    def resume(self, leaves: Boxes) -> None:
        """Take up leaves of an earlier search: boxes that are not closed at this gap are open again.

        A box of one design is not split: its design joins the front again, which a wider gap may have left out.
        """
        points = np.flatnonzero(leaves.is_point & (leaves.dropped == 0))
        points = points[self.front.gaps(leaves.bound[points]) > self.gap + ROUNDING]
        self._evaluate_corners(leaves.take(points), np.ones((2, len(points)), bool))
        leaves.gap = np.where(leaves.dropped > 0, -np.inf, self.front.gaps(leaves.bound))
        self.open, self.closed = self.space.make(*self._nothing()), []
        self._sort(leaves)

    def _nothing(self) -> tuple[Array, Array, Array, Array]:
        numbers = np.zeros((0, self.space.numbers))
        return np.zeros(0, np.int32), numbers, numbers, numbers

    @property
    def largest_gap(self) -> float:
        """By which a design of the space may beat the front, as a logarithm."""
        if not len(self.open):
            return self.gap
        return float(max(self.front.gaps(self.open.bound).max(), self.gap))

    @property
    def leaves(self) -> Boxes:
        """Boxes that cover the space, each design once but for ends that two boxes share."""
        return Boxes.concatenate([*self.closed, self.open])

    def step(self) -> None:
        """Split the boxes with the largest gaps, and bound their halves."""
        many = BATCH_BOXES // 2
        chosen = np.zeros(len(self.open), bool)
        chosen[np.argpartition(-self.open.gap, many)[:many] if len(self.open) > many else ...] = True
        boxes, self.open = self.open.take(chosen), self.open.take(~chosen)
        boxes.gap = self.front.gaps(boxes.bound)
        done = self._is_closed(boxes)
        if done.any():
            self.closed.append(boxes.take(done))
            boxes = boxes.take(~done)
        if not len(boxes):
            return
        halves, number, log_range = self.space.split(boxes)
        rows = np.arange(len(boxes))
        moved = np.array(
            [
                [self._is_new(boxes, halves.take(half), number, which) for half in (rows, rows + len(boxes))]
                for which in ("fastest", "smallest")
            ]
        ).reshape(2, -1)
        self._evaluate_corners(halves, moved)
        self._bound(halves)
        change = np.maximum(halves.bound - np.tile(boxes.bound, (2, 1)), 0.0).sum(axis=1)
        change = np.where(halves.dropped > 0, np.minimum(np.tile(boxes.gap, 2), 1.0), change)  # which closes the gap of a half
        rate = boxes.rate.copy()
        rate[rows, number] = change.reshape(2, -1).mean(axis=0) / log_range
        halves.rate = np.tile(rate, (2, 1))
        self._sort(halves)

    def _is_new(self, boxes: Boxes, halves: Boxes, number: Array, which: str) -> Array:
        """Whether a corner of halves is none of the boxes that were split."""
        rows = np.arange(len(boxes))
        return np.asarray(self.space.corner(boxes, which)[rows, number] != self.space.corner(halves, which)[rows, number])

    def _evaluate_corners(self, boxes: Boxes, wanted: Array) -> None:
        """Evaluate corners as designs; the only design of a box is its bound, or rules it out.

        Args:
            boxes: whose bounds are not known yet.
            wanted: of the fastest and of the smallest corners, which ones; shape (2, boxes).
        """
        points = boxes.is_point
        fastest, smallest = self.space.corner(boxes, "fastest"), self.space.corner(boxes, "smallest")
        rows = [np.flatnonzero(wanted[0] | points), np.flatnonzero(wanted[1] & ~points)]
        option = np.concatenate([boxes.option[rows[0]], boxes.option[rows[1]]])
        places = np.concatenate([fastest[rows[0]], smallest[rows[1]]])
        if not len(option):
            return
        values, feasible = self.evaluate(option, places)
        self.designs += len(option)
        self.front.add(values[feasible], option[feasible], places[feasible])
        first = rows[0]
        alone = points[first]
        boxes.bound[first[alone]] = values[: len(first)][alone]
        boxes.dropped[first[alone]] = np.where(feasible[: len(first)][alone], 0, 1)

    def _bound(self, boxes: Boxes) -> None:
        """Bound boxes of several designs; a bound of a part is at least that of the whole, which it may round differently."""
        self.boxes += len(boxes)
        several = np.flatnonzero(~boxes.is_point)
        if len(several):
            boxes.bound[several], boxes.dropped[several] = self.bound(boxes.take(several))

    def _sort(self, boxes: Boxes) -> None:
        """Add boxes to those that are open, or closed."""
        boxes.gap = np.where(boxes.dropped > 0, -np.inf, self.front.gaps(boxes.bound))
        done = self._is_closed(boxes)
        self.closed.append(boxes.take(done))
        self.open = Boxes.concatenate([self.open, boxes.take(~done)])

    def _is_closed(self, boxes: Boxes) -> Array:
        return np.asarray(boxes.gap <= self.gap + ROUNDING)

    def run(self, progress: Callable[[], None], *, seconds: float | None = None, boxes: int | None = None) -> str:
        """Split boxes until all are closed; returns what ended this before, as text, empty if nothing did.

        Args:
            progress: called after each batch.
            seconds: after which to end. [s]
            boxes: that may be bounded in all.
        """
        start = time.monotonic()
        while len(self.open):
            if seconds is not None and time.monotonic() - start > seconds:
                return "time"
            if boxes is not None and self.boxes >= boxes:
                return "boxes"
            self.step()
            progress()
        return ""
