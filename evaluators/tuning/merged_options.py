"""Merging of designs with different options: option leaves become index arrays, shape (designs,).

Evaluating few designs takes as long as many. Groups of a structure that differ only in options which formulas can look
up design by design, such as the place of cores, therefore become one group.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from dse.space.array_math import Array
from dse.space.design import Design, Designs
from dse.space.fields import iterate_leaves, replace_leaves


def merge_option_groups(designs: Designs, words: Callable[[Design], Collection[str]]) -> Designs:
    """Groups of designs that differ only in numbers and given options, each merged into one group.

    Args:
        designs: many.
        words: addresses of options in which a group may differ from others; none if the group stays separate.
    """
    alike: dict[Any, list[tuple[Array, Design, dict[str, Any]]]] = {}
    options: dict[str, tuple[str, ...]] = {}
    for rows, design in designs.groups:
        found, free = list(iterate_leaves(design)), words(design)
        options |= {address: spec.metadata["options"] for address, _, spec in found if address in free}
        said = [
            str(value)
            for address, value, spec in found
            if address not in free and (isinstance(value, str | tuple) or "apart" in spec.metadata)
        ]
        key = (tuple(address for address, _, _ in found), *said) if free else id(design)
        alike.setdefault(key, []).append((rows, design, {address: value for address, value, _ in found}))
    groups = tuple(some[0][:2] if len(some) == 1 else _joined(some, options) for some in alike.values())
    return Designs(len(designs), groups)


def _joined(some: Sequence[tuple[Array, Design, dict[str, Any]]], options: dict[str, tuple[str, ...]]) -> tuple[Array, Design]:
    """Groups as one; leaves on which all agree stay as they are."""
    (_, first, table), *others = some
    changes: dict[str, Any] = {}
    for address, value in table.items():
        each = [value, *(more[address] for _, _, more in others)]
        if len(set(map(id, each))) == 1 and not isinstance(value, np.ndarray):
            continue
        if not any(isinstance(of, np.ndarray) for of in each) and all(of == value for of in each):
            continue
        if address in options:
            columns = [np.full(len(rows), options[address].index(of)) for (rows, _, _), of in zip(some, each, strict=True)]
        else:
            columns = [np.broadcast_to(np.asarray(of, float), len(rows)) for (rows, _, _), of in zip(some, each, strict=True)]
        changes[address] = np.concatenate(columns)
    return np.concatenate([rows for rows, _, _ in some]), replace_leaves(first, changes)
