"""Records of the document of ``dse constants``: uncertain constants of one design by weight."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.shared_records import Metrics


class NotMovedRecord(Record):
    """A constant that was not moved, with the reason."""

    address: str
    why: str


class MetricChangeRecord(Record):
    """Changes of a metric at both ends of a constant's range."""

    at_low: Annotated[float, "relative change with the constant at the low end"]
    at_high: Annotated[float, "relative change with the constant at the high end"]
    elasticity: Annotated[float | None, "of logarithms, from end to end"]


class ConstantWeightRecord(Record):
    """A constant, moved alone to both ends of its range."""

    address: str
    value: Annotated[float, "in `unit`"]
    unit: str
    written: Annotated[str, "the value as its file has it"]
    low: Annotated[float, "end of its range over its value"]
    high: Annotated[float, "end of its range over its value"]
    source: Annotated[str, "assumed, fitted, or a key of the sources"]
    range_of: Annotated[Literal["constant", "source"], "whether it states its range, or its kind of source does"]
    weight: Annotated[float, "largest spread of a metric in the range, over its value"]
    metrics: Annotated[Mapping[str, MetricChangeRecord], "by metric"]
    violates_at_low: Annotated[str | None, "the limit that the design violates there and else keeps"]
    violates_at_high: Annotated[str | None, "the limit that the design violates there and else keeps"]


class ConstantsDocument(Document):
    """Weight of the assumed and fitted constants of a design."""

    STAMP = "dse/constants/1"
    COMMAND = "dse constants --json"

    overrides: Annotated[str, "that name the design"]
    fidelity: Annotated[str, "of the evaluations"]
    metrics: Metrics
    violates: Annotated[str | None, "the limit that the design violates with all constants as they are"]
    not_moved: Annotated[Sequence[NotMovedRecord], "constants that were not moved, with the reason"]
    constants: Annotated[Sequence[ConstantWeightRecord], "those that make the design violate a limit, then by weight"]
