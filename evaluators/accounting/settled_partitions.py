"""Memory of the partitions that were chosen for designs, for designs that are evaluated again alone.

To choose partitions takes most of the time of a single design, and little more for many designs than for one.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.partition_search import ChosenPartitions
from dse.evaluators.tuning.per_design import select_rows
from dse.space.design import Design
from dse.space.fields import iterate_leaves
from dse.space.memoize import LastUsed
from dse.space.read_recorder import is_recording

MAX_DESIGNS = 512
"""Designs that are evaluated together and remembered; of more, as of a screen, few are asked again."""

MAX_ENTRIES = 8192
"""Designs and cases that are remembered, the last ones."""

Chosen = tuple[ChosenPartitions, ...]

_settled: LastUsed[Hashable, Chosen] = LastUsed(MAX_ENTRIES)


def settle_partitions(design: Design, job: BatchArrays, choose: Callable[[], Chosen]) -> Chosen:
    """Partitions of each phase of a design that leaves them open: remembered ones, or those chosen now.

    Args:
        design: leaves may be arrays over designs.
        job: cases of one model.
        choose: chooses them, for all cases and designs.
    """
    count = max((value.size for _, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)), default=1)
    if count > MAX_DESIGNS or is_recording():  # what is remembered reads no setting
        return choose()
    if count == 1:
        known = [_settled.find(_key(design, job, row)) for row in range(len(job.cases))]
        if all(known):
            return _of_cases([chosen for chosen in known if chosen is not None])
    chosen_phases = choose()
    for place in range(count):
        single_design = select_rows(design, np.array([place]))
        for row in range(len(job.cases)):
            at = partial(_pick, row=row, place=place)
            _settled.keep(_key(single_design, job, row), tuple(chosen.map_leaves(at) for chosen in chosen_phases))
    return chosen_phases


def forget_settled_partitions() -> None:
    """Forget the partitions of all designs, so that they are chosen again."""
    _settled.forget()


def _key(design: Design, job: BatchArrays, row: int) -> Hashable:
    return design.chip, design.mapping, job.cases[row], job.decode_context


def _pick(leaf: Any, row: int, place: int) -> Any:
    """What a leaf of shape (cases, designs) has of a case and a design."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    table = np.atleast_2d(leaf)
    return table[row % len(table), place % table.shape[1]].item()


def _of_cases(known: list[Chosen]) -> Chosen:
    """Partitions of one design by case, as those of all its cases."""
    if len(known) == 1:
        return known[0]
    return tuple(_stack(phases) for phases in zip(*known, strict=True))


def _stack(cases: tuple[ChosenPartitions, ...]) -> ChosenPartitions:
    def column(values: list[Any]) -> Any:
        return values[0] if all(value == values[0] for value in values) else np.array(values)[:, None]

    choices = type(cases[0].of)(
        *(
            {name: column([case.of[kind][name] for case in cases]) for name in cases[0].of[kind]}
            for kind in range(len(cases[0].of))
        )
    )
    return ChosenPartitions(choices, column([case.counted for case in cases]), column([case.everywhere for case in cases]))
