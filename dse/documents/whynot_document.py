"""Records of the document of ``dse whynot``: the position of a design in a study."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import Document, Record, Scalar
from dse.documents.shared_records import KnobValue, MeasuredRecord, Metrics, WithoutEffect
from dse.documents.study_records import Breaks, Gains, Moved, NamedDesignRecord


class RivalRecord(Record):
    """A stored design that beats the design of the question."""

    design: Annotated[str, "its id"]
    metrics: Metrics
    better_by: Gains
    knobs: Moved
    alike: Annotated[Sequence[str], "ids of others with the same objectives, up to a thousandth of each"]


class PathChangeRecord(Record):
    """One change on the way to a design, and what the design then is."""

    change: Annotated[str, "a knob's address, or what no knob of the study moves"]
    from_: KnobValue
    to: KnobValue
    metrics: Metrics
    feasible: bool
    breaks: Breaks
    beats_it: Annotated[bool, "whether the design of the question is dominated from here on"]


class OutsideSettingRecord(Record):
    """A setting that no knob moves, in the study and in the design."""

    study: Scalar
    here: Scalar


class CertifiedBoxRecord(Record):
    """What a certificate proves of the box that a design is in."""

    ranges: Moved
    infeasible: Annotated[str | None, "why no design of the box is feasible; null if one may be"]
    bound: Annotated[Mapping[str, MeasuredRecord], "best value of each objective in the box"]
    front_design: Annotated[str | None, "id of the design of the front that the bound beats least"]
    front_metrics: Annotated[Mapping[str, MeasuredRecord], "its objectives"]
    lead: Annotated[
        float, "share by which the bound is better than that design in one objective at most; below 0: worse in all"
    ]


class WhynotDocument(NamedDesignRecord, Document):
    """Position of a design in a study: designs that beat it, and through which changes."""

    STAMP = "dse/whynot/5"
    COMMAND = "dse whynot --json"

    outside_the_study: Annotated[
        Mapping[str, OutsideSettingRecord], "settings that no knob of the study moves, in SI, by address"
    ]
    front_designs_that_beat_it: Annotated[Sequence[RivalRecord], "distinct ones, fewest changes first"]
    front_designs_that_it_beats: Annotated[Sequence[str], "their ids"]
    distance: Annotated[float | None, "share by which it would have to be better in every objective; null where unknown"]
    alone: Annotated[Mapping[str, MeasuredRecord], "what each objective alone would have to be"]
    fewest_changes: Annotated[RivalRecord | None, "the stored design that beats it with fewest changes"]
    path: Annotated[Sequence[PathChangeRecord], "to that design, each time the best change next"]
    not_ordered: Annotated[Sequence[str], "changes whose order there was no time for"]
    stored_designs: Annotated[int, "that it was compared with"]
    certified: Annotated[
        CertifiedBoxRecord | None, "what the certificate of the front proves of the design's box; null without a certificate"
    ]
    without_effect: WithoutEffect
