"""Knobs of a space that can be searched on one chip, whatever chip the space was written for."""

from collections.abc import Mapping, Sequence
from typing import Any

from dse.config.question import Question
from dse.config.unread_settings import find_unread_by_workload
from dse.space.errors import DesignError
from dse.space.fields import addresses


def find_searchable_knobs(space: Mapping[str, Any], usual: Question, words: Sequence[str]) -> dict[str, Any]:
    """Knobs of a space that the mapping has and reads and the user has not set.

    Knobs whose conditions need another knob that is left out are left out too.
    """
    typed = {word.lstrip("+").partition("=")[0] for word in words}
    idle = find_unread_by_workload(usual.base, usual.workload)
    kept = {}
    for address, knob in space.items():
        try:
            moved = addresses(usual.base, address)
        except DesignError:
            continue
        leaves = {*moved, address} & {leaf for name in typed for leaf in _named_leaves(usual, name)}
        if not leaves and not set(moved) <= idle.keys():
            kept[address] = knob
    return {address: knob for address, knob in kept.items() if set(knob.get("when", {})) <= set(kept)}


def _named_leaves(usual: Question, address: str) -> list[str]:
    """The leaves that a typed address sets."""
    try:
        return addresses(usual.base, address)
    except DesignError:
        return []
