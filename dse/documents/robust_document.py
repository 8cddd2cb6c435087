"""Records of the document of ``dse robust``: a front over draws of the constants."""

from collections.abc import Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.study_records import KindOrderRecord


class TurningRecord(Record):
    """A constant, moved alone to both ends of its range."""

    address: str
    chips: Annotated[Sequence[str], "of the study that share it; none in a study of one chip"]
    value: Annotated[float, "in `unit`, on the first of them"]
    unit: str
    written: Annotated[str, "the value as its file has it"]
    low: Annotated[float, "end of its range over its value"]
    high: Annotated[float, "end of its range over its value"]
    source: Annotated[str, "assumed, fitted, or a key of the sources"]
    range_of: Annotated[Literal["constant", "source"], "whether the constant states its range, or its kind of source does"]
    margin_lost: Annotated[float, "most that the design's margin falls at an end"]
    turns_at: Annotated[Sequence[float], "ends at which the design is off the front by this constant alone"]


class RobustDesignRecord(Record):
    """A design of the front over the draws of the constants."""

    design: Annotated[str, "its id"]
    chip: Annotated[str, "empty where there is no name"]
    share: Annotated[float, "of the draws in which it is on the front"]
    near_share: Annotated[float, "of the draws in which it is on the front or within a hundredth of it"]
    margin: Annotated[float, "how much worse all objectives may get before it leaves the front, relative"]
    turning: Annotated[Sequence[TurningRecord], "the constants that lower its margin most, at most three"]
    not_distinguished: Annotated[Sequence[str], "chips of other kinds of which a design may beat it"]


class RobustDocument(Document):
    """Robustness of a study's front over its assumed and fitted constants."""

    STAMP = "dse/robust/1"
    COMMAND = "dse robust --json"

    study: str
    fidelity: Annotated[str, "of the evaluations"]
    draws: Annotated[int, "of all constants together, the same for all designs"]
    constants_not_moved: Annotated[int, "constants that were not moved alone, for lack of time"]
    constants: Annotated[int, "that were drawn"]
    rivals: Annotated[int, "designs next to the front that took part"]
    left_out: Annotated[int, "designs of the front that did not take part, since it is large"]
    designs: Annotated[Sequence[RobustDesignRecord], "of the front, in the order of the report"]
    order: KindOrderRecord
