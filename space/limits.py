"""Limits as values: what a design needs, what is available, and the items of the need."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Number, ceil_div, maximum, where
from dse.space.errors import DesignError
from dse.space.units import format_quantity


class Limit(NamedTuple):
    """One bound on designs, which holds where ``need <= have``; values broadcast over designs.

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
    """Options of one design that cannot be combined; among many designs, this design is infeasible.

    Args:
        message: one line that begins with the address of one of the options.
        fields: fields of all conflicting options, as named in a mapping or a part; changing any of them may resolve the
            conflict.
        some: which designs of a group are affected, shape (designs,) or one for all; if absent, the options alone decide,
            for all designs.
        need, have: what the first option needs and has, if it has a unit.

    >>> why = "mapping.both.allreduce: nothing adds up so; set partition=k"
    >>> error = IncompatibleOptionsError(why, "partition", "allreduce")
    >>> str(error.verdict)
    'needs 2 layout of mapping.both.allreduce, has 1 layout; nothing adds up so; set partition=k'
    """

    def __init__(
        self, message: str, *fields: str, some: Any = None, need: Number | None = None, have: Number | None = None
    ) -> None:
        super().__init__(message)
        self.fields, self.some, self.need, self.have = fields, some, need, have

    @property
    def limit(self) -> Limit:
        """The conflict as a limit: the options need two layouts where a design has one."""
        address = str(self).partition(": ")[0]
        if self.need is None or self.have is None:
            return Limit(address, 2.0, 1.0, "layout")
        return Limit(address, self.need, self.have, "1")

    @property
    def verdict(self) -> "Infeasibility":
        """The conflict as the violated limit of the design."""
        limit = self.limit
        return Infeasibility(
            limit.address, float(limit.need), float(limit.have), limit.unit, remedy=str(self).partition(": ")[2]
        )


def divides_limit(address: str, side: Any, whole: Any) -> Limit:
    """Limit that a group's side divides the mesh's side; an open side (0) always does."""
    least = maximum(side, 1)
    return Limit(address, ceil_div(whole, least) * least * 1.0, whole * 1.0, "1")


def is_row_count(side: Any, whole: Any) -> Any:
    """Whether groups may span `side` of the mesh's rows: a divisor of them, or a power of two.

    >>> [side for side in range(1, 14) if is_row_count(side, 12)]
    [1, 2, 3, 4, 6, 8, 12]
    """
    least = maximum(side, 1)
    power = np.exp2(np.round(np.log2(least))) == least
    return (ceil_div(whole, least) * least == whole) | (power & (least <= whole))


def divides_rows(address: str, side: Any, whole: Any) -> Limit:
    """Limit that a group's rows are possible on the mesh; open rows (0) always are."""
    least = maximum(side, 1)
    return Limit(address, where(is_row_count(side, whole), whole * 1.0, ceil_div(whole, least) * least * 1.0), whole * 1.0, "1")


FITS = {"rows": divides_rows, "cols": divides_limit}
"""Limits on the sides of a group of tiles: idle rows are allowed, idle columns are not."""


def split_limit(address: str, split: Any, rows: Any, whole: Any) -> Limit:
    """Limit on groups that split a product's depth: one row each, and a row count that divides the mesh's."""
    side, alone = divides_rows(address, split, whole), maximum(rows, 1) == 1
    return Limit(address, where(alone, side.need, maximum(split, 1) * 1.0), where(alone, side.have, 1.0), "1")


def split_remedy_text(split: Any, rows: Any, whole: Any) -> str:
    """Advice on settings that fit, for a depth split that is not possible."""
    if rows > 1:
        return f"groups of {rows:.0f} rows cannot divide the depth: use rows=1 or 0, or split_k=1"
    return suggest_nearest_side("rows", split, whole)


def suggest_nearest_side(name: str, side: Any, whole: Any) -> str:
    """Advice on the nearest group side that divides the mesh."""
    each = range(1, int(whole) + 1)
    fits = [count for count in each if whole % count == 0 or (name == "rows" and is_row_count(count, whole))]
    near = min(fits, key=lambda count: abs(count - side))
    return f"groups of {side:.0f} {name} do not divide the mesh's {whole:.0f}; {near} do"


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """The most violated limit of an infeasible design, with what to change in `remedy` if that is known."""

    limit: str
    need: float
    have: float
    unit: str
    parts: tuple[tuple[str, float], ...] = ()
    remedy: str = ""

    @property
    def excess(self) -> float:
        """Relative excess need / have - 1, positive if the limit is violated; samplers minimise it."""
        return float(self.need / max(self.have, 1e-300) - 1)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {format_quantity(value, self.unit)}" for name, value in self.parts)
        items = f" ({parts})" if parts else ""
        hint = f"; {self.remedy}" if self.remedy else ""
        return (
            f"needs {format_quantity(self.need, self.unit)} of {self.limit}, has "
            f"{format_quantity(self.have, self.unit)}{items}{hint}"
        )
