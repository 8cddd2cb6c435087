"""Groups of cores on a mesh, each with a root: common parts of all multicasts and reductions.

A mesh is cut in rectangles of `rows` x `cols` cores. A core group is a row of a rectangle, a column, or the whole rectangle.
All groups work at the same time. The root of a group is at a given place of the group, counted row by row, or on the diagonal
of the rectangle, which puts the roots of the rows in different columns ([zhang2026] section III-B).

The analytical time is that of the longest of some chains of messages, each given by its counts. Chains that others outlast for
any machine constants are left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import ONE_DIE, MeshFabric, die_period
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Array, ceil_div, floor_div, maximum, where
from dse.space.errors import DesignError, suggest_nearest
from dse.space.memoize import memoize_by_identity
from dse.space.workload import DIAGONAL, GROUP_AXES, REDUCTIONS, TILE_PATTERNS


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """Division of a mesh into rectangles, and of these into groups of cores.

    Attributes:
        rows, cols: cores of a rectangle.
        along: cores of a rectangle that form a group, an option of `GROUP_AXES`.
        root: place in the group, or `DIAGONAL`.
        die_rows, die_cols: cores from one crossing between dies to the next in a rectangle; `ONE_DIE` without crossings.
    """

    rows: Any
    cols: Any
    along: str = "row"
    root: int | str = DIAGONAL
    die_rows: Any = ONE_DIE
    die_cols: Any = ONE_DIE


class CoreGroup(NamedTuple):
    """Cores of a group as rows and columns, the place of its root, and cores between crossings.

    Places are counted row by row.
    """

    rows: int
    cols: int
    root: int
    die_rows: float = ONE_DIE
    die_cols: float = ONE_DIE

    @property
    def members(self) -> int:
        """Number of cores in the group. [-]"""
        return self.rows * self.cols

    @property
    def reach(self) -> int:
        """Hops from the root to the farthest place of the group: a corner. [-]"""
        row, col = divmod(self.root, self.cols)
        return max(row, self.rows - 1 - row) + max(col, self.cols - 1 - col)

    def count_hops(self, core: int, other: int) -> int:
        """Hops between two places of the group. [-]"""
        return abs(core // self.cols - other // self.cols) + abs(core % self.cols - other % self.cols)

    def count_crossings(self, core: int, other: int) -> int:
        """Links from die to die between two places of the group. [-]"""
        (row, col), (to_row, to_col) = divmod(core, self.cols), divmod(other, self.cols)
        down, across = self.die_rows, self.die_cols
        return int(abs(row // down - to_row // down) + abs(col // across - to_col // across))

    @property
    def is_divided(self) -> bool:
        """Whether members are on several dies."""
        return self.rows > self.die_rows or self.cols > self.die_cols

    def message(self, source: int, target: int, **counts: int) -> "MessageChain":
        """Chain of one message from place to place, with further counts of it."""
        crossings = self.count_crossings(source, target)
        hops, crossed = self.count_hops(source, target), int(crossings > 0)
        return MessageChain(messages=1, hops=hops, crossings=crossings, crossed=crossed, **counts)

    def interval(self, source: int, target: int) -> "MessageChain":
        """Chain from the start of a message from place to place to the start of the next one."""
        return MessageChain(intervals=1, crossed_intervals=int(self.count_crossings(source, target) > 0))


class MessageChain(NamedTuple):
    """Counts of a chain of dependent messages that may decide when a collective ends.

    Attributes:
        posts: started from memory with nothing to hide behind.
        messages: that come through two ramps, word after word.
        stages: of software that synchronises.
        hops: links.
        sums: of what arrived with what is there.
        intervals: from the start of a message to the start of the next one of the same core.
        crossings: links from die to die, among `hops`.
        crossed, crossed_intervals: messages and intervals of messages to other dies, among those above.
    """

    posts: int = 0
    messages: int = 0
    stages: int = 0
    hops: int = 0
    sums: int = 0
    intervals: int = 0
    crossings: int = 0
    crossed: int = 0
    crossed_intervals: int = 0

    def followed_by(self, other: "MessageChain") -> "MessageChain":
        """Chain of this one followed by another one."""
        return MessageChain(*(a + b for a, b in zip(self, other, strict=True)))


class BufferRows(NamedTuple):
    """Rows `start` to `stop` of a buffer that every core sends or receives."""

    slot: str
    start: int
    stop: int


Stages = list[list[tuple[int, int]]]
"""Messages as (source, target) places of a group, step by step."""

Chains = Callable[[str, CoreGroup], list[MessageChain]]
"""The chains of a pattern (multicast or reduce) in a group."""

Ways = Callable[[CoreGroup], dict[int, list[MessageChain]]]
"""The chains of a multicast to each member of a group, and, at its root's place, until the root may go on."""

Moved = Callable[[str, CoreGroup], tuple[int, int, int]]
"""Messages of a pattern that leave a core of a group, links that they cross, and messages that come to one."""

Rounds = tuple[Round, ...]

AGAIN = "again"
"""A multicast, then a reduction whose members begin when they have received: the pattern of groups that repeat."""


def check_groups(groups: MeshGroups, mesh: CoreMesh) -> None:
    """Refuse groups that do not divide the mesh.

    Raises:
        DesignError: naming the field.
    """
    for name, side, whole in (("rows", groups.rows, mesh.rows), ("cols", groups.cols, mesh.cols)):
        if side < 1 or whole % side:
            raise DesignError(f"group: {side} {name} do not divide the {whole} {name} of the mesh; choose a divisor")
    if groups.along not in GROUP_AXES:
        raise DesignError(f"along: no option {groups.along!r}; {suggest_nearest(groups.along, GROUP_AXES)}")
    if groups.root == DIAGONAL:
        if groups.along == "rectangle":
            raise DesignError(
                f"root: a {groups.rows} x {groups.cols} rectangle has one root, got diagonal; set its place, such as 0"
            )
        return
    height, width = _sides(groups)
    if isinstance(groups.root, str) or not 0 <= groups.root < height * width:
        raise DesignError(
            f"root: a group of {height} x {width} cores has places 0 to {height * width - 1}, got {groups.root!r}"
        )


def groups_of_mesh(groups: MeshGroups, mesh: CoreMesh) -> dict[CoreGroup, CoreIndex]:
    """First cores of all groups of a mesh, one array entry per group."""
    check_groups(groups, mesh)
    height, width = _sides(groups)
    row, col = np.mgrid[0 : mesh.rows : height, 0 : mesh.cols : width].reshape(2, -1)
    place = _root_at(groups, row, col)
    dies = groups.die_rows if height > 1 else ONE_DIE, groups.die_cols if width > 1 else ONE_DIE
    return {
        CoreGroup(height, width, int(root), *dies): CoreIndex(row[place == root], col[place == root])
        for root in np.unique(place)
    }


def group_members(groups: MeshGroups, mesh: CoreMesh) -> CoreIndex:
    """Members of all groups, root first, shape (groups, members)."""
    rows, cols = [], []
    for team, first in groups_of_mesh(groups, mesh).items():
        places = np.array([team.root, *(place for place in range(team.members) if place != team.root)])
        rows.append(first.row[:, None] + places // team.cols)
        cols.append(first.col[:, None] + places % team.cols)
    return CoreIndex(np.concatenate(rows), np.concatenate(cols))


def group_rounds(
    groups: MeshGroups, mesh: CoreMesh, stages: Callable[[CoreGroup], Stages], tile: BufferRows, combine: str, via: str
) -> Rounds:
    """Rounds of a program, one for each step of all groups."""
    steps: list[list[Array]] = []
    for team, first in groups_of_mesh(groups, mesh).items():
        for number, pairs in enumerate(stages(team)):
            steps += [[]] if number == len(steps) else []
            ends = np.array(pairs)[:, :, None]  # pairs, source and target, teams
            steps[number].append(
                np.stack([first.row + ends // team.cols, first.col + ends % team.cols]).reshape(2, len(pairs), 2, -1)
            )
    rounds = []
    for parts in steps:
        row, col = (np.concatenate([part[axis].swapaxes(0, 1).reshape(2, -1) for part in parts], axis=1) for axis in (0, 1))
        source, target = CoreIndex(row[0], col[0]), CoreIndex(row[1], col[1])
        moved = SendInstruction(
            tile.slot, source, target, np.asarray(tile.start), np.asarray(tile.stop), combine=combine, via=via
        )
        rounds.append(Round((moved,)))
    return tuple(rounds)


def collective_buffers(shape: GemmShape, dtype: str, *, arriving: bool) -> tuple[Buffer, ...]:
    """Buffers of every core: its data, and what software receives before it is combined."""
    x = Buffer("x", (shape.m, 1), dtype)
    return (x, Buffer("arriving", (shape.m, 1), dtype)) if arriving else (x,)


def collective_program(
    mesh: CoreMesh, slots: tuple[Buffer, ...], pattern: str, multicast: Callable[[], Rounds], reduction: Callable[[], Rounds]
) -> Program:
    """Program of a multicast, a reduction, or both in sequence."""
    rounds = {"multicast": multicast, "reduce": reduction}
    return Program(mesh.rows, mesh.cols, slots, (tuple(turn for part in pattern_stages(pattern) for turn in rounds[part]()),))


def collective_cost(
    shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, pattern: str, groups: MeshGroups, chains: Chains, moved: Moved,
    circuits: Chains | None = None,
) -> KernelCost:  # fmt: skip
    """Time until the last group has finished [s], and activity of all groups, over designs.

    Args:
        shape, fabric, pattern, groups, chains, circuits: as of `collective_seconds`.
        mesh: leaves broadcast over designs.
        moved: messages of a group.
    """
    return KernelCost(
        collective_seconds(shape, fabric, pattern, groups, chains, circuits),
        collective_activity(shape, mesh, pattern, groups, moved),
    )


def collective_activity(shape: GemmShape, mesh: CoreMesh, pattern: str, groups: MeshGroups, moved: Moved) -> Activity:
    """Activity of a collective of all groups; arguments as in `collective_cost`."""
    sides = (groups.rows, groups.cols)
    count = floor_div(mesh.rows, groups.rows) * floor_div(mesh.cols, groups.cols) * 2.0 * shape.m
    sent, hops, came = (
        _by_sides(sides, (1.0,), _Counts(counter, moved, pattern, groups.along, groups.root))
        for counter in (_sent, _crossed, _came)
    )
    return Activity(sent_bytes=sent * count, hop_bytes=hops * count, spread_bytes=(came - sent) * count)


def collective_seconds(
    shape: GemmShape, fabric: MeshFabric, pattern: str, groups: MeshGroups, chains: Chains, circuits: Chains | None = None
) -> Any:
    """Time until the last group has finished; leaves broadcast over designs. [s]

    Args:
        shape: m elements on each core, of 2 bytes.
        fabric: leaves broadcast over designs, as do the sides of `groups`.
        pattern: an option of `TILE_PATTERNS`.
        groups: the core groups.
        chains: of a group.
        circuits: likewise, where messages lock their ways, one after the other of a core; as they are free where it is None.
    """
    sides = _with_dies((groups.rows, groups.cols), fabric)
    taken = _by_sides(sides, _prices(shape, fabric), _Counts(_longest, chains, pattern, *_cut(groups)))
    if circuits is None or not np.any(fabric.locked):
        return taken
    # a request, a grant and the words cross the way
    posts, message, stage, hop, *others = _prices(shape, fabric)
    prices = posts, message + 4 * fabric.ramp, stage, 3 * hop, *others
    locked = _by_sides(sides, prices, _Counts(_longest, circuits, pattern, *_cut(groups)))
    return where(fabric.locked > 0, locked, taken)


def multicast_lead_time(shape: GemmShape, fabric: MeshFabric, groups: MeshGroups, ways: Ways) -> Any:
    """Time until a multicast reaches the roots that continue, its own and those of other groups. [s]

    Other members are later, and stay so much later while groups go on.

    Args:
        shape, fabric, groups: as of `collective_seconds`; roots are on the diagonal.
        ways: of a group.
    """
    sides = _with_dies((groups.rows, groups.cols), fabric)
    return _by_sides(sides, _prices(shape, fabric), _Counts(_leading, ways, "multicast", *_cut(groups)))


def multicast_send_time(shape: GemmShape, fabric: MeshFabric, groups: MeshGroups, ways: Ways) -> Any:
    """Time for which the root of a multicast sends; arguments as in `multicast_lead_time`. [s]"""
    sides = _with_dies((groups.rows, groups.cols), fabric)
    return _by_sides(sides, _prices(shape, fabric), _Counts(_held, ways, "multicast", *_cut(groups)))


Sides = tuple[Any, Any] | tuple[Any, Any, Any, Any]
"""Rows and columns of a rectangle; and cores from crossing to crossing, where some rectangle has crossings."""


def _with_dies(sides: tuple[Any, Any], fabric: MeshFabric) -> Sides:
    """The sides of a rectangle, with how far apart crossings between dies are on each."""
    return (*sides, *_periods(*sides, fabric.die_rows, fabric.die_cols)) if fabric.is_divided else sides


@memoize_by_identity
def _periods(rows: Any, cols: Any, die_rows: Any, die_cols: Any) -> tuple[Any, Any]:
    return die_period(rows, die_rows), die_period(cols, die_cols)


def _cut(groups: MeshGroups) -> tuple[str, int | str]:
    return groups.along, groups.root


def _prices(shape: GemmShape, fabric: MeshFabric) -> tuple[Any, ...]:
    """What each count of a chain costs. [s]"""
    words = ceil_div(2.0 * shape.m, fabric.word_bytes)
    stream = words * fabric.pace
    interval, slower = maximum(stream, words * fabric.copy + fabric.post), (0.0, 0.0)
    if fabric.is_divided:
        crossed = words * fabric.crossing_pace
        slower = crossed - stream, maximum(crossed, words * fabric.copy + fabric.post) - interval
    return (
        fabric.post,
        2 * fabric.ramp + stream,
        fabric.stage,
        fabric.hop,
        where(fabric.combine == 0, 0.0, fabric.call + shape.m * fabric.combine),
        interval,
        fabric.crossing,
        *slower,
    )


def find_longest_chains(chains: Iterable[MessageChain]) -> list[MessageChain]:
    """Chains that no other chain outlasts for any machine constants."""
    found_chains: list[MessageChain] = []
    for chain in sorted(set(chains), reverse=True):
        if not any(all(a <= b for a, b in zip(chain, other, strict=True)) for other in found_chains):
            found_chains.append(chain)
    return found_chains


def pattern_stages(pattern: str) -> tuple[str, ...]:
    """Stages of a pattern: multicast, reduce, or both in sequence.

    Raises:
        DesignError: no such pattern.
    """
    if pattern == AGAIN:
        return (AGAIN,)
    if pattern not in TILE_PATTERNS:
        raise DesignError(f"pattern: no option {pattern!r}; {suggest_nearest(pattern, TILE_PATTERNS)}")
    return ("reduce", "multicast") if pattern == "allreduce" else (pattern,)


def check_reduction(combine: str) -> str:
    """Return the name of a reduction if it is known; refuse it otherwise.

    Raises:
        DesignError: it is not.
    """
    if combine not in REDUCTIONS:
        raise DesignError(f"combine: no option {combine!r}; {suggest_nearest(combine, REDUCTIONS)}")
    return combine


def _sides(groups: MeshGroups) -> tuple[int, int]:
    height = 1 if groups.along == "row" else groups.rows
    return height, 1 if groups.along == "column" else groups.cols


def _root_at(groups: MeshGroups, row: Array, col: Array) -> Array:
    """Places of the roots of groups that begin at some cores."""
    if groups.root != DIAGONAL:
        return np.full(row.shape, groups.root, dtype=int)
    across, along = (row % groups.rows, groups.cols) if groups.along == "row" else (col % groups.cols, groups.rows)
    return np.asarray(across % along)


class _Counts(NamedTuple):
    """Function that counts chains of groups, with its arguments and the division besides their sides."""

    function: Callable[..., Iterable[tuple[float, ...]]]
    of: Chains | Moved | Ways
    pattern: str
    along: str
    root: int | str

    def count_at(
        self, rows: int, cols: int, die_rows: float = ONE_DIE, die_cols: float = ONE_DIE
    ) -> Iterable[tuple[float, ...]]:
        """Counts of a group of some sides; a root beyond its group counts as the first place."""
        members = (1 if self.along == "row" else rows) * (1 if self.along == "column" else cols)
        root = self.root if isinstance(self.root, str) or self.root < members else 0
        return self.function(self.of, self.pattern, MeshGroups(rows, cols, self.along, root, die_rows, die_cols))


@lru_cache(maxsize=4096)
def _longest(chains: Chains, pattern: str, group: MeshGroups) -> tuple[MessageChain, ...]:
    """Chains of all groups of one rectangle of cores."""
    found_chains: list[MessageChain] = []
    for team in groups_of_mesh(group, CoreMesh(group.rows, group.cols)):
        ways = [MessageChain()]
        for part in pattern_stages(pattern):
            ways = [before.followed_by(after) for before in ways for after in chains(part, team)]
        found_chains += ways
    return tuple(find_longest_chains(found_chains))


@lru_cache(maxsize=4096)
def _leading(ways: Ways, pattern: str, group: MeshGroups) -> tuple[MessageChain, ...]:
    """Chains of all groups of a rectangle to those of their members that are roots."""
    groups = groups_of_mesh(group, CoreMesh(group.rows, group.cols))
    roots = {team.root for team in groups}
    return tuple(
        find_longest_chains(chain for team in groups for place, way in ways(team).items() if place in roots for chain in way)
    )


@lru_cache(maxsize=4096)
def _held(ways: Ways, pattern: str, group: MeshGroups) -> tuple[MessageChain, ...]:
    """Messages that roots of a group start, one after the other."""
    starts = [
        chain.posts for team in groups_of_mesh(group, CoreMesh(group.rows, group.cols)) for chain in ways(team)[team.root]
    ]
    return (MessageChain(intervals=max(starts)),)


@lru_cache(maxsize=4096)
def _moved(moved: Moved, pattern: str, group: MeshGroups) -> tuple[float, float, float]:
    """Messages sent, links crossed and messages received, of all groups of a rectangle. [-]"""
    total = np.zeros(3)
    for team, first in groups_of_mesh(group, CoreMesh(group.rows, group.cols)).items():
        for part in pattern_stages(pattern):
            total += len(first.row) * np.array(moved(part, team))
    return float(total[0]), float(total[1]), float(total[2])


def _sent(moved: Moved, pattern: str, group: MeshGroups) -> tuple[tuple[float, ...]]:
    return (_moved(moved, pattern, group)[:1],)


def _crossed(moved: Moved, pattern: str, group: MeshGroups) -> tuple[tuple[float, ...]]:
    return (_moved(moved, pattern, group)[1:2],)


def _came(moved: Moved, pattern: str, group: MeshGroups) -> tuple[tuple[float, ...]]:
    return (_moved(moved, pattern, group)[2:],)


def _by_sides(sides: Sides, prices: tuple[Any, ...], counts: _Counts) -> Any:
    """Largest sum of counts times machine times, with counts that depend on the sides of a rectangle. [s]"""
    if not any(isinstance(leaf, np.ndarray) for leaf in sides):
        total: Any = 0.0
        for row in counts.count_at(int(sides[0]), int(sides[1]), *sides[2:]):
            total = maximum(total, sum((count * price for count, price in zip(row, prices, strict=True)), 0.0))
        return total
    which, kinds = _coded(*sides) if len(sides) == 2 else _kinds(*sides)
    latest: Any = 0.0
    for chain in _table(counts, kinds):
        terms = [line[which] * price for line, price in zip(chain, prices, strict=True) if line is not None]
        latest = np.maximum(latest, sum(terms, np.zeros(which.shape)))
    return latest


@memoize_by_identity
def _coded(rows: Any, cols: Any) -> tuple[Array, tuple[tuple[float, ...], ...]]:
    """Which sides each group has, and the sides that there are."""
    rows, cols = np.broadcast_arrays(rows, cols)
    base = int(cols.max()) + 1
    which = (rows * base + cols).astype(np.int64)
    codes = np.flatnonzero(np.bincount(which.ravel()))  # sides are few, and small numbers
    place = np.zeros(codes[-1] + 1, np.int64)
    place[codes] = np.arange(len(codes))
    return place[which], tuple((code // base, code % base) for code in codes.tolist())


@memoize_by_identity
def _kinds(*sides: Any) -> tuple[Array, tuple[tuple[float, ...], ...]]:
    """The same of sides with dies."""
    every = np.broadcast_arrays(*sides)
    kinds, which = np.unique(np.stack([side.ravel() for side in every]).astype(float), axis=1, return_inverse=True)
    found_kinds = tuple((int(rows), int(cols), *dies) for rows, cols, *dies in kinds.T.tolist())
    return which.reshape(every[0].shape), found_kinds


@lru_cache(maxsize=4096)
def _table(counts: _Counts, kinds: tuple[tuple[Any, ...], ...]) -> list[list[Array | None]]:
    """Counts of groups of some sides, by chain and price, shape (groups,); None where there are none of any group.

    Fewer chains have their first one again.
    """
    chains = [tuple(counts.count_at(*kind)) for kind in kinds]
    most = max(len(chain) for chain in chains)
    lines = np.array([[*chain, *chain[:1] * (most - len(chain))] for chain in chains], dtype=float).transpose(1, 2, 0)
    return [[np.ascontiguousarray(line) if line.any() else None for line in chain] for chain in lines]
