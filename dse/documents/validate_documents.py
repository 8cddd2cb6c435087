"""Records of the documents of ``dse validate``: published figures beside simulated ones."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.shared_records import KindRecord, PhysicsVersion

Role = Literal["calibration", "check", "report"]


class PublishedRowRecord(Record):
    """A published figure and its simulated value."""

    id: str
    where: Annotated[str, "in the publication"]
    role: Annotated[Role, "what the row is for"]
    metric: str
    unit: Annotated[str, "of `published` and `simulated`"]
    published: Annotated[str, "a number, or a range as LOW..HIGH"]
    simulated: Annotated[float | None, "null where no design of a space is feasible"]
    error: Annotated[float | None, "simulated over published less 1; 0 inside a published range"]
    note: str
    fits: Annotated[bool, "whether every limit holds"]
    kind: Annotated[KindRecord, "kind of the row"]
    compares: Annotated[bool, "whether it is a design's over a baseline's"]
    order: Annotated[bool, "whether the published range is so wide that it gives only an order"]
    seconds: Annotated[float, "s; that it took to simulate"]
    is_range: Annotated[bool, "whether the published value is a range"]
    in_range: Annotated[bool, "whether it is a range and the simulated value lies inside"]


class ValidateDocument(Document):
    """Published figures of files against simulated ones."""

    STAMP = "dse/validate/3"
    COMMAND = "dse validate --json FILE"

    files: Annotated[Mapping[str, Sequence[PublishedRowRecord]], "rows by file"]


class FailureCountRecord(Record):
    """Rows that fail, and rows."""

    fail: Annotated[int, "rows"]
    rows: Annotated[int, "of so many"]


class ErrorGroupRecord(Record):
    """Errors of the rows of one study, chip and phase."""

    study: str
    chip: str
    phase: str
    rows: int
    scored: Annotated[int, "calibration and check rows that publish a number"]
    mean: Annotated[float | None, "of absolute relative errors"]
    p90: Annotated[float | None, "likewise"]
    worst: Annotated[float | None, "likewise"]
    held: Annotated[int, "published ranges with the simulated value inside, of any role"]
    ranges: Annotated[int, "of so many published ranges"]
    failures: Annotated[Mapping[str, tuple[int, int]], "by role: rows that fail, and rows"]


class ScoreRecord(Record):
    """Errors of numbers, and ranges that hold."""

    numbers: Annotated[int, "rows that publish a number and have a simulated value"]
    median: Annotated[float | None, "of their absolute relative errors; null where there are none"]
    worst: Annotated[float | None, "likewise"]
    held: Annotated[int, "published ranges with the simulated value inside"]
    ranges: Annotated[int, "of so many published ranges"]


class StudyNameRecord(Record):
    """The study that a row is of."""

    study: str


class CheckedRowRecord(PublishedRowRecord, StudyNameRecord):
    """A published figure of a study, with its tolerance."""

    tolerance: Annotated[float, "of the absolute relative error"]
    fails: Annotated[bool, "whether the error is larger than that, or there is no result"]
    known: Annotated[str, "reason of a known miss; empty if the check is expected to hold"]


class ValidationDocument(Document):
    """Published figures of studies against simulated ones."""

    STAMP = "dse/validation/3"
    COMMAND = "dse validate --json [STUDY]"

    physics: PhysicsVersion
    residuals_physics: Annotated[int, "version at which the error bands were computed"]
    scores: Annotated[Mapping[str, ScoreRecord], "by role; numbers and ranges apart"]
    failures: Annotated[Mapping[str, FailureCountRecord], "by role"]
    broken: Annotated[Sequence[str], "checks that fail and are no known miss, as STUDY/ID"]
    groups: Annotated[Sequence[ErrorGroupRecord], "by study, chip and phase"]
    slowest: Annotated[Sequence[str], "as STUDY/ID"]
    rows: Sequence[CheckedRowRecord]
    page: Annotated[str, "path of the page; empty where none was written"]
