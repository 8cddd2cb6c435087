"""Designs grouped by structure: equal but for a few leaves of their chips.

Results that depend on the structure alone are computed once per structure, several structures at a time, and not for
every design.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.main_memory import CAPACITY_LEAVES, MEMORY_PARTS
from dse.space.memoize import memoize_by_identity

DIVISION = ("die_link.latency", "die_link.die_rows", "die_link.die_cols", "die_link.link_bandwidth")

RELEVANT_LEAVES = ("mesh.", "clock", "tile.", "noc.", *DIVISION, *(f"{part}." for part in MEMORY_PARTS))
"""Leaves of a chip that times of a kernel depend on, capacities of main memory left out."""

MESH_SIDES = ("mesh.rows", "mesh.cols")
"""Leaves that candidates depend on."""


class DesignGroups(NamedTuple):
    """Designs and their structures: which are equal but for a few leaves.

    Attributes:
        chip, said: chip and given settings of one design.
        wide, own: leaves of the chip and of the settings that differ between structures, shape (structures,).
        which: structure of each design, shape (designs,).
        places: of what differs within a structure: between which steps it is, shape (structures,).
        many: whether they came as many.
    """

    chip: Chip
    said: Any
    wide: dict[str, Array]
    own: dict[str, Array]
    which: Array
    places: dict[str, Array]
    many: bool

    @property
    def kinds(self) -> int:
        """Number of structures of the designs."""
        return int(self.which.max()) + 1

    @property
    def keys(self) -> tuple[Hashable, list[tuple[float, ...]]]:
        """Hashable common part of all structures, and the distinguishing values of each."""
        columns = {**self.wide, **{f"said.{name}": value for name, value in self.own.items()}, **self.places}
        rest = replace_leaves(self.chip, dict.fromkeys(self.wide, 0.0) | dict.fromkeys(self.places, 0.0))
        common = rest, replace_leaves(self.said, dict.fromkeys(self.own, 0.0)), tuple(columns)
        return common, list(zip(*(column.tolist() for column in columns.values()), strict=True))

    def rows_by_mesh(self, rows: Array) -> Iterator[Array]:
        """Groups of the given structures that have equal candidates."""
        sides = [self.wide[name][rows] for name in MESH_SIDES if name in self.wide] + [
            value[rows] for value in self.own.values()
        ]
        kinds, which = group_equal_rows(sides) if sides and len(rows) else (rows[:1], np.zeros(len(rows), int))
        yield from (rows[which == kind] for kind in range(len(kinds)))

    def side(self, rows: Array) -> dict[str, float]:
        """Leaves on which candidates depend, equal for the given structures."""
        return {name: self.wide[name][rows[0]].item() for name in MESH_SIDES if name in self.wide}

    def chips(self, rows: Array) -> Chip:
        """Chip of structures with equal candidates; differing leaves have shape (structures, 1)."""
        return replace_leaves(self.chip, {name: value[rows, None] for name, value in self.wide.items()} | self.side(rows))

    def plan_of_rows(self, rows: Array) -> Any:
        """Given settings of structures with equal candidates."""
        return replace_leaves(self.said, {name: value[rows[0]].item() for name, value in self.own.items()})


class GroupBatch(NamedTuple):
    """Structures whose candidates are computed at once on several kinds of machines.

    Attributes:
        chip: of each kind; leaves that differ have the shape (kinds, 1), and `SIDES` are those of the first structures.
        groups: structures with equal candidates.
        rows: numbers of all these structures, which of the groups each is in, and its kind; shape (3, structures).
    """

    chip: Chip
    groups: tuple[Array, ...]
    rows: Array


CROSSED, WASTE = 512, 2
"""Groups times kinds that are worked out at once at most, where these are at most so many times the structures."""


@memoize_by_identity
def group_batches(given_groups: DesignGroups) -> list[GroupBatch]:
    """Batches of all structures: every group with every kind if most exist, else group by group."""
    every = np.arange(given_groups.kinds)
    groups = tuple(given_groups.rows_by_mesh(every))
    rest = [value for name, value in given_groups.wide.items() if name not in MESH_SIDES]
    first, kind = group_equal_rows(rest) if rest else (every[:1], np.zeros(given_groups.kinds, int))
    if len(first) * len(groups) <= min(CROSSED, WASTE * given_groups.kinds):
        rows = np.concatenate(groups)
        which = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        return [GroupBatch(given_groups.chips(first), groups, np.stack([rows, which, kind[rows]]))]
    return [
        GroupBatch(
            given_groups.chips(selected_group),
            (selected_group,),
            np.stack([selected_group, np.zeros(len(selected_group), int), np.arange(len(selected_group))]),
        )
        for group in groups
        for selected_group in (group[start : start + CROSSED] for start in range(0, len(group), CROSSED))
    ]


@memoize_by_identity
def order_by_group(groups: DesignGroups) -> tuple[Array, Array]:
    """Designs sorted by structure, shape (designs,), and the structures' starts, shape (structures + 1,)."""
    return np.argsort(groups.which, kind="stable"), np.cumsum([0, *np.bincount(groups.which, minlength=groups.kinds)])


@memoize_by_identity
def group_designs(chip: Chip, plan: Any, steps: Mapping[str, Sequence[float]]) -> DesignGroups:
    """Group designs into structures that are equal but for a few leaves.

    Args:
        chip: leaves are numbers or of shape (designs,).
        plan: given settings, likewise.
        steps: of leaves of the chip that may differ within a structure, between the same two of their steps.
    """
    own = {spec.name: getattr(plan, spec.name) for spec in fields(plan)}
    own = {name: value for name, value in own.items() if isinstance(value, np.ndarray)}
    if not own:
        return _of_chip(chip, steps)._replace(said=plan)
    return _among(chip, plan, own, steps)


@memoize_by_identity
def _of_chip(chip: Chip, steps: Mapping[str, Sequence[float]]) -> DesignGroups:
    """Groups of designs with equal settings."""
    return _among(chip, None, {}, steps)


def _among(chip: Chip, plan: Any, own: dict[str, Array], steps: Mapping[str, Sequence[float]]) -> DesignGroups:
    """Groups of designs with settings of their own."""
    wide = {address: value for address, value, _ in iterate_leaves(chip) if isinstance(value, np.ndarray)}
    felt = {address: value for address, value in wide.items() if _is_relevant(address)}
    many = {**felt, **own}
    count = len(next(iter(many.values()))) if many else 1
    values = {name: np.atleast_1d(felt.get(name, leaf)) for name, leaf in ((name, leaf_at(chip, name)) for name in steps)}
    places = {name: np.broadcast_to(interval_index(tuple(steps[name]), value), count) for name, value in values.items()}
    felt = {name: value for name, value in felt.items() if name not in steps}
    first, which = group_equal_rows([*places.values(), *felt.values(), *own.values()])
    return DesignGroups(
        replace_leaves(chip, {address: value[0].item() for address, value in wide.items()}),
        replace_leaves(plan, {name: value[0].item() for name, value in own.items()}) if own else plan,
        {name: value[first] for name, value in felt.items()},
        {name: value[first] for name, value in own.items()},
        which,
        {name: value[first] for name, value in places.items()},
        bool(many),
    )


def _is_relevant(address: str) -> bool:
    """Whether times of a kernel depend on a leaf of its chip."""
    return address.startswith(RELEVANT_LEAVES) and address not in CAPACITY_LEAVES


def interval_index(steps: tuple[float, ...], value: Any) -> Any:
    """Index of the interval between steps that contains a value."""
    return np.clip(np.searchsorted(steps, value, side="right") - 1, 0, len(steps) - 1)


def group_equal_rows(columns: list[Array]) -> tuple[Array, Array]:
    """First row of each set of equal rows, shape (kinds,), and the set of each row, shape (rows,)."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = np.unique(column)
        if len(values) > 1:
            key = key * len(values) + np.searchsorted(values, column)
            key = key if key.max() < 2**40 else np.unique(key, return_inverse=True)[1]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which
