"""Conversion of knobs to Optuna's distributions, and of distributions to knobs."""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from optuna import TrialPruned
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from dse.search.samplers import Values, value_at_place
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, IntervalKnob, Knob, order_by_dependency
from dse.space.multi_chip_space import AnySpace

MAX_CHOICES = 64
"""Values up to which a number with steps is a choice among them; with more it is an interval, whose values are rounded."""


def make_distribution(knob: Knob) -> BaseDistribution:
    """Optuna distribution of a knob.

    Options are categories, ordered numbers their places from 0, an interval is a float.

    >>> make_distribution(ChoiceKnob("mapping.both.tp", (4, 8, 16)))
    IntDistribution(high=2, log=False, low=0, step=1)
    """
    if isinstance(knob, IntervalKnob):
        return FloatDistribution(knob.low, knob.high, log=knob.log)
    return CategoricalDistribution(knob.values) if knob.words else IntDistribution(0, len(knob.values) - 1)


def distribution_of_values(knob: Knob) -> BaseDistribution:
    """The distribution that an export has of a knob: its values themselves, numbers as numbers.

    Whole ones that are evenly spaced have a step. Others lie within a range, on a log scale where each is the same multiple of
    the last.

    >>> distribution_of_values(ChoiceKnob("mapping.both.tp", (1, 2, 4, 8)))
    IntDistribution(high=8, log=True, low=1, step=1)
    >>> distribution_of_values(ChoiceKnob("chip.cores", (100, 150, 200)))
    IntDistribution(high=200, log=False, low=100, step=50)
    """
    if isinstance(knob, IntervalKnob) or knob.words:
        return make_distribution(knob)
    values = np.sort(np.asarray(knob.values, dtype=float))
    low, high, gaps = float(values[0]), float(values[-1]), np.diff(values)
    even = len(gaps) > 0 and np.allclose(gaps, gaps[0], rtol=1e-12)
    log = low > 0 and np.allclose(np.diff(np.log(values)), np.log(high / low) / max(len(gaps), 1))
    if all(isinstance(value, int) for value in knob.values):
        return IntDistribution(int(low), int(high), log=bool(log and not even), step=int(gaps[0]) if even else 1)
    return FloatDistribution(low, high, log=bool(log))  # a step of a float would be rounded


def knob_values(knobs: Sequence[Knob], params: Mapping[str, Any]) -> Values:
    """Values of knobs from parameters of `make_distribution`, of those that there are."""
    known = [knob for knob in knobs if knob.address in params]
    return {knob.address: value_at_place(knob, param) for knob, param in ((knob, params[knob.address]) for knob in known)}


def check_param(knob: Knob, param: Any) -> None:
    """Refuse a parameter that `make_distribution` of its knob has not.

    Raises:
        DesignError: likewise, with what the distribution has.
    """
    distribution = make_distribution(knob)
    if isinstance(distribution, CategoricalDistribution):
        if param not in distribution.choices:
            raise DesignError(f"{knob.address}: no parameter {param!r}; valid: {', '.join(map(str, distribution.choices))}")
        return
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high = distribution.low, distribution.high
    is_place = isinstance(distribution, IntDistribution)
    if not isinstance(param, Integral if is_place else Real) or not low <= float(param) <= high:
        what = "places of its values, whole numbers" if is_place else "numbers"
        raise DesignError(f"{knob.address}: no parameter {param!r}; valid: {what} from {low:g} to {high:g}")


def suggest_values(space: AnySpace, trial: Any, order: Sequence[Knob] | None = None) -> Values:
    """Values of a space's active knobs, suggested by an Optuna trial in the order of their conditions.

    Args:
        space: of the knobs.
        trial: of Optuna's.
        order: knobs after those that they depend on; found where it is not given.
    """
    values: Values = {}
    for knob in order_by_dependency(space.knobs) if order is None else order:
        if not space.active(knob.address, values):
            continue
        if isinstance(knob, IntervalKnob):
            values[knob.address] = trial.suggest_float(knob.address, knob.low, knob.high, log=knob.log)
        elif knob.words:
            values[knob.address] = trial.suggest_categorical(knob.address, knob.values)
        else:
            values[knob.address] = value_at_place(knob, trial.suggest_int(knob.address, 0, len(knob.values) - 1))
    return space.canonical(values)


def prune_trial() -> NoReturn:
    """End a trial of Optuna's without objectives."""
    raise TrialPruned


def make_knob(name: str, distribution: BaseDistribution) -> Knob:
    """Knob of a parameter: categories are options, numbers a choice or an interval.

    >>> make_knob("tp", IntDistribution(2, 8, step=2)).values
    (2, 4, 6, 8)
    """
    if isinstance(distribution, CategoricalDistribution):
        return ChoiceKnob(name, tuple(map(str, range(len(distribution.choices)))))
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None and (high - low) / step < MAX_CHOICES:
        count = round((high - low) / step) + 1
        return ChoiceKnob(name, tuple(param_of_value(distribution, low + place * step) for place in range(count)))
    return IntervalKnob(name, low, high, distribution.log) if high > low else ChoiceKnob(name, (low,))


def param_of_value(distribution: BaseDistribution, value: Any) -> Any:
    """A parameter from a knob's value, within the bounds and on a step."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(value)]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        value = low + round((value - low) / step) * step
    value = min(max(value, low), high)
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


def value_of_param(distribution: BaseDistribution, param: Any) -> Any:
    """Knob value from a parameter, whose value is brought into the bounds first."""
    if isinstance(distribution, CategoricalDistribution):
        return str(int(distribution.to_internal_repr(param)))
    return param_of_value(distribution, param)


def join_distributions(first: BaseDistribution, other: BaseDistribution) -> BaseDistribution:
    """Distribution with the bounds of both; Optuna refuses other differences than of bounds and steps."""
    if first == other or isinstance(first, CategoricalDistribution):
        return first
    if isinstance(first, IntDistribution) and isinstance(other, IntDistribution):
        step = 1 if first.log else math.gcd(first.step, other.step, first.low - other.low)
        return IntDistribution(min(first.low, other.low), max(first.high, other.high), log=first.log, step=step)
    assert isinstance(first, FloatDistribution)
    assert isinstance(other, FloatDistribution)
    low, high = min(first.low, other.low), max(first.high, other.high)
    same = first.step == other.step and first.low == other.low
    return FloatDistribution(low, high, log=first.log, step=first.step if same else None)
