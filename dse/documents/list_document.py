"""Records of the document of ``dse list``: studies, and what is stored of them."""

from collections.abc import Sequence
from typing import Annotated

from dse.documents.records import Document, Record


class StoredRunRecord(Record):
    """What is stored of the last run of a study."""

    state: Annotated[str | None, "of its last run: running, done, interrupted, failed, killed or lost; null: no run"]
    searched: Annotated[int | None, "designs that its last run had searched; null where it does not say"]
    refused: Annotated[str | None, "why its results cannot be read; null where they can"]


class ListedStudyRecord(Record):
    """A study, and what is stored of it."""

    name: Annotated[str, "as in dse run study=NAME"]
    question: Annotated[str, "empty if the study has none, or its file is not here"]
    defined: Annotated[bool, "whether the study ships or stands in ./studies; others only ran here"]
    ran: Annotated[StoredRunRecord | None, "what is stored of it in ./runs; null where nothing is"]


class ListDocument(Document):
    """Studies that ship or stand in ./studies, and those that ran in this folder."""

    STAMP = "dse/list/2"
    COMMAND = "dse list --json"

    studies: Sequence[ListedStudyRecord]
