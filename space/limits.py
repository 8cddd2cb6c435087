"""Limits as values: what is needed, what is there, and what makes up the need."""

from dataclasses import dataclass

from space.elementwise import Number
from space.units import show


@dataclass(frozen=True, slots=True)
class Limit:
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


@dataclass(frozen=True, slots=True)
class Infeasible:
    """What binds a design that cannot be: a value, never an exception; `remedy` says what would do, where that is known."""

    limit: str
    need: float
    have: float
    unit: str
    parts: tuple[tuple[str, float], ...] = ()
    remedy: str = ""

    @property
    def excess(self) -> float:
        """Need / have - 1, what a sampler gets as the constraint; above 0 for what cannot be."""
        return self.need / self.have - 1 if self.have else float("inf")

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {show(value, self.unit)}" for name, value in self.parts)
        items = f" ({parts})" if parts else ""
        hint = f"; {self.remedy}" if self.remedy else ""
        return f"needs {show(self.need, self.unit)} of {self.limit}, has {show(self.have, self.unit)}{items}{hint}"
