"""Limits as values: what is needed, what is there, and what makes up the need."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Number, ceil_div, maximum, where
from dse.space.errors import DesignError
from dse.space.units import format_quantity


class Limit(NamedTuple):
    """One bound on designs; it holds where ``need <= have``. Leaves broadcast over designs.

    Attributes:
        address: the field that bounds, such as ``chip.hbm.capacity``.
        need, have: in `unit`.
        unit: unit of both.
        parts: the items that add up to the need, by name; may be empty.
    """

    address: str
    need: Number
    have: Number
    unit: str
    parts: tuple[tuple[str, Number], ...] = ()


class IncompatibleOptionsError(DesignError):
    """Words of one design that do not go together: it alone cannot be, so that among others it is infeasible.

    Args:
        message: in one line, beginning with the address of one of the words.
        fields: all of them, as they are called in a mapping or a part of it; another word of any may do.
        some: of designs that are worked out together, which it holds for, shape (designs,) or one for all; where it is not
            said, words alone decide, and it holds for all of them.
        need, have: of what the first word is bounded by, where that has a unit.

    >>> why = "mapping.both.allreduce: nothing adds up so; say partition=k"
    >>> error = IncompatibleOptionsError(why, "partition", "allreduce")
    >>> str(error.verdict)
    'needs 2 layout of mapping.both.allreduce, has 1 layout; nothing adds up so; say partition=k'
    """

    def __init__(
        self, message: str, *fields: str, some: Any = None, need: Number | None = None, have: Number | None = None
    ) -> None:
        super().__init__(message)
        self.fields, self.some, self.need, self.have = fields, some, need, have

    @property
    def limit(self) -> Limit:
        """The refusal as a limit: of layouts that one design has there is one, and these words take two."""
        address = str(self).partition(": ")[0]
        if self.need is None or self.have is None:
            return Limit(address, 2.0, 1.0, "layout")
        return Limit(address, self.need, self.have, "1")

    @property
    def verdict(self) -> "Infeasibility":
        """The refusal as what binds the design."""
        of = self.limit
        return Infeasibility(of.address, float(of.need), float(of.have), of.unit, remedy=str(self).partition(": ")[2])


def divides_limit(address: str, side: Any, whole: Any) -> Limit:
    """That the side of a group divides that of the mesh; 0, which is chosen, does."""
    least = maximum(side, 1)
    return Limit(address, ceil_div(whole, least) * least * 1.0, whole * 1.0, "1")


def is_row_count(side: Any, whole: Any) -> Any:
    """Whether groups may have so many of the mesh's rows: those that divide them, or a power of two, which leaves some idle.

    >>> [side for side in range(1, 14) if is_row_count(side, 12)]
    [1, 2, 3, 4, 6, 8, 12]
    """
    least = maximum(side, 1)
    power = np.exp2(np.round(np.log2(least))) == least
    return (ceil_div(whole, least) * least == whole) | (power & (least <= whole))


def divides_rows(address: str, side: Any, whole: Any) -> Limit:
    """That the mesh's rows can be groups of so many; 0, which is chosen, can."""
    least = maximum(side, 1)
    return Limit(address, where(is_row_count(side, whole), whole * 1.0, ceil_div(whole, least) * least * 1.0), whole * 1.0, "1")


FITS = {"rows": divides_rows, "cols": divides_limit}
"""Limits on the sides of a group of tiles: idle rows are allowed, idle columns are not."""


def split_limit(address: str, split: Any, rows: Any, whole: Any) -> Limit:
    """That groups which divide a product's depth have one row each and are as of `divides_rows`; 0, which is chosen, is."""
    side, alone = divides_rows(address, split, whole), maximum(rows, 1) == 1
    return Limit(address, where(alone, side.need, maximum(split, 1) * 1.0), where(alone, side.have, 1.0), "1")


def split_remedy_text(split: Any, rows: Any, whole: Any) -> str:
    """In words, what would do in the place of a split that cannot be."""
    if rows > 1:
        return f"groups of {rows:.0f} rows divide no depth: rows=1 or 0, or split_k=1"
    return nearest_side_text("rows", split, whole)


def nearest_side_text(name: str, side: Any, whole: Any) -> str:
    """In words, the side of a group nearest to one that does not divide the mesh."""
    each = range(1, int(whole) + 1)
    fits = [count for count in each if whole % count == 0 or (name == "rows" and is_row_count(count, whole))]
    near = min(fits, key=lambda count: abs(count - side))
    return f"groups of {side:.0f} {name} do not divide the mesh's {whole:.0f}; {near} do"


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """What binds a design that cannot be: a value, never an exception; `remedy` says what would do, where that is known."""

    limit: str
    need: float
    have: float
    unit: str
    parts: tuple[tuple[str, float], ...] = ()
    remedy: str = ""

    @property
    def excess(self) -> float:
        """Need / have - 1, what a sampler gets as the constraint; above 0 for what cannot be. None of nothing is no excess."""
        return float(self.need / max(self.have, 1e-300) - 1)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {format_quantity(value, self.unit)}" for name, value in self.parts)
        items = f" ({parts})" if parts else ""
        hint = f"; {self.remedy}" if self.remedy else ""
        return (
            f"needs {format_quantity(self.need, self.unit)} of {self.limit}, has "
            f"{format_quantity(self.have, self.unit)}{items}{hint}"
        )
