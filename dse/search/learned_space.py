"""Space of a search whose knobs and conditions are learned from designs that somebody else proposed.

In define-by-run, no one states the space: a program asks for one value after the other, and which it asks for depends on the
values so far. Each design shows only the knobs that it has. This module depends on no library; `optuna_local_sampler` uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.knobs import ChoiceKnob, Knob


@dataclass(frozen=True, slots=True)
class LearnedSpace:
    """Knobs of designs that were seen, with learned conditions.

    Attributes:
        knobs: in the order in which they were seen first; `when` of a conditional one is learned.
        unexplained: addresses of knobs that some designs lack for another reason than the value of a choice.
    """

    knobs: tuple[Knob, ...]
    unexplained: frozenset[str] = frozenset()

    @property
    def base_spaces(self) -> tuple[tuple[dict[str, Any], "LearnedSpace"], ...]:
        """The space itself, in which nothing is chosen beforehand."""
        return (({}, self),)

    def contradicts(self, values: Mapping[str, Any]) -> bool:
        """Whether a design has other active knobs than the conditions give, unexplained knobs aside."""
        active = {knob.address for knob in self.knobs if all(values.get(other) in allowed for other, allowed in knob.when)}
        return not values.keys() <= active or not active - values.keys() <= self.unexplained


def learn_space(knobs: Sequence[Knob], designs: Sequence[Mapping[str, Any]]) -> LearnedSpace:
    """Space with the fewest conditions that explain which knobs each design has.

    A knob can depend on a choice that all designs with the knob have, and some without it have too. It is then active under
    the choice's values that were seen with it, and under those that were not seen at all. The choice that explains most of the
    designs without the knob is taken first, then others, until all are explained or no choice explains more.

    Args:
        knobs: without conditions.
        designs: values by knob of each design; of a choice, one of its values.

    >>> layers, width = ChoiceKnob("layers", (1, 2)), ChoiceKnob("width", (8, 16))
    >>> learn_space([layers, width], [{"layers": 1}, {"layers": 2, "width": 8}]).knobs[1].when
    (('layers', (2,)),)
    """
    codes = _value_codes(knobs, designs)
    present = codes >= 0
    learned, unexplained = [], set[str]()
    for place, knob in enumerate(knobs):
        when, open_rows = _conditions(knobs, codes, present, place)
        learned.append(replace(knob, when=when))
        if open_rows:
            unexplained.add(knob.address)
    return LearnedSpace(tuple(learned), frozenset(unexplained))


def _conditions(
    knobs: Sequence[Knob], codes: Array, present: Array, place: int
) -> tuple[tuple[tuple[str, tuple[Any, ...]], ...], bool]:
    """Conditions of a knob, and whether designs without it are left that no condition explains."""
    mine = present[:, place]
    missing = ~mine
    explaining = dict[int, tuple[Array, tuple[Any, ...]]]()
    for other, knob in enumerate(knobs):
        # those that always come with a knob, and never without it, do not choose it; so no two depend on each other
        if not isinstance(knob, ChoiceKnob) or not (mine <= present[:, other]).all() or present[:, other].sum() == mine.sum():
            continue
        without = np.zeros(len(knob.values), dtype=bool)
        without[codes[missing & present[:, other], other]] = True
        without[codes[mine, other]] = False
        excluded = missing & (~present[:, other] | without[codes[:, other]])
        if without.any():
            explaining[other] = excluded, tuple(value for value, out in zip(knob.values, without, strict=True) if not out)
    when = []
    while missing.any() and explaining:
        best = max(explaining, key=lambda other: ((missing & explaining[other][0]).sum(), present[:, other].sum(), -other))
        excluded, allowed = explaining.pop(best)
        if not (missing & excluded).any():
            break
        missing = missing & ~excluded
        when.append((knobs[best].address, allowed))
    return tuple(when), bool(missing.any())


def _value_codes(knobs: Sequence[Knob], designs: Sequence[Mapping[str, Any]]) -> Array:
    """Place of each value among those of its choice, 0 of an interval, -1 of an absent knob; shape (designs, knobs)."""
    places = {
        knob.address: {value: code for code, value in enumerate(knob.values)} if isinstance(knob, ChoiceKnob) else None
        for knob in knobs
    }
    column = {knob.address: i for i, knob in enumerate(knobs)}
    codes = np.full((len(designs), len(knobs)), -1)
    for row, values in zip(codes, designs, strict=True):
        for address, value in values.items():
            known = places[address]
            row[column[address]] = 0 if known is None else known[value]
    return codes
