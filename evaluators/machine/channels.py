"""Channels of main memory on a mesh, as a program feels them: where each one is, and how long a block takes."""

from typing import NamedTuple

import numpy as np

from space.elementwise import Array


class Channels(NamedTuple):
    """Memory channels, each served one block after the other, in the order in which requests come.

    Attributes:
        row, col: of the router that a channel is at, shape (channels,).
        latency: from a request at the channel to its first word. [s]
        byte: of a long block, on the channel. [s/B]
    """

    row: Array
    col: Array
    latency: float
    byte: float


def channels(place: str, count: int, rows: int, cols: int, latency: float, bandwidth: float) -> Channels:
    """Channels of a mesh.

    Args:
        place: an edge, on which they are spread evenly, or "core": one at each core, row by row, whatever the count.
        count: how many.
        rows, cols: of the mesh.
        latency: from a request to its first word. [s]
        bandwidth: of one channel, as blocks reach it. [B/s]

    >>> channels("south", 2, 4, 8, 0.0, 1.0)[:2]
    (array([3, 3]), array([2, 6]))
    """
    if place == "core":
        row, col = (axis.ravel() for axis in np.indices((rows, cols)))
    else:
        along = ((2 * np.arange(count) + 1) * (cols if place in ("south", "north") else rows)) // (2 * count)
        edge = np.full(count, {"south": rows - 1, "north": 0, "west": 0, "east": cols - 1}[place])
        row, col = (edge, along) if place in ("south", "north") else (along, edge)
    return Channels(row, col, latency, 1 / bandwidth)
