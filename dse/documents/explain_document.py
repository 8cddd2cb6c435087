"""Records of the document of ``dse explain`` on one design."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import Document, Record
from dse.documents.shared_records import KnobValue, WithoutEffect
from dse.documents.study_records import Gains, Moved, NamedDesignRecord, ShadowPriceRecord, Shares, StepRecord


class LooserBoundRecord(Record):
    """An SLO bound a tenth looser, and its effect."""

    bound: Annotated[str, "setting of the workload"]
    from_: KnobValue
    to: KnobValue
    change: Gains
    elasticity: Annotated[Mapping[str, float], "relative change of a metric over that of the bound"]
    feasible: bool


class NextMetricRecord(Record):
    """A metric of a design and of the next one."""

    here: float
    there: float
    unit: str


class NextDesignRecord(Record):
    """The next design in one direction, and its changes."""

    design: Annotated[str | None, "its id; null where it is not of a study"]
    metrics: Annotated[Mapping[str, NextMetricRecord], "the cost and the pace"]
    knobs: Moved


class ExplainDocument(NamedDesignRecord, Document):
    """Explanation of a design: time by resource, effect of each knob, shadow prices."""

    STAMP = "dse/explain/5"
    COMMAND = "dse explain --json, of a design"

    shares_of_time: Shares
    steps: Sequence[StepRecord]
    knobs_that_change_nothing: Sequence[str]
    knobs_not_looked_at: Annotated[Sequence[str], "for lack of time"]
    prices_of_constraints: Sequence[ShadowPriceRecord]
    cheaper_and_slower: NextDesignRecord | None
    dearer_and_faster: NextDesignRecord | None
    looked_among: Annotated[str, "among which designs shadow prices and the next designs were looked for"]
    beaten_by: Annotated[Sequence[str] | None, "ids of front designs; null where there is no study"]
    margins_of_constraints: Annotated[Mapping[str, float], "relative distance to each constraint that holds"]
    shares_of_limits: Annotated[Mapping[str, float], "share of each limit that is used"]
    looser_bounds: Annotated[Sequence[LooserBoundRecord], "SLO bounds of which a tenth more changes something"]
    without_effect: WithoutEffect
