"""Records of the document of ``dse sweep``: every combination of some settings."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import Document, Record, Scalar
from dse.documents.shared_records import Knobs, Metrics


class SweptDesignRecord(Record):
    """One combination of a sweep, with its metrics or the reason why there are none."""

    knobs: Knobs
    feasible: bool
    metrics: Metrics
    limit: Annotated[str | None, "address of the limit that is violated most; null if all hold or nothing was evaluated"]
    why_not: Annotated[str | None, "why the combination is infeasible or no design; null for a feasible one"]


class SweepDocument(Document):
    """Every combination of the swept settings: feasible ones first, by the objective."""

    STAMP = "dse/sweep/1"
    COMMAND = "dse sweep --json"

    objective: Annotated[str, "metric that orders the designs"]
    better: Annotated[str, "max or min"]
    swept: Annotated[Mapping[str, Sequence[Scalar]], "values of each swept setting as they were typed, by address"]
    designs: Sequence[SweptDesignRecord]
    refused_by: Annotated[Mapping[str, int], "number of infeasible combinations by limit or reason, the commonest first"]
