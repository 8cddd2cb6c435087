"""Records of the document of ``dse export-program``: files for another simulator and their totals."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import Document, Record, Scalar


class TraceSchemaRecord(Record):
    """Published schema or program that reads a format."""

    format: Annotated[str, "what the files are"]
    source: Annotated[str, "repository that publishes it"]
    version: Annotated[str, "commit or version that was read"]
    file: Annotated[str, "where the format is described there"]


class ExportedProgramRecord(Record):
    """One program or load that was written."""

    case: Annotated[str, "case of the workload"]
    folder: Annotated[str, "of its files, from that of the export"]
    program: Annotated[str, "first part of the names of its files"]
    totals: Annotated[Mapping[str, Scalar], "packets, flits, byte-hops, requests, nodes by type, bytes, cycles; SI units"]


class ExportDocument(Document):
    """Files written for another simulator; summary.json in their folder is the same document."""

    STAMP = "dse/export-program/1"
    COMMAND = "dse export-program --json"

    simulator: Annotated[str, "which one, as --to names it"]
    folder: Annotated[str, "of the files"]
    schemas: Sequence[TraceSchemaRecord]
    entries: Sequence[ExportedProgramRecord]
