"""Warm start of a study with results of other studies: results are kept, the best are asked first.

A design is in the space if the space has values that give it: the same content key proves it. So spaces may differ in knobs,
ranges and names of studies, if the rest of the design, the workload, the fidelity and the physics version agree.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dse.config.metric_expressions import extend_with_derived_metrics
from dse.execution.study import Study, stored_location
from dse.search.pareto import nondominated_layers
from dse.search.samplers import Values
from dse.space.errors import DesignError
from dse.space.fields import addresses
from dse.space.knobs import ChoiceKnob, Space
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace
from dse.store.store import DesignResult, Store


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Results of other studies that a study starts with.

    Attributes:
        results: by design key.
        seeds: knob values of the best of them, best layer first.
        stored: results of this workload, fidelity and physics in the other stores, in this space or not.
    """

    results: Mapping[str, DesignResult]
    seeds: list[Values]
    stored: int


def take_over_results(study: Study, places: Iterable[str], keep: int) -> WarmStart:
    """Results in other stores whose designs are in this study's space.

    Args:
        study: the study.
        places: names of studies that ran here, files or URLs of stores.
        keep: seeds at most: whole layers of the front, then an even part of the next.

    Raises:
        DesignError: there is no store at a place.
    """
    space = study.question.space
    found_results: dict[str, DesignResult] = {}
    stored = 0
    for place in places:
        with closing(Store(_store_url(place), create=False)) as store:
            bases, results = store.bases(study.context), store.results(study.context)
        for key, result in results.items():
            stored += 1
            values = None if result.error or key not in bases else values_in_space(space, bases[key], result.values, key)
            if values is not None:
                found_results.setdefault(
                    key, DesignResult(key, values, result.metrics, result.limit, result.need, result.have, result.seconds)
                )
    return WarmStart(found_results, _best_values(study, list(found_results.values()), keep), stored)


def values_in_space(space: AnySpace, base: Mapping[str, Any], values: Mapping[str, Any], key: str) -> Values | None:
    """Knob values that give a design of another study; None if the space does not have it.

    Args:
        space: of this study.
        base: leaves by address that the other study started from.
        values: by knob of the other study.
        key: of the design.
    """
    for chosen, member in space.base_spaces:
        mine = _values_within(member, base, {knob: value for knob, value in values.items() if knob != CHIP_KNOB}, key)
        if mine is not None:
            return chosen | mine
    return None


def _values_within(space: Space, base: Mapping[str, Any], values: Mapping[str, Any], key: str) -> Values | None:
    """The same for a space of one chip."""
    leaves = dict(base)
    try:
        for knob, value in values.items():
            leaves.update(dict.fromkeys(addresses(space.base, knob), value))
    except DesignError:  # a knob that this kind of chip does not have
        return None
    mine: Values = {}
    for single_knob in space.knobs:
        value = leaves.get(space.targets[single_knob.address][0])
        if isinstance(single_knob, ChoiceKnob):
            place = single_knob.values.index(value) if value in single_knob.values else -1
            if place >= 0:
                mine[single_knob.address] = single_knob.values[place]
        elif isinstance(value, int | float) and single_knob.low <= value <= single_knob.high:
            mine[single_knob.address] = value
    mine = space.canonical(mine)
    return mine if space.key_at(mine) == key else None


def _best_values(study: Study, results: list[DesignResult], keep: int) -> list[Values]:
    every = [(result, extend_with_derived_metrics(result.metrics, study.question.defined)) for result in results]
    good = [
        (result, metrics)
        for result, metrics in every
        if not result.limit
        and all(name in metrics for name in study.objectives)
        and all(bound.excess(metrics[bound.metric]) <= 0 for bound in study.bounds)
    ]
    good.sort(key=lambda pair: (*(pair[1][name] for name in study.objectives), pair[0].key))
    rows = np.array([[metrics[name] for name in study.objectives] for _, metrics in good])
    return [good[row][0].values for row in nondominated_layers(rows, study.directions, keep)]


def _store_url(place: str) -> str:
    if "://" in place or Path(place).is_file():
        return place
    ran = Path("runs") / place
    if (store := stored_location(ran)) is not None:
        return store
    raise DesignError(
        f"search.warm_start: no store {place!r}; give a study that ran here, a file such as {ran / 'results.sqlite'}, or a URL"
    )
