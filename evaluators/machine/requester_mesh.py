"""Mesh between requesters (tiles) and memory channels at its edge, whose links carry their data.

The data of reads and of writes go along rows first, as everything on these meshes does: those of reads along the edge to the
column of the tile, those of writes along the tile's row to the column of the channel.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.dram_constants import FROM, TO
from dse.evaluators.machine.memory_channels import mesh_channels
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.space.array_math import Array


class RequesterMesh(NamedTuple):
    """Mesh between requesters and channels; times in clocks of the memory.

    The data of a read cross it when they leave the channel, those of a write when the channel has taken it; what asks for them
    or answers takes no link. A link has room for all that wait for it.

    Attributes:
        row, col: routers of the channels, shape (channels,).
        from_row, from_col: routers of the requesters, shape (requesters,).
        hop, ramp: from router to router, and between a requester and its router.
        pass_: for the data of a burst to pass a link; bursts fill words of a link together.
        free: when links are, shape (6, rows, cols): a router's four, `FROM` and `TO`.
    """

    row: Any
    col: Any
    from_row: Any
    from_col: Any
    hop: float
    ramp: float
    pass_: float
    free: Any


def no_mesh() -> RequesterMesh:
    """Requesters directly at the channels, without a mesh between them."""
    empty = np.zeros(0, np.int64)
    return RequesterMesh(empty, empty, empty, empty, 0.0, 0.0, 0.0, np.zeros((6, 0, 0)))


def requester_mesh(
    sides: tuple[int, int], place: str, count: int, requesters: int, fabric: MeshFabric, clock: float, access: float
) -> RequesterMesh:
    """Mesh between the channels and requesters of a memory.

    Args:
        sides: rows and columns of the mesh.
        place: the edge that the channels are spread along.
        count: channels.
        requesters: at most as many as tiles. They are spread row by row, each row beginning one further on, so that as many as
            rows are on a diagonal.
        fabric: network of the mesh.
        clock: of the memory. [Hz]
        access: data of a burst. [B]
    """
    row, col, from_row, from_col = _places(sides, place, count, requesters)
    hop, ramp, pass_ = (float(time) * clock for time in (fabric.hop, fabric.ramp, access / fabric.word_bytes * fabric.word))
    return RequesterMesh(row, col, from_row, from_col, hop, ramp, pass_, np.zeros((6, *sides)))


def _places(sides: tuple[int, int], place: str, count: int, requesters: int) -> tuple[Array, Array, Array, Array]:
    edge = mesh_channels(place, count, *sides, 0.0, 1.0)
    tile = np.arange(requesters) * (sides[0] * sides[1]) // requesters
    row = tile // sides[1]
    return edge.row, edge.col, row, (tile + row) % sides[1]


@lru_cache(maxsize=4096)
def busiest_share(sides: tuple[int, int], place: str, count: int, requesters: int, writes: float) -> float:
    """Share of all data on the busiest link or port, if every requester uses all channels equally. [-]

    >>> busiest_share((1, 4), "south", 1, 4, 0.0)  # of a channel in the middle: two columns to one side, one to the other
    0.5
    """
    row, col, to_row, to_col = (axis[:, None] for axis in _places(sides, place, count, requesters))
    row, col, to_row, to_col = np.broadcast_arrays(row, col, to_row.T, to_col.T)
    load = np.zeros((6, *sides))
    for share, start, end in ((1 - writes, (row, col), (to_row, to_col)), (writes, (to_row, to_col), (row, col))):
        each = share / row.size
        for way, (low, high) in enumerate(((start[1], end[1]), (end[1], start[1]))):
            load[way] += _along(sides, start[0], low, high, each)
        for way, (low, high) in enumerate(((start[0], end[0]), (end[0], start[0]))):
            load[2 + way] += _along(sides[::-1], end[1], low, high, each).T
    for port, share in ((FROM, writes), (TO, 1 - writes)):
        np.add.at(load[port], (to_row[0], to_col[0]), share / requesters)
    return float(load.max())


def _along(sides: tuple[int, int], line: Array, low: Array, high: Array, each: float) -> Array:
    """What the links of lines carry, from each place to the next one, of ways from `low` up to `high`; shape `sides`."""
    far = np.zeros((sides[0], sides[1] + 1))
    up = high > low
    np.add.at(far, (line[up], low[up]), each)
    np.add.at(far, (line[up], high[up]), -each)
    return far.cumsum(axis=1)[:, :-1]


def mean_hops(sides: tuple[int, int], place: str, count: int, requesters: int) -> float:
    """Hops between router pairs, mean over channels and requesters. [-]"""
    row, col, from_row, from_col = _places(sides, place, count, requesters)
    return float(np.abs(row[:, None] - from_row).mean() + np.abs(col[:, None] - from_col).mean())
