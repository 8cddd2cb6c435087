"""Columns of a table that grows by pieces."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse.space.array_math import Array


@dataclass
class GrowingColumn:
    """Values of many tasks, in pieces."""

    kind: Any
    pieces: list[tuple[Any, int]] = field(default_factory=list)

    def add(self, values: Any, count: int) -> None:
        """More values, or one for each of `count`; whoever gives an array leaves it as it is."""
        self.pieces.append((values, count))

    def whole(self) -> Array:
        """All of them."""
        found, end = np.empty(sum(count for _, count in self.pieces), self.kind), 0
        for values, count in self.pieces:
            found[end : end + count] = values
            end += count
        return found
