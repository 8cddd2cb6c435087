"""Records of the document of ``dse compare``: chips side by side."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import Document, Record, Scalar
from dse.documents.shared_records import KernelBasis, Metrics, SecondsByResource, StackBasisRecord, WithoutEffect


class ComparedSearchRecord(Record):
    """Designs that the search of a chip evaluated, and those left out."""

    designs: Annotated[int, "that the search evaluated"]
    feasible: Annotated[int, "those of them that fit"]
    refused_by: Annotated[Mapping[str, Annotated[int, "designs"]], "evaluated or not, by the limit that they break"]
    left_out: Annotated[str, "the same in words"]


class ComparedChipRecord(Record):
    """One chip of a comparison, with the best mapping that was found."""

    chip: str
    why_not: Annotated[str | None, "why the chip has no design for the workload; null if it has one"]
    chips: Annotated[int | None, "number of chips that work together, if areas are known"]
    dies_of_a_chip: Annotated[int | None, "those below others included"]
    set: Annotated[Sequence[str], "parts and values of the chip that differ from its preset, as overrides"]
    mapping: Annotated[str | None, "name of the choice"]
    software: Annotated[str | None, "name of the stack of libraries; null where a chip runs without one"]
    stack_basis: StackBasisRecord | None
    kernel_basis: KernelBasis
    knobs: Annotated[Mapping[str, Scalar], "what the search chose, in SI, by address"]
    formats: Annotated[Mapping[str, str], "number formats, by what they are of"]
    metrics: Metrics
    tokens_per_joule: Annotated[float | None, "token/J; null where energy is not known"]
    seconds_by_bound: SecondsByResource
    looked_at: ComparedSearchRecord


class CompareDocument(Document):
    """Chips side by side, each with the best mapping that a short search finds."""

    STAMP = "dse/compare/7"
    COMMAND = "dse compare --json"

    objective: Annotated[str, "the metric that each mapping is best in"]
    note: Annotated[
        str | None, "chips with different software and the override that equalises it; constants fitted on other chips"
    ]
    cases: Annotated[Sequence[str], "cases of the workload as text"]
    chips: Sequence[ComparedChipRecord]
    without_effect: WithoutEffect
