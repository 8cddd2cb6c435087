"""Settings of a space tied to knobs, as ``chip.tile.matrix.cols: {tied: chip.tile.matrix.rows}``.

An expression has addresses of other settings, numbers, and quantities in quotes: `'2 GB' / (chip.mesh.rows * chip.mesh.cols)`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field
from typing import Any

from dse.config.unit_arithmetic import UnitExpression, parse_unit_expression
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


def space_of_chips(space: Mapping[str, Any], bases: Mapping[str, Design]) -> dict[str, Any]:
    """Knobs and ties of a study's space that exist on some of its chips.

    Args:
        space: entries by address.
        bases: the chips that are left, by name.
    """
    kept: dict[str, Any] = {}
    for address, entry in space.items():
        when = dict(entry.get("when") or {})
        said = when.pop("chip", list(bases))
        names = [name for name in bases if name in (said if isinstance(said, list) else [said])]
        try:
            there = chips_with_address({name: bases[name] for name in names}, address) if names else []
        except DesignError:
            continue
        if there:
            chips = {"chip": there} if len(there) < len(bases) else {}
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
    found: dict[str, list[TiedLeaf]] = {name: [] for name in bases}
    for address, entry in config.items():
        for name in _chips(address, entry, bases):
            found[name].append(_tied(address, str(entry["tied"]), bases[name], name))
    return {name: _ordered(several, knobs, bases[name]) for name, several in found.items()}


def space_with_ties(base: Design, knobs: Sequence[Knob], tied: Sequence[TiedLeaf], said: Collection[str] = ()) -> Space:
    """Space over a design named by overrides, with the tied settings of a study.

    Args:
        base: the design, as it was typed.
        knobs: of the study.
        tied: of the study, each after those that it is made of.
        said: addresses that were given values. What is tied and was given another value than it follows to is not tied here.

    Raises:
        DesignError: a leaf would follow to a value that it cannot have, or a knob is not of this design.
    """
    typed = {leaf for address in said for leaf in _leaves(base, address)}
    kept, moved = list[TiedLeaf](), dict[str, float]()
    for one in tied:
        value = float(one.worth({leaf: moved.get(leaf, leaf_at(base, leaf)) for leaf in one.inputs}))
        targets = addresses(base, one.address)
        if typed.isdisjoint(targets) or all(leaf_at(base, leaf) == value for leaf in targets):
            moved |= dict.fromkeys(targets, value)
            kept.append(one)
    alone = Space(base, (), tuple(kept))  # refuses a value that a leaf cannot have
    return Space(alone.following(base), tuple(knobs), tuple(kept))


def _leaves(base: Design, address: str) -> list[str]:
    """The leaves of an address; none of one that is no leaf's."""
    try:
        return addresses(base, address)
    except DesignError:
        return []


def _chips(address: str, entry: Mapping[str, Any], bases: Mapping[str, Design]) -> list[str]:
    """The chips on which a leaf is tied."""
    try:
        there = chips_with_address(bases, address)
    except DesignError as error:
        raise DesignError(f"space: {error}") from None
    when = dict(entry.get("when") or {})
    said = when.pop("chip", None)
    if when:
        raise DesignError(f"space.{address}: a tied setting holds for all designs of a chip; 'when' may name only chip")
    if said is None:
        return there
    wanted = [str(name) for name in (said if isinstance(said, list) else [said])]
    for name in wanted:
        if name not in bases:
            raise DesignError(f"space.{address}: 'when' names chip {name!r}; {suggest_nearest(name, bases)}")
        if name not in there:
            raise DesignError(f"space.{address}: chip {name} has no such field; those that have it: {', '.join(there)}")
    return wanted


def _tied(address: str, text: str, base: Design, chip: str) -> TiedLeaf:
    where = f"space.{address}"
    spec = field_at(base, addresses(base, address)[0])
    if not _number(spec) or "apart" in spec.metadata:
        raise DesignError(f"{where}: only a number can be tied; make it a knob")

    def named(other: str) -> UnitExpression:
        try:
            leaf = addresses(base, other)[0]
        except DesignError as error:
            more = f"; without chip {chip}, list the others, as in when: {{chip: [...]}}" if chip else ""
            raise DesignError(f"{where}: {error}{more}") from None
        of = field_at(base, leaf)
        if not _number(of):
            raise DesignError(f"{where}: {other} is a word, and no number")
        return UnitExpression(dimension(of.metadata["unit"] or "1"), frozenset((leaf,)), lambda values: values[leaf])

    found = parse_unit_expression(text, where, named, VALID)
    unit = spec.metadata["unit"] or "1"
    scale = conversion_factor(dimension(unit), found.unit)
    if scale is None:
        is_in, comes = "a plain number" if unit == "1" else f"in {unit}", unit_text(found.unit)
        per = "" if comes == "1" else f" / '1 {comes}'"
        scaled = f"({text}){per}" + ("" if unit == "1" else f" * '1 {unit}'")
        raise DesignError(
            f"{where}: {text} is {comes}, and {address} is {is_in}; quantities in quotes may scale it, as in {scaled}"
        )
    worth = found.worth
    return TiedLeaf(address, text, tuple(sorted(found.inputs)), lambda values: worth(values) * scale)


def _number(spec: Field[Any]) -> bool:
    """Whether a leaf is a number."""
    return not {"options", "flag"} & spec.metadata.keys()


def _ordered(several: Sequence[TiedLeaf], knobs: Sequence[Knob], base: Design) -> tuple[TiedLeaf, ...]:
    """Each after those that it is made of; refuses circles, and what follows no knob."""
    by_leaf = {leaf: one for one in several for leaf in addresses(base, one.address)}
    moved = set[str]()
    for knob in knobs:
        try:
            moved.update(addresses(base, knob.address))
        except DesignError:  # of another chip
            continue
    found, follows = dict[str, TiedLeaf](), dict[str, bool]()

    def place(one: TiedLeaf, path: tuple[str, ...]) -> bool:
        if one.address in path:
            raise DesignError(
                f"space.{one.address}: depends on itself by {', '.join(path[path.index(one.address) + 1 :]) or 'itself'}"
            )
        if one.address not in found:
            moves = [place(by_leaf[leaf], (*path, one.address)) if leaf in by_leaf else leaf in moved for leaf in one.inputs]
            found[one.address], follows[one.address] = one, any(moves)
        return follows[one.address]

    for one in several:
        if not place(one, ()):
            raise DesignError(
                f"space.{one.address}: {one.text} depends on no knob of this space and is the same for all designs; "
                f"set it, as in {one.address}=VALUE"
            )
    return tuple(found.values())
