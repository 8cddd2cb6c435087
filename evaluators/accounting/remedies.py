"""Remedies of violated limits: of some changes of a design, the first that keeps all its limits.

Layouts and kernels state levers, which say what may be changed; only this module tries them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dse.space.design import Design
from dse.space.fields import replace_leaves
from dse.space.limits import Limit

Changes = dict[str, Any]
"""Values of leaves of a design, by address."""

LimitsOfChanges = Callable[[Changes], list[Limit]]
"""Limits of a design with some leaves changed."""


def _no_changes(value: Any) -> Changes:
    return {}


def _no_limits(changes: Changes) -> list[Limit]:
    return []


class Lever(NamedTuple):
    """Values of some settings to try, the mildest first; advice that needs no trial has the text alone.

    Attributes:
        text: what is said, or a function that says it of the first value at which all limits hold.
        values: to try; of an array, all at a time.
        changes: leaves at a value, or at an array of them.
        limits: of the design with leaves changed.
        failed: what is said where no value keeps the limits; levers after this one are tried then.
        by_halves: whether limits that hold at a value hold at all after it, so that the first is found by halves.
        beside: whether it is said beside levers before it that keep the limits, else only where these do not.
        subject: what it is about; each subject has a remedy of its own.
    """

    text: str | Callable[[Any], str]
    values: Sequence[Any] | np.ndarray = (None,)
    changes: Callable[[Any], Changes] = _no_changes
    limits: LimitsOfChanges = _no_limits
    failed: str = ""
    by_halves: bool = False
    beside: bool = False
    subject: str = ""


def advise(text: str) -> tuple[Lever, ...]:
    """Levers of advice that needs no trial; none for an empty text."""
    return (Lever(text),) if text else ()


def limits_of_changes(design: Design, limits: Callable[[Design], list[Limit]]) -> LimitsOfChanges:
    """Function from leaves by address to the limits of a design with these changed."""
    return lambda changes: limits(replace_leaves(design, changes))


def remedy_text(levers: Iterable[Lever]) -> str:
    """Text of the first lever of each subject that keeps all limits.

    Before it stands what is said of levers that do not.

    >>> def limits(changes):
    ...     return [Limit("chip.cores", 40.0 / changes["tp"], 10.0, "1")]
    >>> def say(tp):
    ...     return f"tp={tp}"
    >>> def change(tp):
    ...     return {"tp": tp}
    >>> few = Lever(say, (1, 2), change, limits, failed="no tp up to 2 fits")
    >>> remedy_text([few, Lever(say, range(1, 9), change, limits, by_halves=True), Lever("buy more")])
    'no tp up to 2 fits; tp=4'
    >>> remedy_text([Lever(say, np.array([1.0, 5.0, 8.0]), change, limits), Lever("larger cores", beside=True)])
    'tp=5.0, or larger cores'
    """
    texts = (_subject_text(group) for _, group in groupby(levers, key=lambda lever: lever.subject))
    return ", ".join(filter(None, texts))


def _subject_text(levers: Iterable[Lever]) -> str:
    """Text of the levers of one subject."""
    failed: list[str] = []
    kept: list[str] = []
    for lever in levers:
        if kept and not lever.beside:
            break
        value = _first_kept(lever)
        if value is _NOTHING:
            failed.append(lever.failed)
        else:
            kept.append(lever.text if isinstance(lever.text, str) else lever.text(value))
    return "; ".join(filter(None, (*failed, ", or ".join(kept))))


_NOTHING = object()
"""No value keeps the limits; a value may be anything else."""


def _first_kept(lever: Lever) -> Any:
    """First value of a lever at which all limits hold."""
    values = lever.values
    if isinstance(values, np.ndarray):
        fits = np.ones(len(values), dtype=bool)
        for limit in lever.limits(lever.changes(values)):
            holds = np.asarray(limit.need <= limit.have)
            fits &= holds.all(axis=0) if holds.ndim == 2 else holds
        return values[fits][0].item() if fits.any() else _NOTHING

    def keeps(value: Any) -> bool:
        return all(np.all(limit.need <= limit.have) for limit in lever.limits(lever.changes(value)))

    if not lever.by_halves:
        return next(filter(keeps, values), _NOTHING)
    return values[bisect_left(values, True, key=keeps)] if values and keeps(values[-1]) else _NOTHING
