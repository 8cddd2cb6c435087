"""Work of single dies of several designs, computed together for all designs that need the same work.

Code that knows what designs will need requests it first (`request_die_work`), while results are collected
(`collect_die_work`). Work that nobody requested is computed separately, with its blocks in detail; batched results have no
blocks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.multi_die import Alone, UnitWork
from dse.evaluators.layouts.micro_batches import ReplicaWork
from dse.evaluators.layouts.multi_die import DieExchange, DieSplit
from dse.evaluators.layouts.whole_chip import KernelPlan
from dse.evaluators.program.activity import Activity
from dse.space.chip import Chip
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.memoize import BlockState, memoize_by_identity


class DieBatch(NamedTuple):
    """Dies of one structure as arrays of shape (dies,), with caches of work-independent results."""

    die: Chip
    said: KernelPlan
    known: dict[Any, Any]
    priced: dict[Any, Any]


class _Kept(NamedTuple):
    """Wanted work by structure: die numbers and dies; results of each; and dies stacked together."""

    wanted: dict[Any, dict[tuple[float, ...], tuple[Chip, KernelPlan]]]
    places: dict[Any, dict[tuple[float, ...], int]]
    answers: dict[Any, list[Alone]]
    dies: dict[Any, DieBatch]


_KEPT: BlockState[_Kept] = BlockState()

MIN_BATCH = 2
"""Dies from which on they are worked out together."""


@contextmanager
def collect_die_work() -> Iterator[None]:
    """Collect, in a with block, requests for die work, so that equal work is computed together."""
    with _KEPT.open(_Kept({}, {}, {}, {})):
        yield


def request_die_work(work: ReplicaWork, die_split: DieSplit, die: Chip, plan: KernelPlan, *others: Any) -> None:
    """Request the work of a die for a later batch; arguments as of `find_die_work`."""
    structure, row = _structure_and_numbers(die, plan)
    assert _KEPT.innermost is not None
    _KEPT.innermost.wanted.setdefault(_die_key(work, die_split, structure, others), {}).setdefault(row, (die, plan))


def find_die_work(
    make: Callable[..., Alone], work: ReplicaWork, die_split: DieSplit, die: Chip, plan: KernelPlan, *others: Any
) -> Alone | None:
    """Work of one die from the batch of its request; None if the batch is too small or lacks the die.

    Args:
        make: work of several dies, a function of (work, die_split, `DieBatch`, *others).
        work, die_split: work of an attention replica, and how it is divided.
        die, plan: one of the dies, and its plan's kernel settings.
        others: further inputs of the result.
    """
    kept = _KEPT.innermost
    if kept is None:
        return None
    structure, row = _structure_and_numbers(die, plan)
    key = _die_key(work, die_split, structure, others)
    wanted_chips = kept.wanted.get(key, {})
    if len(wanted_chips) < MIN_BATCH or row not in wanted_chips:
        return None
    if len(kept.places.get(key, ())) < len(wanted_chips):
        kept.places[key] = {row: place for place, row in enumerate(wanted_chips)}
        kept.answers[key] = _split_work(
            _without_blocks(make(work, die_split, _stack_dies(kept, structure, wanted_chips), *others)), len(wanted_chips)
        )
    return kept.answers[key][kept.places[key][row]]


def _die_key(work: ReplicaWork, die_split: DieSplit, structure: Any, others: tuple[Any, ...]) -> Any:
    """Key of requested work; models of a workload are identical objects, and slow to compare by content."""
    return id(work.model), work[1:], die_split, structure, others  # type: ignore[index]


@memoize_by_identity
def _structure_and_numbers(die: Chip, plan: KernelPlan) -> tuple[tuple[Any, ...], tuple[float, ...]]:
    """Structure and numbers of a die with its kernel settings."""
    words, numbers = list[Any](), list[float]()
    for part in (die, plan.attention, plan.gemm):
        for address, value, spec in iterate_leaves(part):
            number = isinstance(value, int | float) and not isinstance(value, bool) and "apart" not in spec.metadata
            words.append(address if number else (address, value))
            if number:
                numbers.append(value)
    return tuple(words), tuple(numbers)


def _stack_dies(kept: _Kept, structure: Any, wanted_chips: dict[tuple[float, ...], tuple[Chip, KernelPlan]]) -> DieBatch:
    """Some dies; leaves on which all agree are numbers."""
    key = structure, tuple(wanted_chips)
    if key not in kept.dies:
        chips, saids = zip(*wanted_chips.values(), strict=True)
        plan = KernelPlan(_stack_chips([plan.attention for plan in saids]), _stack_chips([plan.gemm for plan in saids]))
        kept.dies[key] = DieBatch(_stack_chips(list(chips)), plan, {}, {})
    return kept.dies[key]


def _stack_chips(chips: list[Any]) -> Any:
    every = [[value for _, value, _ in iterate_leaves(chip)] for chip in chips]
    changes = {
        address: np.array(column, float)
        for (address, _, _), column in zip(iterate_leaves(chips[0]), zip(*every, strict=True), strict=True)
        if any(value != column[0] for value in column)
    }
    return replace_leaves(chips[0], changes) if changes else chips[0]


def _without_blocks(die_work: Alone) -> Alone:
    """As many dies' answers are kept."""

    def ran(work: UnitWork) -> UnitWork:
        steps = tuple(step for step in work.steps if isinstance(step, DieExchange))
        return work._replace(steps=steps, beyond=work.beyond and ran(work.beyond))

    passes = tuple(
        (
            forward_pass._replace(units=tuple(unit._replace(steps=[], beyond=()) for unit in forward_pass.units)),
            tuple(map(ran, units)),
        )
        for forward_pass, units in die_work[0]
    )
    return passes, die_work[1]


def _split_work(die_work: Alone, count: int) -> list[Alone]:
    """Of each of several, in order."""

    def column(value: Any) -> list[Any]:
        return value.tolist() if isinstance(value, np.ndarray) and value.ndim else [value] * count

    def ran(work: UnitWork) -> list[UnitWork]:
        activities = map(Activity._make, zip(*map(column, work.activity), strict=True))
        beyond = ran(work.beyond) if work.beyond else [work.beyond] * count
        each = zip(column(work.seconds), activities, beyond, strict=True)
        return [work._replace(seconds=seconds, activity=activity, beyond=more) for seconds, activity, more in each]

    passes = [
        (forward_pass, list(zip(*map(ran, units), strict=True)) if units else [()] * count)
        for forward_pass, units in die_work[0]
    ]
    parts = [(name, column(nbytes)) for name, nbytes in die_work[1]]
    return [
        (tuple((forward_pass, units[place]) for forward_pass, units in passes), [(name, every[place]) for name, every in parts])
        for place in range(count)
    ]
