"""What the reference has of one thing that users name: its name, its line, and its facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dse.space.units import format_quantity

FLOPS = "FLOP/s"
"""Unit of peaks, which quantities have as op/s."""

BILLION = 1e9
"""Count from which on it is told in billions."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of an entry, as the head of its column and its value.

    Attributes:
        value: a number in SI, or text; None where the fact is unknown.
        unit: of a number; "" for text.
    """

    value: float | int | str | None
    unit: str = ""

    @property
    def text(self) -> str:
        """The value as it is printed; a dash where it is unknown."""
        if self.value is None:
            return "-"
        if isinstance(self.value, str):
            return self.value
        if self.unit == FLOPS:
            return format_quantity(self.value, "op/s").replace("op/s", FLOPS)
        if self.unit == "1" and self.value >= BILLION:
            return f"{self.value / BILLION:.4g} bn"
        return format_quantity(self.value, self.unit)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing of the reference.

    Attributes:
        name: as a user types it.
        line: what it is, in one line.
        facts: by name, in the order of their columns.
        text: all that is said of it, where that is more than the line.
    """

    name: str
    line: str
    facts: Mapping[str, Fact]
    text: str = ""

    def has_word(self, word: str) -> bool:
        """Whether a word is part of its name, its text or a fact, in whatever case."""
        parts = (self.name, self.line, self.text, *(fact.text for fact in self.facts.values()))
        return any(word.lower() in part.lower() for part in parts)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of things that users name.

    Attributes:
        line: what they are, in one line.
        use: how one is chosen, with NAME in the place of its name; "" where none is.
        entries: lists all of them.
        columns: facts that a list shows, those that matter most first.
        group: fact by which a list is divided; "" where it is not.
        columns_first: whether columns matter more than the line, which then has only the room that they leave.
    """

    line: str
    use: str
    entries: Callable[[], Sequence[Entry]]
    columns: tuple[str, ...] = ()
    group: str = ""
    columns_first: bool = False
