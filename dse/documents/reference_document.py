"""Records of the document of ``dse list KIND``: chips, models, knobs, metrics and others that a user can name."""

from collections.abc import Sequence
from typing import Annotated

from dse.documents.records import Document, Record


class FactRecord(Record):
    """A fact of an entry."""

    name: Annotated[str, "as the head of its column"]
    text: Annotated[str, "as it is printed; - where it is unknown"]
    value: Annotated[float | None, "in the unit; null for text, and where it is unknown"]
    unit: Annotated[str, "SI, or FLOP/s, token and others; 1 for a count or a ratio, empty for text"]


class EntryRecord(Record):
    """One thing that a user can name."""

    name: Annotated[str, "as a user types it"]
    line: Annotated[str, "what it is, in one line"]
    text: Annotated[str, "all that is said of it; empty where that is the line"]
    facts: Sequence[FactRecord]


class ReferenceDocument(Document):
    """Entries of one kind of the reference, or those that a word names."""

    STAMP = "dse/reference/1"
    COMMAND = "dse list KIND --json"

    kind: Annotated[str, "as in dse list KIND"]
    use: Annotated[str, "how one is chosen, with NAME in the place of its name; empty where none is"]
    entries: Sequence[EntryRecord]
