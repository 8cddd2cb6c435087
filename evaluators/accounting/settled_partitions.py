"""Memory of the partitions that were chosen for designs, for designs that are evaluated again.

To choose partitions takes most of the time of a single design, and little more for many designs than for one.
"""

from collections.abc import Callable, Hashable, Iterator
from itertools import product, repeat
from typing import Any

import numpy as np

from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.partition_search import ChosenPartitions
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.fields import iterate_leaves
from dse.space.memoize import LastUsed
from dse.space.read_recorder import is_recording

MAX_ENTRIES = 16_384
"""Designs and cases that are remembered, the last ones; more than so many at once, as of a large screen, are not."""

Chosen = tuple[ChosenPartitions, ...]

_settled: LastUsed[Hashable, Chosen] = LastUsed(MAX_ENTRIES)


def settle_partitions(design: Design, job: BatchArrays, choose: Callable[[], Chosen]) -> Chosen:
    """Partitions of each phase of a design that leaves them open: remembered ones, or those chosen now.

    Args:
        design: leaves may be arrays over designs.
        job: cases of one model.
        choose: chooses them, for all cases and designs.
    """
    if is_recording():  # what is remembered reads no setting
        return choose()
    leaves = [*iterate_leaves(design.chip), *iterate_leaves(design.mapping)]
    count = max((value.size for _, value, _ in leaves if isinstance(value, np.ndarray)), default=1)
    if count * len(job.cases) > MAX_ENTRIES:
        return choose()
    keys = list(product(((job.decode_context, case) for case in job.cases), _design_keys(leaves, count)))
    known = [_settled.find(key) for key in keys]
    if all(known):
        return _together([chosen for chosen in known if chosen is not None], len(job.cases))
    chosen_phases = choose()
    for key, entry in zip(keys, _by_entry(chosen_phases, len(job.cases), count), strict=True):
        _settled.keep(key, entry)
    return chosen_phases


def forget_settled_partitions() -> None:
    """Forget the partitions of all designs, so that they are chosen again."""
    _settled.forget()


def _design_keys(leaves: list[tuple[str, Any, Any]], count: int) -> Iterator[Hashable]:
    """Of each design its leaves, words by name: equal whether designs come together or by themselves."""
    names = tuple(name for name, _, _ in leaves)
    columns: list[Any] = []
    for _, value, spec in leaves:
        if not isinstance(value, np.ndarray):
            columns.append(repeat(value, count))
            continue
        values = np.broadcast_to(value.ravel(), count).tolist()
        options = spec.metadata.get("options")  # a word stands by its place (`tuning/merged_options.py`)
        columns.append(values if options is None else [options[place] for place in values])
    return ((names, *values) for values in zip(*columns, strict=True))


def _by_entry(chosen_phases: Chosen, cases: int, count: int) -> list[Chosen]:
    """What is chosen for each case and design, cases first; equal choices are one object."""
    leaves = [
        leaf for choice, *sizes in chosen_phases for leaf in (*sizes, *(leaf for kind in choice for leaf in kind.values()))
    ]
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    if not arrays:
        return [chosen_phases] * (cases * count)
    table = np.stack([np.broadcast_to(leaf, (cases, count)).ravel() for leaf in arrays], axis=1)
    distinct, which = np.unique(table, axis=0, return_inverse=True)
    first = {number: place for place, number in reversed(list(enumerate(which.ravel().tolist())))}

    def entry(place: int) -> Chosen:
        def pick(leaf: Any) -> Any:
            return np.broadcast_to(leaf, (cases, count)).flat[place].item() if isinstance(leaf, np.ndarray) else leaf

        return tuple(chosen.map_leaves(pick) for chosen in chosen_phases)

    entries = [entry(first[number]) for number in range(len(distinct))]
    return [entries[number] for number in which.ravel().tolist()]


def _together(known: list[Chosen], cases: int) -> Chosen:
    """Partitions of all cases and designs, from those of each: leaves are numbers where all have the same."""
    by_identity = {id(chosen): chosen for chosen in known}
    distinct, places = list(by_identity.values()), {key: place for place, key in enumerate(by_identity)}
    if len(distinct) == 1:
        return distinct[0]
    which = np.array([places[id(chosen)] for chosen in known])
    if cases > 1:
        which = which.reshape(cases, -1)
    return tuple(_stack(phases, which) for phases in zip(*distinct, strict=True))


def _stack(distinct: tuple[ChosenPartitions, ...], which: Array) -> ChosenPartitions:
    """One phase of several choices, each entry with its own."""

    def column(values: list[Any]) -> Any:
        return values[0] if all(value == values[0] for value in values) else np.array(values)[which]

    choices = type(distinct[0].of)(
        *(
            {name: column([chosen.of[kind][name] for chosen in distinct]) for name in distinct[0].of[kind]}
            for kind in range(len(distinct[0].of))
        )
    )
    return ChosenPartitions(
        choices, column([chosen.counted for chosen in distinct]), column([chosen.everywhere for chosen in distinct])
    )
