"""Pieces of a screen for workers, cut by the time that rows of their kinds took."""

from collections.abc import Mapping, Sequence
from heapq import heapreplace
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from dse.space.array_math import Array

MIN_ROWS = 256
"""Rows of a piece, at least: calls of few rows take nearly as long as calls of many, and two workers would make them twice."""


class WorkPiece(NamedTuple):
    """Rows that one worker takes at once.

    Attributes:
        kind: of chip; what is worked out for some rows of a kind serves others of it.
        rows: of the block, shape (rows,).
        takes: what it takes. [s], or rows where nothing is known
    """

    kind: int
    rows: Array
    takes: float


def relative_cost(rows: int) -> float:
    """Time of a number of rows of one kind over that of one row. [-]

    Less than proportional, since rows share intermediate results. For mesh_llm, a part takes 1.5 to 2.7 times as long with 5 to
    26 times as many rows, and two halves of one on two workers 1.3 times as long as the whole.
    """
    return sqrt(rows)


def cut_pieces(parts: Sequence[Array], kinds: Sequence[int], pace: Mapping[int, float], count: int) -> list[WorkPiece]:
    """Pieces of parts, the longest first.

    Parts are cut where all of them are then done sooner, although pieces of a part take longer than it: all those into more
    pieces that would take longer than the longest one's do. No piece has fewer than `MIN_ROWS` rows.

    Args:
        parts: rows that belong together.
        kinds: of each part.
        pace: by kind, what a part takes for each of its `shares`; of a kind that is not there, the mean of those that are. [s]
        count: of workers.

    >>> parts = [np.arange(1000), np.arange(1000, 1100)]
    >>> [(piece.kind, len(piece.rows)) for piece in cut_pieces(parts, [0, 1], {0: 2.0, 1: 1.0}, 2)]
    [(0, 500), (0, 500), (1, 100)]
    >>> [(piece.kind, len(piece.rows)) for piece in cut_pieces(parts, [0, 1], {0: 1.0, 1: 9.0}, 2)]
    [(1, 100), (0, 1000)]
    """
    usual = sum(pace.values()) / len(pace) if pace else 1.0
    paces = [pace.get(kind, usual) for kind in kinds]
    takes = [pace * relative_cost(len(part)) for pace, part in zip(paces, parts, strict=True)]
    ways = [_piece_counts(parts, takes, max(takes, default=0.0) / relative_cost(most)) for most in range(1, count + 1)]
    times = min(ways, key=lambda way: _finish_time(takes, way, count))
    found_pieces = []
    for part, kind, given_pace, pieces in zip(parts, kinds, paces, times, strict=True):
        found_pieces += [WorkPiece(kind, rows, given_pace * relative_cost(len(rows))) for rows in np.array_split(part, pieces)]
    return sorted(found_pieces, key=lambda piece: -piece.takes)


def _piece_counts(parts: Sequence[Array], takes: Sequence[float], most: float) -> list[int]:
    """Of each part, how many pieces none of which takes longer than that, as far as it has so many rows."""
    if not most:
        return [1] * len(parts)
    wanted = [ceil(round((seconds / most) ** 2, 6)) for seconds in takes]
    return [max(1, min(pieces, len(part) // MIN_ROWS)) for pieces, part in zip(wanted, parts, strict=True)]


def _finish_time(takes: Sequence[float], pieces: Sequence[int], count: int) -> float:
    """When all is done, where whoever is done first takes the longest that is left. [s]"""
    ends = [0.0] * count
    for each in sorted(
        (seconds / relative_cost(piece) for seconds, piece in zip(takes, pieces, strict=True) for _ in range(piece)),
        reverse=True,
    ):
        heapreplace(ends, ends[0] + each)
    return max(ends)
