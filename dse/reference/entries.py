"""What the reference has of one thing that users name: its name, its line, and its facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dse.space.units import format_quantity


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
        return self.value if isinstance(self.value, str) else format_quantity(self.value, self.unit)


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
    """

    line: str
    use: str
    entries: Callable[[], Sequence[Entry]]
    columns: tuple[str, ...] = ()
