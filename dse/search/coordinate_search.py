"""Short search over mappings of many dies: the division of dies first, then one knob at a time.

For spaces whose grid is too large to evaluate whole. It does not search to convergence: a study does that.
"""

import math
from collections.abc import Callable, Sequence
from itertools import compress, product

from dse.search.samplers import PossibleFilter, Values
from dse.space.knobs import ChoiceKnob

DIVIDE = ("mapping.both.tp", "mapping.both.pp", "mapping.both.ep")
"""Knobs that are looked at together: their product is what dies there are for."""

COPIES = "mapping.both.dp"
"""That has the first value which is possible with them; its last one asks for least."""

BEST = 6
"""Designs on which the other knobs are tried."""

AGAIN = 2
"""The same when all knobs are tried once more."""

ScoreFunction = Callable[[Sequence[Values]], list[float]]
"""What designs are worth, more being better; not a number where one is infeasible."""


def run_coordinate_search(knobs: Sequence[ChoiceKnob], possible: PossibleFilter, score: ScoreFunction) -> None:
    """Scores of designs of a space that keep early limits, by coordinate search.

    Args:
        knobs: of the space.
        possible: whether designs keep what is known before they are evaluated.
        score: evaluates designs, those that it knows for nothing.
    """
    best = _best_feasible(_divided_designs(knobs, possible), BEST, score)
    for knob in (knob for knob in knobs if knob.address not in DIVIDE):
        best = _try_values(knob, best, BEST, possible, score)
    for knob in knobs:
        best = _try_values(knob, best[:AGAIN], AGAIN, possible, score)


def _divided_designs(knobs: Sequence[ChoiceKnob], possible: PossibleFilter) -> list[Values]:
    """Ways to divide dies that are possible, all else as it is set."""
    several = [knob for knob in knobs if knob.address in DIVIDE]
    copies = next((knob.values for knob in knobs if knob.address == COPIES), ())
    chosen_values: list[Values] = []
    for values in product(*(knob.values for knob in several)):
        base_values = {knob.address: value for knob, value in zip(several, values, strict=True)}
        tried: list[Values] = [{**base_values, COPIES: value} for value in copies] or [base_values]
        can = possible(tried)
        if can[-1]:
            chosen_values.append(next(compress(tried, can)))
    return chosen_values


def _try_values(
    knob: ChoiceKnob, best: Sequence[Values], most: int, possible: PossibleFilter, score: ScoreFunction
) -> list[Values]:
    """The best of some designs and of those with any value of a knob instead."""
    others = [{**values, knob.address: value} for values in best for value in knob.values]
    return _best_feasible([*best, *compress(others, possible(others))], most, score)


def _best_feasible(designs: Sequence[Values], most: int, score: ScoreFunction) -> list[Values]:
    """The best that are feasible, each once."""
    worth = [(score_, values) for score_, values in zip(score(designs), designs, strict=True) if not math.isnan(score_)]
    unique_values: list[Values] = []
    for _, values in sorted(worth, key=lambda pair: -pair[0]):
        if values not in unique_values:
            unique_values.append(values)
    return unique_values[:most]
