"""Records of the documents on the front of a study: of ``dse explain STUDY`` and of a run."""

from collections.abc import Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.shared_records import Knobs, Metrics
from dse.documents.study_records import KindOrderRecord, Objectives, ShadowPriceRecord, Shares, StepRecord

NoiseVerdict = Literal["kept", "within noise", "broken"]


class MarginRecord(Record):
    """Margin of a design to a constraint, against the noise of the sample of requests."""

    constraint: Annotated[str, "as it is written"]
    value: Annotated[float, "of its metric, in SI"]
    interval_95: Annotated[
        float | None, "half the 95 % interval of the value over streams of as many requests; null where unknown"
    ]
    sigmas: Annotated[
        float | None, "standard errors by which it is kept, below 0 where it is broken; null where unknown or not finite"
    ]
    verdict: NoiseVerdict
    text: Annotated[str, "all of it, with units"]


class OfferedLoadRecord(Record):
    """Offered load of the designs of a front, least and most."""

    least: float
    most: float


class FrontSampleRecord(Record):
    """Load of the front, and noise of its requests."""

    rate: Annotated[str | None, "the load that all designs have; null for batches and for the maximum rate"]
    offered_load: Annotated[OfferedLoadRecord | None, "of the front; null where unknown"]
    load_text: Annotated[str | None, "both in a sentence"]
    within_noise: Annotated[
        Sequence[str] | None, "ids of front designs within noise of a constraint; null where it was not looked at"
    ]
    noise_text: Annotated[str | None, "how many, in a sentence"]


class FrontDesignRecord(Record):
    """A design of the front, with the effect of one step of each knob."""

    design: Annotated[str, "its id"]
    rank: Annotated[int, "its place on the front by the first objective, from 1; it changes as the study goes on"]
    knobs: Knobs
    metrics: Metrics
    shares_of_time: Shares | None
    steps: Annotated[Sequence[StepRecord] | None, "null where there was no time for them"]
    margins: Annotated[
        Sequence[MarginRecord] | None, "to each constraint; null where there was no time, or one stream of requests"
    ]


class RemarkRecord(Record):
    """A caveat of the study, as text."""

    kind: str
    what: str
    text: str


class FrontDocument(Document):
    """Front of a study, effect of each knob there, and shadow prices."""

    STAMP = "dse/front/5"
    COMMAND = "dse explain --json STUDY"

    study: str
    objectives: Objectives
    designs: Annotated[Sequence[FrontDesignRecord], "those that no other beats"]
    prices_of_constraints: Sequence[ShadowPriceRecord]
    remarks: Annotated[Sequence[RemarkRecord], "caveats of the study"]
    distinct: Annotated[Sequence[str], "of designs that errors do not distinguish, one for each: their ids"]
    sample: FrontSampleRecord
    order: KindOrderRecord


class RunDocument(Document):
    """A study that ran: where its results and its report are, and its front."""

    STAMP = "dse/run/5"
    COMMAND = "dse mcp --allow-run, tool run"

    name: Annotated[str, "as the other commands take it"]
    state: Annotated[str, "of the run: done"]
    results: Annotated[str, "the store: a file, or a URL without its password"]
    report: Annotated[str, "path of the page"]
    front: FrontDocument
