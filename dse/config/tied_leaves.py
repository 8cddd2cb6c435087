"""Settings of a space tied to knobs, as ``chip.tile.matrix.cols: {tied: chip.tile.matrix.rows}``.

An expression has addresses of other settings, numbers, and quantities in quotes: `'2 GB' / (chip.mesh.rows * chip.mesh.cols)`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field
from operator import itemgetter
from typing import Any

from dse.config.unit_arithmetic import UnitExpression, parse_unit_expression, scaled_value
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import addresses, field_at, leaf_at
from dse.space.knobs import Knob, Space, TiedLeaf
from dse.space.multi_chip_space import chips_with_address
from dse.space.units import conversion_factor, dimension, unit_text

VALID = "write addresses, numbers, quantities in quotes, + - * / ** and brackets, as in '2 * chip.tile.matrix.rows'"


def split_knobs_and_ties(space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Knobs of a configuration's space, and tied settings, by address."""
    tied = {address: entry for address, entry in space.items() if "tied" in entry}
    return {address: entry for address, entry in space.items() if address not in tied}, tied


def build_space_of_chips(space: Mapping[str, Any], bases: Mapping[str, Design]) -> dict[str, Any]:
    """Knobs and ties of a study's space that exist on some of its chips.

    Args:
        space: entries by address.
        bases: the chips that are left, by name.
    """
    kept: dict[str, Any] = {}
    for address, entry in space.items():
        when = dict(entry.get("when") or {})
        given_chips = when.pop("chip", list(bases))
        names = [name for name in bases if name in (given_chips if isinstance(given_chips, list) else [given_chips])]
        try:
            other_chips = chips_with_address({name: bases[name] for name in names}, address) if names else []
        except DesignError:
            continue
        if other_chips:
            chips = {"chip": other_chips} if len(other_chips) < len(bases) else {}
            kept[address] = {**entry, "when": {**when, **chips}}
    while lost := [address for address, entry in kept.items() if not {*entry["when"]} <= {*kept, "chip"}]:
        kept = {address: entry for address, entry in kept.items() if address not in lost}
    return kept


def parse_ties(
    config: Mapping[str, Any], bases: Mapping[str, Design], knobs: Sequence[Knob]
) -> dict[str, tuple[TiedLeaf, ...]]:
    """Tied settings of each chip, each after the settings that it is computed from.

    Args:
        config: entries of a space with ``tied``, by address; and ``when``, the chips that they are for.
        bases: by chip.
        knobs: of the space.

    Raises:
        DesignError: an address that there is not, units that do not fit, a circle, or what follows no knob.
    """
    leaves: dict[str, list[TiedLeaf]] = {name: [] for name in bases}
    for address, entry in config.items():
        for name in _tied_chips(address, entry, bases):
            leaves[name].append(_parse_tie(address, str(entry["tied"]), bases[name], name))
    return {name: _order_ties(several, knobs, bases[name]) for name, several in leaves.items()}


def build_space_with_ties(
    base: Design, knobs: Sequence[Knob], tied: Sequence[TiedLeaf], typed_addresses: Collection[str] = ()
) -> Space:
    """Space over a design named by overrides, with the tied settings of a study.

    Args:
        base: the design, as it was typed.
        knobs: of the study.
        tied: of the study, each after those that it is made of.
        typed_addresses: addresses that were given values. What is tied and was given another value than it follows to is not
            tied here.

    Raises:
        DesignError: a leaf would follow to a value that it cannot have, or a knob is not of this design.
    """
    typed = {leaf for address in typed_addresses for leaf in _leaves_of_address(base, address)}
    kept, moved = list[TiedLeaf](), dict[str, float]()
    for leaf in tied:
        value = float(leaf.worth({leaf: moved.get(leaf, leaf_at(base, leaf)) for leaf in leaf.inputs}))
        targets = addresses(base, leaf.address)
        if typed.isdisjoint(targets) or all(leaf_at(base, leaf) == value for leaf in targets):
            moved |= dict.fromkeys(targets, value)
            kept.append(leaf)
    alone = Space(base, (), tuple(kept))  # refuses a value that a leaf cannot have
    return Space(alone.with_ties(base), tuple(knobs), tuple(kept))


def _leaves_of_address(base: Design, address: str) -> list[str]:
    """The leaves of an address; none of one that is no leaf's."""
    try:
        return addresses(base, address)
    except DesignError:
        return []


def _tied_chips(address: str, entry: Mapping[str, Any], bases: Mapping[str, Design]) -> list[str]:
    """The chips on which a leaf is tied."""
    try:
        chips = chips_with_address(bases, address)
    except DesignError as error:
        raise DesignError(f"space: {error}") from None
    when = dict(entry.get("when") or {})
    names = when.pop("chip", None)
    if when:
        raise DesignError(f"space.{address}: a tied setting holds for all designs of a chip; 'when' may name only chip")
    if names is None:
        return chips
    wanted = [str(name) for name in (names if isinstance(names, list) else [names])]
    for name in wanted:
        if name not in bases:
            raise DesignError(f"space.{address}: 'when' names chip {name!r}; {suggest_nearest(name, bases)}")
        if name not in chips:
            raise DesignError(f"space.{address}: chip {name} has no such field; those that have it: {', '.join(chips)}")
    return wanted


def _parse_tie(address: str, text: str, base: Design, chip: str) -> TiedLeaf:
    where = f"space.{address}"
    spec = field_at(base, addresses(base, address)[0])
    if not _is_number(spec) or "apart" in spec.metadata:
        raise DesignError(f"{where}: only a number can be tied; make it a knob")

    def resolve_other(other: str) -> UnitExpression:
        try:
            leaf = addresses(base, other)[0]
        except DesignError as error:
            more = f"; without chip {chip}, list the others, as in when: {{chip: [...]}}" if chip else ""
            raise DesignError(f"{where}: {error}{more}") from None
        field = field_at(base, leaf)
        if not _is_number(field):
            raise DesignError(f"{where}: {other} is a word, and no number")
        return UnitExpression(dimension(field.metadata["unit"] or "1"), frozenset((leaf,)), itemgetter(leaf))

    unit_expression = parse_unit_expression(text, where, resolve_other, VALID)
    unit = spec.metadata["unit"] or "1"
    scale = conversion_factor(dimension(unit), unit_expression.unit)
    if scale is None:
        is_in, comes = "a plain number" if unit == "1" else f"in {unit}", unit_text(unit_expression.unit)
        per = "" if comes == "1" else f" / '1 {comes}'"
        scaled = f"({text}){per}" + ("" if unit == "1" else f" * '1 {unit}'")
        raise DesignError(
            f"{where}: {text} is {comes}, and {address} is {is_in}; quantities in quotes may scale it, as in {scaled}"
        )
    return TiedLeaf(address, text, tuple(sorted(unit_expression.inputs)), scaled_value(unit_expression.worth, scale))


def _is_number(spec: Field[Any]) -> bool:
    """Whether a leaf is a number."""
    return not {"options", "flag"} & spec.metadata.keys()


def _order_ties(several: Sequence[TiedLeaf], knobs: Sequence[Knob], base: Design) -> tuple[TiedLeaf, ...]:
    """Each after those that it is made of; refuses circles, and what follows no knob."""
    by_leaf = {leaf: tie for tie in several for leaf in addresses(base, tie.address)}
    moved = set[str]()
    for knob in knobs:
        try:
            moved.update(addresses(base, knob.address))
        except DesignError:  # of another chip
            continue
    ordered, follows = dict[str, TiedLeaf](), dict[str, bool]()

    def place_leaf(single_leaf: TiedLeaf, path: tuple[str, ...]) -> bool:
        if single_leaf.address in path:
            raise DesignError(
                f"space.{single_leaf.address}: depends on itself by "
                f"{', '.join(path[path.index(single_leaf.address) + 1 :]) or 'itself'}"
            )
        if single_leaf.address not in ordered:
            moves = [
                place_leaf(by_leaf[leaf], (*path, single_leaf.address)) if leaf in by_leaf else leaf in moved
                for leaf in single_leaf.inputs
            ]
            ordered[single_leaf.address], follows[single_leaf.address] = single_leaf, any(moves)
        return follows[single_leaf.address]

    for leaf in several:
        if not place_leaf(leaf, ()):
            raise DesignError(
                f"space.{leaf.address}: {leaf.text} depends on no knob of this space and is the same for all designs; "
                f"set it, as in {leaf.address}=VALUE"
            )
    return tuple(ordered.values())
