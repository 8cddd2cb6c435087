"""Placement of a tensor-parallel group's cores, and its rings ([zhu2025] section 4.1, figure 4).

linear_seq         a line; the ring goes along it and comes back from its end in one message
linear_interleave  a line; the ring goes along its even cores and comes back along its odd ones, two hops at a time
ring               two lines; the ring goes along one and comes back along the other, a hop at a time
mesh               nearly a square; one ring goes through it a hop at a time, or rings in rows and in columns, each interleaved
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.meshgemm import interleaved_order
from dse.evaluators.kernels.gemm.tiling import near_square
from dse.evaluators.kernels.partition.locked_rings import Route, circuit, longest_chain
from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import CoreIndex, SendInstruction
from dse.evaluators.program.routes import route_cores
from dse.space.array_math import Array, ceil_div, maximum, minimum, option_index, remainder, where
from dse.space.mapping import PLACEMENTS

MOST_STEPS = 96
"""Steps of a ring whose circuits are counted; longer ones go on as they do on average."""

LEVELS, MOST_LEVELS = 3, 48
"""Shares of a circuit that a row takes of which chains are known: to each factor of two, and in all."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupRings:
    """Cores of a group as a grid whose rows and columns are rings.

    Attributes:
        row, col: where each core is in the region of the group, shape (rings, members).
    """

    row: Array
    col: Array

    @property
    def rings(self) -> int:
        """Rings along the rows of the grid. [-]"""
        return len(self.row)

    @property
    def members(self) -> int:
        """Number of cores of each ring. [-]"""
        return int(self.row.shape[1])

    @property
    def cores(self) -> CoreIndex:
        """Index of all cores of the group."""
        return CoreIndex(self.row, self.col)

    def shift(self, slot: str, axis: int, start: Array, stop: Array, **options: Any) -> SendInstruction:
        """Message of every core to the next one of its ring, along axis 1 of the grid or across it, axis 0."""
        to = CoreIndex(np.roll(self.row, -1, axis), np.roll(self.col, -1, axis))
        return SendInstruction(slot, self.cores, to, start, stop, **options)


def group_sides(placement: str, cores: int) -> tuple[int, int]:
    """Rows and columns of the chip that a group takes. [-]

    >>> [group_sides(name, 8) for name in ("linear_seq", "linear_interleave", "ring", "mesh")]
    [(1, 8), (1, 8), (2, 4), (2, 4)]
    """
    if placement.startswith("linear") or cores < 4:
        return 1, cores
    if placement == "ring":
        return (2, cores // 2) if cores % 2 == 0 else (1, cores)
    return near_square(cores)


def _line(cores: int) -> Array:
    """Places along a line from its end, so that neighbours in the ring are at most two apart.

    >>> _line(6).tolist()
    [0, 2, 4, 5, 3, 1]
    """
    return interleaved_order(cores)[::-1]


@lru_cache(maxsize=4096)
def place_group(placement: str, cores: int, *, divided: bool = False) -> GroupRings:
    """Places of the cores of a group, as a grid of rings.

    Args:
        placement: an option of `PLACEMENTS`.
        cores: how many.
        divided: whether the grid is two-dimensional wherever the placement is; lines are then cut into rows.
    """
    rows, cols = group_sides(placement, cores)
    if placement == "mesh" and (divided or rows * cols % 2 or rows == 1):
        return GroupRings(*np.meshgrid(_line(rows), _line(cols), indexing="ij"))
    if placement == "mesh":
        row, col = _closed(rows, cols) if rows % 2 == 0 else _closed(cols, rows)[::-1]
    elif placement == "linear_seq":
        row, col = np.zeros(cores, int), np.arange(cores)
    elif rows == 1:
        row, col = np.zeros(cores, int), _line(cores)
    else:
        row = np.repeat([0, 1], cols)
        aligned = divided and near_square(cores)[0] == 2  # each line is a row of the grid, whose columns are neighbours
        col = np.concatenate([np.arange(cols), np.arange(cols)[:: 1 if aligned else -1]])
    shape = near_square(cores) if divided else (1, cores)
    return GroupRings(row.reshape(shape), col.reshape(shape))


def _closed(rows: int, cols: int) -> tuple[Array, Array]:
    """Rows and columns of a closed route through all cores of an even number of rows."""
    snake = [(r, c) for r in range(rows) for c in (range(1, cols) if r % 2 == 0 else range(cols - 1, 0, -1))]
    row, col = zip(*snake, *((r, 0) for r in range(rows - 1, -1, -1)), strict=True)
    return np.array(row), np.array(col)


def ring_grid(placement: str, cores: Any, *, divided: bool = False) -> tuple[Any, Any]:
    """Rings of a group and members of each; leaves broadcast over designs. [-]"""
    which = option_index(placement, PLACEMENTS)
    return _rings(which, cores, divided * 1), cores // _rings(which, cores, divided * 1)


def group_sides_by_design(placement: str, cores: Any) -> tuple[Any, Any]:
    """Rows and columns of the chip that a group takes, over designs. [-]"""
    rows = _rows(option_index(placement, PLACEMENTS), cores)
    return rows, cores // rows


def ring_shift_seconds(
    placement: str,
    cores: Any,
    axis: int,
    nbytes: Any,
    fabric: MeshFabric,
    *,
    divided: bool = False,
    mean: Any = None,
    rest: Any = 0,
    row: Any = 0.0,
    buffered: bool = False,
    halves: Any = 2,
) -> Any:
    """Time of one of many shifts in which every core sends to the next one of its ring. [s]

    What a core sends it was sent in the step before, so that hops add up along the ring: a long way back is in one step of each
    slice, not in all. A wormhole's words pass a hop apart; a locked route is set up first, there and back.

    Args:
        placement, cores, divided: of the group.
        axis: 1 along the rings, 0 across them.
        nbytes: that the core with most sends. [B]
        fabric: network of the mesh.
        mean: bytes of a core on average, where slices differ: they take turns on a channel; `nbytes` where None. [B]
        rest, row: slices that have a row more than the others, which locked routes get out of step by, and what it has; 0 where
            all are alike. [1], [B]
        buffered: whether what comes overwrites what a core sent on in the step before.
        halves: how often slices go around one after the other: twice in an allreduce.
    """
    key = (option_index(placement, PLACEMENTS), cores, axis, divided * 1)
    reach = _reach(*key)
    if isinstance(reach, float) and reach == 0:
        return 0.0
    how: dict[str, Any] = {"divided": divided, "mean": mean, "rest": rest, "row": row, "buffered": buffered, "halves": halves}
    takes = fabric.post + channel_busy_seconds(placement, cores, axis, nbytes, fabric, **how)
    if not fabric.locked:
        takes = takes + 2 * fabric.ramp + _hops(*key, minimum(halves, 2)) * fabric.hop
    return where(reach > 0, takes, 0.0)


def buffered_steps(
    placement: str, cores: Any, axis: int, count: Any, nbytes: Any, fabric: MeshFabric, work: Any, **how: Any
) -> Any:
    """Time of `count` shifts of a double-buffered block that overlap work on each block. [s]

        t = max(n step, n work, floor(n / 2) (way + max(start and words, work)) + (n mod 2) (start + way))

    What comes overwrites the older version, so that a message waits until its target has sent that on and worked on it: two
    steps take the longest way with its words, and what the target does then. An odd number begins and ends with the way.

    Args:
        count: n.
        work: of a core on what has come. [s]
        how: other arguments of `ring_shift_seconds`; slices go around once by default.
    """
    key = (option_index(placement, PLACEMENTS), cores, axis, how.get("divided", False) * 1)
    how = {"halves": 1, **how}
    steps = count * maximum(ring_shift_seconds(placement, cores, axis, nbytes, fabric, buffered=True, **how), work)
    if fabric.locked:
        return steps
    busy, odd = channel_busy_seconds(placement, cores, axis, nbytes, fabric, **how), remainder(count, 2)
    way = 2 * fabric.ramp + _reach(*key) * fabric.hop + busy
    pairs = (count - odd) / 2 * (way + maximum(fabric.post + busy, work))
    return where(_reach(*key) > 0, maximum(steps, pairs + odd * (fabric.post + way)), steps)


def channel_busy_seconds(
    placement: str, cores: Any, axis: int, nbytes: Any, fabric: MeshFabric, *,
    divided: bool = False, mean: Any = None, rest: Any = 0, row: Any = 0.0, buffered: bool = False, halves: Any = 2,
) -> Any:  # fmt: skip
    """Time for which channels are busy in one shift of a ring; arguments as in `ring_shift_seconds`. [s]

    A wormhole's message holds a link for its words, a locked one all channels of its route until its last word is there: both
    ways of them where routers are between, which pass the grant on, its own way between neighbours.
    """
    key = (option_index(placement, PLACEMENTS), cores, axis, divided * 1)
    stream = ceil_div(nbytes, fabric.word_bytes) * fabric.pace
    others = stream if mean is None else mean / fabric.word_bytes * fabric.pace
    if not fabric.locked:
        return maximum(stream, _turns(*key) * others)
    least = ceil_div(nbytes - row, fabric.word_bytes) * fabric.pace
    rest = where(stream > least, rest, 0)
    share = (stream - least) / maximum(least + 6 * fabric.ramp, 1e-30)
    level = minimum(np.rint(LEVELS * np.log2(1 + 16 * share)), MOST_LEVELS)
    which = (*key, buffered * 1, rest, where(rest > 0, level, 0), minimum(halves, MOST_STEPS))
    circuits, rows, links = (_chain(number, *which) for number in range(3))
    words = where(rest > 0, circuits * least + rows * (stream - least), maximum(stream, circuits * others))
    return circuits * 6 * fabric.ramp + 3 * links * fabric.hop + words


@tabulate
def _rows(which: int, cores: int) -> float:
    return float(group_sides(PLACEMENTS[which], cores)[0])


@tabulate
def _rings(which: int, cores: int, divided: int) -> float:
    return float(place_group(PLACEMENTS[which], cores, divided=bool(divided)).rings)


@tabulate
def _hops(which: int, cores: int, axis: int, divided: int, halves: int) -> float:
    """Links of a message, on average over the way of the slice that has the longest one: around its ring but for one step.

    The second time around begins where the first one ended, so that the steps left out are neighbours.
    """
    group = place_group(PLACEMENTS[which], cores, divided=bool(divided))
    links = np.array([len(links) for links in _routes(which, cores, axis, divided)]).reshape(group.rings, group.members)
    steps = halves * ((group.members if axis else group.rings) - 1)
    left_out = links if halves == 1 else links + np.roll(links, 1, axis)
    return float((halves * links.sum(axis=axis) - left_out.min(axis=axis)).max() / steps) if steps else 0.0


@tabulate
def _reach(which: int, cores: int, axis: int, divided: int) -> float:
    """Links of the longest message."""
    return float(max((len(links) for links in _routes(which, cores, axis, divided)), default=0))


@tabulate
def _turns(which: int, cores: int, axis: int, divided: int) -> float:
    """Messages of the busiest link."""
    return float(max(Counter(link for links in _routes(which, cores, axis, divided) for link in links).values(), default=0))


@tabulate
def _chain(
    number: int, which: int, cores: int, axis: int, divided: int, buffered: int, rest: int, level: int, halves: int
) -> float:
    """Circuits that follow one another, rows beyond those of all, or links, each on average over all steps."""
    return _chains(which, cores, axis, divided, buffered, rest, level, halves)[number]


@lru_cache(maxsize=4096)
def _chains(
    which: int, cores: int, axis: int, divided: int, buffered: int, rest: int, level: int, halves: int
) -> tuple[float, float, float]:
    group = place_group(PLACEMENTS[which], cores, divided=bool(divided))
    members = group.row.shape[axis]
    steps = min(halves * (members - 1), MOST_STEPS)
    routes = _routes(which, cores, axis, divided)
    if not steps:
        return 0.0, 0.0, 0.0
    onward = np.roll(np.arange(cores).reshape(group.row.shape), -1, axis).ravel().tolist()
    then: list[tuple[int, ...]] = [
        (target, onward.index(place)) if buffered else (target,) for place, target in enumerate(onward)
    ]
    more = _more(group, axis, rest).reshape(cores, members)
    place = np.indices(group.row.shape)[axis].ravel()
    carried = [more[range(cores), (place - step % (2 * members - 2)) % members].tolist() for step in range(steps)]
    share = round(2 ** (level / LEVELS) - 1)
    chain = longest_chain(
        [circuit(route) for route in routes], [len(route) for route in routes], then, carried, share, 2 * members - 2
    )
    circuits, rows, links = (count / steps for count in chain)
    return circuits, rows, links


def _more(rings: GroupRings, axis: int, rest: int) -> Array:
    """Rows that slices have beyond those of all, of as many that remain, by core and slice; across rings of its own."""
    along = np.diff(np.round(rest * np.arange(rings.members + 1) / rings.members)).astype(int)
    if axis or rings.rings == 1:
        return np.broadcast_to(along, (rings.row.size, rings.members)) if axis else np.zeros((rings.row.size, 1), int)
    mine = along[(np.arange(rings.row.size) + 1) % rings.members]
    return np.diff(np.round(mine[:, None] * np.arange(rings.rings + 1) / rings.rings)).astype(int)


def conflicting_routes(routes: Iterable[Route]) -> list[list[int]]:
    """Locked routes that share each channel, as the links of each route in order.

    Those of several links hold both ways; of those between neighbours, which hold their own, the way of more.

    >>> there, back = ((0, 0), (0, 1)), ((0, 1), (0, 0))
    >>> conflicting_routes([[there], [back]]), conflicting_routes([[there], [back], [((0, 2), (0, 1)), back]])
    ([[1]], [[2, 1], [2]])
    """
    loads: dict[Any, tuple[list[int], list[int], list[int]]] = {}
    for links in routes:
        for link in links:
            kinds = loads.setdefault(tuple(sorted(link)), ([], [], []))
            kinds[0 if len(links) > 1 else 1 + (link[0] > link[1])].append(len(links))
    return [far + max(ahead, home, key=len) for far, ahead, home in loads.values()]


def _routes(which: int, cores: int, axis: int, divided: int) -> list[Route]:
    """Links of each message when every core sends to the next of its ring."""
    send = place_group(PLACEMENTS[which], cores, divided=bool(divided)).shift("", axis, np.zeros(1), np.zeros(1))
    ends = (send.source.row, send.source.col, send.target.row, send.target.col)
    routes = []
    for r, c, to_r, to_c in zip(*(end.ravel().tolist() for end in ends), strict=True):
        routes.append(list(pairwise(route_cores((r, c), (to_r, to_c)))))
    return routes
