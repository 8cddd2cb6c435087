"""Records that documents on studies share: designs, steps of knobs and shadow prices."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from dse.documents.records import Record
from dse.documents.shared_records import Knobs, KnobValue, MeasuredRecord, Metrics

Objectives = Annotated[Mapping[str, Literal["max", "min"]], "direction by metric"]


Gains = Annotated[Mapping[str, float | None], "relative change by objective, as 0.1 for a tenth more; null where nothing says"]


Shares = Annotated[Mapping[str, float], "shares of time by resource; they add up to 1"]


Breaks = Annotated[str | None, "limits and constraints that it violates; null if it is feasible"]


class StepRecord(Record):
    """A design that differs in one knob."""

    knob: Annotated[str, "address"]
    from_: KnobValue
    to: KnobValue
    change: Gains
    elasticity: Annotated[
        Mapping[str, float | None], "relative change of an objective over that of the knob; null where there is none"
    ]
    feasible: bool
    breaks: Breaks


class ShadowPriceRecord(Record):
    """Gain from relaxing a constraint."""

    constraint: Annotated[str, "a constraint as it is written, or a limit"]
    unit: Annotated[str, "of `is`, `would_have_to_be` and `relaxation`"]
    is_: float
    would_have_to_be: Annotated[float, "with the smallest relaxation that admits a better design"]
    relaxation: Annotated[float, "size of the relaxation, above 0"]
    text: Annotated[str, "the same, and what it buys, in a sentence with units"]
    buys: Annotated[Mapping[str, MeasuredRecord], "by how much objectives would be better"]
    design: Annotated[str, "the id of the design that it admits"]
    for_each: Annotated[Mapping[str, MeasuredRecord], "the same for each unit of relaxation"]
    knobs: Knobs


class ChangedKnobRecord(Record):
    """A change of one knob, from a value to another."""

    from_: KnobValue
    to: KnobValue


Moved = Annotated[Mapping[str, ChangedKnobRecord], "changes by address"]


class TiedLeafRecord(Record):
    """A leaf that follows knobs, with its value."""

    value: float
    unit: str
    follows: Annotated[str, "of what it is made"]


class DesignNameRecord(Record):
    """A design by its id and its name."""

    design: Annotated[str, "its id"]
    name: Annotated[str, "its id, or what was typed"]


class NamedDesignRecord(DesignNameRecord):
    """A design that the user names: its knobs, metrics and limits."""

    knobs: Knobs
    tied: Annotated[Mapping[str, TiedLeafRecord], "leaves that follow knobs, by address"]
    fidelity: str
    objectives: Objectives
    metrics: Metrics
    feasible: bool
    breaks: Breaks


class KindBandRecord(Record):
    """Error band of the rates of one chip."""

    chip: str
    kind: Annotated[str, "software stack, or machine without one: chips of a kind share their error"]
    low: Annotated[float, "measured over predicted rate"]
    high: Annotated[float, "measured over predicted rate"]
    source: Annotated[str, "where the band is from"]


class KindOrderRecord(Record):
    """Order between kinds of chips, within what is known of the rates that they reach."""

    text: Annotated[str, "all of it as text; empty for one kind of chip"]
    bands: Annotated[Sequence[KindBandRecord], "of each chip; none if all are of one kind"]
    carried: Annotated[Sequence[str], "objectives that go with rates"]
    not_distinguished: Annotated[
        Mapping[str, Sequence[str]], "by id of a front design, chips of other kinds of which a design may beat it"
    ]
