"""Files of an export: size bounds, streamed text, and the summary that names schemas and totals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.documents.export_document import ExportDocument, ExportedProgramRecord, TraceSchemaRecord
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.fields import integer_field
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json

MAX_PACKETS = 200_000
"""Packets, memory requests or nodes that an export may have unless the user allows more: about 100 MB of text."""

LARGEST_MAX_PACKETS = 5_000_000
"""Largest number that the user may allow: about 2 GB of text."""

PACKETS = integer_field("packets, requests or nodes of one program at most", high=LARGEST_MAX_PACKETS)
"""Declaration of ``--max-packets``."""

CHUNK_ROWS = 65_536
"""Rows that are formatted at a time."""


class TraceSchema(NamedTuple):
    """Published schema or reader of a format.

    Attributes:
        format: what files are, in words.
        source: repository that publishes it.
        version: commit or version that was read.
        file: where it is described there.
    """

    format: str
    source: str
    version: str
    file: str

    @property
    def text(self) -> str:
        """Schema in one line, for the header of a file."""
        return f"{self.format}; {self.source} at {self.version}, {self.file}"


def refuse_many(count: int, most: int, what: str) -> None:
    """Refuse an export that would be larger than the user allows.

    Args:
        count: packets, requests or nodes that the files would have.
        most: allowed number.
        what: what is counted, in words.

    Raises:
        DesignError: there are more.
    """
    if count > most:
        raise DesignError(
            f"export-program --max-packets: {count:,} {what} exceed {most:,}; use smaller shapes or fewer cores, or raise it"
        )


def write_rows(path: Path, columns: Sequence[Array], separator: str, header: str = "") -> None:
    """Write columns as text, one line per row, in chunks; whole numbers have no decimals."""
    with write_atomically(path) as place, place.open("w", encoding="ascii", newline="\n") as file:
        if header:
            file.write(header + "\n")
        for start in range(0, len(columns[0]), CHUNK_ROWS):
            texts = [_texts(column[start : start + CHUNK_ROWS]) for column in columns]
            file.writelines(f"{separator.join(row)}\n" for row in zip(*texts, strict=True))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text to a file that is complete or absent."""
    with write_atomically(path) as place, place.open("w", encoding="ascii", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def make_document(
    to: str, folder: Path, schemas: Sequence[TraceSchema], entries: Sequence[Mapping[str, Any]]
) -> ExportDocument:
    """Document of an export, with schemas and totals.

    Args:
        to: word of the simulator.
        folder: of the files.
        schemas: of the files.
        entries: totals of each program, with its case, folder and name.
    """
    records = [
        ExportedProgramRecord(
            case=entry["case"], folder=entry["folder"], program=entry["program"],
            totals={name: value for name, value in entry.items() if name not in ("case", "folder", "program")},
        )
        for entry in entries
    ]  # fmt: skip
    named = [TraceSchemaRecord(**schema._asdict()) for schema in schemas]
    return ExportDocument(simulator=to, folder=str(folder), schemas=named, entries=records)


def write_summary(folder: Path, document: ExportDocument) -> None:
    """Write ``summary.json``: schemas of the files, and totals of each program."""
    with write_atomically(folder / "summary.json") as place:
        place.write_text(format_json(document, indent=1) + "\n")


def _texts(column: Array) -> Iterator[str]:
    if column.dtype.kind in "iub":
        return map(str, column.tolist())
    if column.dtype.kind == "f":
        return (f"{value:.10g}" for value in np.asarray(column, float).tolist())
    return map(str, column.tolist())
