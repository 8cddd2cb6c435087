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
        leaves, free = list(iterate_leaves(design)), words(design)
        options |= {address: spec.metadata["options"] for address, _, spec in leaves if address in free}
        option_values = [
            str(value)
            for address, value, spec in leaves
            if address not in free and (isinstance(value, str | tuple) or "apart" in spec.metadata)
        ]
        key = (tuple(address for address, _, _ in leaves), *option_values) if free else id(design)
        alike.setdefault(key, []).append((rows, design, {address: value for address, value, _ in leaves}))
    groups = tuple(group[0][:2] if len(group) == 1 else _joined(group, options) for group in alike.values())
    return Designs(len(designs), groups)


def _joined(group: Sequence[tuple[Array, Design, dict[str, Any]]], options: dict[str, tuple[str, ...]]) -> tuple[Array, Design]:
    """Groups as one; leaves on which all agree stay as they are."""
    (_, first, table), *others = group
    changes: dict[str, Any] = {}
    for address, value in table.items():
        each = [value, *(more[address] for _, _, more in others)]
        if len(set(map(id, each))) == 1 and not isinstance(value, np.ndarray):
            continue
        if not any(isinstance(option, np.ndarray) for option in each) and all(option == value for option in each):
            continue
        if address in options:
            columns = [
                np.full(len(rows), options[address].index(option)) for (rows, _, _), option in zip(group, each, strict=True)
            ]
        else:
            columns = [
                np.broadcast_to(np.asarray(option, float), len(rows)) for (rows, _, _), option in zip(group, each, strict=True)
            ]
        changes[address] = np.concatenate(columns)
    return np.concatenate([rows for rows, _, _ in group]), replace_leaves(first, changes)
