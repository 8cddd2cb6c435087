"""Columns of a table that grows by pieces."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse.space.array_math import Array


@dataclass
class GrowingColumn:
    """One column of values of many tasks, stored in pieces."""

    kind: Any
    pieces: list[tuple[Any, int]] = field(default_factory=list)

    def add(self, values: Any, count: int) -> None:
        """Append values, or one value for each of `count` tasks; the array must not change afterwards."""
        self.pieces.append((values, count))

    def to_array(self) -> Array:
        """Values of all pieces as one array."""
        column, end = np.empty(sum(count for _, count in self.pieces), self.kind), 0
        for values, count in self.pieces:
            column[end : end + count] = values
            end += count
        return column
