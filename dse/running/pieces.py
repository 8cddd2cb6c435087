"""How parts of a screen are cut for workers, by what rows of their kinds have cost."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dse.space.elementwise import Array

LEAST = 256
"""Rows of a piece, at least: calls of few rows take nearly as long as calls of many, and two workers would make them twice."""


class Piece(NamedTuple):
    """Rows that one worker takes at once.

    Attributes:
        kind: of chip; what is worked out for some rows of a kind serves others of it.
        rows: of the block, shape (rows,).
        takes: what it takes. [s], or rows where nothing is known
    """

    kind: int
    rows: Array
    takes: float


def cut(parts: Sequence[Array], kinds: Sequence[int], pace: Mapping[int, float], count: int) -> list[Piece]:
    """Pieces of parts, those that take longest first.

    A part is cut where it would take more than half of what a worker has to do, so that the others have something left to
    take beside it, and no piece has fewer than `LEAST` rows.

    Args:
        parts: rows that belong together.
        kinds: of each part.
        pace: by kind, seconds that a row takes; of a kind that is not there, the mean of those that are, or alike. [s]
        count: of workers.

    >>> parts = [np.arange(1000), np.arange(1000, 1100)]
    >>> [(piece.kind, len(piece.rows)) for piece in cut(parts, [0, 1], {0: 2.0, 1: 1.0}, 2)]
    [(0, 334), (0, 333), (0, 333), (1, 100)]
    >>> [(piece.kind, len(piece.rows)) for piece in cut(parts, [0, 1], {0: 1.0, 1: 9e9}, 2)]
    [(1, 100), (0, 1000)]
    """
    usual = sum(pace.values()) / len(pace) if pace else 1.0
    takes = [len(part) * pace.get(kind, usual) for part, kind in zip(parts, kinds, strict=True)]
    fair = sum(takes) / (2 * count)
    found = []
    for part, kind, seconds in zip(parts, kinds, takes, strict=True):
        times = max(1, min(int(np.ceil(seconds / fair)) if fair else 1, len(part) // LEAST))
        found += [Piece(kind, rows, seconds / times) for rows in np.array_split(part, times)]
    return sorted(found, key=lambda piece: -piece.takes)
