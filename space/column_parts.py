"""Columns of many designs, split into groups of rows."""

from collections.abc import Sequence

import numpy as np

from dse.space.array_math import Array
from dse.space.knobs import Columns


def split_columns(columns: Columns, parts: Sequence[Array]) -> list[Columns]:
    """Columns of each group of rows, gathered with one read per column.

    >>> columns = {"a": np.array([1.0, 2.0, 3.0])}
    >>> [part["a"].tolist() for part in split_columns(columns, [np.array([2, 0]), np.array([1])])]
    [[3.0, 1.0], [2.0]]
    """
    if not len(parts):
        return []
    rows = np.concatenate(parts)
    taken = {address: column.take(rows) for address, column in columns.items()}
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [
        {address: column[start:end] for address, column in taken.items()}
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
