"""Equal rows of design columns, so that repeated designs are evaluated once."""

import numpy as np

from dse.space.array_math import Array
from dse.space.knobs import Columns

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Of a multiplicative hash: 2^64 over the golden ratio."""

HASH_SHIFT = np.uint64(32)
"""Bits by which the upper half of a product comes into the lower one."""


def first_equal_rows(columns: Columns) -> Array:
    """Index of the first equal row, for each row of the columns; inactive cells are equal.

    >>> first_equal_rows({"a": np.array([2.0, 1.0, 2.0, 2.0]), "b": np.array([np.nan, 0.0, np.nan, 3.0])}).tolist()
    [0, 1, 0, 3]
    """
    bits = [np.ascontiguousarray(column, dtype=float).view(np.uint64) for column in columns.values()]
    mixed = np.zeros(len(bits[0]), np.uint64)
    for bit in bits:
        mixed = (mixed ^ bit) * HASH_MULTIPLIER
        mixed ^= mixed >> HASH_SHIFT
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    equal_rows = first[which]
    every = np.arange(len(equal_rows))
    for bit in bits:  # rows of one hash that differ stand for themselves
        equal_rows = np.where(bit == bit[equal_rows], equal_rows, every)
    return np.asarray(equal_rows)
