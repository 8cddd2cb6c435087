"""Unread settings: leaves that nothing reads under other options, in a design or over knobs.

A leaf declares the deciding options (`unread` in `dse.space.fields`): of a leaf beside it, as ``gemv``, of a leaf
beside its part, as ``..partition``, or anywhere in a mapping, as ``mapping.serving.policy``. Where several leaves are
named, each of them alone can make the leaf read.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dse.space.fields import field_at, leaf_at


def deciding_leaves(value: Any, address: str) -> dict[str, tuple[str | int, ...]]:
    """Leaves that decide whether a leaf is read, each with its values under which the leaf is unread.

    Empty for a leaf that is always read.
    """
    declared: Mapping[str, tuple[str | int, ...]] = field_at(value, address).metadata.get("unread", {})
    part = address.rpartition(".")[0]
    whole = part.rpartition(".")[0]
    words = {
        name if name.startswith("mapping.") else f"{whole}{name[1:]}" if name.startswith("..") else f"{part}.{name}": words
        for name, words in declared.items()
    }
    return {chooser: words for chooser, words in words.items() if _there(value, chooser)}


def explain_unread(value: Any, address: str) -> str:
    """Settings under which a leaf is unread, as ``mapping.decode.gemv=ring``; empty string if it is read."""
    leaves = deciding_leaves(value, address)
    given_leaves = {chooser: leaf_at(value, chooser) for chooser in leaves}
    if not leaves or any(given_leaves[chooser] not in words for chooser, words in leaves.items()):
        return ""
    return ", ".join(f"{chooser}={word}" for chooser, word in given_leaves.items())


Condition = tuple[str, tuple[Any, ...], bool]
"""A knob of choices, those of them with which something reads a leaf, and whether something does with what the base has."""


def read_conditions(
    value: Any, targets: Collection[str], moved: Mapping[str, tuple[str, Sequence[Any]]]
) -> tuple[Condition, ...] | None:
    """Conditions on knobs under which the leaves of a knob are read; one of them has to hold.

    Args:
        value: the base design.
        targets: leaves that the knob moves.
        moved: by leaf, the address of the knob that moves it, and its values.

    Returns:
        No condition where something always reads one of the leaves, None where nothing ever does.
    """
    conditions: dict[str, Condition] = {}
    for target in targets:
        deciding = deciding_leaves(value, target)
        if not deciding:
            return ()
        for chooser, words in deciding.items():
            usual = leaf_at(value, chooser) not in words
            if chooser not in moved:
                if usual:
                    return ()
                continue
            knob, values = moved[chooser]
            reading = tuple(word for word in values if word not in words)
            if usual and len(reading) == len(values):
                return ()
            before = conditions.get(knob, (knob, (), False))
            conditions[knob] = knob, tuple(word for word in values if word in reading or word in before[1]), usual or before[2]
    kept = tuple(condition for condition in conditions.values() if condition[1] or condition[2])
    return kept or None


def _there(value: Any, address: str) -> bool:
    """Whether a design has a leaf at an address with a text or number value."""
    try:
        return isinstance(leaf_at(value, address), str | int | float)
    except (AttributeError, TypeError):
        return False
