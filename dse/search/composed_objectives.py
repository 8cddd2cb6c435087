"""Targets of surrogate models: parts that objectives are composed of, else objectives.

A part is, for example, the time of decode that main memory bounds. It depends on fewer knobs than an objective, in a simpler
way: bytes over a bandwidth are a power law, and their sum with operations over a rate is not. So each part has a Gaussian
process of its own, on its logarithm. The objective's mean and standard deviation follow from the composition [astudillo2019].

What parts do not explain is a target too: the logarithm of the objective over its composition. An example is the time that
overlap saves, which is negative and has no logarithm itself. Where this target is the same for all designs, it is known.
Metrics that need no evaluation, such as areas, are not modelled at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.space.metric_composition import MetricComposition

SMALL_PART = 0.02
"""Share of a sum that a part has in some known design, below which it is modelled together with other such parts."""

FLOOR = 1e-4
"""Share of the median of a sum that is added to each part, since a part may be 0, which has no logarithm."""

PART_ASKS = 256
"""Asks whose results are modelled by parts; with more of them objectives are modelled as they are.

A breakdown takes milliseconds a design, and an evaluation in a batch microseconds. A model learns from no more results
(`acquisition.LEARN`)."""

CONSTANT = 1e-9
"""Extent of a target below which it is the same for all designs, so that there is nothing to learn."""


@dataclass(frozen=True)
class PartResults:
    """Parts of the known results, and metrics that need no evaluation.

    Attributes:
        compositions: of each objective; None for one that is modelled as it is.
        parts: by name, of known results, shape (designs,); 0 where a design lacks one.
        factors: metrics that are known without an evaluation, of known results, shape (designs,).
        factors_at: the same of the designs that are looked at.
        complete: whether all known results have parts; else sums of parts are not used.
    """

    compositions: Sequence[MetricComposition | None]
    parts: Mapping[str, Array]
    factors: Mapping[str, Array]
    factors_at: Mapping[str, Array]
    complete: bool = True

    def take_first(self, count: int) -> "PartResults":
        """The same of the first results alone."""
        tables = (self.parts, self.factors)
        parts, factors = ({name: column[:count] for name, column in table.items()} for table in tables)
        return replace(self, parts=parts, factors=factors)


class SummedParts(NamedTuple):
    """Parts of a sum that have a target each.

    Attributes:
        large: their names.
        others: whether the others have one target together.
        floor: amount that is added to each, so that all have logarithms.
    """

    large: tuple[str, ...]
    others: bool
    floor: float


class _Composed(NamedTuple):
    """An objective by its parts: columns of targets, the column of what they do not explain, and offsets in logs."""

    columns: tuple[int, ...]
    rest: int
    power: int
    offset_at: Array


@dataclass
class Targets:
    """Targets of models, and how objectives follow from them.

    Attributes:
        names: of the targets.
        columns: values at the known results, shape (designs,) each.
        composed: of each objective, its composition or the target that is the objective itself.
        signs: of each objective, -1 where it is negative throughout, so that its logs are turned round.
    """

    names: list[str] = field(default_factory=list)
    columns: list[Array] = field(default_factory=list)
    composed: list[_Composed | int] = field(default_factory=list)
    signs: list[float] = field(default_factory=list)

    def add(self, name: str, column: Array) -> int:
        """Add a target; returns its number."""
        self.names.append(name)
        self.columns.append(column)
        return len(self.names) - 1

    def compose(self, means: Array, spreads: Array) -> tuple[Array, Array]:
        """Means and standard deviations of objectives from those of targets, shape (designs, objectives) each.

        Of a sum of parts with means exp(m) and small relative deviations s, the log has the deviation sqrt(sum (w s)^2), where
        w are the parts' shares of the sum.
        """
        found_means, found_spreads = [], []
        for made, sign in zip(self.composed, self.signs, strict=True):
            if isinstance(made, int):
                found_means.append(means[:, made])
                found_spreads.append(spreads[:, made])
                continue
            mean, variance = means[:, made.rest] + made.offset_at, spreads[:, made.rest] ** 2
            if made.columns:
                logs, apart = means[:, made.columns], spreads[:, made.columns]
                top = logs.max(axis=1, keepdims=True)
                amounts = np.exp(logs - top)
                total = amounts.sum(axis=1, keepdims=True)
                mean = mean + made.power * (top + np.log(total))[:, 0]
                variance = variance + ((amounts / total * apart) ** 2).sum(axis=1)
            found_means.append(sign * mean)
            found_spreads.append(np.sqrt(variance))
        return np.stack(found_means, axis=1), np.stack(found_spreads, axis=1)


def choose_parts(parts: PartResults | None) -> list[SummedParts | None]:
    """Choice of the parts of each objective that have targets, from results.

    None where no sum is used.

    A part that is below 0 in some design, such as the time that overlap saves, has no logarithm. It is left out, so that it is
    among what parts do not explain.
    """
    if parts is None:
        return []
    return [_choose_summed(made, parts) if made and made.parts and parts.complete else None for made in parts.compositions]


def make_targets(
    shaped: Sequence[Array], objectives: Array, parts: PartResults | None, chosen: Sequence[SummedParts | None]
) -> Targets:
    """Targets of the known results.

    Args:
        shaped: objectives on the scale on which they are modelled as they are, shape (designs,) each.
        objectives: to be made small, shape (designs, objectives).
        parts: None where there are none.
        chosen: parts that have targets, of each objective.
    """
    targets = Targets()
    for place, values in enumerate(objectives.T):
        targets.signs.append(-1.0 if (values < 0).all() else 1.0)
        composed = None
        if parts is not None and (values * values[0] > 0).all():
            composed = _compose_one(targets, place, np.abs(values), parts, chosen[place])
        targets.composed.append(targets.add(f"objective {place}", shaped[place]) if composed is None else composed)
    return targets


def _compose_one(
    targets: Targets, place: int, values: Array, parts: PartResults, chosen: SummedParts | None
) -> _Composed | None:
    """The composition of an objective with targets for its parts; None where nothing of it is known."""
    made = parts.compositions[place]
    if made is None or (chosen is None and not made.factors):
        return None
    rest, offset_at = np.log(values), np.zeros(1)
    for name, power in made.factors:
        known, at = parts.factors.get(name), parts.factors_at.get(name)
        if known is None or at is None or not ((known > 0).all() and (at > 0).all()):
            return None
        rest, offset_at = rest - power * np.log(known), offset_at + power * np.log(at)
    columns = []
    if chosen is not None:
        amounts = _summed_amounts(made, parts, chosen)
        for name, amount in amounts.items():
            label = f"{name} of {', '.join(made.parts)}"
            columns.append(targets.names.index(label) if label in targets.names else targets.add(label, np.log(amount)))
        rest = rest - made.power * np.log(sum(amounts.values()))
    return _Composed(tuple(columns), targets.add(f"rest {place}", rest), made.power, offset_at)


def _choose_summed(made: MetricComposition, parts: PartResults) -> SummedParts | None:
    """Parts of a sum that the given results have and that are not below 0; None where some design has none above 0."""
    amounts = {name: parts.parts[name] for name in made.select_names(sorted(parts.parts))}
    amounts = {name: part for name, part in amounts.items() if part.min() >= -CONSTANT * part.max() and part.max() > 0}
    total = sum(amounts.values(), np.zeros(1))
    if not amounts or not (total > 0).all():
        return None
    large = tuple(name for name, part in amounts.items() if (part > SMALL_PART * total).any())
    return SummedParts(large, len(large) < len(amounts), FLOOR * float(np.median(total)))


def _summed_amounts(made: MetricComposition, parts: PartResults, chosen: SummedParts) -> dict[str, Array]:
    """Amounts of the chosen parts of a sum, and of the others together, each above 0; shape (designs,)."""
    amounts = {name: np.maximum(parts.parts[name], 0.0) + chosen.floor for name in chosen.large}
    if chosen.others:
        others = [np.maximum(parts.parts[name], 0.0) for name in made.select_names(parts.parts) if name not in chosen.large]
        amounts["small parts"] = sum(others, np.full(1, chosen.floor))
    return amounts
