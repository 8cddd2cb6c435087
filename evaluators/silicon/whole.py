"""Chips of several groups of designs as one: what depends on a chip alone is worked out for all of them at once.

Groups have words of mappings of their own; their chips mostly differ in numbers. A small array costs what a large one does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from typing import Any, TypeVar

import numpy as np

from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.elementwise import Array, hashed
from dse.space.fields import replaced
from dse.space.remember import same

T = TypeVar("T")

_parts: dict[int, tuple[Chip, Chip, slice]] = {}
"""Chips that are part of another one, by what they are, while they are: themselves, the whole, and where in it."""

_known: list[Callable[[], None]] = []
"""Of functions that are worked out for wholes, what forgets them."""


def at_once(function: Callable[..., T]) -> Callable[..., T]:
    """A function of a chip and perhaps a number, whose last results are kept, and which is worked out once for whole chips."""
    known: dict[tuple[int, Any], tuple[Chip, T]] = {}
    _known.append(known.clear)

    @same
    @wraps(function)
    def answer(chip: Chip, number: Any = 0) -> T:
        given = (chip,) if function.__code__.co_argcount == 1 else (chip, number)
        found = _parts.get(id(chip))
        if found is None or isinstance(number, np.ndarray):
            return function(*given)
        _, whole, some = found
        key = id(whole), number
        if key not in known or known[key][0] is not whole:
            known[key] = whole, function(whole, *given[1:])
        return _some(known[key][1], some)  # type: ignore[no-any-return]

    return answer


def together(groups: Sequence[tuple[Array, Design]]) -> AbstractContextManager[None]:
    """While it is open, chips of small groups that differ in numbers alone are worked out as one by what is `at_once`.

    Args:
        groups: rows and designs, as `Designs` has them.
    """
    chips = [design.chip for rows, design in groups if len(rows) <= SMALL]
    return _opened(chips) if len(chips) > 1 else ALONE


SMALL = 4096
"""Designs of a group up to which its arrays cost more by being there than by what is in them."""

ALONE = nullcontext()
"""What one chip by itself needs."""


@contextmanager
def _opened(chips: Sequence[Chip]) -> Iterator[None]:
    _parts.update(parts(chips))
    try:
        yield
    finally:
        _parts.clear()
        for forget in _known:
            forget()


def parts(chips: Sequence[Chip]) -> dict[int, tuple[Chip, Chip, slice]]:
    """By what they are: chips that are part of another one, the whole, and where in it; none of those that stand alone."""
    alike: dict[Any, list[list[tuple[Chip, dict[str, Any]]]]] = {}
    for chip in chips:
        wide = _columns(chip)
        some = alike.setdefault(tuple(wide), []) if wide else []
        several = next((several for several in some if _same_numbers(several[0][0], chip)), None)
        if several is None:
            some.append([(chip, wide)])
        else:
            several.append((chip, wide))
    made = {}
    for several in (several for some in alike.values() for several in some if len(several) > 1):
        columns = {address: np.concatenate([wide[address] for _, wide in several]) for address in several[0][1]}
        whole, start = replaced(several[0][0], columns), 0
        for chip, wide in several:
            size = len(next(iter(wide.values())))
            made[id(chip)] = chip, whole, slice(start, start + size)
            start += size
    return made


def _columns(part: Any) -> dict[str, Any]:
    """Columns of a part of a chip, by address in it: what has one is no key."""
    found = {}
    for name in _names(type(part)):  # type: ignore[arg-type]
        value = getattr(part, name)
        if isinstance(value, np.ndarray):
            found[name] = value
        elif not hashed(value):
            found.update((f"{name}.{address}", column) for address, column in _columns(value).items())
    return found


def _same_numbers(one: Any, other: Any) -> bool:
    """Whether two parts of chips that have the same columns differ in these alone."""
    for name in _names(type(other)):  # type: ignore[arg-type]
        mine, its = getattr(one, name), getattr(other, name)
        if mine is its or isinstance(its, np.ndarray):
            continue
        if type(mine) is not type(its):
            return False
        if not (_same_numbers(mine, its) if hasattr(type(its), "__dataclass_fields__") else mine == its):
            return False
    return True


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(spec.name for spec in fields(kind))


def _some(value: Any, rows: slice) -> Any:
    """Of some designs: arrays are over designs."""
    if isinstance(value, np.ndarray):
        return value[rows]
    if isinstance(value, dict):
        return {name: _some(of, rows) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_some(of, rows) for of in value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{spec.name: _some(getattr(value, spec.name), rows) for spec in fields(value)})
    return value
