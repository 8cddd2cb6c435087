"""Designs one step of one setting away from a design, and the space of such steps around it.

A step is the next value of a knob; of an interval a tenth up or down, within its ends; of an option each other option.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import check_leaf, field_at, iterate_leaves, leaf_at, replace_leaves
from dse.space.fixed_leaves import is_design_choice
from dse.space.knobs import ChoiceKnob, Knob, Space, Value

STEP = 0.1
"""Of the value of a knob without listed values, up and down."""

APART = ("mapping.precision.", "mapping.stack.")
"""Leaves of a mapping that are no step away: formats, which would compare unlike numbers, and measured software."""

WORDS = 8
"""Other words of a knob that are tried, at most."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A design that differs from another one in one knob.

    Attributes:
        old, new: values of the knob, in the leaf's SI unit, or words.
    """

    knob: str
    old: Value
    new: Value
    design: Design

    @property
    def is_upward(self) -> bool | None:
        """Whether the knob's value grows; None for options."""
        return None if isinstance(self.old, str) or isinstance(self.new, str) else self.new > self.old


def list_base_neighbours(space: Space) -> list[Neighbour]:
    """Every design one step of one active knob away from the base of a space.

    The base's settings may have values that the knobs do not have.
    """
    values = knob_values_of(space, space.base)
    neighbours = []
    for knob in space.knobs:
        if not space.active(knob.address, values):
            continue
        for new in adjacent_values(knob, values[knob.address]):
            new = new if isinstance(new, str) else space.number(knob, new)
            moved = space.with_ties(replace_leaves(space.base, dict.fromkeys(space.targets[knob.address], new)))
            neighbours.append(Neighbour(knob.address, values[knob.address], new, moved))
    return neighbours


def knob_values_of(space: Space, design: Design) -> dict[str, Value]:
    """Values of a design at the knobs of a space; of several settings that of the first."""
    return {address: leaf_at(design, targets[0]) for address, targets in space.targets.items()}


def adjacent_values(knob: Knob, value: Value) -> list[Any]:
    """Values next to one: all other options, or the next numbers below and above.

    >>> (
    ...     adjacent_values(ChoiceKnob("a", (8, 2, 4)), 4),
    ...     adjacent_values(ChoiceKnob("a", (8, 2, 4)), 3),
    ...     adjacent_values(ChoiceKnob("a", ("x", "y")), "x"),
    ... )
    ([2, 8], [2, 4], ['y'])
    """
    if isinstance(knob, ChoiceKnob):
        if isinstance(value, str):
            return [other for other in knob.values if other != value][:WORDS]
        below, above = ([other for other in knob.values if sign * other > sign * value] for sign in (-1, 1))
        return ([max(below)] if below else []) + ([min(above)] if above else [])
    assert not isinstance(value, str)
    by = STEP * value if value else STEP * (knob.high - knob.low)
    ends = (max(value - by, knob.low), min(value + by, knob.high))
    return [end for end in ends if end != value and knob.low <= end <= knob.high]


def build_neighbourhood_space(
    design: Design, refused: Callable[[str, str], bool], idle: Callable[[Design], Container[str]] = lambda _: ()
) -> Space:
    """Space around a design: quantities a tenth down and up, counts halved and doubled, other options.

    Args:
        design: of scalars.
        refused: whether the chip with an option, by address and option, does not support the workload.
        idle: settings of a design without effect for the workload.
    """
    merged = _merge_leaves(design)
    knobs = []
    for address, targets in merged.items():
        spec, value = field_at(design, targets[0]), leaf_at(design, targets[0])
        tried: list[Any] = []
        if isinstance(value, str):
            tried = list(spec.metadata.get("options", ()))[: WORDS + 1]
        elif isinstance(value, bool) or not value:
            continue
        elif "whole" in spec.metadata:
            tried = [value // 2, value * 2] if value > 1 else [2]
        else:
            tried = [value * (1 - STEP), value * (1 + STEP)]
        fits = [other for other in tried if _is_allowed(other, spec, address)]
        if isinstance(value, str) and address.startswith("chip."):
            fits = [other for other in fits if other == value or not refused(address, other)]
        fits = [
            other
            for other in fits
            if other == value or not _is_idle(replace_leaves(design, dict.fromkeys(targets, other)), targets, idle)
        ]
        values = tuple(dict.fromkeys([value, *fits]))
        if len(values) > 1:
            knobs.append(ChoiceKnob(address, values))
    return Space(design, tuple(knobs))


def _is_idle(design: Design, targets: Sequence[str], idle: Callable[[Design], Container[str]]) -> bool:
    """Whether nothing reads some leaves of a design, which whoever types them is told."""
    unread = idle(design)
    return all(target in unread for target in targets)


def _merge_leaves(design: Design) -> dict[str, list[str]]:
    """The leaves that a step moves, by address; those of prefill and decode together where they are alike."""
    addresses: dict[str, list[str]] = {}
    values = {address: value for address, value, _ in iterate_leaves(design)}
    for address in values:
        if address.startswith("chip.") and not is_design_choice(address.removeprefix("chip.")):
            continue
        if address.startswith(APART):
            continue
        for phase, other in (("prefill", "decode"), ("decode", "prefill")):
            twin = address.replace(f"mapping.{phase}.", f"mapping.{other}.")
            if twin != address and values.get(twin) == values[address]:
                both = address.replace(f"mapping.{phase}.", "mapping.both.")
                addresses.setdefault(both, []).append(address)
                break
        else:
            addresses[address] = [address]
    return addresses


def _is_allowed(value: Any, spec: Any, address: str) -> bool:
    try:
        check_leaf(value, spec, address)
    except DesignError:
        return False
    return True
